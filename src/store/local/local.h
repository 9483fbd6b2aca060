/* The local store's own view of itself: what its modules share.  The public face is sluice/store.h.
 *
 *   ops.h     file operations (names, attributes, listings), one function for each entry of store_ops
 *   data.h    READ, WRITE, truncation: chunk maps, frames, segments
 *   seg.h     segments: runs, appends, reads, syncs, punching        cache.h  frames
 *   writer.h  the thread that changes metadata, group by group
 *   meta.h    records: LMDB, versions, decoded tables (table.h)
 *   reaper.h  background work in steps
 *   warm.h    loading ahead of the readers                           watch.h  what they have read
 */
#ifndef SLUICE_STORE_LOCAL_LOCAL_H
#define SLUICE_STORE_LOCAL_LOCAL_H

#include <stdatomic.h>

#include "sluice/base_coro.h"
#include "sluice/base_log.h"
#include "sluice/base_metrics.h"
#include "sluice/base_worker.h"
#include "sluice/store.h"

struct meta;
struct writer;
struct seg_store;
struct cache;
struct reaper;
struct readahead;
struct holds;
struct fixed;
struct rtable;

struct local {
    struct store store; /* first: the store_ops' handle */
    struct store_options options;
    char *path;
    int dir_fd, lock_fd;
    uint32_t pool_id;
    unsigned share_most;  /* chunks that one mutation shares: STORE_CLONE_ONCE, fewer in tests */
    unsigned tiny_blocks; /* what a file whose bytes lie in its record counts for (chunk_map_inside) */
    uint8_t secret[32], verifier[8];
    struct meta *meta;
    struct writer *writer;
    struct seg_store *segs;
    struct cache *cache;
    struct reaper *reaper;
    struct readahead *readahead;
    struct holds *holds;                /* holds.h */
    atomic_uint watchers;               /* watch.h */
    _Atomic uint64_t *_Atomic watched;
    struct fixed *fixed;
    atomic_bool frozen; /* no changes: SL_EFROZEN; set by the writer, cleared by its probe */
    atomic_bool stopping;
};

static inline struct local *local_of(struct store *s)
{
    return (struct local *)s;
}

/* A block's place in the pool: segment number << 20 | block in the segment.  0 is no place (segment numbers start
 * at 1). */
typedef uint64_t place_t;
enum { PLACE_BITS = 20, CHUNK_BLOCKS = 64, INLINE_MAX = 1536, INODE_CUTS = 4 };

/* Times of new changes. */
struct store_time local_now(void);

#endif
