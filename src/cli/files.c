#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "sluice/base_protocol.h"

/* "VOLUME:/PATH" or "VOLUME" into a request; NULL after saying what is wrong. */
static json_t *request_for(const char *command, const char *word)
{
    const char *colon = strchr(word, ':');
    const char *path = colon ? colon + 1 : "/";
    size_t length = colon ? (size_t)(colon - word) : strlen(word);
    json_t *name = json_stringn(word, length);
    if (!name || !length) {
        json_decref(name);
        cli_complain("'%s': right would be VOLUME:/PATH", word);
        return NULL;
    }
    json_t *request = json_pack("{s:s, s:o}", "command", command, "name", name);
    if (request && !protocol_put_bytes(request, "path", path, strlen(path)))
        return request;
    json_decref(request);
    cli_complain("no memory");
    return NULL;
}

/* ---- ls ---- */

static const struct {
    const char *name;
    char letter;
} types[] = {{"file", '-'}, {"directory", 'd'}, {"block", 'b'}, {"char", 'c'}, {"link", 'l'}, {"socket", 's'},
             {"fifo", 'p'}};

static char type_letter(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].letter;
    return '?';
}

static void mode_text(char type, int mode, char to[11])
{
    static const char bits[] = "rwxrwxrwx";
    to[0] = type;
    for (int i = 0; i < 9; i++)
        to[1 + i] = mode & (0400 >> i) ? bits[i] : '-';
    if (mode & 04000)
        to[3] = mode & 0100 ? 's' : 'S';
    if (mode & 02000)
        to[6] = mode & 010 ? 's' : 'S';
    if (mode & 01000)
        to[9] = mode & 01 ? 't' : 'T';
    to[10] = 0;
}

static void show_entry(const json_t *e)
{
    char mode[11], when[32] = "?", size[48];
    char type = type_letter(text_of(e, "type"));
    time_t mtime = (time_t)number_of(e, "mtime");
    struct tm parts;
    mode_text(type, (int)number_of(e, "mode"), mode);
    if (localtime_r(&mtime, &parts))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", &parts);
    if (type == 'b' || type == 'c')
        snprintf(size, sizeof size, "%lld, %lld", number_of(e, "major"), number_of(e, "minor"));
    else
        snprintf(size, sizeof size, "%lld", number_of(e, "size"));
    printf("%s %3lld %5lld %5lld %12s %s ", mode, number_of(e, "nlink"), number_of(e, "uid"),
           number_of(e, "gid"), size, when);
    show_name(stdout, e, "name");
    if (type == 'l') {
        printf(" -> ");
        show_name(stdout, e, "target");
    }
    putchar('\n');
}

static int show_entries(const struct cli *cli, struct client *c)
{
    for (;;) {
        json_t *line = client_next(c);
        if (!line)
            return EXIT_NO_SERVER;
        if (answer_final(line)) {
            int code = answer_failed(cli, line);
            json_decref(line);
            return code;
        }
        json_object_del(line, "event");
        if (cli->given[OPTION_json])
            show_json(line);
        else
            show_entry(line);
        json_decref(line);
    }
}

static int with_client(const struct cli *cli, const char *command,
                       int (*show)(const struct cli *cli, struct client *c))
{
    struct client c;
    json_t *request = request_for(command, cli->words[0]);
    if (!request)
        return EXIT_USAGE;
    int code = client_open(cli, &c);
    if (code) {
        json_decref(request);
        return code;
    }
    code = client_send(&c, request);
    if (!code)
        code = show(cli, &c);
    client_close(&c);
    if (fflush(stdout) && !code) {
        cli_complain("the output cannot be written");
        code = EXIT_FAILED;
    }
    return code;
}

int cli_ls(const struct cli *cli)
{
    return with_client(cli, "ls", show_entries);
}

/* ---- cat ---- */

static int copy_bytes(struct client *c, size_t length)
{
    char buffer[65536];
    while (length) {
        size_t want = length < sizeof buffer ? length : sizeof buffer;
        size_t got = fread(buffer, 1, want, c->in);
        if (got == 0) {
            cli_complain("the server ended the connection in the middle");
            return EXIT_NO_SERVER;
        }
        if (fwrite(buffer, 1, got, stdout) != got) {
            cli_complain("the output cannot be written");
            return EXIT_FAILED;
        }
        length -= got;
    }
    return EXIT_DONE;
}

static int show_content(const struct cli *cli, struct client *c)
{
    for (;;) {
        json_t *line = client_next(c);
        if (!line)
            return EXIT_NO_SERVER;
        int code = answer_final(line) ? answer_failed(cli, line)
                                      : copy_bytes(c, (size_t)number_of(line, "data"));
        bool end = code || answer_final(line);
        json_decref(line);
        if (end)
            return code;
    }
}

int cli_cat(const struct cli *cli)
{
    if (cli->given[OPTION_json]) {
        cli_complain("cat gives the file's bytes as they are; leave out --json");
        return EXIT_USAGE;
    }
    return with_client(cli, "cat", show_content);
}
