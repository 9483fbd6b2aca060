/* Listening sockets: bind, accept on worker 0's ring, choose each connection's worker. */
#ifndef RPC_LISTEN_H
#define RPC_LISTEN_H

#include "rpc/server.h"

/* Binds and listens on all of the options' addresses; none stays open when one fails.  Main
 * thread. */
int listen_open(const struct rpc_options *options, char why[256]);
/* Starts accepting. */
void listen_start(void);
/* No more are accepted; rpc_server.accepts falls to 0 a little later, and listen_close() may be
 * called. */
void listen_stop(void);
void listen_close(void);

/* A connection is gone: the counts of the server and of its worker.  Last thing its worker does
 * with it. */
void listen_uncount(struct rpc_worker *worker);

/* Calls each() with every address listened on. */
void listen_each(void (*each)(void *arg, const struct sockaddr_storage *address), void *arg);

#endif
