#include "sluice/base_worker.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <urcu.h>

#include "sluice/base_thread.h"
#include "base/worker_private.h"
#include "sluice/base_log.h"

enum {
    RING_ENTRIES = 4096,
    RING_COMPLETIONS = 32768,
    READY_BUDGET = 4096, /* resumptions between two submissions */
    COMPLETIONS_LEAST = 64, /* of a pass, or half of those there are: replies leave, and reads begin, in between */
    ROUNDS_MOST = 16,    /* of coroutines and end-of-pass tasks in one pass */
    DRAIN_MS = 1000,
    SPAWN_RETRY_MS = 1,
};

static struct worker **workers;
static unsigned worker_total;
static atomic_bool quitting;
static _Thread_local struct worker *self;

unsigned workers_count(void)
{
    return worker_total;
}

struct worker *worker_at(unsigned index)
{
    return index < worker_total ? workers[index] : NULL;
}

/* Never inlined, so that no thread-local address is kept over a switch of stacks. */
__attribute__((noinline)) struct worker *worker_self(void)
{
    return self;
}

unsigned worker_index(const struct worker *w)
{
    return w->index;
}

struct io_uring *worker_ring(struct worker *w)
{
    return &w->ring;
}

uint64_t clock_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void clock_realtime_coarse(struct timespec *now)
{
    clock_gettime(CLOCK_REALTIME_COARSE, now);
}

/* ---- the inbox ---- */

static void wake(struct worker *w)
{
    uint64_t one = 1;
    /* Fails only when the counter is at its end, and then the worker is awake. */
    ssize_t ignored = write(w->wake_fd, &one, sizeof(one));
    (void)ignored;
}

void worker_post_list(struct worker *w, struct task *first, struct task *last)
{
    /* The inbox is newest first: turn the list round. */
    struct task *newest = NULL;
    last->next = NULL;
    for (struct task *t = first, *next; t; t = next) {
        next = t->next;
        t->next = newest;
        newest = t;
    }
    struct task *head = atomic_load(&w->inbox);
    do
        first->next = head;
    while (!atomic_compare_exchange_weak(&w->inbox, &head, newest));

    if (atomic_load(&w->sleeping) && atomic_exchange(&w->sleeping, false))
        wake(w);
}

void worker_post(struct worker *w, struct task *task)
{
    worker_post_list(w, task, task);
}

static void run_inbox(struct worker *w)
{
    if (!atomic_load_explicit(&w->inbox, memory_order_relaxed))
        return;
    struct task *newest = atomic_exchange(&w->inbox, NULL);
    struct task *oldest = NULL;
    while (newest) {
        struct task *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    for (struct task *t = oldest, *next; t; t = next) {
        next = t->next;
        t->run(t);
    }
}

void worker_at_pass_end(struct task *task)
{
    struct worker *w = worker_self();
    task->next = NULL;
    if (w->end_last)
        w->end_last->next = task;
    else
        w->end_first = task;
    w->end_last = task;
}

static void run_pass_end(struct worker *w)
{
    struct task *t = w->end_first;
    w->end_first = w->end_last = NULL;
    while (t) {
        struct task *next = t->next;
        t->run(t);
        t = next;
    }
}

/* ---- the ring ---- */

static void finish(struct worker *w, uint64_t user_data, int result, uint32_t flags)
{
    if (!(flags & IORING_CQE_F_MORE))
        w->in_flight--;
    struct ring_op *op = (struct ring_op *)(uintptr_t)user_data;
    if (op)
        op->done(op, result, flags);
}

static void run_stash(struct worker *w)
{
    /* Callbacks may add to it. */
    for (size_t i = 0; i < w->stashed; i++) {
        struct stashed_cqe cqe = w->stash[i];
        finish(w, cqe.user_data, cqe.result, cqe.flags);
    }
    w->stashed = 0;
}

static void run_completions(struct worker *w)
{
    run_stash(w);
    unsigned ready = io_uring_cq_ready(&w->ring), head;
    unsigned budget = ready / 2 > COMPLETIONS_LEAST ? ready / 2 : ready < COMPLETIONS_LEAST ? ready : COMPLETIONS_LEAST;
    struct io_uring_cqe *cqe;
    io_uring_for_each_cqe(&w->ring, head, cqe)
    {
        if (!budget--)
            break;
        struct stashed_cqe copy = {cqe->user_data, cqe->res, cqe->flags};
        io_uring_cq_advance(&w->ring, 1);
        finish(w, copy.user_data, copy.result, copy.flags);
        if (w->stashed)
            break; /* a callback emptied the ring; those go first, in the next pass */
    }
}

/* Makes room for the kernel without calling anybody back. */
static void stash_completions(struct worker *w)
{
    unsigned count = io_uring_cq_ready(&w->ring);
    if (w->stashed + count > w->stash_room) {
        size_t room = (w->stashed + count) * 2;
        struct stashed_cqe *grown = realloc(w->stash, room * sizeof(*grown));
        if (!grown)
            return; /* the caller tries again */
        w->stash = grown;
        w->stash_room = room;
    }
    unsigned head;
    struct io_uring_cqe *cqe;
    io_uring_for_each_cqe(&w->ring, head, cqe)
    {
        if (!count--)
            break;
        w->stash[w->stashed++] = (struct stashed_cqe){cqe->user_data, cqe->res, cqe->flags};
        io_uring_cq_advance(&w->ring, 1);
    }
}

void worker_reserve(unsigned entries)
{
    struct worker *w = worker_self();
    assert(w && entries <= RING_ENTRIES);
    while (io_uring_sq_space_left(&w->ring) < entries) {
        int done = io_uring_submit(&w->ring);
        if (done < 0 && done != -EINTR) {
            stash_completions(w);
            io_uring_get_events(&w->ring);
            sched_yield();
        }
    }
}

void worker_submit_from(unsigned entries)
{
    struct worker *w = worker_self();
    if (io_uring_sq_ready(&w->ring) >= entries)
        io_uring_submit(&w->ring); /* what it leaves over goes at the end of the pass */
}

struct io_uring_sqe *worker_sqe(struct ring_op *op)
{
    struct worker *w = worker_self();
    assert(w && "rings belong to workers");
    struct io_uring_sqe *sqe = io_uring_get_sqe(&w->ring);
    if (!sqe) {
        worker_reserve(1);
        sqe = io_uring_get_sqe(&w->ring);
    }
    w->in_flight++;
    io_uring_prep_nop(sqe); /* so that nothing of an earlier entry is left */
    io_uring_sqe_set_data(sqe, op);
    return sqe;
}

static void ring_wait_done(struct ring_op *op, int result, uint32_t cqe_flags)
{
    struct ring_wait *w = (struct ring_wait *)((char *)op - offsetof(struct ring_wait, op));
    w->result = result;
    w->finished = true;
    if (w->waiting)
        coro_wake(w->coro);
}

struct io_uring_sqe *ring_wait_sqe(struct ring_wait *w)
{
    *w = (struct ring_wait){.op.done = ring_wait_done, .coro = coro_self()};
    assert(w->coro && "a main stack gives worker_sqe() a callback");
    return worker_sqe(&w->op);
}

int ring_wait(struct ring_wait *w)
{
    if (!w->finished) {
        w->waiting = true;
        coro_wait_for(CORO_SPENT_DISK);
        assert(w->finished && "woken by somebody else");
    }
    return w->result;
}

static void timer_done(struct ring_op *op, int result, uint32_t cqe_flags)
{
    struct worker_timer *timer =
        (struct worker_timer *)((char *)op - offsetof(struct worker_timer, op));
    timer->armed = false;
    timer->expired(timer);
}

void worker_timer_start(struct worker_timer *timer, unsigned ms, void (*expired)(struct worker_timer *))
{
    worker_timer_start_us(timer, ms * UINT64_C(1000), expired);
}

void worker_timer_start_us(struct worker_timer *timer, uint64_t us, void (*expired)(struct worker_timer *))
{
    timer->op.done = timer_done;
    timer->after = (struct __kernel_timespec){.tv_sec = (long long)(us / 1000000),
                                              .tv_nsec = (long long)(us % 1000000) * 1000};
    timer->expired = expired;
    timer->armed = true;
    struct io_uring_sqe *sqe = worker_sqe(&timer->op);
    io_uring_prep_timeout(sqe, &timer->after, 0, 0);
    ring_op_attach(sqe, &timer->op);
}

/* ---- the loop ---- */

static void wake_arm(struct worker *w)
{
    struct io_uring_sqe *sqe = worker_sqe(&w->wake_op);
    io_uring_prep_read(sqe, w->wake_fd, &w->wake_value, sizeof(w->wake_value), 0);
    ring_op_attach(sqe, &w->wake_op);
}

static void wake_done(struct ring_op *op, int result, uint32_t cqe_flags)
{
    wake_arm((struct worker *)((char *)op - offsetof(struct worker, wake_op)));
}

static bool something_left(struct worker *w)
{
    return w->ready.first || w->yielded.first || w->paced.first || w->end_first || w->stashed ||
           atomic_load(&w->inbox) || io_uring_cq_ready(&w->ring);
}

static void submit(struct worker *w)
{
    if (something_left(w)) {
        io_uring_submit_and_get_events(&w->ring);
        return;
    }
    /* Who posts after the flag is set writes to the eventfd; who posted before is seen by the check. */
    atomic_store(&w->sleeping, true);
    if (atomic_load(&w->inbox) || atomic_load(&quitting))
        io_uring_submit_and_get_events(&w->ring);
    else
        io_uring_submit_and_wait(&w->ring, 1);
    atomic_fetch_add(&w->passes, 1);
    atomic_store(&w->sleeping, false);
}

static void loop(struct worker *w)
{
    while (!atomic_load_explicit(&quitting, memory_order_relaxed)) {
        coro_ready_yielded(w);
        coro_run_paced(w);
        run_completions(w);
        run_inbox(w);
        for (unsigned round = 0; round < ROUNDS_MOST; round++) {
            coro_run_ready(w, READY_BUDGET);
            if (!w->end_first)
                break;
            run_pass_end(w);
        }
        submit(w);
    }
}

/* Nothing may write to memory of ours once the ring is gone: ends what is in flight, calling nobody back. */
static void drain(struct worker *w)
{
    for (size_t i = 0; i < w->stashed; i++)
        w->in_flight -= !(w->stash[i].flags & IORING_CQE_F_MORE);
    struct io_uring_sqe *sqe = worker_sqe(NULL);
    io_uring_prep_cancel(sqe, NULL, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
    io_uring_sqe_set_data(sqe, NULL);
    uint64_t end = clock_monotonic_ns() + DRAIN_MS * 1000000ull;
    while (w->in_flight > 0 && clock_monotonic_ns() < end) {
        struct __kernel_timespec wait = {.tv_nsec = 10000000};
        struct io_uring_cqe *first, *cqe;
        io_uring_submit_and_wait_timeout(&w->ring, &first, 1, &wait, NULL);
        unsigned head, seen = 0;
        io_uring_for_each_cqe(&w->ring, head, cqe)
        {
            seen++;
            if (!(cqe->flags & IORING_CQE_F_MORE))
                w->in_flight--;
        }
        io_uring_cq_advance(&w->ring, seen);
    }
}

/* ---- start and stop ---- */

struct starting {
    struct worker *worker;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool reported;
    int error;
};

static int ring_open(struct io_uring *ring)
{
    static const unsigned flags[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN,
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN,
        IORING_SETUP_COOP_TASKRUN,
        0,
    };
    int error = -EINVAL;
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]) && error == -EINVAL; i++) {
        struct io_uring_params params = {
            .flags = flags[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
            .cq_entries = RING_COMPLETIONS,
        };
        error = io_uring_queue_init_params(RING_ENTRIES, ring, &params);
        if (error == 0 && !(params.features & IORING_FEAT_NODROP)) {
            io_uring_queue_exit(ring);
            error = -ENOSYS;
        }
    }
    if (error == 0)
        io_uring_register_ring_fd(
            ring); /* saves a look-up in each call; not having it is no error */
    return error;
}

static void ring_denied(int error)
{
    int disabled = 0;
    FILE *f = fopen("/proc/sys/kernel/io_uring_disabled", "re");
    if (f) {
        if (fscanf(f, "%d", &disabled) != 1)
            disabled = 0;
        fclose(f);
    }
    if (disabled)
        log_error("worker",
                  "io_uring is switched off: sysctl kernel.io_uring_disabled is %d, it must be 0"
                  " (or 1 with this process in the group kernel.io_uring_group)",
                  disabled);
    else if (error == -EPERM || error == -EACCES)
        log_error("worker",
                  "io_uring_setup is not permitted: the seccomp profile of this container or"
                  " service must allow io_uring_setup, io_uring_enter and io_uring_register");
    else if (error == -ENOMEM)
        log_error("worker",
                  "no memory for an io_uring: raise RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK=) or"
                  " the container's memory limit");
    else if (error == -ENOSYS)
        log_error("worker",
                  "no usable io_uring: Linux 6.1 or newer is needed, and a seccomp profile that"
                  " allows its system calls");
    else if (error == -EMFILE || error == -ENFILE)
        log_error("worker",
                  "no file descriptor left for an io_uring: raise RLIMIT_NOFILE (ulimit -n)");
    else
        log_error("worker", "io_uring_setup failed: %s", strerror(-error));
}

static void starting_report(struct starting *s, int error)
{
    pthread_mutex_lock(&s->lock);
    s->error = error;
    s->reported = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void *worker_main(void *arg)
{
    struct starting *starting = arg;
    struct worker *w = starting->worker;
    char name[16];
    snprintf(name, sizeof(name), "worker %u", w->index);
    pthread_setname_np(pthread_self(), name);

    int error = ring_open(&w->ring);
    if (error) {
        starting_report(starting, error);
        return NULL;
    }
    self = w;
    coro_init_worker(w);
    rcu_register_thread();
    w->wake_op.done = wake_done;
    wake_arm(w);
    starting_report(starting, 0);

    loop(w);

    drain(w);
    io_uring_queue_exit(&w->ring);
    coro_free_worker(w);
    free(w->stash);
    rcu_unregister_thread();
    self = NULL;
    return NULL;
}

static int worker_start(unsigned index)
{
    struct worker *w = aligned_alloc(64, (sizeof(*w) + 63) & ~(size_t)63);
    if (!w)
        return -ENOMEM;
    memset(w, 0, sizeof(*w));
    w->index = index;
    w->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (w->wake_fd < 0) {
        int error = -errno;
        free(w);
        return error;
    }
    struct starting starting = {.worker = w};
    pthread_mutex_init(&starting.lock, NULL);
    pthread_cond_init(&starting.changed, NULL);
    int error = thread_start(&w->thread, worker_main, &starting);
    if (error == 0) {
        pthread_mutex_lock(&starting.lock);
        while (!starting.reported)
            pthread_cond_wait(&starting.changed, &starting.lock);
        pthread_mutex_unlock(&starting.lock);
        error = starting.error;
        if (error) {
            pthread_join(w->thread, NULL);
            ring_denied(error);
        }
    }
    pthread_cond_destroy(&starting.changed);
    pthread_mutex_destroy(&starting.lock);
    if (error) {
        close(w->wake_fd);
        free(w);
        return error;
    }
    workers[index] = w;
    return 0;
}

int workers_start(unsigned count)
{
    assert(!workers && "started twice");
    if (count == 0) {
        cpu_set_t cores;
        count = sched_getaffinity(0, sizeof(cores), &cores) ? 1 : (unsigned)CPU_COUNT(&cores);
    }
    workers = calloc(count, sizeof(struct worker *));
    if (!workers)
        return -ENOMEM;
    atomic_store(&quitting, false);
    for (unsigned i = 0; i < count; i++) {
        int error = worker_start(i);
        if (error) {
            workers_stop(0);
            return error;
        }
        worker_total = i + 1;
    }
    return 0;
}

/* True when all workers slept at one instant and no coroutine is left: nothing but the outside can wake them. */
static bool all_quiet(void)
{
    unsigned long long before = 0, after = 0;
    for (unsigned i = 0; i < worker_total; i++) {
        before += atomic_load(&workers[i]->passes);
        if (!atomic_load(&workers[i]->sleeping))
            return false;
    }
    for (unsigned i = 0; i < worker_total; i++) {
        after += atomic_load(&workers[i]->passes);
        if (!atomic_load(&workers[i]->sleeping))
            return false;
    }
    return before == after && coro_count() == 0;
}

void workers_stop(unsigned ms)
{
    uint64_t end = clock_monotonic_ns() + ms * 1000000ull;
    while (clock_monotonic_ns() < end && !all_quiet())
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    atomic_store(&quitting, true);
    for (unsigned i = 0; i < worker_total; i++)
        wake(workers[i]);
    for (unsigned i = 0; i < worker_total; i++)
        pthread_join(workers[i]->thread, NULL);
    for (unsigned i = 0; i < worker_total; i++) {
        close(workers[i]->wake_fd);
        free(workers[i]);
    }
    free(workers);
    workers = NULL;
    worker_total = 0;
}

/* ---- coroutines from outside ---- */

struct call {
    struct task task;
    int (*fn)(void *arg);
    void *arg;
    int result;
    bool finished;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static void call_finish(struct call *call, int result)
{
    pthread_mutex_lock(&call->lock);
    call->result = result;
    call->finished = true;
    pthread_cond_signal(&call->changed);
    pthread_mutex_unlock(&call->lock);
}

static void call_coroutine(void *arg)
{
    struct call *call = arg;
    call_finish(call, call->fn(call->arg));
}

static void call_run(struct task *task)
{
    struct call *call = (struct call *)task;
    int error = coro_start(call_coroutine, call);
    if (error)
        call_finish(call, error);
}

int worker_call(struct worker *w, int (*fn)(void *arg), void *arg)
{
    assert(!worker_self() && "a worker must not block");
    struct call call = {.task.run = call_run, .fn = fn, .arg = arg};
    pthread_mutex_init(&call.lock, NULL);
    pthread_cond_init(&call.changed, NULL);
    worker_post(w, &call.task);
    pthread_mutex_lock(&call.lock);
    while (!call.finished)
        pthread_cond_wait(&call.changed, &call.lock);
    pthread_mutex_unlock(&call.lock);
    pthread_cond_destroy(&call.changed);
    pthread_mutex_destroy(&call.lock);
    return call.result;
}

struct spawn {
    struct task task;
    struct worker_timer retry;
    void (*fn)(void *arg);
    void *arg;
};

static void spawn_again(struct worker_timer *timer);

static void spawn_coroutine(void *arg)
{
    struct spawn spawn = *(struct spawn *)arg;
    free(arg);
    spawn.fn(spawn.arg);
}

static void spawn_run(struct task *task)
{
    struct spawn *spawn = (struct spawn *)task;
    /* Nobody waits for an answer, so at the limit it is tried until there is room. */
    if (coro_start(spawn_coroutine, spawn))
        worker_timer_start(&spawn->retry, SPAWN_RETRY_MS, spawn_again);
}

static void spawn_again(struct worker_timer *timer)
{
    spawn_run(&((struct spawn *)((char *)timer - offsetof(struct spawn, retry)))->task);
}

int worker_spawn(struct worker *w, void (*fn)(void *arg), void *arg)
{
    struct spawn *spawn = malloc(sizeof(*spawn));
    if (!spawn)
        return -ENOMEM;
    spawn->task.run = spawn_run;
    spawn->fn = fn;
    spawn->arg = arg;
    worker_post(w, &spawn->task);
    return 0;
}
