#include "unit/nfs/fake.h"

enum { MNT = 1, DUMP, UMNT, UMNTALL, EXPORT };

static uint32_t mount_bytes(const char *path, uint32_t length)
{
    fake_begin();
    xdr_put_opaque(&args, path, length);
    assert_int_equal(fake_call(&mount_program, MNT), RPC_DONE);
    return xdr_get_u32(&reply);
}

static uint32_t mount(const char *path)
{
    return mount_bytes(path, (uint32_t)strlen(path));
}

static void assert_mounts(const char *path, const struct store_object *want)
{
    uint32_t length;
    struct store_object got;
    assert_int_equal(mount(path), 0);
    const uint8_t *handle = xdr_get_opaque(&reply, 64, &length);
    assert_int_equal(handle_decode(handle, length, &got), 0);
    assert_memory_equal(&got, want, sizeof got);
    assert_int_equal(xdr_get_u32(&reply), 1);
    assert_int_equal(xdr_get_u32(&reply), RPC_AUTH_SYS);
    reply_ends();
}

static void paths_of_every_spelling(void **state)
{
    assert_mounts("/vol", &fake_dir);
    assert_mounts("vol", &fake_dir);
    assert_mounts("//vol//", &fake_dir);
    assert_mounts("/vol/a", &fake_file);
    assert_mounts("vol///a//b/", &fake_file);
    assert_string_equal(fake.name, "b");
    assert_int_equal(fake.cred.uid, 0);
    assert_mounts("/two", &fake_other);
}

static void paths_that_lead_nowhere(void **state)
{
    static const char path[1100] = {[0 ... 1099] = 'p'};
    assert_int_equal(mount(""), 2);
    assert_int_equal(mount("///"), 2);
    assert_int_equal(mount("/none"), 2);
    assert_int_equal(mount("/vol/gone/x"), 2);
    assert_int_equal(mount_bytes(path, 1025), 63);
    fake.attr.type = STORE_REG;
    assert_int_equal(mount("/vol/file"), 20);
    assert_int_equal(mount("/vol"), 0);
    fake.error = -ESTALE;
    assert_int_equal(mount("/vol/x"), 2);
    fake.error = SL_EWAIT;
    fake_begin();
    put_name("/vol/x");
    assert_int_equal(fake_call(&mount_program, MNT), RPC_WAIT);
    fake_begin();
    xdr_put_u32(&args, 5);
    assert_int_equal(fake_call(&mount_program, MNT), RPC_GARBAGE_ARGS);
}

static void callers_that_no_rule_lets_in(void **state)
{
    fake_grants[0].allowed = false;
    assert_int_equal(mount("/vol"), 13);
    reply_ends();
    assert_int_equal(mount("/vol/gone"), 13);
    assert_int_equal(mount("/two"), 0);
}

static unsigned dump(char last[128])
{
    unsigned count = 0;
    uint32_t length;
    fake_begin();
    assert_int_equal(fake_call(&mount_program, DUMP), RPC_DONE);
    while (xdr_get_bool(&reply)) {
        const uint8_t *host = xdr_get_opaque(&reply, 255, &length);
        assert_int_equal(length, 9);
        assert_memory_equal(host, "192.0.2.7", 9);
        const uint8_t *path = xdr_get_opaque(&reply, 1024, &length);
        snprintf(last, 128, "%.*s", (int)length, (const char *)path);
        count++;
    }
    reply_ends();
    return count;
}

static void unmount(uint32_t procedure, const char *path)
{
    fake_begin();
    if (path)
        put_name(path);
    assert_int_equal(fake_call(&mount_program, procedure), RPC_DONE);
    reply_ends();
}

static void dump_shows_mounts(void **state)
{
    char last[128];
    assert_int_equal(dump(last), 0);
    mount("/vol");
    mount("vol/");
    mount("/vol//a");
    assert_int_equal(dump(last), 2);
    assert_string_equal(last, "/vol/a");
    unmount(UMNT, "vol/a/");
    assert_int_equal(dump(last), 1);
    mount("/two");
    unmount(UMNTALL, NULL);
    assert_int_equal(dump(last), 0);
}

static void dump_is_bounded(void **state)
{
    char path[1024], last[128];
    for (int i = 0; i < 1500; i++) {
        snprintf(path, sizeof path, "/vol/%d/%0*d", i, 900, 0);
        mount(path);
    }
    assert_int_equal(dump(last), 1024);
    snprintf(path, sizeof path, "/vol/%d/", 1499);
    assert_memory_equal(last, path, strlen(path));
}

static void exports_are_those_that_the_caller_may_mount(void **state)
{
    uint32_t length;
    fake_grants[1].allowed = false;
    fake_begin();
    assert_int_equal(fake_call(&mount_program, EXPORT), RPC_DONE);
    assert_true(xdr_get_bool(&reply));
    assert_memory_equal(xdr_get_opaque(&reply, 64, &length), "/vol", 4);
    for (int i = 0; i < 2; i++) {
        assert_true(xdr_get_bool(&reply));
        assert_memory_equal(xdr_get_opaque(&reply, 64, &length), "rule", 4);
    }
    assert_false(xdr_get_bool(&reply));
    assert_false(xdr_get_bool(&reply));
    reply_ends();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAKE_TEST(paths_of_every_spelling), FAKE_TEST(paths_that_lead_nowhere),
        FAKE_TEST(callers_that_no_rule_lets_in), FAKE_TEST(dump_shows_mounts), FAKE_TEST(dump_is_bounded),
        FAKE_TEST(exports_are_those_that_the_caller_may_mount),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
