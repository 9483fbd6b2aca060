#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "sluice/base_slice.h"

static uint32_t released;

static void count_release(void *owner, const uint8_t *data, uint32_t length)
{
    released++;
}

static struct slice piece(uint32_t length)
{
    static const uint8_t bytes[100];
    return (struct slice){.data = bytes, .length = length, .release = count_release};
}

static void each_slice_is_released_once(void **state)
{
    struct slice_list list;
    released = 0;
    slices_init(&list);
    for (int i = 0; i < 100; i++)
        assert_int_equal(slices_add(&list, piece(10)), 0);
    assert_int_equal(list.count, 100);
    assert_int_equal(list.bytes, 1000);
    slices_clear(&list);
    assert_int_equal(released, 100);
    assert_int_equal(list.bytes, 0);
    assert_int_equal(slices_add(&list, piece(1)), 0);
    slices_clear(&list);
    assert_int_equal(released, 101);
}

static void a_cut_releases_what_falls_away(void **state)
{
    struct slice_list list;
    released = 0;
    slices_init(&list);
    for (int i = 0; i < 5; i++)
        slices_add(&list, piece(10));
    slices_cut(&list, 60);
    assert_int_equal(list.bytes, 50);
    slices_cut(&list, 25);
    assert_int_equal(released, 2);
    assert_int_equal(list.count, 3);
    assert_int_equal(list.at[2].length, 5);
    slices_cut(&list, 20);
    assert_int_equal(released, 3);
    slices_cut(&list, 0);
    assert_int_equal(released, 5);
    assert_int_equal(list.count, 0);
    slices_clear(&list);
}

static void a_move_keeps_the_order(void **state)
{
    struct slice_list a, b;
    released = 0;
    slices_init(&a);
    slices_init(&b);
    for (uint32_t i = 1; i <= 15; i++) {
        slices_add(&a, piece(i));
        slices_add(&b, piece(i + 15));
    }
    assert_int_equal(slices_move(&a, &b), 0);
    assert_int_equal(b.count, 0);
    assert_int_equal(b.bytes, 0);
    for (uint32_t i = 0; i < 30; i++)
        assert_int_equal(a.at[i].length, i + 1);
    slices_clear(&b);
    assert_int_equal(released, 0);
    slices_clear(&a);
    assert_int_equal(released, 30);
}

static void zeroes_are_zero(void **state)
{
    struct slice_list list;
    slices_init(&list);
    assert_int_equal(slices_add_zero(&list, 200001), 0);
    assert_int_equal(list.bytes, 200001);
    for (uint32_t i = 0; i < list.count; i++)
        for (uint32_t j = 0; j < list.at[i].length; j++)
            assert_int_equal(list.at[i].data[j], 0);
    slices_clear(&list);
}

static void a_list_that_is_too_long_releases_what_it_was_given(void **state)
{
    struct slice_list list;
    released = 0;
    slices_init(&list);
    slices_add(&list, piece(10));
    assert_true(slices_add(&list, piece(UINT32_MAX)) < 0);
    assert_int_equal(released, 1);
    slices_clear(&list);
    assert_int_equal(released, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_slice_is_released_once),
        cmocka_unit_test(a_cut_releases_what_falls_away),
        cmocka_unit_test(a_move_keeps_the_order),
        cmocka_unit_test(zeroes_are_zero),
        cmocka_unit_test(a_list_that_is_too_long_releases_what_it_was_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
