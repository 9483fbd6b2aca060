#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <urcu.h>

#include "store/local/table.h"

static int start(void **state)
{
    rcu_register_thread();
    return 0;
}

static int stop(void **state)
{
    rcu_barrier();
    rcu_unregister_thread();
    return 0;
}

static bool has(struct rtable *t, const struct rtable_key *key, uint64_t *value)
{
    size_t length;
    rcu_read_lock();
    const uint64_t *found = rtable_get(t, key, &length);
    if (found)
        *value = *found;
    rcu_read_unlock();
    return found;
}

static void never_says_what_a_model_does_not(void **state)
{
    enum { KEYS = 200, STEPS = 200000 };
    static uint64_t model[3][KEYS]; /* 0: gone */
    struct rtable *t = rtable_new(300, 300 * 256);
    uint64_t hits = 0, value, entries, bytes;
    for (uint64_t i = 1; i <= STEPS; i++) {
        struct rtable_key key = {.ino = (uint64_t)random() % 20, .sub = (uint64_t)random() % 10,
                                 .tree = (uint32_t)random() % 3};
        uint64_t *truth = &model[key.tree][key.ino * 10 + key.sub];
        switch (random() % 8) {
        case 0:
            *truth = i;
            rtable_publish(t, &key, truth, 8, random() % 2);
            break;
        case 1:
            *truth = 0;
            rtable_publish(t, &key, NULL, 0, 0);
            break;
        case 2:
            if (random() % 200 == 0) {
                rtable_drop_tree(t, key.tree);
                memset(model[key.tree], 0, sizeof(model[0]));
            }
            break;
        default:
            if (has(t, &key, &value)) {
                hits++;
                assert_true(value == *truth && *truth);
            } else if (*truth) {
                rtable_fill(t, &key, rtable_ticket(t, &key), truth, 8);
            }
        }
        rtable_stats(t, &entries, &bytes);
        assert_true(entries <= 300 && bytes <= 300 * 256);
    }
    assert_true(hits > STEPS / 20);
    rtable_free(t);
}

static void a_fill_is_refused_when_something_was_published_since(void **state)
{
    struct rtable *t = rtable_new(16, 1 << 20); /* one shard */
    struct rtable_key key = {.ino = 1}, other = {.ino = 2};
    uint64_t old = 1, new = 2, value;
    uint64_t ticket = rtable_ticket(t, &key);
    rtable_publish(t, &key, &new, 8, 0); /* not known, so not put in */
    assert_false(has(t, &key, &value));
    rtable_fill(t, &key, ticket, &old, 8);
    assert_false(has(t, &key, &value));
    ticket = rtable_ticket(t, &key);
    rtable_drop_tree(t, 5);
    rtable_fill(t, &key, ticket, &old, 8);
    assert_false(has(t, &key, &value));
    rtable_fill(t, &other, rtable_ticket(t, &other), &new, 8);
    assert_true(has(t, &other, &value));
    rtable_free(t);
}

static void what_is_read_in_passing_pushes_nothing_out(void **state)
{
    struct rtable *t = rtable_new(16, 1 << 20); /* one shard */
    uint64_t number = 7, value, entries, bytes;
    for (uint64_t i = 0; i < 100; i++) {
        struct rtable_key key = {.ino = i};
        rtable_fill_spare(t, &key, rtable_ticket(t, &key), &number, 8);
        assert_int_equal(has(t, &key, &value), i < 16);
    }
    rtable_stats(t, &entries, &bytes);
    assert_int_equal(entries, 16);
    struct rtable_key gone = {.ino = 3}, late = {.ino = 200};
    uint64_t ticket = rtable_ticket(t, &late);
    rtable_publish(t, &gone, NULL, 0, 0);
    rtable_fill_spare(t, &late, ticket, &number, 8);
    assert_false(has(t, &late, &value)); /* there is room, but something was published since */
    rtable_fill_spare(t, &late, rtable_ticket(t, &late), &number, 8);
    assert_true(has(t, &late, &value));
    rtable_free(t);
    t = rtable_new(16, 200); /* bytes, too */
    rtable_fill_spare(t, &gone, 0, &number, 8);
    rtable_fill_spare(t, &late, 0, &number, 8);
    assert_true(has(t, &gone, &value));
    rtable_fill_spare(t, &(struct rtable_key){.ino = 4}, 0, &number, 8);
    rtable_stats(t, &entries, &bytes);
    assert_true(entries < 3 && bytes <= 200 && has(t, &gone, &value));
    rtable_free(t);
}

static void what_is_used_stays(void **state)
{
    struct rtable *t = rtable_new(16, 1 << 20);
    struct rtable_key hot = {.ino = 1000};
    uint64_t number = 7, value;
    rtable_publish(t, &hot, &number, 8, 1);
    for (uint64_t i = 0; i < 1000; i++) {
        assert_true(has(t, &hot, &value));
        rtable_publish(t, &(struct rtable_key){.ino = i}, &number, 8, 1);
    }
    rtable_free(t);
}

static void a_value_too_large_is_not_kept(void **state)
{
    struct rtable *t = rtable_new(16, 1000);
    static uint8_t large[2000];
    struct rtable_key key = {.ino = 1};
    uint64_t value;
    rtable_publish(t, &key, large, 100, 1);
    assert_true(has(t, &key, &value));
    rtable_publish(t, &key, large, sizeof(large), 1);
    assert_false(has(t, &key, &value));
    rtable_free(t);
}

static struct rtable *shared;
static atomic_bool ended;
enum { SHARED_KEYS = 500, WORDS = 20 };

static void *reads(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    rcu_register_thread();
    while (!atomic_load(&ended)) {
        struct rtable_key key = {.ino = (uint64_t)rand_r(&seed) % SHARED_KEYS};
        uint64_t copy[WORDS];
        size_t length;
        uint64_t ticket = rtable_ticket(shared, &key);
        rcu_read_lock();
        const void *found = rtable_get(shared, &key, &length);
        if (found)
            memcpy(copy, found, sizeof(copy));
        rcu_read_unlock();
        for (int i = 0; found && i < WORDS; i++)
            if (copy[i] != copy[0] || copy[0] % SHARED_KEYS != key.ino)
                abort(); /* torn, freed or another's */
        if (!found) {
            for (int i = 0; i < WORDS; i++)
                copy[i] = key.ino;
            rtable_fill(shared, &key, ticket, copy, sizeof(copy));
        }
    }
    rcu_unregister_thread();
    return NULL;
}

static void readers_never_see_half_a_value(void **state)
{
    pthread_t threads[3];
    shared = rtable_new(300, 1 << 20);
    atomic_store(&ended, false);
    for (uintptr_t i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, reads, (void *)(i + 1));
    for (uint64_t n = 0; n < 300000; n++) {
        uint64_t ino = (uint64_t)random() % SHARED_KEYS, value[WORDS];
        for (int i = 0; i < WORDS; i++)
            value[i] = n * SHARED_KEYS + ino;
        rtable_publish(shared, &(struct rtable_key){.ino = ino}, n % 7 ? value : NULL, sizeof(value), 1);
    }
    atomic_store(&ended, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    rcu_barrier();
    rtable_free(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_says_what_a_model_does_not),
        cmocka_unit_test(a_fill_is_refused_when_something_was_published_since),
        cmocka_unit_test(what_is_read_in_passing_pushes_nothing_out),
        cmocka_unit_test(what_is_used_stays),
        cmocka_unit_test(a_value_too_large_is_not_kept),
        cmocka_unit_test(readers_never_see_half_a_value),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
