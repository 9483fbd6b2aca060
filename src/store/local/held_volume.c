/* What the snapshots of a volume hold that nobody else's records do: looked for among the chunks that were touched
 * since the oldest of them, on the way to the volume's version and on the ways to those snapshots that it left behind
 * when it was restored. */
#include <stdlib.h>
#include <string.h>

#include "store/local/chunk_map.h"
#include "store/local/diff.h"
#include "store/local/held_runs.h"

struct list { /* growing */
    void *at;
    size_t count, room;
};

struct chunk_id {
    uint64_t ino, chunk;
};

struct way { /* from a version up to where it meets another way; `top` is the other's */
    uint64_t leaf, top;
    struct list snapshots; /* of the volume, on this way: versions, descending */
};

struct held_volume {
    struct walk walk;
    uint32_t volume;
    struct list snapshots; /* versions, ascending */
    struct list ways;      /* the first is that of the volume itself */
    struct list touched;   /* chunks, by one version */
    struct list seen;      /* of the chunk being looked at: the versions whose records snapshots see */
    struct held_runs runs; /* what those hold and the volume's own does not have at the same block */
    uint64_t inside;       /* blocks within records */
    bool (*go_on)(void *arg);
    void *arg;
};

static void *one_more(struct list *list, size_t size)
{
    if (list->count == list->room) {
        size_t room = list->room ? list->room * 2 : 64;
        void *grown = realloc(list->at, room * size);
        if (!grown)
            return NULL;
        list->at = grown;
        list->room = room;
    }
    return (char *)list->at + size * list->count++;
}

static int add(struct list *list, uint64_t value)
{
    uint64_t *at = one_more(list, sizeof *at);
    if (at)
        *at = value;
    return at ? 0 : -ENOMEM;
}

static bool has(const struct list *list, uint64_t value)
{
    const uint64_t *at = list->at;
    for (size_t i = 0; i < list->count; i++)
        if (at[i] == value)
            return true;
    return false;
}

/* ---- one chunk ---- */

/* The first snapshot of the way that is older; 0: none. */
static uint64_t older_snapshot(const struct way *way, uint64_t than)
{
    const uint64_t *at = way->snapshots.at;
    size_t low = 0, high = way->snapshots.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (at[middle] < than)
            high = middle;
        else
            low = middle + 1;
    }
    return low < way->snapshots.count ? at[low] : 0;
}

/* Those between a snapshot and the record that it sees, on the same way, see it too. */
static int see_from_way(struct held_volume *h, const struct way *way, const struct key *k)
{
    struct record r;
    uint64_t found = UINT64_MAX, at;
    while (found > way->top && (at = older_snapshot(way, found))) {
        int error = visible(h->walk.t, DB_CHUNK, k, at, &r, &found);
        if (error && error != -ENOENT)
            return error;
        if (found && !has(&h->seen, found) && add(&h->seen, found))
            return -ENOMEM;
        if (!found)
            break;
    }
    return 0;
}

static int decode_record(struct held_volume *h, const struct key *k, uint64_t version, struct chunk_map *map)
{
    struct key whole = *k;
    struct record r;
    key_add_version(&whole, version);
    map->kind = CHUNK_HOLE;
    int error = db_get(h->walk.t, DB_CHUNK, &whole, &r);
    if (!error && !record_is_gone(r.value, r.length))
        error = chunk_decode(r.value, r.length, map);
    return error == -ENOENT ? 0 : error;
}

static place_t place_in(const struct chunk_map *map, unsigned block)
{
    return map->kind == CHUNK_MAP ? chunk_place(map, block) : 0;
}

/* The places in a record that was seen, where the volume's own does not have them. */
static int count_places(struct held_volume *h, const struct chunk_map *map, const struct chunk_map *own)
{
    int error = 0;
    for (unsigned b = 0, run; b < CHUNK_BLOCKS && !error; b += run) {
        place_t place = place_in(map, b);
        for (run = 1; b + run < CHUNK_BLOCKS && place && place != place_in(own, b); run++)
            if (place_in(map, b + run) != place + run || place_in(own, b + run) == place + run)
                break;
        if (place && place != place_in(own, b))
            error = held_runs_add(&h->runs, h->walk.t, place, run);
    }
    return error;
}

static int count_seen(struct held_volume *h, const struct key *k, const struct chunk_map *own)
{
    const uint64_t *seen = h->seen.at;
    struct chunk_map *map = malloc(sizeof *map);
    int error = map ? 0 : -ENOMEM;
    for (size_t i = 0; i < h->seen.count && !error; i++) {
        error = decode_record(h, k, seen[i], map);
        h->inside += error ? 0 : chunk_map_inside(h->walk.local, map);
        if (!error)
            error = count_places(h, map, own);
    }
    free(map);
    return error;
}

/* Called for each version that has touched the chunk; it counts for the newest record that anybody sees. */
static int count_chunk(struct held_volume *h, uint64_t version, const struct chunk_id *id)
{
    const struct way *ways = h->ways.at;
    struct chunk_map own;
    struct record r;
    struct key k;
    uint64_t live, newest;
    key_chunk(&k, id->ino, id->chunk);
    int error = visible(h->walk.t, DB_CHUNK, &k, ways[0].leaf, &r, &live);
    if (error && error != -ENOENT)
        return error;
    h->seen.count = 0;
    error = 0;
    for (size_t i = 0; i < h->ways.count && !error; i++)
        error = see_from_way(h, &ways[i], &k);
    newest = live;
    size_t others = 0; /* that the volume does not see as well */
    for (size_t i = 0; i < h->seen.count; i++) {
        uint64_t *seen = h->seen.at, at = seen[i];
        newest = at > newest ? at : newest;
        if (at != live)
            seen[others++] = at;
    }
    h->seen.count = others;
    if (error || newest != version || !others)
        return error;
    error = decode_record(h, &k, live, &own);
    return error ? error : count_seen(h, &k, &own);
}

/* ---- the ways ---- */

static int gather(void *arg, enum db db, const struct key *k)
{
    struct held_volume *h = arg;
    if (!h->go_on(h->arg))
        return -ECANCELED;
    if (db != DB_CHUNK)
        return 0;
    struct chunk_id *id = one_more(&h->touched, sizeof *id);
    if (!id)
        return -ENOMEM;
    *id = (struct chunk_id){key_number(k->bytes, 0), key_number(k->bytes, 8)};
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
static int count_version(struct held_volume *h, uint64_t version)
{
    h->touched.count = 0;
    int error = walk_touched(&h->walk, version, gather, h);
    const struct chunk_id *id = h->touched.at;
    if (!error && h->touched.count)
        qsort(h->touched.at, h->touched.count, sizeof *id, by_id);
    for (size_t i = 0; i < h->touched.count && !error; i++) {
        if (i && by_id(&id[i - 1], &id[i]) == 0)
            continue;
        error = count_chunk(h, version, &id[i]);
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
        error = count_version(h, v);
    return error;
}

/* Is `v` on one of the ways? */
static struct way *way_of(struct held_volume *h, uint64_t v)
{
    const struct versions *vs = txn_versions(h->walk.t);
    struct way *ways = h->ways.at;
    for (size_t i = 0; i < h->ways.count; i++)
        if (v > ways[i].top && versions_is_ancestor(vs, v, ways[i].leaf))
            return &ways[i];
    return NULL;
}

static struct way *new_way(struct held_volume *h, uint64_t leaf)
{
    const struct versions *vs = txn_versions(h->walk.t);
    uint64_t top = versions_parent(vs, leaf);
    while (top && !way_of(h, top))
        top = versions_parent(vs, top);
    struct way *way = one_more(&h->ways, sizeof *way);
    if (way)
        *way = (struct way){.leaf = leaf, .top = top};
    return way;
}

/* The newest first: where one is on no way yet, its own begins with it. */
static int find_ways(struct held_volume *h, uint64_t live)
{
    const struct versions *vs = txn_versions(h->walk.t);
    const uint64_t *snapshots = h->snapshots.at;
    struct way *first = one_more(&h->ways, sizeof *first);
    if (!first)
        return -ENOMEM;
    *first = (struct way){.leaf = live};
    for (size_t i = h->snapshots.count; i-- > 0;) {
        struct way *way = way_of(h, snapshots[i]);
        if (!way)
            way = new_way(h, snapshots[i]);
        if (!way || add(&way->snapshots, snapshots[i]))
            return -ENOMEM;
    }
    /* The volume's way has to go as far up as anybody meets it. */
    struct way *ways = h->ways.at;
    uint64_t top = live;
    for (size_t i = 0; i < h->ways.count; i++) {
        const struct list *own = &ways[0].snapshots;
        uint64_t meets = i ? ways[i].top : own->count ? ((uint64_t *)own->at)[own->count - 1] : live;
        if (meets < top && (!meets || versions_is_ancestor(vs, meets, live)))
            top = meets;
    }
    ways[0].top = top;
    return 0;
}

static int find_snapshots(struct held_volume *h)
{
    const struct versions *vs = txn_versions(h->walk.t);
    struct tree tree;
    for (uint64_t v = versions_next(vs, 0); v; v = versions_next(vs, v)) {
        uint32_t id = versions_tree(vs, v);
        if (id && !meta_tree(h->walk.local, id, &tree) && tree.volume == h->volume && tree.number &&
            add(&h->snapshots, v))
            return -ENOMEM;
    }
    return 0;
}

static int count_all(struct held_volume *h)
{
    uint64_t live;
    int error = tree_version(h->walk.t, h->volume, &live);
    if (!error)
        error = find_snapshots(h);
    if (!error)
        error = find_ways(h, live);
    for (size_t i = 0; i < h->ways.count && !error; i++)
        error = count_way(h, (struct way *)h->ways.at + i);
    return error;
}

static void held_free(struct held_volume *h)
{
    struct list *lists[] = {&h->snapshots, &h->ways, &h->touched, &h->seen};
    for (size_t i = 0; i < h->ways.count; i++)
        free(((struct way *)h->ways.at)[i].snapshots.at);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        free(lists[i]->at);
    held_runs_free(&h->runs);
}

int held_by_snapshots(struct store *s, uint32_t volume, bool (*go_on)(void *arg), void *arg, uint64_t *bytes)
{
    struct held_volume h = {.volume = volume, .go_on = go_on, .arg = arg};
    int error = walk_begin(&h.walk, local_of(s));
    if (!error)
        error = count_all(&h);
    walk_end(&h.walk);
    *bytes = error ? 0 : (h.inside + held_runs_count(&h.runs)) * STORE_BLOCK;
    held_free(&h);
    return error;
}
