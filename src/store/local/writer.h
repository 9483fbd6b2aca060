/* The writer: the one thread that changes metadata.  It takes the mutations that wait, applies them one after another
 * in one LMDB transaction while the segments written so far are fdatasynced, commits when both are done, publishes to
 * the tables, and hands the results back in batches: one group.  POOL.md, "A group", is the specification. */
#ifndef SLUICE_STORE_LOCAL_WRITER_H
#define SLUICE_STORE_LOCAL_WRITER_H

#include "store/local/meta.h"

struct mutation {
    struct mutation *next;
    /* Runs on the writer, in the group's transaction.  A refusal (any negative return) should come before the first
     * put: later it aborts the whole group.  May run more than once (when its group is aborted); must not keep results
     * of an earlier run. */
    int (*apply)(struct mutation *m, struct meta_txn *t);
    int result;
    bool failed; /* the writer's: the group failed, and what apply saw and did has never come to pass */
    struct coro *coro;
    void (*finished)(struct mutation *m); /* instead of coro: called on the writer thread after publication */
    struct task task;      /* the writer's: wakes coro on its worker */
    struct worker *worker;
};

/* Queues and waits until the group is durable and published (or has failed).  Coroutine only: SL_EWAIT elsewhere.
 * The segment writes that the mutation refers to have completed before.  Returns m->result. SL_EFROZEN. */
int writer_run(struct local *l, struct mutation *m);
/* Without waiting; m->finished is called.  Any thread. */
void writer_queue(struct local *l, struct mutation *m);

int writer_start(struct local *l);
/* Finishes what is queued; later mutations fail with SL_EFROZEN. */
void writer_stop(struct local *l);
/* After writer_stop(), when nobody can call any more. */
void writer_free(struct local *l);

/* Why the pool is frozen, or "". */
void writer_reason(struct local *l, char reason[160]);

/* The size of the queue, for those who want to stay out of the way. */
unsigned writer_backlog(struct local *l);

#endif
