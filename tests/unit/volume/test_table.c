#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <urcu.h>

#include <cmocka.h>

#include "sluice/base_worker.h"
#include "sluice/volume.h"
#include "volume/table.h"

/* A store of trees only, kept in RAM. */
static struct {
    char *props;
    struct store_limits limits;
} trees[100];
static uint32_t tree_count;
static int refuse;

static int fake_create(struct store *s, const char *props, size_t length, const struct store_limits *limits,
                       uint32_t uid, uint32_t gid, uint32_t mode, uint32_t *id)
{
    if (refuse)
        return refuse;
    trees[tree_count].props = strndup(props, length);
    trees[tree_count].limits = *limits;
    *id = ++tree_count;
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
    for (uint32_t i = 0; i < tree_count && !error; i++) {
        struct store_tree tree = {.id = i + 1, .limits = trees[i].limits, .props = trees[i].props};
        tree.props_length = trees[i].props ? strlen(trees[i].props) : 0;
        if (trees[i].props)
            error = each(arg, &tree);
    }
    return error;
}

static struct store_cache_setting cache_told;

static int fake_cache(struct store *s, uint32_t id, const struct store_cache_setting *setting)
{
    if (setting->policy)
        cache_told = *setting;
    return 0;
}

static const struct store_ops ops = {.tree_create = fake_create, .tree_update = fake_update,
                                     .tree_delete = fake_delete, .tree_each = fake_each,
                                     .tree_cache = fake_cache};
static struct store fake = {&ops};

static struct volume_config config_of(const char *name, const char *rules)
{
    struct volume_config config = {0};
    char why[256];
    snprintf(config.name, sizeof config.name, "%s", name);
    assert_int_equal(volume_rules_parse(rules, &config.rules, &config.rule_count, why), 0);
    return config;
}

struct call {
    int (*what)(struct call *call);
    struct volume_config config;
    uint32_t tree;
    char why[256];
};

static int do_create(struct call *c)
{
    return volume_create(&c->config, 1, 1, 0755, &c->tree, c->why);
}

static int do_update(struct call *c)
{
    return volume_update(c->tree, &c->config, c->why);
}

static int do_delete(struct call *c)
{
    return volume_delete(c->tree, true, c->why);
}

static int in_coroutine(void *arg)
{
    struct call *c = arg;
    return c->what(c);
}

static int change(int (*what)(struct call *), struct call *c)
{
    c->what = what;
    return worker_call(worker_at(0), in_coroutine, c);
}

static int create(const char *name, const char *rules, uint32_t *tree)
{
    struct call c = {.config = config_of(name, rules)};
    int error = change(do_create, &c);
    *tree = c.tree;
    free(c.config.rules);
    return error;
}

static struct sockaddr_storage peer_of(const char *text)
{
    struct sockaddr_storage peer = {.ss_family = AF_INET};
    inet_pton(AF_INET, text, &((struct sockaddr_in *)&peer)->sin_addr);
    return peer;
}

static void a_cached_grant_ends_with_a_change(void **state)
{
    uint32_t tree, other;
    uint64_t cache[VOLUME_ACCESS_CACHE] = {0};
    struct volume_grant grant;
    struct sockaddr_storage peer = peer_of("10.0.0.1");
    assert_int_equal(create("cached", "host", &tree), 0);
    assert_int_equal(volume_access(tree, &peer, cache, &grant), 0);
    assert_false(grant.allowed);
    assert_int_equal(grant.matched_rule, UINT32_MAX);
    assert_int_equal(volume_access(tree, &peer, cache, &grant), 0);
    assert_false(grant.allowed);
    struct call c = {.config = config_of("cached", "host,10.0.0.0/8:ro"), .tree = tree};
    assert_int_equal(change(do_update, &c), 0);
    free(c.config.rules);
    assert_int_equal(volume_access(tree, &peer, cache, &grant), 0);
    assert_true(grant.allowed && grant.squash_root && !grant.write);
    assert_int_equal(grant.matched_rule, 1);
    assert_int_equal(create("other", "all", &other), 0);
    assert_int_equal(volume_access(other, &peer, cache, &grant), 0);
    assert_true(grant.allowed && grant.write);
    assert_int_equal(change(do_delete, &c), 0);
    assert_int_equal(volume_access(tree, &peer, cache, &grant), -ESTALE);
}

static int collect(void *arg, const struct volume_info *info)
{
    strcat(arg, info->config->name);
    strcat(arg, " ");
    return 0;
}

static void names_are_unique_and_sorted(void **state)
{
    uint32_t a, b, found;
    char names[512] = "";
    assert_int_equal(create("zeta", "host", &a), 0);
    assert_int_equal(create("alpha", "host", &b), 0);
    assert_int_equal(create("zeta", "host", &found), -EEXIST);
    assert_int_equal(volume_by_name("zeta", 4, &found), 0);
    assert_int_equal(found, a);
    assert_int_equal(volume_by_name("zet", 3, &found), -ENOENT);
    assert_int_equal(volume_by_name("zetax", 5, &found), -ENOENT);
    volume_each(collect, names);
    assert_non_null(strstr(names, "alpha other zeta "));
    struct call c = {.config = config_of("alpha", "host"), .tree = a};
    assert_int_equal(change(do_update, &c), -EEXIST);
    snprintf(c.config.name, sizeof c.config.name, "omega");
    assert_int_equal(change(do_update, &c), 0);
    free(c.config.rules);
    assert_int_equal(volume_by_name("omega", 5, &found), 0);
    assert_int_equal(volume_by_name("zeta", 4, &found), -ENOENT);
}

static void a_refused_change_changes_nothing(void **state)
{
    uint32_t tree, found;
    refuse = -ENOSPC;
    assert_int_equal(create("full", "host", &tree), -ENOSPC);
    refuse = 0;
    assert_int_equal(volume_by_name("full", 4, &found), -ENOENT);
}

static void volumes_and_unknown_keys_survive_a_restart(void **state)
{
    uint32_t tree, found;
    assert_int_equal(create("kept", "10.0.0.0/8:ro", &tree), 0);
    free(trees[tree - 1].props);
    trees[tree - 1].props = strdup("{\"name\":\"kept\",\"squash\":\"all\",\"allow\":\"10.0.0.0/8:ro\","
                                   "\"created\":7,\"shade\":\"gold\"}");
    trees[tree_count++].props = strdup("no json");
    volume_stop();
    assert_int_equal(volume_start(&fake), 0);
    assert_int_equal(volume_by_name("kept", 4, &found), 0);
    assert_int_equal(found, tree);
    struct call c = {.config = config_of("renamed", "host"), .tree = tree};
    assert_int_equal(change(do_update, &c), 0);
    assert_null(strstr(trees[tree - 1].props, "cache"));
    c.config.cache = (struct store_cache_setting){.policy = STORE_CACHE_EPOCH, .share_bytes = 1 << 30};
    assert_int_equal(change(do_update, &c), 0);
    assert_non_null(strstr(trees[tree - 1].props, "\"cache\":\"epoch\",\"cache_share\":\"1Gi\""));
    assert_int_equal(cache_told.policy, STORE_CACHE_EPOCH);
    assert_int_equal(cache_told.share_bytes, 1 << 30);
    cache_told = (struct store_cache_setting){0};
    volume_stop();
    assert_int_equal(volume_start(&fake), 0);
    assert_int_equal(cache_told.policy, STORE_CACHE_EPOCH);
    free(c.config.rules);
    assert_non_null(strstr(trees[tree - 1].props, "\"shade\":\"gold\""));
    assert_non_null(strstr(trees[tree - 1].props, "\"name\":\"renamed\""));
}

static void cache_settings_are_text(void **state)
{
    static const struct {
        const char *text, *back;
        uint32_t percent;
        uint64_t bytes;
    } good[] = {{"none", "none", 0, 0}, {"40%", "40%", 40, 0}, {"1%", "1%", 1, 0}, {"100%", "none", 0, 0},
                {"64Gi", "64Gi", 0, UINT64_C(64) << 30}, {"64G", "64G", 0, UINT64_C(64000000000)},
                {"1.5Ti", "1.5Ti", 0, UINT64_C(1536) << 30},
                {"1000001", "1000001", 0, 1000001}};
    static const char *const bad[] = {"", "0", "0%", "101%", "4294967297%", "-1%", "40 %", "%", "big", "40%%"};
    struct store_cache_setting setting;
    enum store_cache_policy policy;
    char back[32];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(volume_cache_share_parse(good[i].text, &setting), 0);
        assert_int_equal(setting.share_percent, good[i].percent);
        assert_int_equal(setting.share_bytes, good[i].bytes);
        volume_cache_share_format(&setting, back);
        assert_string_equal(back, good[i].back);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(volume_cache_share_parse(bad[i], &setting), -EINVAL);
    assert_int_equal(volume_cache_parse("epoch", &policy), 0);
    assert_int_equal(policy, STORE_CACHE_EPOCH);
    assert_string_equal(volume_cache_text(policy), "epoch");
    assert_int_equal(volume_cache_parse("Epoch", &policy), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cached_grant_ends_with_a_change),
        cmocka_unit_test(names_are_unique_and_sorted),
        cmocka_unit_test(a_refused_change_changes_nothing),
        cmocka_unit_test(volumes_and_unknown_keys_survive_a_restart),
        cmocka_unit_test(cache_settings_are_text),
    };
    rcu_register_thread();
    if (workers_start(1) || volume_start(&fake))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    volume_stop();
    blocking_stop();
    workers_stop(500);
    rcu_unregister_thread();
    for (uint32_t i = 0; i < tree_count; i++)
        free(trees[i].props);
    return failed;
}
