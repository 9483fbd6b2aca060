#include "rpc/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rpc/conn.h"
#include "sluice/base_log.h"

enum { BACKLOG = 1024, PAUSE_MS = 100, IN_USE_TRIES = 100, IN_USE_PAUSE_MS = 10 };

struct listener {
    int fd;
    struct ring_op op;
    struct worker_timer pause;
    struct task start;
};

static struct listener *listeners;
static unsigned listener_count;

/* ---- binding ---- */

/* Splits "127.0.0.1:2049" or "[::1]:2049". */
static int parse_address(const char *text, struct addrinfo **out)
{
    char host[64];
    const char *colon = strrchr(text, ':'), *from = text;
    if (!colon || colon[1] < '0' || colon[1] > '9')
        return -EINVAL;
    size_t length = (size_t)(colon - text);
    int family = AF_INET;
    if (text[0] == '[') {
        if (length < 2 || text[length - 1] != ']')
            return -EINVAL;
        from++;
        length -= 2;
        family = AF_INET6;
    }
    if (length >= sizeof(host) || strtoul(colon + 1, NULL, 10) > UINT16_MAX)
        return -EINVAL;
    memcpy(host, from, length);
    host[length] = 0;
    if (strcmp(host, "*") == 0) /* which getaddrinfo would take */
        return -EINVAL;
    struct addrinfo hints = {.ai_family = family,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    return length && getaddrinfo(host, colon + 1, &hints, out) == 0 ? 0 : -EINVAL;
}

static int set_options(int fd, int family, uint64_t send_buffer)
{
    int one = 1, size = send_buffer > INT32_MAX ? INT32_MAX : (int)send_buffer;
    /* Accepted sockets inherit these. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0)
        return -errno;
    if (size && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) < 0)
        return -errno;
    if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) < 0)
        return -errno;
    return 0;
}

static int bind_one(const struct addrinfo *address, uint64_t send_buffer)
{
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int error = set_options(fd, address->ai_family, send_buffer);
    if (error == 0 &&
        (bind(fd, address->ai_addr, address->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0))
        error = -errno;
    if (error < 0) {
        close(fd);
        return error;
    }
    return fd;
}

static void explain(const char *text, int error, char why[256])
{
    switch (error) {
    case -EADDRINUSE:
        snprintf(why, 256, "%s: address already in use: another server listens there", text);
        break;
    case -EADDRNOTAVAIL:
        snprintf(why, 256, "%s: this machine does not have that address", text);
        break;
    case -EACCES:
        snprintf(why, 256, "%s: no permission: ports below 1024 need CAP_NET_BIND_SERVICE", text);
        break;
    case -EAFNOSUPPORT:
        snprintf(why, 256,
                 "%s: this machine does not have that address family (IPv6 may be switched off)",
                 text);
        break;
    default:
        snprintf(why, 256, "%s: %s", text, strerror(-error));
    }
}

static int open_one(const char *text, uint64_t send_buffer, char why[256])
{
    struct addrinfo *address = NULL;
    if (parse_address(text, &address) < 0) {
        snprintf(why, 256, "%s: not an address to listen on: write 127.0.0.1:2049 or [::1]:2049",
                 text);
        return -EINVAL;
    }
    int fd = bind_one(address, send_buffer);
    /* The kernel takes down a killed server's rings, and its listeners with them, some milliseconds after it. */
    for (int i = 0; fd == -EADDRINUSE && i < IN_USE_TRIES; i++) {
        usleep(IN_USE_PAUSE_MS * 1000);
        fd = bind_one(address, send_buffer);
    }
    freeaddrinfo(address);
    if (fd < 0)
        explain(text, fd, why);
    else
        listeners[listener_count++].fd = fd;
    return fd < 0 ? fd : 0;
}

int listen_open(const struct rpc_options *options, char why[256])
{
    listener_count = 0;
    listeners = calloc(options->listen_count ? options->listen_count : 1, sizeof(*listeners));
    if (!listeners) {
        snprintf(why, 256, "no memory");
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < options->listen_count; i++) {
        int error = open_one(options->listen[i], options->send_buffer, why);
        if (error < 0) {
            listen_close();
            return error;
        }
    }
    return 0;
}

void listen_close(void)
{
    for (unsigned i = 0; i < listener_count; i++)
        close(listeners[i].fd);
    free(listeners);
    listeners = NULL;
    listener_count = 0;
}

/* ---- accepting ---- */

static struct rpc_worker *fewest(void)
{
    struct rpc_worker *best = &rpc_server.workers[0];
    for (unsigned i = 1; i < rpc_server.worker_count; i++) {
        if (atomic_load(&rpc_server.workers[i].connections) < atomic_load(&best->connections))
            best = &rpc_server.workers[i];
    }
    return best;
}

void listen_uncount(struct rpc_worker *worker)
{
    atomic_fetch_sub(&worker->connections, 1);
    atomic_fetch_sub(&rpc_server.connections, 1);
}

static void accepted(int fd)
{
    static _Atomic long last;
    if (atomic_load(&rpc_server.draining)) {
        close(fd);
        return;
    }
    if (atomic_load(&rpc_server.connections) >= rpc_server.options.connections_max) {
        close(fd);
        if (log_ratelimit(&last))
            log_warning("rpc", "connection refused: there are %u already, the configured limit",
                        rpc_server.options.connections_max);
        return;
    }
    struct rpc_worker *worker = fewest();
    atomic_fetch_add(&worker->connections, 1);
    atomic_fetch_add(&rpc_server.connections, 1);
    conn_open(fd, worker);
}

static void accept_done(struct ring_op *op, int result, uint32_t cqe_flags);

static void accept_arm(struct listener *listener)
{
    if (atomic_load(&rpc_server.draining)) {
        atomic_fetch_sub(&rpc_server.accepts, 1);
        return;
    }
    listener->op.done = accept_done;
    struct io_uring_sqe *sqe = worker_sqe(&listener->op);
    io_uring_prep_accept(sqe, listener->fd, NULL, NULL, SOCK_CLOEXEC);
    ring_op_attach(sqe, &listener->op);
}

static void pause_over(struct worker_timer *timer)
{
    accept_arm((struct listener *)((char *)timer - offsetof(struct listener, pause)));
}

static void accept_done(struct ring_op *op, int result, uint32_t cqe_flags)
{
    static _Atomic long last;
    struct listener *listener = (struct listener *)((char *)op - offsetof(struct listener, op));
    if (result >= 0)
        accepted(result);
    bool exhausted = result == -EMFILE || result == -ENFILE || result == -ENOMEM ||
                     result == -ENOBUFS || result == -EINVAL;
    if (!exhausted || atomic_load(&rpc_server.draining)) {
        accept_arm(listener);
        return;
    }
    if (log_ratelimit(&last))
        log_warning("rpc", "connections have to wait: %s", strerror(-result));
    worker_timer_start(&listener->pause, PAUSE_MS, pause_over);
}

static void accept_start(struct task *task)
{
    accept_arm((struct listener *)((char *)task - offsetof(struct listener, start)));
}

void listen_start(void)
{
    atomic_store(&rpc_server.accepts, listener_count);
    for (unsigned i = 0; i < listener_count; i++) {
        listeners[i].start.run = accept_start;
        worker_post(rpc_server.workers[0].worker, &listeners[i].start);
    }
}

void listen_stop(void)
{
    for (unsigned i = 0; i < listener_count; i++)
        shutdown(listeners[i].fd, SHUT_RDWR); /* ends the accept on the ring */
}

/* ---- telling ---- */

void listen_each(void (*each)(void *arg, const struct sockaddr_storage *address), void *arg)
{
    for (unsigned i = 0; i < listener_count; i++) {
        struct sockaddr_storage address;
        socklen_t length = sizeof(address);
        if (getsockname(listeners[i].fd, (struct sockaddr *)&address, &length) == 0)
            each(arg, &address);
    }
}
