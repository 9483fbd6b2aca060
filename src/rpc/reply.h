/* Building a call's reply: the head (record mark, reply header, results) with slices inserted into
 * it. */
#ifndef RPC_REPLY_H
#define RPC_REPLY_H

#include "rpc/call.h"

/* Empties results and slices, for the (next) run of a handler. */
void reply_reset(struct call *call);
/* The reply is what the handler put into out and slices. */
void reply_results(struct call *call);
/* Drops results and slices and returns where the reply's bytes go; their number goes to
 * reply_bytes(). */
uint8_t *reply_start(struct call *call);
void reply_bytes(struct call *call, uint32_t length);
/* Writes the record mark, charges the reply to the connection and queues it there. */
void reply_send(struct call *call);

#endif
