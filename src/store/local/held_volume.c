/* What the snapshots of a volume hold that the volume itself does not: looked for among the chunks that were touched
 * since the oldest of them, on the way to the volume's version and on the ways to those snapshots that it left behind
 * when it was restored. */
#include <stdlib.h>
#include <string.h>

#include "store/local/chunk_map.h"
#include "store/local/diff.h"

struct chunk_id {
    uint64_t ino, chunk;
};

struct way { /* from a version up to one of its ancestors */
    uint64_t leaf, top;
    bool live; /* the leaf is the volume: what it sees itself does not count, and what is at `top` does */
};

struct held_volume {
    struct walk walk;
    uint32_t volume;
    uint64_t live;
    uint64_t *snapshots; /* versions, ascending */
    size_t snapshot_count, snapshot_room;
    uint64_t *leaves; /* of the ways apart from the volume's that have been walked */
    size_t leaf_count, leaf_room;
    struct chunk_id *touched; /* by one version */
    size_t touched_count, touched_room;
    uint64_t blocks;
    bool (*go_on)(void *arg);
    void *arg;
};

static int grow(void **at, size_t *room, size_t size)
{
    size_t more = *room ? *room * 2 : 64;
    void *grown = realloc(*at, more * size);
    if (!grown)
        return -ENOMEM;
    *at = grown;
    *room = more;
    return 0;
}

/* ---- one chunk ---- */

/* The chunk's map as `version` sees it, and whose record that is; 0: nobody's. */
static int map_at(struct held_volume *h, const struct key *k, uint64_t version, struct chunk_map *map, uint64_t *found)
{
    struct record r;
    int error = visible(h->walk.t, DB_CHUNK, k, version, &r, found);
    map->kind = CHUNK_HOLE;
    if (!error)
        error = chunk_decode(r.value, r.length, map);
    return error == -ENOENT ? 0 : error;
}

static void places_in(const struct chunk_map *map, place_t places[CHUNK_BLOCKS])
{
    for (unsigned b = 0; b < CHUNK_BLOCKS; b++)
        places[b] = map->kind == CHUNK_MAP ? chunk_place(map, b) : 0;
}

/* Records of one chunk along the way, the newest first: a place that two have is in both at the same block, and in all
 * between.  Called for the version whose record the leaf sees, so that each chunk is counted once. */
static int count_chunk(struct held_volume *h, const struct way *way, uint64_t version, const struct chunk_id *id)
{
    place_t newer[CHUNK_BLOCKS] = {0}, above[CHUNK_BLOCKS] = {0}, places[CHUNK_BLOCKS];
    struct chunk_map map;
    struct key k;
    uint64_t found, at = way->leaf;
    key_chunk(&k, id->ino, id->chunk);
    int error = map_at(h, &k, at, &map, &found);
    if (error || found != version)
        return error;
    if (way->live) {
        places_in(&map, newer);
        at = versions_parent(txn_versions(h->walk.t), found);
    } else {
        error = map_at(h, &k, way->top, &map, &found);
        places_in(&map, above);
    }
    while (!error && at >= way->top && (way->live || at > way->top)) {
        error = map_at(h, &k, at, &map, &found);
        if (error || !found || (!way->live && found <= way->top))
            break;
        places_in(&map, places);
        for (unsigned b = 0; b < CHUNK_BLOCKS; b++)
            h->blocks += places[b] && places[b] != newer[b] && places[b] != above[b];
        h->blocks += chunk_map_inside(h->walk.local, &map);
        memcpy(newer, places, sizeof newer);
        at = found > way->top ? versions_parent(txn_versions(h->walk.t), found) : 0;
    }
    return error;
}

/* ---- the ways ---- */

static int gather(void *arg, enum db db, const struct key *k)
{
    struct held_volume *h = arg;
    if (!h->go_on(h->arg))
        return -ECANCELED;
    if (db != DB_CHUNK)
        return 0;
    if (h->touched_count == h->touched_room && grow((void **)&h->touched, &h->touched_room, sizeof *h->touched))
        return -ENOMEM;
    h->touched[h->touched_count++] = (struct chunk_id){key_number(k->bytes, 0), key_number(k->bytes, 8)};
    return 0;
}

static int by_id(const void *a, const void *b)
{
    const struct chunk_id *x = a, *y = b;
    if (x->ino != y->ino)
        return x->ino < y->ino ? -1 : 1;
    return (x->chunk > y->chunk) - (x->chunk < y->chunk);
}

/* What was written, removed and written again is in the list twice. */
static int count_version(struct held_volume *h, const struct way *way, uint64_t version)
{
    h->touched_count = 0;
    int error = walk_touched(&h->walk, version, gather, h);
    if (!error && h->touched_count)
        qsort(h->touched, h->touched_count, sizeof *h->touched, by_id);
    for (size_t i = 0; i < h->touched_count && !error; i++) {
        if (i && by_id(&h->touched[i - 1], &h->touched[i]) == 0)
            continue;
        error = count_chunk(h, way, version, &h->touched[i]);
        if (!error)
            error = h->go_on(h->arg) ? walk_on(&h->walk) : -ECANCELED;
    }
    return error;
}

/* The versions below `top`, down to the leaf.  Those that go meanwhile are not counted. */
static int count_way(struct held_volume *h, const struct way *way)
{
    int error = 0;
    for (uint64_t v = way->leaf; !error && v > way->top; v = versions_parent(txn_versions(h->walk.t), v))
        error = count_version(h, way, v);
    return error;
}

/* Where the way up from a snapshot meets one that has been walked, or the volume's. */
static uint64_t joins_at(const struct held_volume *h, uint64_t v)
{
    const struct versions *vs = txn_versions(h->walk.t);
    for (; v && !versions_is_ancestor(vs, v, h->live); v = versions_parent(vs, v))
        for (size_t i = 0; i < h->leaf_count; i++)
            if (versions_is_ancestor(vs, v, h->leaves[i]))
                return v;
    return v;
}

static int count_apart(struct held_volume *h, const struct way *way)
{
    if (h->leaf_count == h->leaf_room && grow((void **)&h->leaves, &h->leaf_room, sizeof *h->leaves))
        return -ENOMEM;
    h->leaves[h->leaf_count++] = way->leaf;
    return count_way(h, way);
}

static int count_all(struct held_volume *h)
{
    struct way live = {.leaf = h->live, .top = h->live, .live = true};
    int error = 0;
    for (size_t i = h->snapshot_count; i-- > 0 && !error;) {
        struct way way = {.leaf = h->snapshots[i], .top = joins_at(h, h->snapshots[i])};
        if (way.top < live.top && versions_is_ancestor(txn_versions(h->walk.t), way.top, h->live))
            live.top = way.top;
        if (way.top != way.leaf)
            error = count_apart(h, &way);
    }
    return error ? error : count_way(h, &live);
}

static int find_snapshots(struct held_volume *h)
{
    const struct versions *vs = txn_versions(h->walk.t);
    struct tree tree;
    for (uint64_t v = versions_next(vs, 0); v; v = versions_next(vs, v)) {
        uint32_t id = versions_tree(vs, v);
        if (!id || meta_tree(h->walk.local, id, &tree) || tree.volume != h->volume || !tree.number)
            continue;
        if (h->snapshot_count == h->snapshot_room &&
            grow((void **)&h->snapshots, &h->snapshot_room, sizeof *h->snapshots))
            return -ENOMEM;
        h->snapshots[h->snapshot_count++] = v;
    }
    return 0;
}

int held_by_snapshots(struct store *s, uint32_t volume, bool (*go_on)(void *arg), void *arg, uint64_t *bytes)
{
    struct held_volume h = {.volume = volume, .go_on = go_on, .arg = arg};
    *bytes = 0;
    int error = walk_begin(&h.walk, local_of(s));
    if (!error)
        error = find_snapshots(&h);
    if (!error)
        error = tree_version(h.walk.t, volume, &h.live);
    if (!error)
        error = count_all(&h);
    walk_end(&h.walk);
    free(h.snapshots);
    free(h.leaves);
    free(h.touched);
    *bytes = h.blocks * STORE_BLOCK;
    return error;
}
