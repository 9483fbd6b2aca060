/* The duplicate request cache: replies of calls that change something, so that a call repeated
 * after a lost connection is answered and not run twice.  A call is known by a keyed hash over the
 * peer's address without port, xid, program, version, procedure, credential, length and arguments
 * (but not AUTH_SYS's stamp, which clients renew). Any worker; locks of one shard each are held
 * for a few instructions. */
#ifndef RPC_DRC_H
#define RPC_DRC_H

#include <stdint.h>

#include "sluice/rpc.h"

struct drc_entry;

struct drc_key {
    uint8_t hash[16];
};

/* Where a reply goes: a connection's number and its worker's index. */
struct drc_target {
    uint64_t connection;
    unsigned worker;
};

/* A kept reply, from the xid on; shared by reference. */
struct drc_reply {
    unsigned references;
    uint32_t length;
    uint8_t bytes[];
};

enum drc_state {
    DRC_NEW,      /* run it; *entry belongs to the call until drc_finish() or drc_forget() */
    DRC_RUNNING,  /* it runs; its reply will go to `from` */
    DRC_FINISHED, /* *reply is a reference to the reply */
    DRC_NO_MEMORY
};

/* Main thread.  With entries == 0 every call is new and nothing is kept.  -ENOMEM. */
int drc_start(uint64_t entries, uint64_t bytes);
void drc_stop(void);

/* call->args at the arguments' start; `length` that of the whole call. */
void drc_key(const struct rpc_call *call, uint32_t length, struct drc_key *key);

enum drc_state drc_begin(const struct drc_key *key, struct drc_target from,
                         struct drc_entry **entry, struct drc_reply **reply);
/* Keeps `reply` (its reference is taken over) and tells where the reply has to go: the newest
 * copy's connection. */
struct drc_target drc_finish(struct drc_entry *entry, struct drc_reply *reply);
/* The call left no reply to keep: the next copy runs again.  Returns as drc_finish(). */
struct drc_target drc_forget(struct drc_entry *entry);

struct drc_reply *drc_reply_new(uint32_t length); /* NULL: no memory */
void drc_reply_hold(struct drc_reply *reply);
void drc_reply_drop(struct drc_reply *reply);

void drc_stats(uint64_t *entries, uint64_t *bytes);

#endif
