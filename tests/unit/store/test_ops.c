#include "ops_fixture.h"

/* What each operation does and refuses, for root. */

static void makes_every_type(void **state)
{
    struct pool *p = *state;
    static const enum store_type types[] = {STORE_REG, STORE_DIR,  STORE_BLK, STORE_CHR,
                                            STORE_LNK, STORE_SOCK, STORE_FIFO};
    for (unsigned i = 0; i < 7; i++) {
        char name[8];
        struct store_object o, found;
        snprintf(name, sizeof(name), "t%u", i);
        assert_int_equal(t_make(p, &root_cred, &p->root, name, types[i], 0640, &o), 0);
        struct store_attr a = attr_of(p, &o);
        assert_int_equal(a.type, types[i]);
        assert_int_equal(a.mode, types[i] == STORE_LNK ? 0777 : 0640);
        assert_int_equal(a.nlink, types[i] == STORE_DIR ? 2 : 1);
        assert_int_equal(a.fileid, o.ino);
        assert_int_equal(a.tree, p->tree);
        bool device = types[i] == STORE_BLK || types[i] == STORE_CHR;
        assert_int_equal(a.rdev_major, device ? 8 : 0);
        assert_int_equal(t_lookup(p, &root_cred, &p->root, name, &found), 0);
        assert_memory_equal(&found, &o, sizeof(o));
    }
    assert_int_equal(attr_of(p, &p->root).nlink, 3);
    struct store_make how = {.type = (enum store_type)9, .how = STORE_MAKE_GUARDED};
    struct store_object o;
    assert_int_equal(t_make_as(p, &root_cred, &p->root, "bad", &how, &o, NULL), SL_EBADTYPE);
}

static void refuses_bad_names(void **state)
{
    struct pool *p = *state;
    char long_name[260];
    memset(long_name, 'x', sizeof(long_name));
    long_name[256] = 0;
    struct store_object o;
    assert_int_equal(t_make(p, &root_cred, &p->root, long_name, STORE_REG, 0, &o), -ENAMETOOLONG);
    assert_int_equal(t_lookup(p, &root_cred, &p->root, long_name, &o), -ENAMETOOLONG);
    long_name[255] = 0;
    assert_int_equal(t_make(p, &root_cred, &p->root, long_name, STORE_REG, 0, &o), 0);
    assert_int_equal(t_lookup(p, &root_cred, &p->root, long_name, &o), 0);
    static const struct {
        const char *name;
        int make, remove, rmdir, rename;
    } table[] = {
        {"", -EINVAL, -EINVAL, -EINVAL, -EINVAL},
        {"a/b", -EINVAL, -EINVAL, -EINVAL, -EINVAL},
        {".", -EEXIST, -EISDIR, -EINVAL, -EINVAL},
        {"..", -EEXIST, -EISDIR, -EEXIST, -EINVAL},
        {".snapshot", -EPERM, -ENOENT, -ENOENT, -EPERM},
    };
    made(p, &p->root, "f", STORE_REG);
    for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const char *name = table[i].name;
        assert_int_equal(t_make(p, &root_cred, &p->root, name, STORE_REG, 0, &o), table[i].make);
        assert_int_equal(t_make(p, &root_cred, &p->root, name, STORE_DIR, 0, &o), table[i].make);
        assert_int_equal(t_remove(p, &p->root, name), table[i].remove);
        assert_int_equal(t_rmdir(p, &p->root, name), table[i].rmdir);
        assert_int_equal(t_rename(p, &p->root, "f", &p->root, name), table[i].rename);
    }
    struct store_name nul = {.bytes = "a\0b", .length = 3};
    struct store_attr attr;
    assert_int_equal(call(p, (struct call){.run = call_lookup,
                                           .c = &root_cred,
                                           .o = &p->root,
                                           .name = nul,
                                           .out = &o,
                                           .attr = &attr}),
                     -EINVAL);
}

static void dots_lead_home(void **state)
{
    struct pool *p = *state;
    struct store_object d = made(p, &p->root, "d", STORE_DIR), e = made(p, &d, "e", STORE_DIR), o;
    assert_int_equal(t_lookup(p, &root_cred, &e, ".", &o), 0);
    assert_int_equal(o.ino, e.ino);
    assert_int_equal(t_lookup(p, &root_cred, &e, "..", &o), 0);
    assert_int_equal(o.ino, d.ino);
    assert_int_equal(t_lookup(p, &root_cred, &p->root, "..", &o), 0);
    assert_int_equal(o.ino, p->root.ino);
    assert_int_equal(t_rename(p, &d, "e", &p->root, "e"), 0);
    assert_int_equal(t_lookup(p, &root_cred, &e, "..", &o), 0);
    assert_int_equal(o.ino, p->root.ino);
    assert_int_equal(attr_of(p, &d).nlink, 2);
    assert_int_equal(attr_of(p, &p->root).nlink, 4);
}

static void lookup_says_what_is_wrong(void **state)
{
    struct pool *p = *state;
    struct store_object f = made(p, &p->root, "f", STORE_REG), o;
    assert_int_equal(t_lookup(p, &root_cred, &p->root, "nothing", &o), -ENOENT);
    assert_int_equal(t_lookup(p, &root_cred, &f, "x", &o), -ENOTDIR);
    struct store_object wrong = f;
    wrong.generation++;
    assert_int_equal(t_lookup(p, &root_cred, &wrong, "x", &o), -ESTALE);
    wrong = f;
    wrong.tree += 77;
    assert_int_equal(t_lookup(p, &root_cred, &wrong, "x", &o), -ESTALE);
    wrong = f;
    wrong.ino += 1000;
    struct store_attr attr;
    assert_int_equal(t_getattr(p, &wrong, &attr), -ESTALE);
}

static void create_has_three_ways(void **state)
{
    struct pool *p = *state;
    struct store_object o, again;
    struct store_make how = {.type = STORE_REG, .how = STORE_MAKE_EXCLUSIVE, .verifier = "ABCDEFG"};
    assert_int_equal(t_make_as(p, &root_cred, &p->root, "x", &how, &o, NULL), 0);
    assert_int_equal(t_chmod(p, &root_cred, &o, 0600), 0);
    assert_int_equal(t_make_as(p, &root_cred, &p->root, "x", &how, &again, NULL), 0);
    assert_int_equal(again.ino, o.ino);
    how.verifier[7] = 1;
    assert_int_equal(t_make_as(p, &root_cred, &p->root, "x", &how, &again, NULL), -EEXIST);
    memset(how.verifier, 0, 8);
    struct store_object plain = made(p, &p->root, "plain", STORE_REG);
    assert_int_equal(t_make_as(p, &root_cred, &p->root, "plain", &how, &again, NULL), -EEXIST);

    how = (struct store_make){.type = STORE_REG,
                              .how = STORE_MAKE_UNCHECKED,
                              .attr = {.set = STORE_SET_MODE, .mode = 0111}};
    assert_int_equal(t_write(p, &root_cred, &plain, 0, "hello", 5), 0);
    assert_int_equal(t_make_as(p, &root_cred, &p->root, "plain", &how, &again, NULL), 0);
    assert_int_equal(again.ino, plain.ino);
    assert_int_equal(attr_of(p, &plain).size, 5);
    assert_int_equal(attr_of(p, &plain).mode, 0666);
    how.attr.set |= STORE_SET_SIZE;
    assert_int_equal(t_make_as(p, &root_cred, &p->root, "plain", &how, &again, NULL), 0);
    assert_int_equal(attr_of(p, &plain).size, 0);
    assert_int_equal(t_make_as(p, &root_cred, &p->root, "new", &how, &again, NULL), 0);
    assert_int_equal(t_make(p, &root_cred, &p->root, "plain", STORE_REG, 0, &o), -EEXIST);
    made(p, &p->root, "d", STORE_DIR);
    assert_int_equal(t_make_as(p, &root_cred, &p->root, "d", &how, &again, NULL), -EEXIST);
}

static void symlinks_keep_their_target(void **state)
{
    struct pool *p = *state;
    char target[1100], got[STORE_LINK_TARGET_MAX];
    uint32_t length = 0;
    struct store_object o;
    memset(target, 't', sizeof(target));
    target[1025] = 0;
    struct store_make how = {.type = STORE_LNK, .how = STORE_MAKE_GUARDED, .target = named(target)};
    assert_int_equal(t_make_as(p, &root_cred, &p->root, "l", &how, &o, NULL), -ENAMETOOLONG);
    how.target.length = 0;
    assert_int_equal(t_make_as(p, &root_cred, &p->root, "l", &how, &o, NULL), -EINVAL);
    how.target.length = 1024;
    assert_int_equal(t_make_as(p, &root_cred, &p->root, "l", &how, &o, NULL), 0);
    assert_int_equal(attr_of(p, &o).size, 1024);
    assert_int_equal(t_chown(p, &root_cred, &o, 5, 6), 0);
    assert_int_equal(t_rename(p, &p->root, "l", &p->root, "m"), 0);
    assert_int_equal(t_link(p, &root_cred, &o, &p->root, "n"), 0);
    assert_int_equal(t_chmod(p, &root_cred, &o, 0123), 0);
    assert_int_equal(attr_of(p, &o).mode, 0777);
    assert_int_equal(t_readlink(p, &o, got, &length), 0);
    assert_int_equal(length, 1024);
    assert_memory_equal(got, target, 1024);
    struct store_object f = made(p, &p->root, "f", STORE_REG);
    assert_int_equal(t_readlink(p, &f, got, &length), -EINVAL);
}

static void links_count_and_move_up(void **state)
{
    struct pool *p = *state;
    struct store_object d = made(p, &p->root, "d", STORE_DIR),
                        f = made(p, &p->root, "f", STORE_REG), o;
    assert_int_equal(t_write(p, &root_cred, &f, 0, "data", 4), 0);
    assert_int_equal(t_link(p, &root_cred, &f, &d, "g"), 0);
    assert_int_equal(t_link(p, &root_cred, &f, &d, "h"), 0);
    assert_int_equal(attr_of(p, &f).nlink, 3);
    assert_int_equal(t_link(p, &root_cred, &f, &d, "h"), -EEXIST);
    assert_int_equal(t_link(p, &root_cred, &d, &p->root, "dir"), -EISDIR);
    assert_int_equal(t_link(p, &root_cred, &f, &f, "x"), -ENOTDIR);
    assert_int_equal(t_rename(p, &p->root, "f", &d, "g"), 0); /* one file: nothing happens */
    assert_int_equal(t_lookup(p, &root_cred, &p->root, "f", &o), 0);
    assert_int_equal(t_remove(p, &p->root, "f"), 0);
    assert_int_equal(attr_of(p, &f).nlink, 2);
    assert_int_equal(t_rename(p, &d, "h", &p->root, "h"), 0);
    assert_int_equal(t_remove(p, &d, "g"), 0);
    assert_int_equal(attr_of(p, &f).nlink, 1);
    char buffer[8];
    uint32_t got;
    assert_int_equal(t_read(p, &root_cred, &f, 0, buffer, 8, &got), 0);
    assert_int_equal(got, 4);
    assert_int_equal(t_remove(p, &p->root, "h"), 0);
    struct store_attr attr;
    assert_int_equal(t_getattr(p, &f, &attr), -ESTALE);
    assert_int_equal(t_link(p, &root_cred, &f, &p->root, "back"), -ESTALE);
    uint32_t other = pool_tree(p, 0);
    struct store_object other_root;
    assert_int_equal(p->s->ops->root(p->s, other, &other_root), 0);
    f = made(p, &p->root, "f", STORE_REG);
    assert_int_equal(t_link(p, &root_cred, &f, &other_root, "f"), -EXDEV);
    assert_int_equal(t_rename(p, &p->root, "f", &other_root, "f"), -EXDEV);
}

static void removes_what_it_should(void **state)
{
    struct pool *p = *state;
    struct store_object d = made(p, &p->root, "d", STORE_DIR), f = made(p, &d, "f", STORE_REG), o;
    assert_int_equal(t_remove(p, &p->root, "d"), -EISDIR);
    assert_int_equal(t_rmdir(p, &p->root, "d"), -ENOTEMPTY);
    assert_int_equal(t_rmdir(p, &d, "f"), -ENOTDIR);
    assert_int_equal(t_remove(p, &d, "g"), -ENOENT);
    assert_int_equal(t_rmdir(p, &d, "g"), -ENOENT);
    assert_int_equal(t_remove(p, &f, "g"), -ENOTDIR);
    assert_int_equal(t_remove(p, &d, "f"), 0);
    assert_int_equal(t_rmdir(p, &p->root, "d"), 0);
    assert_int_equal(attr_of(p, &p->root).nlink, 2);
    assert_int_equal(t_make(p, &root_cred, &d, "x", STORE_REG, 0, &o), -ESTALE);
    assert_int_equal(t_lookup(p, &root_cred, &d, "..", &o), -ESTALE);
    assert_int_equal(t_rename(p, &p->root, "x", &d, "x"), -ESTALE);
    assert_int_equal(t_truncate(p, &f, 0), -ESTALE);
    struct store_usage usage = usage_of(p, p->tree);
    assert_int_equal(usage.bytes_used, 0);
}

static void renames_what_it_should(void **state)
{
    struct pool *p = *state;
    struct store_object a = made(p, &p->root, "a", STORE_DIR), b = made(p, &a, "b", STORE_DIR);
    struct store_object c = made(p, &b, "c", STORE_DIR), f = made(p, &a, "f", STORE_REG), o;
    struct store_object g = made(p, &a, "g", STORE_REG);
    assert_int_equal(t_rename(p, &p->root, "none", &a, "x"), -ENOENT);
    assert_int_equal(t_rename(p, &p->root, "a", &a, "x"), -EINVAL);
    assert_int_equal(t_rename(p, &p->root, "a", &c, "x"), -EINVAL);
    assert_int_equal(t_rename(p, &a, "f", &a, "b"), -EISDIR);
    assert_int_equal(t_rename(p, &a, "b", &a, "f"), -ENOTDIR);
    assert_int_equal(t_rename(p, &b, "c", &p->root, "a"), -ENOTEMPTY);
    assert_int_equal(t_rename(p, &a, "f", &a, "f"), 0);
    struct store_attr before = attr_of(p, &f);
    assert_int_equal(t_rename(p, &a, "f", &a, "g"), 0);
    assert_true(attr_of(p, &f).change > before.change);
    assert_int_equal(t_getattr(p, &g, &before), -ESTALE);
    assert_int_equal(t_lookup(p, &root_cred, &a, "g", &o), 0);
    assert_int_equal(o.ino, f.ino);
    assert_int_equal(t_lookup(p, &root_cred, &a, "f", &o), -ENOENT);
    /* a directory over an empty one, across directories */
    struct store_object e = made(p, &p->root, "e", STORE_DIR);
    made(p, &c, "inside", STORE_REG);
    assert_int_equal(t_rename(p, &b, "c", &p->root, "e"), 0);
    assert_int_equal(attr_of(p, &b).nlink, 2);
    assert_int_equal(attr_of(p, &p->root).nlink, 4);
    assert_int_equal(t_getattr(p, &e, &before), -ESTALE);
    assert_int_equal(t_lookup(p, &root_cred, &c, "..", &o), 0);
    assert_int_equal(o.ino, p->root.ino);
    /* and in one directory */
    made(p, &p->root, "h", STORE_DIR);
    assert_int_equal(t_rename(p, &p->root, "e", &p->root, "h"), 0);
    assert_int_equal(attr_of(p, &p->root).nlink, 4);
    assert_int_equal(t_lookup(p, &root_cred, &c, "inside", &o), 0);
    assert_int_equal(t_rename(p, &p->root, ".", &p->root, "x"), -EINVAL);
}

static bool same_time(struct store_time a, struct store_time b)
{
    return a.seconds == b.seconds && a.nanoseconds == b.nanoseconds;
}

static void assert_wcc(const struct store_wcc *w, const struct store_attr *before,
                       const struct store_attr *after)
{
    assert_true(w->has_before && w->has_after);
    assert_int_equal(w->before_size, before->size);
    assert_int_equal(w->before_change, before->change);
    assert_true(same_time(w->before_mtime, before->mtime) &&
                same_time(w->before_ctime, before->ctime));
    assert_memory_equal(&w->after, after, sizeof(*after));
}

static void wcc_is_the_change_itself(void **state)
{
    struct pool *p = *state;
    struct store_object d = made(p, &p->root, "d", STORE_DIR),
                        e = made(p, &p->root, "e", STORE_DIR), o;
    struct store_wcc w[2];
    struct store_attr b = attr_of(p, &d), b2 = attr_of(p, &e), a, a2;
    struct store_make how = {.type = STORE_REG, .how = STORE_MAKE_GUARDED};
    assert_int_equal(t_make_as(p, &root_cred, &d, "f", &how, &o, w), 0);
    a = attr_of(p, &d);
    assert_wcc(w, &b, &a);
    assert_true(a.change > b.change && !same_time(a.mtime, b.mtime) &&
                !same_time(a.ctime, b.ctime));
    assert_int_equal(t_make_as(p, &root_cred, &d, "f", &how, &o, w), -EEXIST);
    assert_wcc(w, &a, &a);
    b = a;
    assert_int_equal(t_rename_as(p, &root_cred, &d, "f", &e, "f", w), 0);
    a = attr_of(p, &d);
    a2 = attr_of(p, &e);
    assert_wcc(w, &b, &a);
    assert_wcc(w + 1, &b2, &a2);
    assert_true(!same_time(a.mtime, b.mtime) && !same_time(a2.mtime, b2.mtime));
    assert_int_equal(t_rename_as(p, &root_cred, &e, "f", &e, "g", w), 0);
    b2 = a2;
    a2 = attr_of(p, &e);
    assert_wcc(w, &b2, &a2);
    assert_wcc(w + 1, &b2, &a2);
    b = attr_of(p, &o);
    assert_int_equal(
        t_setattr(p, &root_cred, &o, (struct store_setattr){.set = STORE_SET_SIZE, .size = 9}, w),
        0);
    a = attr_of(p, &o);
    assert_wcc(w, &b, &a);
    assert_int_equal(t_remove_as(p, &root_cred, &e, "g", false, w), 0);
    b2 = a2;
    a2 = attr_of(p, &e);
    assert_wcc(w, &b2, &a2);
    assert_int_equal(t_remove_as(p, &root_cred, &e, "g", false, w), -ENOENT);
    assert_wcc(w, &a2, &a2);
    struct store_cred ro = root_cred;
    ro.read_only = true;
    assert_int_equal(t_make_as(p, &ro, &e, "f", &how, &o, w), -EROFS);
    assert_wcc(w, &a2, &a2);
}

static void setattr_sets(void **state)
{
    struct pool *p = *state;
    struct store_object f = made(p, &p->root, "f", STORE_REG),
                        d = made(p, &p->root, "d", STORE_DIR);
    struct store_object l = made(p, &p->root, "l", STORE_LNK);
    struct store_wcc w;
    struct store_setattr set = {
        .set = STORE_SET_MODE | STORE_SET_UID | STORE_SET_GID | STORE_SET_ATIME | STORE_SET_MTIME,
        .mode = 04751,
        .uid = 7,
        .gid = 8,
        .atime = {-5, 6},
        .mtime = {1ll << 35, 999999999},
    };
    assert_int_equal(t_setattr(p, &root_cred, &f, set, &w), 0);
    struct store_attr a = attr_of(p, &f);
    assert_int_equal(a.mode, 04751);
    assert_int_equal(a.uid, 7);
    assert_int_equal(a.gid, 8);
    assert_true(same_time(a.atime, set.atime) && same_time(a.mtime, set.mtime));
    set.mtime.nanoseconds = 1000000000;
    assert_int_equal(t_setattr(p, &root_cred, &f, set, &w), -EINVAL);
    struct store_time guard = a.ctime;
    set = (struct store_setattr){.set = STORE_SET_ATIME_NOW | STORE_SET_MTIME_NOW};
    struct call k = {
        .run = call_setattr, .c = &root_cred, .o = &f, .set = &set, .guard = &guard, .wcc = &w};
    assert_int_equal(call(p, k), 0);
    assert_int_equal(call(p, k), SL_ENOTSYNC);
    assert_true(attr_of(p, &f).atime.seconds > 1000000000);
    a = attr_of(p, &f);
    assert_int_equal(t_setattr(p, &root_cred, &f, (struct store_setattr){0}, &w), 0);
    assert_int_equal(attr_of(p, &f).change, a.change);
    assert_int_equal(t_truncate(p, &d, 0), -EISDIR);
    assert_int_equal(t_truncate(p, &l, 0), -EINVAL);
    assert_int_equal(t_truncate(p, &f, STORE_FILE_MAX + 1), -EFBIG);
    assert_int_equal(t_truncate(p, &f, STORE_FILE_MAX), 0);
    assert_int_equal(attr_of(p, &f).size, STORE_FILE_MAX);
    a = attr_of(p, &f);
    assert_int_equal(t_truncate(p, &f, STORE_FILE_MAX), 0);
    assert_false(same_time(attr_of(p, &f).mtime, a.mtime));
    assert_int_equal(t_truncate(p, &f, 0), 0);
}

static void truncation_cuts_bytes(void **state)
{
    struct pool *p = *state;
    static const uint64_t sizes[] = {5000, 4097, 4096, 4095, 300, 0};
    struct store_object f = made(p, &p->root, "f", STORE_REG);
    uint8_t *bytes = malloc(900000), *got = malloc(900000);
    uint32_t length;
    for (unsigned i = 0; i < 900000; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 255 + 1);
    assert_int_equal(t_write(p, &root_cred, &f, 0, bytes, 900000), 0);
    assert_int_equal(t_truncate(p, &f, 600001), 0);
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(t_truncate(p, &f, sizes[i]), 0);
        assert_int_equal(t_truncate(p, &f, 8000), 0);
        memset(bytes + sizes[i], 0, 8000 - sizes[i]);
        assert_int_equal(t_read(p, &root_cred, &f, 0, got, 900000, &length), 0);
        assert_int_equal(length, 8000);
        assert_memory_equal(got, bytes, 8000);
    }
    assert_int_equal(t_truncate(p, &f, 900000), 0);
    memset(bytes, 0, 900000);
    assert_int_equal(t_read(p, &root_cred, &f, 0, got, 900000, &length), 0);
    assert_memory_equal(got, bytes, 900000);
    settle(p);
    assert_int_equal(usage_of(p, p->tree).bytes_used, 0);
    free(bytes);
    free(got);
}

static void main_stack_refuses_to_wait(void **state)
{
    struct pool *p = *state; /* this thread is no coroutine either */
    struct store_object o;
    struct store_wcc w[2];
    struct store_attr attr;
    const struct store_ops *ops = p->s->ops;
    struct store_make how = {.type = STORE_REG};
    struct store_setattr set = {.set = STORE_SET_MODE};
    assert_int_equal(ops->make(p->s, &root_cred, &p->root, named("f"), &how, &o, &attr, w),
                     SL_EWAIT);
    assert_int_equal(ops->setattr(p->s, &root_cred, &p->root, &set, NULL, w), SL_EWAIT);
    assert_int_equal(ops->remove(p->s, &root_cred, &p->root, named("f"), w), SL_EWAIT);
    assert_int_equal(ops->rmdir(p->s, &root_cred, &p->root, named("f"), w), SL_EWAIT);
    assert_int_equal(ops->link(p->s, &root_cred, &p->root, &p->root, named("f"), &attr, w),
                     SL_EWAIT);
    assert_int_equal(
        ops->rename(p->s, &root_cred, &p->root, named("f"), &p->root, named("g"), w, w + 1),
        SL_EWAIT);
}

static void limits_hold(void **state)
{
    struct pool *p = *state;
    uint32_t small = pool_tree(p, 1 << 20);
    struct store_object root, f;
    assert_int_equal(p->s->ops->root(p->s, small, &root), 0);
    f = made(p, &root, "f", STORE_REG);
    struct store_usage u = usage_of(p, small);
    assert_int_equal(u.bytes_total, 1 << 20);
    char *bytes = calloc(1, 1 << 20);
    memset(bytes, 1, 1 << 20);
    assert_int_equal(t_write(p, &root_cred, &f, 0, bytes, 1 << 19), 0);
    u = usage_of(p, small);
    assert_int_equal(u.bytes_used, 1 << 19);
    assert_int_equal(u.bytes_free, 1 << 19);
    assert_true(t_write(p, &root_cred, &f, 1 << 19, bytes, (1 << 19) + 1) < 0);
    free(bytes);
}

static int tests(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, pool_setup, pool_teardown)
    const struct CMUnitTest all[] = {
        TEST(makes_every_type),
        TEST(refuses_bad_names),
        TEST(dots_lead_home),
        TEST(lookup_says_what_is_wrong),
        TEST(create_has_three_ways),
        TEST(symlinks_keep_their_target),
        TEST(links_count_and_move_up),
        TEST(removes_what_it_should),
        TEST(renames_what_it_should),
        TEST(wcc_is_the_change_itself),
        TEST(setattr_sets),
        TEST(truncation_cuts_bytes),
        TEST(main_stack_refuses_to_wait),
        TEST(limits_hold),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(void)
{
    return run_with_workers(tests);
}
