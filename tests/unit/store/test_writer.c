#include <dlfcn.h>

#include "meta_faults.h"
#include "test_meta_fixture.h"

#include "store/local/seg_private.h"

/* ---- a record that cannot be put: this stands before LMDB's own function ---- */

static atomic_bool poison_armed;

int mdb_put(MDB_txn *txn, MDB_dbi dbi, MDB_val *key, MDB_val *data, unsigned flags)
{
    static int (*real)(MDB_txn *, MDB_dbi, MDB_val *, MDB_val *, unsigned);
    if (!real)
        real = (int (*)(MDB_txn *, MDB_dbi, MDB_val *, MDB_val *, unsigned))dlsym(RTLD_NEXT, "mdb_put");
    if (atomic_load(&poison_armed) && key->mv_size == 6 && memcmp(key->mv_data, "poison", 6) == 0)
        return MDB_CORRUPTED;
    return real(txn, dbi, key, data, flags);
}

/* ---- mutations on one number ---- */

struct change {
    struct mutation m;
    const char *key;
    int result;
    uint64_t number;
};

static uint64_t number_in(struct meta_txn *t, const char *key)
{
    uint64_t number = 0;
    size_t length;
    meta_system_get(t, key, &number, sizeof(number), &length);
    return number;
}

static int add_one(struct mutation *m, struct meta_txn *t)
{
    struct change *c = (struct change *)m;
    c->number = number_in(t, c->key) + 1;
    meta_next_change(t);
    return meta_system_put(t, c->key, &c->number, sizeof(c->number));
}

static int refuse(struct mutation *m, struct meta_txn *t)
{
    return SL_EREFUSED;
}

static int run_change(void *arg)
{
    struct change *c = arg;
    return writer_run(l, &c->m);
}

static int add_to(const char *key)
{
    struct change c = {.m.apply = add_one, .key = key};
    return worker_call(worker_at(0), run_change, &c);
}

static int read_number(void *arg)
{
    struct meta_txn *t;
    int error = meta_read_begin(l, &t);
    if (error)
        return error;
    int number = (int)number_in(t, arg);
    meta_read_end(t);
    return number;
}

static int number_at(const char *key)
{
    return worker_call(worker_at(1), read_number, (void *)key);
}

/* Many coroutines, each with some mutations. */
static atomic_int running, failures, last_failure;

struct client {
    const char *key;
    int count;
};

static void client_run(void *arg)
{
    struct client *client = arg;
    for (int i = 0; i < client->count; i++) {
        struct change c = {.m.apply = add_one, .key = client->key};
        int error;
        while ((error = writer_run(l, &c.m)) == SL_EFROZEN)
            coro_sleep(10);
        if (error) {
            atomic_fetch_add(&failures, 1);
            atomic_store(&last_failure, error);
        }
    }
    atomic_fetch_sub(&running, 1);
}

static void clients_start(struct client *clients, int count)
{
    atomic_store(&running, count);
    atomic_store(&failures, 0);
    for (int i = 0; i < count; i++)
        assert_int_equal(worker_spawn(worker_at((unsigned)i % 2), client_run, &clients[i]), 0);
}

static void clients_wait(void)
{
    while (atomic_load(&running))
        usleep(1000);
}

static void wait_thawed(void)
{
    for (int i = 0; i < 100 && atomic_load(&l->frozen); i++)
        usleep(50000);
    assert_false(atomic_load(&l->frozen));
}

/* ---- tests ---- */

static void many_share_a_commit_and_none_is_lost(void **state)
{
    enum { CLIENTS = 300, EACH = 20 };
    struct client clients[CLIENTS];
    uint64_t groups = metric_read(METRIC_groups);
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = (struct client){"n", EACH};
    clients_start(clients, CLIENTS);
    clients_wait();
    assert_int_equal(atomic_load(&failures), 0);
    assert_int_equal(number_at("n"), CLIENTS * EACH);
    assert_true(metric_read(METRIC_groups) - groups < CLIENTS * EACH / 10);
    assert_int_equal(writer_backlog(l), 0);
    uint64_t change = l->meta->counters.change;
    fixture_close();
    fixture_open();
    assert_int_equal(number_at("n"), CLIENTS * EACH);
    assert_true(l->meta->counters.change == change);
}

static void refusals_alone_commit_nothing(void **state)
{
    struct change c = {.m.apply = refuse};
    uint64_t groups = metric_read(METRIC_groups);
    assert_int_equal(worker_call(worker_at(0), run_change, &c), SL_EREFUSED);
    assert_true(metric_read(METRIC_groups) == groups);
}

static void waits_only_in_coroutines(void **state)
{
    struct change c = {.m.apply = add_one, .key = "n"};
    assert_int_equal(writer_run(l, &c.m), SL_EWAIT);
}

static atomic_int finished_result;

static void is_finished(struct mutation *m)
{
    atomic_store(&finished_result, m->result == 0 ? 2 : 1);
}

static void finished_is_called_after_publication(void **state)
{
    struct change c = {.m = {.apply = add_one, .finished = is_finished}, .key = "f"};
    atomic_store(&finished_result, 0);
    writer_queue(l, &c.m);
    while (!atomic_load(&finished_result))
        usleep(1000);
    assert_int_equal(atomic_load(&finished_result), 2);
    assert_int_equal(number_at("f"), 1);
}

static void one_that_cannot_be_applied_fails_alone(void **state)
{
    enum { CLIENTS = 50 };
    struct client clients[CLIENTS];
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = (struct client){i == 20 ? "poison" : "n", 5};
    atomic_store(&poison_armed, true);
    clients_start(clients, CLIENTS);
    clients_wait();
    atomic_store(&poison_armed, false);
    assert_int_equal(atomic_load(&failures), 5);
    assert_int_equal(atomic_load(&last_failure), SL_ECORRUPT);
    assert_int_equal(number_at("n"), (CLIENTS - 1) * 5);
    assert_false(atomic_load(&l->frozen));
    assert_int_equal(add_to("poison"), 0);
}

static void a_failed_commit_freezes_until_a_probe_succeeds(void **state)
{
    struct store_status status;
    assert_int_equal(add_to("n"), 0);
    uint64_t change = l->meta->counters.change;
    atomic_store(&commit_fault, EIO);
    atomic_store(&commit_fault_count, 2); /* the first probe fails as well */
    assert_int_equal(add_to("n"), -EIO);
    assert_true(atomic_load(&l->frozen));
    assert_int_equal(add_to("n"), SL_EFROZEN);
    l->store.ops->status(&l->store, &status);
    assert_true(status.frozen && strstr(status.reason, "committing metadata"));
    assert_int_equal(number_at("n"), 1);
    wait_thawed();
    assert_true(l->meta->counters.change == change); /* taken back */
    assert_int_equal(add_to("n"), 0);
    assert_int_equal(number_at("n"), 2);
    assert_int_equal(atomic_load(&commit_fault_count), 0);
}

static void no_space_is_said_and_freezes_nothing(void **state)
{
    atomic_store(&commit_fault, ENOSPC);
    atomic_store(&commit_fault_count, 1);
    assert_int_equal(add_to("n"), -ENOSPC);
    assert_false(atomic_load(&l->frozen));
    assert_int_equal(add_to("n"), 0);
    assert_int_equal(number_at("n"), 1);
}

static void a_panic_reopens_the_metadata(void **state)
{
    uint32_t tree = new_tree();
    struct tree before, after;
    assert_int_equal(meta_tree(l, tree, &before), 0);
    assert_int_equal(add_to("n"), 0);
    atomic_store(&meta_fault, 1);
    assert_int_equal(add_to("n"), -EIO);
    atomic_store(&meta_fault, 0);
    wait_thawed();
    assert_int_equal(number_at("n"), 1);
    assert_int_equal(add_to("n"), 0);
    assert_int_equal(number_at("n"), 2);
    assert_int_equal(meta_tree(l, tree, &after), 0);
    assert_true(after.root == before.root);
    fixture_close();
    fixture_open();
    assert_int_equal(number_at("n"), 2);
}

static void reads_go_on_while_metadata_cannot_be_written(void **state)
{
    assert_int_equal(add_to("n"), 0);
    atomic_store(&meta_fault, 1);
    assert_int_equal(add_to("n"), -EIO);
    uint64_t start = clock_monotonic_ns();
    for (int i = 0; i < 250; i++) { /* over several probes that fail */
        uint64_t before = clock_monotonic_ns();
        assert_int_equal(number_at("n"), 1);
        assert_true(clock_monotonic_ns() - before < 500000000);
        usleep(10000);
    }
    assert_true(atomic_load(&l->frozen) && clock_monotonic_ns() - start > 2000000000);
    atomic_store(&meta_fault, 0);
    wait_thawed();
    assert_int_equal(add_to("n"), 0);
    assert_int_equal(number_at("n"), 2);
}

static void a_commit_that_succeeded_in_spite_of_its_error_counts(void **state)
{
    assert_int_equal(add_to("n"), 0);
    uint64_t change = l->meta->counters.change;
    atomic_store(&meta_fault, 2);
    assert_int_equal(add_to("n"), -EIO);
    atomic_store(&meta_fault, 0);
    wait_thawed();
    assert_int_equal(number_at("n"), 2);
    assert_true(l->meta->counters.change == change + 1);
    assert_int_equal(add_to("n"), 0);
    assert_int_equal(number_at("n"), 3);
}

static int write_block(void *arg)
{
    place_t *place = arg;
    unsigned got;
    void *block = aligned_alloc(4096, 4096);
    memset(block, 7, 4096);
    struct iovec iov = {block, 4096};
    int error = seg_reserve(l, 1, place, &got);
    if (!error)
        error = seg_write(l, *place, &iov, 1, 1);
    free(block);
    return error;
}

static void a_failed_sync_freezes_too(void **state)
{
    int pipes[2];
    place_t place, next;
    assert_int_equal(worker_call(worker_at(0), write_block, &place), 0);
    assert_int_equal(pipe(pipes), 0);
    struct seg *seg = seg_get(l->segs, (uint32_t)(place >> PLACE_BITS));
    int fd = seg->fd;
    seg->fd = pipes[1]; /* cannot be synced */
    assert_int_equal(add_to("n"), -EIO);
    seg->fd = fd;
    seg_put(seg);
    assert_true(atomic_load(&l->frozen));
    wait_thawed();
    assert_int_equal(add_to("n"), 0);
    assert_int_equal(number_at("n"), 1);
    assert_int_equal(worker_call(worker_at(0), write_block, &next), 0);
    assert_true(next >> PLACE_BITS > place >> PLACE_BITS); /* the old segment is not continued */
    close(pipes[0]);
    close(pipes[1]);
}

static void failures_under_load_lose_nothing_acknowledged(void **state)
{
    enum { CLIENTS = 100, EACH = 200 };
    struct client clients[CLIENTS];
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = (struct client){"n", EACH};
    clients_start(clients, CLIENTS);
    for (int i = 0; i < 3; i++) {
        usleep(5000);
        if (i == 1) {
            atomic_store(&meta_fault, 1);
            usleep(3000);
            atomic_store(&meta_fault, 0);
        } else {
            atomic_store(&commit_fault, i ? ENOSPC : EIO);
            atomic_store(&commit_fault_count, 1);
        }
        wait_thawed();
    }
    clients_wait();
    wait_thawed();
    assert_int_equal(number_at("n"), CLIENTS * EACH - atomic_load(&failures));
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, fixture_start, fixture_stop)
    const struct CMUnitTest tests[] = {
        EACH(many_share_a_commit_and_none_is_lost),
        EACH(refusals_alone_commit_nothing),
        EACH(waits_only_in_coroutines),
        EACH(finished_is_called_after_publication),
        EACH(one_that_cannot_be_applied_fails_alone),
        EACH(a_failed_commit_freezes_until_a_probe_succeeds),
        EACH(no_space_is_said_and_freezes_nothing),
        EACH(a_panic_reopens_the_metadata),
        EACH(reads_go_on_while_metadata_cannot_be_written),
        EACH(a_commit_that_succeeded_in_spite_of_its_error_counts),
        EACH(a_failed_sync_freezes_too),
        EACH(failures_under_load_lose_nothing_acknowledged),
    };
    int failed = cmocka_run_group_tests(tests, fixture_workers_start, fixture_workers_stop);
    return failed;
}
