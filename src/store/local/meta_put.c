#include <stdio.h>
#include <string.h>

#include "store/local/chunk_map.h"
#include "store/local/meta_private.h"

uint64_t meta_next_change(struct meta_txn *t)
{
    return ++group_counters(t->group)->change;
}

uint64_t meta_next_ino(struct meta_txn *t)
{
    return ++group_counters(t->group)->ino;
}

/* ---- versioned records ---- */

void touch(struct meta_txn *t, enum db db, const struct key *k, uint64_t version)
{
    struct key touched;
    uint8_t value[1 + KEY_ROOM];
    key_touched(&touched, version, ++group_counters(t->group)->serial);
    value[0] = (uint8_t)db;
    memcpy(value + 1, k->bytes, k->length);
    db_put(t, DB_TOUCHED, &touched, value, 1 + (size_t)k->length);
    group_note_touched(t, version, 1);
}

int versioned_put(struct meta_txn *t, enum db db, const struct key *k, uint64_t version, uint64_t seen,
                  const void *value, size_t length)
{
    struct key whole = *k;
    key_add_version(&whole, version);
    db_put(t, db, &whole, value, length);
    if (seen != version)
        touch(t, db, k, version);
    if (seen && seen != version && !versions_tree(txn_versions(t), seen))
        version_hidden(t, seen, db, k);
    return t->failed;
}

bool lies_beneath(struct meta_txn *t, enum db db, const struct key *k, uint64_t version)
{
    uint64_t parent = versions_parent(txn_versions(t), version), found;
    struct record r;
    return parent && visible(t, db, k, parent, &r, &found) == 0;
}

int versioned_del(struct meta_txn *t, enum db db, const struct key *k, uint64_t version, uint64_t seen)
{
    static const uint8_t gone = RECORD_GONE;
    if (seen != version)
        return versioned_put(t, db, k, version, seen, &gone, 1);
    if (lies_beneath(t, db, k, version))
        return versioned_put(t, db, k, version, seen, &gone, 1);
    struct key whole = *k;
    key_add_version(&whole, version);
    db_del(t, db, &whole);
    return t->failed;
}

/* ---- inodes ---- */

static bool is_counted(struct meta_txn *t, uint32_t tree, uint64_t ino)
{
    const struct tree_node *node;
    if (!group_tree(t->group, tree, &node))
        node = tree_table_find(meta_of(t)->trees, tree);
    return node && ino != node->tree.orphans;
}

static int put_inode(struct meta_txn *t, uint32_t tree, const struct inode *inode, const char *target)
{
    uint64_t version, seen;
    struct key k;
    struct record r;
    struct inode old;
    uint8_t value[RECORD_MAX];
    int error = tree_version(t, tree, &version);
    if (error)
        return error;
    key_inode(&k, inode->ino);
    error = visible(t, DB_INODE, &k, version, &r, &seen);
    bool fresh = error == -ENOENT;
    if (error && !fresh)
        return error;
    if (!target && inode->target_length) {
        error = fresh ? -ENOENT : inode_decode(r.value, r.length, inode->ino, &old, &target);
        if (error || old.target_length != inode->target_length)
            return t->failed = error ? error : -EINVAL;
    }
    error = versioned_put(t, DB_INODE, &k, version, seen, value, inode_encode(inode, target, value));
    if (error)
        return error;
    if (fresh && is_counted(t, tree, inode->ino))
        group_note_usage(t, tree, 0, 1);
    group_note_inode(t, tree, inode);
    return t->failed;
}

int meta_put_inode(struct meta_txn *t, uint32_t tree, const struct inode *inode)
{
    return put_inode(t, tree, inode, NULL);
}

int meta_put_target(struct meta_txn *t, uint32_t tree, const struct inode *inode, const char *target,
                    uint32_t length)
{
    struct inode whole = *inode;
    whole.target_length = (uint16_t)length;
    return put_inode(t, tree, &whole, target);
}

int meta_del_inode(struct meta_txn *t, uint32_t tree, uint64_t ino)
{
    uint64_t version, seen;
    struct key k;
    struct record r;
    int error = tree_version(t, tree, &version);
    if (error)
        return error;
    key_inode(&k, ino);
    error = visible(t, DB_INODE, &k, version, &r, &seen);
    if (error)
        return error == -ENOENT ? -ESTALE : error;
    versioned_del(t, DB_INODE, &k, version, seen);
    if (is_counted(t, tree, ino))
        group_note_usage(t, tree, 0, -1);
    group_note_inode_gone(t, tree, ino);
    return t->failed;
}

/* ---- further links ---- */

static int link_seen(struct meta_txn *t, uint32_t tree, const struct key *k, uint64_t *version, uint64_t *seen)
{
    struct record r;
    int error = tree_version(t, tree, version);
    return error ? error : visible(t, DB_LINK, k, *version, &r, seen);
}

int meta_put_link(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t dir, uint64_t position)
{
    static const uint8_t present = 1;
    uint64_t version, seen;
    struct key k;
    key_link(&k, ino, dir, position);
    int error = link_seen(t, tree, &k, &version, &seen);
    if (error && error != -ENOENT)
        return error;
    return versioned_put(t, DB_LINK, &k, version, seen, &present, 1);
}

int meta_del_link(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t dir, uint64_t position)
{
    uint64_t version, seen;
    struct key k;
    key_link(&k, ino, dir, position);
    int error = link_seen(t, tree, &k, &version, &seen);
    return error ? error : versioned_del(t, DB_LINK, &k, version, seen);
}

/* ---- chunks ---- */

static void places_of(const struct chunk_map *map, place_t places[CHUNK_BLOCKS])
{
    memset(places, 0, CHUNK_BLOCKS * sizeof(place_t));
    if (map->kind != CHUNK_MAP)
        return;
    for (unsigned i = 0; i < map->extent_count; i++)
        for (unsigned n = 0; n < map->extents[i].count; n++)
            places[map->extents[i].block + n] = map->extents[i].place + n;
}

/* Calls fn for each run of places in `these` that `others` does not have at the same block.  Returns how many blocks
 * `these` has in all. */
static unsigned runs_only_in(struct meta_txn *t, const place_t these[CHUNK_BLOCKS],
                             const place_t others[CHUNK_BLOCKS],
                             void (*fn)(struct meta_txn *, place_t, uint32_t))
{
    unsigned total = 0, run = 0;
    for (unsigned b = 0; b < CHUNK_BLOCKS; b++) {
        total += these[b] != 0;
        bool only = these[b] && these[b] != others[b];
        if (run && (!only || these[b] != these[b - 1] + 1)) {
            fn(t, these[b - run], run);
            run = 0;
        }
        run += only;
    }
    if (run)
        fn(t, these[CHUNK_BLOCKS - run], run);
    return total;
}

/* *inside: how many blocks its bytes within the record count for. */
static int old_chunk(struct meta_txn *t, const struct key *k, uint64_t version, place_t places[CHUNK_BLOCKS],
                     uint64_t *seen, int64_t *inside)
{
    struct record r;
    struct chunk_map old = {.kind = CHUNK_HOLE};
    int error = visible(t, DB_CHUNK, k, version, &r, seen);
    if (!error)
        error = chunk_decode(r.value, r.length, &old);
    if (error && error != -ENOENT)
        return t->failed = error;
    places_of(&old, places);
    *inside = chunk_map_inside(t->local, &old);
    return error;
}

static void other_holds(struct meta_txn *t, place_t place, uint32_t blocks)
{
    /* Another version's record, which goes on doing so. */
}

/* The places of `all` whose bit in `mask` is set, as `set` says. */
static void choose(const place_t all[CHUNK_BLOCKS], uint64_t mask, bool set, place_t chosen[CHUNK_BLOCKS])
{
    for (unsigned b = 0; b < CHUNK_BLOCKS; b++)
        chosen[b] = (mask >> b & 1) == set ? all[b] : 0;
}

struct places_change {
    place_t before[CHUNK_BLOCKS], after[CHUNK_BLOCKS];
    bool own;        /* the record that was seen is the version's own */
    uint64_t shared; /* a bit for each block whose new place another record holds */
    int64_t inside;  /* blocks more that count without a place */
};

/* From the places in the record that was seen to those in the new one.  Where that was another version's, what both
 * name has one holder more.  What begins to be held comes first: it may be what is let go. */
static void change_places(struct meta_txn *t, uint32_t tree, const struct places_change *c, int64_t *delta)
{
    static const place_t none[CHUNK_BLOCKS];
    place_t some[CHUNK_BLOCKS];
    choose(c->after, c->shared, false, some);
    unsigned now = runs_only_in(t, some, c->before, blocks_take);
    if (c->shared) {
        choose(c->after, c->shared, true, some);
        now += runs_only_in(t, some, c->before, blocks_hold);
    }
    unsigned was = runs_only_in(t, c->before, c->after, c->own ? blocks_release : other_holds);
    *delta = (int64_t)now - (int64_t)was + c->inside;
    if (!c->own && now && was) {
        for (unsigned b = 0; b < CHUNK_BLOCKS; b++)
            some[b] = c->after[b] == c->before[b] ? c->after[b] : 0;
        runs_only_in(t, some, none, blocks_hold);
    }
    if (*delta)
        group_note_usage(t, tree, *delta, 0);
}

int meta_put_chunk(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t chunk, const struct chunk_map *map,
                   uint64_t change, int64_t *delta)
{
    return meta_share_chunk(t, tree, ino, chunk, map, 0, change, delta);
}

int meta_share_chunk(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t chunk, const struct chunk_map *map,
                     uint64_t shared, uint64_t change, int64_t *delta)
{
    struct places_change places = {.shared = shared};
    uint8_t value[RECORD_MAX];
    uint64_t version, seen;
    int64_t inside;
    struct key k;
    *delta = 0;
    if (map->kind == CHUNK_HOLE) {
        int gone = meta_del_chunk(t, tree, ino, chunk, delta);
        return gone == -ENOENT ? 0 : gone;
    }
    int error = tree_version(t, tree, &version);
    if (error)
        return error;
    key_chunk(&k, ino, chunk);
    error = old_chunk(t, &k, version, places.before, &seen, &inside);
    if (error && error != -ENOENT)
        return error;
    places_of(map, places.after);
    places.own = seen == version;
    places.inside = chunk_map_inside(t->local, map) - inside;
    size_t length = chunk_encode(map, change, value);
    versioned_put(t, DB_CHUNK, &k, version, seen, value, length);
    change_places(t, tree, &places, delta);
    group_note_chunk(t, tree, ino, chunk, value, length);
    return t->failed;
}

int meta_del_chunk(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t chunk, int64_t *delta)
{
    struct places_change places = {0};
    uint64_t version, seen;
    int64_t inside;
    struct key k;
    *delta = 0;
    int error = tree_version(t, tree, &version);
    if (error)
        return error;
    key_chunk(&k, ino, chunk);
    error = old_chunk(t, &k, version, places.before, &seen, &inside);
    if (error)
        return error;
    places.own = seen == version;
    places.inside = -inside;
    versioned_del(t, DB_CHUNK, &k, version, seen);
    change_places(t, tree, &places, delta);
    group_note_chunk(t, tree, ino, chunk, NULL, 0);
    return t->failed;
}

/* ---- system ---- */

int meta_system_put(struct meta_txn *t, const char *key, const void *value, size_t length)
{
    struct key k;
    if (!key_system(&k, key) || length > RECORD_MAX)
        return -EINVAL;
    if (value) {
        db_put(t, DB_SYSTEM, &k, value, length);
        return t->failed;
    }
    int error = db_del(t, DB_SYSTEM, &k);
    return error == -ENOENT ? 0 : error;
}
