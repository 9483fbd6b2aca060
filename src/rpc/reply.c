#include "rpc/reply.h"

#include <errno.h>
#include <stdlib.h>

#include "rpc/conn.h"

enum {
    FREE_CALLS_MOST = 1024,
    REPLY_ROOM_MOST = 4 * 1024 * 1024,
    HEAD_BEFORE = CALL_MARK + MESSAGE_HEAD
};

struct call *call_get(struct rpc_conn *conn)
{
    struct rpc_worker *worker = conn->worker;
    struct call *call = worker->free_calls;
    if (call) {
        worker->free_calls = call->next;
        worker->free_call_count--;
    } else {
        call = malloc(sizeof(*call));
        if (!call)
            return NULL;
    }
    call->rpc.peer = &conn->peer;
    call->rpc.local = &conn->local;
    call->rpc.conn_scratch = conn->scratch;
    call->rpc.received_ns = conn->received_ns;
    memset(call->rpc.spent_ns, 0, sizeof(call->rpc.spent_ns));
    call->rpc.client = &conn->client->tags;
    call->rpc.noted = NULL;
    call->rpc.latency = NULL;
    call->rpc.ticket = NULL;
    call->rpc.pressed = call->rpc.delayed = false;
    call->rpc.resumed = call->rpc.must_end = false;
    call->next = NULL;
    call->conn = conn;
    call->version = NULL;
    call->procedure = NULL;
    call->is_held = false;
    call->drc = NULL;
    call->record = (struct buffer){0};
    call->copy = NULL;
    call->estimate = call->charge = call->length = call->sent = 0;
    call->head = call->head_within;
    call->head_room = sizeof(call->head_within);
    call->head_length = HEAD_BEFORE;
    call->insert_count = 0;
    call->insert_room = CALL_INSERTS_WITHIN;
    call->inserts = call->inserts_within;
    slices_init(&call->slices);
    conn->requests++;
    rpc_gauge(&worker->requests, 1);
    return call;
}

void call_put(struct call *call)
{
    struct rpc_conn *conn = call->conn;
    struct rpc_worker *worker = conn->worker;
    slices_clear(&call->slices);
    buffer_put(&worker->buffers, &call->record);
    if (call->copy != call->copy_within)
        free(call->copy);
    if (call->head != call->head_within)
        free(call->head);
    if (call->inserts != call->inserts_within)
        free(call->inserts);
    conn->requests--;
    conn->bytes -= call->charge;
    rpc_gauge(&worker->requests, -1);
    rpc_gauge(&worker->bytes, -(int64_t)call->charge);
    if (worker->free_call_count == FREE_CALLS_MOST) {
        free(call);
        return;
    }
    call->next = worker->free_calls;
    worker->free_calls = call;
    worker->free_call_count++;
}

void calls_free(struct rpc_worker *worker)
{
    while (worker->free_calls) {
        struct call *call = worker->free_calls;
        worker->free_calls = call->next;
        free(call);
    }
    worker->free_call_count = 0;
}

void reply_reset(struct call *call)
{
    call->rpc.out = xdr_out(call->head + HEAD_BEFORE, call->head_room - HEAD_BEFORE);
    call->insert_count = 0;
    if (call->slices.count)
        slices_clear(&call->slices);
}

void reply_results(struct call *call)
{
    message_accepted(call->head + CALL_MARK, call->rpc.xid, MESSAGE_SUCCESS);
    call->head_length = HEAD_BEFORE + (uint32_t)xdr_used(&call->rpc.out);
}

uint8_t *reply_start(struct call *call)
{
    call->insert_count = 0;
    slices_clear(&call->slices);
    return call->head + CALL_MARK;
}

void reply_bytes(struct call *call, uint32_t length)
{
    call->head_length = CALL_MARK + length;
}

void reply_send(struct call *call)
{
    call->length = call->head_length + call->slices.bytes;
    uint32_t mark = htobe32(UINT32_C(0x80000000) | (call->length - CALL_MARK));
    memcpy(call->head, &mark, sizeof(mark));
    uint32_t held = call->head == call->head_within ? call->head_length : call->head_room;
    uint32_t charge = held + call->slices.bytes;
    call->conn->bytes += (uint64_t)charge - call->charge;
    rpc_gauge(&call->conn->worker->bytes, (int64_t)charge - call->charge);
    call->charge = charge;
    send_queue(call->conn, call);
}

int call_reply_kept(struct call *call, const struct drc_reply *kept)
{
    reply_reset(call);
    int error =
        kept->length > MESSAGE_HEAD ? rpc_reply_room(&call->rpc, kept->length - MESSAGE_HEAD) : 0;
    if (error < 0)
        return error;
    memcpy(call->head + CALL_MARK, kept->bytes, kept->length);
    reply_bytes(call, kept->length);
    reply_send(call);
    return 0;
}

void rpc_reply_estimate(struct rpc_call *rpc, uint32_t bytes)
{
    ((struct call *)rpc)->estimate = bytes;
}

int rpc_reply_room(struct rpc_call *rpc, uint32_t bytes)
{
    struct call *call = (struct call *)rpc;
    uint32_t used = (uint32_t)xdr_used(&rpc->out);
    if (call->head_room - HEAD_BEFORE >= bytes)
        return 0;
    if (bytes > REPLY_ROOM_MOST)
        return -ENOMEM;
    uint8_t *larger = malloc(HEAD_BEFORE + bytes);
    if (!larger)
        return -ENOMEM;
    memcpy(larger + HEAD_BEFORE, call->head + HEAD_BEFORE, used);
    if (call->head != call->head_within)
        free(call->head);
    call->head = larger;
    call->head_room = HEAD_BEFORE + bytes;
    bool full = rpc->out.full;
    rpc->out = xdr_out(larger + HEAD_BEFORE, bytes);
    rpc->out.at += used;
    rpc->out.full = full;
    return 0;
}

static struct call_insert *insert_new(struct call *call)
{
    if (call->insert_count == call->insert_room) {
        uint32_t room = call->insert_room * 4;
        struct call_insert *more = malloc(room * sizeof(*more));
        if (!more)
            return NULL;
        memcpy(more, call->inserts, call->insert_count * sizeof(*more));
        if (call->inserts != call->inserts_within)
            free(call->inserts);
        call->inserts = more;
        call->insert_room = room;
    }
    return &call->inserts[call->insert_count++];
}

int rpc_reply_slices(struct rpc_call *rpc, struct slice_list *list)
{
    struct call *call = (struct call *)rpc;
    struct call_insert *insert = insert_new(call);
    if (!insert) {
        slices_clear(list);
        return -ENOMEM;
    }
    uint32_t padding = -list->bytes & 3;
    int error = 0;
    if (call->slices.count == 0 && list->at != list->within) {
        call->slices.at = list->at;
        call->slices.count = list->count;
        call->slices.room = list->room;
        call->slices.bytes = list->bytes;
        slices_init(list);
    } else {
        error = slices_move(&call->slices, list);
        slices_clear(list); /* an array that it had grown */
    }
    if (error == 0 && padding)
        error = slices_add_zero(&call->slices, padding);
    insert->at = HEAD_BEFORE + (uint32_t)xdr_used(&rpc->out);
    insert->slices = call->slices.count;
    return error;
}

struct gathering {
    struct iovec *iov;
    unsigned count, room;
    size_t skip, bytes, most;
};

static inline bool gather(struct gathering *g, const void *data, size_t length)
{
    if (g->skip >= length) {
        g->skip -= length;
        return true;
    }
    if (g->bytes == g->most)
        return false;
    data = (const uint8_t *)data + g->skip;
    length -= g->skip;
    /* Frames that lie next to each other are one piece: each costs the kernel a little. */
    struct iovec *last = g->count ? &g->iov[g->count - 1] : NULL;
    bool joins = last && (const uint8_t *)last->iov_base + last->iov_len == data;
    if (!joins && g->count == g->room)
        return false;
    g->skip = 0;
    if (length > g->most - g->bytes)
        length = g->most - g->bytes;
    g->bytes += length;
    if (joins) {
        last->iov_len += length;
        return true;
    }
    g->iov[g->count++] = (struct iovec){.iov_base = (void *)(uintptr_t)data, .iov_len = length};
    return true;
}

unsigned call_iov(const struct call *call, struct iovec *iov, unsigned room, size_t most,
                  size_t *bytes)
{
    struct gathering g = {.iov = iov, .room = room, .skip = call->sent, .most = most};
    uint32_t at = 0, slice = 0;
    for (uint32_t i = 0; i < call->insert_count; i++) {
        const struct call_insert *insert = &call->inserts[i];
        if (!gather(&g, call->head + at, insert->at - at))
            goto full;
        at = insert->at;
        for (; slice < insert->slices; slice++) {
            if (!gather(&g, call->slices.at[slice].data, call->slices.at[slice].length))
                goto full;
        }
    }
    gather(&g, call->head + at, call->head_length - at);
full:
    *bytes = g.bytes;
    return g.count;
}
