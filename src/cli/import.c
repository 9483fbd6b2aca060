#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "sluice/base_protocol.h"

/* Files count as well as bytes, or a tree of empty files would stand at zero. */
static double share_done(const json_t *e)
{
    double bytes = (double)number_of(e, "total_bytes"), files = (double)number_of(e, "total_files");
    double done = (double)number_of(e, "done_bytes") + 16384.0 * (double)number_of(e, "done_files");
    double total = bytes + 16384.0 * files;
    return total > 0 ? (done < total ? done / total : 1) : 0;
}

static void show_progress(const json_t *e, double start)
{
    char bar[BAR_ROOM], done[32], total[32], rate[32];
    double share = share_done(e), seconds = seconds_now() - start;
    bool known = json_is_true(json_object_get(e, "totals_known"));
    double bytes = (double)number_of(e, "done_bytes");
    double copied = bytes - (double)number_of(e, "skipped_bytes");
    bytes_text(done, (uint64_t)bytes);
    bytes_text(total, (uint64_t)number_of(e, "total_bytes"));
    bytes_text(rate, (uint64_t)(seconds > 0 ? copied / seconds : 0));
    fprintf(stderr, "\r\033[K[%s] %3d%%%s %s of %s, %lld of %lld files, %s/s", bar_text(bar, share), (int)(share * 100),
            known ? "" : "?", done, total, number_of(e, "done_files"), number_of(e, "total_files"), rate);
    if (known && share > 0.001) {
        long long left = (long long)(seconds / share * (1 - share));
        fprintf(stderr, ", %lld:%02lld:%02lld left", left / 3600, left / 60 % 60, left % 60);
    }
    fflush(stderr);
}

static void show_event(const struct cli *cli, json_t *e, double start, bool terminal)
{
    bool failed = strcmp(text_of(e, "event"), "failed") == 0;
    if (cli->given[OPTION_json]) {
        show_json(e);
        fflush(stdout);
        return;
    }
    if (failed) {
        clear_line(terminal);
        show_failure(e);
    } else if (terminal) {
        show_progress(e, start);
    }
}

/* What was there already took no time worth a rate. */
static void show_sum(const json_t *answer, double seconds)
{
    char files[48], bytes[32], rate[32];
    long long skipped = number_of(answer, "skipped"), copied = number_of(answer, "done_files") - skipped;
    long long size = number_of(answer, "done_bytes") - number_of(answer, "skipped_bytes");
    if (seconds < 0.001)
        seconds = 0.001;
    printf("%s, %s in %.1f s (%.0f files/s, %s/s)", count_text(files, copied, "file"),
           bytes_text(bytes, (uint64_t)size), seconds, (double)copied / seconds,
           bytes_text(rate, (uint64_t)((double)size / seconds)));
    if (skipped)
        printf("; %s, %s, there already", count_text(files, skipped, "file"),
               bytes_text(bytes, (uint64_t)number_of(answer, "skipped_bytes")));
    putchar('\n');
}

static int show_end(const struct cli *cli, json_t *answer, double start, bool terminal)
{
    clear_line(terminal && !cli->given[OPTION_json]);
    int code = answer_failed(cli, answer);
    if (code)
        return EXIT_FAILED;
    long long failed = number_of(answer, "failed");
    if (cli->given[OPTION_json]) {
        show_json(answer);
    } else {
        show_sum(answer, seconds_now() - start);
        if (failed)
            cli_complain("%lld could not be imported; import again when that is mended", failed);
    }
    return failed ? EXIT_FAILED : EXIT_DONE;
}

static int follow(const struct cli *cli, struct client *c)
{
    bool terminal = isatty(STDERR_FILENO);
    double start = seconds_now();
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

int cli_import(const struct cli *cli)
{
    struct client c;
    char *from = realpath(cli->words[1], NULL);
    if (!from && errno == ENOENT) {
        cli_complain("%s: no such directory", cli->words[1]);
        return EXIT_FAILED;
    }
    const char *path = from ? from : cli->words[1]; /* the server may see what we may not */
    json_t *request = json_pack("{s:s, s:s}", "command", "import", "name", cli->words[0]);
    const char *to = cli->given[OPTION_to];
    if (request)
        protocol_put_bytes(request, "from", path, strlen(path));
    if (request && to)
        protocol_put_bytes(request, "to", to, strlen(to));
    free(from);
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
