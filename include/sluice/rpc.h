/* ONC RPC version 2 over TCP (RFC 5531): sockets on the workers' rings, record marking, calls and replies,
 * AUTH_NONE and AUTH_SYS, the duplicate request cache.  Protocols register programs; the layer knows none.
 *
 * A connection belongs to one worker.  A call is decoded and handled there: first on the main stack; when the
 * handler returns RPC_WAIT (something had to wait) it is run again from its start in a coroutine, where waiting
 * works.  Replies of one pass leave in one sendmsg; there is one sendmsg in flight per connection. */
#ifndef SLUICE_RPC_H
#define SLUICE_RPC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "sluice/base_coro.h"
#include "sluice/base_histogram.h"
#include "sluice/base_slice.h"
#include "sluice/base_worker.h"
#include "sluice/base_xdr.h"

enum { RPC_GROUPS_MAX = 16, RPC_CONN_SCRATCH = 10, RPC_TICK_SECONDS = 5, RPC_CALL_KEEP = 1536 };
enum { RPC_CLIENT_TAGS = 16, RPC_CLIENTS_IDLE = 1024 };

enum rpc_flavor { RPC_AUTH_NONE = 0, RPC_AUTH_SYS = 1 };

struct rpc_cred {
    enum rpc_flavor flavor;
    uint32_t uid, gid; /* 65534 for AUTH_NONE */
    uint32_t group_count;
    uint32_t groups[RPC_GROUPS_MAX];
};

/* Numbers that the handlers' layer has noted of a client, the last first; 0: none.  Older ones are forgotten. */
struct rpc_client_tags {
    uint32_t at[RPC_CLIENT_TAGS];
};

/* What a handler may use; lives until the reply is queued.  Worker-local. */
struct rpc_call {
    uint32_t xid, program, version, procedure;
    struct rpc_cred cred;
    const struct sockaddr_storage *peer;  /* IPv4-mapped IPv6 addresses appear as IPv4 */
    const struct sockaddr_storage *local; /* the address the client connected to */
    uint64_t *conn_scratch; /* RPC_CONN_SCRATCH words of the connection for the handler's layer, zero at first */
    struct xdr_in args;     /* stays valid while the call lives, across waits */
    struct xdr_out out;     /* results; 1 KiB of room unless rpc_reply_room() made more */

    uint64_t received_ns;            /* when its last byte came, to about a pass of the worker; monotonic */
    uint64_t spent_ns[CORO_SPENTS];  /* of the time since then */
    struct rpc_client_tags *client;  /* of the peer's address */
    void *noted;                     /* the handlers' layer's own, NULL at first */
    struct histogram *latency;       /* set by the handler: counts the time until the reply goes to the socket */
    void *ticket;                    /* the handlers' layer's own, NULL before turn(); kept while the call waits */
    bool pressed;                    /* more of the connection waits to be looked at behind this call */
    bool delayed;                    /* its turn would come too late: the handler tells the client to come again */

    bool resumed;           /* the handler has returned RPC_RESUME before; out, slices and keep are as it left them */
    bool must_end;          /* ... and there is no coroutine for it: it must neither wait nor return that again */
    _Alignas(16) uint8_t keep[RPC_CALL_KEEP]; /* the handler's, while the call lives; anything at first */
};

enum rpc_result {
    RPC_DONE,         /* accepted, results are in out */
    RPC_WAIT,         /* run me again in a coroutine; out and slices are reset. Only when coro_self() == NULL */
    RPC_RESUME,       /* the same, but out and slices are kept, for a handler that goes on where it stopped; args are
                       * at their start again, perhaps elsewhere in memory */
    RPC_GARBAGE_ARGS, /* GARBAGE_ARGS (arguments do not decode) */
    RPC_SYSTEM_ERR,   /* SYSTEM_ERR (no memory and the like) */
    RPC_AUTH_TOOWEAK, /* MSG_DENIED, AUTH_ERROR, AUTH_TOOWEAK */
};

/* Makes sure that out has at least `bytes` of room in all (what is written already is kept). -ENOMEM; at most
 * 4 MiB. */
int rpc_reply_room(struct rpc_call *call, uint32_t bytes);
/* For a handler that may have to wait: its results will have about so many bytes.  Until they are there they count
 * with the connection's bytes in flight. */
void rpc_reply_estimate(struct rpc_call *call, uint32_t bytes);
/* Inserts `list` (its slices are taken over) at the present end of out, padded to four bytes; what is put into out
 * later follows behind. Works on errors as slices_add does. */
int rpc_reply_slices(struct rpc_call *call, struct slice_list *list);

struct rpc_procedure {
    const char *name; /* as in the RFC, "READ"; NULL: PROC_UNAVAIL */
    enum rpc_result (*handle)(struct rpc_call *call);
    bool changes; /* not to be run twice: kept in the duplicate request cache, starts in a coroutine */
};

/* A call that has arrived and is about to be run; its arguments are not checked yet. */
struct rpc_expected {
    uint32_t procedure;
    struct xdr_in args;
};

enum { RPC_EXPECT_MOST = 16, RPC_WAIT_ROOM = 12 };

/* A call that waits for its turn: its record, without a container for its reply. */
struct rpc_turn {
    uint64_t room[RPC_WAIT_ROOM]; /* the handlers' layer's own */
    struct worker *worker;        /* where it is to be run */
    uint64_t connection;          /* its number */
};

struct rpc_version {
    uint32_t version;
    const struct rpc_procedure *procedures;
    uint32_t count;
    /* Optional: calls that arrived together, so that what they will need can be fetched into the processor's
     * cache for all of them at once.  Only a hint: it changes nothing, never waits, and is not always given. */
    void (*expect)(const struct rpc_expected *calls, unsigned count);
    /* Optional: of a procedure that does not always change something: does this call, as rpc_procedure.changes means
     * it?  Looks at the arguments, and leaves them as they are. */
    bool (*changes)(const struct rpc_call *call);
    /* Optional: asked before a call is run, on the main stack.  False: it has to wait, and what turn->room holds then
     * is given to hold(), which has rpc_turn_comes() called on the worker some time later. 0; SL_EDELAY: that would be
     * too late, the call is run with `delayed` set; -EAGAIN, -ENOMEM: to be tried again in some milliseconds. */
    bool (*turn)(struct rpc_call *call, struct rpc_turn *turn);
    int (*hold)(struct rpc_turn *turn);
    /* A connection ends: what waits of it shall be given back soon. */
    void (*withdraw)(uint64_t connection);
};

/* A call that was held is run; `waited_ns` counts as spent at the gate.  `withdrawn`: it is dropped.  The worker of the
 * call, main stack; `turn` is gone then. */
void rpc_turn_comes(struct rpc_turn *turn, uint64_t waited_ns, bool withdrawn);

/* ---- calls to a client, over a connection that it made (RFC 8881, 2.10.3.1) ---- */

enum { RPC_BACK_ROOM = 512, RPC_BACK_MOST = 16 };

struct rpc_connection { /* names one, also after its end; the same number never comes again */
    struct worker *worker;
    uint64_t number;
};
struct rpc_connection rpc_connection_of(const struct rpc_call *call);

/* One call to a client; its memory is the caller's until done() has been called, once: main stack, on the connection's
 * worker.  `error`: 0, with `results` valid meanwhile; -ENOTCONN: the connection is gone, or ends before the reply;
 * -ETIMEDOUT: it has not come within `seconds` (to about RPC_TICK_SECONDS); -EBUSY: RPC_BACK_MOST of the connection
 * wait already; -EPROTO: the client refused it; -ENOMEM. */
struct rpc_back_call {
    uint32_t program, version, procedure;
    struct rpc_cred cred; /* AUTH_NONE, or AUTH_SYS with uid and gid */
    uint32_t seconds;
    uint32_t length;      /* of the arguments, whole words */
    uint8_t args[RPC_BACK_ROOM];
    void (*done)(struct rpc_back_call *call, int error, struct xdr_in *results);
    /* the rpc layer's: */
    struct task task;
    struct rpc_back_call *next;
    uint64_t connection, until_ns;
    uint32_t xid;
};
/* Any thread. */
void rpc_call_back(struct rpc_connection where, struct rpc_back_call *call);

struct rpc_program {
    uint32_t program;
    const char *name;
    const struct rpc_version *versions; /* rising; PROG_MISMATCH answers the first's and last's number */
    uint32_t count;
};

/* Before rpc_start(); the memory must stay.  -ENOSPC past 16 programs. */
int rpc_register(const struct rpc_program *program);

/* A call whose reply the kernel has taken. */
struct rpc_slow {
    const struct rpc_call *call; /* its args and out are gone */
    const char *procedure;
    uint64_t total_ns;  /* since it was received */
    uint64_t socket_ns; /* of these, that the finished reply has waited for the socket and the client */
};

struct rpc_options {
    char *const *listen; /* "127.0.0.1:2049", "[::1]:2049", "*:2049" is not known: "0.0.0.0:2049", "[::]:2049" */
    uint32_t listen_count;
    uint32_t connections_max;      /* more are closed at once, with a rate-limited log line */
    uint32_t requests_per_connection; /* in flight; then the connection is read no further */
    uint64_t bytes_per_connection; /* calls and replies not yet sent; then the same */
    uint64_t bytes_in_flight;      /* of all connections: what one of them may have shrinks as it is used up */
    uint64_t send_buffer;          /* SO_SNDBUF, bytes */
    uint32_t record_max;           /* largest RPC record, bytes; larger ones close the connection */
    uint64_t duplicate_entries;    /* bound of the duplicate request cache, in replies */
    uint64_t duplicate_bytes;      /* and in bytes of kept replies */
    bool rpcbind;                  /* register the programs there (libtirpc) */
    uint64_t slow_ns;              /* calls that take longer are told to slow(), on their worker; 0: none */
    void (*slow)(const struct rpc_slow *slow);
};

/* Binds, listens, accepts.  Workers run.  Main thread.  *why gets a sentence ("127.0.0.1:2049: address already in
 * use ...") */
int rpc_start(const struct rpc_options *options, char why[256]);
/* The ports listened on, for port 0 and for people: "127.0.0.1:2049"; returns how many there are. */
unsigned rpc_listeners(char text[][64], unsigned room);
/* To be called every RPC_TICK_SECONDS: closes connections that stand still in the middle of a call or of a reply,
 * gives memory back that a burst has left in the pools.  Main thread. */
void rpc_tick(void);
/* No new connections and calls; waits at most `ms` until every call in progress has been answered and sent, then
 * closes all connections.  False: a call still waits for something, and what it uses has to stay until the process
 * ends.  Main thread. */
bool rpc_stop(unsigned ms);

struct rpc_stats {
    uint64_t connections, requests_in_flight, bytes_in_flight, duplicate_entries, duplicate_bytes;
};
void rpc_stats(struct rpc_stats *out); /* any thread; approximate */
/* A client is an address: what it has done since the server started, or since it was last forgotten.  Those without a
 * connection are kept for a while, RPC_CLIENTS_IDLE at most for all. */
struct rpc_client_info {
    struct sockaddr_storage peer; /* without its port */
    unsigned connections;
    uint64_t calls, bytes_in, bytes_out;
    uint64_t latency_ns; /* sum over its calls, until their replies went to the socket */
    uint64_t gate_ns;    /* of that, spent at gates */
    uint64_t idle_ns;    /* without a connection for so long; 0: it has one */
    uint32_t tags[RPC_CLIENT_TAGS];
    unsigned tag_count;
};
/* All of them in the order of addresses; to be freed.  -ENOMEM.  Any thread. */
int rpc_clients(struct rpc_client_info **list, unsigned *count);
/* Notes `tag` as the last one. */
void rpc_client_tag(struct rpc_client_tags *tags, uint32_t tag);

/* Calls each() with every connected peer's address.  Control thread. */
void rpc_each_peer(void (*each)(void *arg, const struct sockaddr_storage *peer), void *arg);

#endif
