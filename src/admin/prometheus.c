#include "admin/prometheus.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "admin/commands.h"
#include "admin/prometheus_private.h"
#include "admin/space.h"
#include "sluice/base_coro.h"
#include "sluice/base_metrics.h"
#include "sluice/base_worker.h"

#ifndef SLUICE_VERSION
#define SLUICE_VERSION "0.1"
#endif

/* ---- the server as a whole ---- */

static double started(const struct scrape *s)
{
    return (double)commands_started;
}

static double worker_threads(const struct scrape *s)
{
    return workers_count();
}

static double coroutines(const struct scrape *s)
{
    return coro_count();
}

static double processor_seconds(const struct scrape *s)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double resident_bytes(const struct scrape *s)
{
    unsigned long long size, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%llu %llu", &size, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

static double open_files(const struct scrape *s)
{
    DIR *dir = opendir("/proc/self/fd");
    double count = -3; /* the two dots and the directory itself */
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count > 0 ? count : 0;
}

static double open_files_most(const struct scrape *s)
{
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    return (double)limit.rlim_cur;
}

static double connections(const struct scrape *s)
{
    return (double)s->rpc.connections;
}

static double connections_most(const struct scrape *s)
{
    return commands_options->connections_max;
}

static double requests_in_flight(const struct scrape *s)
{
    return (double)s->rpc.requests_in_flight;
}

static double bytes_in_flight(const struct scrape *s)
{
    return (double)s->rpc.bytes_in_flight;
}

static double duplicate_entries(const struct scrape *s)
{
    return (double)s->rpc.duplicate_entries;
}

static double duplicate_bytes(const struct scrape *s)
{
    return (double)s->rpc.duplicate_bytes;
}

static double nfs4_clients(const struct scrape *s)
{
    return (double)s->state.clients;
}

static double nfs4_clients_most(const struct scrape *s)
{
    return commands_options->nfs4_clients;
}

static double nfs4_sessions(const struct scrape *s)
{
    return (double)s->state.sessions;
}

static double nfs4_sessions_most(const struct scrape *s)
{
    return commands_options->nfs4_sessions;
}

static double nfs4_opens(const struct scrape *s)
{
    return (double)s->state.opens;
}

static double nfs4_opens_most(const struct scrape *s)
{
    return commands_options->nfs4_opens;
}

static double nfs4_locks(const struct scrape *s)
{
    return (double)s->state.locks;
}

static double nfs4_locks_most(const struct scrape *s)
{
    return commands_options->nfs4_locks;
}

static double nfs4_delegations(const struct scrape *s)
{
    return (double)s->state.delegations;
}

static double nfs4_delegations_most(const struct scrape *s)
{
    return commands_options->nfs4_delegations;
}

static double pool_bytes(const struct scrape *s)
{
    return (double)s->pool.bytes_total;
}

static double pool_free(const struct scrape *s)
{
    return (double)s->pool.bytes_free;
}

static double pool_nearly_full(const struct scrape *s)
{
    return space_level(&s->pool) != 0;
}

static double pool_frozen(const struct scrape *s)
{
    return s->pool.frozen;
}

static double metadata_bytes(const struct scrape *s)
{
    return (double)s->pool.meta_bytes;
}

static double segments(const struct scrape *s)
{
    return (double)s->pool.segments;
}

static double work_left(const struct scrape *s)
{
    return (double)s->pool.work_left;
}

static double cache_bytes(const struct scrape *s)
{
    return (double)s->pool.cache_bytes;
}

static double cache_used(const struct scrape *s)
{
    return (double)s->pool.cache_used_bytes;
}

static const struct {
    const char *name, *type, *help;
    double (*value)(const struct scrape *s);
} whole[] = {
    {"process_start_time_seconds", "gauge", "When the server started, since 1970", started},
    {"process_cpu_seconds_total", "counter", "Processor time of the server", processor_seconds},
    {"process_resident_memory_bytes", "gauge", "RAM that the server takes", resident_bytes},
    {"process_open_fds", "gauge", "Open files and sockets", open_files},
    {"process_max_fds", "gauge", "Most files and sockets that may be open", open_files_most},
    {"sluice_workers", "gauge", "Worker threads", worker_threads},
    {"sluice_coroutines", "gauge", "Calls and jobs that wait in a coroutine", coroutines},
    {"sluice_connections", "gauge", "Connections of clients", connections},
    {"sluice_connections_limit", "gauge", "Most connections of clients", connections_most},
    {"sluice_requests_in_flight", "gauge", "Calls not yet answered in full", requests_in_flight},
    {"sluice_in_flight_bytes", "gauge", "Calls and replies in memory", bytes_in_flight},
    {"sluice_duplicate_replies", "gauge", "Replies kept for repeated requests", duplicate_entries},
    {"sluice_duplicate_replies_bytes", "gauge", "Replies kept for repeated requests, their size", duplicate_bytes},
    {"sluice_nfs4_clients", "gauge", "NFSv4 clients", nfs4_clients},
    {"sluice_nfs4_clients_limit", "gauge", "Most of these", nfs4_clients_most},
    {"sluice_nfs4_sessions", "gauge", "Sessions of NFSv4.1 and 4.2", nfs4_sessions},
    {"sluice_nfs4_sessions_limit", "gauge", "Most of these", nfs4_sessions_most},
    {"sluice_nfs4_opens", "gauge", "Opens of NFSv4 clients, with the lock-owners in them", nfs4_opens},
    {"sluice_nfs4_opens_limit", "gauge", "Most of these", nfs4_opens_most},
    {"sluice_nfs4_locks", "gauge", "Byte ranges that NFSv4 clients have locked", nfs4_locks},
    {"sluice_nfs4_locks_limit", "gauge", "Most of these", nfs4_locks_most},
    {"sluice_nfs4_delegations", "gauge", "Delegations of NFSv4 clients", nfs4_delegations},
    {"sluice_nfs4_delegations_limit", "gauge", "Most of these", nfs4_delegations_most},
    {"sluice_pool_size_bytes", "gauge", "File system under the pool", pool_bytes},
    {"sluice_pool_free_bytes", "gauge", "What is free of it", pool_free},
    {"sluice_pool_nearly_full", "gauge", "1 while less than a tenth is available, of the file system or for metadata",
     pool_nearly_full},
    {"sluice_pool_frozen", "gauge", "1 while the pool takes no changes after a failure", pool_frozen},
    {"sluice_pool_metadata_bytes", "gauge", "Metadata in use", metadata_bytes},
    {"sluice_pool_segments", "gauge", "Data files of the pool", segments},
    {"sluice_background_work", "gauge", "Pieces of background work left: deleted files, versions to be cleaned up",
     work_left},
    {"sluice_cache_size_bytes", "gauge", "RAM for data", cache_bytes},
    {"sluice_cache_used_bytes", "gauge", "RAM that holds data", cache_used},
};

void prometheus_head(FILE *to, const char *name, const char *type, const char *help)
{
    fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_whole(FILE *to, const struct scrape *s)
{
    prometheus_head(to, "sluice_build_info", "gauge", "The version that runs");
    fprintf(to, "sluice_build_info{version=\"" SLUICE_VERSION "\"} 1\n");
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        prometheus_head(to, whole[i].name, whole[i].type, whole[i].help);
        fprintf(to, "%s %.17g\n", whole[i].name, whole[i].value(s));
    }
}

/* ---- the counters of base_metrics.h ---- */

static void put_counter(FILE *to, enum metric metric)
{
    char name[96];
    const char *own = metric_names[metric];
    size_t length = strlen(own);
    bool ns = length > 3 && strcmp(own + length - 3, "_ns") == 0;
    snprintf(name, sizeof name, "sluice_%.*s%s_total", (int)(ns ? length - 3 : length), own, ns ? "_seconds" : "");
    prometheus_head(to, name, "counter", metric_helps[metric]);
    uint64_t value = metric_read(metric);
    if (ns)
        fprintf(to, "%s %.17g\n", name, (double)value / 1e9);
    else
        fprintf(to, "%s %" PRIu64 "\n", name, value);
}

char *prometheus_text(size_t *length)
{
    struct scrape s;
    char *text = NULL;
    int error = scrape_take(&s);
    FILE *to = error ? NULL : open_memstream(&text, length);
    if (to) {
        put_whole(to, &s);
        for (unsigned i = 0; i < METRIC_COUNT; i++)
            put_counter(to, i);
        prometheus_volumes(to, &s);
        prometheus_operations(to, &s);
        if (fclose(to)) {
            free(text);
            text = NULL;
        }
    }
    scrape_free(&s);
    return text;
}
