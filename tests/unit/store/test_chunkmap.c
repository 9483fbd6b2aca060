#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/local/chunk_map.h"

static uint64_t seed;

static unsigned below(unsigned limit)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (unsigned)(seed >> 33) % limit;
}

static void assert_is(const struct chunk_map *map, const place_t *places, const uint32_t *crc)
{
    for (unsigned b = 0; b < CHUNK_BLOCKS; b++) {
        assert_int_equal(chunk_place(map, b), places[b]);
        if (places[b])
            assert_int_equal(map->crc[b], crc[b]);
    }
    for (unsigned i = 0; i < map->extent_count; i++) {
        const struct extent *e = &map->extents[i];
        assert_true(e->count >= 1 && e->block + e->count <= CHUNK_BLOCKS);
        if (!i)
            continue;
        const struct extent *before = e - 1;
        assert_true(before->block + before->count <= e->block);
        assert_false(before->block + before->count == e->block &&
                     before->place + before->count == e->place);
    }
}

static unsigned used(const place_t *places, unsigned from, unsigned count)
{
    unsigned n = 0;
    for (unsigned b = from; b < from + count; b++)
        n += places[b] != 0;
    return n;
}

static unsigned run_of(const place_t *places, unsigned from, unsigned most)
{
    unsigned n = 1;
    while (n < most && (places[from] ? places[from + n] == places[from] + n : !places[from + n]))
        n++;
    return n;
}

static void random_edits_agree_with_a_model(void **state)
{
    for (unsigned round = 0; round < 300; round++) {
        struct chunk_map map;
        place_t places[CHUNK_BLOCKS] = {0};
        uint32_t crc[CHUNK_BLOCKS] = {0}, new_crc[CHUNK_BLOCKS];
        chunk_map_clear(&map);
        for (unsigned step = 0; step < 60; step++) {
            unsigned block = below(CHUNK_BLOCKS), count = 1 + below(CHUNK_BLOCKS - block);
            if (below(3))
                count = 1 + below(count < 4 ? count : 4);
            if (below(12) == 0) {
                chunk_map_cut(&map, block);
                memset(places + block, 0, (CHUNK_BLOCKS - block) * sizeof(*places));
            } else {
                place_t place =
                    (place_t)(1 + below(2)) << PLACE_BITS | (below(2) ? block : below(200));
                for (unsigned i = 0; i < count; i++) {
                    new_crc[i] = below(1u << 30);
                    places[block + i] = place + i;
                    crc[block + i] = new_crc[i];
                }
                chunk_map_set(&map, block, count, place, new_crc);
            }
            assert_is(&map, places, crc);
            block = below(CHUNK_BLOCKS);
            count = 1 + below(CHUNK_BLOCKS - block);
            place_t place;
            assert_int_equal(chunk_map_used(&map, block, count), used(places, block, count));
            assert_int_equal(chunk_map_run(&map, block, count, &place),
                             run_of(places, block, count));
            assert_int_equal(place, places[block]);
        }
    }
}

static void inline_chunks_have_no_places(void **state)
{
    struct chunk_map map = {.kind = CHUNK_INLINE, .inline_length = 5, .bytes = "bytes"};
    place_t place;
    assert_int_equal(chunk_place(&map, 0), 0);
    assert_int_equal(chunk_map_used(&map, 0, CHUNK_BLOCKS), 0);
    assert_int_equal(chunk_map_run(&map, 3, 7, &place), 7);
    assert_int_equal(place, 0);
}

int main(void)
{
    const char *given = getenv("SEED");
    seed = given ? strtoull(given, NULL, 0) : 1;
    printf("SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_edits_agree_with_a_model),
        cmocka_unit_test(inline_chunks_have_no_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
