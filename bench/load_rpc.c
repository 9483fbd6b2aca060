#include "load.h"

#include <stdarg.h>
#include <stdio.h>

enum { NFS3_OK = 0, NFS3ERR_JUKEBOX = 10008, ATTRIBUTES = 84 };

void load_error(struct load_counts *counts, const char *format, ...)
{
    va_list list;
    if (!counts->errors++) {
        va_start(list, format);
        vsnprintf(counts->error, sizeof counts->error, format, list);
        va_end(list);
    }
}

void nfs_name(const struct load_options *o, uint64_t index, char name[NAME_ROOM])
{
    snprintf(name, NAME_ROOM, "%s.%llu", o->prefix, (unsigned long long)(o->first + index));
}

const struct load_file *nfs_dir(const struct load_options *o, const struct load_target *t,
                                uint64_t index)
{
    uint32_t each = (o->files + o->dirs - 1) / o->dirs;
    return &t->dirs[index / each % o->dirs];
}

static void nfs_put_name(const struct load_options *o, const struct load_target *t, uint64_t index,
                         struct xdr_out *x)
{
    char name[NAME_ROOM];
    nfs_name(o, index, name);
    rpc_put_fh(x, nfs_dir(o, t, index));
    xdr_put_opaque(x, name, (uint32_t)strlen(name));
}

static void nfs_put_create(const struct load_slot *slot, struct xdr_out *x)
{
    xdr_put_u32(x, slot->guarded);
    xdr_put_u64(x, UINT64_C(1) << 32 | 0644);
    xdr_put_u64(x, 0); /* uid, gid as the server likes */
    xdr_put_u32(x, !slot->guarded);
    if (!slot->guarded)
        xdr_put_u64(x, 0); /* empty, also if it was there */
    xdr_put_u64(x, 0);     /* atime, mtime */
}

static void nfs_put_truncate(const struct load_options *o, struct xdr_out *x)
{
    for (unsigned i = 0; i < 3; i++) /* mode, uid, gid */
        xdr_put_u32(x, 0);
    xdr_put_u32(x, 1);
    xdr_put_u64(x, o->file_size);
    for (unsigned i = 0; i < 3; i++) /* atime, mtime, no guard */
        xdr_put_u32(x, 0);
}

void nfs_encode_call(const struct load_options *o, const struct load_target *t,
                     const struct load_slot *slot, struct xdr_out *x)
{
    size_t payload = 0;
    rpc_call_header(x, slot->xid, NFS_PROGRAM, 3, slot->procedure, o->uid);
    switch (slot->procedure) {
    case NFS3_READ:
        rpc_put_fh(x, slot->file);
        xdr_put_u64(x, slot->offset);
        xdr_put_u32(x, slot->length);
        break;
    case NFS3_WRITE:
        rpc_put_fh(x, slot->file);
        xdr_put_u64(x, slot->offset);
        xdr_put_u32(x, slot->length);
        xdr_put_u32(x, o->stable);
        xdr_put_u32(x, slot->length);
        payload = slot->length;
        break;
    case NFS3_CREATE:
        nfs_put_name(o, t, slot->index, x);
        nfs_put_create(slot, x);
        break;
    case NFS3_LOOKUP:
    case NFS3_REMOVE:
    case NFS3_RMDIR:
        nfs_put_name(o, t, slot->index, x);
        break;
    case NFS3_SETATTR:
        rpc_put_fh(x, slot->file);
        nfs_put_truncate(o, x);
        break;
    case NFS3_READDIR:
    case NFS3_READDIRPLUS:
        rpc_put_fh(x, &t->dir);
        xdr_put_u64(x, slot->offset);
        xdr_put_u64(x, slot->verifier);
        if (slot->procedure == NFS3_READDIRPLUS)
            xdr_put_u32(x, slot->length); /* dircount */
        xdr_put_u32(x, slot->length);
        break;
    case NFS3_COMMIT:
        rpc_put_fh(x, slot->file);
        xdr_put_u64(x, 0);
        xdr_put_u32(x, 0);
        break;
    default: /* GETATTR */
        rpc_put_fh(x, slot->file);
    }
    rpc_finish_record(x, payload);
}

void nfs_skip_attributes(struct xdr_in *x)
{
    if (xdr_get_bool(x))
        xdr_take(x, ATTRIBUTES);
}

static void nfs_skip_wcc(struct xdr_in *x)
{
    if (xdr_get_bool(x))
        xdr_take(x, 24);
    nfs_skip_attributes(x);
}

bool nfs_accepted(const struct load_slot *slot, struct xdr_in *x, struct load_counts *counts)
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
    load_error(counts, "procedure %u: status %u", slot->procedure, status);
    return false;
}

bool nfs_read_header(const struct load_slot *slot, struct xdr_in *x, struct load_counts *counts)
{
    if (!nfs_accepted(slot, x, counts))
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

static uint64_t content_expected(const struct load_options *o, const struct load_slot *slot,
                                 uint64_t place)
{
    return content_word(slot->file->id, o->period ? place % o->period : place);
}

/* Whole words from `place`, a multiple of 8; the content does not start again within them. */
static bool content_run_right(uint64_t expected, const uint8_t *data, size_t length)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i + 8 <= length; i += 8, expected += CONTENT_STEP) {
        uint64_t word;
        memcpy(&word, data + i, 8);
        wrong |= word ^ expected;
    }
    return !wrong;
}

static bool content_right(const struct load_options *o, const struct load_slot *slot,
                          uint64_t place, const uint8_t *data, size_t length)
{
    size_t whole = length & ~(size_t)7;
    bool one_run = !o->period || place % o->period + length <= o->period;
    if (o->check_full && one_run)
        return content_run_right(content_expected(o, slot, place), data, whole);
    for (size_t i = 0; i < whole; i += o->check_full ? 8 : 512) {
        if (!content_run_right(content_expected(o, slot, place + i), data + i, 8))
            return false;
    }
    return !whole || content_run_right(content_expected(o, slot, place + whole - 8),
                                       data + whole - 8, 8);
}

/* Less than a word, from byte `place` on. */
static bool content_edge_right(const struct load_options *o, const struct load_slot *slot,
                               uint64_t place, const uint8_t *data, size_t length)
{
    uint64_t word = content_expected(o, slot, place & ~UINT64_C(7));
    return !memcmp((const uint8_t *)&word + place % 8, data, length);
}

bool nfs_check_words(const struct load_options *o, const struct load_slot *slot, uint32_t position,
                     const uint8_t *data, size_t length, struct load_counts *counts)
{
    uint64_t place = slot->file->base + slot->offset + position;
    size_t head = -place & 7;
    head = head < length ? head : length;
    size_t tail = (length - head) & 7;
    if (content_edge_right(o, slot, place, data, head) &&
        content_right(o, slot, place + head, data + head, length - head) &&
        content_edge_right(o, slot, place + length - tail, data + length - tail, tail))
        return true;
    load_error(counts, "READ: wrong data within %zu bytes at %llu", length,
               (unsigned long long)slot->offset + position);
    return false;
}

static void nfs_check_read(const struct load_options *o, const struct load_slot *slot,
                           struct xdr_in *x, struct load_counts *counts)
{
    nfs_skip_attributes(x);
    uint32_t length, count = xdr_get_u32(x);
    xdr_get_bool(x); /* eof */
    const uint8_t *data = xdr_get_opaque(x, slot->length, &length);
    if (!data || count != slot->length || length != count)
        load_error(counts, "READ of %u at %llu: count %u, %u bytes of data", slot->length,
                   (unsigned long long)slot->offset, count, length);
    else
        nfs_check_words(o, slot, 0, data, slot->length, counts);
}

static void nfs_check_write(const struct load_options *o, struct load_slot *slot, struct xdr_in *x,
                            struct load_counts *counts)
{
    nfs_skip_wcc(x);
    uint32_t count = xdr_get_u32(x), committed = xdr_get_u32(x);
    slot->verifier = xdr_get_u64(x);
    if (count != slot->length || committed < o->stable)
        load_error(counts, "WRITE of %u: count %u, stable %u", slot->length, count, committed);
}

static void nfs_check_getattr(const struct load_slot *slot, struct xdr_in *x,
                              struct load_counts *counts)
{
    uint32_t type = xdr_get_u32(x);
    xdr_take(x, 16); /* mode, nlink, uid, gid */
    uint64_t size = xdr_get_u64(x);
    xdr_take(x, ATTRIBUTES - 28);
    if (slot->size != UINT64_MAX && (type != 1 || size != slot->size))
        load_error(counts, "GETATTR: type %u, %llu bytes, not a file of %llu", type,
                   (unsigned long long)size, (unsigned long long)slot->size);
}

static void nfs_learn_fh(struct load_slot *slot, struct xdr_in *x)
{
    uint32_t length;
    const uint8_t *fh = xdr_get_opaque(x, FH_MAX, &length);
    if (fh && slot->learn) {
        memcpy(slot->file->fh, fh, length);
        slot->file->fh_length = length;
    }
}

static void nfs_check_lookup(struct load_slot *slot, struct xdr_in *x, struct load_counts *counts)
{
    struct xdr_in again = *x;
    uint32_t length;
    const uint8_t *fh = xdr_get_opaque(&again, FH_MAX, &length);
    nfs_learn_fh(slot, x);
    if (!fh || length != slot->file->fh_length || memcmp(fh, slot->file->fh, length))
        load_error(counts, "LOOKUP: another handle than before");
    nfs_skip_attributes(x);
    nfs_skip_attributes(x);
}

static void nfs_check_results(const struct load_options *o, struct load_slot *slot,
                              struct xdr_in *x, struct load_counts *counts)
{
    switch (slot->procedure) {
    case NFS3_READ:
        nfs_check_read(o, slot, x, counts);
        break;
    case NFS3_WRITE:
        nfs_check_write(o, slot, x, counts);
        break;
    case NFS3_GETATTR:
        nfs_check_getattr(slot, x, counts);
        break;
    case NFS3_LOOKUP:
        nfs_check_lookup(slot, x, counts);
        break;
    case NFS3_CREATE:
        if (xdr_get_bool(x))
            nfs_learn_fh(slot, x);
        nfs_skip_attributes(x);
        nfs_skip_wcc(x);
        break;
    case NFS3_READDIR:
    case NFS3_READDIRPLUS:
        nfs_skip_attributes(x);
        list_check(o, slot, x, counts);
        break;
    case NFS3_COMMIT:
        nfs_skip_wcc(x);
        slot->verifier = xdr_get_u64(x);
        break;
    default: /* REMOVE, RMDIR, SETATTR */
        nfs_skip_wcc(x);
    }
}

bool nfs_check_reply(const struct load_options *o, struct load_slot *slot, struct xdr_in *x,
                     struct load_counts *counts)
{
    uint64_t errors = counts->errors;
    if (!nfs_accepted(slot, x, counts))
        return false;
    nfs_check_results(o, slot, x, counts);
    if (counts->errors == errors && (x->bad || xdr_left(x)))
        load_error(counts, "procedure %u: the reply has another length than its parts",
                   slot->procedure);
    return counts->errors == errors;
}
