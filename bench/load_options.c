/* The command line of the load generator; `load --help` says what it does. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "load_conn.h"

static const char help_head[] =
    "load --port N [--mountport N] [--host ADDR] --path EXPORT --op OP [options]\n"
    "Calls an NFSv3 or 4.1 server, checks every reply, prints one line of JSON; the exit code is 1 when a\n"
    "reply was not as expected. SIZE takes K, M, G, T. OP, and what it does:\n";

static const char help_tail[] =
    "How much and how long:\n"
    "  --conns N --threads N   connections, and threads that serve them (1, 1)\n"
    "  --depth N               calls in flight on a connection; files, records, checkpoint: files\n"
    "                          at once on a connection (1)\n"
    "  --inflight N            files, records, checkpoint: calls in flight within a file\n"
    "                          (files 4, records 1, checkpoint 16)\n"
    "  --seconds S --warmup S  how long; or\n"
    "  --count N               operations in all (files, listings); or\n"
    "  --epochs N              files, records, checkpoint: all files N times, each time reported\n"
    "  --rate N                operations (files) a second in all; latency counts from when one was\n"
    "                          due; \"missed\": were due, but found no connection with room\n"
    "Files:\n"
    "  --files N               data files (1; checkpoint: --conns); readdir: entries expected\n"
    "  --file-size SIZE        of each (256M; files 110K, records 143439660, checkpoint 1G)\n"
    "  --dir NAME              directory of the files, made if missing (the export's root)\n"
    "  --dirs N                spread over N directories d.0, d.1 ... below it, in equal parts\n"
    "  --prefix P --first N    names are P.N, P.N+1 ... (data, 0)\n"
    "  --prepare               first make all files, whole; without --seconds, --count and\n"
    "                          --epochs that is all. No COMMIT for files of less than 1M\n"
    "  --prepare-conns N       over so many connections (8)\n"
    "Requests:\n"
    "  --size SIZE             of a READ or WRITE (4K; files, checkpoint, stream-getattr 1M; records\n"
    "                          114660); of a reply of readdir (64K)\n"
    "  --size-min SIZE --size-max SIZE  read-rand: of all sizes between (multiples of 8)\n"
    "  --align SIZE            read-rand, write-rand: of the places (--stride; with a range 4K)\n"
    "  --stride SIZE           between sequential requests (--size)\n"
    "  --order ORDER           files, records: shuffled anew each epoch (default), listing (as\n"
    "                          READDIR gives them), disk (as --prepare wrote them)\n"
    "  --seed N                of the shuffled orders (1)\n"
    "  --stable 0|1|2          how WRITEs are to be stable (0)\n"
    "  --sync-every SIZE       checkpoint: a COMMIT each so many bytes, not only at the end\n"
    "  --read-back             checkpoint: then read all files and check every byte\n"
    "Else:\n"
    "  --vers 3|4.1|4.2        of NFS (3); 4.x is for read-rand, read-seq and getattr: READ is\n"
    "                          SEQUENCE, PUTFH, READ, GETATTR with the stateid of an open file;\n"
    "                          each connection has a session with --depth slots\n"
    "  --one-session           all connections have one session together\n"
    "  --server-pid N          report that process' CPU time\n"
    "  --check-full            check every byte of READs, not samples\n"
    "  --period SIZE           content repeats (the floor's --size)\n"
    "  --rcvbuf SIZE           SO_RCVBUF      --uid N  AUTH_SYS uid and gid\n";

static const char *const order_names[ORDER_COUNT] = {
    [ORDER_SHUFFLED] = "shuffled", [ORDER_LISTING] = "listing", [ORDER_DISK] = "disk"};

enum argument_type { TEXT, NUMBER, SECONDS, OPERATION, ORDER, VERSION, FLAG, HELP };

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
    ARGUMENT("vers", VERSION, minor, 0, 0),
    ARGUMENT("one-session", FLAG, one_session, 0, 0),
    ARGUMENT("op", OPERATION, op, 0, 0),
    ARGUMENT("prepare", FLAG, prepare, 0, 0),
    ARGUMENT("prepare-conns", NUMBER, prepare_connections, 1, 4096),
    ARGUMENT("dir", TEXT, dir, 0, 0),
    ARGUMENT("prefix", TEXT, prefix, 0, 0),
    ARGUMENT("files", NUMBER, files, 1, 1 << 24),
    ARGUMENT("dirs", NUMBER, dirs, 1, 1 << 20),
    ARGUMENT("file-size", NUMBER, file_size, 0, INT64_MAX),
    ARGUMENT("size", NUMBER, size, 8, 16 << 20),
    ARGUMENT("size-min", NUMBER, size_min, 8, 16 << 20),
    ARGUMENT("size-max", NUMBER, size_max, 8, 16 << 20),
    ARGUMENT("align", NUMBER, align, 8, INT64_MAX),
    ARGUMENT("stride", NUMBER, stride, 8, INT64_MAX),
    ARGUMENT("conns", NUMBER, connections, 1, 4096),
    ARGUMENT("threads", NUMBER, threads, 1, 256),
    ARGUMENT("depth", NUMBER, depth, 1, SLOTS_MAX),
    ARGUMENT("inflight", NUMBER, inflight, 1, SLOTS_MAX),
    ARGUMENT("epochs", NUMBER, epochs, 1, 1000),
    ARGUMENT("order", ORDER, order, 0, 0),
    ARGUMENT("seed", NUMBER, seed, 0, UINT64_MAX),
    ARGUMENT("sync-every", NUMBER, sync_every, 8, INT64_MAX),
    ARGUMENT("read-back", FLAG, read_back, 0, 0),
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

static const struct load_operation *parse_op(const char *text)
{
    for (size_t i = 0; i < load_operation_count; i++) {
        if (!strcmp(text, load_operations[i].name))
            return &load_operations[i];
    }
    usage_error("no such op", text);
    return NULL;
}

static enum load_order parse_order(const char *text)
{
    for (int i = 0; i < ORDER_COUNT; i++) {
        if (!strcmp(text, order_names[i]))
            return (enum load_order)i;
    }
    usage_error("no such order", text);
    return ORDER_COUNT;
}

/* The minor version of 4; 0 for 3. */
static uint32_t parse_version(const char *text)
{
    static const char *const names[] = {"3", "4.1", "4.2"};
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!strcmp(text, names[i]))
            return i;
    }
    usage_error("no such version", text);
    return 0;
}

static void print_help(void)
{
    fputs(help_head, stdout);
    for (size_t i = 0; i < load_operation_count; i++)
        printf("  %-16s%s\n", load_operations[i].name, load_operations[i].help);
    fputs(help_tail, stdout);
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
        *(const struct load_operation **)to = parse_op(text);
        break;
    case ORDER:
        *(enum load_order *)to = parse_order(text);
        break;
    case VERSION:
        *(uint32_t *)to = parse_version(text);
        break;
    case FLAG:
        *(bool *)to = true;
        break;
    default:
        print_help();
        exit(0);
    }
}

/* What the operation has a default of its own for. */
static void fill_options(struct load_options *o)
{
    const struct load_operation *op = o->op;
    bool range = o->size_min || o->size_max;
    if (!o->size)
        o->size = op->size ? op->size : 4096;
    if (!o->size_max)
        o->size_max = o->size;
    if (!o->size_min)
        o->size_min = range ? o->size : o->size_max;
    if (range) {
        o->size = o->size_max;
        o->align = o->align ? o->align : 4096;
    }
    if (!o->inflight)
        o->inflight = op->inflight ? op->inflight : 1;
    if (o->file_size == UINT64_MAX)
        o->file_size = op->file_size ? op->file_size : UINT64_C(256) << 20;
    if (op->flags & OP_LISTS)
        o->file_size = 0;
    if (!o->files)
        o->files = op->start == write_start ? o->connections : 1;
    if (op->start == write_start && !o->epochs && !o->seconds && !o->count)
        o->epochs = 1;
    if (!o->mount_port)
        o->mount_port = o->port;
    if (o->threads > o->connections)
        o->threads = o->connections;
}

static void check_sizes(const struct load_options *o)
{
    uint64_t stride = o->stride ? o->stride : o->size;
    if (o->size_min > o->size_max || (o->size_min < o->size_max && (o->size_min | o->size_max) % 8))
        usage_error("--size-min", "must be a multiple of 8, and at most --size-max");
    if (o->op->flags & OP_ALIGNED && (o->size % 8 || o->size > stride || stride > o->file_size))
        usage_error("--size", "must be a multiple of 8, and fit into --stride and --file-size");
    if (o->op->flags & OP_WHOLE && (o->size % 4 || o->file_size % 4))
        usage_error("--size, --file-size", "must be multiples of 4");
    if (o->op->start == write_start && (o->size % 8 || o->sync_every % 8))
        usage_error("--size, --sync-every", "must be multiples of 8");
    if (o->align % 8 || o->period % 8)
        usage_error("--align, --period", "must be multiples of 8");
}

static void check_options(const struct load_options *o)
{
    const unsigned flags = o->op->flags;
    check_sizes(o);
    if (!o->count && !o->seconds && !o->epochs && !o->prepare)
        usage_error("missing", "--seconds, --count or --epochs");
    if (o->epochs && (o->count || o->seconds || !(flags & OP_WHOLE)))
        usage_error("--epochs", "for files, records, checkpoint, without --seconds or --count");
    if (o->op->slots && o->op->slots(o) > SLOTS_MAX)
        usage_error("--depth, --inflight", "no more than 4,096 calls on a connection");
    if (o->minor && (!(flags & OP_V4) || o->prepare))
        usage_error("--vers", "4.1 and 4.2 are for read-rand, read-seq, getattr, without --prepare");
    if (o->read_back && o->op->start != write_start)
        usage_error("--read-back", "is for checkpoint");
    if (flags & OP_LISTS && o->dirs > 1)
        usage_error("--dirs", "a listing is of one directory");
    if (strlen(o->prefix) > NAME_ROOM / 2)
        usage_error("too long", o->prefix);
}

struct load_options options_parse(int argc, char **argv)
{
    struct load_options o = {.host = "127.0.0.1",
                             .prefix = "data",
                             .connections = 1,
                             .threads = 1,
                             .prepare_connections = 8,
                             .depth = 1,
                             .dirs = 1,
                             .seed = 1,
                             .file_size = UINT64_MAX};
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
    if (!o.port || !o.path || !o.op)
        usage_error("missing", "--port, --path and --op are needed");
    fill_options(&o);
    check_options(&o);
    return o;
}
