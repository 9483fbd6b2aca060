/* What AUTO goes by: for each class two caches in miniature, one with each policy, that see a fixed part of all reads
 * (by place, so that they see all reads of what they see).  Whichever has had more hits lately is what the class does.
 *
 * The same samples tell how many reads make one round through the data: a round ends when half of what it read was read
 * in it before, and its size is how much it has read.  What is kept is given up when it was not read for three rounds,
 * or not since a change of the data: that is when nothing that was read lately is read again.
 *
 * A class's samples are at most SIM_ENTRIES runs; when they become more it watches half as many from then on. */
#include <stdlib.h>

#include "store/local/cache_private.h"

enum {
    SIM_ENTRIES = 2048,
    SIM_BUCKETS = 2048,
    SIMS_MOST = 512,  /* classes that have one; further ones do not keep by themselves */
    GHOSTS = 4,       /* what left the miniature within so many times its size is remembered */
    LOOK_EVERY = 32,
    AGING_STEPS = SIM_ENTRIES / 8,
    EVIDENCE = 64,    /* samples before anything is decided */
    CHANCE = 8,       /* hits that one has more by chance */
    AGED_AFTER = 4,   /* rounds without a read: not part of the data any more */
    STALE_AFTER = 3,
    AGAIN_LEAST = 50,  /* one in so many reads of something seen before: the data is read again */
    AGAIN_OFTEN = 2,   /* so many: it has been read again often enough that new data means a change */
};

struct entry {
    uint32_t hash;   /* 0: not in use */
    uint32_t last;   /* the clock when it was read */
    uint32_t round;  /* in which it was read */
    uint32_t ghost;  /* the count of misses when it left the small list; 0: it did not */
    uint16_t next;   /* of its bucket */
    uint16_t older, newer;
    uint8_t where;   /* in the miniature of LRU */
    uint8_t freq;
    bool kept;       /* in the miniature of EPOCH */
};

struct entries {
    uint16_t oldest, newest, count;
};

struct score { /* halved now and then */
    uint32_t reads, lru_hits, keep_hits;
};

struct sim {
    uint32_t limit; /* hashes below it are samples */
    uint32_t clock, misses;
    uint32_t room;  /* entries that the class has RAM for */
    uint32_t count, kept;
    uint16_t hand, aging, unused;
    struct entries small, main;
    struct score lately, longer; /* what is decided by: about half a round, and two */
    uint32_t round, round_size, round_again, before_size; /* this round's number, and the size of the one before */
    uint32_t window_reads, window_again, window_start;
    bool settled, changed;
    uint32_t changed_at; /* the clock */
    uint16_t buckets[SIM_BUCKETS];
    struct entry at[SIM_ENTRIES + 1]; /* [0] is none */
};

static uint32_t size_of_round(const struct sim *s)
{
    return s->round_size > s->before_size ? s->round_size : s->before_size;
}

/* In samples. */
static uint32_t stale_after(const struct sim *s)
{
    uint32_t rounds = size_of_round(s) * STALE_AFTER, since = s->clock - s->changed_at;
    return s->changed_at && since < rounds ? since : rounds;
}

/* ---- entries ---- */

static void push(struct sim *s, struct entries *list, uint16_t number)
{
    struct entry *e = &s->at[number];
    e->newer = 0;
    e->older = list->newest;
    if (list->newest)
        s->at[list->newest].newer = number;
    else
        list->oldest = number;
    list->newest = number;
    list->count++;
    e->where = list == &s->small ? IN_SMALL : IN_MAIN;
}

static void pull(struct sim *s, uint16_t number)
{
    struct entry *e = &s->at[number];
    if (e->where == IN_NOTHING)
        return;
    struct entries *list = e->where == IN_SMALL ? &s->small : &s->main;
    if (e->newer)
        s->at[e->newer].older = e->older;
    else
        list->newest = e->older;
    if (e->older)
        s->at[e->older].newer = e->newer;
    else
        list->oldest = e->newer;
    list->count--;
    e->where = IN_NOTHING;
}

static uint16_t *bucket(struct sim *s, uint32_t hash)
{
    return &s->buckets[(hash ^ hash >> 11) % SIM_BUCKETS];
}

static uint16_t find(struct sim *s, uint32_t hash)
{
    uint16_t number = *bucket(s, hash);
    while (number && s->at[number].hash != hash)
        number = s->at[number].next;
    return number;
}

static void drop(struct sim *s, uint16_t number)
{
    struct entry *e = &s->at[number];
    uint16_t *link = bucket(s, e->hash);
    pull(s, number);
    while (*link != number)
        link = &s->at[*link].next;
    *link = e->next;
    s->kept -= e->kept;
    s->count--;
    *e = (struct entry){.next = s->unused, .where = IN_NOTHING};
    s->unused = number;
}

static uint16_t make(struct sim *s, uint32_t hash)
{
    uint16_t number = s->unused;
    struct entry *e = &s->at[number];
    s->unused = e->next;
    *e = (struct entry){.hash = hash, .next = *bucket(s, hash), .where = IN_NOTHING};
    *bucket(s, hash) = number;
    s->count++;
    return number;
}

static void score_halve(struct score *score)
{
    score->reads /= 2;
    score->lru_hits /= 2;
    score->keep_hits /= 2;
}

/* Half as many runs are watched from now on. */
static void thin(struct sim *s)
{
    s->limit /= 2;
    s->room /= 2;
    for (uint16_t i = 1; i <= SIM_ENTRIES; i++) {
        if (s->at[i].hash >= s->limit)
            drop(s, i);
        else
            s->at[i].last = s->clock - (s->clock - s->at[i].last) / 2;
    }
    score_halve(&s->lately);
    score_halve(&s->longer);
    s->round_size /= 2;
    s->round_again /= 2;
    s->before_size /= 2;
    s->window_reads = s->window_again = 0;
}

/* ---- the miniatures ---- */

static void lru_evict(struct sim *s)
{
    while ((uint32_t)s->small.count + s->main.count > s->room) {
        bool from_small = s->small.count * 10u > s->room || !s->main.count;
        uint16_t number = from_small ? s->small.oldest : s->main.oldest;
        struct entry *e = &s->at[number];
        pull(s, number);
        if (e->freq) {
            e->freq = from_small ? 0 : e->freq - 1;
            push(s, &s->main, number);
        } else if (from_small) {
            e->ghost = s->misses;
        }
    }
}

static void lru_read(struct sim *s, uint16_t number)
{
    struct entry *e = &s->at[number];
    if (e->where != IN_NOTHING) {
        e->freq += e->freq < FREQ_MOST;
        s->lately.lru_hits++;
        s->longer.lru_hits++;
        return;
    }
    bool back = e->ghost && ++s->misses - e->ghost < GHOSTS * s->room;
    s->misses += !back;
    e->ghost = 0;
    e->freq = 0;
    push(s, back ? &s->main : &s->small, number);
    lru_evict(s);
}


static void keep_read(struct sim *s, uint16_t number)
{
    struct entry *e = &s->at[number];
    if (e->kept) {
        s->lately.keep_hits++;
        s->longer.keep_hits++;
        return;
    }
    for (unsigned step = 0; step < 2 && s->kept >= s->room && s->kept; step++) {
        s->hand = s->hand % SIM_ENTRIES + 1;
        struct entry *old = &s->at[s->hand];
        if (old->kept && (s->kept > s->room || s->clock - old->last > stale_after(s))) {
            old->kept = false;
            s->kept--;
        }
    }
    if (s->kept < s->room) {
        e->kept = true;
        s->kept++;
    }
}

/* ---- deciding ---- */

static uint32_t room_of(struct cache *c, struct cache_class *class, uint32_t limit)
{
    uint64_t all = (uint64_t)c->slabs * FRAME_BLOCKS, bound = class_bound(c, class);
    uint64_t unused = all - (uint64_t)atomic_load(&c->slabs_taken) * FRAME_BLOCKS;
    uint64_t blocks = atomic_load(&class->held) + unused;
    blocks = blocks < all / 8 ? all / 8 : blocks;
    blocks = blocks < bound ? blocks : bound;
    return (uint32_t)(blocks / FRAME_BLOCKS * ((uint64_t)limit + 1) >> 32);
}

static bool more_hits(uint32_t these, uint32_t others, uint32_t reads)
{
    return these > others + others / 16 + reads / 64 + CHANCE;
}

/* The wrong one of the two costs most where data is read in rounds, so it takes two rounds to be talked out of that. */
static void decide(struct cache_class *class, const struct sim *s)
{
    const struct score *lately = &s->lately, *longer = &s->longer;
    bool keeping = atomic_load(&class->keeping);
    if (atomic_load(&class->policy) != STORE_CACHE_AUTO || lately->reads < EVIDENCE)
        return;
    if (!keeping)
        keeping = more_hits(lately->keep_hits, lately->lru_hits, lately->reads);
    else if (more_hits(lately->lru_hits, lately->keep_hits, lately->reads))
        keeping = !more_hits(longer->lru_hits, longer->keep_hits, longer->reads);
    atomic_store(&class->keeping, keeping);
}

static void look(struct cache *c, struct cache_class *class, struct sim *s)
{
    s->room = room_of(c, class, s->limit);
    lru_evict(s);
    for (unsigned i = 0; i < AGING_STEPS; i++) {
        s->aging = s->aging % SIM_ENTRIES + 1;
        struct entry *e = &s->at[s->aging];
        uint32_t most = s->changed ? s->clock - s->changed_at : AGED_AFTER * size_of_round(s);
        if (e->hash && s->clock - e->last > most + EVIDENCE)
            drop(s, s->aging);
    }
    if (s->count < SIM_ENTRIES / 4 && s->limit < c->sample_limit / 2) {
        s->limit = s->limit * 2 + 1;
        s->room = room_of(c, class, s->limit);
    }
    decide(class, s);
    if (s->lately.reads > EVIDENCE && s->lately.reads > size_of_round(s) / 2)
        score_halve(&s->lately);
    if (s->longer.reads > EVIDENCE * 4 && s->longer.reads > size_of_round(s) * 2)
        score_halve(&s->longer);
    if (s->window_reads >= LOOK_EVERY && s->window_reads >= size_of_round(s) / 16) {
        bool again = s->window_again * AGAIN_LEAST >= s->window_reads;
        s->settled = s->settled || s->window_again * AGAIN_OFTEN >= s->window_reads;
        if (!again && s->settled && !s->changed)
            s->changed_at = s->window_start;
        s->changed = s->settled && !again;
        s->window_start = s->clock;
        s->window_reads = s->window_again = 0;
    }
    atomic_store_explicit(&class->stale_after, stale_after(s), memory_order_relaxed);
    atomic_store_explicit(&class->changed, stale_after(s) < size_of_round(s) * STALE_AFTER, memory_order_relaxed);
}

static void count_round(struct sim *s, struct entry *e)
{
    if (e->round == s->round && s->round)
        s->round_again++;
    else
        s->round_size++;
    if (!s->round || (s->round_again >= s->round_size && s->round_again >= EVIDENCE)) {
        s->before_size = s->round ? s->round_size : 0;
        s->round_size = s->round_again = 0;
        s->round++;
    }
    e->round = s->round;
}

static void read_sample(struct cache *c, struct cache_class *class, struct sim *s, uint32_t hash)
{
    uint16_t number = find(s, hash);
    if (number && s->clock - s->at[number].last < s->room / 16 + 1)
        return; /* the same use: a call looks for its data more than once */
    while (!number && s->count >= SIM_ENTRIES) {
        thin(s);
        if (hash >= s->limit)
            return;
    }
    s->clock++;
    s->lately.reads++;
    s->longer.reads++;
    s->window_reads++;
    s->window_again += number && s->clock - s->at[number].last < AGED_AFTER * size_of_round(s);
    if (!number)
        number = make(s, hash);
    s->at[number].last = s->clock;
    count_round(s, &s->at[number]);
    lru_read(s, number);
    keep_read(s, number);
    atomic_store_explicit(&class->clock, s->clock, memory_order_relaxed);
    if (s->clock % LOOK_EVERY == 0)
        look(c, class, s);
}

static struct sim *sim_open(struct cache *c, struct cache_class *class)
{
    struct sim *s = NULL;
    if (atomic_fetch_add(&c->sims, 1) < SIMS_MOST)
        s = calloc(1, sizeof(*s));
    if (!s) {
        atomic_fetch_sub(&c->sims, 1);
        return NULL;
    }
    s->limit = c->sample_limit;
    s->room = room_of(c, class, s->limit);
    s->clock = atomic_load(&class->clock);
    for (uint16_t i = SIM_ENTRIES; i; i--) {
        s->at[i] = (struct entry){.next = s->unused, .where = IN_NOTHING};
        s->unused = i;
    }
    atomic_store(&class->sim, s);
    return s;
}

void cache_sample(struct cache *c, struct cache_class *class, uint32_t hash, place_t place, unsigned count)
{
    if ((hash % FRAME_BLOCKS - place % FRAME_BLOCKS) % FRAME_BLOCKS >= count || !hash)
        return;
    if (__atomic_exchange_n(&class->spin, 1, __ATOMIC_ACQUIRE))
        return; /* one sample less */
    struct sim *s = atomic_load(&class->sim);
    if (!s)
        s = sim_open(c, class);
    if (s && hash < s->limit)
        read_sample(c, class, s, hash);
    spin_give(&class->spin);
}

void cache_sample_free(struct cache_class *class)
{
    free(atomic_load(&class->sim));
}

void cache_pick(struct cache_class *class)
{
    spin_take(&class->spin);
    enum store_cache_policy policy = atomic_load(&class->policy);
    if (policy != STORE_CACHE_AUTO)
        atomic_store(&class->keeping, policy == STORE_CACHE_EPOCH);
    else if (atomic_load(&class->sim))
        decide(class, atomic_load(&class->sim));
    spin_give(&class->spin);
}
