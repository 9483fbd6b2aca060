/* Minor version 2's operations on ranges of files (RFC 7862, section 15): ALLOCATE, DEALLOCATE, SEEK, READ_PLUS,
 * IO_ADVISE, COPY. */
#include <stdlib.h>
#include <string.h>

#include "nfs/v4/compound.h"
#include "sluice/base_worker.h"

enum { NFS4_CONTENT_DATA, NFS4_CONTENT_HOLE };
enum { FILE_SYNC4 = 2 };
#define COPY_NS_MOST UINT64_C(2000000000) /* of one COPY; what is left the client asks for again */

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
    return changed(c, nfs_server.ops->extend(nfs_server.store, &c->cred, &c->fh.object, range.offset + range.length,
                                             &wcc), &wcc);
}

enum nfs4_status nfs4_deallocate(struct nfs4_compound *c) /* 15.4 */
{
    struct range range = get_range(nfs4_in(c));
    struct store_wcc wcc = {0};
    enum nfs4_status status = may_change(c, &range);
    if (status != NFS4_OK)
        return status;
    return changed(c, nfs_server.ops->punch(nfs_server.store, &c->cred, &c->fh.object, range.offset, range.length,
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

/* ---- COPY ---- */

struct copying {
    struct store_cred from_cred, to_cred;
    struct store_object from, to;
    uint64_t from_offset, to_offset, left, done;
    bool to_the_end;
};

static int read_piece(const struct copying *copy, uint8_t *piece, uint32_t length, uint32_t *got)
{
    struct slice_list data;
    struct store_attr attr;
    bool eof;
    slices_init(&data);
    int error = nfs_server.ops->read(nfs_server.store, &copy->from_cred, &copy->from, copy->from_offset + copy->done,
                                     length, &data, &eof, &attr);
    *got = data.bytes;
    for (uint32_t i = 0; !error && i < data.count; i++) {
        memcpy(piece, data.at[i].data, data.at[i].length);
        piece += data.at[i].length;
    }
    slices_clear(&data);
    return error;
}

static int copy_pieces(struct copying *copy)
{
    uint8_t *piece = malloc(STORE_IO_MAX);
    uint64_t until = clock_monotonic_ns() + COPY_NS_MOST;
    int error = piece ? 0 : -ENOMEM;
    while (!error && copy->left) {
        uint32_t length = copy->left < STORE_IO_MAX ? (uint32_t)copy->left : STORE_IO_MAX, got;
        struct store_wcc wcc;
        error = read_piece(copy, piece, length, &got);
        if (!error && got)
            error = nfs_server.ops->write(nfs_server.store, &copy->to_cred, &copy->to, copy->to_offset + copy->done,
                                          piece, got, &wcc);
        if (error || !got)
            break;
        copy->done += got;
        copy->left -= got;
        if (clock_monotonic_ns() > until)
            break;
    }
    free(piece);
    return copy->done ? 0 : error; /* the rest is asked for again, and meets the error */
}

/* The range lies within the source, and does not overlap in one file (RFC 7862, 15.2.3). */
static enum nfs4_status check_copy(struct nfs4_compound *c, struct copying *copy)
{
    struct store_attr from, to;
    int error = nfs_server.ops->getattr(nfs_server.store, &copy->from, &from);
    if (!error)
        error = nfs_server.ops->getattr(nfs_server.store, &copy->to, &to);
    if (error)
        return nfs4_status(c, error);
    if (from.type != STORE_REG || to.type != STORE_REG)
        return from.type == STORE_DIR || to.type == STORE_DIR ? NFS4ERR_ISDIR : NFS4ERR_WRONG_TYPE;
    if (copy->from_offset > from.size || copy->to_offset > STORE_FILE_MAX)
        return NFS4ERR_INVAL;
    if (copy->to_the_end)
        copy->left = from.size - copy->from_offset;
    if (copy->left > from.size - copy->from_offset)
        return NFS4ERR_INVAL;
    if (from.fsid == to.fsid && from.fileid == to.fileid && copy->from_offset < copy->to_offset + copy->left &&
        copy->to_offset < copy->from_offset + copy->left)
        return NFS4ERR_INVAL;
    return NFS4_OK;
}

static enum nfs4_status open_both(struct nfs4_compound *c, struct copying *copy, struct nfs4_stateid from_stateid,
                                  struct nfs4_stateid to_stateid)
{
    struct nfs4_fh to = c->fh;
    enum nfs4_status status = nfs4_object(c, &c->saved, false);
    if (status != NFS4_OK)
        return status;
    copy->from = c->saved.object;
    copy->from_cred = c->cred;
    status = nfs4_resolve(c, &from_stateid);
    if (status == NFS4_OK)
        status = state_io(&c->caller, &copy->from, &from_stateid, OPEN4_SHARE_ACCESS_READ);
    if (status == NFS4_OK)
        status = nfs4_object(c, &to, true);
    if (status == NFS4_OK)
        status = nfs4_check_stateid(c, to_stateid, OPEN4_SHARE_ACCESS_WRITE);
    copy->to = to.object;
    copy->to_cred = c->cred;
    return status;
}

enum nfs4_status nfs4_copy(struct nfs4_compound *c) /* 15.2 */
{
    struct xdr_in *in = nfs4_in(c);
    struct nfs4_stateid from_stateid = nfs4_get_stateid(in), to_stateid = nfs4_get_stateid(in);
    struct copying copy = {.from_offset = xdr_get_u64(in)};
    copy.to_offset = xdr_get_u64(in);
    copy.left = xdr_get_u64(in);
    copy.to_the_end = copy.left == 0;
    xdr_get_bool(in); /* ca_consecutive: it always is */
    xdr_get_bool(in); /* ca_synchronous: and this */
    uint32_t servers = xdr_get_u32(in);
    if (in->bad)
        return NFS4ERR_BADXDR;
    if (servers)
        return NFS4ERR_NOTSUPP; /* from another server */
    enum nfs4_status status = open_both(c, &copy, from_stateid, to_stateid);
    if (status == NFS4_OK)
        status = check_copy(c, &copy);
    if (status == NFS4_OK)
        status = nfs4_status(c, copy_pieces(&copy));
    if (status != NFS4_OK)
        return status;
    struct xdr_out *out = nfs4_out(c);
    xdr_put_u32(out, 0); /* wr_callback_id: none, it is done */
    xdr_put_u64(out, copy.done);
    xdr_put_u32(out, FILE_SYNC4);
    nfs4_put_verifier(out);
    xdr_put_bool(out, true); /* consecutive */
    xdr_put_bool(out, true); /* synchronous */
    return NFS4_OK;
}
