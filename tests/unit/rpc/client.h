/* For the rpc tests: a small program, a server for it on loopback, and a client that sends and
 * takes bytes. */
#ifndef TEST_RPC_CLIENT_H
#define TEST_RPC_CLIENT_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "sluice/base_worker.h"
#include "sluice/rpc.h"

enum { PROGRAM = 0x20000099, VERSION_LOW = 2, VERSION = 3 };
enum {
    P_NULL,
    P_ECHO,
    P_WAIT,
    P_CHANGE,
    P_BULK,
    P_OVERFLOW,
    P_GARBAGE,
    P_TAKE,
    P_HOLE,
    P_WEAK,
    P_COUNT
};

static _Atomic unsigned changes_run; /* how often P_CHANGE ran */
static _Atomic int slices_out;       /* slices that a reply still holds */

static enum rpc_result do_null(struct rpc_call *call)
{
    return xdr_left(&call->args) ? RPC_GARBAGE_ARGS : RPC_DONE;
}

static enum rpc_result do_echo(struct rpc_call *call)
{
    uint32_t length;
    const uint8_t *data = xdr_get_opaque(&call->args, 4 << 20, &length);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;
    if (rpc_reply_room(call, length + 8) < 0)
        return RPC_SYSTEM_ERR;
    xdr_put_opaque(&call->out, data, length);
    return RPC_DONE;
}

static enum rpc_result do_wait(struct rpc_call *call)
{
    uint32_t ms = xdr_get_u32(&call->args), value = xdr_get_u32(&call->args);
    xdr_put_u32(&call->out, 0xdead); /* must be gone in the second run */
    if (!coro_self())
        return RPC_WAIT;
    call->out.at = call->out.start;
    coro_sleep(ms);
    xdr_put_u32(&call->out, value);
    return call->args.bad ? RPC_GARBAGE_ARGS : RPC_DONE;
}

static enum rpc_result do_change(struct rpc_call *call)
{
    uint32_t ms = xdr_get_u32(&call->args);
    xdr_get_u32(&call->args);
    if (call->args.bad || !coro_self())
        return RPC_GARBAGE_ARGS;
    unsigned count = ++changes_run;
    if (ms)
        coro_sleep(ms);
    xdr_put_u32(&call->out, count);
    return RPC_DONE;
}

static void slice_gone(void *owner, const uint8_t *data, uint32_t length)
{
    slices_out--;
    free(owner);
}

/* Replies: the length, so many bytes in slices of 4096 (byte i is i * 7), padding, the length
 * again. */
static enum rpc_result do_bulk(struct rpc_call *call)
{
    uint32_t length = xdr_get_u32(&call->args);
    struct slice_list list;
    slices_init(&list);
    for (uint32_t at = 0; at < length; at += 4096) {
        uint32_t piece = length - at < 4096 ? length - at : 4096;
        uint8_t *data = malloc(piece);
        for (uint32_t i = 0; i < piece; i++)
            data[i] = (uint8_t)((at + i) * 7);
        slices_out++;
        slices_add(&list, (struct slice){
                              .data = data, .length = piece, .release = slice_gone, .owner = data});
    }
    xdr_put_u32(&call->out, length);
    if (rpc_reply_slices(call, &list) < 0)
        return RPC_SYSTEM_ERR;
    xdr_put_u32(&call->out, length);
    return RPC_DONE;
}

static enum rpc_result do_overflow(struct rpc_call *call)
{
    for (int i = 0; i < 300; i++)
        xdr_put_u32(&call->out, 1);
    return RPC_DONE;
}

static enum rpc_result do_garbage(struct rpc_call *call)
{
    return RPC_GARBAGE_ARGS;
}

static enum rpc_result do_weak(struct rpc_call *call)
{
    return RPC_AUTH_TOOWEAK;
}

static enum rpc_result do_take(struct rpc_call *call)
{
    uint32_t length, sum = 0;
    const uint8_t *data = xdr_get_opaque(&call->args, 4 << 20, &length);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;
    coro_sleep(1); /* the bytes must stay */
    for (uint32_t i = 0; i < length; i++)
        sum = sum * 31 + data[i];
    xdr_put_u32(&call->out, sum);
    return RPC_DONE;
}

static const struct rpc_procedure test_procedures[P_COUNT] = {
    [P_NULL] = {"NULL", do_null, false},          [P_ECHO] = {"ECHO", do_echo, false},
    [P_WAIT] = {"WAIT", do_wait, false},          [P_CHANGE] = {"CHANGE", do_change, true},
    [P_BULK] = {"BULK", do_bulk, false},          [P_OVERFLOW] = {"OVERFLOW", do_overflow, false},
    [P_GARBAGE] = {"GARBAGE", do_garbage, false}, [P_TAKE] = {"TAKE", do_take, true},
    [P_WEAK] = {"WEAK", do_weak, false},
};
static const struct rpc_version test_versions[] = {
    {.version = VERSION_LOW, .procedures = test_procedures, .count = 1},
    {.version = VERSION, .procedures = test_procedures, .count = P_COUNT},
};
static const struct rpc_program test_program = {PROGRAM, "test", test_versions, 2};

/* ---- the server ---- */

static struct rpc_options test_options;
static uint16_t test_port;

static void server_defaults(void)
{
    static char *const listen[] = {"127.0.0.1:0"};
    test_options = (struct rpc_options){
        .listen = listen,
        .listen_count = 1,
        .connections_max = 100,
        .requests_per_connection = 128,
        .bytes_per_connection = 8 << 20,
        .send_buffer = 0,
        .record_max = 2 << 20,
        .duplicate_entries = 1024,
        .duplicate_bytes = 1 << 20,
    };
}

static void server_start(void)
{
    char why[256], text[1][64];
    if (workers_start(2) < 0)
        fail_msg("workers_start");
    if (rpc_start(&test_options, why) < 0)
        fail_msg("%s", why);
    assert_int_equal(rpc_listeners(text, 1), 1);
    test_port = (uint16_t)atoi(strrchr(text[0], ':') + 1);
}

static int server_up(void **state)
{
    changes_run = 0;
    server_defaults();
    server_start();
    return 0;
}

static int server_down(void **state)
{
    rpc_stop(2000);
    workers_stop(2000);
    assert_int_equal(slices_out, 0);
    return 0;
}

static inline void sleep_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000},
              NULL);
}

/* ---- the client ---- */

static inline int client_open(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(test_port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        fail_msg("connect: %s", strerror(errno));
    return fd;
}

/* A call under construction: four bytes for the record mark, then the message. */
struct message {
    uint8_t *bytes;
    struct xdr_out out;
};

static inline void message_begin(struct message *m, uint32_t xid, uint32_t procedure, size_t room)
{
    m->bytes = malloc(room + 64);
    m->out = xdr_out(m->bytes, room + 64);
    const uint32_t words[] = {0, xid, 0, 2, PROGRAM, VERSION, procedure, 0, 0, 0, 0};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        xdr_put_u32(&m->out, words[i]);
}

static inline size_t message_end(struct message *m)
{
    size_t length = xdr_used(&m->out);
    uint32_t mark = htonl(0x80000000u | (uint32_t)(length - 4));
    memcpy(m->bytes, &mark, 4);
    return length;
}

static inline void send_bytes(int fd, const void *data, size_t length)
{
    const uint8_t *at = data;
    while (length) {
        ssize_t n = send(fd, at, length, MSG_NOSIGNAL);
        if (n <= 0)
            fail_msg("send: %s", strerror(errno));
        at += n;
        length -= (size_t)n;
    }
}

static inline void message_send(struct message *m, int fd)
{
    send_bytes(fd, m->bytes, message_end(m));
    free(m->bytes);
}

/* A call with up to two words as arguments. */
static inline void call_words(int fd, uint32_t xid, uint32_t procedure, int count, uint32_t first,
                              uint32_t second)
{
    struct message m;
    message_begin(&m, xid, procedure, 64);
    if (count > 0)
        xdr_put_u32(&m.out, first);
    if (count > 1)
        xdr_put_u32(&m.out, second);
    message_send(&m, fd);
}

static inline bool take_bytes(int fd, void *to, size_t length)
{
    uint8_t *at = to;
    while (length) {
        ssize_t n = recv(fd, at, length, 0);
        if (n <= 0)
            return false;
        at += n;
        length -= (size_t)n;
    }
    return true;
}

struct reply {
    uint8_t *bytes;
    uint32_t length;
    struct xdr_in in; /* behind the xid */
    uint32_t xid;
};

static inline bool reply_take(int fd, struct reply *reply)
{
    uint32_t mark;
    *reply = (struct reply){0};
    if (!take_bytes(fd, &mark, 4))
        return false;
    mark = ntohl(mark);
    assert_true(mark & 0x80000000u);
    reply->length = mark & 0x7fffffff;
    reply->bytes = malloc(reply->length + 1);
    assert_true(take_bytes(fd, reply->bytes, reply->length));
    reply->in = xdr_in(reply->bytes, reply->length);
    reply->xid = xdr_get_u32(&reply->in);
    return true;
}

/* The next reply's words after the xid must be these, and no more. */
static inline void expect_words(int fd, uint32_t xid, int count, ...)
{
    struct reply reply;
    va_list words;
    assert_true(reply_take(fd, &reply));
    assert_int_equal(reply.xid, xid);
    va_start(words, count);
    for (int i = 0; i < count; i++)
        assert_int_equal(xdr_get_u32(&reply.in), va_arg(words, uint32_t));
    va_end(words);
    assert_false(reply.in.bad);
    assert_int_equal(xdr_left(&reply.in), 0);
    free(reply.bytes);
}

static inline void expect_success(struct reply *reply)
{
    const uint32_t words[] = {1, 0, 0, 0, 0};
    for (int i = 0; i < 5; i++)
        assert_int_equal(xdr_get_u32(&reply->in), words[i]);
}

static inline bool closed_by_peer(int fd)
{
    uint8_t byte;
    return recv(fd, &byte, 1, 0) <= 0 && errno != EAGAIN;
}

#endif
