#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "sluice/base_protocol.h"

void cli_complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("sluice: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

const char *text_of(const json_t *from, const char *key)
{
    const char *text = json_string_value(json_object_get(from, key));
    return text ? text : "";
}

long long number_of(const json_t *from, const char *key)
{
    return json_integer_value(json_object_get(from, key));
}

void show_json(json_t *answer)
{
    if (json_is_true(json_object_get(answer, "ok")))
        json_object_del(answer, "ok");
    json_dumpf(answer, stdout, JSON_COMPACT);
    putchar('\n');
}

void show_warning(const json_t *answer)
{
    if (json_object_get(answer, "warning"))
        fprintf(stderr, "warning: %s\n", text_of(answer, "warning"));
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
