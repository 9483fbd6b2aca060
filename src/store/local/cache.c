/* Each part of the cache owns some slabs of 64 KiB, the hash buckets for its share of all places, and two S3-FIFO
 * policies (small, main, ghost), one for each size of frame.  A slab is one large frame or 16 small ones; the size
 * whose oldest frame is the older one gives slabs away. */
#include "store/local/cache.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/thread.h"

enum {
    BLOCK = STORE_BLOCK,
    SLAB = BLOCK * FRAME_BLOCKS,
    PARTS_MOST = 64,
    PART_SLABS_LEAST = 64,
    BUCKETS_PER_SLAB = 4,
    GHOSTS_PER_SLAB = 4,
    WALK_MOST = 128,     /* steps in a chain that others are changing */
    EVICT_STEPS = 256,
    FREQ_MOST = 3,
    WAIT_LISTS = 64,
    TOUCH_PIECE = 64 << 20,
    SCRATCH_MOST = 512,
    SPINS_BEFORE_YIELD = 200,
};
#define DYING 0x80000000u /* in pins: owned by its part, not to be had */
#define KEY_SMALL (UINT64_C(1) << 63)

enum where { IN_FREE, IN_SMALL, IN_MAIN, IN_NOTHING };

struct frame {
    _Atomic uint64_t key;
    _Atomic uint32_t pins;
    _Atomic uint32_t chain; /* the next of the bucket */
    uint32_t older, newer;  /* the part's lists */
    _Atomic uint32_t stamp; /* the part's clock when it came into its list */
    _Atomic uint16_t valid, loading;
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
    struct list free_large, free_small;
    struct policy policy[2];
    uint32_t *ghosts;
    uint32_t ghost_mask;
    uint64_t used_blocks;
    _Alignas(64) _Atomic uint32_t clock; /* blocks that came in */
    _Atomic uint32_t recent; /* uses within so many blocks of coming in count as the same use */
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
    unsigned parts;
    struct part part[PARTS_MOST];
    struct {
        _Alignas(64) int spin;
        struct waiter *first;
    } waits[WAIT_LISTS];
    pthread_t toucher;
    bool touching;
    atomic_bool stopping;
    struct {
        _Alignas(64) struct scratch *first;
        unsigned count;
    } *scratch; /* one a worker */
};

static void spin_take(int *spin)
{
    for (unsigned tries = 0; __atomic_exchange_n(spin, 1, __ATOMIC_ACQUIRE); tries++) {
        if (tries >= SPINS_BEFORE_YIELD)
            sched_yield(); /* the holder may have lost its processor */
    }
}

static void spin_give(int *spin)
{
    __atomic_store_n(spin, 0, __ATOMIC_RELEASE);
}

/* ---- frames and their numbers ---- */

static uint32_t number_of(const struct cache *c, const struct frame *f)
{
    return (uint32_t)(f - c->frames);
}

static bool is_small(const struct cache *c, const struct frame *f)
{
    return number_of(c, f) > c->slabs;
}

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

uint8_t *frame_data(struct cache *c, struct frame *f, place_t place)
{
    uint32_t number = number_of(c, f);
    if (number > c->slabs)
        return c->arena + (size_t)(number - 1 - c->slabs) * BLOCK;
    return c->arena + (size_t)(number - 1) * SLAB + (place % FRAME_BLOCKS) * BLOCK;
}

uint16_t frame_mask(struct cache *c, const struct frame *f, place_t place, unsigned count)
{
    if (is_small(c, f))
        return 1;
    return (uint16_t)(((1u << count) - 1) << (place % FRAME_BLOCKS));
}

uint16_t frame_valid(const struct frame *f)
{
    return atomic_load_explicit(&f->valid, memory_order_acquire);
}

/* ---- looking up ---- */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 32;
}

static uint64_t key_of(place_t place, enum frame_size size)
{
    return size == FRAME_LARGE ? place / FRAME_BLOCKS * FRAME_BLOCKS : place | KEY_SMALL;
}

/* Both sizes of a place belong to one part. */
static struct part *part_of(struct cache *c, place_t place)
{
    return &c->part[mix(place / FRAME_BLOCKS) & (c->parts - 1)];
}

static _Atomic uint32_t *bucket_of(struct cache *c, struct part *p, uint64_t key)
{
    size_t first = (size_t)(p - c->part) * ((size_t)c->bucket_mask + 1);
    return &c->buckets[first + ((mix(key) >> 20) & c->bucket_mask)];
}

static bool try_pin(struct frame *f, uint64_t key)
{
    if (atomic_fetch_add(&f->pins, 1) & DYING) {
        atomic_fetch_sub(&f->pins, 1);
        return false;
    }
    if (atomic_load(&f->key) == key)
        return true;
    atomic_fetch_sub(&f->pins, 1);
    return false;
}

/* Without the lock it may miss what is there, and never gives what is not.  With it it is exact. */
static struct frame *look_up(struct cache *c, struct part *p, uint64_t key, unsigned most)
{
    uint32_t number = atomic_load_explicit(bucket_of(c, p, key), memory_order_acquire);
    for (unsigned step = 0; number && step < most; step++) {
        struct frame *f = &c->frames[number];
        if (atomic_load_explicit(&f->key, memory_order_relaxed) == key && try_pin(f, key))
            return f;
        number = atomic_load_explicit(&f->chain, memory_order_acquire);
    }
    return NULL;
}

static void count_use(struct part *p, struct frame *f)
{
    uint32_t age = atomic_load_explicit(&p->clock, memory_order_relaxed) -
                   atomic_load_explicit(&f->stamp, memory_order_relaxed);
    uint8_t freq = atomic_load_explicit(&f->freq, memory_order_relaxed);
    if (freq < FREQ_MOST && age > atomic_load_explicit(&p->recent, memory_order_relaxed))
        atomic_store_explicit(&f->freq, freq + 1, memory_order_relaxed);
}

unsigned cache_find(struct cache *c, place_t place, unsigned want, struct frame **out)
{
    struct part *p = part_of(c, place);
    struct frame *f = look_up(c, p, key_of(place, FRAME_LARGE), WALK_MOST);
    if (f) {
        unsigned valid = frame_valid(f) >> place % FRAME_BLOCKS;
        unsigned count = (unsigned)__builtin_ctz(~valid);
        if (count) {
            count_use(p, f);
            *out = f;
            return count < want ? count : want;
        }
        frame_unpin(f);
    }
    f = look_up(c, p, key_of(place, FRAME_SMALL), WALK_MOST);
    if (!f)
        return 0;
    if (!frame_valid(f)) {
        frame_unpin(f);
        return 0;
    }
    count_use(p, f);
    *out = f;
    return 1;
}

void frame_unpin(struct frame *f)
{
    uint32_t before = atomic_fetch_sub_explicit(&f->pins, 1, memory_order_release);
    assert((before & ~DYING) && "unpinned more often than pinned");
    (void)before;
}

void frame_release(void *owner, const uint8_t *data, uint32_t length)
{
    frame_unpin(owner);
}

/* ---- lists; under the part's lock ---- */

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
        return small ? &p->free_small : &p->free_large;
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

/* Takes the frame out of everything.  False: somebody reads it. */
static bool kill_frame(struct cache *c, struct part *p, struct frame *f)
{
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&f->pins, &none, DYING))
        return false;
    chain_remove(c, p, f);
    if (f->where == IN_SMALL) {
        uint32_t print, *ghost = ghost_of(p, atomic_load(&f->key), &print);
        *ghost = print;
    }
    atomic_store(&f->key, 0);
    atomic_store(&f->valid, 0);
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
        bool from_small = policy->in_small.count && (policy->in_small.count > total / 10 ||
                                                     !policy->in_main.count);
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

/* A slab nobody uses, as its large frame. */
static struct frame *free_slab(struct cache *c, struct part *p)
{
    if (p->free_large.oldest) {
        struct frame *f = &c->frames[p->free_large.oldest];
        list_leave(c, p, f);
        return f;
    }
    if (p->fresh_slab == p->end_slab)
        return NULL;
    struct frame *f = large_of(c, p->fresh_slab++);
    atomic_fetch_or(&f->pins, DYING);
    f->where = IN_NOTHING;
    return f;
}

static struct frame *split(struct cache *c, struct part *p, struct frame *large)
{
    uint32_t slab = slab_of(c, large);
    for (unsigned i = 0; i < FRAME_BLOCKS; i++) {
        struct frame *f = small_of(c, slab, i);
        atomic_fetch_or(&f->pins, DYING);
        f->where = IN_NOTHING;
        if (i)
            list_enter(c, p, f, IN_FREE);
    }
    return small_of(c, slab, 0);
}

static struct frame *new_large(struct cache *c, struct part *p)
{
    struct frame *f = free_slab(c, p);
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
    struct frame *f = free_slab(c, p);
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

static struct frame *insert(struct cache *c, struct part *p, uint64_t key, enum frame_size size)
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
    atomic_fetch_sub(&f->pins, DYING - 1);
    chain_insert(c, p, f, key);
    return f;
}

struct frame *cache_peek(struct cache *c, place_t place, enum frame_size size)
{
    return look_up(c, part_of(c, place), key_of(place, size), WALK_MOST);
}

struct frame *cache_get(struct cache *c, place_t place, enum frame_size size)
{
    struct part *p = part_of(c, place);
    uint64_t key = key_of(place, size);
    struct frame *f = look_up(c, p, key, WALK_MOST);
    if (f)
        return f;
    spin_take(&p->spin);
    f = look_up(c, p, key, UINT32_MAX);
    if (!f)
        f = insert(c, p, key, size);
    spin_give(&p->spin);
    return f;
}

/* ---- filling ---- */

uint16_t cache_claim(struct cache *c, struct frame *f, uint16_t mask)
{
    mask &= (uint16_t)~frame_valid(f);
    uint16_t before = atomic_fetch_or(&f->loading, mask);
    uint16_t mine = mask & (uint16_t)~before;
    /* Only who holds a block's claim makes it valid, so this cannot change any more for what is mine. */
    uint16_t done = mine & frame_valid(f);
    if (done)
        cache_loaded(c, f, done, 0); /* somebody may have begun to wait for our claim */
    return mine & (uint16_t)~done;
}

static unsigned wait_list_of(const struct cache *c, const struct frame *f)
{
    return number_of(c, f) % WAIT_LISTS;
}

static void wake(struct coro *coro)
{
    coro_wake_remote(coro);
}

void cache_loaded(struct cache *c, struct frame *f, uint16_t claimed, uint16_t good)
{
    atomic_fetch_or_explicit(&f->valid, good, memory_order_release);
    atomic_fetch_and(&f->loading, (uint16_t)~claimed);
    unsigned list = wait_list_of(c, f);
    struct waiter *ready = NULL;
    spin_take(&c->waits[list].spin);
    for (struct waiter **link = &c->waits[list].first, *w; (w = *link);) {
        if (w->frame != f) {
            link = &w->next;
            continue;
        }
        *link = w->next;
        w->next = ready;
        ready = w;
    }
    spin_give(&c->waits[list].spin);
    for (struct waiter *w = ready, *next; w; w = next) {
        next = w->next; /* it lies on the stack of who wakes up now */
        wake(w->coro);
    }
}

void cache_wait(struct cache *c, struct frame *f, uint16_t mask)
{
    unsigned list = wait_list_of(c, f);
    struct waiter waiter = {.frame = f, .coro = coro_self()};
    for (;;) {
        spin_take(&c->waits[list].spin);
        if (!(atomic_load(&f->loading) & mask)) {
            spin_give(&c->waits[list].spin);
            return;
        }
        waiter.next = c->waits[list].first;
        c->waits[list].first = &waiter;
        spin_give(&c->waits[list].spin);
        coro_wait();
    }
}

void cache_publish(struct frame *f, uint16_t mask)
{
    atomic_fetch_or_explicit(&f->valid, mask, memory_order_release);
}

/* ---- small buffers ---- */

uint8_t *cache_scratch(struct cache *c)
{
    struct worker *w = worker_self();
    unsigned i = w ? worker_index(w) : 0;
    struct scratch *s = w ? c->scratch[i].first : NULL;
    if (!s)
        return malloc(INLINE_MAX);
    c->scratch[i].first = s->next;
    c->scratch[i].count--;
    return (uint8_t *)s;
}

void cache_scratch_release(void *owner, const uint8_t *data, uint32_t length)
{
    struct cache *c = owner;
    struct worker *w = worker_self();
    struct scratch *s = (struct scratch *)(uintptr_t)data;
    if (!w || c->scratch[worker_index(w)].count >= SCRATCH_MOST) {
        free(s);
        return;
    }
    unsigned i = worker_index(w);
    s->next = c->scratch[i].first;
    c->scratch[i].first = s;
    c->scratch[i].count++;
}

/* ---- opening ---- */

__attribute__((no_sanitize("thread"))) static void touch_piece(uint8_t *from, size_t length)
{
    if (madvise(from, length, MADV_POPULATE_WRITE) == 0)
        return;
    /* Adding nothing changes nothing for those who use the memory already. */
    for (size_t at = 0; at < length; at += BLOCK)
        __atomic_fetch_or(from + at, 0, __ATOMIC_RELAXED);
}

static void *toucher_main(void *arg)
{
    struct cache *c = arg;
    pthread_setname_np(pthread_self(), "cache-touch");
    setpriority(PRIO_PROCESS, (id_t)gettid(), 10);
    for (uint64_t at = 0; at < c->arena_bytes && !atomic_load(&c->stopping); at += TOUCH_PIECE) {
        uint64_t left = c->arena_bytes - at;
        touch_piece(c->arena + at, left < TOUCH_PIECE ? left : TOUCH_PIECE);
    }
    return NULL;
}

static void *map_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static uint32_t power_at_least(uint64_t n)
{
    uint32_t power = 1;
    while (power < n && power < (1u << 30))
        power *= 2;
    return power;
}

static int open_parts(struct cache *c)
{
    while (c->parts < PARTS_MOST && c->slabs / (c->parts * 2) >= PART_SLABS_LEAST)
        c->parts *= 2;
    uint32_t each = c->slabs / c->parts;
    c->bucket_mask = power_at_least((uint64_t)each * BUCKETS_PER_SLAB) - 1;
    c->buckets_bytes = (size_t)c->parts * ((size_t)c->bucket_mask + 1) * sizeof(*c->buckets);
    c->buckets = map_memory(c->buckets_bytes);
    for (unsigned i = 0; i < c->parts; i++) {
        struct part *p = &c->part[i];
        p->first_slab = p->fresh_slab = i * each;
        p->end_slab = i + 1 == c->parts ? c->slabs : (i + 1) * each;
        p->ghost_mask = power_at_least((uint64_t)each * GHOSTS_PER_SLAB) - 1;
        p->ghosts = calloc((size_t)p->ghost_mask + 1, sizeof(*p->ghosts));
        atomic_store(&p->recent, each * FRAME_BLOCKS / 64);
        if (!p->ghosts)
            return -ENOMEM;
    }
    return c->buckets ? 0 : -ENOMEM;
}

static int open_memory(struct cache *c, uint64_t bytes)
{
    if (bytes < 1 << 20)
        bytes = 1 << 20;
    if (bytes / SLAB > UINT32_MAX / 18)
        return -EINVAL;
    c->slabs = (uint32_t)(bytes / SLAB);
    c->arena_bytes = (uint64_t)c->slabs * SLAB;
    c->frames_bytes = ((size_t)c->slabs * (FRAME_BLOCKS + 1) + 1) * sizeof(struct frame);
    c->arena = map_memory(c->arena_bytes);
    c->frames = map_memory(c->frames_bytes);
    unsigned workers = workers_count();
    c->scratch = aligned_alloc(64, (workers ? workers : 1) * sizeof(*c->scratch));
    if (!c->arena || !c->frames || !c->scratch)
        return -ENOMEM;
    memset(c->scratch, 0, (workers ? workers : 1) * sizeof(*c->scratch));
    madvise(c->arena, c->arena_bytes, MADV_HUGEPAGE); /* without huge pages it is only slower */
    madvise(c->arena, c->arena_bytes, MADV_DONTDUMP);
    return open_parts(c);
}

int cache_open(struct local *l, char why[256])
{
    struct cache *c = aligned_alloc(64, sizeof(*c));
    if (!c)
        return -ENOMEM;
    memset(c, 0, sizeof(*c));
    c->parts = 1;
    l->cache = c;
    int error = open_memory(c, l->options.cache_bytes);
    if (error) {
        snprintf(why, 256, "no memory for a cache of %llu bytes: %s",
                 (unsigned long long)l->options.cache_bytes, sl_strerror(error));
        cache_close(l);
        return error;
    }
    /* Only to be faster later: without the thread pages come with their first use. */
    c->touching = thread_start(&c->toucher, toucher_main, c) == 0;
    return 0;
}

void cache_close(struct local *l)
{
    struct cache *c = l->cache;
    if (!c)
        return;
    atomic_store(&c->stopping, true);
    if (c->touching)
        pthread_join(c->toucher, NULL);
    for (unsigned i = 0; c->scratch && i < workers_count(); i++) {
        for (struct scratch *s = c->scratch[i].first, *next; s; s = next) {
            next = s->next;
            free(s);
        }
    }
    free(c->scratch);
    for (unsigned i = 0; i < c->parts; i++)
        free(c->part[i].ghosts);
    if (c->buckets)
        munmap((void *)c->buckets, c->buckets_bytes);
    if (c->frames)
        munmap(c->frames, c->frames_bytes);
    if (c->arena)
        munmap(c->arena, c->arena_bytes);
    free(c);
    l->cache = NULL;
}

void cache_usage(struct local *l, uint64_t *total, uint64_t *used)
{
    struct cache *c = l->cache;
    *total = c->arena_bytes;
    *used = 0;
    for (unsigned i = 0; i < c->parts; i++) {
        spin_take(&c->part[i].spin);
        *used += c->part[i].used_blocks * BLOCK;
        spin_give(&c->part[i].spin);
    }
}
