/* Directories of small files: which files are told to be loaded, for readers of several orders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/local/siblings.h"

enum { FILES = 4000, FIRST_INO = 100 };

/* A directory whose listing has its files in another order than that of their making. */
static uint64_t position_of[FILES];
static unsigned listed[FILES];
static bool loaded[FILES];
static unsigned missed, loads, plans;
static struct siblings *t;
static uint64_t seed;

static uint64_t below(uint64_t limit)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (seed >> 33) % limit;
}

static void shuffle(unsigned *order)
{
    for (unsigned i = 0; i < FILES; i++) {
        unsigned other = (unsigned)below(i + 1);
        order[i] = order[other];
        order[other] = i;
    }
}

static int setup(void **state)
{
    seed = 3;
    shuffle(listed);
    for (unsigned i = 0; i < FILES; i++)
        position_of[listed[i]] = (i + 1) * UINT64_C(1000003);
    memset(loaded, 0, sizeof(loaded));
    missed = loads = plans = 0;
    t = siblings_new();
    return t ? 0 : -1;
}

static int teardown(void **state)
{
    siblings_free(t);
    return 0;
}

static unsigned index_after(uint64_t position)
{
    return (unsigned)(position / 1000003);
}

static void carry_out(const struct siblings_plan *plan)
{
    uint64_t last = plan->after;
    unsigned count = 0;
    bool end = false;
    plans++;
    while (count < plan->files && !end) {
        unsigned i = plan->order == SIBLINGS_LISTED ? index_after(last) : (unsigned)(last + 1 - FIRST_INO);
        end = i >= FILES;
        if (end)
            break;
        unsigned file = plan->order == SIBLINGS_LISTED ? listed[i] : i;
        last = plan->order == SIBLINGS_LISTED ? position_of[file] : FIRST_INO + i;
        loads += !loaded[file];
        loaded[file] = true;
        count++;
    }
    siblings_loaded(t, plan, end ? 0 : last, count);
}

static void read_file(unsigned file)
{
    const struct sibling s = {
        .dir = 7, .tree = 1, .position = position_of[file], .ino = FIRST_INO + file};
    struct siblings_plan plan;
    uint64_t before;
    bool load, was = loaded[file];
    missed += !was;
    loaded[file] = true;
    bool known = siblings_advance(t, &s, &plan, &load);
    if (!known && !was) {
        enum siblings_answer answer = siblings_candidate(t, &s, &before, &plan);
        if (answer == SIBLINGS_ASK && index_after(s.position) - index_after(before) <= 2)
            load = siblings_follow(t, &s, before, &plan);
        else
            load = answer == SIBLINGS_LOAD;
    }
    if (load)
        carry_out(&plan);
}

static void who_reads_in_the_order_of_the_listing_finds_the_files_loaded(void **state)
{
    for (unsigned i = 1000; i < FILES; i++)
        read_file(listed[i]);
    assert_in_range(missed, 1, 8);
    assert_int_equal(loads + missed, FILES - 1000); /* none that lies before */
    assert_in_range(plans, 3, 100);
}

static void who_reads_in_the_order_of_making_finds_the_files_loaded(void **state)
{
    for (unsigned i = 0; i < FILES; i++)
        read_file(i);
    assert_in_range(missed, 1, 10);
}

static void files_that_were_made_several_at_once_are_in_order_enough(void **state)
{
    for (unsigned i = 0; i < FILES; i += 8) {
        for (unsigned k = 0; k < 8; k++)
            read_file(i + (k * 5 + 3) % 8);
    }
    assert_in_range(missed, 1, FILES / 20);
}

static void four_readers_of_one_directory_are_kept_apart(void **state)
{
    enum { READERS = 4 };
    for (unsigned i = 0; i < FILES / READERS; i++) {
        for (unsigned k = 0; k < READERS; k++)
            read_file(listed[k * (FILES / READERS) + i]);
    }
    assert_in_range(missed, 1, READERS * 12);
}

static void who_reads_in_no_order_loads_little(void **state)
{
    unsigned order[FILES];
    shuffle(order);
    for (unsigned i = 0; i < FILES; i++)
        read_file(order[i]);
    assert_in_range(loads, 0, FILES / 100);
}

static void the_directory_ends_and_can_be_read_again(void **state)
{
    for (unsigned round = 0; round < 3; round++) {
        memset(loaded, 0, sizeof(loaded));
        missed = 0;
        for (unsigned i = 0; i < FILES; i++)
            read_file(listed[i]);
        assert_in_range(missed, 0, 8);
    }
}

int main(void)
{
#define EACH(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        EACH(who_reads_in_the_order_of_the_listing_finds_the_files_loaded),
        EACH(who_reads_in_the_order_of_making_finds_the_files_loaded),
        EACH(files_that_were_made_several_at_once_are_in_order_enough),
        EACH(four_readers_of_one_directory_are_kept_apart),
        EACH(who_reads_in_no_order_loads_little),
        EACH(the_directory_ends_and_can_be_read_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
