#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sluice/base_error.h"
#include "volume/gate.h"

#define SECOND UINT64_C(1000000000)
#define MS UINT64_C(1000000)

/* ---- buckets, with a made-up clock ---- */

static uint64_t now = 1000 * SECOND;

static struct bucket_set buckets(uint64_t bandwidth, uint64_t iops)
{
    struct bucket_set set = {.filled_ns = now};
    struct volume_limits limits = {.bandwidth = {bandwidth}, .iops = {iops}};
    buckets_limit(&set, &limits, now);
    return set;
}

/* Calls of `bytes` as fast as they pass, looked at every `step`, for `seconds` after a first one: bytes a second. */
static double rate_of(struct bucket_set *set, enum gate_way way, uint32_t bytes, uint64_t step, double seconds)
{
    uint64_t start = now + SECOND, end = start + (uint64_t)(seconds * 1e9);
    double passed = 0;
    for (; now < end; now += step) {
        buckets_fill(set, now);
        while (buckets_open(set, way)) {
            buckets_take(set, way, bytes, 1);
            passed += now >= start ? bytes : 0;
        }
    }
    return passed / seconds;
}

static void rates_are_what_is_set(void **state)
{
    static const uint64_t bandwidths[] = {1000000, 30000000, 2000000000};
    for (int i = 0; i < 3; i++) {
        struct bucket_set set = buckets(bandwidths[i], 0);
        double large = rate_of(&set, GATE_READ, 1 << 20, MS, 100);
        assert_true(fabs(large / (double)bandwidths[i] - 1) < 0.02);
        double small = rate_of(&set, GATE_READ, 4096, MS, 10);
        assert_true(fabs(small / (double)bandwidths[i] - 1) < 0.01);
    }
    struct bucket_set set = buckets(0, 100);
    assert_true(fabs(rate_of(&set, GATE_WRITE, 1, 3 * MS, 100) / 100 - 1) < 0.02);
}

static void the_smaller_of_two_limits_counts_and_ways_are_apart(void **state)
{
    struct bucket_set set = {.filled_ns = now};
    struct volume_limits limits = {.bandwidth = {0, 0, 5000000}, .iops = {1000}};
    buckets_limit(&set, &limits, now);
    assert_true(fabs(rate_of(&set, GATE_WRITE, 10000, MS, 20) / 5000000 - 1) < 0.02);
    assert_true(fabs(rate_of(&set, GATE_READ, 10000, MS, 20) / 10000000 - 1) < 0.02);
}

static void a_large_call_leaves_a_debt_that_a_new_limit_pays_off(void **state)
{
    struct bucket_set set = buckets(1000000, 0);
    assert_true(buckets_open(&set, GATE_READ)); /* a tenth of a second has been saved up: less than it takes */
    buckets_take(&set, GATE_READ, 1 << 20, 1);
    assert_false(buckets_open(&set, GATE_READ));
    uint64_t wait = buckets_wait(&set, GATE_READ, 0, 0);
    assert_true(wait > 940 * MS && wait < 950 * MS);
    buckets_limit(&set, &(struct volume_limits){.bandwidth = {1000000000}}, now);
    assert_true(buckets_wait(&set, GATE_READ, 0, 0) < MS);
    buckets_limit(&set, &(struct volume_limits){0}, now);
    assert_true(buckets_open(&set, GATE_READ));
    assert_int_equal(buckets_wait(&set, GATE_READ, 1e9, 1e9), 0);
}

static void a_burst_is_saved_up_and_no_more(void **state)
{
    struct bucket_set set = {.filled_ns = now};
    buckets_limit(&set, &(struct volume_limits){.iops = {1000}, .burst_ns = 2 * SECOND}, now);
    now += 100 * SECOND;
    buckets_fill(&set, now);
    unsigned passed = 0;
    for (; buckets_open(&set, GATE_READ); passed++)
        buckets_take(&set, GATE_READ, 0, 1);
    assert_int_equal(passed, 2001);
}

static void what_is_leased_comes_back(void **state)
{
    struct bucket_set set = buckets(1000000, 1000), lease = {0};
    struct bucket_set before = set;
    buckets_lease(&set, &lease, GATE_READ, MS);
    assert_true(fabs(lease.at[0].level - 1000) < 1e-6 && fabs(lease.at[3].level - 1) < 1e-6);
    buckets_take(&lease, GATE_READ, 5000, 1);
    assert_false(buckets_open(&lease, GATE_READ));
    buckets_return(&set, &lease);
    assert_true(fabs(set.at[0].level - (before.at[0].level - 5000)) < 1e-6);
    assert_true(fabs(set.at[3].level - (before.at[3].level - 1)) < 1e-6);
    assert_true(buckets_open(&lease, GATE_READ) && lease.at[0].rate == 0);
}

/* ---- queues ---- */

enum { CALLS = 4000 };
static struct gate_call calls[CALLS];
static unsigned made;

static struct gate *limited(uint64_t bandwidth, uint64_t iops)
{
    struct gate *g = gate_new(7);
    assert_non_null(g);
    g->set = buckets(bandwidth, iops);
    made = 0;
    return g;
}

static struct gate_call *wait_at(struct gate *g, uint64_t connection, enum gate_way way, uint32_t bytes)
{
    struct gate_call *call = &calls[made++];
    *call = (struct gate_call){
        .connection = connection, .gate = g, .way = way, .bytes = bytes, .since_ns = now};
    assert_int_equal(queue_add(g, call), 0);
    return call;
}

static void connections_take_turns_by_bytes_and_keep_their_order(void **state)
{
    struct gate *g = limited(100000000, 0);
    for (int i = 0; i < 100; i++)
        wait_at(g, 1, GATE_READ, 1 << 20);
    for (int i = 0; i < 3000; i++)
        wait_at(g, 2, GATE_READ, 16384);
    uint64_t bytes[3] = {0};
    const struct gate_call *last[3] = {0};
    for (int i = 0; i < 1000 && g->queue[GATE_READ].flows == 2; i++, now += MS)
        for (struct gate_call *c = queue_pass(g, now); c; c = c->next) {
            assert_true(c > last[c->connection]);
            last[c->connection] = c;
            bytes[c->connection] += c->bytes;
        }
    assert_true(bytes[1] > 20 << 20);
    assert_true(fabs((double)bytes[1] / (double)bytes[2] - 1.2) < 0.2); /* small ones count 4 KiB more each */
    queue_withdraw(g, 1);
    queue_withdraw(g, 2);
    assert_int_equal(g->queue[GATE_READ].flows, 0);
    gate_free(g);
}

static void a_limit_of_writes_does_not_hold_up_reads(void **state)
{
    struct gate *g = limited(0, 0);
    buckets_limit(&g->set, &(struct volume_limits){.bandwidth = {0, 0, 1000000}}, now);
    for (int i = 0; i < 10; i++) {
        wait_at(g, 1, GATE_WRITE, 1 << 20);
        wait_at(g, 1, GATE_READ, 1 << 20);
    }
    unsigned passed[GATE_WAYS] = {0};
    for (struct gate_call *c = queue_pass(g, now); c; c = c->next)
        passed[c->way]++;
    assert_int_equal(passed[GATE_READ], 10);
    assert_int_equal(passed[GATE_WRITE], 1);
    assert_true(queue_next(g) > 900 * MS);
    gate_free(g);
}

static void what_would_wait_too_long_is_told_so(void **state)
{
    struct gate *g = limited(1000000, 0);
    unsigned held = 0;
    struct gate_call *call;
    int error;
    do {
        call = &calls[held];
        *call = (struct gate_call){.connection = 1, .gate = g, .way = GATE_READ, .bytes = 1 << 20};
        g->set.filled_ns = clock_monotonic_ns() + 3600 * SECOND; /* stands still */
        error = gate_hold(call);
        held += error == 0;
    } while (error == 0 && held < CALLS);
    assert_int_equal(error, SL_EDELAY);
    assert_true(held >= 19 && held <= 21);
    assert_int_equal(g->stats.delayed, 1);
    /* another connection has a turn of its own */
    calls[held] = (struct gate_call){.connection = 2, .gate = g, .way = GATE_READ, .bytes = 1 << 20};
    assert_int_equal(gate_hold(&calls[held]), 0);
    gate_free(g);
}

static void what_is_withdrawn_says_so(void **state)
{
    struct gate *g = limited(1, 0);
    wait_at(g, 1, GATE_READ, 10);
    wait_at(g, 2, GATE_READ, 10);
    wait_at(g, 1, GATE_WRITE, 10);
    unsigned found = 0;
    for (struct gate_call *c = queue_withdraw(g, 1); c; c = c->next, found++)
        assert_true(c->withdrawn && c->connection == 1);
    assert_int_equal(found, 2);
    assert_int_equal(g->queue[GATE_READ].calls, 1);
    assert_int_equal(g->queue[GATE_WRITE].calls, 0);
    gate_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_what_is_set),
        cmocka_unit_test(the_smaller_of_two_limits_counts_and_ways_are_apart),
        cmocka_unit_test(a_large_call_leaves_a_debt_that_a_new_limit_pays_off),
        cmocka_unit_test(a_burst_is_saved_up_and_no_more),
        cmocka_unit_test(what_is_leased_comes_back),
        cmocka_unit_test(connections_take_turns_by_bytes_and_keep_their_order),
        cmocka_unit_test(a_limit_of_writes_does_not_hold_up_reads),
        cmocka_unit_test(what_would_wait_too_long_is_told_so),
        cmocka_unit_test(what_is_withdrawn_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
