/* The XDR cursor (RFC 4506): bounds-checked, in place, no allocation.  An error is sticky: after it every read
 * gives zero and every write does nothing, so that a decoder checks once, at its end.  Any thread. */
#ifndef SLUICE_BASE_XDR_H
#define SLUICE_BASE_XDR_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct xdr_in {
    const uint8_t *at, *end;
    bool bad;
};

static inline struct xdr_in xdr_in(const void *data, size_t length)
{
    return (struct xdr_in){.at = data, .end = (const uint8_t *)data + length};
}

static inline size_t xdr_left(const struct xdr_in *x)
{
    return (size_t)(x->end - x->at);
}

static inline const uint8_t *xdr_take(struct xdr_in *x, size_t length) /* length as on the wire, unpadded */
{
    size_t padded = (length + 3) & ~(size_t)3;
    if (x->bad || padded < length || xdr_left(x) < padded) {
        x->bad = true;
        return NULL;
    }
    const uint8_t *data = x->at;
    x->at += padded;
    return data;
}

static inline uint32_t xdr_get_u32(struct xdr_in *x)
{
    if (x->bad || xdr_left(x) < 4) {
        x->bad = true;
        return 0;
    }
    uint32_t value;
    memcpy(&value, x->at, 4);
    x->at += 4;
    return be32toh(value);
}

static inline uint64_t xdr_get_u64(struct xdr_in *x)
{
    uint64_t high = xdr_get_u32(x);
    return high << 32 | xdr_get_u32(x);
}

/* A boolean other than 0 and 1 is an error (RFC 4506, 4.4). */
static inline bool xdr_get_bool(struct xdr_in *x)
{
    uint32_t value = xdr_get_u32(x);
    if (value > 1)
        x->bad = true;
    return value == 1;
}

/* Variable-length opaque or string of at most `limit` bytes; points into the input. */
static inline const uint8_t *xdr_get_opaque(struct xdr_in *x, uint32_t limit, uint32_t *length)
{
    *length = xdr_get_u32(x);
    if (*length > limit)
        x->bad = true;
    const uint8_t *data = xdr_take(x, *length);
    if (!data)
        *length = 0;
    return data;
}

/* An encoder over memory of fixed room; `full` is sticky.  Growing is the owner's business. */
struct xdr_out {
    uint8_t *start, *at, *end;
    bool full;
};

static inline struct xdr_out xdr_out(void *data, size_t room)
{
    return (struct xdr_out){.start = data, .at = data, .end = (uint8_t *)data + room};
}

static inline size_t xdr_used(const struct xdr_out *x)
{
    return (size_t)(x->at - x->start);
}

static inline size_t xdr_room(const struct xdr_out *x)
{
    return (size_t)(x->end - x->at);
}

static inline uint8_t *xdr_reserve(struct xdr_out *x, size_t length) /* length a multiple of four */
{
    if (x->full || xdr_room(x) < length) {
        x->full = true;
        return NULL;
    }
    uint8_t *data = x->at;
    x->at += length;
    return data;
}

static inline void xdr_put_u32(struct xdr_out *x, uint32_t value)
{
    uint8_t *to = xdr_reserve(x, 4);
    if (to) {
        value = htobe32(value);
        memcpy(to, &value, 4);
    }
}

static inline void xdr_put_u64(struct xdr_out *x, uint64_t value)
{
    uint8_t *to = xdr_reserve(x, 8);
    if (to) {
        value = htobe64(value);
        memcpy(to, &value, 8);
    }
}

static inline void xdr_put_bool(struct xdr_out *x, bool value)
{
    xdr_put_u32(x, value);
}

/* Fixed-length opaque: the bytes and their padding, no length. */
static inline void xdr_put_fixed(struct xdr_out *x, const void *data, size_t length)
{
    size_t padded = (length + 3) & ~(size_t)3;
    uint8_t *to = xdr_reserve(x, padded);
    if (to && length) {
        memset(to + (padded - 4), 0, 4);
        memcpy(to, data, length);
    }
}

static inline void xdr_put_opaque(struct xdr_out *x, const void *data, uint32_t length)
{
    xdr_put_u32(x, length);
    xdr_put_fixed(x, data, length);
}

#endif
