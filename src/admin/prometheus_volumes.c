#include <inttypes.h>
#include <stdio.h>

#include "admin/prometheus_private.h"

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

/* What it may have a second: only the limits that there are. */
static void put_limits(FILE *to, const struct scrape *s, const char *name, const char *help, bool bytes)
{
    static const char *const ways[] = {"all", "read", "write"};
    prometheus_head(to, name, "gauge", help);
    for (unsigned n = 0; n < s->count; n++) {
        const uint64_t *limits = bytes ? s->volumes[n].limits.bandwidth : s->volumes[n].limits.iops;
        for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++)
            if (limits[way])
                fprintf(to, "%s{volume=\"%s\",way=\"%s\"} %" PRIu64 "\n", name, s->volumes[n].name, ways[way],
                        limits[way]);
    }
}

/* What waited at a volume's gate, reads and changes apart. */
static void put_gate(FILE *to, const struct scrape *s, const char *name, const char *help, bool time)
{
    static const char *const ways[GATE_WAYS] = {[GATE_READ] = "read", [GATE_WRITE] = "write"};
    prometheus_head(to, name, "counter", help);
    for (unsigned n = 0; n < s->count; n++) {
        const struct scraped_volume *v = &s->volumes[n];
        for (unsigned way = 0; v->tree && way < GATE_WAYS; way++)
            fprintf(to, "%s{volume=\"%s\",way=\"%s\"} %.17g\n", name, v->name, ways[way],
                    time ? (double)v->gate.wait_ns[way] / 1e9 : (double)v->gate.waits[way]);
    }
}

void prometheus_volumes(FILE *to, const struct scrape *s)
{
    put_limits(to, s, "sluice_volume_limit_bytes_per_second", "Most bytes that the volume's clients may have a second",
               true);
    put_limits(to, s, "sluice_volume_limit_operations_per_second",
               "Most operations that the volume's clients may have a second", false);
    put_gate(to, s, "sluice_volume_gate_waits_total", "Calls that waited for their turn under the volume's limits",
             false);
    put_gate(to, s, "sluice_volume_gate_wait_seconds_total", "How long they have waited, all together", true);
    for (size_t i = 0; i < sizeof of_volumes / sizeof of_volumes[0]; i++) {
        prometheus_head(to, of_volumes[i].name, of_volumes[i].type, of_volumes[i].help);
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
     "From the arrival of a call until its reply is handed to the socket; a COMPOUND counts once, as what it is about",
     put_latency},
};

void prometheus_operations(FILE *to, const struct scrape *s)
{
    for (size_t i = 0; i < sizeof of_operations / sizeof of_operations[0]; i++) {
        prometheus_head(to, of_operations[i].name, of_operations[i].type, of_operations[i].help);
        for (unsigned n = 0; n < s->count; n++)
            for (unsigned op = 0; op < s->volumes[n].op_count; op++)
                of_operations[i].put(to, of_operations[i].name, &s->volumes[n], &s->volumes[n].ops[op]);
    }
}
