/* The control server: a unix socket (mode 0600) in the main thread's libuv loop.  One JSON object a line comes in;
 * its command runs as a coroutine on a worker, so it may wait without holding up the loop; what it sends goes
 * back through the loop (sluice/base_protocol.h).  A connection's requests run one after another. */
#ifndef SLUICE_ADMIN_CONTROL_H
#define SLUICE_ADMIN_CONTROL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct connection;

struct request {
    struct connection *connection;
    json_t *args;      /* the object that came in */
    uint32_t uid, gid; /* of the process at the other end */
};

/* ---- main thread ---- */

/* Listens; *why gets a sentence on failure.  Workers run. */
int control_start(uv_loop_t *loop, const char *path, char why[256]);
/* Takes no more requests, tells those running that nobody waits for them (request_gone), and runs the loop until
 * they have ended, at most `ms` milliseconds.  False: some have not. */
bool control_stop(unsigned ms);

/* ---- commands: in the request's coroutine ---- */

/* True when the client has left or the server stops: nobody wants the rest. */
bool request_gone(const struct request *r);
/* The same, having asked the socket: for commands that work for long and say little. */
bool request_left(struct request *r);
/* Sends a line (the object is taken over) or bytes; waits while much is still unsent.  -EPIPE when nobody wants
 * it any more, -ENOMEM. */
int request_send(struct request *r, json_t *object);
int request_send_bytes(struct request *r, const void *bytes, size_t length);
/* The next line that the client has sent after its request, for commands that take more than one: 0 and an object to
 * be given back, -EAGAIN when none has come yet (never waits), -EINVAL, -EPIPE when nobody is there any more. */
int request_next(struct request *r, json_t **out);

/* A final answer that says what is wrong: a sentence, and the error's name for programs. */
json_t *request_error(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
