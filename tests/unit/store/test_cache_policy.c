/* The cache's policies under made-up reads: hit rates of what training and other work does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/local/cache.h"

enum { MIB = 1 << 20, BLOCK = STORE_BLOCK, CACHE = 64 * MIB, CACHE_BLOCKS = CACHE / BLOCK, ZIPF_MOST = 8192 };

static struct local local;
static uint64_t seed;

static uint32_t next(void)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static double unit(void)
{
    return next() / 2147483648.0;
}

static void open_cache(uint64_t bytes)
{
    char why[256];
    local.options.cache_bytes = bytes;
    assert_int_equal(cache_open(&local, why), 0);
}

static void set(uint32_t tree, enum store_cache_policy policy, uint32_t percent, uint64_t bytes)
{
    cache_set(local.cache, tree, &(struct store_cache_setting){policy, percent, bytes});
}

static struct store_cache_stats stats(uint32_t tree)
{
    struct store_cache_stats s;
    cache_stats(local.cache, tree, &s);
    return s;
}

/* ---- reads as fetch.c and read.c do them ---- */

static place_t at(uint64_t block)
{
    return ((place_t)1 << PLACE_BITS) + block;
}

static void fill(struct frame *f, place_t place, unsigned count)
{
    struct cache *c = local.cache;
    uint16_t mine = cache_claim(c, f, frame_mask(c, f, place, count));
    if (mine)
        cache_loaded(c, f, mine, mine);
    frame_unpin(f);
}

/* Blocks that were found. */
static unsigned read_blocks(uint32_t tree, uint64_t block, unsigned count)
{
    struct cache *c = local.cache;
    struct cache_class *class = cache_class(c, tree);
    unsigned hits = 0;
    cache_count_read(c, class, count);
    for (place_t place = at(block); count;) {
        unsigned most = FRAME_BLOCKS - (unsigned)(place % FRAME_BLOCKS);
        struct frame *f;
        most = most < count ? most : count;
        unsigned done = cache_find(c, class, place, most, &f);
        if (done) {
            hits += done;
            frame_unpin(f);
        } else {
            done = most;
            f = most >= 8 ? cache_get(c, class, place, FRAME_LARGE) : cache_peek(c, place, FRAME_LARGE);
            if (!f) {
                done = 1;
                f = cache_get(c, class, place, FRAME_SMALL);
            }
            assert_non_null(f);
            /* what is valid behind a hole is a hit all the same */
            uint16_t mask = frame_mask(c, f, place, done);
            hits += (unsigned)__builtin_popcount(frame_valid(f) & mask);
            fill(f, place, done);
        }
        place += done;
        count -= done;
    }
    return hits;
}

struct job { /* reads data[first, first + count * piece) in pieces, each once a round, in a new order each time */
    uint32_t tree;
    uint64_t first;
    uint32_t count, piece, at;
    uint32_t *order;
};

static struct job job_new(uint32_t tree, uint64_t first, uint64_t blocks, uint32_t piece)
{
    struct job j = {.tree = tree, .first = first, .count = (uint32_t)(blocks / piece), .piece = piece};
    j.order = malloc(j.count * sizeof(*j.order));
    for (uint32_t i = 0; i < j.count; i++)
        j.order[i] = i;
    return j;
}

static unsigned job_step(struct job *j)
{
    if (j->at % j->count == 0) {
        for (uint32_t i = j->count - 1; i; i--) {
            uint32_t other = next() % (i + 1), mine = j->order[i];
            j->order[i] = j->order[other];
            j->order[other] = mine;
        }
    }
    return read_blocks(j->tree, j->first + (uint64_t)j->order[j->at++ % j->count] * j->piece, j->piece);
}

static double rounds(struct job *j, double how_many)
{
    uint64_t hits = 0, steps = (uint64_t)(j->count * how_many);
    for (uint64_t i = 0; i < steps; i++)
        hits += job_step(j);
    return (double)hits / ((double)steps * j->piece);
}

/* Block runs of `piece` with Zipf's popularity over `count` of them. */
static double zipf(uint32_t tree, uint64_t first, uint32_t count, uint32_t piece, uint32_t reads)
{
    static double sums[ZIPF_MOST + 1];
    uint64_t hits = 0;
    assert_true(count <= ZIPF_MOST);
    for (uint32_t i = 0; sums[ZIPF_MOST] == 0 && i < ZIPF_MOST; i++)
        sums[i + 1] = sums[i] + 1.0 / (i + 1);
    for (uint32_t i = 0; i < reads; i++) {
        double want = unit() * sums[count];
        uint32_t from = 0, to = count;
        while (to - from > 1) {
            uint32_t middle = (from + to) / 2;
            *(sums[middle] <= want ? &from : &to) = middle;
        }
        uint64_t what = (uint64_t)from * 2654435761u % count;
        hits += read_blocks(tree, first + what * piece, piece);
    }
    return (double)hits / ((double)reads * piece);
}

static const char *picked(uint32_t tree)
{
    return stats(tree).keeps ? "keeps" : "lru";
}

/* ---- the tests ---- */

static const struct {
    const char *name;
    uint32_t piece;
} pieces[] = {{"110 KB", 27}, {"2.8 MB", 684}, {"16 KiB", 4}, {"4 KiB", 1}, {"114660 bytes", 28}};

static void epochs(enum store_cache_policy policy, const char *name, double least, double most)
{
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        open_cache(CACHE);
        set(1, policy, 0, 0);
        struct job j = job_new(1, 5, 2 * CACHE_BLOCKS, pieces[i].piece);
        double second, third;
        rounds(&j, 1);
        second = rounds(&j, 1);
        third = rounds(&j, 1);
        double fourth = rounds(&j, 1), fifth = rounds(&j, 1);
        printf("%-6s %-12s epochs 2 to 5: %.3f %.3f %.3f %.3f  %s\n", name, pieces[i].name, second, third, fourth,
               fifth, picked(1));
        if (policy == STORE_CACHE_EPOCH)
            assert_true(second >= least);
        assert_true(third >= least - 0.02 && third <= most);
        assert_true(fourth >= least && fourth <= most);
        assert_true(fifth >= least && fifth <= most);
        free(j.order);
        cache_close(&local);
    }
}

static void an_epoch_policy_hits_its_share_of_the_data(void **state)
{
    epochs(STORE_CACHE_EPOCH, "epoch", 0.475, 0.51);
}

static void auto_does_as_well_one_epoch_later(void **state)
{
    epochs(STORE_CACHE_AUTO, "auto", 0.475, 0.51);
}

static void lru_does_not(void **state)
{
    epochs(STORE_CACHE_LRU, "lru", 0.1, 0.45);
}

static void other_sizes_of_data_are_kept_in_proportion(void **state)
{
    static const double data[] = {1.1, 1.5, 4, 10};
    for (size_t i = 0; i < sizeof(data) / sizeof(data[0]); i++) {
        for (int policy = STORE_CACHE_AUTO; policy <= STORE_CACHE_EPOCH; policy += STORE_CACHE_EPOCH) {
            open_cache(CACHE);
            set(1, policy, 0, 0);
            struct job j = job_new(1, 5, (uint64_t)(data[i] * CACHE_BLOCKS), 27);
            rounds(&j, 2);
            double rate = rounds(&j, 1);
            printf("%s, data %.1f times the cache: %.3f of %.3f\n", policy ? "epoch" : "auto", data[i], rate,
                   1 / data[i]);
            assert_true(rate >= 0.94 / data[i]);
            free(j.order);
            cache_close(&local);
        }
    }
}

static void two_jobs_of_one_volume_are_recognised(void **state)
{
    open_cache(CACHE);
    struct job a = job_new(1, 5, 2 * CACHE_BLOCKS, 27), b = a;
    b.order = malloc(b.count * sizeof(*b.order));
    memcpy(b.order, a.order, b.count * sizeof(*b.order));
    rounds(&a, 0.4);
    double rate = 0;
    for (unsigned round = 0; round < 4; round++) {
        uint64_t hits = 0;
        for (uint32_t i = 0; i < a.count; i++)
            hits += job_step(&a) + job_step(&b);
        rate = (double)hits / (2.0 * a.count * a.piece);
        printf("two jobs, round %u: %.3f %s\n", round, rate, picked(1));
    }
    assert_true(rate >= 0.475);
    free(a.order);
    free(b.order);
    cache_close(&local);
}

static void a_scan_of_another_volume_takes_little(void **state)
{
    open_cache(CACHE);
    struct job a = job_new(1, 5, 2 * CACHE_BLOCKS, 27);
    rounds(&a, 3);
    uint64_t hits = 0, reads = 0;
    struct job scan = job_new(2, 10 * CACHE_BLOCKS, 3 * CACHE_BLOCKS, 64);
    for (uint32_t i = 0; i < scan.count; i++) {
        read_blocks(2, scan.first + (uint64_t)i * 64, 64);
        hits += job_step(&a);
        reads += a.piece;
    }
    double during = (double)hits / (double)reads, after = rounds(&a, 1);
    printf("beside a scan: %.3f, afterwards %.3f; the scan holds %.1f MiB\n", during, after,
           (double)stats(2).held_bytes / MIB);
    assert_true(during >= 0.45 && after >= 0.465);

    double hot = zipf(3, 20 * CACHE_BLOCKS, 512, 16, 20000);
    for (uint32_t i = 0; i < scan.count; i++) {
        read_blocks(2, scan.first + 5 * CACHE_BLOCKS + (uint64_t)i * 64, 64);
        zipf(3, 20 * CACHE_BLOCKS, 512, 16, 2);
    }
    double still = zipf(3, 20 * CACHE_BLOCKS, 512, 16, 2000);
    printf("a hot set: %.3f, after a scan %.3f\n", hot, still);
    assert_true(still > hot - 0.05);
    free(a.order);
    free(scan.order);
    cache_close(&local);
}

static void skewed_reads_are_recognised_and_so_are_epochs_again(void **state)
{
    open_cache(CACHE);
    struct job j = job_new(1, 5, 2 * CACHE_BLOCKS, 16);
    rounds(&j, 4);
    double epoch = rounds(&j, 1);
    assert_true(stats(1).keeps);
    uint64_t other = 5 * CACHE_BLOCKS;
    zipf(1, other, 8192, 16, 30000);
    double skewed = zipf(1, other, 8192, 16, 10000);
    printf("epochs %.3f, then skewed reads %.3f %s, ", epoch, skewed, picked(1));
    rounds(&j, 2);
    double third = rounds(&j, 1), again = rounds(&j, 1);
    assert_true(third >= 0.4);
    printf("then epochs again %.3f %s\n", again, picked(1));
    cache_close(&local);

    open_cache(CACHE);
    set(1, STORE_CACHE_LRU, 0, 0);
    zipf(1, other, 8192, 16, 30000);
    double lru = zipf(1, other, 8192, 16, 10000);
    printf("skewed reads with lru %.3f\n", lru);
    assert_true(skewed >= lru - 0.03);
    assert_true(again >= 0.475);
    free(j.order);
    cache_close(&local);
}

static void new_data_takes_the_place_of_old(void **state)
{
    for (int policy = STORE_CACHE_AUTO; policy <= STORE_CACHE_EPOCH; policy += STORE_CACHE_EPOCH) {
        open_cache(CACHE);
        set(1, policy, 0, 0);
        struct job old = job_new(1, 5, 2 * CACHE_BLOCKS, 27);
        struct job new = job_new(1, 4 * CACHE_BLOCKS, 2 * CACHE_BLOCKS, 27);
        double before = rounds(&old, 3);
        rounds(&new, 1);
        double second = rounds(&new, 1), third = rounds(&new, 1), fourth = rounds(&new, 1);
        printf("%s: old data %.3f, new data from its second epoch on: %.3f %.3f %.3f\n", policy ? "epoch" : "auto",
               before, second, third, fourth);
        assert_true(third >= 0.475 && fourth >= 0.475);
        free(old.order);
        free(new.order);
        cache_close(&local);
    }
}

static void a_share_is_the_most_a_volume_holds(void **state)
{
    open_cache(CACHE);
    set(1, STORE_CACHE_AUTO, 25, 0);
    struct job a = job_new(1, 5, CACHE_BLOCKS, 27), b = job_new(2, 4 * CACHE_BLOCKS, CACHE_BLOCKS * 6 / 10, 27);
    rounds(&a, 3);
    rounds(&b, 2);
    double rate_a = rounds(&a, 1), rate_b = rounds(&b, 1);
    uint64_t held = stats(1).held_bytes;
    printf("a share of a quarter: %.3f, holds %.1f MiB; the others %.3f\n", rate_a, (double)held / MIB, rate_b);
    assert_true(held <= CACHE / 4 + CACHE / 64);
    assert_true(rate_a >= 0.225 && rate_b > 0.95);

    set(1, STORE_CACHE_EPOCH, 0, CACHE / 8);
    assert_true(stats(1).held_bytes <= CACHE / 8);
    assert_int_equal(stats(1).bound_bytes, CACHE / 8);
    rounds(&a, 1);
    rate_a = rounds(&a, 1);
    printf("of an eighth: %.3f\n", rate_a);
    assert_true(rate_a >= 0.11);

    set(1, STORE_CACHE_EPOCH, 0, 0);
    set(2, STORE_CACHE_AUTO, 0, MIB);
    assert_true(stats(2).held_bytes <= MIB);
    rounds(&a, 1);
    rate_a = rounds(&a, 1);
    printf("all of it: %.3f\n", rate_a);
    assert_true(rate_a > 0.9);
    free(a.order);
    free(b.order);
    cache_close(&local);
}

static void volumes_share_by_use(void **state)
{
    open_cache(CACHE);
    struct job idle = job_new(1, 5, 2 * CACHE_BLOCKS, 27), busy = job_new(2, 4 * CACHE_BLOCKS, CACHE_BLOCKS * 2, 27);
    rounds(&idle, 4);
    rounds(&busy, 4);
    double rate = rounds(&busy, 1);
    printf("after another's epochs: %.3f; the idle one holds %.1f MiB\n", rate, (double)stats(1).held_bytes / MIB);
    assert_true(rate >= 0.45);
    set(3, STORE_CACHE_AUTO, 0, 0);
    zipf(3, 20 * CACHE_BLOCKS, 2048, 16, 20000);
    double hot = 0, epoch = 0;
    for (unsigned i = 0; i < 3 * busy.count; i++) {
        if (i % busy.count == 0)
            hot = epoch = 0;
        hot += zipf(3, 20 * CACHE_BLOCKS, 2048, 16, 4) / busy.count;
        epoch += job_step(&busy) / (double)busy.piece / busy.count;
    }
    printf("together: skewed reads %.3f, epochs %.3f\n", hot, epoch);
    assert_true(hot > 0.75 && epoch > 0.12);
    cache_forget(local.cache, 2);
    rounds(&idle, 3);
    printf("the deleted one holds %.1f MiB\n", (double)stats(2).held_bytes / MIB);
    assert_true(stats(2).held_bytes < CACHE / 16);
    free(idle.order);
    free(busy.order);
    cache_close(&local);
}

int main(void)
{
    const char *given = getenv("SEED");
    seed = given ? strtoull(given, NULL, 0) : 1;
    printf("SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_policy_hits_its_share_of_the_data),
        cmocka_unit_test(auto_does_as_well_one_epoch_later),
        cmocka_unit_test(lru_does_not),
        cmocka_unit_test(other_sizes_of_data_are_kept_in_proportion),
        cmocka_unit_test(two_jobs_of_one_volume_are_recognised),
        cmocka_unit_test(a_scan_of_another_volume_takes_little),
        cmocka_unit_test(skewed_reads_are_recognised_and_so_are_epochs_again),
        cmocka_unit_test(new_data_takes_the_place_of_old),
        cmocka_unit_test(a_share_is_the_most_a_volume_holds),
        cmocka_unit_test(volumes_share_by_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
