#include <errno.h>
#include <stdlib.h>

#include "rpc/conn.h"
#include "sluice/base_metrics.h"

enum {
    BATCH_PIECES = 1024,
    BATCH_BYTES = 2 * 1024 * 1024,
    SMALL_REPLY = 8 * 1024,
    MIXED_BYTES = 512 * 1024, /* of bulk replies in one sendmsg while small ones come too, which wait until it ends */
    MIXED_BATCHES = 16,       /* sendmsgs without a small reply until none is expected any more */
    FREE_BATCHES_MOST = 32
};

struct send_batch {
    struct send_batch *next;
    struct msghdr message;
    struct iovec iov[BATCH_PIECES];
    size_t bytes;
};

static void push(struct call_queue *queue, struct call *call)
{
    call->next = NULL;
    if (queue->last)
        queue->last->next = call;
    else
        queue->first = call;
    queue->last = call;
}

static struct call *pop(struct call_queue *queue)
{
    struct call *call = queue->first;
    queue->first = call->next;
    if (!queue->first)
        queue->last = NULL;
    return call;
}

static void drop_all(struct call_queue *queue)
{
    while (queue->first)
        call_put(pop(queue));
}

void send_drop(struct rpc_conn *conn)
{
    drop_all(&conn->small);
    drop_all(&conn->bulk);
    if (!conn->sending)
        drop_all(&conn->leaving);
}

void send_queue(struct rpc_conn *conn, struct call *call)
{
    if (conn->closing) {
        call_put(call);
    } else {
        call->answered_ns = rpc_now(conn->worker);
        push(call->length < SMALL_REPLY ? &conn->small : &conn->bulk, call);
    }
    conn_touch(conn);
}

static struct send_batch *batch_get(struct rpc_worker *worker)
{
    struct send_batch *batch = worker->free_batches;
    if (!batch)
        return malloc(sizeof(*batch));
    worker->free_batches = batch->next;
    worker->free_batch_count--;
    return batch;
}

static void batch_put(struct rpc_worker *worker, struct send_batch *batch)
{
    if (worker->free_batch_count == FREE_BATCHES_MOST) {
        free(batch);
        return;
    }
    batch->next = worker->free_batches;
    worker->free_batches = batch;
    worker->free_batch_count++;
}

void send_free(struct rpc_worker *worker)
{
    while (worker->free_batches) {
        struct send_batch *batch = worker->free_batches;
        worker->free_batches = batch->next;
        free(batch);
    }
    worker->free_batch_count = 0;
}

/* As much of the reply as `most` bytes on the batch leave room for. */
static void batch_add(struct send_batch *batch, const struct call *call, size_t most)
{
    size_t bytes;
    unsigned count = (unsigned)batch->message.msg_iovlen;
    batch->message.msg_iovlen +=
        call_iov(call, batch->iov + count, BATCH_PIECES - count, most - batch->bytes, &bytes);
    batch->bytes += bytes;
}

struct share {
    unsigned pieces;
    size_t bytes;
};

static bool batch_full(const struct send_batch *batch, struct share until)
{
    return batch->message.msg_iovlen >= until.pieces || batch->bytes >= until.bytes;
}

/* One look at the clock serves all replies of a pass. */
static uint64_t handed_now(struct rpc_worker *worker)
{
    if (!worker->handed_ns)
        worker->handed_ns = clock_monotonic_ns();
    return worker->handed_ns;
}

/* A queue's replies go on the batch until it holds so much. */
static void batch_take(struct send_batch *batch, struct rpc_conn *conn, struct call_queue *from,
                       struct share until, size_t most)
{
    uint64_t now = handed_now(conn->worker), latency = 0, gate = 0;
    while (from->first && !batch_full(batch, until)) {
        struct call *call = pop(from);
        uint64_t took = now - call->rpc.received_ns;
        latency += took;
        gate += call->rpc.spent_ns[CORO_SPENT_GATE];
        if (call->rpc.latency)
            histogram_add(call->rpc.latency, took);
        push(&conn->leaving, call);
        batch_add(batch, call, most);
    }
    histogram_bump(&conn->client->latency_ns, latency);
    if (gate)
        histogram_bump(&conn->client->gate_ns, gate);
}

/* Bulk replies alone leave in large portions, which is cheaper.  A small reply has to wait until the sendmsg before it
 * has ended: where such come, the portions are smaller. */
static size_t most_bytes(struct rpc_conn *conn)
{
    if (conn->small.first)
        conn->mixed = MIXED_BATCHES;
    else if (conn->mixed)
        conn->mixed--;
    return conn->mixed ? MIXED_BYTES : BATCH_BYTES;
}

static void batch_fill(struct send_batch *batch, struct rpc_conn *conn)
{
    size_t most = most_bytes(conn);
    batch->message = (struct msghdr){.msg_iov = batch->iov};
    batch->bytes = 0;
    for (struct call *call = conn->leaving.first; call; call = call->next) {
        if (batch_full(batch, (struct share){BATCH_PIECES, most}))
            return;
        batch_add(batch, call, most);
    }
    /* Half is left to bulk replies, or a stream of small ones could keep them for ever. */
    unsigned parts = conn->bulk.first ? 2 : 1;
    batch_take(batch, conn, &conn->small, (struct share){BATCH_PIECES / parts, most / parts}, most);
    batch_take(batch, conn, &conn->bulk, (struct share){BATCH_PIECES, most}, most);
}

static void tell_slow(const struct call *call, uint64_t now)
{
    metric_add(METRIC_rpc_slow, 1);
    const struct rpc_slow slow = {
        .call = &call->rpc,
        .procedure = call->procedure->name,
        .total_ns = now - call->rpc.received_ns,
        .socket_ns = now - call->answered_ns,
    };
    rpc_server.options.slow(&slow);
}

static void sent(struct rpc_conn *conn, uint32_t bytes)
{
    uint64_t now = rpc_now(conn->worker);
    metric_add(METRIC_rpc_sent_bytes, bytes);
    histogram_bump(&conn->client->bytes_out, bytes);
    while (bytes) {
        struct call *call = conn->leaving.first;
        uint32_t left = call->length - call->sent;
        if (bytes < left) {
            call->sent += bytes;
            return;
        }
        bytes -= left;
        if (now - call->rpc.received_ns >= rpc_server.slow_ns && call->procedure)
            tell_slow(call, now);
        call_put(pop(&conn->leaving));
    }
}

static void send_done(struct ring_op *op, int result, uint32_t cqe_flags)
{
    struct rpc_conn *conn = (struct rpc_conn *)((char *)op - offsetof(struct rpc_conn, send_op));
    conn->sending = false;
    batch_put(conn->worker, conn->batch);
    conn->batch = NULL;
    if (result > 0)
        sent(conn, (uint32_t)result);
    if (conn->closing)
        send_drop(conn);
    else if (result <= 0 && result != -EINTR && result != -EAGAIN)
        conn_close(conn);
    conn_touch(conn);
}

void send_start(struct rpc_conn *conn)
{
    if (conn->sending || !(conn->leaving.first || conn->small.first || conn->bulk.first))
        return;
    struct send_batch *batch = batch_get(conn->worker);
    if (!batch) {
        conn_starve(conn);
        return;
    }
    batch_fill(batch, conn);
    conn->batch = batch;
    conn->sending = true;
    conn->send_op.done = send_done;
    struct io_uring_sqe *sqe = worker_sqe(&conn->send_op);
    io_uring_prep_sendmsg(sqe, conn->fd, &batch->message, MSG_NOSIGNAL | MSG_WAITALL);
    ring_op_attach(sqe, &conn->send_op);
    metric_add(METRIC_rpc_sendmsg, 1);
}
