#include "fake.h"

#include "nfs/snapview.h"

enum { ATTR_FILEID = 4 * 5 + 8 * 4 }; /* in fattr3: after type, mode, links, ids, sizes, rdev, fsid */

static struct store_object in_tree(uint32_t tree, uint64_t ino)
{
    return (struct store_object){.tree = tree, .generation = 1, .ino = ino};
}

/* The next thing in the reply: a handle. */
static struct store_object get_fh(void)
{
    struct store_object object = {0};
    uint32_t length;
    const uint8_t *bytes = xdr_get_opaque(&reply, 64, &length);
    assert_non_null(bytes);
    assert_int_equal(handle_decode(bytes, length, &object), 0);
    return object;
}

static uint64_t get_fileid(void) /* of post_op_attr */
{
    assert_true(xdr_get_bool(&reply));
    xdr_take(&reply, ATTR_FILEID);
    uint64_t fileid = xdr_get_u64(&reply);
    xdr_take(&reply, 24);
    return fileid;
}

static uint32_t look_up(struct store_object dir, const char *name)
{
    fake_begin();
    put_fh(&dir);
    put_name(name);
    return fake_nfs(NFS3_LOOKUP);
}

static struct store_object found(struct store_object dir, const char *name)
{
    assert_int_equal(look_up(dir, name), NFS3_OK);
    return get_fh();
}

static void kinds_survive_their_handles(void **state)
{
    static const uint64_t inos[] = {77, VIEW_LIST | 77, VIEW_PAST | 77};
    for (int i = 0; i < 3; i++) {
        struct store_object in = in_tree(FAKE_TREE, inos[i]), out;
        uint8_t handle[NFS_HANDLE_SIZE];
        handle_encode(&in, handle);
        assert_int_equal(handle[1], HANDLE_OBJECT + i);
        assert_int_equal(handle_decode(handle, sizeof handle, &out), 0);
        assert_int_equal(out.ino, inos[i]);
        handle[1] ^= 3; /* another kind: not what was handed out */
        assert_int_equal(handle_decode(handle, sizeof handle, &out), SL_EBADHANDLE);
    }
}

static void the_way_into_the_past_and_back(void **state)
{
    fake.snapshots = 3;
    struct store_object list = found(in_tree(FAKE_TREE, 77), ".snapshot");
    assert_int_equal(list.ino, VIEW_LIST | 77);
    assert_int_equal(list.tree, FAKE_TREE);
    assert_int_equal(get_fileid(), fake.attr.fileid | VIEW_LIST);
    struct store_object past = found(list, "s1");
    assert_int_equal(past.ino, VIEW_PAST | 77);
    assert_int_equal(past.tree, FAKE_SNAPSHOT + 1);
    fake.object = in_tree(FAKE_SNAPSHOT + 1, 78);
    struct store_object file = found(past, "file");
    assert_int_equal(file.ino, 78); /* an ordinary one */
    assert_int_equal(fake.asked.ino, 77);
    assert_int_equal(fake.asked.tree, FAKE_SNAPSHOT + 1);
    struct store_object up = found(past, "..");
    assert_int_equal(up.ino, list.ino);
    assert_int_equal(up.tree, FAKE_TREE);
    assert_int_equal(found(list, "..").ino, 77);
    assert_int_equal(found(list, ".").ino, list.ino);
    assert_int_equal(found(past, ".").ino, past.ino);
    assert_int_equal(look_up(list, "s3"), NFS3ERR_NOENT);
    assert_int_equal(look_up(past, ".snapshot"), NFS3ERR_NOENT);
    assert_int_equal(look_up(in_tree(FAKE_SNAPSHOT + 1, 77), ".snapshot"), NFS3ERR_NOENT);
}

static void a_directory_that_was_not_there_yet_is_not_found(void **state)
{
    fake.snapshots = 3;
    fake.born = 2;
    struct store_object list = found(in_tree(FAKE_TREE, 77), ".snapshot");
    assert_int_equal(look_up(list, "s1"), NFS3ERR_NOENT);
    assert_int_equal(look_up(list, "s2"), NFS3_OK);
}

static uint32_t list(struct store_object dir, uint64_t cookie, bool plus)
{
    fake_begin();
    put_fh(&dir);
    xdr_put_u64(&args, cookie);
    xdr_put_u64(&args, 0);
    xdr_put_u32(&args, 8192);
    if (plus)
        xdr_put_u32(&args, 8192);
    return fake_nfs(plus ? NFS3_READDIRPLUS : NFS3_READDIR);
}

/* "name:cookie ..." of the last listing. */
static void get_names(char *to, bool plus, bool *eof)
{
    skip_attr();
    xdr_take(&reply, 8);
    *to = 0;
    while (xdr_get_bool(&reply)) {
        uint32_t length;
        xdr_get_u64(&reply);
        const uint8_t *name = xdr_get_opaque(&reply, 255, &length);
        uint64_t cookie = xdr_get_u64(&reply);
        to += sprintf(to, "%.*s:%llu ", (int)length, (const char *)name, (unsigned long long)cookie);
        if (plus) {
            assert_false(xdr_get_bool(&reply)); /* no attributes */
            assert_false(xdr_get_bool(&reply)); /* no handle */
        }
    }
    *eof = xdr_get_bool(&reply);
    reply_ends();
}

static void the_list_names_the_snapshots_that_have_the_directory(void **state)
{
    char names[512];
    bool eof;
    fake.snapshots = 4;
    fake.born = 1;
    for (int plus = 0; plus < 2; plus++) {
        assert_int_equal(list(in_tree(FAKE_TREE, VIEW_LIST | 77), 0, plus), NFS3_OK);
        get_names(names, plus, &eof);
        assert_string_equal(names, ".:1 ..:2 s1:1003 s2:1004 s3:1005 ");
        assert_true(eof);
        assert_int_equal(list(in_tree(FAKE_TREE, VIEW_LIST | 77), 1003, plus), NFS3_OK);
        get_names(names, plus, &eof);
        assert_string_equal(names, "s2:1004 s3:1005 ");
    }
}

static void a_long_list_comes_in_pieces_each_name_once(void **state)
{
    static char names[8192], seen[300];
    bool eof = false;
    uint64_t cookie = 2;
    unsigned rounds = 0;
    fake.snapshots = 300;
    memset(seen, 0, sizeof seen);
    for (; !eof; rounds++) {
        assert_int_equal(list(in_tree(FAKE_TREE, VIEW_LIST | 1), cookie, false), NFS3_OK);
        get_names(names, false, &eof);
        for (char *at = strtok(names, " "); at; at = strtok(NULL, " ")) {
            unsigned number;
            unsigned long long after;
            assert_int_equal(sscanf(at, "s%u:%llu", &number, &after), 2);
            assert_int_equal(seen[number]++, 0);
            cookie = after;
        }
        assert_true(rounds < 100);
    }
    assert_true(rounds > 1);
    for (int i = 0; i < 300; i++)
        assert_int_equal(seen[i], 1);
}

static void only_a_shown_root_lists_it(void **state)
{
    static char names[16384];
    bool eof;
    fake.entries = 3;
    assert_int_equal(list(in_tree(FAKE_TREE, 1), 0, false), NFS3_OK);
    get_names(names, false, &eof);
    assert_null(strstr(names, ".snapshot"));
    fake.shown = true;
    assert_int_equal(list(in_tree(FAKE_TREE, 77), 0, false), NFS3_OK); /* not the root */
    get_names(names, false, &eof);
    assert_null(strstr(names, ".snapshot"));
    assert_int_equal(list(in_tree(FAKE_TREE, 1), 0, false), NFS3_OK);
    get_names(names, false, &eof);
    assert_string_equal(names, "n:1 nn:2 nnn:3 .snapshot:256 ");
    assert_true(eof);
    fake.entries = 300; /* cookies go on behind it */
    uint64_t cookie = 0;
    unsigned times = 0, total = 0;
    for (eof = false; !eof;) {
        assert_int_equal(list(in_tree(FAKE_TREE, 1), cookie, false), NFS3_OK);
        get_names(names, false, &eof);
        for (char *at = strtok(names, " "); at; at = strtok(NULL, " ")) {
            times += strncmp(at, ".snapshot:", 10) == 0;
            total++;
            cookie = strtoull(strchr(at, ':') + 1, NULL, 10);
        }
    }
    assert_int_equal(times, 1);
    assert_int_equal(total, 301);
}

static void nothing_there_can_be_changed(void **state)
{
    fake.snapshots = 1;
    struct store_object views[] = {in_tree(FAKE_TREE, VIEW_LIST | 1), in_tree(FAKE_SNAPSHOT, VIEW_PAST | 1)};
    for (int i = 0; i < 2; i++) {
        fake_begin();
        put_fh(&views[i]);
        put_name("x");
        assert_int_equal(fake_nfs(NFS3_REMOVE), NFS3ERR_ROFS);
        assert_int_equal(fake_nfs(NFS3_RMDIR), NFS3ERR_ROFS);
        xdr_put_u32(&args, 0);
        for (int n = 0; n < 5; n++)
            xdr_put_u32(&args, 0); /* an empty sattr3 */
        assert_int_equal(fake_nfs(NFS3_MKDIR), NFS3ERR_ROFS);
    }
    assert_int_equal(fake.calls, 0);
}

static void the_name_cannot_be_made_or_go(void **state)
{
    fake_begin();
    put_fh(&fake_dir);
    put_name(".snapshot");
    assert_int_equal(fake_nfs(NFS3_REMOVE), NFS3ERR_ROFS);
    assert_int_equal(fake_nfs(NFS3_RMDIR), NFS3ERR_ROFS);
    for (int n = 0; n < 6; n++)
        xdr_put_u32(&args, 0);
    assert_int_equal(fake_nfs(NFS3_MKDIR), NFS3ERR_EXIST);
    fake_begin();
    put_fh(&fake_dir);
    put_name("x");
    put_fh(&fake_dir);
    put_name(".snapshot");
    assert_int_equal(fake_nfs(NFS3_RENAME), NFS3ERR_EXIST);
    fake_begin();
    put_fh(&fake_file);
    put_fh(&fake_dir);
    put_name(".snapshot");
    assert_int_equal(fake_nfs(NFS3_LINK), NFS3ERR_EXIST);
    assert_int_equal(fake.calls, 0);
}

static void attributes_of_the_list_are_its_own(void **state)
{
    fake_begin();
    struct store_object view = in_tree(FAKE_TREE, VIEW_LIST | 1);
    put_fh(&view);
    assert_int_equal(fake_nfs(NFS3_GETATTR), NFS3_OK);
    assert_int_equal(xdr_get_u32(&reply), STORE_DIR);
    assert_int_equal(xdr_get_u32(&reply), 0555);
    assert_int_equal(xdr_get_u32(&reply), 2);
    xdr_take(&reply, ATTR_FILEID - 12);
    assert_int_equal(xdr_get_u64(&reply), fake.attr.fileid | VIEW_LIST);
    xdr_take(&reply, 8);
    assert_int_equal(xdr_get_u32(&reply), 815); /* mtime: when the list changed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAKE_TEST(kinds_survive_their_handles),
        FAKE_TEST(the_way_into_the_past_and_back),
        FAKE_TEST(a_directory_that_was_not_there_yet_is_not_found),
        FAKE_TEST(the_list_names_the_snapshots_that_have_the_directory),
        FAKE_TEST(a_long_list_comes_in_pieces_each_name_once),
        FAKE_TEST(only_a_shown_root_lists_it),
        FAKE_TEST(nothing_there_can_be_changed),
        FAKE_TEST(the_name_cannot_be_made_or_go),
        FAKE_TEST(attributes_of_the_list_are_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
