/* Latencies in buckets: bounds, sums, shares. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sluice/base_histogram.h"

static void each_time_is_in_the_bucket_that_its_bound_says(void **state)
{
    for (unsigned shift = 0; shift < 64; shift++) {
        for (int off = -1; off <= 1; off++) {
            uint64_t ns = (UINT64_C(1) << shift) + (uint64_t)off;
            unsigned bucket = histogram_bucket(ns);
            assert_true(bucket < HISTOGRAM_BUCKETS);
            assert_true(ns < histogram_bound(bucket) || bucket == HISTOGRAM_BUCKETS - 1);
            if (bucket)
                assert_true(ns >= histogram_bound(bucket - 1));
        }
    }
    assert_int_equal(histogram_bucket(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}

static void what_threads_counted_adds_up(void **state)
{
    struct histogram a = {0}, b = {0}, sum = {0};
    histogram_add(&a, 1000);
    histogram_add(&a, 100000);
    histogram_add(&b, 100001);
    histogram_sum(&sum, &a);
    histogram_sum(&sum, &b);
    assert_int_equal(sum.sum, 201001);
    assert_int_equal(histogram_count(&sum), 3);
    assert_int_equal(sum.bucket[0], 1);
    assert_int_equal(sum.bucket[histogram_bucket(100000)], 2);
}

static void a_share_lies_within_its_bucket(void **state)
{
    struct histogram h = {0};
    assert_int_equal(histogram_quantile(&h, 0.5), 0);
    for (unsigned i = 0; i < 90; i++)
        histogram_add(&h, 20000);
    for (unsigned i = 0; i < 10; i++)
        histogram_add(&h, 5000000);
    uint64_t half = histogram_quantile(&h, 0.5), most = histogram_quantile(&h, 0.99);
    assert_true(half >= 16384 && half <= 32768);
    assert_true(most >= 4194304 && most <= 8388608);
    assert_true(histogram_quantile(&h, 0.90) <= 32768);
    assert_true(histogram_quantile(&h, 1) <= 8388608);
    histogram_add(&h, UINT64_MAX / 2);
    assert_int_equal(histogram_quantile(&h, 1), histogram_bound(HISTOGRAM_BUCKETS - 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_time_is_in_the_bucket_that_its_bound_says),
        cmocka_unit_test(what_threads_counted_adds_up),
        cmocka_unit_test(a_share_lies_within_its_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
