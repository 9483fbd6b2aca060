/* CREATE, MKDIR, SYMLINK, MKNOD: procedures that make an object and answer its handle. */
#include <string.h>

#include "nfs/changes.h"
#include "nfs/nfs3.h"

enum { DEFAULT_FILE_MODE = 0644, DEFAULT_DIRECTORY_MODE = 0755 };

/* The arguments that all four have, and what went wrong in them short of garbage. */
struct making {
    struct nfs3_fh dir;
    struct store_name name;
    struct store_make how;
    int error;
};

static void default_mode(struct store_make *how)
{
    if (how->attr.set & STORE_SET_MODE)
        return;
    how->attr.set |= STORE_SET_MODE;
    how->attr.mode = how->type == STORE_DIR ? DEFAULT_DIRECTORY_MODE : DEFAULT_FILE_MODE;
}

static void get_where(struct xdr_in *x, struct making *making)
{
    making->dir = nfs3_get_fh(x);
    making->name = nfs3_get_name(x);
}

static enum rpc_result make(struct rpc_call *call, struct making *making)
{
    struct store_object dir, object;
    struct store_cred cred;
    struct store_attr attr;
    struct store_wcc wcc = {0};
    attr.type = 0;
    default_mode(&making->how);
    int error = nfs3_open(call, making->dir, &dir, &cred);
    if (!error)
        error = making->error;
    if (!error)
        error = changes_make(NULL, &cred, &dir, making->name, &making->how,
                                     &object, &attr, &wcc);
    if (error == SL_EWAIT)
        return RPC_WAIT;

    if (nfs3_put_status(call, error) == NFS3_OK) {
        nfs3_put_post_op_fh(&call->out, &object);
        nfs3_put_post_op_attr(&call->out, &attr);
    }
    nfs3_put_wcc(&call->out, &wcc);
    return RPC_DONE;
}

enum rpc_result nfs3_create(struct rpc_call *call) /* RFC 1813, 3.3.8 */
{
    struct making making = {.how.type = STORE_REG};
    get_where(&call->args, &making);
    making.how.how = xdr_get_u32(&call->args);
    switch (making.how.how) {
    case STORE_MAKE_UNCHECKED:
    case STORE_MAKE_GUARDED:
        making.how.attr = nfs3_get_sattr(&call->args, &making.error);
        break;
    case STORE_MAKE_EXCLUSIVE: {
        const uint8_t *verifier = xdr_take(&call->args, sizeof making.how.verifier);
        if (verifier)
            memcpy(making.how.verifier, verifier, sizeof making.how.verifier);
        /* The client sets the attributes it wants by SETATTR next; nobody else shall get in before. */
        making.how.attr = (struct store_setattr){.set = STORE_SET_MODE, .mode = 0600};
        break;
    }
    default:
        return RPC_GARBAGE_ARGS;
    }
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;
    return make(call, &making);
}
_Static_assert(STORE_MAKE_UNCHECKED == 0 && STORE_MAKE_GUARDED == 1 && STORE_MAKE_EXCLUSIVE == 2,
               "createmode3 on the wire");

enum rpc_result nfs3_mkdir(struct rpc_call *call) /* RFC 1813, 3.3.9 */
{
    struct making making = {.how = {.type = STORE_DIR, .how = STORE_MAKE_GUARDED}};
    get_where(&call->args, &making);
    making.how.attr = nfs3_get_sattr(&call->args, &making.error);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;
    return make(call, &making);
}

enum rpc_result nfs3_symlink(struct rpc_call *call) /* RFC 1813, 3.3.10 */
{
    struct making making = {.how = {.type = STORE_LNK, .how = STORE_MAKE_GUARDED}};
    get_where(&call->args, &making);
    making.how.attr = nfs3_get_sattr(&call->args, &making.error);
    struct store_name target = nfs3_get_name(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;
    making.how.target = target;
    if (target.length > STORE_LINK_TARGET_MAX)
        making.error = -ENAMETOOLONG;
    else if (target.length == 0 || memchr(target.bytes, 0, target.length))
        making.error = -EINVAL;
    return make(call, &making);
}

enum rpc_result nfs3_mknod(struct rpc_call *call) /* RFC 1813, 3.3.11 */
{
    struct making making = {.how.how = STORE_MAKE_GUARDED};
    get_where(&call->args, &making);
    making.how.type = xdr_get_u32(&call->args);
    switch (making.how.type) {
    case STORE_CHR:
    case STORE_BLK:
        making.how.attr = nfs3_get_sattr(&call->args, &making.error);
        making.how.rdev_major = xdr_get_u32(&call->args);
        making.how.rdev_minor = xdr_get_u32(&call->args);
        break;
    case STORE_SOCK:
    case STORE_FIFO:
        making.how.attr = nfs3_get_sattr(&call->args, &making.error);
        break;
    default:
        making.error = SL_EBADTYPE;
    }
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;
    return make(call, &making);
}
