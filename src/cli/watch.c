/* What goes on and what has gone on: stats, clients, events. */
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "sluice/base_date.h"

double real_of(const json_t *from, const char *key)
{
    return json_number_value(json_object_get(from, key));
}

const char *time_text(char to[16], double seconds)
{
    if (seconds < 1e-3)
        snprintf(to, 16, "%.0f us", seconds * 1e6);
    else if (seconds < 1)
        snprintf(to, 16, "%.*f ms", seconds < 0.1 ? 1 : 0, seconds * 1e3);
    else
        snprintf(to, 16, "%.1f s", seconds);
    return to;
}

/* ---- stats ---- */

static void show_operation(const json_t *op)
{
    char bytes[32] = "", mean[16] = "", median[16], p99[16];
    long long calls = number_of(op, "calls");
    if (number_of(op, "bytes"))
        bytes_text(bytes, (uint64_t)number_of(op, "bytes"));
    if (calls)
        time_text(mean, real_of(op, "seconds") / (double)calls);
    printf("%-6s %-16s %11lld %8lld %8s %8s %8s %8s\n", text_of(op, "protocol"), text_of(op, "operation"), calls,
           number_of(op, "errors"), bytes, mean, time_text(median, real_of(op, "median_seconds")),
           time_text(p99, real_of(op, "p99_seconds")));
}

static void show_cache(const json_t *v)
{
    char a[32], b[32], c[32];
    long long hit = number_of(v, "cache_hit_bytes"), missed = number_of(v, "cache_miss_bytes");
    printf("cache      %s from RAM, %s from disk", bytes_text(a, (uint64_t)hit), bytes_text(b, (uint64_t)missed));
    if (hit + missed)
        printf(": %.1f %% hits", 100.0 * (double)hit / (double)(hit + missed));
    printf("; holds %s\n", bytes_text(c, (uint64_t)number_of(v, "cache_held_bytes")));
    if (number_of(v, "readahead_bytes"))
        printf("read-ahead %s, of which %s were not used\n", bytes_text(a, (uint64_t)number_of(v, "readahead_bytes")),
               bytes_text(b, (uint64_t)number_of(v, "readahead_unused_bytes")));
}

static void show_gate(const json_t *v)
{
    char n[48], mean[16];
    long long calls = number_of(v, "throttled_calls");
    if (!calls && !number_of(v, "waiting_calls") && !number_of(v, "delayed_calls"))
        return;
    printf("gate       %s waited, %s each; %lld wait now, %lld were told to come later\n",
           count_text(n, calls, "call"), time_text(mean, calls ? real_of(v, "throttled_seconds") / (double)calls : 0),
           number_of(v, "waiting_calls"), number_of(v, "delayed_calls"));
}

static void show_stats(const json_t *answer)
{
    const json_t *v = json_object_get(answer, "volume");
    json_t *op;
    size_t i;
    char a[32], b[32], since[DATE_TEXT];
    date_format(number_of(v, "since"), since);
    printf("volume     %s\n", text_of(v, "name"));
    printf("since      %s, when the server started\n", since);
    printf("operations %lld, %lld with an error; read %s, written %s\n", number_of(v, "calls"), number_of(v, "errors"),
           bytes_text(a, (uint64_t)number_of(v, "read_bytes")),
           bytes_text(b, (uint64_t)number_of(v, "written_bytes")));
    show_cache(v);
    show_gate(v);
    const json_t *operations = json_object_get(v, "operations");
    if (json_array_size(operations))
        printf("\n%-6s %-16s %11s %8s %8s %8s %8s %8s\n", "PROTO", "OPERATION", "CALLS", "ERRORS", "BYTES", "MEAN",
               "MEDIAN", "P99");
    json_array_foreach (operations, i, op)
        show_operation(op);
}

int cli_stats(const struct cli *cli)
{
    return ask_and_show(cli, json_pack("{s:s, s:s}", "command", "stats", "name", cli->words[0]), show_stats);
}

/* ---- clients ---- */

void join_names(const json_t *names, char *to, size_t room)
{
    json_t *name;
    size_t i;
    *to = 0;
    json_array_foreach (names, i, name) {
        size_t used = strlen(to);
        snprintf(to + used, room - used, "%s%s", i ? "," : "", json_string_value(name));
    }
}

static void show_client(const json_t *c)
{
    char in[32], out[32], mean[16] = "", volumes[1200];
    long long calls = number_of(c, "calls");
    join_names(json_object_get(c, "volumes"), volumes, sizeof volumes);
    if (calls)
        time_text(mean, real_of(c, "seconds") / (double)calls);
    printf("%-20s %5lld %12lld %8s %8s %8s  %s\n", text_of(c, "address"), number_of(c, "connections"), calls,
           bytes_text(in, (uint64_t)number_of(c, "bytes_received")),
           bytes_text(out, (uint64_t)number_of(c, "bytes_sent")), mean, volumes);
}

static void show_nfs4_client(const json_t *c)
{
    const char *state = !json_is_true(json_object_get(c, "confirmed")) ? "unconfirmed"
                        : json_is_true(json_object_get(c, "expired"))  ? "silent"
                                                                       : "active";
    printf("%-10lld %-20s 4.%-2lld %7lld %7lld %7lld %5lld s  %-11s  %s\n", number_of(c, "number"),
           text_of(c, "address"), number_of(c, "minor_version"), number_of(c, "opens"), number_of(c, "locks"),
           number_of(c, "delegations"), number_of(c, "silent_seconds"), state, text_of(c, "owner"));
}

static void show_nfs4_clients(const json_t *list)
{
    json_t *c;
    size_t i;
    if (json_array_size(list))
        printf("\n%-10s %-20s %-4s %7s %7s %7s %7s  %-11s  %s\n", "NUMBER", "CLIENT", "NFS", "OPENS", "LOCKS",
               "DELEGS", "RENEWED", "STATE", "NAME");
    json_array_foreach (list, i, c)
        show_nfs4_client(c);
}

static void show_clients(const json_t *answer, bool all)
{
    json_t *c;
    size_t i;
    printf("%-20s %5s %12s %8s %8s %8s  %s\n", "CLIENT", "CONNS", "CALLS", "RECEIVED", "SENT", "MEAN", "VOLUMES");
    json_array_foreach (json_object_get(answer, "clients"), i, c)
        if (all || number_of(c, "connections"))
            show_client(c);
    show_nfs4_clients(json_object_get(answer, "nfs4_clients"));
}

int cli_clients(const struct cli *cli)
{
    json_t *answer;
    int code = client_ask(cli, json_pack("{s:s}", "command", "clients"), &answer);
    if (code)
        return code;
    if (cli->given[OPTION_json])
        show_json(answer);
    else
        show_clients(answer, cli->given[OPTION_all]);
    json_decref(answer);
    return EXIT_DONE;
}

static void show_evicted(const json_t *answer)
{
    char n[48];
    printf("%s evicted\n", count_text(n, number_of(answer, "evicted"), "client"));
}

int cli_clients_evict(const struct cli *cli)
{
    return ask_and_show(cli, json_pack("{s:s, s:s}", "command", "clients-evict", "client", cli->words[0]),
                        show_evicted);
}

/* ---- events ---- */

static void show_argument(const char *key, const json_t *value)
{
    json_t *item;
    size_t i;
    bool plain = strcmp(key, "name") == 0 || strcmp(key, "names") == 0 || strcmp(key, "set") == 0 ||
                 strcmp(key, "to") == 0;
    if (json_is_array(value)) {
        json_array_foreach (value, i, item)
            show_argument(key, item);
    } else if (json_is_string(value)) {
        printf(" %s%s%s", plain ? "" : key, plain ? "" : "=", json_string_value(value));
    } else if (json_is_integer(value)) {
        printf(" %s=%lld", key, (long long)json_integer_value(value));
    } else if (json_is_true(value)) {
        printf(" %s", key);
    }
}

static void show_event(const json_t *event)
{
    char date[DATE_TEXT], user[32], command[64];
    const char *key;
    json_t *value;
    const struct passwd *known = getpwuid((uid_t)number_of(event, "uid"));
    date_format(number_of(event, "time"), date);
    snprintf(user, sizeof user, "%lld", number_of(event, "uid"));
    snprintf(command, sizeof command, "%s", text_of(event, "command"));
    char *dash = strchr(command, '-');
    if (dash)
        *dash = ' ';
    printf("%s  %-8s  %s", date, known ? known->pw_name : user, command);
    json_object_foreach (json_object_get(event, "arguments"), key, value)
        show_argument(key, value);
    putchar('\n');
}

static void show_events(const json_t *answer)
{
    json_t *event;
    size_t i;
    json_array_foreach (json_object_get(answer, "events"), i, event)
        show_event(event);
}

int cli_events(const struct cli *cli)
{
    json_t *request = json_pack("{s:s}", "command", "events");
    const char *last = cli->given[OPTION_last];
    if (last && (!*last || last[strspn(last, "0123456789")] || strlen(last) > 9)) {
        cli_complain("--last: '%s' is no number of events; right would be --last 20", last);
        json_decref(request);
        return EXIT_USAGE;
    }
    if (request && last)
        json_object_set_new(request, "last", json_integer(atoll(last)));
    return ask_and_show(cli, request, show_events);
}
