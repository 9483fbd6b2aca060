#include "load.h"

#include <stdarg.h>
#include <stdio.h>

enum { NFS3_OK = 0, NFS3ERR_JUKEBOX = 10008, LAST_FRAGMENT = 0x80000000 };

void load_error(struct load_counts *counts, const char *format, ...)
{
    va_list list;
    if (!counts->errors++) {
        va_start(list, format);
        vsnprintf(counts->error, sizeof counts->error, format, list);
        va_end(list);
    }
}

/* Record mark (filled in by rpc_finish_record), call header, AUTH_SYS (RFC 5531). */
size_t rpc_call_header(struct xdr_out *x, uint32_t xid, uint32_t program, uint32_t procedure,
                       uint32_t uid)
{
    const uint32_t call[] = {0, xid, 0, 2, program, 3, procedure, 1, 28};
    for (size_t i = 0; i < sizeof call / sizeof call[0]; i++)
        xdr_put_u32(x, call[i]);
    xdr_put_u32(x, 0); /* stamp */
    xdr_put_opaque(x, "bench", 5);
    xdr_put_u32(x, uid);
    xdr_put_u32(x, uid);
    xdr_put_u32(x, 0); /* no further groups */
    xdr_put_u64(x, 0); /* AUTH_NONE as verifier */
    return xdr_used(x);
}

void rpc_put_fh(struct xdr_out *x, const struct load_file *file)
{
    xdr_put_opaque(x, file->fh, file->fh_length);
}

void rpc_finish_record(struct xdr_out *x, size_t payload)
{
    uint32_t mark = htobe32(LAST_FRAGMENT | (uint32_t)(xdr_used(x) - 4 + payload));
    memcpy(x->start, &mark, 4);
}

bool rpc_reply_accepted(struct xdr_in *x)
{
    uint32_t length;
    bool reply = xdr_get_u32(x) == 1 && xdr_get_u32(x) == 0;
    xdr_get_u32(x);
    xdr_get_opaque(x, 400, &length);
    return reply && xdr_get_u32(x) == 0 && !x->bad;
}

uint32_t nfs_procedure(enum load_op op)
{
    static const uint32_t procedures[OP_COUNT] = {
        [OP_READ_RAND] = 6, [OP_READ_SEQ] = 6, [OP_WRITE_RAND] = 7, [OP_WRITE_SEQ] = 7,
        [OP_GETATTR] = 1,   [OP_LOOKUP] = 3,   [OP_CREATE] = 8,     [OP_REMOVE] = 12,
        [OP_RMDIR] = 13,    [OP_TRUNCATE] = 2,
    };
    return procedures[op];
}

void nfs_name(const struct load_options *o, uint64_t number, char name[NAME_ROOM])
{
    snprintf(name, NAME_ROOM, "%s.%llu", o->prefix, (unsigned long long)number);
}

static void nfs_put_name(const struct load_options *o, const struct load_target *t, uint64_t number,
                         struct xdr_out *x)
{
    char name[NAME_ROOM];
    nfs_name(o, number, name);
    rpc_put_fh(x, &t->dir);
    xdr_put_opaque(x, name, (uint32_t)strlen(name));
}

void nfs_encode_call(const struct load_options *o, const struct load_target *t,
                     struct load_slot *slot, uint64_t ticket, struct xdr_out *x)
{
    rpc_call_header(x, slot->xid, NFS3_PROGRAM, nfs_procedure(o->op), o->uid);
    size_t payload = 0;
    switch (o->op) {
    case OP_READ_RAND:
    case OP_READ_SEQ:
        rpc_put_fh(x, slot->file);
        xdr_put_u64(x, slot->offset);
        xdr_put_u32(x, slot->length);
        break;
    case OP_WRITE_RAND:
    case OP_WRITE_SEQ:
        rpc_put_fh(x, slot->file);
        xdr_put_u64(x, slot->offset);
        xdr_put_u32(x, slot->length);
        xdr_put_u32(x, o->stable);
        xdr_put_u32(x, slot->length);
        payload = slot->length;
        break;
    case OP_LOOKUP:
        nfs_put_name(o, t, o->first + (uint64_t)(slot->file - t->files), x);
        break;
    case OP_CREATE:
        nfs_put_name(o, t, o->first + ticket, x);
        xdr_put_u32(x, 1); /* GUARDED */
        xdr_put_u64(x, UINT64_C(1) << 32 | 0644);
        for (unsigned i = 0; i < 5; i++) /* uid, gid, size, atime, mtime: as the server likes */
            xdr_put_u32(x, 0);
        break;
    case OP_REMOVE:
    case OP_RMDIR:
        nfs_put_name(o, t, o->first + ticket, x);
        break;
    case OP_TRUNCATE:
        rpc_put_fh(x, slot->file);
        for (unsigned i = 0; i < 3; i++)
            xdr_put_u32(x, 0);
        xdr_put_u32(x, 1);
        xdr_put_u64(x, o->file_size);
        for (unsigned i = 0; i < 3; i++) /* atime, mtime, no guard */
            xdr_put_u32(x, 0);
        break;
    default: /* GETATTR */
        rpc_put_fh(x, slot->file);
    }
    rpc_finish_record(x, payload);
}

static void nfs_skip_attributes(struct xdr_in *x)
{
    if (xdr_get_bool(x))
        xdr_take(x, 84);
}

static void nfs_skip_wcc(struct xdr_in *x)
{
    if (xdr_get_bool(x))
        xdr_take(x, 24);
    nfs_skip_attributes(x);
}

static bool nfs_accepted(const struct load_options *o, struct xdr_in *x, struct load_counts *counts)
{
    if (!rpc_reply_accepted(x)) {
        load_error(counts, "a call was not accepted");
        return false;
    }
    uint32_t status = xdr_get_u32(x);
    if (!x->bad && status == NFS3_OK)
        return true;
    counts->jukebox += status == NFS3ERR_JUKEBOX;
    counts->last_status = status;
    load_error(counts, "procedure %u: status %u", nfs_procedure(o->op), status);
    return false;
}

bool nfs_read_header(const struct load_options *o, const struct load_slot *slot, struct xdr_in *x,
                     struct load_counts *counts)
{
    if (!nfs_accepted(o, x, counts))
        return false;
    nfs_skip_attributes(x);
    uint32_t count = xdr_get_u32(x);
    xdr_get_bool(x); /* eof */
    uint32_t length = xdr_get_u32(x);
    if (!x->bad && count == slot->length && length == count)
        return true;
    load_error(counts, "READ of %u at %llu: count %u, %u bytes of data", slot->length,
               (unsigned long long)slot->offset, count, length);
    return false;
}

static bool nfs_check_word(const struct load_options *o, const struct load_slot *slot,
                           uint32_t position, const uint8_t *data, struct load_counts *counts)
{
    uint64_t word, at = slot->offset + position;
    memcpy(&word, data, 8);
    if (word == content_word(slot->file->id, o->period ? at % o->period : at))
        return true;
    load_error(counts, "READ: wrong data at %llu", (unsigned long long)at);
    return false;
}

/* All words of a run in which the content does not start again. */
static bool nfs_check_all(const struct load_options *o, const struct load_slot *slot,
                          uint32_t position, const uint8_t *data, size_t length,
                          struct load_counts *counts)
{
    uint64_t start = slot->offset + position, wrong = 0;
    uint64_t expected = content_word(slot->file->id, o->period ? start % o->period : start);
    for (size_t i = 0; i + 8 <= length; i += 8, expected += CONTENT_STEP) {
        uint64_t word;
        memcpy(&word, data + i, 8);
        wrong |= word ^ expected;
    }
    if (wrong)
        load_error(counts, "READ: wrong data within %zu bytes at %llu", length,
                   (unsigned long long)start);
    return !wrong;
}

/* `data` is what the reply holds at `position` of its payload.  Sampled: a word of each 512
 * bytes and the last. */
bool nfs_check_words(const struct load_options *o, const struct load_slot *slot, uint32_t position,
                     const uint8_t *data, size_t length, struct load_counts *counts)
{
    uint64_t start = slot->offset + position;
    size_t step = 512;
    if (o->check_full && (!o->period || start % o->period + length <= o->period))
        return nfs_check_all(o, slot, position, data, length, counts);
    if (o->check_full)
        step = 8;
    for (size_t i = 0; i + 8 <= length; i += step) {
        if (!nfs_check_word(o, slot, position + (uint32_t)i, data + i, counts))
            return false;
    }
    return length < 8 ||
           nfs_check_word(o, slot, position + (uint32_t)length - 8, data + length - 8, counts);
}

static bool nfs_check_read(const struct load_options *o, const struct load_slot *slot,
                           struct xdr_in *x, struct load_counts *counts)
{
    if (!nfs_read_header(o, slot, x, counts))
        return false;
    const uint8_t *data = xdr_take(x, slot->length);
    return data && nfs_check_words(o, slot, 0, data, slot->length, counts);
}

/* The results of `slot`'s call, from after the xid on. */
bool nfs_check_reply(const struct load_options *o, const struct load_slot *slot, struct xdr_in *x,
                     struct load_counts *counts)
{
    uint32_t length, errors = (uint32_t)counts->errors;
    if (o->op == OP_READ_RAND || o->op == OP_READ_SEQ) {
        nfs_check_read(o, slot, x, counts);
    } else if (nfs_accepted(o, x, counts)) {
        switch (o->op) {
        case OP_GETATTR:
            xdr_take(x, 84);
            break;
        case OP_LOOKUP: {
            const uint8_t *fh = xdr_get_opaque(x, FH_MAX, &length);
            if (!fh || length != slot->file->fh_length || memcmp(fh, slot->file->fh, length))
                load_error(counts, "LOOKUP: another handle than before");
            nfs_skip_attributes(x);
            nfs_skip_attributes(x);
            break;
        }
        case OP_CREATE:
            if (xdr_get_bool(x))
                xdr_get_opaque(x, FH_MAX, &length);
            nfs_skip_attributes(x);
            nfs_skip_wcc(x);
            break;
        default: /* WRITE, REMOVE, SETATTR */
            nfs_skip_wcc(x);
        }
        if (o->op == OP_WRITE_RAND || o->op == OP_WRITE_SEQ) {
            uint32_t count = xdr_get_u32(x), committed = xdr_get_u32(x);
            xdr_get_u64(x); /* verifier */
            if (count != slot->length || committed < o->stable)
                load_error(counts, "WRITE of %u: count %u, stable %u", slot->length, count,
                           committed);
        }
    }
    if (counts->errors == errors && (x->bad || xdr_left(x)))
        load_error(counts, "procedure %u: the reply has another length than its parts",
                   nfs_procedure(o->op));
    return counts->errors == errors;
}
