/* Coroutines: code that waits (for a disk read, a commit) and still reads from top to bottom.
 * A coroutine belongs to the worker that started it and only ever runs there.  Stacks are 64 KiB (256 in
 * sanitizer builds) with a guard page, pooled per worker; the switch makes no system call; ASan and valgrind
 * are told of each stack.  No RCU section, no LMDB transaction and no pointer into either may live across
 * coro_wait(), or anything that calls it. */
#ifndef SLUICE_BASE_CORO_H
#define SLUICE_BASE_CORO_H

#include <stdbool.h>
#include <stdint.h>

struct coro;

/* Most coroutines at once in the process (default 20,000).  Before workers_start(). */
void coro_set_limit(unsigned limit);
unsigned coro_count(void); /* how many exist now, all workers together */

/* Starts fn(arg) on the calling worker, at once, until its first wait or its end.  May be called from a
 * coroutine or from the worker's main stack.  -EAGAIN at the limit, -ENOMEM. */
int coro_start(void (*fn)(void *arg), void *arg);

/* The running coroutine, or NULL on a worker's main stack and on threads that are not workers. */
struct coro *coro_self(void);

/* Suspends the running coroutine until somebody wakes it.  Each wake ends one wait.  Must not be called
 * with coro_self() == NULL. */
void coro_wait(void);

/* The same, and the time that it takes counts as spent on that. */
enum coro_spent {
    CORO_SPENT_GATE, /* its turn under a volume's limits */
    CORO_SPENT_META, /* a group's commit, metadata */
    CORO_SPENT_DISK, /* reads and writes of data */
    CORO_SPENTS
};
void coro_wait_for(enum coro_spent what);
/* Nanoseconds that the running coroutine has waited so since it started: CORO_SPENTS of them. */
const uint64_t *coro_spent(void);

/* Makes c ready; it runs later in the same pass of its worker (in the next one after some thousand others).
 * From c's own worker only.  c must be waiting, or about to wait without anything in between that could run
 * the loop. */
void coro_wake(struct coro *c);

/* The same from any thread; a message to c's worker.  At most one at a time for a coroutine. */
void coro_wake_remote(struct coro *c);

/* Lets everything else that is ready run, then goes on. */
void coro_yield(void);

/* Before each piece of a long computation, of so many bytes: a worker does a bounded number of them in a pass, and what
 * has come meanwhile in between.  Who has begun goes on first.  Nothing on a main stack. */
void coro_pace(unsigned bytes, bool begun);

/* Suspends for about `ms` milliseconds. */
void coro_sleep(unsigned ms);

/* A lock between coroutines of any workers, first come first served.  It may be held across waits; never
 * take it on a main stack (try instead).  Initialise with zeroes. */
struct coro_mutex {
    int spin;            /* guards the fields below, held for a few instructions */
    bool held;
    struct coro_mutex_waiter *first, *last;
};
void coro_mutex_lock(struct coro_mutex *m);
bool coro_mutex_try(struct coro_mutex *m);
void coro_mutex_unlock(struct coro_mutex *m);

#endif
