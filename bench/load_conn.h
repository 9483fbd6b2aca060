/* One connection of the load generator: calls out, replies in.  Replies of more than BULK_MIN
 * bytes are not copied: three samples are read and checked, the rest is discarded in the kernel
 * (MSG_TRUNC), unless everything is to be checked. */
#ifndef BENCH_LOAD_CONN_H
#define BENCH_LOAD_CONN_H

#include <sys/uio.h>

#include "load.h"

enum {
    BULK_MIN = 24 * 1024,
    BULK_SAMPLE = 256,
    BULK_SAMPLES = 3,
    BULK_PEEK = 768,
    IN_ROOM = 128 * 1024
};

struct bulk {
    struct load_slot *slot; /* NULL: not inside a bulk reply */
    uint32_t position;      /* in its data */
    uint32_t samples[BULK_SAMPLES], next;
};

struct conn {
    int fd; /* -1: broken */
    const struct load_options *options;
    const struct load_target *target;
    struct load_counts *counts;
    struct load_slot *slots;
    uint32_t *free, free_count, sequence;
    uint8_t *heads, *in;
    size_t head_at, in_start, in_end, in_room, skip;
    struct iovec *iov;
    uint32_t iov_first, iov_count;
    struct bulk bulk;
    bool wants_write;
    const struct load_file *file; /* of the region for sequential requests */
    uint64_t region_start, region_end, cursor, random;
};

struct conn_events {
    void *opaque;
    void (*done)(void *opaque, struct conn *c,
                 const struct load_slot *slot); /* its slot is free again */
};

int conn_open(struct conn *c, const struct load_options *o, const struct load_target *t,
              uint32_t number, struct load_counts *counts);
void conn_close(struct conn *c);
/* A slot must be free.  The call leaves with conn_flush. */
void conn_call(struct conn *c, uint64_t ticket, uint64_t start_ns);
void conn_flush(struct conn *c);
void conn_receive(struct conn *c, const struct conn_events *events);

#endif
