/* The NFS protocols: MOUNT version 3 and NFS version 3 (RFC 1813) for now.  They register their programs with rpc
 * and call the store and the volume layer. */
#ifndef SLUICE_NFS_H
#define SLUICE_NFS_H

#include <stdint.h>

#include "sluice/store.h"

enum { NFS_HANDLE_SIZE = 32 };

/* Registers the programs.  Main thread, after volume_start(), before rpc_start(). */
int nfs_start(struct store *store);
void nfs_stop(void);

/* How many calls of each procedure were answered and with what; for `sluice status`.  Calls each() for every
 * procedure of every program that was called at least once.  Any thread. */
void nfs_each_procedure(void (*each)(void *arg, const char *program, const char *procedure, uint64_t calls,
                                     uint64_t errors),
                        void *arg);

#endif
