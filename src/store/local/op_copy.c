/* Copying ranges of files: whole blocks by sharing them (op_share.h), the rest by its bytes. */
#include <stdlib.h>
#include <string.h>

#include "store/local/data.h"
#include "store/local/op_share.h"

enum { BLOCK = STORE_BLOCK, REFUSALS_MOST = 1000 };

/* ---- by bytes ---- */

static int read_bytes(struct store *st, const struct store_copy *c, uint8_t *to, uint32_t length)
{
    struct slice_list data;
    struct store_attr attr;
    bool eof;
    slices_init(&data);
    int rc = data_read(st, c->from_cred, &c->from, c->from_offset, length, &data, &eof, &attr);
    if (!rc && data.bytes < length)
        rc = -EINVAL; /* the source has become shorter */
    for (uint32_t i = 0; !rc && i < data.count; i++) {
        memcpy(to, data.at[i].data, data.at[i].length);
        to += data.at[i].length;
    }
    slices_clear(&data);
    return rc;
}

int copy_bytes(struct store *st, const struct store_copy *c, uint32_t length, uint32_t zeroes,
                      struct store_wcc *wcc)
{
    uint8_t *bytes = calloc(1, (size_t)length + zeroes);
    int rc = bytes ? read_bytes(st, c, bytes, length) : -ENOMEM;
    if (!rc)
        rc = data_write(st, c->to_cred, &c->to, c->to_offset, bytes, length + zeroes, wcc);
    free(bytes);
    return rc;
}

/* How far the source has data, or has none, from the beginning of the range. */
static int run_length(struct store *st, const struct store_copy *c, bool data, uint64_t *length)
{
    uint64_t end;
    int rc = local_seek(st, c->from_cred, &c->from, c->from_offset, !data, &end);
    *length = rc || end - c->from_offset > c->length ? c->length : end - c->from_offset;
    return rc == -ENXIO ? 0 : rc;
}

static int copy_hole(struct store *st, const struct store_copy *c, uint64_t length, struct store_wcc *wcc)
{
    int rc = local_punch(st, c->to_cred, &c->to, c->to_offset, length, wcc);
    return rc ? rc : local_extend(st, c->to_cred, &c->to, c->to_offset + length, wcc);
}

static int copy_or_punch(struct store *st, const struct store_copy *c, uint64_t *done, struct store_wcc *wcc)
{
    uint64_t hole, data;
    struct inode from;
    int rc = op_get_inode(local_of(st), &c->from, &from);
    if (!rc && (c->from_offset > from.size || c->length > from.size - c->from_offset))
        rc = -EINVAL;
    if (rc)
        return rc;
    if (c->to_offset > STORE_FILE_MAX || c->length > STORE_FILE_MAX - c->to_offset)
        return -EFBIG;
    rc = run_length(st, c, false, &hole);
    if (!rc && !hole)
        rc = run_length(st, c, true, &data);
    if (rc)
        return rc;
    *done = hole ? hole : data < STORE_IO_MAX ? data : STORE_IO_MAX;
    return hole ? copy_hole(st, c, *done, wcc) : copy_bytes(st, c, (uint32_t)*done, 0, wcc);
}

/* ---- the operations ---- */

/* What of a copy whose offsets agree modulo the block comes first: bytes up to the next block (their number), or blocks
 * (0). */
static uint64_t bytes_first(const struct store_copy *c)
{
    uint64_t within = c->to_offset % BLOCK;
    if (!within)
        return 0;
    return BLOCK - within < c->length ? BLOCK - within : c->length;
}

/* A last block that is not whole can be shared where both files end in it. */
static bool ends_with_both(struct store *st, const struct store_copy *c)
{
    struct inode from, to;
    struct local *l = local_of(st);
    return !op_get_inode(l, &c->from, &from) && !op_get_inode(l, &c->to, &to) &&
           c->from_offset + c->length == from.size && to.size <= c->to_offset + c->length;
}

static int copy_step(struct store *st, const struct store_copy *c, uint64_t *done, struct store_wcc *wcc)
{
    struct store_copy part = *c;
    if (c->from_offset % BLOCK != c->to_offset % BLOCK)
        return copy_or_punch(st, c, done, wcc);
    part.length = bytes_first(c);
    if (!part.length && c->length < BLOCK && !ends_with_both(st, c))
        part.length = c->length;
    if (part.length) {
        *done = part.length;
        return copy_bytes(st, &part, (uint32_t)part.length, 0, wcc);
    }
    struct sharing s = {.op = {.wcc = {wcc}}, .copy = c, .length = c->length, .bounded = true};
    if (s.length % BLOCK && !ends_with_both(st, c))
        s.length -= s.length % BLOCK;
    int rc = sharing_step(&s, st, done);
    if (rc != SL_EREFUSED || !s.by_bytes)
        return rc;
    *done = s.length;
    part.length = s.length;
    return copy_bytes(st, &part, (uint32_t)*done, 0, wcc);
}

int local_copy(struct store *st, const struct store_copy *c, uint64_t *done, struct store_wcc *wcc)
{
    int rc = SL_EREFUSED;
    *done = 0;
    if (!coro_self())
        return SL_EWAIT;
    for (unsigned tries = 0; rc == SL_EREFUSED && tries < REFUSALS_MOST; tries++)
        rc = copy_step(st, c, done, wcc);
    if (rc)
        *done = 0;
    return rc == SL_EREFUSED ? SL_EDELAY : rc;
}
