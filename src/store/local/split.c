/* Walks the tree's names, and gives each chunk of a file whose blocks others hold too blocks of its own.  What is done
 * is done: who begins again passes over it.  A file that is renamed meanwhile may be passed by, so there are passes
 * until one finds nothing. */
#include "store/local/split.h"

#include <stdlib.h>
#include <string.h>

#include "store/local/chunk_map.h"
#include "store/local/data_private.h"
#include "store/local/diff.h"
#include "store/local/fetch.h"
#include "store/local/meta_refs.h"
#include "store/local/seg.h"

enum { BLOCK = STORE_BLOCK, PASSES_MOST = 8, REST_MOST_MS = 100 };

struct place_in { /* a directory, and how far it has been read */
    uint64_t dir, after;
};

struct split {
    struct mutation m; /* first */
    struct local *local;
    uint32_t tree;
    bool (*go_on)(void *arg, uint64_t bytes);
    void *arg;
    struct place_in *stack;
    size_t depth, room;
    uint64_t bytes, copied; /* looked at in this pass, and given blocks of their own */
    uint8_t *buffer;        /* one chunk */
    /* The chunk at work. */
    uint64_t ino, chunk;
    struct chunk_map map;
    place_t to[CHUNK_BLOCKS]; /* 0: it keeps its block */
    bool moved[CHUNK_BLOCKS];
};

/* ---- one chunk ---- */

/* Which blocks other records hold as well. */
static int find_shared(struct split *s, struct meta_txn *t, bool inherited, bool shared[CHUNK_BLOCKS])
{
    memset(shared, 0, CHUNK_BLOCKS * sizeof(shared[0]));
    for (unsigned block = 0; block < CHUNK_BLOCKS;) {
        place_t place;
        uint32_t count = chunk_map_run(&s->map, block, CHUNK_BLOCKS - block, &place);
        long holders = place ? refs_count(t, place, &count) : 1;
        if (holders < 0)
            return (int)holders;
        for (uint32_t i = 0; i < count; i++)
            shared[block + i] = place && (inherited || holders > 1);
        block += count;
    }
    return 0;
}

static bool is_good(struct split *s, unsigned block)
{
    if (block_crc(s->buffer + (size_t)block * BLOCK) == s->map.crc[block])
        return true;
    data_moved(s->local, s->tree, s->ino, s->chunk, block, chunk_place(&s->map, block)); /* logs and counts */
    return false;
}

static int write_run(struct split *s, unsigned block, unsigned count)
{
    while (count) {
        unsigned got;
        place_t to;
        int error = seg_reserve(s->local, count, &to, &got);
        if (error)
            return error;
        for (unsigned i = 0; i < got; i++)
            s->to[block + i] = to + i;
        struct iovec iov = {s->buffer + (size_t)block * BLOCK, (size_t)got * BLOCK};
        error = seg_write(s->local, to, &iov, 1, got);
        if (error)
            return error;
        block += got;
        count -= got;
    }
    return 0;
}

/* A run of blocks that lie together on disk; what is damaged stays where it is. */
static int copy_run(struct split *s, unsigned block, unsigned count, place_t place)
{
    struct iovec iov = {s->buffer + (size_t)block * BLOCK, (size_t)count * BLOCK};
    if (seg_read(s->local, place, &iov, 1, count))
        return 0;
    for (unsigned end = block + count; block < end;) {
        unsigned good = 0;
        while (block + good < end && is_good(s, block + good))
            good++;
        int error = write_run(s, block, good);
        if (error)
            return error;
        block += good + 1;
    }
    return 0;
}

static int copy_shared(struct split *s, const bool shared[CHUNK_BLOCKS])
{
    for (unsigned block = 0; block < CHUNK_BLOCKS;) {
        place_t place;
        unsigned count = chunk_map_run(&s->map, block, CHUNK_BLOCKS - block, &place), same = 1;
        while (same < count && shared[block + same] == shared[block])
            same++;
        int error = shared[block] ? copy_run(s, block, same, place) : 0;
        if (error)
            return error;
        block += same;
    }
    return 0;
}

static int apply(struct mutation *m, struct meta_txn *t)
{
    struct split *s = (struct split *)m;
    struct chunk_map *map = malloc(sizeof(*map));
    uint64_t chunk;
    int64_t delta;
    bool any = false;
    int error = map ? meta_chunk_next(t, s->tree, s->ino, s->chunk, &chunk, map) : -ENOMEM;
    memset(s->moved, 0, sizeof(s->moved));
    if (!error && chunk == s->chunk && map->kind == CHUNK_MAP)
        for (unsigned b = 0; b < CHUNK_BLOCKS; b++) {
            if (!s->to[b] || chunk_place(map, b) != chunk_place(&s->map, b))
                continue; /* written meanwhile */
            s->moved[b] = any = true;
            chunk_map_set(map, b, 1, s->to[b], &(uint32_t){map->crc[b]});
        }
    if (any) /* with its old change number, so that a cut that hides it goes on doing so */
        error = meta_put_chunk(t, s->tree, s->ino, s->chunk, map, map->change, &delta);
    free(map);
    return error == -ENOENT || error == -ESTALE ? 0 : error;
}

static void settle_places(struct split *s, bool applied)
{
    uint64_t before = s->copied;
    for (unsigned b = 0; b < CHUNK_BLOCKS; b++) {
        if (s->to[b] && applied && s->moved[b])
            s->copied += BLOCK;
        else if (s->to[b])
            seg_abandon(s->local, s->to[b], 1);
    }
    metric_add(METRIC_blocks_split, (s->copied - before) / BLOCK);
}

static int split_chunk(struct split *s, const bool shared[CHUNK_BLOCKS])
{
    memset(s->to, 0, sizeof(s->to));
    int error = copy_shared(s, shared);
    if (!error) {
        s->m = (struct mutation){.apply = apply};
        error = writer_run(s->local, &s->m);
    }
    settle_places(s, !error);
    return error;
}

/* ---- one file ---- */

/* The next chunk record from s->chunk on, as the tree's version sees it; -ENOENT: there is none. */
static int next_chunk(struct split *s, bool shared[CHUNK_BLOCKS])
{
    struct meta_txn *t;
    struct key k;
    struct record r;
    uint64_t version;
    int error = meta_read_begin(s->local, &t);
    if (error)
        return error;
    key_chunk(&k, s->ino, s->chunk);
    error = tree_version(t, s->tree, &version);
    if (!error)
        error = visible_from(t, DB_CHUNK, &k, 8, version, &r);
    if (!error)
        error = chunk_decode(r.value, r.length, &s->map);
    if (!error) {
        s->chunk = key_number(k.bytes, 8);
        bool inherited = key_version(r.key, r.key_length) != version;
        if (s->map.kind == CHUNK_MAP)
            error = find_shared(s, t, inherited, shared);
    }
    meta_read_end(t);
    return error;
}

/* Half of the time is the clients'. */
static void rest(uint64_t since)
{
    uint64_t ms = (clock_monotonic_ns() - since) / 1000000;
    coro_sleep((unsigned)(ms < 1 ? 1 : ms > REST_MOST_MS ? REST_MOST_MS : ms));
}

static int split_file(struct split *s, uint64_t ino)
{
    bool shared[CHUNK_BLOCKS];
    s->ino = ino;
    for (s->chunk = 0;; s->chunk++) {
        int error = next_chunk(s, shared);
        if (error)
            return error == -ENOENT ? 0 : error;
        if (s->map.kind != CHUNK_MAP) {
            s->bytes += chunk_map_inside(s->local, &s->map) * BLOCK;
            continue;
        }
        s->bytes += (uint64_t)chunk_map_used(&s->map, 0, CHUNK_BLOCKS) * BLOCK;
        if (memchr(shared, true, sizeof(shared))) {
            uint64_t since = clock_monotonic_ns();
            error = split_chunk(s, shared);
            if (error)
                return error;
            rest(since);
        }
        if (!s->go_on(s->arg, s->bytes))
            return -ECANCELED;
    }
}

/* ---- the tree ---- */

static int push(struct split *s, uint64_t dir)
{
    if (s->depth == s->room) {
        size_t room = s->room ? s->room * 2 : 32;
        struct place_in *more = realloc(s->stack, room * sizeof(*more));
        if (!more)
            return -ENOMEM;
        s->stack = more;
        s->room = room;
    }
    s->stack[s->depth++] = (struct place_in){.dir = dir};
    return 0;
}

static int next_entry(struct split *s, struct place_in *at, struct entry *entry)
{
    struct meta_txn *t;
    int error = meta_read_begin(s->local, &t);
    if (error)
        return error;
    error = meta_entry_next(t, s->tree, at->dir, at->after, entry);
    meta_read_end(t);
    return error;
}

static int pass(struct split *s)
{
    struct tree tree;
    struct entry entry;
    s->bytes = s->copied = s->depth = 0;
    int error = meta_tree(s->local, s->tree, &tree);
    if (!error)
        error = push(s, tree.root);
    while (!error && s->depth) {
        struct place_in *at = &s->stack[s->depth - 1];
        error = next_entry(s, at, &entry);
        if (error == -ENOENT) {
            s->depth--;
            error = 0;
            continue;
        }
        at->after = entry.position;
        if (!error && entry.type == STORE_DIR)
            error = push(s, entry.ino);
        else if (!error && entry.type == STORE_REG)
            error = split_file(s, entry.ino);
        if (!error && !s->go_on(s->arg, s->bytes))
            error = -ECANCELED;
    }
    return error;
}

int split_tree(struct store *st, uint32_t tree, bool (*go_on)(void *arg, uint64_t bytes), void *arg)
{
    struct split *s = calloc(1, sizeof(*s));
    uint8_t *buffer = aligned_alloc(BLOCK, STORE_CHUNK);
    int error = s && buffer ? 0 : -ENOMEM;
    if (!error) {
        s->local = local_of(st);
        s->tree = tree;
        s->go_on = go_on;
        s->arg = arg;
        s->buffer = buffer;
        for (unsigned n = 0; n < PASSES_MOST && !error; n++) {
            error = pass(s);
            if (!s->copied)
                break;
        }
        free(s->stack);
    }
    free(buffer);
    free(s);
    return error;
}
