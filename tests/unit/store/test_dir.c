#include "test_meta_fixture.h"

static uint32_t tree;
static const uint64_t dir = 77;

struct named {
    char name[32];
    uint64_t position;
    int error;
};

static struct store_name name_of(const struct named *n)
{
    return (struct store_name){.bytes = n->name, .length = (uint32_t)strlen(n->name)};
}

static int start(void **state)
{
    int error = fixture_start(state);
    tree = new_tree();
    return error;
}

struct range {
    struct named *names;
    int from, to, step;
};

static int put_range(struct meta_txn *t, void *arg)
{
    struct range *r = arg;
    for (int i = r->from; i < r->to; i += r->step) {
        struct named *n = &r->names[i];
        n->error = meta_put_entry(t, tree, dir, name_of(n), (uint64_t)i + 1, 1, STORE_REG, &n->position);
        if (t->failed)
            return t->failed;
    }
    return 0;
}

static int del_range(struct meta_txn *t, void *arg)
{
    struct range *r = arg;
    for (int i = r->from; i < r->to && !t->failed; i += r->step)
        if (!r->names[i].error)
            r->names[i].error = meta_del_entry(t, tree, dir, r->names[i].position) ? -EIO : -ENOENT;
    return t->failed;
}

static struct named *names_new(int count)
{
    struct named *names = calloc((size_t)count, sizeof(*names));
    for (int i = 0; i < count; i++)
        snprintf(names[i].name, sizeof(names[i].name), "file-%d", i);
    return names;
}

static int find_all(void *arg)
{
    struct range *r = arg;
    struct meta_txn *t;
    struct entry entry;
    int wrong = 0;
    if (meta_read_begin(l, &t))
        return -1;
    for (int i = r->from; i < r->to; i++) {
        int error = meta_entry(t, tree, dir, name_of(&r->names[i]), &entry);
        wrong += r->names[i].error ? error != -ENOENT
                                   : error || entry.ino != (uint64_t)i + 1 || entry.position != r->names[i].position;
    }
    meta_read_end(t);
    return wrong;
}

static void full_buckets_refuse_and_lose_nothing(void **state)
{
    enum { COUNT = 1500, ROOM = 4 * 253 };
    l->meta->hash_bits = 2;
    struct named *names = names_new(COUNT);
    struct range all = {names, 0, COUNT, 1};
    int there = 0;
    assert_int_equal(mutate(put_range, &all), 0);
    for (int i = 0; i < COUNT; i++) {
        assert_true(names[i].error == 0 || names[i].error == -ENOSPC);
        there += !names[i].error;
        if (!names[i].error)
            assert_true((names[i].position & 255) >= 3 && names[i].position >> 8 < 4);
    }
    assert_int_equal(there, ROOM);
    assert_int_equal(worker_call(worker_at(0), find_all, &all), 0);
    struct range third = {names, 0, COUNT, 3};
    assert_int_equal(mutate(del_range, &third), 0);
    assert_int_equal(worker_call(worker_at(0), find_all, &all), 0);
    assert_int_equal(mutate(put_range, &third), 0);
    assert_int_equal(worker_call(worker_at(0), find_all, &all), 0);
    free(names);
}

struct listing {
    uint64_t after;
    int limit, count;
    uint8_t *seen;
};

/* Like a READDIR: some entries, then on from the last position in another transaction. */
static int list_some(void *arg)
{
    struct listing *list = arg;
    struct meta_txn *t;
    struct entry entry;
    int error = meta_read_begin(l, &t);
    for (int i = 0; !error && i < list->limit; i++) {
        error = meta_entry_next(t, tree, dir, list->after, &entry);
        if (error)
            break;
        if (entry.position <= list->after)
            error = -EIO;
        list->after = entry.position;
        list->seen[entry.ino - 1]++;
        list->count++;
    }
    meta_read_end(t);
    return error;
}

static void listing_gives_each_name_once_while_others_go(void **state)
{
    enum { COUNT = 900 };
    l->meta->hash_bits = 3;
    struct named *names = names_new(COUNT);
    struct range all = {names, 0, COUNT, 1};
    struct listing list = {.limit = 10, .seen = calloc(COUNT, 1)};
    assert_int_equal(mutate(put_range, &all), 0);
    int error, round = 0;
    while ((error = worker_call(worker_at(0), list_some, &list)) == 0) {
        struct range third = {names, round * 10, round * 10 + 10 > COUNT ? COUNT : round * 10 + 10, 3};
        if (third.from < COUNT)
            assert_int_equal(mutate(del_range, &third), 0);
        round++;
    }
    assert_int_equal(error, -ENOENT);
    for (int i = 0; i < COUNT; i++) {
        assert_true(list.seen[i] <= 1);
        if (i % 10 % 3)
            assert_int_equal(list.seen[i], 1);
    }
    free(list.seen);
    free(names);
}

static void the_cookie_of_an_entry_that_is_gone_is_good(void **state)
{
    struct named *names = names_new(50);
    struct range all = {names, 0, 50, 1};
    struct listing list = {.limit = 20, .seen = calloc(50, 1)};
    assert_int_equal(mutate(put_range, &all), 0);
    assert_int_equal(worker_call(worker_at(0), list_some, &list), 0);
    for (int i = 0; i < 50; i++)
        if (names[i].position == list.after) {
            struct range one = {names, i, i + 1, 1};
            assert_int_equal(mutate(del_range, &one), 0);
        }
    list.limit = 100;
    assert_int_equal(worker_call(worker_at(0), list_some, &list), -ENOENT);
    assert_int_equal(list.count, 50);
    free(list.seen);
    free(names);
}

static int list_in_the_writer(struct meta_txn *t, void *arg)
{
    struct entry entry;
    uint64_t after = 0;
    int count = 0;
    while (meta_entry_next(t, tree, dir, after, &entry) == 0) {
        after = entry.position;
        meta_del_entry(t, tree, dir, after);
        count++;
    }
    *(int *)arg = count;
    return t->failed;
}

static void the_writer_may_remove_while_it_lists(void **state)
{
    struct named *names = names_new(300);
    struct range all = {names, 0, 300, 1};
    int count = 0;
    assert_int_equal(mutate(put_range, &all), 0);
    assert_int_equal(mutate(list_in_the_writer, &count), 0);
    assert_int_equal(count, 300);
    assert_int_equal(mutate(list_in_the_writer, &count), 0);
    assert_int_equal(count, 0);
    free(names);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, start, fixture_stop)
    const struct CMUnitTest tests[] = {
        EACH(full_buckets_refuse_and_lose_nothing),
        EACH(listing_gives_each_name_once_while_others_go),
        EACH(the_cookie_of_an_entry_that_is_gone_is_good),
        EACH(the_writer_may_remove_while_it_lists),
    };
    return cmocka_run_group_tests(tests, fixture_workers_start, fixture_workers_stop);
}
