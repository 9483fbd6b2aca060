/* What coro.c and worker.c know of each other.  Everything here belongs to the worker's own thread, except
 * the inbox and the counters marked atomic. */
#ifndef SLUICE_BASE_WORKER_PRIVATE_H
#define SLUICE_BASE_WORKER_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "sluice/base_worker.h"

/* A stack that code runs on: a coroutine, or the worker's main stack (fn == NULL). */
struct coro {
    void *stack_pointer; /* while suspended */
    struct worker *worker;
    struct coro *resumer;       /* who goes on when this one waits or ends */
    struct coro *next;          /* in the ready, yielded or pool list */
    struct coro *older, *newer; /* all of the worker's, the pooled ones included */
    void (*fn)(void *arg);
    void *arg;
    struct task remote_wake;
    uint8_t *mapping; /* guard page first; this struct lies at the end */
    const void *bottom;
    size_t size;
    bool queued, ended;
    void *fake_stack; /* ASan */
    void *tsan_fiber; /* TSan */
    unsigned valgrind_id;
    uint64_t spent[CORO_SPENTS]; /* ns */
};

struct coro_queue {
    struct coro *first, *last;
};

struct stashed_cqe {
    uint64_t user_data;
    int32_t result;
    uint32_t flags;
};

struct worker {
    struct io_uring ring;
    unsigned index;
    pthread_t thread;

    struct coro main;
    struct coro *current;
    struct coro_queue ready;
    struct coro_queue yielded; /* ready again from the next pass on */
    struct coro_queue paced;   /* in the midst of long computations */
    uint64_t paced_bytes;      /* of those in this pass */
    struct coro *all;
    struct coro *pool;
    unsigned pooled;

    struct task *end_first, *end_last;
    int64_t in_flight;

    /* Completions taken off the ring while the queue was being submitted from within a callback. */
    struct stashed_cqe *stash;
    size_t stashed, stash_room;

    int wake_fd;
    uint64_t wake_value;
    struct ring_op wake_op;

    _Alignas(64) _Atomic(struct task *) inbox; /* newest first */
    atomic_bool sleeping;
    atomic_ullong passes;
};

/* Coroutines of the process; also asked by workers_stop(). */
void coro_init_worker(struct worker *w);
void coro_free_worker(struct worker *w);
/* Runs what is ready, at most `budget` resumptions. */
void coro_run_ready(struct worker *w, unsigned budget);
/* Begins a pass: as many pieces of long computations as one may have. */
void coro_run_paced(struct worker *w);
/* Those that yielded in the last pass become ready. */
void coro_ready_yielded(struct worker *w);

#endif
