/* What a reply becomes for the kernel: pieces of memory, joined where they lie next to each other, from any byte on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rpc/call.h"

enum { FRAME = 512, FRAMES = 8, ROOM = 64 };

static uint8_t frames[FRAMES * FRAME];
static struct call call;

static void add(unsigned frame, uint32_t from, uint32_t length)
{
    struct slice slice = {.data = frames + frame * FRAME + from, .length = length};
    assert_int_equal(slices_add(&call.slices, slice), 0);
}

/* A head of 100 bytes, with the slices before its byte 60. */
static int reply_up(void **state)
{
    memset(&call, 0, sizeof(call));
    for (size_t i = 0; i < sizeof(frames); i++)
        frames[i] = (uint8_t)(i * 7 + i / 251);
    call.head = call.head_within;
    for (unsigned i = 0; i < 100; i++)
        call.head[i] = (uint8_t)(200 - i);
    call.head_length = 100;
    call.inserts = call.inserts_within;
    slices_init(&call.slices);
    return 0;
}

static int reply_down(void **state)
{
    slices_clear(&call.slices);
    return 0;
}

static uint32_t finish(void)
{
    call.insert_count = 1;
    call.inserts[0] = (struct call_insert){.at = 60, .slices = call.slices.count};
    call.length = call.head_length + call.slices.bytes;
    return call.length;
}

static size_t flatten(const struct iovec *iov, unsigned count, uint8_t *to)
{
    size_t length = 0;
    for (unsigned i = 0; i < count; i++) {
        assert_true(iov[i].iov_len > 0);
        memcpy(to + length, iov[i].iov_base, iov[i].iov_len);
        length += iov[i].iov_len;
    }
    return length;
}

static void neighbours_are_one_piece_and_others_are_not(void **state)
{
    struct iovec iov[ROOM];
    size_t bytes;
    add(1, 100, FRAME - 100); /* 1 to 3 in one piece; then 3 once more, 6, and 5, which is not behind 6 */
    add(2, 0, FRAME);
    add(3, 0, FRAME);
    add(3, 0, FRAME);
    add(6, 0, FRAME);
    add(5, 0, FRAME);
    uint32_t length = finish();
    assert_int_equal(call_iov(&call, iov, ROOM, SIZE_MAX, &bytes), 6);
    assert_int_equal(bytes, length);
    assert_ptr_equal(iov[1].iov_base, frames + FRAME + 100);
    assert_int_equal(iov[1].iov_len, 3 * FRAME - 100);
    assert_int_equal(iov[2].iov_len, FRAME);
}

static void a_piece_grows_though_no_other_would_fit(void **state)
{
    struct iovec iov[2];
    size_t bytes;
    for (unsigned i = 0; i < 4; i++)
        add(i, 0, FRAME);
    finish();
    assert_int_equal(call_iov(&call, iov, 2, SIZE_MAX, &bytes), 2);
    assert_int_equal(bytes, 60 + 4 * FRAME);
}

static void a_reply_sent_in_parts_has_the_same_bytes(void **state)
{
    static uint8_t whole[FRAMES * FRAME + 100], part[sizeof(whole)];
    struct iovec iov[ROOM];
    size_t bytes;
    for (unsigned i = 0; i < 3; i++)
        add(i, 0, FRAME);
    add(5, 3, 77);
    add(6, 0, FRAME);
    uint32_t length = finish();
    assert_int_equal(flatten(iov, call_iov(&call, iov, ROOM, SIZE_MAX, &bytes), whole), length);
    for (call.sent = 0; call.sent < length; call.sent++) {
        for (size_t most = 1; most < length; most += 97) {
            size_t expected = length - call.sent < most ? length - call.sent : most;
            unsigned count = call_iov(&call, iov, ROOM, most, &bytes);
            assert_int_equal(bytes, expected);
            assert_int_equal(flatten(iov, count, part), bytes);
            assert_memory_equal(part, whole + call.sent, bytes);
        }
        for (unsigned room = 1; room < 4; room++) {
            unsigned count = call_iov(&call, iov, room, SIZE_MAX, &bytes);
            assert_true(count <= room && bytes > 0);
            assert_int_equal(flatten(iov, count, part), bytes);
            assert_memory_equal(part, whole + call.sent, bytes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(neighbours_are_one_piece_and_others_are_not, reply_up, reply_down),
        cmocka_unit_test_setup_teardown(a_piece_grows_though_no_other_would_fit, reply_up, reply_down),
        cmocka_unit_test_setup_teardown(a_reply_sent_in_parts_has_the_same_bytes, reply_up, reply_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
