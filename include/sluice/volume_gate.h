/* The gate: each volume's limits of bytes and operations a second, over all its clients, connections and workers.  It
 * is passed before the store is called.  A volume without limits touches nothing of it but one word.
 *
 * What passes is a call of whoever asks: the gate holds it as the opaque thing it is until its turn comes.  Limits are
 * token buckets that may go into debt: a call passes when no bucket that counts for it is in debt, and is then taken
 * from all of them.  In one volume the connections take turns by bytes; calls of one connection keep their order,
 * reads and changes apart (a slow limit of writes does not hold up reads). */
#ifndef SLUICE_VOLUME_GATE_H
#define SLUICE_VOLUME_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sluice/base_worker.h"

/* What a call counts as: everything that does not change the volume, or what does. */
enum gate_way { GATE_READ, GATE_WRITE, GATE_WAYS };

enum { GATE_BURST_MS = 100, GATE_WAIT_MOST_S = 20 };

struct volume_limits {
    uint64_t bandwidth[3], iops[3]; /* a second: [0] of both ways together, [1] reads, [2] writes; 0: no limit */
    uint64_t burst_ns;              /* what may be saved up; 0: GATE_BURST_MS */
    uint64_t min_bandwidth;         /* kept for it where others compete; 0: none */
};

/* Sets a volume's limits; they hold within milliseconds, for calls that wait as well.  All zero, or NULL: none.
 * -ENOMEM: nothing has changed.  Any thread that is registered with liburcu. */
int gate_set(uint32_t volume, const struct volume_limits *limits);
/* The volume is gone: what waits passes. */
void gate_forget(uint32_t volume);

/* ---- calls ---- */

struct gate;
struct gate_flow;

/* Embedded in what waits; the gate's from gate_hold() until its task runs. */
struct gate_call {
    struct task task;      /* run on `worker` when the call's turn has come: it must call gate_passed() */
    struct worker *worker;
    uint64_t connection;   /* whose turn it takes: a number of the caller's, also what gate_withdraw() names */
    struct gate *gate;
    struct gate_flow *flow;
    struct gate_call *next;
    uint32_t bytes;
    enum gate_way way;
    bool withdrawn;        /* by gate_withdraw(): it has not passed */
    uint64_t since_ns;     /* when it began to wait */
};

/* True if no volume has limits: nothing else needs to be asked. */
extern _Atomic uint32_t gates_active;
static inline bool gate_is_off(void)
{
    return atomic_load_explicit(&gates_active, memory_order_relaxed) == 0;
}

/* The gate that calls for this tree (a volume or a snapshot) pass; NULL: none.  `cache` are two words that the caller
 * keeps (zero at first) for each connection.  Workers. */
struct gate *gate_of(uint32_t tree, uint64_t cache[2]);

/* 0: the call passes, and has been counted.  SL_EWAIT: it has to wait, nothing was counted.  `pressed`: more calls of
 * the connection wait to be looked at.  Workers. */
int gate_try(struct gate *gate, enum gate_way way, uint32_t bytes, bool pressed);
/* Has the call wait for its turn: task.run, worker, connection, gate, bytes and way are set.  SL_EDELAY: it would take
 * more than GATE_WAIT_MOST_S, -EAGAIN: too many bytes of changes wait in this volume, -ENOMEM: nothing has happened.
 * Workers. */
int gate_hold(struct gate_call *call);
/* The call's task has run: it goes on.  Returns the nanoseconds that it has waited. */
uint64_t gate_passed(struct gate_call *call);
/* Ends the waiting of every call of this connection: their tasks run with `withdrawn` set. */
void gate_withdraw(uint64_t connection);
/* Of a call that has passed, so many bytes were not used: a READ at a file's end.  Workers. */
void gate_give_back(struct gate *gate, enum gate_way way, uint32_t bytes);

/* All of it for a coroutine, which waits for its turn.  On a main stack: SL_EWAIT where it would have to.  0,
 * SL_EDELAY. */
int gate_pass(uint32_t tree, uint64_t cache[2], enum gate_way way, uint32_t bytes, uint64_t connection);

/* ---- to watch ---- */

struct gate_stats {
    uint64_t waits[GATE_WAYS], wait_ns[GATE_WAYS]; /* calls that had to wait, and how long they have waited */
    uint64_t delayed;                              /* told to come again later */
    uint64_t waiting, waiting_bytes;               /* at present */
};
/* All zero for a volume that never had limits.  Any thread that is registered with liburcu. */
void gate_stats(uint32_t volume, struct gate_stats *out);

/* Lets everything pass and frees all.  Main thread, after the last call has been answered, before the workers stop. */
void gate_stop(void);

#endif
