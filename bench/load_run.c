#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "load_conn.h"

enum { EVENTS = 64, ERRORS_MAX = 1000, DRAIN_SECONDS = 15 };

struct load_shared {
    const struct load_options *options;
    const struct load_target *target;
    atomic_uint_fast64_t tickets;
    uint64_t begin_ns, end_ns; /* what is measured; end 0: until the tickets are used up */
};

struct load_thread {
    pthread_t id;
    struct load_shared *shared;
    uint32_t number, conn_count, next;
    struct conn *conns;
    struct load_counts counts;
    int epoll;
    uint64_t now, due, interval; /* paced: when the next call should leave */
    bool stop;
    int error;
};

static bool thread_call(struct load_thread *t, struct conn *c, uint64_t start)
{
    uint64_t count = t->shared->options->count;
    uint64_t ticket = 0;
    if (t->stop)
        return false;
    ticket = atomic_fetch_add_explicit(&t->shared->tickets, 1, memory_order_relaxed);
    if (count && ticket >= count) {
        t->stop = true;
        return false;
    }
    conn_call(c, ticket, start);
    return true;
}

static void thread_done(void *opaque, struct conn *c, const struct load_slot *slot)
{
    struct load_thread *t = opaque;
    const struct load_shared *s = t->shared;
    uint64_t latency = t->now > slot->start_ns ? t->now - slot->start_ns : 0;
    if (t->now >= s->begin_ns && (!s->end_ns || t->now <= s->end_ns)) {
        hist_add(&t->counts.latency, latency);
        t->counts.operations++;
        t->counts.bytes += s->options->op <= OP_WRITE_SEQ ? slot->length : 0;
    }
    if (!t->interval)
        thread_call(t, c, t->now);
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

/* Calls that are due leave from the next connection with room; those that find none are late,
 * and counted so. */
static void thread_pace(struct load_thread *t)
{
    while (!t->stop && t->due <= t->now) {
        uint32_t tried = 0;
        struct conn *c;
        do {
            c = &t->conns[t->next++ % t->conn_count];
        } while ((c->fd < 0 || !c->free_count) && ++tried < t->conn_count);
        if (tried == t->conn_count || !thread_call(t, c, t->due))
            return;
        conn_flush(c);
        thread_watch(t, c);
        t->due += t->interval;
    }
}

static bool thread_busy(const struct load_thread *t)
{
    for (uint32_t i = 0; i < t->conn_count; i++) {
        if (t->conns[i].fd >= 0 && t->conns[i].free_count < t->shared->options->depth)
            return true;
    }
    return false;
}

static int thread_wait(struct load_thread *t, struct epoll_event *events)
{
    uint64_t wait = 100000000;
    if (t->interval && !t->stop && t->due > t->now && t->due - t->now < wait)
        wait = t->due - t->now;
    struct timespec timeout = {0, (long)wait};
    int count = epoll_pwait2(t->epoll, events, EVENTS, &timeout, NULL);
    t->now = clock_ns();
    return count;
}

static void thread_loop(struct load_thread *t)
{
    const struct conn_events handlers = {t, thread_done};
    struct epoll_event events[EVENTS];
    uint64_t end = t->shared->end_ns, stopped = 0;
    while (!t->stop || thread_busy(t)) {
        int count = thread_wait(t, events);
        for (int i = 0; i < count; i++) {
            struct conn *c = events[i].data.ptr;
            if (c->fd >= 0 && events[i].events & ~(unsigned)EPOLLOUT) {
                t->now = clock_ns();
                conn_receive(c, &handlers);
            }
            conn_flush(c);
            thread_watch(t, c);
        }
        if (t->interval)
            thread_pace(t);
        if ((end && t->now >= end) || t->counts.errors > ERRORS_MAX ||
            (!t->stop && !thread_busy(t) && !t->interval))
            t->stop = true;
        if (t->stop && !stopped)
            stopped = t->now;
        if (stopped && t->now - stopped > DRAIN_SECONDS * UINT64_C(1000000000)) {
            load_error(&t->counts, "replies are missing");
            return;
        }
    }
}

static int thread_open(struct load_thread *t)
{
    const struct load_options *o = t->shared->options;
    t->epoll = epoll_create1(EPOLL_CLOEXEC);
    t->conns = calloc(t->conn_count, sizeof *t->conns);
    if (t->epoll < 0 || !t->conns)
        return -1;
    for (uint32_t i = 0; i < t->conn_count; i++)
        t->conns[i].fd = -1;
    for (uint32_t i = 0; i < t->conn_count; i++) {
        struct conn *c = &t->conns[i];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        if (conn_open(c, o, t->shared->target, t->number + i * o->threads, &t->counts) ||
            epoll_ctl(t->epoll, EPOLL_CTL_ADD, c->fd, &event))
            return -1;
    }
    return 0;
}

static void *thread_main(void *opaque)
{
    struct load_thread *t = opaque;
    const struct load_options *o = t->shared->options;
    t->now = t->due = clock_ns();
    if (o->rate)
        t->interval = UINT64_C(1000000000) * o->threads / o->rate;
    for (uint32_t i = 0; !t->interval && i < t->conn_count; i++) {
        struct conn *c = &t->conns[i];
        while (c->free_count && thread_call(t, c, clock_ns()))
            continue;
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
    total->operations += counts->operations;
    total->bytes += counts->bytes;
    total->jukebox += counts->jukebox;
    if (counts->errors && !total->errors)
        memcpy(total->error, counts->error, sizeof total->error);
    total->errors += counts->errors;
    total->last_status = counts->last_status ? counts->last_status : total->last_status;
}

int load_run(struct load_run *run)
{
    const struct load_options *o = run->options;
    struct load_shared shared = {.options = o, .target = run->target};
    struct load_thread *threads = calloc(o->threads, sizeof *threads);
    int error = threads ? 0 : -1;
    for (uint32_t i = 0; threads && i < o->threads; i++) {
        struct load_thread *t = &threads[i];
        t->shared = &shared;
        t->number = i;
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
    run->tickets = atomic_load(&shared.tickets);
    if (o->count && run->tickets > o->count)
        run->tickets = o->count;
    free(threads);
    return error;
}
