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
    FREQ_MOST = 3,
    CACHE_CLASSES = 4096, /* one more is shared by all trees that found no room */
};
#define FRAME_DYING 0x80000000u /* in pins: owned by its part, not to be had */
#define FRAME_KEY_SMALL (UINT64_C(1) << 63)

enum where { IN_FREE, IN_SMALL, IN_MAIN, IN_NOTHING };

struct frame {
    _Atomic uint64_t key;
    _Atomic uint32_t pins;
    _Atomic uint32_t chain; /* the next of the bucket */
    uint32_t older, newer;  /* its list */
    _Atomic uint32_t stamp; /* the part's clock when it came into its list */
    _Atomic uint32_t seen;  /* its class's clock when it was made or used */
    _Atomic uint16_t valid, loading;
    _Atomic uint16_t ahead; /* loaded before anybody asked, and not used yet */
    uint16_t class; /* whose it is; of a small frame that is free: whose slab it lies in */
    _Atomic uint8_t freq;
    uint8_t where;
};

struct list {
    uint32_t oldest, newest, count;
};

/* What one class has in one part.  Small frames of one slab are all of one class. */
struct holding {
    struct list in_small[2], in_main[2], free_small; /* [enum frame_size] */
    uint32_t small_blocks, main_blocks;              /* of the frames in those */
    uint16_t next, before;                           /* the ring of the part's holdings, by class */
    bool listed;
    bool keeping; /* its class was, when it was looked at last */
    bool settling; /* what came in before goes from in_small to in_main */
    bool full;     /* it keeps, and its last frame came from itself */
};

struct part {
    _Alignas(64) int spin;
    uint32_t first_slab, end_slab, fresh_slab; /* slabs from fresh_slab on were never used */
    struct list free_slabs;      /* as large frames */
    uint16_t turn, holdings;     /* the ring: one of its classes, and how many there are */
    uint32_t *ghosts;
    uint32_t ghost_mask;
    uint64_t used_blocks;
    _Alignas(64) _Atomic uint32_t clock; /* blocks that came in */
    _Atomic uint32_t recent; /* uses within so many blocks of coming in count as the same use */
};

struct sim;

struct cache_class {
    _Atomic uint32_t tree; /* 0: nobody's yet */
    _Atomic uint32_t clock;       /* sampled uses: what `seen` of its frames is measured by */
    _Atomic uint32_t stale_after; /* a kept frame that was not used for so long is given up */
    _Atomic uint32_t percent;     /* the most it may hold, of the whole; 0: see bound */
    _Atomic uint64_t bound;       /* the same in bytes; 0: none */
    _Atomic uint64_t held;        /* blocks of its frames */
    _Atomic uint8_t policy;       /* enum store_cache_policy */
    atomic_bool keeping;          /* at present: nothing that is in use is evicted for data of its own */
    atomic_bool changed;          /* what it reads did so lately */
    atomic_bool gone;             /* its tree is deleted */
    struct sim *_Atomic sim;
    int spin; /* of sim */
};

struct class_count { /* 4 KiB blocks; one for each class and worker */
    uint64_t read, loaded, missed, ahead, unused;
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
    int classes_spin;
    struct class_count *counts;
    size_t counts_bytes;
    unsigned counters; /* workers, and one more for all other threads */
    atomic_uint sims;
    uint32_t sample_limit;         /* runs whose sample hash is below it are looked at by cache_sample() */
    _Atomic uint32_t slabs_taken;  /* that were ever used */
    struct holding *holdings;      /* one for each part and class; untouched where there is nothing */
    size_t holdings_bytes;
    unsigned parts;
    struct part part[CACHE_PARTS_MOST];
    struct {
        _Alignas(64) int spin;
        struct waiter *first;
    } waits[CACHE_WAIT_LISTS];
    _Alignas(64) _Atomic int64_t ahead_blocks;
    pthread_t toucher;
    bool touching;
    _Atomic uint64_t touched; /* bytes */
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

static inline uint16_t class_number(const struct cache *c, const struct cache_class *class)
{
    return (uint16_t)(class - c->classes);
}

static inline struct holding *holding_of(struct cache *c, struct part *p, uint16_t class)
{
    return &c->holdings[(size_t)(p - c->part) * (CACHE_CLASSES + 1) + class];
}

static inline struct cache_class *class_of(struct cache *c, struct part *p, struct holding *h)
{
    return &c->classes[h - holding_of(c, p, 0)];
}

/* Which runs of FRAME_BLOCKS are samples; the low bits choose the one block of a run that counts. */
static inline uint32_t sample_hash(place_t place)
{
    return (uint32_t)(place / FRAME_BLOCKS * UINT64_C(0xd6e8feb86659fd93) >> 32);
}

/* ---- cache_class.c ---- */

int classes_open(struct cache *c);
void classes_close(struct cache *c);
/* A claim of these blocks, to read them from disk. */
void class_count_loaded(struct cache *c, uint16_t class, uint16_t mask);
/* Blocks loaded ahead that go without having been used. */
void class_count_unused(struct cache *c, uint16_t class, unsigned blocks);
/* Blocks that the class may hold; UINT64_MAX: no bound. */
uint64_t class_bound(const struct cache *c, const struct cache_class *class);

/* ---- cache_sample.c ---- */

/* [place, place + count) of a sampled run was read for the class. */
void cache_sample(struct cache *c, struct cache_class *class, uint32_t hash, place_t place, unsigned count);
/* After the policy has changed. */
void cache_pick(struct cache_class *class);
void cache_sample_free(struct cache_class *class);

/* ---- cache_evict.c; all under the part's lock ---- */

void list_push(struct cache *c, struct list *list, struct frame *f);
void list_remove(struct cache *c, struct list *list, struct frame *f);
/* Into a list of the class it is of; out of whichever it is in. */
void frame_enter(struct cache *c, struct part *p, struct frame *f, enum where where);
void frame_leave(struct cache *c, struct part *p, struct frame *f);
void chain_insert(struct cache *c, struct part *p, struct frame *f, uint64_t key);
/* Was it evicted lately?  Forgets that. */
bool ghost_take(struct part *p, uint64_t key, uint16_t class);
/* Takes the frame out of everything.  False: somebody reads it. */
bool frame_kill(struct cache *c, struct part *p, struct frame *f);
/* How many blocks of the holding may be in_small. */
uint32_t small_limit(struct cache *c, struct part *p, struct holding *h);
enum evict { EVICT_FOR_OWN, EVICT_KEPT, EVICT_FOR_OTHERS, EVICT_ANY }; /* kept: of in_main alone */
/* The next frame of this size to go, killed; NULL when those looked at are pinned or in use. */
struct frame *evict_one(struct cache *c, struct part *p, struct holding *h, enum frame_size size, enum evict how);
/* All sixteen small frames of one slab of the holding; the large frame of the slab is the result. */
struct frame *evict_small_slab(struct cache *c, struct part *p, struct holding *h, enum evict how);
/* Makes sixteen small frames of the class of a slab; the first is the result, the others are free. */
struct frame *split_slab(struct cache *c, struct part *p, struct frame *large, uint16_t class);
/* How long the oldest frame of a list has been there, in the part's clock; 0: none. */
uint32_t list_age(struct cache *c, struct part *p, const struct list *list);

/* ---- cache_room.c; under the part's lock ---- */

/* Makes the frame, pinned; NULL: all are pinned. */
struct frame *cache_insert(struct cache *c, struct part *p, struct cache_class *class, uint64_t key,
                           enum frame_size size);
/* Takes up to `most` frames from the class, and gives their slabs to nobody. False: none could be had. */
bool cache_shrink(struct cache *c, struct part *p, struct cache_class *class, unsigned most);
/* Kills a small frame, which is free then, unless somebody reads it. */
void cache_drop_small(struct cache *c, struct part *p, struct frame *f);

#endif
