/* What the server counts at one moment, gathered for those who show it: Prometheus, `sluice stats` and `sluice top`.
 * Threads that are registered with liburcu. */
#ifndef SLUICE_ADMIN_SCRAPE_H
#define SLUICE_ADMIN_SCRAPE_H

#include "sluice/nfs.h"
#include "sluice/nfs_state.h"
#include "sluice/rpc.h"
#include "sluice/store.h"
#include "sluice/volume.h"
#include "sluice/volume_gate.h"

struct scraped_volume {
    uint32_t tree; /* 0: calls that named no volume; its name is "" */
    char name[VOLUME_NAME_MAX + 1];
    uint64_t size_limit, file_limit, used_bytes, used_files, snapshots;
    struct store_cache_stats cache;
    struct gate_stats gate;
    struct volume_limits limits;
    struct nfs_op_stats *ops;
    unsigned op_count, op_room;
};

struct scrape {
    uint64_t now_ns; /* monotonic */
    struct store_status pool;
    struct rpc_stats rpc;
    struct state_counts state; /* zeroes where NFSv4 is not served */
    struct scraped_volume *volumes; /* the one of calls without a volume first, then by name */
    unsigned count, room;
};

/* -ENOMEM: what there was memory for is there, and to be freed all the same.  Never waits. */
int scrape_take(struct scrape *out);
void scrape_free(struct scrape *s);

/* The sums over a volume's operations. */
struct scraped_sum {
    uint64_t calls, errors, read_bytes, written_bytes;
    struct histogram latency;
};
void scrape_sum(const struct scraped_volume *v, struct scraped_sum *out);

/* What READ found in RAM, bytes. */
uint64_t scrape_hit_bytes(const struct scraped_volume *v);

#endif
