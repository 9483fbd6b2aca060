/* The arena as registered buffers: all of it, taken off and put on again, and read into. */
#include "ops_fixture.h"
#include "store/local/cache.h"
#include "store/local/fixed.h"

enum { SIZE = 4 << 20, PIECE = 64 << 10 };

static uint8_t buffer[PIECE], expected[PIECE];

static void fill(uint8_t *to, uint32_t offset)
{
    for (uint32_t i = 0; i < PIECE; i++)
        to[i] = (uint8_t)((offset + i) * 31u >> 3);
}

/* False: locked memory is denied here. */
static bool registered(struct pool *p)
{
    struct local *l = local_of(p->s);
    for (unsigned tries = 0; tries < 1000 && fixed_bytes(l) < l->options.cache_bytes; tries++)
        usleep(10000);
    return fixed_bytes(l) == l->options.cache_bytes;
}

static void cold_reads_into_registered_buffers_and_without(void **state)
{
    struct pool *p = *state;
    struct store_object o = made(p, &p->root, "f", STORE_REG);
    for (uint32_t at = 0; at < SIZE; at += PIECE) {
        fill(buffer, at);
        assert_int_equal(t_write(p, &root_cred, &o, at, buffer, PIECE), 0);
    }
    for (unsigned round = 0; round < 4; round++) {
        pool_reopen(p);
        if (round % 2 && !registered(p))
            skip();
        for (uint32_t at = 0; at < SIZE; at += PIECE) {
            uint32_t got;
            fill(expected, at);
            memset(buffer, 0, sizeof(buffer));
            assert_int_equal(t_read(p, &root_cred, &o, at, buffer, PIECE, &got), 0);
            assert_int_equal(got, PIECE);
            assert_memory_equal(buffer, expected, PIECE);
        }
    }
}

static int index_in_worker(void *arg)
{
    struct local *l = arg;
    uint64_t bytes;
    uint8_t *arena = cache_arena(l->cache, &bytes);
    assert_int_equal(fixed_index(l, buffer, sizeof(buffer)), -1);
    assert_int_equal(fixed_index(l, arena + bytes, 4096), -1);
    assert_int_equal(fixed_index(l, arena, 4096), 0);
    int last = fixed_index(l, arena + bytes - 4096, 4096);
    assert_true(last > 0);
    assert_int_equal(fixed_index(l, arena, bytes), -1); /* more than one of them */
    return last;
}

static void buffers_are_found_by_address(void **state)
{
    struct pool *p = *state;
    if (!registered(p))
        skip();
    int last = worker_call(worker_at(0), index_in_worker, local_of(p->s));
    assert_int_equal(worker_call(worker_at(1), index_in_worker, local_of(p->s)), last);
}

static int tests(void)
{
    const struct CMUnitTest list[] = {
        cmocka_unit_test_setup_teardown(cold_reads_into_registered_buffers_and_without, pool_setup, pool_teardown),
        cmocka_unit_test_setup_teardown(buffers_are_found_by_address, pool_setup, pool_teardown),
    };
    return cmocka_run_group_tests(list, NULL, NULL);
}

int main(void)
{
    return run_with_workers(tests);
}
