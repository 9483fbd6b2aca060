#include "store/local/chunk_map.h"

#include <assert.h>
#include <string.h>

place_t chunk_place(const struct chunk_map *map, unsigned block)
{
    if (map->kind != CHUNK_MAP)
        return 0;
    for (unsigned i = 0; i < map->extent_count; i++) {
        const struct extent *e = &map->extents[i];
        if (block < e->block)
            break;
        if (block - e->block < e->count)
            return e->place + (block - e->block);
    }
    return 0;
}

void chunk_map_clear(struct chunk_map *map)
{
    memset(map, 0, sizeof(*map));
    map->kind = CHUNK_MAP;
}

static void spread(const struct chunk_map *map, place_t places[CHUNK_BLOCKS])
{
    memset(places, 0, CHUNK_BLOCKS * sizeof(*places));
    for (unsigned i = 0; i < map->extent_count; i++) {
        const struct extent *e = &map->extents[i];
        for (unsigned b = 0; b < e->count; b++)
            places[e->block + b] = e->place + b;
    }
}

static void gather(struct chunk_map *map, const place_t places[CHUNK_BLOCKS])
{
    struct extent *last = NULL;
    map->extent_count = 0;
    for (unsigned b = 0; b < CHUNK_BLOCKS; b++) {
        if (!places[b]) {
            map->crc[b] = 0;
            continue;
        }
        if (last && last->block + last->count == b && last->place + last->count == places[b]) {
            last->count++;
            continue;
        }
        last = &map->extents[map->extent_count++];
        *last = (struct extent){.place = places[b], .block = (uint8_t)b, .count = 1};
    }
}

void chunk_map_set(struct chunk_map *map, unsigned block, unsigned count, place_t place,
                   const uint32_t *crc)
{
    place_t places[CHUNK_BLOCKS];
    assert(map->kind == CHUNK_MAP && block + count <= CHUNK_BLOCKS);
    spread(map, places);
    for (unsigned b = 0; b < count; b++) {
        places[block + b] = place + b;
        map->crc[block + b] = crc[b];
    }
    gather(map, places);
}

void chunk_map_punch(struct chunk_map *map, unsigned block, unsigned count)
{
    place_t places[CHUNK_BLOCKS];
    assert(map->kind == CHUNK_MAP && block <= CHUNK_BLOCKS && count <= CHUNK_BLOCKS - block);
    spread(map, places);
    memset(places + block, 0, count * sizeof(*places));
    gather(map, places);
}

void chunk_map_cut(struct chunk_map *map, unsigned block)
{
    assert(block <= CHUNK_BLOCKS);
    chunk_map_punch(map, block, CHUNK_BLOCKS - block);
}

unsigned chunk_map_used(const struct chunk_map *map, unsigned block, unsigned count)
{
    unsigned used = 0;
    if (map->kind != CHUNK_MAP)
        return 0;
    for (unsigned i = 0; i < map->extent_count; i++) {
        unsigned from = map->extents[i].block, to = from + map->extents[i].count;
        if (from < block)
            from = block;
        if (to > block + count)
            to = block + count;
        if (to > from)
            used += to - from;
    }
    return used;
}

unsigned chunk_map_run(const struct chunk_map *map, unsigned block, unsigned most, place_t *place)
{
    *place = 0;
    for (unsigned i = 0; map->kind == CHUNK_MAP && i < map->extent_count; i++) {
        const struct extent *e = &map->extents[i];
        if (block < e->block)
            return e->block - block < most ? e->block - block : most;
        unsigned in = block - e->block;
        if (in < e->count) {
            *place = e->place + in;
            return e->count - in < most ? e->count - in : most;
        }
    }
    return most;
}
