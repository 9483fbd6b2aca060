/* pool check, scrub and compact.  A stopped pool is sluiced's to look at: it is run as a program, and answers in the
 * lines of the control protocol. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "sluice/base_protocol.h"

enum { BAR = 24, STATUS_MISSING = 127 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- what is shown ---- */

static double share(const json_t *e, const char *done, const char *total)
{
    double all = (double)number_of(e, total), part = (double)number_of(e, done);
    return all > 0 ? (part < all ? part / all : 1) : 1;
}

static void show_progress(const json_t *e, double start)
{
    char bar[BAR + 1], done[32], total[32], rate[32];
    double seconds = now() - start;
    bool data = strcmp(text_of(e, "phase"), "data") == 0;
    double part = data ? share(e, "bytes", "bytes_total") : share(e, "records", "records_total");
    for (int i = 0; i < BAR; i++)
        bar[i] = part * BAR > i ? '#' : '.';
    bar[BAR] = 0;
    if (data)
        fprintf(stderr, "\r\033[K[%s] %3d%% data: %s of %s, %s/s", bar, (int)(part * 100),
                bytes_text(done, (uint64_t)number_of(e, "bytes")),
                bytes_text(total, (uint64_t)number_of(e, "bytes_total")),
                bytes_text(rate, (uint64_t)((double)number_of(e, "bytes") / (seconds > 0 ? seconds : 1))));
    else
        fprintf(stderr, "\r\033[K[%s] %3d%% %s: %lld of about %lld "
                "records", bar, (int)(part * 100), text_of(e, "phase"),
                number_of(e, "records"), number_of(e, "records_total"));
    fflush(stderr);
}

static void show_finding(const json_t *e)
{
    const json_t *volumes = json_object_get(e, "volumes");
    bool has_path = json_object_get(e, "path") || json_object_get(e, "path_hex");
    for (size_t i = 0; i < json_array_size(volumes); i++)
        printf("%s%s", i ? ", " : "", json_string_value(json_array_get(volumes, i)));
    if (has_path) {
        putchar(':');
        show_name(stdout, e, "path");
    }
    if (has_path || json_array_size(volumes))
        fputs(": ", stdout);
    puts(text_of(e, "text"));
    fflush(stdout);
}

static void show_event(const struct cli *cli, json_t *e, double start, bool terminal)
{
    bool finding = strcmp(text_of(e, "event"), "finding") == 0;
    if (cli->given[OPTION_json]) {
        show_json(e);
        fflush(stdout);
    } else if (finding) {
        if (terminal)
            fputs("\r\033[K", stderr);
        show_finding(e);
    } else if (terminal) {
        show_progress(e, start);
    }
}

static void show_sum(const json_t *answer, double seconds)
{
    enum { SHOWN = 100 };
    char records[48], bytes[32], findings[48];
    long long found = number_of(answer, "findings"), unsettled = number_of(answer, "unsettled");
    if (found > SHOWN)
        printf("and %lld more\n", found - SHOWN);
    printf("checked");
    if (number_of(answer, "records"))
        printf(" %s", count_text(records, number_of(answer, "records"), "record"));
    if (number_of(answer, "bytes") || !number_of(answer, "records"))
        printf("%s %s of data", number_of(answer, "records") ? " and" : "",
               bytes_text(bytes, (uint64_t)number_of(answer, "bytes")));
    printf(" in %.1f s: %s\n", seconds, found ? count_text(findings, found, "finding") : "all is right");
    if (unsettled)
        printf("%lld things changed too often to be settled; check again, or check the stopped pool\n", unsettled);
}

static int show_end(const struct cli *cli, json_t *answer, double start, bool terminal)
{
    if (terminal && !cli->given[OPTION_json])
        fputs("\r\033[K", stderr);
    int code = answer_failed(cli, answer);
    if (code)
        return code;
    if (cli->given[OPTION_json])
        show_json(answer);
    else
        show_sum(answer, now() - start);
    return number_of(answer, "findings") ? EXIT_FAILED : EXIT_DONE;
}

static int follow(const struct cli *cli, struct client *c)
{
    bool terminal = isatty(STDERR_FILENO);
    double start = now();
    for (;;) {
        json_t *line = client_next(c);
        if (!line)
            return EXIT_NO_SERVER;
        bool end = answer_final(line);
        int code = EXIT_DONE;
        if (end)
            code = show_end(cli, line, start, terminal);
        else
            show_event(cli, line, start, terminal);
        json_decref(line);
        if (end)
            return code;
    }
}

static int ask(const struct cli *cli, json_t *request)
{
    struct client c;
    int code = client_open(cli, &c);
    if (code) {
        json_decref(request);
        return code;
    }
    code = client_send(&c, request);
    if (!code)
        code = follow(cli, &c);
    client_close(&c);
    return code;
}

/* ---- a stopped pool ---- */

static bool server_runs(const char *pool)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (snprintf(address.sun_path, sizeof address.sun_path, "%s/control.sock", pool) >= (int)sizeof address.sun_path)
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool runs = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0)
        close(fd);
    return runs;
}

/* Beside this program, where `make install` puts it, or where the shell would find it. */
static void exec_sluiced(char **arguments)
{
    char self[PATH_MAX], path[PATH_MAX + 32];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length < 0 ? 0 : length] = 0;
    const char *folder = dirname(self);
    snprintf(path, sizeof path, "%s/sluiced", folder);
    execv(path, arguments);
    snprintf(path, sizeof path, "%s/../sbin/sluiced", folder);
    execv(path, arguments);
    execvp("sluiced", arguments);
    _exit(STATUS_MISSING);
}

static int run_sluiced(const struct cli *cli, const char *pool, const char *action, const char *more,
                       int (*show)(const struct cli *cli, struct client *c))
{
    char *arguments[] = {"sluiced", "--pool", (char *)pool, (char *)action, "--json", (char *)more, NULL};
    int ends[2], status;
    struct client c = {.fd = -1};
    if (pipe(ends))
        return EXIT_FAILED;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        exec_sluiced(arguments);
    }
    close(ends[1]);
    c.in = fdopen(ends[0], "r");
    int code = child > 0 && c.in ? show(cli, &c) : EXIT_FAILED;
    client_close(&c);
    if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == STATUS_MISSING)
        cli_complain("sluiced is not found, which is what looks at a stopped pool; put it beside sluice or into PATH");
    return code;
}

static const char *pool_of(const struct cli *cli)
{
    const char *pool = cli->word_count ? cli->words[0] : cli->given[OPTION_pool];
    return pool || cli->given[OPTION_socket] || getenv("SLUICE_SOCKET") ? pool : getenv("SLUICE_POOL");
}

/* ---- the commands ---- */

static json_t *request(const struct cli *cli, const char *command)
{
    json_t *r = json_pack("{s:s}", "command", command);
    if (cli->given[OPTION_rate])
        json_object_set_new(r, "rate", json_string(cli->given[OPTION_rate]));
    return r;
}

int cli_pool_check(const struct cli *cli)
{
    const char *pool = pool_of(cli);
    struct cli with = *cli;
    if (pool && !server_runs(pool) && !cli->given[OPTION_socket])
        return run_sluiced(cli, pool, "--check", cli->given[OPTION_data] ? "--check-data" : NULL, follow);
    if (cli->word_count)
        with.given[OPTION_pool] = pool;
    json_t *r = request(cli, "pool-check");
    if (cli->given[OPTION_data])
        json_object_set_new(r, "data", json_true());
    return ask(&with, r);
}

int cli_pool_scrub(const struct cli *cli)
{
    return ask(cli, request(cli, "pool-scrub"));
}

static int show_compacted(const struct cli *cli, struct client *c)
{
    char before[32], after[32];
    json_t *answer = client_next(c);
    if (!answer)
        return EXIT_FAILED;
    int code = answer_failed(cli, answer);
    if (!code && cli->given[OPTION_json])
        show_json(answer);
    else if (!code)
        printf("metadata: %s, before %s\n", bytes_text(after, (uint64_t)number_of(answer, "after")),
               bytes_text(before, (uint64_t)number_of(answer, "before")));
    json_decref(answer);
    return code;
}

int cli_pool_compact(const struct cli *cli)
{
    const char *pool = pool_of(cli);
    if (!pool) {
        cli_complain("which pool? Say sluice pool compact DIR; its server must be stopped");
        return EXIT_USAGE;
    }
    if (server_runs(pool)) {
        cli_complain("a server uses %s; stop it first, since metadata is compacted while nobody uses it", pool);
        return EXIT_FAILED;
    }
    return run_sluiced(cli, pool, "--compact", NULL, show_compacted);
}
