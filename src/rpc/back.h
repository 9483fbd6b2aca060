/* Calls to clients: their part of a connection.  Worker-local. */
#ifndef RPC_BACK_H
#define RPC_BACK_H

#include "rpc/conn.h"

/* A record that is no call: the reply to one of ours, or nothing. */
void back_reply(struct rpc_conn *conn, const uint8_t *record, uint32_t length);
/* Ends those that have waited too long. */
void back_tick(struct rpc_conn *conn);
/* Ends all, as the connection does. */
void back_drop(struct rpc_conn *conn);

#endif
