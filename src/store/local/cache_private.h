/* What cache.c (looking up, filling, opening) and cache_evict.c (which frame goes, which comes) know of each other. */
#ifndef SLUICE_STORE_LOCAL_CACHE_PRIVATE_H
#define SLUICE_STORE_LOCAL_CACHE_PRIVATE_H

#include <pthread.h>
#include <sched.h>

#include "store/local/cache.h"

enum {
    CACHE_PARTS_MOST = 64,
    CACHE_WAIT_LISTS = 64,
    CACHE_SPINS = 200,
    CACHE_CLASSES = 4096, /* one more is shared by all trees that found no room */
};
#define FRAME_DYING 0x80000000u /* in pins: owned by its part, not to be had */
#define FRAME_KEY_SMALL (UINT64_C(1) << 63)

enum where { IN_FREE, IN_SMALL, IN_MAIN, IN_NOTHING };

struct frame {
    _Atomic uint64_t key;
    _Atomic uint32_t pins;
    _Atomic uint32_t chain; /* the next of the bucket */
    uint32_t older, newer;  /* the part's lists */
    _Atomic uint32_t stamp; /* the part's clock when it came into its list */
    _Atomic uint16_t valid, loading;
    _Atomic uint16_t ahead; /* loaded before anybody asked, and not used yet */
    _Atomic uint8_t freq;
    uint8_t where;
};

struct list {
    uint32_t oldest, newest, count;
};

struct policy {
    struct list in_small, in_main;
};

struct part {
    _Alignas(64) int spin;
    uint32_t first_slab, end_slab, fresh_slab; /* slabs from fresh_slab on were never used */
    struct list free_small;
    struct policy policy[2];
    uint32_t *ghosts;
    uint32_t ghost_mask;
    uint64_t used_blocks;
    _Alignas(64) _Atomic uint32_t clock; /* blocks that came in */
    _Atomic uint32_t recent; /* uses within so many blocks of coming in count as the same use */
};

struct cache_class {
    _Atomic uint32_t tree; /* 0: nobody's */
};

struct waiter {
    struct waiter *next;
    struct frame *frame;
    struct coro *coro;
};

struct scratch {
    struct scratch *next;
};

struct cache {
    uint8_t *arena;
    uint64_t arena_bytes;
    uint32_t slabs;
    struct frame *frames; /* [0] is none, then one a slab, then 16 a slab */
    size_t frames_bytes;
    _Atomic uint32_t *buckets;
    size_t buckets_bytes;
    uint32_t bucket_mask; /* of one part */
    struct cache_class *classes;
    unsigned parts;
    struct part part[CACHE_PARTS_MOST];
    struct {
        _Alignas(64) int spin;
        struct waiter *first;
    } waits[CACHE_WAIT_LISTS];
    _Alignas(64) _Atomic int64_t ahead_blocks;
    pthread_t toucher;
    bool touching;
    atomic_bool stopping;
    struct {
        _Alignas(64) struct scratch *first;
        unsigned count;
    } *scratch; /* one a worker */
};

static inline void spin_take(int *spin)
{
    for (unsigned tries = 0; __atomic_exchange_n(spin, 1, __ATOMIC_ACQUIRE); tries++) {
        if (tries >= CACHE_SPINS)
            sched_yield(); /* the holder may have lost its processor */
    }
}

static inline void spin_give(int *spin)
{
    __atomic_store_n(spin, 0, __ATOMIC_RELEASE);
}

static inline uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 32;
}

static inline uint32_t number_of(const struct cache *c, const struct frame *f)
{
    return (uint32_t)(f - c->frames);
}

static inline bool is_small(const struct cache *c, const struct frame *f)
{
    return number_of(c, f) > c->slabs;
}

static inline _Atomic uint32_t *bucket_of(struct cache *c, struct part *p, uint64_t key)
{
    size_t first = (size_t)(p - c->part) * ((size_t)c->bucket_mask + 1);
    return &c->buckets[first + ((mix(key) >> 20) & c->bucket_mask)];
}

/* Under the part's lock: makes the frame, pinned; NULL: all are pinned. */
struct frame *cache_insert(struct cache *c, struct part *p, uint64_t key, enum frame_size size);

#endif
