#include "volume/gate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <urcu.h>

#include "sluice/base_coro.h"
#include "sluice/base_error.h"
#include "sluice/volume.h"

/* Open addressing; read under RCU.  Slots go from NULL to a gate, and to `tombstone` when that is forgotten. */
struct gate_table {
    struct rcu_head rcu;
    uint32_t used, mask; /* slots that are not NULL */
    struct gate *at[];
};

enum { SLOTS_LEAST = 16 };

_Atomic uint32_t gates_active;
static _Atomic uint32_t generation = 1;
static pthread_mutex_t changes = PTHREAD_MUTEX_INITIALIZER;
static struct gate_table *table;
static struct gate *retired; /* used again, never freed while the server runs: a connection may have one in its cache */
static struct gate tombstone;

/* ---- a gate ---- */

struct gate *gate_new(uint32_t volume)
{
    unsigned workers = workers_count() ? workers_count() : 1;
    size_t size = sizeof(struct gate) + workers * sizeof(struct gate_lease);
    struct gate *g = aligned_alloc(_Alignof(struct gate), (size + 63) & ~(size_t)63);
    if (!g)
        return NULL;
    memset(g, 0, size);
    g->volume = volume;
    pthread_mutex_init(&g->lock, NULL);
    g->home = workers_count() ? worker_at(volume % workers) : NULL;
    return g;
}

void gate_free(struct gate *g)
{
    if (!g)
        return;
    queue_free(g);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

void gate_forget_caches(void)
{
    atomic_fetch_add(&generation, 1);
}

/* ---- the table ---- */

static uint32_t slot_of(uint32_t volume)
{
    return volume * UINT32_C(2654435769) >> 7;
}

static struct gate *table_find(const struct gate_table *t, uint32_t volume)
{
    for (uint32_t i = t ? slot_of(volume) : 0; t; i++) {
        struct gate *g = rcu_dereference(t->at[i & t->mask]);
        if (!g || g->volume == volume)
            return g;
    }
    return NULL;
}

static void table_put(struct gate_table *t, struct gate *g)
{
    uint32_t i = slot_of(g->volume);
    while (t->at[i & t->mask])
        i++;
    t->used++;
    rcu_assign_pointer(t->at[i & t->mask], g);
}

static void table_free_rcu(struct rcu_head *head)
{
    free(caa_container_of(head, struct gate_table, rcu));
}

/* Room for one more, without the tombstones. */
static int table_grow(void)
{
    if (table && table->used + 1 <= table->mask / 2)
        return 0;
    uint32_t slots = SLOTS_LEAST;
    while (slots < (gates_active + 1) * 4)
        slots *= 2;
    struct gate_table *old = table, *fresh = calloc(1, sizeof *fresh + slots * sizeof fresh->at[0]);
    if (!fresh)
        return -ENOMEM;
    fresh->mask = slots - 1;
    for (uint32_t i = 0; old && i <= old->mask; i++)
        if (old->at[i] && old->at[i] != &tombstone)
            table_put(fresh, old->at[i]);
    rcu_assign_pointer(table, fresh);
    if (old)
        call_rcu(&old->rcu, table_free_rcu);
    return 0;
}

void gate_each(void (*each)(void *arg, struct gate *g), void *arg)
{
    pthread_mutex_lock(&changes);
    for (uint32_t i = 0; table && i <= table->mask; i++)
        if (table->at[i] && table->at[i] != &tombstone)
            each(arg, table->at[i]);
    pthread_mutex_unlock(&changes);
}

/* One that nobody waits at any more. */
static struct gate *take_retired(uint32_t volume)
{
    for (struct gate **link = &retired; *link; link = &(*link)->next_retired) {
        struct gate *g = *link;
        if (atomic_load(&g->busy) || g->timer.armed || atomic_load(&g->kicked))
            continue;
        *link = g->next_retired;
        memset(&g->stats, 0, sizeof g->stats);
        g->volume = volume;
        return g;
    }
    return gate_new(volume);
}

/* ---- changes ---- */

static bool says_nothing(const struct volume_limits *limits)
{
    uint64_t any = limits->min_bandwidth;
    for (unsigned i = 0; i < 3; i++)
        any |= limits->bandwidth[i] | limits->iops[i];
    return any == 0;
}

static void apply(struct gate *g, const struct volume_limits *limits)
{
    struct volume_limits buckets = *limits;
    buckets.min_bandwidth = 0;
    pthread_mutex_lock(&g->lock);
    buckets_limit(&g->set, limits, clock_monotonic_ns());
    atomic_store(&g->limited, !says_nothing(&buckets));
    atomic_store(&g->min_bandwidth, limits->min_bandwidth);
    pthread_mutex_unlock(&g->lock);
    gate_kick(g);
}

static void forget(uint32_t volume)
{
    struct gate *g = table_find(table, volume);
    if (!g)
        return;
    uint32_t i = slot_of(volume);
    while (table->at[i & table->mask] != g)
        i++;
    rcu_assign_pointer(table->at[i & table->mask], &tombstone);
    atomic_fetch_sub(&gates_active, 1);
    apply(g, &(struct volume_limits){0});
    g->volume = 0;
    g->next_retired = retired;
    retired = g;
    gate_forget_caches();
}

static int set(uint32_t volume, const struct volume_limits *limits)
{
    struct gate *g = table_find(table, volume);
    bool is_new = !g;
    if (is_new && (table_grow() || !(g = take_retired(volume))))
        return -ENOMEM;
    apply(g, limits);
    if (is_new) {
        table_put(table, g);
        atomic_fetch_add(&gates_active, 1);
        gate_forget_caches();
    }
    return limits->min_bandwidth ? minimum_start() : 0;
}

int gate_set(uint32_t volume, const struct volume_limits *limits)
{
    int error = 0;
    pthread_mutex_lock(&changes);
    if (!limits || says_nothing(limits))
        forget(volume);
    else
        error = set(volume, limits);
    pthread_mutex_unlock(&changes);
    return error;
}

void gate_forget(uint32_t volume)
{
    gate_set(volume, NULL);
}

void gate_stop(void)
{
    minimum_stop();
    pthread_mutex_lock(&changes);
    for (uint32_t i = 0; table && i <= table->mask; i++)
        if (table->at[i] != &tombstone)
            gate_free(table->at[i]);
    while (retired) {
        struct gate *next = retired->next_retired;
        gate_free(retired);
        retired = next;
    }
    free(table);
    table = NULL;
    gate_free(gate_others);
    gate_others = NULL;
    atomic_store(&gates_active, 0);
    gate_forget_caches();
    pthread_mutex_unlock(&changes);
}

/* ---- passing ---- */

static struct gate *find(uint32_t tree, uint64_t cache[2], uint64_t key)
{
    uint32_t volume;
    if (volume_snapshot_of(tree, &volume, NULL))
        volume = tree;
    rcu_read_lock();
    struct gate *g = table_find(rcu_dereference(table), volume);
    rcu_read_unlock();
    if (!g && atomic_load(&pressure_on))
        g = gate_others;
    cache[0] = key;
    cache[1] = (uint64_t)(uintptr_t)g;
    return g;
}

struct gate *gate_of(uint32_t tree, uint64_t cache[2])
{
    uint64_t key = (uint64_t)atomic_load_explicit(&generation, memory_order_relaxed) << 32 | tree;
    return cache[0] == key ? (struct gate *)(uintptr_t)cache[1] : find(tree, cache, key);
}

static void count(uint64_t *counter, uint64_t amount)
{
    __atomic_store_n(counter, *counter + amount, __ATOMIC_RELAXED);
}

static bool renew(struct gate *g, struct gate_lease *lease, enum gate_way way, uint64_t now)
{
    pthread_mutex_lock(&g->lock);
    buckets_return(&g->set, &lease->way[way].set);
    buckets_fill(&g->set, now);
    bool open = atomic_load(&g->busy) == 0 && buckets_open(&g->set, way);
    if (open)
        buckets_lease(&g->set, &lease->way[way].set, way, GATE_LEASE_NS);
    pthread_mutex_unlock(&g->lock);
    lease->way[way].until_ns = open ? now + GATE_LEASE_NS : 0;
    return open;
}

/* What is owed is everybody's at once. */
static void settle(struct gate *g, struct gate_lease *lease, enum gate_way way)
{
    pthread_mutex_lock(&g->lock);
    buckets_return(&g->set, &lease->way[way].set);
    pthread_mutex_unlock(&g->lock);
    lease->way[way].until_ns = 0;
}

static bool take(struct gate *g, struct gate_lease *lease, enum gate_way way, uint32_t bytes)
{
    uint64_t now = clock_monotonic_ns();
    if (now >= lease->way[way].until_ns && !renew(g, lease, way, now))
        return false;
    buckets_take(&lease->way[way].set, way, bytes, 1);
    if (!buckets_open(&lease->way[way].set, way))
        settle(g, lease, way);
    return true;
}

int gate_try(struct gate *g, enum gate_way way, uint32_t bytes, bool pressed)
{
    struct gate_lease *lease = &g->lease[worker_index(worker_self())];
    if (atomic_load_explicit(&g->busy, memory_order_relaxed))
        return SL_EWAIT;
    bool shares = gate_is_pressed(g);
    if (shares && !pressure_take(bytes))
        return SL_EWAIT;
    if (atomic_load_explicit(&g->limited, memory_order_relaxed) && !take(g, lease, way, bytes)) {
        if (shares)
            pressure_return(bytes);
        return SL_EWAIT;
    }
    count(&lease->calls, 1);
    count(&lease->bytes, bytes);
    if (pressed)
        count(&lease->pressed, 1);
    return 0;
}

void gate_give_back(struct gate *g, enum gate_way way, uint32_t bytes)
{
    pthread_mutex_lock(&g->lock);
    buckets_take(&g->set, way, -(double)bytes, 0);
    pthread_mutex_unlock(&g->lock);
}

struct pass {
    struct gate_call call;
    struct coro *coro;
};

static void pass_run(struct task *task)
{
    struct pass *p = (struct pass *)((char *)task - offsetof(struct pass, call.task));
    coro_wake(p->coro);
}

int gate_pass(uint32_t tree, uint64_t cache[2], enum gate_way way, uint32_t bytes, uint64_t connection)
{
    struct gate *g = gate_is_off() ? NULL : gate_of(tree, cache);
    if (!g || gate_try(g, way, bytes, false) == 0)
        return 0;
    if (!coro_self())
        return SL_EWAIT;
    struct pass p = {.call = {.task.run = pass_run,
                              .worker = worker_self(),
                              .connection = connection,
                              .gate = g,
                              .bytes = bytes,
                              .way = way},
                     .coro = coro_self()};
    int error;
    while ((error = gate_hold(&p.call)) == -EAGAIN || error == -ENOMEM)
        coro_sleep(10);
    if (error)
        return error;
    coro_wait_for(CORO_SPENT_GATE);
    gate_passed(&p.call);
    return p.call.withdrawn ? SL_EDELAY : 0;
}

/* ---- to watch ---- */

void gate_stats(uint32_t volume, struct gate_stats *out)
{
    *out = (struct gate_stats){0};
    pthread_mutex_lock(&changes);
    struct gate *g = table_find(table, volume);
    if (g) {
        pthread_mutex_lock(&g->lock);
        *out = g->stats;
        out->waiting = g->queue[GATE_READ].calls + g->queue[GATE_WRITE].calls;
        out->waiting_bytes = g->queue[GATE_READ].bytes + g->queue[GATE_WRITE].bytes;
        pthread_mutex_unlock(&g->lock);
    }
    pthread_mutex_unlock(&changes);
}
