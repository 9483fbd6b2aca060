#include "rpc/back.h"

#include <errno.h>

#include "rpc/reply.h"
#include "sluice/base_metrics.h"

enum { CALL = 0, REPLY = 1, RPC_VERSION = 2, ACCEPTED = 0, SUCCESS = 0, VERIFIER_MOST = 400 };

struct rpc_connection rpc_connection_of(const struct rpc_call *call)
{
    const struct rpc_conn *conn = ((const struct call *)call)->conn;
    return (struct rpc_connection){conn->worker->worker, conn->number};
}

/* ---- sending ---- */

static void put_cred(struct xdr_out *x, const struct rpc_cred *cred)
{
    xdr_put_u32(x, cred->flavor);
    if (cred->flavor == RPC_AUTH_SYS) {
        xdr_put_u32(x, 5 * 4);
        xdr_put_u32(x, 0); /* stamp */
        xdr_put_u32(x, 0); /* machine: no name */
        xdr_put_u32(x, cred->uid);
        xdr_put_u32(x, cred->gid);
        xdr_put_u32(x, 0); /* groups */
    } else {
        xdr_put_u32(x, 0);
    }
    xdr_put_u32(x, RPC_AUTH_NONE); /* verifier */
    xdr_put_u32(x, 0);
}

/* The record travels as a reply does: in a container, beside replies, in their sendmsg. */
static int send_record(struct rpc_conn *conn, const struct rpc_back_call *back)
{
    struct call *call = call_get(conn);
    if (!call)
        return -ENOMEM;
    struct xdr_out x = xdr_out(call->head + CALL_MARK, call->head_room - CALL_MARK);
    const uint32_t head[] = {back->xid, CALL, RPC_VERSION, back->program, back->version, back->procedure};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        xdr_put_u32(&x, head[i]);
    put_cred(&x, &back->cred);
    xdr_put_fixed(&x, back->args, back->length);
    call->rpc.received_ns = rpc_now(conn->worker); /* nobody waits for it since longer */
    reply_bytes(call, (uint32_t)xdr_used(&x));
    reply_send(call);
    return 0;
}

static unsigned waiting(const struct rpc_conn *conn)
{
    unsigned count = 0;
    for (const struct rpc_back_call *back = conn->back; back; back = back->next)
        count++;
    return count;
}

static int start(struct rpc_conn *conn, struct rpc_back_call *back)
{
    if (!conn || conn->closing || conn->ended || conn->deaf)
        return -ENOTCONN;
    if (waiting(conn) >= RPC_BACK_MOST)
        return -EBUSY;
    back->xid = ++conn->back_xid;
    back->until_ns = clock_monotonic_ns() + back->seconds * UINT64_C(1000000000);
    return send_record(conn, back);
}

static void arrived(struct task *task)
{
    struct rpc_back_call *back = (struct rpc_back_call *)((char *)task - offsetof(struct rpc_back_call, task));
    struct rpc_conn *conn = conn_find(&rpc_server.workers[worker_index(worker_self())], back->connection);
    int error = start(conn, back);
    if (error) {
        back->done(back, error, NULL);
        return;
    }
    metric_add(METRIC_rpc_back_calls, 1);
    back->next = conn->back;
    conn->back = back;
}

void rpc_call_back(struct rpc_connection where, struct rpc_back_call *back)
{
    back->connection = where.number;
    back->next = NULL;
    back->task.run = arrived;
    worker_post(where.worker, &back->task);
}

/* ---- the end ---- */

/* Takes out the first that is the one with this number, or where `until_ns` is past. */
static struct rpc_back_call *take(struct rpc_conn *conn, uint32_t xid, uint64_t now)
{
    struct rpc_back_call **at = &conn->back;
    while (*at && (now ? (*at)->until_ns > now : (*at)->xid != xid))
        at = &(*at)->next;
    struct rpc_back_call *found = *at;
    if (found)
        *at = found->next;
    return found;
}

void back_reply(struct rpc_conn *conn, const uint8_t *record, uint32_t length)
{
    struct xdr_in x = xdr_in(record, length);
    uint32_t xid = xdr_get_u32(&x), type = xdr_get_u32(&x), body;
    struct rpc_back_call *back = type == REPLY && !x.bad ? take(conn, xid, 0) : NULL;
    if (!back) {
        metric_add(METRIC_rpc_bad, 1); /* late, or nobody has asked */
        return;
    }
    bool accepted = xdr_get_u32(&x) == ACCEPTED;
    xdr_get_u32(&x);
    xdr_get_opaque(&x, VERIFIER_MOST, &body);
    bool success = accepted && xdr_get_u32(&x) == SUCCESS && !x.bad;
    back->done(back, success ? 0 : -EPROTO, success ? &x : NULL);
}

void back_tick(struct rpc_conn *conn)
{
    uint64_t now = conn->back ? clock_monotonic_ns() : 0;
    struct rpc_back_call *back;
    while (now && (back = take(conn, 0, now)))
        back->done(back, -ETIMEDOUT, NULL);
}

void back_drop(struct rpc_conn *conn)
{
    while (conn->back) {
        struct rpc_back_call *back = conn->back;
        conn->back = back->next;
        back->done(back, -ENOTCONN, NULL);
    }
}
