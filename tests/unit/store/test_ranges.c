/* Ranges without bytes: whatever is written, punched, cut and extended, a file reads as the array of bytes that it stands
 * for, nothing but zeroes lies in what seek calls a hole, and what is punched gives its space back. */
#include "audit.h"

enum { FILE_MOST = 3 << 20, ROUNDS = 400, BLOCK = STORE_BLOCK };

struct model {
    struct pool *p;
    struct store_object o;
    uint8_t *bytes, *got;
    uint64_t size;
};

static int call_punch(struct call *k)
{
    return k->s->ops->punch(k->s, k->c, k->o, k->offset, k->length, k->wcc);
}

static int call_extend(struct call *k)
{
    return k->s->ops->extend(k->s, k->c, k->o, k->offset, k->wcc);
}

static int call_seek(struct call *k)
{
    return k->s->ops->seek(k->s, k->c, k->o, k->offset, k->flag, k->arg);
}

static int t_punch(struct pool *p, const struct store_cred *c, const struct store_object *o, uint64_t offset,
                   uint32_t length)
{
    struct store_wcc wcc;
    return call(p, (struct call){.run = call_punch, .c = c, .o = o, .offset = offset, .length = length, .wcc = &wcc});
}

static int t_extend(struct pool *p, const struct store_object *o, uint64_t size)
{
    struct store_wcc wcc;
    return call(p, (struct call){.run = call_extend, .c = &root_cred, .o = o, .offset = size, .wcc = &wcc});
}

static int t_seek(struct pool *p, const struct store_object *o, uint64_t offset, bool data, uint64_t *found)
{
    return call(p, (struct call){.run = call_seek, .c = &root_cred, .o = o, .offset = offset, .flag = data, .arg = found});
}

static void compare(struct model *m)
{
    uint32_t got;
    for (uint64_t at = 0; at < m->size; at += got) {
        assert_int_equal(t_read(m->p, &root_cred, &m->o, at, m->got + at, STORE_IO_MAX, &got), 0);
        assert_true(got > 0);
    }
    assert_memory_equal(m->got, m->bytes, m->size);
    assert_int_equal(attr_of(m->p, &m->o).size, m->size);
}

static bool is_zero(const uint8_t *bytes, uint64_t length)
{
    return length == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0);
}

/* Data and holes take turns to the end, and holes are empty. */
static void walk(struct model *m)
{
    uint64_t at = 0, data, hole;
    while (at < m->size) {
        int rc = t_seek(m->p, &m->o, at, true, &data);
        if (rc == -ENXIO)
            data = m->size;
        else
            assert_int_equal(rc, 0);
        assert_true(data >= at && is_zero(m->bytes + at, data - at));
        if (data == m->size)
            break;
        assert_int_equal(t_seek(m->p, &m->o, data, false, &hole), 0);
        assert_true(hole > data && hole <= m->size);
        at = hole;
    }
    assert_int_equal(t_seek(m->p, &m->o, m->size, true, &data), -ENXIO);
    assert_int_equal(t_seek(m->p, &m->o, m->size, false, &data), -ENXIO);
}

static void change(struct model *m, unsigned *seed)
{
    unsigned most = rand_r(seed) % 4 ? FILE_MOST : 6000;
    uint64_t offset = (uint64_t)rand_r(seed) % most;
    uint32_t length = (uint32_t)rand_r(seed) % (rand_r(seed) % 2 ? 9000 : 700000) + 1;
    if (rand_r(seed) % 3 == 0) {
        offset = offset / BLOCK * BLOCK;
        length = (length + BLOCK - 1) / BLOCK * BLOCK;
    }
    if (offset + length > FILE_MOST)
        length = (uint32_t)(FILE_MOST - offset);
    switch (rand_r(seed) % 6) {
    case 0:
    case 1:
        memset(m->bytes + offset, 1 + rand_r(seed) % 255, length);
        assert_int_equal(t_write(m->p, &root_cred, &m->o, offset, m->bytes + offset, length), 0);
        if (offset + length > m->size)
            m->size = offset + length;
        break;
    case 2:
        assert_int_equal(t_extend(m->p, &m->o, offset), 0);
        if (offset > m->size)
            m->size = offset;
        break;
    case 3:
        assert_int_equal(t_truncate(m->p, &m->o, offset), 0);
        memset(m->bytes + offset, 0, FILE_MOST - offset);
        m->size = offset;
        break;
    default:
        assert_int_equal(t_punch(m->p, &root_cred, &m->o, offset, length), 0);
        memset(m->bytes + offset, 0, length);
    }
}

static void any_history_reads_as_its_bytes(void **state)
{
    struct pool *p = *state;
    struct model m = {.p = p, .o = made(p, &p->root, "f", STORE_REG), .bytes = calloc(1, FILE_MOST),
                      .got = calloc(1, FILE_MOST)};
    unsigned seed = 7;
    assert_true(m.bytes && m.got);
    for (unsigned i = 0; i < ROUNDS; i++) {
        change(&m, &seed);
        if (i % 8 == 0) {
            compare(&m);
            walk(&m);
        }
    }
    compare(&m);
    audit(p);
    free(m.bytes);
    free(m.got);
}

static void a_punched_file_holds_no_space(void **state)
{
    struct pool *p = *state;
    struct store_object o = made(p, &p->root, "f", STORE_REG), small = made(p, &p->root, "s", STORE_REG);
    uint8_t *bytes = malloc(STORE_IO_MAX);
    uint32_t got;
    memset(bytes, 7, STORE_IO_MAX);
    for (uint64_t at = 0; at < 4; at++)
        assert_int_equal(t_write(p, &root_cred, &o, at * STORE_IO_MAX, bytes, STORE_IO_MAX), 0);
    assert_int_equal(attr_of(p, &o).used, 4 << 20);
    assert_int_equal(t_punch(p, &root_cred, &o, 1 << 20, 2 << 20), 0);
    assert_int_equal(attr_of(p, &o).used, 2 << 20);
    assert_int_equal(attr_of(p, &o).size, 4 << 20);
    assert_int_equal(t_punch(p, &root_cred, &o, 0, UINT32_MAX), 0);
    assert_true(attr_of(p, &o).used <= INLINE_MAX); /* never 0 where there are bytes */
    assert_int_equal(t_write(p, &root_cred, &small, 0, bytes, 100), 0);
    assert_int_equal(t_truncate(p, &small, 1 << 20), 0);
    assert_int_equal(t_punch(p, &root_cred, &small, 0, 1 << 20), 0);
    assert_true(attr_of(p, &small).used <= INLINE_MAX);
    assert_int_equal(t_read(p, &root_cred, &small, 0, bytes, 200, &got), 0);
    assert_true(got == 200 && is_zero(bytes, got));
    free(bytes);
}

static void only_who_may_write_may_punch(void **state)
{
    struct pool *p = *state;
    struct store_object o = made(p, &p->root, "f", STORE_REG), d = made(p, &p->root, "d", STORE_DIR);
    uint64_t found;
    assert_int_equal(t_write(p, &root_cred, &o, 0, "x", 1), 0);
    assert_int_equal(t_chmod(p, &root_cred, &o, 0644), 0);
    assert_int_equal(t_punch(p, &alice, &o, 0, 1), -EACCES);
    assert_int_equal(t_punch(p, &root_cred, &d, 0, 1), -EISDIR);
    assert_int_equal(t_seek(p, &d, 0, true, &found), -EISDIR);
    assert_int_equal(t_extend(p, &o, UINT64_MAX), -EFBIG);
}

static int tests(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, pool_setup, pool_teardown)
    const struct CMUnitTest all[] = {
        TEST(any_history_reads_as_its_bytes),
        TEST(a_punched_file_holds_no_space),
        TEST(only_who_may_write_may_punch),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(void)
{
    return run_with_workers(tests);
}
