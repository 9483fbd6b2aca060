/* A call from its record to its last byte sent.  Worker-local; containers are pooled per worker. */
#ifndef RPC_CALL_H
#define RPC_CALL_H

#include <sys/uio.h>

#include "rpc/buffers.h"
#include "rpc/drc.h"
#include "rpc/message.h"
#include "rpc/record.h"
#include "rpc/server.h"

enum { CALL_MARK = 4, CALL_OUT_ROOM = 1024, CALL_COPY_ROOM = 512, CALL_INSERTS_WITHIN = 4 };

/* A place in the head where slices are inserted: before its byte `at` come those below index
 * `slices`. */
struct call_insert {
    uint32_t at, slices;
};

struct call {
    struct rpc_call rpc; /* first: handlers get a pointer to it */
    struct call *next;
    struct rpc_conn *conn;
    const struct rpc_version *version;
    const struct rpc_procedure *procedure;
    bool is_held; /* its turn has come */
    struct drc_entry *drc;
    struct buffer record; /* the call's bytes, if in a buffer of their own */
    uint8_t *copy;        /* or copied: to copy_within, or malloc'd */
    const uint8_t *args_at;
    uint32_t estimate;     /* of the results, while the call waits */
    uint32_t charge;       /* bytes it counts with its connection */
    uint64_t answered_ns;  /* when the reply was ready */
    uint32_t length, sent; /* of the whole reply, record mark included */
    uint8_t *head;         /* mark, reply header, results: head_within, or malloc'd */
    uint32_t head_room, head_length;
    uint32_t insert_count, insert_room;
    struct call_insert *inserts; /* inserts_within, or malloc'd */
    struct call_insert inserts_within[CALL_INSERTS_WITHIN];
    struct slice_list slices;
    uint8_t copy_within[CALL_COPY_ROOM];
    uint8_t head_within[CALL_MARK + MESSAGE_HEAD + CALL_OUT_ROOM];
};

/* Takes one record of a connection: runs it, starts it, or answers it with an error.  0: taken
 * (own buffers are moved out of the record when it goes on needing them).  -EPROTO: framing is
 * lost.  -EAGAIN: no memory or no coroutine; nothing has happened, try the same record again
 * later. */
int call_begin(struct rpc_conn *conn, struct record *record);

/* Runs a call whose turn has come; contract as call_begin(). */
struct held;
int call_begin_held(struct rpc_conn *conn, struct held *held);

/* Tells the program what comes: the records are about to be given to call_begin(). */
void calls_expect(const struct record *records, unsigned count);

/* An empty container for conn, counted there.  NULL: no memory. */
struct call *call_get(struct rpc_conn *conn);
/* Releases everything the call holds. */
void call_put(struct call *call);
/* Makes a kept reply (from the xid on) this call's, and queues it. -ENOMEM: nothing was queued. */
int call_reply_kept(struct call *call, const struct drc_reply *kept);

/* Fills iov with what of the reply is not sent yet: at most `room` pieces and `most` bytes; *bytes
 * says how many. Returns the number of pieces. */
unsigned call_iov(const struct call *call, struct iovec *iov, unsigned room, size_t most,
                  size_t *bytes);

/* Frees the pooled containers.  The worker's thread. */
void calls_free(struct rpc_worker *worker);

#endif
