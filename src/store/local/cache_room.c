/* Who gives room for a new frame.
 *
 * While there are slabs that nobody uses, one of those.  A class that holds as much as it may takes from itself.
 * Otherwise what was used once goes first, from the class with the most of it beyond its limit: so a scan passes
 * through a small part of the cache, whoever scans.  Then, of what was used again or is kept, what has lain unused
 * longest, whosesoever; a class's own is preferred until another's is twice as old.  What a class keeps is not taken
 * for new data of its own, unless nobody has read it for three rounds through the data or since the data changed. */
#include "store/local/cache_private.h"

enum {
    LOOKED_AT = 16, /* holdings of other classes */
    ROUNDS = 12,
    ROUNDS_GENTLE = 8, /* then what is in use goes as well */
    SETTLE_STEPS = 64,
    SWEEP_STEPS = 4,
    OVER_STEPS = 4,
};

/* How long what is least used of in_main has not been used.  What is kept is read once a round, so that half of its age
 * says as much. */
static uint32_t oldest_age(struct cache *c, struct part *p, struct holding *h)
{
    uint32_t small = list_age(c, p, &h->in_main[FRAME_SMALL]), large = list_age(c, p, &h->in_main[FRAME_LARGE]);
    return (small > large ? small : large) / (h->keeping ? 2 : 1);
}

/* Of this size, whether it was used again or not. */
static uint32_t age_of(struct cache *c, struct part *p, struct holding *h, enum frame_size size)
{
    return list_age(c, p, h->in_small[size].oldest ? &h->in_small[size] : &h->in_main[size]);
}

static bool over_bound(struct cache *c, const struct cache_class *class, uint32_t more)
{
    uint64_t held = atomic_load_explicit(&class->held, memory_order_relaxed);
    return held + more > class_bound(c, class);
}

/* Of what was used once; of a tree that is deleted it is everything. */
static uint32_t surplus(struct cache *c, struct part *p, struct holding *h)
{
    struct cache_class *class = class_of(c, p, h);
    bool keeps = atomic_load_explicit(&class->keeping, memory_order_relaxed);
    uint32_t limit = small_limit(c, p, h);
    if (atomic_load_explicit(&class->gone, memory_order_relaxed))
        return h->small_blocks + h->main_blocks;
    if (keeps && (h->settling || !h->keeping))
        return 0;
    return h->small_blocks > limit ? h->small_blocks - limit : 0;
}

/* The holding that gives room to `own`; may be `own` itself.  NULL: nobody has anything. */
static struct holding *victim(struct cache *c, struct part *p, struct holding *own)
{
    struct holding *most = NULL, *oldest = NULL, *any = NULL;
    uint32_t most_over = surplus(c, p, own), own_age = oldest_age(c, p, own), age = own_age * 2 + FRAME_BLOCKS;
    if (most_over)
        most = own;
    for (unsigned i = 0; i < LOOKED_AT && i < p->holdings; i++) {
        struct holding *h = holding_of(c, p, p->turn);
        p->turn = h->next;
        if (h == own)
            continue;
        any = h;
        uint32_t over = surplus(c, p, h), main = oldest_age(c, p, h);
        /* A little too much is left to it, or the two would take the same frame from each other for ever. */
        if (over > most_over && over > small_limit(c, p, h) / 2) {
            most_over = over;
            most = h;
        }
        if (main > age) {
            age = main;
            oldest = h;
        }
    }
    if (most || oldest)
        return most ? most : oldest;
    return own->listed ? own : any;
}

static struct frame *slab_for(struct cache *c, struct part *p, struct frame *slab, uint16_t class,
                              enum frame_size size)
{
    if (!slab || size == FRAME_SMALL)
        return slab ? split_slab(c, p, slab, class) : NULL;
    slab->class = class;
    return slab;
}

static struct frame *evict_as_slab(struct cache *c, struct part *p, struct holding *h, enum frame_size size,
                                   enum evict how)
{
    return size == FRAME_LARGE ? evict_one(c, p, h, FRAME_LARGE, how) : evict_small_slab(c, p, h, how);
}

/* A frame of this size, of what the holding's own class has. */
static struct frame *from_own(struct cache *c, struct part *p, struct holding *h, enum frame_size size,
                              enum evict how)
{
    uint16_t class = class_number(c, class_of(c, p, h));
    enum frame_size other = size == FRAME_SMALL ? FRAME_LARGE : FRAME_SMALL;
    bool has = h->in_main[size].oldest || h->in_small[size].oldest;
    struct frame *f = NULL;
    if (!has || (!h->keeping && age_of(c, p, h, other) > age_of(c, p, h, size) * 2 + FRAME_BLOCKS))
        f = slab_for(c, p, evict_as_slab(c, p, h, other, how), class, size);
    if (!f)
        f = evict_one(c, p, h, size, how);
    return f ? f : slab_for(c, p, evict_as_slab(c, p, h, other, how), class, size);
}

/* The same of another class's. */
static struct frame *from_other(struct cache *c, struct part *p, struct holding *h, struct holding *own,
                                enum frame_size size, enum evict how)
{
    uint32_t small = h->in_small[FRAME_SMALL].count + h->in_main[FRAME_SMALL].count;
    uint32_t large = h->in_small[FRAME_LARGE].count + h->in_main[FRAME_LARGE].count;
    enum frame_size first = list_age(c, p, &h->in_main[FRAME_SMALL]) > list_age(c, p, &h->in_main[FRAME_LARGE])
                                ? FRAME_SMALL
                                : FRAME_LARGE;
    if (surplus(c, p, h))
        first = h->in_small[FRAME_SMALL].count > h->in_small[FRAME_LARGE].count * FRAME_BLOCKS ? FRAME_SMALL
                                                                                              : FRAME_LARGE;
    if (!small != !large || h->free_small.count >= FRAME_BLOCKS)
        first = large ? FRAME_LARGE : FRAME_SMALL;
    struct frame *slab = evict_as_slab(c, p, h, first, how);
    if (!slab)
        slab = evict_as_slab(c, p, h, first == FRAME_SMALL ? FRAME_LARGE : FRAME_SMALL, how);
    return slab_for(c, p, slab, class_number(c, class_of(c, p, own)), size);
}

/* A slab that nobody uses, as its large frame. */
static struct frame *free_slab(struct cache *c, struct part *p)
{
    struct frame *f;
    if (p->free_slabs.oldest) {
        f = &c->frames[p->free_slabs.oldest];
        list_remove(c, &p->free_slabs, f);
        return f;
    }
    if (p->fresh_slab == p->end_slab)
        return NULL;
    f = &c->frames[1 + p->fresh_slab++];
    atomic_fetch_add_explicit(&c->slabs_taken, 1, memory_order_relaxed);
    atomic_fetch_or(&f->pins, FRAME_DYING);
    f->where = IN_NOTHING;
    return f;
}

static struct frame *free_small(struct cache *c, struct part *p, struct holding *h)
{
    struct frame *f = h->free_small.oldest ? &c->frames[h->free_small.oldest] : NULL;
    if (f)
        frame_leave(c, p, f);
    return f;
}

/* ---- a class that keeps ---- */

/* Marks what was used since it was looked at last, so that the oldest of in_main is what was not.  Is that stale?  When
 * the data has changed it looks further, for then what is new lies among what is old. */
static bool sweep(struct cache *c, struct part *p, struct holding *h, enum frame_size size)
{
    const struct cache_class *class = class_of(c, p, h);
    uint32_t now = atomic_load_explicit(&class->clock, memory_order_relaxed);
    for (unsigned step = 0; step < SWEEP_STEPS && h->in_main[size].oldest; step++) {
        struct frame *f = &c->frames[h->in_main[size].oldest];
        uint32_t stamp = atomic_load(&f->stamp);
        bool used = atomic_exchange(&f->freq, 0);
        if (!used && now - atomic_load_explicit(&f->seen, memory_order_relaxed) >
                         atomic_load_explicit(&class->stale_after, memory_order_relaxed))
            return true;
        if (!used && !atomic_load_explicit(&class->changed, memory_order_relaxed))
            return false;
        frame_leave(c, p, f);
        frame_enter(c, p, f, IN_MAIN);
        if (!used)
            atomic_store(&f->stamp, stamp);
    }
    return false;
}

/* When a class begins to keep, it keeps what it has. */
static void settle(struct cache *c, struct part *p, struct holding *h)
{
    bool keeps = atomic_load_explicit(&class_of(c, p, h)->keeping, memory_order_relaxed);
    if (keeps != h->keeping) {
        h->keeping = keeps;
        h->settling = keeps;
    }
    for (unsigned step = 0; h->settling && step < SETTLE_STEPS; step++) {
        struct list *list = &h->in_small[step % 2 ? FRAME_SMALL : FRAME_LARGE];
        if (!list->oldest)
            list = &h->in_small[step % 2 ? FRAME_LARGE : FRAME_SMALL];
        if (h->small_blocks <= small_limit(c, p, h)) {
            h->settling = false;
            break;
        }
        struct frame *f = &c->frames[list->oldest];
        frame_leave(c, p, f);
        frame_enter(c, p, f, IN_MAIN);
    }
}

/* One frame of in_main, when it is stale. */
static struct frame *from_stale(struct cache *c, struct part *p, struct holding *h, enum frame_size size)
{
    enum frame_size other = size == FRAME_SMALL ? FRAME_LARGE : FRAME_SMALL;
    bool own = sweep(c, p, h, size), others = sweep(c, p, h, other);
    if (own) {
        struct frame *f = &c->frames[h->in_main[size].oldest];
        if (frame_kill(c, p, f))
            return f;
    }
    if (!others)
        return NULL;
    struct frame *f = &c->frames[h->in_main[other].oldest];
    uint16_t class = class_number(c, class_of(c, p, h));
    if (other == FRAME_SMALL)
        return slab_for(c, p, evict_small_slab(c, p, h, EVICT_FOR_OWN), class, size);
    return frame_kill(c, p, f) ? slab_for(c, p, f, class, size) : NULL;
}

/* Room that its own class gives to new data; *where says what for. */
static struct frame *keeper_gives(struct cache *c, struct part *p, struct holding *h, enum frame_size size,
                                  enum where *where, enum evict how)
{
    uint32_t limit = small_limit(c, p, h);
    struct frame *f = from_stale(c, p, h, size);
    h->full = true;
    *where = IN_MAIN;
    if (f)
        return f;
    if (h->small_blocks <= limit)
        *where = IN_SMALL;
    if (h->small_blocks + h->free_small.count + FRAME_BLOCKS <= limit)
        how = EVICT_KEPT; /* the room that data passes through has to come from somewhere */
    f = from_own(c, p, h, size, how);
    return f || how != EVICT_FOR_OWN ? f : from_own(c, p, h, size, EVICT_KEPT);
}

/* ---- making a frame ---- */

/* Room that was not its own before: what a class that keeps puts there is kept. */
static struct frame *room_taken(struct holding *own, struct frame *f, enum where *where)
{
    if (f && own->keeping) {
        own->full = false;
        *where = IN_MAIN;
    }
    return f;
}

static struct frame *take_room(struct cache *c, struct part *p, struct holding *own, enum frame_size size,
                               bool over, enum where *where)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        enum evict gently = round < ROUNDS_GENTLE ? EVICT_FOR_OTHERS : EVICT_ANY;
        struct holding *h = over && own->listed && round < ROUNDS_GENTLE ? own : victim(c, p, own);
        struct frame *f = NULL;
        if (!h)
            return NULL;
        if (h != own)
            f = room_taken(own, from_other(c, p, h, own, size, gently), where);
        else if (own->keeping)
            f = keeper_gives(c, p, own, size, where, gently == EVICT_ANY ? gently : EVICT_FOR_OWN);
        else
            f = from_own(c, p, own, size, gently == EVICT_ANY ? gently : EVICT_FOR_OWN);
        if (f)
            return f;
        p->turn = p->holdings ? holding_of(c, p, p->turn)->next : p->turn;
    }
    return NULL;
}

static struct frame *find_room(struct cache *c, struct part *p, struct cache_class *class, enum frame_size size,
                               enum where *where)
{
    struct holding *own = holding_of(c, p, class_number(c, class));
    uint32_t blocks = size == FRAME_LARGE ? FRAME_BLOCKS : 1;
    bool over = over_bound(c, class, blocks);
    struct frame *f = NULL;
    if (!own->listed)
        own->keeping = atomic_load_explicit(&class->keeping, memory_order_relaxed);
    settle(c, p, own);
    if (own->keeping)
        *where = own->full && own->small_blocks < small_limit(c, p, own) ? IN_SMALL : IN_MAIN;
    if (over)
        cache_shrink(c, p, class, OVER_STEPS - 1);
    if (!over && size == FRAME_SMALL)
        f = free_small(c, p, own);
    if (!f && (!over || !own->listed))
        f = room_taken(own, slab_for(c, p, free_slab(c, p), class_number(c, class), size), where);
    return f ? f : take_room(c, p, own, size, over, where);
}

struct frame *cache_insert(struct cache *c, struct part *p, struct cache_class *class, uint64_t key,
                           enum frame_size size)
{
    enum where where = ghost_take(p, key, class_number(c, class)) ? IN_MAIN : IN_SMALL;
    struct frame *f = find_room(c, p, class, size, &where);
    if (!f)
        return NULL;
    uint32_t blocks = size == FRAME_LARGE ? FRAME_BLOCKS : 1;
    atomic_fetch_add_explicit(&p->clock, blocks, memory_order_relaxed);
    atomic_fetch_add_explicit(&class->held, blocks, memory_order_relaxed);
    p->used_blocks += blocks;
    atomic_store(&f->freq, 0);
    atomic_store(&f->valid, 0);
    atomic_store(&f->loading, 0);
    atomic_store(&f->key, key);
    atomic_store(&f->seen, atomic_load(&class->clock));
    frame_enter(c, p, f, where);
    /* Look-ups that came by meanwhile have added to it and will take that back. */
    atomic_fetch_sub(&f->pins, FRAME_DYING - 1);
    chain_insert(c, p, f, key);
    return f;
}

bool cache_shrink(struct cache *c, struct part *p, struct cache_class *class, unsigned most)
{
    struct holding *h = holding_of(c, p, class_number(c, class));
    unsigned done = 0;
    for (; done < most && h->listed && over_bound(c, class, 0); done++) {
        bool large = h->in_small[FRAME_LARGE].oldest || (h->in_main[FRAME_LARGE].oldest && done % 2 == 0);
        struct frame *slab = evict_as_slab(c, p, h, large ? FRAME_LARGE : FRAME_SMALL, EVICT_FOR_OTHERS);
        if (!slab)
            slab = evict_as_slab(c, p, h, large ? FRAME_SMALL : FRAME_LARGE, EVICT_FOR_OTHERS);
        if (!slab)
            break;
        slab->where = IN_NOTHING;
        list_push(c, &p->free_slabs, slab);
    }
    return done;
}

void cache_drop_small(struct cache *c, struct part *p, struct frame *f)
{
    if (frame_kill(c, p, f))
        frame_enter(c, p, f, IN_FREE);
}
