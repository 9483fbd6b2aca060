/* What writer.c and probe.c share. */
#ifndef SLUICE_STORE_LOCAL_WRITER_PRIVATE_H
#define SLUICE_STORE_LOCAL_WRITER_PRIVATE_H

#include <pthread.h>

#include "store/local/meta_private.h"
#include "store/local/writer.h"

struct writer {
    struct local *local;
    pthread_t thread;
    _Atomic(struct mutation *) inbox; /* newest first */
    atomic_uint backlog; /* what waits, and what the group has that is being committed */
    atomic_bool sleeping;
    atomic_uint wanted; /* while sleeping: until so many wait */
    pthread_mutex_t lock; /* for sleeping, and for the reason */
    pthread_cond_t wake;
    bool quit;
    char reason[160];
    /* The writer thread's own. */
    struct mutation *first, *last;
    struct worker_list *lists;
    uint64_t probe_at; /* CLOCK_MONOTONIC, ns */
    uint64_t group_ns; /* what the last group took */
    unsigned together; /* how many waited when it ended, its own included */
    unsigned rest, next_rest; /* groups without waiting for more */
    struct group *undecided;
};

/* No changes from now on; the next probe comes in a second. */
void writer_freeze(struct writer *w, const char *what, int error);
/* After a commit that failed: takes the group.  If LMDB has given up, whether the group is on disk will be known when
 * the environment has been opened again. */
void writer_commit_failed(struct writer *w, struct group *g);
/* A failed write of LMDB's meta page makes every later begin fail until the environment is opened again. */
bool writer_env_is_usable(struct local *l);
/* Tries whether the pool works again, and ends the freeze if it does. */
void writer_probe(struct writer *w);

#endif
