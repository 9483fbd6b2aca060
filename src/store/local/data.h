/* File data: READ and WRITE over chunk maps, frames and segments; the data side of truncation. */
#ifndef SLUICE_STORE_LOCAL_DATA_H
#define SLUICE_STORE_LOCAL_DATA_H

#include "store/local/meta.h"
#include "store/local/writer.h"

/* store_ops.read and .write (contracts there). */
int data_read(struct store *s, const struct store_cred *c, const struct store_object *o, uint64_t offset,
              uint32_t length, struct slice_list *data, bool *eof, struct store_attr *attr);
void data_expect(struct store *s, const struct store_range *ranges, unsigned count); /* store_ops.expect */
int data_write(struct store *s, const struct store_cred *c, const struct store_object *o, uint64_t offset,
               const void *bytes, uint32_t length, struct store_wcc *wcc);

/* Truncation in two parts.  The worker prepares: if the new size falls inside a stored block (or inline bytes), it
 * writes a copy of that block with zeroes behind the new size.  When the mutation did not succeed (refusals too) the
 * caller gives the copy up: seg_abandon(l, tail.to, 1) if tail.needed.  SL_EREFUSED: look the inode up again.
 * Coroutine. */
struct data_tail {
    bool needed;        /* a block must be replaced */
    uint64_t chunk;
    uint8_t block;
    place_t from, to;   /* the block it was copied from, and the copy */
    uint32_t crc;       /* of the copy */
};
int data_tail_prepare(struct local *l, uint32_t tree, const struct inode *inode, uint64_t new_size,
                      struct data_tail *tail);
/* The writer applies: sets inode->size, ->blocks, ->cuts, and the chunk records; not the inode's own record, which
 * the caller puts after.  SL_EREFUSED before any put when the tail block has moved: prepare again.  -EAGAIN before any
 * put when all cuts are taken: wait for the reaper (reaper_wait_cuts) and run again.  Extending only sets the size
 * (inline bytes stay valid).  *background is set when the reaper has work (call reaper_cut after the mutation). */
int data_truncate_apply(struct meta_txn *t, uint32_t tree, struct inode *inode, uint64_t new_size, uint64_t change,
                        const struct data_tail *tail, bool *background);

#endif
