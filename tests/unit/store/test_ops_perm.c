#include "ops_fixture.h"

/* Who may do what. */

static struct store_object owned(struct pool *p, const char *name, enum store_type type,
                                 uint32_t mode, uint32_t uid, uint32_t gid)
{
    struct store_object o = made(p, &p->root, name, type);
    assert_int_equal(t_chown(p, &root_cred, &o, uid, gid), 0);
    assert_int_equal(t_chmod(p, &root_cred, &o, mode), 0);
    return o;
}

static void files_by_mode(void **state)
{
    struct pool *p = *state;
    static const struct {
        uint32_t mode;
        bool owner, group_read, group_write, other_read, other_write;
    } table[] = {
        {0000, true, false, false, false, false}, {0444, true, true, false, true, false},
        {0222, true, false, true, false, true},   {0111, true, true, false, true, false},
        {0060, true, true, true, false, false},   {0006, true, false, false, true, true},
    };
    for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        char name[8], buffer[4];
        uint32_t got;
        snprintf(name, sizeof(name), "f%u", i);
        struct store_cred carol = {.uid = 1002, .gid = 3000};
        struct store_object o = owned(p, name, STORE_REG, table[i].mode, 1001, 2000);
        assert_int_equal(t_read(p, &bob, &o, 0, buffer, 4, &got), table[i].owner ? 0 : -EACCES);
        assert_int_equal(t_write(p, &bob, &o, 0, "x", 1), table[i].owner ? 0 : -EACCES);
        assert_int_equal(t_read(p, &alice, &o, 0, buffer, 4, &got),
                         table[i].group_read ? 0 : -EACCES);
        assert_int_equal(t_write(p, &alice, &o, 0, "x", 1), table[i].group_write ? 0 : -EACCES);
        assert_int_equal(t_read(p, &carol, &o, 0, buffer, 4, &got),
                         table[i].other_read ? 0 : -EACCES);
        assert_int_equal(t_write(p, &carol, &o, 0, "x", 1), table[i].other_write ? 0 : -EACCES);
        struct store_setattr size = {.set = STORE_SET_SIZE};
        assert_int_equal(t_setattr(p, &carol, &o, size, NULL), table[i].other_write ? 0 : -EACCES);
        assert_int_equal(t_setattr(p, &bob, &o, size, NULL), 0);
    }
}

static void access_is_honest(void **state)
{
    struct pool *p = *state;
    const uint32_t R = STORE_ACCESS_READ, L = STORE_ACCESS_LOOKUP, X = STORE_ACCESS_EXECUTE;
    const uint32_t W = STORE_ACCESS_MODIFY | STORE_ACCESS_EXTEND, D = STORE_ACCESS_DELETE;
    struct store_object f = owned(p, "f", STORE_REG, 0040, 1000, 1001);
    struct store_object x = owned(p, "x", STORE_REG, 0700, 1000, 1001);
    struct store_object d = owned(p, "d", STORE_DIR, 0750, 1000, 1001);
    assert_int_equal(access_of(p, &alice, &f), 0);
    assert_int_equal(access_of(p, &bob, &f), R);
    assert_int_equal(access_of(p, &root_cred, &f), R | W);
    assert_int_equal(access_of(p, &alice, &x), R | W | X);
    assert_int_equal(access_of(p, &bob, &x), 0);
    assert_int_equal(access_of(p, &root_cred, &x), R | W | X);
    assert_int_equal(access_of(p, &alice, &d), R | L | W | D);
    assert_int_equal(access_of(p, &bob, &d), R | L);
    struct store_cred ro = alice;
    ro.read_only = true;
    assert_int_equal(access_of(p, &ro, &d), R | L);
    assert_int_equal(access_of(p, &ro, &x), R | X);
}

static bool take_any(void *arg, const struct store_entry *entry)
{
    (void)arg, (void)entry;
    return true;
}

static void directories_by_mode(void **state)
{
    struct pool *p = *state;
    struct store_object d = owned(p, "d", STORE_DIR, 0755, 1000, 1000), o,
                        f = made(p, &d, "f", STORE_REG);
    bool eof;
    assert_int_equal(t_lookup(p, &bob, &d, "f", &o), 0);
    assert_int_equal(t_make(p, &bob, &d, "g", STORE_REG, 0, &o), -EACCES);
    assert_int_equal(t_make(p, &bob, &d, "f", STORE_REG, 0, &o), -EEXIST);
    assert_int_equal(t_remove_as(p, &bob, &d, "f", false, NULL), -EACCES);
    assert_int_equal(t_rename_as(p, &bob, &d, "f", &d, "g", NULL), -EACCES);
    assert_int_equal(t_link(p, &bob, &f, &d, "g"), -EACCES);
    assert_int_equal(t_chmod(p, &alice, &d, 0744), 0);
    assert_int_equal(t_lookup(p, &bob, &d, "f", &o), -EACCES);
    assert_int_equal(t_remove_as(p, &bob, &d, "none", false, NULL), -EACCES);
    assert_int_equal(t_readdir(p, &bob, &d, 0, false, take_any, NULL, &eof), 0);
    assert_int_equal(t_chmod(p, &alice, &d, 0711), 0);
    assert_int_equal(t_readdir(p, &bob, &d, 0, false, take_any, NULL, &eof), -EACCES);
    assert_int_equal(t_lookup(p, &bob, &d, "f", &o), 0);
    assert_int_equal(t_make(p, &alice, &d, "dev", STORE_CHR, 0600, &o), -EPERM);
    assert_int_equal(t_make(p, &alice, &d, "pipe", STORE_FIFO, 0600, &o), 0);
    /* moving a directory writes its ".." */
    struct store_object sub = made(p, &d, "sub", STORE_DIR);
    assert_int_equal(t_chmod(p, &root_cred, &sub, 0755), 0);
    assert_int_equal(t_rename_as(p, &alice, &d, "sub", &p->root, "sub", NULL), -EACCES);
    assert_int_equal(t_rename_as(p, &alice, &d, "sub", &d, "sub2", NULL), 0);
    (void)f;
}

static void sticky_directories_protect(void **state)
{
    struct pool *p = *state;
    struct store_object d = owned(p, "tmp", STORE_DIR, 01777, 0, 0), o;
    assert_int_equal(t_make(p, &alice, &d, "a", STORE_REG, 0666, &o), 0);
    assert_int_equal(t_make(p, &bob, &d, "b", STORE_REG, 0666, &o), 0);
    assert_int_equal(t_remove_as(p, &bob, &d, "a", false, NULL), -EPERM);
    assert_int_equal(t_rename_as(p, &bob, &d, "a", &d, "c", NULL), -EPERM);
    assert_int_equal(t_rename_as(p, &bob, &d, "b", &d, "a", NULL), -EPERM);
    assert_int_equal(t_rename_as(p, &bob, &d, "b", &p->root, "b", NULL), 0);
    assert_int_equal(t_remove_as(p, &root_cred, &d, "a", false, NULL), 0);
}

static void setgid_directories_hand_on(void **state)
{
    struct pool *p = *state;
    struct store_object d = owned(p, "d", STORE_DIR, 02777, 0, 4000), o;
    assert_int_equal(t_make(p, &alice, &d, "f", STORE_REG, 02755, &o), 0);
    assert_int_equal(attr_of(p, &o).gid, 4000);
    assert_int_equal(attr_of(p, &o).mode, 0755);
    assert_int_equal(t_make(p, &alice, &d, "e", STORE_DIR, 0755, &o), 0);
    assert_int_equal(attr_of(p, &o).gid, 4000);
    assert_int_equal(attr_of(p, &o).mode, 02755);
}

static void changes_clear_suid(void **state)
{
    struct pool *p = *state;
    struct store_object f = owned(p, "f", STORE_REG, 06777, 1000, 2000);
    assert_int_equal(t_write(p, &root_cred, &f, 0, "x", 1), 0);
    assert_int_equal(attr_of(p, &f).mode, 06777);
    assert_int_equal(t_write(p, &bob, &f, 0, "x", 1), 0);
    assert_int_equal(attr_of(p, &f).mode, 0777);
    assert_int_equal(t_chmod(p, &alice, &f, 06767), 0);
    assert_int_equal(t_setattr(p, &bob, &f, (struct store_setattr){.set = STORE_SET_SIZE}, NULL),
                     0);
    assert_int_equal(attr_of(p, &f).mode, 02767);
    assert_int_equal(t_chmod(p, &alice, &f, 06777), 0);
    assert_int_equal(attr_of(p, &f).mode, 06777);
    assert_int_equal(t_chown(p, &alice, &f, 1000, 1000), 0);
    assert_int_equal(attr_of(p, &f).mode, 0777);
    struct store_object g = owned(p, "g", STORE_REG, 0777, 1000, 5000);
    assert_int_equal(t_chmod(p, &alice, &g, 02777), 0);
    assert_int_equal(attr_of(p, &g).mode, 0777);
}

static void attributes_belong_to_the_owner(void **state)
{
    struct pool *p = *state;
    struct store_object f = owned(p, "f", STORE_REG, 0664, 1000, 2000);
    struct store_cred carol = {.uid = 1002, .gid = 2000};
    struct store_setattr now = {.set = STORE_SET_ATIME_NOW | STORE_SET_MTIME_NOW};
    struct store_setattr given = {.set = STORE_SET_MTIME};
    assert_int_equal(t_chmod(p, &bob, &f, 0666), -EPERM);
    assert_int_equal(t_chown(p, &bob, &f, 1001, 1001), -EPERM);
    assert_int_equal(t_chown(p, &alice, &f, 1001, 2000), -EPERM);
    assert_int_equal(t_chown(p, &alice, &f, 1000, 7000), -EPERM);
    assert_int_equal(t_chown(p, &alice, &f, 1000, 1000), 0);
    assert_int_equal(t_chown(p, &alice, &f, 1000, 2000), 0);
    assert_int_equal(t_setattr(p, &alice, &f, given, NULL), 0);
    assert_int_equal(t_setattr(p, &alice, &f, now, NULL), 0);
    assert_int_equal(t_setattr(p, &carol, &f, now, NULL), 0);
    assert_int_equal(t_setattr(p, &carol, &f, given, NULL), -EPERM);
    assert_int_equal(t_setattr(p, &bob, &f, now, NULL), -EACCES);
    assert_int_equal(t_chown(p, &root_cred, &f, 5, 5), 0);
}

static void read_only_callers_change_nothing(void **state)
{
    struct pool *p = *state;
    struct store_cred ro = {.read_only = true};
    struct store_object f = made(p, &p->root, "f", STORE_REG), o;
    assert_int_equal(t_chmod(p, &ro, &f, 0666), -EROFS);
    assert_int_equal(t_write(p, &ro, &f, 0, "x", 1), -EROFS);
    assert_int_equal(t_make(p, &ro, &p->root, "g", STORE_REG, 0, &o), -EROFS);
    assert_int_equal(t_remove_as(p, &ro, &p->root, "f", false, NULL), -EROFS);
    assert_int_equal(t_remove_as(p, &ro, &p->root, "f", true, NULL), -EROFS);
    assert_int_equal(t_rename_as(p, &ro, &p->root, "f", &p->root, "g", NULL), -EROFS);
    assert_int_equal(t_link(p, &ro, &f, &p->root, "g"), -EROFS);
    assert_int_equal(t_lookup(p, &ro, &p->root, "f", &o), 0);
}

static int tests(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, pool_setup, pool_teardown)
    const struct CMUnitTest all[] = {
        TEST(files_by_mode),
        TEST(access_is_honest),
        TEST(directories_by_mode),
        TEST(sticky_directories_protect),
        TEST(setgid_directories_hand_on),
        TEST(changes_clear_suid),
        TEST(attributes_belong_to_the_owner),
        TEST(read_only_callers_change_nothing),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(void)
{
    return run_with_workers(tests);
}
