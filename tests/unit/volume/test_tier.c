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
#include "sluice/volume_gate.h"
#include "unit/volume/fake_store.h"

#define MIB (UINT64_C(1) << 20)
#define TIB (UINT64_C(1) << 40)

/* ---- texts ---- */

static void texts_say_what_was_set(void **state)
{
    static const struct {
        const char *key, *text, *back;
        uint64_t amount;
        bool per_tib;
    } good[] = {
        {"bandwidth", "2G/s", "2G/s", 2000000000, false},
        {"bandwidth", "2G", "2G/s", 2000000000, false},
        {"bandwidth", "1GiB/s", "1Gi/s", 1 << 30, false},
        {"bandwidth", "500MB/s", "500M/s", 500000000, false},
        {"bandwidth", "1000001B/s", "1000001B/s", 1000001, false},
        {"bandwidth", "1.5G/s", "1.5G/s", 1500000000, false},
        {"bandwidth", "64MiB/s/TiB", "64Mi/s/TiB", 64 * MIB, true},
        {"bandwidth", "64Mi/TiB/s", "64Mi/s/TiB", 64 * MIB, true},
        {"bandwidth", "1T/s", "1T/s", 1000000000000, false},
        {"iops", "200k", "200k", 200000, false},
        {"iops", "5000/s", "5k", 5000, false},
        {"iops", "1234", "1234", 1234, false},
        {"iops", "1000/TiB", "1k/TiB", 1000, true},
        {"iops", "64Ki", "64Ki", 65536, false},
        {"bandwidth", "none", NULL, 0, false},
        {"iops", "none", NULL, 0, false},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct tier_limits limits = {.bandwidth[0] = {77, true}, .iops[0] = {77, true}};
        char why[256] = "", back[TIER_RATE_TEXT];
        if (tier_limit_set(&limits, good[i].key, good[i].text, why))
            fail_msg("%s: %s", good[i].text, why);
        struct tier_rate *rate = *good[i].key == 'b' ? limits.bandwidth : limits.iops;
        assert_int_equal(rate->amount, good[i].amount);
        assert_int_equal(rate->per_tib, good[i].per_tib);
        if (good[i].back && *good[i].key == 'b')
            assert_string_equal(tier_rate_format(rate, back), good[i].back);
    }
}

static void every_limit_has_its_own_place(void **state)
{
    struct tier_limits limits = {0};
    char why[256];
    assert_int_equal(tier_limit_set(&limits, "bandwidth", "1M/s", why), 0);
    assert_int_equal(tier_limit_set(&limits, "read-bandwidth", "2M/s", why), 0);
    assert_int_equal(tier_limit_set(&limits, "write-bandwidth", "3M/s", why), 0);
    assert_int_equal(tier_limit_set(&limits, "iops", "100", why), 0);
    assert_int_equal(tier_limit_set(&limits, "read-iops", "200", why), 0);
    assert_int_equal(tier_limit_set(&limits, "write-iops", "300", why), 0);
    assert_int_equal(tier_limit_set(&limits, "burst", "250ms", why), 0);
    for (unsigned way = 0; way < TIER_WAYS; way++) {
        assert_int_equal(limits.bandwidth[way].amount, (way + 1) * 1000000);
        assert_int_equal(limits.iops[way].amount, (way + 1) * 100);
    }
    assert_int_equal(limits.burst_ns, 250000000);
    assert_int_equal(tier_limit_set(&limits, "color", "red", why), -ENOENT);
}

static void what_is_wrong_is_named(void **state)
{
    static const char *const bad[][2] = {
        {"bandwidth", ""}, {"bandwidth", "0"}, {"bandwidth", "0M/s"}, {"bandwidth", "-5M/s"}, {"bandwidth", "100"},
        {"bandwidth", "5000000"}, {"bandwidth", "5000000/s"}, {"bandwidth", "99k/s"}, {"bandwidth", "1.1T/s"},
        {"bandwidth", "99999999999999999999G/s"}, {"bandwidth", "1G/m"}, {"bandwidth", "1G/s/s"}, {"bandwidth", "1G/TB"},
        {"bandwidth", "1Gb/s"}, {"bandwidth", "fast"}, {"bandwidth", "1G/s "}, {"bandwidth", "1 G/s"},
        {"iops", "0"}, {"iops", "-1"}, {"iops", "9"}, {"iops", "101M"}, {"iops", "2.5"}, {"iops", "1kB"}, {"iops", "many"},
        {"burst", "0"}, {"burst", "1"}, {"burst", "1ms"}, {"burst", "61s"}, {"burst", "-1s"}, {"burst", "1m"},
        {"burst", "18446744073710551616ms"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tier_limits limits = {0}, none = {0};
        char why[256] = "";
        if (tier_limit_set(&limits, bad[i][0], bad[i][1], why) != -EINVAL)
            fail_msg("%s=%s was taken", bad[i][0], bad[i][1]);
        assert_non_null(strstr(why, bad[i][0]));
        assert_memory_equal(&limits, &none, sizeof limits);
    }
    uint64_t minimum = 5;
    char why[256];
    assert_int_equal(tier_minimum_parse("64Mi/s/TiB", &minimum, why), -EINVAL);
    assert_int_equal(tier_minimum_parse("0", &minimum, why), -EINVAL);
    assert_int_equal(minimum, 5);
    assert_int_equal(tier_minimum_parse("64Mi/s", &minimum, why), 0);
    assert_int_equal(minimum, 64 * MIB);
    assert_int_equal(tier_minimum_parse("none", &minimum, why), 0);
    assert_int_equal(minimum, 0);
}

/* ---- arithmetic ---- */

static void what_is_per_tib_follows_the_size(void **state)
{
    static const struct {
        uint64_t size, bandwidth, iops;
    } cases[] = {{TIB, 64 * MIB, 4000},
                 {10 * TIB, 640 * MIB, 40000},
                 {TIB / 2 * 3, 96 * MIB, 6000},
                 {2000000000000, 122070312, 7275},
                 {TIB / 1024, MIB, 100},     /* never less */
                 {1, MIB, 100},
                 {INT64_MAX, 562949953421311, 100000000}};
    struct tier_limits limits = {.bandwidth[0] = {64 * MIB, true}, .iops[0] = {4000, true}, .iops[TIER_READS] = {50, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct volume_limits out;
        tier_amounts(&limits, cases[i].size, &out);
        assert_int_equal(out.bandwidth[0], cases[i].bandwidth > 1000000000000 ? 1000000000000 : cases[i].bandwidth);
        assert_int_equal(out.iops[0], cases[i].iops);
        assert_int_equal(out.iops[TIER_READS], 50);
        assert_int_equal(out.iops[TIER_WRITES], 0);
        assert_int_equal(out.burst_ns, TIER_BURST_DEFAULT);
    }
}

static void a_volumes_own_stands_in_the_place_of_its_tiers(void **state)
{
    struct tier_limits tier = {.bandwidth[0] = {100 * MIB, true}, .iops[0] = {500, false}, .burst_ns = 5};
    struct tier_limits own = {.bandwidth[0] = {7 * MIB, false}, .iops[TIER_WRITES] = {30, false}}, all;
    tier_combine(&tier, &own, &all);
    assert_int_equal(all.bandwidth[0].amount, 7 * MIB);
    assert_false(all.bandwidth[0].per_tib);
    assert_int_equal(all.iops[0].amount, 500);
    assert_int_equal(all.iops[TIER_WRITES].amount, 30);
    assert_int_equal(all.burst_ns, 5);
}

/* ---- tiers and volumes ---- */

/* In the place of the gate: what it was told last of each volume. */
static struct volume_limits told[64];
static unsigned times_told, times_forgotten;

int gate_set(uint32_t volume, const struct volume_limits *limits)
{
    told[volume] = *limits;
    times_told++;
    return 0;
}

void gate_forget(uint32_t volume)
{
    told[volume] = (struct volume_limits){0};
    times_forgotten++;
}

void gate_stop(void)
{
}

struct call {
    int (*what)(struct call *c);
    const char *name, *key, *value;
    uint64_t size;
    uint32_t tree;
    char why[256];
};

static int in_coroutine(void *arg)
{
    struct call *c = arg;
    return c->what(c);
}

static int run(int (*what)(struct call *c), struct call *c)
{
    c->what = what;
    return worker_call(worker_at(0), in_coroutine, c);
}

static int do_create_volume(struct call *c)
{
    struct volume_config config = {.size = c->size};
    snprintf(config.name, sizeof config.name, "%s", c->name);
    snprintf(config.tier, sizeof config.tier, "%s", c->value ? c->value : "");
    return volume_create(&config, 1, 1, 0755, &c->tree, c->why);
}

static int set_one(void *arg, struct volume_config *config, char why[256])
{
    struct call *c = arg;
    if (strcmp(c->key, "size") == 0)
        config->size = c->size;
    else if (strcmp(c->key, "tier") == 0)
        snprintf(config->tier, sizeof config->tier, "%s", c->value);
    else if (strcmp(c->key, "min-bandwidth") == 0)
        return tier_minimum_parse(c->value, &config->min_bandwidth, why);
    else
        return tier_limit_set(&config->limits, c->key, c->value, why);
    return 0;
}

static int do_set_volume(struct call *c)
{
    return volume_change(c->tree, set_one, c, c->why);
}

static int do_delete_volume(struct call *c)
{
    return volume_delete(c->tree, true, c->why);
}

static int do_create_tier(struct call *c)
{
    struct volume_tier tier = {0};
    snprintf(tier.name, sizeof tier.name, "%s", c->name);
    if (c->key && tier_limit_set(&tier.limits, c->key, c->value, c->why))
        return -EINVAL;
    return tier_create(&tier, c->why);
}

static int set_limit(void *arg, struct tier_limits *limits, char why[256])
{
    struct call *c = arg;
    return tier_limit_set(limits, c->key, c->value, why);
}

static int do_set_tier(struct call *c)
{
    return tier_change(c->name, set_limit, c, c->why);
}

static int do_delete_tier(struct call *c)
{
    return tier_delete(c->name, c->why);
}

static uint32_t volume_in(const char *name, const char *tier, uint64_t size)
{
    struct call c = {.name = name, .value = tier, .size = size};
    if (run(do_create_volume, &c))
        fail_msg("%s: %s", name, c.why);
    return c.tree;
}

static int set(uint32_t tree, const char *key, const char *value, uint64_t size)
{
    struct call c = {.tree = tree, .key = key, .value = value, .size = size};
    return run(do_set_volume, &c);
}

static int tier(int (*what)(struct call *c), const char *name, const char *key, const char *value, const char *says)
{
    struct call c = {.name = name, .key = key, .value = value};
    int error = run(what, &c);
    if (says && !strstr(c.why, says))
        fail_msg("'%s' lacks '%s'", c.why, says);
    return error;
}

static void a_tier_changes_all_its_volumes_at_once(void **state)
{
    assert_int_equal(tier(do_create_tier, "gold", "bandwidth", "2G/s", NULL), 0);
    uint32_t a = volume_in("a", "gold", 0), b = volume_in("b", "gold", TIB), c = volume_in("c", "", 0);
    assert_int_equal(told[a].bandwidth[0], 2000000000);
    assert_int_equal(told[b].bandwidth[0], 2000000000);
    assert_int_equal(told[c].bandwidth[0], 0);
    assert_int_equal(set(b, "iops", "5k", 0), 0);
    unsigned before = times_told;
    assert_int_equal(tier(do_set_tier, "gold", "bandwidth", "1G/s", NULL), 0);
    assert_int_equal(tier(do_set_tier, "gold", "iops", "10k", NULL), 0);
    assert_int_equal(times_told, before + 4);
    assert_int_equal(told[a].bandwidth[0], 1000000000);
    assert_int_equal(told[a].iops[0], 10000);
    assert_int_equal(told[b].bandwidth[0], 1000000000);
    assert_int_equal(told[b].iops[0], 5000);
    assert_int_equal(set(b, "iops", "none", 0), 0);
    assert_int_equal(told[b].iops[0], 10000);
}

static void sizes_and_per_tib_limits_belong_together(void **state)
{
    struct call c = {.name = "d", .value = "extreme"};
    assert_int_equal(run(do_create_volume, &c), -EINVAL);
    assert_non_null(strstr(c.why, "size=2T"));
    uint32_t d = volume_in("d", "extreme", 4 * TIB);
    assert_int_equal(told[d].bandwidth[0], 512 * MIB);
    assert_int_equal(told[d].iops[0], 32000);
    assert_int_equal(set(d, "size", NULL, 2 * TIB), 0);
    assert_int_equal(told[d].bandwidth[0], 256 * MIB);
    assert_int_equal(set(d, "size", NULL, 0), -EINVAL);
    assert_int_equal(set(d, "tier", "", 0), 0);
    assert_int_equal(set(d, "size", NULL, 0), 0);
    assert_int_equal(set(d, "read-iops", "100/TiB", 0), -EINVAL);
    assert_int_equal(set(d, "tier", "gold", 0), 0);
    assert_int_equal(tier(do_set_tier, "gold", "bandwidth", "1G/s/TiB", "has no size"), -EINVAL);
    assert_int_equal(told[d].bandwidth[0], 1000000000);
}

static void a_minimum_is_below_the_limit(void **state)
{
    uint32_t e = volume_in("e", "gold", 0);
    assert_int_equal(set(e, "min-bandwidth", "2G/s", 0), -EINVAL);
    assert_int_equal(set(e, "min-bandwidth", "800M/s", 0), 0);
    assert_int_equal(told[e].min_bandwidth, 800000000);
    assert_int_equal(tier(do_set_tier, "gold", "bandwidth", "500M/s", NULL), 0);
    assert_int_equal(told[e].min_bandwidth, 500000000);
    assert_int_equal(set(e, "tier", "", 0), 0);
    assert_int_equal(told[e].min_bandwidth, 800000000);
    unsigned before = times_forgotten;
    struct call c = {.tree = e};
    assert_int_equal(run(do_delete_volume, &c), 0);
    assert_int_equal(times_forgotten, before + 1);
}

static void what_cannot_be_is_refused_and_changes_nothing(void **state)
{
    unsigned before = times_told;
    assert_int_equal(tier(do_create_tier, "gold", "iops", "100", "already"), -EEXIST);
    assert_int_equal(tier(do_create_tier, "none/such", "iops", "100", NULL), -EINVAL);
    assert_int_equal(tier(do_create_tier, "empty", NULL, NULL, "no limit"), -EINVAL);
    assert_int_equal(tier(do_create_tier, "empty", "burst", "1s", "no limit"), -EINVAL);
    assert_int_equal(tier(do_set_tier, "goold", "iops", "100", "'gold'"), -ENOENT);
    assert_int_equal(tier(do_set_tier, "extreme", "iops", "100", "built in"), -EINVAL);
    assert_int_equal(tier(do_set_tier, "gold", "iops", "0", "from 10"), -EINVAL);
    assert_int_equal(tier(do_delete_tier, "gold", NULL, NULL, "the volume a"), -EBUSY);
    assert_int_equal(tier(do_delete_tier, "standrad", NULL, NULL, "'standard'"), -ENOENT);
    assert_int_equal(tier(do_delete_tier, "standard", NULL, NULL, "built in"), -EINVAL);
    assert_int_equal(tier(do_create_tier, "silver", "iops", "100", NULL), 0);
    assert_int_equal(tier(do_set_tier, "silver", "iops", "none", "no limit"), -EINVAL);
    refuse = -ENOSPC;
    assert_int_equal(tier(do_set_tier, "gold", "iops", "100", NULL), -ENOSPC);
    assert_int_equal(tier(do_delete_tier, "silver", NULL, NULL, NULL), -ENOSPC);
    refuse = 0;
    struct volume_tier there;
    assert_int_equal(tier_get("gold", &there), 0);
    assert_int_equal(there.limits.iops[0].amount, 10000);
    assert_int_equal(tier_get("silver", &there), 0);
    assert_int_equal(tier(do_delete_tier, "silver", NULL, NULL, NULL), 0);
    assert_int_equal(tier_get("silver", &there), -ENOENT);
    struct call c = {.name = "f", .value = "glod"};
    assert_int_equal(run(do_create_volume, &c), -ENOENT);
    assert_non_null(strstr(c.why, "'gold'"));
    assert_int_equal(times_told, before);
}

static void all_of_it_outlives_a_restart(void **state)
{
    uint32_t a, d;
    assert_int_equal(tier(do_set_tier, "gold", "burst", "2s", NULL), 0);
    assert_int_equal(volume_by_name("a", 1, &a), 0);
    assert_int_equal(volume_by_name("d", 1, &d), 0);
    assert_int_equal(set(a, "write-bandwidth", "123M/s", 0), 0);
    assert_int_equal(set(a, "min-bandwidth", "100M/s", 0), 0);
    struct volume_limits before[2] = {told[a], told[d]};
    memset(told, 0, sizeof told);
    volume_stop();
    assert_int_equal(volume_start(&fake), 0);
    assert_memory_equal(&told[a], &before[0], sizeof before[0]);
    assert_memory_equal(&told[d], &before[1], sizeof before[1]);
    assert_int_equal(told[a].burst_ns, 2000000000);
    assert_int_equal(told[a].bandwidth[TIER_WRITES], 123000000);
    assert_int_equal(told[a].min_bandwidth, 100000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_say_what_was_set),
        cmocka_unit_test(every_limit_has_its_own_place),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(what_is_per_tib_follows_the_size),
        cmocka_unit_test(a_volumes_own_stands_in_the_place_of_its_tiers),
        cmocka_unit_test(a_tier_changes_all_its_volumes_at_once),
        cmocka_unit_test(sizes_and_per_tib_limits_belong_together),
        cmocka_unit_test(a_minimum_is_below_the_limit),
        cmocka_unit_test(what_cannot_be_is_refused_and_changes_nothing),
        cmocka_unit_test(all_of_it_outlives_a_restart),
    };
    rcu_register_thread();
    volume_set_clock(fake_clock);
    if (workers_start(1) || volume_start(&fake))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    volume_stop();
    blocking_stop();
    workers_stop(500);
    rcu_unregister_thread();
    fake_free();
    return failed;
}
