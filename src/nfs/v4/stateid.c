/* Operations on stateids, and the seqids of minor version 0 around those that have them. */
#include <string.h>

#include "nfs/v4/seqid.h"

/* ---- seqids ---- */

static bool begun(struct nfs4_compound *c, const struct state_kept *kept, enum nfs4_status *status)
{
    if (*status != NFS4_OK || !kept->result.bytes)
        return *status == NFS4_OK;
    struct xdr_in result = xdr_in(kept->result.bytes, kept->result.length);
    *status = (enum nfs4_status)xdr_get_u32(&result);
    size_t length = xdr_left(&result);
    enum nfs4_status room = nfs4_room(c, (uint32_t)length);
    if (room != NFS4_OK)
        *status = room;
    else
        xdr_put_fixed(nfs4_out(c), result.at, length);
    if (kept->object.ino)
        nfs4_set_fh(c, &kept->object);
    c->keep_result = true;
    return false;
}

bool nfs4_seqid_by_owner(struct nfs4_compound *c, uint64_t clientid, struct state_bytes open_owner, uint32_t seqid,
                         struct state_owner **owner, enum nfs4_status *status)
{
    struct state_kept kept = {0};
    *owner = NULL;
    *status = state_seqid_by_owner(&c->caller, clientid, open_owner, seqid, owner, &kept);
    if (begun(c, &kept, status))
        return true;
    if (kept.result.bytes)
        state_seqid_end(*owner, *status, (struct state_bytes){0}, NULL);
    return false;
}

bool nfs4_seqid_by_stateid(struct nfs4_compound *c, const struct nfs4_stateid *stateid, uint32_t seqid,
                           struct state_owner **owner, enum nfs4_status *status)
{
    struct state_kept kept = {0};
    *owner = NULL;
    *status = state_seqid_by_stateid(&c->caller, stateid, seqid, owner, &kept);
    if (begun(c, &kept, status))
        return true;
    if (kept.result.bytes)
        state_seqid_end(*owner, *status, (struct state_bytes){0}, NULL);
    return false;
}

enum nfs4_status nfs4_seqid_end(struct nfs4_compound *c, struct state_owner *owner, enum nfs4_status status,
                                const struct store_object *object)
{
    if (!owner)
        return status;
    struct xdr_out *out = nfs4_out(c);
    uint8_t *result = out->start + c->result_at;
    uint32_t number = htobe32(status), length = 4;
    memcpy(result, &number, sizeof number);
    if (status == NFS4_OK || c->keep_result)
        length = (uint32_t)(out->at - result);
    state_seqid_end(owner, status, (struct state_bytes){result, length}, object);
    return status;
}

/* ---- operations ---- */

enum nfs4_status nfs4_test_stateid(struct nfs4_compound *c) /* RFC 8881, 18.48 */
{
    struct xdr_in *in = nfs4_in(c);
    uint32_t count = xdr_get_u32(in);
    if (count > xdr_left(in) / NFS4_STATEID_SIZE)
        in->bad = true;
    if (in->bad)
        return NFS4ERR_BADXDR;
    enum nfs4_status status = nfs4_room(c, 4 + 4 * count);
    if (status != NFS4_OK)
        return status;
    xdr_put_u32(nfs4_out(c), count);
    for (uint32_t i = 0; i < count; i++) {
        struct nfs4_stateid stateid = nfs4_get_stateid(in);
        xdr_put_u32(nfs4_out(c), state_test_stateid(&c->caller, &stateid));
    }
    return NFS4_OK;
}

enum nfs4_status nfs4_free_stateid(struct nfs4_compound *c) /* 18.38 */
{
    struct nfs4_stateid stateid = nfs4_get_stateid(nfs4_in(c));
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    enum nfs4_status status = nfs4_resolve(c, &stateid);
    return status == NFS4_OK ? state_free_stateid(&c->caller, &stateid) : status;
}

enum nfs4_status nfs4_delegreturn(struct nfs4_compound *c) /* 18.6 */
{
    struct nfs4_stateid stateid = nfs4_get_stateid(nfs4_in(c));
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    enum nfs4_status status = nfs4_resolve(c, &stateid);
    if (status == NFS4_OK)
        status = nfs4_object(c, &c->fh, false);
    return status == NFS4_OK ? state_delegreturn(&c->caller, &c->fh.object, &stateid) : status;
}

enum nfs4_status nfs4_delegpurge(struct nfs4_compound *c) /* 18.5 */
{
    uint64_t clientid = xdr_get_u64(nfs4_in(c));
    return nfs4_in(c)->bad ? NFS4ERR_BADXDR : state_delegpurge(&c->caller, clientid);
}
