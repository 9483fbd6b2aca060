#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "sluice/base_config.h"
#include "sluice/base_protocol.h"

enum { COLUMNS = 100 };

/* ---- lines for people ---- */

/* The length of the piece of `text` that goes into `room` columns: up to the last `end` if there is one, then up to
 * the last blank, or else the whole first word. */
static size_t piece(const char *text, size_t room, const char *end)
{
    size_t length = strlen(text), blank = 0, best = 0;
    if (length <= room)
        return length;
    for (size_t i = 0; i < length && (i <= room || !blank); i++) {
        if (text[i] != ' ')
            continue;
        blank = i;
        if (end && i && i <= room && text[i - 1] == *end)
            best = i;
    }
    return best ? best : blank ? blank : length;
}

void show_wrapped(FILE *to, const char *first, int indent, const char *text, const char *end)
{
    size_t column = strlen(first);
    fputs(first, to);
    for (;;) {
        size_t length = piece(text, column < COLUMNS ? COLUMNS - column : 0, end);
        fprintf(to, "%.*s\n", (int)length, text);
        text += length;
        while (*text == ' ')
            text++;
        if (!*text)
            return;
        fprintf(to, "%*s", indent, "");
        column = (size_t)indent;
    }
}

/* Programs and logs get one line.  People get lines that end where a part of the sentence does, so that a command
 * in it stays whole. */
static void say(const char *first, const char *text)
{
    fflush(stdout);
    if (isatty(STDERR_FILENO))
        show_wrapped(stderr, first, (int)strlen(first), text, ";");
    else
        fprintf(stderr, "%s%s\n", first, text);
}

void cli_complain(const char *format, ...)
{
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    say("sluice: ", text);
}

void show_warning(const char *text)
{
    say("warning: ", text);
}

const char *bytes_text(char to[32], uint64_t bytes)
{
    size_format(bytes, to);
    if (bytes < 1024)
        strcat(to, "B");
    return to;
}

const char *count_text(char to[48], long long count, const char *what)
{
    snprintf(to, 48, "%lld %s%s", count, what, count == 1 ? "" : "s");
    return to;
}

/* ---- answers ---- */

const char *text_of(const json_t *from, const char *key)
{
    const char *text = json_string_value(json_object_get(from, key));
    return text ? text : "";
}

long long number_of(const json_t *from, const char *key)
{
    return json_integer_value(json_object_get(from, key));
}

void show_json(const json_t *answer)
{
    json_dumpf(answer, stdout, JSON_COMPACT);
    putchar('\n');
}

/* As ls shows names: what a terminal would take amiss becomes an octal escape. */
void show_name(FILE *to, const json_t *from, const char *key)
{
    size_t length = 0;
    char *name = protocol_get_bytes(from, key, &length);
    bool utf8 = json_object_get(from, key) != NULL;
    for (size_t i = 0; name && i < length; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c < ' ' || c == 127 || c == '\\' || (c >= 128 && !utf8))
            fprintf(to, "\\%03o", c);
        else
            fputc(c, to);
    }
    free(name);
}

void show_failure(const json_t *event)
{
    fputs("sluice: ", stderr);
    show_name(stderr, event, "path");
    fprintf(stderr, ": %s\n", text_of(event, "reason"));
}

/* ---- progress ---- */

const char *bar_text(char to[BAR_ROOM], double share)
{
    int length = BAR_ROOM - 1;
    for (int i = 0; i < length; i++)
        to[i] = share * length > i ? '#' : '.';
    to[length] = 0;
    return to;
}

void clear_line(bool terminal)
{
    if (terminal)
        fputs("\r\033[K", stderr);
}

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
