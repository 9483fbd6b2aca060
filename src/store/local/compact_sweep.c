/* One walk over all chunk records in the order of their keys, in steps: live blocks in the chosen segments are
 * copied to new places, and the records rewritten where they still name the old ones. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "store/local/chunk_map.h"
#include "store/local/data_private.h"
#include "store/local/fetch.h"
#include "store/local/meta_private.h"
#include "store/local/seg_private.h"

enum { MOVES_MOST = 16, STEP_NS = 3000000, CHECK_EVERY = 64 };

struct owner { /* of the records of one version */
    uint64_t version;
    uint32_t tree;
};

struct moving {
    uint32_t tree;
    uint64_t ino, chunk;
    struct chunk_map map;     /* as it was */
    place_t to[CHUNK_BLOCKS]; /* 0: stays */
    bool moved[CHUNK_BLOCKS];
};

struct sweep {
    struct mutation m; /* first */
    struct local *local;
    uint32_t *numbers;
    unsigned count;
    struct owner *owners;
    unsigned owner_count, owner_room;
    struct key at; /* the last record looked at */
    bool begun;
    struct moving moves[MOVES_MOST];
    unsigned move_count;
    uint8_t *buffer; /* one chunk */
};

/* ---- beginning and end ---- */

static int add_owner(void *arg, const struct store_tree *tree)
{
    struct sweep *s = arg;
    struct tree known;
    if (tree->parent || meta_tree(s->local, tree->id, &known))
        return 0; /* what a snapshot has, others may see too */
    if (s->owner_count == s->owner_room) {
        unsigned room = s->owner_room ? s->owner_room * 2 : 16;
        struct owner *grown = realloc(s->owners, room * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        s->owners = grown;
        s->owner_room = room;
    }
    s->owners[s->owner_count++] = (struct owner){known.version, tree->id};
    return 0;
}

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
    if (l->store.ops->tree_each(&l->store, add_owner, s)) {
        sweep_free(s);
        return NULL;
    }
    return s;
}

void sweep_free(struct sweep *s)
{
    if (!s)
        return;
    free(s->numbers);
    free(s->owners);
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

/* Records of versions that no volume is at, and such as cannot be read, stay as they are. */
static void consider(struct sweep *s, const struct record *r)
{
    struct moving *mv = &s->moves[s->move_count];
    if (record_is_gone(r->value, r->length) || chunk_decode(r->value, r->length, &mv->map) ||
        !names_victim(s, &mv->map))
        return;
    uint64_t version = key_version(r->key, r->key_length);
    for (unsigned i = 0; i < s->owner_count; i++) {
        if (s->owners[i].version != version)
            continue;
        mv->tree = s->owners[i].tree;
        mv->ino = key_number(r->key, 0);
        mv->chunk = key_number(r->key, 8);
        memset(mv->to, 0, sizeof(mv->to));
        s->move_count++;
        return;
    }
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
    error = db_seek(t, DB_CHUNK, &s->at, r);
    if (!error && s->begun && r->key_length == s->at.length &&
        !memcmp(r->key, s->at.bytes, r->key_length))
        error = db_step(t, DB_CHUNK, r);
    for (unsigned n = 1; !error; n++) {
        s->begun = true;
        s->at.length = r->key_length;
        memcpy(s->at.bytes, r->key, r->key_length);
        consider(s, r);
        if (s->move_count == MOVES_MOST || (n % CHECK_EVERY == 0 && clock_monotonic_ns() > end))
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

/* Is the block in the buffer what it should be?  What is not stays where it is. */
static bool is_good(struct sweep *s, struct moving *mv, unsigned block)
{
    if (block_crc(s->buffer + (size_t)block * SEG_BLOCK) == mv->map.crc[block])
        return true;
    data_moved(s->local, mv->tree, mv->ino, mv->chunk, block,
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

static int copy_chunk(struct sweep *s, struct moving *mv)
{
    for (unsigned block = 0; block < CHUNK_BLOCKS;) {
        place_t place;
        unsigned count = chunk_map_run(&mv->map, block, CHUNK_BLOCKS - block, &place);
        if (place && sweep_has(s, place_segment(place))) {
            int error = copy_run(s, mv, block, count, place);
            if (error)
                return error;
        }
        block += count;
    }
    return 0;
}

/* ---- the mutation ---- */

static int apply_one(struct moving *mv, struct meta_txn *t, struct chunk_map *map)
{
    uint64_t chunk;
    int64_t delta;
    bool any = false;
    memset(mv->moved, 0, sizeof(mv->moved));
    int error = meta_chunk_next(t, mv->tree, mv->ino, mv->chunk, &chunk, map);
    if (error || chunk != mv->chunk || map->kind != CHUNK_MAP)
        return t->failed; /* gone meanwhile */
    for (unsigned b = 0; b < CHUNK_BLOCKS; b++) {
        if (!mv->to[b] || chunk_place(map, b) != chunk_place(&mv->map, b))
            continue;
        mv->moved[b] = any = true;
        chunk_map_set(map, b, 1, mv->to[b], &(uint32_t){map->crc[b]});
    }
    /* With its old change number, so that a cut that hides it goes on doing so. */
    return any ? meta_put_chunk(t, mv->tree, mv->ino, mv->chunk, map, map->change, &delta)
               : t->failed;
}

static int apply_moves(struct mutation *m, struct meta_txn *t)
{
    struct sweep *s = (struct sweep *)m;
    struct chunk_map *map = malloc(sizeof(*map));
    int error = map ? 0 : -ENOMEM;
    for (unsigned i = 0; i < s->move_count && !error; i++)
        error = apply_one(&s->moves[i], t, map);
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
            else if (mv->to[b])
                seg_abandon(s->local, mv->to[b], 1);
        }
    }
    metric_add(METRIC_blocks_compacted, moved);
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
