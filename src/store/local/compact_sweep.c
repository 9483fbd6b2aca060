/* One walk over all chunk records in the order of their keys, in steps: live blocks in the chosen segments are
 * copied to new places, and the records rewritten where they still name the old ones, whatever their version.  A block
 * that several records hold is copied once (sweep_places.h); its count in `ref` moves along record by record.
 *
 * What a record is moved to, or copied from, behind the walk's back stays where it is: a sweep that has moved something
 * is followed by another. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "store/local/chunk_map.h"
#include "store/local/data_private.h"
#include "store/local/fetch.h"
#include "store/local/meta_private.h"
#include "store/local/meta_refs.h"
#include "store/local/seg_private.h"
#include "store/local/sweep_places.h"

enum {
    MOVES_MOST = 16,
    TREES_MOST = 20000, /* that may have a record in their tables and must forget it, in one mutation */
    STEP_NS = 3000000,
    CHECK_EVERY = 64
};

struct moving {
    struct key key; /* with its version */
    uint64_t ino, chunk, version;
    struct chunk_map map;     /* as it was */
    place_t to[CHUNK_BLOCKS]; /* 0: stays */
    bool moved[CHUNK_BLOCKS]; /* there */
};

struct sweep {
    struct mutation m; /* first */
    struct local *local;
    uint32_t *numbers;
    unsigned count;
    struct key at; /* the last record looked at */
    bool begun;
    struct moving moves[MOVES_MOST];
    unsigned move_count;
    uint64_t moved; /* blocks, by records */
    uint8_t *buffer; /* one chunk */
};

/* ---- beginning and end ---- */

struct sweep *sweep_new(struct local *l, uint32_t *numbers, unsigned count)
{
    struct sweep *s = calloc(1, sizeof(*s));
    uint8_t *buffer = aligned_alloc(SEG_BLOCK, STORE_CHUNK);
    if (!s || !buffer) {
        free(s);
        free(buffer);
        free(numbers);
        return NULL;
    }
    s->local = l;
    s->numbers = numbers;
    s->count = count;
    s->buffer = buffer;
    key_chunk(&s->at, 0, 0);
    key_add_version(&s->at, ~0ull);
    return s;
}

void sweep_free(struct sweep *s)
{
    if (!s)
        return;
    sweep_places_clear(s->local->segs->moved);
    free(s->numbers);
    free(s->buffer);
    free(s);
}

bool sweep_has(const struct sweep *s, uint32_t number)
{
    unsigned low = 0, high = s->count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (s->numbers[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->count && s->numbers[low] == number;
}

/* ---- finding records ---- */

static bool names_victim(const struct sweep *s, const struct chunk_map *map)
{
    for (unsigned i = 0; map->kind == CHUNK_MAP && i < map->extent_count; i++) {
        if (sweep_has(s, place_segment(map->extents[i].place)))
            return true;
    }
    return false;
}

/* Such as cannot be read stay as they are. */
static void consider(struct sweep *s, const struct record *r)
{
    struct moving *mv = &s->moves[s->move_count];
    if (record_is_gone(r->value, r->length) || chunk_decode(r->value, r->length, &mv->map) ||
        !names_victim(s, &mv->map))
        return;
    mv->key.length = r->key_length;
    memcpy(mv->key.bytes, r->key, r->key_length);
    mv->version = key_version(r->key, r->key_length);
    mv->ino = key_number(r->key, 0);
    mv->chunk = key_number(r->key, 8);
    memset(mv->to, 0, sizeof(mv->to));
    s->move_count++;
}

/* So that the trees that may have these records in their tables are not too many for one mutation. */
static unsigned moves_most(struct meta_txn *t)
{
    size_t versions = versions_count(txn_versions(t)) + 1;
    return versions * MOVES_MOST <= TREES_MOST ? MOVES_MOST : (unsigned)(TREES_MOST / versions) + 1;
}

/* Goes on until there is enough to move or the time is over; -ENOENT: at the end. */
static int gather(struct sweep *s)
{
    struct meta_txn *t;
    struct record *r = malloc(sizeof(*r));
    uint64_t end = clock_monotonic_ns() + STEP_NS;
    int error = r ? meta_read_begin(s->local, &t) : -ENOMEM;
    s->move_count = 0;
    if (error) {
        free(r);
        return error;
    }
    unsigned most = moves_most(t);
    error = db_seek(t, DB_CHUNK, &s->at, r);
    if (!error && s->begun && r->key_length == s->at.length &&
        !memcmp(r->key, s->at.bytes, r->key_length))
        error = db_step(t, DB_CHUNK, r);
    for (unsigned n = 1; !error; n++) {
        s->begun = true;
        s->at.length = r->key_length;
        memcpy(s->at.bytes, r->key, r->key_length);
        consider(s, r);
        if (s->move_count >= most || (n % CHECK_EVERY == 0 && clock_monotonic_ns() > end))
            break;
        error = db_step(t, DB_CHUNK, r);
    }
    meta_read_end(t);
    free(r);
    return error;
}

/* ---- copying ---- */

static int copy_blocks(struct sweep *s, struct moving *mv, unsigned block, unsigned count)
{
    while (count) {
        place_t to;
        unsigned got;
        int error = seg_reserve(s->local, count, &to, &got);
        if (error)
            return error;
        for (unsigned i = 0; i < got; i++)
            mv->to[block + i] = to + i;
        struct iovec iov = {s->buffer + (size_t)block * SEG_BLOCK, (size_t)got * SEG_BLOCK};
        error = seg_write(s->local, to, &iov, 1, got);
        if (error)
            return error;
        block += got;
        count -= got;
    }
    return 0;
}

/* A tree that sees the version's records, where it has none of its own. */
static uint32_t a_tree_of(struct local *l, uint64_t version)
{
    uint32_t tree = 0;
    rcu_read_lock();
    const struct versions *versions = rcu_dereference(l->meta->versions);
    for (uint64_t v = version; v && !tree; v = versions_next(versions, v))
        tree = versions_is_ancestor(versions, version, v) ? versions_tree(versions, v) : 0;
    rcu_read_unlock();
    return tree;
}

/* Is the block in the buffer what it should be?  What is not stays where it is. */
static bool is_good(struct sweep *s, struct moving *mv, unsigned block)
{
    if (block_crc(s->buffer + (size_t)block * SEG_BLOCK) == mv->map.crc[block])
        return true;
    data_moved(s->local, a_tree_of(s->local, mv->version), mv->ino, mv->chunk, block,
               chunk_place(&mv->map, block)); /* logs and counts */
    return false;
}

static int copy_run(struct sweep *s, struct moving *mv, unsigned block, unsigned count,
                    place_t place)
{
    struct iovec iov = {s->buffer + (size_t)block * SEG_BLOCK, (size_t)count * SEG_BLOCK};
    if (seg_read(s->local, place, &iov, 1, count))
        return 0; /* a bad sector: the others can still go */
    unsigned end = block + count;
    while (block < end) {
        unsigned good = 0;
        while (block + good < end && is_good(s, mv, block + good))
            good++;
        int error = copy_blocks(s, mv, block, good);
        if (error)
            return error;
        block += good + 1;
    }
    return 0;
}

/* How many blocks from there on have been copied already, for another record, or have not; *goes: they have not. */
static unsigned run_not_moved_yet(struct sweep *s, place_t place, unsigned count, bool *goes)
{
    struct sweep_places *moved = s->local->segs->moved;
    unsigned same = 1;
    *goes = sweep_places_get(moved, place) == 0;
    while (same < count && (sweep_places_get(moved, place + same) == 0) == *goes)
        same++;
    return same;
}

static int copy_chunk(struct sweep *s, struct moving *mv)
{
    for (unsigned block = 0; block < CHUNK_BLOCKS;) {
        place_t place;
        unsigned count = chunk_map_run(&mv->map, block, CHUNK_BLOCKS - block, &place);
        bool goes = place && sweep_has(s, place_segment(place));
        if (goes)
            count = run_not_moved_yet(s, place, count, &goes);
        if (goes) {
            int error = copy_run(s, mv, block, count, place);
            if (error)
                return error;
        }
        block += count;
    }
    return 0;
}

/* ---- the mutation ---- */

/* The new place of a block that the record still names; 0: it stays.  *taken: no record holds that yet. */
static place_t new_place(struct sweep *s, struct moving *mv, unsigned block, place_t place, bool *taken)
{
    *taken = false;
    if (!place || place != chunk_place(&mv->map, block) || !sweep_has(s, place_segment(place)))
        return 0;
    place_t to = sweep_places_get(s->local->segs->moved, place);
    *taken = !to && mv->to[block];
    mv->moved[block] = *taken;
    return to ? to : mv->to[block];
}

/* One run of blocks whose new places go on as their old ones do. */
static void move_run(struct sweep *s, struct meta_txn *t, place_t from, place_t to, uint32_t blocks, bool taken)
{
    uint32_t length = blocks;
    if (taken)
        blocks_take(t, to, blocks);
    else
        blocks_hold(t, to, blocks);
    for (uint32_t i = 0; taken && i < blocks && !t->failed; i += length) {
        length = blocks - i;
        long holders = refs_count(t, from + i, &length);
        for (uint32_t n = 0; holders > 1 && n < length; n++)
            if (sweep_places_add(s->local->segs->moved, from + i + n, to + i + n))
                t->failed = -ENOMEM;
        if (holders < 0)
            t->failed = (int)holders;
    }
    blocks_release(t, from, blocks);
}

/* The blocks that go, in the map and in their counts.  False: none does. */
static bool move_blocks(struct sweep *s, struct moving *mv, struct meta_txn *t, struct chunk_map *map)
{
    place_t from = 0, to = 0;
    unsigned run = 0;
    bool any = false, taken = false;
    memset(mv->moved, 0, sizeof(mv->moved));
    for (unsigned b = 0; b <= CHUNK_BLOCKS; b++) {
        bool fresh = false;
        place_t place = b < CHUNK_BLOCKS ? chunk_place(map, b) : 0;
        if (run && place != from + run) { /* now: the record may hold a block of the run once more */
            move_run(s, t, from, to, run, taken);
            run = 0;
        }
        place_t goes = b < CHUNK_BLOCKS ? new_place(s, mv, b, place, &fresh) : 0;
        if (run && (!goes || goes != to + run || fresh != taken)) {
            move_run(s, t, from, to, run, taken);
            run = 0;
        }
        if (!goes)
            continue;
        if (!run) {
            from = place;
            to = goes;
            taken = fresh;
        }
        run++;
        any = true;
        chunk_map_set(map, b, 1, goes, &(uint32_t){map->crc[b]});
    }
    return any;
}

static int apply_one(struct sweep *s, struct moving *mv, struct meta_txn *t, struct chunk_map *map)
{
    struct record r;
    uint8_t value[RECORD_MAX];
    memset(mv->moved, 0, sizeof(mv->moved));
    int error = db_get(t, DB_CHUNK, &mv->key, &r);
    if (error || record_is_gone(r.value, r.length))
        return t->failed; /* gone meanwhile */
    error = chunk_decode(r.value, r.length, map);
    if (error || map->kind != CHUNK_MAP)
        return error;
    if (!move_blocks(s, mv, t, map))
        return t->failed;
    /* With its old change number, so that a cut that hides it goes on doing so. */
    db_put(t, DB_CHUNK, &mv->key, value, chunk_encode(map, map->change, value));
    group_note_chunk_moved(t, mv->version, mv->ino, mv->chunk);
    return t->failed;
}

static int apply_moves(struct mutation *m, struct meta_txn *t)
{
    struct sweep *s = (struct sweep *)m;
    struct chunk_map *map = malloc(sizeof(*map));
    int error = map ? 0 : -ENOMEM;
    /* What a run before this one said, whose group was given up, has not come to pass. */
    for (unsigned i = 0; i < s->move_count; i++)
        for (unsigned b = 0; b < CHUNK_BLOCKS; b++)
            if (s->moves[i].to[b])
                sweep_places_died(s->local->segs->moved, s->moves[i].to[b], 1);
    for (unsigned i = 0; i < s->move_count && !error; i++)
        error = apply_one(s, &s->moves[i], t, map);
    free(map);
    return error;
}

static void settle_places(struct sweep *s, bool applied)
{
    uint64_t moved = 0;
    for (unsigned i = 0; i < s->move_count; i++) {
        struct moving *mv = &s->moves[i];
        for (unsigned b = 0; b < CHUNK_BLOCKS; b++) {
            if (applied && mv->to[b] && mv->moved[b])
                moved++;
            else if (mv->to[b]) {
                sweep_places_died(s->local->segs->moved, mv->to[b], 1);
                seg_abandon(s->local, mv->to[b], 1);
            }
        }
    }
    s->moved += moved;
    metric_add(METRIC_blocks_compacted, moved);
}

bool sweep_has_moved(const struct sweep *s)
{
    return s->moved > 0;
}

int sweep_step(struct sweep *s)
{
    int at_end = gather(s);
    if (at_end && at_end != -ENOENT)
        return at_end;
    int error = 0;
    for (unsigned i = 0; i < s->move_count && !error; i++)
        error = copy_chunk(s, &s->moves[i]);
    if (!error && s->move_count) {
        s->m = (struct mutation){.apply = apply_moves};
        error = writer_run(s->local, &s->m);
    }
    settle_places(s, !error);
    if (error)
        return error;
    return !at_end;
}
