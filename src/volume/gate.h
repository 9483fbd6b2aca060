/* What the gate's files share. */
#ifndef SLUICE_VOLUME_GATE_PRIVATE_H
#define SLUICE_VOLUME_GATE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "volume/gate_bucket.h"

enum { GATE_CHAINS = 64, GATE_LEASE_NS = 1000000, GATE_CHANGES_MOST = 256 << 20 };

/* The calls of one connection that wait, in one way. */
struct gate_flow {
    struct gate_flow *next, *next_in_chain; /* the ring of those whose turn comes; the next one's */
    uint64_t connection;
    struct gate_call *first, *last;
    unsigned count;
    uint64_t bytes;
    int64_t credit; /* bytes that it may send on before the next one's turn */
};

struct gate_queue {
    struct gate_flow *last; /* of the ring: its next one is the first */
    struct gate_flow *chains[GATE_CHAINS];
    unsigned flows, calls;
    uint64_t bytes;
};

/* What a worker has taken for a while, so that calls that pass share nothing.  Its counts are written by it alone. */
struct gate_lease {
    struct {
        struct bucket_set set;
        uint64_t until_ns;
    } way[GATE_WAYS];
    uint64_t calls, pressed, bytes;
} __attribute__((aligned(64)));

struct gate {
    uint32_t volume; /* 0: forgotten */
    pthread_mutex_t lock;
    struct bucket_set set;         /* from here to `armed`: with the lock held */
    struct gate_queue queue[GATE_WAYS];
    enum gate_way turn;
    struct gate_stats stats;
    _Atomic bool limited;          /* some bucket has a limit */
    _Atomic uint64_t min_bandwidth;
    _Atomic unsigned busy;         /* calls that wait, and those whose task has not run yet */
    atomic_bool kicked;
    struct task kick;
    struct worker *home;           /* lets calls pass; the timer is its own */
    struct worker_timer timer;
    struct gate *next_retired;
    uint64_t seen_bytes, seen_calls, seen_pressed; /* gate_minimum.c */
    double rate;
    struct gate_lease lease[];
};

struct gate *gate_new(uint32_t volume); /* NULL: no memory */
void gate_free(struct gate *g);
/* Every gate that is in use, the one of the other volumes left out.  With the changes' lock held, which it takes. */
void gate_each(void (*each)(void *arg, struct gate *g), void *arg);
/* Connections look their gates up again. */
void gate_forget_caches(void);

/* ---- gate_queue.c: with the gate's lock held, but for gate_kick() ---- */

/* -ENOMEM. */
int queue_add(struct gate *g, struct gate_call *call);
/* Nanoseconds until a call like this would pass if it came now. */
uint64_t queue_estimate(const struct gate *g, const struct gate_call *call);
/* The calls whose turn has come at `now`, linked by next. */
struct gate_call *queue_pass(struct gate *g, uint64_t now);
/* All of this connection's, with `withdrawn` set. */
struct gate_call *queue_withdraw(struct gate *g, uint64_t connection);
/* Nanoseconds until the next call passes; 0: none waits. */
uint64_t queue_next(const struct gate *g);
/* Frees what is empty. */
void queue_free(struct gate *g);

/* Has the gate's home look at what waits. */
void gate_kick(struct gate *g);

/* ---- gate_minimum.c: guaranteed minimums ---- */

/* While some volume does not get its minimum the others are held to a common rate. */
extern atomic_bool pressure_on;
extern struct gate *gate_others; /* of volumes without one of their own, while there is pressure; NULL: never yet */
/* Takes the bytes from what the others may have.  False: it is used up. */
bool pressure_take(double bytes);
void pressure_return(double bytes);
bool pressure_open(void);
uint64_t pressure_wait(void);
static inline bool gate_is_pressed(const struct gate *g)
{
    return atomic_load_explicit(&pressure_on, memory_order_relaxed) &&
           atomic_load_explicit(&g->min_bandwidth, memory_order_relaxed) == 0;
}
/* A minimum has been set.  -ENOMEM. */
int minimum_start(void);
void minimum_stop(void);

#endif
