#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/local/meta_private.h"

enum { STEP_BLOCKS_MOST = 262144 }; /* freed by one step: its runs are sorted and written with the group */

static void drop_key(char key[64], uint64_t version)
{
    snprintf(key, 64, "drop/%016llx", (unsigned long long)version);
}

int meta_drop_next(struct meta_txn *t, uint64_t *version)
{
    uint8_t value[RECORD_MAX];
    char key[64] = "";
    size_t length;
    if (*version)
        drop_key(key, *version);
    int error = meta_system_next(t, "drop/", key, value, sizeof(value), &length);
    if (!error)
        *version = strtoull(key + strlen("drop/"), NULL, 16);
    return error;
}

static int64_t release_map(struct meta_txn *t, const struct chunk_map *map)
{
    int64_t blocks = 0;
    for (unsigned i = 0; map->kind == CHUNK_MAP && i < map->extent_count; i++) {
        blocks_release(t, map->extents[i].place, map->extents[i].count);
        blocks += map->extents[i].count;
    }
    return blocks;
}

/* Removes the record that one entry of `touched` names, if it is still there. */
static int64_t drop_record(struct meta_txn *t, const struct record *touched, uint64_t version)
{
    struct key k = {.length = (uint8_t)(touched->length - 1)};
    struct record r;
    struct chunk_map map = {.kind = CHUNK_HOLE};
    enum db db = touched->value[0];
    if (touched->length < 1 + KEY_VERSION || k.length > KEY_ROOM - KEY_VERSION || db >= DB_TOUCHED) {
        t->failed = SL_ECORRUPT;
        return 0;
    }
    memcpy(k.bytes, touched->value + 1, k.length);
    key_add_version(&k, version);
    if (db_get(t, db, &k, &r))
        return 0;
    if (db == DB_CHUNK && !record_is_gone(r.value, r.length)) {
        int error = chunk_decode(r.value, r.length, &map);
        if (error)
            log_error("meta", "version %llu: a damaged block map; its blocks are lost", (unsigned long long)version);
        if (error)
            map.kind = CHUNK_HOLE;
    }
    db_del(t, db, &k);
    return release_map(t, &map);
}

static void forget_version(struct meta_txn *t, uint64_t version)
{
    char key[64];
    snprintf(key, sizeof(key), "version/%016llx", (unsigned long long)version);
    meta_system_put(t, key, NULL, 0);
    drop_key(key, version);
    meta_system_put(t, key, NULL, 0);
    group_set_versions(t, versions_without(txn_versions(t), version));
}

int meta_drop_step(struct meta_txn *t, uint64_t version, unsigned budget_us, bool *more)
{
    struct key from;
    struct record touched;
    uint64_t end = clock_monotonic_ns() + budget_us * 1000ull;
    int64_t blocks = 0;
    *more = true;
    key_touched(&from, version, 0);
    while (!t->failed && blocks < STEP_BLOCKS_MOST && clock_monotonic_ns() < end) {
        int error = db_seek(t, DB_TOUCHED, &from, &touched);
        if (error && error != -ENOENT)
            return error;
        if (error || touched.key_length != from.length || key_number(touched.key, 0) != version) {
            *more = false;
            forget_version(t, version);
            break;
        }
        blocks += drop_record(t, &touched, version);
        memcpy(from.bytes, touched.key, from.length);
        db_del(t, DB_TOUCHED, &from);
    }
    return t->failed;
}
