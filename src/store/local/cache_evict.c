/* The lists of each part: what leaves a holding, and in which order.
 *
 * A holding is one class's frames of one part, in S3-FIFO's lists: in_small for what was used once, in_main for what
 * was used again, and ghosts, the part's, for what left in_small.  A class that keeps uses them otherwise: in_main is
 * what it keeps, in_small the little room that everything else passes through.  A slab of 64 KiB is one large frame or
 * 16 small ones of one class.  All of it under the part's lock. */
#include <assert.h>

#include "store/local/cache_private.h"

enum {
    EVICT_STEPS = 32,
    SLAB_TRIES = 16,
    PROBATION = 10,     /* in_small: one in so many blocks of the class */
    PROBATION_NEW = 32, /* and one in so many of the part, so that a new class can show what it is worth */
    TRANSIENT = 50,     /* the same for a class that keeps */
    TRANSIENT_LEAST = 4 * FRAME_BLOCKS,
};

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

static uint32_t blocks_of(const struct cache *c, const struct frame *f)
{
    return is_small(c, f) ? 1 : FRAME_BLOCKS;
}

/* ---- lists ---- */

void list_push(struct cache *c, struct list *list, struct frame *f)
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

void list_remove(struct cache *c, struct list *list, struct frame *f)
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

static bool holds_nothing(const struct holding *h)
{
    return !h->small_blocks && !h->main_blocks && !h->free_small.count;
}

/* Into or out of the ring of the part's holdings. */
static void ring_update(struct cache *c, struct part *p, struct holding *h)
{
    uint16_t number = class_number(c, class_of(c, p, h));
    if (h->listed == !holds_nothing(h))
        return;
    h->listed = !h->listed;
    if (h->listed) {
        struct holding *at = p->holdings++ ? holding_of(c, p, p->turn) : h;
        h->next = at == h ? number : at->next;
        h->before = at == h ? number : p->turn;
        at->next = number;
        holding_of(c, p, h->next)->before = number;
        p->turn = number;
        h->keeping = atomic_load_explicit(&class_of(c, p, h)->keeping, memory_order_relaxed);
        h->settling = false;
    } else {
        holding_of(c, p, h->before)->next = h->next;
        holding_of(c, p, h->next)->before = h->before;
        p->turn = h->next;
        p->holdings--;
    }
}

static struct list *list_of(struct cache *c, struct holding *h, struct frame *f)
{
    enum frame_size size = is_small(c, f) ? FRAME_SMALL : FRAME_LARGE;
    switch ((enum where)f->where) {
    case IN_FREE:
        return &h->free_small;
    case IN_SMALL:
        return &h->in_small[size];
    case IN_MAIN:
        return &h->in_main[size];
    case IN_NOTHING:
        break;
    }
    return NULL;
}

static void account(struct cache *c, struct part *p, struct holding *h, struct frame *f, uint32_t sign)
{
    if (f->where == IN_SMALL)
        h->small_blocks += sign * blocks_of(c, f);
    else if (f->where == IN_MAIN)
        h->main_blocks += sign * blocks_of(c, f);
}

void frame_leave(struct cache *c, struct part *p, struct frame *f)
{
    struct holding *h = holding_of(c, p, f->class);
    struct list *list = list_of(c, h, f);
    if (!list)
        return;
    list_remove(c, list, f);
    account(c, p, h, f, UINT32_MAX); /* minus one */
    f->where = IN_NOTHING;
    ring_update(c, p, h);
}

void frame_enter(struct cache *c, struct part *p, struct frame *f, enum where where)
{
    struct holding *h = holding_of(c, p, f->class);
    f->where = (uint8_t)where;
    atomic_store_explicit(&f->stamp, atomic_load_explicit(&p->clock, memory_order_relaxed), memory_order_relaxed);
    list_push(c, list_of(c, h, f), f);
    account(c, p, h, f, 1);
    ring_update(c, p, h);
}

/* From one list of its holding into the same or another: the holding never looks empty meanwhile. */
static void requeue(struct cache *c, struct part *p, struct frame *f, enum where where)
{
    struct holding *h = holding_of(c, p, f->class);
    list_remove(c, list_of(c, h, f), f);
    account(c, p, h, f, UINT32_MAX);
    frame_enter(c, p, f, where);
}

/* ---- chains and ghosts ---- */

void chain_insert(struct cache *c, struct part *p, struct frame *f, uint64_t key)
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

/* Of the place and its class: that another class has used it before says nothing of this one. */
static uint32_t *ghost_of(struct part *p, uint64_t key, uint16_t class, uint32_t *print)
{
    uint64_t hash = mix(key ^ (uint64_t)(class + 1) << 40);
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
    class_count_unused(c, f->class, blocks);
}

bool ghost_take(struct part *p, uint64_t key, uint16_t class)
{
    uint32_t print, *ghost = ghost_of(p, key, class, &print);
    if (*ghost != print)
        return false;
    *ghost = 0;
    return true;
}

/* ---- eviction ---- */

bool frame_kill(struct cache *c, struct part *p, struct frame *f)
{
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&f->pins, &none, FRAME_DYING))
        return false;
    chain_remove(c, p, f);
    if (f->where == IN_SMALL && !holding_of(c, p, f->class)->keeping) {
        uint32_t print, *ghost = ghost_of(p, atomic_load(&f->key), f->class, &print);
        *ghost = print;
    }
    atomic_store(&f->key, 0);
    atomic_store(&f->valid, 0);
    forget_ahead(c, f);
    frame_leave(c, p, f);
    p->used_blocks -= blocks_of(c, f);
    atomic_fetch_sub_explicit(&c->classes[f->class].held, blocks_of(c, f), memory_order_relaxed);
    metric_add(METRIC_cache_evictions, 1);
    return true;
}

uint32_t small_limit(struct cache *c, struct part *p, struct holding *h)
{
    uint32_t held = h->small_blocks + h->main_blocks, least = TRANSIENT_LEAST, part = TRANSIENT;
    const struct cache_class *class = class_of(c, p, h);
    if (atomic_load_explicit(&class->gone, memory_order_relaxed))
        return 0;
    if (!h->keeping) {
        least = (p->end_slab - p->first_slab) * FRAME_BLOCKS / PROBATION_NEW;
        part = PROBATION;
    }
    return held / part > least ? held / part : least;
}

/* Whether the oldest of in_main, unused since it came there, has been so for too long to be worth keeping. */
static bool is_stale(struct cache *c, const struct frame *f)
{
    const struct cache_class *class = &c->classes[f->class];
    uint32_t now = atomic_load_explicit(&class->clock, memory_order_relaxed);
    return now - atomic_load_explicit(&f->seen, memory_order_relaxed) >
           atomic_load_explicit(&class->stale_after, memory_order_relaxed);
}

/* NULL: nothing of this size may go. */
static struct list *list_to_evict(struct cache *c, struct part *p, struct holding *h, enum frame_size size)
{
    bool from_small =
        h->in_small[size].oldest && (h->small_blocks > small_limit(c, p, h) || !h->in_main[size].oldest);
    struct list *list = from_small ? &h->in_small[size] : &h->in_main[size];
    return list->oldest ? list : NULL;
}

/* Is somebody about to read it: was it loaded for that not long ago? */
static bool is_awaited(struct part *p, struct frame *f)
{
    uint32_t age = atomic_load_explicit(&p->clock, memory_order_relaxed) - atomic_load(&f->stamp);
    return (atomic_load(&f->ahead) || atomic_load(&f->freq) == FREQ_MOST) &&
           age < (p->end_slab - p->first_slab) * FRAME_BLOCKS / 2;
}

/* The first of in_small that nobody waits for; they may take a third of the holding. */
static struct frame *evict_passing(struct cache *c, struct part *p, struct holding *h, enum frame_size size)
{
    bool spare = h->small_blocks < h->main_blocks / 2;
    uint32_t number = h->in_small[size].oldest;
    for (unsigned step = 0; number && step < EVICT_STEPS; step++) {
        struct frame *f = &c->frames[number];
        number = f->newer;
        if (!(spare && is_awaited(p, f)) && frame_kill(c, p, f))
            return f;
    }
    return NULL;
}

/* Of what is kept: what is stale, or else what was used or came last.  That is not needed before the next round, where
 * what lies at the other end is still to be read in this one. */
static struct frame *evict_kept(struct cache *c, struct part *p, struct list *list)
{
    struct frame *f = &c->frames[list->oldest];
    if (!atomic_load(&f->freq) && is_stale(c, f) && frame_kill(c, p, f))
        return f;
    uint32_t number = list->newest;
    for (unsigned step = 0; number && step < EVICT_STEPS; step++) {
        f = &c->frames[number];
        number = f->older;
        if (!is_awaited(p, f) && frame_kill(c, p, f))
            return f;
    }
    number = list->oldest;
    for (unsigned step = 0; number && step < EVICT_STEPS; step++) {
        f = &c->frames[number];
        number = f->newer;
        if (frame_kill(c, p, f))
            return f;
    }
    return NULL;
}

struct frame *evict_one(struct cache *c, struct part *p, struct holding *h, enum frame_size size, enum evict how)
{
    for (unsigned step = 0; step < EVICT_STEPS; step++) {
        struct list *list = list_to_evict(c, p, h, size);
        if (h->keeping && how == EVICT_FOR_OWN) /* never what is kept */
            list = h->in_small[size].oldest ? &h->in_small[size] : NULL;
        if (how == EVICT_KEPT)
            list = h->in_main[size].oldest ? &h->in_main[size] : NULL;
        if (how == EVICT_ANY && step >= EVICT_STEPS / 2) /* all of that list may be pinned */
            list = h->in_main[size].oldest ? &h->in_main[size] : list;
        if (!list)
            return NULL;
        if (h->keeping && list == &h->in_main[size])
            return evict_kept(c, p, list);
        if (h->keeping && how != EVICT_ANY)
            return evict_passing(c, p, h, size);
        struct frame *f = &c->frames[list->oldest];
        bool from_small = f->where == IN_SMALL;
        uint8_t freq = atomic_load(&f->freq);
        if (freq && how != EVICT_ANY && !h->keeping) {
            atomic_store(&f->freq, from_small ? 0 : freq - 1);
            requeue(c, p, f, IN_MAIN);
        } else if (frame_kill(c, p, f)) {
            return f;
        } else {
            requeue(c, p, f, from_small ? IN_SMALL : IN_MAIN);
        }
    }
    return NULL;
}

/* Has the slab frames that the class keeps? */
static bool slab_is_kept(struct cache *c, struct holding *h, uint32_t slab)
{
    for (unsigned i = 0; h->keeping && i < FRAME_BLOCKS; i++) {
        struct frame *f = small_of(c, slab, i);
        if (f->where == IN_MAIN && (atomic_load(&f->freq) || !is_stale(c, f)))
            return true;
    }
    return false;
}

/* Kills what of the slab is not pinned; what is killed is free.  True: all of it. */
static bool empty_slab(struct cache *c, struct part *p, uint32_t slab)
{
    unsigned gone = 0;
    for (unsigned i = 0; i < FRAME_BLOCKS; i++) {
        struct frame *f = small_of(c, slab, i);
        if (f->where != IN_FREE) {
            if (!frame_kill(c, p, f))
                continue;
            frame_enter(c, p, f, IN_FREE);
        }
        gone++;
    }
    return gone == FRAME_BLOCKS;
}

/* The slab of this small frame, if it can be had. */
static struct frame *evict_slab_of(struct cache *c, struct part *p, struct holding *h, struct frame *f, enum evict how)
{
    uint32_t slab = slab_of(c, f);
    if ((how == EVICT_FOR_OWN && slab_is_kept(c, h, slab)) || !empty_slab(c, p, slab))
        return NULL;
    for (unsigned i = 0; i < FRAME_BLOCKS; i++)
        frame_leave(c, p, small_of(c, slab, i));
    return large_of(c, slab);
}

/* From in_main of small frames, in the order of evict_one(). */
static struct frame *slab_from_main(struct cache *c, struct part *p, struct holding *h, enum evict how)
{
    struct list *list = &h->in_main[FRAME_SMALL];
    for (unsigned tries = 0; tries < SLAB_TRIES && list->oldest; tries++) {
        struct frame *f = &c->frames[list->oldest];
        uint8_t freq = atomic_load(&f->freq);
        if (h->keeping && (freq || !is_stale(c, f)))
            f = &c->frames[list->newest];
        else if (freq && how != EVICT_ANY) {
            atomic_store(&f->freq, freq - 1);
            requeue(c, p, f, IN_MAIN);
            continue;
        }
        struct frame *large = evict_slab_of(c, p, h, f, how);
        if (large)
            return large;
        if (f->where == IN_MAIN) { /* it is pinned: to the other end */
            if (list->oldest == number_of(c, f))
                requeue(c, p, f, IN_MAIN);
            else
                return NULL;
        }
    }
    return NULL;
}

static struct frame *slab_from(struct cache *c, struct part *p, struct holding *h, struct list *list, enum evict how)
{
    for (unsigned tries = 0; tries < SLAB_TRIES && list->oldest; tries++) {
        struct frame *f = &c->frames[list->oldest];
        enum where where = f->where;
        struct frame *large = evict_slab_of(c, p, h, f, how);
        if (large)
            return large;
        if (f->where == where)
            requeue(c, p, f, where);
    }
    return NULL;
}

struct frame *evict_small_slab(struct cache *c, struct part *p, struct holding *h, enum evict how)
{
    struct list *small = &h->in_small[FRAME_SMALL];
    bool own = h->keeping && how == EVICT_FOR_OWN; /* never what is kept */
    bool small_first = own || h->small_blocks > small_limit(c, p, h) || !h->in_main[FRAME_SMALL].oldest;
    struct frame *f = small_first ? slab_from(c, p, h, small, how) : slab_from_main(c, p, h, how);
    if (!f && !own)
        f = small_first ? slab_from_main(c, p, h, how) : slab_from(c, p, h, small, how);
    return f ? f : slab_from(c, p, h, &h->free_small, how);
}

struct frame *split_slab(struct cache *c, struct part *p, struct frame *large, uint16_t class)
{
    uint32_t slab = slab_of(c, large);
    for (unsigned i = 0; i < FRAME_BLOCKS; i++) {
        struct frame *f = small_of(c, slab, i);
        atomic_fetch_or(&f->pins, FRAME_DYING);
        f->where = IN_NOTHING;
        f->class = class;
        if (i)
            frame_enter(c, p, f, IN_FREE);
    }
    return small_of(c, slab, 0);
}

uint32_t list_age(struct cache *c, struct part *p, const struct list *list)
{
    struct frame *f = list->oldest ? &c->frames[list->oldest] : NULL;
    return f ? atomic_load(&p->clock) - atomic_load_explicit(&f->stamp, memory_order_relaxed) : 0;
}
