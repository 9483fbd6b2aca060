/* The RPC message itself (RFC 5531, section 9): call headers in, reply headers out.  Bytes only,
 * no sockets and no memory of its own.  Any thread. */
#ifndef RPC_MESSAGE_H
#define RPC_MESSAGE_H

#include <stdint.h>

#include "sluice/rpc.h"

enum message_accept { /* accept_stat */
                      MESSAGE_SUCCESS,
                      MESSAGE_PROG_UNAVAIL,
                      MESSAGE_PROG_MISMATCH,
                      MESSAGE_PROC_UNAVAIL,
                      MESSAGE_GARBAGE_ARGS,
                      MESSAGE_SYSTEM_ERR,
};

enum message_auth { /* auth_stat */
                    MESSAGE_AUTH_BADCRED = 1,
                    MESSAGE_AUTH_REJECTEDCRED,
                    MESSAGE_AUTH_BADVERF,
                    MESSAGE_AUTH_REJECTEDVERF,
                    MESSAGE_AUTH_TOOWEAK,
};

/* What a record turned out to be. */
enum message_kind {
    MESSAGE_CALL,      /* xid .. cred and args are set */
    MESSAGE_LOST,      /* too short for a message: framing is lost */
    MESSAGE_NOT_CALL,  /* a reply, or a type that does not exist: nothing can be answered */
    MESSAGE_TRUNCATED, /* ends before the procedure number: GARBAGE_ARGS */
    MESSAGE_MISMATCH,  /* not RPC version 2 */
    MESSAGE_DENIED,    /* *auth says why */
};

enum {
    MESSAGE_HEAD = 24,     /* bytes of an accepted reply before its results */
    MESSAGE_HEAD_MOST = 32 /* the longest of the replies below */
};

enum message_kind message_decode(const uint8_t *data, uint32_t length, struct rpc_call *call,
                                 enum message_auth *auth);

/* Where a call says to go, and its arguments: a look, for which nothing is checked that need not be.
 * False: message_decode() will refuse it. */
bool message_peek(const uint8_t *data, uint32_t length, uint32_t *program, uint32_t *version,
                  struct rpc_expected *out);

/* Each writes a reply's beginning to `to` (MESSAGE_HEAD_MOST bytes) and returns its length. */
uint32_t message_accepted(uint8_t *to, uint32_t xid, enum message_accept status);
uint32_t message_prog_mismatch(uint8_t *to, uint32_t xid, uint32_t low, uint32_t high);
uint32_t message_rpc_mismatch(uint8_t *to, uint32_t xid);
uint32_t message_auth_error(uint8_t *to, uint32_t xid, enum message_auth status);

#endif
