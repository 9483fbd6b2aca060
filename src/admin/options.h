/* sluiced's options: one table yields the configuration file, the command line, the example file and the help.
 * Main thread. */
#ifndef SLUICE_ADMIN_OPTIONS_H
#define SLUICE_ADMIN_OPTIONS_H

#include "sluice/base_config.h"
#include "sluice/base_log.h"

struct options {
    char *pool, *socket, *log_level;
    struct config_list listen, nfs_versions;
    uint64_t cache, map_size, segment_size, reserve;
    uint64_t bytes_in_flight, bytes_per_connection, send_buffer, record_max, duplicate_bytes;
    unsigned inode_entries, name_entries, map_entries, duplicate_entries;
    unsigned nfs_lease, nfs_grace, nfs4_clients, nfs4_sessions, nfs4_opens, nfs4_locks, nfs4_delegations;
    unsigned workers, blocking_threads, coroutines;
    unsigned connections_max, requests_per_connection;
    unsigned slow_operation_ms, groups_lifetime;
    char *metrics; /* address and port, or "off" */
    bool rpcbind;
    bool check_data, json; /* of --check */
};

enum options_action {
    OPTIONS_RUN, OPTIONS_CHECK, OPTIONS_PRINT, OPTIONS_HELP, OPTIONS_VERSION,
    OPTIONS_CHECK_POOL, OPTIONS_COMPACT_POOL, OPTIONS_CHECK_DATA, OPTIONS_JSON /* the last two go with those before */
};

extern const struct config_option options_table[];
extern const size_t options_count;

/* Defaults, then the file named by -c, then the command line; checks everything that can be checked without
 * opening anything, and fills in what depends on this machine (cache, socket).  -EINVAL and others with a
 * sentence in error. */
int options_read(int argc, char **argv, struct options *to, enum options_action *action,
                 struct config_error *error);
void options_free(struct options *o);

/* Is this one of nfs-versions? */
bool options_nfs_version(const struct options *o, const char *version);

void options_print_help(FILE *to);
void options_print_example(FILE *to);

/* RAM that this process may use: the machine's, or its control group's limit where that is lower. */
uint64_t options_ram(void);

#endif
