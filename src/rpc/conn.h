/* One TCP connection: receiving, limits, closing (conn.c), sending (send.c).  Belongs to one
 * worker and is used by its thread only. */
#ifndef RPC_CONN_H
#define RPC_CONN_H

#include "rpc/call.h"
#include "rpc/clients.h"
#include "rpc/held.h"
#include "rpc/record.h"
#include "rpc/server.h"

#define RPC_CONN_MAGIC UINT32_C(0x72636f6e)

struct call_queue {
    struct call *first, *last;
};

struct rpc_conn {
    uint32_t magic;
    int fd;
    uint64_t number; /* unique while the server runs */
    struct rpc_worker *worker;

    bool receiving, sending; /* an operation is on the ring */
    bool more;               /* the socket held more than the last receive took */
    bool ended;              /* the peer sends no more: answer what is there, then close */
    bool deaf;               /* takes no more calls: framing is lost, or the server drains */
    bool closing;            /* shut down; freed when nothing refers to it any more */
    bool blocked;            /* stopped taking calls because of a limit */
    bool starved, touched, later; /* is on the worker's list of that name */

    unsigned held;            /* calls that wait for their turn */
    struct held_queue passed; /* of these, whose turn has come */
    unsigned requests; /* calls not yet answered in full */
    uint64_t bytes;    /* their charges, and the record being gathered */
    uint32_t gathered; /* what that one counts */
    unsigned still;    /* ticks without a byte moving in the middle of something */
    uint64_t moved;    /* bytes received and acknowledged at the last tick */

    uint64_t received_ns; /* when bytes came last */
    struct rpc_client *client;

    struct record_reader reader;
    struct ring_op receive_op, send_op;
    struct call_queue leaving; /* in the present sendmsg; the first may have been sent in part */
    struct call_queue small, bulk;
    struct rpc_back_call *back; /* calls to the client that wait for its replies */
    uint32_t back_xid;
    unsigned mixed; /* for so many sendmsgs more small replies are expected between bulk ones */
    struct send_batch *batch;

    struct rpc_conn *next, *previous; /* the worker's */
    struct rpc_conn *next_touched, *next_starved, *next_later;
    struct rpc_conn *next_peer, *previous_peer; /* under peers_lock */
    struct task handover;
    struct sockaddr_storage peer, local;
    uint64_t scratch[RPC_CONN_SCRATCH];
};

/* Takes over an accepted socket, already counted in the server's and the worker's connections;
 * closes it when there is no memory.  Any thread. */
void conn_open(int fd, struct rpc_worker *worker);

/* Has conn looked at when the pass ends: sends, reads on, closes. */
void conn_touch(struct rpc_conn *conn);
/* Stops reading for some milliseconds, for want of memory or of a coroutine; then everything is
 * tried again. */
void conn_starve(struct rpc_conn *conn);
/* Shuts the connection down now; replies not yet in a sendmsg are dropped. */
void conn_close(struct rpc_conn *conn);
/* One of rpc_tick(): closes a connection that stands still in the middle of a call or reply. */
void conn_tick(struct rpc_conn *conn);
/* Takes no more calls; closes when the calls in progress have been answered. */
void conn_drain(struct rpc_conn *conn);
/* The connection of this worker with that number, or NULL. */
struct rpc_conn *conn_find(struct rpc_worker *worker, uint64_t number);

/* Queues the finished reply of one of conn's calls; drops it when conn is closing. */
void send_queue(struct rpc_conn *conn, struct call *call);
/* Starts a sendmsg if there is something to send and none on its way. */
void send_start(struct rpc_conn *conn);
/* Drops all that is not in a sendmsg. */
void send_drop(struct rpc_conn *conn);
void send_free(struct rpc_worker *worker); /* pooled batches */

#endif
