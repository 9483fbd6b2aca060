#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "sluice/base_protocol.h"

enum { LIST_PIECE = 64 << 10, NAME_MOST = 4096 };

/* The list, read as the server asks for more.  A pipe's names go on as they come. */
struct names {
    int fd; /* -1: a tree is warmed */
    const char *path;
    char *text; /* what was read and not sent */
    size_t length;
    bool end;
};

struct follow {
    const struct cli *cli;
    struct client *client;
    struct names names;
    double start;
    bool terminal;
};

/* ---- names ---- */

static int open_list(struct names *n, const char *path)
{
    n->path = path;
    n->text = malloc(LIST_PIECE + NAME_MOST);
    n->fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (n->text && n->fd >= 0)
        return EXIT_DONE;
    cli_complain("the list %s cannot be read: %s", path, strerror(errno));
    return EXIT_FAILED;
}

static int read_some(struct names *n)
{
    ssize_t got;
    do
        got = read(n->fd, n->text + n->length, LIST_PIECE + NAME_MOST - n->length);
    while (got < 0 && errno == EINTR);
    if (got < 0) {
        cli_complain("the list %s cannot be read: %s", n->path, strerror(errno));
        return EXIT_FAILED;
    }
    n->length += (size_t)got;
    n->end = got == 0;
    return EXIT_DONE;
}

static int add_name(json_t *to, const char *bytes, size_t length)
{
    json_t *plain = memchr(bytes, 0, length) ? NULL : json_stringn(bytes, length);
    if (plain)
        return json_array_append_new(to, plain);
    json_t *coded = json_object();
    if (coded)
        protocol_put_bytes(coded, "name", bytes, length);
    return json_array_append_new(to, coded);
}

/* Takes the whole lines; at the end of the list what is left is one too.  Empty lines name nothing. */
static int take_lines(struct names *n, json_t *to)
{
    size_t at = 0;
    while (at < n->length) {
        char *newline = memchr(n->text + at, '\n', n->length - at);
        if (!newline && !n->end)
            break;
        size_t length = newline ? (size_t)(newline - n->text) - at : n->length - at;
        if (length && add_name(to, n->text + at, length)) {
            cli_complain("no memory");
            return EXIT_FAILED;
        }
        at += length + (newline != NULL);
    }
    n->length -= at;
    memmove(n->text, n->text + at, n->length);
    if (n->length < LIST_PIECE + NAME_MOST)
        return EXIT_DONE;
    cli_complain("the list %s has a line of more than %d bytes; it should have one name a line", n->path,
                 LIST_PIECE + NAME_MOST);
    return EXIT_FAILED;
}

static int send_names(struct follow *f)
{
    struct names *n = &f->names;
    json_t *names = json_array();
    int code = names ? EXIT_DONE : EXIT_FAILED;
    while (!code && !n->end && !json_array_size(names)) {
        code = read_some(n);
        if (!code)
            code = take_lines(n, names);
    }
    json_t *line = code ? NULL : json_pack("{s:O, s:b}", "names", names, "end", (int)n->end);
    json_decref(names);
    return code ? code : client_send(f->client, line);
}

/* ---- showing ---- */

static void show_progress(struct follow *f, const json_t *e)
{
    char bar[BAR_ROOM], done[32], total[32], rate[32], ahead[32];
    double seconds = seconds_now() - f->start;
    long long bytes = number_of(e, "done_bytes"), all = number_of(e, "total_bytes");
    bool known = json_is_true(json_object_get(e, "totals_known"));
    double share = all ? (double)bytes / (double)all : 0;
    bytes_text(done, (uint64_t)bytes);
    bytes_text(total, (uint64_t)all);
    bytes_text(rate, (uint64_t)(seconds > 0 ? (double)number_of(e, "disk_bytes") / seconds : 0));
    clear_line(true);
    if (f->names.fd < 0) {
        fprintf(stderr, "[%s] %3d%%%s %s of %s, %lld of %lld files, %s/s", bar_text(bar, share), (int)(share * 100),
                known ? "" : "?", done, total, number_of(e, "done_files"), number_of(e, "total_files"), rate);
    } else {
        fprintf(stderr, "%lld files, %s; %lld read by the reader, %s ahead of it%s", number_of(e, "done_files"), done,
                number_of(e, "read_files"), bytes_text(ahead, (uint64_t)number_of(e, "ahead_bytes")),
                json_is_true(json_object_get(e, "waiting")) ? ", waiting for it" : "");
    }
    fflush(stderr);
}

static void show_event(struct follow *f, const json_t *e)
{
    if (f->cli->given[OPTION_json]) {
        show_json(e);
        fflush(stdout);
    } else if (strcmp(text_of(e, "event"), "failed") == 0) {
        clear_line(f->terminal);
        show_failure(e);
    } else if (f->terminal) {
        show_progress(f, e);
    }
}

static void show_cut(const json_t *answer)
{
    char cache[32], tree[32], done[32];
    bytes_text(cache, (uint64_t)number_of(answer, "cache_bytes"));
    bytes_text(tree, (uint64_t)number_of(answer, "total_bytes"));
    bytes_text(done, (uint64_t)number_of(answer, "done_bytes"));
    bool share = json_is_true(json_object_get(answer, "share"));
    cli_complain("%s %s, the tree %s%s: the first %s, %lld files, were loaded",
                 share ? "the volume may have of the cache" : "the cache holds", cache,
                 json_is_true(json_object_get(answer, "totals_known")) ? "" : "at least ", tree, done,
                 number_of(answer, "done_files"));
}

static void show_sum(const json_t *answer, double seconds)
{
    char files[48], bytes[32], disk[32], present[32], full[32];
    printf("%s, %s in %.1f s: %s read from disk, %s in RAM already",
           count_text(files, number_of(answer, "done_files"), "file"),
           bytes_text(bytes, (uint64_t)number_of(answer, "done_bytes")), seconds,
           bytes_text(disk, (uint64_t)number_of(answer, "disk_bytes")),
           bytes_text(present, (uint64_t)number_of(answer, "present_bytes")));
    if (number_of(answer, "full_bytes"))
        printf(", %s not taken by the cache", bytes_text(full, (uint64_t)number_of(answer, "full_bytes")));
    putchar('\n');
}

static int show_end(struct follow *f, json_t *answer)
{
    clear_line(f->terminal && !f->cli->given[OPTION_json]);
    int code = answer_failed(f->cli, answer);
    if (code)
        return code;
    long long failed = number_of(answer, "failed");
    if (f->cli->given[OPTION_json]) {
        show_json(answer);
        return failed ? EXIT_FAILED : EXIT_DONE;
    }
    show_sum(answer, seconds_now() - f->start);
    if (json_is_true(json_object_get(answer, "cut")))
        show_cut(answer);
    if (failed)
        cli_complain("%lld could not be warmed", failed);
    return failed ? EXIT_FAILED : EXIT_DONE;
}

static int follow(struct follow *f)
{
    for (;;) {
        int code = EXIT_DONE;
        json_t *line = client_next(f->client);
        if (!line)
            return EXIT_NO_SERVER;
        bool end = answer_final(line);
        if (end)
            code = show_end(f, line);
        else if (strcmp(text_of(line, "event"), "more") == 0)
            code = send_names(f);
        else
            show_event(f, line);
        json_decref(line);
        if (end || code)
            return code;
    }
}

/* ---- the command ---- */

static json_t *request_for(const struct cli *cli)
{
    json_t *request = json_pack("{s:s, s:s}", "command", "warm", "name", cli->words[0]);
    if (request && cli->given[OPTION_ahead])
        json_object_set_new(request, "ahead", json_string(cli->given[OPTION_ahead]));
    if (request && cli->given[OPTION_list])
        json_object_set_new(request, "list", json_true());
    if (request && cli->word_count > 1)
        protocol_put_bytes(request, "path", cli->words[1], strlen(cli->words[1]));
    return request;
}

static int warm(const struct cli *cli, struct names *names)
{
    struct client c;
    int code = client_open(cli, &c);
    if (code)
        return code;
    code = client_send(&c, request_for(cli));
    if (!code) {
        struct follow f = {cli, &c, *names, seconds_now(), isatty(STDERR_FILENO)};
        code = follow(&f);
    }
    client_close(&c);
    return code;
}

int cli_warm(const struct cli *cli)
{
    struct names names = {.fd = -1};
    const char *list = cli->given[OPTION_list];
    if (list && cli->word_count > 1) {
        cli_complain("warm takes a PATH or a --list, not both");
        return EXIT_USAGE;
    }
    if (cli->given[OPTION_ahead] && !list) {
        cli_complain("--ahead goes with --list");
        return EXIT_USAGE;
    }
    int code = list ? open_list(&names, list) : EXIT_DONE;
    if (!code)
        code = warm(cli, &names);
    if (names.fd > STDIN_FILENO)
        close(names.fd);
    free(names.text);
    return code;
}
