#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <urcu.h>

#include "admin/commands.h"
#include "admin/control.h"
#include "admin/housekeeping.h"
#include "admin/metrics_http.h"
#include "admin/options.h"
#include "admin/pool_check.h"
#include "sluice/base_notify.h"
#include "sluice/base_worker.h"
#include "sluice/nfs.h"
#include "sluice/nfs_state.h"
#include "sluice/rpc.h"

#ifndef SLUICE_VERSION
#define SLUICE_VERSION "0.1"
#endif

enum { IN_FLIGHT_LEAST = 16 << 20 }; /* for each worker */
enum { TRIM_TICKS = 6, TRIM_FROM = 32 << 20 };
enum { STOP_SECONDS = 4, RPC_STOP_MS = 2000, CONTROL_STOP_MS = 1000, WORKERS_STOP_MS = 500 };

static uv_loop_t loop;
static uv_signal_t on_term, on_int;
static uv_timer_t on_tick;

static void raise_open_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit))
        log_warning("sluiced", "the number of open files stays limited: %s", sl_strerror(-errno));
}

/* Until the loop takes them, so that no thread is interrupted and none is lost. */
static void hold_signals(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(how, &set, NULL);
}

static void on_signal(uv_signal_t *handle, int number)
{
    log_notice("sluiced", "%s: stopping", number == SIGTERM ? "SIGTERM" : "SIGINT");
    uv_stop(&loop);
}

/* Replies that found no frame for their data had it on the heap, which keeps what lies between pieces still used. */
static void trim_heap(void)
{
    static uint64_t most;
    static unsigned ticks;
    struct rpc_stats stats;
    rpc_stats(&stats);
    if (stats.bytes_in_flight > most)
        most = stats.bytes_in_flight;
    if (++ticks < TRIM_TICKS || most < TRIM_FROM || stats.bytes_in_flight > most / 4)
        return;
    malloc_trim(0);
    most = ticks = 0;
}

static void tick(uv_timer_t *timer)
{
    rpc_tick();
    nfs_tick();
    housekeeping_tick();
    trim_heap();
}

/* What was acknowledged is durable, so leaving late is worse than leaving at once. */
static void leave_now(int number)
{
    _exit(0);
}

static int start_store(const struct options *o, struct store **store)
{
    char why[256] = "";
    struct store_options options = {
        .pool = o->pool, .cache_bytes = o->cache, .inode_entries = o->inode_entries,
        .map_entries = o->map_entries, .name_entries = o->name_entries, .map_size = o->map_size,
        .segment_bytes = o->segment_size, .reserve_bytes = o->reserve,
        .keep_unlinked = options_nfs_version(o, "4"), /* until its clients have come back */
    };
    int error = store_local_open(&options, store, why);
    if (error && strstr(why, o->pool))
        log_error("sluiced", "%s", why);
    else if (error)
        log_error("sluiced", "the pool %s cannot be opened: %s", o->pool,
                  *why ? why : sl_strerror(error));
    return error;
}

/* Replies may pin the cache's frames: half of them stays for those who read what they have asked for. */
static uint64_t bytes_in_flight(const struct options *o)
{
    uint64_t least = (uint64_t)workers_count() * IN_FLIGHT_LEAST;
    if (o->bytes_in_flight)
        return o->bytes_in_flight;
    return o->cache / 2 > least ? o->cache / 2 : least;
}

static int start_rpc(const struct options *o)
{
    char why[256] = "";
    struct rpc_options options = {
        .listen = o->listen.at, .listen_count = (uint32_t)o->listen.count,
        .connections_max = o->connections_max,
        .requests_per_connection = o->requests_per_connection,
        .bytes_in_flight = bytes_in_flight(o),
        .bytes_per_connection = o->bytes_per_connection, .send_buffer = o->send_buffer,
        .record_max = (uint32_t)o->record_max, .duplicate_entries = o->duplicate_entries,
        .duplicate_bytes = o->duplicate_bytes, .rpcbind = o->rpcbind,
        .slow_ns = o->slow_operation_ms * UINT64_C(1000000), .slow = nfs_slow,
    };
    int error = rpc_start(&options, why);
    if (error)
        log_error("sluiced", "cannot listen: %s", *why ? why : sl_strerror(error));
    return error;
}

static void say_ready(const struct options *o)
{
    enum { MOST = 64 };
    static char listeners[MOST][64];
    char text[1024] = "", cache[32];
    unsigned count = rpc_listeners(listeners, MOST);
    for (unsigned i = 0; i < count && i < MOST; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", i ? ", " : "", listeners[i]);
    }
    log_notice("sluiced", "ready: pool %s, %s of RAM for data, %u workers, listening on %s, control socket %s, "
               "metrics %s", o->pool, size_format(o->cache, cache), workers_count(), text, o->socket,
               *metrics_http_url() ? metrics_http_url() : "off");
}

static void serve(void)
{
    uv_signal_init(&loop, &on_term);
    uv_signal_init(&loop, &on_int);
    uv_signal_start(&on_term, on_signal, SIGTERM);
    uv_signal_start(&on_int, on_signal, SIGINT);
    uv_timer_init(&loop, &on_tick);
    uv_timer_start(&on_tick, tick, RPC_TICK_SECONDS * 1000, RPC_TICK_SECONDS * 1000);
    hold_signals(SIG_UNBLOCK);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_timer_stop(&on_tick);
}

/* Files are served without it too. */
static void start_metrics(const struct options *o)
{
    char why[256];
    if (strcmp(o->metrics, "off") == 0)
        return;
    if (metrics_http_start(&loop, o->metrics, why))
        log_warning("sluiced", "no metrics over HTTP: %s; --metrics ADDR:PORT says where, --metrics off that there "
                    "shall be none", why);
}

/* Whoever started the server goes by it; the server itself does not. */
static void tell(const char *state)
{
    int error = notify(state);
    if (error)
        log_warning("sluiced", "NOTIFY_SOCKET cannot be told: %s", sl_strerror(error));
}

static int with_rpc(const struct options *o)
{
    char why[256];
    int error = control_start(&loop, o->socket, why);
    if (error) {
        log_error("sluiced", "%s", why);
        rpc_stop(0);
        return error;
    }
    start_metrics(o);
    say_ready(o);
    tell("READY=1\nSTATUS=serving");
    serve();
    tell("STOPPING=1\nSTATUS=finishing what has been begun");
    metrics_http_stop();
    alarm(STOP_SECONDS);
    bool calls_ended = rpc_stop(RPC_STOP_MS);
    bool commands_ended = control_stop(CONTROL_STOP_MS);
    if (!housekeeping_stop(CONTROL_STOP_MS) || !commands_ended) {
        log_warning("sluiced", "a command did not end in time; leaving without it");
        leave_now(0);
    }
    if (!calls_ended)
        leave_now(0); /* what they still use must not be taken down under them; what is acknowledged is on disk */
    return 0;
}

static int with_store(const struct options *o, struct store *store)
{
    volume_set_groups_lifetime(o->groups_lifetime);
    int error = volume_start(store);
    if (error) {
        log_error("sluiced", "the volumes cannot be read: %s", sl_strerror(error));
        return error;
    }
    nfs_limit_state(&(struct state_options){
        .lease_seconds = o->nfs_lease, .grace_seconds = o->nfs_grace, .clients_most = o->nfs4_clients,
        .sessions_most = o->nfs4_sessions, .opens_most = o->nfs4_opens, .locks_most = o->nfs4_locks,
        .delegations_most = o->nfs4_delegations});
    nfs_serve(options_nfs_version(o, "3"), options_nfs_version(o, "4")); /* one of them at least */
    error = nfs_start(store);
    if (error) {
        log_error("sluiced", "NFS cannot be started: %s", sl_strerror(error));
    } else {
        error = start_rpc(o);
        if (!error)
            error = with_rpc(o);
        nfs_stop();
    }
    volume_stop();
    return error;
}

static int with_workers(const struct options *o)
{
    struct store *store;
    int error = start_store(o, &store);
    if (error)
        return error;
    error = with_store(o, store);
    store->ops->close(store);
    return error;
}

static int run(const struct options *o)
{
    enum log_level level = LOG_LEVEL_NOTICE;
    log_level_parse(o->log_level, &level);
    log_set_level(level);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGALRM, leave_now);
    raise_open_files();
    hold_signals(SIG_BLOCK);
    coro_set_limit(o->coroutines);
    blocking_set_limit(o->blocking_threads);
    commands_options = o;
    commands_started = time(NULL);
    uv_loop_init(&loop);
    rcu_register_thread();
    int error = workers_start(o->workers);
    if (error) {
        log_error("sluiced", "the workers cannot be started: %s", sl_strerror(error));
        return error;
    }
    error = with_workers(o);
    blocking_stop();
    workers_stop(WORKERS_STOP_MS);
    rcu_unregister_thread();
    return error;
}

int main(int argc, char **argv)
{
    struct options options;
    struct config_error problem;
    enum options_action action;
    int error = options_read(argc, argv, &options, &action, &problem);
    if (error) {
        fprintf(stderr, "sluiced: %s\n", problem.text);
        options_free(&options);
        return 2;
    }
    if (action == OPTIONS_HELP)
        options_print_help(stdout);
    else if (action == OPTIONS_PRINT)
        options_print_example(stdout);
    else if (action == OPTIONS_VERSION)
        puts("sluiced " SLUICE_VERSION);
    else if (action == OPTIONS_CHECK)
        puts("the configuration is right");
    else if (action == OPTIONS_CHECK_POOL)
        error = pool_check_stopped(&options);
    else if (action == OPTIONS_COMPACT_POOL)
        error = pool_compact_stopped(&options);
    else
        error = run(&options) ? 1 : 0;
    options_free(&options);
    return error;
}
