/* Minor version 2's operations on ranges of files (RFC 7862, section 15): ALLOCATE, DEALLOCATE, SEEK, READ_PLUS,
 * IO_ADVISE. */
#include <string.h>

#include "nfs/changes.h"
#include "nfs/v4/compound.h"

enum { NFS4_CONTENT_DATA, NFS4_CONTENT_HOLE };

struct range {
    struct nfs4_stateid stateid;
    uint64_t offset, length;
};

static struct range get_range(struct xdr_in *in)
{
    struct range range = {.stateid = nfs4_get_stateid(in)};
    range.offset = xdr_get_u64(in);
    range.length = xdr_get_u64(in);
    return range;
}

static enum nfs4_status may_change(struct nfs4_compound *c, const struct range *range)
{
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    if (range->length > UINT64_MAX - range->offset)
        return NFS4ERR_INVAL;
    enum nfs4_status status = nfs4_object(c, &c->fh, true);
    return status == NFS4_OK ? nfs4_check_stateid(c, range->stateid, OPEN4_SHARE_ACCESS_WRITE) : status;
}

static enum nfs4_status changed(struct nfs4_compound *c, int error, const struct store_wcc *wcc)
{
    return error ? nfs4_not_a_file(c, error, wcc->has_after ? wcc->after.type : 0) : NFS4_OK;
}

/* RFC 7862, 15.1.  Nothing is set aside: a later WRITE may find no space. */
enum nfs4_status nfs4_allocate(struct nfs4_compound *c)
{
    struct range range = get_range(nfs4_in(c));
    struct store_wcc wcc = {0};
    enum nfs4_status status = may_change(c, &range);
    if (status != NFS4_OK)
        return status;
    return changed(c, changes_extend(&c->caller, &c->cred, &c->fh.object, range.offset + range.length,
                                             &wcc), &wcc);
}

enum nfs4_status nfs4_deallocate(struct nfs4_compound *c) /* 15.4 */
{
    struct range range = get_range(nfs4_in(c));
    struct store_wcc wcc = {0};
    enum nfs4_status status = may_change(c, &range);
    if (status != NFS4_OK)
        return status;
    return changed(c, changes_punch(&c->caller, &c->cred, &c->fh.object, range.offset, range.length,
                                            &wcc), &wcc);
}

enum nfs4_status nfs4_seek(struct nfs4_compound *c) /* 15.11 */
{
    struct nfs4_stateid stateid = nfs4_get_stateid(nfs4_in(c));
    uint64_t offset = xdr_get_u64(nfs4_in(c)), found;
    uint32_t what = xdr_get_u32(nfs4_in(c));
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    if (what > NFS4_CONTENT_HOLE)
        return NFS4ERR_UNION_NOTSUPP;
    enum nfs4_status status = nfs4_object(c, &c->fh, false);
    if (status == NFS4_OK)
        status = nfs4_check_stateid(c, stateid, OPEN4_SHARE_ACCESS_READ);
    struct store_attr attr;
    if (status == NFS4_OK)
        status = nfs4_status(c, nfs_server.ops->getattr(nfs_server.store, &c->fh.object, &attr));
    if (status != NFS4_OK)
        return status;
    int error = nfs_server.ops->seek(nfs_server.store, &c->cred, &c->fh.object, offset, what == NFS4_CONTENT_DATA,
                                     &found);
    bool none = error == -ENXIO && offset < attr.size; /* no data up to the end */
    if (error && !none)
        return nfs4_not_a_file(c, error, attr.type);
    if (none)
        found = attr.size;
    xdr_put_bool(nfs4_out(c), none);
    xdr_put_u64(nfs4_out(c), found);
    return NFS4_OK;
}

/* 15.10.  All of it is sent as data: holes in what is read at once are seldom long enough to be worth a look. */
enum nfs4_status nfs4_read_plus(struct nfs4_compound *c)
{
    struct xdr_in args = *nfs4_in(c);
    struct xdr_out *out = nfs4_out(c);
    nfs4_get_stateid(&args);
    uint64_t offset = xdr_get_u64(&args);
    size_t at = xdr_used(out);
    xdr_reserve(out, 4 + 4 + 8); /* in front of READ's length go the number of contents, their kind and their offset */
    enum nfs4_status status = nfs4_read(c);
    if (status != NFS4_OK)
        return status;
    /* READ has put eof and the length behind that room. */
    uint8_t *head = out->start + at;
    uint8_t length[4];
    memcpy(length, head + 20, sizeof length);
    uint32_t eof;
    memcpy(&eof, head + 16, sizeof eof);
    bool any = memcmp(length, "\0\0\0\0", 4) != 0;
    struct xdr_out again = xdr_out(head, 24);
    xdr_put_u32(&again, be32toh(eof));
    xdr_put_u32(&again, any);
    xdr_put_u32(&again, NFS4_CONTENT_DATA);
    xdr_put_u64(&again, offset);
    if (!any)
        out->at = head + 8;
    return NFS4_OK;
}

/* 15.5.  What the hints say is found out from the READs themselves: none is taken up. */
enum nfs4_status nfs4_io_advise(struct nfs4_compound *c)
{
    struct xdr_in *in = nfs4_in(c);
    struct nfs4_stateid stateid = nfs4_get_stateid(in);
    xdr_get_u64(in);
    xdr_get_u64(in);
    uint32_t count = xdr_get_u32(in);
    if (count > xdr_left(in) / 4)
        in->bad = true;
    for (uint32_t i = 0; i < count && !in->bad; i++)
        xdr_get_u32(in);
    if (in->bad)
        return NFS4ERR_BADXDR;
    enum nfs4_status status = nfs4_object(c, &c->fh, false);
    if (status == NFS4_OK)
        status = nfs4_check_stateid(c, stateid, OPEN4_SHARE_ACCESS_READ);
    if (status == NFS4_OK)
        xdr_put_u32(nfs4_out(c), 0);
    return status;
}
