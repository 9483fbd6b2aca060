#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/local/cache.h"

enum { MIB = 1 << 20, BLOCK = STORE_BLOCK };

static struct local local;
static uint64_t seed;

static uint32_t next(uint64_t *s)
{
    *s = *s * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(*s >> 33);
}

static void open_cache(uint64_t bytes)
{
    char why[256];
    local.options.cache_bytes = bytes;
    assert_int_equal(cache_open(&local, why), 0);
}

static void stamp(struct frame *f, place_t place)
{
    uint64_t *words = (uint64_t *)frame_data(local.cache, f, place);
    words[0] = words[BLOCK / 8 - 1] = place;
}

static bool stamped(struct frame *f, place_t place)
{
    const uint64_t *words = (const uint64_t *)frame_data(local.cache, f, place);
    return words[0] == place && words[BLOCK / 8 - 1] == place;
}

/* False: no frame was to be had. */
static bool put(place_t place, enum frame_size size)
{
    struct frame *f = cache_get(local.cache, cache_class(local.cache, 1), place, size);
    if (!f)
        return false;
    uint16_t mine = cache_claim(local.cache, f, frame_mask(local.cache, f, place, 1));
    if (mine) {
        stamp(f, place);
        cache_loaded(local.cache, f, mine, mine);
    }
    frame_unpin(f);
    return true;
}

static bool has(place_t place)
{
    struct frame *f;
    if (!cache_find(local.cache, cache_class(local.cache, 1), place, 1, &f))
        return false;
    bool good = stamped(f, place);
    frame_unpin(f);
    assert_true(good);
    return true;
}

static void only_valid_blocks_are_found(void **state)
{
    open_cache(4 * MIB);
    place_t base = 3 << PLACE_BITS | 160;
    struct frame *f = cache_get(local.cache, cache_class(local.cache, 1), base + 4, FRAME_LARGE), *found;
    assert_non_null(f);
    assert_ptr_equal(frame_data(local.cache, f, base + 4),
                     frame_data(local.cache, f, base) + 4 * BLOCK);
    assert_int_equal(cache_find(local.cache, cache_class(local.cache, 1), base + 4, 1, &found), 0);
    cache_publish(f, frame_mask(local.cache, f, base + 4, 3));
    assert_int_equal(cache_find(local.cache, cache_class(local.cache, 1), base + 4, 12, &found), 3);
    assert_ptr_equal(found, f);
    frame_unpin(found);
    assert_int_equal(cache_find(local.cache, cache_class(local.cache, 1), base + 5, 1, &found), 1);
    frame_unpin(found);
    assert_int_equal(cache_find(local.cache, cache_class(local.cache, 1), base + 3, 4, &found), 0);
    assert_int_equal(cache_find(local.cache, cache_class(local.cache, 1), base + 7, 4, &found), 0);
    assert_null(cache_peek(local.cache, base + 20, FRAME_LARGE));
    assert_ptr_equal(cache_peek(local.cache, base, FRAME_LARGE), f);
    frame_unpin(f);
    frame_unpin(f);
    cache_close(&local);
}

static void a_failed_load_leaves_nothing_behind(void **state)
{
    open_cache(MIB);
    place_t place = 1 << PLACE_BITS | 7;
    struct frame *f = cache_get(local.cache, cache_class(local.cache, 1), place, FRAME_SMALL), *found;
    assert_int_equal(cache_claim(local.cache, f, 1), 1);
    assert_int_equal(cache_claim(local.cache, f, 1), 0);
    cache_loaded(local.cache, f, 1, 0);
    assert_int_equal(cache_find(local.cache, cache_class(local.cache, 1), place, 1, &found), 0);
    assert_int_equal(cache_claim(local.cache, f, 1), 1);
    cache_loaded(local.cache, f, 1, 1);
    assert_int_equal(cache_claim(local.cache, f, 1), 0);
    frame_unpin(f);
    cache_close(&local);
}

static void what_is_found_is_what_was_put(void **state)
{
    open_cache(8 * MIB);
    unsigned hits = 0;
    for (unsigned i = 0; i < 200000; i++) {
        place_t place = 1 << PLACE_BITS | (next(&seed) % 8192 + 1);
        if (next(&seed) % 2)
            hits += has(place);
        else
            assert_true(put(place, next(&seed) % 3 ? FRAME_SMALL : FRAME_LARGE));
    }
    uint64_t total, taken;
    cache_usage(&local, &total, &taken);
    assert_int_equal(total, 8 * MIB);
    assert_true(taken <= total && taken > total / 2);
    assert_true(hits > 1000);
    cache_close(&local);
}

static void pinned_frames_stay_and_the_rest_goes_on(void **state)
{
    open_cache(MIB); /* sixteen slabs */
    struct frame *pinned[64];
    unsigned count = 0;
    place_t place = 1 << PLACE_BITS;
    while (count < 64 &&
           (pinned[count] = cache_get(local.cache, cache_class(local.cache, 1), place + count * FRAME_BLOCKS, FRAME_LARGE)))
        count++;
    assert_int_equal(count, 16);
    assert_false(put(2 << PLACE_BITS, FRAME_SMALL));
    frame_unpin(pinned[3]);
    assert_true(put(2 << PLACE_BITS, FRAME_SMALL));
    assert_true(has(2 << PLACE_BITS));
    for (unsigned i = 0; i < 16; i++) {
        if (i != 3)
            frame_unpin(pinned[i]);
    }
    cache_close(&local);
}

static void small_and_large_frames_give_way_to_each_other(void **state)
{
    open_cache(8 * MIB);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 8192; i++)
            assert_true(put(1 << PLACE_BITS | (i + 1), FRAME_SMALL));
        unsigned there = 0;
        for (unsigned i = 8192 - 512; i < 8192; i++)
            there += has(1 << PLACE_BITS | (i + 1));
        assert_true(there > 256);
        for (unsigned i = 0; i < 1024; i++)
            assert_true(put(2 << PLACE_BITS | i * FRAME_BLOCKS, FRAME_LARGE));
        there = 0;
        for (unsigned i = 1024 - 32; i < 1024; i++)
            there += has(2 << PLACE_BITS | i * FRAME_BLOCKS);
        assert_true(there > 16);
    }
    cache_close(&local);
}

static void a_scan_does_not_wash_out_what_is_used(void **state)
{
    open_cache(16 * MIB); /* 256 large frames */
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < 100; i++) {
            if (!has(1 << PLACE_BITS | i * FRAME_BLOCKS))
                put(1 << PLACE_BITS | i * FRAME_BLOCKS, FRAME_LARGE);
        }
        for (unsigned i = 0; i < 20; i++)
            put(2 << PLACE_BITS | (round * 20 + i) * FRAME_BLOCKS, FRAME_LARGE);
    }
    for (unsigned i = 0; i < 3000; i++)
        put(3 << PLACE_BITS | i * FRAME_BLOCKS, FRAME_LARGE);
    unsigned there = 0;
    for (unsigned i = 0; i < 100; i++)
        there += has(1 << PLACE_BITS | i * FRAME_BLOCKS);
    assert_in_range(there, 80, 100);
    cache_close(&local);
}

static void *hammer(void *arg)
{
    uint64_t mine = (uint64_t)(uintptr_t)arg;
    uint64_t bad = 0;
    for (unsigned i = 0; i < 150000; i++) {
        place_t place = 1 << PLACE_BITS | (next(&mine) % 3000 + 1);
        struct frame *f;
        if (next(&mine) % 3) {
            if (cache_find(local.cache, cache_class(local.cache, 1), place, 1, &f)) {
                bad += !stamped(f, place);
                if (next(&mine) % 64 == 0)
                    sched_yield();
                bad += !stamped(f, place);
                frame_unpin(f);
            }
        } else {
            put(place, next(&mine) % 2 ? FRAME_SMALL : FRAME_LARGE);
        }
    }
    return (void *)(uintptr_t)bad;
}

static void threads_never_see_another_place(void **state)
{
    open_cache(2 * MIB);
    pthread_t threads[6];
    for (unsigned i = 0; i < 6; i++)
        pthread_create(&threads[i], NULL, hammer, (void *)(uintptr_t)(seed + i));
    for (unsigned i = 0; i < 6; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        assert_null(bad);
    }
    cache_close(&local);
}

static atomic_uint waited;

static void wait_for_it(void *arg)
{
    struct frame *f = arg;
    cache_wait(local.cache, f, 1);
    assert(frame_valid(f) == 1);
    atomic_fetch_add(&waited, 1);
}

static int load_slowly(void *arg)
{
    struct frame *f = arg;
    assert(cache_claim(local.cache, f, 1) == 1);
    for (unsigned i = 0; i < 10; i++)
        assert(worker_spawn(worker_at(i % workers_count()), wait_for_it, f) == 0);
    coro_sleep(50);
    assert(atomic_load(&waited) == 0);
    cache_loaded(local.cache, f, 1, 1);
    while (atomic_load(&waited) < 10)
        coro_sleep(1);
    return 0;
}

static void who_waits_for_a_load_is_woken(void **state)
{
    open_cache(MIB);
    struct frame *f = cache_get(local.cache, cache_class(local.cache, 1), 1 << PLACE_BITS | 1, FRAME_SMALL);
    assert_int_equal(worker_call(worker_at(0), load_slowly, f), 0);
    frame_unpin(f);
    cache_close(&local);
}

static int start(void **state)
{
    return workers_start(2);
}

static int stop(void **state)
{
    workers_stop(2000);
    blocking_stop();
    return 0;
}

int main(void)
{
    const char *given = getenv("SEED");
    seed = given ? strtoull(given, NULL, 0) : 1;
    printf("SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_valid_blocks_are_found),
        cmocka_unit_test(a_failed_load_leaves_nothing_behind),
        cmocka_unit_test(what_is_found_is_what_was_put),
        cmocka_unit_test(pinned_frames_stay_and_the_rest_goes_on),
        cmocka_unit_test(small_and_large_frames_give_way_to_each_other),
        cmocka_unit_test(a_scan_does_not_wash_out_what_is_used),
        cmocka_unit_test(threads_never_see_another_place),
        cmocka_unit_test(who_waits_for_a_load_is_woken),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
