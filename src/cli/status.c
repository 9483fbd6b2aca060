#include <string.h>

#include "cli/cli.h"

static json_t *command(const char *name)
{
    return json_pack("{s:s}", "command", name);
}

static const char *bytes(char to[32], const json_t *from, const char *key)
{
    return bytes_text(to, (uint64_t)number_of(from, key));
}

static const char *count(char to[48], const json_t *from, const char *key, const char *what)
{
    return count_text(to, number_of(from, key), what);
}

static void show_uptime(long long seconds)
{
    if (seconds >= 86400)
        printf("%lldd ", seconds / 86400);
    printf("%02lld:%02lld:%02lld", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
}

static void show_pool(const json_t *pool)
{
    char a[32], b[32], n[48];
    size_t i;
    json_t *warning;
    printf("pool      %s\n", text_of(pool, "path"));
    if (json_is_true(json_object_get(pool, "frozen")))
        printf("          takes no changes: %s\n", text_of(pool, "reason"));
    printf("space     %s free of %s", bytes(a, pool, "bytes_free"), bytes(b, pool, "bytes_total"));
    printf("; metadata %s, %s\n", bytes(a, pool, "meta_bytes"), count(n, pool, "segments", "data file"));
    json_array_foreach (json_object_get(pool, "warnings"), i, warning)
        printf("          warning: %s\n", json_string_value(warning));
    if (number_of(pool, "work_left"))
        printf("          %s of background work left\n", count(n, pool, "work_left", "piece"));
    printf("cache     %s used of %s\n", bytes(a, pool, "cache_used_bytes"), bytes(b, pool, "cache_bytes"));
}

static void show_warming(const json_t *job)
{
    char a[32], b[32], n[48];
    printf("warming   %s:", text_of(job, "volume"));
    show_name(stdout, job, "what");
    printf(": %s, %s", count(n, job, "done_files", "file"), bytes(a, job, "done_bytes"));
    if (json_object_get(job, "ahead_bytes"))
        printf(", %s ahead of the reader", bytes(b, job, "ahead_bytes"));
    else if (json_is_true(json_object_get(job, "totals_known")))
        printf(" of %s", bytes(b, job, "total_bytes"));
    putchar('\n');
}

static void show_nfs4(const json_t *nfs4)
{
    char n[48];
    printf("nfs4      %s, ", count(n, nfs4, "clients", "client"));
    printf("%s, ", count(n, nfs4, "opens", "open"));
    printf("%s, ", count(n, nfs4, "locks", "lock"));
    printf("%s\n", count(n, nfs4, "delegations", "delegation"));
}

static void show_status(const json_t *answer)
{
    size_t i;
    json_t *item;
    char a[32], n[48];
    printf("server    pid %lld, up ", number_of(answer, "pid"));
    show_uptime(number_of(answer, "uptime"));
    printf(", %s", count(n, answer, "workers", "worker"));
    printf(", %s\nlistens   ", count(n, answer, "volumes", "volume"));
    json_array_foreach (json_object_get(answer, "listen"), i, item)
        printf("%s%s", i ? ", " : "", json_string_value(item));
    putchar('\n');
    show_pool(json_object_get(answer, "pool"));
    const json_t *clients = json_object_get(answer, "clients");
    printf("clients   %s, ", count(n, clients, "connections", "connection"));
    printf("%s (%s) in flight\n", count(n, clients, "requests_in_flight", "request"),
           bytes(a, clients, "bytes_in_flight"));
    if (json_is_object(json_object_get(answer, "nfs4")))
        show_nfs4(json_object_get(answer, "nfs4"));
    json_array_foreach (json_object_get(answer, "warming"), i, item)
        show_warming(item);
    const json_t *procedures = json_object_get(answer, "procedures");
    if (json_array_size(procedures))
        printf("\n%-10s %-12s %14s %12s\n", "PROGRAM", "PROCEDURE", "CALLS", "ERRORS");
    json_array_foreach (procedures, i, item)
        printf("%-10s %-12s %14lld %12lld\n", text_of(item, "program"), text_of(item, "procedure"),
               number_of(item, "calls"), number_of(item, "errors"));
}

int cli_status(const struct cli *cli)
{
    json_t *answer;
    int code = client_ask(cli, command("status"), &answer);
    if (code)
        return code;
    if (cli->given[OPTION_json])
        show_json(answer);
    else
        show_status(answer);
    json_decref(answer);
    return EXIT_DONE;
}

int cli_metrics(const struct cli *cli)
{
    json_t *answer, *item;
    const char *name;
    int code = client_ask(cli, command("metrics"), &answer);
    if (code)
        return code;
    if (cli->given[OPTION_json])
        show_json(answer);
    else
        json_object_foreach (json_object_get(answer, "metrics"), name, item)
            printf("%-20s %20lld  %s\n", name, number_of(item, "value"), text_of(item, "help"));
    json_decref(answer);
    return EXIT_DONE;
}

int cli_settle(const struct cli *cli)
{
    json_t *answer;
    int code = client_ask(cli, command("settle"), &answer);
    if (!code && cli->given[OPTION_json])
        show_json(answer);
    json_decref(answer);
    return code;
}
