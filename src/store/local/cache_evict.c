/* Each part of the cache owns some slabs of 64 KiB, the hash buckets for its share of all places, and two S3-FIFO
 * policies (small, main, ghost), one for each size of frame.  A slab is one large frame or 16 small ones; the size
 * whose oldest frame is the older one gives slabs away.  All of it under the part's lock. */
#include <assert.h>

#include "store/local/cache_private.h"

enum { EVICT_STEPS = 256 };

static uint32_t slab_of(const struct cache *c, const struct frame *f)
{
    uint32_t number = number_of(c, f);
    return number > c->slabs ? (number - 1 - c->slabs) / FRAME_BLOCKS : number - 1;
}

static struct frame *large_of(struct cache *c, uint32_t slab)
{
    return &c->frames[1 + slab];
}

static struct frame *small_of(struct cache *c, uint32_t slab, unsigned i)
{
    return &c->frames[(size_t)1 + c->slabs + (size_t)slab * FRAME_BLOCKS + i];
}

/* ---- lists ---- */

static void list_push(struct cache *c, struct list *list, struct frame *f)
{
    uint32_t number = number_of(c, f);
    f->newer = 0;
    f->older = list->newest;
    if (list->newest)
        c->frames[list->newest].newer = number;
    else
        list->oldest = number;
    list->newest = number;
    list->count++;
}

static void list_remove(struct cache *c, struct list *list, struct frame *f)
{
    if (f->newer)
        c->frames[f->newer].older = f->older;
    else
        list->newest = f->older;
    if (f->older)
        c->frames[f->older].newer = f->newer;
    else
        list->oldest = f->newer;
    list->count--;
}

static struct list *list_of(struct cache *c, struct part *p, struct frame *f)
{
    bool small = is_small(c, f);
    switch ((enum where)f->where) {
    case IN_FREE:
        return &p->free_small;
    case IN_SMALL:
        return &p->policy[small ? FRAME_SMALL : FRAME_LARGE].in_small;
    case IN_MAIN:
        return &p->policy[small ? FRAME_SMALL : FRAME_LARGE].in_main;
    case IN_NOTHING:
        break;
    }
    return NULL;
}

static void list_leave(struct cache *c, struct part *p, struct frame *f)
{
    struct list *list = list_of(c, p, f);
    if (list)
        list_remove(c, list, f);
    f->where = IN_NOTHING;
}

static void list_enter(struct cache *c, struct part *p, struct frame *f, enum where where)
{
    f->where = (uint8_t)where;
    f->stamp = atomic_load_explicit(&p->clock, memory_order_relaxed);
    list_push(c, list_of(c, p, f), f);
}

/* ---- chains ---- */

static void chain_insert(struct cache *c, struct part *p, struct frame *f, uint64_t key)
{
    _Atomic uint32_t *head = bucket_of(c, p, key);
    atomic_store_explicit(&f->chain, atomic_load(head), memory_order_relaxed);
    atomic_store_explicit(head, number_of(c, f), memory_order_release);
}

static void chain_remove(struct cache *c, struct part *p, struct frame *f)
{
    uint32_t number = number_of(c, f);
    _Atomic uint32_t *link = bucket_of(c, p, atomic_load(&f->key));
    while (atomic_load(link) != number) {
        assert(atomic_load(link) && "a frame with a key is in its chain");
        link = &c->frames[atomic_load(link)].chain;
    }
    atomic_store_explicit(link, atomic_load(&f->chain), memory_order_release);
}

/* ---- eviction ---- */

static uint32_t *ghost_of(struct part *p, uint64_t key, uint32_t *print)
{
    uint64_t hash = mix(key ^ UINT64_C(0xa5a5a5a5));
    *print = (uint32_t)hash | 1;
    return &p->ghosts[(hash >> 32) & p->ghost_mask];
}

/* What was loaded ahead and goes without having been used. */
static void forget_ahead(struct cache *c, struct frame *f)
{
    unsigned blocks = (unsigned)__builtin_popcount(atomic_load_explicit(&f->ahead, memory_order_relaxed));
    if (!blocks)
        return;
    atomic_store(&f->ahead, 0);
    atomic_fetch_sub(&c->ahead_blocks, blocks);
    metric_add(METRIC_readahead_unused_bytes, (uint64_t)blocks * STORE_BLOCK);
}

/* Takes the frame out of everything.  False: somebody reads it. */
static bool kill_frame(struct cache *c, struct part *p, struct frame *f)
{
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&f->pins, &none, FRAME_DYING))
        return false;
    chain_remove(c, p, f);
    if (f->where == IN_SMALL) {
        uint32_t print, *ghost = ghost_of(p, atomic_load(&f->key), &print);
        *ghost = print;
    }
    atomic_store(&f->key, 0);
    atomic_store(&f->valid, 0);
    forget_ahead(c, f);
    list_leave(c, p, f);
    p->used_blocks -= is_small(c, f) ? 1 : FRAME_BLOCKS;
    metric_add(METRIC_cache_evictions, 1);
    return true;
}

/* The next frame of this size to go, killed; NULL when all of those looked at are pinned. */
static struct frame *evict_one(struct cache *c, struct part *p, enum frame_size size)
{
    struct policy *policy = &p->policy[size];
    for (unsigned step = 0; step < EVICT_STEPS; step++) {
        uint32_t total = policy->in_small.count + policy->in_main.count;
        bool from_small = policy->in_small.count &&
                          (policy->in_small.count > total / 10 || !policy->in_main.count);
        struct list *list = from_small ? &policy->in_small : &policy->in_main;
        if (!list->oldest)
            return NULL;
        struct frame *f = &c->frames[list->oldest];
        uint8_t freq = atomic_load(&f->freq);
        if (freq && step < EVICT_STEPS / 2) {
            list_leave(c, p, f);
            atomic_store(&f->freq, from_small ? 0 : freq - 1);
            list_enter(c, p, f, IN_MAIN);
        } else if (kill_frame(c, p, f)) {
            return f;
        } else {
            enum where where = f->where;
            list_leave(c, p, f);
            list_enter(c, p, f, where);
        }
    }
    return NULL;
}

/* All sixteen of one small frame's slab.  The large frame of the slab is the result. */
static struct frame *evict_small_slab(struct cache *c, struct part *p)
{
    struct policy *policy = &p->policy[FRAME_SMALL];
    uint32_t number = policy->in_small.oldest ? policy->in_small.oldest : policy->in_main.oldest;
    for (unsigned tries = 0; number && tries < FRAME_BLOCKS; tries++) {
        struct frame *oldest = &c->frames[number];
        uint32_t slab = slab_of(c, oldest);
        unsigned gone = 0;
        number = oldest->newer;
        for (unsigned i = 0; i < FRAME_BLOCKS; i++) {
            struct frame *f = small_of(c, slab, i);
            if (f->where != IN_FREE) {
                if (number == number_of(c, f))
                    number = f->newer;
                if (!kill_frame(c, p, f))
                    continue;
                list_enter(c, p, f, IN_FREE);
            }
            gone++;
        }
        if (gone < FRAME_BLOCKS)
            continue;
        for (unsigned i = 0; i < FRAME_BLOCKS; i++)
            list_leave(c, p, small_of(c, slab, i));
        return large_of(c, slab);
    }
    return NULL;
}

static uint32_t age_of(struct cache *c, struct part *p, enum frame_size size)
{
    struct policy *policy = &p->policy[size];
    uint32_t number = policy->in_small.oldest ? policy->in_small.oldest : policy->in_main.oldest;
    return number ? atomic_load(&p->clock) - c->frames[number].stamp : 0;
}

/* A slab that was never used, as its large frame. */
static struct frame *fresh_slab(struct cache *c, struct part *p)
{
    if (p->fresh_slab == p->end_slab)
        return NULL;
    struct frame *f = large_of(c, p->fresh_slab++);
    atomic_fetch_or(&f->pins, FRAME_DYING);
    f->where = IN_NOTHING;
    return f;
}

static struct frame *split(struct cache *c, struct part *p, struct frame *large)
{
    uint32_t slab = slab_of(c, large);
    for (unsigned i = 0; i < FRAME_BLOCKS; i++) {
        struct frame *f = small_of(c, slab, i);
        atomic_fetch_or(&f->pins, FRAME_DYING);
        f->where = IN_NOTHING;
        if (i)
            list_enter(c, p, f, IN_FREE);
    }
    return small_of(c, slab, 0);
}

static struct frame *new_large(struct cache *c, struct part *p)
{
    struct frame *f = fresh_slab(c, p);
    if (f)
        return f;
    uint32_t own = age_of(c, p, FRAME_LARGE), other = age_of(c, p, FRAME_SMALL);
    if (other > own * 2 + FRAME_BLOCKS || !p->policy[FRAME_LARGE].in_small.count)
        f = evict_small_slab(c, p);
    if (!f)
        f = evict_one(c, p, FRAME_LARGE);
    return f ? f : evict_small_slab(c, p);
}

static struct frame *new_small(struct cache *c, struct part *p)
{
    if (p->free_small.oldest) {
        struct frame *f = &c->frames[p->free_small.oldest];
        list_leave(c, p, f);
        return f;
    }
    struct frame *f = fresh_slab(c, p);
    if (f)
        return split(c, p, f);
    uint32_t own = age_of(c, p, FRAME_SMALL), other = age_of(c, p, FRAME_LARGE);
    if (other > own * 2 + FRAME_BLOCKS && (f = evict_one(c, p, FRAME_LARGE)))
        return split(c, p, f);
    f = evict_one(c, p, FRAME_SMALL);
    if (!f && (f = evict_one(c, p, FRAME_LARGE)))
        return split(c, p, f);
    return f;
}

struct frame *cache_insert(struct cache *c, struct part *p, uint64_t key, enum frame_size size)
{
    struct frame *f = size == FRAME_LARGE ? new_large(c, p) : new_small(c, p);
    if (!f)
        return NULL;
    uint32_t blocks = size == FRAME_LARGE ? FRAME_BLOCKS : 1;
    uint32_t print, *ghost = ghost_of(p, key, &print);
    enum where where = IN_SMALL;
    if (*ghost == print) {
        *ghost = 0;
        where = IN_MAIN;
    }
    atomic_fetch_add_explicit(&p->clock, blocks, memory_order_relaxed);
    p->used_blocks += blocks;
    atomic_store(&f->freq, 0);
    atomic_store(&f->valid, 0);
    atomic_store(&f->loading, 0);
    atomic_store(&f->key, key);
    list_enter(c, p, f, where);
    /* Look-ups that came by meanwhile have added to it and will take that back. */
    atomic_fetch_sub(&f->pins, FRAME_DYING - 1);
    chain_insert(c, p, f, key);
    return f;
}
