#include "store/local/meta_refs.h"

#include <endian.h>
#include <string.h>

#include "store/local/meta_private.h"

enum {
    PIECE = 64,              /* blocks that are changed together */
    RUNS_MOST = PIECE + 2,   /* that so many can touch: each has a block there, or is a neighbour */
    MADE_MOST = 2 * PIECE + 4,
};

static void key_of(struct key *k, place_t last)
{
    key_inode(k, last); /* any one number */
}

static int decode(const struct record *r, struct refs_run *out)
{
    uint32_t words[2];
    if (r->key_length != sizeof(place_t) || r->length != sizeof(words))
        return SL_ECORRUPT;
    memcpy(words, r->value, sizeof(words));
    place_t last = key_number(r->key, 0);
    out->blocks = le32toh(words[0]);
    out->count = le32toh(words[1]);
    out->place = last + 1 - out->blocks;
    bool is_one = out->blocks && out->count > 1 && out->place <= last;
    return is_one && out->place >> PLACE_BITS == last >> PLACE_BITS ? 0 : SL_ECORRUPT;
}

int refs_next(struct meta_txn *t, place_t from, struct refs_run *out)
{
    struct key k;
    struct record r;
    key_of(&k, from);
    int error = db_seek(t, DB_REF, &k, &r);
    if (!error && (error = decode(&r, out)) && t->write)
        t->failed = error;
    return error;
}

long refs_count(struct meta_txn *t, place_t place, uint32_t *length)
{
    struct refs_run run;
    int error = refs_next(t, place, &run);
    if (error && error != -ENOENT)
        return error;
    if (error || run.place > place) {
        if (!error && run.place - place < *length)
            *length = (uint32_t)(run.place - place);
        return 1;
    }
    if (run.place + run.blocks - place < *length)
        *length = (uint32_t)(run.place + run.blocks - place);
    return run.count;
}

/* ---- changing ---- */

struct change {
    struct meta_txn *t;
    place_t place, end;
    int by;
    void (*dead)(struct meta_txn *t, place_t place, uint32_t blocks);
    struct refs_run old[RUNS_MOST], made[MADE_MOST];
    unsigned old_count, made_count;
};

/* Those that the run touches, neighbours too. */
static int gather(struct change *c)
{
    place_t from = c->place & ((1 << PLACE_BITS) - 1) ? c->place - 1 : c->place;
    c->old_count = 0;
    while (c->old_count < RUNS_MOST) {
        struct refs_run *run = &c->old[c->old_count];
        int error = refs_next(c->t, from, run);
        if (error)
            return error == -ENOENT ? 0 : error;
        if (run->place > c->end || run->place >> PLACE_BITS != c->place >> PLACE_BITS)
            return 0;
        from = run->place + run->blocks;
        c->old_count++;
    }
    return c->t->failed = SL_ECORRUPT; /* they overlap */
}

static void make(struct change *c, place_t from, place_t to, uint32_t count)
{
    struct refs_run *last = c->made_count ? &c->made[c->made_count - 1] : NULL;
    if (from >= to || count < 2)
        return;
    if (last && last->place + last->blocks == from && last->count == count)
        last->blocks += (uint32_t)(to - from);
    else
        c->made[c->made_count++] = (struct refs_run){from, (uint32_t)(to - from), count};
}

/* Blocks that had one holder. */
static void change_single(struct change *c, place_t from, place_t to)
{
    if (from >= to)
        return;
    if (c->by > 0)
        make(c, from, to, 2);
    else if (c->dead)
        c->dead(c->t, from, (uint32_t)(to - from));
}

static place_t least(place_t a, place_t b)
{
    return a < b ? a : b;
}

static place_t most(place_t a, place_t b)
{
    return a > b ? a : b;
}

static void remake(struct change *c)
{
    place_t at = c->place;
    c->made_count = 0;
    for (unsigned i = 0; i < c->old_count; i++) {
        const struct refs_run *run = &c->old[i];
        place_t end = run->place + run->blocks;
        make(c, run->place, least(end, c->place), run->count);
        change_single(c, at, least(run->place, c->end));
        make(c, most(run->place, c->place), least(end, c->end), (uint32_t)((int)run->count + c->by));
        at = most(at, least(end, c->end));
        if (run->place >= c->end || end > c->end)
            change_single(c, at, c->end), at = c->end;
        make(c, most(run->place, c->end), end, run->count);
    }
    change_single(c, at, c->end);
}

static void put(struct meta_txn *t, const struct refs_run *run)
{
    struct key k;
    uint32_t words[2] = {htole32(run->blocks), htole32(run->count)};
    key_of(&k, run->place + run->blocks - 1);
    db_put(t, DB_REF, &k, words, sizeof(words));
}

/* Writes what differs. */
static void store(struct change *c)
{
    unsigned o = 0, m = 0;
    struct key k;
    while (o < c->old_count || m < c->made_count) {
        const struct refs_run *old = o < c->old_count ? &c->old[o] : NULL;
        const struct refs_run *made = m < c->made_count ? &c->made[m] : NULL;
        place_t old_last = old ? old->place + old->blocks : UINT64_MAX;
        place_t made_last = made ? made->place + made->blocks : UINT64_MAX;
        if (old_last < made_last) {
            key_of(&k, old_last - 1);
            db_del(c->t, DB_REF, &k);
        } else if (old_last > made_last || old->blocks != made->blocks || old->count != made->count) {
            put(c->t, made);
        }
        o += old_last <= made_last;
        m += made_last <= old_last;
    }
}

static int change(struct meta_txn *t, place_t place, uint32_t blocks, int by,
                  void (*dead)(struct meta_txn *t, place_t place, uint32_t blocks))
{
    for (uint32_t done = 0; done < blocks && !t->failed; done += PIECE) {
        uint32_t piece = blocks - done < PIECE ? blocks - done : PIECE;
        struct change c = {.t = t, .place = place + done, .end = place + done + piece, .by = by, .dead = dead};
        int error = gather(&c);
        if (error)
            return error;
        remake(&c);
        store(&c);
    }
    return t->failed;
}

int refs_hold(struct meta_txn *t, place_t place, uint32_t blocks)
{
    return change(t, place, blocks, 1, NULL);
}

int refs_release(struct meta_txn *t, place_t place, uint32_t blocks,
                 void (*dead)(struct meta_txn *t, place_t place, uint32_t blocks))
{
    return change(t, place, blocks, -1, dead);
}
