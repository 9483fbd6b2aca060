/* GETATTR, SETATTR, ACCESS, READLINK: what concerns one object by its handle. */
#include "nfs/changes.h"
#include "nfs/nfs3.h"

enum rpc_result nfs3_getattr(struct rpc_call *call) /* RFC 1813, 3.3.1 */
{
    struct nfs3_fh fh = nfs3_get_fh(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;

    struct store_object object;
    struct store_cred cred;
    struct store_attr attr;
    int error = nfs3_open(call, fh, &object, &cred);
    if (!error)
        error = nfs_server.ops->getattr(nfs_server.store, &object, &attr);
    if (error == SL_EWAIT)
        return RPC_WAIT;

    if (nfs3_put_status(call, error) == NFS3_OK)
        nfs3_put_fattr(&call->out, &attr);
    return RPC_DONE;
}

enum rpc_result nfs3_setattr(struct rpc_call *call) /* RFC 1813, 3.3.2 */
{
    int bad_time = 0;
    struct nfs3_fh fh = nfs3_get_fh(&call->args);
    struct store_setattr set = nfs3_get_sattr(&call->args, &bad_time);
    bool guarded = xdr_get_bool(&call->args);
    struct store_time guard = {0};
    if (guarded)
        guard = nfs3_get_time(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;

    struct store_object object;
    struct store_cred cred;
    struct store_wcc wcc = {0};
    int error = nfs3_open(call, fh, &object, &cred);
    if (!error)
        error = bad_time;
    if (!error)
        error = changes_setattr(NULL, &cred, &object, &set,
                                        guarded ? &guard : NULL, &wcc);
    if (error == SL_EWAIT)
        return RPC_WAIT;

    nfs3_put_status(call, error);
    nfs3_put_wcc(&call->out, &wcc);
    return RPC_DONE;
}

enum rpc_result nfs3_access(struct rpc_call *call) /* RFC 1813, 3.3.4 */
{
    struct nfs3_fh fh = nfs3_get_fh(&call->args);
    uint32_t want = xdr_get_u32(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;

    struct store_object object;
    struct store_cred cred;
    struct store_attr attr;
    uint32_t granted = 0;
    attr.type = 0;
    int error = nfs3_open(call, fh, &object, &cred);
    if (!error)
        error = nfs_server.ops->access(nfs_server.store, &cred, &object, want, &granted, &attr);
    if (error == SL_EWAIT)
        return RPC_WAIT;

    enum nfs3_status status = nfs3_put_status(call, error);
    nfs3_put_post_op_attr(&call->out, &attr);
    if (status == NFS3_OK)
        xdr_put_u32(&call->out, granted & want);
    return RPC_DONE;
}

enum rpc_result nfs3_readlink(struct rpc_call *call) /* RFC 1813, 3.3.5 */
{
    struct nfs3_fh fh = nfs3_get_fh(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;

    struct store_object object;
    struct store_cred cred;
    struct store_attr attr;
    char target[STORE_LINK_TARGET_MAX];
    uint32_t length = 0;
    attr.type = 0;
    int error = nfs3_open(call, fh, &object, &cred);
    if (!error)
        error = nfs_server.ops->readlink(nfs_server.store, &cred, &object, target, &length, &attr);
    if (error == SL_EWAIT)
        return RPC_WAIT;
    if (!error)
        error = rpc_reply_room(call, (uint32_t)xdr_used(&call->out) + NFS3_POST_OP_ATTR_SIZE +
                                         length + 16);

    enum nfs3_status status = nfs3_put_status(call, error);
    nfs3_put_post_op_attr(&call->out, &attr);
    if (status == NFS3_OK)
        xdr_put_opaque(&call->out, target, length);
    return RPC_DONE;
}
