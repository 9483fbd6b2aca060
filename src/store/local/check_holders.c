/* How many records hold each block, against `ref`.
 *
 * A block's holders may be records of any files, so they are not seen together.  For each segment two sums of a hash of
 * places are kept: over all holders that were seen, and over the blocks that are held as often as `ref` counts.  They
 * are the same where all counts are right.  Where they differ in one transaction, the holders of that segment's blocks
 * are counted one by one. */
#include <stdlib.h>

#include "store/local/check_private.h"
#include "store/local/meta_refs.h"
#include "store/local/seg_private.h"

enum { SEG_BLOCKS = 1 << PLACE_BITS, TOGETHER = 16 /* segments: 4 MiB each */, WRONG_MOST = 64 };
typedef unsigned long long number;

static uint64_t hash(place_t place)
{
    uint64_t x = place + UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* ---- sums ---- */

void holders_seen(struct check_seg *seg, place_t place, unsigned holders, bool first)
{
    uint64_t h = hash(place);
    seg->seen += holders * h;
    seg->expected += first ? h : 0;
}

static void expect_run(struct check *c, const struct refs_run *run)
{
    struct check_seg *seg = seg_of(c, run->place + run->blocks - 1);
    for (uint32_t i = 0; seg && i < run->blocks; i++)
        seg->expected += (run->count - 1) * hash(run->place + i);
}

int refs_read_on(struct check *c, place_t *from)
{
    struct refs_run run;
    int error = 0;
    for (unsigned n = 1; !c->error; n++) {
        error = refs_next(c->t, *from, &run);
        if (error == SL_ECORRUPT) {
            if (!c->again)
                found(c, 0, 0, false, "a count of how many records hold a block (from %llx on) cannot be read: do not "
                      "delete snapshots, and copy the pool's volumes into a new pool", (number)*from);
            ++*from;
            continue;
        }
        if (error)
            return error;
        expect_run(c, &run);
        if (!c->again)
            atomic_fetch_add_explicit(&c->job->records, 1, memory_order_relaxed);
        *from = run.place + run.blocks;
        if (n % 64 == 0 && step_is_over(c))
            return 0;
    }
    return error;
}

int refs_read(struct check *c)
{
    place_t from = 0;
    int end = 0;
    while (!end && !check_stopped(c) && !step_begin(c)) {
        end = refs_read_on(c, &from);
        step_end(c);
    }
    if (end && end != -ENOENT && !c->error)
        c->error = end;
    return c->error;
}

void holders_compare(struct check *c)
{
    for (unsigned i = 0; i < c->segs.count; i++)
        c->segs.at[i].doubtful |= c->segs.at[i].seen != c->segs.at[i].expected;
}

/* ---- one by one ---- */

static struct check_seg *counted_seg(struct check *c, place_t place)
{
    struct check_seg *seg = seg_known(c, place);
    return seg && seg->counts ? seg : NULL;
}

static void count_group(struct check *c, struct check_group *g)
{
    gather_places(c, g);
    for (size_t i = 0; i < c->place_count && !c->error; i++) {
        struct check_seg *seg = counted_seg(c, c->places[i]);
        if (seg)
            seg->counts[place_block(c->places[i])]++;
    }
}

static void remember_group(struct check *c, struct check_group *g)
{
    gather_places(c, g);
    for (size_t i = 0; i < c->place_count && c->wrong_count < WRONG_MOST && !c->error; i++) {
        place_t place = c->places[i];
        struct check_seg *seg = counted_seg(c, place);
        if (!seg || !seg->counts[place_block(place)] || (i && c->places[i - 1] == place))
            continue;
        c->wrong = grow(c, c->wrong, sizeof(*c->wrong), c->wrong_count, &c->wrong_room);
        if (!c->error)
            c->wrong[c->wrong_count++] = (struct check_wrong){key_number(g->key.bytes, 0), key_number(g->key.bytes, 8),
                                                              place, seg->counts[place_block(place)]};
    }
}

/* Leaves the counts of those that more records hold than are counted; are there any? */
static bool judge(struct check *c, struct check_seg *seg)
{
    struct refs_run run = {0};
    uint32_t too_high = 0, first = 0;
    bool any = false, more = true;
    for (uint32_t block = 0; block < SEG_BLOCKS; block++) {
        place_t place = (place_t)seg->number << PLACE_BITS | block;
        if (more && run.place + run.blocks <= place)
            more = refs_next(c->t, place, &run) == 0;
        bool within = more && run.place <= place;
        uint32_t counted = within ? run.count : 1, seen = seg->counts[block];
        if (within && seen < counted)
            first = too_high++ ? first : block;
        seg->counts[block] = seen > counted ? seen : 0;
        any |= seen > counted;
    }
    if (too_high)
        found(c, 0, 0, false, "segment %08x: %u blocks, the first at %x, are counted as shared by more records than "
              "hold them: space is lost, no data", seg->number, too_high, first);
    return any;
}

/* The next ones whose sums differ; their number. */
static unsigned choose(struct check *c, unsigned *from)
{
    unsigned count = 0;
    for (; *from < c->segs.count && count < TOGETHER && !c->error; ++*from) {
        struct check_seg *seg = &c->segs.at[*from];
        if (seg->seen == seg->expected)
            continue;
        seg->counts = calloc(SEG_BLOCKS, sizeof(uint32_t));
        if (!seg->counts)
            c->error = -ENOMEM;
        count++;
    }
    return count;
}

static void forget_counts(struct check *c)
{
    for (unsigned i = 0; i < c->segs.count; i++) {
        free(c->segs.at[i].counts);
        c->segs.at[i].counts = NULL;
    }
}

static int settle_some(struct check *c)
{
    static const struct check_walk count = {DB_CHUNK, count_group, NULL}, remember = {DB_CHUNK, remember_group, NULL};
    bool any = false;
    int error = scan(c, &count);
    for (unsigned i = 0; i < c->segs.count && !error; i++)
        if (c->segs.at[i].counts)
            any |= judge(c, &c->segs.at[i]);
    return error || !any ? error : scan(c, &remember);
}

int holders_settle(struct check *c)
{
    unsigned from = 0;
    int error = 0;
    c->wrong_count = 0;
    while (!error && !c->error && choose(c, &from)) {
        error = c->error ? c->error : settle_some(c);
        forget_counts(c);
    }
    return error ? error : c->error;
}

void holders_report(struct check *c)
{
    for (unsigned i = 0; i < c->wrong_count && !check_stopped(c); i++) {
        const struct check_wrong *w = &c->wrong[i];
        uint32_t length = 1;
        struct key k;
        if (step_begin(c))
            return;
        key_chunk(&k, w->ino, w->chunk);
        int error = group_find(c, &c->group, DB_CHUNK, &k);
        if (!error && c->group.count)
            found_in(c, &c->group, 0, w->ino, false, HOLDERS_FORMAT, (number)w->ino, (number)w->chunk, w->holders,
                     (number)w->place, refs_count(c->t, w->place, &length));
        step_end(c);
    }
    c->wrong_count = 0;
}
