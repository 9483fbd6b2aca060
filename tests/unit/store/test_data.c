/* READ, WRITE and truncation against a file kept in memory. */
#include <fcntl.h>
#include <stdatomic.h>

#include "ops_fixture.h"
#include "sluice/base_metrics.h"

enum { FILE_MOST = 3 << 20, BLOCK = STORE_BLOCK };

static uint64_t seed;

static unsigned below(unsigned limit)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (unsigned)(seed >> 33) % limit;
}

struct model {
    uint8_t *bytes; /* FILE_MOST of them; zeroes past the size */
    uint32_t size;
};

static uint8_t buffer[FILE_MOST];

static void fill(uint8_t *bytes, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(1 + below(255));
}

static uint32_t random_length(void)
{
    switch (below(4)) {
    case 0:
        return below(40);
    case 1:
        return below(3000);
    case 2:
        return below(20000);
    default:
        return below(STORE_IO_MAX + 1);
    }
}

static uint32_t random_offset(const struct model *m)
{
    uint32_t offset = below(3) ? below(m->size + 1) : below(FILE_MOST - STORE_IO_MAX);
    if (below(3) == 0)
        offset = offset / BLOCK * BLOCK;
    if (below(4) == 0)
        offset %= 5000;
    return offset > FILE_MOST - STORE_IO_MAX ? FILE_MOST - STORE_IO_MAX : offset;
}

static void check_read(struct pool *p, const struct store_object *o, const struct model *m,
                       uint32_t offset, uint32_t length)
{
    uint32_t got = 0, want = offset < m->size ? m->size - offset : 0;
    if (want > length)
        want = length;
    assert_int_equal(t_read(p, &root_cred, o, offset, buffer, length, &got), 0);
    assert_int_equal(got, want);
    if (memcmp(buffer, m->bytes + offset, got) != 0) {
        uint32_t i = 0;
        while (buffer[i] == m->bytes[offset + i])
            i++;
        fail_msg("byte %u of a file of %u: %02x, not %02x", offset + i, m->size, buffer[i],
                 m->bytes[offset + i]);
    }
}

static void check_all(struct pool *p, const struct store_object *o, const struct model *m)
{
    for (uint32_t at = 0; at <= m->size; at += STORE_IO_MAX)
        check_read(p, o, m, at, STORE_IO_MAX);
    struct store_attr attr = attr_of(p, o);
    assert_int_equal(attr.size, m->size);
    assert_true(attr.used <= (m->size + BLOCK - 1) / BLOCK * BLOCK);
}

static void step(struct pool *p, const struct store_object *o, struct model *m)
{
    unsigned what = below(20);
    if (what < 9) {
        uint32_t offset = random_offset(m), length = random_length();
        fill(buffer, length);
        memcpy(m->bytes + offset, buffer, length);
        if (length && offset + length > m->size)
            m->size = offset + length;
        assert_int_equal(t_write(p, &root_cred, o, offset, buffer, length), 0);
    } else if (what < 12) {
        uint32_t size = below(4) ? below(m->size + 1) : random_offset(m);
        if (below(3) == 0)
            size %= 2000;
        if (size < m->size)
            memset(m->bytes + size, 0, m->size - size);
        m->size = size;
        assert_int_equal(t_truncate(p, o, size), 0);
    } else if (what < 19) {
        check_read(p, o, m, random_offset(m), random_length());
    } else {
        check_all(p, o, m);
    }
}

static void random_changes_agree_with_a_model(void **state)
{
    struct pool *p = *state;
    enum { FILES = 3 };
    struct model models[FILES];
    struct store_object objects[FILES];
    for (unsigned i = 0; i < FILES; i++) {
        char name[8];
        snprintf(name, sizeof(name), "f%u", i);
        models[i] = (struct model){.bytes = calloc(1, FILE_MOST)};
        objects[i] = made(p, &p->root, name, STORE_REG);
    }
    const char *steps = getenv("STEPS");
    unsigned rounds = steps ? (unsigned)atoi(steps) : 1500;
    for (unsigned i = 1; i <= rounds; i++) {
        unsigned f = below(FILES);
        step(p, &objects[f], &models[f]);
        if (i % 300 == 0) {
            if (below(2))
                settle(p);
            pool_reopen(p);
            for (f = 0; f < FILES; f++)
                check_all(p, &objects[f], &models[f]);
        }
    }
    for (unsigned i = 0; i < FILES; i++)
        free(models[i].bytes);
}

static void holes_read_as_zeroes_up_to_the_largest_size(void **state)
{
    struct pool *p = *state;
    struct store_object o = made(p, &p->root, "sparse", STORE_REG);
    uint64_t end = STORE_FILE_MAX;
    uint8_t bytes[10] = "the end!!", back[5000];
    uint32_t got;
    assert_int_equal(t_write(p, &root_cred, &o, end - 10, bytes, 10), 0);
    assert_int_equal(attr_of(p, &o).size, end);
    assert_int_equal(attr_of(p, &o).used, BLOCK);
    assert_int_equal(t_write(p, &root_cred, &o, end - 9, bytes, 10), -EFBIG);
    assert_int_equal(t_write(p, &root_cred, &o, UINT64_MAX, bytes, 10), -EFBIG);
    assert_int_equal(t_read(p, &root_cred, &o, end - 5000, back, 5000, &got), 0);
    assert_int_equal(got, 5000);
    assert_memory_equal(back + 4990, bytes, 10);
    for (unsigned i = 0; i < 4990; i++)
        assert_int_equal(back[i], 0);
    assert_int_equal(t_read(p, &root_cred, &o, UINT64_C(1) << 50, back, 5000, &got), 0);
    assert_int_equal(got, 5000);
    assert_int_equal(t_read(p, &root_cred, &o, end, back, 5000, &got), 0);
    assert_int_equal(got, 0);
    assert_int_equal(t_truncate(p, &o, 3), 0);
    assert_true(attr_of(p, &o).used < BLOCK);
}

static void tiny_files_count_as_a_block(void **state)
{
    struct pool *p = *state;
    struct store_object o = made(p, &p->root, "tiny", STORE_REG);
    uint8_t bytes[2000], back[8192];
    uint32_t got;
    fill(bytes, sizeof(bytes));
    assert_int_equal(t_write(p, &root_cred, &o, 100, bytes, 1436), 0);
    assert_int_equal(attr_of(p, &o).used, BLOCK);
    assert_int_equal(t_truncate(p, &o, 6000), 0);
    assert_int_equal(attr_of(p, &o).used, BLOCK);
    assert_int_equal(t_read(p, &root_cred, &o, 0, back, 8192, &got), 0);
    assert_int_equal(got, 6000);
    assert_int_equal(back[99], 0);
    assert_memory_equal(back + 100, bytes, 1436);
    assert_int_equal(back[1536], 0);
    /* A block behind its first one: the bytes move into a block of their own. */
    assert_int_equal(t_write(p, &root_cred, &o, 5000, bytes, 10), 0);
    assert_int_equal(attr_of(p, &o).used, 2 * BLOCK);
    assert_int_equal(t_read(p, &root_cred, &o, 0, back, 8192, &got), 0);
    assert_memory_equal(back + 100, bytes, 1436);
    assert_memory_equal(back + 5000, bytes, 10);
    assert_int_equal(back[1536] | back[4999] | back[5010], 0);
}

static void other_objects_are_refused(void **state)
{
    struct pool *p = *state;
    struct store_object link = made(p, &p->root, "link", STORE_LNK),
                        old = made(p, &p->root, "old", STORE_REG);
    uint8_t bytes[10] = {0};
    uint32_t got;
    assert_int_equal(t_write(p, &root_cred, &p->root, 0, bytes, 10), -EISDIR);
    assert_int_equal(t_read(p, &root_cred, &p->root, 0, bytes, 10, &got), -EISDIR);
    assert_int_equal(t_write(p, &root_cred, &link, 0, bytes, 10), -EINVAL);
    assert_int_equal(t_read(p, &root_cred, &link, 0, bytes, 10, &got), -EINVAL);
    assert_int_equal(t_remove(p, &p->root, "old"), 0);
    assert_int_equal(t_write(p, &root_cred, &old, 0, bytes, 10), -ESTALE);
    assert_int_equal(t_read(p, &root_cred, &old, 0, bytes, 10, &got), -ESTALE);
    struct store_object o = made(p, &p->root, "mine", STORE_REG);
    struct store_cred reader = {.uid = 0, .read_only = true};
    assert_int_equal(t_write(p, &reader, &o, 0, bytes, 10), -EROFS);
    assert_int_equal(t_chmod(p, &root_cred, &o, 0600), 0);
    assert_int_equal(t_write(p, &bob, &o, 0, bytes, 10), -EACCES);
    assert_int_equal(t_read(p, &bob, &o, 0, bytes, 10, &got), -EACCES);
    assert_int_equal(t_write(p, &root_cred, &o, 77, bytes, 0), 0);
    assert_int_equal(attr_of(p, &o).size, 0);
}

static void a_volume_has_its_limit(void **state)
{
    struct pool *p = *state;
    uint32_t tree = pool_tree(p, 1 << 20);
    struct store_object root, o;
    assert_int_equal(p->s->ops->root(p->s, tree, &root), 0);
    o = made(p, &root, "f", STORE_REG);
    fill(buffer, STORE_IO_MAX);
    assert_int_equal(t_write(p, &root_cred, &o, 0, buffer, 600000), 0);
    assert_int_not_equal(t_write(p, &root_cred, &o, 600000, buffer, 600000), 0);
    assert_int_equal(attr_of(p, &o).size, 600000);
    /* Written over it takes no more. */
    assert_int_equal(t_write(p, &root_cred, &o, 0, buffer, 600000), 0);
}

static void a_flipped_bit_is_an_error(void **state)
{
    struct pool *p = *state;
    struct store_object o = made(p, &p->root, "damaged", STORE_REG);
    uint32_t got;
    fill(buffer, 64 * BLOCK);
    uint64_t mark = UINT64_C(0x1234567812345678) + seed;
    memcpy(buffer + 20 * BLOCK, &mark, sizeof(mark));
    assert_int_equal(t_write(p, &root_cred, &o, 0, buffer, 64 * BLOCK), 0);
    pool_close(p);
    char command[512];
    uint64_t bad = ~mark;
    bool found = false;
    snprintf(command, sizeof(command), "ls %s/data/*.seg", p->path);
    FILE *list = popen(command, "r");
    char name[256];
    while (list && fgets(name, sizeof(name), list)) {
        name[strcspn(name, "\n")] = 0;
        int fd = open(name, O_RDWR);
        uint64_t there;
        for (off_t at = 0; pread(fd, &there, 8, at) == 8; at += BLOCK) {
            if (there == mark) {
                found = true;
                assert_int_equal(pwrite(fd, &bad, 8, at), 8);
            }
        }
        close(fd);
    }
    if (list)
        pclose(list);
    assert_true(found);
    log_set_level(LOG_LEVEL_ERROR - 1);
    pool_open(p);
    uint64_t before = metric_read(METRIC_crc_errors);
    assert_int_equal(t_read(p, &root_cred, &o, 0, buffer, 64 * BLOCK, &got), -EIO);
    assert_int_equal(got, 0);
    assert_true(metric_read(METRIC_crc_errors) > before);
    assert_int_equal(t_read(p, &root_cred, &o, 20 * BLOCK, buffer, 10, &got), -EIO);
    assert_int_equal(t_write(p, &root_cred, &o, 20 * BLOCK + 5, buffer, 10), -EIO);
    assert_int_equal(t_read(p, &root_cred, &o, 0, buffer, 20 * BLOCK, &got), 0);
    assert_int_equal(t_read(p, &root_cred, &o, 21 * BLOCK, buffer, 43 * BLOCK, &got), 0);
    assert_int_equal(t_write(p, &root_cred, &o, 20 * BLOCK, buffer, BLOCK), 0);
    assert_int_equal(t_read(p, &root_cred, &o, 0, buffer, 64 * BLOCK, &got), 0);
    log_set_level(LOG_LEVEL_WARNING);
}

/* ---- several writers ---- */

enum { WRITERS = 16, EACH = 700, ROUNDS = 20 };

struct crowd {
    struct store *s;
    struct store_object o;
    atomic_uint left, failed, next;
    unsigned stride;
};

static void write_some(void *arg)
{
    struct crowd *crowd = arg;
    unsigned me = atomic_fetch_add(&crowd->next, 1);
    uint8_t bytes[EACH];
    struct store_wcc wcc;
    for (unsigned round = 1; round <= ROUNDS; round++) {
        memset(bytes, (int)(me * 10 + round % 10 + 1), EACH);
        if (crowd->s->ops->write(crowd->s, &root_cred, &crowd->o, (uint64_t)me * crowd->stride,
                                 bytes, EACH, &wcc))
            atomic_fetch_add(&crowd->failed, 1);
    }
    atomic_fetch_sub(&crowd->left, 1);
}

static void run_crowd(struct pool *p, const char *name, unsigned stride, uint64_t first_size)
{
    struct crowd crowd = {.s = p->s, .left = WRITERS, .stride = stride};
    crowd.o = made(p, &p->root, name, STORE_REG);
    assert_int_equal(t_truncate(p, &crowd.o, first_size), 0);
    for (unsigned i = 0; i < WRITERS; i++)
        assert_int_equal(worker_spawn(worker_at(i % workers_count()), write_some, &crowd), 0);
    while (atomic_load(&crowd.left))
        usleep(1000);
    assert_int_equal(atomic_load(&crowd.failed), 0);
    uint32_t got;
    for (unsigned pass = 0; pass < 2; pass++) {
        assert_int_equal(t_read(p, &root_cred, &crowd.o, 0, buffer, STORE_IO_MAX, &got), 0);
        for (unsigned me = 0; me < WRITERS; me++) {
            for (unsigned i = 0; i < EACH; i++)
                assert_int_equal(buffer[me * stride + i], (uint8_t)(me * 10 + ROUNDS % 10 + 1));
        }
        pool_reopen(p);
    }
}

static void writers_of_one_block_do_not_lose_bytes(void **state)
{
    run_crowd(*state, "dense", EACH, 0);
    run_crowd(*state, "dense2", EACH, 200000);
    run_crowd(*state, "wide", 5000, 0);
}

struct churn {
    struct store *s;
    struct store_object o;
    atomic_bool stop;
    atomic_uint running, bad;
    _Atomic uint64_t seed;
};

/* Every block of the file holds one byte value throughout, or is zero behind the end. */
static void churn_write(void *arg)
{
    struct churn *c = arg;
    uint8_t *bytes = malloc(64 * BLOCK);
    uint64_t mine = atomic_fetch_add(&c->seed, 77777);
    struct store_wcc wcc;
    for (unsigned i = 0; i < 300; i++) {
        mine = mine * UINT64_C(6364136223846793005) + 1442695040888963407u;
        unsigned block = (unsigned)(mine >> 33) % 200, count = 1 + (unsigned)(mine >> 50) % 64;
        memset(bytes, 1 + (int)(mine >> 40) % 255, (size_t)count * BLOCK);
        if (c->s->ops->write(c->s, &root_cred, &c->o, (uint64_t)block * BLOCK, bytes, count * BLOCK,
                             &wcc))
            atomic_fetch_add(&c->bad, 1);
    }
    free(bytes);
    atomic_fetch_sub(&c->running, 1);
}

static void churn_read(void *arg)
{
    struct churn *c = arg;
    while (!atomic_load(&c->stop)) {
        struct slice_list list;
        struct store_attr attr;
        bool eof;
        slices_init(&list);
        if (c->s->ops->read(c->s, &root_cred, &c->o, 0, STORE_IO_MAX, &list, &eof, &attr))
            atomic_fetch_add(&c->bad, 1);
        for (uint32_t i = 0; i < list.count; i++) {
            const struct slice *s = &list.at[i];
            for (uint32_t b = 0; b + BLOCK <= s->length; b += BLOCK) {
                if (s->data[b] != s->data[b + BLOCK - 1] || s->data[b] != s->data[b + BLOCK / 2])
                    atomic_fetch_add(&c->bad, 1);
            }
        }
        slices_clear(&list);
        coro_yield();
    }
    atomic_fetch_sub(&c->running, 1);
}

static void readers_see_whole_writes_while_blocks_are_freed(void **state)
{
    struct pool *p = *state;
    struct churn c = {.s = p->s, .seed = seed, .running = 8};
    c.o = made(p, &p->root, "churn", STORE_REG);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(worker_spawn(worker_at(i % workers_count()), churn_write, &c), 0);
        assert_int_equal(worker_spawn(worker_at(i % workers_count()), churn_read, &c), 0);
    }
    while (atomic_load(&c.running) > 4)
        usleep(1000);
    atomic_store(&c.stop, true);
    while (atomic_load(&c.running))
        usleep(1000);
    assert_int_equal(atomic_load(&c.bad), 0);
}

static void emptied_segments_are_removed(void **state)
{
    struct pool *p = *state;
    struct store_status status;
    struct store_object o = made(p, &p->root, "big", STORE_REG);
    fill(buffer, STORE_IO_MAX);
    for (unsigned i = 0; i < 200; i++)
        assert_int_equal(
            t_write(p, &root_cred, &o, (uint64_t)i * STORE_IO_MAX, buffer, STORE_IO_MAX), 0);
    p->s->ops->status(p->s, &status);
    uint64_t full = status.segments;
    assert_true(full >= 3);
    assert_int_equal(t_remove(p, &p->root, "big"), 0);
    settle(p);
    p->s->ops->status(p->s, &status);
    assert_true(status.segments < full);
    pool_reopen(p);
    o = made(p, &p->root, "after", STORE_REG);
    assert_int_equal(t_write(p, &root_cred, &o, 0, buffer, STORE_IO_MAX), 0);
}

static int tests(void)
{
    const struct CMUnitTest list[] = {
        cmocka_unit_test_setup_teardown(random_changes_agree_with_a_model, pool_setup,
                                        pool_teardown),
        cmocka_unit_test_setup_teardown(holes_read_as_zeroes_up_to_the_largest_size, pool_setup,
                                        pool_teardown),
        cmocka_unit_test_setup_teardown(tiny_files_count_as_a_block, pool_setup, pool_teardown),
        cmocka_unit_test_setup_teardown(other_objects_are_refused, pool_setup, pool_teardown),
        cmocka_unit_test_setup_teardown(a_volume_has_its_limit, pool_setup, pool_teardown),
        cmocka_unit_test_setup_teardown(a_flipped_bit_is_an_error, pool_setup, pool_teardown),
        cmocka_unit_test_setup_teardown(writers_of_one_block_do_not_lose_bytes, pool_setup,
                                        pool_teardown),
        cmocka_unit_test_setup_teardown(readers_see_whole_writes_while_blocks_are_freed, pool_setup,
                                        pool_teardown),
        cmocka_unit_test_setup_teardown(emptied_segments_are_removed, pool_setup, pool_teardown),
    };
    return cmocka_run_group_tests(list, NULL, NULL);
}

int main(void)
{
    const char *given = getenv("SEED");
    seed = given ? strtoull(given, NULL, 0) : 1;
    printf("SEED=%llu\n", (unsigned long long)seed);
    return run_with_workers(tests);
}
