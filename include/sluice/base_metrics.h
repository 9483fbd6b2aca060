/* Counters that cost one unshared add.  Each thread counts in a block of its own; reading adds them up.
 * The list below is the only place that names them: `sluice metrics` and Prometheus are expanded from it (there
 * cache_hits is sluice_cache_hits_total, and what ends in _ns is in seconds).  Any thread. */
#ifndef SLUICE_BASE_METRICS_H
#define SLUICE_BASE_METRICS_H

#include <stdint.h>

/* X(name, help) */
#define METRICS(X) \
    X(rpc_calls, "RPC calls received") \
    X(rpc_bad, "RPC records that were malformed or refused") \
    X(rpc_duplicates, "calls answered from the duplicate request cache") \
    X(rpc_received_bytes, "bytes received") \
    X(rpc_sent_bytes, "bytes sent") \
    X(rpc_connections, "connections accepted") \
    X(rpc_sendmsg, "sendmsg operations") \
    X(rpc_back_calls, "calls to clients (NFSv4.1 callbacks)") \
    X(nfs4_delegations, "delegations given") \
    X(nfs4_recalls, "delegations recalled") \
    X(nfs4_revoked, "opens and delegations taken away") \
    X(rpc_slow, "calls that took longer than slow-operation-ms") \
    X(rpc_waited, "calls that had to wait in a coroutine") \
    X(read_ops, "READ calls") \
    X(read_bytes, "bytes given to READ") \
    X(read_disk_ops, "reads from segments") \
    X(read_disk_bytes, "bytes read from segments") \
    X(write_ops, "WRITE calls") \
    X(write_bytes, "bytes taken by WRITE") \
    X(cache_hits, "4 KiB blocks found in RAM") \
    X(cache_misses, "4 KiB blocks not found in RAM") \
    X(cache_evictions, "frames given to other data") \
    X(readahead_bytes, "bytes loaded ahead of readers") \
    X(readahead_used_bytes, "of these, bytes that were then read") \
    X(readahead_unused_bytes, "of these, bytes given to other data without having been read") \
    X(warm_blocks, "4 KiB blocks loaded by warm-up (each was a miss as well)") \
    X(crc_errors, "blocks that did not match their CRC") \
    X(checked_bytes, "bytes of data read and verified by checks and scrubs") \
    X(checked_damaged, "damaged 4 KiB blocks that checks and scrubs found") \
    X(meta_reads, "LMDB read transactions") \
    X(table_hits, "inodes and chunk maps found in RAM") \
    X(table_misses, "inodes and chunk maps read from LMDB") \
    X(name_hits, "names found in RAM, also those that are not there") \
    X(name_misses, "names looked up in LMDB") \
    X(groups, "groups committed") \
    X(mutations, "mutations committed") \
    X(mutations_refused, "mutations that had to be prepared again") \
    X(group_failures, "groups that failed") \
    X(commit_ns, "nanoseconds spent in commits") \
    X(apply_ns, "nanoseconds spent applying mutations") \
    X(blocks_freed, "4 KiB blocks freed") \
    X(blocks_punched, "4 KiB blocks given back by hole punching") \
    X(blocks_shared, "4 KiB blocks that copies and clones of files share with their source, when they were made") \
    X(blocks_split, "4 KiB blocks copied so that a clone has its own") \
    X(blocks_compacted, "live 4 KiB blocks moved by compaction") \
    X(reaper_steps, "steps of background work") \
    X(drop_steps, "steps of removing what only dropped versions saw") \
    X(drop_ns, "nanoseconds of the writer that these steps took")

enum metric {
#define METRIC_ENUM(name, help) METRIC_##name,
    METRICS(METRIC_ENUM)
#undef METRIC_ENUM
    METRIC_COUNT
};

extern const char *const metric_names[METRIC_COUNT];
extern const char *const metric_helps[METRIC_COUNT];

/* The calling thread's own block, made on first use. */
struct metric_block {
    uint64_t value[METRIC_COUNT];
    struct metric_block *next;
};
extern _Thread_local struct metric_block *metric_mine;
struct metric_block *metric_register(void);

static inline void metric_add(enum metric metric, uint64_t amount)
{
    struct metric_block *mine = metric_mine ? metric_mine : metric_register();
    __atomic_store_n(&mine->value[metric], mine->value[metric] + amount, __ATOMIC_RELAXED);
}

/* The sum over all threads, those that ended included. */
uint64_t metric_read(enum metric metric);

#endif
