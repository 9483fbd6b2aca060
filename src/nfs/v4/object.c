/* GETATTR, SETATTR, ACCESS, READLINK, VERIFY, NVERIFY: what concerns one object. */
#include <string.h>

#include "nfs/changes.h"
#include "nfs/v4/attr.h"

/* Attributes of the current file handle as `map` wants them, at the end of the results. */
static enum nfs4_status put_attributes(struct nfs4_compound *c, const struct nfs4_bitmap *map)
{
    struct store_attr attr;
    struct store_usage usage;
    int error = nfs4_attr(c, &c->fh, &attr);
    if (!error)
        error = nfs4_usage(&c->fh, map, &usage);
    enum nfs4_status status = nfs4_status(c, error);
    if (status == NFS4_OK)
        status = nfs4_grow(c, ATTR_SIZE_MOST);
    if (status == NFS4_OK)
        nfs4_put_attrs(c, map, &(struct nfs4_attr_source){.attr = &attr, .usage = &usage, .fh = &c->fh});
    return status;
}

static enum nfs4_status may_look(struct nfs4_compound *c)
{
    return c->fh.kind == NFS4_FH_ROOT ? NFS4_OK : nfs4_cred(c, &c->fh);
}

enum nfs4_status nfs4_getattr(struct nfs4_compound *c) /* RFC 8881, 18.7 */
{
    struct nfs4_bitmap map = nfs4_get_bitmap(nfs4_in(c));
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    if (nfs4_bit(&map, FATTR4_TIME_ACCESS_SET) || nfs4_bit(&map, FATTR4_TIME_MODIFY_SET))
        return NFS4ERR_INVAL; /* write-only (5.4) */
    enum nfs4_status status = may_look(c);
    return status == NFS4_OK ? put_attributes(c, &map) : status;
}

/* True in *same if the object's attributes are those of the arguments. */
static enum nfs4_status compare(struct nfs4_compound *c, bool *same)
{
    struct xdr_in *in = nfs4_in(c);
    struct nfs4_bitmap map = nfs4_get_bitmap(in);
    uint32_t length;
    const uint8_t *bytes = xdr_get_opaque(in, UINT32_MAX, &length);
    if (in->bad)
        return NFS4ERR_BADXDR;
    if (!nfs4_all_supported(c->minor, &map))
        return NFS4ERR_ATTRNOTSUPP;
    if (!nfs4_all_readable(c->minor, &map) || nfs4_bit(&map, FATTR4_RDATTR_ERROR))
        return NFS4ERR_INVAL;
    enum nfs4_status status = may_look(c);
    uint32_t at = (uint32_t)xdr_used(nfs4_out(c));
    if (status == NFS4_OK)
        status = put_attributes(c, &map);
    if (status != NFS4_OK)
        return status;

    struct xdr_out *out = nfs4_out(c);
    struct xdr_in mine = xdr_in(out->start + at, xdr_used(out) - at);
    nfs4_get_bitmap(&mine);
    uint32_t my_length;
    const uint8_t *my_bytes = xdr_get_opaque(&mine, UINT32_MAX, &my_length);
    *same = length == my_length && memcmp(bytes, my_bytes, length) == 0;
    out->at = out->start + at;
    return NFS4_OK;
}

enum nfs4_status nfs4_verify(struct nfs4_compound *c) /* 18.31 */
{
    bool same;
    enum nfs4_status status = compare(c, &same);
    return status == NFS4_OK && !same ? NFS4ERR_NOT_SAME : status;
}

enum nfs4_status nfs4_nverify(struct nfs4_compound *c) /* 18.15 */
{
    bool same;
    enum nfs4_status status = compare(c, &same);
    return status == NFS4_OK && same ? NFS4ERR_SAME : status;
}

static enum nfs4_status set_attributes(struct nfs4_compound *c, struct nfs4_stateid stateid,
                                       const struct store_setattr *set)
{
    struct store_wcc wcc = {0};
    enum nfs4_status status = nfs4_object(c, &c->fh, true);
    if (status == NFS4_OK && set->set & STORE_SET_SIZE)
        status = nfs4_check_stateid(c, stateid, OPEN4_SHARE_ACCESS_WRITE);
    if (status != NFS4_OK)
        return status;
    int error = changes_setattr(&c->caller, &c->cred, &c->fh.object, set, NULL, &wcc);
    return nfs4_status(c, error);
}

enum nfs4_status nfs4_setattr(struct nfs4_compound *c) /* 18.30 */
{
    struct nfs4_stateid stateid = nfs4_get_stateid(nfs4_in(c));
    struct nfs4_bitmap map;
    struct store_setattr set;
    enum nfs4_status status = nfs4_get_settable(c, false, &map, &set);
    if (status == NFS4_OK)
        status = set_attributes(c, stateid, &set);
    if (status == NFS4_OK)
        nfs4_put_bitmap(nfs4_out(c), &map);
    return status;
}

enum nfs4_status nfs4_access(struct nfs4_compound *c) /* 18.1 */
{
    enum { ALL = STORE_ACCESS_READ | STORE_ACCESS_LOOKUP | STORE_ACCESS_MODIFY | STORE_ACCESS_EXTEND |
                 STORE_ACCESS_DELETE | STORE_ACCESS_EXECUTE };
    uint32_t want = xdr_get_u32(nfs4_in(c));
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    if (c->minor < 2 && want & ~(uint32_t)ALL)
        return NFS4ERR_INVAL;
    want &= ALL;
    uint32_t meant = ALL & ~STORE_ACCESS_EXECUTE; /* of a directory */
    uint32_t granted = STORE_ACCESS_READ | STORE_ACCESS_LOOKUP;
    if (c->fh.kind != NFS4_FH_ROOT) {
        struct store_attr attr;
        enum nfs4_status status = nfs4_cred(c, &c->fh);
        if (status == NFS4_OK)
            status = nfs4_status(c, nfs_server.ops->access(nfs_server.store, &c->cred, &c->fh.object, want, &granted,
                                                           &attr));
        if (status != NFS4_OK)
            return status;
        if (attr.type != STORE_DIR)
            meant = ALL & ~(STORE_ACCESS_LOOKUP | STORE_ACCESS_DELETE);
    }
    xdr_put_u32(nfs4_out(c), want & meant);
    xdr_put_u32(nfs4_out(c), granted & want & meant);
    return NFS4_OK;
}

enum nfs4_status nfs4_readlink(struct nfs4_compound *c) /* 18.24 */
{
    char target[STORE_LINK_TARGET_MAX];
    uint32_t length = 0;
    struct store_attr attr = {0};
    enum nfs4_status status = nfs4_object(c, &c->fh, false);
    if (status != NFS4_OK)
        return status;
    int error = nfs_server.ops->readlink(nfs_server.store, &c->cred, &c->fh.object, target, &length, &attr);
    if (error == -EINVAL && c->minor)
        return NFS4ERR_WRONG_TYPE;
    status = nfs4_status(c, error);
    if (status == NFS4_OK)
        status = nfs4_room(c, 4 + ((length + 3) & ~3u));
    if (status == NFS4_OK)
        xdr_put_opaque(nfs4_out(c), target, length);
    return status;
}
