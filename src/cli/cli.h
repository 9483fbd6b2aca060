/* sluice, the command line: sends one JSON request to the server's control socket and shows the answer
 * (sluice/base_protocol.h).  One thread. */
#ifndef SLUICE_CLI_CLI_H
#define SLUICE_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NO_SERVER = 3 };

/* X(key, value name or NULL, help) */
#define CLI_OPTIONS(X) \
    X(json, NULL, "Answer in JSON, for programs") \
    X(socket, "PATH", "The server's control socket") \
    X(pool, "DIR", "The server's pool; its socket is DIR/control.sock") \
    X(help, NULL, "Show the help of a command") \
    X(version, NULL, "Show the version") \
    X(size, "SIZE", "Most bytes the volume may hold, like 500G or 1.5Ti; none is no limit") \
    X(files, "COUNT", "Most files, directories and links it may hold, like 5M; none is no limit") \
    X(snapshot_reserve, "SHARE", "What of the size is left for snapshots, like 20% or 500G; none") \
    X(allow, "RULES", "Who may mount: CIDR, host or all, separated by commas; the first match wins (default: host). " \
                      "Behind each :ro or :rw, :secure (from ports below 1024 only), :squash=root|none|all, " \
                      ":anon=UID.GID (whom the squashed become)") \
    X(squash, "WHOM", "root: other hosts' root becomes 65534 (the default); none; all: everyone does") \
    X(groups, "WHOSE", "client: the sixteen that a call has room for (the default); server: by this host's name " \
                       "service") \
    X(owner, "UID:GID", "Owner of the volume's root directory (default: you)") \
    X(mode, "MODE", "Its permissions (default: 0755)") \
    X(yes, NULL, "Delete without asking") \
    X(to, "PATH", "The directory in the volume to import into (default: /)") \
    X(server, "HOST", "The server's name or address as the clients know it") \
    X(writable, NULL, "Clients may change it; else it is read-only until sluice volume set NAME writable=yes") \
    X(show_snapshots, "yes|no", "The directory .snapshot is in the listing of the root; it can be entered anyway") \
    X(lock, "DATE", "It cannot be deleted until then: 2026-12-31, 2026-12-31 18:00 (UTC) or +30d") \
    X(until, "DATE", "Until when: 2026-12-31, 2026-12-31 18:00 (UTC) or +30d") \
    X(older, "AGE", "Only those that were taken longer ago, like 12h, 7d or 2w") \
    X(no_safety, NULL, "Give up what the volume holds now: take no snapshot of it first") \
    X(keep, "WHAT", "How many snapshots of which kind: hourly=6,daily=2,weekly=2,monthly=1,every=15m:4, up to " \
                    "five; each with its time (UTC) @:05, @00:10, @sun-00:15 or @1-00:20, /prefix=NAME, /lock=7d") \
    X(policy, "NAME", "The schedule of its snapshots; none is none") \
    X(tier, "NAME", "Its performance level; unlimited is none (sluice tier list)") \
    X(bandwidth, "RATE", "Most bytes a second, like 2G/s or 500Mi/s, or for each TiB of the size, 64Mi/s/TiB; none") \
    X(read_bandwidth, "RATE", "The same of READs alone") \
    X(write_bandwidth, "RATE", "The same of WRITEs alone") \
    X(iops, "RATE", "Most operations a second, like 200k or 5000, or for each TiB, 1000/TiB; none") \
    X(read_iops, "RATE", "The same of operations that change nothing") \
    X(write_iops, "RATE", "The same of those that change something") \
    X(burst, "TIME", "How much may be saved up while little is asked for: 10ms to 60s of the rate (default: 100ms)") \
    X(min_bandwidth, "RATE", "Bytes a second that it gets even when other volumes compete; none") \
    X(pause, NULL, "Stop where it is; the same command without --pause goes on") \
    X(background, NULL, "Return at once") \
    X(now, NULL, "Do not keep it for a day") \
    X(deleted, NULL, "Those that were deleted and are still kept") \
    X(list, "FILE", "Warm the files named there, one a line, in the order they will be read; - is standard input") \
    X(ahead, "SIZE", "How much of a list may be loaded and not read yet (default: a quarter of the cache)") \
    X(last, "N", "So many of the last ones (default: 50)") \
    X(all, NULL, "Also those that have left") \
    X(once, NULL, "Show it once, and leave") \
    X(sort, "BY", "ops (the default), read, write, latency, gate, hits or name") \
    X(interval, "SECONDS", "How often it is renewed (default: 1)") \
    X(data, NULL, "Also read all data and compare them with their checksums") \
    X(rate, "RATE", "Most bytes of data to read a second, like 50M, or none (default: 200M)")

enum cli_option {
#define CLI_ENUM(key, value, help) OPTION_##key,
    CLI_OPTIONS(CLI_ENUM)
#undef CLI_ENUM
    OPTION_COUNT
};

struct cli {
    const char *given[OPTION_COUNT]; /* NULL: not given; "" for options without a value */
    int word_count;
    char **words; /* after the command */
};

struct cli_command {
    const char *name, *usage, *help; /* name: one or two words */
    int least, most;                 /* words */
    const char *options;             /* besides json, socket, pool, help: " size allow " */
    int (*run)(const struct cli *cli);
    const char *keys; /* options whose names are keys of KEY=VALUE here, or NULL */
    const char *more; /* a paragraph for the help of this command alone, or NULL */
};

/* Prints "sluice: ..." to stderr, wrapped if that is a terminal. */
void cli_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- client.c ---- */

struct client {
    FILE *in;
    int fd;
    char *line;
    size_t room;
};

/* EXIT_DONE, or EXIT_NO_SERVER after saying what is wrong. */
int client_open(const struct cli *cli, struct client *c);
void client_close(struct client *c);
/* Sends (taking the object over). */
int client_send(struct client *c, json_t *request);
/* The next line as an object; NULL when the server is gone (said). */
json_t *client_next(struct client *c);

/* Is this the final answer? */
bool answer_final(const json_t *answer);
/* After the final answer: shows an error (--json: as it came) and returns the exit code. */
int answer_failed(const struct cli *cli, json_t *answer);

/* One request, one answer: gives it in *answer (to be freed) when the exit code is EXIT_DONE. */
int client_ask(const struct cli *cli, json_t *request, json_t **answer);
/* The same, and shows the answer: as JSON, or with `human`, which may be NULL; then the warning there may be. */
int ask_and_show(const struct cli *cli, json_t *request, void (*human)(const json_t *answer));

/* ---- show.c ---- */

const char *text_of(const json_t *from, const char *key);
long long number_of(const json_t *from, const char *key);
double real_of(const json_t *from, const char *key); /* 0 where there is none */
/* "85 us", "1.2 ms", "3.4 s" */
const char *time_text(char to[16], double seconds);
/* Names with commas between them. */
void join_names(const json_t *names, char *to, size_t room);
/* A number of bytes for people: "512B", "1.5Gi". */
const char *bytes_text(char to[32], uint64_t bytes);
/* "1 file", "2 files" */
const char *count_text(char to[48], long long count, const char *what);
/* Prints "bandwidth 2G/s, iops 200k", or what stands for none. */
void show_limits(const json_t *texts, const char *none);
/* Prints one JSON line to stdout. */
void show_json(const json_t *answer);
/* Prints `first` and the text, in lines of up to 100 columns, indented from the second on.  They end at blanks, and
 * after an `end` where there is one (NULL: no matter). */
void show_wrapped(FILE *to, const char *first, int indent, const char *text, const char *end);
/* Prints "warning: ..." to stderr, wrapped if that is a terminal. */
void show_warning(const char *text);
void show_name(FILE *to, const json_t *from, const char *key);
/* Prints a "failed" event: "sluice: PATH: REASON" to stderr. */
void show_failure(const json_t *event);

/* For progress on a terminal's last line: a bar for a share from 0 to 1; takes the line back. */
enum { BAR_ROOM = 25 };
const char *bar_text(char to[BAR_ROOM], double share);
void clear_line(bool terminal);
double seconds_now(void); /* since some moment */

/* ---- the commands ---- */

int cli_status(const struct cli *cli);
int cli_metrics(const struct cli *cli);
int cli_stats(const struct cli *cli);
int cli_clients(const struct cli *cli);
int cli_clients_evict(const struct cli *cli);
int cli_events(const struct cli *cli);
int cli_top(const struct cli *cli);
int cli_settle(const struct cli *cli);
int cli_volume_create(const struct cli *cli);
int cli_volume_list(const struct cli *cli);
int cli_volume_show(const struct cli *cli);
int cli_volume_set(const struct cli *cli);
int cli_volume_rename(const struct cli *cli);
int cli_volume_delete(const struct cli *cli);
int cli_volume_undelete(const struct cli *cli);
int cli_snapshot_create(const struct cli *cli);
int cli_snapshot_list(const struct cli *cli);
int cli_snapshot_delete(const struct cli *cli);
int cli_snapshot_rename(const struct cli *cli);
int cli_snapshot_lock(const struct cli *cli);
int cli_policy_create(const struct cli *cli);
int cli_policy_change(const struct cli *cli);
int cli_policy_list(const struct cli *cli);
int cli_policy_delete(const struct cli *cli);
int cli_policy_set(const struct cli *cli);
int cli_access_check(const struct cli *cli);
int cli_tier_create(const struct cli *cli);
int cli_tier_set(const struct cli *cli);
int cli_tier_list(const struct cli *cli);
int cli_tier_delete(const struct cli *cli);
int cli_diff(const struct cli *cli);
int cli_clone_split(const struct cli *cli);
int cli_restore(const struct cli *cli);
int cli_clone_create(const struct cli *cli);
int cli_mount_command(const struct cli *cli);
int cli_import(const struct cli *cli);
int cli_warm(const struct cli *cli);
int cli_ls(const struct cli *cli);
int cli_cat(const struct cli *cli);
int cli_pool_check(const struct cli *cli);
int cli_pool_scrub(const struct cli *cli);
int cli_pool_compact(const struct cli *cli);

#endif
