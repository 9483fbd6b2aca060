/* The result of a run: one line of JSON. */
#include <inttypes.h>
#include <stdio.h>

#include "load_conn.h"

static void print_text(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
    putchar('"');
}

static void print_latency(const char *prefix, const struct hist *h)
{
    static const struct {
        const char *name;
        double q;
    } quantiles[] = {{"p50_us", 0.5}, {"p90_us", 0.9}, {"p99_us", 0.99}, {"p999_us", 0.999}};
    for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++)
        printf("\"%s%s\":%.1f,", prefix, quantiles[i].name,
               (double)hist_quantile(h, quantiles[i].q) / 1e3);
    printf("\"%smax_us\":%.1f,", prefix, (double)h->max / 1e3);
}

static void print_extras(const struct load_run *run)
{
    const struct load_operation *op = run->options->op;
    for (unsigned i = 0; i < EXTRAS; i++) {
        char prefix[32];
        if (!op->extra[i])
            continue;
        snprintf(prefix, sizeof prefix, "%s_", op->extra[i]);
        printf("\"%ss\":%" PRIu64 ",", op->extra[i], run->total.extra[i].count);
        print_latency(prefix, &run->total.extra[i]);
    }
}

/* What of a run counts by itself, for epochs as well. */
static void print_run(const struct load_run *run)
{
    const struct load_counts *c = &run->total;
    double ops = c->operations ? (double)c->operations : 1;
    printf("\"seconds\":%.3f,\"ops\":%" PRIu64 ",\"ops_per_s\":%.1f,\"mb_per_s\":%.1f,"
           "\"calls\":%" PRIu64 ",\"errors\":%" PRIu64 ",",
           run->seconds, c->operations, (double)c->operations / run->seconds,
           (double)c->bytes / 1e6 / run->seconds, c->calls, c->errors);
    print_latency("", &c->latency);
    print_extras(run);
    if (run->options->rate)
        printf("\"missed\":%" PRIu64 ",", c->missed);
    if (run->options->op->flags & OP_LISTS)
        printf("\"entries\":%" PRIu64 ",\"entries_per_s\":%.1f,", c->entries,
               (double)c->entries / run->seconds);
    if (run->options->op->start == stream_start && c->extra[0].count)
        printf("\"transfer_us\":%.1f,", run->seconds * 1e6 * run->options->connections /
                                            (double)c->extra[0].count);
    printf("\"load_cpu_us_per_op\":%.3f", run->client_cpu * 1e6 / ops);
    if (run->server_cpu >= 0) {
        printf(",\"server_cpu_s\":%.4f,\"server_cpu_us_per_op\":%.3f", run->server_cpu,
               run->server_cpu * 1e6 / ops);
        if (c->bytes)
            printf(",\"server_cpu_s_per_gb\":%.4f", run->server_cpu / ((double)c->bytes / 1e9));
    }
}

void report_print(const struct load_report *report)
{
    const struct load_run *run = report->total;
    const struct load_options *o = run->options;
    const struct load_counts *c = &run->total;
    printf("{\"op\":\"%s\",\"size\":%u,\"conns\":%u,\"depth\":%u,\"inflight\":%u,\"threads\":%u,"
           "\"files\":%u,",
           o->op->name, o->size, o->connections, o->depth, o->inflight, o->threads, o->files);
    print_run(run);
    if (report->epochs) {
        printf(",\"epochs\":[");
        for (uint32_t i = 0; i < o->epochs; i++) {
            printf(i ? ",{" : "{");
            print_run(&report->epochs[i]);
            printf("}");
        }
        printf("]");
    }
    if (report->read_back) {
        printf(",\"read_back\":{");
        print_run(report->read_back);
        printf("}");
    }
    printf(",\"names\":%" PRIu64 ",\"jukebox\":%" PRIu64 ",\"last_status\":%u,\"error\":",
           run->tickets, c->jukebox, c->last_status);
    print_text(c->error);
    printf("}\n");
}
