/* Calls that wait for their turn, each as the record that it is (some 200 bytes; a WRITE with its buffer), and those
 * whose turn has come and that are run when the connection's limits allow.  Worker-local. */
#ifndef RPC_HELD_H
#define RPC_HELD_H

#include "rpc/call.h"

enum { HELD_MOST = 1024 }; /* of one connection: then it is read no further */

struct held {
    struct rpc_turn turn;
    struct held *next;
    struct rpc_conn *conn;
    struct record record; /* its bytes: below, or in `buffer` */
    struct buffer buffer;
    uint32_t charge;
    uint64_t received_ns, waited_ns;
    void *ticket;
    uint8_t bytes[];
};

struct held_queue {
    struct held *first, *last;
};

/* Keeps the record for the call and hands it to version->hold().  What that returns, or -ENOMEM; then nothing has
 * happened. */
int held_add(struct rpc_conn *conn, struct record *record, const struct rpc_version *version,
             const struct rpc_call *call, const struct rpc_turn *turn);
/* Runs those whose turn has come, as far as `may` allows.  -EAGAIN: no memory or no coroutine. */
int held_run(struct rpc_conn *conn, bool (*may)(const struct rpc_conn *conn));
/* Has every program give back what waits of the connection. */
void held_withdraw(struct rpc_conn *conn);
/* Frees those whose turn has come, unanswered. */
void held_drop(struct rpc_conn *conn);

#endif
