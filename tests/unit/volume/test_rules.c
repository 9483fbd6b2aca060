#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <urcu.h>

#include <cmocka.h>

#include "sluice/volume.h"
#include "volume/rules.h"

static struct sockaddr_storage peer_of(const char *text)
{
    struct sockaddr_storage peer = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)&peer;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&peer;
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        peer.ss_family = AF_INET;
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &six->sin6_addr), 1);
        peer.ss_family = AF_INET6;
    }
    return peer;
}

static uint32_t match(const char *rules, const char *address)
{
    struct volume_rule *list;
    uint32_t count;
    char why[256];
    assert_int_equal(volume_rules_parse(rules, &list, &count, why), 0);
    struct sockaddr_storage peer = peer_of(address);
    uint32_t found = rules_match(list, count, &peer);
    free(list);
    return found;
}

static void first_match_wins(void **state)
{
    assert_int_equal(match("10.1.0.0/16:ro,10.0.0.0/8", "10.1.2.3"), 0);
    assert_int_equal(match("10.1.0.0/16:ro,10.0.0.0/8", "10.2.2.3"), 1);
    assert_int_equal(match("10.0.0.0/8,10.1.0.0/16:ro", "10.1.2.3"), 0);
    assert_int_equal(match("10.0.0.0/8,10.1.0.0/16:ro", "11.1.2.3"), UINT32_MAX);
    assert_int_equal(match("", "127.0.0.1"), UINT32_MAX);
}

static void prefixes_count_bits(void **state)
{
    assert_int_equal(match("192.168.4.0/22", "192.168.7.255"), 0);
    assert_int_equal(match("192.168.4.0/22", "192.168.8.0"), UINT32_MAX);
    assert_int_equal(match("10.9.8.7", "10.9.8.7"), 0);
    assert_int_equal(match("10.9.8.7", "10.9.8.6"), UINT32_MAX);
    assert_int_equal(match("fd00::/8:ro", "fdff::1"), 0);
    assert_int_equal(match("[fd00::]/8", "fe00::1"), UINT32_MAX);
    assert_int_equal(match("0.0.0.0/0", "::1"), UINT32_MAX);
    assert_int_equal(match("all", "::1"), 0);
    assert_int_equal(match("all:ro", "1.2.3.4"), 0);
}

static void mapped_addresses_are_ipv4(void **state)
{
    assert_int_equal(match("10.0.0.0/8", "::ffff:10.1.1.1"), 0);
    assert_int_equal(match("::ffff:10.0.0.0/104", "10.1.1.1"), 0);
    assert_int_equal(match("::/0", "::ffff:10.1.1.1"), UINT32_MAX);
}

static void host_is_every_address_of_this_machine(void **state)
{
    assert_int_equal(match("host", "127.0.0.1"), 0);
    assert_int_equal(match("host", "127.9.0.1"), 0);
    assert_int_equal(match("host", "::1"), 0);
    assert_int_equal(match("host", "::ffff:127.0.0.1"), 0);
    assert_int_equal(match("host", "192.0.2.77"), UINT32_MAX);
}

static void rules_come_back_as_text(void **state)
{
    static const char *const pairs[][2] = {
        {"10.0.0.0/8:rw,host:rw,[fd00::]/8:ro", "10.0.0.0/8:rw,host:rw,[fd00::]/8:ro"},
        {" 10.0.0.0/8 , host ", "10.0.0.0/8:rw,host:rw"},
        {"fd00::/8:ro", "[fd00::]/8:ro"},
        {"1.2.3.4", "1.2.3.4/32:rw"},
        {"all:ro", "all:ro"},
        {"::ffff:10.0.0.0/104", "10.0.0.0/8:rw"},
        {"10.0.0.0/8:secure:ro:squash=all:anon=7.8", "10.0.0.0/8:ro:squash=all:anon=7.8:secure"},
        {"[fd00::]/8:squash=none", "[fd00::]/8:rw:squash=none"},
        {"fd00::/8:anon=65534.0", "[fd00::]/8:rw:anon=65534.0"},
        {"host:squash=root", "host:rw:squash=root"},
        {"all:anon=4294967294.4294967294:secure", "all:rw:anon=4294967294.4294967294:secure"},
        {"none", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct volume_rule *list;
        uint32_t count;
        char why[256], text[256];
        assert_int_equal(volume_rules_parse(pairs[i][0], &list, &count, why), 0);
        volume_rules_format(list, count, text, sizeof text);
        assert_string_equal(text, pairs[i][1]);
        free(list);
    }
}

static void wrong_rules_name_the_word(void **state)
{
    static const char *const wrong[][2] = {
        {"10.0.0.0/33", "10.0.0.0/33"}, {"host:rw,10.0.0/8", "10.0.0/8"}, {"10.0.0.0/8:wr", "10.0.0.0/8:wr"},
        {"host:rw,,host", "''"}, {"10.0.0.1/8", "10.0.0.0/8"}, {"fd00::/129", "fd00::/129"},
        {"[fd00::/8", "[fd00::/8"}, {"hosts", "hosts"}, {"10.0.0.0/", "10.0.0.0/"}, {"10.0.0.0/-1", "/-1"},
        {"10.0.0.0/8x", "10.0.0.0/8x"}, {"[]", "[]"}, {"[", "["}, {"/8", "/8"}, {":ro", ":ro"},
        {"all:squash=some", "root, none or all"}, {"all:anon=1", "UID.GID"}, {"all:anon=1.", "UID.GID"},
        {"all:anon=-1.0", "UID.GID"}, {"all:anon=4294967295.0", "UID.GID"}, {"all:anon=1.2x", "UID.GID"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct volume_rule *list;
        uint32_t count;
        char why[256] = "";
        assert_int_equal(volume_rules_parse(wrong[i][0], &list, &count, why), -EINVAL);
        assert_non_null(strstr(why, wrong[i][1]));
    }
}

static void squash_changes_who_asks(void **state)
{
    uint32_t groups[] = {0, 7};
    struct store_cred cred;
    struct volume_grant root = {
        .allowed = true, .write = true, .squash_root = true, .anon_uid = 65534, .anon_gid = 65534};
    volume_squash(&root, 0, 0, groups, 2, &cred);
    assert_int_equal(cred.uid, 65534);
    assert_int_equal(cred.gid, 65534);
    assert_int_equal(cred.groups[0], 65534);
    assert_int_equal(cred.groups[1], 7);
    assert_false(cred.read_only);
    volume_squash(&root, 1000, 0, NULL, 0, &cred);
    assert_int_equal(cred.uid, 1000);
    assert_int_equal(cred.gid, 65534);
    struct volume_grant all = {.allowed = true, .squash_all = true, .anon_uid = 65534, .anon_gid = 65534};
    volume_squash(&all, 1000, 1000, groups, 2, &cred);
    assert_int_equal(cred.uid, 65534);
    assert_int_equal(cred.group_count, 0);
    assert_true(cred.read_only);
    struct volume_grant none = {.allowed = true, .write = true};
    volume_squash(&none, 0, 0, groups, 2, &cred);
    assert_int_equal(cred.uid, 0);
    assert_int_equal(cred.groups[0], 0);
}

static void the_squashed_become_whom_the_rule_says(void **state)
{
    uint32_t groups[] = {0, 7};
    struct store_cred cred;
    struct volume_grant grant = {.allowed = true, .squash_root = true, .anon_uid = 5, .anon_gid = 6};
    volume_squash(&grant, 0, 0, groups, 2, &cred);
    assert_int_equal(cred.uid, 5);
    assert_int_equal(cred.gid, 6);
    assert_int_equal(cred.groups[0], 6);
    assert_int_equal(cred.groups[1], 7);
    grant.squash_all = true;
    volume_squash(&grant, 1000, 1000, groups, 2, &cred);
    assert_int_equal(cred.uid, 5);
    assert_int_equal(cred.gid, 6);
    assert_int_equal(cred.group_count, 0);
}

static void names_are_checked(void **state)
{
    char why[256], name[70];
    assert_int_equal(volume_name_check("train-2.v_1", why), 0);
    memset(name, 'a', sizeof name);
    name[64] = 0;
    assert_int_equal(volume_name_check(name, why), 0);
    name[64] = 'a';
    name[65] = 0;
    assert_int_equal(volume_name_check(name, why), -EINVAL);
    static const char *const wrong[] = {"", ".", "..", "a/b", "a b", "a@b", "ä"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(volume_name_check(wrong[i], why), -EINVAL);
    assert_int_equal(volume_name_check("...", why), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_match_wins),
        cmocka_unit_test(prefixes_count_bits),
        cmocka_unit_test(mapped_addresses_are_ipv4),
        cmocka_unit_test(host_is_every_address_of_this_machine),
        cmocka_unit_test(rules_come_back_as_text),
        cmocka_unit_test(wrong_rules_name_the_word),
        cmocka_unit_test(squash_changes_who_asks),
        cmocka_unit_test(the_squashed_become_whom_the_rule_says),
        cmocka_unit_test(names_are_checked),
    };
    rcu_register_thread();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rcu_unregister_thread();
    return failed;
}
