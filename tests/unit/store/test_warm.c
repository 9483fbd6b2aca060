/* store_ops.warm: afterwards a READ finds everything in RAM, and what was loaded is counted right. */
#include "ops_fixture.h"
#include "sluice/base_metrics.h"

enum { BLOCK = STORE_BLOCK, PIECE = 1 << 20, FILES = 20 };

static uint8_t bytes[PIECE], got[PIECE];

struct warm_call {
    struct call call;
    const struct store_range *ranges;
    unsigned count;
    struct store_warmed out;
};

static int call_warm(struct call *k)
{
    struct warm_call *w = (struct warm_call *)k->arg;
    return k->s->ops->warm(k->s, w->ranges, w->count, &w->out);
}

static struct store_warmed warm(struct pool *p, const struct store_range *ranges, unsigned count)
{
    struct warm_call w = {.ranges = ranges, .count = count};
    assert_int_equal(call(p, (struct call){.run = call_warm, .arg = &w}), 0);
    return w.out;
}

static struct store_object file_of(struct pool *p, const char *name, uint32_t length, unsigned seed)
{
    struct store_object o = made(p, &p->root, name, STORE_REG);
    for (uint32_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(1 + (i * 7 + i / 251 + seed) % 255);
    if (length)
        assert_int_equal(t_write(p, &root_cred, &o, 0, bytes, length), 0);
    return o;
}

static uint64_t blocks(uint64_t length)
{
    return (length + BLOCK - 1) / BLOCK * BLOCK;
}

static struct store_range whole(const struct store_object *o)
{
    return (struct store_range){.object = *o, .length = UINT32_MAX};
}

static uint64_t misses_of_read(struct pool *p, const struct store_object *o, uint32_t want)
{
    uint32_t length = 0;
    uint64_t before = metric_read(METRIC_cache_misses);
    assert_int_equal(t_read(p, &root_cred, o, 0, got, PIECE, &length), 0);
    assert_int_equal(length, want);
    return metric_read(METRIC_cache_misses) - before;
}

static void warmed_files_are_read_without_a_miss(void **state)
{
    struct pool *p = *state;
    struct store_object o[FILES];
    struct store_range ranges[FILES];
    uint32_t length[FILES];
    uint64_t sum = 0;
    for (unsigned i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%u", i);
        length[i] = i == 0 ? 0 : i == 1 ? 900 : i == 2 ? PIECE : 3000 * i + i;
        o[i] = file_of(p, name, length[i], i);
        sum += length[i] > 1536 ? blocks(length[i]) : 0;
    }
    pool_reopen(p);
    assert_true(misses_of_read(p, &o[2], PIECE) > 0); /* or the rest says nothing */
    pool_reopen(p);
    for (unsigned i = 0; i < FILES; i++)
        ranges[FILES - 1 - i] = whole(&o[i]);
    struct store_warmed out = warm(p, ranges, FILES);
    assert_int_equal(out.disk, sum);
    assert_int_equal(out.present + out.full + out.failed + out.gone, 0);
    for (unsigned i = 0; i < FILES; i++)
        assert_int_equal(misses_of_read(p, &o[i], length[i]), 0);
    out = warm(p, ranges, FILES);
    assert_int_equal(out.disk, 0);
    assert_int_equal(out.present, sum);
}

static void warming_loads_what_the_range_says_and_the_right_bytes(void **state)
{
    struct pool *p = *state;
    struct store_object o = file_of(p, "f", PIECE, 3);
    pool_reopen(p);
    struct store_range parts[] = {{.object = o, .offset = 300000, .length = 200000},
                                  {.object = o, .offset = 400000, .length = 200000}, /* overlaps */
                                  {.object = o, .offset = PIECE + 5, .length = 7}};
    struct store_warmed out = warm(p, parts, 3);
    assert_int_equal(out.disk, blocks(600000) - 300000 / BLOCK * BLOCK);
    uint32_t length = 0;
    uint64_t before = metric_read(METRIC_cache_misses);
    assert_int_equal(t_read(p, &root_cred, &o, 300000, got, 300000, &length), 0);
    assert_int_equal(length, 300000);
    assert_memory_equal(got, bytes + 300000, 300000);
    assert_int_equal(metric_read(METRIC_cache_misses), before);
}

static void what_is_gone_is_passed_over(void **state)
{
    struct pool *p = *state;
    struct store_object kept = file_of(p, "kept", 50000, 1), gone = file_of(p, "gone", 50000, 2);
    assert_int_equal(t_remove(p, &p->root, "gone"), 0);
    pool_reopen(p);
    struct store_object other = kept, nothing = {.tree = p->tree + 77, .ino = 5};
    other.generation++;
    struct store_range ranges[] = {whole(&gone), whole(&kept), whole(&other), whole(&p->root), whole(&nothing)};
    struct store_warmed out = warm(p, ranges, 5);
    assert_int_equal(out.disk, blocks(50000));
    assert_int_equal(out.gone, 4);
    assert_int_equal(warm(p, NULL, 0).disk, 0);
}

static void more_than_the_cache_is_no_error(void **state)
{
    struct pool *p = *state;
    struct store_object o = made(p, &p->root, "large", STORE_REG);
    memset(bytes, 5, PIECE);
    for (unsigned i = 0; i < 40; i++) /* the cache has 16 MiB */
        assert_int_equal(t_write(p, &root_cred, &o, (uint64_t)i * PIECE, bytes, PIECE), 0);
    pool_reopen(p);
    struct store_range all = whole(&o);
    struct store_warmed out = warm(p, &all, 1);
    assert_true(out.disk <= 40 * PIECE && out.disk >= 8 * PIECE);
    assert_int_equal(out.disk + out.present + out.full, 40 * PIECE);
    struct store_status status;
    p->s->ops->status(p->s, &status);
    assert_true(status.cache_used_bytes <= status.cache_bytes);
}

static void what_was_read_is_counted_while_somebody_watches(void **state)
{
    struct pool *p = *state;
    struct store_object o = file_of(p, "f", 50000, 1);
    uint32_t length;
    assert_int_equal(t_read(p, &root_cred, &o, 0, got, 50000, &length), 0);
    assert_int_equal(p->s->ops->watch_count(p->s, &o), 0);
    assert_int_equal(p->s->ops->watch_begin(p->s), 0);
    uint64_t before = p->s->ops->watch_count(p->s, &o);
    assert_int_equal(t_read(p, &root_cred, &o, 0, got, 20000, &length), 0);
    assert_int_equal(t_read(p, &root_cred, &o, 40000, got, 50000, &length), 0);
    assert_int_equal(p->s->ops->watch_count(p->s, &o) - before, 30000);
    p->s->ops->watch_end(p->s);
    assert_int_equal(t_read(p, &root_cred, &o, 0, got, 20000, &length), 0);
    assert_int_equal(p->s->ops->watch_count(p->s, &o) - before, 30000);
}

static int tests(void)
{
    const struct CMUnitTest list[] = {
        cmocka_unit_test_setup_teardown(warmed_files_are_read_without_a_miss, pool_setup, pool_teardown),
        cmocka_unit_test_setup_teardown(warming_loads_what_the_range_says_and_the_right_bytes, pool_setup,
                                        pool_teardown),
        cmocka_unit_test_setup_teardown(what_is_gone_is_passed_over, pool_setup, pool_teardown),
        cmocka_unit_test_setup_teardown(more_than_the_cache_is_no_error, pool_setup, pool_teardown),
        cmocka_unit_test_setup_teardown(what_was_read_is_counted_while_somebody_watches, pool_setup, pool_teardown),
    };
    return cmocka_run_group_tests(list, NULL, NULL);
}

int main(void)
{
    return run_with_workers(tests);
}
