#include "cli/top.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sluice/base_date.h"

/* ---- rates ---- */

/* The item of that name in the earlier sample; what was not there had counted nothing. */
static const json_t *earlier(const json_t *list, const char *key, const char *name, size_t hint)
{
    const json_t *item = json_array_get(list, hint);
    if (item && strcmp(text_of(item, key), name) == 0)
        return item; /* mostly nothing has come or gone */
    size_t i;
    json_t *at;
    json_array_foreach (list, i, at)
        if (strcmp(text_of(at, key), name) == 0)
            return at;
    return NULL;
}

static double more(const json_t *now, const json_t *before, const char *key)
{
    double difference = real_of(now, key) - (before ? real_of(before, key) : 0);
    return difference > 0 ? difference : 0; /* a client that was forgotten and came again begins anew */
}

static void rates(struct top_row *row, const json_t *now, const json_t *before, double seconds)
{
    double calls = more(now, before, "calls");
    row->ops = calls / seconds;
    row->latency = calls > 0 ? more(now, before, "seconds") / calls : NAN;
    row->gate = calls > 0 ? more(now, before, "throttled_seconds") / calls : NAN;
}

static void volume_row(struct top_row *row, const json_t *now, const json_t *before, double seconds)
{
    double hit = more(now, before, "cache_hit_bytes"), missed = more(now, before, "cache_miss_bytes");
    snprintf(row->name, sizeof row->name, "%s", text_of(now, "name"));
    rates(row, now, before, seconds);
    row->read = more(now, before, "read_bytes") / seconds;
    row->write = more(now, before, "written_bytes") / seconds;
    row->hits = hit + missed > 0 ? hit / (hit + missed) : NAN;
}

static void client_row(struct top_row *row, const json_t *now, const json_t *before, double seconds)
{
    snprintf(row->name, sizeof row->name, "%s", text_of(now, "address"));
    join_names(json_object_get(now, "volumes"), row->volumes, sizeof row->volumes);
    rates(row, now, before, seconds);
    row->read = more(now, before, "bytes_sent") / seconds;
    row->write = more(now, before, "bytes_received") / seconds;
    row->hits = NAN;
    row->connections = number_of(now, "connections");
}

static int fill(struct top_table *table, const struct top *t, const char *list, const char *key, double seconds)
{
    const json_t *now = json_object_get(t->now, list), *before = json_object_get(t->before, list);
    bool clients = table == &t->clients;
    json_t *item;
    size_t i;
    free(table->rows);
    table->count = 0;
    table->rows = calloc(json_array_size(now) + 1, sizeof *table->rows);
    if (!table->rows) {
        cli_complain("no memory");
        return EXIT_FAILED;
    }
    json_array_foreach (now, i, item) {
        const json_t *was = earlier(before, key, text_of(item, key), i);
        struct top_row *row = &table->rows[table->count];
        if (clients && !number_of(item, "connections"))
            continue;
        if (clients)
            client_row(row, item, was, seconds);
        else
            volume_row(row, item, was, seconds);
        table->count++;
    }
    return EXIT_DONE;
}

int top_sample(const struct cli *cli, struct top *t)
{
    int code = client_send(t->client, json_pack("{s:s}", "command", "activity"));
    json_t *answer = code ? NULL : client_next(t->client);
    if (!answer)
        return code ? code : EXIT_NO_SERVER;
    code = answer_failed(cli, answer);
    if (code) {
        json_decref(answer);
        return code;
    }
    json_decref(t->before);
    t->before = t->now;
    t->now = answer;
    if (!t->before)
        return EXIT_DONE;
    double seconds = more(t->now, t->before, "monotonic_seconds");
    if (seconds <= 0)
        seconds = 1;
    code = fill(&t->volumes, t, "volumes", "name", seconds);
    if (!code)
        code = fill(&t->clients, t, "clients", "address", seconds);
    if (!code)
        top_order(t);
    return code;
}

void top_free(struct top *t)
{
    json_decref(t->before);
    json_decref(t->now);
    free(t->volumes.rows);
    free(t->clients.rows);
}

/* ---- the order ---- */

static double sort_value(const struct top_row *row, enum top_sort sort)
{
    switch (sort) {
    case TOP_BY_ops: return row->ops;
    case TOP_BY_read: return row->read;
    case TOP_BY_write: return row->write;
    case TOP_BY_latency: return row->latency;
    case TOP_BY_gate: return row->gate;
    case TOP_BY_hits: return row->hits;
    default: return 0;
    }
}

/* The greatest first, what has no value last. */
static int compare(const void *a, const void *b, void *sort)
{
    const struct top_row *x = a, *y = b;
    double left = sort_value(x, *(enum top_sort *)sort), right = sort_value(y, *(enum top_sort *)sort);
    if (isnan(left) != isnan(right))
        return isnan(left) ? 1 : -1;
    if (!isnan(left) && left != right)
        return left > right ? -1 : 1;
    return strverscmp(x->name, y->name);
}

void top_order(struct top *t)
{
    qsort_r(t->volumes.rows, t->volumes.count, sizeof *t->volumes.rows, compare, &t->sort);
    qsort_r(t->clients.rows, t->clients.count, sizeof *t->clients.rows, compare, &t->sort);
}

/* ---- lines ---- */

enum { NUMBERS = 52, NAME_LEAST = 12, CELL = 16 };

/* "0", "9.5", "123", "1.2k", "12k", "345M": at most five characters. */
static const char *short_number(char to[CELL], double value)
{
    static const char units[] = " kMGTPE";
    unsigned unit = 0;
    while (value >= 999.5 && unit < sizeof units - 2) {
        value /= 1000;
        unit++;
    }
    snprintf(to, CELL, "%.*f%.*s", value > 0 && value < 9.95 ? 1 : 0, value, unit ? 1 : 0, units + unit);
    return to;
}

static const char *short_time(char to[CELL], double seconds)
{
    if (isnan(seconds))
        strcpy(to, "-");
    else
        time_text(to, seconds);
    return to;
}

static void cut(char *line, int columns)
{
    if (columns >= 0 && strlen(line) > (size_t)columns)
        line[columns] = 0;
}

/* Room for a name; the middle of one that is longer is left out. */
static int name_width(int columns)
{
    int width = columns - NUMBERS;
    return width < NAME_LEAST ? NAME_LEAST : width > 40 ? 40 : width;
}

static void fit_name(char *to, const char *name, int width)
{
    int length = (int)strlen(name), front = (width - 1) / 2;
    if (length <= width)
        strcpy(to, name);
    else
        sprintf(to, "%.*s~%s", front, name, name + length - (width - 1 - front));
}

void top_line_title(bool clients, int columns, char to[TOP_LINE])
{
    snprintf(to, TOP_LINE, "%-*s%8s%8s%9s%9s%9s%8s%s", name_width(columns), clients ? "CLIENT" : "VOLUME", "OPS/s",
             clients ? "SENT/s" : "READ/s", clients ? "RECVD/s" : "WRITE/s", "LATENCY", "AT GATE",
             clients ? "CONNS" : "HITS", clients ? "  VOLUMES" : "");
    cut(to, columns);
}

void top_line_row(const struct top_row *row, bool client, int columns, char to[TOP_LINE])
{
    char name[80], ops[CELL], in[CELL], out[CELL], latency[CELL], gate[CELL], last[32];
    fit_name(name, row->name, name_width(columns) - 1);
    if (client)
        snprintf(last, sizeof last, "%lld", row->connections);
    else if (isnan(row->hits))
        strcpy(last, "-");
    else
        snprintf(last, sizeof last, "%.0f %%", 100 * row->hits);
    snprintf(to, TOP_LINE, "%-*s%8s%8s%9s%9s%9s%8s%s%s", name_width(columns), name, short_number(ops, row->ops),
             short_number(in, row->read), short_number(out, row->write), short_time(latency, row->latency),
             short_time(gate, row->gate), last, client ? "  " : "", client ? row->volumes : "");
    cut(to, columns);
}

static void sums(const struct top *t, struct top_row *sum)
{
    *sum = (struct top_row){0};
    for (unsigned i = 0; i < t->volumes.count; i++) {
        sum->ops += t->volumes.rows[i].ops;
        sum->read += t->volumes.rows[i].read;
        sum->write += t->volumes.rows[i].write;
    }
}

void top_line_head(const struct top *t, unsigned which, int columns, char to[TOP_LINE])
{
    char a[32], b[32], c[32], d[32], n[48], m[48];
    struct top_row sum;
    if (which == 0) {
        long long up = (long long)time(NULL) - number_of(t->now, "since");
        snprintf(to, TOP_LINE, "sluiced up %lldd %02lld:%02lld:%02lld, %s, %s; pool: %s free of %s", up / 86400,
                 up / 3600 % 24, up / 60 % 60, up % 60, count_text(n, t->clients.count, "client"),
                 count_text(m, number_of(t->now, "connections"), "connection"),
                 bytes_text(a, (uint64_t)number_of(t->now, "pool_free_bytes")),
                 bytes_text(b, (uint64_t)number_of(t->now, "pool_bytes")));
    } else {
        sums(t, &sum);
        snprintf(to, TOP_LINE, "%s operations/s, read %sB/s, written %sB/s; cache: %s of %s",
                 short_number(c, sum.ops), short_number(d, sum.read), short_number(n, sum.write),
                 bytes_text(a, (uint64_t)number_of(t->now, "cache_used_bytes")),
                 bytes_text(b, (uint64_t)number_of(t->now, "cache_bytes")));
    }
    cut(to, columns);
}

/* ---- without a screen ---- */

static void print_line(const char *line)
{
    size_t length = strlen(line);
    while (length && line[length - 1] == ' ')
        length--;
    printf("%.*s\n", (int)length, line);
}

static void print_table(const struct top_table *table, bool clients, int columns)
{
    char line[TOP_LINE];
    putchar('\n');
    top_line_title(clients, columns, line);
    print_line(line);
    for (unsigned i = 0; i < table->count; i++) {
        top_line_row(&table->rows[i], clients, columns, line);
        print_line(line);
    }
}

static void print_once(const struct top *t)
{
    enum { COLUMNS = 100 };
    char line[TOP_LINE];
    for (unsigned i = 0; i < 2; i++) {
        top_line_head(t, i, COLUMNS, line);
        print_line(line);
    }
    print_table(&t->volumes, false, COLUMNS);
    print_table(&t->clients, true, COLUMNS);
}

static json_t *real_or_null(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *rows_json(const struct top_table *table, bool clients)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < table->count; i++) {
        const struct top_row *row = &table->rows[i];
        json_t *item = json_pack("{s:s, s:f, s:f, s:f, s:o, s:o}", clients ? "address" : "name", row->name,
                                 "operations_per_second", row->ops,
                                 clients ? "sent_bytes_per_second" : "read_bytes_per_second", row->read,
                                 clients ? "received_bytes_per_second" : "written_bytes_per_second", row->write,
                                 "latency_seconds", real_or_null(row->latency), "gate_seconds",
                                 real_or_null(row->gate));
        if (clients)
            json_object_set_new(item, "connections", json_integer(row->connections));
        else
            json_object_set_new(item, "cache_hits", real_or_null(row->hits));
        json_array_append_new(list, item);
    }
    return list;
}

static void print_json(const struct top *t)
{
    json_t *answer = json_pack("{s:b, s:o, s:o}", "ok", 1, "volumes", rows_json(&t->volumes, false), "clients",
                               rows_json(&t->clients, true));
    show_json(answer);
    fflush(stdout);
    json_decref(answer);
}

static int print_all(const struct cli *cli, struct top *t, double seconds)
{
    for (;;) {
        int code = top_sample(cli, t);
        if (code)
            return code;
        if (!t->before) {
            usleep((useconds_t)(seconds * 1e6));
            continue;
        }
        if (cli->given[OPTION_json])
            print_json(t);
        else
            print_once(t);
        if (cli->given[OPTION_once])
            return EXIT_DONE;
        usleep((useconds_t)(seconds * 1e6));
    }
}

/* ---- the command ---- */

static int read_options(const struct cli *cli, struct top *t, double *seconds)
{
    static const char *const names[] = {
#define TOP_NAME(key, name, foot) #name,
        TOP_SORTS(TOP_NAME)
#undef TOP_NAME
    };
    const char *sort = cli->given[OPTION_sort], *interval = cli->given[OPTION_interval];
    if (interval) {
        char *end;
        *seconds = strtod(interval, &end);
        if (end == interval || *end || !(*seconds >= 0.1 && *seconds <= 3600)) {
            cli_complain("--interval: '%s' is not from 0.1 to 3600 seconds", interval);
            return EXIT_USAGE;
        }
    }
    while (sort && t->sort < TOP_BY_COUNT && strcmp(sort, names[t->sort]) != 0)
        t->sort++;
    if (t->sort < TOP_BY_COUNT)
        return EXIT_DONE;
    cli_complain("--sort: '%s' is none of ops, read, write, latency, gate, hits and name", sort);
    return EXIT_USAGE;
}

int cli_top(const struct cli *cli)
{
    struct client client;
    struct top t = {.client = &client};
    double seconds = 1;
    int code = read_options(cli, &t, &seconds);
    bool screen = !cli->given[OPTION_once] && !cli->given[OPTION_json];
    if (!code && screen && !(isatty(STDOUT_FILENO) && isatty(STDIN_FILENO))) {
        cli_complain("this is no terminal; sluice top --once shows it once");
        code = EXIT_USAGE;
    }
    if (!code)
        code = client_open(cli, &client);
    if (code)
        return code;
    code = screen ? top_screen(cli, &t, seconds) : print_all(cli, &t, seconds);
    client_close(&client);
    top_free(&t);
    return code;
}
