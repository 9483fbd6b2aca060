/* Blocks of known places and CRCs, from frames or else from segments: the part of reading that READ, unaligned writes
 * and truncation share.  Coroutines of a worker. */
#ifndef SLUICE_STORE_LOCAL_FETCH_H
#define SLUICE_STORE_LOCAL_FETCH_H

#include "store/local/cache.h"

struct fetch { /* blocks that lie together in one frame, or in memory of their own */
    place_t place;
    const uint32_t *crc;
    unsigned count;
    uint8_t *data;       /* of the first block */
    struct frame *frame; /* pinned; NULL: `data` is from aligned_alloc() */
    uint16_t claimed, good;
    int result; /* 0; -EIO; SL_ECORRUPT: not what the CRC says, or the segment is gone */
};

enum { FETCH_WITHIN = 4 }; /* of a list: without memory of its own */

struct fetch_list { /* begins as zeroes and its class; points into itself, so never copy it */
    struct cache_class *class; /* for whom */
    struct fetch *at;
    unsigned count, room;
    bool warm;  /* for a warm-up: the statistics of its class leave it out */
    bool ahead; /* nobody has asked for it: what is loaded is marked (cache_mark_ahead) */
    struct fetch within[FETCH_WITHIN];
};

/* The class of a tree; of a snapshot its volume's. */
struct cache_class *fetch_class(struct local *l, uint32_t tree);
/* Adds blocks [place, place + count) to what shall be fetched; crc stays until fetch_run() has returned.  -ENOMEM. */
int fetch_add(struct local *l, struct fetch_list *list, place_t place, unsigned count, const uint32_t *crc);
/* Reads what is missing, all at once, and checks it.  0, or the first error of any. */
int fetch_run(struct local *l, struct fetch_list *list);
/* Gives back what is still held, and leaves an empty list of the same class; who hands a fetch's memory on sets its
 * `frame` and `data` to NULL. */
void fetch_clear(struct fetch_list *list);

/* One block, copied to `to`, for a tree. */
int fetch_block(struct local *l, uint32_t tree, place_t place, uint32_t crc, uint8_t *to);

/* CRC32C of one block. */
uint32_t block_crc(const uint8_t *block);

#endif
