#include "rpc/call.h"

#include <errno.h>
#include <stdlib.h>

#include "rpc/back.h"
#include "rpc/conn.h"
#include "rpc/held.h"
#include "rpc/repeat.h"
#include "rpc/reply.h"
#include "sluice/base_coro.h"
#include "sluice/base_error.h"
#include "sluice/base_log.h"
#include "sluice/base_metrics.h"

static void answer(struct call *call, uint32_t length)
{
    reply_bytes(call, length);
    reply_send(call);
}

static void answer_status(struct call *call, enum message_accept status)
{
    metric_add(METRIC_rpc_bad, 1);
    answer(call, message_accepted(reply_start(call), call->rpc.xid, status));
}

static const struct rpc_program *find_program(uint32_t number)
{
    for (unsigned i = 0; i < rpc_server.program_count; i++) {
        if (rpc_server.programs[i]->program == number)
            return rpc_server.programs[i];
    }
    return NULL;
}

static const struct rpc_version *find_version(const struct rpc_program *program, uint32_t number)
{
    for (uint32_t i = 0; i < program->count; i++) {
        if (program->versions[i].version == number)
            return &program->versions[i];
    }
    return NULL;
}

/* Sets call->procedure, or answers why there is none. */
static bool find_procedure(struct call *call)
{
    const struct rpc_program *program = find_program(call->rpc.program);
    if (!program) {
        answer_status(call, MESSAGE_PROG_UNAVAIL);
        return false;
    }
    const struct rpc_version *version = find_version(program, call->rpc.version);
    if (!version) {
        metric_add(METRIC_rpc_bad, 1);
        answer(call,
               message_prog_mismatch(reply_start(call), call->rpc.xid, program->versions[0].version,
                                     program->versions[program->count - 1].version));
        return false;
    }
    if (call->rpc.procedure >= version->count ||
        !version->procedures[call->rpc.procedure].name) {
        answer_status(call, MESSAGE_PROC_UNAVAIL);
        return false;
    }
    call->version = version;
    call->procedure = &version->procedures[call->rpc.procedure];
    return true;
}

void calls_expect(const struct record *records, unsigned count)
{
    struct rpc_expected expected[RPC_EXPECT_MOST];
    const struct rpc_version *version = NULL;
    uint32_t program = 0, number = 0; /* what `version` is for */
    unsigned found = 0;
    for (unsigned i = 0; i < count && found < RPC_EXPECT_MOST; i++) {
        uint32_t its_program, its_number;
        if (!message_peek(records[i].data, records[i].length, &its_program, &its_number,
                          &expected[found]))
            continue;
        if (!version) {
            const struct rpc_program *p = find_program(program = its_program);
            version = p ? find_version(p, number = its_number) : NULL;
            if (!version || !version->expect)
                return;
        }
        found += its_program == program && its_number == number;
    }
    if (found)
        version->expect(expected, found);
}

static void log_overflow(const struct call *call)
{
    static _Atomic long last;
    if (log_ratelimit(&last))
        log_error("rpc", "program %u version %u %s: the results did not fit into the reply",
                  call->rpc.program, call->rpc.version, call->procedure->name);
}

/* Gives the call's bytes back and sets the reply's; true if the handler's results are in it. */
static bool call_result(struct call *call, enum rpc_result result)
{
    buffer_put(&call->conn->worker->buffers, &call->record);
    if (call->copy != call->copy_within)
        free(call->copy);
    call->copy = NULL;
    uint32_t xid = call->rpc.xid;
    if (result == RPC_DONE && !call->rpc.out.full) {
        reply_results(call);
        return true;
    }
    if (result == RPC_DONE)
        log_overflow(call);
    metric_add(METRIC_rpc_bad, 1);
    uint8_t *to = reply_start(call);
    switch (result) {
    case RPC_GARBAGE_ARGS:
        reply_bytes(call, message_accepted(to, xid, MESSAGE_GARBAGE_ARGS));
        break;
    case RPC_AUTH_TOOWEAK:
        reply_bytes(call, message_auth_error(to, xid, MESSAGE_AUTH_TOOWEAK));
        break;
    default:
        reply_bytes(call, message_accepted(to, xid, MESSAGE_SYSTEM_ERR));
    }
    return false;
}

static void call_run(void *arg)
{
    struct call *call = arg;
    if (!call->rpc.resumed)
        reply_reset(call);
    struct xdr_in args = call->rpc.args;
    enum rpc_result result = call->procedure->handle(&call->rpc);
    if (result == RPC_RESUME && !call->rpc.resumed) { /* it could not know that it is in a coroutine already */
        call->rpc.resumed = true;
        call->rpc.args = args;
        result = call->procedure->handle(&call->rpc);
    }
    for (unsigned i = 0; i < CORO_SPENTS; i++)
        call->rpc.spent_ns[i] += coro_spent()[i];
    bool done = call_result(call, result);
    if (call->drc)
        repeat_finish(call, done);
    else
        reply_send(call);
}

/* Makes the record's bytes the call's own, so that they stay while it waits. */
static int keep_args(struct call *call, struct record *record)
{
    const uint8_t *bytes = record->data;
    if (record->own) {
        call->record = *record->own;
        *record->own = (struct buffer){0};
    } else {
        call->copy = record->length <= CALL_COPY_ROOM ? call->copy_within : malloc(record->length);
        if (!call->copy)
            return -ENOMEM;
        memcpy(call->copy, bytes, record->length);
        bytes = call->copy;
    }
    size_t offset = (size_t)(call->args_at - record->data);
    call->rpc.args = xdr_in(bytes + offset, record->length - offset);
    return 0;
}

static int call_start(struct call *call, struct record *record)
{
    struct rpc_conn *conn = call->conn;
    if (keep_args(call, record) < 0)
        return -EAGAIN;
    call->charge = record->length + call->estimate;
    conn->bytes += call->charge;
    rpc_gauge(&conn->worker->bytes, call->charge);
    if (coro_start(call_run, call) == 0) {
        metric_add(METRIC_rpc_waited, 1);
        return 0;
    }
    if (record->own) {
        *record->own = call->record;
        call->record = (struct buffer){0};
    }
    return -EAGAIN;
}

static int begin_change(struct call *call, struct record *record)
{
    enum drc_state state = repeat_begin(call, record->length);
    if (state == DRC_RUNNING || state == DRC_FINISHED)
        return 0;
    if (state == DRC_NO_MEMORY || call_start(call, record) < 0) {
        repeat_cancel(call);
        call_put(call);
        return -EAGAIN;
    }
    return 0;
}

static void args_in(struct call *call, const struct record *record)
{
    call->rpc.args = xdr_in(call->args_at, record->length - (size_t)(call->args_at - record->data));
}

/* What has been done of the call cannot be done again: if there is no coroutine it ends here, as well as it can. */
static int go_on(struct call *call, struct record *record)
{
    call->rpc.resumed = true;
    if (call_start(call, record) == 0)
        return 0;
    call->rpc.must_end = true;
    args_in(call, record);
    call_result(call, call->procedure->handle(&call->rpc));
    reply_send(call);
    return 0;
}

static int begin_query(struct call *call, struct record *record)
{
    reply_reset(call);
    args_in(call, record);
    enum rpc_result result = call->procedure->handle(&call->rpc);
    if (result == RPC_RESUME)
        return go_on(call, record);
    if (result != RPC_WAIT) {
        call_result(call, result);
        reply_send(call);
        return 0;
    }
    if (call_start(call, record) == 0)
        return 0;
    call_put(call);
    return -EAGAIN;
}

/* Keeps the record until the call's turn comes. */
static int wait_for_turn(struct call *call, struct record *record, const struct rpc_turn *turn)
{
    int error = held_add(call->conn, record, call->version, &call->rpc, turn);
    if (error == SL_EDELAY) {
        call->rpc.delayed = true;
        return begin_query(call, record);
    }
    call_put(call);
    return error ? -EAGAIN : 0;
}

static int begin(struct call *call, struct record *record)
{
    struct rpc_turn turn;
    if (!call->is_held && call->version->turn && !call->version->turn(&call->rpc, &turn))
        return wait_for_turn(call, record, &turn);
    bool changes = call->procedure->changes || (call->version->changes && call->version->changes(&call->rpc));
    return changes ? begin_change(call, record) : begin_query(call, record);
}

static int decode(struct call *call, struct record *record)
{
    enum message_auth auth = 0;
    switch (message_decode(record->data, record->length, &call->rpc, &auth)) {
    case MESSAGE_CALL:
        break;
    case MESSAGE_LOST:
        call_put(call);
        return -EPROTO;
    case MESSAGE_NOT_CALL:
        back_reply(call->conn, record->data, record->length);
        call_put(call);
        return 0;
    case MESSAGE_TRUNCATED:
        answer_status(call, MESSAGE_GARBAGE_ARGS);
        return 0;
    case MESSAGE_MISMATCH:
        metric_add(METRIC_rpc_bad, 1);
        answer(call, message_rpc_mismatch(reply_start(call), call->rpc.xid));
        return 0;
    case MESSAGE_DENIED:
        metric_add(METRIC_rpc_bad, 1);
        answer(call, message_auth_error(reply_start(call), call->rpc.xid, auth));
        return 0;
    }
    if (!find_procedure(call))
        return 0;
    call->args_at = call->rpc.args.at;
    return begin(call, record);
}

int call_begin(struct rpc_conn *conn, struct record *record)
{
    struct call *call = call_get(conn);
    if (!call)
        return -EAGAIN;
    call->rpc.pressed = conn->more || record_is_followed(&conn->reader, record);
    return decode(call, record);
}

int call_begin_held(struct rpc_conn *conn, struct held *held)
{
    struct call *call = call_get(conn);
    if (!call)
        return -EAGAIN;
    call->is_held = true;
    call->rpc.received_ns = held->received_ns;
    call->rpc.spent_ns[CORO_SPENT_GATE] = held->waited_ns;
    call->rpc.ticket = held->ticket;
    return decode(call, &held->record);
}
