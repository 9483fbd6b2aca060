/* LOOKUP, REMOVE, RMDIR, RENAME, LINK: what finds and changes names. */
#include "nfs/changes.h"
#include "nfs/nfs3.h"

enum rpc_result nfs3_lookup(struct rpc_call *call) /* RFC 1813, 3.3.3 */
{
    struct nfs3_fh fh = nfs3_get_fh(&call->args);
    struct store_name name = nfs3_get_name(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;

    struct store_object dir, object;
    struct store_cred cred;
    struct store_attr attr, dir_attr;
    uint8_t handle[NFS_HANDLE_SIZE];
    attr.type = dir_attr.type = 0;
    int error = nfs3_open(call, fh, &dir, &cred);
    if (!error)
        error =
            nfs_server.ops->lookup(nfs_server.store, &cred, &dir, name, &object, &attr, &dir_attr);
    if (error == SL_EWAIT)
        return RPC_WAIT;

    if (nfs3_put_status(call, error) == NFS3_OK) {
        handle_encode(&object, handle);
        xdr_put_opaque(&call->out, handle, sizeof handle);
        nfs3_put_post_op_attr(&call->out, &attr);
    }
    nfs3_put_post_op_attr(&call->out, &dir_attr);
    return RPC_DONE;
}

static enum rpc_result remove_name(struct rpc_call *call, bool directory)
{
    struct nfs3_fh fh = nfs3_get_fh(&call->args);
    struct store_name name = nfs3_get_name(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;

    struct store_object dir;
    struct store_cred cred;
    struct store_wcc wcc = {0};
    int error = nfs3_open(call, fh, &dir, &cred);
    if (!error)
        error = directory ? nfs_server.ops->rmdir(nfs_server.store, &cred, &dir, name, &wcc)
                          : changes_remove(NULL, &cred, &dir, name, &wcc);
    if (error == SL_EWAIT)
        return RPC_WAIT;

    nfs3_put_status(call, error);
    nfs3_put_wcc(&call->out, &wcc);
    return RPC_DONE;
}

enum rpc_result nfs3_remove(struct rpc_call *call) /* RFC 1813, 3.3.12 */
{
    return remove_name(call, false);
}

enum rpc_result nfs3_rmdir(struct rpc_call *call) /* RFC 1813, 3.3.13 */
{
    return remove_name(call, true);
}

/* Opens two objects of one call; both access rules hold, and both are of one volume. */
static int open_two(struct rpc_call *call, struct nfs3_fh first_fh, struct nfs3_fh second_fh,
                    struct store_object *first, struct store_object *second,
                    struct store_cred *cred)
{
    struct store_cred unused;
    int error = nfs3_open(call, first_fh, first, &unused);
    if (!error)
        error = nfs3_open(call, second_fh, second, cred);
    if (!error && first->tree != second->tree)
        error = -EXDEV;
    return error;
}

enum rpc_result nfs3_rename(struct rpc_call *call) /* RFC 1813, 3.3.14 */
{
    struct nfs3_fh from_fh = nfs3_get_fh(&call->args);
    struct store_name from = nfs3_get_name(&call->args);
    struct nfs3_fh to_fh = nfs3_get_fh(&call->args);
    struct store_name to = nfs3_get_name(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;

    struct store_object from_dir, to_dir;
    struct store_cred cred;
    struct store_wcc from_wcc = {0}, to_wcc = {0};
    int error = open_two(call, from_fh, to_fh, &from_dir, &to_dir, &cred);
    if (!error)
        error = changes_rename(NULL, &cred, &from_dir, from, &to_dir, to,
                                       &from_wcc, &to_wcc);
    if (error == SL_EWAIT)
        return RPC_WAIT;

    nfs3_put_status(call, error);
    nfs3_put_wcc(&call->out, &from_wcc);
    nfs3_put_wcc(&call->out, &to_wcc);
    return RPC_DONE;
}

enum rpc_result nfs3_link(struct rpc_call *call) /* RFC 1813, 3.3.15 */
{
    struct nfs3_fh fh = nfs3_get_fh(&call->args);
    struct nfs3_fh dir_fh = nfs3_get_fh(&call->args);
    struct store_name name = nfs3_get_name(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;

    struct store_object object, dir;
    struct store_cred cred;
    struct store_attr attr;
    struct store_wcc wcc = {0};
    attr.type = 0;
    int error = open_two(call, fh, dir_fh, &object, &dir, &cred);
    if (!error)
        error = changes_link(NULL, &cred, &object, &dir, name, &attr, &wcc);
    if (error == SL_EWAIT)
        return RPC_WAIT;

    nfs3_put_status(call, error);
    nfs3_put_post_op_attr(&call->out, &attr);
    nfs3_put_wcc(&call->out, &wcc);
    return RPC_DONE;
}
