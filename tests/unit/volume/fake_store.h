/* A store of trees only, kept in RAM: their records, and who is whose snapshot; and a clock that a test sets. */
#ifndef TESTS_UNIT_VOLUME_FAKE_STORE_H
#define TESTS_UNIT_VOLUME_FAKE_STORE_H

#include "sluice/store.h"

enum { TREES_MOST = 4096 };
static struct {
    char *props;
    struct store_limits limits;
    uint32_t parent, origin, number;
} trees[TREES_MOST];
static uint32_t tree_count;
static int refuse;

static uint32_t tree_new(const char *props, size_t length)
{
    trees[tree_count].props = strndup(props, length);
    return ++tree_count;
}

static int fake_create(struct store *s, const char *props, size_t length, const struct store_limits *limits,
                       uint32_t uid, uint32_t gid, uint32_t mode, uint32_t *id)
{
    if (refuse)
        return refuse;
    *id = tree_new(props, length);
    trees[*id - 1].limits = *limits;
    return 0;
}

static int fake_update(struct store *s, uint32_t id, const char *props, size_t length,
                       const struct store_limits *limits)
{
    if (refuse)
        return refuse;
    free(trees[id - 1].props);
    trees[id - 1].props = strndup(props, length);
    trees[id - 1].limits = *limits;
    return 0;
}

static int fake_delete(struct store *s, uint32_t id)
{
    if (refuse)
        return refuse;
    free(trees[id - 1].props);
    trees[id - 1].props = NULL;
    return 0;
}

static int fake_each(struct store *s, int (*each)(void *arg, const struct store_tree *tree), void *arg)
{
    int error = 0;
    for (uint32_t i = tree_count; i-- > 0 && !error;) { /* snapshots before their volumes */
        struct store_tree tree = {.id = i + 1,
                                  .limits = trees[i].limits,
                                  .props = trees[i].props,
                                  .parent = trees[i].parent,
                                  .origin = trees[i].origin,
                                  .number = trees[i].number};
        tree.props_length = trees[i].props ? strlen(trees[i].props) : 0;
        if (trees[i].props)
            error = each(arg, &tree);
    }
    return error;
}

static int fake_snapshot(struct store *s, struct store_snapshot *each, unsigned count)
{
    static uint32_t number;
    for (unsigned i = 0; i < count && !refuse; i++) {
        each[i].id = tree_new(each[i].props, each[i].props_length);
        each[i].number = ++number;
        trees[each[i].id - 1].parent = each[i].volume;
        trees[each[i].id - 1].number = each[i].number;
    }
    return refuse;
}

static int fake_clone(struct store *s, uint32_t snapshot, const char *props, size_t length,
                      const struct store_limits *limits, uint32_t *id)
{
    if (refuse)
        return refuse;
    *id = tree_new(props, length);
    trees[*id - 1].origin = snapshot;
    trees[*id - 1].limits = *limits;
    return 0;
}

static int fake_restore(struct store *s, uint32_t volume, uint32_t snapshot, struct store_snapshot *safety)
{
    return safety ? fake_snapshot(s, safety, 1) : refuse;
}

static int fake_usage(struct store *s, uint32_t tree, struct store_usage *out)
{
    *out = (struct store_usage){0};
    return 0;
}

static int split_says;

static int fake_split(struct store *s, uint32_t tree, bool (*go_on)(void *arg, uint64_t bytes), void *arg)
{
    return refuse ? refuse : split_says;
}

/* ---- named records ---- */

static struct {
    char key[64], *value;
} named[64];

static int fake_named_put(struct store *s, const char *key, const void *value, size_t length)
{
    int at = 0;
    if (refuse)
        return refuse;
    while (at < 63 && named[at].value && strcmp(named[at].key, key) != 0)
        at++;
    free(named[at].value);
    snprintf(named[at].key, sizeof named[at].key, "%s", key);
    named[at].value = value ? strndup(value, length) : strdup("");
    return 0;
}

static int fake_named_each(struct store *s, int (*each)(void *arg, const char *key, const void *value, size_t length),
                           void *arg)
{
    int error = 0;
    for (int i = 0; i < 64 && !error; i++)
        if (named[i].value && *named[i].value)
            error = each(arg, named[i].key, named[i].value, strlen(named[i].value));
    return error;
}

/* ---- the clock ---- */

static int64_t fake_time = 1796061900; /* 2026-11-30 18:05 */

static int64_t fake_clock(void)
{
    return fake_time;
}

static const struct store_ops ops = {.tree_create = fake_create,
                                     .tree_update = fake_update,
                                     .tree_delete = fake_delete,
                                     .tree_each = fake_each,
                                     .snapshot = fake_snapshot,
                                     .clone = fake_clone,
                                     .split = fake_split,
                                     .usage = fake_usage,
                                     .restore = fake_restore,
                                     .named_put = fake_named_put,
                                     .named_each = fake_named_each};
static struct store fake = {&ops};

static inline void fake_free(void)
{
    for (uint32_t i = 0; i < tree_count; i++)
        free(trees[i].props);
    for (int i = 0; i < 64; i++)
        free(named[i].value);
}

#endif
