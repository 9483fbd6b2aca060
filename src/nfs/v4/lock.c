/* LOCK, LOCKT, LOCKU. */
#include "nfs/v4/seqid.h"

static enum nfs4_status check_range(const struct state_lock *lock) /* RFC 8881, 18.10.3 */
{
    if (lock->length == 0)
        return NFS4ERR_INVAL;
    if (lock->length != UINT64_MAX && lock->length > UINT64_MAX - lock->offset)
        return NFS4ERR_INVAL;
    return NFS4_OK;
}

/* The current file handle is a regular file of a volume. */
static enum nfs4_status check_file(struct nfs4_compound *c, struct state_lock *lock)
{
    struct store_attr attr;
    enum nfs4_status status = nfs4_object(c, &c->fh, false);
    if (status != NFS4_OK)
        return status;
    lock->object = c->fh.object;
    int error = nfs_server.ops->getattr(nfs_server.store, &lock->object, &attr);
    if (!error && attr.type != STORE_REG)
        error = attr.type == STORE_DIR ? -EISDIR : -EINVAL;
    return error ? nfs4_not_a_file(c, error, error == -EINVAL ? attr.type : 0) : NFS4_OK;
}

static bool get_type(struct xdr_in *in, struct state_lock *lock)
{
    lock->type = (enum nfs4_lock_type)xdr_get_u32(in);
    if (lock->type < READ_LT || lock->type > WRITEW_LT)
        in->bad = true;
    return !in->bad;
}

static void get_owner(struct xdr_in *in, struct state_lock *lock)
{
    lock->clientid = xdr_get_u64(in);
    lock->lock_owner.bytes = xdr_get_opaque(in, NFS4_OPAQUE_LIMIT, &lock->lock_owner.length);
}

static enum nfs4_status put_denied(struct nfs4_compound *c, const struct state_lock *lock)
{
    uint32_t length = (lock->denied.owner_length + 3) & ~3u;
    enum nfs4_status status = nfs4_room(c, 32 + length);
    if (status != NFS4_OK)
        return status;
    struct xdr_out *out = nfs4_out(c);
    xdr_put_u64(out, lock->denied.offset);
    xdr_put_u64(out, lock->denied.length);
    xdr_put_u32(out, lock->denied.type);
    xdr_put_u64(out, lock->denied.clientid);
    xdr_put_opaque(out, lock->denied.owner, lock->denied.owner_length);
    c->keep_result = true;
    return NFS4ERR_DENIED;
}

static enum nfs4_status lock_it(struct nfs4_compound *c, struct state_lock *lock)
{
    enum nfs4_status status = check_range(lock);
    if (status == NFS4_OK)
        status = check_file(c, lock);
    if (status == NFS4_OK)
        status = state_lock(&c->caller, lock);
    if (status == NFS4ERR_DENIED)
        return put_denied(c, lock);
    if (status != NFS4_OK)
        return status;
    nfs4_set_stateid(c, &lock->stateid);
    nfs4_put_stateid(nfs4_out(c), &lock->stateid);
    return NFS4_OK;
}

enum nfs4_status nfs4_lock(struct nfs4_compound *c) /* RFC 8881, 18.10 */
{
    struct xdr_in *in = nfs4_in(c);
    struct state_lock lock = {0};
    uint32_t open_seqid = 0;
    get_type(in, &lock);
    lock.reclaim = xdr_get_bool(in);
    lock.offset = xdr_get_u64(in);
    lock.length = xdr_get_u64(in);
    lock.new_owner = xdr_get_bool(in);
    if (lock.new_owner)
        open_seqid = xdr_get_u32(in);
    lock.stateid = nfs4_get_stateid(in);
    lock.lock_seqid = xdr_get_u32(in);
    if (lock.new_owner)
        get_owner(in, &lock);
    if (in->bad)
        return NFS4ERR_BADXDR;

    struct state_owner *owner;
    enum nfs4_status status = nfs4_resolve(c, &lock.stateid);
    if (status != NFS4_OK ||
        !nfs4_seqid_by_stateid(c, &lock.stateid, lock.new_owner ? open_seqid : lock.lock_seqid, &owner, &status))
        return status;
    return nfs4_seqid_end(c, owner, lock_it(c, &lock), NULL);
}

enum nfs4_status nfs4_lockt(struct nfs4_compound *c) /* 18.11 */
{
    struct xdr_in *in = nfs4_in(c);
    struct state_lock lock = {0};
    get_type(in, &lock);
    lock.offset = xdr_get_u64(in);
    lock.length = xdr_get_u64(in);
    get_owner(in, &lock);
    if (in->bad)
        return NFS4ERR_BADXDR;
    enum nfs4_status status = check_range(&lock);
    if (status == NFS4_OK)
        status = check_file(c, &lock);
    if (status == NFS4_OK)
        status = state_lockt(&c->caller, &lock);
    return status == NFS4ERR_DENIED ? put_denied(c, &lock) : status;
}

static enum nfs4_status unlock_it(struct nfs4_compound *c, struct state_lock *lock)
{
    enum nfs4_status status = check_range(lock);
    if (status == NFS4_OK)
        status = check_file(c, lock);
    if (status == NFS4_OK)
        status = state_locku(&c->caller, lock);
    if (status != NFS4_OK)
        return status;
    nfs4_set_stateid(c, &lock->stateid);
    nfs4_put_stateid(nfs4_out(c), &lock->stateid);
    return NFS4_OK;
}

enum nfs4_status nfs4_locku(struct nfs4_compound *c) /* 18.12 */
{
    struct xdr_in *in = nfs4_in(c);
    struct state_lock lock = {0};
    get_type(in, &lock);
    uint32_t seqid = xdr_get_u32(in);
    lock.stateid = nfs4_get_stateid(in);
    lock.offset = xdr_get_u64(in);
    lock.length = xdr_get_u64(in);
    if (in->bad)
        return NFS4ERR_BADXDR;
    struct state_owner *owner;
    enum nfs4_status status = nfs4_resolve(c, &lock.stateid);
    if (status != NFS4_OK || !nfs4_seqid_by_stateid(c, &lock.stateid, seqid, &owner, &status))
        return status;
    return nfs4_seqid_end(c, owner, unlock_it(c, &lock), NULL);
}
