/* FSSTAT, FSINFO, PATHCONF: what concerns a whole volume. */
#include "nfs/nfs3.h"

enum { FSF3_LINK = 1, FSF3_SYMLINK = 2, FSF3_HOMOGENEOUS = 8, FSF3_CANSETTIME = 16 };
enum { IO_MULTIPLE = STORE_BLOCK, DIRECTORY_PREFERRED = 65536 };

static int attributes(struct rpc_call *call, struct nfs3_fh fh, struct store_object *object,
                      struct store_attr *attr)
{
    struct store_cred cred;
    attr->type = 0;
    int error = nfs3_open(call, fh, object, &cred);
    return error ? error : nfs_server.ops->getattr(nfs_server.store, object, attr);
}

enum rpc_result nfs3_fsstat(struct rpc_call *call) /* RFC 1813, 3.3.18 */
{
    struct nfs3_fh fh = nfs3_get_fh(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;

    struct store_object object;
    struct store_attr attr;
    struct store_usage usage;
    int error = attributes(call, fh, &object, &attr);
    if (!error)
        error = nfs_server.ops->usage(nfs_server.store, object.tree, &usage);
    if (error == SL_EWAIT)
        return RPC_WAIT;

    struct xdr_out *out = &call->out;
    enum nfs3_status status = nfs3_put_status(call, error);
    nfs3_put_post_op_attr(out, &attr);
    if (status == NFS3_OK) {
        xdr_put_u64(out, usage.bytes_total);
        xdr_put_u64(out, usage.bytes_free);
        xdr_put_u64(out, usage.bytes_available);
        xdr_put_u64(out, usage.files_total);
        xdr_put_u64(out, usage.files_free);
        xdr_put_u64(out, usage.files_free); /* available to the caller */
        xdr_put_u32(out, 0);                /* invarsec: may change at once */
    }
    return RPC_DONE;
}

enum rpc_result nfs3_fsinfo(struct rpc_call *call) /* RFC 1813, 3.3.19 */
{
    struct nfs3_fh fh = nfs3_get_fh(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;

    struct store_object object;
    struct store_attr attr;
    int error = attributes(call, fh, &object, &attr);
    if (error == SL_EWAIT)
        return RPC_WAIT;

    struct xdr_out *out = &call->out;
    enum nfs3_status status = nfs3_put_status(call, error);
    nfs3_put_post_op_attr(out, &attr);
    if (status == NFS3_OK) {
        for (int way = 0; way < 2; way++) { /* READ, then WRITE */
            xdr_put_u32(out, STORE_IO_MAX);
            xdr_put_u32(out, STORE_IO_MAX);
            xdr_put_u32(out, IO_MULTIPLE);
        }
        xdr_put_u32(out, DIRECTORY_PREFERRED);
        xdr_put_u64(out, STORE_FILE_MAX);
        xdr_put_u32(out, 0); /* time_delta: seconds, */
        xdr_put_u32(out, 1); /* nanoseconds */
        xdr_put_u32(out, FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME);
    }
    return RPC_DONE;
}

enum rpc_result nfs3_pathconf(struct rpc_call *call) /* RFC 1813, 3.3.20 */
{
    struct nfs3_fh fh = nfs3_get_fh(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;

    struct store_object object;
    struct store_attr attr;
    int error = attributes(call, fh, &object, &attr);
    if (error == SL_EWAIT)
        return RPC_WAIT;

    struct xdr_out *out = &call->out;
    enum nfs3_status status = nfs3_put_status(call, error);
    nfs3_put_post_op_attr(out, &attr);
    if (status == NFS3_OK) {
        xdr_put_u32(out, STORE_LINKS_MAX);
        xdr_put_u32(out, STORE_NAME_MAX);
        xdr_put_bool(out, true);  /* no_trunc */
        xdr_put_bool(out, true);  /* chown_restricted */
        xdr_put_bool(out, false); /* case_insensitive */
        xdr_put_bool(out, true);  /* case_preserving */
    }
    return RPC_DONE;
}
