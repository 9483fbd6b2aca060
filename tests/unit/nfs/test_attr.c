#include "unit/nfs/fake.h"

static uint8_t buffer[256];

static void fattr_is_in_the_order_of_the_rfc(void **state)
{
    struct xdr_out out = xdr_out(buffer, sizeof buffer);
    nfs3_put_fattr(&out, &fake.attr);
    assert_int_equal(xdr_used(&out), NFS3_FATTR_SIZE);
    struct xdr_in in = xdr_in(buffer, xdr_used(&out));
    static const uint32_t first[] = {STORE_DIR, 0755, 2, 3, 4};
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(xdr_get_u32(&in), first[i]);
    assert_int_equal(xdr_get_u64(&in), 0x100000005);
    assert_int_equal(xdr_get_u64(&in), 4096);
    assert_int_equal(xdr_get_u32(&in), 6);
    assert_int_equal(xdr_get_u32(&in), 7);
    assert_int_equal(xdr_get_u64(&in), 0x800000008);
    assert_int_equal(xdr_get_u64(&in), 0x900000009);
    for (uint32_t i = 10; i < 16; i++)
        assert_int_equal(xdr_get_u32(&in), i);
    assert_int_equal(xdr_left(&in), 0);
}

static void times_outside_are_the_nearest_inside(void **state)
{
    static const struct {
        struct store_time time;
        uint32_t seconds, nanoseconds;
    } cases[] = {{{-1, 5}, 0, 0}, {{0, 0}, 0, 0}, {{UINT32_MAX, 7}, UINT32_MAX, 7},
                 {{(int64_t)UINT32_MAX + 1, 7}, UINT32_MAX, 999999999}, {{INT64_MIN, 1}, 0, 0},
                 {{INT64_MAX, 1}, UINT32_MAX, 999999999}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct xdr_out out = xdr_out(buffer, sizeof buffer);
        fake.attr.ctime = cases[i].time;
        nfs3_put_fattr(&out, &fake.attr);
        struct xdr_in in = xdr_in(buffer + NFS3_FATTR_SIZE - 8, 8);
        assert_int_equal(xdr_get_u32(&in), cases[i].seconds);
        assert_int_equal(xdr_get_u32(&in), cases[i].nanoseconds);
    }
}

static void wcc_says_only_what_is_known(void **state)
{
    for (int which = 0; which < 4; which++) {
        struct xdr_out out = xdr_out(buffer, sizeof buffer);
        fake.wcc.has_before = which & 1;
        fake.wcc.has_after = which & 2;
        nfs3_put_wcc(&out, &fake.wcc);
        struct xdr_in in = xdr_in(buffer, xdr_used(&out));
        assert_int_equal(xdr_get_bool(&in), which & 1);
        if (which & 1) {
            assert_int_equal(xdr_get_u64(&in), 20);
            for (uint32_t i = 21; i < 25; i++)
                assert_int_equal(xdr_get_u32(&in), i);
        }
        assert_int_equal(xdr_get_bool(&in), (which & 2) / 2);
        if (which & 2)
            xdr_take(&in, NFS3_FATTR_SIZE);
        assert_false(in.bad);
        assert_int_equal(xdr_left(&in), 0);
    }
}

static void attributes_without_a_type_do_not_follow(void **state)
{
    struct xdr_out out = xdr_out(buffer, sizeof buffer);
    struct store_attr none = {0};
    nfs3_put_post_op_attr(&out, &none);
    nfs3_put_post_op_attr(&out, NULL);
    assert_int_equal(xdr_used(&out), 8);
    assert_memory_equal(buffer, "\0\0\0\0\0\0\0\0", 8);
}

static struct store_setattr sattr(int *error, bool *bad)
{
    struct xdr_in in = xdr_in(fake_args, xdr_used(&args));
    *error = 0;
    struct store_setattr set = nfs3_get_sattr(&in, error);
    *bad = in.bad;
    if (!in.bad)
        assert_int_equal(xdr_left(&in), 0);
    return set;
}

static void sattr_sets_what_it_says(void **state)
{
    int error;
    bool bad;
    for (int i = 0; i < 6; i++)
        xdr_put_u32(&args, 0);
    assert_int_equal(sattr(&error, &bad).set, 0);
    fake_begin();
    static const uint32_t words[] = {1, 0107777, 1, 5, 1, 6, 1, 1, 2, 2, 100, 999999999, 1};
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        xdr_put_u32(&args, words[i]);
    struct store_setattr set = sattr(&error, &bad);
    assert_false(bad);
    assert_int_equal(error, 0);
    assert_int_equal(set.set, STORE_SET_MODE | STORE_SET_UID | STORE_SET_GID | STORE_SET_SIZE | STORE_SET_ATIME |
                                  STORE_SET_MTIME_NOW);
    assert_int_equal(set.mode, 07777);
    assert_int_equal(set.uid, 5);
    assert_int_equal(set.gid, 6);
    assert_int_equal(set.size, 0x100000002);
    assert_int_equal(set.atime.seconds, 100);
    assert_int_equal(set.atime.nanoseconds, 999999999);
}

static void sattr_refuses_what_cannot_be(void **state)
{
    int error;
    bool bad;
    static const uint32_t nanoseconds[] = {0, 0, 0, 0, 0, 2, 1, 1000000000};
    for (unsigned i = 0; i < 8; i++)
        xdr_put_u32(&args, nanoseconds[i]);
    sattr(&error, &bad);
    assert_false(bad);
    assert_int_equal(error, -EINVAL);
    for (unsigned at = 0; at < 6; at++) { /* each discriminant in turn is 3 */
        fake_begin();
        for (unsigned i = 0; i < 8; i++)
            xdr_put_u32(&args, i == at ? 3 : 0);
        sattr(&error, &bad);
        assert_true(bad);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAKE_TEST(fattr_is_in_the_order_of_the_rfc),
        FAKE_TEST(times_outside_are_the_nearest_inside),
        FAKE_TEST(wcc_says_only_what_is_known),
        FAKE_TEST(attributes_without_a_type_do_not_follow),
        FAKE_TEST(sattr_sets_what_it_says),
        FAKE_TEST(sattr_refuses_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
