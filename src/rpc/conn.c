#include "rpc/conn.h"

#include <assert.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rpc/back.h"
#include "rpc/listen.h"
#include "sluice/base_log.h"
#include "sluice/base_metrics.h"

enum {
    STARVED_MS = 10,
    STILL_TICKS = 12,
    STILL_TICKS_SCARCE = 3, /* when bytes in flight are used up */
    /* What taking calls may cost in one pass, before the replies leave: a call counts CALL_COST bytes and those of
     * its reply.  One connection may use TURN_COST; connections from which calls have just come leave half to those
     * that wait for their next turn. */
    CALL_COST = 4096,
    TURN_COST = 1 << 20,
    PASS_COST = 4 << 20,
};

static void conn_settle(struct rpc_conn *conn);

/* ---- the end of a pass ---- */

static void flush(struct task *task)
{
    struct rpc_worker *worker =
        (struct rpc_worker *)((char *)task - offsetof(struct rpc_worker, flush));
    while (worker->touched_first) {
        struct rpc_conn *conn = worker->touched_first;
        conn_settle(conn); /* it stays on the list meanwhile, so that it is not put there again */
    }
    worker->flush_queued = false;
    worker->spent = 0;
    worker->now_ns = worker->handed_ns = 0;
}

static void untouch_first(struct rpc_worker *worker)
{
    struct rpc_conn *conn = worker->touched_first;
    worker->touched_first = conn->next_touched;
    if (!worker->touched_first)
        worker->touched_last = NULL;
    conn->next_touched = NULL;
    conn->touched = false;
}

void conn_touch(struct rpc_conn *conn)
{
    struct rpc_worker *worker = conn->worker;
    if (conn->touched)
        return;
    conn->touched = true;
    conn->next_touched = NULL;
    if (worker->touched_last)
        worker->touched_last->next_touched = conn;
    else
        worker->touched_first = conn;
    worker->touched_last = conn;
    if (!worker->flush_queued) {
        worker->flush_queued = true;
        worker->flush.run = flush;
        worker_at_pass_end(&worker->flush);
    }
}

/* ---- waiting for memory or coroutines ---- */

static void starved_again(struct worker_timer *timer)
{
    struct rpc_worker *worker =
        (struct rpc_worker *)((char *)timer - offsetof(struct rpc_worker, starved_timer));
    struct rpc_conn *conn = worker->starved;
    worker->starved = NULL;
    while (conn) {
        struct rpc_conn *next = conn->next_starved;
        conn->starved = false;
        conn->blocked = true; /* has its input looked at again */
        conn_touch(conn);
        conn = next;
    }
}

void conn_starve(struct rpc_conn *conn)
{
    struct rpc_worker *worker = conn->worker;
    if (conn->starved)
        return;
    conn->starved = true;
    conn->next_starved = worker->starved;
    worker->starved = conn;
    if (!worker->starved_timer.armed)
        worker_timer_start(&worker->starved_timer, STARVED_MS, starved_again);
}

/* ---- taking turns ---- */

static void later_again(struct task *task)
{
    struct rpc_worker *worker =
        (struct rpc_worker *)((char *)task - offsetof(struct rpc_worker, later));
    struct rpc_conn *conn = worker->later_first;
    worker->later_first = worker->later_last = NULL;
    worker->later_queued = false;
    while (conn) {
        struct rpc_conn *next = conn->next_later;
        conn->later = false;
        conn_touch(conn);
        conn = next;
    }
}

/* conn goes on in the next pass, behind those that wait already. */
static void take_later(struct rpc_conn *conn)
{
    struct rpc_worker *worker = conn->worker;
    conn->blocked = true; /* has its input looked at again */
    conn->later = true;
    conn->next_later = NULL;
    if (worker->later_last)
        worker->later_last->next_later = conn;
    else
        worker->later_first = conn;
    worker->later_last = conn;
    if (worker->later_queued)
        return;
    worker->later_queued = true;
    worker->later.run = later_again;
    worker_post(worker->worker, &worker->later);
}

/* ---- receiving ---- */

/* What is left is shared: the more there is in flight, the less a connection may have of it.  So whoever takes no
 * replies never has all, and a connection without a call in progress can always make one. */
static bool within_limits(const struct rpc_conn *conn)
{
    const struct rpc_options *options = &rpc_server.options;
    if (conn->requests + conn->held == 0)
        return true;
    if (conn->requests >= options->requests_per_connection ||
        conn->bytes >= options->bytes_per_connection)
        return false;
    return conn->bytes + conn->worker->bytes < rpc_server.bytes_per_worker;
}

static void count_gathered(struct rpc_conn *conn)
{
    uint32_t held = record_held(&conn->reader);
    conn->bytes += (uint64_t)held - conn->gathered;
    rpc_gauge(&conn->worker->bytes, (int64_t)held - conn->gathered);
    conn->gathered = held;
}

/* Calls that wait for their turn do not hold up what comes behind them, until they are many. */
static bool may_take(const struct rpc_conn *conn)
{
    return conn->held < HELD_MOST && within_limits(conn);
}

/* What has had its turn goes on as soon as replies have left. */
static bool may_run(const struct rpc_conn *conn)
{
    return conn->requests == 0 || within_limits(conn);
}

/* Announces the calls that come next and returns how many it looked at.  One alone gains nothing. */
static unsigned expect_calls(const struct rpc_conn *conn)
{
    struct record ahead[RPC_EXPECT_MOST];
    unsigned count = record_ahead(&conn->reader, ahead, RPC_EXPECT_MOST);
    if (count > 1)
        calls_expect(ahead, count);
    return count;
}

/* Takes the calls that are in the buffer, as far as the limits allow. */
static void take_calls(struct rpc_conn *conn, uint64_t pass_cost)
{
    struct rpc_worker *worker = conn->worker;
    uint64_t turn = 0;
    unsigned calls = 0, expected = 0;
    conn->blocked = false;
    while (!conn->deaf && !conn->closing && !conn->starved) {
        if (!may_take(conn)) {
            conn->blocked = true;
            break;
        }
        if (turn >= TURN_COST || worker->spent >= pass_cost) {
            take_later(conn);
            break;
        }
        struct record record;
        uint64_t bytes = conn->bytes;
        if (expected == 0)
            expected = expect_calls(conn);
        int result = record_next(&conn->reader, &record);
        if (result == 0)
            break;
        expected -= expected > 0;
        if (result > 0)
            result = call_begin(conn, &record);
        if (result == 0) {
            record_done(&conn->reader, &record);
            count_gathered(conn);
            calls++;
            uint64_t cost = CALL_COST + (conn->bytes > bytes ? conn->bytes - bytes : 0);
            turn += cost;
            worker->spent += cost;
        } else if (result == -ENOMEM || result == -EAGAIN) {
            conn_starve(conn);
        } else {
            metric_add(METRIC_rpc_bad, 1);
            conn->deaf = true;
        }
    }
    count_gathered(conn);
    if (calls) {
        metric_add(METRIC_rpc_calls, calls);
        histogram_bump(&conn->client->calls, calls);
    }
}

static void receive_done(struct ring_op *op, int result, uint32_t cqe_flags)
{
    struct rpc_conn *conn = (struct rpc_conn *)((char *)op - offsetof(struct rpc_conn, receive_op));
    assert(conn->magic == RPC_CONN_MAGIC);
    conn->receiving = false;
    conn->more = cqe_flags & IORING_CQE_F_SOCK_NONEMPTY;
    conn_touch(conn);
    if (result > 0) {
        metric_add(METRIC_rpc_received_bytes, (uint32_t)result);
        histogram_bump(&conn->client->bytes_in, (uint32_t)result);
        conn->received_ns = rpc_now(conn->worker);
        record_received(&conn->reader, (uint32_t)result);
        if (!conn->later)
            take_calls(conn, PASS_COST / 2);
    } else if (result == 0) {
        conn->ended = true;
    } else if (result != -EINTR && result != -EAGAIN) {
        conn_close(conn);
    }
}

static void receive_start(struct rpc_conn *conn)
{
    if (conn->receiving || conn->ended || conn->deaf || conn->closing || conn->blocked ||
        conn->starved)
        return;
    if (!may_take(conn)) {
        conn->blocked = true;
        return;
    }
    uint8_t *at;
    uint32_t room;
    bool whole;
    record_space(&conn->reader, &at, &room, &whole);
    conn->receiving = true;
    conn->receive_op.done = receive_done;
    struct io_uring_sqe *sqe = worker_sqe(&conn->receive_op);
    io_uring_prep_recv(sqe, conn->fd, at, room, whole ? MSG_WAITALL : 0);
    if (!conn->more)
        sqe->ioprio |= IORING_RECVSEND_POLL_FIRST; /* an attempt would find nothing */
    ring_op_attach(sqe, &conn->receive_op);
}

/* ---- opening and closing ---- */

static void conn_unlink(struct rpc_conn *conn)
{
    struct rpc_worker *worker = conn->worker;
    if (conn->previous)
        conn->previous->next = conn->next;
    else
        worker->conns = conn->next;
    if (conn->next)
        conn->next->previous = conn->previous;

    pthread_mutex_lock(&rpc_server.peers_lock);
    if (conn->previous_peer)
        conn->previous_peer->next_peer = conn->next_peer;
    else
        rpc_server.peers = conn->next_peer;
    if (conn->next_peer)
        conn->next_peer->previous_peer = conn->previous_peer;
    pthread_mutex_unlock(&rpc_server.peers_lock);
}

static void conn_link(struct rpc_conn *conn)
{
    struct rpc_worker *worker = conn->worker;
    conn->next = worker->conns;
    if (conn->next)
        conn->next->previous = conn;
    worker->conns = conn;

    pthread_mutex_lock(&rpc_server.peers_lock);
    conn->next_peer = rpc_server.peers;
    if (conn->next_peer)
        conn->next_peer->previous_peer = conn;
    rpc_server.peers = conn;
    pthread_mutex_unlock(&rpc_server.peers_lock);
}

static void conn_free(struct rpc_conn *conn)
{
    struct rpc_worker *worker = conn->worker;
    conn_unlink(conn);
    rpc_gauge(&worker->bytes, -(int64_t)conn->gathered);
    record_reader_free(&conn->reader);
    client_leave(conn->client);
    close(conn->fd);
    conn->magic = 0;
    free(conn);
    listen_uncount(worker);
}

void conn_close(struct rpc_conn *conn)
{
    if (conn->closing)
        return;
    conn->closing = true;
    shutdown(conn->fd, SHUT_RDWR); /* ends what is on the ring */
    send_drop(conn);
    held_drop(conn);
    held_withdraw(conn);
    back_drop(conn);
    conn_touch(conn);
}

/* Bytes that have come or been acknowledged: they move though an operation on the ring is not finished. */
static uint64_t bytes_moved(const struct rpc_conn *conn)
{
    struct tcp_info info = {0};
    socklen_t length = sizeof(info);
    if (getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0)
        return 0;
    return info.tcpi_bytes_received + info.tcpi_bytes_acked;
}

void conn_tick(struct rpc_conn *conn)
{
    static _Atomic long last;
    back_tick(conn);
    bool in_the_middle = conn->sending || (conn->receiving && conn->requests == 0 &&
                                           record_begun(&conn->reader));
    uint64_t moved = in_the_middle ? bytes_moved(conn) : 0;
    conn->still = in_the_middle && moved == conn->moved ? conn->still + 1 : 0;
    conn->moved = moved;
    bool scarce = conn->worker->bytes >= rpc_server.bytes_per_worker / 2;
    if (conn->still < (scarce ? STILL_TICKS_SCARCE : STILL_TICKS))
        return;
    if (log_ratelimit(&last))
        log_warning("rpc", "a connection is closed: for %u s its client has %s",
                    conn->still * RPC_TICK_SECONDS,
                    conn->sending ? "taken no byte of the replies" : "not gone on with a call");
    conn_close(conn);
}

void conn_drain(struct rpc_conn *conn)
{
    conn->deaf = true;
    shutdown(conn->fd, SHUT_RD);
    held_withdraw(conn); /* unanswered: the client sends it again */
    conn_touch(conn);
}

/* Does what there is to do and takes conn off the list of touched ones, where it is the first. */
static void conn_settle(struct rpc_conn *conn)
{
    struct rpc_worker *worker = conn->worker;
    if (conn->passed.first && !conn->starved && held_run(conn, may_run) < 0)
        conn_starve(conn);
    if (conn->blocked && !conn->later)
        take_calls(conn, PASS_COST);
    if (!conn->closing)
        send_start(conn);
    bool no_more = conn->deaf || (conn->ended && !conn->blocked && !conn->starved);
    if (no_more && conn->requests + conn->held == 0)
        conn_close(conn);
    receive_start(conn);
    untouch_first(worker);
    if (conn->closing && !conn->receiving && !conn->sending && !conn->starved && !conn->later &&
        conn->requests + conn->held == 0)
        conn_free(conn);
}

/* IPv4-mapped IPv6 addresses become IPv4: rules and the duplicate request cache see one kind. */
static void unmap(struct sockaddr_storage *address)
{
    const struct sockaddr_in6 six = *(const struct sockaddr_in6 *)address;
    if (six.sin6_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
        return;
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = six.sin6_port};
    memcpy(&four.sin_addr, six.sin6_addr.s6_addr + 12, sizeof(four.sin_addr));
    memset(address, 0, sizeof(*address));
    memcpy(address, &four, sizeof(four));
}

/* The client is gone already, or there is no memory: it will come again. */
static void give_up(struct rpc_conn *conn)
{
    struct rpc_worker *worker = conn->worker;
    close(conn->fd);
    free(conn);
    listen_uncount(worker);
}

static void conn_arrived(struct task *task)
{
    struct rpc_conn *conn = (struct rpc_conn *)((char *)task - offsetof(struct rpc_conn, handover));
    socklen_t peer_length = sizeof(conn->peer), local_length = sizeof(conn->local);
    if (getpeername(conn->fd, (struct sockaddr *)&conn->peer, &peer_length) < 0 ||
        getsockname(conn->fd, (struct sockaddr *)&conn->local, &local_length) < 0 ||
        record_reader_init(&conn->reader, &conn->worker->buffers, rpc_server.options.record_max) <
            0) {
        give_up(conn);
        return;
    }
    unmap(&conn->peer);
    unmap(&conn->local);
    conn->client = client_enter(conn->worker->index, &conn->peer);
    if (!conn->client) {
        record_reader_free(&conn->reader);
        give_up(conn);
        return;
    }
    conn_link(conn);
    metric_add(METRIC_rpc_connections, 1);
    if (atomic_load(&rpc_server.draining))
        conn_drain(conn);
    conn_touch(conn);
}

void conn_open(int fd, struct rpc_worker *worker)
{
    struct rpc_conn *conn = calloc(1, sizeof(*conn));
    if (!conn) {
        close(fd);
        listen_uncount(worker);
        return;
    }
    conn->magic = RPC_CONN_MAGIC;
    conn->fd = fd;
    conn->worker = worker;
    conn->number = atomic_fetch_add(&rpc_server.connection_numbers, 1);
    conn->handover.run = conn_arrived;
    worker_post(worker->worker, &conn->handover);
}

struct rpc_conn *conn_find(struct rpc_worker *worker, uint64_t number)
{
    struct rpc_conn *conn = worker->conns;
    while (conn && conn->number != number)
        conn = conn->next;
    return conn;
}
