/* Options and result of the load generator; `load --help` says what it does. */
#include "load.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const op_names[OP_COUNT] = {
    [OP_READ_RAND] = "read-rand", [OP_READ_SEQ] = "read-seq", [OP_WRITE_RAND] = "write-rand",
    [OP_WRITE_SEQ] = "write-seq", [OP_GETATTR] = "getattr",   [OP_LOOKUP] = "lookup",
    [OP_CREATE] = "create",       [OP_REMOVE] = "remove",     [OP_RMDIR] = "rmdir",
    [OP_TRUNCATE] = "truncate",
};

static const char help[] =
    "load --port N [--mountport N] [--host ADDR] --path EXPORT --op OP [options]\n"
    "  --op           read-rand read-seq write-rand write-seq getattr lookup create remove\n"
    "               rmdir truncate\n"
    "  --prepare      write all data files from end to end first (the op's own run follows if it "
    "has\n"
    "                 --seconds or --count)\n"
    "  --dir NAME     directory of the files, made if missing (default: the root of the export)\n"
    "  --prefix P     names are P.FIRST, P.FIRST+1, ... (default: data)\n"
    "  --files N      data files (default 1)       --file-size SIZE  of each (default 256M)\n"
    "  --size SIZE    of a request (default 4K)    --stride SIZE     between sequential requests\n"
    "  --conns N --threads N --depth N             calls in flight on each connection\n"
    "  --seconds S --warmup S, or --count N        how long; N operations in all\n"
    "  --rate N       calls a second in all; latency counts from when a call was due\n"
    "  --first N      number of the first file     --stable 0|1|2    how WRITEs are to be stable\n"
    "  --server-pid N report that process' CPU     --rcvbuf SIZE     SO_RCVBUF\n"
    "  --period SIZE  content repeats (floor)      --check-full      check every byte of READs\n"
    "  --uid N        AUTH_SYS uid and gid\n"
    "SIZE takes K, M, G, T. Prints one line of JSON; the exit code is 1 when a reply was not as "
    "expected.\n";

enum argument_type { TEXT, NUMBER, SECONDS, OPERATION, FLAG, HELP };

/* Where an option's value goes; numbers of all widths are checked against their limits first. */
static const struct argument {
    const char *name;
    enum argument_type type;
    size_t offset, width;
    uint64_t low, high;
} arguments[] = {
#define ARGUMENT(name, type, field, low, high)                                                     \
    {                                                                                              \
        name, type, offsetof(struct load_options, field), sizeof((struct load_options){0}.field),  \
            low, high                                                                              \
    }
    ARGUMENT("host", TEXT, host, 0, 0),
    ARGUMENT("port", NUMBER, port, 1, 65535),
    ARGUMENT("mountport", NUMBER, mount_port, 1, 65535),
    ARGUMENT("path", TEXT, path, 0, 0),
    ARGUMENT("op", OPERATION, op, 0, 0),
    ARGUMENT("prepare", FLAG, prepare, 0, 0),
    ARGUMENT("dir", TEXT, dir, 0, 0),
    ARGUMENT("prefix", TEXT, prefix, 0, 0),
    ARGUMENT("files", NUMBER, files, 1, 1 << 24),
    ARGUMENT("file-size", NUMBER, file_size, 0, INT64_MAX),
    ARGUMENT("size", NUMBER, size, 8, 16 << 20),
    ARGUMENT("stride", NUMBER, stride, 8, INT64_MAX),
    ARGUMENT("conns", NUMBER, connections, 1, 4096),
    ARGUMENT("threads", NUMBER, threads, 1, 256),
    ARGUMENT("depth", NUMBER, depth, 1, 4096),
    ARGUMENT("seconds", SECONDS, seconds, 0, 0),
    ARGUMENT("warmup", SECONDS, warmup, 0, 0),
    ARGUMENT("count", NUMBER, count, 1, INT64_MAX),
    ARGUMENT("rate", NUMBER, rate, 1, 1000000000),
    ARGUMENT("first", NUMBER, first, 0, INT64_MAX),
    ARGUMENT("stable", NUMBER, stable, 0, 2),
    ARGUMENT("server-pid", NUMBER, server_pid, 1, INT32_MAX),
    ARGUMENT("rcvbuf", NUMBER, receive_buffer, 1024, INT32_MAX),
    ARGUMENT("period", NUMBER, period, 8, INT64_MAX),
    ARGUMENT("check-full", FLAG, check_full, 0, 0),
    ARGUMENT("uid", NUMBER, uid, 0, UINT32_MAX),
    {.name = "help", .type = HELP},
};

enum { ARGUMENTS = sizeof arguments / sizeof arguments[0] };

static void usage_error(const char *what, const char *word)
{
    fprintf(stderr, "load: %s: %s (see load --help)\n", what, word);
    exit(2);
}

static uint64_t parse_number(const char *text, uint64_t low, uint64_t high)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    if (errno || end == text || (*end && (!unit || end[1])) || value > UINT64_MAX >> shift)
        usage_error("not a number", text);
    value <<= shift;
    if (value < low || value > high)
        usage_error("out of range", text);
    return value;
}

static double parse_seconds(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0 && value < 1e6))
        usage_error("not a number of seconds", text);
    return value;
}

static enum load_op parse_op(const char *text)
{
    for (int i = 0; i < OP_COUNT; i++) {
        if (!strcmp(text, op_names[i]))
            return (enum load_op)i;
    }
    usage_error("no such op", text);
    return OP_COUNT;
}

static void store_number(void *to, size_t width, uint64_t value)
{
    uint32_t value32 = (uint32_t)value;
    uint16_t value16 = (uint16_t)value;
    memcpy(to,
           width == 8   ? (void *)&value
           : width == 4 ? (void *)&value32
                        : (void *)&value16,
           width);
}

static void parse_argument(struct load_options *o, const struct argument *a, const char *text)
{
    void *to = (uint8_t *)o + a->offset;
    switch (a->type) {
    case TEXT:
        *(const char **)to = text;
        break;
    case NUMBER:
        store_number(to, a->width, parse_number(text, a->low, a->high));
        break;
    case SECONDS:
        *(double *)to = parse_seconds(text);
        break;
    case OPERATION:
        *(enum load_op *)to = parse_op(text);
        break;
    case FLAG:
        *(bool *)to = true;
        break;
    default:
        fputs(help, stdout);
        exit(0);
    }
}

static void check_options(struct load_options *o)
{
    uint64_t stride = o->stride ? o->stride : o->size;
    if (!o->port || !o->path || o->op == OP_COUNT)
        usage_error("missing", "--port, --path and --op are needed");
    if (!o->count && !o->seconds && !o->prepare)
        usage_error("missing", "--seconds or --count");
    if (o->op <= OP_WRITE_SEQ && (o->size % 8 || o->size > stride || stride > o->file_size))
        usage_error("--size", "must be a multiple of 8, and fit into --stride and --file-size");
    if (o->period % 8)
        usage_error("--period", "must be a multiple of 8");
    if (!o->mount_port)
        o->mount_port = o->port;
    if (o->threads > o->connections)
        o->threads = o->connections;
}

static struct load_options parse_options(int argc, char **argv)
{
    struct load_options o = {.host = "127.0.0.1",
                             .prefix = "data",
                             .connections = 1,
                             .threads = 1,
                             .depth = 1,
                             .size = 4096,
                             .files = 1,
                             .file_size = UINT64_C(256) << 20,
                             .op = OP_COUNT};
    struct option options[ARGUMENTS + 1] = {0};
    for (int i = 0; i < ARGUMENTS; i++) {
        options[i].name = arguments[i].name;
        options[i].has_arg = arguments[i].type != FLAG && arguments[i].type != HELP;
    }
    int known, index = 0;
    while ((known = getopt_long(argc, argv, "", options, &index)) != -1) {
        if (known)
            usage_error("option", "unknown, or without its value");
        parse_argument(&o, &arguments[index], optarg);
    }
    if (optind < argc)
        usage_error("not an option", argv[optind]);
    check_options(&o);
    return o;
}

/* Writes the data files from end to end in order, and commits them. */
static int prepare(const struct load_options *options)
{
    struct load_options o = *options;
    struct load_target target = {0};
    o.op = OP_WRITE_SEQ;
    o.size = o.file_size < 1 << 20 ? (uint32_t)o.file_size : 1 << 20;
    o.stride = o.rate = o.stable = 0;
    o.connections = o.threads = 1;
    o.depth = 16;
    o.count = o.file_size / o.size * o.files;
    struct load_run run = {.options = &o, .target = &target};
    int error = 0;
    if (o.file_size % o.size || o.size % 8) {
        fprintf(
            stderr,
            "load: --prepare: the file size must be a multiple of 1M, or less than 1M and of 8\n");
        error = -1;
    }
    if (!error)
        error = setup_target(&o, &target);
    if (!error)
        error = load_run(&run);
    if (!error)
        error = setup_commit(&o, &target);
    if (run.total.errors) {
        fprintf(stderr, "load: --prepare: %" PRIu64 " errors: %s\n", run.total.errors,
                run.total.error);
        error = -1;
    }
    free(target.files);
    return error;
}

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

static void print_result(const struct load_run *run)
{
    const struct load_options *o = run->options;
    const struct load_counts *c = &run->total;
    static const struct {
        const char *name;
        double q;
    } quantiles[] = {{"p50_us", 0.5}, {"p90_us", 0.9}, {"p99_us", 0.99}, {"p999_us", 0.999}};
    double ops = c->operations ? (double)c->operations : 1, gigabytes = (double)c->bytes / 1e9;
    printf("{\"op\":\"%s\",\"size\":%u,\"conns\":%u,\"depth\":%u,\"threads\":%u,\"seconds\":%.3f,",
           op_names[o->op], o->size, o->connections, o->depth, o->threads, run->seconds);
    printf("\"ops\":%" PRIu64 ",\"ops_per_s\":%.1f,\"mb_per_s\":%.1f,", c->operations,
           (double)c->operations / run->seconds, (double)c->bytes / 1e6 / run->seconds);
    for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++)
        printf("\"%s\":%.1f,", quantiles[i].name,
               (double)hist_quantile(&c->latency, quantiles[i].q) / 1e3);
    printf("\"max_us\":%.1f,\"load_cpu_us_per_op\":%.3f,", (double)c->latency.max / 1e3,
           run->client_cpu * 1e6 / ops);
    if (run->server_cpu >= 0) {
        printf("\"server_cpu_s\":%.4f,\"server_cpu_us_per_op\":%.3f,", run->server_cpu,
               run->server_cpu * 1e6 / ops);
        if (c->bytes)
            printf("\"server_cpu_s_per_gb\":%.4f,", run->server_cpu / gigabytes);
    }
    printf("\"names\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"jukebox\":%" PRIu64
           ",\"last_status\":%u,\"error\":",
           run->tickets, c->errors, c->jukebox, c->last_status);
    print_text(c->error);
    printf("}\n");
}

int main(int argc, char **argv)
{
    struct load_options o = parse_options(argc, argv);
    struct load_target target = {0};
    struct load_run *run = calloc(1, sizeof *run);
    if (!run || (o.prepare && prepare(&o)))
        return 1;
    if (!o.count && !o.seconds)
        return 0;
    run->options = &o;
    run->target = &target;
    if (setup_target(&o, &target) || load_run(run))
        return 1;
    print_result(run);
    int status = run->total.errors ? 1 : 0;
    free(target.files);
    free(run);
    return status;
}
