/* What every part of the nfs layer needs: the store it serves, and who is keeping count.  Set by nfs_start(),
 * constant until nfs_stop(); read from any worker. */
#ifndef SLUICE_NFS_SERVER_H
#define SLUICE_NFS_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice/nfs.h"
#include "sluice/rpc.h"

struct nfs_server {
    struct store *store;
    const struct store_ops *ops;
    uint32_t pool;
    uint8_t handle_key[16]; /* SipHash key of file handles, from the pool's secret */
};
extern struct nfs_server nfs_server;

extern const struct rpc_program mount_program; /* 100005 */
extern const struct rpc_program nfs_program;   /* 100003, version 3 */
extern const struct rpc_version nfs4_version;

/* The list behind MOUNT's DUMP. */
void mount_list_clear(void);

#endif
