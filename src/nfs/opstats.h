/* What each volume's clients have asked for: calls, errors, bytes and latencies of each operation.  A worker counts in
 * memory of its own, made when an operation is first seen; reading adds the workers up.  The connection's scratch words
 * 6 and 7 belong to this module.  Workers, unless it says otherwise. */
#ifndef SLUICE_NFS_OPSTATS_H
#define SLUICE_NFS_OPSTATS_H

#include <stdatomic.h>

#include "sluice/nfs.h"
#include "sluice/rpc.h"

/* Operations of all protocols have one number here: NFS3's procedures, then NFS4's operations as in RFC 8881. */
enum { OPSTATS_NFS3 = 0, OPSTATS_NFS4 = 22, OPSTATS_OPS = OPSTATS_NFS4 + 80 };
enum { OPSTATS_SCRATCH = 6 };

struct op_counts {
    uint64_t calls, errors, bytes;
    uint8_t op, weight; /* its number here; how much it is what a COMPOUND is about */
    struct histogram latency;
};

struct volume_counts {
    struct volume_counts *next;
    uint32_t volume; /* 0: calls that named no volume */
    struct op_counts *ops[OPSTATS_OPS];
};

int opstats_start(unsigned workers); /* -ENOMEM */
void opstats_stop(void);

extern _Atomic uint32_t opstats_epoch; /* changes when counts are dropped */
void opstats_find(struct rpc_call *call, uint32_t tree);
struct op_counts *opstats_make(struct rpc_call *call, unsigned op);

/* The operations that follow in this call are in this tree: a volume, or a snapshot, which counts as its volume. */
static inline void opstats_tree(struct rpc_call *call, uint32_t tree)
{
    uint64_t *scratch = call->conn_scratch + OPSTATS_SCRATCH;
    uint64_t key = (uint64_t)atomic_load_explicit(&opstats_epoch, memory_order_relaxed) << 32 | tree;
    if (scratch[0] == key)
        call->noted = (void *)(uintptr_t)scratch[1];
    else
        opstats_find(call, tree);
}

static inline struct op_counts *opstats_of(struct histogram *latency)
{
    return (struct op_counts *)((char *)latency - offsetof(struct op_counts, latency));
}

/* An operation has been answered.  The latency of a call counts as that of its weightiest operation, of several the
 * last: a COMPOUND of PUTFH, WRITE and GETATTR is a WRITE. */
static inline void opstats_done(struct rpc_call *call, unsigned op, bool error)
{
    struct volume_counts *volume = call->noted;
    struct op_counts *counts = volume ? volume->ops[op] : NULL;
    if (!counts && !(counts = opstats_make(call, op)))
        return; /* no memory: not counted */
    histogram_bump(&counts->calls, 1);
    if (error)
        histogram_bump(&counts->errors, 1);
    if (!call->latency || counts->weight >= opstats_of(call->latency)->weight)
        call->latency = &counts->latency;
}

/* After opstats_done() of an operation that reads or writes data: so much. */
static inline void opstats_bytes(struct rpc_call *call, uint32_t bytes)
{
    if (!call->latency)
        return;
    histogram_bump(&opstats_of(call->latency)->bytes, bytes);
}

/* The sums over all volumes, those that are gone included.  Any thread. */
void opstats_total(unsigned op, uint64_t *calls, uint64_t *errors);
/* The names of an operation's number; false: there is none. */
bool nfs_op_name(unsigned op, const char **protocol, const char **operation); /* nfs.c */

/* The volume that call->noted stands for, 0 for none. */
static inline uint32_t opstats_volume(const struct rpc_call *call)
{
    const struct volume_counts *volume = call->noted;
    return volume ? volume->volume : 0;
}

#endif
