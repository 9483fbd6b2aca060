#include "test_meta_fixture.h"

#include "store/local/meta_refs.h"

/* The interval map of holders against an array with a count for each block. */

enum { BLOCKS = 600, RUN_MOST = 150, STEPS = 60, GROUPS = 60 };

/* A run may not leave its segment: the map begins just before one ends. */
static const place_t segment_end = 8ull << PLACE_BITS;
static uint32_t holders[BLOCKS]; /* 0: nobody's, as the map is not told of */
static place_t first;
static uint32_t died[BLOCKS];

static void dead(struct meta_txn *t, place_t place, uint32_t blocks)
{
    for (uint32_t i = 0; i < blocks; i++)
        died[place - first + i]++;
}

static unsigned rnd(unsigned below)
{
    return (unsigned)random() % below;
}

static bool in_one_segment(unsigned at, unsigned blocks)
{
    return (first + at) >> PLACE_BITS == (first + at + blocks - 1) >> PLACE_BITS;
}

static int change_one(struct meta_txn *t)
{
    unsigned at = rnd(BLOCKS), most = BLOCKS - at < RUN_MOST ? BLOCKS - at : RUN_MOST;
    unsigned blocks = 1 + rnd(rnd(3) ? 8 : most);
    bool more = rnd(2);
    uint32_t expected[BLOCKS] = {0};
    blocks = blocks < most ? blocks : most;
    if (!in_one_segment(at, blocks))
        return 0;
    for (unsigned i = at; i < at + blocks; i++) {
        if (holders[i] == 0)
            holders[i] = 1; /* somebody takes it, unknown to the map */
        expected[i] = !more && holders[i] == 1;
        holders[i] += more ? 1 : -1u;
    }
    memset(died, 0, sizeof(died));
    int error = more ? refs_hold(t, first + at, blocks) : refs_release(t, first + at, blocks, dead);
    if (!error && memcmp(died, expected, sizeof(died)) != 0)
        error = 1;
    return error;
}

static int changes(struct meta_txn *t, void *arg)
{
    int error = 0;
    for (int i = 0; i < STEPS && !error; i++)
        error = change_one(t);
    return error;
}

/* Each interval is as long as it can be, and says what the array does. */
static int compare(struct meta_txn *t, void *arg)
{
    struct refs_run run, last = {0};
    place_t at = first;
    while (refs_next(t, at, &run) == 0) {
        for (; at < run.place; at++)
            if (holders[at - first] > 1)
                return 2;
        for (; at < run.place + run.blocks; at++)
            if (holders[at - first] != run.count)
                return 3;
        bool touches = last.place + last.blocks == run.place && last.count == run.count;
        if (touches && last.place >> PLACE_BITS == run.place >> PLACE_BITS)
            return 4;
        last = run;
    }
    for (; at < first + BLOCKS; at++)
        if (holders[at - first] > 1)
            return 5;
    for (unsigned i = 0; i < BLOCKS; i++) {
        uint32_t length = BLOCKS - i, same = 1;
        uint32_t count = holders[i] < 2 ? 1 : holders[i];
        if (refs_count(t, first + i, &length) != count)
            return 6;
        for (; same < length; same++)
            if ((holders[i + same] < 2 ? 1 : holders[i + same]) != count)
                return 7;
    }
    return 0;
}

static void counts_are_those_of_an_array(void **state)
{
    first = segment_end - BLOCKS / 2;
    memset(holders, 0, sizeof(holders));
    srandom(7);
    for (int i = 0; i < GROUPS; i++) {
        assert_int_equal(mutate(changes, NULL), 0);
        assert_int_equal(mutate(compare, NULL), 0);
        if (i % 20 == 10) {
            fixture_close();
            fixture_open();
        }
    }
}

static int hold_and_let_go(struct meta_txn *t, void *arg)
{
    struct refs_run run;
    uint32_t length = 1000;
    memset(died, 0, sizeof(died));
    if (refs_hold(t, first, 500) || refs_next(t, 0, &run) || run.place != first || run.blocks != 500 || run.count != 2)
        return 1;
    if (refs_hold(t, first + 100, 1) || refs_count(t, first + 100, &length) != 3 || length != 1)
        return 2;
    if (refs_release(t, first + 100, 1, dead) || refs_next(t, 0, &run) || run.blocks != 500)
        return 3;
    if (refs_release(t, first, 500, dead) || refs_next(t, 0, &run) != -ENOENT || died[0] || died[499])
        return 4;
    if (refs_release(t, first, 500, dead) || died[0] != 1 || died[499] != 1)
        return 5;
    return 0;
}

static void a_run_is_one_interval_and_goes_with_its_last_holder(void **state)
{
    first = 9ull << PLACE_BITS;
    assert_int_equal(mutate(hold_and_let_go, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(counts_are_those_of_an_array, fixture_start, fixture_stop),
        cmocka_unit_test_setup_teardown(a_run_is_one_interval_and_goes_with_its_last_holder, fixture_start,
                                        fixture_stop),
    };
    return cmocka_run_group_tests(tests, fixture_workers_start, fixture_workers_stop);
}
