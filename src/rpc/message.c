#include "rpc/message.h"

enum {
    TYPE_CALL = 0,
    TYPE_REPLY = 1,
    RPC_VERSION = 2,
    AUTH_BODY_MOST = 400,
    MACHINE_NAME_MOST = 255
};
enum { REPLY_ACCEPTED = 0, REPLY_DENIED = 1, DENIED_MISMATCH = 0, DENIED_AUTH = 1 };
enum { NOBODY = 65534 };

/* authsys_parms (RFC 5531, appendix A). */
static bool decode_auth_sys(const uint8_t *body, uint32_t length, struct rpc_cred *cred)
{
    struct xdr_in x = xdr_in(body, length);
    uint32_t name_length;
    xdr_get_u32(&x); /* stamp: says nothing */
    xdr_get_opaque(&x, MACHINE_NAME_MOST, &name_length);
    cred->uid = xdr_get_u32(&x);
    cred->gid = xdr_get_u32(&x);
    uint32_t count = xdr_get_u32(&x);
    if (x.bad || count > RPC_GROUPS_MAX)
        return false;
    for (uint32_t i = 0; i < count; i++)
        cred->groups[i] = xdr_get_u32(&x);
    cred->group_count = count;
    return !x.bad && xdr_left(&x) == 0;
}

/* 0, or why the credential is not taken. */
static int decode_cred(struct xdr_in *x, struct rpc_cred *cred)
{
    uint32_t length, flavor = xdr_get_u32(x);
    const uint8_t *body = xdr_get_opaque(x, AUTH_BODY_MOST, &length);
    if (x->bad)
        return MESSAGE_AUTH_BADCRED;
    switch (flavor) {
    case RPC_AUTH_SYS:
        cred->flavor = RPC_AUTH_SYS;
        return decode_auth_sys(body, length, cred) ? 0 : MESSAGE_AUTH_BADCRED;
    case RPC_AUTH_NONE:
        cred->flavor = RPC_AUTH_NONE;
        cred->uid = cred->gid = NOBODY;
        cred->group_count = 0;
        return 0;
    default:
        return MESSAGE_AUTH_REJECTEDCRED;
    }
}

enum message_kind message_decode(const uint8_t *data, uint32_t length, struct rpc_call *call,
                                 enum message_auth *auth)
{
    struct xdr_in x = xdr_in(data, length);
    call->xid = xdr_get_u32(&x);
    uint32_t type = xdr_get_u32(&x);
    if (x.bad)
        return MESSAGE_LOST;
    if (type != TYPE_CALL)
        return MESSAGE_NOT_CALL;
    uint32_t version = xdr_get_u32(&x);
    if (!x.bad && version != RPC_VERSION)
        return MESSAGE_MISMATCH;
    call->program = xdr_get_u32(&x);
    call->version = xdr_get_u32(&x);
    call->procedure = xdr_get_u32(&x);
    if (x.bad)
        return MESSAGE_TRUNCATED;
    int refused = decode_cred(&x, &call->cred);
    if (!refused) {
        uint32_t verf_length;
        xdr_get_u32(&x); /* the verifier's flavour says nothing under AUTH_NONE and AUTH_SYS */
        xdr_get_opaque(&x, AUTH_BODY_MOST, &verf_length);
        if (x.bad)
            refused = MESSAGE_AUTH_BADVERF;
    }
    if (refused) {
        *auth = (enum message_auth)refused;
        return MESSAGE_DENIED;
    }
    call->args = x;
    return MESSAGE_CALL;
}

bool message_peek(const uint8_t *data, uint32_t length, uint32_t *program, uint32_t *version,
                  struct rpc_expected *out)
{
    struct xdr_in x = xdr_in(data, length);
    uint32_t body;
    xdr_take(&x, 3 * 4); /* xid, type, RPC version */
    *program = xdr_get_u32(&x);
    *version = xdr_get_u32(&x);
    out->procedure = xdr_get_u32(&x);
    for (unsigned i = 0; i < 2; i++) { /* credential, verifier */
        xdr_take(&x, 4);
        xdr_get_opaque(&x, AUTH_BODY_MOST, &body);
    }
    out->args = x;
    return !x.bad;
}

static uint32_t write_words(uint8_t *to, const uint32_t *words, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t word = htobe32(words[i]);
        memcpy(to + i * sizeof(word), &word, sizeof(word));
    }
    return count * (uint32_t)sizeof(uint32_t);
}

uint32_t message_accepted(uint8_t *to, uint32_t xid, enum message_accept status)
{
    return write_words(to, (uint32_t[]){xid, TYPE_REPLY, REPLY_ACCEPTED, RPC_AUTH_NONE, 0, status},
                       6);
}

uint32_t message_prog_mismatch(uint8_t *to, uint32_t xid, uint32_t low, uint32_t high)
{
    return write_words(to,
                       (uint32_t[]){xid, TYPE_REPLY, REPLY_ACCEPTED, RPC_AUTH_NONE, 0,
                                    MESSAGE_PROG_MISMATCH, low, high},
                       8);
}

uint32_t message_rpc_mismatch(uint8_t *to, uint32_t xid)
{
    return write_words(
        to, (uint32_t[]){xid, TYPE_REPLY, REPLY_DENIED, DENIED_MISMATCH, RPC_VERSION, RPC_VERSION},
        6);
}

uint32_t message_auth_error(uint8_t *to, uint32_t xid, enum message_auth status)
{
    return write_words(to, (uint32_t[]){xid, TYPE_REPLY, REPLY_DENIED, DENIED_AUTH, status}, 5);
}
