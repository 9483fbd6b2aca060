#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "load_conn.h"

enum { EVENTS = 64, ERRORS_MAX = 1000, STALL_SECONDS = 30 };

struct load_shared {
    const struct load_options *options;
    struct load_target *target;
    atomic_uint_fast64_t tickets;
    uint64_t ticket_end;       /* no ticket from this one on; 0: no limit */
    uint64_t begin_ns, end_ns; /* what is measured; end 0: until the tickets are used up */
};

struct load_thread {
    pthread_t id;
    struct load_shared *shared;
    uint32_t number, conn_count, next;
    struct conn *conns;
    struct conn_shared conn_shared;
    struct load_counts counts;
    int epoll;
    uint64_t now, due, interval; /* paced: when the next unit should start */
    bool full;                   /* paced: no connection has room, a reply must come first */
};

static bool thread_start(struct load_thread *t, struct conn *c, uint64_t start)
{
    struct load_shared *s = t->shared;
    if (t->conn_shared.stop)
        return false;
    uint64_t ticket = atomic_fetch_add_explicit(&s->tickets, 1, memory_order_relaxed);
    if (s->ticket_end && ticket >= s->ticket_end) {
        t->conn_shared.stop = true;
        return false;
    }
    s->options->op->start(c, ticket, start);
    return true;
}

static void thread_refill(void *opaque, struct conn *c)
{
    struct load_thread *t = opaque;
    const struct load_operation *op = t->shared->options->op;
    while (!t->interval && op->room(c) && thread_start(t, c, c->now))
        continue;
}

static void thread_watch(struct load_thread *t, struct conn *c)
{
    bool wants = c->iov_count != 0;
    if (c->fd < 0 || wants == c->wants_write)
        return;
    struct epoll_event event = {.events = EPOLLIN | (wants ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(t->epoll, EPOLL_CTL_MOD, c->fd, &event);
    c->wants_write = wants;
}

/* Units that are due start on the next connection with room; those that find none are late, and
 * counted so. */
static void thread_pace(struct load_thread *t)
{
    const struct load_operation *op = t->shared->options->op;
    while (!t->conn_shared.stop && t->due <= t->now) {
        uint32_t tried = 0;
        struct conn *c;
        do {
            c = &t->conns[t->next++ % t->conn_count];
        } while ((c->fd < 0 || !op->room(c)) && ++tried < t->conn_count);
        t->full = tried == t->conn_count;
        if (t->full)
            return;
        c->now = t->now;
        if (!thread_start(t, c, t->due))
            return;
        conn_flush(c);
        thread_watch(t, c);
        t->due += t->interval;
    }
}

static bool thread_busy(const struct load_thread *t)
{
    for (uint32_t i = 0; i < t->conn_count; i++) {
        if (t->conns[i].fd >= 0 && t->conns[i].free_count < t->conns[i].slot_count)
            return true;
    }
    return false;
}

static int thread_wait(struct load_thread *t, struct epoll_event *events)
{
    uint64_t wait = 100000000;
    if (t->interval && !t->conn_shared.stop && !t->full) {
        uint64_t now = clock_ns(), until = t->due > now ? t->due - now : 0;
        wait = until < wait ? until : wait;
    }
    struct timespec timeout = {0, (long)wait};
    int count = epoll_pwait2(t->epoll, events, EVENTS, &timeout, NULL);
    t->now = clock_ns();
    return count;
}

static void thread_serve(struct load_thread *t, const struct epoll_event *event)
{
    struct conn *c = event->data.ptr;
    if (c->fd >= 0 && event->events & ~(unsigned)EPOLLOUT)
        conn_receive(c);
    conn_flush(c);
    thread_watch(t, c);
}

/* Paced units that were due and have found no room until now will not come. */
static void thread_end(struct load_thread *t)
{
    struct conn_shared *s = &t->conn_shared;
    if (t->interval && !s->stop && s->end_ns && t->due < s->end_ns)
        t->counts.missed += (s->end_ns - t->due) / t->interval;
    s->stop = s->halt = true;
}

static void thread_loop(struct load_thread *t)
{
    struct epoll_event events[EVENTS];
    struct conn_shared *s = &t->conn_shared;
    uint64_t alive = t->now;
    while (!s->stop || thread_busy(t)) {
        int count = thread_wait(t, events);
        for (int i = 0; i < count; i++)
            thread_serve(t, &events[i]);
        if (t->interval)
            thread_pace(t);
        if ((s->end_ns && t->now >= s->end_ns) || t->counts.errors > ERRORS_MAX)
            thread_end(t);
        if (!s->stop && !t->interval && !thread_busy(t))
            s->stop = true;
        if (count > 0 || !thread_busy(t))
            alive = t->now;
        if (t->now - alive > STALL_SECONDS * UINT64_C(1000000000)) {
            load_error(&t->counts, "replies are missing");
            return;
        }
    }
}

static int thread_open(struct load_thread *t)
{
    const struct load_options *o = t->shared->options;
    t->conn_shared = (struct conn_shared){.options = o,
                                          .target = t->shared->target,
                                          .counts = &t->counts,
                                          .opaque = t,
                                          .refill = thread_refill};
    t->epoll = epoll_create1(EPOLL_CLOEXEC);
    t->conns = calloc(t->conn_count, sizeof *t->conns);
    if (t->epoll < 0 || !t->conns)
        return -1;
    for (uint32_t i = 0; i < t->conn_count; i++)
        t->conns[i].fd = -1;
    for (uint32_t i = 0; i < t->conn_count; i++) {
        struct conn *c = &t->conns[i];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        if (conn_open(c, &t->conn_shared, t->number + i * o->threads) ||
            epoll_ctl(t->epoll, EPOLL_CTL_ADD, c->fd, &event))
            return -1;
    }
    return 0;
}

static void *thread_main(void *opaque)
{
    struct load_thread *t = opaque;
    const struct load_options *o = t->shared->options;
    t->conn_shared.begin_ns = t->shared->begin_ns;
    t->conn_shared.end_ns = t->shared->end_ns;
    t->now = t->due = clock_ns();
    if (o->rate) {
        t->interval = UINT64_C(1000000000) * o->threads / o->rate;
        t->due += t->interval * t->number / o->threads;
        prctl(PR_SET_TIMERSLACK, 1); /* the usual 50 us would count as latency */
    }
    for (uint32_t i = 0; i < t->conn_count; i++) {
        struct conn *c = &t->conns[i];
        c->now = clock_ns();
        thread_refill(t, c);
        conn_flush(c);
        thread_watch(t, c);
    }
    thread_loop(t);
    return NULL;
}

static void thread_close(struct load_thread *t)
{
    for (uint32_t i = 0; t->conns && i < t->conn_count; i++)
        conn_close(&t->conns[i]);
    free(t->conns);
    if (t->epoll >= 0)
        close(t->epoll);
}

static void sleep_until(uint64_t ns)
{
    struct timespec at = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        continue;
}

static void run_sample(struct load_run *run, uint64_t *at, double *client, double *server)
{
    *at = clock_ns();
    *client = process_cpu_seconds(0);
    *server = run->options->server_pid ? process_cpu_seconds(run->options->server_pid) : -1;
}

static int run_threads(struct load_run *run, struct load_shared *s, struct load_thread *threads)
{
    const struct load_options *o = run->options;
    uint64_t from, to = 0;
    double client[2] = {0}, server[2] = {0};
    uint32_t started = 0;
    run_sample(run, &from, &client[0], &server[0]);
    if (!o->count) {
        s->begin_ns = from + (uint64_t)(o->warmup * 1e9);
        s->end_ns = s->begin_ns + (uint64_t)(o->seconds * 1e9);
    }
    while (started < o->threads &&
           !pthread_create(&threads[started].id, NULL, thread_main, &threads[started]))
        started++;
    if (!o->count) {
        sleep_until(s->begin_ns);
        run_sample(run, &from, &client[0], &server[0]);
        sleep_until(s->end_ns);
        run_sample(run, &to, &client[1], &server[1]);
    }
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i].id, NULL);
    if (o->count)
        run_sample(run, &to, &client[1], &server[1]);
    run->seconds = (double)(to - from) / 1e9;
    run->client_cpu = client[1] - client[0];
    run->server_cpu = server[0] >= 0 && server[1] >= 0 ? server[1] - server[0] : -1;
    return started == o->threads ? 0 : -1;
}

static void run_add(struct load_counts *total, const struct load_counts *counts)
{
    hist_merge(&total->latency, &counts->latency);
    for (unsigned i = 0; i < EXTRAS; i++)
        hist_merge(&total->extra[i], &counts->extra[i]);
    total->operations += counts->operations;
    total->bytes += counts->bytes;
    total->calls += counts->calls;
    total->entries += counts->entries;
    total->missed += counts->missed;
    total->jukebox += counts->jukebox;
    if (counts->errors && !total->errors)
        memcpy(total->error, counts->error, sizeof total->error);
    total->errors += counts->errors;
    total->last_status = counts->last_status ? counts->last_status : total->last_status;
}

void load_run_add(struct load_run *total, const struct load_run *run)
{
    run_add(&total->total, &run->total);
    total->seconds += run->seconds;
    total->client_cpu += run->client_cpu;
    total->server_cpu = run->server_cpu < 0 ? -1 : total->server_cpu + run->server_cpu;
    total->tickets += run->tickets;
}

int load_run(struct load_run *run)
{
    const struct load_options *o = run->options;
    struct load_shared shared = {.options = o,
                                 .target = run->target,
                                 .tickets = run->first_ticket,
                                 .ticket_end = o->count ? run->first_ticket + o->count : 0};
    struct load_thread *threads = calloc(o->threads, sizeof *threads);
    int error = threads ? 0 : -1;
    for (uint32_t i = 0; threads && i < o->threads; i++) {
        struct load_thread *t = &threads[i];
        t->shared = &shared;
        t->number = i;
        t->epoll = -1;
        t->conn_count = (o->connections + o->threads - 1 - i) / o->threads;
        if (!error)
            error = thread_open(t);
    }
    if (!error)
        error = run_threads(run, &shared, threads);
    for (uint32_t i = 0; threads && i < o->threads; i++) {
        run_add(&run->total, &threads[i].counts);
        thread_close(&threads[i]);
    }
    run->tickets = atomic_load(&shared.tickets) - run->first_ticket;
    if (o->count && run->tickets > o->count)
        run->tickets = o->count;
    free(threads);
    return error;
}
