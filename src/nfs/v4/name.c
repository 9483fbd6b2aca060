/* CREATE, REMOVE, RENAME, LINK: what makes, changes and takes away names.  OPEN makes files (open.c). */
#include <string.h>

#include "nfs/changes.h"
#include "nfs/v4/attr.h"

enum { DEFAULT_FILE_MODE = 0644, DEFAULT_DIRECTORY_MODE = 0755 };
enum { NF4REG = 1, NF4DIR, NF4BLK, NF4CHR, NF4LNK, NF4SOCK, NF4FIFO };
_Static_assert(NF4LNK == (int)STORE_LNK && NF4FIFO == (int)STORE_FIFO, "nfs_ftype4 on the wire");

/* createtype4.  Statuses short of BADXDR are kept until all arguments are decoded. */
static enum nfs4_status get_type(struct xdr_in *in, struct store_make *how)
{
    enum nfs4_status status = NFS4_OK;
    uint32_t type = xdr_get_u32(in);
    how->how = STORE_MAKE_GUARDED;
    switch (type) {
    case NF4LNK: {
        struct store_name target = nfs4_get_name(in);
        how->target = target;
        if (target.length > STORE_LINK_TARGET_MAX)
            status = NFS4ERR_NAMETOOLONG;
        else if (target.length == 0 || memchr(target.bytes, 0, target.length))
            status = NFS4ERR_INVAL;
        break;
    }
    case NF4BLK:
    case NF4CHR:
        how->rdev_major = xdr_get_u32(in);
        how->rdev_minor = xdr_get_u32(in);
        break;
    case NF4DIR:
    case NF4SOCK:
    case NF4FIFO:
        break;
    default:
        status = NFS4ERR_BADTYPE;
    }
    how->type = (enum store_type)type;
    return in->bad ? NFS4ERR_BADXDR : status;
}

static enum nfs4_status first_of(enum nfs4_status one, enum nfs4_status other)
{
    return one != NFS4_OK ? one : other;
}

enum nfs4_status nfs4_create(struct nfs4_compound *c) /* RFC 8881, 18.4 */
{
    struct xdr_in *in = nfs4_in(c);
    struct store_make how = {0};
    struct nfs4_bitmap map;
    enum nfs4_status status = get_type(in, &how);
    struct store_name name = nfs4_get_name(in);
    enum nfs4_status name_status = in->bad ? NFS4ERR_BADXDR : nfs4_check_name(name);
    enum nfs4_status attr_status = nfs4_get_settable(c, true, &map, &how.attr);
    if (in->bad)
        return NFS4ERR_BADXDR;
    status = first_of(first_of(status, name_status), attr_status);
    if (status == NFS4_OK)
        status = nfs4_object(c, &c->fh, true);
    if (status != NFS4_OK)
        return status;
    if (!(how.attr.set & STORE_SET_MODE)) {
        how.attr.set |= STORE_SET_MODE;
        how.attr.mode = how.type == STORE_DIR ? DEFAULT_DIRECTORY_MODE : DEFAULT_FILE_MODE;
    }

    struct store_object object;
    struct store_attr attr;
    struct store_wcc wcc = {0};
    int error = changes_make(&c->caller, &c->cred, &c->fh.object, name, &how, &object, &attr, &wcc);
    if (error)
        return nfs4_status(c, error);
    nfs4_set_fh(c, &object);
    nfs4_put_change(nfs4_out(c), &wcc);
    nfs4_put_bitmap(nfs4_out(c), &map);
    return NFS4_OK;
}

enum nfs4_status nfs4_remove(struct nfs4_compound *c) /* 18.25 */
{
    struct store_name name = nfs4_get_name(nfs4_in(c));
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    enum nfs4_status status = first_of(nfs4_check_name(name), nfs4_object(c, &c->fh, true));
    if (status != NFS4_OK)
        return status;
    struct store_wcc wcc = {0};
    int error = changes_remove(&c->caller, &c->cred, &c->fh.object, name, &wcc);
    if (error == -EISDIR)
        error = nfs_server.ops->rmdir(nfs_server.store, &c->cred, &c->fh.object, name, &wcc);
    if (error)
        return nfs4_status(c, error);
    nfs4_put_change(nfs4_out(c), &wcc);
    return NFS4_OK;
}

/* What two file handles of one operation have in common: the volume, and the caller's rights in it. */
static enum nfs4_status two_objects(struct nfs4_compound *c)
{
    enum nfs4_status status = nfs4_object(c, &c->saved, true);
    if (status == NFS4_OK)
        status = nfs4_object(c, &c->fh, true);
    if (status == NFS4_OK && c->saved.object.tree != c->fh.object.tree)
        status = NFS4ERR_XDEV;
    return status;
}

enum nfs4_status nfs4_rename(struct nfs4_compound *c) /* 18.26 */
{
    struct store_name from = nfs4_get_name(nfs4_in(c)), to = nfs4_get_name(nfs4_in(c));
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    enum nfs4_status status = first_of(first_of(nfs4_check_name(from), nfs4_check_name(to)), two_objects(c));
    if (status != NFS4_OK)
        return status;
    struct store_wcc from_wcc = {0}, to_wcc = {0};
    int error = changes_rename(&c->caller, &c->cred, &c->saved.object, from, &c->fh.object, to,
                                       &from_wcc, &to_wcc);
    bool directories = from_wcc.has_after && from_wcc.after.type == STORE_DIR && to_wcc.has_after &&
                       to_wcc.after.type == STORE_DIR;
    if (directories && (error == -EISDIR || error == -ENOTDIR))
        return NFS4ERR_EXIST; /* one of the two names is a directory, the other is not */
    if (error)
        return nfs4_status(c, error);
    nfs4_put_change(nfs4_out(c), &from_wcc);
    nfs4_put_change(nfs4_out(c), &to_wcc);
    return NFS4_OK;
}

enum nfs4_status nfs4_link(struct nfs4_compound *c) /* 18.9 */
{
    struct store_name name = nfs4_get_name(nfs4_in(c));
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    enum nfs4_status status = first_of(nfs4_check_name(name), two_objects(c));
    if (status != NFS4_OK)
        return status;
    struct store_attr attr;
    struct store_wcc wcc = {0};
    int error = changes_link(&c->caller, &c->cred, &c->saved.object, &c->fh.object, name, &attr, &wcc);
    if (error)
        return nfs4_status(c, error);
    nfs4_put_change(nfs4_out(c), &wcc);
    return NFS4_OK;
}
