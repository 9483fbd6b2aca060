/* For the tests of metadata: a pool in a temporary directory, and functions that run in a mutation. */
#ifndef TESTS_UNIT_STORE_TEST_META_FIXTURE_H
#define TESTS_UNIT_STORE_TEST_META_FIXTURE_H

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <urcu.h>

#include <cmocka.h>

#include "store/local/meta_private.h"
#include "store/local/writer.h"

static char pool_path[64];
static struct local *l;

static inline void fixture_open(void)
{
    char why[256];
    struct store *s;
    struct store_options options = {.pool = pool_path, .cache_bytes = 4 << 20, .inode_entries = 2000,
                                    .map_entries = 2000, .map_size = 1ull << 30, .segment_bytes = 64 << 20};
    int error = store_local_open(&options, &s, why);
    if (error)
        fail_msg("open: %s", why);
    l = local_of(s);
}

static inline void fixture_close(void)
{
    l->store.ops->close(&l->store);
    l = NULL;
}

static inline int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    return remove(path);
}

/* Per test: a fresh pool. */
static inline int fixture_start(void **state)
{
    strcpy(pool_path, "/tmp/sluice-meta-XXXXXX");
    if (!mkdtemp(pool_path))
        return -1;
    fixture_open();
    return 0;
}

static inline int fixture_stop(void **state)
{
    if (l)
        fixture_close();
    return nftw(pool_path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Per program. */
static inline int fixture_workers_start(void **state)
{
    rcu_register_thread();
    log_set_level(LOG_LEVEL_ERROR);
    return workers_start(2);
}

static inline int fixture_workers_stop(void **state)
{
    workers_stop(2000);
    blocking_stop();
    rcu_unregister_thread();
    return 0;
}

struct in_mutation {
    struct mutation m;
    int (*fn)(struct meta_txn *t, void *arg);
    void *arg;
};

static inline int in_mutation_apply(struct mutation *m, struct meta_txn *t)
{
    struct in_mutation *in = (struct in_mutation *)m;
    return in->fn(t, in->arg);
}

static inline int in_mutation_run(void *arg)
{
    struct in_mutation *in = arg;
    return writer_run(l, &in->m);
}

/* Runs fn in a group of its own. */
static inline int mutate(int (*fn)(struct meta_txn *t, void *arg), void *arg)
{
    struct in_mutation in = {.m.apply = in_mutation_apply, .fn = fn, .arg = arg};
    return worker_call(worker_at(0), in_mutation_run, &in);
}

struct tree_call {
    const char *props;
    size_t length;
    uint32_t id;
    int what; /* 0 create, 1 update, 2 delete */
};

static inline int tree_call_run(void *arg)
{
    struct tree_call *c = arg;
    if (c->what == 0)
        return tree_create(&l->store, c->props, c->length, &(struct store_limits){0}, 1, 2, 0755, &c->id);
    return c->what == 1 ? tree_update(&l->store, c->id, c->props, c->length, &(struct store_limits){.bytes = 77}) : tree_delete(&l->store, c->id);
}

static inline uint32_t new_tree(void)
{
    struct tree_call c = {.props = "x", .length = 1};
    assert_int_equal(worker_call(worker_at(0), tree_call_run, &c), 0);
    return c.id;
}

#endif
