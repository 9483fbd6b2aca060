#include "audit.h"
#include "snapshot_fixture.h"

/* What versions that nothing names any more leave behind: nothing.  Few files, many trees: what version-model.py does.
 * STEPS=N and SEED=N in the environment choose others. */

enum { FILES = 4, TREES = 24, STEPS = 3000, AUDIT_EVERY = 100 };

static struct store_object files[FILES];

static void make_files(struct pool *p)
{
    for (int i = 0; i < FILES; i++) {
        char name[8];
        snprintf(name, sizeof(name), "f%d", i);
        assert_int_equal(t_make(p, &root_cred, &p->root, name, STORE_REG, 0644, &files[i]), 0);
    }
}

static void change(struct pool *p, uint32_t tree, int i, uint32_t mode)
{
    struct store_object o = in_tree(&files[i], tree);
    assert_int_equal(t_chmod(p, &root_cred, &o, mode), 0);
}

static uint32_t mode_in(struct pool *p, uint32_t tree, int i)
{
    struct store_object o = in_tree(&files[i], tree);
    return attr_of(p, &o).mode;
}

/* Only `last` sees f0 as it was at first: its child is a fork without a name, and all below that have changed it. */
static void the_last_that_sees_a_record_goes_above_a_fork(void **state)
{
    struct pool *p = *state;
    make_files(p);
    uint32_t first = t_snapshot(p, p->tree), other = t_clone(p, first);
    change(p, other, 0, 0601);
    change(p, p->tree, 1, 0602);
    uint32_t last = t_snapshot(p, p->tree);
    change(p, p->tree, 2, 0603);
    uint32_t fork = t_snapshot(p, p->tree), third = t_clone(p, fork);
    change(p, third, 0, 0604);
    change(p, p->tree, 0, 0605);
    assert_int_equal(t_tree_delete(p, first), 0);
    audit(p);
    assert_int_equal(t_tree_delete(p, fork), 0);
    audit(p);
    assert_int_equal(mode_in(p, last, 0), 0644);
    assert_int_equal(t_tree_delete(p, last), 0);
    audit(p);
    assert_int_equal(mode_in(p, other, 0), 0601);
    assert_int_equal(mode_in(p, third, 0), 0604);
    assert_int_equal(mode_in(p, p->tree, 0), 0605);
    assert_int_equal(mode_in(p, third, 1), 0602);
}

struct seen_as {
    uint32_t id;
    bool snapshot;
    uint32_t mode[FILES];
};
static struct seen_as trees[TREES];
static unsigned tree_count;

static unsigned rnd(unsigned below)
{
    return (unsigned)random() % below;
}

/* NULL: there is none. */
static struct seen_as *any(bool snapshot)
{
    unsigned from = tree_count ? rnd(tree_count) : 0;
    for (unsigned i = 0; i < tree_count; i++)
        if (trees[(from + i) % tree_count].snapshot == snapshot)
            return &trees[(from + i) % tree_count];
    return NULL;
}

static void add(const struct seen_as *like, uint32_t id, bool snapshot)
{
    trees[tree_count] = *like;
    trees[tree_count].id = id;
    trees[tree_count++].snapshot = snapshot;
}

static void take_away(struct pool *p, struct seen_as *gone)
{
    assert_int_equal(t_tree_delete(p, gone->id), 0);
    *gone = trees[--tree_count];
}

static void step(struct pool *p)
{
    unsigned op = rnd(100);
    struct seen_as *live = any(false), *snapshot = any(true);
    bool room = tree_count < TREES;
    if (op < 45) {
        int i = (int)rnd(FILES);
        live->mode[i] = rnd(01000);
        change(p, live->id, i, live->mode[i]);
    } else if (op < 63 && room) {
        add(live, t_snapshot(p, live->id), true);
    } else if (op < 73 && room && snapshot) {
        add(snapshot, t_clone(p, snapshot->id), false);
    } else if (op < 78 && snapshot) {
        assert_int_equal(t_restore(p, live->id, snapshot->id, NULL), 0);
        memcpy(live->mode, snapshot->mode, sizeof(live->mode));
    } else if (op < 95 && snapshot) {
        take_away(p, snapshot);
    } else if (live->id != p->tree) {
        take_away(p, live);
    }
}

static void nothing_is_left_that_nobody_sees(void **state)
{
    struct pool *p = *state;
    unsigned steps = getenv("STEPS") ? (unsigned)atoi(getenv("STEPS")) : STEPS;
    unsigned seed = getenv("SEED") ? (unsigned)atoi(getenv("SEED")) : 1;
    print_message("SEED=%u STEPS=%u\n", seed, steps);
    srandom(seed);
    make_files(p);
    tree_count = 0;
    add(&(struct seen_as){.mode = {0644, 0644, 0644, 0644}}, p->tree, false);
    for (unsigned n = 1; n <= steps; n++) {
        step(p);
        if (n % AUDIT_EVERY)
            continue;
        print_message("step %u, %u trees\n", n, tree_count);
        audit(p);
        for (unsigned t = 0; t < tree_count; t++)
            for (int i = 0; i < FILES; i++)
                assert_int_equal(mode_in(p, trees[t].id, i), trees[t].mode[i]);
    }
}

static int tests(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test_setup_teardown(the_last_that_sees_a_record_goes_above_a_fork, pool_setup_in_memory,
                                        pool_teardown),
        cmocka_unit_test_setup_teardown(nothing_is_left_that_nobody_sees, pool_setup_in_memory, pool_teardown),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(void)
{
    return run_with_workers(tests);
}
