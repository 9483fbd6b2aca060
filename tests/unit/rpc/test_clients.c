/* What is remembered of clients: by address, over workers, the last ones only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>

#include "rpc/clients.h"

static struct sockaddr_storage four(uint32_t address, uint16_t port)
{
    struct sockaddr_storage storage = {0};
    *(struct sockaddr_in *)&storage = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
    return storage;
}

static struct rpc_client_info *all;
static unsigned count;

static void look(void)
{
    free(all);
    assert_int_equal(rpc_clients(&all, &count), 0);
}

static int forget(void **state)
{
    clients_free();
    free(all);
    all = NULL;
    return 0;
}

static void ports_and_workers_of_one_address_are_one_client(void **state)
{
    struct sockaddr_storage a = four(0x0a000001, 700), again = four(0x0a000001, 701), b = four(0x0a000002, 700);
    struct rpc_client *first = client_enter(0, &a), *second = client_enter(1, &again), *other = client_enter(0, &b);
    assert_ptr_not_equal(first, second);
    assert_ptr_equal(client_enter(0, &again), first);
    first->calls = 3;
    second->calls = 4;
    first->bytes_in = 10;
    second->bytes_out = 20;
    rpc_client_tag(&first->tags, 7);
    rpc_client_tag(&second->tags, 8);
    rpc_client_tag(&second->tags, 7);
    look();
    assert_int_equal(count, 2);
    assert_int_equal(((struct sockaddr_in *)&all[0].peer)->sin_addr.s_addr, htonl(0x0a000001));
    assert_int_equal(((struct sockaddr_in *)&all[0].peer)->sin_port, 0);
    assert_int_equal(all[0].connections, 3);
    assert_int_equal(all[0].calls, 7);
    assert_int_equal(all[0].bytes_in, 10);
    assert_int_equal(all[0].bytes_out, 20);
    assert_int_equal(all[0].tag_count, 2);
    assert_int_equal(all[0].idle_ns, 0);
    client_leave(first);
    client_leave(first);
    client_leave(second);
    client_leave(other);
    look();
    assert_int_equal(count, 2);
    assert_int_equal(all[0].connections, 0);
    assert_int_equal(all[0].calls, 7);
}

static void those_that_left_last_are_remembered_and_no_more(void **state)
{
    enum { MANY = 3 * RPC_CLIENTS_IDLE };
    struct sockaddr_storage stays = four(0x01000000, 1);
    struct rpc_client *there = client_enter(0, &stays);
    for (uint32_t i = 0; i < MANY; i++) {
        struct sockaddr_storage peer = four(0x0a000000 + i, (uint16_t)i);
        client_leave(client_enter(i % 3, &peer));
        if (i % 100 == 0) { /* comes again and again: it never is the one that left first */
            struct sockaddr_storage often = four(0x02000000, 1);
            client_leave(client_enter(0, &often));
        }
    }
    look();
    assert_int_equal(count, RPC_CLIENTS_IDLE + 1);
    assert_int_equal(((struct sockaddr_in *)&all[count - 1].peer)->sin_addr.s_addr, htonl(0x0a000000 + MANY - 1));
    unsigned often = 0, connected = 0;
    for (unsigned i = 0; i < count; i++) {
        often += ((struct sockaddr_in *)&all[i].peer)->sin_addr.s_addr == htonl(0x02000000);
        connected += all[i].connections;
    }
    assert_int_equal(often, 1);
    assert_int_equal(connected, 1);
    client_leave(there);
}

static void addresses_of_both_families_are_told_apart(void **state)
{
    struct sockaddr_storage a = four(0, 1), b = {0};
    ((struct sockaddr_in6 *)&b)->sin6_family = AF_INET6;
    ((struct sockaddr_in6 *)&b)->sin6_port = htons(1);
    struct rpc_client *x = client_enter(0, &a), *y = client_enter(0, &b);
    assert_ptr_not_equal(x, y);
    look();
    assert_int_equal(count, 2);
    client_leave(x);
    client_leave(y);
}

static void the_last_tags_are_kept_the_newest_first(void **state)
{
    struct rpc_client_tags tags = {{0}};
    for (uint32_t tag = 1; tag <= RPC_CLIENT_TAGS + 5; tag++)
        rpc_client_tag(&tags, tag);
    assert_int_equal(tags.at[0], RPC_CLIENT_TAGS + 5);
    assert_int_equal(tags.at[RPC_CLIENT_TAGS - 1], 6);
    rpc_client_tag(&tags, 10);
    assert_int_equal(tags.at[0], 10);
    assert_int_equal(tags.at[1], RPC_CLIENT_TAGS + 5);
    for (unsigned i = 1; i < RPC_CLIENT_TAGS; i++)
        assert_int_not_equal(tags.at[i], 10);
    assert_int_equal(tags.at[RPC_CLIENT_TAGS - 1], 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(ports_and_workers_of_one_address_are_one_client, forget),
        cmocka_unit_test_teardown(those_that_left_last_are_remembered_and_no_more, forget),
        cmocka_unit_test_teardown(addresses_of_both_families_are_told_apart, forget),
        cmocka_unit_test(the_last_tags_are_kept_the_newest_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
