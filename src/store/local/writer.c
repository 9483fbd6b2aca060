#include "store/local/writer.h"

#include <stdlib.h>
#include <string.h>
#include <urcu.h>

#include "sluice/base_thread.h"
#include "store/local/meta_private.h"
#include "store/local/reaper.h"
#include "store/local/seg.h"
#include "store/local/writer_private.h"

enum {
    GROUP_MUTATIONS = 1000,
    GROUP_PAGES = 16000,
    GROUP_NS = 4000000,
    GATHER_NS = 500000,
    IDLE_NS = 1000000000,
    GATHER_REST = 64, /* groups, at most, after waiting in vain */
};

/* In the inbox: the writer has gone. */
static struct mutation closed;

struct worker_list { /* results for one worker */
    struct task *first, *last;
};

/* ---- the queue ---- */

static bool push(struct writer *w, struct mutation *m)
{
    struct mutation *head = atomic_load(&w->inbox);
    m->failed = false;
    atomic_fetch_add(&w->backlog, 1);
    do {
        if (head == &closed) {
            atomic_fetch_sub(&w->backlog, 1);
            return false;
        }
        m->next = head;
    } while (!atomic_compare_exchange_weak(&w->inbox, &head, m));
    if (atomic_load(&w->sleeping) && atomic_load(&w->backlog) >= atomic_load(&w->wanted)) {
        pthread_mutex_lock(&w->lock);
        pthread_cond_signal(&w->wake);
        pthread_mutex_unlock(&w->lock);
    }
    return true;
}

static void wake_coroutine(struct task *task)
{
    coro_wake(caa_container_of(task, struct mutation, task)->coro);
}

int writer_run(struct local *l, struct mutation *m)
{
    m->coro = coro_self();
    if (!m->coro)
        return SL_EWAIT;
    if (atomic_load(&l->frozen))
        return SL_EFROZEN;
    m->finished = NULL;
    m->worker = worker_self();
    m->task.run = wake_coroutine;
    if (!push(l->writer, m))
        return SL_EFROZEN;
    coro_wait_for(CORO_SPENT_META);
    return m->result;
}

void writer_queue(struct local *l, struct mutation *m)
{
    if (push(l->writer, m))
        return;
    m->result = SL_EFROZEN;
    m->finished(m);
}

unsigned writer_backlog(struct local *l)
{
    return atomic_load(&l->writer->backlog);
}

/* Appends what waits to the writer's own list, oldest first. */
static void collect(struct writer *w, struct mutation *replacement)
{
    struct mutation *newest = atomic_exchange(&w->inbox, replacement), *oldest = NULL, *last = newest;
    while (newest) {
        struct mutation *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    if (!oldest)
        return;
    if (w->first)
        w->last->next = oldest;
    else
        w->first = oldest;
    w->last = last;
}

/* ---- results ---- */

static void hand_over(struct writer *w)
{
    for (unsigned i = 0; i < workers_count(); i++) {
        struct worker_list *list = &w->lists[i];
        if (list->first)
            worker_post_list(worker_at(i), list->first, list->last);
        list->first = list->last = NULL;
    }
}

/* Everyone in the list, up to `end`, gets the result (or his own, where error is 0). */
static void deliver(struct writer *w, struct mutation *first, const struct mutation *end, int error)
{
    for (struct mutation *m = first, *next; m != end; m = next) {
        next = m->next;
        m->failed = error != 0;
        if (error)
            m->result = error;
        else
            metric_add(m->result == SL_EREFUSED ? METRIC_mutations_refused : METRIC_mutations, 1);
        atomic_fetch_sub(&w->backlog, 1);
        if (m->finished) {
            m->finished(m);
            continue;
        }
        struct worker_list *list = &w->lists[worker_index(m->worker)];
        m->task.next = NULL;
        if (list->first)
            list->last->next = &m->task;
        else
            list->first = &m->task;
        list->last = &m->task;
    }
    hand_over(w);
}

/* ---- waiting ---- */

/* Until so many wait, or until then. */
static void nap(struct writer *w, unsigned wanted, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000), .tv_nsec = (long)(until_ns % 1000000000)};
    int error = 0;
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->wanted, wanted);
    atomic_store(&w->sleeping, true);
    while ((!atomic_load(&w->inbox) || atomic_load(&w->backlog) < wanted) && !w->quit && !error)
        error = pthread_cond_timedwait(&w->wake, &w->lock, &until);
    atomic_store(&w->sleeping, false);
    pthread_mutex_unlock(&w->lock);
}

/* Clients that go on as soon as they are answered split into two groups, each of which waits while the other is
 * committed.  A short wait for those just answered makes one of them.  Where they do not come in time it was in vain,
 * and is left alone for a while, longer each time. */
static void gather(struct writer *w)
{
    unsigned most = w->together - w->together / 4, wanted = most < GROUP_MUTATIONS ? most : GROUP_MUTATIONS;
    uint64_t wait = w->group_ns / 2 < GATHER_NS ? w->group_ns / 2 : GATHER_NS;
    if (atomic_load(&w->backlog) >= wanted)
        return;
    if (w->rest) {
        w->rest--;
        return;
    }
    nap(w, wanted, clock_monotonic_ns() + wait);
    bool in_vain = atomic_load(&w->backlog) < wanted;
    w->next_rest = !in_vain ? 1 : w->next_rest < GATHER_REST ? w->next_rest * 2 : GATHER_REST;
    w->rest = in_vain ? w->next_rest : 0;
    collect(w, NULL);
}

/* ---- a group ---- */

/* Takes at most GROUP_MUTATIONS off the list. */
static struct mutation *take(struct writer *w)
{
    struct mutation *first = w->first, *m = first;
    for (unsigned i = 1; i < GROUP_MUTATIONS && m->next; i++)
        m = m->next;
    w->first = m->next;
    if (!w->first)
        w->last = NULL;
    m->next = NULL;
    return first;
}

static void give_back(struct writer *w, struct mutation *first)
{
    struct mutation *last = first;
    if (!first)
        return;
    while (last->next)
        last = last->next;
    last->next = w->first;
    if (!w->first)
        w->last = last;
    w->first = first;
}

/* Applies until the group is full; returns the first mutation that is not in it. */
static struct mutation *apply(struct mutation *first, struct meta_txn *t)
{
    uint64_t start = clock_monotonic_ns(), now = start;
    struct mutation *m = first;
    while (m && !t->failed && now - start < GROUP_NS && group_dirty(t->group) < GROUP_PAGES) {
        unsigned before = group_dirty(t->group);
        t->now = group_now(t->local);
        m->result = m->apply(m, t);
        /* Left in its midst: only an abort takes back what it has put. */
        if (m->result < 0 && !t->failed && group_dirty(t->group) != before)
            t->failed = m->result;
        m = m->next;
        now = clock_monotonic_ns();
    }
    metric_add(METRIC_apply_ns, now - start);
    return m;
}

enum outcome {
    COMMITTED,
    NOT_APPLIED, /* an error of LMDB before the commit, or no space: each may be tried alone */
    FAILED,      /* the pool is frozen */
};

static enum outcome not_applied(struct writer *w, struct txn *txn, struct group *g)
{
    txn_write_abort(txn);
    seg_group_done(w->local, false);
    group_free(g);
    return NOT_APPLIED;
}

static enum outcome commit(struct writer *w, struct txn *txn, struct group *g, int *error)
{
    uint64_t start = clock_monotonic_ns();
    *error = txn_write_commit(txn);
    metric_add(METRIC_commit_ns, clock_monotonic_ns() - start);
    if (*error == -ENOSPC && writer_env_is_usable(w->local))
        return not_applied(w, txn, g);
    if (*error) {
        writer_freeze(w, "committing metadata", *error);
        writer_commit_failed(w, g);
        return FAILED;
    }
    seg_group_done(w->local, true);
    if (group_publish(g))
        reaper_freed(w->local);
    group_free(g);
    metric_add(METRIC_groups, 1);
    return COMMITTED;
}

/* The syncs are in flight (synced false) or have been waited for.  *end: the first mutation that is not in the group;
 * *error: why it failed. */
static enum outcome run_group(struct writer *w, struct mutation *first, bool synced, struct mutation **end, int *error)
{
    struct group *g;
    struct txn txn;
    *end = NULL;
    *error = group_begin(w->local, &g, &txn);
    if (*error) {
        if (!synced)
            seg_sync_wait(w->local);
        writer_freeze(w, "beginning a transaction", *error);
        return FAILED;
    }
    *end = apply(first, &txn.t);
    int sync = synced ? 0 : seg_sync_wait(w->local);
    if (sync) {
        not_applied(w, &txn, g);
        writer_freeze(w, "syncing segments", sync);
        *error = sync;
        return FAILED;
    }
    if (!txn.t.failed && group_dirty(g) == 0) { /* everyone was refused */
        not_applied(w, &txn, g);
        return COMMITTED;
    }
    if (!txn.t.failed)
        txn.t.failed = seg_group_flush(&txn.t);
    if (!txn.t.failed)
        group_seal(&txn.t);
    *error = txn.t.failed;
    return *error ? not_applied(w, &txn, g) : commit(w, &txn, g, error);
}

/* One by one, so that one that cannot be applied does not fail its neighbours for ever. */
static void run_singly(struct writer *w, struct mutation *first, const struct mutation *end)
{
    for (struct mutation *m = first, *next, *rest; m != end; m = next) {
        int error;
        next = m->next;
        m->next = NULL;
        enum outcome outcome = atomic_load(&w->local->frozen) ? FAILED : run_group(w, m, true, &rest, &error);
        deliver(w, m, NULL, outcome == COMMITTED ? 0 : outcome == FAILED ? -EIO : error);
    }
}

static void group(struct writer *w)
{
    gather(w);
    uint64_t start = clock_monotonic_ns();
    struct mutation *first = take(w), *end;
    int error = seg_sync_start(w->local);
    if (error) {
        metric_add(METRIC_group_failures, 1);
        writer_freeze(w, "syncing segments", error);
        seg_retire_open(w->local);
        deliver(w, first, NULL, -EIO);
        return;
    }
    enum outcome outcome = run_group(w, first, false, &end, &error);
    if (outcome == COMMITTED) {
        give_back(w, end);
        w->together = atomic_load(&w->backlog);
        w->group_ns = clock_monotonic_ns() - start;
        deliver(w, first, end, 0);
        return;
    }
    metric_add(METRIC_group_failures, 1);
    give_back(w, end);
    if (outcome == NOT_APPLIED && first->next != end)
        run_singly(w, first, end);
    else
        deliver(w, first, end, outcome == FAILED ? -EIO : error);
}

/* ---- the thread ---- */

static void fail_all(struct writer *w)
{
    struct mutation *first = w->first;
    w->first = w->last = NULL;
    deliver(w, first, NULL, SL_EFROZEN);
}

static bool is_quitting(struct writer *w)
{
    pthread_mutex_lock(&w->lock);
    bool quit = w->quit;
    pthread_mutex_unlock(&w->lock);
    return quit;
}

static void *writer_main(void *arg)
{
    struct writer *w = arg;
    pthread_setname_np(pthread_self(), "writer");
    rcu_register_thread();
    for (;;) {
        collect(w, NULL);
        bool frozen = atomic_load(&w->local->frozen);
        if (frozen && clock_monotonic_ns() >= w->probe_at)
            writer_probe(w);
        else if (w->first && frozen)
            fail_all(w);
        else if (w->first)
            group(w);
        else if (is_quitting(w))
            break;
        else
            nap(w, 1, clock_monotonic_ns() + IDLE_NS);
    }
    collect(w, &closed);
    fail_all(w);
    if (w->undecided)
        seg_group_done(w->local, false);
    group_free(w->undecided);
    rcu_unregister_thread();
    return NULL;
}

int writer_start(struct local *l)
{
    struct writer *w = calloc(1, sizeof(*w));
    if (w)
        w->lists = calloc(workers_count() + (size_t)1, sizeof(*w->lists));
    if (!w || !w->lists) {
        free(w);
        return -ENOMEM;
    }
    w->local = l;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    l->writer = w;
    int error = thread_start(&w->thread, writer_main, w);
    if (error) {
        l->writer = NULL;
        free(w->lists);
        free(w);
    }
    return error;
}

void writer_stop(struct local *l)
{
    struct writer *w = l->writer;
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    w->thread = 0;
}

void writer_free(struct local *l)
{
    struct writer *w = l->writer;
    if (!w)
        return;
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->wake);
    free(w->lists);
    free(w);
    l->writer = NULL;
}
