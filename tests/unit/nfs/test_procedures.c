#include "unit/nfs/fake.h"

static void put_no_sattr(void)
{
    for (int i = 0; i < 6; i++)
        xdr_put_u32(&args, 0);
}

/* Good arguments of each procedure. */
static void put_good(enum nfs3_procedure procedure, const struct store_object *object)
{
    fake_begin();
    put_fh(object);
    switch (procedure) {
    case NFS3_SETATTR:
        put_no_sattr();
        xdr_put_bool(&args, false);
        break;
    case NFS3_LOOKUP:
    case NFS3_REMOVE:
    case NFS3_RMDIR:
        put_name("name");
        break;
    case NFS3_ACCESS:
        xdr_put_u32(&args, 0x3f);
        break;
    case NFS3_READ:
        xdr_put_u64(&args, 1);
        xdr_put_u32(&args, 7);
        break;
    case NFS3_WRITE:
        xdr_put_u64(&args, 2);
        xdr_put_u32(&args, 4);
        xdr_put_u32(&args, 0);
        xdr_put_opaque(&args, "data", 4);
        break;
    case NFS3_CREATE:
        put_name("name");
        xdr_put_u32(&args, STORE_MAKE_GUARDED);
        put_no_sattr();
        break;
    case NFS3_MKDIR:
        put_name("name");
        put_no_sattr();
        break;
    case NFS3_SYMLINK:
        put_name("name");
        put_no_sattr();
        put_name("target");
        break;
    case NFS3_MKNOD:
        put_name("name");
        xdr_put_u32(&args, STORE_FIFO);
        put_no_sattr();
        break;
    case NFS3_RENAME:
        put_name("name");
        put_fh(object);
        put_name("second");
        break;
    case NFS3_LINK:
        put_fh(object);
        put_name("name");
        break;
    case NFS3_READDIR:
        xdr_put_u64(&args, 0);
        xdr_put_u64(&args, 0);
        xdr_put_u32(&args, 4096);
        break;
    case NFS3_READDIRPLUS:
        xdr_put_u64(&args, 0);
        xdr_put_u64(&args, 0);
        xdr_put_u32(&args, 4096);
        xdr_put_u32(&args, 4096);
        break;
    case NFS3_COMMIT:
        xdr_put_u64(&args, 0);
        xdr_put_u32(&args, 0);
        break;
    default:
        break;
    }
}

/* What follows the status on an error. */
static void skip_failure(enum nfs3_procedure procedure, bool known)
{
    static const char shapes[NFS3_PROCEDURES][3] = {
        [NFS3_SETATTR] = "w", [NFS3_LOOKUP] = "a", [NFS3_ACCESS] = "a",   [NFS3_READLINK] = "a",
        [NFS3_READ] = "a",    [NFS3_WRITE] = "w",  [NFS3_CREATE] = "w",   [NFS3_MKDIR] = "w",
        [NFS3_SYMLINK] = "w", [NFS3_MKNOD] = "w",  [NFS3_REMOVE] = "w",   [NFS3_RMDIR] = "w",
        [NFS3_RENAME] = "ww", [NFS3_LINK] = "aw",  [NFS3_READDIR] = "a",  [NFS3_READDIRPLUS] = "a",
        [NFS3_FSSTAT] = "a",  [NFS3_FSINFO] = "a", [NFS3_PATHCONF] = "a", [NFS3_COMMIT] = "w"};
    for (const char *shape = shapes[procedure]; *shape; shape++) {
        if (*shape == 'w')
            assert_int_equal(xdr_get_bool(&reply) ? xdr_take(&reply, 24) != NULL : 0,
                             known && procedure != NFS3_COMMIT);
        assert_int_equal(xdr_get_bool(&reply) ? xdr_take(&reply, NFS3_FATTR_SIZE) != NULL : 0,
                         known);
    }
    reply_ends();
}

static void errors_are_answered_with_attributes(void **state)
{
    for (enum nfs3_procedure procedure = 1; procedure < NFS3_PROCEDURES; procedure++) {
        put_good(procedure, &fake_file);
        fake.error = -EIO;
        assert_int_equal(fake_nfs(procedure), NFS3ERR_IO);
        skip_failure(procedure, true);
    }
}

static void bad_handles_never_reach_the_store(void **state)
{
    for (enum nfs3_procedure procedure = 1; procedure < NFS3_PROCEDURES; procedure++) {
        put_good(procedure, &fake_file);
        fake_args[4 + 20] ^= 1;
        assert_int_equal(fake_nfs(procedure), NFS3ERR_BADHANDLE);
        skip_failure(procedure, false);
        put_good(procedure, &(struct store_object){99, 1, 1});
        assert_int_equal(fake_nfs(procedure), NFS3ERR_STALE);
        skip_failure(procedure, false);
        fake_grants[0].allowed = false;
        put_good(procedure, &fake_file);
        assert_int_equal(fake_nfs(procedure), NFS3ERR_ACCES);
        skip_failure(procedure, false);
        fake_grants[0].allowed = true;
    }
    assert_int_equal(fake.calls, 0);
}

static void waiting_is_passed_on(void **state)
{
    fake.error = SL_EWAIT;
    for (enum nfs3_procedure procedure = 1; procedure < NFS3_PROCEDURES; procedure++) {
        put_good(procedure, &fake_file);
        assert_int_equal(fake_call(&nfs_program, procedure), RPC_WAIT);
    }
}

static void truncated_arguments_are_garbage(void **state)
{
    for (enum nfs3_procedure procedure = 1; procedure < NFS3_PROCEDURES; procedure++) {
        put_good(procedure, &fake_file);
        size_t length = xdr_used(&args);
        for (size_t cut = 0; cut < length; cut += 4) {
            args.at = args.start + cut;
            assert_int_equal(fake_call(&nfs_program, procedure), RPC_GARBAGE_ARGS);
        }
    }
    assert_int_equal(fake.calls, 0);
}

static void what_changes_something_is_marked(void **state)
{
    static const char changes[NFS3_PROCEDURES + 1] = "0010000111111111000000";
    for (int i = 0; i < NFS3_PROCEDURES; i++)
        assert_int_equal(nfs_program.versions->procedures[i].changes, changes[i] == '1');
}

static void the_caller_and_its_rule_reach_the_store(void **state)
{
    fake_grants[0].write = false;
    put_good(NFS3_MKDIR, &fake_dir);
    fake_nfs(NFS3_MKDIR);
    assert_int_equal(fake.cred.uid, 7);
    assert_int_equal(fake.cred.gid, 8);
    assert_true(fake.cred.read_only);
}

static void read_gives_attributes_data_and_eof(void **state)
{
    fake.eof = true;
    put_good(NFS3_READ, &fake_file);
    assert_int_equal(fake_nfs(NFS3_READ), 0);
    skip_attr();
    assert_int_equal(xdr_get_u32(&reply), 7);
    assert_true(xdr_get_bool(&reply));
    uint32_t length;
    const uint8_t *data = xdr_get_opaque(&reply, 100, &length);
    assert_int_equal(length, 7);
    assert_memory_equal(data, "0123456", 7);
    reply_ends();
    assert_int_equal(fake.released, 1);
}

static void read_ranges_are_clamped(void **state)
{
    static const struct {
        uint64_t offset;
        uint32_t count;
        uint64_t want_offset;
        uint32_t want_count;
    } cases[] = {{0, 4 << 20, 0, 1 << 20},
                 {UINT64_MAX, 100, INT64_MAX, 0},
                 {INT64_MAX, 100, INT64_MAX, 0},
                 {INT64_MAX - 1, 100, INT64_MAX - 1, 1},
                 {5, 0, 5, 0}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake_begin();
        put_fh(&fake_file);
        xdr_put_u64(&args, cases[i].offset);
        xdr_put_u32(&args, cases[i].count);
        assert_int_equal(fake_nfs(NFS3_READ), 0);
        assert_int_equal(fake.offset, cases[i].want_offset);
        assert_int_equal(fake.length, cases[i].want_count);
    }
}

static uint32_t write_of(uint64_t offset, uint32_t count, uint32_t length)
{
    static const uint8_t data[(1 << 20) + 16];
    fake_begin();
    put_fh(&fake_file);
    xdr_put_u64(&args, offset);
    xdr_put_u32(&args, count);
    xdr_put_u32(&args, 0);
    xdr_put_opaque(&args, data, length);
    return fake_nfs(NFS3_WRITE);
}

static void write_is_file_sync_always(void **state)
{
    assert_int_equal(write_of(2, 4, 4), 0);
    skip_wcc();
    assert_int_equal(xdr_get_u32(&reply), 4);
    assert_int_equal(xdr_get_u32(&reply), 2);
    assert_memory_equal(xdr_take(&reply, 8), "verifier", 8);
    reply_ends();
}

static void write_counts_and_offsets_are_checked(void **state)
{
    assert_int_equal(write_of(0, 3, 4), NFS3ERR_INVAL);
    assert_int_equal(write_of(0, 5, 4), NFS3ERR_INVAL);
    assert_int_equal(fake.calls, 0);
    assert_int_equal(write_of(0, (1 << 20) + 8, (1 << 20) + 8), 0);
    assert_int_equal(fake.length, 1 << 20);
    skip_wcc();
    assert_int_equal(xdr_get_u32(&reply), 1 << 20);
    write_of(UINT64_MAX, 4, 4);
    assert_int_equal(fake.offset, INT64_MAX);
}

static void create_modes(void **state)
{
    put_good(NFS3_CREATE, &fake_dir);
    assert_int_equal(fake_nfs(NFS3_CREATE), 0);
    assert_int_equal(fake.made.how, STORE_MAKE_GUARDED);
    assert_int_equal(fake.made.attr.mode, 0644);
    assert_true(xdr_get_bool(&reply));
    uint32_t length;
    struct store_object got;
    const uint8_t *handle = xdr_get_opaque(&reply, 64, &length);
    assert_int_equal(handle_decode(handle, length, &got), 0);
    assert_memory_equal(&got, &fake.object, sizeof got);
    skip_attr();
    skip_wcc();
    reply_ends();

    fake_begin();
    put_fh(&fake_dir);
    put_name("name");
    xdr_put_u32(&args, STORE_MAKE_EXCLUSIVE);
    xdr_put_fixed(&args, "8 bytes!", 8);
    assert_int_equal(fake_nfs(NFS3_CREATE), 0);
    assert_int_equal(fake.made.how, STORE_MAKE_EXCLUSIVE);
    assert_memory_equal(fake.made.verifier, "8 bytes!", 8);
}

static void mknod_types(void **state)
{
    for (uint32_t type = 0; type < 10; type++) {
        bool device = type == STORE_CHR || type == STORE_BLK,
             good = device || type == STORE_SOCK || type == STORE_FIFO;
        fake_begin();
        put_fh(&fake_dir);
        put_name("name");
        xdr_put_u32(&args, type);
        if (good)
            put_no_sattr();
        if (device) {
            xdr_put_u32(&args, 8);
            xdr_put_u32(&args, 1);
        }
        assert_int_equal(fake_nfs(NFS3_MKNOD), good ? 0 : NFS3ERR_BADTYPE);
        if (device)
            assert_int_equal(fake.made.rdev_major * 10 + fake.made.rdev_minor, 81);
    }
}

static uint32_t symlink_to(const void *target, uint32_t length)
{
    fake_begin();
    put_fh(&fake_dir);
    put_name("name");
    put_no_sattr();
    xdr_put_opaque(&args, target, length);
    return fake_nfs(NFS3_SYMLINK);
}

static void symlink_targets(void **state)
{
    static const char target[2000] = {[0 ... 1999] = 't'};
    assert_int_equal(symlink_to("", 0), NFS3ERR_INVAL);
    assert_int_equal(symlink_to("a\0b", 3), NFS3ERR_INVAL);
    assert_int_equal(symlink_to(target, 1025), NFS3ERR_NAMETOOLONG);
    assert_int_equal(fake.calls, 0);
    assert_int_equal(symlink_to(target, 1024), 0);
    fake_begin();
    put_fh(&fake_file);
    assert_int_equal(fake_nfs(NFS3_READLINK), 0);
    skip_attr();
    uint32_t length;
    xdr_get_opaque(&reply, 1024, &length);
    assert_int_equal(length, 1024);
    reply_ends();
}

static void two_volumes_are_two_devices(void **state)
{
    fake_begin();
    put_fh(&fake_dir);
    put_name("a");
    put_fh(&fake_other);
    put_name("b");
    assert_int_equal(fake_nfs(NFS3_RENAME), NFS3ERR_XDEV);
    fake_grants[1].allowed = false;
    assert_int_equal(fake_nfs(NFS3_RENAME), NFS3ERR_ACCES);
    assert_int_equal(fake.calls, 0);
}

static void setattr_guard_and_times(void **state)
{
    fake_begin();
    put_fh(&fake_file);
    put_no_sattr();
    xdr_put_bool(&args, true);
    xdr_put_u32(&args, 40);
    xdr_put_u32(&args, 41);
    assert_int_equal(fake_nfs(NFS3_SETATTR), 0);
    assert_true(fake.guarded);
    assert_int_equal(fake.guard.seconds, 40);
    assert_int_equal(fake.guard.nanoseconds, 41);
    put_good(NFS3_SETATTR, &fake_file);
    assert_int_equal(fake_nfs(NFS3_SETATTR), 0);
    assert_false(fake.guarded);
}

static uint64_t seen_calls, seen_errors;
static void see(void *arg, const char *program, const char *procedure, uint64_t calls,
                uint64_t errors)
{
    if (strcmp(procedure, "GETATTR") == 0) {
        seen_calls = calls;
        seen_errors = errors;
    }
}

static void calls_and_errors_are_counted(void **state)
{
    put_good(NFS3_GETATTR, &fake_file);
    for (int i = 0; i < 5; i++) {
        fake.error = i < 2 ? -EIO : 0;
        fake_nfs(NFS3_GETATTR);
    }
    fake.error = SL_EWAIT;
    fake_call(&nfs_program, NFS3_GETATTR);
    nfs_each_procedure(see, NULL);
    assert_int_equal(seen_calls, 5);
    assert_int_equal(seen_errors, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAKE_TEST(errors_are_answered_with_attributes),
        FAKE_TEST(bad_handles_never_reach_the_store),
        FAKE_TEST(waiting_is_passed_on),
        FAKE_TEST(truncated_arguments_are_garbage),
        FAKE_TEST(what_changes_something_is_marked),
        FAKE_TEST(the_caller_and_its_rule_reach_the_store),
        FAKE_TEST(read_gives_attributes_data_and_eof),
        FAKE_TEST(read_ranges_are_clamped),
        FAKE_TEST(write_is_file_sync_always),
        FAKE_TEST(write_counts_and_offsets_are_checked),
        FAKE_TEST(create_modes),
        FAKE_TEST(mknod_types),
        FAKE_TEST(symlink_targets),
        FAKE_TEST(two_volumes_are_two_devices),
        FAKE_TEST(setattr_guard_and_times),
        FAKE_TEST(calls_and_errors_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
