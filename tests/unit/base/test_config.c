#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sluice/base_config.h"

struct settings {
    char *pool;
    uint64_t cache;
    unsigned workers;
    bool verbose;
    struct config_list listen;
};

static const struct config_option table[] = {
    {"pool", "path", CONFIG_STRING, NULL, "Where the pool is", "DIR", 0, 0,
     offsetof(struct settings, pool), true},
    {"cache", "size", CONFIG_SIZE, "1Gi", "RAM for data", NULL, 1 << 20, 1ull << 40,
     offsetof(struct settings, cache), true},
    {"server", "workers", CONFIG_COUNT, "0", "Threads, 0 for one a core", NULL, 0, 256,
     offsetof(struct settings, workers), true},
    {"server", "verbose", CONFIG_BOOL, "no", "Say more", NULL, 0, 0,
     offsetof(struct settings, verbose), false},
    {"server", "listen", CONFIG_LIST, "0.0.0.0, ::", "Addresses", NULL, 0, 0,
     offsetof(struct settings, listen), false},
};
enum { OPTIONS = sizeof(table) / sizeof(table[0]) };

static struct settings settings;
static struct config_error error;

static int read_text(const char *text)
{
    char path[] = "/tmp/test_config_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    error.text[0] = 0;
    assert_int_equal(config_defaults(table, OPTIONS, &settings, &error), 0);
    int result = config_file(table, OPTIONS, &settings, path, &error);
    unlink(path);
    return result;
}

static void refused(const char *text, const char *line, const char *word)
{
    assert_int_not_equal(read_text(text), 0);
    if (!strstr(error.text, line) || !strstr(error.text, word))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", error.text, line, word);
    config_free(table, OPTIONS, &settings);
}

static void a_good_file_is_taken(void **state)
{
    assert_int_equal(
        read_text("# top\n[pool]\npath = /srv/pool ; there\n\n[cache]\nsize=1.5Gi\n[server]\n"
                  "workers = 4\nverbose = On\nlisten = 10.0.0.1, 10.0.0.2\n   10.0.0.3\n"),
        0);
    assert_string_equal(settings.pool, "/srv/pool");
    assert_int_equal(settings.cache, 3ull << 29);
    assert_int_equal(settings.workers, 4);
    assert_true(settings.verbose);
    assert_int_equal(settings.listen.count, 3);
    assert_string_equal(settings.listen.at[2], "10.0.0.3");
    config_free(table, OPTIONS, &settings);
    assert_null(settings.pool);
}

static void defaults_hold_where_the_file_is_silent(void **state)
{
    assert_int_equal(read_text(""), 0);
    assert_null(settings.pool);
    assert_int_equal(settings.cache, 1 << 30);
    assert_int_equal(settings.listen.count, 2);
    config_free(table, OPTIONS, &settings);
}

static void mistakes_name_their_line_and_word(void **state)
{
    refused("[pool]\npath = /x\n[nosuch]\n", ":3:", "nosuch");
    refused("[pool]\npaht = /x\n", ":2:", "paht");
    refused("[pool]\npaht = /x\n", "known are", "path");
    refused("[pool]\nsize = 1G\n", ":2:", "[cache]");
    refused("path = /x\n", ":1:", "path");
    refused("[cache]\n\nsize = lots\n", ":3:", "lots");
    refused("[cache]\nsize = 4K\n", ":2:", "1Mi");
    refused("[cache]\nsize = 2T\n", ":2:", "1Ti");
    refused("[server]\nworkers = 257\n", ":2:", "256");
    refused("[server]\nworkers = -1\n", ":2:", "-1");
    refused("[server]\nverbose = maybe\n", ":2:", "maybe");
    refused("[server]\nworkers = 1\n# x\nworkers = 2\n", ":4:", "line 2");
    refused("[server]\nworkers = 1\n  verbose = yes\n", ":3:", "workers");
    refused("[server]\nwhat is this\nworkers = x\n", ":2:", "key = value");
    char text[1000] = "[pool]\npath = /";
    memset(text + strlen(text), 'a', 900);
    refused(text, ":2:", "longer");
}

static void a_missing_file_is_named(void **state)
{
    assert_int_equal(config_file(table, OPTIONS, &settings, "/nonexistent/file", &error), -ENOENT);
    assert_non_null(strstr(error.text, "/nonexistent/file"));
}

static void the_example_is_a_file_of_defaults(void **state)
{
    char *text = NULL;
    size_t length;
    FILE *to = open_memstream(&text, &length);
    config_print_example(table, OPTIONS, to);
    config_print_help(table, OPTIONS, to);
    fflush(to);
    assert_non_null(strstr(text, "\n#size = 1Gi\n"));
    assert_non_null(strstr(text, "  --size SIZE"));
    assert_null(strstr(text, "--verbose"));
    rewind(to);
    config_print_example(table, OPTIONS, to);
    fclose(to);
    for (char *p = text; *p; p++)
        if (p[0] == '#' && p[1] != ' ')
            *p = '\n';
    assert_int_equal(read_text(text), 0);
    assert_int_equal(settings.cache, 1 << 30);
    config_free(table, OPTIONS, &settings);
    free(text);
}

static void sizes(void **state)
{
    static const struct {
        const char *text;
        int result;
        uint64_t bytes;
    } cases[] = {
        {"0", 0, 0},
        {"4096", 0, 4096},
        {"64K", 0, 64000},
        {"64k", 0, 64000},
        {"64Ki", 0, 65536},
        {"1.5G", 0, 1500000000},
        {"1.5Gi", 0, 3ull << 29},
        {"1T", 0, 1000000000000},
        {"1Ti", 0, 1ull << 40},
        {"2MiB", 0, 2 << 20},
        {"2MB", 0, 2000000},
        {"0.5k", 0, 500},
        {"0.5Ki", 0, 512},
        {"0.0625Gi", 0, 1 << 26},
        {"18446744073709551615", 0, UINT64_MAX},
        {"18446744073709551616", -ERANGE, 0},
        {"16Ei", -ERANGE, 0},
        {"18.5E", -ERANGE, 0},
        {"15Ei", 0, 15ull << 60},
        {"", -EINVAL, 0},
        {"K", -EINVAL, 0},
        {"-1", -EINVAL, 0},
        {"1.5", -EINVAL, 0},
        {"1.K", -EINVAL, 0},
        {"1B", -EINVAL, 0},
        {"1i", -EINVAL, 0},
        {"1kiBs", -EINVAL, 0},
        {"1M/s", -EINVAL, 0},
        {"1 K", -EINVAL, 0},
        {"1X", -EINVAL, 0},
        {"0x10", -EINVAL, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t bytes = 0;
        assert_int_equal(size_parse(cases[i].text, &bytes), cases[i].result);
        assert_int_equal(bytes, cases[i].bytes);
    }
    char text[16];
    assert_string_equal(size_format(1023, text), "1023");
    assert_string_equal(size_format(3ull << 29, text), "1.5Gi");
    assert_string_equal(size_format(1ull << 40, text), "1Ti");
    assert_string_equal(size_format((1 << 20) - 1, text), "1Mi");
    assert_string_equal(size_format(UINT64_MAX, text), "16Ei");
    assert_string_equal(size_format(1536, text), "1.5Ki");
    char exact[SIZE_TEXT];
    assert_string_equal(size_exact(0, exact), "0");
    assert_string_equal(size_exact(999, exact), "999");
    assert_string_equal(size_exact(2000000000000, exact), "2T");
    assert_string_equal(size_exact(3ull << 29, exact), "1.5Gi");
    assert_string_equal(size_exact(1048576, exact), "1Mi");
    assert_string_equal(size_exact(200000, exact), "200k");
    assert_string_equal(size_exact(1500000, exact), "1.5M");
    assert_string_equal(size_exact(1000001, exact), "1000001");
    assert_string_equal(size_exact(UINT64_MAX, exact), "18446744073709551615");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_file_is_taken),
        cmocka_unit_test(defaults_hold_where_the_file_is_silent),
        cmocka_unit_test(mistakes_name_their_line_and_word),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(the_example_is_a_file_of_defaults),
        cmocka_unit_test(sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
