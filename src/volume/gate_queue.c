/* Calls that wait for their turn: in each way one queue for each connection, served by deficit round robin. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "sluice/base_error.h"
#include "volume/gate.h"

enum {
    QUANTUM = 256 << 10, /* bytes of a connection's turn */
    CALL_BYTES = 4096,   /* that a call counts beside its own */
    PASS_MOST = 4096,    /* calls at once */
    TIMER_LEAST_US = 250, /* what waits goes in small portions, so that others do not wait behind large ones */
    TIMER_MOST_US = 20000,
};

static struct gate_flow **chain_of(struct gate_queue *q, uint64_t connection)
{
    return &q->chains[connection % GATE_CHAINS];
}

static struct gate_flow *flow_find(const struct gate_queue *q, uint64_t connection)
{
    struct gate_flow *f = q->chains[connection % GATE_CHAINS];
    while (f && f->connection != connection)
        f = f->next_in_chain;
    return f;
}

static struct gate_flow *flow_add(struct gate_queue *q, uint64_t connection)
{
    struct gate_flow *f = calloc(1, sizeof *f), **chain = chain_of(q, connection);
    if (!f)
        return NULL;
    f->connection = connection;
    f->next_in_chain = *chain;
    *chain = f;
    if (q->last) {
        f->next = q->last->next;
        q->last->next = f;
    } else {
        f->next = f;
    }
    q->last = f;
    q->flows++;
    return f;
}

static void flow_remove(struct gate_queue *q, struct gate_flow *f)
{
    struct gate_flow **link = chain_of(q, f->connection), *before = f;
    while (*link != f)
        link = &(*link)->next_in_chain;
    *link = f->next_in_chain;
    while (before->next != f)
        before = before->next;
    before->next = f->next;
    if (q->last == f)
        q->last = before == f ? NULL : before;
    q->flows--;
    free(f);
}

int queue_add(struct gate *g, struct gate_call *call)
{
    struct gate_queue *q = &g->queue[call->way];
    struct gate_flow *f = flow_find(q, call->connection);
    if (!f && !(f = flow_add(q, call->connection)))
        return -ENOMEM;
    call->next = NULL;
    call->withdrawn = false;
    if (f->last)
        f->last->next = call;
    else
        f->first = call;
    f->last = call;
    f->count++;
    f->bytes += call->bytes;
    q->calls++;
    q->bytes += call->bytes;
    return 0;
}

static struct gate_call *flow_take(struct gate_queue *q, struct gate_flow *f)
{
    struct gate_call *call = f->first;
    f->first = call->next;
    f->count--;
    f->bytes -= call->bytes;
    q->calls--;
    q->bytes -= call->bytes;
    if (!f->first)
        flow_remove(q, f);
    return call;
}

/* The next connection's turn begins when the first one has used up its credit. */
static struct gate_call *take_next(struct gate_queue *q)
{
    for (;;) {
        struct gate_flow *f = q->last->next;
        int64_t cost = (int64_t)f->first->bytes + CALL_BYTES;
        if (f->credit >= cost || q->flows == 1) {
            f->credit = q->flows == 1 ? 0 : f->credit - cost;
            return flow_take(q, f);
        }
        f->credit += QUANTUM;
        q->last = f;
    }
}

/* Which way's turn it is; GATE_WAYS: none that could pass. */
static enum gate_way pick(const struct gate *g)
{
    for (unsigned i = 0; i < GATE_WAYS; i++) {
        enum gate_way way = (g->turn + i) % GATE_WAYS;
        if (g->queue[way].calls && buckets_open(&g->set, way))
            return way;
    }
    return GATE_WAYS;
}

struct gate_call *queue_pass(struct gate *g, uint64_t now)
{
    struct gate_call *first = NULL, **link = &first;
    buckets_fill(&g->set, now);
    for (unsigned i = 0; i < PASS_MOST; i++) {
        enum gate_way way = pick(g);
        if (way == GATE_WAYS || (gate_is_pressed(g) && !pressure_open()))
            break;
        struct gate_call *call = take_next(&g->queue[way]);
        g->turn = (way + 1) % GATE_WAYS;
        buckets_take(&g->set, way, call->bytes, 1);
        if (gate_is_pressed(g))
            pressure_take(call->bytes);
        g->stats.waits[way]++;
        g->stats.wait_ns[way] += now - call->since_ns;
        *link = call;
        link = &call->next;
    }
    *link = NULL;
    return first;
}

struct gate_call *queue_withdraw(struct gate *g, uint64_t connection)
{
    struct gate_call *first = NULL;
    for (unsigned way = 0; way < GATE_WAYS; way++) {
        struct gate_queue *q = &g->queue[way];
        struct gate_flow *f = flow_find(q, connection);
        for (unsigned left = f ? f->count : 0; left; left--) {
            struct gate_call *call = flow_take(q, f);
            call->withdrawn = true;
            call->next = first;
            first = call;
        }
    }
    return first;
}

/* Of what waits, so much comes before a call of this connection: turns are taken. */
static uint64_t before(uint64_t all, uint64_t own, unsigned flows)
{
    uint64_t rounds = own * flows;
    return rounds < all ? rounds : all;
}

uint64_t queue_estimate(const struct gate *g, const struct gate_call *call)
{
    const struct gate_queue *q = &g->queue[call->way];
    const struct gate_flow *f = flow_find(q, call->connection);
    unsigned flows = q->flows + !f;
    uint64_t bytes = before(q->bytes, (f ? f->bytes : 0) + call->bytes, flows);
    uint64_t calls = before(q->calls, (f ? f->count : 0) + 1, flows);
    return buckets_wait(&g->set, call->way, (double)bytes, (double)calls);
}

uint64_t queue_next(const struct gate *g)
{
    uint64_t soonest = 0;
    for (unsigned way = 0; way < GATE_WAYS; way++) {
        if (!g->queue[way].calls)
            continue;
        uint64_t wait = buckets_wait(&g->set, way, 0, 0) + 1, pressed = gate_is_pressed(g) ? pressure_wait() : 0;
        if (pressed > wait)
            wait = pressed;
        if (!soonest || wait < soonest)
            soonest = wait;
    }
    return soonest;
}

/* ---- the gate's home ---- */

static void let_pass(struct gate *g);

static void timer_expired(struct worker_timer *timer)
{
    let_pass((struct gate *)((char *)timer - offsetof(struct gate, timer)));
}

/* One message for each worker. */
static void send_on(struct gate_call *calls)
{
    while (calls) {
        struct worker *worker = calls->worker;
        struct task *first = NULL, *last = NULL;
        struct gate_call *others = NULL, **link = &others;
        while (calls) {
            struct gate_call *next = calls->next;
            if (calls->worker == worker) {
                calls->task.next = NULL;
                if (last)
                    last->next = &calls->task;
                else
                    first = &calls->task;
                last = &calls->task;
            } else {
                *link = calls;
                link = &calls->next;
            }
            calls = next;
        }
        *link = NULL;
        worker_post_list(worker, first, last);
        calls = others;
    }
}

static void let_pass(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    struct gate_call *calls = queue_pass(g, clock_monotonic_ns());
    uint64_t wait = queue_next(g);
    pthread_mutex_unlock(&g->lock);
    send_on(calls);
    if (!wait || g->timer.armed)
        return;
    uint64_t us = wait / 1000 < TIMER_LEAST_US ? TIMER_LEAST_US : wait / 1000 + 1;
    worker_timer_start_us(&g->timer, us < TIMER_MOST_US ? us : TIMER_MOST_US, timer_expired);
}

static void kick_run(struct task *task)
{
    struct gate *g = (struct gate *)((char *)task - offsetof(struct gate, kick));
    atomic_store(&g->kicked, false);
    let_pass(g);
}

void gate_kick(struct gate *g)
{
    if (!g->home || atomic_exchange(&g->kicked, true))
        return;
    g->kick.run = kick_run;
    worker_post(g->home, &g->kick);
}

int gate_hold(struct gate_call *call)
{
    struct gate *g = call->gate;
    int error = 0;
    pthread_mutex_lock(&g->lock);
    call->since_ns = clock_monotonic_ns();
    buckets_fill(&g->set, call->since_ns);
    bool first = g->queue[GATE_READ].calls + g->queue[GATE_WRITE].calls == 0;
    if (queue_estimate(g, call) > GATE_WAIT_MOST_S * UINT64_C(1000000000)) {
        g->stats.delayed++;
        error = SL_EDELAY;
    } else if (call->way == GATE_WRITE && g->queue[GATE_WRITE].bytes + call->bytes > GATE_CHANGES_MOST &&
               flow_find(&g->queue[GATE_WRITE], call->connection)) {
        error = -EAGAIN;
    } else {
        error = queue_add(g, call);
    }
    if (!error)
        atomic_fetch_add(&g->busy, 1);
    pthread_mutex_unlock(&g->lock);
    if (!error && first)
        gate_kick(g);
    return error;
}

uint64_t gate_passed(struct gate_call *call)
{
    atomic_fetch_sub(&call->gate->busy, 1);
    return clock_monotonic_ns() - call->since_ns;
}

static void withdraw_from(void *arg, struct gate *g)
{
    const uint64_t *connection = arg;
    if (!atomic_load(&g->busy))
        return;
    pthread_mutex_lock(&g->lock);
    struct gate_call *calls = queue_withdraw(g, *connection);
    pthread_mutex_unlock(&g->lock);
    send_on(calls);
}

void gate_withdraw(uint64_t connection)
{
    gate_each(withdraw_from, &connection);
    if (gate_others)
        withdraw_from(&connection, gate_others);
}

void queue_free(struct gate *g)
{
    for (unsigned way = 0; way < GATE_WAYS; way++)
        while (g->queue[way].last)
            flow_remove(&g->queue[way], g->queue[way].last);
}
