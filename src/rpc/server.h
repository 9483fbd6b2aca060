/* What the rpc layer's files share: the options, the workers' parts, the programs. */
#ifndef RPC_SERVER_H
#define RPC_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "rpc/buffers.h"
#include "sluice/base_worker.h"
#include "sluice/rpc.h"

enum { RPC_PROGRAMS_MAX = 16 };

struct call;
struct rpc_conn;
struct send_batch;

/* One worker's part; used by its thread only, the atomics excepted. */
struct rpc_worker {
    struct worker *worker;
    unsigned index;
    struct rpc_conn *conns;
    struct rpc_conn *touched_first, *touched_last; /* to be looked at when the pass ends */
    bool flush_queued;
    struct task flush;
    struct rpc_conn *starved; /* wait for memory or a coroutine */
    struct worker_timer starved_timer;
    struct rpc_conn *later_first, *later_last; /* have calls, and had their turn in this pass */
    struct task later, tick;
    bool later_queued;
    _Atomic bool ticking;
    uint64_t spent; /* in this pass, on taking calls; bytes, see conn.c */
    uint64_t now_ns;    /* when this pass began, see rpc_now(); 0: nobody has asked yet */
    uint64_t handed_ns; /* when replies of this pass went to sockets; 0: none has yet */
    struct call *free_calls;
    unsigned free_call_count;
    struct send_batch *free_batches;
    unsigned free_batch_count;
    struct buffer_pool buffers;
    _Atomic uint64_t connections; /* handed over to it, changed by any thread */
    uint64_t requests, bytes; /* written by the owner with relaxed stores, read by rpc_stats() */
};

struct rpc_server {
    struct rpc_options options;
    struct rpc_worker *workers;
    unsigned worker_count;
    uint64_t bytes_per_worker; /* in flight */
    uint64_t slow_ns;          /* UINT64_MAX: none is */
    _Atomic uint64_t connections;
    _Atomic uint64_t connection_numbers;
    _Atomic uint64_t handovers; /* replies on their way to another worker */
    _Atomic uint64_t accepts;   /* listening sockets that still accept */
    _Atomic bool draining;      /* no new connections, no new calls */
    const struct rpc_program *programs[RPC_PROGRAMS_MAX];
    unsigned program_count;
    bool running;
    pthread_mutex_t peers_lock; /* guards the list of all connections' peers */
    struct rpc_conn *peers;
};

extern struct rpc_server rpc_server;

/* The time of this pass: one look at the clock serves all that arrives together.  Whoever asks also touches a
 * connection, so that the pass has an end here. */
static inline uint64_t rpc_now(struct rpc_worker *worker)
{
    if (!worker->now_ns)
        worker->now_ns = clock_monotonic_ns();
    return worker->now_ns;
}

static inline void rpc_gauge(uint64_t *gauge, int64_t change)
{
    __atomic_store_n(gauge, *gauge + (uint64_t)change, __ATOMIC_RELAXED);
}

#endif
