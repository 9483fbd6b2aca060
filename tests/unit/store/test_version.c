#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "store/local/version.h"

enum { VERSIONS = 60, STEPS = 200, HISTORIES = 60 };

struct model { /* parent of each version; 0: a root */
    uint64_t parent[VERSIONS * 4];
    bool there[VERSIONS * 4];
    uint32_t tree[VERSIONS * 4];
    uint64_t last;
};

static bool model_is_ancestor(const struct model *m, uint64_t a, uint64_t v)
{
    for (; v; v = m->parent[v])
        if (v == a)
            return true;
    return false;
}

static uint64_t model_below(const struct model *m, uint64_t v, uint64_t limit)
{
    while (v && v >= limit)
        v = m->parent[v];
    return v;
}

static void compare(const struct model *m, const struct versions *vs)
{
    for (uint64_t v = 1; v <= m->last; v++) {
        assert_int_equal(versions_known(vs, v), m->there[v]);
        if (!m->there[v])
            continue;
        assert_true(versions_parent(vs, v) == m->parent[v]);
        assert_int_equal(versions_tree(vs, v), m->tree[v]);
        for (uint64_t a = 1; a <= m->last + 1; a++) {
            assert_true(versions_below(vs, v, a) == model_below(m, v, a));
            if (a <= m->last && m->there[a])
                assert_int_equal(versions_is_ancestor(vs, a, v), model_is_ancestor(m, a, v));
        }
    }
}

static uint64_t any(const struct model *m)
{
    for (int tries = 0; tries < 50; tries++) {
        uint64_t v = 1 + (uint64_t)random() % m->last;
        if (m->there[v])
            return v;
    }
    return 0;
}

/* Changes a copy, as the writer does: who reads the old one must not notice. */
static void step(struct model *m, struct versions **vs)
{
    struct versions *next = versions_copy(*vs);
    uint64_t v = m->last ? any(m) : 0;
    struct model before = *m;
    assert_non_null(next);
    if (v && random() % 4 == 0) {
        versions_remove(next, v);
        m->there[v] = false;
        for (uint64_t c = 1; c <= m->last; c++)
            if (m->parent[c] == v)
                m->parent[c] = m->parent[v];
    } else if (v && random() % 4 == 0) {
        m->tree[v] = (uint32_t)random() % 3;
        versions_name(next, v, m->tree[v]);
    } else {
        uint64_t parent = random() % 8 ? v : 0;
        m->last++;
        m->there[m->last] = true;
        m->parent[m->last] = parent;
        m->tree[m->last] = (uint32_t)random();
        assert_int_equal(versions_add(next, m->last, parent, m->tree[m->last]), 0);
    }
    compare(&before, *vs);
    versions_free(*vs);
    *vs = next;
}

static void compare_children(const struct model *m, struct versions *vs)
{
    uint64_t next = 0;
    for (uint64_t v = 1; v <= m->last; v++) {
        if (!m->there[v])
            continue;
        const uint64_t *children;
        long count = versions_children(vs, v, &children), seen = 0;
        bool several;
        assert_int_equal(versions_only_child(vs, v, &several), count == 1 ? children[0] : 0);
        assert_int_equal(several, count > 1);
        for (uint64_t c = 1; c <= m->last; c++)
            if (m->there[c] && m->parent[c] == v)
                assert_true(seen < count && children[seen++] == c);
        assert_int_equal(seen, count);
        assert_true(versions_next(vs, next) == v);
        next = v;
    }
    assert_true(versions_next(vs, next) == 0);
}

static void ancestry_is_that_of_a_simple_model(void **state)
{
    for (int history = 0; history < HISTORIES; history++) {
        struct model m = {0};
        struct versions *vs = versions_build(NULL, 0);
        for (int i = 0; i < STEPS && m.last < VERSIONS; i++) {
            step(&m, &vs);
            compare(&m, vs);
            compare_children(&m, vs);
        }
        versions_free(vs);
    }
}

static void a_long_branch_is_searched_by_halves(void **state)
{
    enum { LENGTH = 100000, FORK = 50000 };
    struct version_link *links = calloc(LENGTH + 1, sizeof(*links));
    for (uint64_t v = 1; v <= LENGTH; v++)
        links[v - 1] = (struct version_link){v * 2, (v - 1) * 2, 0};
    links[LENGTH] = (struct version_link){LENGTH * 2 + 1, FORK, 0};
    struct versions *vs = versions_build(links, LENGTH + 1);
    assert_true(versions_is_ancestor(vs, 2, LENGTH * 2));
    assert_true(versions_below(vs, LENGTH * 2, 70001) == 70000);
    assert_true(versions_below(vs, LENGTH * 2 + 1, 70001) == FORK);
    assert_false(versions_is_ancestor(vs, FORK + 2, LENGTH * 2 + 1));
    versions_free(vs);
    free(links);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ancestry_is_that_of_a_simple_model),
        cmocka_unit_test(a_long_branch_is_searched_by_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
