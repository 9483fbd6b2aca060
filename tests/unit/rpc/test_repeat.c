/* The duplicate request cache over loopback. */
#include "client.h"

static uint32_t take_count(int fd, uint32_t xid)
{
    struct reply reply;
    assert_true(reply_take(fd, &reply));
    assert_int_equal(reply.xid, xid);
    expect_success(&reply);
    uint32_t count = xdr_get_u32(&reply.in);
    free(reply.bytes);
    return count;
}

static void nothing_comes(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&poller, 1, 100), 0);
}

static void a_repeated_call_gets_the_kept_reply(void **state)
{
    int fd = client_open(), other = client_open();
    call_words(fd, 77, P_CHANGE, 2, 0, 1);
    assert_int_equal(take_count(fd, 77), 1);
    call_words(fd, 77, P_CHANGE, 2, 0, 1);
    assert_int_equal(take_count(fd, 77), 1);
    call_words(other, 77, P_CHANGE, 2, 0, 1);
    assert_int_equal(take_count(other, 77), 1);
    assert_int_equal(changes_run, 1);
    close(fd);
    close(other);
}

static void the_same_xid_with_other_arguments_is_another_call(void **state)
{
    int fd = client_open();
    call_words(fd, 77, P_CHANGE, 2, 0, 1);
    assert_int_equal(take_count(fd, 77), 1);
    call_words(fd, 77, P_CHANGE, 2, 0, 2);
    assert_int_equal(take_count(fd, 77), 2);
    call_words(fd, 78, P_CHANGE, 2, 0, 2);
    assert_int_equal(take_count(fd, 78), 3);
    close(fd);
}

static void long_calls_that_differ_at_their_end_are_different(void **state)
{
    int fd = client_open();
    uint32_t last = 0;
    for (int i = 0; i < 3; i++) {
        uint8_t data[5000] = {0};
        data[4999] = i ? 1 : 0; /* the third is a copy of the second */
        struct message m;
        message_begin(&m, 5, P_TAKE, 6000);
        xdr_put_opaque(&m.out, data, sizeof(data));
        message_send(&m, fd);
        uint32_t sum = take_count(fd, 5);
        assert_int_equal(sum, i ? 1 : 0);
        last = sum;
    }
    assert_int_equal(last, 1);
    close(fd);
}

static void a_copy_of_a_call_in_progress_takes_over_the_reply(void **state)
{
    for (int same = 0; same < 2; same++) {
        int fd = client_open(), other = client_open(), third = client_open(),
            to = same ? fd : third;
        uint32_t before = changes_run;
        call_words(fd, 80, P_CHANGE, 2, 200, (uint32_t)same);
        sleep_ms(20);
        call_words(other, 80, P_CHANGE, 2, 200, (uint32_t)same);
        sleep_ms(20);
        call_words(to, 80, P_CHANGE, 2, 200, (uint32_t)same);
        assert_int_equal(take_count(to, 80), before + 1);
        nothing_comes(other);
        nothing_comes(to);
        assert_int_equal(changes_run, before + 1);
        close(fd);
        close(other);
        close(third);
    }
}

static void a_reply_whose_connection_went_is_kept(void **state)
{
    int fd = client_open();
    call_words(fd, 90, P_CHANGE, 2, 100, 0);
    sleep_ms(20);
    close(fd);
    fd = client_open();
    call_words(fd, 90, P_CHANGE, 2, 100, 0);
    assert_int_equal(take_count(fd, 90), 1);
    close(fd);
    sleep_ms(20);
    fd = client_open();
    call_words(fd, 90, P_CHANGE, 2, 100, 0);
    assert_int_equal(take_count(fd, 90), 1);
    assert_int_equal(changes_run, 1);
    close(fd);
}

/* Old Linux clients renew AUTH_SYS's stamp when they send again. */
static void the_stamp_is_not_part_of_the_key_but_the_user_is(void **state)
{
    int fd = client_open();
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t words[] = {
            0x80000000u | 68, 91, 0, 2, PROGRAM, VERSION, P_CHANGE, 1, 20, i, 0,
            i == 2 ? 6 : 5,   6,  0, 0, 0,       0,       0};
        uint32_t record[18];
        for (int w = 0; w < 18; w++)
            record[w] = htonl(words[w]);
        send_bytes(fd, record, sizeof(record));
        assert_int_equal(take_count(fd, 91), i == 2 ? 2 : 1);
    }
    close(fd);
}

static void queries_are_not_kept(void **state)
{
    int fd = client_open();
    for (int i = 0; i < 3; i++) {
        call_words(fd, 1, P_WAIT, 2, 0, 3);
        assert_int_equal(take_count(fd, 1), 3);
    }
    struct rpc_stats stats;
    rpc_stats(&stats);
    assert_int_equal(stats.duplicate_entries, 0);
    close(fd);
}

static void the_cache_stays_within_its_bounds(void **state)
{
    int fd = client_open();
    for (uint32_t i = 0; i < 5000; i++) {
        call_words(fd, i, P_CHANGE, 2, 0, 0);
        take_count(fd, i);
    }
    struct rpc_stats stats;
    rpc_stats(&stats);
    assert_true(stats.duplicate_entries <= 1024 && stats.duplicate_entries > 500);
    assert_true(stats.duplicate_bytes <= 1 << 20);
    call_words(fd, 4999, P_CHANGE, 2, 0, 0);
    assert_int_equal(take_count(fd, 4999), 5000);
    call_words(fd, 0, P_CHANGE, 2, 0, 0); /* the oldest has gone */
    assert_int_equal(take_count(fd, 0), 5001);
    close(fd);
}

#define ON_SERVER(test) cmocka_unit_test_setup_teardown(test, server_up, server_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_SERVER(a_repeated_call_gets_the_kept_reply),
        ON_SERVER(the_same_xid_with_other_arguments_is_another_call),
        ON_SERVER(long_calls_that_differ_at_their_end_are_different),
        ON_SERVER(a_copy_of_a_call_in_progress_takes_over_the_reply),
        ON_SERVER(a_reply_whose_connection_went_is_kept),
        ON_SERVER(the_stamp_is_not_part_of_the_key_but_the_user_is),
        ON_SERVER(queries_are_not_kept),
        ON_SERVER(the_cache_stays_within_its_bounds),
    };
    rpc_register(&test_program);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
