#include <stdio.h>
#include <string.h>

#include "store/local/reaper.h"
#include "store/local/seg.h"
#include "store/local/writer_private.h"

enum { PROBE_NS = 1000000000 };

void writer_freeze(struct writer *w, const char *what, int error)
{
    pthread_mutex_lock(&w->lock);
    snprintf(w->reason, sizeof(w->reason), "%s: %s", what, sl_strerror(error));
    pthread_mutex_unlock(&w->lock);
    if (!atomic_exchange(&w->local->frozen, true))
        log_error("writer", "%s: %s; the pool takes no changes until a probe succeeds", what, sl_strerror(error));
    w->probe_at = clock_monotonic_ns() + PROBE_NS;
}

void writer_reason(struct local *l, char reason[160])
{
    struct writer *w = l->writer;
    pthread_mutex_lock(&w->lock);
    memcpy(reason, w->reason, sizeof(w->reason));
    pthread_mutex_unlock(&w->lock);
}

bool writer_env_is_usable(struct local *l)
{
    struct txn txn;
    if (txn_write_begin(l, &txn))
        return false;
    txn_write_abort(&txn);
    return true;
}

static void decide(struct writer *w, bool committed)
{
    struct group *g = w->undecided;
    w->undecided = NULL;
    if (committed) {
        seg_group_found(w->local);
    } else {
        seg_group_done(w->local, false);
        seg_retire_open(w->local);
    }
    if (committed && group_publish(g))
        reaper_freed(w->local);
    group_free(g);
}

void writer_commit_failed(struct writer *w, struct group *g)
{
    w->undecided = g;
    if (writer_env_is_usable(w->local))
        decide(w, false);
    else
        w->probe_at = 0; /* readers cannot begin either: at once */
}

/* *found: the undecided group is on disk. */
static int reopen(struct writer *w, bool *found)
{
    uint64_t last;
    *found = w->undecided;
    if (writer_env_is_usable(w->local))
        return 0;
    int error = meta_reopen(w->local, &last);
    if (error)
        return error;
    log_notice("writer", "the metadata has been opened again");
    *found = w->undecided && last >= group_txn_id(w->undecided);
    if (w->undecided && !*found)
        decide(w, false);
    if (!w->undecided) /* what is newer than the last group are probes */
        atomic_store(&w->local->meta->published, last);
    return 0;
}

/* A commit of its own.  Where the undecided group is on disk it is made durable with it, and may then be seen. */
static int probe_commit(struct writer *w, bool found)
{
    struct meta *m = w->local->meta;
    struct txn txn;
    uint64_t now = clock_monotonic_ns();
    int error = txn_write_begin(w->local, &txn);
    if (error)
        return error;
    uint64_t id = txn_id(&txn);
    error = meta_system_put(&txn.t, "probe", &now, sizeof(now));
    if (error)
        txn_write_abort(&txn);
    else
        error = txn_write_commit(&txn);
    if (error)
        return error;
    if (found)
        decide(w, true);
    atomic_store(&m->published, id);
    return 0;
}

static int probe(struct writer *w, const char **what)
{
    bool found;
    *what = "opening the metadata again";
    int error = reopen(w, &found);
    if (error)
        return error;
    *what = "a probe of the segments";
    error = seg_probe(w->local);
    if (error)
        return error;
    *what = "a probe of the metadata";
    error = probe_commit(w, found);
    if (error && reopen(w, &found)) /* so that reads go on meanwhile */
        log_error("writer", "the metadata cannot be opened again");
    return error;
}

void writer_probe(struct writer *w)
{
    const char *what;
    int error = probe(w, &what);
    if (error) {
        writer_freeze(w, what, error);
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->reason[0] = 0;
    pthread_mutex_unlock(&w->lock);
    atomic_store(&w->local->frozen, false);
    log_notice("writer", "the pool takes changes again");
}
