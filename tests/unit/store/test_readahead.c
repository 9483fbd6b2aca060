/* Streams: what is told to be loaded ahead, for READs as clients send them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/local/streams.h"

enum { KIB = 1024, MIB = 1 << 20, FILE_MIB = 256 };

struct reader {
    struct streams *t;
    uint64_t ino, size, room;
    uint8_t *loaded; /* of each 4 KiB */
    uint64_t loads, bytes, widest, missed, found;
};

static uint64_t seed;

static uint64_t below(uint64_t limit)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (seed >> 33) % limit;
}

static void begin(struct reader *r, uint64_t size)
{
    *r = (struct reader){.t = streams_new(), .ino = 7, .size = size, .room = 64 * MIB};
    r->loaded = calloc(1, size / 4096 + 1);
    assert_non_null(r->t);
    assert_non_null(r->loaded);
    seed = 1;
}

static void end(struct reader *r)
{
    streams_free(r->t);
    free(r->loaded);
}

/* As data_read() does it: a READ is told of when something was missing or had been loaded ahead.  What is loaded is
 * there at once. */
static void read_at(struct reader *r, uint64_t offset, uint64_t length)
{
    uint64_t stop = offset + length < r->size ? offset + length : r->size, from, to;
    for (uint64_t at = offset / 4096; at * 4096 < stop; at++)
        *(r->loaded[at] ? &r->found : &r->missed) += 4096;
    struct stream_read read = {
        .ino = r->ino, .tree = 1, .offset = offset, .end = stop, .size = r->size, .room = r->room};
    if (!streams_note(r->t, &read, &from, &to))
        return;
    assert_true(from < to && to <= r->size && to - from <= r->room);
    r->loads++;
    r->bytes += to - from;
    if (to > stop && to - stop > r->widest)
        r->widest = to - stop;
    for (uint64_t at = from / 4096; at * 4096 < to; at++)
        r->loaded[at] = 1;
}

static void one_stream_is_kept_ahead_of(uint64_t length, uint64_t first)
{
    struct reader r;
    begin(&r, FILE_MIB * (uint64_t)MIB);
    for (uint64_t at = first; at < r.size; at += length)
        read_at(&r, at, length);
    assert_true(r.missed <= 5 * length);
    assert_true(r.bytes <= r.size - first);
    assert_true(r.widest <= STREAM_WINDOW_MOST + 256 * KIB);
    assert_true(r.widest >= STREAM_WINDOW_MOST / 2);
    end(&r);
}

static void a_stream_of_any_size_of_reads_is_found_anywhere_in_a_file(void **state)
{
    static const uint64_t lengths[] = {4 * KIB, 16 * KIB, 64 * KIB, 112 * KIB, 256 * KIB, MIB};
    for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        one_stream_is_kept_ahead_of(lengths[i], 0);
        one_stream_is_kept_ahead_of(lengths[i], 37 * lengths[i]);
    }
}

static void the_window_begins_small_and_doubles(void **state)
{
    struct reader r;
    begin(&r, FILE_MIB * (uint64_t)MIB);
    uint64_t before = 0;
    for (uint64_t at = 0; at < 8 * MIB; at += 4 * KIB) {
        read_at(&r, at, 4 * KIB);
        if (r.widest > before) {
            assert_true(before || r.widest <= STREAM_WINDOW_LEAST + 256 * KIB);
            assert_true(!before || r.widest <= 2 * before + 256 * KIB);
            before = r.widest;
        }
    }
    assert_true(before >= 4 * MIB);
    end(&r);
}

static void many_streams_in_one_file_are_kept_apart(void **state)
{
    static const unsigned counts[] = {2, 4, 16};
    for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct reader r;
        begin(&r, FILE_MIB * (uint64_t)MIB);
        uint64_t part = r.size / counts[i];
        for (uint64_t at = 0; at < part / 2; at += 64 * KIB) {
            for (unsigned s = 0; s < counts[i]; s++)
                read_at(&r, s * part + at, 64 * KIB);
        }
        assert_true(r.missed <= counts[i] * 5 * 64 * (uint64_t)KIB);
        assert_true(r.bytes <= r.found + counts[i] * (STREAM_WINDOW_MOST + 256 * (uint64_t)KIB));
        end(&r);
    }
}

static void reads_that_overtake_each_other_are_one_stream(void **state)
{
    static const uint64_t lengths[] = {128 * KIB, MIB};
    enum { TOGETHER = 8 };
    for (unsigned i = 0; i < 2; i++) {
        struct reader r;
        uint64_t length = lengths[i];
        begin(&r, FILE_MIB * (uint64_t)MIB);
        for (uint64_t at = 16 * length; at + TOGETHER * length <= r.size; at += TOGETHER * length) {
            unsigned order[TOGETHER];
            for (unsigned k = 0; k < TOGETHER; k++) {
                unsigned other = (unsigned)below(k + 1);
                order[k] = order[other];
                order[other] = k;
            }
            for (unsigned k = 0; k < TOGETHER; k++)
                read_at(&r, at + order[k] * length, length);
        }
        assert_true(r.missed <= 2 * TOGETHER * length);
        assert_true(r.bytes <= r.size);
        end(&r);
    }
}

static void reads_in_random_order_load_nothing(uint64_t size, uint64_t length, unsigned count)
{
    struct reader r;
    begin(&r, size);
    for (unsigned i = 0; i < count; i++)
        read_at(&r, length * below(size / length), length);
    if (r.bytes > count * length / 100)
        fail_msg("%u reads of %llu bytes: %llu bytes ahead", count, (unsigned long long)length,
                 (unsigned long long)r.bytes);
    end(&r);
}

static void random_reads_load_nothing(void **state)
{
    reads_in_random_order_load_nothing(64 * (uint64_t)MIB, 4 * KIB, 100000);
    reads_in_random_order_load_nothing(1024 * (uint64_t)MIB, 4 * KIB, 100000);
    reads_in_random_order_load_nothing(1024 * (uint64_t)MIB, 16 * KIB, 50000);
}

static void a_stream_among_random_reads_is_found(void **state)
{
    struct reader r, other;
    begin(&r, 1024 * (uint64_t)MIB);
    other = r; /* of the same file */
    uint64_t length = MIB;
    for (uint64_t at = 300 * length; at < 500 * length; at += length) {
        for (unsigned k = 0; k < 20; k++)
            read_at(&other, 4096 * below(other.size / 4096), 4096);
        read_at(&r, at, length);
    }
    assert_true(r.found >= 190 * length);
    end(&r);
}

static void a_memory_map_that_is_walked_with_gaps_is_a_stream(void **state)
{
    struct reader r;
    begin(&r, FILE_MIB * (uint64_t)MIB);
    uint64_t reads = 0;
    for (uint64_t at = 5 * MIB; at < 100 * MIB; reads++) {
        uint64_t length = 4096 * (1 + below(8));
        read_at(&r, at, length);
        at += length + 4096 * below(16);
    }
    assert_true(r.missed <= 12 * 32 * KIB);
    end(&r);
}

static void without_room_nothing_is_loaded(void **state)
{
    struct reader r;
    begin(&r, FILE_MIB * (uint64_t)MIB);
    r.room = 0;
    for (uint64_t at = 0; at < 10 * MIB; at += MIB)
        read_at(&r, at, MIB);
    assert_int_equal(r.bytes, 0);
    r.room = 512 * KIB;
    for (uint64_t at = 10 * MIB; at < 20 * MIB; at += MIB)
        read_at(&r, at, MIB);
    assert_true(r.bytes > 0);
    end(&r);
}

static void whole_files_and_backward_readers_load_nothing(void **state)
{
    struct reader r;
    begin(&r, MIB);
    for (r.ino = 1; r.ino < 1000; r.ino++)
        read_at(&r, 0, MIB);
    assert_int_equal(r.loads, 0);
    end(&r);
    begin(&r, FILE_MIB * (uint64_t)MIB);
    for (uint64_t at = r.size; at > 0; at -= 64 * KIB)
        read_at(&r, at - 64 * KIB, 64 * KIB);
    assert_true(r.bytes <= MIB);
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_of_any_size_of_reads_is_found_anywhere_in_a_file),
        cmocka_unit_test(the_window_begins_small_and_doubles),
        cmocka_unit_test(many_streams_in_one_file_are_kept_apart),
        cmocka_unit_test(reads_that_overtake_each_other_are_one_stream),
        cmocka_unit_test(random_reads_load_nothing),
        cmocka_unit_test(a_stream_among_random_reads_is_found),
        cmocka_unit_test(a_memory_map_that_is_walked_with_gaps_is_a_stream),
        cmocka_unit_test(without_room_nothing_is_loaded),
        cmocka_unit_test(whole_files_and_backward_readers_load_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
