#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sluice/base_xdr.h"

static void what_is_written_reads_back(void **state)
{
    uint8_t buffer[64];
    struct xdr_out out = xdr_out(buffer, sizeof(buffer));
    xdr_put_u32(&out, 0x01020304);
    xdr_put_u64(&out, 0x1122334455667788);
    xdr_put_bool(&out, true);
    xdr_put_opaque(&out, "hello", 5);
    xdr_put_opaque(&out, "", 0);
    assert_false(out.full);
    assert_int_equal(xdr_used(&out), 4 + 8 + 4 + 4 + 8 + 4);
    assert_int_equal(buffer[0], 1);
    assert_memory_equal(buffer + 20, "hello\0\0\0", 8);

    struct xdr_in in = xdr_in(buffer, xdr_used(&out));
    uint32_t length;
    assert_int_equal(xdr_get_u32(&in), 0x01020304);
    assert_int_equal(xdr_get_u64(&in), 0x1122334455667788);
    assert_true(xdr_get_bool(&in));
    const uint8_t *text = xdr_get_opaque(&in, 5, &length);
    assert_int_equal(length, 5);
    assert_memory_equal(text, "hello", 5);
    assert_non_null(xdr_get_opaque(&in, 0, &length));
    assert_false(in.bad);
    assert_int_equal(xdr_left(&in), 0);
}

static void short_input_is_bad_and_stays_bad(void **state)
{
    uint8_t data[8] = {0, 0, 0, 7, 1, 2, 3, 4};
    uint32_t length;
    struct xdr_in in = xdr_in(data, sizeof(data));
    assert_null(xdr_get_opaque(&in, 100, &length));
    assert_int_equal(length, 0);
    assert_true(in.bad);
    assert_int_equal(xdr_get_u32(&in), 0);
    assert_null(xdr_take(&in, 0));
}

static void padding_must_be_there(void **state)
{
    uint8_t data[7] = {0, 0, 0, 3, 1, 2, 3};
    uint32_t length;
    struct xdr_in in = xdr_in(data, sizeof(data));
    assert_null(xdr_get_opaque(&in, 3, &length));
    assert_true(in.bad);
}

static void limits_and_booleans_are_checked(void **state)
{
    uint8_t data[8] = {0, 0, 0, 4, 1, 2, 3, 4}, two[4] = {0, 0, 0, 2};
    uint8_t huge[8] = {0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4};
    uint32_t length;
    struct xdr_in in = xdr_in(data, sizeof(data));
    assert_null(xdr_get_opaque(&in, 3, &length));
    in = xdr_in(huge, sizeof(huge));
    assert_null(xdr_get_opaque(&in, UINT32_MAX, &length));
    in = xdr_in(two, sizeof(two));
    assert_false(xdr_get_bool(&in));
    assert_true(in.bad);
}

static void a_full_encoder_writes_nothing_more(void **state)
{
    uint8_t buffer[12] = {0};
    struct xdr_out out = xdr_out(buffer, 6);
    xdr_put_u32(&out, 1);
    xdr_put_u32(&out, 0xffffffff);
    assert_true(out.full);
    xdr_put_fixed(&out, "x", 1);
    assert_int_equal(xdr_used(&out), 4);
    for (int i = 4; i < 12; i++)
        assert_int_equal(buffer[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(short_input_is_bad_and_stays_bad),
        cmocka_unit_test(padding_must_be_there),
        cmocka_unit_test(limits_and_booleans_are_checked),
        cmocka_unit_test(a_full_encoder_writes_nothing_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
