#include "sluice/base_config.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "sluice/base_error.h"

static const char list_separators[] = ", \t";

__attribute__((format(printf, 2, 3))) static void say(struct config_error *error,
                                                      const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof(error->text), format, arguments);
    va_end(arguments);
}

static void *field(const struct config_option *option, void *into)
{
    return (char *)into + option->offset;
}

/* ---- values ---- */

static void list_free(struct config_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->at[i]);
    free(list->at);
    *list = (struct config_list){0};
}

static int list_append(struct config_list *list, const char *word, size_t length)
{
    char **grown = realloc(list->at, (list->count + 1) * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    list->at = grown;
    list->at[list->count] = strndup(word, length);
    if (!list->at[list->count])
        return -ENOMEM;
    list->count++;
    return 0;
}

static int list_extend(struct config_list *list, const char *text)
{
    int result = 0;
    for (;;) {
        text += strspn(text, list_separators);
        size_t length = strcspn(text, list_separators);
        if (!length || result)
            return result;
        result = list_append(list, text, length);
        text += length;
    }
}

static int out_of_range(const struct config_option *option, const char *text,
                        struct config_error *error)
{
    char least[32], most[32];
    if (option->type == CONFIG_SIZE) {
        size_exact(option->least, least);
        size_exact(option->most, most);
    } else {
        snprintf(least, sizeof(least), "%llu", (unsigned long long)option->least);
        snprintf(most, sizeof(most), "%llu", (unsigned long long)option->most);
    }
    if (option->most)
        say(error, "%s: \"%s\" is out of range, it must be from %s to %s", option->key, text, least,
            most);
    else
        say(error, "%s: \"%s\" is out of range, it must be at least %s", option->key, text, least);
    return -ERANGE;
}

static bool in_range(const struct config_option *option, uint64_t value)
{
    return value >= option->least && (!option->most || value <= option->most);
}

static int set_size(const struct config_option *option, uint64_t *to, const char *text,
                    struct config_error *error)
{
    uint64_t value = 0;
    int result = size_parse(text, &value);
    if (result == -EINVAL) {
        say(error, "%s: \"%s\" is not a size, write it like 64Ki, 1.5Gi, 1T or as plain bytes",
            option->key, text);
        return result;
    }
    if (result || !in_range(option, value))
        return out_of_range(option, text, error);
    *to = value;
    return 0;
}

static int set_count(const struct config_option *option, unsigned *to, const char *text,
                     struct config_error *error)
{
    size_t digits = strspn(text, "0123456789");
    if (!digits || text[digits]) {
        say(error, "%s: \"%s\" is not a number, write digits only", option->key, text);
        return -EINVAL;
    }
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno || value > UINT_MAX || !in_range(option, value))
        return out_of_range(option, text, error);
    *to = (unsigned)value;
    return 0;
}

static int set_bool(const struct config_option *option, bool *to, const char *text,
                    struct config_error *error)
{
    static const char *const yes[] = {"yes", "true", "on", "1"}, *const no[] = {"no", "false",
                                                                                "off", "0"};
    for (size_t i = 0; i < 4; i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *to = strcasecmp(text, yes[i]) == 0;
            return 0;
        }
    }
    say(error, "%s: \"%s\" is neither yes nor no", option->key, text);
    return -EINVAL;
}

static int set_string(const struct config_option *option, char **to, const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        return -ENOMEM;
    free(*to);
    *to = copy;
    return 0;
}

static int set_list(const struct config_option *option, struct config_list *to, const char *text)
{
    struct config_list list = {0};
    int result = list_extend(&list, text);
    if (result) {
        list_free(&list);
        return result;
    }
    list_free(to);
    *to = list;
    return 0;
}

int config_set(const struct config_option *option, void *into, const char *text,
               struct config_error *error)
{
    void *to = field(option, into);
    int result = -EINVAL;
    switch (option->type) {
    case CONFIG_SIZE:
        return set_size(option, to, text, error);
    case CONFIG_COUNT:
        return set_count(option, to, text, error);
    case CONFIG_BOOL:
        return set_bool(option, to, text, error);
    case CONFIG_STRING:
        result = set_string(option, to, text);
        break;
    case CONFIG_LIST:
        result = set_list(option, to, text);
        break;
    }
    if (result)
        say(error, "%s: %s", option->key, sl_strerror(result));
    return result;
}

static void clear(const struct config_option *option, void *into)
{
    void *to = field(option, into);
    switch (option->type) {
    case CONFIG_STRING:
        *(char **)to = NULL;
        break;
    case CONFIG_SIZE:
        *(uint64_t *)to = 0;
        break;
    case CONFIG_COUNT:
        *(unsigned *)to = 0;
        break;
    case CONFIG_BOOL:
        *(bool *)to = false;
        break;
    case CONFIG_LIST:
        *(struct config_list *)to = (struct config_list){0};
        break;
    }
}

int config_defaults(const struct config_option *table, size_t count, void *into,
                    struct config_error *error)
{
    for (size_t i = 0; i < count; i++)
        clear(&table[i], into);
    for (size_t i = 0; i < count; i++) {
        int result = table[i].fallback ? config_set(&table[i], into, table[i].fallback, error) : 0;
        if (result) {
            config_free(table, count, into);
            return result;
        }
    }
    return 0;
}

void config_free(const struct config_option *table, size_t count, void *into)
{
    for (size_t i = 0; i < count; i++) {
        if (table[i].type == CONFIG_STRING)
            free(*(char **)field(&table[i], into));
        if (table[i].type == CONFIG_LIST)
            list_free(field(&table[i], into));
        clear(&table[i], into);
    }
}

/* ---- the file ---- */

struct reading {
    const struct config_option *table;
    size_t count;
    void *into;
    const char *path;
    FILE *file;
    unsigned *seen; /* by option: the line that set it, 0 for none */
    unsigned line;
    bool indented; /* inih takes such a line as more of the value above */
    int result;    /* of the first mistake; nothing is looked at after it */
    struct config_error *error;
};

__attribute__((format(printf, 3, 4))) static void mistake(struct reading *r, int result,
                                                          const char *format, ...)
{
    if (r->result)
        return;
    r->result = result;
    char text[sizeof(r->error->text) - 64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    char path[256]; /* of a long path the end says more */
    size_t length = strlen(r->path);
    snprintf(path, sizeof(path), "%s", length < sizeof(path) ? r->path : r->path + length - 255);
    say(r->error, "%s:%u: %s", path, r->line, text);
}

static bool first_of_section(const struct config_option *table, size_t i)
{
    for (size_t before = 0; before < i; before++)
        if (strcmp(table[before].section, table[i].section) == 0)
            return false;
    return true;
}

/* The known sections, or with `section` the keys in it, as "a, b, c". */
static const char *known(const struct reading *r, const char *section, char *to, size_t room)
{
    size_t length = 0;
    to[0] = 0;
    for (size_t i = 0; i < r->count && length < room; i++) {
        const struct config_option *option = &r->table[i];
        if (section ? strcmp(option->section, section) != 0 : !first_of_section(r->table, i))
            continue;
        int more = snprintf(to + length, room - length, section ? "%s%s" : "%s[%s]",
                            length ? ", " : "", section ? option->key : option->section);
        length += (size_t)more;
    }
    return to;
}

static void check_section(struct reading *r, const char *line)
{
    const char *end = strchr(line, ']');
    if (!end)
        return; /* inih's mistake to find */
    size_t length = (size_t)(end - line - 1);
    for (size_t i = 0; i < r->count; i++)
        if (strlen(r->table[i].section) == length &&
            strncmp(r->table[i].section, line + 1, length) == 0)
            return;
    char names[256];
    mistake(r, -EINVAL, "unknown section [%.*s], known are %s", (int)(length < 64 ? length : 64),
            line + 1, known(r, NULL, names, sizeof(names)));
}

static char *read_line(char *line, int room, void *stream)
{
    struct reading *r = stream;
    if (r->result || !fgets(line, room, r->file))
        return NULL;
    r->line++;
    size_t length = strlen(line);
    if (length == (size_t)room - 1 && line[length - 1] != '\n' && !feof(r->file)) {
        mistake(
            r, -EINVAL,
            "the line is longer than %d characters; a list may go on in the next line, indented",
            room - 2);
        return NULL;
    }
    r->indented = isspace((unsigned char)line[0]);
    if (line[0] == '[')
        check_section(r, line);
    return line;
}

static const struct config_option *find(const struct reading *r, const char *section,
                                        const char *key)
{
    for (size_t i = 0; i < r->count; i++)
        if (strcmp(r->table[i].key, key) == 0 &&
            (!section || strcmp(r->table[i].section, section) == 0))
            return &r->table[i];
    return NULL;
}

static void unknown_key(struct reading *r, const char *section, const char *key)
{
    char names[320];
    const struct config_option *elsewhere = find(r, NULL, key);
    if (elsewhere)
        mistake(r, -EINVAL, "%s belongs in section [%s]", key, elsewhere->section);
    else if (!*section)
        mistake(r, -EINVAL, "%s stands before any section, known are %s", key,
                known(r, NULL, names, sizeof(names)));
    else
        mistake(r, -EINVAL, "unknown key %s in section [%s], known are %s", key, section,
                known(r, section, names, sizeof(names)));
}

static int take_value(void *user, const char *section, const char *key, const char *value)
{
    struct reading *r = user;
    if (r->result)
        return 1;
    const struct config_option *option = find(r, section, key);
    if (!option) {
        unknown_key(r, section, key);
        return 1;
    }
    unsigned *seen = &r->seen[option - r->table];
    if (r->indented && *seen) {
        int result = -EINVAL;
        if (option->type == CONFIG_LIST)
            result = list_extend(field(option, r->into), value);
        if (result)
            mistake(r, result,
                    option->type == CONFIG_LIST ? "%s: out of memory"
                                                : "the line is indented, which continues the value "
                                                  "of %s; begin it at the margin",
                    key);
        return 1;
    }
    if (*seen) {
        mistake(r, -EINVAL, "%s is set twice, first in line %u", key, *seen);
        return 1;
    }
    *seen = r->line;
    struct config_error error;
    int result = config_set(option, r->into, value, &error);
    if (result)
        mistake(r, result, "%s", error.text);
    return 1;
}

int config_file(const struct config_option *table, size_t count, void *into, const char *path,
                struct config_error *error)
{
    struct reading r = {.table = table, .count = count, .into = into, .path = path, .error = error};
    r.file = fopen(path, "re");
    if (!r.file) {
        int result = -errno;
        say(error, "%s: %s", path, sl_strerror(result));
        return result;
    }
    r.seen = calloc(count, sizeof(*r.seen));
    int wrong_line = r.seen ? ini_parse_stream(read_line, &r, take_value, &r) : -1;
    if (!r.result && ferror(r.file)) {
        r.result = -EIO;
        say(error, "%s: cannot be read", path);
    } else if (!r.seen || (!r.result && wrong_line < 0)) {
        r.result = -ENOMEM;
        say(error, "%s: out of memory", path);
    } else if (wrong_line > 0 && (!r.result || (unsigned)wrong_line < r.line)) {
        r.result = 0; /* inih goes on after its mistake, so it came before ours */
        r.line = (unsigned)wrong_line;
        mistake(&r, -EINVAL, "neither [section] nor key = value nor a comment (# or ;)");
    }
    free(r.seen);
    fclose(r.file);
    return r.result;
}

/* ---- what people read ---- */

static const char *value_name(const struct config_option *option)
{
    static const char *const names[] = {
        [CONFIG_STRING] = "TEXT", [CONFIG_SIZE] = "SIZE", [CONFIG_COUNT] = "N",
        [CONFIG_BOOL] = "yes|no", [CONFIG_LIST] = "LIST",
    };
    return option->value_name ? option->value_name : names[option->type];
}

void config_print_example(const struct config_option *table, size_t count, FILE *to)
{
    for (size_t i = 0; i < count; i++) {
        if (!first_of_section(table, i))
            continue;
        fprintf(to, "%s[%s]\n", i ? "\n" : "", table[i].section);
        for (size_t j = i; j < count; j++) {
            if (strcmp(table[j].section, table[i].section) != 0)
                continue;
            fprintf(to, "# %s.\n#%s = %s\n", table[j].help, table[j].key,
                    table[j].fallback ? table[j].fallback : value_name(&table[j]));
        }
    }
}

void config_print_help(const struct config_option *table, size_t count, FILE *to)
{
    for (size_t i = 0; i < count; i++) {
        if (!table[i].flag)
            continue;
        char left[64];
        snprintf(left, sizeof(left), "--%s %s", table[i].key, value_name(&table[i]));
        fprintf(to, "  %-28s %s", left, table[i].help);
        if (table[i].fallback && *table[i].fallback)
            fprintf(to, " (default: %s)", table[i].fallback);
        fputc('\n', to);
    }
}
