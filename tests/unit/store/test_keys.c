#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "store/local/keys.h"
#include "store/local/records.h"

static uint64_t random64(void)
{
    uint64_t number = (uint64_t)random() << 42 ^ (uint64_t)random() << 21 ^ (uint64_t)random();
    return number >> random() % 64;
}

static int compare(const struct key *a, const struct key *b)
{
    size_t common = a->length < b->length ? a->length : b->length;
    int order = memcmp(a->bytes, b->bytes, common);
    return order ? order : a->length - b->length;
}

static void keys_sort_as_numbers_and_newer_versions_first(void **state)
{
    for (int i = 0; i < 100000; i++) {
        uint64_t ino[2], chunk[2], version[2];
        struct key k[2];
        for (int n = 0; n < 2; n++) {
            ino[n] = random() % 4 ? (uint64_t)random() % 3 : random64();
            chunk[n] = random() % 4 ? (uint64_t)random() % 3 : random64();
            version[n] = random64();
            key_chunk(&k[n], ino[n], chunk[n]);
            key_add_version(&k[n], version[n]);
            assert_int_equal(k[n].length, 24);
            assert_true(key_version(k[n].bytes, k[n].length) == version[n]);
            assert_true(key_number(k[n].bytes, 0) == ino[n] && key_number(k[n].bytes, 8) == chunk[n]);
        }
        int want = ino[0] != ino[1]       ? (ino[0] < ino[1] ? -1 : 1)
                   : chunk[0] != chunk[1] ? (chunk[0] < chunk[1] ? -1 : 1)
                                          : (version[0] > version[1] ? -1 : version[0] < version[1]);
        int have = compare(&k[0], &k[1]);
        assert_true((have > 0) - (have < 0) == want);
    }
}

static void the_next_key_is_the_next(void **state)
{
    struct key k;
    key_chunk(&k, 7, UINT64_MAX);
    assert_true(key_increment(&k));
    assert_true(key_number(k.bytes, 0) == 8 && key_number(k.bytes, 8) == 0);
    key_inode(&k, UINT64_MAX);
    assert_false(key_increment(&k));
}

static void texts_have_a_limit(void **state)
{
    struct key k;
    char text[80];
    memset(text, 'x', sizeof(text));
    text[63] = 0;
    assert_true(key_system(&k, text));
    text[63] = 'x';
    text[64] = 0;
    assert_false(key_system(&k, text));
    assert_false(key_system(&k, ""));
}

static struct inode random_inode(void)
{
    struct inode inode = {
        .ino = random64(), .size = random64() >> 1, .blocks = random64(), .change = random64(),
        .parent = random64(), .position = random64(), .generation = (uint32_t)random(), .nlink = (uint32_t)random(),
        .uid = (uint32_t)random(), .gid = (uint32_t)random(), .mode = random() & 07777,
        .type = (uint8_t)(1 + random() % 7), .atime = {-5, 999999999}, .mtime = {(int64_t)random64(), 3},
        .ctime = {1, 2}, .btime = {INT64_MIN, 0},
    };
    if (random() % 3 == 0)
        inode.rdev_minor = (uint32_t)random();
    if (random() % 3 == 0)
        memset(inode.verifier, 0xab, sizeof(inode.verifier));
    inode.cut_count = (uint8_t)(random() % (INODE_CUTS + 1));
    for (int i = 0; i < inode.cut_count; i++)
        inode.cuts[i] = (struct inode_cut){random64(), random64()};
    return inode;
}

static void inodes_come_back(void **state)
{
    uint8_t bytes[RECORD_MAX];
    char target[STORE_LINK_TARGET_MAX];
    memset(target, 't', sizeof(target));
    for (int i = 0; i < 20000; i++) {
        struct inode inode = random_inode(), back;
        const char *found;
        inode.target_length = random() % 2 ? 0 : (uint16_t)(random() % (STORE_LINK_TARGET_MAX + 1));
        size_t length = inode_encode(&inode, target, bytes);
        assert_true(length <= RECORD_MAX);
        assert_int_equal(inode_decode(bytes, length, inode.ino, &back, &found), 0);
        assert_memory_equal(&inode, &back, sizeof(inode));
        if (inode.target_length)
            assert_memory_equal(found, target, inode.target_length);
        size_t cut = (size_t)random() % length;
        assert_int_equal(inode_decode(bytes, cut, inode.ino, &back, &found), SL_ECORRUPT);
    }
}

static void entries_come_back(void **state)
{
    uint8_t bytes[RECORD_MAX];
    for (int length = 0; length <= STORE_NAME_MAX; length++) {
        struct entry entry = {.position = 9, .ino = random64(), .generation = 3, .type = STORE_DIR,
                              .length = (uint8_t)length}, back;
        memset(entry.name, 0xfe, (size_t)length);
        size_t size = entry_encode(&entry, bytes);
        assert_int_equal(entry_decode(bytes, size, 9, &back), 0);
        assert_true(back.ino == entry.ino && back.length == length && back.type == STORE_DIR);
        assert_memory_equal(back.name, entry.name, (size_t)length);
        assert_int_equal(entry_decode(bytes, size - 1, 9, &back), SL_ECORRUPT);
    }
}

static void random_map(struct chunk_map *map)
{
    memset(map, 0, sizeof(*map));
    map->kind = CHUNK_MAP;
    for (unsigned block = 0; block < CHUNK_BLOCKS;) {
        unsigned count = 1 + (unsigned)random() % (random() % 2 ? 2 : CHUNK_BLOCKS - block);
        if (block + count > CHUNK_BLOCKS)
            count = CHUNK_BLOCKS - block;
        if (random() % 2) {
            map->extents[map->extent_count++] =
                (struct extent){.place = 1 + random64(), .block = (uint8_t)block, .count = (uint8_t)count};
            for (unsigned b = block; b < block + count; b++)
                map->crc[b] = (uint32_t)random();
        }
        block += count;
    }
}

static void maps_come_back(void **state)
{
    uint8_t bytes[RECORD_MAX];
    for (int i = 0; i < 20000; i++) {
        struct chunk_map map, back;
        random_map(&map);
        memset(&back, 0, sizeof(back));
        size_t length = chunk_encode(&map, 77, bytes);
        assert_true(length <= RECORD_MAX);
        assert_int_equal(chunk_decode(bytes, length, &back), 0);
        map.change = 77;
        assert_memory_equal(&map, &back, sizeof(map));
        assert_int_equal(chunk_decode_extents(bytes, length, &back), 0);
        assert_memory_equal(&map, &back, sizeof(map)); /* its CRCs stay as they were */
        for (unsigned b = 0; b < CHUNK_BLOCKS; b++)
            assert_int_equal(chunk_record_place(bytes, length, b), chunk_place(&map, b));
        assert_int_equal(chunk_decode_extents(bytes, length - 1, &back), SL_ECORRUPT);
        assert_int_equal(chunk_decode(bytes, (size_t)random() % length, &back), SL_ECORRUPT);
    }
}

static void the_worst_map_fits(void **state)
{
    uint8_t bytes[RECORD_MAX];
    struct chunk_map map = {.kind = CHUNK_MAP, .extent_count = CHUNK_BLOCKS};
    for (unsigned b = 0; b < CHUNK_BLOCKS; b++)
        map.extents[b] = (struct extent){.place = UINT64_MAX, .block = (uint8_t)b, .count = 1};
    assert_true(chunk_encode(&map, 1, bytes) <= RECORD_MAX);
}

static void inline_bytes_are_checked(void **state)
{
    uint8_t bytes[RECORD_MAX];
    struct chunk_map map = {.kind = CHUNK_INLINE, .inline_length = INLINE_MAX}, back;
    for (int i = 0; i < INLINE_MAX; i++)
        map.bytes[i] = (uint8_t)random();
    size_t length = chunk_encode(&map, 5, bytes);
    assert_true(length <= RECORD_MAX);
    assert_int_equal(chunk_decode(bytes, length, &back), 0);
    assert_memory_equal(map.bytes, back.bytes, INLINE_MAX);
    bytes[length - 1] ^= 1;
    assert_int_equal(chunk_decode(bytes, length, &back), SL_ECORRUPT);
}

static void no_bytes_crash_a_decoder(void **state)
{
    uint8_t bytes[RECORD_MAX];
    for (int i = 0; i < 200000; i++) {
        size_t length = (size_t)random() % 300;
        for (size_t n = 0; n < length; n++)
            bytes[n] = (uint8_t)random();
        bytes[0] = 1;
        struct inode inode;
        struct entry entry;
        struct chunk_map map;
        const char *target;
        inode_decode(bytes, length, 1, &inode, &target);
        entry_decode(bytes, length, 1, &entry);
        bytes[1] = (uint8_t)(1 + i % 2);
        chunk_decode(bytes, length, &map);
        chunk_decode_extents(bytes, length, &map);
        chunk_record_place(bytes, length, (unsigned)i % CHUNK_BLOCKS);
    }
}

static void system_records_come_back(void **state)
{
    uint8_t bytes[RECORD_MAX];
    struct tree_record tree = {.version = 1,
                               .root = 2,
                               .orphans = 3,
                               .fsid = 4,
                               .size_limit = 5,
                               .id = 6,
                               .props_length = 7,
                               .parent = 8,
                               .origin = 9,
                               .number = 10,
                               .read_only = true,
                               .listed_change = 11,
                               .restored_change = 12,
                               .created = {13, 14},
                               .listed = {15, 16},
                               .restored = {17, 18}};
    struct tree_record tree_back = {0};
    struct usage_record usage = {8, 9}, usage_back;
    struct version_record version = {10, 11}, version_back;
    struct counters counters = {11, 12, 13, 14, 15, 16}, counters_back;
    assert_int_equal(tree_decode(bytes, tree_encode(&tree, bytes), &tree_back), 0);
    assert_true(tree_back.version == 1 && tree_back.props_length == 7 && tree_back.read_only);
    assert_true(tree_back.parent == 8 && tree_back.origin == 9 && tree_back.number == 10);
    assert_true(tree_back.restored_change == 12 && tree_back.restored.nanoseconds == 18);
    assert_true(tree_back.listed_change == 11 && tree_back.created.seconds == 13 && tree_back.listed.seconds == 15);
    assert_int_equal(usage_decode(bytes, usage_encode(&usage, bytes), &usage_back), 0);
    assert_memory_equal(&usage, &usage_back, sizeof(usage));
    assert_int_equal(version_decode(bytes, version_encode(&version, bytes), &version_back), 0);
    assert_true(version_back.parent == 10 && version_back.touched == 11);
    assert_int_equal(counters_decode(bytes, counters_encode(&counters, bytes), &counters_back), 0);
    assert_memory_equal(&counters, &counters_back, sizeof(counters));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_sort_as_numbers_and_newer_versions_first),
        cmocka_unit_test(the_next_key_is_the_next),
        cmocka_unit_test(texts_have_a_limit),
        cmocka_unit_test(inodes_come_back),
        cmocka_unit_test(entries_come_back),
        cmocka_unit_test(maps_come_back),
        cmocka_unit_test(the_worst_map_fits),
        cmocka_unit_test(inline_bytes_are_checked),
        cmocka_unit_test(no_bytes_crash_a_decoder),
        cmocka_unit_test(system_records_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
