/* Names in RAM: they say what the database says, at once after a change, and stay within their bound. */
#include "ops_fixture.h"

#include "meta_faults.h"

#include "store/local/meta_private.h"

static int found(struct pool *p, const struct store_object *dir, const char *name, uint64_t ino)
{
    struct store_object o = {0};
    int rc = t_lookup(p, &root_cred, dir, name, &o);
    if (rc == 0)
        assert_int_equal(o.ino, ino);
    return rc;
}

/* On each worker, and from RAM alone: the look-up before has left it there. */
static void is(struct pool *p, const struct store_object *dir, const char *name, const struct store_object *o)
{
    found(p, dir, name, o ? o->ino : 0);
    uint64_t misses = metric_read(METRIC_name_misses), hits = metric_read(METRIC_name_hits);
    for (int i = 0; i < 2; i++)
        assert_int_equal(found(p, dir, name, o ? o->ino : 0), o ? 0 : -ENOENT);
    assert_int_equal(metric_read(METRIC_name_misses), misses);
    assert_int_equal(metric_read(METRIC_name_hits), hits + 2);
}

static void entries_of(struct pool *p, uint64_t *entries)
{
    uint64_t bytes;
    rtable_stats(local_of(p->s)->meta->names, entries, &bytes);
}

static void a_name_is_there_as_soon_as_it_is_made(void **state)
{
    struct pool *p = *state;
    static const enum store_type types[] = {STORE_REG, STORE_DIR, STORE_LNK, STORE_FIFO, STORE_SOCK, STORE_CHR};
    for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        char known[24], unknown[24];
        snprintf(known, sizeof(known), "known-%u", i);
        snprintf(unknown, sizeof(unknown), "unknown-%u", i);
        is(p, &p->root, known, NULL); /* remembered as not there */
        struct store_object a = made(p, &p->root, known, types[i]), b = made(p, &p->root, unknown, types[i]);
        is(p, &p->root, known, &a);
        is(p, &p->root, unknown, &b);
    }
}

static void made_names_need_no_look_up_in_the_database(void **state)
{
    struct pool *p = *state;
    struct store_object o = made(p, &p->root, "f", STORE_REG);
    uint64_t misses = metric_read(METRIC_name_misses);
    assert_int_equal(found(p, &p->root, "f", o.ino), 0);
    assert_int_equal(metric_read(METRIC_name_misses), misses);
}

static void a_name_is_gone_as_soon_as_it_is_removed(void **state)
{
    struct pool *p = *state;
    for (int directory = 0; directory < 2; directory++) {
        for (int i = 0; i < 5; i++) { /* also made anew under the same name */
            struct store_object o = made(p, &p->root, "x", directory ? STORE_DIR : STORE_REG);
            is(p, &p->root, "x", &o);
            assert_int_equal(t_remove_as(p, &root_cred, &p->root, "x", directory, NULL), 0);
            is(p, &p->root, "x", NULL);
        }
    }
}

static void a_large_file_that_is_removed_is_gone_too(void **state)
{
    struct pool *p = *state;
    struct store_object o = made(p, &p->root, "large", STORE_REG);
    for (uint64_t chunk = 0; chunk < 12; chunk++)
        assert_int_equal(t_write(p, &root_cred, &o, chunk * STORE_CHUNK, "x", 1), 0);
    is(p, &p->root, "large", &o);
    assert_int_equal(t_remove(p, &p->root, "large"), 0);
    is(p, &p->root, "large", NULL);
    settle(p);
    is(p, &p->root, "large", NULL);
}

static void a_rename_moves_the_name(void **state)
{
    struct pool *p = *state;
    struct store_object d = made(p, &p->root, "d", STORE_DIR), a = made(p, &p->root, "a", STORE_REG);
    is(p, &p->root, "a", &a);
    is(p, &p->root, "b", NULL);
    is(p, &d, "a", NULL);
    assert_int_equal(t_rename(p, &p->root, "a", &p->root, "b"), 0);
    is(p, &p->root, "a", NULL);
    is(p, &p->root, "b", &a);
    assert_int_equal(t_rename(p, &p->root, "b", &d, "a"), 0);
    is(p, &p->root, "b", NULL);
    is(p, &d, "a", &a);
    is(p, &p->root, "a", NULL);
}

static void a_rename_over_a_name_replaces_it(void **state)
{
    struct pool *p = *state;
    struct store_object a = made(p, &p->root, "a", STORE_REG), b = made(p, &p->root, "b", STORE_REG);
    is(p, &p->root, "a", &a);
    is(p, &p->root, "b", &b);
    assert_int_equal(t_rename(p, &p->root, "a", &p->root, "b"), 0);
    is(p, &p->root, "a", NULL);
    is(p, &p->root, "b", &a);
    /* Two links of one file: nothing happens, both names stay. */
    assert_int_equal(t_link(p, &root_cred, &a, &p->root, "c"), 0);
    assert_int_equal(t_rename(p, &p->root, "b", &p->root, "c"), 0);
    is(p, &p->root, "b", &a);
    is(p, &p->root, "c", &a);
    struct store_object d = made(p, &p->root, "d", STORE_DIR), e = made(p, &p->root, "e", STORE_DIR);
    is(p, &p->root, "d", &d);
    is(p, &p->root, "e", &e);
    assert_int_equal(t_rename(p, &p->root, "d", &p->root, "e"), 0);
    is(p, &p->root, "d", NULL);
    is(p, &p->root, "e", &d);
}

static void a_moved_directory_takes_its_names_along(void **state)
{
    struct pool *p = *state;
    struct store_object d = made(p, &p->root, "d", STORE_DIR), to = made(p, &p->root, "to", STORE_DIR);
    struct store_object f = made(p, &d, "f", STORE_REG), o;
    is(p, &d, "f", &f);
    is(p, &d, "g", NULL);
    assert_int_equal(t_rename(p, &p->root, "d", &to, "d"), 0);
    is(p, &d, "f", &f);
    is(p, &d, "g", NULL);
    assert_int_equal(t_lookup(p, &root_cred, &d, "..", &o), 0);
    assert_int_equal(o.ino, to.ino);
}

static void links_are_names_of_their_own(void **state)
{
    struct pool *p = *state;
    struct store_object a = made(p, &p->root, "a", STORE_REG);
    is(p, &p->root, "b", NULL);
    assert_int_equal(t_link(p, &root_cred, &a, &p->root, "b"), 0);
    is(p, &p->root, "b", &a);
    assert_int_equal(t_remove(p, &p->root, "a"), 0);
    is(p, &p->root, "a", NULL);
    is(p, &p->root, "b", &a);
}

/* Of names with one hash the table keeps one; the others are looked up. */
static void says(struct pool *p, const struct store_object *dir, const char *name, const struct store_object *o)
{
    for (int i = 0; i < 3; i++)
        assert_int_equal(found(p, dir, name, o ? o->ino : 0), o ? 0 : -ENOENT);
}

static void names_are_compared_in_full(void **state)
{
    struct pool *p = *state;
    char longest[STORE_NAME_MAX + 1], other[STORE_NAME_MAX + 1], beyond[STORE_NAME_MAX + 2];
    memset(longest, 'n', STORE_NAME_MAX);
    longest[STORE_NAME_MAX] = 0;
    strcpy(other, longest);
    other[STORE_NAME_MAX - 1] = 'm';
    snprintf(beyond, sizeof(beyond), "%sn", longest);
    local_of(p->s)->meta->hash_bits = 0; /* all names of a directory have one hash */
    says(p, &p->root, other, NULL);
    struct store_object o = made(p, &p->root, longest, STORE_REG);
    says(p, &p->root, longest, &o);
    says(p, &p->root, other, NULL);
    says(p, &p->root, longest, &o);
    assert_int_equal(found(p, &p->root, beyond, 0), -ENAMETOOLONG);
    says(p, &p->root, "n", NULL);
    says(p, &p->root, "nn", NULL);
    struct store_object n = made(p, &p->root, "n", STORE_REG);
    says(p, &p->root, "nn", NULL);
    says(p, &p->root, "n", &n);
    assert_int_equal(t_remove(p, &p->root, "n"), 0);
    says(p, &p->root, longest, &o);
    says(p, &p->root, "n", NULL);
}

static void names_of_one_hash_agree_with_a_model(void **state)
{
    enum { NAMES = 40, STEPS = 1500 };
    struct pool *p = *state;
    struct store_object model[NAMES] = {0};
    srandom(7);
    local_of(p->s)->meta->hash_bits = 2;
    for (int i = 0; i < STEPS; i++) {
        char name[24], other[24];
        int n = (int)(random() % NAMES), m = (int)(random() % NAMES);
        snprintf(name, sizeof(name), "%d", n);
        snprintf(other, sizeof(other), "%d", m);
        switch (random() % 5) {
        case 0:
            assert_int_equal(t_make(p, &root_cred, &p->root, name, STORE_REG, 0644, model[n].ino ? NULL : &model[n]),
                             model[n].ino ? -EEXIST : 0);
            break;
        case 1:
            assert_int_equal(t_remove(p, &p->root, name), model[n].ino ? 0 : -ENOENT);
            model[n] = (struct store_object){0};
            break;
        case 2:
            assert_int_equal(t_rename(p, &p->root, name, &p->root, other), model[n].ino ? 0 : -ENOENT);
            if (model[n].ino && n != m) {
                model[m] = model[n];
                model[n] = (struct store_object){0};
            }
            break;
        default:
            assert_int_equal(found(p, &p->root, name, model[n].ino), model[n].ino ? 0 : -ENOENT);
        }
    }
}

static void what_is_not_there_stays_within_the_bound(void **state)
{
    struct pool *p = *state;
    uint64_t entries;
    for (int i = 0; i < 5000; i++) {
        char name[24];
        snprintf(name, sizeof(name), "missing-%d", i);
        assert_int_equal(found(p, &p->root, name, 0), -ENOENT);
    }
    entries_of(p, &entries);
    assert_in_range(entries, 100, NAME_ENTRIES);
}

static void names_go_with_their_tree(void **state)
{
    struct pool *p = *state;
    struct store_object root, f;
    uint64_t before, entries;
    made(p, &p->root, "f", STORE_REG);
    entries_of(p, &before);
    uint32_t tree = pool_tree(p, 0);
    assert_int_equal(p->s->ops->root(p->s, tree, &root), 0);
    is(p, &root, "f", NULL); /* names are a tree's own */
    f = made(p, &root, "f", STORE_REG);
    is(p, &root, "f", &f);
    is(p, &root, "g", NULL);
    entries_of(p, &entries);
    assert_int_equal(entries, before + 2);
    assert_int_equal(t_tree_delete(p, tree), 0);
    for (unsigned tries = 0; entries != before && tries < 1000; tries++) { /* the room comes back by and by */
        usleep(5000);
        entries_of(p, &entries);
    }
    assert_int_equal(entries, before);
    assert_int_equal(found(p, &root, "f", 0), -ESTALE);
    assert_int_equal(found(p, &root, "g", 0), -ESTALE);
}

static void a_removed_directory_has_no_names(void **state)
{
    struct pool *p = *state;
    struct store_object d = made(p, &p->root, "d", STORE_DIR);
    is(p, &d, "f", NULL);
    assert_int_equal(t_rmdir(p, &p->root, "d"), 0);
    assert_int_equal(found(p, &d, "f", 0), -ESTALE);
    struct store_object again = made(p, &p->root, "d", STORE_DIR);
    assert_int_not_equal(again.ino, d.ino);
    is(p, &again, "f", NULL);
}

static void a_group_that_fails_changes_no_name(void **state)
{
    struct pool *p = *state;
    struct store_object a = made(p, &p->root, "a", STORE_REG);
    is(p, &p->root, "a", &a);
    is(p, &p->root, "b", NULL);
    for (int what = 0; what < 3; what++) {
        atomic_store(&commit_fault, EIO);
        atomic_store(&commit_fault_count, 3);
        int rc = what == 0   ? t_make(p, &root_cred, &p->root, "b", STORE_REG, 0644, NULL)
                 : what == 1 ? t_remove(p, &p->root, "a")
                             : t_rename(p, &p->root, "a", &p->root, "b");
        assert_int_not_equal(rc, 0);
        assert_int_equal(found(p, &p->root, "a", a.ino), 0);
        assert_int_equal(found(p, &p->root, "b", 0), -ENOENT);
        atomic_store(&commit_fault_count, 0);
        for (int i = 0; i < 200 && atomic_load(&local_of(p->s)->frozen); i++)
            usleep(50000);
        assert_false(atomic_load(&local_of(p->s)->frozen));
        is(p, &p->root, "a", &a);
        is(p, &p->root, "b", NULL);
    }
}

/* Owners change names of their own, and look after each acknowledged change; others look and list all the time and make
 * the tables forget, so that they are filled while they change. */
enum { OWNERS = 8, LOOKERS = 6, TURNS = 60 };

struct race {
    struct pool *p;
    struct store_object dirs[2];
    atomic_uint owners, lookers, started, wrong;
    atomic_bool end;
};

static void expect(struct race *r, unsigned dir, const char *name, const struct store_object *o)
{
    struct store *s = r->p->s;
    struct store_object got = {0};
    struct store_attr attr;
    int rc = s->ops->lookup(s, &root_cred, &r->dirs[dir], named(name), &got, &attr, NULL);
    if (rc != (o ? 0 : -ENOENT) || (o && got.ino != o->ino))
        atomic_fetch_add(&r->wrong, 1);
}

static void expect_links(struct race *r, const struct store_object *o, unsigned links)
{
    struct store_attr attr;
    if (r->p->s->ops->getattr(r->p->s, o, &attr) || attr.nlink != links)
        atomic_fetch_add(&r->wrong, 1);
}

static void check_rc(struct race *r, int rc)
{
    if (rc)
        atomic_fetch_add(&r->wrong, 1);
}

static void owner(void *arg)
{
    struct race *r = arg;
    struct store *s = r->p->s;
    char name[24], other[24];
    unsigned number = atomic_fetch_add(&r->started, 1);
    snprintf(name, sizeof(name), "own-%u", number);
    snprintf(other, sizeof(other), "other-%u", number);
    struct store_make how = {.type = STORE_REG, .how = STORE_MAKE_GUARDED};
    struct store_attr attr;
    struct store_wcc w[2];
    for (unsigned i = 0; i < TURNS; i++) {
        unsigned dir = i % 2;
        struct store_object o;
        check_rc(r, s->ops->make(s, &root_cred, &r->dirs[dir], named(name), &how, &o, &attr, w));
        expect(r, dir, name, &o);
        check_rc(r, s->ops->rename(s, &root_cred, &r->dirs[dir], named(name), &r->dirs[!dir], named(other), w, w + 1));
        expect(r, dir, name, NULL);
        expect(r, !dir, other, &o);
        check_rc(r, s->ops->link(s, &root_cred, &o, &r->dirs[dir], named(name), &attr, w));
        expect(r, dir, name, &o);
        expect_links(r, &o, 2);
        check_rc(r, s->ops->remove(s, &root_cred, &r->dirs[!dir], named(other), w));
        expect(r, !dir, other, NULL);
        expect_links(r, &o, 1);
        check_rc(r, s->ops->remove(s, &root_cred, &r->dirs[dir], named(name), w));
        expect(r, dir, name, NULL);
    }
    atomic_fetch_sub(&r->owners, 1);
}

static bool take_any(void *arg, const struct store_entry *e)
{
    return true;
}

static void forget_or_list(struct race *r, unsigned what)
{
    struct store *s = r->p->s;
    struct store_attr attr;
    bool eof;
    if (what % 8 == 0)
        tables_forget(local_of(s)->meta, r->p->tree);
    else if (what % 8 < 4)
        check_rc(r, s->ops->readdir(s, &root_cred, &r->dirs[what % 2], 0, true, take_any, NULL, &eof, &attr));
}

static void looker(void *arg)
{
    struct race *r = arg;
    struct store *s = r->p->s;
    unsigned seed = atomic_fetch_add(&r->started, 1);
    while (!atomic_load(&r->end)) {
        char name[24];
        struct store_object got;
        struct store_attr attr;
        snprintf(name, sizeof(name), rand_r(&seed) % 2 ? "own-%u" : "other-%u", (unsigned)rand_r(&seed) % OWNERS);
        int rc = s->ops->lookup(s, &root_cred, &r->dirs[rand_r(&seed) % 2], named(name), &got, &attr, NULL);
        if (rc && rc != -ENOENT)
            atomic_fetch_add(&r->wrong, 1);
        forget_or_list(r, (unsigned)rand_r(&seed));
        if (rand_r(&seed) % 4 == 0)
            coro_yield();
    }
    atomic_fetch_sub(&r->lookers, 1);
}

static void acknowledged_changes_show_while_others_fill_the_table(void **state)
{
    struct pool *p = *state;
    struct race r = {.p = p};
    r.dirs[0] = made(p, &p->root, "one", STORE_DIR);
    r.dirs[1] = made(p, &p->root, "two", STORE_DIR);
    atomic_store(&r.owners, OWNERS);
    atomic_store(&r.lookers, LOOKERS);
    for (unsigned i = 0; i < OWNERS; i++)
        assert_int_equal(worker_spawn(worker_at(i % workers_count()), owner, &r), 0);
    for (unsigned i = 0; i < LOOKERS; i++)
        assert_int_equal(worker_spawn(worker_at(i % workers_count()), looker, &r), 0);
    while (atomic_load(&r.owners))
        usleep(5000);
    atomic_store(&r.end, true);
    while (atomic_load(&r.lookers))
        usleep(5000);
    assert_int_equal(atomic_load(&r.wrong), 0);
}

#define WITH_POOL(test) cmocka_unit_test_setup_teardown(test, pool_setup, pool_teardown)

static int tests(void)
{
    const struct CMUnitTest all[] = {
        WITH_POOL(a_name_is_there_as_soon_as_it_is_made),
        WITH_POOL(made_names_need_no_look_up_in_the_database),
        WITH_POOL(a_name_is_gone_as_soon_as_it_is_removed),
        WITH_POOL(a_large_file_that_is_removed_is_gone_too),
        WITH_POOL(a_rename_moves_the_name),
        WITH_POOL(a_rename_over_a_name_replaces_it),
        WITH_POOL(a_moved_directory_takes_its_names_along),
        WITH_POOL(links_are_names_of_their_own),
        WITH_POOL(names_are_compared_in_full),
        WITH_POOL(names_of_one_hash_agree_with_a_model),
        WITH_POOL(what_is_not_there_stays_within_the_bound),
        WITH_POOL(names_go_with_their_tree),
        WITH_POOL(a_removed_directory_has_no_names),
        WITH_POOL(a_group_that_fails_changes_no_name),
        WITH_POOL(acknowledged_changes_show_while_others_fill_the_table),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(void)
{
    return run_with_workers(tests);
}
