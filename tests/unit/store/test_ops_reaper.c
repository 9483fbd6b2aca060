#include "ops_fixture.h"

/* Big directories, and what is left to the background. */

/* ---- listings ---- */

struct seen {
    uint8_t *times; /* by the number in the name */
    unsigned count, room;
    uint64_t last;
    bool attributes, dots;
};

static bool see(void *arg, const struct store_entry *e)
{
    struct seen *s = arg;
    if (s->room == 0)
        return false;
    s->room--;
    assert_true(e->cookie > s->last);
    s->last = e->cookie;
    if (e->name.bytes[0] == '.') {
        s->dots = true;
        return true;
    }
    char name[16] = "";
    memcpy(name, e->name.bytes, e->name.length);
    s->times[atoi(name)]++;
    s->count++;
    assert_int_equal(e->fileid, e->object.ino);
    if (s->attributes) {
        assert_non_null(e->attr);
        assert_int_equal(e->attr->fileid, e->fileid);
        assert_int_equal(e->attr->type, e->type);
    } else {
        assert_null(e->attr);
    }
    return true;
}

enum { MANY = 3000 };

/* Several creates at once, or each would wait for a commit of its own. */
struct makers {
    struct pool *p;
    struct store_object dir;
    unsigned count;
    atomic_uint next, running;
};

static void make_some(void *arg)
{
    struct makers *m = arg;
    for (unsigned i; (i = atomic_fetch_add(&m->next, 1)) < m->count;) {
        char name[16];
        snprintf(name, sizeof(name), "%u", i);
        struct store_make how = {.type = STORE_REG, .how = STORE_MAKE_GUARDED};
        struct store_object o;
        struct store_attr attr;
        struct store_wcc wcc;
        struct store *s = m->p->s;
        if (s->ops->make(s, &root_cred, &m->dir, named(name), &how, &o, &attr, &wcc))
            abort();
    }
    atomic_fetch_sub(&m->running, 1);
}

static void make_many(struct pool *p, const struct store_object *dir, unsigned count)
{
    struct makers m = {.p = p, .dir = *dir, .count = count, .running = 64};
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(worker_spawn(worker_at(i % workers_count()), make_some, &m), 0);
    while (atomic_load(&m.running))
        usleep(1000);
}

static void each_name_once(void **state)
{
    struct pool *p = *state;
    struct store_object d = made(p, &p->root, "d", STORE_DIR);
    make_many(p, &d, MANY);
    for (int attributes = 0; attributes < 2; attributes++) {
        struct seen s = {.times = calloc(MANY, 1), .attributes = attributes != 0};
        bool eof = false;
        for (uint64_t cookie = 0; !eof; cookie = s.last) {
            s.room = 77;
            assert_int_equal(t_readdir(p, &root_cred, &d, cookie, attributes, see, &s, &eof), 0);
        }
        assert_true(s.dots);
        assert_int_equal(s.count, MANY);
        for (unsigned i = 0; i < MANY; i++)
            assert_int_equal(s.times[i], 1);
        free(s.times);
    }
}

static void listing_goes_on_while_names_go(void **state)
{
    struct pool *p = *state;
    struct store_object d = made(p, &p->root, "d", STORE_DIR);
    make_many(p, &d, MANY / 3);
    struct seen s = {.times = calloc(MANY, 1)};
    bool eof = false;
    unsigned removed = 0, calls = 0;
    for (uint64_t cookie = 0; !eof; cookie = s.last, calls++) {
        s.room = 10;
        s.attributes = calls % 2;
        assert_int_equal(t_readdir(p, &root_cred, &d, cookie, s.attributes, see, &s, &eof), 0);
        for (unsigned n = 0; n < 3 && removed < MANY / 3; n++, removed += 3) {
            char name[16];
            snprintf(name, sizeof(name), "%u", removed);
            assert_int_equal(t_remove(p, &d, name), 0);
        }
    }
    for (unsigned i = 0; i < MANY / 3; i++) {
        if (i % 3)
            assert_int_equal(s.times[i], 1);
        else
            assert_true(s.times[i] <= 1);
    }
    free(s.times);
}

static void cookies_are_checked(void **state)
{
    struct pool *p = *state;
    struct seen s = {.times = calloc(4, 1), .room = 9};
    bool eof;
    struct store_object f = made(p, &p->root, "1", STORE_REG);
    assert_int_equal(t_readdir(p, &root_cred, &p->root, 256 + 2, false, see, &s, &eof),
                     SL_EBADCOOKIE);
    assert_int_equal(t_readdir(p, &root_cred, &p->root, 1ull << 63 | 3, false, see, &s, &eof),
                     SL_EBADCOOKIE);
    assert_int_equal(t_readdir(p, &root_cred, &f, 0, false, see, &s, &eof), -ENOTDIR);
    s.room = 1;
    assert_int_equal(t_readdir(p, &root_cred, &p->root, 0, false, see, &s, &eof), 0);
    assert_false(eof);
    assert_int_equal(s.last, 1);
    s.room = 1;
    assert_int_equal(t_readdir(p, &root_cred, &p->root, 1, true, see, &s, &eof), 0);
    assert_int_equal(s.last, 2);
    s.room = s.attributes = 1;
    assert_int_equal(t_readdir(p, &root_cred, &p->root, 2, true, see, &s, &eof), 0);
    assert_true(eof);
    assert_int_equal(s.count, 1);
    free(s.times);
}

/* ---- background ---- */

/* Chunks with one byte each: many records, little data. */
static struct store_object spread(struct pool *p, const char *name, unsigned chunks)
{
    struct store_object f = made(p, &p->root, name, STORE_REG);
    for (unsigned i = 0; i < chunks; i++)
        assert_int_equal(t_write(p, &root_cred, &f, i * (uint64_t)STORE_CHUNK + 5000, "x", 1), 0);
    return f;
}

static uint64_t work_left(struct pool *p)
{
    struct store_status status;
    p->s->ops->status(p->s, &status);
    return status.work_left;
}

static void assert_empty(struct pool *p, uint64_t files)
{
    settle(p);
    struct store_usage u = usage_of(p, p->tree);
    assert_int_equal(u.bytes_used, 0);
    assert_int_equal(u.files_used, files);
    assert_int_equal(work_left(p), 0);
}

static void removed_files_give_back_their_space(void **state)
{
    struct pool *p = *state;
    struct store_object f = spread(p, "f", 200), g = spread(p, "g", 3);
    uint64_t used = usage_of(p, p->tree).bytes_used;
    assert_int_equal(used, 203 * STORE_BLOCK);
    assert_int_equal(attr_of(p, &f).used, 200 * STORE_BLOCK);
    assert_int_equal(t_remove(p, &p->root, "f"), 0);
    struct store_attr attr;
    char byte;
    uint32_t got;
    assert_int_equal(t_getattr(p, &f, &attr), -ESTALE);
    assert_int_equal(t_read(p, &root_cred, &f, 0, &byte, 1, &got), -ESTALE);
    assert_int_equal(t_write(p, &root_cred, &f, 0, "x", 1), -ESTALE);
    assert_int_equal(t_truncate(p, &f, 0), -ESTALE);
    assert_int_equal(t_rename(p, &p->root, "g", &p->root, "h"), 0);
    assert_int_equal(t_remove(p, &p->root, "h"), 0);
    assert_int_equal(t_getattr(p, &g, &attr), -ESTALE);
    assert_empty(p, 1);
}

static void renaming_over_gives_back_space(void **state)
{
    struct pool *p = *state;
    struct store_object f = spread(p, "f", 60), g = made(p, &p->root, "g", STORE_REG), o;
    assert_int_equal(t_rename(p, &p->root, "g", &p->root, "f"), 0);
    struct store_attr attr;
    assert_int_equal(t_getattr(p, &f, &attr), -ESTALE);
    assert_int_equal(t_lookup(p, &root_cred, &p->root, "f", &o), 0);
    assert_int_equal(o.ino, g.ino);
    assert_empty(p, 2);
}

static void cuts_are_worked_off(void **state)
{
    struct pool *p = *state;
    uint8_t bytes[8] = {1}, zero[8] = {0};
    uint32_t got;
    struct store_object f = spread(p, "f", 100);
    /* Often, so that all cut marks are taken now and then; what is written between stays. */
    for (unsigned i = 0; i < 12; i++) {
        uint64_t size = (90 - i * 7) * (uint64_t)STORE_CHUNK;
        assert_int_equal(t_truncate(p, &f, size), 0);
        assert_int_equal(attr_of(p, &f).size, size);
        assert_int_equal(t_write(p, &root_cred, &f, 100 * (uint64_t)STORE_CHUNK, "y", 1), 0);
        assert_int_equal(t_read(p, &root_cred, &f, size + 5000, bytes, 8, &got), 0);
        assert_memory_equal(bytes, zero, 8);
        assert_int_equal(t_read(p, &root_cred, &f, 100 * (uint64_t)STORE_CHUNK, bytes, 8, &got), 0);
        assert_int_equal(got, 1);
        assert_int_equal(bytes[0], 'y');
    }
    settle(p);
    assert_int_equal(attr_of(p, &f).used, 14 * STORE_BLOCK);
    assert_int_equal(usage_of(p, p->tree).bytes_used, 14 * STORE_BLOCK);
    assert_int_equal(t_read(p, &root_cred, &f, 12 * (uint64_t)STORE_CHUNK + 5000, bytes, 8, &got),
                     0);
    assert_int_equal(bytes[0], 'x');
    assert_int_equal(t_truncate(p, &f, 0), 0);
    settle(p);
    assert_int_equal(attr_of(p, &f).used, 0);
    assert_int_equal(t_remove(p, &p->root, "f"), 0);
    assert_empty(p, 1);
}

static void goes_on_after_reopening(void **state)
{
    struct pool *p = *state;
    struct store_object f = spread(p, "f", 400), g = spread(p, "g", 400);
    assert_int_equal(t_truncate(p, &f, 5001), 0);
    assert_int_equal(t_remove(p, &p->root, "g"), 0);
    pool_reopen(p);
    struct store_attr attr;
    assert_int_equal(t_getattr(p, &g, &attr), -ESTALE);
    assert_int_equal(attr_of(p, &f).size, 5001);
    settle(p);
    assert_int_equal(attr_of(p, &f).used, STORE_BLOCK);
    assert_int_equal(usage_of(p, p->tree).bytes_used, STORE_BLOCK);
    pool_reopen(p);
    assert_int_equal(usage_of(p, p->tree).bytes_used, STORE_BLOCK);
    assert_int_equal(t_remove(p, &p->root, "f"), 0);
    assert_empty(p, 1);
}

static void deleted_trees_go(void **state)
{
    struct pool *p = *state;
    struct store_status before, after;
    settle(p);
    p->s->ops->status(p->s, &before);
    uint32_t tree = pool_tree(p, 0), kept = p->tree;
    struct store_object root, kept_root = p->root;
    assert_int_equal(p->s->ops->root(p->s, tree, &root), 0);
    make_many(p, &root, MANY);
    p->root = root;
    spread(p, "big", 300);
    assert_int_equal(t_tree_delete(p, tree), 0);
    struct store_attr attr;
    assert_int_equal(t_getattr(p, &root, &attr), -ESTALE);
    pool_reopen(p);
    settle(p);
    p->root = kept_root;
    p->tree = kept;
    p->s->ops->status(p->s, &after);
    assert_int_equal(after.work_left, 0);
    assert_empty(p, 1);
}

static int tests(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, pool_setup, pool_teardown)
    const struct CMUnitTest all[] = {
        TEST(each_name_once),
        TEST(listing_goes_on_while_names_go),
        TEST(cookies_are_checked),
        TEST(removed_files_give_back_their_space),
        TEST(renaming_over_gives_back_space),
        TEST(cuts_are_worked_off),
        TEST(goes_on_after_reopening),
        TEST(deleted_trees_go),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(void)
{
    return run_with_workers(tests);
}
