#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <urcu.h>

#include "store/local/holds.h"
#include "store/local/meta_private.h"
#include "store/local/reaper_private.h"
#include "store/local/seg.h"

enum kind { ORPHANS = 1, CUTS = 2, VERSIONS = 4, FREED = 8, COMPACT = 16, TABLES = 32, EVERYTHING = 63 };

enum {
    TREES_MOST = 64,
    BACKLOG_HIGH = 64,
    POLITE_MS = 10,        /* waits that long at most before a step when many others wait */
    FREED_EVERY_MS = 1000, /* until then neighbours add up */
    KEPT_EVERY_MS = 5000,  /* so often what lay in segments that were being written is looked at again */
    FREED_NAP_MS = 20,
    RETRY_MS = 500,
    RETRY_NAP_MS = 50,
};

struct waiter {
    struct waiter *next;
    struct coro *coro;
    enum kind kind; /* CUTS: one was worked off, or none are left; EVERYTHING: nothing is left */
    int result;
};

struct reaper {
    struct local *local;
    atomic_uint pending; /* enum kind: what may have work */
    atomic_uint told_orphans, told_cuts;
    struct orphan_cursor orphan;
    struct cut_cursor cut;
    struct freed_cursor freed;
    uint64_t freed_since, kept_since; /* the last pass over the free list, and the last one from its beginning */

    pthread_mutex_t lock;
    pthread_cond_t ended;
    struct coro *coro;
    bool sleeping, stop, has_ended;
    uint32_t trees[TREES_MOST]; /* that may have orphans */
    unsigned tree_count;
    bool all_trees;    /* any may: they are gone through by number */
    uint32_t all_from; /* the last one seen */
    struct waiter *waiters;
};

/* ---- who tells the reaper ---- */

static void wake(struct reaper *r)
{
    pthread_mutex_lock(&r->lock);
    bool was_sleeping = r->sleeping;
    r->sleeping = false;
    pthread_mutex_unlock(&r->lock);
    if (was_sleeping)
        coro_wake_remote(r->coro);
}

static void tell(struct reaper *r, unsigned kinds)
{
    /* Whoever set the bits before has woken it, or it has not looked yet. */
    if ((atomic_fetch_or(&r->pending, kinds) & kinds) != kinds)
        wake(r);
}

static void trees_add(struct reaper *r, uint32_t tree)
{
    pthread_mutex_lock(&r->lock);
    bool known = r->all_trees && r->all_from < tree;
    for (unsigned i = 0; i < r->tree_count && !known; i++)
        known = r->trees[i] == tree;
    if (!known && r->tree_count < TREES_MOST) {
        r->trees[r->tree_count++] = tree;
    } else if (!known) {
        r->all_trees = true;
        r->all_from = 0;
        r->tree_count = 0;
    }
    pthread_mutex_unlock(&r->lock);
}

void reaper_orphan(struct local *l, uint32_t tree, uint64_t ino)
{
    (void)ino; /* the orphan directory names it */
    rcu_read_lock();
    struct reaper *r = rcu_dereference(l->reaper);
    if (r) {
        atomic_fetch_add(&r->told_orphans, 1);
        trees_add(r, tree);
        tell(r, ORPHANS);
    }
    rcu_read_unlock();
}

void reaper_orphans(struct local *l)
{
    rcu_read_lock();
    struct reaper *r = rcu_dereference(l->reaper);
    if (r) {
        pthread_mutex_lock(&r->lock);
        r->all_trees = true;
        r->all_from = 0;
        pthread_mutex_unlock(&r->lock);
        tell(r, ORPHANS);
    }
    rcu_read_unlock();
}

void reaper_cut(struct local *l, uint32_t tree, uint64_t ino)
{
    (void)tree, (void)ino; /* a record names it */
    rcu_read_lock();
    struct reaper *r = rcu_dereference(l->reaper);
    if (r) {
        atomic_fetch_add(&r->told_cuts, 1);
        tell(r, CUTS);
    }
    rcu_read_unlock();
}

static void tell_if_there(struct local *l, unsigned kinds)
{
    rcu_read_lock();
    struct reaper *r = rcu_dereference(l->reaper);
    if (r)
        tell(r, kinds);
    rcu_read_unlock();
}

void reaper_versions(struct local *l)
{
    tell_if_there(l, VERSIONS);
}

void reaper_tables(struct local *l)
{
    tell_if_there(l, TABLES);
}

void reaper_freed(struct local *l)
{
    tell_if_there(l, FREED);
}

uint64_t reaper_backlog(struct local *l)
{
    uint64_t count = 0;
    rcu_read_lock();
    struct reaper *r = rcu_dereference(l->reaper);
    if (r) {
        unsigned other = atomic_load(&r->pending) & (VERSIONS | FREED | COMPACT);
        count = (uint64_t)atomic_load(&r->told_orphans) + atomic_load(&r->told_cuts) +
                (unsigned)__builtin_popcount(other);
    }
    rcu_read_unlock();
    return count;
}

/* ---- who waits for the reaper ---- */

/* Has the reaper look at this kind of work; false when there is none any more to do so. */
static bool enlist(struct local *l, struct waiter *w)
{
    rcu_read_lock();
    struct reaper *r = rcu_dereference(l->reaper);
    if (r) {
        pthread_mutex_lock(&r->lock);
        w->next = r->waiters;
        r->waiters = w;
        if (w->kind == EVERYTHING) {
            r->all_trees = true;
            r->all_from = 0;
        }
        /* Within the lock: what it says from now on is said after it has looked. */
        atomic_fetch_or(&r->pending, w->kind);
        pthread_mutex_unlock(&r->lock);
        wake(r);
    }
    rcu_read_unlock();
    return r != NULL;
}

/* 0 when it says something of this kind of work, or why it does not. */
static int wait_for(struct local *l, enum kind kind)
{
    struct waiter w = {.coro = coro_self(), .kind = kind};
    if (!enlist(l, &w))
        return SL_EFROZEN;
    coro_wait();
    return w.result;
}

static struct waiter *waiters_take(struct reaper *r, enum kind kind)
{
    struct waiter *taken = NULL;
    for (struct waiter **at = &r->waiters; *at;) {
        struct waiter *w = *at;
        if (w->kind == kind) {
            *at = w->next;
            w->next = taken;
            taken = w;
        } else {
            at = &w->next;
        }
    }
    return taken;
}

static void wake_list(struct waiter *woken, int result)
{
    while (woken) {
        struct waiter *w = woken; /* its memory is gone once it runs */
        woken = w->next;
        w->result = result;
        coro_wake_remote(w->coro);
    }
}

static void wake_waiters(struct reaper *r, enum kind kind, int result)
{
    pthread_mutex_lock(&r->lock);
    struct waiter *woken = waiters_take(r, kind);
    pthread_mutex_unlock(&r->lock);
    wake_list(woken, result);
}

static void wake_settled(struct reaper *r)
{
    pthread_mutex_lock(&r->lock);
    struct waiter *woken = atomic_load(&r->pending) == 0 ? waiters_take(r, EVERYTHING) : NULL;
    pthread_mutex_unlock(&r->lock);
    wake_list(woken, 0);
}

int reaper_wait_cuts(struct local *l, uint32_t tree, uint64_t ino)
{
    struct inode inode;
    if (!coro_self())
        return SL_EWAIT;
    for (;;) {
        int rc = meta_get_inode(l, tree, ino, &inode);
        if (rc == -ESTALE || (!rc && (inode.cut_count == 0 || (!inode.nlink && !holds_keeps(l, tree, ino)))))
            return 0;
        if (!rc)
            rc = wait_for(l, CUTS);
        if (rc)
            return rc;
    }
}

int reaper_settle(struct local *l)
{
    if (!coro_self())
        return SL_EWAIT;
    return wait_for(l, EVERYTHING);
}

/* ---- the work ---- */

/* With many changes waiting the reaper lets them go first, for a while. */
static void be_polite(struct reaper *r)
{
    for (unsigned ms = 0; ms < POLITE_MS && writer_backlog(r->local) > BACKLOG_HIGH; ms++)
        coro_sleep(1);
}

/* Takes one tree to look at; 0: none is left. */
static uint32_t trees_take(struct reaper *r)
{
    uint32_t tree = 0;
    pthread_mutex_lock(&r->lock);
    if (r->tree_count)
        tree = r->trees[--r->tree_count];
    uint32_t from = r->all_from;
    bool all = r->all_trees;
    pthread_mutex_unlock(&r->lock);
    if (tree || !all)
        return tree;
    uint32_t next = trees_next_volume(r->local, from); /* nothing is to be done in a snapshot */
    pthread_mutex_lock(&r->lock);
    /* Unless it was told meanwhile to begin again. */
    if (r->all_from == from) {
        r->all_from = next;
        r->all_trees = next != 0;
        tree = next;
    }
    all = r->all_trees;
    pthread_mutex_unlock(&r->lock);
    return tree || !all ? tree : trees_take(r);
}

static int do_orphans(struct reaper *r, bool *more)
{
    unsigned told = atomic_load(&r->told_orphans);
    if (!r->orphan.tree)
        r->orphan = (struct orphan_cursor){.tree = trees_take(r)};
    uint32_t tree = r->orphan.tree;
    bool more_here = false;
    int rc = tree ? reap_orphans(r->local, &r->orphan, &more_here) : 0;
    if (rc)
        trees_add(r, tree);
    else if (!tree)
        atomic_fetch_sub(&r->told_orphans, told);
    if (rc || !more_here)
        r->orphan.tree = 0;
    *more = tree != 0;
    return rc;
}

static int do_cuts(struct reaper *r, bool *more)
{
    bool finished;
    unsigned told = atomic_load(&r->told_cuts);
    int rc = reap_cuts(r->local, &r->cut, &finished, more);
    if (!rc && !*more)
        atomic_fetch_sub(&r->told_cuts, told);
    if (rc || finished || !*more)
        wake_waiters(r, CUTS, rc);
    return rc;
}

/* Somebody waits for the end of all work. */
static bool is_settling(struct reaper *r)
{
    bool found = false;
    pthread_mutex_lock(&r->lock);
    for (const struct waiter *w = r->waiters; w; w = w->next)
        found |= w->kind == EVERYTHING;
    pthread_mutex_unlock(&r->lock);
    return found;
}

static bool freed_is_due(struct reaper *r)
{
    return clock_monotonic_ns() - r->freed_since >= FREED_EVERY_MS * 1000000ull || is_settling(r);
}

static int do_freed(struct reaper *r, bool *more)
{
    bool all = is_settling(r);
    uint64_t now = clock_monotonic_ns();
    bool due = !r->freed.more && now - r->kept_since >= KEPT_EVERY_MS * 1000000ull;
    if (r->freed.kept && (all || due))
        memset(&r->freed, 0, sizeof(r->freed));
    if (!r->freed.serial)
        r->kept_since = now;
    int rc = reap_freed(r->local, &r->freed, all, more);
    if (!rc && !*more) {
        r->freed_since = clock_monotonic_ns();
        atomic_fetch_or(&r->pending, r->freed.kept ? COMPACT | FREED : COMPACT);
    }
    return rc;
}

static int do_compact(struct reaper *r, bool *more)
{
    int rc = seg_compact_step(r->local);
    *more = rc > 0;
    return rc < 0 ? rc : 0;
}

static int do_versions(struct reaper *r, bool *more)
{
    return reap_versions(r->local, more);
}

static int do_tables(struct reaper *r, bool *more)
{
    *more = tables_forget_step(r->local->meta);
    return 0;
}

/* A step of each kind that may have work.  The first error, after all have had their turn. */
static int round_of_steps(struct reaper *r)
{
    static const struct {
        enum kind kind;
        int (*step)(struct reaper *r, bool *more);
    } steps[] = {
        {CUTS, do_cuts},   {ORPHANS, do_orphans}, {VERSIONS, do_versions},
        {FREED, do_freed}, {COMPACT, do_compact}, {TABLES, do_tables},
    };
    unsigned work = atomic_exchange(&r->pending, 0), left = 0;
    int error = 0;
    if (work & FREED && !freed_is_due(r)) {
        work &= ~(unsigned)FREED;
        left |= FREED;
    }
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (!(work & steps[i].kind))
            continue;
        bool more = false;
        be_polite(r);
        int rc = steps[i].step(r, &more);
        if (rc && !error)
            error = rc;
        if (rc || more)
            left |= steps[i].kind;
    }
    atomic_fetch_or(&r->pending, left);
    return error;
}

static bool is_stopping(struct reaper *r)
{
    pthread_mutex_lock(&r->lock);
    bool stop = r->stop;
    pthread_mutex_unlock(&r->lock);
    return stop;
}

static void sleep_until_told(struct reaper *r)
{
    pthread_mutex_lock(&r->lock);
    bool sleep = !r->stop && atomic_load(&r->pending) == 0;
    r->sleeping = sleep;
    pthread_mutex_unlock(&r->lock);
    if (sleep)
        coro_wait();
}

/* After an error the pool will not take changes for a while, or one thing is broken; neither is helped by haste. */
static void sleep_after(struct reaper *r, int error)
{
    if (error != SL_EFROZEN)
        log_warning("reaper", "background work failed and will be tried again: %s",
                    sl_strerror(error));
    wake_waiters(r, EVERYTHING, error);
    for (unsigned ms = 0; ms < RETRY_MS && !is_stopping(r); ms += RETRY_NAP_MS)
        coro_sleep(RETRY_NAP_MS);
}

static void reaper_main(void *arg)
{
    struct reaper *r = arg;
    r->coro = coro_self();
    while (!is_stopping(r)) {
        int error = round_of_steps(r);
        unsigned pending = atomic_load(&r->pending);
        if (error) {
            sleep_after(r, error);
        } else if (pending == 0) {
            wake_settled(r);
            sleep_until_told(r);
        } else if (pending == FREED && !freed_is_due(r)) {
            coro_sleep(FREED_NAP_MS);
        } else {
            coro_yield();
        }
    }
    pthread_mutex_lock(&r->lock);
    r->has_ended = true;
    pthread_cond_signal(&r->ended);
    pthread_mutex_unlock(&r->lock);
}

int reaper_start(struct local *l)
{
    struct reaper *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->local = l;
    r->all_trees = true;
    atomic_init(&r->pending, EVERYTHING);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->ended, NULL);
    rcu_assign_pointer(l->reaper, r);
    int rc = worker_spawn(worker_at(workers_count() - 1), reaper_main, r);
    if (rc) {
        rcu_assign_pointer(l->reaper, NULL);
        synchronize_rcu();
        free(r);
    }
    return rc;
}

void reaper_stop(struct local *l)
{
    struct reaper *r = l->reaper;
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_mutex_unlock(&r->lock);
    wake(r);
    pthread_mutex_lock(&r->lock);
    while (!r->has_ended)
        pthread_cond_wait(&r->ended, &r->lock);
    pthread_mutex_unlock(&r->lock);
    rcu_assign_pointer(l->reaper, NULL);
    synchronize_rcu();
    wake_waiters(r, CUTS, SL_EFROZEN);
    wake_waiters(r, EVERYTHING, SL_EFROZEN);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->ended);
    free(r);
}
