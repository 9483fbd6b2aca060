#include "rpc/repeat.h"

#include <errno.h>
#include <stdlib.h>

#include "rpc/conn.h"
#include "rpc/reply.h"
#include "sluice/base_log.h"
#include "sluice/base_metrics.h"

struct handover {
    struct task task;
    struct drc_target to;
    struct drc_reply *reply;
};

static void handover_arrived(struct task *task)
{
    struct handover *h = (struct handover *)task;
    struct rpc_conn *conn = conn_find(&rpc_server.workers[h->to.worker], h->to.connection);
    struct call *call = conn && !conn->closing ? call_get(conn) : NULL;
    /* Without memory or connection the client asks once more and finds the kept reply. */
    if (call && call_reply_kept(call, h->reply) < 0)
        call_put(call);
    drc_reply_drop(h->reply);
    free(h);
    atomic_fetch_sub(&rpc_server.handovers, 1);
}

static void hand_over(struct drc_target to, struct drc_reply *reply)
{
    struct handover *h = malloc(sizeof(*h));
    if (!h)
        return; /* as above */
    drc_reply_hold(reply);
    *h = (struct handover){.task.run = handover_arrived, .to = to, .reply = reply};
    atomic_fetch_add(&rpc_server.handovers, 1);
    worker_post(rpc_server.workers[to.worker].worker, &h->task);
}

enum drc_state repeat_begin(struct call *call, uint32_t length)
{
    struct rpc_conn *conn = call->conn;
    struct drc_key key;
    struct drc_reply *reply = NULL;
    drc_key(&call->rpc, length, &key);
    enum drc_state state = drc_begin(
        &key, (struct drc_target){.connection = conn->number, .worker = conn->worker->index},
        &call->drc, &reply);
    switch (state) {
    case DRC_RUNNING:
        metric_add(METRIC_rpc_duplicates, 1);
        call_put(call);
        break;
    case DRC_FINISHED:
        metric_add(METRIC_rpc_duplicates, 1);
        if (call_reply_kept(call, reply) < 0)
            state = DRC_NO_MEMORY;
        drc_reply_drop(reply);
        break;
    case DRC_NEW:
    case DRC_NO_MEMORY:
        break;
    }
    return state;
}

void repeat_cancel(struct call *call)
{
    /* A copy that came by another connection in this moment is lost; its client asks again. */
    if (call->drc)
        drc_forget(call->drc);
    call->drc = NULL;
}

static struct drc_reply *copy_reply(const struct call *call)
{
    uint32_t length = call->head_length + call->slices.bytes;
    struct drc_reply *reply = drc_reply_new(length - CALL_MARK);
    if (!reply)
        return NULL;
    uint32_t at = 0, slice = 0, head = CALL_MARK;
    for (uint32_t i = 0; i < call->insert_count; i++) {
        const struct call_insert *insert = &call->inserts[i];
        memcpy(reply->bytes + at, call->head + head, insert->at - head);
        at += insert->at - head;
        head = insert->at;
        for (; slice < insert->slices; slice++) {
            memcpy(reply->bytes + at, call->slices.at[slice].data, call->slices.at[slice].length);
            at += call->slices.at[slice].length;
        }
    }
    memcpy(reply->bytes + at, call->head + head, call->head_length - head);
    return reply;
}

void repeat_finish(struct call *call, bool keep)
{
    struct drc_reply *reply = copy_reply(call);
    struct drc_target to;
    if (reply && keep) {
        drc_reply_hold(reply);
        to = drc_finish(call->drc, reply);
    } else {
        to = drc_forget(call->drc);
    }
    call->drc = NULL;
    struct rpc_conn *conn = call->conn;
    if (to.connection == conn->number) {
        reply_send(call);
    } else {
        if (reply)
            hand_over(to, reply);
        conn_touch(conn);
        call_put(call);
    }
    if (reply)
        drc_reply_drop(reply);
}
