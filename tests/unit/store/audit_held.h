/* What the snapshots of each volume hold that it does not hold itself, found by looking at everything that each of them
 * sees, against what store_ops.snapshots_held says; which leaves out, of that, what records hold that no snapshot of the
 * volume sees. */
#ifndef TESTS_UNIT_STORE_AUDIT_HELD_H
#define TESTS_UNIT_STORE_AUDIT_HELD_H

#include "audit.h"

#include "store/local/chunk_map.h"

struct held_set {
    uint64_t *at;
    size_t count, room;
};

static inline void held_add(struct held_set *s, uint64_t what)
{
    if (s->count == s->room) {
        s->room = s->room ? 2 * s->room : 1024;
        s->at = realloc(s->at, s->room * sizeof *s->at);
    }
    s->at[s->count++] = what;
}

static inline int held_order(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static inline void held_unique(struct held_set *s)
{
    size_t kept = 0;
    if (s->count)
        qsort(s->at, s->count, sizeof *s->at, held_order);
    for (size_t i = 0; i < s->count; i++)
        if (!kept || s->at[kept - 1] != s->at[i])
            s->at[kept++] = s->at[i];
    s->count = kept;
}

/* Places, and for bytes within a record the number of the change that wrote it: each is in one record, but for its
 * version. */
static inline void held_collect(struct meta_txn *t, uint32_t id, struct held_set *to)
{
    struct tree tree;
    struct key k;
    struct record *r = malloc(sizeof *r);
    struct chunk_map *map = malloc(sizeof *map);
    assert_int_equal(meta_tree(t->local, id, &tree), 0);
    key_chunk(&k, 0, 0);
    while (visible_from(t, DB_CHUNK, &k, 0, tree.version, r) == 0) {
        assert_int_equal(chunk_decode(r->value, r->length, map), 0);
        for (unsigned b = 0; map->kind == CHUNK_MAP && b < CHUNK_BLOCKS; b++)
            if (chunk_place(map, b))
                held_add(to, chunk_place(map, b));
        if (map->kind == CHUNK_INLINE)
            held_add(to, UINT64_C(1) << 63 | map->change);
        if (!key_increment(&k))
            break;
    }
    free(map);
    free(r);
}

static inline bool held_go_on(void *arg)
{
    return true;
}

struct held_call {
    struct pool *p;
    uint64_t most; /* of any volume: so that a test knows that it has seen something */
};

/* Does a snapshot of the volume see this record? */
static inline bool held_is_seen(struct meta_txn *t, const struct audit_trees *trees, uint32_t volume,
                                const struct record *r)
{
    struct key k = {.length = (uint8_t)(r->key_length - KEY_VERSION)};
    struct record *other = malloc(sizeof *other);
    struct tree tree;
    bool seen = false;
    memcpy(k.bytes, r->key, k.length);
    for (unsigned i = 0; i < trees->count && !seen; i++) {
        uint64_t found = 0;
        assert_int_equal(meta_tree(t->local, trees->ids[i], &tree), 0);
        if (tree.volume != volume || !tree.number)
            continue;
        visible(t, DB_CHUNK, &k, tree.version, other, &found);
        seen = found == key_version(r->key, r->key_length);
    }
    free(other);
    return seen;
}

/* The places in records that none of them sees. */
static inline void held_by_others(struct meta_txn *t, const struct audit_trees *trees, uint32_t volume,
                                  struct held_set *to)
{
    struct key at = {.length = 1};
    struct record *r = malloc(sizeof *r);
    struct chunk_map *map = malloc(sizeof *map);
    while (db_seek(t, DB_CHUNK, &at, r) == 0) {
        at.length = r->key_length;
        memcpy(at.bytes, r->key, r->key_length);
        if (!record_is_gone(r->value, r->length) && !held_is_seen(t, trees, volume, r) &&
            chunk_decode(r->value, r->length, map) == 0)
            for (unsigned b = 0; map->kind == CHUNK_MAP && b < CHUNK_BLOCKS; b++)
                if (chunk_place(map, b))
                    held_add(to, chunk_place(map, b));
        key_increment(&at);
    }
    free(map);
    free(r);
}

static inline uint64_t held_expected(struct meta_txn *t, const struct audit_trees *trees, uint32_t volume)
{
    struct held_set own = {0}, theirs = {0};
    struct tree tree;
    uint64_t blocks = 0;
    held_by_others(t, trees, volume, &own);
    for (unsigned i = 0; i < trees->count; i++) {
        assert_int_equal(meta_tree(t->local, trees->ids[i], &tree), 0);
        if (tree.volume == volume)
            held_collect(t, trees->ids[i], tree.number ? &theirs : &own);
    }
    held_unique(&own);
    held_unique(&theirs);
    for (size_t i = 0; i < theirs.count; i++)
        blocks += !own.count || !bsearch(&theirs.at[i], own.at, own.count, sizeof *own.at, held_order);
    free(own.at);
    free(theirs.at);
    return blocks * STORE_BLOCK;
}

static inline int held_run(void *arg)
{
    struct held_call *call = arg;
    struct audit_trees trees = {.count = 0};
    struct meta_txn *t;
    struct store *s = call->p->s;
    assert_int_equal(tree_each(s, audit_add_tree, &trees), 0);
    for (unsigned i = 0; i < trees.count; i++) {
        uint64_t said = 0;
        struct tree tree;
        int rc = meta_read_begin(local_of(s), &t);
        if (rc)
            return rc;
        uint64_t expected = meta_tree(t->local, trees.ids[i], &tree) || tree.number
                                ? UINT64_MAX
                                : held_expected(t, &trees, trees.ids[i]);
        meta_read_end(t);
        if (expected == UINT64_MAX)
            continue;
        rc = s->ops->snapshots_held(s, trees.ids[i], held_go_on, NULL, &said);
        if (rc)
            return rc;
        if (said != expected) {
            fprintf(stderr, "snapshots of tree %u hold %lu bytes, not %lu\n", trees.ids[i], expected, said);
            return -EINVAL;
        }
        call->most = said > call->most ? said : call->most;
    }
    return 0;
}

/* After audit(), which waits for the background; returns the most that any volume's snapshots hold. */
static inline uint64_t audit_held(struct pool *p)
{
    struct held_call call = {.p = p};
    assert_int_equal(worker_call(worker_at(0), held_run, &call), 0);
    return call.most;
}

#endif
