#include "store/local/siblings.h"

#include <stdlib.h>
#include <string.h>

enum {
    SHARDS = 32,
    STREAMS = 16,
    CANDIDATES = 32,
    FILES_LEAST = 8, /* loaded at once; doubles while they are read */
    FILES_MOST = 512,
    SLACK = 16, /* inode numbers: several are made at once */
    NEAR = 8,
    /* Of how many candidates one may be the file before, and how many files in a row make a stream: in a directory of
     * a few hundred many are neighbours by chance. */
    LATEST_LISTED = 8,
    LATEST_MADE = 4,
    POINTS_LISTED = 3,
    POINTS_MADE = 4,
};

struct stream {
    uint64_t dir, last, ahead; /* in its order */
    uint32_t tree, used;
    enum sibling_order order;
    unsigned window, left, serial; /* window 0: the slot is free */
    bool loading, at_end;
};

struct candidate {
    uint64_t dir, position, ino;
    uint32_t tree, used;
    unsigned listed, made; /* points */
};

struct shard {
    _Alignas(64) int spin;
    uint32_t clock, next;
    struct stream streams[STREAMS];
    struct candidate candidates[CANDIDATES];
};

struct siblings {
    struct shard shards[SHARDS];
};

struct siblings *siblings_new(void)
{
    struct siblings *t = aligned_alloc(64, sizeof(*t));
    if (t)
        memset(t, 0, sizeof(*t));
    return t;
}

void siblings_free(struct siblings *t)
{
    free(t);
}

static struct shard *lock(struct siblings *t, uint32_t tree, uint64_t dir, bool wait)
{
    uint64_t hash = (dir ^ (uint64_t)tree << 40) * UINT64_C(0x9e3779b97f4a7c15);
    struct shard *shard = &t->shards[hash >> 59];
    while (__atomic_exchange_n(&shard->spin, 1, __ATOMIC_ACQUIRE)) {
        if (!wait)
            return NULL;
    }
    return shard;
}

static void unlock(struct shard *shard)
{
    __atomic_store_n(&shard->spin, 0, __ATOMIC_RELEASE);
}

/* ---- streams ---- */

static uint64_t key_of(enum sibling_order order, const struct sibling *s)
{
    return order == SIBLINGS_LISTED ? s->position : s->ino;
}

static bool in_stream(const struct stream *d, const struct sibling *s)
{
    uint64_t slack = d->order == SIBLINGS_MADE ? SLACK : 0, key = key_of(d->order, s);
    return d->window && d->dir == s->dir && d->tree == s->tree && key + slack > d->last && key <= d->ahead + slack;
}

static bool plan_of(struct shard *shard, struct stream *d, struct siblings_plan *plan)
{
    if (d->loading || d->at_end || d->left > d->window / 2)
        return false;
    d->loading = true;
    d->window = d->window * 2 < FILES_MOST ? d->window * 2 : FILES_MOST;
    *plan = (struct siblings_plan){
        .order = d->order,
        .dir = d->dir,
        .after = d->ahead,
        .tree = d->tree,
        .files = d->window - (d->left < d->window ? d->left : d->window),
        .slot = (unsigned)(d - shard->streams),
        .serial = d->serial,
    };
    return true;
}

bool siblings_advance(struct siblings *t, const struct sibling *s, struct siblings_plan *plan, bool *load)
{
    struct shard *shard = lock(t, s->tree, s->dir, false);
    bool known = false;
    *load = false;
    if (!shard)
        return true; /* whoever is there now: the next file will tell */
    for (struct stream *d = shard->streams; d < shard->streams + STREAMS; d++) {
        if (!in_stream(d, s))
            continue;
        uint64_t key = key_of(d->order, s);
        d->used = ++shard->clock;
        d->last = key > d->last ? key : d->last;
        d->ahead = d->last > d->ahead ? d->last : d->ahead;
        d->left -= d->left > 0;
        *load = plan_of(shard, d, plan);
        known = true;
        break;
    }
    unlock(shard);
    return known;
}

static bool begin(struct shard *shard, const struct sibling *s, enum sibling_order order, struct siblings_plan *plan)
{
    struct stream *oldest = shard->streams;
    for (struct stream *d = shard->streams; d < shard->streams + STREAMS && oldest->window; d++) {
        if (!d->window || shard->clock - d->used > shard->clock - oldest->used)
            oldest = d;
    }
    *oldest = (struct stream){
        .dir = s->dir,
        .tree = s->tree,
        .last = key_of(order, s),
        .ahead = key_of(order, s),
        .order = order,
        .used = shard->clock,
        .window = FILES_LEAST / 2,
        .serial = oldest->serial + 1,
    };
    return plan_of(shard, oldest, plan);
}

void siblings_loaded(struct siblings *t, const struct siblings_plan *plan, uint64_t last, unsigned files)
{
    struct shard *shard = lock(t, plan->tree, plan->dir, true);
    struct stream *d = &shard->streams[plan->slot];
    if (d->serial == plan->serial && d->loading) {
        d->loading = false;
        d->at_end = last == 0;
        d->ahead = last > d->ahead ? last : d->ahead;
        d->left += files;
    }
    unlock(shard);
}

/* ---- candidates ---- */

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a < b ? b - a : a - b;
}

static bool is_of(const struct candidate *c, const struct sibling *s)
{
    return c->dir == s->dir && c->tree == s->tree && c->ino != s->ino;
}

/* The candidate nearest before it in the listing, and one of those read just now that was made at about the same
 * time. */
static void neighbours(struct shard *shard, const struct sibling *s, struct candidate **listed, struct candidate **made)
{
    *listed = *made = NULL;
    for (struct candidate *c = shard->candidates; c < shard->candidates + CANDIDATES; c++) {
        if (!is_of(c, s))
            continue;
        if (shard->clock - c->used < LATEST_LISTED && c->position < s->position &&
            (!*listed || c->position > (*listed)->position))
            *listed = c;
        if (shard->clock - c->used < LATEST_MADE && distance(c->ino, s->ino) <= NEAR &&
            (!*made || c->made > (*made)->made))
            *made = c;
    }
}

enum siblings_answer siblings_candidate(struct siblings *t, const struct sibling *s, uint64_t *before,
                                        struct siblings_plan *plan)
{
    struct shard *shard = lock(t, s->tree, s->dir, false);
    struct candidate *listed, *made;
    enum siblings_answer answer = SIBLINGS_NOTHING;
    if (!shard)
        return answer;
    neighbours(shard, s, &listed, &made);
    unsigned points = made ? made->made + 1 : 0;
    if (listed) {
        *before = listed->position;
        answer = SIBLINGS_ASK;
    }
    shard->candidates[shard->next++ % CANDIDATES] = (struct candidate){
        .dir = s->dir, .tree = s->tree, .position = s->position, .ino = s->ino, .used = ++shard->clock, .made = points};
    if (points >= POINTS_MADE)
        answer = begin(shard, s, SIBLINGS_MADE, plan) ? SIBLINGS_LOAD : SIBLINGS_NOTHING;
    unlock(shard);
    return answer;
}

bool siblings_follow(struct siblings *t, const struct sibling *s, uint64_t before, struct siblings_plan *plan)
{
    struct shard *shard = lock(t, s->tree, s->dir, true);
    struct candidate *own = NULL;
    unsigned points = 1;
    for (struct candidate *c = shard->candidates; c < shard->candidates + CANDIDATES; c++) {
        if (c->dir != s->dir || c->tree != s->tree)
            continue;
        if (c->position == before)
            points = c->listed + 1;
        if (c->position == s->position)
            own = c;
    }
    if (own)
        own->listed = points;
    bool load = points >= POINTS_LISTED && begin(shard, s, SIBLINGS_LISTED, plan);
    unlock(shard);
    return load;
}
