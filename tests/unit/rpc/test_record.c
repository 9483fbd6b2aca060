/* Record marking without sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/record.h"

static struct buffer_pool pool;
static struct record_reader reader;

static int up(void **state)
{
    buffers_init(&pool, 1 << 20);
    return record_reader_init(&reader, &pool, 1 << 20);
}

static int down(void **state)
{
    record_reader_free(&reader);
    buffers_free(&pool);
    return 0;
}

static size_t put_mark(uint8_t *to, uint32_t length, int last)
{
    uint32_t mark = length | (last ? 0x80000000u : 0);
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(mark >> (24 - 8 * i));
    return 4;
}

/* Feeds as much as the reader takes, at most `step` bytes; returns how many. */
static size_t feed(const uint8_t *from, size_t length, size_t step)
{
    uint8_t *at;
    uint32_t room;
    bool whole;
    record_space(&reader, &at, &room, &whole);
    assert_true(room > 0);
    if (length > step)
        length = step;
    if (length > room)
        length = room;
    memcpy(at, from, length);
    record_received(&reader, (uint32_t)length);
    return length;
}

/* Records of `size` bytes in fragments of `fragment`, fed in steps: each comes out whole. */
static void round_trip(uint32_t size, uint32_t fragment, size_t step, unsigned count)
{
    uint8_t *stream = malloc(((size_t)size + 8) * 5 * count + 64), *content = malloc(size + 1);
    size_t length = 0, at = 0;
    for (uint32_t i = 0; i < size; i++)
        content[i] = (uint8_t)(i * 13 + i / 251);
    for (unsigned n = 0; n < count; n++) {
        uint32_t done = 0;
        while (size - done > fragment) {
            length += put_mark(stream + length, fragment, 0);
            memcpy(stream + length, content + done, fragment);
            length += fragment;
            done += fragment;
        }
        length += put_mark(stream + length, size - done, 1);
        memcpy(stream + length, content + done, size - done);
        length += size - done;
    }
    unsigned got = 0;
    while (at < length) {
        at += feed(stream + at, length - at, step);
        struct record record;
        int result;
        while ((result = record_next(&reader, &record)) == 1) {
            assert_int_equal(record.length, size);
            assert_memory_equal(record.data, content, size);
            record_done(&reader, &record);
            got++;
        }
        assert_int_equal(result, 0);
    }
    assert_int_equal(got, count);
    free(stream);
    free(content);
}

static void every_framing_gives_the_same_records(void **state)
{
    static const uint32_t sizes[] = {1, 4, 100, 8192, 8193, 70000, 1 << 20};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned count = sizes[i] > 10000 ? 3 : 40;
        round_trip(sizes[i], UINT32_MAX, SIZE_MAX, count);
        round_trip(sizes[i], UINT32_MAX, 1000, count);
        round_trip(sizes[i], 5000, 3333, count);
        if (sizes[i] <= 8193) {
            round_trip(sizes[i], 1, SIZE_MAX, 3);
            round_trip(sizes[i], 1, 1, 3);
            round_trip(sizes[i], UINT32_MAX, 1, 3);
        }
    }
}

static void empty_fragments_add_nothing(void **state)
{
    uint8_t stream[64];
    size_t length = put_mark(stream, 0, 0);
    length += put_mark(stream + length, 0, 0);
    length += put_mark(stream + length, 3, 0);
    memcpy(stream + length, "abc", 3);
    length += 3;
    length += put_mark(stream + length, 0, 1);
    assert_int_equal(feed(stream, length, SIZE_MAX), length);
    struct record record;
    assert_int_equal(record_next(&reader, &record), 1);
    assert_int_equal(record.length, 3);
    assert_memory_equal(record.data, "abc", 3);
    record_done(&reader, &record);
    assert_int_equal(record_next(&reader, &record), 0);
}

static void a_record_past_the_limit_is_refused(void **state)
{
    uint8_t stream[16];
    struct record record;
    size_t length = put_mark(stream, (1 << 20) + 1, 1);
    feed(stream, length, SIZE_MAX);
    assert_int_equal(record_next(&reader, &record), -EMSGSIZE);
}

static void fragments_past_the_limit_are_refused(void **state)
{
    uint8_t stream[16];
    struct record record;
    size_t length = put_mark(stream, 4, 0) + 4;
    memset(stream + 4, 0, 4);
    length += put_mark(stream + length, (1 << 20) - 3, 1);
    feed(stream, length, SIZE_MAX);
    assert_int_equal(record_next(&reader, &record), -EMSGSIZE);
}

static void a_record_of_its_own_can_be_kept(void **state)
{
    uint8_t *stream = malloc(100004);
    memset(stream, 7, 100004);
    put_mark(stream, 100000, 1);
    struct record record;
    for (size_t at = 0; at < 100004;) {
        at += feed(stream + at, 100004 - at, SIZE_MAX);
        assert_int_equal(record_next(&reader, &record), at == 100004);
    }
    assert_non_null(record.own);
    assert_int_equal((uintptr_t)record.data % 4096, 0);
    struct buffer kept = *record.own;
    *record.own = (struct buffer){0};
    record_done(&reader, &record);
    free(stream);
    round_trip(100000, UINT32_MAX, SIZE_MAX, 2);
    assert_int_equal(kept.at[99999], 7);
    buffer_put(&pool, &kept);
}

static void looking_ahead_shows_what_comes_and_takes_nothing(void **state)
{
    static const uint32_t lengths[] = {8, 0, 100, 12};
    uint8_t stream[256];
    size_t length = 0;
    for (unsigned i = 0; i < 4; i++) {
        length += put_mark(stream + length, lengths[i], 1);
        memset(stream + length, (int)i, lengths[i]);
        length += lengths[i];
    }
    struct record ahead[8], record;
    assert_int_equal(record_ahead(&reader, ahead, 8), 0);
    assert_int_equal(feed(stream, length - 1, length), length - 1);
    assert_int_equal(record_ahead(&reader, ahead, 2), 2);
    for (unsigned left = 3; left > 0; left--) {
        assert_int_equal(record_ahead(&reader, ahead, 8), left); /* the last is not whole */
        assert_int_equal(record_next(&reader, &record), 1);
        assert_ptr_equal(record.data, ahead[0].data);
        assert_int_equal(record.length, ahead[0].length);
        record_done(&reader, &record);
    }
    assert_int_equal(record_ahead(&reader, ahead, 8), 0);
}

static void looking_ahead_ends_at_fragments(void **state)
{
    uint8_t stream[32];
    size_t length = put_mark(stream, 8, 0);
    memset(stream + length, 0, 8);
    assert_int_equal(feed(stream, length + 8, 32), length + 8);
    struct record record;
    assert_int_equal(record_ahead(&reader, &record, 1), 0);
    assert_int_equal(record_next(&reader, &record), 0);
    assert_int_equal(record_ahead(&reader, &record, 1), 0);
}

static void buffers_that_nobody_needs_are_given_back(void **state)
{
    struct buffer at[10], one;
    for (int i = 0; i < 10; i++)
        assert_int_equal(buffer_get(&pool, BUFFER_SMALL + 1, &at[i]), 0);
    for (int i = 0; i < 10; i++)
        buffer_put(&pool, &at[i]);
    assert_int_equal(pool.free_count[1], 10);
    buffers_trim(&pool); /* looks at the time since the call before it, when all were in use */
    assert_int_equal(pool.free_count[1], 10);
    assert_int_equal(buffer_get(&pool, BUFFER_SMALL + 1, &one), 0);
    buffer_put(&pool, &one);
    buffers_trim(&pool);
    assert_int_equal(pool.free_count[1], 1);
    buffers_trim(&pool);
    assert_int_equal(pool.free_count[1], 0);
    buffers_trim(&pool);
    assert_int_equal(buffer_get(&pool, BUFFER_SMALL + 1, &one), 0);
    buffer_put(&pool, &one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_framing_gives_the_same_records, up, down),
        cmocka_unit_test_setup_teardown(empty_fragments_add_nothing, up, down),
        cmocka_unit_test_setup_teardown(a_record_past_the_limit_is_refused, up, down),
        cmocka_unit_test_setup_teardown(fragments_past_the_limit_are_refused, up, down),
        cmocka_unit_test_setup_teardown(a_record_of_its_own_can_be_kept, up, down),
        cmocka_unit_test_setup_teardown(looking_ahead_shows_what_comes_and_takes_nothing, up, down),
        cmocka_unit_test_setup_teardown(looking_ahead_ends_at_fragments, up, down),
        cmocka_unit_test_setup_teardown(buffers_that_nobody_needs_are_given_back, up, down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
