/* COPY within the server and CLONE (RFC 7862, 15.2 and 15.13), between any two files of the pool: also from one volume
 * to another, and out of snapshots. */
#include "nfs/changes.h"
#include "nfs/v4/compound.h"
#include "sluice/base_worker.h"
#include "sluice/volume_gate.h"

enum { FILE_SYNC4 = 2 };
#define COPY_NS_MOST UINT64_C(2000000000) /* of one COPY; what is left the client asks for again */

struct copying {
    struct store_copy range;
    struct store_cred from_cred;
    struct nfs4_stateid from_stateid, to_stateid;
};

static void get_range(struct xdr_in *in, struct copying *copy)
{
    copy->from_stateid = nfs4_get_stateid(in);
    copy->to_stateid = nfs4_get_stateid(in);
    copy->range.from_offset = xdr_get_u64(in);
    copy->range.to_offset = xdr_get_u64(in);
    copy->range.length = xdr_get_u64(in);
}

static enum nfs4_status open_both(struct nfs4_compound *c, struct copying *copy)
{
    struct nfs4_fh to = c->fh;
    enum nfs4_status status = nfs4_object(c, &c->saved, false);
    if (status != NFS4_OK)
        return status;
    copy->range.from = c->saved.object;
    copy->from_cred = c->cred;
    copy->range.from_cred = &copy->from_cred;
    status = nfs4_resolve(c, &copy->from_stateid);
    if (status == NFS4_OK)
        status = state_io(&c->caller, &copy->range.from, &copy->from_stateid, OPEN4_SHARE_ACCESS_READ);
    if (status == NFS4_OK)
        status = nfs4_object(c, &to, true);
    if (status == NFS4_OK)
        status = nfs4_check_stateid(c, copy->to_stateid, OPEN4_SHARE_ACCESS_WRITE);
    copy->range.to = to.object;
    copy->range.to_cred = &c->cred;
    return status;
}

/* Regular files; the range lies within the source, and does not overlap in one file.  A length of 0 is that up to the
 * source's end. */
static enum nfs4_status check_range(struct nfs4_compound *c, struct copying *copy)
{
    struct store_copy *range = &copy->range;
    struct store_attr from, to;
    int error = nfs_server.ops->getattr(nfs_server.store, &range->from, &from);
    if (!error)
        error = nfs_server.ops->getattr(nfs_server.store, &range->to, &to);
    if (error)
        return nfs4_status(c, error);
    if (from.type != STORE_REG || to.type != STORE_REG)
        return NFS4ERR_WRONG_TYPE;
    if (range->from_offset > from.size)
        return NFS4ERR_INVAL;
    if (!range->length)
        range->length = from.size - range->from_offset;
    if (range->length > from.size - range->from_offset)
        return NFS4ERR_INVAL;
    if (range->to_offset > STORE_FILE_MAX || range->length > STORE_FILE_MAX - range->to_offset)
        return NFS4ERR_FBIG;
    bool same = from.fsid == to.fsid && from.fileid == to.fileid;
    if (same && range->from_offset < range->to_offset + range->length &&
        range->to_offset < range->from_offset + range->length)
        return NFS4ERR_INVAL;
    return NFS4_OK;
}

static enum nfs4_status prepare(struct nfs4_compound *c, struct copying *copy)
{
    enum nfs4_status status = open_both(c, copy);
    return status == NFS4_OK ? check_range(c, copy) : status;
}

/* Steps, for some time; *done: bytes. */
static int copy_on(const struct state_caller *by, struct store_copy *range, uint64_t *done)
{
    uint64_t until = clock_monotonic_ns() + COPY_NS_MOST;
    int error = 0;
    *done = 0;
    while (!error && range->length && clock_monotonic_ns() < until) {
        struct store_wcc wcc;
        uint64_t step = 0;
        error = changes_copy(by, range, &step, &wcc);
        range->from_offset += step;
        range->to_offset += step;
        range->length -= step;
        *done += step;
    }
    return *done ? 0 : error; /* the rest is asked for again, and meets the error */
}

/* What is written is counted: the gate was told before of as much as one call writes, or less where less was asked. */
static void count_bytes(struct nfs4_compound *c, uint64_t asked, uint64_t done)
{
    uint32_t told = nfs4_copy_bytes(asked);
    if (done < told && c->call->ticket)
        gate_give_back(c->call->ticket, GATE_WRITE, told - (uint32_t)done);
}

enum nfs4_status nfs4_copy(struct nfs4_compound *c) /* 15.2 */
{
    struct xdr_in *in = nfs4_in(c);
    struct copying copy;
    uint64_t done;
    get_range(in, &copy);
    bool shares = nfs4_copy_shares(copy.range.from_offset, copy.range.to_offset);
    uint64_t asked = copy.range.length;
    xdr_get_bool(in); /* ca_consecutive: it always is */
    xdr_get_bool(in); /* ca_synchronous: and this */
    uint32_t servers = xdr_get_u32(in);
    if (in->bad)
        return NFS4ERR_BADXDR;
    if (servers)
        return NFS4ERR_NOTSUPP; /* from another server */
    enum nfs4_status status = prepare(c, &copy);
    if (!shares && copy.range.length > NFS4_COPY_BYTES_MOST)
        copy.range.length = NFS4_COPY_BYTES_MOST;
    if (status == NFS4_OK)
        status = nfs4_status(c, copy_on(&c->caller, &copy.range, &done));
    if (status != NFS4_OK)
        return status;
    if (!shares)
        count_bytes(c, asked, done);
    struct xdr_out *out = nfs4_out(c);
    xdr_put_u32(out, 0); /* wr_callback_id: none, it is done */
    xdr_put_u64(out, done);
    xdr_put_u32(out, FILE_SYNC4);
    nfs4_put_verifier(out);
    xdr_put_bool(out, true); /* consecutive */
    xdr_put_bool(out, true); /* synchronous */
    return NFS4_OK;
}

enum nfs4_status nfs4_clone(struct nfs4_compound *c) /* 15.13 */
{
    struct copying copy;
    struct store_wcc wcc;
    get_range(nfs4_in(c), &copy);
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    enum nfs4_status status = prepare(c, &copy);
    return status == NFS4_OK
               ? nfs4_status(c, changes_clone(&c->caller, &copy.range, &wcc))
               : status;
}
