/* What read.c, write.c, truncate.c and op_share.c share. */
#ifndef SLUICE_STORE_LOCAL_DATA_PRIVATE_H
#define SLUICE_STORE_LOCAL_DATA_PRIVATE_H

#include "store/local/data.h"

enum { DATA_CHUNKS_MOST = STORE_IO_MAX / STORE_CHUNK + 1 };

/* Did the block move away from `place` since the caller looked its map up?  1: yes (or it is gone); 0: no, so what is
 * there is damaged: logged and counted.  Coroutine. */
int data_moved(struct local *l, uint32_t tree, uint64_t ino, uint64_t chunk, unsigned block, place_t place);
/* One block of a map, copied; SL_EREFUSED: it has moved. -EIO.  Coroutine. */
int data_old_block(struct local *l, uint32_t tree, uint64_t ino, uint64_t chunk, unsigned block, place_t place,
                   uint32_t crc, uint8_t *to);
/* The bytes of a CHUNK_INLINE as a block of a segment; where they are not used after all: seg_abandon().  *place is 0
 * after an error.  Coroutine. */
int data_inline_block(struct local *l, const struct chunk_map *map, place_t *place, uint32_t *crc);

#endif
