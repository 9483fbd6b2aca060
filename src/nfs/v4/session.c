/* Clients and sessions of minor version 1 and later: EXCHANGE_ID, CREATE_SESSION, SEQUENCE and what ends them. */
#include <stdio.h>
#include <string.h>

#include "nfs/v4/compound.h"

enum { DOMAIN_MOST = 1024, SESSION_FLAGS = CREATE_SESSION4_PERSIST | CREATE_SESSION4_CONN_BACK_CHAN |
                                           CREATE_SESSION4_CONN_RDMA };
enum { SP4_NONE, SP4_MACH_CRED, SP4_SSV };
enum { RPCSEC_GSS = 6 };

static const uint32_t exchange_flags = EXCHGID4_SUPP_MOVED_REFER | EXCHGID4_SUPP_MOVED_MIGR |
                                       EXCHGID4_BIND_PRINC_STATEID | EXCHGID4_USE_NON_PNFS | EXCHGID4_USE_PNFS_MDS |
                                       EXCHGID4_USE_PNFS_DS | EXCHGID4_UPD_CONFIRMED_REC_A;

static struct state_bytes get_bytes(struct xdr_in *x, uint32_t most)
{
    struct state_bytes bytes;
    bytes.bytes = xdr_get_opaque(x, most, &bytes.length);
    return bytes;
}

static void get_fixed(struct xdr_in *x, uint8_t *to, uint32_t length)
{
    const uint8_t *bytes = xdr_take(x, length);
    if (bytes)
        memcpy(to, bytes, length);
}

/* ---- EXCHANGE_ID ---- */

/* The name under which all addresses of this server are one (RFC 8881, 2.10.5). */
static void put_server_owner(struct xdr_out *out)
{
    char name[32];
    int length = snprintf(name, sizeof name, "sluice-%08x", nfs_server.pool);
    xdr_put_u64(out, 0); /* so_minor_id */
    xdr_put_opaque(out, name, (uint32_t)length);
    xdr_put_opaque(out, name, (uint32_t)length); /* eir_server_scope */
}

static void get_implementation(struct xdr_in *in, struct state_exchange *exchange)
{
    uint32_t count = xdr_get_u32(in);
    if (count > 1)
        in->bad = true;
    if (count != 1 || in->bad)
        return;
    exchange->domain = get_bytes(in, DOMAIN_MOST);
    exchange->implementation = get_bytes(in, DOMAIN_MOST);
    xdr_get_u64(in); /* nii_date */
    xdr_get_u32(in);
}

enum nfs4_status nfs4_exchange_id(struct nfs4_compound *c) /* RFC 8881, 18.35 */
{
    struct xdr_in *in = nfs4_in(c);
    struct state_exchange exchange = {0};
    get_fixed(in, exchange.verifier, sizeof exchange.verifier);
    exchange.owner = get_bytes(in, NFS4_OPAQUE_LIMIT);
    exchange.flags = xdr_get_u32(in);
    uint32_t protection = xdr_get_u32(in);
    if (in->bad || protection > SP4_SSV)
        return NFS4ERR_BADXDR;
    if (protection == SP4_MACH_CRED)
        return NFS4ERR_INVAL; /* wants RPCSEC_GSS with integrity (18.35.3) */
    if (protection == SP4_SSV)
        return NFS4ERR_ENCR_ALG_UNSUPP;
    get_implementation(in, &exchange);
    if (in->bad)
        return NFS4ERR_BADXDR;
    if (exchange.flags & ~exchange_flags)
        return NFS4ERR_INVAL;
    enum nfs4_status status = state_exchange_id(&c->caller, &exchange);
    if (status != NFS4_OK)
        return status;

    struct xdr_out *out = nfs4_out(c);
    xdr_put_u64(out, exchange.clientid);
    xdr_put_u32(out, exchange.sequence);
    xdr_put_u32(out, exchange.flags);
    xdr_put_u32(out, SP4_NONE);
    put_server_owner(out);
    xdr_put_u32(out, 0); /* eir_server_impl_id */
    return NFS4_OK;
}

/* ---- CREATE_SESSION ---- */

static struct state_channel get_channel(struct xdr_in *in)
{
    struct state_channel channel;
    channel.header_pad = xdr_get_u32(in);
    channel.max_request = xdr_get_u32(in);
    channel.max_response = xdr_get_u32(in);
    channel.max_cached = xdr_get_u32(in);
    channel.max_ops = xdr_get_u32(in);
    channel.max_requests = xdr_get_u32(in);
    uint32_t rdma = xdr_get_u32(in);
    if (rdma > 1)
        in->bad = true;
    if (rdma == 1)
        xdr_get_u32(in);
    return channel;
}

static void put_channel(struct xdr_out *out, const struct state_channel *channel)
{
    xdr_put_u32(out, channel->header_pad);
    xdr_put_u32(out, channel->max_request);
    xdr_put_u32(out, channel->max_response);
    xdr_put_u32(out, channel->max_cached);
    xdr_put_u32(out, channel->max_ops);
    xdr_put_u32(out, channel->max_requests);
    xdr_put_u32(out, 0); /* ca_rdma_ird */
}

static void get_auth_sys(struct xdr_in *in, struct state_callback_sec *security)
{
    struct state_callback_sec one = {.known = true, .flavor = RPC_AUTH_SYS};
    xdr_get_u32(in);     /* stamp */
    get_bytes(in, 255);  /* machine */
    one.uid = xdr_get_u32(in);
    one.gid = xdr_get_u32(in);
    uint32_t count = xdr_get_u32(in);
    if (count > 16)
        in->bad = true;
    for (uint32_t i = 0; i < count && !in->bad; i++)
        xdr_get_u32(in);
    if (!security->known)
        *security = one;
}

/* callback_sec_parms4<>: the first that is not RPCSEC_GSS, which no callback can use here. */
static struct state_callback_sec get_security(struct xdr_in *in)
{
    struct state_callback_sec security = {0};
    uint32_t count = xdr_get_u32(in);
    for (uint32_t i = 0; i < count && !in->bad; i++) {
        switch (xdr_get_u32(in)) {
        case RPC_AUTH_NONE:
            if (!security.known)
                security = (struct state_callback_sec){.known = true, .flavor = RPC_AUTH_NONE};
            break;
        case RPC_AUTH_SYS:
            get_auth_sys(in, &security);
            break;
        case RPCSEC_GSS:
            xdr_get_u32(in);
            get_bytes(in, UINT32_MAX);
            get_bytes(in, UINT32_MAX);
            break;
        default:
            in->bad = true;
        }
    }
    return security;
}

enum nfs4_status nfs4_create_session(struct nfs4_compound *c) /* 18.36 */
{
    struct xdr_in *in = nfs4_in(c);
    struct state_create_session create = {.clientid = xdr_get_u64(in)};
    create.sequence = xdr_get_u32(in);
    create.flags = xdr_get_u32(in);
    create.fore = get_channel(in);
    create.back = get_channel(in);
    create.callback_program = xdr_get_u32(in);
    create.security = get_security(in);
    if (in->bad)
        return NFS4ERR_BADXDR;
    if (create.flags & ~(uint32_t)SESSION_FLAGS)
        return NFS4ERR_INVAL;
    enum nfs4_status status = state_create_session(&c->caller, &create);
    if (status != NFS4_OK)
        return status;
    struct xdr_out *out = nfs4_out(c);
    xdr_put_fixed(out, create.sessionid, sizeof create.sessionid);
    xdr_put_u32(out, create.sequence);
    xdr_put_u32(out, create.flags);
    put_channel(out, &create.fore);
    put_channel(out, &create.back);
    return NFS4_OK;
}

/* ---- SEQUENCE ---- */

enum nfs4_status nfs4_sequence(struct nfs4_compound *c) /* 18.46 */
{
    struct xdr_in *in = nfs4_in(c);
    if (c->op_index)
        return NFS4ERR_SEQUENCE_POS;
    struct state_sequence sequence;
    get_fixed(in, sequence.sessionid, sizeof sequence.sessionid);
    sequence.sequence = xdr_get_u32(in);
    sequence.slot = xdr_get_u32(in);
    sequence.highest = xdr_get_u32(in);
    sequence.cache_this = xdr_get_bool(in);
    if (in->bad)
        return NFS4ERR_BADXDR;
    sequence.op_count = c->op_count;
    sequence.request = (struct state_bytes){c->args, (uint32_t)(in->end - c->args)};
    enum nfs4_status status = state_sequence(&c->caller, &sequence);
    if (status != NFS4_OK)
        return status;
    if (sequence.kept.bytes)
        return nfs4_replay(c, sequence.kept);
    c->reply_most = sequence.fore.max_response;
    if (sequence.cache_this)
        c->cache_most = sequence.fore.max_cached;
    struct xdr_out *out = nfs4_out(c);
    xdr_put_fixed(out, sequence.sessionid, sizeof sequence.sessionid);
    xdr_put_u32(out, sequence.sequence);
    xdr_put_u32(out, sequence.slot);
    xdr_put_u32(out, sequence.highest_slot);
    xdr_put_u32(out, sequence.target_highest);
    xdr_put_u32(out, sequence.status_flags);
    return NFS4_OK;
}

/* ---- the rest ---- */

enum nfs4_status nfs4_destroy_session(struct nfs4_compound *c) /* 18.37 */
{
    uint8_t sessionid[NFS4_SESSIONID_SIZE];
    get_fixed(nfs4_in(c), sessionid, sizeof sessionid);
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    if (c->caller.session && c->op_index + 1 != c->op_count)
        return NFS4ERR_NOT_ONLY_OP; /* what follows would have no session */
    return state_destroy_session(&c->caller, sessionid);
}

enum nfs4_status nfs4_bind_conn_to_session(struct nfs4_compound *c) /* 18.34 */
{
    struct xdr_in *in = nfs4_in(c);
    uint8_t sessionid[NFS4_SESSIONID_SIZE];
    get_fixed(in, sessionid, sizeof sessionid);
    uint32_t direction = xdr_get_u32(in);
    xdr_get_bool(in); /* RDMA: never */
    if (in->bad || (direction != CDFC4_FORE && direction != CDFC4_BACK && direction != CDFC4_FORE_OR_BOTH &&
                    direction != CDFC4_BACK_OR_BOTH))
        return NFS4ERR_BADXDR;
    enum nfs4_status status = state_bind_conn(&c->caller, sessionid, &direction);
    if (status != NFS4_OK)
        return status;
    xdr_put_fixed(nfs4_out(c), sessionid, sizeof sessionid);
    xdr_put_u32(nfs4_out(c), direction);
    xdr_put_bool(nfs4_out(c), false);
    return NFS4_OK;
}

enum nfs4_status nfs4_backchannel_ctl(struct nfs4_compound *c) /* 18.33 */
{
    uint32_t program = xdr_get_u32(nfs4_in(c));
    struct state_callback_sec security = get_security(nfs4_in(c));
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    return state_backchannel(&c->caller, program, &security);
}

enum nfs4_status nfs4_destroy_clientid(struct nfs4_compound *c) /* 18.50 */
{
    uint64_t clientid = xdr_get_u64(nfs4_in(c));
    return nfs4_in(c)->bad ? NFS4ERR_BADXDR : state_destroy_clientid(&c->caller, clientid);
}

enum nfs4_status nfs4_reclaim_complete(struct nfs4_compound *c) /* 18.51 */
{
    bool one_fs = xdr_get_bool(nfs4_in(c));
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    if (one_fs && c->fh.kind == NFS4_FH_NONE)
        return NFS4ERR_NOFILEHANDLE;
    return state_reclaim_complete(&c->caller, one_fs);
}
