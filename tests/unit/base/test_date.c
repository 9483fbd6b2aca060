#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sluice/base_date.h"

static void dates_are_utc_in_each_form(void **state)
{
    static const struct {
        const char *text;
        int64_t seconds;
    } good[] = {{"2026-11-30", 1795996800},           {"2026-11-30 18:05", 1796061900},
                {"2026-11-30T18:05Z", 1796061900},    {"2026-11-30 18:05:09", 1796061909},
                {"2026-11-30T18:05:09Z", 1796061909}, {"@1796061909", 1796061909},
                {"+30d", 1000 + 30 * 86400},          {"-2w", 1000 - 14 * 86400}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t out = 0;
        assert_int_equal(date_parse(good[i].text, 1000, &out), 0);
        assert_int_equal(out, good[i].seconds);
    }
}

static void what_is_no_date_is_refused(void **state)
{
    static const char *const bad[] = {"", "tomorrow", "2026-13-01", "2026-02-30", "2026-11-30 25:00", "2026-11-30x",
                                      "@", "@12x", "+", "+5", "+5y", "30d", "2026-11-30 18:05:09+01"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t out;
        if (date_parse(bad[i], 1000, &out) == 0)
            fail_msg("'%s' was taken for a date", bad[i]);
    }
}

static void spans_have_a_unit_and_do_not_overflow(void **state)
{
    static const char *const bad[] = {"", "5", "0d", "-1d", "5x", "5dd", "99999999999999w", "1000000w1"};
    int64_t out;
    assert_int_equal(span_parse("90s", &out), 0);
    assert_int_equal(out, 90);
    assert_int_equal(span_parse("15m", &out), 0);
    assert_int_equal(out, 900);
    assert_int_equal(span_parse("2w", &out), 0);
    assert_int_equal(out, 1209600);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(span_parse(bad[i], &out));
}

static void a_date_is_shown_as_it_can_be_read_again(void **state)
{
    char text[DATE_TEXT];
    int64_t out;
    date_format(1796061909, text);
    assert_string_equal(text, "2026-11-30 18:05:09Z");
    assert_int_equal(date_parse(text, 0, &out), 0);
    assert_int_equal(out, 1796061909);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dates_are_utc_in_each_form),
        cmocka_unit_test(what_is_no_date_is_refused),
        cmocka_unit_test(spans_have_a_unit_and_do_not_overflow),
        cmocka_unit_test(a_date_is_shown_as_it_can_be_read_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
