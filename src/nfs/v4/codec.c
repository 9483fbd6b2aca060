/* Small pieces of arguments and results. */
#include <string.h>

#include "nfs/v4/compound.h"

struct nfs4_stateid nfs4_get_stateid(struct xdr_in *x)
{
    struct nfs4_stateid stateid = {.seqid = xdr_get_u32(x)};
    const uint8_t *other = xdr_take(x, sizeof stateid.other);
    if (other)
        memcpy(stateid.other, other, sizeof stateid.other);
    return stateid;
}

void nfs4_put_stateid(struct xdr_out *x, const struct nfs4_stateid *stateid)
{
    xdr_put_u32(x, stateid->seqid);
    xdr_put_fixed(x, stateid->other, sizeof stateid->other);
}

enum nfs4_status nfs4_resolve(const struct nfs4_compound *c, struct nfs4_stateid *stateid) /* RFC 8881, 8.2.3 */
{
    static const uint8_t zero[NFS4_OTHER_SIZE];
    if (c->minor == 0 || stateid->seqid != 1 || memcmp(stateid->other, zero, sizeof zero) != 0)
        return NFS4_OK;
    if (!c->has_stateid)
        return NFS4ERR_BAD_STATEID;
    *stateid = c->stateid;
    return NFS4_OK;
}

void nfs4_set_stateid(struct nfs4_compound *c, const struct nfs4_stateid *stateid)
{
    c->stateid = *stateid;
    c->has_stateid = true;
}

enum nfs4_status nfs4_check_stateid(struct nfs4_compound *c, struct nfs4_stateid stateid, uint32_t access)
{
    enum nfs4_status status = nfs4_resolve(c, &stateid);
    return status == NFS4_OK ? state_io(&c->caller, &c->fh.object, &stateid, access) : status;
}

enum nfs4_status nfs4_not_a_file(const struct nfs4_compound *c, int error, uint32_t type)
{
    if (error != -EINVAL || !c->minor || !type || type == STORE_REG)
        return nfs4_status(c, error);
    return type == STORE_LNK ? NFS4ERR_SYMLINK : NFS4ERR_WRONG_TYPE;
}

void nfs4_put_change(struct xdr_out *x, const struct store_wcc *wcc)
{
    xdr_put_bool(x, wcc->has_before && wcc->has_after); /* both are from the transaction that made the change */
    xdr_put_u64(x, wcc->before_change);
    xdr_put_u64(x, wcc->has_after ? wcc->after.change : 0);
}

void nfs4_put_verifier(struct xdr_out *x)
{
    uint8_t verifier[NFS4_VERIFIER_SIZE];
    nfs_server.ops->write_verifier(nfs_server.store, verifier);
    xdr_put_fixed(x, verifier, sizeof verifier);
}
