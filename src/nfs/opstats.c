#include "nfs/opstats.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "nfs/server.h"
#include "nfs/v4/numbers.h"
#include "sluice/base_worker.h"
#include "sluice/volume.h"

enum { CHAINS = 256, SWEEP_LEAST = 64 };

/* One worker's.  It alone changes it, with the lock held where a reader could be led astray; counting takes no lock. */
struct worker_counts {
    pthread_mutex_t lock;
    struct volume_counts *chains[CHAINS];
    struct volume_counts none; /* calls that named no volume */
    struct volume_counts gone; /* the sums of volumes that are no longer there */
    /* A call in progress may still point to what was dropped: it becomes another volume's, but stays what it is. */
    struct volume_counts *free_volumes;
    struct op_counts *free_ops; /* linked by `calls` */
    unsigned count, sweep_at;
} __attribute__((aligned(64)));

_Atomic uint32_t opstats_epoch = 1;
static struct worker_counts *workers_counts;
static unsigned worker_total;

int opstats_start(unsigned workers)
{
    unsigned count = workers ? workers : 1;
    workers_counts = aligned_alloc(_Alignof(struct worker_counts), count * sizeof *workers_counts);
    if (!workers_counts)
        return -ENOMEM;
    memset(workers_counts, 0, count * sizeof *workers_counts);
    for (unsigned i = 0; i < count; i++) {
        pthread_mutex_init(&workers_counts[i].lock, NULL);
        workers_counts[i].sweep_at = SWEEP_LEAST;
    }
    worker_total = count;
    opstats_epoch++;
    return 0;
}

static struct op_counts *next_free(const struct op_counts *counts)
{
    return (struct op_counts *)(uintptr_t)counts->calls;
}

static void free_ops(struct volume_counts *v)
{
    for (unsigned op = 0; op < OPSTATS_OPS; op++)
        free(v->ops[op]);
}

static void free_list(struct volume_counts *v)
{
    while (v) {
        struct volume_counts *next = v->next;
        free_ops(v);
        free(v);
        v = next;
    }
}

void opstats_stop(void)
{
    for (unsigned i = 0; i < worker_total; i++) {
        struct worker_counts *w = &workers_counts[i];
        for (unsigned chain = 0; chain < CHAINS; chain++)
            free_list(w->chains[chain]);
        free_list(w->free_volumes);
        free_ops(&w->none);
        free_ops(&w->gone);
        for (struct op_counts *ops = w->free_ops, *next; ops; ops = next) {
            next = next_free(ops);
            free(ops);
        }
    }
    free(workers_counts);
    workers_counts = NULL;
    worker_total = 0;
}

static struct worker_counts *mine(void)
{
    struct worker *worker = worker_self();
    unsigned index = worker ? worker_index(worker) : 0;
    return index < worker_total ? &workers_counts[index] : NULL;
}

/* ---- making ---- */

static struct op_counts *ops_new(struct worker_counts *w)
{
    struct op_counts *counts = w->free_ops;
    if (counts)
        w->free_ops = next_free(counts);
    else
        counts = aligned_alloc(64, (sizeof *counts + 63) & ~(size_t)63);
    if (counts)
        memset(counts, 0, sizeof *counts);
    return counts;
}

static uint8_t weight_of(unsigned op)
{
    enum { FRAME, LOOK, MATTER };
    if (op < OPSTATS_NFS4)
        return MATTER;
    switch (op - OPSTATS_NFS4) {
    case OP4_SEQUENCE:
    case OP4_PUTFH:
    case OP4_PUTROOTFH:
    case OP4_PUTPUBFH:
    case OP4_SAVEFH:
    case OP4_RESTOREFH:
    case OP4_GETFH:
        return FRAME;
    case OP4_GETATTR:
    case OP4_ACCESS:
    case OP4_VERIFY:
    case OP4_NVERIFY:
        return LOOK;
    default:
        return MATTER;
    }
}

struct op_counts *opstats_make(struct rpc_call *call, unsigned op)
{
    struct worker_counts *w = mine();
    struct volume_counts *v = call->noted;
    if (!w)
        return NULL;
    if (!v)
        v = &w->none;
    struct op_counts *counts = v->ops[op];
    if (!counts && (counts = ops_new(w))) {
        counts->op = (uint8_t)op;
        counts->weight = weight_of(op);
        __atomic_store_n(&v->ops[op], counts, __ATOMIC_RELEASE);
    }
    return counts;
}

static void ops_add(struct op_counts *to, const struct op_counts *from)
{
    to->calls += __atomic_load_n(&from->calls, __ATOMIC_RELAXED);
    to->errors += __atomic_load_n(&from->errors, __ATOMIC_RELAXED);
    to->bytes += __atomic_load_n(&from->bytes, __ATOMIC_RELAXED);
    histogram_sum(&to->latency, &from->latency);
}

/* What they counted goes to the sums. */
static void give_ops_up(struct worker_counts *w, struct volume_counts *v)
{
    for (unsigned op = 0; op < OPSTATS_OPS; op++) {
        struct op_counts *counts = v->ops[op];
        if (!counts)
            continue;
        v->ops[op] = NULL;
        if (!w->gone.ops[op]) {
            w->gone.ops[op] = counts;
            continue;
        }
        ops_add(w->gone.ops[op], counts);
        counts->calls = (uint64_t)(uintptr_t)w->free_ops;
        w->free_ops = counts;
    }
}

static void drop(struct worker_counts *w, struct volume_counts *v)
{
    give_ops_up(w, v);
    v->next = w->free_volumes;
    w->free_volumes = v;
    w->count--;
}

static bool is_gone(uint32_t volume)
{
    struct store_object root;
    return nfs_server.ops->root(nfs_server.store, volume, &root) == -ESTALE;
}

/* With the lock held.  As seldom as the number of volumes doubles. */
static void sweep(struct worker_counts *w)
{
    opstats_epoch++;
    for (unsigned chain = 0; chain < CHAINS; chain++) {
        for (struct volume_counts **at = &w->chains[chain]; *at;) {
            struct volume_counts *v = *at;
            if (!is_gone(v->volume)) {
                at = &v->next;
                continue;
            }
            *at = v->next;
            drop(w, v);
        }
    }
    w->sweep_at = w->count * 2 > SWEEP_LEAST ? w->count * 2 : SWEEP_LEAST;
}

static struct volume_counts *volume_new(struct worker_counts *w, uint32_t volume)
{
    if (w->count >= w->sweep_at)
        sweep(w);
    struct volume_counts *v = w->free_volumes;
    if (v) {
        w->free_volumes = v->next;
        give_ops_up(w, v); /* of a call that was still in progress */
    } else {
        v = malloc(sizeof *v);
    }
    if (!v)
        return NULL;
    *v = (struct volume_counts){.volume = volume, .next = w->chains[volume % CHAINS]};
    w->chains[volume % CHAINS] = v;
    w->count++;
    return v;
}

static struct volume_counts *volume_find(const struct worker_counts *w, uint32_t volume)
{
    struct volume_counts *v = w->chains[volume % CHAINS];
    while (v && v->volume != volume)
        v = v->next;
    return v;
}

void opstats_find(struct rpc_call *call, uint32_t tree)
{
    struct worker_counts *w = mine();
    uint32_t volume = tree;
    if (!w)
        return;
    volume_snapshot_of(tree, &volume, NULL); /* else it is a volume's already */
    struct volume_counts *v = volume_find(w, volume);
    if (!v) {
        pthread_mutex_lock(&w->lock);
        v = volume_new(w, volume);
        pthread_mutex_unlock(&w->lock);
    }
    if (!v)
        return;
    if (call->client)
        rpc_client_tag(call->client, volume);
    call->noted = v;
    call->conn_scratch[OPSTATS_SCRATCH] = (uint64_t)opstats_epoch << 32 | tree;
    call->conn_scratch[OPSTATS_SCRATCH + 1] = (uint64_t)(uintptr_t)v;
}

/* ---- telling ---- */

static void add_op(struct op_counts *to, const struct volume_counts *v, unsigned op)
{
    const struct op_counts *counts = __atomic_load_n(&v->ops[op], __ATOMIC_ACQUIRE);
    if (counts)
        ops_add(to, counts);
}

/* Adds what `w` has counted for the volume. */
static void add_volume(struct op_counts sums[OPSTATS_OPS], struct worker_counts *w, uint32_t volume)
{
    pthread_mutex_lock(&w->lock);
    const struct volume_counts *v = volume ? volume_find(w, volume) : &w->none;
    for (unsigned op = 0; v && op < OPSTATS_OPS; op++)
        add_op(&sums[op], v, op);
    pthread_mutex_unlock(&w->lock);
}

int nfs_each_op(uint32_t volume, int (*each)(void *arg, const struct nfs_op_stats *stats), void *arg)
{
    struct op_counts *sums = calloc(OPSTATS_OPS, sizeof *sums);
    int error = 0;
    if (!sums)
        return -ENOMEM;
    for (unsigned i = 0; i < worker_total; i++)
        add_volume(sums, &workers_counts[i], volume);
    for (unsigned op = 0; op < OPSTATS_OPS && error >= 0; op++) {
        struct nfs_op_stats stats;
        if (!sums[op].calls || !nfs_op_name(op, &stats.protocol, &stats.operation))
            continue;
        stats.calls = sums[op].calls;
        stats.errors = sums[op].errors;
        stats.bytes = sums[op].bytes;
        stats.latency = sums[op].latency;
        error = each(arg, &stats);
    }
    free(sums);
    return error < 0 ? error : 0;
}

void opstats_total(unsigned op, uint64_t *calls, uint64_t *errors)
{
    struct op_counts sum = {0};
    for (unsigned i = 0; i < worker_total; i++) {
        struct worker_counts *w = &workers_counts[i];
        pthread_mutex_lock(&w->lock);
        add_op(&sum, &w->none, op);
        add_op(&sum, &w->gone, op);
        for (unsigned chain = 0; chain < CHAINS; chain++)
            for (struct volume_counts *v = w->chains[chain]; v; v = v->next)
                add_op(&sum, v, op);
        pthread_mutex_unlock(&w->lock);
    }
    *calls = sum.calls;
    *errors = sum.errors;
}
