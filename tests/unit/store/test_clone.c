/* CLONE and COPY of ranges: whatever is cloned, copied, written and cut, each file reads as the array of bytes that it
 * stands for, counts are right, what could be shared takes no space, and a clone is all there or not at all. */
#include <pthread.h>

#include "audit.h"
#include "copy_fixture.h"
#include "snapshot_fixture.h"

enum { FILE_MOST = 5 << 19, FILES = 5, ROUNDS = 900, BLOCK = STORE_BLOCK, CHUNK = STORE_CHUNK };

struct file {
    struct store_object o;
    uint8_t *bytes;
    uint64_t size;
};

static struct pool *pool;
static struct file files[FILES + 1]; /* the last is of a snapshot */
static uint8_t *got;
static unsigned seed;

static uint64_t rnd(uint64_t below)
{
    return (uint64_t)rand_r(&seed) % below;
}

static void compare(const struct file *f)
{
    uint32_t count;
    for (uint64_t at = 0; at < f->size; at += count) {
        assert_int_equal(t_read(pool, &root_cred, &f->o, at, got + at, STORE_IO_MAX, &count), 0);
        assert_true(count > 0);
    }
    assert_int_equal(attr_of(pool, &f->o).size, f->size);
    assert_memory_equal(got, f->bytes, f->size);
}

static uint64_t blocks_live(void)
{
    struct seg_store *st = local_of(pool->s)->segs;
    uint64_t live = 0;
    for (unsigned i = 0; i < st->table->count; i++)
        live += atomic_load(&st->table->at[i]->live);
    return live;
}

static void do_write(struct file *f)
{
    uint64_t most = rnd(3) ? FILE_MOST : 6000, offset = rnd(most), length = 1 + rnd(rnd(2) ? 9000 : 500000);
    if (rnd(5) == 0)
        offset = 0, length = 1 + rnd(1500);
    if (length > FILE_MOST - offset)
        length = FILE_MOST - offset;
    for (uint64_t i = 0; i < length; i++)
        f->bytes[offset + i] = (uint8_t)(rand_r(&seed) >> 8);
    assert_int_equal(t_write(pool, &root_cred, &f->o, offset, f->bytes + offset, (uint32_t)length), 0);
    f->size = offset + length > f->size ? offset + length : f->size;
}

static void do_truncate(struct file *f)
{
    uint64_t size = rnd(3) ? rnd(FILE_MOST) : rnd(2) ? rnd(5000) : 0;
    assert_int_equal(t_truncate(pool, &f->o, size), 0);
    memset(f->bytes + size, 0, FILE_MOST - size);
    f->size = size;
}

/* A range of `from` that fits into a file, and where it may go. */
static bool choose(const struct file *from, const struct file *to, uint64_t unit, uint64_t *a, uint64_t *b, uint64_t *length)
{
    *a = rnd(2) ? 0 : rnd(from->size + 1) / unit * unit;
    *b = rnd(2) ? *a : rnd(3) ? rnd(FILE_MOST) / unit * unit : to->size / unit * unit;
    *length = rnd(2) ? from->size - *a : rnd(from->size - *a + 1) / unit * unit;
    if (*length > FILE_MOST - *b)
        *length = (FILE_MOST - *b) / unit * unit;
    bool overlap = from == to && *a < *b + *length && *b < *a + *length;
    return *length && !overlap;
}

static void do_clone(struct file *from, struct file *to)
{
    uint64_t a, b, length;
    if (!choose(from, to, BLOCK, &a, &b, &length))
        return;
    bool whole = length % BLOCK == 0 || a + length == from->size;
    int rc = t_clone_range(pool, &from->o, a, &to->o, b, length);
    assert_int_equal(rc, whole ? 0 : -EINVAL);
    if (rc)
        return;
    memmove(to->bytes + b, from->bytes + a, length);
    memset(to->bytes + b + length, 0, (BLOCK - length % BLOCK) % BLOCK);
    to->size = b + length > to->size ? b + length : to->size;
}

static void do_copy(struct file *from, struct file *to)
{
    uint64_t a, b, length;
    if (!choose(from, to, rnd(2) ? 1 : rnd(2) ? BLOCK : 512, &a, &b, &length))
        return;
    assert_int_equal(t_copy(pool, &from->o, a, &to->o, b, length), 0);
    memmove(to->bytes + b, from->bytes + a, length);
    to->size = b + length > to->size ? b + length : to->size;
}

static void do_snapshot(void)
{
    struct file *f = &files[FILES], *from = &files[rnd(2)];
    if (f->o.tree)
        assert_int_equal(t_tree_delete(pool, f->o.tree), 0);
    uint32_t snapshot = t_snapshot(pool, pool->tree);
    memcpy(f->bytes, from->bytes, FILE_MOST);
    f->size = from->size;
    f->o = in_tree(&from->o, snapshot);
}

static void do_any(void)
{
    struct file *to = &files[rnd(FILES)], *from = &files[rnd(FILES + 1)];
    switch (rnd(8)) {
    case 0:
    case 1: do_write(to); break;
    case 2: do_truncate(to); break;
    case 3: do_copy(from, to); break;
    case 4: if (rnd(4) == 0) do_snapshot(); break;
    default: do_clone(from, to);
    }
}

static void begin(struct pool *p, unsigned share_most)
{
    pool = p;
    local_of(p->s)->share_most = share_most;
    local_of(p->s)->segs->worth_least = 64 << 10;
    uint32_t other = pool_tree(p, 0);
    struct store_object root = root_of(p, other);
    got = calloc(1, FILE_MOST + STORE_IO_MAX);
    for (unsigned i = 0; i <= FILES; i++)
        files[i] = (struct file){.bytes = calloc(1, FILE_MOST + BLOCK)};
    for (unsigned i = 0; i < FILES; i++) /* two of them in another volume */
        files[i].o = made(p, i < 3 ? &p->root : &root, (char[]){(char)('a' + i), 0}, STORE_REG);
}

static void end(void)
{
    for (unsigned i = 0; i <= FILES; i++)
        free(files[i].bytes);
    free(got);
}

static void any_history(struct pool *p, unsigned share_most, unsigned with)
{
    begin(p, share_most);
    seed = getenv("SEED") ? (unsigned)atoi(getenv("SEED")) : with;
    do_snapshot();
    for (unsigned i = 1; i <= ROUNDS; i++) {
        do_any();
        if (i % 10 == 0)
            compare(&files[rnd(FILES + 1)]);
        if (i % 150 == 0) {
            for (unsigned f = 0; f <= FILES; f++)
                compare(&files[f]);
            audit(p);
        }
    }
    assert_true(metric_read(METRIC_blocks_shared) > 0);
    end();
}

static void any_history_reads_as_its_bytes(void **state)
{
    any_history(*state, STORE_CLONE_ONCE / CHUNK, 3);
}

static void and_so_in_small_steps(void **state)
{
    any_history(*state, 2, 5);
}

static void a_clone_takes_no_space(void **state)
{
    begin(*state, STORE_CLONE_ONCE / CHUNK);
    struct file *from = &files[0], *to = &files[1];
    from->size = FILE_MOST - 3 * BLOCK / 2;
    memset(from->bytes, 7, from->size);
    for (uint64_t at = 0; at < from->size; at += CHUNK)
        assert_int_equal(t_write(pool, &root_cred, &from->o, at, from->bytes + at,
                                 (uint32_t)(from->size - at < CHUNK ? from->size - at : CHUNK)), 0);
    uint64_t before = blocks_live();
    assert_int_equal(t_clone_range(pool, &from->o, 0, &to->o, 0, from->size), 0);
    assert_int_equal(t_copy(pool, &from->o, 0, &files[3].o, 0, from->size), 0); /* in another volume */
    assert_int_equal(t_copy(pool, &from->o, 5, &files[4].o, 5 + CHUNK, CHUNK), 0);
    assert_true(blocks_live() <= before + 3); /* the copy's edges */
    assert_int_equal(attr_of(pool, &to->o).used, attr_of(pool, &from->o).used);
    to->size = from->size;
    memcpy(to->bytes, from->bytes, from->size);
    memset(to->bytes + 100, 9, 10);
    assert_int_equal(t_write(pool, &root_cred, &to->o, 100, to->bytes + 100, 10), 0);
    assert_true(blocks_live() <= before + 4);
    compare(from);
    compare(to);
    audit(pool);
    assert_int_equal(t_remove_as(pool, &root_cred, &pool->root, "a", false, NULL), 0);
    settle(pool);
    compare(to);
    audit(pool);
    end();
}

static void holes_stay_holes(void **state)
{
    begin(*state, STORE_CLONE_ONCE / CHUNK);
    const uint64_t far = UINT64_C(1) << 45;
    struct store_object *a = &files[0].o, *b = &files[1].o, *c = &files[2].o;
    uint8_t block[BLOCK];
    memset(block, 3, BLOCK);
    assert_int_equal(t_write(pool, &root_cred, a, 0, block, BLOCK), 0);
    assert_int_equal(t_write(pool, &root_cred, a, far, block, BLOCK), 0);
    assert_int_equal(t_write(pool, &root_cred, b, BLOCK, block, BLOCK), 0); /* is to be a hole */
    assert_int_equal(t_clone_range(pool, a, 0, b, 0, far + BLOCK), 0);
    assert_int_equal(attr_of(pool, b).used, 2 * BLOCK);
    assert_int_equal(t_copy(pool, a, 1, c, 0, far + BLOCK - 1), 0);
    assert_true(attr_of(pool, c).used <= 4 * BLOCK);
    assert_int_equal(attr_of(pool, c).size, far + BLOCK - 1);
    audit(pool);
    end();
}

static void what_is_refused(void **state)
{
    begin(*state, STORE_CLONE_ONCE / CHUNK);
    struct store_object *a = &files[0].o, *b = &files[1].o, d = made(pool, &pool->root, "d", STORE_DIR);
    struct store_wcc wcc;
    uint8_t *bytes = calloc(1, 3 * BLOCK);
    assert_int_equal(t_write(pool, &root_cred, a, 0, bytes, 3 * BLOCK - 5), 0);
    assert_int_equal(t_clone_range(pool, a, 1, b, 0, BLOCK), -EINVAL);
    assert_int_equal(t_clone_range(pool, a, 0, b, 512, BLOCK), -EINVAL);
    assert_int_equal(t_clone_range(pool, a, 0, b, 0, BLOCK + 1), -EINVAL);
    assert_int_equal(t_clone_range(pool, a, BLOCK, b, 0, 2 * BLOCK), -EINVAL); /* past its end */
    assert_int_equal(t_clone_range(pool, a, 0, &d, 0, BLOCK), -EISDIR);
    assert_int_equal(t_clone_range(pool, &d, 0, b, 0, BLOCK), -EISDIR);
    assert_int_equal(t_clone_range(pool, a, 0, b, (STORE_FILE_MAX - 1) / BLOCK * BLOCK, 2 * BLOCK), -EFBIG);
    assert_int_equal(t_chmod(pool, &root_cred, a, 0600), 0);
    struct store_copy copy = {*a, *b, 0, 0, BLOCK, &alice, &root_cred};
    assert_int_equal(call(pool, (struct call){.run = call_clone_range, .arg = &copy, .wcc = &wcc}), -EACCES);
    assert_int_equal(attr_of(pool, b).size, 0);
    free(bytes);
    end();
}

static void a_full_volume_takes_none_of_it(void **state)
{
    begin(*state, 2);
    struct store_object root = root_of(pool, pool_tree(pool, 6 * CHUNK));
    struct store_object from = made(pool, &root, "from", STORE_REG), to = made(pool, &root, "to", STORE_REG);
    uint8_t *bytes = calloc(1, CHUNK);
    memset(bytes, 5, CHUNK);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(t_write(pool, &root_cred, &from, i * CHUNK, bytes, CHUNK), 0);
    assert_int_equal(t_clone_range(pool, &from, 0, &to, 0, 4 * CHUNK), -ENOSPC);
    settle(pool);
    assert_int_equal(attr_of(pool, &to).size, 0);
    assert_true(attr_of(pool, &to).used == 0);
    assert_int_equal(t_clone_range(pool, &from, 0, &to, 0, 2 * CHUNK), 0); /* exactly */
    assert_int_equal(t_clone_range(pool, &from, 0, &to, 2 * CHUNK, BLOCK), -ENOSPC);
    audit(pool);
    free(bytes);
    end();
}

/* ---- all of it or nothing ---- */

enum { LONG = 200 /* chunks, one block in each */ };

struct reader {
    pthread_t thread;
    atomic_bool stop;
    unsigned looks, in_part;
};

static void *look(void *arg)
{
    struct reader *r = arg;
    while (!atomic_load(&r->stop)) {
        uint8_t byte;
        uint32_t count;
        uint64_t size = attr_of(pool, &files[1].o).size;
        r->in_part += size && size != LONG * (uint64_t)CHUNK;
        if (!size)
            continue;
        assert_int_equal(t_read(pool, &root_cred, &files[1].o, (LONG - 1) * (uint64_t)CHUNK, &byte, 1, &count), 0);
        r->in_part += count == 1 && byte != 1; /* 0: it has been cut again */
        r->looks++;
    }
    return NULL;
}

static void make_long(void)
{
    uint8_t block[BLOCK];
    memset(block, 1, BLOCK);
    for (uint64_t i = 0; i < LONG; i++)
        assert_int_equal(t_write(pool, &root_cred, &files[0].o, i * CHUNK, block, BLOCK), 0);
    assert_int_equal(t_truncate(pool, &files[0].o, LONG * (uint64_t)CHUNK), 0);
}

static void nobody_sees_part_of_a_clone(void **state)
{
    begin(*state, 2);
    make_long();
    struct reader r = {.looks = 0};
    assert_int_equal(pthread_create(&r.thread, NULL, look, &r), 0);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(t_clone_range(pool, &files[0].o, 0, &files[1].o, 0, LONG * (uint64_t)CHUNK), 0);
        unsigned looks = *(volatile unsigned *)&r.looks;
        while (*(volatile unsigned *)&r.looks == looks)
            ;
        assert_int_equal(t_truncate(pool, &files[1].o, 0), 0); /* leaves a cut for the next to come after */
    }
    atomic_store(&r.stop, true);
    pthread_join(r.thread, NULL);
    assert_int_equal(r.in_part, 0);
    audit(pool);
    end();
}

struct meddler {
    pthread_t thread;
    atomic_bool stop;
    unsigned seed, done;
};

/* Cuts, extends and writes where a clone is being prepared. */
static void *meddle(void *arg)
{
    struct meddler *m = arg;
    uint8_t block[BLOCK];
    memset(block, 2, BLOCK);
    while (!atomic_load(&m->stop)) {
        uint64_t at = (uint64_t)rand_r(&m->seed) % LONG * CHUNK + 8 * BLOCK;
        int rc = rand_r(&m->seed) % 3 ? t_write(pool, &root_cred, &files[1].o, at, block, BLOCK)
                                      : t_truncate(pool, &files[1].o, at);
        assert_int_equal(rc, 0);
        m->done++;
    }
    return NULL;
}

static void who_writes_meanwhile_keeps_what_he_wrote(void **state)
{
    begin(*state, 2);
    make_long();
    for (unsigned i = 0; i < 6; i++) {
        struct meddler m = {.seed = i};
        uint8_t bytes[16];
        uint32_t count;
        assert_int_equal(t_truncate(pool, &files[1].o, 0), 0);
        assert_int_equal(pthread_create(&m.thread, NULL, meddle, &m), 0);
        assert_int_equal(t_clone_range(pool, &files[0].o, 0, &files[1].o, 0, LONG * (uint64_t)CHUNK), 0);
        atomic_store(&m.stop, true);
        pthread_join(m.thread, NULL);
        /* What is there is one's or the other's, wherever the file goes on. */
        uint64_t size = attr_of(pool, &files[1].o).size;
        for (uint64_t at = 8 * BLOCK; at < size; at += CHUNK) {
            assert_int_equal(t_read(pool, &root_cred, &files[1].o, at, bytes, 16, &count), 0);
            assert_true(count == 0 || bytes[0] == 0 || bytes[0] == 2);
        }
        audit(pool);
    }
    end();
}

/* Also by a server that finds it after a crash: it is the reaper's work, as behind any cut (tests/crash). */
static void what_was_prepared_is_taken_away(void **state)
{
    begin(*state, 2);
    make_long();
    struct store_object root = root_of(pool, pool_tree(pool, 50 * BLOCK));
    struct store_object to = made(pool, &root, "to", STORE_REG);
    uint64_t before = blocks_live();
    assert_int_equal(t_copy(pool, &files[0].o, 0, &to, 0, BLOCK), 0);
    assert_int_equal(t_truncate(pool, &to, 0), 0);
    assert_int_equal(t_clone_range(pool, &files[0].o, 0, &to, 0, LONG * (uint64_t)CHUNK), -ENOSPC);
    settle(pool);
    assert_int_equal(attr_of(pool, &to).used, 0);
    assert_int_equal(attr_of(pool, &to).size, 0);
    assert_true(blocks_live() <= before);
    assert_int_equal(t_truncate(pool, &to, LONG * (uint64_t)CHUNK), 0);
    uint8_t byte = 9;
    uint32_t count;
    assert_int_equal(t_read(pool, &root_cred, &to, 3 * CHUNK, &byte, 1, &count), 0);
    assert_true(count == 1 && byte == 0);
    audit(pool);
    end();
}

static int tests(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, pool_setup_in_memory, pool_teardown)
    const struct CMUnitTest all[] = {
        TEST(any_history_reads_as_its_bytes),
        TEST(and_so_in_small_steps),
        TEST(a_clone_takes_no_space),
        TEST(holes_stay_holes),
        TEST(what_is_refused),
        TEST(a_full_volume_takes_none_of_it),
        TEST(nobody_sees_part_of_a_clone),
        TEST(who_writes_meanwhile_keeps_what_he_wrote),
        TEST(what_was_prepared_is_taken_away),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(void)
{
    return run_with_workers(tests);
}
