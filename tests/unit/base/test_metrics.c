#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "sluice/base_error.h"
#include "sluice/base_log.h"
#include "sluice/base_metrics.h"

enum { THREADS = 8, ROUNDS = 10000 };

static void *count(void *arg)
{
    for (int i = 0; i < ROUNDS; i++)
        metric_add(METRIC_read_bytes, 3);
    return NULL;
}

static void counts_of_ended_threads_stay(void **state)
{
    for (uint64_t round = 1; round <= 3; round++) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, count, NULL);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(metric_read(METRIC_read_bytes), round * 3 * THREADS * ROUNDS);
    }
    assert_int_equal(metric_read(METRIC_write_bytes), 0);
}

static void every_metric_has_name_and_help(void **state)
{
    assert_string_equal(metric_names[METRIC_rpc_calls], "rpc_calls");
    for (int i = 0; i < METRIC_COUNT; i++)
        assert_true(metric_names[i][0] && metric_helps[i][0]);
}

static void every_error_has_name_and_text(void **state)
{
    assert_string_equal(sl_errname(-ENOSPC), "ENOSPC");
    assert_string_equal(sl_errname(SL_EWAIT), "SL_EWAIT");
    assert_string_equal(sl_errname(SL_ECORRUPT), "SL_ECORRUPT");
    assert_string_equal(sl_errname(-99999), "UNKNOWN");
    assert_string_equal(sl_strerror(-ENOSPC), "no space left");
    assert_string_equal(sl_strerror(0), "no error");
    for (int e = -5000; e < 10; e++)
        assert_true(sl_errname(e)[0] && sl_strerror(e)[0]);
}

static void levels_parse_and_messages_are_rate_limited(void **state)
{
    enum log_level level;
    assert_int_equal(log_level_parse("debug", &level), 0);
    assert_int_equal(level, LOG_LEVEL_DEBUG);
    assert_int_equal(log_level_parse("loud", &level), -EINVAL);
    static _Atomic long last;
    assert_true(log_ratelimit(&last));
    int more = 0;
    for (int i = 0; i < 100; i++)
        more += log_ratelimit(&last);
    assert_true(more <= 1);
    errno = EBADF;
    log_notice("test", "a forged\n<0>line and \033[31m%02000d", 7);
    assert_int_equal(errno, EBADF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_of_ended_threads_stay),
        cmocka_unit_test(every_metric_has_name_and_help),
        cmocka_unit_test(every_error_has_name_and_text),
        cmocka_unit_test(levels_parse_and_messages_are_rate_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
