/* What the parts of the segment store (seg.c, seg_io.c, seg_space.c, compact.c) know of each other. */
#ifndef SLUICE_STORE_LOCAL_SEG_PRIVATE_H
#define SLUICE_STORE_LOCAL_SEG_PRIVATE_H

#include <pthread.h>
#include <urcu.h>

#include "store/local/seg.h"

enum {
    SEG_BLOCK = STORE_BLOCK,
    /* One frame less than a place's block number could count, so that no extent or freed run ever seems to go on from
     * one segment into the next. */
    SEG_BLOCKS_MOST = (1 << PLACE_BITS) - 16,
    FRAME_ALIGN = 16,
    SEG_KEY_ROOM = 64,
    SEG_NAME_ROOM = 32,
};

struct seg {
    uint32_t number;
    int fd;
    _Atomic uint32_t refs; /* the table's, the dirty list's, runs' and operations' */
    uint32_t capacity;     /* blocks; the rest of this part under seg_store.lock */
    uint32_t allocated;    /* blocks that the file system has promised */
    _Atomic uint32_t tail; /* blocks given out to runs */
    atomic_bool closed;    /* no more runs */
    bool unsure;           /* the writer's: a sync failed */
    _Atomic int64_t pending; /* blocks given out whose fate the writer does not know yet */
    _Atomic uint32_t live; /* blocks that committed records hold */
    uint32_t swept_live;   /* the reaper's: it was not worth a sweep with so much live; 0: none */
    /* The writer's, for the group being applied. */
    int64_t group_live, group_taken;
    bool touched;
    struct seg *touched_next;
    /* Written and not synced. */
    atomic_bool dirty;
    struct seg *dirty_next;
    _Atomic uint64_t written_ns; /* when a write last ended */
    struct rcu_head rcu;
};

struct seg_table { /* replaced, never changed; sorted by number */
    struct rcu_head rcu;
    unsigned count;
    struct seg *at[];
};

struct seg_run { /* blocks of a segment that one worker gives out */
    struct seg *seg; /* NULL: none */
    uint32_t next, end;
    unsigned generation;
};

struct seg_request;
struct seg_worker {
    _Alignas(64) struct seg_store *store;
    struct seg_run main, spare;
    struct seg_request *first, *last; /* writes of this pass */
    struct task flush;
    bool flush_queued;
};

struct seg_sync {
    struct seg_sync *next;
    struct seg *seg;
    int result;
    bool finished;
};

struct seg_store {
    struct local *local;
    int data_fd;
    struct seg_table *table; /* RCU; changed under table_lock */
    pthread_mutex_t table_lock;
    _Atomic uint64_t count;

    pthread_mutex_t lock; /* a few instructions */
    struct seg *open;     /* where new runs come from */
    atomic_uint generation;
    struct coro_mutex growing; /* held by who creates or enlarges a segment */
    uint32_t next_number;      /* under `growing`, and at open */
    struct seg_worker *workers;

    /* space; under `lock` where not atomic */
    uint64_t segment_bytes, reserve, ballast_bytes;
    uint32_t run_blocks;
    _Atomic uint64_t total_bytes, free_bytes; /* as statvfs said */
    _Atomic uint64_t measured_ns, full_until_ns;
    _Atomic int64_t spare_blocks; /* allocated and not in use yet */
    atomic_bool ballast_there, ballast_busy;
    _Atomic unsigned background; /* blocking jobs that run */

    /* the reaper's */
    struct sweep *sweep;
    uint64_t swept_bytes;       /* what its segments took on disk when it began */
    uint64_t swept_in_vain;     /* blocks live after a sweep that gave nothing back; 0: the last one did */
    uint32_t swept_newest;      /* the highest segment number then */
    struct sweep_places *moved; /* the writer's as well */
    uint64_t worth_least;       /* bytes that a sweep must promise; 0: by the disk's size */
    struct seg *removing; /* has no record any more; its file is getting shorter */
    bool shrunk;

    /* the writer's */
    struct seg *touched;
    uint32_t recorded_number, group_number; /* highest number that a record has used */
    _Atomic(struct seg *) dirty;
    struct io_uring ring;
    bool ring_ready;
    struct seg_sync *syncs;
    unsigned syncs_left;
    int sync_error;
};

/* A reference to the segment, or NULL.  Threads registered with liburcu. */
struct seg *seg_get(struct seg_store *st, uint32_t number);
void seg_put(struct seg *seg);
static inline uint32_t place_segment(place_t place)
{
    return (uint32_t)(place >> PLACE_BITS);
}
static inline uint32_t place_block(place_t place)
{
    return (uint32_t)(place & ((1u << PLACE_BITS) - 1));
}

/* seg.c */
struct seg *seg_new(uint32_t number, int fd, uint32_t capacity, uint32_t allocated);
int seg_table_add(struct seg_store *st, struct seg *seg);
void seg_table_remove(struct seg_store *st, struct seg *seg);
void seg_file_name(uint32_t number, char name[SEG_NAME_ROOM]);
void seg_record_key(uint32_t number, char key[SEG_KEY_ROOM]);
/* Opens with O_DIRECT, or without where that is refused. */
int seg_file_open(int dir_fd, const char *name, int flags);

/* seg_io.c */
void seg_mark_dirty(struct seg_store *st, struct seg *seg);
int seg_io_open(struct seg_store *st);
void seg_io_close(struct seg_store *st);

/* compact.c: removes the file that is being removed. */
void seg_removing_end(struct seg_store *st);

/* compact_sweep.c: a walk over all chunk records that moves live blocks out of some segments.  The reaper's
 * coroutine. */
struct sweep;
/* `numbers` is sorted, and the sweep's from now on. */
struct sweep *sweep_new(struct local *l, uint32_t *numbers, unsigned count);
/* A step: 1: more to do, 0: at the end, or an error. */
int sweep_step(struct sweep *s);
bool sweep_has(const struct sweep *s, uint32_t number);
bool sweep_has_moved(const struct sweep *s); /* something, so far */
void sweep_free(struct sweep *s);

/* seg_space.c */
/* Closes the open segment when all that was written to it is dead, and that is a good part of it: then it can go. */
void seg_close_dead(struct seg_store *st);
int seg_space_open(struct seg_store *st);
void seg_space_close(struct seg_store *st);

#endif
