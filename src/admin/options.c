#include "admin/options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define FIELD(name) .offset = offsetof(struct options, name), .flag = true
#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define TIB (UINT64_C(1) << 40)

const struct config_option options_table[] = {
    {"server", "pool", CONFIG_STRING, NULL, "The directory that holds everything the server stores",
     "DIR", FIELD(pool)},
    {"server", "listen", CONFIG_LIST, "127.0.0.1:2049, [::1]:2049",
     "Addresses for NFS and MOUNT; 0.0.0.0:2049, [::]:2049 is every address of this machine", "ADDR:PORT",
     FIELD(listen)},
    {"server", "nfs-versions", CONFIG_LIST, "3, 4", "Versions of NFS that are served: 3, 4 (with 4.1 and 4.2)", "3|4",
     FIELD(nfs_versions)},
    {"server", "nfs-lease", CONFIG_COUNT, "90", "Seconds for which an NFSv4 client that is silent keeps what it has",
     "N", FIELD(nfs_lease), .least = 5, .most = 3600},
    {"server", "nfs-grace", CONFIG_COUNT, "90", "Seconds for which NFSv4 clients may reclaim after a restart, at most",
     "N", FIELD(nfs_grace), .least = 0, .most = 3600},
    {"server", "nfs4-clients", CONFIG_COUNT, "100000", "Most NFSv4 clients; those that are silent go first", "N",
     FIELD(nfs4_clients), .least = 1, .most = 10000000},
    {"server", "nfs4-sessions", CONFIG_COUNT, "100000", "Most sessions of NFSv4.1 and 4.2 clients", "N",
     FIELD(nfs4_sessions), .least = 1, .most = 10000000},
    {"server", "nfs4-opens", CONFIG_COUNT, "1000000",
     "Most opens of NFSv4 clients, with the lock-owners in them (some 500 bytes each)", "N", FIELD(nfs4_opens),
     .least = 1, .most = 100000000},
    {"server", "nfs4-locks", CONFIG_COUNT, "1000000", "Most byte ranges that NFSv4 clients have locked", "N",
     FIELD(nfs4_locks), .least = 16, .most = 100000000},
    {"server", "nfs4-delegations", CONFIG_COUNT, "500000", "Most delegations of NFSv4 clients; 0: none are given", "N",
     FIELD(nfs4_delegations), .most = 100000000},
    {"server", "socket", CONFIG_STRING, NULL,
     "The control socket, control.sock in the pool unless set", "PATH", FIELD(socket)},
    {"server", "workers", CONFIG_COUNT, "0", "Worker threads; 0 is one for each core", "N",
     FIELD(workers), .most = 1024},
    {"server", "log-level", CONFIG_STRING, "notice", "error, warning, notice, info or debug", "LEVEL",
     FIELD(log_level)},
    {"server", "rpcbind", CONFIG_BOOL, "no", "Register NFS and MOUNT at this machine's rpcbind", "yes|no",
     FIELD(rpcbind)},
    {"server", "metrics", CONFIG_STRING, "127.0.0.1:9720",
     "Address for Prometheus, http://ADDR:PORT/metrics; off is none", "ADDR:PORT|off", FIELD(metrics)},
    {"server", "slow-operation-ms", CONFIG_COUNT, "1000",
     "Operations that take longer are logged with where their time went; 0 logs none", "MS",
     FIELD(slow_operation_ms)},
    {"server", "groups-lifetime", CONFIG_COUNT, "300",
     "Seconds for which a user's groups are kept, on volumes with groups=server", "S", FIELD(groups_lifetime),
     .least = 1, .most = 86400},
    {"server", "blocking-threads", CONFIG_COUNT, "8", "Threads for system calls that block", "N",
     FIELD(blocking_threads), .least = 1, .most = 256},
    {"server", "coroutines", CONFIG_COUNT, "20000", "Most requests that may wait at once, all together",
     "N", FIELD(coroutines), .least = 128, .most = 1000000},

    {"memory", "cache", CONFIG_SIZE, "0", "RAM for file data; 0 is a quarter of this machine's", "SIZE",
     FIELD(cache)},
    {"memory", "inode-entries", CONFIG_COUNT, "0",
     "Inodes kept decoded in RAM (some 300 bytes each); 0 is one for each 16Ki of this machine's", "N",
     FIELD(inode_entries)},
    {"memory", "name-entries", CONFIG_COUNT, "0",
     "Names kept in RAM, with those found not to be there (some 150 bytes each); 0 is one for each 16Ki", "N",
     FIELD(name_entries)},
    {"memory", "map-entries", CONFIG_COUNT, "262144", "Chunk maps kept decoded in RAM", "N",
     FIELD(map_entries), .least = 1024},

    {"pool", "map-size", CONFIG_SIZE, "0",
     "Address space for metadata; 0 is 1Ti, or what the process may use", "SIZE", FIELD(map_size),
     .most = 64 * TIB},
    {"pool", "segment-size", CONFIG_SIZE, "4Gi", "Size of the pool's data files", "SIZE",
     FIELD(segment_size), .least = 4 * MIB, .most = 64 * GIB},
    {"pool", "reserve", CONFIG_SIZE, "0",
     "Writes stop when the file system under the pool has less free; 0 lets the server choose", "SIZE",
     FIELD(reserve)},

    {"limits", "connections-max", CONFIG_COUNT, "4096", "Most connections of clients", "N",
     FIELD(connections_max), .least = 1, .most = 1000000},
    {"limits", "requests-per-connection", CONFIG_COUNT, "256",
     "Requests in flight on one connection before it is read no further", "N",
     FIELD(requests_per_connection), .least = 1, .most = 65536},
    {"limits", "bytes-per-connection", CONFIG_SIZE, "64Mi",
     "Bytes of calls and unsent replies on one connection before it is read no further", "SIZE",
     FIELD(bytes_per_connection), .least = 4 * MIB},
    {"limits", "bytes-in-flight", CONFIG_SIZE, "0",
     "The same of all connections together; each may have as much as is left. 0 is half of the cache", "SIZE",
     FIELD(bytes_in_flight)},
    {"limits", "send-buffer", CONFIG_SIZE, "512Ki", "The kernel's send buffer of one connection", "SIZE",
     FIELD(send_buffer), .least = 16 * KIB, .most = 1 * GIB},
    {"limits", "record-max", CONFIG_SIZE, "2Mi", "The largest RPC record; a larger one closes the connection",
     "SIZE", FIELD(record_max), .least = 1 * MIB + 4 * KIB, .most = 64 * MIB},
    {"limits", "duplicate-entries", CONFIG_COUNT, "65536", "Replies kept for repeated requests", "N",
     FIELD(duplicate_entries), .least = 64},
    {"limits", "duplicate-bytes", CONFIG_SIZE, "32Mi", "Bytes of replies kept for repeated requests", "SIZE",
     FIELD(duplicate_bytes), .least = 64 * KIB},
};
const size_t options_count = sizeof options_table / sizeof options_table[0];

__attribute__((format(printf, 2, 3))) static int wrong(struct config_error *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return -EINVAL;
}

/* ---- the command line ---- */

enum { ACTION_FIRST = 1000, OPTION_FIRST = 2000 };

static const struct option actions[] = {
    {"check-config", no_argument, NULL, ACTION_FIRST + OPTIONS_CHECK},
    {"print-config", no_argument, NULL, ACTION_FIRST + OPTIONS_PRINT},
    {"help", no_argument, NULL, ACTION_FIRST + OPTIONS_HELP},
    {"version", no_argument, NULL, ACTION_FIRST + OPTIONS_VERSION},
    {"check", no_argument, NULL, ACTION_FIRST + OPTIONS_CHECK_POOL},
    {"check-data", no_argument, NULL, ACTION_FIRST + OPTIONS_CHECK_DATA},
    {"compact", no_argument, NULL, ACTION_FIRST + OPTIONS_COMPACT_POOL},
    {"json", no_argument, NULL, ACTION_FIRST + OPTIONS_JSON},
    {"config", required_argument, NULL, 'c'},
};
enum { ACTIONS = sizeof actions / sizeof actions[0] };

struct command_line {
    struct options *into;
    struct config_error *error;
    enum options_action action;
    bool json, check_data;
    const char *file;
    char **texts; /* by option: what the command line says, NULL if nothing; owned */
};

static int take_option(struct command_line *line, size_t index, const char *text)
{
    char **to = &line->texts[index];
    char *joined = NULL;
    const struct config_option *option = &options_table[index];
    if (*to && option->type != CONFIG_LIST)
        return wrong(line->error, "--%s is given twice; once is right", option->key);
    if (asprintf(&joined, "%s%s%s", *to ? *to : "", *to ? ", " : "", text) < 0)
        return -ENOMEM;
    free(*to);
    *to = joined;
    return 0;
}

static int take_word(struct command_line *line, int found, const char *word)
{
    if (found == ':')
        return wrong(line->error, "%s wants a value after it; sluiced --help lists the options", word);
    if (found == '?' || found == 1)
        return wrong(line->error, "%s '%s'; sluiced --help lists the options",
                     found == '?' ? "unknown option" : "unexpected word", word);
    if (found == 'h')
        line->action = OPTIONS_HELP;
    else if (found == 'c' && line->file)
        return wrong(line->error, "-c is given twice; once is right");
    else if (found == 'c')
        line->file = optarg;
    else if (found >= OPTION_FIRST)
        return take_option(line, (size_t)(found - OPTION_FIRST), optarg);
    else if (found == ACTION_FIRST + OPTIONS_JSON)
        line->json = true;
    else if (found == ACTION_FIRST + OPTIONS_CHECK_DATA)
        line->check_data = true;
    else
        line->action = (enum options_action)(found - ACTION_FIRST);
    return 0;
}

static int scan_command_line(int argc, char **argv, struct command_line *line)
{
    struct option known[ACTIONS + options_count + 1];
    memcpy(known, actions, sizeof actions);
    for (size_t i = 0; i < options_count; i++)
        known[ACTIONS + i] = (struct option){options_table[i].key, required_argument, NULL,
                                             OPTION_FIRST + (int)i};
    known[ACTIONS + options_count] = (struct option){0};
    opterr = 0;
    optind = 0;
    for (;;) {
        int at = optind ? optind : 1;
        int found = getopt_long(argc, argv, "-:c:h", known, NULL);
        if (found == -1 && optind < argc) /* what follows "--" */
            return take_word(line, 1, argv[optind]);
        if (found == -1)
            return 0;
        const char *word = found == 1 ? optarg : argv[at < argc ? at : argc - 1];
        int error = take_word(line, found, word);
        if (error)
            return error;
    }
}

static int apply_command_line(struct command_line *line)
{
    for (size_t i = 0; i < options_count; i++) {
        struct config_error problem;
        int error = line->texts[i] ? config_set(&options_table[i], line->into, line->texts[i], &problem)
                                   : 0;
        if (error) {
            wrong(line->error, "--%.480s", problem.text);
            return error;
        }
    }
    return 0;
}

/* ---- checks across options ---- */

static int check_listen(const char *key, const char *text, struct config_error *error)
{
    char host[INET6_ADDRSTRLEN + 2];
    uint8_t address[16];
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    char *end = NULL;
    unsigned long port = colon && colon[1] >= '0' && colon[1] <= '9' ? strtoul(colon + 1, &end, 10) : 0;
    bool port_good = end && *end == 0 && port <= 65535;
    bool host_good = false;
    if (length > 0 && length < sizeof host) {
        memcpy(host, text, length);
        host[length] = 0;
        if (host[0] == '[' && host[length - 1] == ']') {
            host[length - 1] = 0;
            host_good = inet_pton(AF_INET6, host + 1, address) == 1;
        } else {
            host_good = inet_pton(AF_INET, host, address) == 1;
        }
    }
    if (host_good && port_good)
        return 0;
    return wrong(error, "%s: '%s' is not an address and a port; right would be 127.0.0.1:2049, "
                 "[::1]:2049, or 0.0.0.0:2049 for every IPv4 address", key, text);
}

bool options_nfs_version(const struct options *o, const char *version)
{
    for (size_t i = 0; i < o->nfs_versions.count; i++)
        if (strcmp(o->nfs_versions.at[i], version) == 0)
            return true;
    return false;
}

static int check_versions(const struct options *o, struct config_error *error)
{
    for (size_t i = 0; i < o->nfs_versions.count; i++) {
        const char *word = o->nfs_versions.at[i];
        if (strcmp(word, "3") && strcmp(word, "4"))
            return wrong(error, "nfs-versions: '%s' is no version; right would be 3, 4 or both, as in 3, 4", word);
    }
    return o->nfs_versions.count ? 0 : wrong(error, "nfs-versions: no version is given; right would be 3, 4");
}

static int check(const struct options *o, struct config_error *error)
{
    enum log_level level;
    if (log_level_parse(o->log_level, &level))
        return wrong(error, "log-level: '%s' is no level; right would be error, warning, notice, info or "
                     "debug", o->log_level);
    if (o->listen.count == 0)
        return wrong(error, "listen: no address is given; right would be 127.0.0.1:2049");
    for (size_t i = 0; i < o->listen.count; i++) {
        int bad = check_listen("listen", o->listen.at[i], error);
        if (bad)
            return bad;
    }
    if (strcmp(o->metrics, "off") != 0 && check_listen("metrics", o->metrics, error))
        return -EINVAL;
    int versions = check_versions(o, error);
    if (versions)
        return versions;
    if (o->segment_size % 4096)
        return wrong(error, "segment-size: must be a multiple of 4Ki");
    if (o->bytes_per_connection < 2 * o->record_max)
        return wrong(error, "bytes-per-connection: must be at least twice record-max");
    size_t most = sizeof((struct sockaddr_un *)0)->sun_path - 1;
    if (o->socket && strlen(o->socket) > most)
        return wrong(error, "the control socket's path has %zu bytes and may have %zu; give a shorter one "
                     "with --socket: %.250s", strlen(o->socket), most, o->socket);
    return 0;
}

enum { RAM_A_ENTRY = 16384, ENTRIES_LEAST = 1024, ENTRIES_MOST = 1 << 30 }; /* of the tables of inodes and names */

static uint64_t control_group_limit(void)
{
    unsigned long long limit;
    FILE *file = fopen("/sys/fs/cgroup/memory.max", "re");
    if (!file)
        return UINT64_MAX;
    int found = fscanf(file, "%llu", &limit);
    fclose(file);
    return found == 1 ? limit : UINT64_MAX;
}

uint64_t options_ram(void)
{
    uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t limit = control_group_limit();
    return limit < ram ? limit : ram;
}

static int fill_in_entries(unsigned *entries, const char *key, struct config_error *error)
{
    if (!*entries) {
        uint64_t fitting = options_ram() / RAM_A_ENTRY;
        *entries = (unsigned)(fitting < ENTRIES_MOST ? fitting : ENTRIES_MOST);
        if (*entries < ENTRIES_LEAST)
            *entries = ENTRIES_LEAST;
    }
    return *entries < ENTRIES_LEAST ? wrong(error, "%s: is too small; at least %d is right", key, ENTRIES_LEAST) : 0;
}

static int fill_in(struct options *o, struct config_error *error)
{
    if (!o->cache) {
        o->cache = options_ram() / 4 & ~(2 * MIB - 1);
        if (o->cache < 16 * MIB)
            o->cache = 16 * MIB;
    }
    if (o->cache < 4 * MIB)
        return wrong(error, "cache: is too small; at least 4Mi is right");
    int bad = fill_in_entries(&o->inode_entries, "inode-entries", error);
    if (!bad)
        bad = fill_in_entries(&o->name_entries, "name-entries", error);
    if (bad)
        return bad;
    char ram[32];
    if (o->cache > options_ram())
        return wrong(error, "cache: is more than the RAM there is, %s", size_format(options_ram(), ram));
    if (o->pool && !o->socket && asprintf(&o->socket, "%s/control.sock", o->pool) < 0) {
        o->socket = NULL;
        return -ENOMEM;
    }
    return 0;
}

/* What was found wrong after all was read begins with "KEY: "; says where that key came from. */
static void name_source(const struct command_line *line)
{
    const char *text = line->error->text;
    char copy[sizeof line->error->text];
    for (size_t i = 0; i < options_count; i++) {
        size_t length = strlen(options_table[i].key);
        if (strncmp(text, options_table[i].key, length) != 0 || text[length] != ':')
            continue;
        snprintf(copy, sizeof copy, "%s", text);
        if (line->texts[i])
            wrong(line->error, "--%.480s", copy);
        else if (line->file)
            wrong(line->error, "%.200s: %.300s", line->file, copy);
        return;
    }
}

static bool needs_pool(enum options_action action)
{
    return action == OPTIONS_RUN || action == OPTIONS_CHECK_POOL || action == OPTIONS_COMPACT_POOL;
}

static int read_all(int argc, char **argv, struct command_line *line)
{
    int error = config_defaults(options_table, options_count, line->into, line->error);
    if (!error)
        error = scan_command_line(argc, argv, line);
    if (line->check_data && line->action == OPTIONS_RUN)
        line->action = OPTIONS_CHECK_POOL;
    bool on_pool = needs_pool(line->action);
    if (error || (!on_pool && line->action != OPTIONS_CHECK))
        return error;
    if (line->file)
        error = config_file(options_table, options_count, line->into, line->file, line->error);
    if (!error)
        error = apply_command_line(line);
    if (error)
        return error;
    error = fill_in(line->into, line->error);
    if (!error)
        error = check(line->into, line->error);
    if (error)
        name_source(line);
    line->into->json = line->json;
    line->into->check_data = line->check_data;
    if (!error && on_pool && (!line->into->pool || !*line->into->pool))
        error = wrong(line->error, "which pool? Say --pool DIR, or pool = DIR in the file given with -c");
    return error;
}

int options_read(int argc, char **argv, struct options *to, enum options_action *action,
                 struct config_error *error)
{
    struct command_line line = {.into = to, .error = error, .action = OPTIONS_RUN};
    snprintf(error->text, sizeof error->text, "no memory");
    memset(to, 0, sizeof *to);
    line.texts = calloc(options_count, sizeof *line.texts);
    int result = line.texts ? read_all(argc, argv, &line) : -ENOMEM;
    for (size_t i = 0; line.texts && i < options_count; i++)
        free(line.texts[i]);
    free(line.texts);
    *action = line.action;
    return result;
}

void options_free(struct options *o)
{
    config_free(options_table, options_count, o);
}

/* ---- texts ---- */

/* Lines of at most 100 columns: what config_print_help puts on one goes on below its second column. */
static void print_wrapped(FILE *to, const char *text)
{
    enum { COLUMNS = 100, INDENT = 31 };
    int indent = 0;
    while (*text) {
        size_t line = strcspn(text, "\n"), length = line, room = (size_t)(COLUMNS - indent);
        if (line > room)
            for (length = room; length && text[length] != ' '; length--)
                ;
        length = length ? length : line;
        fprintf(to, "%*s%.*s\n", indent, "", (int)length, text);
        indent = length < line ? INDENT : 0;
        text += length + 1;
    }
}

void options_print_help(FILE *to)
{
    char *text = NULL;
    size_t length;
    fputs("sluiced: serves the volumes of a pool over NFS\n\n"
          "usage: sluiced --pool DIR [-c FILE] [--listen ADDR:PORT]... [--cache SIZE] [--workers N]\n"
          "               [--socket PATH] [OPTION VALUE]...\n\n"
          "  -c, --config FILE            Read options from FILE; the command line has the last word\n"
          "  --check-config               Say whether the options and the file are right, and leave\n"
          "  --check                      Check the stopped pool's records, print what is wrong, and leave\n"
          "  --check-data                 The same, and all data against their checksums\n"
          "  --compact                    Make the stopped pool's metadata as small as it can be, and leave\n"
          "  --json                       Answer --check and --compact in JSON\n"
          "  --print-config               Print a commented file with every key and its default\n"
          "  --help, --version\n\n"
          "options, each of them also a key of the file:\n", to);
    FILE *all = open_memstream(&text, &length);
    if (!all)
        return;
    config_print_help(options_table, options_count, all);
    if (fclose(all) == 0)
        print_wrapped(to, text);
    free(text);
}

void options_print_example(FILE *to)
{
    fputs("# Options of sluiced: sluiced -c FILE. Each is also an option of the command line, which has the\n"
          "# last word. Sizes are written like 64Ki, 1.5Gi, 2T: k M G T are powers of 1000, Ki Mi Gi Ti of\n"
          "# 1024. Lists are separated by commas.\n\n", to);
    config_print_example(options_table, options_count, to);
}
