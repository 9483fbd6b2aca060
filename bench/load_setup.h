/* What the load generator does before its run, and with which blocking calls: one at a time over one connection. */
#ifndef BENCH_LOAD_SETUP_H
#define BENCH_LOAD_SETUP_H

#include "load_conn.h"

enum { SETUP_ROOM = 64 * 1024 };

struct setup {
    const struct load_options *options;
    int fd;
    uint32_t xid;
    uint8_t call[CALL_ROOM], reply[SETUP_ROOM];
    struct xdr_out out;
    struct xdr_in in;
};

void setup_begin(struct setup *s, uint32_t program, uint32_t version, uint32_t procedure);
/* The status of the call, or -1 after a message; s->in stands behind it. */
int64_t setup_finish(struct setup *s, const char *what);
int setup_fail(const char *what, const char *name, int64_t status); /* -1 */
int setup_take_fh(struct setup *s, struct load_file *file);

/* load_v4_setup.c: a client and its sessions, the directories and files found and, for READ, opened.  0, or -1 after a
 * message. */
int setup_v4(struct setup *s, struct load_target *t);

/* load_v4.c: pieces of a COMPOUND (RFC 8881, 16.2) */
enum v4_op {
    V4_GETATTR = 9,
    V4_GETFH = 10,
    V4_LOOKUP = 15,
    V4_OPEN = 18,
    V4_PUTFH = 22,
    V4_PUTROOTFH = 24,
    V4_READ = 25,
    V4_EXCHANGE_ID = 42,
    V4_CREATE_SESSION = 43,
    V4_SEQUENCE = 53,
    V4_RECLAIM_COMPLETE = 58
};

void v4_put_compound(struct xdr_out *x, uint32_t minor, uint32_t operations);
void v4_put_sequence(struct xdr_out *x, struct load_session *session, uint32_t slot);
void v4_skip_compound(struct xdr_in *x); /* from behind the status to the first result */
/* An operation's number and status; false unless it is `op` and went well. */
bool v4_take(struct xdr_in *x, enum v4_op op);
bool v4_take_sequence(struct xdr_in *x, const struct load_session *session, uint32_t slot);

#endif
