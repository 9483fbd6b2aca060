#include "store/local/streams.h"

#include <stdlib.h>
#include <string.h>

enum {
    SHARDS = 64,
    STREAMS = 32,    /* of a shard; of one file too */
    CANDIDATES = 64, /* READs that may be the beginning of one */
    RECENT = 8,      /* notes of the shard after which only what goes on exactly still counts */
    GAP = 128 << 10, /* what small READs of a stream may skip */
    GAP_MOST = 4 << 20,
    BACK = 4 << 20, /* how far behind the head READs of a stream may come */
    ROUND = 256 << 10,
    /* Points of a READ that follows, and how many make a stream: three large READs in a row, or four small ones, or
     * seven with gaps.  Two are not enough: of random READs of a small file many happen to be neighbours. */
    EXACT_LARGE = 4,
    EXACT_SMALL = 2,
    NEAR_LARGE = 2,
    NEAR_SMALL = 1,
    POINTS = 6,
};

struct stream {
    uint64_t ino, head, ahead; /* the end of what was read, and of what was loaded */
    uint32_t tree, used;
    uint64_t window; /* 0: the slot is free */
};

struct candidate {
    uint64_t ino, start, end;
    uint32_t tree, used;
    unsigned points;
};

struct shard {
    _Alignas(64) int spin;
    uint32_t clock, next;
    struct stream streams[STREAMS];
    struct candidate candidates[CANDIDATES];
};

struct streams {
    struct shard shards[SHARDS];
};

struct streams *streams_new(void)
{
    struct streams *t = aligned_alloc(64, sizeof(*t));
    if (t)
        memset(t, 0, sizeof(*t));
    return t;
}

void streams_free(struct streams *t)
{
    free(t);
}

static uint64_t bounded(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a < b ? b - a : a - b;
}

/* ---- streams ---- */

static bool in_stream(const struct stream *s, const struct stream_read *r)
{
    uint64_t reach = bounded((r->end - r->offset) * 2, GAP, GAP_MOST);
    return s->window && s->ino == r->ino && s->tree == r->tree && r->offset <= s->ahead + reach &&
           r->end + BACK >= s->head;
}

static struct stream *find_stream(struct shard *shard, const struct stream_read *r)
{
    struct stream *best = NULL;
    for (struct stream *s = shard->streams; s < shard->streams + STREAMS; s++) {
        if (in_stream(s, r) &&
            (!best || distance(r->offset, s->head) < distance(r->offset, best->head)))
            best = s;
    }
    return best;
}

/* Loads on when half of the window is used up; then the next window is twice as wide. */
static bool advance(struct stream *s, const struct stream_read *r, uint64_t *from, uint64_t *to)
{
    if (s->head < r->end)
        s->head = r->end;
    if (s->ahead < s->head)
        s->ahead = s->head;
    if (s->ahead - s->head > s->window / 2 || s->ahead >= r->size || !r->room)
        return false;
    uint64_t end = s->head + s->window;
    end = (end + ROUND - 1) / ROUND * ROUND;
    if (end - s->ahead > r->room)
        end = s->ahead + r->room;
    else
        s->window = bounded(s->window * 2, STREAM_WINDOW_LEAST, STREAM_WINDOW_MOST);
    *from = s->ahead;
    *to = end < r->size ? end : r->size;
    s->ahead = *to;
    return true;
}

static struct stream *new_stream(struct shard *shard, const struct stream_read *r)
{
    struct stream *oldest = shard->streams;
    for (struct stream *s = shard->streams; s < shard->streams + STREAMS && oldest->window; s++) {
        if (!s->window || shard->clock - s->used > shard->clock - oldest->used)
            oldest = s;
    }
    uint64_t length = r->end - r->offset;
    *oldest = (struct stream){
        .ino = r->ino,
        .tree = r->tree,
        .head = r->end,
        .ahead = r->end,
        .window = bounded(length * 2, STREAM_WINDOW_LEAST, STREAM_WINDOW_MOST / 4),
    };
    return oldest;
}

/* ---- candidates ---- */

/* Points of a READ for following the candidate; -1: has nothing to do with it. */
static int follows(const struct shard *shard, const struct candidate *c, const struct stream_read *r)
{
    uint64_t length = r->end - r->offset;
    bool large = length >= STREAM_LARGE;
    if (c->ino != r->ino || c->tree != r->tree || !c->end)
        return -1;
    if (r->offset == c->end)
        return large ? EXACT_LARGE : EXACT_SMALL;
    if (shard->clock - c->used > RECENT)
        return -1;
    uint64_t gap = large ? bounded(length * 2, GAP, GAP_MOST) : GAP;
    if (r->offset > c->end)
        return r->offset - c->end <= gap ? (large ? NEAR_LARGE : NEAR_SMALL) : -1;
    return r->end + gap >= c->start ? 0 : -1; /* overtaken on its way here */
}

static struct candidate *find_candidate(struct shard *shard, const struct stream_read *r, int *points)
{
    struct candidate *best = NULL;
    *points = -1;
    for (struct candidate *c = shard->candidates; c < shard->candidates + CANDIDATES; c++) {
        int score = follows(shard, c, r);
        if (score > *points) {
            *points = score;
            best = c;
        }
    }
    return best;
}

/* In turn, but not in place of one that has just been gone on from. */
static void new_candidate(struct shard *shard, const struct stream_read *r)
{
    struct candidate *c;
    do
        c = &shard->candidates[shard->next++ % CANDIDATES];
    while (shard->clock - c->used < CANDIDATES / 2 && c->points);
    *c = (struct candidate){
        .ino = r->ino, .tree = r->tree, .start = r->offset, .end = r->end, .used = shard->clock};
}

/* True: it is a stream now, and no candidate any more. */
static bool consider(struct shard *shard, const struct stream_read *r)
{
    if (r->offset == 0 && r->end >= STREAM_LARGE)
        return true; /* who begins so at the beginning wants the rest */
    int points;
    struct candidate *c = find_candidate(shard, r, &points);
    if (!c) {
        new_candidate(shard, r);
        return false;
    }
    c->used = shard->clock;
    c->start = r->offset < c->start ? r->offset : c->start;
    c->end = r->end > c->end ? r->end : c->end;
    c->points += (unsigned)points;
    if (c->points < POINTS)
        return false;
    *c = (struct candidate){0};
    return true;
}

/* ---- */

static struct shard *shard_of(struct streams *t, const struct stream_read *r)
{
    uint64_t hash = (r->ino ^ (uint64_t)r->tree << 40) * UINT64_C(0x9e3779b97f4a7c15);
    return &t->shards[hash >> 58];
}

bool streams_note(struct streams *t, const struct stream_read *r, uint64_t *from, uint64_t *to)
{
    struct shard *shard = shard_of(t, r);
    bool load = false;
    if (r->end >= r->size && r->offset == 0)
        return false; /* a whole file at once */
    /* Who comes second to a shard says nothing of its READ: the next one of the stream will. */
    if (__atomic_exchange_n(&shard->spin, 1, __ATOMIC_ACQUIRE))
        return false;
    shard->clock++;
    struct stream *s = find_stream(shard, r);
    if (!s && consider(shard, r))
        s = new_stream(shard, r);
    if (s) {
        s->used = shard->clock;
        load = advance(s, r, from, to);
    }
    __atomic_store_n(&shard->spin, 0, __ATOMIC_RELEASE);
    return load;
}
