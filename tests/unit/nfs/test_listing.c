#include "unit/nfs/fake.h"

struct listing {
    unsigned entries;
    bool eof;
    size_t size; /* of READDIR3resok */
    uint64_t last;
};

static uint32_t list(bool plus, uint64_t cookie, uint64_t verifier, uint32_t dircount, uint32_t maxcount,
                     struct listing *out)
{
    fake_begin();
    put_fh(&fake_dir);
    xdr_put_u64(&args, cookie);
    xdr_put_u64(&args, verifier);
    if (plus)
        xdr_put_u32(&args, dircount);
    xdr_put_u32(&args, maxcount);
    *out = (struct listing){.last = cookie};
    uint32_t status = fake_nfs(plus ? NFS3_READDIRPLUS : NFS3_READDIR);
    out->size = xdr_left(&reply);
    if (status)
        return status;
    skip_attr();
    assert_int_equal(xdr_get_u64(&reply), 0);
    while (xdr_get_bool(&reply)) {
        uint32_t length;
        assert_int_equal(xdr_get_u64(&reply), 100 + out->last);
        xdr_get_opaque(&reply, 255, &length);
        assert_int_equal(length, 1 + out->last % 40);
        out->last = xdr_get_u64(&reply);
        if (plus) {
            skip_attr();
            assert_true(xdr_get_bool(&reply));
            assert_non_null(xdr_get_opaque(&reply, 64, &length));
        }
        out->entries++;
    }
    out->eof = xdr_get_bool(&reply);
    reply_ends();
    return 0;
}

static void every_entry_comes_once_whatever_the_count(void **state)
{
    fake.entries = 300;
    for (int plus = 0; plus < 2; plus++) {
        for (uint32_t maxcount = plus ? 300 : 170; maxcount < 100000; maxcount = maxcount * 5 / 4) {
            struct listing part = {0};
            unsigned sum = 0;
            do {
                assert_int_equal(list(plus, part.last, 0, 1 << 20, maxcount, &part), 0);
                assert_true(part.size <= maxcount);
                assert_true(part.eof || part.size + (plus ? 196 : 68) > maxcount);
                sum += part.entries;
            } while (!part.eof);
            assert_int_equal(sum, 300);
        }
    }
}

static void a_count_is_used_to_its_last_byte(void **state)
{
    struct listing part;
    fake.entries = 1; /* one entry with a name of one byte: 4 + 8 + 4 + 4 + 8 */
    assert_int_equal(list(false, 0, 0, 0, 104 + 28, &part), 0);
    assert_int_equal(part.size, 132);
    assert_true(part.eof);
    assert_int_equal(list(false, 0, 0, 0, 131, &part), NFS3ERR_TOOSMALL);
    assert_int_equal(list(true, 0, 0, 28, 104 + 28 + 88 + 40, &part), 0);
    assert_int_equal(part.entries, 1);
    assert_int_equal(list(true, 0, 0, 28, 104 + 28 + 88 + 39, &part), NFS3ERR_TOOSMALL);
    assert_int_equal(list(true, 0, 0, 27, 4096, &part), NFS3ERR_TOOSMALL);
    fake.entries = 0;
    assert_int_equal(list(false, 0, 0, 0, 104, &part), 0);
    assert_true(part.eof);
    assert_int_equal(list(false, 0, 0, 0, 103, &part), NFS3ERR_TOOSMALL);
}

static void dircount_limits_names(void **state)
{
    struct listing part;
    fake.entries = 300;
    assert_int_equal(list(true, 0, 0, 28 * 4 + 31, 1 << 20, &part), 0);
    assert_int_equal(part.entries, 4); /* names of one to four bytes are padded to four */
    assert_false(part.eof);
    assert_int_equal(list(true, 0, 0, 0, 1 << 20, &part), 0);
    assert_int_equal(part.entries, 300);
}

static void huge_counts_stay_below_a_mib(void **state)
{
    struct listing part;
    fake.entries = 100000;
    assert_int_equal(list(true, 0, 0, UINT32_MAX, UINT32_MAX, &part), 0);
    assert_false(part.eof);
    assert_in_range(part.size, (1 << 20) - 4096 - 300, (1 << 20) - 4096);
    assert_int_equal(list(false, 0, 0, 0, UINT32_MAX, &part), 0);
    assert_in_range(part.size, (1 << 20) - 4096 - 300, (1 << 20) - 4096);
}

static void the_verifier_belongs_to_the_cookie(void **state)
{
    struct listing part;
    fake.entries = 10;
    assert_int_equal(list(false, 0, 77, 0, 4096, &part), 0);
    assert_int_equal(list(false, 5, 77, 0, 4096, &part), NFS3ERR_BAD_COOKIE);
    assert_int_equal(list(false, 5, 0, 0, 4096, &part), 0);
    assert_int_equal(part.entries, 5);
    assert_int_equal(list(false, 10, 0, 0, 4096, &part), 0);
    assert_int_equal(part.entries, 0);
    assert_true(part.eof);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAKE_TEST(every_entry_comes_once_whatever_the_count), FAKE_TEST(a_count_is_used_to_its_last_byte),
        FAKE_TEST(dircount_limits_names), FAKE_TEST(huge_counts_stay_below_a_mib),
        FAKE_TEST(the_verifier_belongs_to_the_cookie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
