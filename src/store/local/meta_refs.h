/* `ref`: how many records hold a block, for the blocks that more than one holds (POOL.md, "Versions").  An interval map
 * over places; intervals do not overlap, do not leave their segment, and neighbours with the same count are one.
 *
 * Keys are the place of an interval's last block, so that one seek finds the first that a run could touch; values its
 * length and count.  The writer changes it; `refs_count` and `refs_next` work in either kind of transaction. */
#ifndef SLUICE_STORE_LOCAL_META_REFS_H
#define SLUICE_STORE_LOCAL_META_REFS_H

#include "store/local/meta.h"

/* Each block of the run gets one more holder; those that are not in the map have one. */
int refs_hold(struct meta_txn *t, place_t place, uint32_t blocks);
/* One less; `dead` is called for each run that loses its last. */
int refs_release(struct meta_txn *t, place_t place, uint32_t blocks,
                 void (*dead)(struct meta_txn *t, place_t place, uint32_t blocks));
/* How many hold the block at `place` (1 where the map has nothing, also of blocks that nobody holds), and of how many
 * blocks from there on, at most *length, that is true.  Less than 0: an error. */
long refs_count(struct meta_txn *t, place_t place, uint32_t *length);

struct refs_run {
    place_t place;
    uint32_t blocks, count;
};
/* The first interval that ends at or after `from`; -ENOENT. */
int refs_next(struct meta_txn *t, place_t from, struct refs_run *out);

#endif
