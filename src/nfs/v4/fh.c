/* What sets, moves and shows file handles: PUTFH, PUTROOTFH, GETFH, SAVEFH, RESTOREFH, LOOKUP, LOOKUPP, SECINFO. */
#include <string.h>

#include "nfs/access.h"
#include "nfs/snapview.h"
#include "nfs/v4/compound.h"
#include "nfs/v4/pseudo.h"
#include "sluice/volume.h"

/* ---- what all operations share ---- */

void nfs4_set_fh(struct nfs4_compound *c, const struct store_object *object)
{
    c->fh = (struct nfs4_fh){.kind = NFS4_FH_OBJECT, .object = *object};
    c->has_stateid = false;
}

static void set_root(struct nfs4_compound *c)
{
    c->fh = (struct nfs4_fh){.kind = NFS4_FH_ROOT};
    c->has_stateid = false;
}

enum nfs4_status nfs4_cred(struct nfs4_compound *c, const struct nfs4_fh *fh)
{
    if (c->cred_known && c->cred_tree == fh->object.tree)
        return NFS4_OK;
    int error = access_check(c->call, fh->object.tree, &c->cred);
    c->cred_known = error == 0;
    c->cred_tree = fh->object.tree;
    return nfs4_status(c, error);
}

enum nfs4_status nfs4_object(struct nfs4_compound *c, const struct nfs4_fh *fh, bool change)
{
    if (fh->kind != NFS4_FH_OBJECT)
        return change ? NFS4ERR_ROFS : NFS4ERR_INVAL;
    return nfs4_cred(c, fh);
}

bool nfs4_is_volume_root(const struct store_object *object)
{
    struct store_object root;
    return !nfs_server.ops->root(nfs_server.store, object->tree, &root) && root.ino == object->ino;
}

struct store_name nfs4_get_name(struct xdr_in *x)
{
    struct store_name name;
    name.bytes = (const char *)xdr_get_opaque(x, UINT32_MAX, &name.length);
    return name;
}

enum nfs4_status nfs4_check_name(struct store_name name)
{
    if (name.length == 0)
        return NFS4ERR_INVAL;
    if (name.length > STORE_NAME_MAX)
        return NFS4ERR_NAMETOOLONG;
    if (name.bytes[0] == '.' && (name.length == 1 || (name.length == 2 && name.bytes[1] == '.')))
        return NFS4ERR_BADNAME;
    if (memchr(name.bytes, '/', name.length) || memchr(name.bytes, 0, name.length))
        return NFS4ERR_BADCHAR;
    return NFS4_OK;
}

/* ---- operations ---- */

enum nfs4_status nfs4_putfh(struct nfs4_compound *c) /* RFC 8881, 18.19 */
{
    uint32_t length;
    const uint8_t *handle = xdr_get_opaque(nfs4_in(c), NFS4_FHSIZE, &length);
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    if (handle_is_pseudo_root(handle, length)) {
        set_root(c);
        return NFS4_OK;
    }
    struct nfs4_fh fh = {.kind = NFS4_FH_OBJECT};
    enum nfs4_status status = nfs4_status(c, handle_decode(handle, length, &fh.object));
    if (status == NFS4_OK)
        status = nfs4_cred(c, &fh);
    if (status == NFS4_OK)
        nfs4_set_fh(c, &fh.object);
    return status;
}

enum nfs4_status nfs4_putrootfh(struct nfs4_compound *c) /* 18.21; PUTPUBFH (18.20) is the same */
{
    set_root(c);
    return NFS4_OK;
}

enum nfs4_status nfs4_getfh(struct nfs4_compound *c) /* 18.8 */
{
    uint8_t handle[NFS_HANDLE_SIZE];
    if (c->fh.kind == NFS4_FH_ROOT)
        handle_encode_pseudo_root(handle);
    else
        handle_encode(&c->fh.object, handle);
    xdr_put_opaque(nfs4_out(c), handle, sizeof handle);
    return NFS4_OK;
}

enum nfs4_status nfs4_savefh(struct nfs4_compound *c) /* 18.28 */
{
    c->saved = c->fh;
    c->has_saved_stateid = c->has_stateid;
    c->saved_stateid = c->stateid;
    return NFS4_OK;
}

enum nfs4_status nfs4_restorefh(struct nfs4_compound *c) /* 18.27 */
{
    if (c->saved.kind == NFS4_FH_NONE)
        return c->minor ? NFS4ERR_NOFILEHANDLE : NFS4ERR_RESTOREFH;
    c->fh = c->saved;
    c->has_stateid = c->has_saved_stateid;
    c->stateid = c->saved_stateid;
    return NFS4_OK;
}

/* A name in the pseudo root: a volume or a snapshot that the caller may mount. */
static int look_up_volume(struct nfs4_compound *c, struct store_name name, struct store_object *out)
{
    uint32_t tree;
    int error = volume_by_name(name.bytes, name.length, &tree);
    if (error)
        return error;
    if (!access_allowed(c->call, tree)) {
        access_log_refused(c->call, tree);
        return -EACCES;
    }
    return nfs_server.ops->root(nfs_server.store, tree, out);
}

static int look_up(struct nfs4_compound *c, struct store_name name, struct store_object *out,
                   struct store_attr *dir_attr)
{
    dir_attr->type = 0;
    return nfs_server.ops->lookup(nfs_server.store, &c->cred, &c->fh.object, name, out, NULL, dir_attr);
}

/* A symbolic link where a directory should be has a status of its own. */
static enum nfs4_status not_a_directory(const struct nfs4_compound *c, int error, const struct store_attr *attr)
{
    return error == -ENOTDIR && attr->type == STORE_LNK ? NFS4ERR_SYMLINK : nfs4_status(c, error);
}

enum nfs4_status nfs4_lookup(struct nfs4_compound *c) /* 18.13 */
{
    struct store_name name = nfs4_get_name(nfs4_in(c));
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    enum nfs4_status status = nfs4_check_name(name);
    if (status != NFS4_OK)
        return status;

    struct store_object object;
    struct store_attr dir_attr = {0};
    if (c->fh.kind == NFS4_FH_ROOT) {
        status = nfs4_status(c, look_up_volume(c, name, &object));
    } else {
        status = nfs4_cred(c, &c->fh);
        if (status == NFS4_OK)
            status = not_a_directory(c, look_up(c, name, &object, &dir_attr), &dir_attr);
    }
    if (status == NFS4_OK)
        nfs4_set_fh(c, &object);
    return status;
}

enum nfs4_status nfs4_lookupp(struct nfs4_compound *c) /* 18.14 */
{
    if (c->fh.kind == NFS4_FH_ROOT)
        return NFS4ERR_NOENT;
    if (nfs4_is_volume_root(&c->fh.object)) {
        set_root(c);
        return NFS4_OK;
    }
    struct store_object object;
    struct store_attr dir_attr = {0};
    enum nfs4_status status = nfs4_cred(c, &c->fh);
    if (status == NFS4_OK)
        status = not_a_directory(c, look_up(c, (struct store_name){"..", 2}, &object, &dir_attr), &dir_attr);
    if (status == NFS4_OK)
        nfs4_set_fh(c, &object);
    return status;
}

static void put_flavours(struct xdr_out *out)
{
    xdr_put_u32(out, 1);
    xdr_put_u32(out, RPC_AUTH_SYS);
}

/* It takes the current file handle away, so that nobody goes on without having looked at the answer (2.6.3.1.1.8). */
static enum nfs4_status answer_secinfo(struct nfs4_compound *c)
{
    put_flavours(nfs4_out(c));
    if (c->minor)
        c->fh.kind = NFS4_FH_NONE;
    return NFS4_OK;
}

enum nfs4_status nfs4_secinfo(struct nfs4_compound *c) /* 18.29 */
{
    struct nfs4_fh dir = c->fh;
    enum nfs4_status status = nfs4_lookup(c);
    c->fh = dir;
    return status == NFS4_OK ? answer_secinfo(c) : status;
}

enum nfs4_status nfs4_secinfo_no_name(struct nfs4_compound *c) /* 18.45 */
{
    enum { CURRENT_FH, PARENT };
    uint32_t style = xdr_get_u32(nfs4_in(c));
    if (nfs4_in(c)->bad || style > PARENT)
        return NFS4ERR_BADXDR;
    struct nfs4_fh fh = c->fh;
    enum nfs4_status status = style == PARENT ? nfs4_lookupp(c) : NFS4_OK;
    c->fh = fh;
    return status == NFS4_OK ? answer_secinfo(c) : status;
}
