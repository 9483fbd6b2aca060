/* Segments: append-only files of the pool that hold data (POOL.md, "Space").  Workers take runs of the open segment
 * and fill them; the writer syncs what was written and records tails and live counts with its group.  Places are never
 * used twice, also after a failure or a crash. */
#ifndef SLUICE_STORE_LOCAL_SEG_H
#define SLUICE_STORE_LOCAL_SEG_H

#include <sys/uio.h>

#include "store/local/meta.h"

int seg_open(struct local *l, char why[256]); /* after meta_open(); closes what was in use at a crash */
void seg_close(struct local *l);

/* Takes up to `blocks` contiguous fresh blocks for the calling coroutine; *got >= 1.  May wait (a new segment).
 * -ENOSPC below the reserve of free space. */
int seg_reserve(struct local *l, unsigned blocks, place_t *place, unsigned *got);
/* Gives reserved places up unused (refused or failed mutation): they are dead space, never used again. */
void seg_abandon(struct local *l, place_t place, unsigned blocks);
/* Coroutine; memory aligned to 4 KiB, lengths multiples of 4 KiB. */
int seg_write(struct local *l, place_t place, const struct iovec *iov, unsigned iov_count, unsigned blocks);
/* Coroutine; does not check CRCs.  Blocks past the end of the file read as zero.  At most 256 KiB at a time come as one
 * read of the device. */
int seg_read(struct local *l, place_t place, const struct iovec *iov, unsigned iov_count, unsigned blocks);

/* The same in two steps, so that several reads can be in flight: each begin that returned 0 needs its end, by the same
 * coroutine; iov and memory stay until then.  -ENOENT: there is no such segment (any more). */
struct seg;
struct seg_read_op {
    struct ring_wait wait;
    struct seg *seg;
    place_t place;
    const struct iovec *iov;
    unsigned iov_count, blocks;
    int fixed; /* the registered buffer that holds it all in one piece, or -1 */
};
int seg_read_begin(struct local *l, struct seg_read_op *op, place_t place, const struct iovec *iov,
                   unsigned iov_count, unsigned blocks);
int seg_read_end(struct seg_read_op *op);

/* ---- the writer's side ---- */

/* Starts fdatasync of every segment written (and files created) since the last successful sync; the writer's thread.
 * seg_sync_wait returns when all are done: 0 or -EIO etc.  A segment that failed gives out no more places, and those
 * it gave out and nobody has committed can never be: the disk may say of the next sync that it went well. */
int seg_sync_start(struct local *l);
int seg_sync_wait(struct local *l);
/* In a transaction: `blocks` at place are referenced (delta 1) or freed (-1). Called by meta_put_chunk.  Sets t->failed
 * for places that must not be used. */
void seg_account(struct meta_txn *t, place_t place, unsigned blocks, int delta);
/* Before commit: writes the records (tail, live) of the segments touched by this group; after: keeps or takes back. */
int seg_group_flush(struct meta_txn *t);
void seg_group_done(struct local *l, bool committed);
/* The same for a group that was said to have failed, so that its places were given up, and is on disk all the same. */
void seg_group_found(struct local *l);
/* After a failure: the open runs and segments are not continued; the next append opens a new segment. */
void seg_retire_open(struct local *l);
/* Probe: a write and fdatasync of a scratch block. The writer's thread (blocking). */
int seg_probe(struct local *l);

/* ---- space ---- */

/* Data is being appended to this segment: punching would hold that up, as the file system does one or the other.  Not
 * when space is short. */
bool seg_is_busy(struct local *l, place_t place);
/* Gives [place, +blocks) back to the file system (a hole).  Blocks: call it in blocking_run or a background thread.
 * -EOPNOTSUPP is turned into success. */
int seg_punch(struct local *l, place_t place, unsigned blocks);
/* Removes segments in which nothing is live, compacts those less than half live; one bounded step; >0: more to do.
 * Coroutine of the reaper. */
int seg_compact_step(struct local *l);
/* For blocking threads that give much back: sleeps as long as has passed since then, so that others get their turn. */
void seg_pause(uint64_t since_ns);
uint64_t seg_count(struct local *l);
/* Free bytes of the file system under the pool, and its size. */
void seg_space(struct local *l, uint64_t *total, uint64_t *available);

#endif
