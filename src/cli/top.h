/* `sluice top`: two samples of what the server counts become rates (top.c), which are shown line by line or on a screen
 * that renews itself (top_screen.c). */
#ifndef SLUICE_CLI_TOP_H
#define SLUICE_CLI_TOP_H

#include "cli/cli.h"

/* X(key on the keyboard, name for --sort, name at the foot of the screen) */
#define TOP_SORTS(X) \
    X('o', ops, "o)ps") \
    X('r', read, "r)ead") \
    X('w', write, "w)rite") \
    X('l', latency, "l)atency") \
    X('g', gate, "g)ate") \
    X('h', hits, "h)its") \
    X('n', name, "n)ame")

enum top_sort {
#define TOP_ENUM(key, name, foot) TOP_BY_##name,
    TOP_SORTS(TOP_ENUM)
#undef TOP_ENUM
    TOP_BY_COUNT
};

struct top_row { /* a volume or a client; per second */
    char name[80], volumes[256];
    double ops, read, write; /* of a client: sent and received */
    double latency, gate;    /* mean of a call, seconds; NAN: none was made */
    double hits;             /* share of what was read; NAN: nothing was, or of a client */
    long long connections;   /* of a client */
};

struct top_table {
    struct top_row *rows;
    unsigned count;
};

struct top {
    struct client *client;
    json_t *before, *now; /* the last two samples */
    enum top_sort sort;
    struct top_table volumes, clients;
};

/* The next sample; after the second one the tables hold what went on between the last two.  An exit code. */
int top_sample(const struct cli *cli, struct top *t);
void top_order(struct top *t);
void top_free(struct top *t);

enum { TOP_LINE = 512 };
/* Lines without their ends, at most `columns` wide. */
void top_line_head(const struct top *t, unsigned which, int columns, char to[TOP_LINE]); /* 0 and 1 */
void top_line_title(bool clients, int columns, char to[TOP_LINE]);
void top_line_row(const struct top_row *row, bool client, int columns, char to[TOP_LINE]);

/* Shows them until q or ^C; renewed every `seconds`.  An exit code. */
int top_screen(const struct cli *cli, struct top *t, double seconds);

#endif
