/* Editing of chunk maps (struct chunk_map in meta.h).  Pure functions, any thread. */
#ifndef SLUICE_STORE_LOCAL_CHUNK_MAP_H
#define SLUICE_STORE_LOCAL_CHUNK_MAP_H

#include "store/local/meta.h"

/* An empty map: all holes. */
void chunk_map_clear(struct chunk_map *map);
/* Points blocks [block, block + count) at `place` and its successors, with their CRCs. */
void chunk_map_set(struct chunk_map *map, unsigned block, unsigned count, place_t place, const uint32_t *crc);
/* Blocks from `block` on become holes. */
void chunk_map_cut(struct chunk_map *map, unsigned block);
/* Blocks [block, block + count) become holes. */
void chunk_map_punch(struct chunk_map *map, unsigned block, unsigned count);
/* How many of [block, block + count) are not holes. */
unsigned chunk_map_used(const struct chunk_map *map, unsigned block, unsigned count);
/* How many blocks a file's bytes within the record count for: 1, so that a volume's size is a limit of tiny files too;
 * in pools made before that was so, 0. */
static inline unsigned chunk_map_inside(const struct local *l, const struct chunk_map *map)
{
    return map->kind == CHUNK_INLINE ? l->tiny_blocks : 0;
}
/* The longest run of one kind that begins at `block`, at most `most` blocks: *place is where it lies, 0 for a hole. */
unsigned chunk_map_run(const struct chunk_map *map, unsigned block, unsigned most, place_t *place);

#endif
