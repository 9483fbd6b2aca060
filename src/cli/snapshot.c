#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "sluice/base_date.h"

static int created(const struct cli *cli, json_t *request)
{
    json_t *answer, *item;
    size_t i;
    int code = client_ask(cli, request, &answer);
    if (code)
        return code;
    if (cli->given[OPTION_json])
        show_json(answer);
    else
        json_array_foreach (json_object_get(answer, "snapshots"), i, item)
            printf("%s\n", text_of(item, "name"));
    json_decref(answer);
    return EXIT_DONE;
}

int cli_snapshot_create(const struct cli *cli)
{
    json_t *request = json_pack("{s:s, s:s}", "command", "snapshot-create", "name", cli->words[0]);
    if (request && cli->given[OPTION_lock])
        json_object_set_new(request, "lock", json_string(cli->given[OPTION_lock]));
    return created(cli, request);
}

enum { NAME_WIDTH = 28, BY_WIDTH = 10 };

static int wider(int width, const char *text)
{
    int length = (int)strlen(text);
    return length > width ? length : width;
}

static void show_snapshots(const json_t *answer)
{
    json_t *s;
    size_t i;
    const json_t *all = json_object_get(answer, "snapshots");
    if (!json_array_size(all)) {
        printf("no snapshots yet; sluice snapshot create %s@NAME takes one\n", text_of(answer, "volume"));
        return;
    }
    int name_width = NAME_WIDTH, by_width = BY_WIDTH;
    json_array_foreach (all, i, s) {
        name_width = wider(name_width, text_of(s, "name"));
        by_width = wider(by_width, text_of(s, "by"));
    }
    printf("%-*s %-21s %-*s %8s %8s %s\n", name_width, "NAME", "TAKEN", by_width, "BY", "USED", "HELD", "LOCKED UNTIL");
    json_array_foreach (all, i, s) {
        char when[DATE_TEXT], until[DATE_TEXT] = "", used[32], held[32] = "-";
        date_format(number_of(s, "created"), when);
        if (json_object_get(s, "locked_until"))
            date_format(number_of(s, "locked_until"), until);
        if (json_object_get(s, "bytes_held"))
            bytes_text(held, (uint64_t)number_of(s, "bytes_held"));
        printf("%-*s %-21s %-*s %8s %8s %s\n", name_width, text_of(s, "name"), when, by_width, text_of(s, "by"),
               bytes_text(used, (uint64_t)number_of(s, "bytes_used")), held, until);
    }
}

int cli_snapshot_list(const struct cli *cli)
{
    json_t *answer;
    int code = client_ask(cli, json_pack("{s:s, s:s}", "command", "snapshot-list", "name", cli->words[0]), &answer);
    if (code)
        return code;
    if (cli->given[OPTION_json])
        show_json(answer);
    else
        show_snapshots(answer);
    json_decref(answer);
    return EXIT_DONE;
}

int cli_snapshot_delete(const struct cli *cli)
{
    json_t *answer, *item, *names = json_array();
    size_t i;
    for (int word = 0; word < cli->word_count; word++)
        json_array_append_new(names, json_string(cli->words[word]));
    json_t *request = json_pack("{s:s, s:o}", "command", "snapshot-delete", "names", names);
    if (request && cli->given[OPTION_older])
        json_object_set_new(request, "older", json_string(cli->given[OPTION_older]));
    int code = client_ask(cli, request, &answer);
    if (code)
        return code;
    const json_t *left = json_object_get(answer, "left");
    if (cli->given[OPTION_json]) {
        show_json(answer);
    } else {
        json_array_foreach (json_object_get(answer, "deleted"), i, item)
            printf("%s deleted\n", json_string_value(item));
        json_array_foreach (left, i, item)
            cli_complain("%s is still there: %s", text_of(item, "name"), text_of(item, "why"));
    }
    code = json_array_size(left) ? EXIT_FAILED : EXIT_DONE;
    json_decref(answer);
    return code;
}

int cli_snapshot_rename(const struct cli *cli)
{
    return ask_and_show(cli, json_pack("{s:s, s:s, s:s}", "command", "snapshot-rename", "name", cli->words[0], "to",
                                       cli->words[1]), NULL);
}

int cli_snapshot_lock(const struct cli *cli)
{
    json_t *request = json_pack("{s:s, s:s}", "command", "snapshot-lock", "name", cli->words[0]);
    if (request && cli->given[OPTION_until])
        json_object_set_new(request, "until", json_string(cli->given[OPTION_until]));
    return ask_and_show(cli, request, NULL);
}

/* + created, ~ changed, - removed, > renamed; directories with a slash behind them. */
static void show_difference(const json_t *line)
{
    static const char *const kinds[][2] = {{"created", "+"}, {"changed", "~"}, {"removed", "-"}, {"renamed", ">"}};
    const char *event = text_of(line, "event"), *slash = json_is_true(json_object_get(line, "directory")) ? "/" : "";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i][0], event) == 0)
            printf("%s ", kinds[i][1]);
    show_name(stdout, line, "path");
    if (strcmp(event, "renamed") == 0) {
        printf("%s -> ", slash);
        show_name(stdout, line, "new_path");
    }
    printf("%s\n", slash);
}

int cli_diff(const struct cli *cli)
{
    struct client c;
    json_t *line, *request = json_pack("{s:s, s:s}", "command", "diff", "name", cli->words[0]);
    int code = client_open(cli, &c);
    if (request && cli->word_count > 1)
        json_object_set_new(request, "to", json_string(cli->words[1]));
    if (code) {
        json_decref(request);
        return code;
    }
    code = client_send(&c, request);
    while (!code && (line = client_next(&c)) && !answer_final(line)) {
        if (cli->given[OPTION_json])
            show_json(line);
        else
            show_difference(line);
        json_decref(line);
    }
    if (!code)
        code = line ? answer_failed(cli, line) : EXIT_NO_SERVER;
    if (!code && cli->given[OPTION_json])
        show_json(line);
    if (!code)
        json_decref(line);
    client_close(&c);
    return code;
}

static void show_restored(const json_t *answer)
{
    if (json_object_get(answer, "safety"))
        printf("restored; what was there is the snapshot %s\n", text_of(answer, "safety"));
}

int cli_restore(const struct cli *cli)
{
    return ask_and_show(cli, json_pack("{s:s, s:s, s:b}", "command", "restore", "name", cli->words[0], "safety",
                                       cli->given[OPTION_no_safety] == NULL), show_restored);
}

static void show_clone(const json_t *answer)
{
    printf("volume %s created, %s; sluice mount-command %s prints how to mount it\n", text_of(answer, "name"),
           json_is_true(json_object_get(answer, "writable")) ? "writable" : "read-only", text_of(answer, "name"));
}

int cli_clone_create(const struct cli *cli)
{
    return ask_and_show(cli, json_pack("{s:s, s:s, s:s, s:b}", "command", "clone-create", "name", cli->words[0], "to",
                                       cli->words[1], "writable", cli->given[OPTION_writable] != NULL), show_clone);
}

static void show_split(const json_t *line, bool terminal)
{
    char done[32], total[32];
    if (!terminal)
        return;
    fprintf(stderr, "\r%s of %s copied ", bytes_text(done, (uint64_t)number_of(line, "bytes")),
            bytes_text(total, (uint64_t)number_of(line, "total")));
    fflush(stderr);
}

int cli_clone_split(const struct cli *cli)
{
    struct client c;
    bool wait = !cli->given[OPTION_background] && !cli->given[OPTION_pause];
    bool terminal = isatty(STDERR_FILENO) && !cli->given[OPTION_json];
    json_t *line = NULL, *request = json_pack("{s:s, s:s, s:b, s:b}", "command", "clone-split", "name", cli->words[0],
                                              "pause", cli->given[OPTION_pause] != NULL, "wait", wait);
    int code = client_open(cli, &c);
    if (code) {
        json_decref(request);
        return code;
    }
    code = client_send(&c, request);
    while (!code && (line = client_next(&c)) && !answer_final(line)) {
        show_split(line, terminal);
        json_decref(line);
    }
    if (terminal && wait)
        fputc('\n', stderr);
    if (!code)
        code = line ? answer_failed(cli, line) : EXIT_NO_SERVER;
    if (!code && cli->given[OPTION_json])
        show_json(line);
    else if (!code)
        printf("%s\n", text_of(line, "state"));
    if (!code)
        json_decref(line);
    client_close(&c);
    return code;
}
