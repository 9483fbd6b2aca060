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
#include "admin/scrape.h"
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

static void head(FILE *to, const char *name, const char *type, const char *help)
{
    fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_whole(FILE *to, const struct scrape *s)
{
    head(to, "sluice_build_info", "gauge", "The version that runs");
    fprintf(to, "sluice_build_info{version=\"" SLUICE_VERSION "\"} 1\n");
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        head(to, whole[i].name, whole[i].type, whole[i].help);
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
    head(to, name, "counter", metric_helps[metric]);
    uint64_t value = metric_read(metric);
    if (ns)
        fprintf(to, "%s %.17g\n", name, (double)value / 1e9);
    else
        fprintf(to, "%s %" PRIu64 "\n", name, value);
}

/* ---- volumes ---- */

static bool limit(const struct scraped_volume *v, double *to)
{
    *to = (double)v->size_limit;
    return v->size_limit;
}

static bool file_limit(const struct scraped_volume *v, double *to)
{
    *to = (double)v->file_limit;
    return v->file_limit;
}

static bool used(const struct scraped_volume *v, double *to)
{
    *to = (double)v->used_bytes;
    return true;
}

static bool files(const struct scraped_volume *v, double *to)
{
    *to = (double)v->used_files;
    return true;
}

static bool snapshots(const struct scraped_volume *v, double *to)
{
    *to = (double)v->snapshots;
    return true;
}

static bool cache_held(const struct scraped_volume *v, double *to)
{
    *to = (double)v->cache.held_bytes;
    return true;
}

static bool cache_hit(const struct scraped_volume *v, double *to)
{
    *to = (double)scrape_hit_bytes(v);
    return true;
}

static bool cache_missed(const struct scraped_volume *v, double *to)
{
    *to = (double)v->cache.missed_bytes;
    return true;
}

static bool ahead(const struct scraped_volume *v, double *to)
{
    *to = (double)v->cache.ahead_bytes;
    return true;
}

static bool ahead_unused(const struct scraped_volume *v, double *to)
{
    *to = (double)v->cache.ahead_unused_bytes;
    return true;
}

static bool delayed(const struct scraped_volume *v, double *to)
{
    *to = (double)v->gate.delayed;
    return true;
}

static bool waiting(const struct scraped_volume *v, double *to)
{
    *to = (double)v->gate.waiting;
    return true;
}

static bool waiting_bytes(const struct scraped_volume *v, double *to)
{
    *to = (double)v->gate.waiting_bytes;
    return true;
}

static const struct {
    const char *name, *type, *help;
    bool (*value)(const struct scraped_volume *v, double *to); /* false: the volume has none */
} of_volumes[] = {
    {"sluice_volume_size_limit_bytes", "gauge", "Most bytes that the volume may hold; missing where it has no limit",
     limit},
    {"sluice_volume_used_bytes", "gauge", "Bytes that the volume refers to", used},
    {"sluice_volume_files_limit", "gauge", "Most files that the volume may hold; missing where it has no limit",
     file_limit},
    {"sluice_volume_files", "gauge", "Files and directories of the volume", files},
    {"sluice_volume_snapshots", "gauge", "Snapshots of the volume", snapshots},
    {"sluice_volume_cache_held_bytes", "gauge", "RAM that holds data of the volume", cache_held},
    {"sluice_volume_cache_hit_bytes_total", "counter", "Bytes that READ found in RAM", cache_hit},
    {"sluice_volume_cache_miss_bytes_total", "counter", "Bytes that READ had to wait for the disk for", cache_missed},
    {"sluice_volume_readahead_bytes_total", "counter", "Bytes loaded ahead of readers", ahead},
    {"sluice_volume_readahead_unused_bytes_total", "counter",
     "Of these, bytes given to other data without having been read", ahead_unused},
    {"sluice_volume_gate_queue", "gauge", "Calls that wait at present for their turn under the volume's limits",
     waiting},
    {"sluice_volume_gate_queue_bytes", "gauge", "Bytes that these will read or write", waiting_bytes},
    {"sluice_volume_gate_delayed_total", "counter",
     "Calls told to come again later, since they would have waited too long", delayed},
};

/* What waited at a volume's gate, reads and changes apart. */
static void put_gate(FILE *to, const struct scrape *s, const char *name, const char *help, bool time)
{
    static const char *const ways[GATE_WAYS] = {[GATE_READ] = "read", [GATE_WRITE] = "write"};
    head(to, name, "counter", help);
    for (unsigned n = 0; n < s->count; n++) {
        const struct scraped_volume *v = &s->volumes[n];
        for (unsigned way = 0; v->tree && way < GATE_WAYS; way++)
            fprintf(to, "%s{volume=\"%s\",way=\"%s\"} %.17g\n", name, v->name, ways[way],
                    time ? (double)v->gate.wait_ns[way] / 1e9 : (double)v->gate.waits[way]);
    }
}

static void put_volumes(FILE *to, const struct scrape *s)
{
    put_gate(to, s, "sluice_volume_gate_waits_total", "Calls that waited for their turn under the volume's limits",
             false);
    put_gate(to, s, "sluice_volume_gate_wait_seconds_total", "How long they have waited, all together", true);
    for (size_t i = 0; i < sizeof of_volumes / sizeof of_volumes[0]; i++) {
        head(to, of_volumes[i].name, of_volumes[i].type, of_volumes[i].help);
        for (unsigned n = 0; n < s->count; n++) {
            double value;
            if (s->volumes[n].tree && of_volumes[i].value(&s->volumes[n], &value))
                fprintf(to, "%s{volume=\"%s\"} %.17g\n", of_volumes[i].name, s->volumes[n].name, value);
        }
    }
}

/* ---- operations of volumes ---- */

static void put_labels(FILE *to, const char *name, const struct scraped_volume *v, const struct nfs_op_stats *op)
{
    fprintf(to, "%s{volume=\"%s\",protocol=\"%s\",operation=\"%s\"", name, v->name, op->protocol, op->operation);
}

static void put_calls(FILE *to, const char *name, const struct scraped_volume *v, const struct nfs_op_stats *op)
{
    put_labels(to, name, v, op);
    fprintf(to, "} %" PRIu64 "\n", op->calls);
}

static void put_errors(FILE *to, const char *name, const struct scraped_volume *v, const struct nfs_op_stats *op)
{
    put_labels(to, name, v, op);
    fprintf(to, "} %" PRIu64 "\n", op->errors);
}

static void put_bytes(FILE *to, const char *name, const struct scraped_volume *v, const struct nfs_op_stats *op)
{
    if (!op->bytes)
        return;
    put_labels(to, name, v, op);
    fprintf(to, "} %" PRIu64 "\n", op->bytes);
}

static void put_latency(FILE *to, const char *name, const struct scraped_volume *v, const struct nfs_op_stats *op)
{
    char part[96];
    uint64_t count = 0;
    snprintf(part, sizeof part, "%s_bucket", name);
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        count += op->latency.bucket[i];
        put_labels(to, part, v, op);
        if (i < HISTOGRAM_BUCKETS - 1)
            fprintf(to, ",le=\"%.9g\"} %" PRIu64 "\n", (double)histogram_bound(i) / 1e9, count);
        else
            fprintf(to, ",le=\"+Inf\"} %" PRIu64 "\n", count);
    }
    snprintf(part, sizeof part, "%s_sum", name);
    put_labels(to, part, v, op);
    fprintf(to, "} %.17g\n", (double)op->latency.sum / 1e9);
    snprintf(part, sizeof part, "%s_count", name);
    put_labels(to, part, v, op);
    fprintf(to, "} %" PRIu64 "\n", count);
}

static const struct {
    const char *name, *type, *help;
    void (*put)(FILE *to, const char *name, const struct scraped_volume *v, const struct nfs_op_stats *op);
} of_operations[] = {
    {"sluice_operations_total", "counter", "Operations answered", put_calls},
    {"sluice_operation_errors_total", "counter", "Operations answered with a status that is not OK", put_errors},
    {"sluice_operation_bytes_total", "counter", "Data read or written by operations", put_bytes},
    {"sluice_operation_duration_seconds", "histogram",
     "From the arrival of a call until its reply is handed to the socket", put_latency},
};

static void put_operations(FILE *to, const struct scrape *s)
{
    for (size_t i = 0; i < sizeof of_operations / sizeof of_operations[0]; i++) {
        head(to, of_operations[i].name, of_operations[i].type, of_operations[i].help);
        for (unsigned n = 0; n < s->count; n++)
            for (unsigned op = 0; op < s->volumes[n].op_count; op++)
                of_operations[i].put(to, of_operations[i].name, &s->volumes[n], &s->volumes[n].ops[op]);
    }
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
        put_volumes(to, &s);
        put_operations(to, &s);
        if (fclose(to)) {
            free(text);
            text = NULL;
        }
    }
    scrape_free(&s);
    return text;
}
