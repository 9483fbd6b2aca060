/* The calls of NFSv4.1 and 4.2 (RFC 8881): SEQUENCE, PUTFH, READ, GETATTR, and what comes back. */
#include "load_setup.h"

enum {
    ATTRIBUTE_CHANGE = 1 << 3, /* in the first word of the bitmap */
    ATTRIBUTE_SIZE = 1 << 4,
    ATTRIBUTE_TIME_METADATA = 1 << (52 - 32), /* in the second */
    ATTRIBUTE_TIME_MODIFY = 1 << (53 - 32),
    ATTRIBUTES_LENGTH = 8 + 8 + 12 + 12
};

void v4_put_compound(struct xdr_out *x, uint32_t minor, uint32_t operations)
{
    xdr_put_u32(x, 0); /* no tag */
    xdr_put_u32(x, minor);
    xdr_put_u32(x, operations);
}

void v4_put_sequence(struct xdr_out *x, struct load_session *session, uint32_t slot)
{
    xdr_put_u32(x, V4_SEQUENCE);
    xdr_put_fixed(x, session->id, SESSIONID_SIZE);
    xdr_put_u32(x, ++session->sequences[slot]);
    xdr_put_u32(x, slot);
    xdr_put_u32(x, session->slots - 1);
    xdr_put_bool(x, false); /* nothing to be kept */
}

/* What a client looks at to know whether what it has cached is still right. */
static void put_getattr(struct xdr_out *x)
{
    xdr_put_u32(x, V4_GETATTR);
    xdr_put_u32(x, 2);
    xdr_put_u32(x, ATTRIBUTE_CHANGE | ATTRIBUTE_SIZE);
    xdr_put_u32(x, ATTRIBUTE_TIME_METADATA | ATTRIBUTE_TIME_MODIFY);
}

static uint32_t session_slot(const struct conn *c, const struct load_slot *slot)
{
    return c->session_slot + (slot->xid & (SLOTS_MAX - 1));
}

void v4_encode_call(struct conn *c, const struct load_slot *slot, struct xdr_out *x)
{
    bool reads = slot->procedure == NFS3_READ;
    rpc_call_header(x, slot->xid, NFS_PROGRAM, 4, 1, c->options->uid);
    v4_put_compound(x, c->options->minor, reads ? 4 : 3);
    v4_put_sequence(x, c->session, session_slot(c, slot));
    xdr_put_u32(x, V4_PUTFH);
    rpc_put_fh(x, slot->file);
    if (reads) {
        xdr_put_u32(x, V4_READ);
        xdr_put_fixed(x, slot->file->stateid, STATEID_SIZE);
        xdr_put_u64(x, slot->offset);
        xdr_put_u32(x, slot->length);
    }
    put_getattr(x);
    rpc_finish_record(x, 0);
}

void v4_skip_compound(struct xdr_in *x)
{
    uint32_t length;
    xdr_get_opaque(x, 1024, &length);
    xdr_get_u32(x); /* how many results */
}

bool v4_take(struct xdr_in *x, enum v4_op op)
{
    uint32_t number = xdr_get_u32(x), status = xdr_get_u32(x);
    return !x->bad && number == (uint32_t)op && !status;
}

bool v4_take_sequence(struct xdr_in *x, const struct load_session *session, uint32_t slot)
{
    bool good = v4_take(x, V4_SEQUENCE);
    const uint8_t *id = xdr_take(x, SESSIONID_SIZE);
    good = good && id && !memcmp(id, session->id, SESSIONID_SIZE);
    good = xdr_get_u32(x) == session->sequences[slot] && good;
    good = xdr_get_u32(x) == slot && good;
    xdr_take(x, 12); /* highest slot, the one to aim at, flags */
    return good && !x->bad;
}

/* Up to the result of the last operation but GETATTR; false, and counted, when it is not as expected. */
static bool take_head(const struct conn *c, const struct load_slot *slot, struct xdr_in *x)
{
    if (!nfs_accepted(slot, x, c->shared->counts))
        return false;
    v4_skip_compound(x);
    if (v4_take_sequence(x, c->session, session_slot(c, slot)) && v4_take(x, V4_PUTFH))
        return true;
    load_error(c->shared->counts, "SEQUENCE or PUTFH: not the result of the call");
    return false;
}

bool v4_read_header(const struct conn *c, const struct load_slot *slot, struct xdr_in *x)
{
    if (!take_head(c, slot, x))
        return false;
    bool good = v4_take(x, V4_READ);
    xdr_get_bool(x); /* eof */
    uint32_t length = xdr_get_u32(x);
    if (good && !x->bad && length == slot->length)
        return true;
    load_error(c->shared->counts, "READ of %u at %llu: %u bytes of data", slot->length,
               (unsigned long long)slot->offset, length);
    return false;
}

bool v4_check_tail(const struct conn *c, const struct load_slot *slot, struct xdr_in *x)
{
    bool good = v4_take(x, V4_GETATTR) && xdr_get_u32(x) == 2 &&
                xdr_get_u32(x) == (ATTRIBUTE_CHANGE | ATTRIBUTE_SIZE) &&
                xdr_get_u32(x) == (ATTRIBUTE_TIME_METADATA | ATTRIBUTE_TIME_MODIFY) &&
                xdr_get_u32(x) == ATTRIBUTES_LENGTH;
    uint64_t change = xdr_get_u64(x), size = xdr_get_u64(x);
    xdr_take(x, ATTRIBUTES_LENGTH - 16);
    good = good && change && (slot->size == UINT64_MAX || size == slot->size);
    if (good && !x->bad && !xdr_left(x))
        return true;
    load_error(c->shared->counts, "GETATTR: not the attributes asked for");
    return false;
}

bool v4_check_reply(const struct conn *c, struct load_slot *slot, struct xdr_in *x)
{
    if (slot->procedure != NFS3_READ)
        return take_head(c, slot, x) && v4_check_tail(c, slot, x);
    if (!v4_read_header(c, slot, x))
        return false;
    const uint8_t *data = xdr_take(x, slot->length);
    if (data)
        return nfs_check_words(c->options, slot, 0, data, slot->length, c->shared->counts) &&
               v4_check_tail(c, slot, x);
    load_error(c->shared->counts, "READ: the reply has another length than its parts");
    return false;
}
