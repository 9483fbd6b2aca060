/* A check of the pool's records and data, in a thread of its own, and what it has to say as events of the control
 * protocol: {"event":"finding",...}, {"event":"progress",...}, and the answer.  Of a running server (its command) and
 * of a stopped pool (sluiced --check). */
#ifndef SLUICE_ADMIN_POOL_CHECK_H
#define SLUICE_ADMIN_POOL_CHECK_H

#include <jansson.h>
#include <pthread.h>

#include "sluice/store_check.h"

enum { POOL_FINDINGS_MOST = 100, POOL_PROGRESS_MS = 1000, POOL_PAUSE_MS = 20 };

struct pool_check {
    struct store_check job; /* filled in by the caller but for finding and arg */
    struct store *store;
    pthread_t thread;
    pthread_mutex_t lock;
    json_t *events; /* with `lock` */
    atomic_bool ended;
    int result;
};

int pool_check_start(struct pool_check *p); /* -EAGAIN, -ENOMEM */
/* The events that have come; an array that is the caller's, perhaps empty.  NULL: no memory. */
json_t *pool_check_events(struct pool_check *p);
json_t *pool_check_progress(const struct pool_check *p);
/* After it has ended: the answer without "ok", or NULL with the error in p->result. */
json_t *pool_check_end(struct pool_check *p);

/* sluiced --check and --compact; an exit status. */
struct options;
int pool_check_stopped(const struct options *o);
int pool_compact_stopped(const struct options *o);

#endif
