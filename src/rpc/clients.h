/* What each client has done: one entry for each address and worker, so that a worker counts without sharing.  Entries
 * without a connection stay for a while, the RPC_CLIENTS_IDLE that left last. */
#ifndef RPC_CLIENTS_H
#define RPC_CLIENTS_H

#include "sluice/rpc.h"

struct rpc_worker;

struct rpc_client {
    struct rpc_client *next;          /* with the same hash */
    struct rpc_client *newer, *older; /* of those without a connection */
    struct sockaddr_storage peer;     /* without its port */
    unsigned worker, connections;
    uint64_t calls, bytes_in, bytes_out, latency_ns, gate_ns; /* written by its worker with relaxed stores */
    uint64_t left_ns;                                /* when the last connection went */
    struct rpc_client_tags tags;
};

/* The entry of a connection's peer, which counts the connection.  NULL: no memory.  The worker's thread. */
struct rpc_client *client_enter(unsigned worker, const struct sockaddr_storage *peer);
void client_leave(struct rpc_client *client);
void clients_free(void); /* when there are no connections any more */

#endif
