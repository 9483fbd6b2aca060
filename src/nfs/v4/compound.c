/* COMPOUND: the table of operations and what runs them one after another (RFC 7530, 14.2; RFC 8881, 16.2). */
#include "nfs/v4/compound.h"

#include <string.h>

#include "nfs/gate.h"
#include "nfs/nfs3.h"
#include "nfs/opstats.h"

enum {
    TAG_MOST = 1024,
    OPS_MOST = 1024,                    /* of a COMPOUND without a session */
    REPLY_MOST = 4 * 1024 * 1024,       /* without a session */
    REPLY_HEAD = 24,                    /* of an accepted RPC reply, before the results */
    OP_RESULT = 12,                     /* an operation's number, its status, and SETATTR's empty bitmap */
};

enum { /* what an operation needs, and what it does */
       FH = 1,     /* a current file handle */
       SAVED = 2,  /* a saved one */
       WAITS = 4,  /* runs in a coroutine only */
       ALONE = 8,  /* may be the only operation, without a session */
};

static const struct operation {
    const char *name;
    uint8_t first, last; /* minor versions that have it */
    uint8_t needs;
    uint16_t reply; /* bytes of its result at most, number and status excluded; larger ones see to it themselves */
    nfs4_op_fn *run; /* NULL: NFS4ERR_NOTSUPP */
} operations[OP4_COUNT] = {
    [OP4_ACCESS] = {"ACCESS", 0, 2, FH, 8, nfs4_access},
    [OP4_CLOSE] = {"CLOSE", 0, 2, FH | WAITS, 16, nfs4_close},
    [OP4_COMMIT] = {"COMMIT", 0, 2, FH, 8, nfs4_commit},
    [OP4_CREATE] = {"CREATE", 0, 2, FH | WAITS, 36, nfs4_create},
    [OP4_DELEGPURGE] = {"DELEGPURGE", 0, 2, 0, 0, nfs4_delegpurge},
    [OP4_DELEGRETURN] = {"DELEGRETURN", 0, 2, FH | WAITS, 0, nfs4_delegreturn},
    [OP4_GETATTR] = {"GETATTR", 0, 2, FH, 16, nfs4_getattr},
    [OP4_GETFH] = {"GETFH", 0, 2, FH, 4 + NFS_HANDLE_SIZE, nfs4_getfh},
    [OP4_LINK] = {"LINK", 0, 2, FH | SAVED | WAITS, 20, nfs4_link},
    [OP4_LOCK] = {"LOCK", 0, 2, FH | WAITS, 64, nfs4_lock},
    [OP4_LOCKT] = {"LOCKT", 0, 2, FH | WAITS, 64, nfs4_lockt},
    [OP4_LOCKU] = {"LOCKU", 0, 2, FH | WAITS, 16, nfs4_locku},
    [OP4_LOOKUP] = {"LOOKUP", 0, 2, FH, 0, nfs4_lookup},
    [OP4_LOOKUPP] = {"LOOKUPP", 0, 2, FH, 0, nfs4_lookupp},
    [OP4_NVERIFY] = {"NVERIFY", 0, 2, FH, 0, nfs4_nverify},
    [OP4_OPEN] = {"OPEN", 0, 2, FH | WAITS, 128, nfs4_open},
    [OP4_OPENATTR] = {"OPENATTR", 0, 2, FH, 0, NULL},
    [OP4_OPEN_CONFIRM] = {"OPEN_CONFIRM", 0, 0, FH | WAITS, 16, nfs4_open_confirm},
    [OP4_OPEN_DOWNGRADE] = {"OPEN_DOWNGRADE", 0, 2, FH | WAITS, 16, nfs4_open_downgrade},
    [OP4_PUTFH] = {"PUTFH", 0, 2, 0, 0, nfs4_putfh},
    [OP4_PUTPUBFH] = {"PUTPUBFH", 0, 2, 0, 0, nfs4_putrootfh},
    [OP4_PUTROOTFH] = {"PUTROOTFH", 0, 2, 0, 0, nfs4_putrootfh},
    [OP4_READ] = {"READ", 0, 2, FH, 8, nfs4_read},
    [OP4_READDIR] = {"READDIR", 0, 2, FH, 16, nfs4_readdir},
    [OP4_READLINK] = {"READLINK", 0, 2, FH, 4, nfs4_readlink},
    [OP4_REMOVE] = {"REMOVE", 0, 2, FH | WAITS, 20, nfs4_remove},
    [OP4_RENAME] = {"RENAME", 0, 2, FH | SAVED | WAITS, 40, nfs4_rename},
    [OP4_RENEW] = {"RENEW", 0, 0, 0, 0, nfs4_renew},
    [OP4_RESTOREFH] = {"RESTOREFH", 0, 2, 0, 0, nfs4_restorefh},
    [OP4_SAVEFH] = {"SAVEFH", 0, 2, FH, 0, nfs4_savefh},
    [OP4_SECINFO] = {"SECINFO", 0, 2, FH, 16, nfs4_secinfo},
    [OP4_SETATTR] = {"SETATTR", 0, 2, FH | WAITS, 16, nfs4_setattr},
    [OP4_SETCLIENTID] = {"SETCLIENTID", 0, 0, WAITS, 64, nfs4_setclientid},
    [OP4_SETCLIENTID_CONFIRM] = {"SETCLIENTID_CONFIRM", 0, 0, WAITS, 0, nfs4_setclientid_confirm},
    [OP4_VERIFY] = {"VERIFY", 0, 2, FH, 0, nfs4_verify},
    [OP4_WRITE] = {"WRITE", 0, 2, FH | WAITS, 16, nfs4_write},
    [OP4_RELEASE_LOCKOWNER] = {"RELEASE_LOCKOWNER", 0, 0, 0, 0, nfs4_release_lockowner},
    [OP4_BACKCHANNEL_CTL] = {"BACKCHANNEL_CTL", 1, 2, 0, 0, nfs4_backchannel_ctl},
    [OP4_BIND_CONN_TO_SESSION] = {"BIND_CONN_TO_SESSION", 1, 2, ALONE, 24, nfs4_bind_conn_to_session},
    [OP4_EXCHANGE_ID] = {"EXCHANGE_ID", 1, 2, ALONE | WAITS, 512, nfs4_exchange_id},
    [OP4_CREATE_SESSION] = {"CREATE_SESSION", 1, 2, ALONE | WAITS, 96, nfs4_create_session},
    [OP4_DESTROY_SESSION] = {"DESTROY_SESSION", 1, 2, ALONE, 0, nfs4_destroy_session},
    [OP4_FREE_STATEID] = {"FREE_STATEID", 1, 2, WAITS, 0, nfs4_free_stateid},
    [OP4_GET_DIR_DELEGATION] = {"GET_DIR_DELEGATION", 1, 2, FH, 0, NULL},
    [OP4_GETDEVICEINFO] = {"GETDEVICEINFO", 1, 2, 0, 0, NULL},
    [OP4_GETDEVICELIST] = {"GETDEVICELIST", 1, 2, 0, 0, NULL},
    [OP4_LAYOUTCOMMIT] = {"LAYOUTCOMMIT", 1, 2, FH, 0, NULL},
    [OP4_LAYOUTGET] = {"LAYOUTGET", 1, 2, FH, 0, NULL},
    [OP4_LAYOUTRETURN] = {"LAYOUTRETURN", 1, 2, 0, 0, NULL},
    [OP4_SECINFO_NO_NAME] = {"SECINFO_NO_NAME", 1, 2, FH, 16, nfs4_secinfo_no_name},
    [OP4_SEQUENCE] = {"SEQUENCE", 1, 2, 0, 36, nfs4_sequence},
    [OP4_SET_SSV] = {"SET_SSV", 1, 2, 0, 0, NULL},
    [OP4_TEST_STATEID] = {"TEST_STATEID", 1, 2, 0, 4, nfs4_test_stateid},
    [OP4_WANT_DELEGATION] = {"WANT_DELEGATION", 1, 2, FH, 0, NULL},
    [OP4_DESTROY_CLIENTID] = {"DESTROY_CLIENTID", 1, 2, ALONE | WAITS, 0, nfs4_destroy_clientid},
    [OP4_RECLAIM_COMPLETE] = {"RECLAIM_COMPLETE", 1, 2, WAITS, 0, nfs4_reclaim_complete},
    [OP4_ALLOCATE] = {"ALLOCATE", 2, 2, FH | WAITS, 0, nfs4_allocate},
    [OP4_COPY] = {"COPY", 2, 2, FH | SAVED | WAITS, 48, nfs4_copy},
    [OP4_COPY_NOTIFY] = {"COPY_NOTIFY", 2, 2, FH, 0, NULL},
    [OP4_DEALLOCATE] = {"DEALLOCATE", 2, 2, FH | WAITS, 0, nfs4_deallocate},
    [OP4_IO_ADVISE] = {"IO_ADVISE", 2, 2, FH, 8, nfs4_io_advise},
    [OP4_LAYOUTERROR] = {"LAYOUTERROR", 2, 2, 0, 0, NULL},
    [OP4_LAYOUTSTATS] = {"LAYOUTSTATS", 2, 2, 0, 0, NULL},
    [OP4_OFFLOAD_CANCEL] = {"OFFLOAD_CANCEL", 2, 2, FH, 0, NULL},
    [OP4_OFFLOAD_STATUS] = {"OFFLOAD_STATUS", 2, 2, FH, 0, NULL},
    [OP4_READ_PLUS] = {"READ_PLUS", 2, 2, FH, 32, nfs4_read_plus},
    [OP4_SEEK] = {"SEEK", 2, 2, FH | WAITS, 12, nfs4_seek},
    [OP4_WRITE_SAME] = {"WRITE_SAME", 2, 2, FH, 0, NULL},
    [OP4_CLONE] = {"CLONE", 2, 2, FH | SAVED | WAITS, 0, nfs4_clone},
    [OP4_GETXATTR] = {"GETXATTR", 2, 2, FH, 4, NULL},
    [OP4_SETXATTR] = {"SETXATTR", 2, 2, FH | WAITS, 20, NULL},
    [OP4_LISTXATTRS] = {"LISTXATTRS", 2, 2, FH, 16, NULL},
    [OP4_REMOVEXATTR] = {"REMOVEXATTR", 2, 2, FH | WAITS, 20, NULL},
};

const char *nfs4_op_name(uint32_t op)
{
    return op < OP4_COUNT ? operations[op].name : NULL;
}

static enum rpc_result null(struct rpc_call *call)
{
    return RPC_DONE;
}

/* ---- room ---- */

static uint32_t reply_bytes(const struct nfs4_compound *c)
{
    return REPLY_HEAD + (uint32_t)xdr_used(&c->call->out) + c->slice_bytes;
}

static enum nfs4_status too_big(const struct nfs4_compound *c, uint32_t bytes)
{
    uint64_t all = (uint64_t)reply_bytes(c) + bytes;
    if (all > c->reply_most)
        return c->minor ? NFS4ERR_REP_TOO_BIG : NFS4ERR_RESOURCE;
    return all > c->cache_most ? NFS4ERR_REP_TOO_BIG_TO_CACHE : NFS4_OK;
}

uint32_t nfs4_room_left(const struct nfs4_compound *c, uint32_t most)
{
    uint32_t limit = c->reply_most < c->cache_most ? c->reply_most : c->cache_most;
    uint32_t used = reply_bytes(c);
    uint32_t left = used < limit ? limit - used : 0;
    return left < most ? left : most;
}

static bool grow(struct nfs4_compound *c, uint32_t bytes)
{
    struct xdr_out *out = nfs4_out(c);
    if (xdr_room(out) >= bytes)
        return true;
    uint64_t need = xdr_used(out) + bytes, twice = need * 2;
    uint64_t most = c->reply_most < REPLY_MOST ? c->reply_most : REPLY_MOST;
    if (twice > most && most >= need)
        twice = most;
    return !rpc_reply_room(c->call, (uint32_t)twice) || !rpc_reply_room(c->call, (uint32_t)need);
}

enum nfs4_status nfs4_grow(struct nfs4_compound *c, uint32_t bytes)
{
    return grow(c, bytes) ? NFS4_OK : NFS4ERR_DELAY;
}

enum nfs4_status nfs4_room(struct nfs4_compound *c, uint32_t bytes)
{
    enum nfs4_status status = too_big(c, bytes);
    if (status == NFS4_OK && !grow(c, bytes))
        status = NFS4ERR_DELAY;
    return status;
}

enum nfs4_status nfs4_replay(struct nfs4_compound *c, struct state_bytes reply)
{
    struct xdr_out *out = nfs4_out(c);
    if (rpc_reply_room(c->call, reply.length))
        return NFS4ERR_DELAY;
    out->at = out->start;
    memcpy(out->at, reply.bytes, reply.length);
    out->at += reply.length;
    return NFS4_REPLAYED;
}

/* ---- one operation ---- */

/* Minor version 1 and later: what comes first (RFC 8881, 2.10.2.1 and 18.46.3). */
static enum nfs4_status in_session(const struct nfs4_compound *c, const struct operation *operation)
{
    if (!c->minor || c->caller.session || c->op == OP4_SEQUENCE)
        return NFS4_OK;
    if (!(operation->needs & ALONE))
        return NFS4ERR_OP_NOT_IN_SESSION;
    return c->op_count == 1 ? NFS4_OK : NFS4ERR_NOT_ONLY_OP;
}

static enum nfs4_status may_run(const struct nfs4_compound *c, const struct operation *operation)
{
    enum nfs4_status status = in_session(c, operation);
    if (status != NFS4_OK)
        return status;
    if (!operation->run)
        return NFS4ERR_NOTSUPP;
    if (c->call->delayed && c->op != OP4_SEQUENCE)
        return NFS4ERR_DELAY;
    if (operation->needs & FH && c->fh.kind == NFS4_FH_NONE)
        return NFS4ERR_NOFILEHANDLE;
    if (operation->needs & SAVED && c->saved.kind == NFS4_FH_NONE)
        return NFS4ERR_NOFILEHANDLE;
    return NFS4_OK;
}

static bool in_coroutine(const struct nfs4_compound *c)
{
    return c->call->resumed && !c->call->must_end;
}

static enum nfs4_status run(struct nfs4_compound *c, const struct operation *operation)
{
    enum nfs4_status status = may_run(c, operation);
    if (status == NFS4_OK)
        status = nfs4_room(c, operation->reply);
    if (status != NFS4_OK)
        return status;
    if (operation->needs & WAITS && !in_coroutine(c))
        return NFS4_WAIT;
    status = operation->run(c);
    return status == NFS4_OK ? too_big(c, 0) : status;
}

static const struct operation *find(struct nfs4_compound *c)
{
    uint32_t number = xdr_get_u32(nfs4_in(c));
    c->op = number;
    const struct operation *operation = number < OP4_COUNT ? &operations[number] : NULL;
    if (operation && operation->name && operation->first <= c->minor)
        return operation;
    c->op = OP4_ILLEGAL;
    return NULL;
}

static void put_at(struct nfs4_compound *c, uint32_t at, uint32_t value)
{
    value = htobe32(value);
    memcpy(nfs4_out(c)->start + at, &value, sizeof value);
}

/* Runs the next one.  NFS4_WAIT: nothing has happened. */
static enum nfs4_status step(struct nfs4_compound *c)
{
    struct xdr_in *in = nfs4_in(c);
    struct xdr_out *out = nfs4_out(c);
    size_t before = xdr_used(out);
    c->op_at = (uint32_t)(in->at - c->args);
    c->keep_result = false;
    c->data_bytes = 0;
    if (!grow(c, OP_RESULT))
        return NFS4ERR_RESOURCE; /* no room to say so: the reply ends before this operation */
    const struct operation *operation = find(c);
    if (in->bad)
        c->op = OP4_ILLEGAL;
    xdr_put_u32(out, c->op);
    c->result_at = (uint32_t)xdr_used(out);
    xdr_put_u32(out, NFS4_OK);

    enum nfs4_status status = in->bad ? NFS4ERR_BADXDR : NFS4ERR_OP_ILLEGAL;
    if (operation && !in->bad)
        status = operation->last < c->minor ? NFS4ERR_NOTSUPP : run(c, operation);
    if (status == NFS4_WAIT && c->call->resumed)
        status = NFS4ERR_DELAY; /* there was no coroutine for it */
    if (status == NFS4_REPLAYED)
        return status;
    if (status == NFS4_WAIT) {
        out->at = out->start + before;
        return NFS4_WAIT;
    }
    if (status != NFS4_OK && !c->keep_result) {
        out->at = out->start + c->result_at + 4;
        if (c->op == OP4_SETATTR)
            xdr_put_u32(out, 0); /* attrsset is always there (RFC 8881, 18.30.2) */
    }
    put_at(c, c->result_at, status);
    if (operation)
        opstats_done(c->call, OPSTATS_NFS4 + c->op, status != NFS4_OK);
    if (c->data_bytes)
        opstats_bytes(c->call, c->data_bytes);
    c->op_index++;
    return status;
}

/* ---- the whole ---- */

/* COMPOUND4args up to its operations.  False: they do not decode. */
static bool begin(struct nfs4_compound *c, struct rpc_call *call, enum nfs4_status *status)
{
    uint32_t tag_length;
    const uint8_t *tag = xdr_get_opaque(&call->args, UINT32_MAX, &tag_length);
    uint32_t minor = xdr_get_u32(&call->args), count = xdr_get_u32(&call->args);
    if (call->args.bad)
        return false;
    memset(c, 0, offsetof(struct nfs4_compound, fh));
    c->fh.kind = c->saved.kind = NFS4_FH_NONE;
    c->call = call;
    c->caller.call = call;
    c->caller.minor = minor;
    c->minor = minor;
    c->op_count = count;
    c->reply_most = REPLY_MOST;
    c->cache_most = UINT32_MAX;
    *status = NFS4_OK;
    if (minor > 2)
        *status = NFS4ERR_MINOR_VERS_MISMATCH;
    else if (tag_length > TAG_MOST)
        *status = minor ? NFS4ERR_REQ_TOO_BIG : NFS4ERR_RESOURCE;
    else if (count > OPS_MOST)
        *status = minor ? NFS4ERR_TOO_MANY_OPS : NFS4ERR_RESOURCE;
    if (tag_length > TAG_MOST)
        tag_length = 0;
    if (rpc_reply_room(call, tag_length + 512))
        return false;
    xdr_put_u32(&call->out, NFS4_OK);
    xdr_put_opaque(&call->out, tag, tag_length);
    c->head_at = (uint32_t)xdr_used(&call->out);
    xdr_put_u32(&call->out, 0);
    return true;
}

/* The reply goes to the session's slot where the client wants it kept. */
static void end(struct nfs4_compound *c, enum nfs4_status status)
{
    struct xdr_out *out = nfs4_out(c);
    if (status != NFS4_REPLAYED) {
        put_at(c, 0, status);
        put_at(c, c->head_at, c->op_index);
    }
    bool keep = c->cache_most != UINT32_MAX && !out->full && status != NFS4_REPLAYED;
    state_end(&c->caller, keep ? out->start : NULL, keep ? (uint32_t)xdr_used(out) : 0);
}

static enum rpc_result compound(struct rpc_call *call) /* RFC 8881, 16.2 */
{
    struct nfs4_compound *c = (struct nfs4_compound *)(void *)call->keep;
    const uint8_t *args = call->args.at;
    enum nfs4_status status = NFS4_OK;
    if (call->resumed)
        call->args.at += c->op_at;
    else if (!begin(c, call, &status))
        return RPC_GARBAGE_ARGS;
    c->args = args;
    while (status == NFS4_OK && c->op_index < c->op_count)
        status = step(c);
    if (status == NFS4_WAIT)
        return RPC_RESUME;
    end(c, status);
    return RPC_DONE;
}

static const struct rpc_procedure procedures[] = {{"NULL", null, false}, {"COMPOUND", compound, false}};
const struct rpc_version nfs4_version = {
    .version = 4, .procedures = procedures, .count = sizeof procedures / sizeof *procedures,
    .expect = nfs4_expect, .changes = nfs4_changes, .turn = nfs4_turn, .hold = nfs_gate_hold,
    .withdraw = gate_withdraw};
