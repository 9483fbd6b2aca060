#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "store/local/cache_private.h"

enum {
    BLOCK = STORE_BLOCK,
    SLAB = BLOCK * FRAME_BLOCKS,
    PART_SLABS_LEAST = 512,
    SAMPLES = 512, /* runs of FRAME_BLOCKS that are watched, for a cacheful of data */
    PART_RUN = 256, /* blocks */
    BUCKETS_PER_SLAB = 16, /* small frames: a chain of them is a wait for memory at each step */
    GHOSTS_PER_SLAB = 4,
    WALK_MOST = 128, /* steps in a chain that others are changing */
    TOUCH_PIECE = 2 << 20, /* a huge page */
    TOUCH_BACK_NS = 50 * 1000 * 1000,
    SCRATCH_MOST = 512,
    EXPECT_BYTES = 256, /* of data: enough for the processor to see where it goes on */
};

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

static uint64_t key_of(place_t place, enum frame_size size)
{
    return size == FRAME_LARGE ? place / FRAME_BLOCKS * FRAME_BLOCKS : place | FRAME_KEY_SMALL;
}

/* Both sizes of a place belong to one part, and so does all of 1 MiB: frames that are made one after another lie next
 * to each other, and leave as one piece.  Segments are filled from their start, so neighbours are spread by the golden
 * section: evenly, where a hash would leave some parts twice as full as others. */
static struct part *part_of(struct cache *c, place_t place)
{
    uint64_t spread = place / PART_RUN * UINT64_C(0x9e3779b97f4a7c15);
    return &c->part[(spread >> 32) * c->parts >> 32];
}

static bool try_pin(struct frame *f, uint64_t key)
{
    if (atomic_fetch_add(&f->pins, 1) & FRAME_DYING) {
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

static void count_use(struct cache *c, struct part *p, struct frame *f)
{
    uint32_t age = atomic_load_explicit(&p->clock, memory_order_relaxed) -
                   atomic_load_explicit(&f->stamp, memory_order_relaxed);
    uint8_t freq = atomic_load_explicit(&f->freq, memory_order_relaxed);
    if (freq < FREQ_MOST && age > atomic_load_explicit(&p->recent, memory_order_relaxed) &&
        !atomic_load_explicit(&f->ahead, memory_order_relaxed)) { /* else it is the first use */
        atomic_store_explicit(&f->freq, freq + 1, memory_order_relaxed);
        atomic_store_explicit(&f->seen, atomic_load_explicit(&c->classes[f->class].clock, memory_order_relaxed),
                              memory_order_relaxed);
    }
}

void frame_expect_use(struct frame *f)
{
    atomic_store_explicit(&f->freq, FREQ_MOST, memory_order_relaxed);
}

void frame_expect_none(struct frame *f)
{
    atomic_store_explicit(&f->freq, 0, memory_order_relaxed);
}

static unsigned find(struct cache *c, place_t place, unsigned want, struct frame **out)
{
    struct part *p = part_of(c, place);
    struct frame *f = look_up(c, p, key_of(place, FRAME_LARGE), WALK_MOST);
    if (f) {
        unsigned valid = frame_valid(f) >> place % FRAME_BLOCKS;
        unsigned count = (unsigned)__builtin_ctz(~valid);
        if (count) {
            count_use(c, p, f);
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
    count_use(c, p, f);
    *out = f;
    return 1;
}

unsigned cache_find(struct cache *c, struct cache_class *class, place_t place, unsigned want,
                    struct frame **out)
{
    unsigned found = find(c, place, want, out);
    uint32_t hash = sample_hash(place);
    if (__builtin_expect(hash < c->sample_limit, 0))
        cache_sample(c, class, hash, place, found ? found : want);
    return found;
}

/* The frame that the bucket of this place begins with; a hint, so that neither chain nor key matter. */
static struct frame *first_frame(struct cache *c, place_t place, enum frame_size size)
{
    uint32_t number = atomic_load_explicit(bucket_of(c, part_of(c, place), key_of(place, size)),
                                           memory_order_relaxed);
    return number ? &c->frames[number] : NULL;
}

void cache_expect(struct cache *c, const place_t *places, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct part *p = part_of(c, places[i]);
        if (!places[i])
            continue;
        __builtin_prefetch((void *)bucket_of(c, p, key_of(places[i], FRAME_LARGE)));
        __builtin_prefetch((void *)bucket_of(c, p, key_of(places[i], FRAME_SMALL)));
    }
    for (unsigned i = 0; i < count; i++) {
        struct frame *f = places[i] ? first_frame(c, places[i], FRAME_LARGE) : NULL;
        if (!f)
            continue;
        __builtin_prefetch(f, 1);
        const uint8_t *data = frame_data(c, f, places[i]);
        for (size_t at = 0; at < EXPECT_BYTES; at += 64)
            __builtin_prefetch(data + at, 0, 2);
    }
}

void frame_unpin(struct frame *f)
{
    uint32_t before = atomic_fetch_sub_explicit(&f->pins, 1, memory_order_release);
    assert((before & ~FRAME_DYING) && "unpinned more often than pinned");
    (void)before;
}

void frame_release(void *owner, const uint8_t *data, uint32_t length)
{
    frame_unpin(owner);
}

struct frame *cache_peek(struct cache *c, place_t place, enum frame_size size)
{
    return look_up(c, part_of(c, place), key_of(place, size), WALK_MOST);
}

/* A large frame takes over what small ones of its places hold, or they would take room beside it. */
static void take_small(struct cache *c, struct part *p, struct frame *f, place_t place)
{
    place_t first = place / FRAME_BLOCKS * FRAME_BLOCKS;
    for (unsigned i = 0; i < FRAME_BLOCKS; i++) {
        uint64_t key = key_of(first + i, FRAME_SMALL);
        struct frame *small = look_up(c, p, key, WALK_MOST);
        if (!small)
            continue;
        uint16_t mine = frame_valid(small) ? cache_claim(c, f, (uint16_t)(1u << i)) : 0;
        if (mine) {
            memcpy(frame_data(c, f, first + i), frame_data(c, small, first + i), BLOCK);
            cache_loaded(c, f, mine, mine);
        }
        frame_unpin(small);
        spin_take(&p->spin);
        if (mine && atomic_load(&small->key) == key)
            cache_drop_small(c, p, small);
        spin_give(&p->spin);
    }
}

struct frame *cache_get(struct cache *c, struct cache_class *class, place_t place, enum frame_size size)
{
    struct part *p = part_of(c, place);
    uint64_t key = key_of(place, size);
    struct frame *f = look_up(c, p, key, WALK_MOST);
    if (f)
        return f;
    spin_take(&p->spin);
    f = look_up(c, p, key, UINT32_MAX);
    if (!f)
        f = cache_insert(c, p, class, key, size);
    else
        size = FRAME_SMALL; /* nothing was made */
    /* what is kept in small frames does not move into a large one that is only passing through */
    bool takes = f && size == FRAME_LARGE &&
                 !(f->where == IN_SMALL && atomic_load_explicit(&class->keeping, memory_order_relaxed));
    spin_give(&p->spin);
    if (takes)
        take_small(c, p, f, place);
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
    mine &= (uint16_t)~done;
    class_count_loaded(c, f->class, mine);
    return mine;
}

static unsigned wait_list_of(const struct cache *c, const struct frame *f)
{
    return number_of(c, f) % CACHE_WAIT_LISTS;
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
        coro_wait_for(CORO_SPENT_DISK);
    }
}

void cache_mark_ahead(struct cache *c, struct frame *f, uint16_t mask)
{
    uint16_t before = atomic_fetch_or(&f->ahead, mask);
    atomic_fetch_add(&c->ahead_blocks, __builtin_popcount(mask & ~before));
}

unsigned cache_use_ahead(struct cache *c, struct frame *f, place_t place, unsigned count)
{
    if (!atomic_load_explicit(&f->ahead, memory_order_relaxed))
        return 0;
    uint16_t mask = frame_mask(c, f, place, count);
    unsigned used = (unsigned)__builtin_popcount(atomic_fetch_and(&f->ahead, (uint16_t)~mask) & mask);
    if (used) {
        atomic_fetch_sub(&c->ahead_blocks, used);
        metric_add(METRIC_readahead_used_bytes, (uint64_t)used * BLOCK);
    }
    return used;
}

uint64_t cache_ahead_bytes(struct cache *c)
{
    int64_t blocks = atomic_load_explicit(&c->ahead_blocks, memory_order_relaxed);
    return blocks > 0 ? (uint64_t)blocks * BLOCK : 0;
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

/* By page faults and not by MADV_POPULATE_WRITE, which keeps others from the address space while it works.  Adding
 * nothing changes nothing for those who use the memory already. */
__attribute__((no_sanitize("thread"))) static void touch_piece(uint8_t *from, size_t length)
{
    for (size_t at = 0; at < length; at += BLOCK)
        __atomic_fetch_or(from + at, 0, __ATOMIC_RELAXED);
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

/* Where a piece took longer than it ran, others want the processors: it stands back.  SCHED_IDLE would leave it to
 * the kernel, but before Linux 6.4 a page fault locks the whole address space, and an idle thread may hold that for
 * seconds while others compute. */
static void *toucher_main(void *arg)
{
    struct cache *c = arg;
    pthread_setname_np(pthread_self(), "cache-touch");
    setpriority(PRIO_PROCESS, (id_t)gettid(), 10);
    for (uint64_t at = 0; at < c->arena_bytes && !atomic_load(&c->stopping); at += TOUCH_PIECE) {
        uint64_t left = c->arena_bytes - at, start = clock_monotonic_ns(), cpu = thread_cpu_ns();
        touch_piece(c->arena + at, left < TOUCH_PIECE ? left : TOUCH_PIECE);
        atomic_store(&c->touched, at + (left < TOUCH_PIECE ? left : TOUCH_PIECE));
        cpu = thread_cpu_ns() - cpu;
        if (clock_monotonic_ns() - start > cpu + cpu / 4)
            nanosleep(&(struct timespec){.tv_nsec = TOUCH_BACK_NS}, NULL);
    }
    return NULL;
}

/* Only to be faster later: without the thread pages come with their first use. */
static void start_toucher(struct cache *c)
{
    sigset_t all, before;
    sigfillset(&all); /* they are for the main thread */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    c->touching = pthread_create(&c->toucher, NULL, toucher_main, c) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void *map_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
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
    while (c->parts < CACHE_PARTS_MOST && c->slabs / (c->parts * 2) >= PART_SLABS_LEAST)
        c->parts *= 2;
    uint32_t each = c->slabs / c->parts;
    c->sample_limit = c->slabs > SAMPLES ? (uint32_t)((UINT64_C(1) << 32) / (c->slabs / SAMPLES)) - 1 : UINT32_MAX;
    c->holdings_bytes = (size_t)c->parts * (CACHE_CLASSES + 1) * sizeof(*c->holdings);
    c->holdings = map_memory(c->holdings_bytes);
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
    return c->buckets && c->holdings ? 0 : -ENOMEM;
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
    if (!c->arena || !c->frames || !c->scratch || classes_open(c))
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
    start_toucher(c);
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
    classes_close(c);
    for (unsigned i = 0; i < c->parts; i++)
        free(c->part[i].ghosts);
    if (c->holdings)
        munmap(c->holdings, c->holdings_bytes);
    if (c->buckets)
        munmap((void *)c->buckets, c->buckets_bytes);
    if (c->frames)
        munmap(c->frames, c->frames_bytes);
    if (c->arena)
        munmap(c->arena, c->arena_bytes);
    free(c);
    l->cache = NULL;
}

uint8_t *cache_arena(struct cache *c, uint64_t *bytes)
{
    *bytes = c->arena_bytes;
    return c->arena;
}

uint64_t cache_touched(struct cache *c)
{
    return atomic_load(&c->touched);
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
