/* The NFS protocols: MOUNT version 3, NFS version 3 (RFC 1813) and version 4 (RFC 7530, 8881, 7862).  They
 * register their programs with rpc and call the store and the volume layer. */
#ifndef SLUICE_NFS_H
#define SLUICE_NFS_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice/base_histogram.h"
#include "sluice/store.h"

enum { NFS_HANDLE_SIZE = 32 };

/* Which versions of NFS are served: before nfs_start(), where it is not version 3 alone.  -EINVAL: none. */
int nfs_serve(bool three, bool four);
bool nfs_serves(unsigned version); /* 3 or 4; any thread, from then on */
/* How much of NFSv4's state there may be, and for how long: before nfs_start(). */
struct state_options;
void nfs_limit_state(const struct state_options *options);
/* Registers the programs.  Main thread, after volume_start(), before rpc_start(). */
int nfs_start(struct store *store);
void nfs_stop(void);
/* Somebody changes files of a volume who is no client: before (`begins`) and after, so that no client trusts its cache
 * without asking.  Any thread. */
void nfs_tree_changes(uint32_t tree, bool begins);
/* Every few seconds.  Main thread. */
void nfs_tick(void);

/* How many calls of each procedure were answered and with what; for `sluice status`.  Calls each() for every
 * procedure of every program that was called at least once.  Any thread. */
void nfs_each_procedure(void (*each)(void *arg, const char *program, const char *procedure, uint64_t calls,
                                     uint64_t errors),
                        void *arg);

struct nfs_op_stats {
    const char *protocol, *operation; /* "nfs3", "READ" */
    uint64_t calls, errors;           /* errors: answered with a status that is not OK */
    uint64_t bytes;                   /* of data read or written */
    struct histogram latency;         /* from the call's arrival until its reply goes to the socket */
};
/* Each operation that was called on the volume (its snapshots included) since the server started; volume 0: calls that
 * named none.  A negative return of each() ends it and is given back.  -ENOMEM.  Any thread. */
int nfs_each_op(uint32_t volume, int (*each)(void *arg, const struct nfs_op_stats *stats), void *arg);

/* Logs a slow call, at most once a second: for struct rpc_options.  Workers. */
struct rpc_slow;
void nfs_slow(const struct rpc_slow *slow);

#endif
