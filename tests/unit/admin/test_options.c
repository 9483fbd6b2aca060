#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "admin/options.h"

static struct options options;
static struct config_error problem;
static enum options_action action;

static int read_words(const char *first, ...)
{
    char *words[20] = {(char *)"sluiced"};
    int count = 1;
    va_list more;
    va_start(more, first);
    for (const char *word = first; word; word = va_arg(more, const char *))
        words[count++] = (char *)word;
    va_end(more);
    options_free(&options);
    return options_read(count, words, &options, &action, &problem);
}

static void file_with(const char *text, char path[32])
{
    strcpy(path, "/tmp/options-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void defaults_are_filled_in(void **state)
{
    assert_int_equal(read_words("--pool", "/p", NULL), 0);
    assert_string_equal(options.socket, "/p/control.sock");
    assert_int_equal(options.listen.count, 2);
    assert_string_equal(options.listen.at[1], "[::1]:2049");
    assert_true(options.cache >= 16 << 20 && options.cache <= options_ram());
    assert_int_equal(action, OPTIONS_RUN);
}

static void repeated_listen_adds_up_and_replaces_the_default(void **state)
{
    assert_int_equal(read_words("--pool", "/p", "--listen", "0.0.0.0:1", "--listen=[::]:0", NULL), 0);
    assert_int_equal(options.listen.count, 2);
    assert_string_equal(options.listen.at[0], "0.0.0.0:1");
    assert_string_equal(options.listen.at[1], "[::]:0");
}

static void the_command_line_has_the_last_word(void **state)
{
    char path[32];
    file_with("[server]\npool = /from-file\nworkers = 3\n[memory]\ncache = 1Gi\n", path);
    assert_int_equal(read_words("--workers", "5", "-c", path, NULL), 0);
    assert_string_equal(options.pool, "/from-file");
    assert_int_equal(options.workers, 5);
    assert_int_equal(options.cache, 1 << 30);
    unlink(path);
}

static void unknown_keys_name_their_line(void **state)
{
    char path[32], place[64];
    file_with("[server]\npool = /p\n\nworker = 3\n", path);
    assert_int_not_equal(read_words("--check-config", "-c", path, NULL), 0);
    snprintf(place, sizeof place, "%s:4", path);
    assert_non_null(strstr(problem.text, place));
    assert_non_null(strstr(problem.text, "worker"));
    unlink(path);
}

static void mistakes_are_named(void **state)
{
    assert_int_not_equal(read_words(NULL), 0);
    assert_non_null(strstr(problem.text, "--pool"));
    assert_int_not_equal(read_words("--pool", "/p", "--nonsense", NULL), 0);
    assert_non_null(strstr(problem.text, "--nonsense"));
    assert_int_not_equal(read_words("--pool", "/p", "word", NULL), 0);
    assert_non_null(strstr(problem.text, "word"));
    assert_int_not_equal(read_words("--pool", NULL), 0);
    assert_non_null(strstr(problem.text, "--pool"));
    assert_int_not_equal(read_words("--pool", "/p", "--pool", "/q", NULL), 0);
    assert_int_not_equal(read_words("--pool", "/p", "--cache", "many", NULL), 0);
    assert_non_null(strstr(problem.text, "many"));
    assert_int_not_equal(read_words("--pool", "/p", "--log-level", "loud", NULL), 0);
    assert_non_null(strstr(problem.text, "loud"));
    static const char *const wrong[] = {"2049", "localhost:2049", "127.0.0.1", "::1:2049", "[::1]",
                                        "1.2.3.4:70000", "1.2.3.4:", "1.2.3.4:x", "[1.2.3.4]:1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_not_equal(read_words("--pool", "/p", "--listen", wrong[i], NULL), 0);
        assert_non_null(strstr(problem.text, wrong[i]));
    }
}

static void the_example_is_a_right_file(void **state)
{
    char path[32], line[1024];
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    options_print_example(to);
    fclose(to);
    FILE *from = fmemopen(text, length, "r");
    char *all = calloc(1, length + 1);
    while (fgets(line, sizeof line, from)) /* each key's line begins with # and no blank */
        strcat(all, line[0] == '#' && line[1] != ' ' ? line + 1 : line);
    fclose(from);
    file_with(all, path);
    assert_int_equal(read_words("--check-config", "-c", path, "--socket", "/s", NULL), 0);
    unlink(path);
    free(all);
    free(text);
}

static int release(void **state)
{
    options_free(&options);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_filled_in),
        cmocka_unit_test(repeated_listen_adds_up_and_replaces_the_default),
        cmocka_unit_test(the_command_line_has_the_last_word),
        cmocka_unit_test(unknown_keys_name_their_line),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(the_example_is_a_right_file),
    };
    return cmocka_run_group_tests(tests, NULL, release);
}
