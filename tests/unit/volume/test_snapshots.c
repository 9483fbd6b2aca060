#include <arpa/inet.h>
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

#include "sluice/base_worker.h"
#include "sluice/volume.h"

#include "unit/volume/fake_store.h"

/* ---- calls, in a coroutine ---- */

struct call {
    int (*what)(struct call *call);
    uint32_t tree, other, out[4];
    unsigned count;
    const char *name;
    int64_t when;
    bool flag;
    struct volume_config config;
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
    uint32_t volumes[2] = {c->tree, c->other};
    return volume_snapshot_create(volumes, c->count, c->name, "admin", c->when, c->out, c->why);
}

static int do_snapshot_delete(struct call *c)
{
    return volume_snapshot_delete(c->tree, c->why);
}

static int do_split(struct call *c)
{
    return volume_split(c->tree, c->flag, c->why);
}

static int do_split_some(struct call *c)
{
    volume_split_some();
    return 0;
}

static int do_rename(struct call *c)
{
    return volume_snapshot_rename(c->tree, c->name, c->why);
}

static int do_lock(struct call *c)
{
    return volume_snapshot_lock(c->tree, c->when, c->why);
}

static int do_restore(struct call *c)
{
    return volume_restore(c->tree, c->other, c->name, c->why);
}

static int do_clone(struct call *c)
{
    return volume_clone(c->tree, &c->config, c->out, c->why);
}

static int do_delete(struct call *c)
{
    return volume_delete(c->tree, c->flag, c->why);
}

static int do_undelete(struct call *c)
{
    return volume_undelete(c->name, c->name, c->out, c->why);
}

static int do_purge(struct call *c)
{
    return volume_purge();
}

static void hours_pass(unsigned hours)
{
    struct call c = {0};
    for (unsigned i = 0; i < hours; i++) {
        fake_time += 3600;
        assert_int_equal(run(do_purge, &c), 0);
    }
}

static struct volume_config config_of(const char *name, const char *rules)
{
    struct volume_config config = {0};
    char why[256];
    snprintf(config.name, sizeof config.name, "%s", name);
    assert_int_equal(volume_rules_parse(rules, &config.rules, &config.rule_count, why), 0);
    return config;
}

static uint32_t volume(const char *name, const char *rules)
{
    struct call c = {.config = config_of(name, rules)};
    assert_int_equal(run(do_create, &c), 0);
    free(c.config.rules);
    return c.tree;
}

static uint32_t snapshot(uint32_t volume, const char *name)
{
    struct call c = {.tree = volume, .count = 1, .name = name};
    assert_int_equal(run(do_snapshot, &c), 0);
    return c.out[0];
}

static uint32_t found(const char *name)
{
    uint32_t tree = 0;
    return volume_by_name(name, strlen(name), &tree) ? 0 : tree;
}

static int append_name(void *arg, const struct volume_snapshot *s)
{
    strcat(arg, s->name);
    strcat(arg, " ");
    return 0;
}

static void restart(void)
{
    volume_stop();
    assert_int_equal(volume_start(&fake), 0);
}

/* ---- tests ---- */

static void snapshots_are_found_by_name_in_the_order_they_were_taken(void **state)
{
    char names[256] = "", rest[256] = "", again[256] = "";
    uint32_t v = volume("data", "host"), s[3];
    s[0] = snapshot(v, "zeta");
    s[1] = snapshot(v, "alpha");
    s[2] = snapshot(v, "mid");
    assert_int_equal(found("data@zeta"), s[0]);
    assert_int_equal(found("data@alpha"), s[1]);
    assert_int_equal(found("data@mid"), s[2]);
    assert_int_equal(found("data@mi"), 0);
    assert_int_equal(found("data@"), 0);
    assert_int_equal(found("other@mid"), 0);
    volume_each_snapshot(v, 0, append_name, names);
    assert_string_equal(names, "zeta alpha mid ");
    volume_each_snapshot(v, s[0], append_name, rest);
    assert_string_equal(rest, "alpha mid ");
    struct call c = {.tree = v, .count = 1, .name = "mid"};
    assert_int_equal(run(do_snapshot, &c), -EEXIST);
    c.name = "a@b";
    assert_int_equal(run(do_snapshot, &c), -EINVAL);
    restart();
    volume_each_snapshot(v, 0, append_name, again);
    assert_string_equal(again, "zeta alpha mid ");
    assert_int_equal(volume_snapshot_count(v), 3);
}

static void a_rename_keeps_the_number_and_frees_the_name(void **state)
{
    char name[VOLUME_NAME_MAX + 1], names[256] = "";
    uint32_t v = volume("renames", "host"), a = snapshot(v, "a"), b = snapshot(v, "b"), of;
    struct call c = {.tree = a, .name = "b"};
    assert_int_equal(run(do_rename, &c), -EEXIST);
    c.name = "c";
    assert_int_equal(run(do_rename, &c), 0);
    assert_int_equal(found("renames@a"), 0);
    assert_int_equal(found("renames@c"), a);
    assert_int_equal(volume_snapshot_of(a, &of, name), 0);
    assert_int_equal(of, v);
    assert_string_equal(name, "c");
    volume_each_snapshot(v, 0, append_name, names);
    assert_string_equal(names, "c b ");
    assert_int_equal(volume_snapshot_of(v, &of, NULL), -ESTALE);
    assert_int_equal(found("renames@b"), b);
}

static void several_volumes_have_it_or_none(void **state)
{
    uint32_t a = volume("multi-a", "host"), b = volume("multi-b", "host");
    struct call c = {.tree = a, .other = b, .count = 2, .name = "both"};
    snapshot(b, "taken");
    assert_int_equal(run(do_snapshot, &c), 0);
    assert_int_equal(found("multi-a@both"), c.out[0]);
    assert_int_equal(found("multi-b@both"), c.out[1]);
    c.name = "taken"; /* b has one of that name */
    assert_int_equal(run(do_snapshot, &c), -EEXIST);
    assert_int_equal(found("multi-a@taken"), 0);
    c.name = "full";
    refuse = -ENOSPC;
    assert_int_equal(run(do_snapshot, &c), -ENOSPC);
    refuse = 0;
    assert_int_equal(found("multi-a@full") + found("multi-b@full"), 0);
    c.other = a;
    c.name = "twice";
    assert_int_equal(run(do_snapshot, &c), -EINVAL);
}

static void a_snapshot_follows_its_volumes_rules_and_is_never_written(void **state)
{
    uint32_t v = volume("ruled", "10.0.0.0/8:rw"), s = snapshot(v, "one");
    struct sockaddr_storage peer = {.ss_family = AF_INET};
    inet_pton(AF_INET, "10.1.2.3", &((struct sockaddr_in *)&peer)->sin_addr);
    uint64_t cache[VOLUME_ACCESS_CACHE] = {0}, other[VOLUME_ACCESS_CACHE] = {0};
    struct volume_grant grant;
    assert_int_equal(volume_access(v, &peer, other, &grant), 0);
    assert_true(grant.allowed && grant.write);
    for (int i = 0; i < 2; i++) { /* searched, and from the connection's words */
        assert_int_equal(volume_access(s, &peer, cache, &grant), 0);
        assert_true(grant.allowed && !grant.write);
    }
}

static void what_is_locked_stays(void **state)
{
    int64_t now = fake_time;
    uint32_t v = volume("locked", "host"), s = snapshot(v, "one");
    struct call c = {.tree = s, .when = now - 10};
    assert_int_equal(run(do_lock, &c), -EINVAL);
    c.when = now + 1000;
    assert_int_equal(run(do_lock, &c), 0);
    c.when = now + 500;
    assert_int_equal(run(do_lock, &c), -EINVAL);
    restart();
    assert_int_equal(run(do_snapshot_delete, &c), -EBUSY);
    struct call d = {.tree = v};
    assert_int_equal(run(do_delete, &d), -EBUSY);
    d.flag = true;
    assert_int_equal(run(do_delete, &d), -EBUSY);
    assert_int_equal(found("locked@one"), s);
    uint32_t free_one = snapshot(v, "free");
    c.tree = free_one;
    assert_int_equal(run(do_snapshot_delete, &c), 0);
    assert_int_equal(found("locked@free"), 0);
}

static void a_deleted_volume_comes_back_with_its_snapshots_for_a_day(void **state)
{
    uint32_t v = volume("gone", "host"), s = snapshot(v, "one"), of;
    uint64_t cache[VOLUME_ACCESS_CACHE] = {0};
    struct sockaddr_storage peer = {.ss_family = AF_INET};
    struct volume_grant grant;
    struct call c = {.tree = v};
    assert_int_equal(run(do_delete, &c), 0);
    assert_int_equal(found("gone") + found("gone@one"), 0);
    assert_int_equal(volume_access(v, &peer, cache, &grant), -ESTALE);
    assert_int_equal(volume_access(s, &peer, cache, &grant), -ESTALE);
    restart();
    assert_int_equal(found("gone"), 0);
    struct call back = {.name = "gone"};
    hours_pass(23);
    assert_int_equal(run(do_purge, &back), 0); /* not yet */
    fake_time += 1000 * 24 * 3600;             /* a clock that jumps is no reason */
    assert_int_equal(run(do_purge, &back), 0);
    fake_time -= 1000 * 24 * 3600;
    assert_int_equal(run(do_purge, &back), 0);
    assert_int_equal(run(do_undelete, &back), 0);
    assert_int_equal(back.out[0], v);
    assert_int_equal(found("gone@one"), s);
    assert_int_equal(run(do_delete, &c), 0);
    uint32_t again = volume("gone", "host");
    assert_int_equal(run(do_undelete, &back), -EEXIST);
    assert_int_equal(found("gone"), again);
    hours_pass(25);
    assert_null(trees[v - 1].props);
    assert_null(trees[s - 1].props);
    assert_int_equal(volume_snapshot_of(s, &of, NULL), -ESTALE);
    assert_int_equal(run(do_undelete, &back), -ENOENT);
    c = (struct call){.tree = again, .flag = true};
    assert_int_equal(run(do_delete, &c), 0); /* at once */
    assert_null(trees[again - 1].props);
}

static void clones_are_of_snapshots_and_remember_which(void **state)
{
    uint32_t v = volume("origin", "host"), s = snapshot(v, "one");
    struct call c = {.tree = v, .config = config_of("copy", "10.0.0.0/8:rw")};
    c.config.read_only = true;
    assert_int_equal(run(do_clone, &c), -EINVAL);
    c.tree = s;
    assert_int_equal(run(do_clone, &c), 0);
    assert_int_equal(found("copy"), c.out[0]);
    assert_int_equal(run(do_clone, &c), -EEXIST);
    free(c.config.rules);
    restart();
    struct sockaddr_storage peer = {.ss_family = AF_INET};
    inet_pton(AF_INET, "10.1.2.3", &((struct sockaddr_in *)&peer)->sin_addr);
    uint64_t cache[VOLUME_ACCESS_CACHE] = {0};
    struct volume_grant grant;
    assert_int_equal(volume_access(c.out[0], &peer, cache, &grant), 0);
    assert_true(grant.allowed && !grant.write);
}

static void a_restore_takes_a_safety_snapshot(void **state)
{
    uint32_t v = volume("restored", "host"), s = snapshot(v, "good");
    struct call c = {.tree = v, .other = s, .name = "before"};
    assert_int_equal(run(do_restore, &c), 0);
    assert_true(found("restored@before"));
    assert_int_equal(run(do_restore, &c), -EEXIST);
    c.name = NULL;
    assert_int_equal(run(do_restore, &c), 0);
    assert_int_equal(volume_snapshot_count(v), 2);
    c.other = v;
    assert_int_equal(run(do_restore, &c), -ESTALE);
}

static void a_thousand_come_and_go_in_any_order(void **state)
{
    enum { MANY = 1000 };
    static uint32_t s[MANY];
    uint32_t v = volume("many", "host");
    for (int i = 0; i < MANY; i++) {
        char name[32];
        snprintf(name, sizeof name, "s%d", (i * 7) % MANY);
        s[(i * 7) % MANY] = snapshot(v, name);
    }
    for (int i = 0; i < MANY; i += 3) {
        struct call c = {.tree = s[i]};
        assert_int_equal(run(do_snapshot_delete, &c), 0);
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) {
            char name[32];
            snprintf(name, sizeof name, "many@s%d", i);
            assert_int_equal(found(name), i % 3 ? s[i] : 0);
        }
        restart();
    }
}

/* A pool that takes no changes at present: the round ends, and the next one tries again. */
static void a_split_that_cannot_be_recorded_waits_for_the_next_round(void **state)
{
    struct call c = {.count = 1, .name = "split"}, some = {0};
    strcpy(c.config.name, "splitting");
    assert_int_equal(run(do_create, &c), 0);
    assert_int_equal(run(do_split, &c), -EINVAL); /* no clone */
    assert_int_equal(run(do_snapshot, &c), 0);
    c.tree = c.out[0];
    strcpy(c.config.name, "split");
    assert_int_equal(run(do_clone, &c), 0);
    c.tree = c.out[0];
    c.flag = true;
    assert_int_equal(run(do_split, &c), -EINVAL); /* nothing to pause */
    c.flag = false;
    assert_int_equal(run(do_split, &c), 0);
    for (unsigned i = 0; i < 2; i++) {
        refuse = i ? -EIO : SL_EFROZEN;
        run(do_split_some, &some);
        assert_int_equal(volume_split_state(c.tree), VOLUME_SPLIT_WANTED);
    }
    refuse = 0;
    split_says = -EIO;
    run(do_split_some, &some);
    assert_int_equal(volume_split_state(c.tree), VOLUME_SPLIT_PAUSED);
    split_says = 0;
    assert_int_equal(run(do_split, &c), 0);
    run(do_split_some, &some);
    assert_int_equal(volume_split_state(c.tree), VOLUME_SPLIT_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snapshots_are_found_by_name_in_the_order_they_were_taken),
        cmocka_unit_test(a_rename_keeps_the_number_and_frees_the_name),
        cmocka_unit_test(several_volumes_have_it_or_none),
        cmocka_unit_test(a_snapshot_follows_its_volumes_rules_and_is_never_written),
        cmocka_unit_test(what_is_locked_stays),
        cmocka_unit_test(a_deleted_volume_comes_back_with_its_snapshots_for_a_day),
        cmocka_unit_test(clones_are_of_snapshots_and_remember_which),
        cmocka_unit_test(a_restore_takes_a_safety_snapshot),
        cmocka_unit_test(a_thousand_come_and_go_in_any_order),
        cmocka_unit_test(a_split_that_cannot_be_recorded_waits_for_the_next_round),
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
