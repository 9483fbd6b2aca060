#include "unit/nfs/fake.h"

static uint8_t handle[NFS_HANDLE_SIZE];
static struct store_object got;

static void a_handle_gives_back_its_object(void **state)
{
    static const struct store_object objects[] = {
        {1, 1, 1}, {UINT32_MAX, UINT32_MAX, UINT64_MAX >> 2}, {0, 0, 0}, {0x01020304, 0x05060708, 0x1112131415161718}};
    for (unsigned i = 0; i < 4; i++) {
        handle_encode(&objects[i], handle);
        assert_int_equal(handle_decode(handle, sizeof handle, &got), 0);
        assert_memory_equal(&got, &objects[i], sizeof got);
    }
}

static void its_bytes_are_the_documented_ones(void **state)
{
    handle_encode(&(struct store_object){0x01020304, 0x05060708, 0x1112131415161718}, handle);
    static const uint8_t want[24] = {1, 1, 0, 0, 0, 0, 0x12, 0x34, 1, 2, 3, 4, 5, 6, 7, 8,
                                     0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18};
    assert_memory_equal(handle, want, sizeof want);
}

static void every_changed_bit_is_found(void **state)
{
    handle_encode(&fake_file, handle);
    for (unsigned bit = 0; bit < 8 * sizeof handle; bit++) {
        handle[bit / 8] ^= 1 << bit % 8;
        assert_int_equal(handle_decode(handle, sizeof handle, &got), SL_EBADHANDLE);
        handle[bit / 8] ^= 1 << bit % 8;
    }
    assert_int_equal(handle_decode(handle, sizeof handle, &got), 0);
}

static void other_lengths_are_bad(void **state)
{
    uint8_t longer[64] = {0};
    handle_encode(&fake_file, longer);
    for (uint32_t length = 0; length <= sizeof longer; length++)
        if (length != NFS_HANDLE_SIZE)
            assert_int_equal(handle_decode(longer, length, &got), SL_EBADHANDLE);
    assert_int_equal(handle_decode(NULL, 0, &got), SL_EBADHANDLE);
}

static void another_pool_s_handles_are_bad(void **state)
{
    handle_encode(&fake_file, handle);
    nfs_server.pool++;
    assert_int_equal(handle_decode(handle, sizeof handle, &got), SL_EBADHANDLE);
    nfs_server.pool--;
    nfs_server.handle_key[0] ^= 1;
    assert_int_equal(handle_decode(handle, sizeof handle, &got), SL_EBADHANDLE);
}

static void without_the_secret_nothing_can_be_forged(void **state)
{
    memset(nfs_server.handle_key, 0, sizeof nfs_server.handle_key);
    handle_encode(&fake_file, handle);
    nfs_stop();
    assert_int_equal(nfs_start(&fake_store), 0);
    assert_int_equal(handle_decode(handle, sizeof handle, &got), SL_EBADHANDLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAKE_TEST(a_handle_gives_back_its_object),
        FAKE_TEST(its_bytes_are_the_documented_ones),
        FAKE_TEST(every_changed_bit_is_found),
        FAKE_TEST(other_lengths_are_bad),
        FAKE_TEST(another_pool_s_handles_are_bad),
        FAKE_TEST(without_the_secret_nothing_can_be_forged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
