/* One connection of the load generator: calls out, replies in.  Replies of READ with more than
 * BULK_MIN bytes are not copied: three samples are read and checked, the rest is discarded in the
 * kernel (MSG_TRUNC), unless everything is to be checked. */
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
    uint32_t tail;          /* bytes behind the data */
    uint32_t position;      /* in its data */
    uint32_t samples[BULK_SAMPLES], next;
    bool good;
};

struct conn;

/* What the connections of a thread have in common. */
struct conn_shared {
    const struct load_options *options;
    const struct load_target *target;
    struct load_counts *counts;
    uint64_t begin_ns, end_ns; /* what is measured; end 0: everything */
    bool stop, halt;           /* no new units; no new calls either */
    void *opaque;
    void (*refill)(void *opaque, struct conn *c); /* a reply was dealt with: room for units? */
};

struct conn {
    int fd; /* -1: broken */
    const struct load_options *options;
    struct conn_shared *shared;
    struct load_slot *slots;
    uint32_t *free, slot_count, free_count, sequence;
    uint8_t *heads, *in;
    size_t head_at, in_start, in_end, in_room, skip;
    struct iovec *iov;
    uint32_t iov_first, iov_count;
    struct bulk bulk;
    struct load_session *session; /* NFSv4.1: and from which of its slots on; else NULL */
    uint32_t session_slot;
    bool wants_write, peek;
    uint64_t now; /* when the last bytes came */
    void *state;  /* the operation's */
    struct load_file *file; /* of the region for sequential requests */
    uint64_t region_start, region_end, cursor, random;
};

/* An operation: what a unit is, and which calls it makes. */
struct load_operation {
    const char *name, *help; /* no help: for the load generator's own use */
    unsigned flags;
    enum procedure procedure;          /* where one call is the unit */
    const char *extra[EXTRAS];         /* what counts.extra holds */
    uint32_t size, inflight;           /* defaults; 0: 4K, 1 */
    uint64_t file_size;                /* default; 0: 256M */
    uint32_t (*slots)(const struct load_options *o); /* calls in flight; NULL: o->depth */
    int (*open)(struct conn *c, uint32_t number);
    void (*close)(struct conn *c);
    bool (*room)(const struct conn *c); /* for another unit */
    void (*start)(struct conn *c, uint64_t ticket, uint64_t start_ns);
    /* A reply came and was checked; the slot is a copy, the call's own is free again. */
    void (*reply)(struct conn *c, const struct load_slot *slot, bool good);
};

enum {
    OP_HANDLES = 1,    /* knows the handles of all files before it starts */
    OP_MAKES = 2,      /* makes missing files before it starts */
    OP_ALIGNED = 4,    /* its requests are of --size, at multiples of --stride */
    OP_WHOLE = 8,      /* goes through whole files: --epochs */
    OP_LISTS = 16,     /* lists a directory of empty files */
    OP_PROMPT = 32,    /* calls leave at once, not when all that came is dealt with */
    OP_RECORDS = 64,   /* a READ is an operation of its own, not its file */
    OP_READS = 128,
    OP_V4 = 256        /* NFSv4.1 has it, too */
};

extern const struct load_operation load_operations[], op_prepare, op_resolve, op_read_back;
extern const size_t load_operation_count;

/* The operations that are more than one call. */
uint32_t files_slots(const struct load_options *o);
int files_open(struct conn *c, uint32_t number);
void files_close(struct conn *c);
bool files_room(const struct conn *c);
void files_start(struct conn *c, uint64_t ticket, uint64_t start_ns);
void files_reply(struct conn *c, const struct load_slot *slot, bool good);
int write_open(struct conn *c, uint32_t number);
void write_start(struct conn *c, uint64_t ticket, uint64_t start_ns);
void write_reply(struct conn *c, const struct load_slot *slot, bool good);
int list_open(struct conn *c, uint32_t number);
void list_close(struct conn *c);
bool list_room(const struct conn *c);
void list_start(struct conn *c, uint64_t ticket, uint64_t start_ns);
void list_reply(struct conn *c, const struct load_slot *slot, bool good);
uint32_t stream_slots(const struct load_options *o);
int stream_open(struct conn *c, uint32_t number);
void stream_close(struct conn *c);
bool stream_room(const struct conn *c);
void stream_start(struct conn *c, uint64_t ticket, uint64_t start_ns);
void stream_reply(struct conn *c, const struct load_slot *slot, bool good);

/* Each connection its own part of a file: c->file, c->region_start to c->region_end. */
void conn_choose_region(struct conn *c, uint32_t number);

/* load_v4.c: like nfs_encode_call, nfs_check_reply and nfs_read_header.  READ and GETATTR are
 * SEQUENCE, PUTFH, READ, GETATTR and the same without READ. */
void v4_encode_call(struct conn *c, const struct load_slot *slot, struct xdr_out *x);
bool v4_check_reply(const struct conn *c, struct load_slot *slot, struct xdr_in *x);
bool v4_read_header(const struct conn *c, const struct load_slot *slot, struct xdr_in *x);
/* What comes behind the data of a READ. */
bool v4_check_tail(const struct conn *c, const struct load_slot *slot, struct xdr_in *x);

int conn_open(struct conn *c, struct conn_shared *shared, uint32_t number);
void conn_close(struct conn *c);
uint64_t conn_random(struct conn *c, uint64_t limit); /* 0 to limit - 1 */
/* A free slot (there must be one) with the procedure and the time filled in. */
struct load_slot *conn_slot(struct conn *c, enum procedure procedure, uint64_t start_ns);
void conn_call(struct conn *c, struct load_slot *slot); /* leaves with conn_flush */
void conn_flush(struct conn *c);
void conn_receive(struct conn *c);
/* Count what is finished now, if that is inside the measured time. */
void conn_count_unit(struct conn *c, uint64_t start_ns);
void conn_count_entries(struct conn *c, uint32_t entries);
void conn_count_extra(struct conn *c, unsigned which, uint64_t start_ns);

#endif
