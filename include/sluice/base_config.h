/* Options, written down once: the table below their owner gives to config_* yields the configuration file's
 * parser, the command line, the commented example and the help text.  Main thread only. */
#ifndef SLUICE_BASE_CONFIG_H
#define SLUICE_BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum config_type { CONFIG_STRING, CONFIG_SIZE, CONFIG_COUNT, CONFIG_BOOL, CONFIG_LIST };

struct config_option {
    const char *section, *key; /* as in the file; on the command line --key, where `flag` is set */
    enum config_type type;
    const char *fallback;      /* the default, as text; NULL: none */
    const char *help;          /* one sentence, without a full stop */
    const char *value_name;    /* what help shows: "DIR", "SIZE" */
    uint64_t least, most;      /* bounds of SIZE and COUNT; most 0: none */
    size_t offset;             /* into the caller's struct: char * (owned), uint64_t, unsigned, bool,
                                  struct config_list */
    bool flag;
};

struct config_list {
    char **at;
    size_t count;
};

struct config_error {
    char text[512]; /* names the file, the line and the word, and what would be right */
};

/* Sets every option to its default.  What the fields held before is overwritten, not freed. */
int config_defaults(const struct config_option *table, size_t count, void *into, struct config_error *error);
/* Reads `path` (INI, by inih).  Unknown sections and keys, bad values and keys given twice are errors.
 * A line holds at most 198 characters; a LIST (commas or blanks between) goes on in indented lines. */
int config_file(const struct config_option *table, size_t count, void *into, const char *path,
                struct config_error *error);
/* Sets one option from text; the message does not name a file. */
int config_set(const struct config_option *option, void *into, const char *text, struct config_error *error);
void config_free(const struct config_option *table, size_t count, void *into);

/* The example file with every key, its default and its help; and the options' part of --help. */
void config_print_example(const struct config_option *table, size_t count, FILE *to);
void config_print_help(const struct config_option *table, size_t count, FILE *to);

enum { SIZE_TEXT = 24 };

/* "64Ki", "1.5G", "1TiB", plain bytes: k M G T P E are powers of 1000, Ki Mi Gi Ti Pi Ei of 1024, in sizes, rates and
 * counts alike.  -EINVAL, -ERANGE. */
int size_parse(const char *text, uint64_t *bytes);
/* The same at the beginning of a text: *end is what comes after the unit (also when it is -ERANGE). */
int size_scan(const char *text, const char **end, uint64_t *out);
/* For people, rounded: 1.5Gi; `to` holds at least 16 bytes; returns it. */
char *size_format(uint64_t bytes, char *to);
/* What was set, to the byte, as short as it can be said: 2T, 1.5Gi, 1000001; `to` holds SIZE_TEXT bytes; returns it. */
char *size_exact(uint64_t value, char *to);

#endif
