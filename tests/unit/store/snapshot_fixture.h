/* Snapshots, clones and restores for the tests of file operations. */
#ifndef TESTS_UNIT_STORE_SNAPSHOT_FIXTURE_H
#define TESTS_UNIT_STORE_SNAPSHOT_FIXTURE_H

#include "ops_fixture.h"

struct snapshot_call {
    struct pool *p;
    int what;
    struct store_snapshot *each;
    unsigned count;
    uint32_t tree, snapshot, id;
    uint64_t limit;
};

static inline int call_snapshot_in_worker(void *arg)
{
    struct snapshot_call *k = arg;
    struct store *s = k->p->s;
    switch (k->what) {
    case 0:
        return s->ops->snapshot(s, k->each, k->count);
    case 1:
        return s->ops->clone(s, k->snapshot, "clone", 5, &(struct store_limits){.bytes = k->limit}, &k->id);
    default:
        return s->ops->restore(s, k->tree, k->snapshot, k->each);
    }
}

static inline int call_snapshot(struct snapshot_call *k)
{
    return worker_call(worker_at(turn++ % workers_count()), call_snapshot_in_worker, k);
}

static inline uint32_t t_snapshot(struct pool *p, uint32_t volume)
{
    struct store_snapshot one = {.volume = volume, .props = "snap", .props_length = 4};
    struct snapshot_call k = {.p = p, .each = &one, .count = 1};
    assert_int_equal(call_snapshot(&k), 0);
    return one.id;
}

static inline uint32_t t_clone(struct pool *p, uint32_t snapshot)
{
    struct snapshot_call k = {.p = p, .what = 1, .snapshot = snapshot};
    assert_int_equal(call_snapshot(&k), 0);
    return k.id;
}

static inline int t_restore(struct pool *p, uint32_t volume, uint32_t snapshot, struct store_snapshot *safety)
{
    struct snapshot_call k = {.p = p, .what = 2, .tree = volume, .snapshot = snapshot, .each = safety};
    return call_snapshot(&k);
}

static inline struct store_object root_of(struct pool *p, uint32_t tree)
{
    struct store_object root;
    assert_int_equal(p->s->ops->root(p->s, tree, &root), 0);
    return root;
}

/* The same object in another tree. */
static inline struct store_object in_tree(const struct store_object *o, uint32_t tree)
{
    return (struct store_object){.tree = tree, .generation = o->generation, .ino = o->ino};
}

#endif
