#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sluice/base_worker.h"

static int start(void **state)
{
    return workers_start(2);
}

static int stop(void **state)
{
    workers_stop(2000);
    blocking_stop();
    return coro_count() != 0;
}

static int file_round_trip(void *arg)
{
    char path[] = "/tmp/test_worker_XXXXXX", back[2][8] = {{0}};
    int fd = mkstemp(path);
    unlink(path);
    struct ring_wait writes[2], reads[2];
    for (int i = 0; i < 2; i++) {
        struct io_uring_sqe *sqe = ring_wait_sqe(&writes[i]);
        io_uring_prep_write(sqe, fd, i ? "second" : "first!", 6, (uint64_t)i * 4096);
        ring_op_attach(sqe, &writes[i].op);
    }
    int result = ring_wait(&writes[1]) == 6 && ring_wait(&writes[0]) == 6;
    for (int i = 0; i < 2; i++) {
        struct io_uring_sqe *sqe = ring_wait_sqe(&reads[i]);
        io_uring_prep_read(sqe, fd, back[i], 6, (uint64_t)i * 4096);
        ring_op_attach(sqe, &reads[i].op);
    }
    result &= ring_wait(&reads[0]) == 6 && ring_wait(&reads[1]) == 6;
    result &= !strcmp(back[0], "first!") && !strcmp(back[1], "second");
    close(fd);
    return result;
}

static void ring_operations_return_to_their_coroutine(void **state)
{
    for (unsigned i = 0; i < workers_count(); i++)
        assert_int_equal(worker_call(worker_at(i), file_round_trip, NULL), 1);
}

/* More entries than the queue holds, all from one callback-free stretch of code. */
static int many_nops(void *arg)
{
    enum { NOPS = 20000 };
    struct ring_wait *waits = malloc(NOPS * sizeof(*waits));
    for (int i = 0; i < NOPS; i++)
        ring_wait_sqe(&waits[i]);
    int good = 0;
    for (int i = 0; i < NOPS; i++)
        good += ring_wait(&waits[i]) == 0;
    free(waits);
    return good == NOPS;
}

/* More than the completion queue holds as well. */
static int too_many_nops(void *arg)
{
    return many_nops(arg) && many_nops(arg);
}

static atomic_int finished_spawns;

static void nops_spawned(void *arg)
{
    if (too_many_nops(NULL))
        atomic_fetch_add(&finished_spawns, 1);
}

static void no_completion_is_lost_when_the_queues_are_full(void **state)
{
    atomic_store(&finished_spawns, 0);
    for (int i = 0; i < 6; i++)
        assert_int_equal(worker_spawn(worker_at(0), nops_spawned, NULL), 0);
    assert_int_equal(worker_call(worker_at(0), too_many_nops, NULL), 1);
    while (atomic_load(&finished_spawns) < 6)
        usleep(1000);
}

static int pipe_ends[2];

static int read_pipe(void *arg)
{
    char byte = 0;
    struct ring_wait wait;
    struct io_uring_sqe *sqe = ring_wait_sqe(&wait);
    io_uring_prep_read(sqe, pipe_ends[0], &byte, 1, 0);
    ring_op_attach(sqe, &wait.op);
    return ring_wait(&wait) == 1 ? byte : -1;
}

static void write_pipe(void *arg)
{
    coro_sleep(5);
    struct ring_wait wait;
    struct io_uring_sqe *sqe = ring_wait_sqe(&wait);
    io_uring_prep_write(sqe, pipe_ends[1], "x", 1, 0);
    ring_op_attach(sqe, &wait.op);
    ring_wait(&wait);
}

static void a_pipe_joins_two_workers(void **state)
{
    assert_int_equal(pipe(pipe_ends), 0);
    assert_int_equal(worker_spawn(worker_at(1), write_pipe, NULL), 0);
    assert_int_equal(worker_call(worker_at(0), read_pipe, NULL), 'x');
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static int sleep_20ms(void *arg)
{
    uint64_t before = clock_monotonic_ns();
    coro_sleep(20);
    return (int)((clock_monotonic_ns() - before) / 1000000);
}

static void a_sleep_lasts(void **state)
{
    int ms = worker_call(worker_at(0), sleep_20ms, NULL);
    assert_in_range(ms, 19, 2000);
}

/* ---- wakes across threads: a baton goes to and fro ---- */

static struct coro *_Atomic players[2];
static atomic_int turns;
enum { TURNS = 20000 };

static void play(void *arg)
{
    int me = (int)(intptr_t)arg;
    atomic_store(&players[me], coro_self());
    if (me == 0)
        while (!atomic_load(&players[1]))
            coro_yield();
    for (int i = 0; i < TURNS; i++) {
        if (me == 1)
            coro_wait();
        atomic_fetch_add(&turns, 1);
        coro_wake_remote(players[!me]);
        if (me == 0)
            coro_wait();
    }
    atomic_fetch_add(&finished_spawns, 1);
}

static void no_wake_across_threads_is_lost(void **state)
{
    atomic_store(&finished_spawns, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(worker_spawn(worker_at((unsigned)i), play, (void *)(intptr_t)i), 0);
    while (atomic_load(&finished_spawns) < 2)
        usleep(1000);
    assert_int_equal(turns, 2 * TURNS);
}

/* ---- posts keep their order ---- */

struct numbered {
    struct task task;
    int number;
};
static atomic_int next_number;
static atomic_int out_of_order;

static void run_numbered(struct task *task)
{
    if (((struct numbered *)task)->number != atomic_fetch_add(&next_number, 1))
        atomic_fetch_add(&out_of_order, 1);
}

static void tasks_run_in_the_order_of_posting(void **state)
{
    enum { TASKS = 30000 };
    struct numbered *tasks = calloc(TASKS, sizeof(*tasks));
    for (int i = 0; i < TASKS; i += 3) {
        for (int j = i; j < i + 3; j++) {
            tasks[j].number = j;
            tasks[j].task.run = run_numbered;
            tasks[j].task.next = j < i + 2 ? &tasks[j + 1].task : NULL;
        }
        if (i % 2) {
            worker_post_list(worker_at(1), &tasks[i].task, &tasks[i + 2].task);
        } else {
            struct task *second = tasks[i].task.next, *third = second->next;
            worker_post(worker_at(1), &tasks[i].task);
            worker_post_list(worker_at(1), second, third);
        }
    }
    while (atomic_load(&next_number) < TASKS)
        usleep(1000);
    assert_int_equal(out_of_order, 0);
    free(tasks);
}

/* ---- the lock ---- */

enum { LOCKERS = 300, LOCKS = 40 };
static struct coro_mutex mutex;
static int guarded;
static atomic_int inside, overlaps;

static void locker(void *arg)
{
    for (int i = 0; i < LOCKS; i++) {
        coro_mutex_lock(&mutex);
        if (atomic_fetch_add(&inside, 1))
            atomic_fetch_add(&overlaps, 1);
        guarded++;
        if (i % 8 == 0)
            coro_yield();
        if (i % 39 == 0 && (intptr_t)arg % 16 == 0)
            coro_sleep(1);
        atomic_fetch_sub(&inside, 1);
        coro_mutex_unlock(&mutex);
    }
    atomic_fetch_add(&finished_spawns, 1);
}

static void a_mutex_lets_one_in_across_workers(void **state)
{
    atomic_store(&finished_spawns, 0);
    for (int i = 0; i < LOCKERS; i++)
        assert_int_equal(worker_spawn(worker_at((unsigned)i % 2), locker, (void *)(intptr_t)i), 0);
    while (atomic_load(&finished_spawns) < LOCKERS)
        usleep(1000);
    assert_int_equal(overlaps, 0);
    assert_int_equal(guarded, LOCKERS * LOCKS);
    assert_false(mutex.held);
    assert_null(mutex.first);
    assert_true(coro_mutex_try(&mutex));
    assert_false(coro_mutex_try(&mutex));
    coro_mutex_unlock(&mutex);
}

/* ---- long computations ---- */

enum { PACED = 3, PIECES = 8, PIECE = 128 * 1024 };
static char pieces[PACED * PIECES + 1];
static unsigned pieces_done, yields_between;
static bool others_serve;

static void compute(void *arg)
{
    for (int i = 0; i < PIECES; i++) {
        coro_pace(PIECE, i > 0);
        pieces[pieces_done++] = (char)('a' + (intptr_t)arg);
    }
    atomic_fetch_add(&finished_spawns, 1);
}

/* Sees how far they have come in each pass. */
static int watch_pieces(void *arg)
{
    unsigned before = 0, most = 0;
    for (intptr_t i = 0; i < PACED; i++)
        assert_int_equal(coro_start(compute, (void *)i), 0);
    others_serve = pieces_done < PACED * PIECES;
    before = pieces_done;
    while (pieces_done < PACED * PIECES) {
        coro_yield();
        most = pieces_done - before > most ? pieces_done - before : most;
        before = pieces_done;
        yields_between++;
    }
    return (int)most;
}

static void long_computations_take_turns_with_everything_else(void **state)
{
    atomic_store(&finished_spawns, 0);
    int most = worker_call(worker_at(0), watch_pieces, NULL);
    assert_int_equal(atomic_load(&finished_spawns), PACED);
    assert_true(others_serve);
    assert_in_range(most, 1, 2); /* 256 KiB a pass */
    assert_in_range(yields_between, PACED * PIECES / 2 - 2, PACED * PIECES);
    assert_string_equal(pieces, "aaaaaaaabbbbbbbbcccccccc"); /* who has begun goes on first */
}

/* ---- nesting, pass ends ---- */

static char order[16];

static void note(const char *what)
{
    strcat(order, what);
}

static struct coro *outer;

static void inner(void *arg)
{
    note("b");
    coro_yield();
    note("d");
    coro_wake(outer);
}

static void end_second(struct task *task)
{
    note("2");
}

static struct task second_task = {.run = end_second};

static void end_first(struct task *task)
{
    note("1");
    worker_at_pass_end(&second_task);
}

static struct task first_task = {.run = end_first};

static int nest(void *arg)
{
    outer = coro_self();
    worker_at_pass_end(&first_task);
    note("a");
    if (coro_start(inner, NULL))
        return -1;
    note("c");
    coro_wait();
    note("e");
    return 0;
}

static void a_started_coroutine_runs_at_once_and_returns_to_its_starter(void **state)
{
    assert_int_equal(worker_call(worker_at(0), nest, NULL), 0);
    assert_string_equal(order, "abc12de");
}

/* ---- the limit ---- */

static void wait_for_flag(void *arg)
{
    while (!atomic_load((atomic_int *)arg))
        coro_sleep(1);
}

static int fill_to_limit(void *arg)
{
    unsigned started = 0;
    while (coro_start(wait_for_flag, arg) == 0)
        started++;
    return (int)started;
}

static int nothing(void *arg)
{
    return 0;
}

static void beyond_the_limit_starting_fails(void **state)
{
    static atomic_int go;
    coro_set_limit(500);
    assert_int_equal(worker_call(worker_at(0), fill_to_limit, &go), 499);
    int result = worker_call(worker_at(1), nothing, NULL);
    while (result == 0) /* the filler's own place may just have come free: take it */
        result = worker_call(worker_at(1), fill_to_limit, &go) > 1 ? -1 : -EAGAIN;
    assert_int_equal(result, -EAGAIN);
    atomic_store(&finished_spawns, 0);
    atomic_store(&go, 1);
    while (coro_count())
        usleep(1000);
    coro_set_limit(20000);
    assert_int_equal(worker_call(worker_at(1), nothing, NULL), 0);
}

/* ---- blocking ---- */

static atomic_int blocked_at_once, blocked_most, blocked_total;

static void block(void *arg)
{
    int now = atomic_fetch_add(&blocked_at_once, 1) + 1, most = atomic_load(&blocked_most);
    while (now > most && !atomic_compare_exchange_weak(&blocked_most, &most, now))
        ;
    usleep(2000);
    if (worker_self())
        abort();
    atomic_fetch_add(&blocked_total, 1);
    atomic_fetch_sub(&blocked_at_once, 1);
}

static void blocker(void *arg)
{
    int before = atomic_load(&blocked_total);
    blocking_run(block, NULL);
    if (!worker_self() || atomic_load(&blocked_total) == before)
        abort();
    atomic_fetch_add(&finished_spawns, 1);
}

static void blocking_calls_run_on_their_own_threads(void **state)
{
    atomic_store(&finished_spawns, 0);
    blocking_set_limit(4);
    for (unsigned i = 0; i < 60; i++)
        assert_int_equal(worker_spawn(worker_at(i % 2), blocker, NULL), 0);
    while (atomic_load(&finished_spawns) < 60)
        usleep(1000);
    assert_in_range(blocked_most, 2, 4);
    for (int i = 0; i < 10; i++)
        assert_int_equal(blocking_spawn(block, NULL), 0);
    blocking_stop();
    assert_int_equal(blocked_total, 70);
}

/* ---- stopping with a read that never ends ---- */

static struct ring_op endless;
static char endless_byte;

static void endless_done(struct ring_op *op, int result, uint32_t flags)
{
}

static int arm_endless(void *arg)
{
    endless.done = endless_done;
    struct io_uring_sqe *sqe = worker_sqe(&endless);
    io_uring_prep_read(sqe, pipe_ends[0], &endless_byte, 1, 0);
    ring_op_attach(sqe, &endless);
    return 0;
}

static void wait_for_ever(void *arg)
{
    coro_wait();
}

static void stopping_does_not_wait_for_armed_operations(void **state)
{
    assert_int_equal(pipe(pipe_ends), 0);
    assert_int_equal(workers_start(0), 0);
    assert_int_equal(worker_call(worker_at(0), arm_endless, NULL), 0);
    uint64_t before = clock_monotonic_ns();
    workers_stop(5000);
    assert_true(clock_monotonic_ns() - before < 1000000000u);

    assert_int_equal(workers_start(2), 0);
    assert_int_equal(worker_spawn(worker_at(1), wait_for_ever, NULL), 0);
    before = clock_monotonic_ns();
    workers_stop(100);
    assert_true(clock_monotonic_ns() - before < 1500000000u);
    assert_int_equal(coro_count(), 0);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_operations_return_to_their_coroutine),
        cmocka_unit_test(no_completion_is_lost_when_the_queues_are_full),
        cmocka_unit_test(a_pipe_joins_two_workers),
        cmocka_unit_test(a_sleep_lasts),
        cmocka_unit_test(no_wake_across_threads_is_lost),
        cmocka_unit_test(tasks_run_in_the_order_of_posting),
        cmocka_unit_test(a_mutex_lets_one_in_across_workers),
        cmocka_unit_test(long_computations_take_turns_with_everything_else),
        cmocka_unit_test(a_started_coroutine_runs_at_once_and_returns_to_its_starter),
        cmocka_unit_test(beyond_the_limit_starting_fails),
        cmocka_unit_test(blocking_calls_run_on_their_own_threads),
    };
    const struct CMUnitTest ending[] = {
        cmocka_unit_test(stopping_does_not_wait_for_armed_operations),
    };
    int failed = cmocka_run_group_tests(tests, start, stop);
    return failed + cmocka_run_group_tests(ending, NULL, NULL);
}
