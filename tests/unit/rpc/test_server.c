/* The rpc layer over loopback: framing, the errors of RFC 5531, waiting calls, limits, stopping. */
#include "client.h"

static void call_raw(int fd, const uint32_t *words, size_t count)
{
    uint32_t record[64] = {htonl(0x80000000u | (uint32_t)(count * 4))};
    for (size_t i = 0; i < count; i++)
        record[i + 1] = htonl(words[i]);
    send_bytes(fd, record, (count + 1) * 4);
}
#define CALL(fd, ...)                                                                              \
    call_raw(fd, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4)

static void many_records_in_one_segment_are_answered_in_order(void **state)
{
    int fd = client_open();
    uint8_t stream[4096];
    size_t length = 0;
    for (uint32_t i = 0; i < 50; i++) {
        struct message m;
        message_begin(&m, i, P_NULL, 64);
        size_t n = message_end(&m);
        memcpy(stream + length, m.bytes, n);
        length += n;
        free(m.bytes);
    }
    send_bytes(fd, stream, length);
    for (uint32_t i = 0; i < 50; i++)
        expect_words(fd, i, 5, 1, 0, 0, 0, 0);
    close(fd);
}

static void one_byte_fragments_and_one_byte_segments_work(void **state)
{
    int fd = client_open(), one = 1;
    setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof(one));
    struct message m;
    message_begin(&m, 9, P_NULL, 64);
    size_t length = message_end(&m);
    for (size_t i = 4; i < length; i++) {
        uint8_t piece[5] = {i + 1 == length ? 0x80 : 0, 0, 0, 1, m.bytes[i]};
        for (int b = 0; b < 5; b++)
            send_bytes(fd, piece + b, 1);
    }
    free(m.bytes);
    expect_words(fd, 9, 5, 1, 0, 0, 0, 0);
    close(fd);
}

static void errors_are_those_of_the_rfc_and_the_connection_stays(void **state)
{
    int fd = client_open();
    CALL(fd, 1, 0, 3, PROGRAM, VERSION, 0, 0, 0, 0, 0); /* RPC version */
    expect_words(fd, 1, 5, 1, 1, 0, 2, 2);
    CALL(fd, 2, 0, 2, PROGRAM + 1, VERSION, 0, 0, 0, 0, 0);
    expect_words(fd, 2, 5, 1, 0, 0, 0, 1);
    CALL(fd, 3, 0, 2, PROGRAM, 4, 0, 0, 0, 0, 0);
    expect_words(fd, 3, 7, 1, 0, 0, 0, 2, VERSION_LOW, VERSION);
    CALL(fd, 4, 0, 2, PROGRAM, VERSION, P_COUNT, 0, 0, 0, 0);
    expect_words(fd, 4, 5, 1, 0, 0, 0, 3);
    CALL(fd, 5, 0, 2, PROGRAM, VERSION, P_HOLE, 0, 0, 0, 0);
    expect_words(fd, 5, 5, 1, 0, 0, 0, 3);
    CALL(fd, 6, 0, 2, PROGRAM, VERSION, P_GARBAGE, 0, 0, 0, 0);
    expect_words(fd, 6, 5, 1, 0, 0, 0, 4);
    CALL(fd, 7, 0, 2, PROGRAM, VERSION, P_OVERFLOW, 0, 0, 0, 0);
    expect_words(fd, 7, 5, 1, 0, 0, 0, 5);
    CALL(fd, 8, 0, 2, PROGRAM, VERSION, P_WEAK, 0, 0, 0, 0);
    expect_words(fd, 8, 4, 1, 1, 1, 5);
    CALL(fd, 9, 0, 2, PROGRAM); /* ends in the header */
    expect_words(fd, 9, 5, 1, 0, 0, 0, 4);
    CALL(fd, 10, 0, 2, PROGRAM, VERSION, 0, 6, 0, 0, 0); /* RPCSEC_GSS */
    expect_words(fd, 10, 4, 1, 1, 1, 2);
    CALL(fd, 11, 0, 2, PROGRAM, VERSION, 0, 0, 404); /* credential too long */
    expect_words(fd, 11, 4, 1, 1, 1, 1);
    CALL(fd, 12, 0, 2, PROGRAM, VERSION, 0, 0, 0, 0, 404); /* verifier too long */
    expect_words(fd, 12, 4, 1, 1, 1, 3);
    CALL(fd, 13, 1, 0, 0, 0, 0, 0); /* a reply: ignored */
    CALL(fd, 14, 0, 2, PROGRAM, VERSION, 0, 0, 0, 0, 0);
    expect_words(fd, 14, 5, 1, 0, 0, 0, 0);
    close(fd);
}

static void malformed_auth_sys_is_badcred(void **state)
{
    int fd = client_open();
    CALL(fd, 1, 0, 2, PROGRAM, VERSION, 0, 1, 20, 0, 0, 5, 6, 0, 0, 0); /* right */
    expect_words(fd, 1, 5, 1, 0, 0, 0, 0);
    CALL(fd, 2, 0, 2, PROGRAM, VERSION, 0, 1, 24, 0, 0, 5, 6, 0, 0, 0, 0); /* four bytes too many */
    expect_words(fd, 2, 4, 1, 1, 1, 1);
    CALL(fd, 3, 0, 2, PROGRAM, VERSION, 0, 1, 16, 0, 0, 5, 6, 0, 0); /* no groups */
    expect_words(fd, 3, 4, 1, 1, 1, 1);
    CALL(fd, 4, 0, 2, PROGRAM, VERSION, 0, 1, 88, 0, 0, 5, 6, 17, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
         1, 1, 1, 1, 1, 1, 0, 0); /* 17 groups */
    expect_words(fd, 4, 4, 1, 1, 1, 1);
    CALL(fd, 5, 0, 2, PROGRAM, VERSION, 0, 1, 20, 0, 256, 5, 6, 0, 0,
         0); /* machine name too long */
    expect_words(fd, 5, 4, 1, 1, 1, 1);
    close(fd);
}

static void lost_framing_closes_after_the_good_calls_are_answered(void **state)
{
    int fd = client_open();
    uint8_t stream[256];
    struct message m;
    message_begin(&m, 1, P_WAIT, 64);
    xdr_put_u32(&m.out, 20);
    xdr_put_u32(&m.out, 5);
    size_t length = message_end(&m);
    memcpy(stream, m.bytes, length);
    free(m.bytes);
    memcpy(stream + length, "\x80\0\0\4\0\0\0\1", 8);
    send_bytes(fd, stream, length + 8);
    expect_words(fd, 1, 6, 1, 0, 0, 0, 0, 5);
    assert_true(closed_by_peer(fd));
    close(fd);
    fd = client_open();
    send_bytes(fd, "\xff\xff\xff\xff", 4);
    assert_true(closed_by_peer(fd));
    close(fd);
    fd = client_open();
    send_bytes(fd, "\x80\0\0\0", 4); /* an empty record */
    assert_true(closed_by_peer(fd));
    close(fd);
}

static void a_half_closed_client_gets_its_replies(void **state)
{
    int fd = client_open();
    for (uint32_t i = 0; i < 20; i++)
        call_words(fd, i, P_WAIT, 2, 30, i);
    shutdown(fd, SHUT_WR);
    for (uint32_t i = 0; i < 20; i++) {
        struct reply reply;
        assert_true(reply_take(fd, &reply));
        free(reply.bytes);
    }
    assert_true(closed_by_peer(fd));
    close(fd);
}

static void calls_complete_out_of_order(void **state)
{
    int fd = client_open();
    for (uint32_t i = 0; i < 100; i++)
        call_words(fd, i, P_WAIT, 2, i % 2 ? 1 : 150, 1000 + i);
    bool seen[100] = {false};
    for (uint32_t i = 0; i < 100; i++) {
        struct reply reply;
        assert_true(reply_take(fd, &reply));
        expect_success(&reply);
        assert_true(reply.xid < 100 && !seen[reply.xid]);
        assert_int_equal(xdr_get_u32(&reply.in), 1000 + reply.xid);
        assert_int_equal(xdr_left(&reply.in), 0);
        if (i < 50)
            assert_int_equal(reply.xid % 2, 1);
        seen[reply.xid] = true;
        free(reply.bytes);
    }
    close(fd);
}

static void check_bulk(struct reply *reply, uint32_t length)
{
    expect_success(reply);
    uint32_t got;
    const uint8_t *data = xdr_get_opaque(&reply->in, length, &got);
    assert_int_equal(got, length);
    for (uint32_t i = 0; i < length; i++) {
        if (data[i] != (uint8_t)(i * 7))
            fail_msg("byte %u", i);
    }
    assert_int_equal(xdr_get_u32(&reply->in), length);
    assert_false(reply->in.bad);
    assert_int_equal(xdr_left(&reply->in), 0);
}

static void slices_arrive_padded_and_in_place(void **state)
{
    static const uint32_t lengths[] = {0, 1, 4095, 4096, 4097, 100001, 1 << 20, (4 << 20) + 3};
    int fd = client_open();
    for (size_t i = 0; i < 8; i++)
        call_words(fd, (uint32_t)i, P_BULK, 1, lengths[i], 0);
    for (size_t i = 0; i < 8; i++) {
        struct reply reply;
        assert_true(reply_take(fd, &reply));
        check_bulk(&reply, lengths[reply.xid]);
        free(reply.bytes);
    }
    close(fd);
}

static void big_records_stay_valid_while_their_calls_wait(void **state)
{
    int fd = client_open();
    uint32_t sums[16];
    for (uint32_t n = 0; n < 16; n++) {
        uint32_t length = n % 2 ? 1 << 20 : 600 + 5000 * n;
        uint8_t *data = malloc(length);
        sums[n] = 0;
        for (uint32_t i = 0; i < length; i++) {
            data[i] = (uint8_t)(i * n + i / 1000);
            sums[n] = sums[n] * 31 + data[i];
        }
        struct message m;
        message_begin(&m, n, P_TAKE, length + 16);
        xdr_put_opaque(&m.out, data, length);
        message_send(&m, fd);
        free(data);
    }
    for (uint32_t n = 0; n < 16; n++) {
        struct reply reply;
        assert_true(reply_take(fd, &reply));
        expect_success(&reply);
        assert_int_equal(xdr_get_u32(&reply.in), sums[reply.xid]);
        free(reply.bytes);
    }
    close(fd);
}

static void a_client_that_does_not_read_holds_only_its_share(void **state)
{
    int fd = client_open(), other = client_open();
    for (uint32_t i = 0; i < 1000; i++)
        call_words(fd, i, P_BULK, 1, 1 << 20, 0);
    sleep_ms(100);
    struct rpc_stats stats;
    rpc_stats(&stats);
    assert_true(stats.bytes_in_flight <= (8 << 20) + (2 << 20));
    call_words(other, 7, P_NULL, 0, 0, 0);
    expect_words(other, 7, 5, 1, 0, 0, 0, 0);
    for (uint32_t i = 0; i < 1000; i++) {
        struct reply reply;
        assert_true(reply_take(fd, &reply));
        assert_int_equal(reply.xid, i);
        free(reply.bytes);
    }
    rpc_stats(&stats);
    close(other);
    close(fd);
}

static void requests_past_the_limit_wait_their_turn(void **state)
{
    int fd = client_open();
    for (uint32_t i = 0; i < 300; i++)
        call_words(fd, i, P_WAIT, 2, 50, i);
    sleep_ms(30);
    struct rpc_stats stats;
    rpc_stats(&stats);
    assert_true(stats.requests_in_flight <= 128);
    for (uint32_t i = 0; i < 300; i++) {
        struct reply reply;
        assert_true(reply_take(fd, &reply));
        free(reply.bytes);
    }
    close(fd);
}

static int small_buffer_up(void **state)
{
    server_defaults();
    test_options.send_buffer = 64 << 10;
    server_start();
    return 0;
}

/* The buffers of both ends hold less than one of the bulk replies, so that it is the server that decides. */
static void a_small_reply_overtakes_bulk_ones(void **state)
{
    enum { BULK = 7, SMALL = 99 };
    int fd = client_open(), room = 64 << 10;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    for (unsigned round = 0; round < 3; round++) {
        call_words(fd, SMALL, P_NULL, 0, 0, 0); /* such a one has been before, and more of them are to be expected */
        expect_words(fd, SMALL, 5, 1, 0, 0, 0, 0);
        uint8_t stream[BULK * 128];
        size_t length = 0;
        for (uint32_t i = 0; i < BULK; i++) { /* at once, so that the first sendmsg could take several */
            struct message m;
            message_begin(&m, i, P_BULK, 64);
            xdr_put_u32(&m.out, 1 << 20);
            size_t bytes = message_end(&m);
            memcpy(stream + length, m.bytes, bytes);
            length += bytes;
            free(m.bytes);
        }
        send_bytes(fd, stream, length);
        sleep_ms(50); /* it begins to send them, and cannot go on */
        call_words(fd, SMALL, P_NULL, 0, 0, 0);
        sleep_ms(20);
        uint32_t bulk = 0;
        for (unsigned i = 0; i <= BULK; i++) {
            struct reply reply;
            assert_true(reply_take(fd, &reply));
            if (reply.xid == SMALL)
                assert_true(bulk <= 1);
            else
                assert_int_equal(reply.xid, bulk++);
            if (i == BULK)
                assert_int_not_equal(reply.xid, SMALL);
            free(reply.bytes);
        }
        assert_int_equal(bulk, BULK);
    }
    close(fd);
}

static int few_bytes_up(void **state)
{
    server_defaults();
    test_options.bytes_in_flight = 16 << 20;
    server_start();
    return 0;
}

static void clients_that_do_not_read_share_what_there_is(void **state)
{
    enum { CLIENTS = 20, CALLS = 40 };
    int fd[CLIENTS], other = client_open();
    for (uint32_t c = 0; c < CLIENTS; c++) {
        fd[c] = client_open();
        for (uint32_t i = 0; i < CALLS; i++)
            call_words(fd[c], i, P_BULK, 1, 1 << 20, 0);
    }
    sleep_ms(100);
    struct rpc_stats stats;
    rpc_stats(&stats);
    assert_true(stats.bytes_in_flight <= (16 << 20) + CLIENTS * ((1 << 20) + 4096));
    call_words(other, 7, P_NULL, 0, 0, 0);
    expect_words(other, 7, 5, 1, 0, 0, 0, 0);
    for (uint32_t c = 0; c < CLIENTS; c++) {
        for (uint32_t i = 0; i < CALLS; i++) {
            struct reply reply;
            assert_true(reply_take(fd[c], &reply));
            assert_int_equal(reply.xid, i);
            free(reply.bytes);
        }
        close(fd[c]);
    }
    close(other);
}

static int few_connections_up(void **state)
{
    server_defaults();
    test_options.connections_max = 3;
    server_start();
    return 0;
}

static void connections_past_the_limit_are_closed(void **state)
{
    int fd[4];
    for (int i = 0; i < 3; i++) {
        fd[i] = client_open();
        call_words(fd[i], 1, P_NULL, 0, 0, 0);
        expect_words(fd[i], 1, 5, 1, 0, 0, 0, 0);
    }
    fd[3] = client_open();
    assert_true(closed_by_peer(fd[3]));
    close(fd[0]);
    sleep_ms(50);
    fd[0] = client_open();
    call_words(fd[0], 1, P_NULL, 0, 0, 0);
    expect_words(fd[0], 1, 5, 1, 0, 0, 0, 0);
    for (int i = 0; i < 4; i++)
        close(fd[i]);
}

static int few_coroutines_up(void **state)
{
    coro_set_limit(4);
    return server_up(state);
}

static int few_coroutines_down(void **state)
{
    server_down(state);
    coro_set_limit(20000);
    return 0;
}

static void without_free_coroutines_calls_wait_and_none_is_lost(void **state)
{
    int fd = client_open();
    for (uint32_t i = 0; i < 60; i++)
        call_words(fd, i, i % 2 ? P_WAIT : P_CHANGE, 2, 5, i);
    for (uint32_t i = 0; i < 60; i++) {
        struct reply reply;
        assert_true(reply_take(fd, &reply));
        expect_success(&reply);
        free(reply.bytes);
    }
    assert_int_equal(changes_run, 30);
    close(fd);
}

static void a_connection_dropped_in_the_middle_leaves_nothing(void **state)
{
    for (int i = 0; i < 40; i++) {
        int fd = client_open();
        call_words(fd, 1, P_WAIT, 2, 20, 1);
        call_words(fd, 2, P_BULK, 1, 3 << 20, 1);
        if (i % 2)
            send_bytes(fd, "\x80\x10\0\0partial", 11);
        struct linger hard = {.l_onoff = 1};
        if (i % 3)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
        close(fd);
    }
    struct rpc_stats stats;
    rpc_stats(&stats);
    for (int i = 0; i < 1000 && (stats.connections || i < 10); i++) {
        sleep_ms(10);
        rpc_stats(&stats);
    }
    assert_int_equal(stats.connections, 0);
    assert_int_equal(stats.requests_in_flight, 0);
    assert_int_equal(stats.bytes_in_flight, 0);
}

static void count_peer(void *arg, const struct sockaddr_storage *peer)
{
    assert_int_equal(peer->ss_family, AF_INET);
    (*(int *)arg)++;
}

static void peers_are_told(void **state)
{
    int a = client_open(), b = client_open(), count = 0;
    sleep_ms(50);
    rpc_each_peer(count_peer, &count);
    assert_int_equal(count, 2);
    close(a);
    close(b);
}

static void stopping_answers_what_is_in_progress(void **state)
{
    int fd = client_open(), idle = client_open();
    for (uint32_t i = 0; i < 10; i++)
        call_words(fd, i, P_WAIT, 2, 200, i);
    sleep_ms(50);
    rpc_stop(3000);
    for (uint32_t i = 0; i < 10; i++) {
        struct reply reply;
        assert_true(reply_take(fd, &reply));
        free(reply.bytes);
    }
    assert_true(closed_by_peer(fd));
    assert_true(closed_by_peer(idle));
    close(fd);
    close(idle);
}

static void stopping_gives_up_on_a_client_that_does_not_read(void **state)
{
    int fd = client_open();
    for (uint32_t i = 0; i < 20; i++)
        call_words(fd, i, P_BULK, 1, 1 << 20, 0);
    sleep_ms(50);
    uint64_t start = clock_monotonic_ns();
    rpc_stop(200);
    assert_true(clock_monotonic_ns() - start < 1000000000u);
    close(fd);
}

static void addresses_that_do_not_work_are_explained(void **state)
{
    static const char *const bad[] = {"127.0.0.1",       "*:2049", "[::1:2049",
                                      "127.0.0.1:70000", "host:1", ":1"};
    char why[256];
    assert_int_equal(workers_start(1), 0);
    for (size_t i = 0; i < 6; i++) {
        char *const listen[] = {(char *)bad[i]};
        server_defaults();
        test_options.listen = listen;
        assert_int_equal(rpc_start(&test_options, why), -EINVAL);
        assert_non_null(strstr(why, bad[i]));
    }
    workers_stop(1000);
}

#define ON_SERVER(test) cmocka_unit_test_setup_teardown(test, server_up, server_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_SERVER(many_records_in_one_segment_are_answered_in_order),
        ON_SERVER(one_byte_fragments_and_one_byte_segments_work),
        ON_SERVER(errors_are_those_of_the_rfc_and_the_connection_stays),
        ON_SERVER(malformed_auth_sys_is_badcred),
        ON_SERVER(lost_framing_closes_after_the_good_calls_are_answered),
        ON_SERVER(a_half_closed_client_gets_its_replies),
        ON_SERVER(calls_complete_out_of_order),
        ON_SERVER(slices_arrive_padded_and_in_place),
        ON_SERVER(big_records_stay_valid_while_their_calls_wait),
        ON_SERVER(a_client_that_does_not_read_holds_only_its_share),
        ON_SERVER(requests_past_the_limit_wait_their_turn),
        cmocka_unit_test_setup_teardown(a_small_reply_overtakes_bulk_ones, small_buffer_up, server_down),
        cmocka_unit_test_setup_teardown(clients_that_do_not_read_share_what_there_is, few_bytes_up,
                                        server_down),
        cmocka_unit_test_setup_teardown(connections_past_the_limit_are_closed, few_connections_up,
                                        server_down),
        cmocka_unit_test_setup_teardown(without_free_coroutines_calls_wait_and_none_is_lost,
                                        few_coroutines_up, few_coroutines_down),
        ON_SERVER(a_connection_dropped_in_the_middle_leaves_nothing),
        ON_SERVER(peers_are_told),
        ON_SERVER(stopping_answers_what_is_in_progress),
        ON_SERVER(stopping_gives_up_on_a_client_that_does_not_read),
        cmocka_unit_test(addresses_that_do_not_work_are_explained),
    };
    rpc_register(&test_program);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
