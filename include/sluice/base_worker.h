/* Workers: one thread a core, each with one io_uring for its sockets and its storage I/O.
 * A worker's pass: hand finished operations to their ring_op, run posted tasks and ready coroutines, run the
 * end-of-pass tasks (which gather replies and merge writes), submit everything with one io_uring_enter.
 * Nothing that runs on a worker blocks.  Every worker thread is registered with liburcu (the default
 * flavour, urcu.h) and outside any read section between callbacks. */
#ifndef SLUICE_BASE_WORKER_H
#define SLUICE_BASE_WORKER_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "sluice/base_coro.h"

struct worker;

/* Starts `count` workers; with count 0 one for each core that this process may use.  Main thread, once.
 * Errors: what io_uring_setup or pthread_create say; logs which setting is in the way when io_uring is
 * denied (io_uring_disabled, a container profile, RLIMIT_MEMLOCK). */
int workers_start(unsigned count);
/* Stops the loops when no coroutine is left and all workers sleep, or after `ms` milliseconds; joins the threads,
 * frees all.  Operations still in the rings are cancelled and their done() is not called; tasks not run by then
 * never are, so nobody may be in worker_call().  Before blocking_stop(). */
void workers_stop(unsigned ms);

unsigned workers_count(void);
struct worker *worker_at(unsigned index);
struct worker *worker_self(void); /* NULL on other threads */
unsigned worker_index(const struct worker *w);

/* ---- one operation on the ring ---- */

/* Embedded in whatever waits for a completion; done() runs on the worker's main stack, once for each
 * completion (multishot: several; IORING_CQE_F_MORE in flags says so). */
struct ring_op {
    void (*done)(struct ring_op *op, int result, uint32_t cqe_flags);
};

/* An entry of the calling worker's ring with its user data set to `op`; fill it with io_uring_prep_*, which
 * keep user data as set here (liburing 2.3: set it again with io_uring_sqe_set_data after prep).  Submitted
 * at the end of the pass.  Never NULL: a full queue is submitted first. */
struct io_uring_sqe *worker_sqe(struct ring_op *op);

/* Attaches op to sqe after an io_uring_prep_* call. */
static inline void ring_op_attach(struct io_uring_sqe *sqe, struct ring_op *op)
{
    io_uring_sqe_set_data(sqe, op);
}

/* The same for a coroutine: start any number of these, then wait for each. */
struct ring_wait {
    struct ring_op op;
    struct coro *coro;
    int result;
    bool finished, waiting;
};
struct io_uring_sqe *ring_wait_sqe(struct ring_wait *w); /* after prep: ring_op_attach(sqe, &w->op) */
int ring_wait(struct ring_wait *w); /* the result, as io_uring gives it; counts as CORO_SPENT_DISK */

/* Makes room for `entries` (at most 4,096) so that the next worker_sqe() calls do not submit in between: before
 * entries that are linked with IOSQE_IO_LINK, or fetched before an earlier one is filled in. */
void worker_reserve(unsigned entries);

/* Submits what is queued when that is `entries` or more, so that a device has work while the rest of the pass is being
 * computed.  What was fetched from worker_sqe() must be filled in. */
void worker_submit_from(unsigned entries);

/* For registering files and buffers; own worker's thread only.  Entries come from worker_sqe(). */
struct io_uring *worker_ring(struct worker *w);

/* ---- messages, timers, hooks ---- */

struct task {
    struct task *next;
    void (*run)(struct task *task); /* on the worker's main stack; may free the task */
};

/* Hands over one task, or a list linked by next (first..last).  Any thread; one wake-up a call at most, none
 * when the worker is awake. */
void worker_post(struct worker *w, struct task *task);
void worker_post_list(struct worker *w, struct task *first, struct task *last);

/* Runs the task at the end of the current pass, before submission.  Own worker only. */
void worker_at_pass_end(struct task *task);

struct worker_timer {
    struct ring_op op;
    struct __kernel_timespec after;
    void (*expired)(struct worker_timer *timer);
    bool armed;
};
/* Calls expired() on this worker once, after `ms`.  The memory must stay until then. */
void worker_timer_start(struct worker_timer *timer, unsigned ms, void (*expired)(struct worker_timer *));
void worker_timer_start_us(struct worker_timer *timer, uint64_t us, void (*expired)(struct worker_timer *));

/* Runs fn(arg) in a coroutine of w and blocks the calling thread until it returns; gives back its result.
 * From threads that are no workers: the control loop's pool, import threads, tests.  -EAGAIN when no
 * coroutine could be started. */
int worker_call(struct worker *w, int (*fn)(void *arg), void *arg);

/* Starts fn(arg) in a coroutine of w without waiting.  Any thread.  -ENOMEM. */
int worker_spawn(struct worker *w, void (*fn)(void *arg), void *arg);

/* ---- calls that block ---- */

/* Threads for system calls that cannot be made asynchronous (started on demand, at most `threads`, default 8;
 * registered with liburcu).  blocking_run: called by a coroutine, which waits for fn(arg) to be done there. */
void blocking_set_limit(unsigned threads);
void blocking_run(void (*fn)(void *arg), void *arg);
/* From any thread, not waited for.  -ENOMEM, -EAGAIN when there is no thread for it. */
int blocking_spawn(void (*fn)(void *arg), void *arg);
void blocking_stop(void); /* waits for what is queued, ends the threads */

/* CLOCK_MONOTONIC in nanoseconds, and the coarse CLOCK_REALTIME that file times use. */
uint64_t clock_monotonic_ns(void);
void clock_realtime_coarse(struct timespec *now);

#endif
