#include "rpc/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rpc/call.h"
#include "rpc/clients.h"
#include "rpc/conn.h"
#include "rpc/drc.h"
#include "rpc/listen.h"
#include "rpc/register.h"
#include "sluice/base_log.h"

enum { CLOSE_MS = 1000, POLL_NS = 1000000 };

struct rpc_server rpc_server = {.peers_lock = PTHREAD_MUTEX_INITIALIZER};

int rpc_register(const struct rpc_program *program)
{
    if (rpc_server.program_count == RPC_PROGRAMS_MAX)
        return -ENOSPC;
    rpc_server.programs[rpc_server.program_count++] = program;
    return 0;
}

/* ---- starting ---- */

static int make_workers(void)
{
    rpc_server.worker_count = workers_count();
    rpc_server.workers = calloc(rpc_server.worker_count, sizeof(*rpc_server.workers));
    if (!rpc_server.workers)
        return -ENOMEM;
    for (unsigned i = 0; i < rpc_server.worker_count; i++) {
        rpc_server.workers[i].worker = worker_at(i);
        rpc_server.workers[i].index = i;
        buffers_init(&rpc_server.workers[i].buffers, rpc_server.options.record_max);
    }
    return 0;
}

int rpc_start(const struct rpc_options *options, char why[256])
{
    rpc_server.options = *options;
    rpc_server.bytes_per_worker =
        options->bytes_in_flight ? options->bytes_in_flight / workers_count() : UINT64_MAX;
    rpc_server.slow_ns = options->slow_ns && options->slow ? options->slow_ns : UINT64_MAX;
    rpc_server.options.listen = NULL; /* the caller's; listen_open() has read it */
    if (make_workers() < 0) {
        snprintf(why, 256, "no memory");
        return -ENOMEM;
    }
    int error = drc_start(options->duplicate_entries, options->duplicate_bytes);
    if (error < 0) {
        snprintf(why, 256, "duplicate request cache of %llu entries: no memory",
                 (unsigned long long)options->duplicate_entries);
    } else {
        error = listen_open(options, why);
        if (error < 0)
            drc_stop();
    }
    if (error < 0) {
        free(rpc_server.workers);
        rpc_server.workers = NULL;
        return error;
    }
    atomic_store(&rpc_server.draining, false);
    rpc_server.running = true;
    listen_start();
    if (options->rpcbind)
        register_programs();
    return 0;
}

/* ---- once in a while ---- */

static void tick_worker(struct task *task)
{
    struct rpc_worker *worker =
        (struct rpc_worker *)((char *)task - offsetof(struct rpc_worker, tick));
    for (struct rpc_conn *conn = worker->conns; conn; conn = conn->next)
        conn_tick(conn);
    buffers_trim(&worker->buffers);
    atomic_store(&worker->ticking, false);
}

void rpc_tick(void)
{
    for (unsigned i = 0; rpc_server.running && i < rpc_server.worker_count; i++) {
        struct rpc_worker *worker = &rpc_server.workers[i];
        if (atomic_exchange(&worker->ticking, true))
            continue;
        worker->tick.run = tick_worker;
        worker_post(worker->worker, &worker->tick);
    }
}

/* ---- stopping ---- */

static int drain_worker(void *arg)
{
    struct rpc_worker *worker = arg;
    for (struct rpc_conn *conn = worker->conns; conn; conn = conn->next)
        conn_drain(conn);
    return 0;
}

static int close_worker(void *arg)
{
    struct rpc_worker *worker = arg;
    for (struct rpc_conn *conn = worker->conns; conn; conn = conn->next)
        conn_close(conn);
    return 0;
}

static int free_worker(void *arg)
{
    struct rpc_worker *worker = arg;
    calls_free(worker);
    send_free(worker);
    buffers_free(&worker->buffers);
    return 0;
}

static void on_each_worker(int (*fn)(void *arg))
{
    for (unsigned i = 0; i < rpc_server.worker_count; i++) {
        struct rpc_worker *worker = &rpc_server.workers[i];
        while (worker_call(worker->worker, fn, worker) == -EAGAIN)
            nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}

static bool quiet(void)
{
    return atomic_load(&rpc_server.connections) == 0 && atomic_load(&rpc_server.handovers) == 0 &&
           atomic_load(&rpc_server.accepts) == 0;
}

static bool wait_quiet(unsigned ms)
{
    uint64_t end = clock_monotonic_ns() + (uint64_t)ms * 1000000;
    while (!quiet()) {
        if (clock_monotonic_ns() >= end)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
    return true;
}

bool rpc_stop(unsigned ms)
{
    if (!rpc_server.running)
        return true;
    rpc_server.running = false;
    if (rpc_server.options.rpcbind)
        unregister_programs();
    atomic_store(&rpc_server.draining, true);
    listen_stop();
    on_each_worker(drain_worker);
    if (!wait_quiet(ms)) {
        on_each_worker(close_worker);
        if (!wait_quiet(CLOSE_MS)) {
            /* A call still waits for something: what it will touch has to stay. */
            log_warning("rpc", "calls were still in progress when the server stopped");
            return false;
        }
    }
    on_each_worker(free_worker);
    listen_close();
    drc_stop();
    clients_free();
    free(rpc_server.workers);
    rpc_server.workers = NULL;
    rpc_server.worker_count = 0;
    return true;
}

/* ---- telling ---- */

struct texts {
    char (*at)[64];
    unsigned count, room;
};

static void add_text(void *arg, const struct sockaddr_storage *address)
{
    struct texts *texts = arg;
    char host[INET6_ADDRSTRLEN] = "";
    unsigned index = texts->count++;
    if (index >= texts->room)
        return;
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof(host));
        snprintf(texts->at[index], sizeof(texts->at[index]), "[%s]:%u", host,
                 ntohs(six->sin6_port));
    } else {
        const struct sockaddr_in *four = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &four->sin_addr, host, sizeof(host));
        snprintf(texts->at[index], sizeof(texts->at[index]), "%s:%u", host, ntohs(four->sin_port));
    }
}

unsigned rpc_listeners(char text[][64], unsigned room)
{
    struct texts texts = {.at = text, .room = room};
    listen_each(add_text, &texts);
    return texts.count;
}

void rpc_stats(struct rpc_stats *out)
{
    *out = (struct rpc_stats){.connections = atomic_load(&rpc_server.connections)};
    for (unsigned i = 0; i < rpc_server.worker_count; i++) {
        out->requests_in_flight +=
            __atomic_load_n(&rpc_server.workers[i].requests, __ATOMIC_RELAXED);
        out->bytes_in_flight += __atomic_load_n(&rpc_server.workers[i].bytes, __ATOMIC_RELAXED);
    }
    drc_stats(&out->duplicate_entries, &out->duplicate_bytes);
}

void rpc_each_peer(void (*each)(void *arg, const struct sockaddr_storage *peer), void *arg)
{
    pthread_mutex_lock(&rpc_server.peers_lock);
    for (struct rpc_conn *conn = rpc_server.peers; conn; conn = conn->next_peer)
        each(arg, &conn->peer);
    pthread_mutex_unlock(&rpc_server.peers_lock);
}
