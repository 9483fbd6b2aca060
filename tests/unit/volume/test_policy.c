#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <urcu.h>

#include <cmocka.h>

#include "sluice/base_date.h"
#include "sluice/base_worker.h"
#include "sluice/volume.h"
#include "unit/volume/fake_store.h"

enum { MINUTE = 60, HOUR = 3600, DAY = 86400 };

static int64_t at(const char *text)
{
    int64_t out = 0;
    assert_int_equal(date_parse(text, 0, &out), 0);
    return out;
}

static struct volume_policy parsed(const char *text)
{
    struct volume_policy policy;
    char why[256] = "";
    if (policy_parse("p", text, &policy, why))
        fail_msg("'%s': %s", text, why);
    return policy;
}

/* ---- texts ---- */

static void texts_come_back_as_they_are(void **state)
{
    static const char *const texts[][2] = {
        {"hourly=6", "hourly=6@:05"},
        {"hourly=6,daily=2,weekly=2", "hourly=6@:05,daily=2@00:10,weekly=2@sun-00:15"},
        {"monthly=3@28-23:59/lock=2w", "monthly=3@28-23:59/lock=2w"},
        {"every=15m:4", "every=15m:4"},
        {"every=15m:4/prefix=often,daily=7@04:00/prefix=nightly/lock=36h",
         "every=15m:4/prefix=often,daily=7@04:00/prefix=nightly/lock=36h"},
        {"weekly=1@FRI-12:00", "weekly=1@fri-12:00"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[512];
        struct volume_policy policy = parsed(texts[i][0]);
        policy_format(&policy, text, sizeof text);
        assert_string_equal(text, texts[i][1]);
        policy = parsed(text);
        policy_format(&policy, text, sizeof text);
        assert_string_equal(text, texts[i][1]);
    }
}

static void what_is_wrong_is_named(void **state)
{
    static const char *const bad[] = {"", "hourly", "hourly=0", "hourly=x", "yearly=2", "every=4", "every=5s:4",
                                      "hourly=6@12:05", "daily=2@24:00", "daily=2@00:60", "weekly=2@00:15",
                                      "weekly=2@xyz-00:15", "monthly=1@29-00:00", "monthly=1@0-00:00", "daily=2/lock=x",
                                      "daily=2/prefix=a b", "daily=2/color=red", "daily=1,daily=2",
                                      "hourly=1,daily=1,weekly=1,monthly=1,every=1h:1,every=2h:2"};
    struct volume_policy policy;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char why[256] = "";
        if (policy_parse("p", bad[i], &policy, why) == 0)
            fail_msg("'%s' was taken", bad[i]);
        assert_true(*why);
    }
}

/* ---- due ---- */

static void due_times_are_the_last_before_now(void **state)
{
    static const char *const cases[][3] = {
        {"hourly=1@:05", "2026-11-30 18:05", "2026-11-30 18:05"},
        {"hourly=1@:05", "2026-11-30 18:04:59", "2026-11-30 17:05"},
        {"daily=1@00:10", "2026-11-30 00:09", "2026-11-29 00:10"},
        {"daily=1@00:10", "2026-11-30 00:10", "2026-11-30 00:10"},
        {"weekly=1@sun-00:15", "2026-11-30 18:05", "2026-11-29 00:15"}, /* that was a Sunday */
        {"weekly=1@sun-00:15", "2026-11-29 00:14", "2026-11-22 00:15"},
        {"weekly=1@mon-12:00", "2026-11-30 18:05", "2026-11-30 12:00"},
        {"weekly=1@sat-12:00", "2026-11-30 18:05", "2026-11-28 12:00"},
        {"monthly=1@1-00:20", "2027-01-01 00:19", "2026-12-01 00:20"},
        {"monthly=1@1-00:20", "2027-01-01 00:20", "2027-01-01 00:20"},
        {"monthly=1@28-06:00", "2027-01-15 00:00", "2026-12-28 06:00"},
        {"every=15m:1", "2026-11-30 18:14:59", "2026-11-30 18:00"},
        {"every=6h:1", "2026-11-30 18:05", "2026-11-30 18:00"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct volume_policy policy = parsed(cases[i][0]);
        assert_int_equal(policy_due(&policy.keeps[0], at(cases[i][1])), at(cases[i][2]));
    }
}

/* ---- schedules ---- */

struct call {
    int (*what)(struct call *call);
    struct volume_config config;
    struct volume_policy policy;
    uint32_t tree, made;
    const char *name, *by;
    int64_t lock;
    char why[256];
};

static int in_coroutine(void *arg)
{
    struct call *c = arg;
    return c->what(c);
}

static int run(int (*what)(struct call *), struct call *c)
{
    c->what = what;
    return worker_call(worker_at(0), in_coroutine, c);
}

static int do_create(struct call *c)
{
    return volume_create(&c->config, 1, 1, 0755, &c->tree, c->why);
}

static int do_snapshot(struct call *c)
{
    return volume_snapshot_create(&c->tree, 1, c->name, c->by, 0, &c->made, c->why);
}

static int do_lock(struct call *c)
{
    return volume_snapshot_lock(c->made, c->lock, c->why);
}

static int no_policy(void *arg, struct volume_config *config, char why[256])
{
    *config->policy = 0;
    return 0;
}

static int policy_again(void *arg, struct volume_config *config, char why[256])
{
    strcpy(config->policy, "comes");
    config->policy_since = fake_time;
    return 0;
}

static int do_no_policy(struct call *c)
{
    return volume_change(c->tree, no_policy, NULL, c->why);
}

static int do_policy_again(struct call *c)
{
    return volume_change(c->tree, policy_again, NULL, c->why);
}

static int do_delete(struct call *c)
{
    return volume_delete(c->tree, false, c->why);
}

static int do_undelete(struct call *c)
{
    return volume_undelete(c->name, c->name, &c->tree, c->why);
}

static int policy_of(void *arg, const struct volume_info *info)
{
    void **search = arg;
    if (strcmp(info->config->name, search[0]) == 0)
        strcpy(search[1], info->config->policy);
    return 0;
}

static int do_purge(struct call *c)
{
    return volume_purge();
}

static int count_deleted(void *arg, const struct volume_info *info, int64_t deleted)
{
    ++*(unsigned *)arg;
    return 0;
}

static int do_policy(struct call *c)
{
    return policy_put(&c->policy, false, c->why);
}

static int do_policy_delete(struct call *c)
{
    return policy_delete(c->name, c->why);
}

static int do_schedule(struct call *c)
{
    volume_schedule();
    return 0;
}

static uint32_t volume(const char *name, const char *policy)
{
    struct call c = {.config = {.policy_since = fake_time}};
    snprintf(c.config.name, sizeof c.config.name, "%s", name);
    snprintf(c.config.policy, sizeof c.config.policy, "%s", policy);
    assert_int_equal(run(do_create, &c), 0);
    return c.tree;
}

static void pass(int64_t seconds, int64_t step)
{
    struct call c = {0};
    for (int64_t end = fake_time + seconds; fake_time < end; fake_time += step)
        run(do_schedule, &c);
    run(do_schedule, &c);
}

static int append_name(void *arg, const struct volume_snapshot *s)
{
    strcat(arg, s->name);
    strcat(arg, " ");
    return 0;
}

static const char *names_of(uint32_t volume)
{
    static char names[8192];
    *names = 0;
    volume_each_snapshot(volume, 0, append_name, names);
    return names;
}

static void restart(void)
{
    volume_stop();
    assert_int_equal(volume_start(&fake), 0);
}

static void put_policy(const char *name, const char *text)
{
    struct call c = {0};
    assert_int_equal(policy_parse(name, text, &c.policy, c.why), 0);
    assert_int_equal(run(do_policy, &c), 0);
}

static void a_week_leaves_exactly_what_the_policy_says(void **state)
{
    fake_time = at("2026-11-20 11:30"); /* a Friday */
    uint32_t v = volume("week", "default"), other = volume("plain", "");
    struct call by_hand = {.tree = v, .name = "mine", .by = "admin"};
    assert_int_equal(run(do_snapshot, &by_hand), 0);
    pass(9 * DAY + 7 * HOUR, 20); /* to Sunday the 29th, 18:30 */
    assert_string_equal(names_of(v), "mine weekly.2026-11-22_0015Z daily.2026-11-28_0010Z daily.2026-11-29_0010Z "
                                     "weekly.2026-11-29_0015Z hourly.2026-11-29_1305Z hourly.2026-11-29_1405Z "
                                     "hourly.2026-11-29_1505Z hourly.2026-11-29_1605Z hourly.2026-11-29_1705Z "
                                     "hourly.2026-11-29_1805Z ");
    assert_string_equal(names_of(other), "");
}

static void what_was_missed_is_taken_once(void **state)
{
    fake_time = at("2026-12-01 10:00");
    put_policy("missing", "hourly=10,daily=10");
    uint32_t v = volume("missed", "missing");
    pass(2 * HOUR, 20); /* 10:05, 11:05 */
    assert_string_equal(names_of(v), "hourly.2026-12-01_1005Z hourly.2026-12-01_1105Z ");
    fake_time = at("2026-12-04 07:30"); /* three days down */
    restart();
    pass(10 * MINUTE, 20);
    assert_string_equal(names_of(v), "hourly.2026-12-01_1005Z hourly.2026-12-01_1105Z hourly.2026-12-04_0705Z "
                                     "daily.2026-12-04_0010Z ");
    restart(); /* and not again */
    pass(10 * MINUTE, 20);
    assert_int_equal(volume_snapshot_count(v), 4);
}

static void a_clock_that_jumps_does_no_harm(void **state)
{
    fake_time = at("2026-12-01 10:00");
    put_policy("jumpy", "hourly=3");
    uint32_t v = volume("jumps", "jumpy");
    pass(4 * HOUR, 20);
    assert_string_equal(names_of(v), "hourly.2026-12-01_1105Z hourly.2026-12-01_1205Z hourly.2026-12-01_1305Z ");
    fake_time += 365 * DAY; /* one more, and not 8,760 */
    pass(MINUTE, 20);
    assert_string_equal(names_of(v), "hourly.2026-12-01_1205Z hourly.2026-12-01_1305Z hourly.2027-12-01_1305Z ");
    fake_time -= 365 * DAY; /* and the next is not a year away */
    pass(2 * HOUR, 20);
    assert_string_equal(names_of(v), "hourly.2027-12-01_1305Z hourly.2026-12-01_1405Z hourly.2026-12-01_1505Z ");
    fake_time -= 90 * MINUTE; /* the same minutes once more: their names are there already */
    pass(3 * HOUR, 20);
    assert_string_equal(names_of(v), "hourly.2026-12-01_1505Z hourly.2026-12-01_1605Z hourly.2026-12-01_1705Z ");
}

static void locked_ones_stay_until_their_time(void **state)
{
    fake_time = at("2026-12-01 10:00");
    put_policy("locks", "hourly=2/lock=4h");
    uint32_t v = volume("locked", "locks");
    pass(6 * HOUR, 20);
    assert_string_equal(names_of(v), "hourly.2026-12-01_1205Z hourly.2026-12-01_1305Z hourly.2026-12-01_1405Z "
                                     "hourly.2026-12-01_1505Z ");
}

/* Locked by hand: those that are too many go all the same, around it. */
static void one_that_is_locked_holds_up_no_other(void **state)
{
    fake_time = at("2026-12-01 10:00");
    put_policy("around", "hourly=2");
    uint32_t v = volume("around", "around");
    pass(2 * HOUR, 20);
    struct call c = {.lock = fake_time + 365 * DAY};
    assert_int_equal(volume_snapshot_by_name(v, "hourly.2026-12-01_1005Z", 23, &c.made), 0);
    assert_int_equal(run(do_lock, &c), 0);
    pass(6 * HOUR, 20);
    assert_string_equal(names_of(v), "hourly.2026-12-01_1005Z hourly.2026-12-01_1605Z hourly.2026-12-01_1705Z ");
}

static void those_made_by_hand_have_no_prefix_of_a_policy(void **state)
{
    struct volume_policy policy;
    char why[256];
    assert_int_equal(policy_parse("mine", "hourly=1/prefix=admin", &policy, why), -EINVAL);
    assert_int_equal(policy_parse("mine", "hourly=1/prefix=restore", &policy, why), -EINVAL);
}

/* A policy's part that comes back begins anew, and what is served is forgotten with its volume. */
static void a_part_that_comes_back_begins_anew(void **state)
{
    fake_time = at("2026-12-01 10:00");
    put_policy("comes", "hourly=5");
    uint32_t v = volume("comes", "comes");
    pass(HOUR, 20);
    struct call c = {.tree = v};
    run(do_no_policy, &c);
    pass(3 * HOUR, 20);
    assert_string_equal(names_of(v), "hourly.2026-12-01_1005Z ");
    run(do_policy_again, &c);
    pass(HOUR, 20);
    assert_string_equal(names_of(v), "hourly.2026-12-01_1005Z hourly.2026-12-01_1405Z ");
}

/* The clock was a year ahead when the server started: what is deleted after it was set right is kept for its day. */
static void what_is_deleted_after_the_clock_went_back_is_kept(void **state)
{
    struct call c = {0};
    fake_time = at("2027-12-01 10:00");
    run(do_purge, &c);
    fake_time = at("2026-12-01 10:00");
    c.tree = volume("back", "");
    assert_int_equal(run(do_delete, &c), 0);
    run(do_purge, &c);
    unsigned kept = 0;
    volume_each_deleted(count_deleted, &kept);
    assert_int_equal(kept, 1);
}

static void a_volume_comes_back_without_a_policy_that_is_gone(void **state)
{
    char policy[VOLUME_NAME_MAX + 1] = "unset";
    put_policy("goes", "hourly=1");
    struct call c = {.tree = volume("comes-back", "goes"), .name = "goes"};
    assert_int_equal(run(do_delete, &c), 0);
    assert_int_equal(run(do_policy_delete, &c), 0);
    c.name = "comes-back";
    assert_int_equal(run(do_undelete, &c), 0);
    put_policy("goes", "hourly=2"); /* another one of that name is not its */
    const void *search[] = {"comes-back", policy};
    volume_each(policy_of, search);
    assert_string_equal(policy, "");
}

static void policies_are_kept_and_not_deleted_while_used(void **state)
{
    struct volume_policy policy;
    char text[512];
    fake_time = at("2026-12-01 10:00");
    put_policy("kept", "every=30m:7");
    volume("user", "kept");
    restart();
    assert_int_equal(policy_get("kept", &policy), 0);
    policy_format(&policy, text, sizeof text);
    assert_string_equal(text, "every=30m:7");
    struct call c = {.name = "kept"};
    assert_int_equal(run(do_policy_delete, &c), -EBUSY);
    c.name = "default";
    assert_int_equal(run(do_policy_delete, &c), -EINVAL);
    c.name = "nobody";
    assert_int_equal(run(do_policy_delete, &c), -ENOENT);
    put_policy("unused", "hourly=1");
    c.name = "unused";
    assert_int_equal(run(do_policy_delete, &c), 0);
    restart();
    assert_int_equal(policy_get("unused", &policy), -ENOENT);
    c.policy = parsed("hourly=1");
    strcpy(c.policy.name, "default");
    assert_int_equal(run(do_policy, &c), -EINVAL);
    strcpy(c.policy.name, "kept");
    assert_int_equal(run(do_policy, &c), -EEXIST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_come_back_as_they_are),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(due_times_are_the_last_before_now),
        cmocka_unit_test(a_week_leaves_exactly_what_the_policy_says),
        cmocka_unit_test(what_was_missed_is_taken_once),
        cmocka_unit_test(a_clock_that_jumps_does_no_harm),
        cmocka_unit_test(locked_ones_stay_until_their_time),
        cmocka_unit_test(one_that_is_locked_holds_up_no_other),
        cmocka_unit_test(those_made_by_hand_have_no_prefix_of_a_policy),
        cmocka_unit_test(a_part_that_comes_back_begins_anew),
        cmocka_unit_test(what_is_deleted_after_the_clock_went_back_is_kept),
        cmocka_unit_test(a_volume_comes_back_without_a_policy_that_is_gone),
        cmocka_unit_test(policies_are_kept_and_not_deleted_while_used),
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
