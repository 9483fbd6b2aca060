#include "rpc/held.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/conn.h"

static void charge(struct rpc_conn *conn, int64_t bytes)
{
    conn->bytes += (uint64_t)bytes;
    rpc_gauge(&conn->worker->bytes, bytes);
}

static void held_free(struct held *held)
{
    struct rpc_conn *conn = held->conn;
    charge(conn, -(int64_t)held->charge);
    conn->held--;
    buffer_put(&conn->worker->buffers, &held->buffer);
    free(held);
}

int held_add(struct rpc_conn *conn, struct record *record, const struct rpc_version *version,
             const struct rpc_call *call, const struct rpc_turn *turn)
{
    uint32_t within = record->own ? 0 : record->length;
    struct held *held = malloc(sizeof(*held) + within);
    if (!held)
        return -ENOMEM;
    *held = (struct held){.turn = *turn, .conn = conn, .received_ns = call->received_ns, .ticket = call->ticket};
    held->turn.worker = conn->worker->worker;
    held->turn.connection = conn->number;
    int error = version->hold(&held->turn);
    if (error) {
        free(held);
        return error;
    }
    held->record.length = record->length;
    if (record->own) {
        held->buffer = *record->own;
        *record->own = (struct buffer){0};
        held->record.data = held->buffer.at;
        held->record.own = &held->buffer;
    } else {
        memcpy(held->bytes, record->data, within);
        held->record.data = held->bytes;
    }
    held->charge = record->length;
    charge(conn, held->charge);
    conn->held++;
    return 0;
}

void rpc_turn_comes(struct rpc_turn *turn, uint64_t waited_ns, bool withdrawn)
{
    struct held *held = (struct held *)((char *)turn - offsetof(struct held, turn));
    struct rpc_conn *conn = held->conn;
    held->waited_ns = waited_ns;
    held->next = NULL;
    if (withdrawn || conn->closing) {
        held_free(held);
    } else {
        if (conn->passed.last)
            conn->passed.last->next = held;
        else
            conn->passed.first = held;
        conn->passed.last = held;
    }
    conn_touch(conn);
}

static void pop(struct rpc_conn *conn)
{
    struct held *held = conn->passed.first;
    conn->passed.first = held->next;
    if (!conn->passed.first)
        conn->passed.last = NULL;
    held_free(held);
}

int held_run(struct rpc_conn *conn, bool (*may)(const struct rpc_conn *conn))
{
    while (conn->passed.first && !conn->closing && may(conn)) {
        int error = call_begin_held(conn, conn->passed.first);
        if (error)
            return error;
        pop(conn);
    }
    return 0;
}

void held_withdraw(struct rpc_conn *conn)
{
    for (unsigned i = 0; conn->held && i < rpc_server.program_count; i++) {
        const struct rpc_program *program = rpc_server.programs[i];
        for (uint32_t v = 0; v < program->count; v++)
            if (program->versions[v].withdraw)
                program->versions[v].withdraw(conn->number);
    }
}

void held_drop(struct rpc_conn *conn)
{
    while (conn->passed.first)
        pop(conn);
}
