#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sluice/base_text.h"

static void distances_count_slips_of_the_hand(void **state)
{
    assert_int_equal(text_distance("gold", "gold"), 0);
    assert_int_equal(text_distance("gold", "GOLD"), 0);
    assert_int_equal(text_distance("glod", "gold"), 1);
    assert_int_equal(text_distance("god", "gold"), 1);
    assert_int_equal(text_distance("goold", "gold"), 1);
    assert_int_equal(text_distance("gald", "gold"), 1);
    assert_int_equal(text_distance("", "gold"), 4);
    assert_int_equal(text_distance("gold", ""), 4);
    assert_int_equal(text_distance("premium", "extreme"), 6);
    char a[200], b[200];
    memset(a, 'a', sizeof a);
    memset(b, 'b', sizeof b);
    a[199] = b[199] = 0;
    assert_int_equal(text_distance(a, b), TEXT_WORD_MAX);
}

static const char *meant(const char *word)
{
    static const char *const names[] = {"train", "trail", "checkpoints", "x"};
    static struct text_nearest n;
    n = (struct text_nearest){.word = word};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        text_nearest_look(&n, names[i]);
    return text_nearest(&n);
}

static void only_what_is_near_is_offered(void **state)
{
    assert_string_equal(meant("trian"), "train");
    assert_string_equal(meant("Train"), "train");
    assert_string_equal(meant("checkpoint"), "checkpoints");
    assert_string_equal(meant("chekpoitns"), "checkpoints");
    assert_string_equal(meant("validation"), "");
    assert_string_equal(meant("y"), "");
    assert_string_equal(meant(""), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distances_count_slips_of_the_hand),
        cmocka_unit_test(only_what_is_near_is_offered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
