/* Sharing a range's blocks with another file: what CLONE and COPY do where they can.
 *
 * The writer looks at the source's records and puts the target's in one mutation, so what is shared is held by a record
 * at that moment, and its counts fit.  Bytes within a record (of tiny files) have no place that could be shared: where
 * they are not all, a block is made of them.  Coroutines. */
#ifndef SLUICE_STORE_LOCAL_OP_SHARE_H
#define SLUICE_STORE_LOCAL_OP_SHARE_H

#include "store/local/ops_private.h"

struct share_part;

enum { SHARE_NOT, SHARE_SOURCE, SHARE_TARGET };
struct share_inside { /* a block made of what was in a record with this change */
    place_t place;    /* 0: none was */
    uint64_t change;
    uint32_t crc;
    bool used;
};

struct sharing {
    struct op op;
    const struct store_copy *copy;
    uint64_t length; /* bytes of the copy that are to be shared: whole blocks, or up to the source's end */
    bool zero_rest;  /* of a last block that the source fills in part; else the target must not go on behind it */
    bool bounded;    /* a step ends early where blocks lie apart, so that it takes the writer a few milliseconds */
    /* Chunks get this change and stay hidden by the mark with it; change 0: they show. */
    struct inode_cut stage;
    /* What the check found: */
    struct inode source, inode;
    bool by_bytes; /* there is one block, whose bytes lie in the source's record: SL_EREFUSED */
    bool lost;     /* the mark has gone, or the target has grown past it: SL_EREFUSED */
    unsigned met;  /* whose block 0 is inside its record, and no block was made of it: SL_EREFUSED */
    struct share_inside inside[SHARE_TARGET + 1];
    uint64_t first, end, at; /* blocks of the target: all, and where the next step goes on */
    int64_t more;
    unsigned count, extents;
    struct share_part *parts;
    struct chunk_map from; /* the source's chunk `from_chunk` */
    uint64_t from_chunk;
    bool from_known;
};

/* Shares what one mutation may.  *done: bytes.  SL_EREFUSED: the files are not as they were thought to be. */
int sharing_step(struct sharing *s, struct store *st, uint64_t *done);
/* The part of its check that looks at the two files, not at their chunks. */
int sharing_look(struct sharing *s, struct meta_txn *t);
/* The part of its put that shows what was done: size and times. */
int sharing_show(struct sharing *s, struct meta_txn *t, uint64_t bytes, uint64_t change);
/* Which of the inode's cut marks it is; INODE_CUTS: none. */
unsigned sharing_mark(const struct inode *inode, struct inode_cut mark);

/* Copies bytes, with `zeroes` more behind them, at most STORE_IO_MAX together (op_copy.c). */
int copy_bytes(struct store *st, const struct store_copy *c, uint32_t length, uint32_t zeroes, struct store_wcc *wcc);

/* The reaper leaves this cut alone: what it hides is to be shown (op_clone.c).  Any thread. */
bool clone_is_staging(struct local *l, uint32_t tree, uint64_t ino, uint64_t change);

#endif
