/* Commits and syncs that fail: what is handed out, what is taken back, what must not be used afterwards. */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

#include "audit.h"
#include "meta_faults.h"

#include "store/local/writer.h"

/* What the map of the metadata shows cannot be read: 1: by mdb_env_info(), 2: by mdb_dbi_open(). */
static atomic_int disk_is_bad;

/* What LMDB had just allocated when SIGBUS took it out of a call is lost. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:mdb_txn_begin";
}

static struct sigaction bus_handler;

static void meet_bad_disk(void)
{
    char path[] = "/tmp/sluice-empty-XXXXXX";
    int fd = mkstemp(path);
    unlink(path);
    volatile char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    (void)*map; /* past the end of the file: SIGBUS, as with an I/O error */
}

int mdb_env_info(MDB_env *env, MDB_envinfo *info)
{
    static int (*real)(MDB_env *, MDB_envinfo *);
    if (!real)
        real = (int (*)(MDB_env *, MDB_envinfo *))dlsym(RTLD_NEXT, "mdb_env_info");
    if (atomic_load(&disk_is_bad) == 1)
        meet_bad_disk();
    return real(env, info);
}

int mdb_dbi_open(MDB_txn *txn, const char *name, unsigned flags, MDB_dbi *dbi)
{
    static int (*real)(MDB_txn *, const char *, unsigned, MDB_dbi *);
    if (!real)
        real = (int (*)(MDB_txn *, const char *, unsigned, MDB_dbi *))dlsym(RTLD_NEXT, "mdb_dbi_open");
    if (atomic_load(&disk_is_bad) == 2)
        meet_bad_disk();
    return real(txn, name, flags, dbi);
}

static atomic_bool disk_is_small; /* 10 GiB, of which a twentieth is free: every hole is worth having */

int fstatvfs(int fd, struct statvfs *info)
{
    static int (*real)(int, struct statvfs *);
    if (!real)
        real = (int (*)(int, struct statvfs *))dlsym(RTLD_NEXT, "fstatvfs");
    int rc = real(fd, info);
    if (atomic_load(&disk_is_small)) {
        info->f_frsize = STORE_BLOCK;
        info->f_blocks = 10 << 18;
        info->f_bavail = info->f_blocks / 20;
    }
    return rc;
}

static void wait_thawed(struct pool *p)
{
    for (int i = 0; i < 200 && atomic_load(&local_of(p->s)->frozen); i++)
        usleep(50000);
    assert_false(atomic_load(&local_of(p->s)->frozen));
}

/* ---- what is handed out ---- */

static void assert_present(struct pool *p, const struct store_object *o, const struct store_wcc *wcc)
{
    struct store_attr now = attr_of(p, o);
    if (wcc->has_after) {
        assert_int_equal(wcc->after.size, now.size);
        assert_int_equal(wcc->after.change, now.change);
    }
    if (wcc->has_before)
        assert_int_equal(wcc->before_change, now.change);
}

static void attributes_of_a_write_that_failed_are_not_handed_out(void **state)
{
    struct pool *p = *state;
    struct store_object o = made(p, &p->root, "f", STORE_REG);
    static uint8_t bytes[10000] = {1};
    for (unsigned length = 100; length <= sizeof(bytes); length += 9900) {
        struct store_wcc wcc;
        atomic_store(&commit_fault, EIO);
        atomic_store(&commit_fault_count, 1);
        int rc = call(p, (struct call){.run = call_write,
                                       .c = &root_cred,
                                       .o = &o,
                                       .bytes = bytes,
                                       .length = length,
                                       .wcc = &wcc});
        assert_int_equal(rc, -EIO);
        assert_present(p, &o, &wcc);
        wait_thawed(p);
    }
    audit(p);
}

struct pair {
    struct pool *p;
    struct store_wcc wcc;
    int first, second;
    atomic_int left;
};

static void make_first(void *arg)
{
    struct pair *pair = arg;
    struct store_make how = {.type = STORE_REG, .how = STORE_MAKE_GUARDED};
    struct store_object o;
    struct store_attr attr;
    struct store_wcc wcc;
    pair->first = pair->p->s->ops->make(pair->p->s, &root_cred, &pair->p->root, named("x"), &how, &o, &attr, &wcc);
    atomic_fetch_sub(&pair->left, 1);
}

static void make_second(void *arg)
{
    struct pair *pair = arg;
    struct store_make how = {.type = STORE_REG, .how = STORE_MAKE_GUARDED};
    struct store_object o;
    struct store_attr attr;
    pair->second =
        pair->p->s->ops->make(pair->p->s, &root_cred, &pair->p->root, named("x"), &how, &o, &attr, &pair->wcc);
    atomic_fetch_sub(&pair->left, 1);
}

static int hold(struct mutation *m, struct meta_txn *t)
{
    usleep(100000); /* so that what is queued meanwhile makes one group */
    return SL_EREFUSED;
}

static void held(struct mutation *m)
{
}

/* The second is refused because of the first, and then the group fails: the first has never been. */
static void what_a_failed_group_saw_is_not_handed_out(void **state)
{
    struct pool *p = *state;
    struct pair pair = {.p = p};
    struct mutation holding = {.apply = hold, .finished = held};
    atomic_store(&pair.left, 2);
    atomic_store(&commit_fault, EIO);
    atomic_store(&commit_fault_count, 1);
    writer_queue(local_of(p->s), &holding);
    usleep(20000);
    assert_int_equal(worker_spawn(worker_at(0), make_first, &pair), 0);
    assert_int_equal(worker_spawn(worker_at(0), make_second, &pair), 0);
    while (atomic_load(&pair.left))
        usleep(100);
    assert_int_equal(pair.first, -EIO);
    assert_int_equal(pair.second, -EIO);
    assert_present(p, &p->root, &pair.wcc);
    wait_thawed(p);
}

/* ---- what is taken back ---- */

struct half {
    struct mutation m;
    struct local *l;
};

static int half_apply(struct mutation *m, struct meta_txn *t)
{
    int rc = meta_system_put(t, "half", "x", 1);
    return rc ? rc : -ENOENT;
}

static int half_run(void *arg)
{
    struct half *half = arg;
    return writer_run(half->l, &half->m);
}

static int half_there(void *arg)
{
    struct local *l = arg;
    struct meta_txn *t;
    char value[8];
    size_t length;
    int rc = meta_read_begin(l, &t);
    if (rc)
        return rc;
    rc = meta_system_get(t, "half", value, sizeof(value), &length);
    meta_read_end(t);
    return rc;
}

static void a_mutation_that_fails_in_its_midst_leaves_nothing(void **state)
{
    struct pool *p = *state;
    struct half half = {.m.apply = half_apply, .l = local_of(p->s)};
    assert_int_equal(worker_call(worker_at(0), half_run, &half), -ENOENT);
    assert_int_equal(worker_call(worker_at(0), half_there, half.l), -ENOENT);
    assert_false(atomic_load(&half.l->frozen));
}

static void a_commit_found_after_its_error_counts_its_blocks_once(void **state)
{
    struct pool *p = *state;
    struct store_object o = made(p, &p->root, "f", STORE_REG);
    static uint8_t bytes[10000] = {1}, back[10000];
    uint32_t got;
    atomic_store(&meta_fault, 2);
    assert_int_equal(t_write(p, &root_cred, &o, 0, bytes, sizeof(bytes)), -EIO);
    atomic_store(&meta_fault, 0);
    wait_thawed(p);
    assert_int_equal(t_read(p, &root_cred, &o, 0, back, sizeof(back), &got), 0);
    assert_int_equal(got, sizeof(back)); /* nobody was told that it failed: -EIO leaves it open */
    audit(p);
}

/* ---- what must not be used ---- */

struct take {
    struct mutation m;
    struct pool *p;
    struct store_object o;
    place_t place;
    struct chunk_map map;
};

static int take_write(void *arg)
{
    struct take *take = arg;
    unsigned got;
    uint8_t *block = aligned_alloc(STORE_BLOCK, STORE_BLOCK);
    memset(block, 7, STORE_BLOCK);
    struct local *l = local_of(take->p->s);
    int rc = seg_reserve(l, 1, &take->place, &got);
    if (!rc)
        rc = seg_write(l, take->place, &(struct iovec){block, STORE_BLOCK}, 1, 1);
    take->map.crc[0] = block_crc(block);
    free(block);
    return rc;
}

static int take_apply(struct mutation *m, struct meta_txn *t)
{
    struct take *take = (struct take *)m;
    int64_t delta;
    take->map.kind = CHUNK_MAP;
    take->map.extent_count = 1;
    take->map.extents[0] = (struct extent){.place = take->place, .count = 1};
    return meta_put_chunk(t, take->p->tree, take->o.ino, 0, &take->map, meta_next_change(t), &delta);
}

static int take_run(void *arg)
{
    struct take *take = arg;
    take->m.apply = take_apply;
    return writer_run(local_of(take->p->s), &take->m);
}

/* A disk that said once that it could not sync may say the next time that it has, of data that is lost. */
static void what_was_written_before_a_failed_sync_is_never_used(void **state)
{
    struct pool *p = *state;
    struct take *take = calloc(1, sizeof(*take));
    struct local *l = local_of(p->s);
    take->p = p;
    take->o = made(p, &p->root, "f", STORE_REG);
    assert_int_equal(worker_call(worker_at(0), take_write, take), 0);
    struct seg *seg = seg_get(l->segs, place_segment(take->place));
    int fd = seg->fd, useless = open("/", O_PATH);
    seg->fd = useless; /* cannot be synced */
    assert_int_equal(t_chmod(p, &root_cred, &take->o, 0600), -EIO);
    seg->fd = fd;
    wait_thawed(p);
    assert_int_equal(worker_call(worker_at(0), take_run, take), -EIO);
    assert_int_equal(attr_of(p, &take->o).used, 0);
    seg_put(seg);
    static uint8_t bytes[8192] = {1};
    assert_int_equal(t_write(p, &root_cred, &take->o, 0, bytes, sizeof(bytes)), 0);
    close(useless);
    free(take);
}

/* ---- SIGBUS outside of look-ups ---- */

static void a_disk_that_cannot_be_read_does_not_end_the_server(void **state)
{
    struct pool *p = *state;
    struct store_object o = made(p, &p->root, "f", STORE_REG);
    struct store_status status;
    sigaction(SIGBUS, &bus_handler, NULL); /* cmocka puts its own in for each test */
    atomic_store(&disk_is_bad, 1);
    p->s->ops->status(p->s, &status);
    atomic_store(&disk_is_bad, 2);
    atomic_store(&meta_fault, 1); /* has the metadata opened again, which fails */
    assert_int_equal(t_chmod(p, &root_cred, &o, 0600), -EIO);
    usleep(300000);
    atomic_store(&meta_fault, 0);
    assert_null(local_of(p->s)->meta->env);
    atomic_store(&disk_is_bad, 0);
    wait_thawed(p);
    assert_int_equal(t_chmod(p, &root_cred, &o, 0600), 0);
    audit(p);
}

/* ---- all at once ---- */

enum { FILES = 6, ACTORS = 24 };

struct stress {
    struct pool *p;
    struct store_object dir;
    atomic_int left, unexpected;
    atomic_bool over;
    unsigned steps;
};
struct actor {
    struct stress *stress;
    uint64_t seed;
};

static unsigned below(struct actor *a, unsigned limit)
{
    a->seed = a->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (unsigned)(a->seed >> 33) % limit;
}

static bool is_expected(int rc)
{
    return rc == 0 || rc == -EIO || rc == SL_EFROZEN || rc == -ESTALE || rc == -ENOENT || rc == -EEXIST ||
           rc == -ENOSPC || rc == -EBADF || rc == SL_EDELAY;
}

static int actor_step(struct actor *a, struct store *s, uint8_t *bytes)
{
    struct stress *stress = a->stress;
    char name[8], other[8];
    struct store_object o;
    struct store_attr attr, dir_attr;
    struct store_wcc wcc, wcc2;
    snprintf(name, sizeof(name), "f%u", below(a, FILES));
    snprintf(other, sizeof(other), "f%u", below(a, FILES));
    int rc = s->ops->lookup(s, &root_cred, &stress->dir, named(name), &o, &attr, &dir_attr);
    if (rc == -ENOENT) {
        struct store_make how = {.type = STORE_REG, .how = STORE_MAKE_UNCHECKED};
        return s->ops->make(s, &root_cred, &stress->dir, named(name), &how, &o, &attr, &wcc);
    }
    if (rc)
        return rc;
    unsigned what = below(a, 100);
    if (what < 55) { /* all over a file of many chunks */
        uint64_t offset = below(a, 3) ? below(a, 20000) : (uint64_t)below(a, 200) * STORE_CHUNK + below(a, 9000);
        uint32_t length = below(a, 4) ? 1 + below(a, 9000) : 1 + below(a, 300000);
        if (below(a, 2)) {
            offset = offset / STORE_BLOCK * STORE_BLOCK;
            length = (length + STORE_BLOCK - 1) / STORE_BLOCK * STORE_BLOCK;
        }
        memset(bytes, 1 + (int)below(a, 255), length);
        return s->ops->write(s, &root_cred, &o, offset, bytes, length, &wcc);
    }
    if (what < 75) {
        uint64_t size = below(a, 2) ? below(a, 30000) : (uint64_t)below(a, 200) * STORE_CHUNK + below(a, 9000);
        struct store_setattr set = {.set = STORE_SET_SIZE, .size = size};
        return s->ops->setattr(s, &root_cred, &o, &set, NULL, &wcc);
    }
    if (what < 85) {
        struct slice_list list;
        bool eof;
        slices_init(&list);
        rc = s->ops->read(s, &root_cred, &o, below(a, 30000), 100000, &list, &eof, &attr);
        slices_clear(&list);
        return rc;
    }
    if (what < 90)
        return s->ops->remove(s, &root_cred, &stress->dir, named(name), &wcc);
    if (what < 95)
        return s->ops->link(s, &root_cred, &o, &stress->dir, named(other), &attr, &wcc);
    return s->ops->rename(s, &root_cred, &stress->dir, named(name), &stress->dir, named(other), &wcc, &wcc2);
}

static void actor_main(void *arg)
{
    struct actor *a = arg;
    uint8_t *bytes = malloc(400000);
    for (unsigned i = 0; i < a->stress->steps && !atomic_load(&a->stress->over); i++) {
        int rc = actor_step(a, a->stress->p->s, bytes);
        if (!is_expected(rc)) {
            fprintf(stderr, "unexpected: %s\n", sl_strerror(rc));
            atomic_store(&a->stress->unexpected, rc);
        }
        if (rc == SL_EFROZEN)
            coro_sleep(20);
    }
    free(bytes);
    atomic_fetch_sub(&a->stress->left, 1);
}

/* The open segment cannot be synced, nor written, for a moment. */
static void break_open_segment(struct pool *p, unsigned us)
{
    struct seg_store *st = local_of(p->s)->segs;
    int useless = open("/", O_PATH); /* neither writes, reads nor syncs */
    pthread_mutex_lock(&st->lock);
    struct seg *seg = st->open;
    if (seg)
        atomic_fetch_add(&seg->refs, 1);
    pthread_mutex_unlock(&st->lock);
    if (seg) {
        int fd = seg->fd;
        seg->fd = useless;
        usleep(us);
        seg->fd = fd;
        seg_put(seg);
    }
    usleep(100000); /* what was begun has ended */
    close(useless);
}

static void stress(struct pool *p, unsigned steps, bool faults)
{
    const char *from = getenv("SEED");
    uint64_t seed = from ? strtoull(from, NULL, 0) : (uint64_t)clock_monotonic_ns();
    struct stress all = {.p = p, .steps = steps};
    struct actor actors[ACTORS];
    fprintf(stderr, "SEED=%lu\n", seed);
    all.dir = made(p, &p->root, "d", STORE_DIR);
    atomic_store(&all.left, ACTORS);
    for (unsigned i = 0; i < ACTORS; i++) {
        actors[i] = (struct actor){&all, seed + i * 7919};
        assert_int_equal(worker_spawn(worker_at(i % workers_count()), actor_main, &actors[i]), 0);
    }
    for (unsigned n = 0; atomic_load(&all.left); n++) {
        usleep(20000);
        if (atomic_load(&disk_is_small))
            settle(p); /* the reaper at its busiest */
        if (!faults)
            continue;
        switch (n % 5) {
        case 0:
            atomic_store(&commit_fault, ENOSPC);
            atomic_store(&commit_fault_count, 1);
            break;
        case 1:
            atomic_store(&commit_fault, EIO);
            atomic_store(&commit_fault_count, 1);
            break;
        case 2:
            atomic_store(&meta_fault, 1);
            usleep(5000);
            atomic_store(&meta_fault, 0);
            break;
        case 3:
            atomic_store(&meta_fault, 2);
            usleep(5000);
            atomic_store(&meta_fault, 0);
            break;
        case 4:
            break_open_segment(p, 3000);
            break;
        }
        wait_thawed(p);
    }
    atomic_store(&commit_fault_count, 0);
    wait_thawed(p);
    assert_int_equal(atomic_load(&all.unexpected), 0);
    audit(p);
    pool_reopen(p);
    audit(p);
}

static unsigned steps_of(unsigned usual)
{
    const char *steps = getenv("STEPS");
    return steps ? (unsigned)atoi(steps) : usual;
}

static void the_books_balance_after_many_changes_at_once(void **state)
{
    stress(*state, steps_of(150), false);
}

static void the_books_balance_after_failures(void **state)
{
    stress(*state, steps_of(150), true);
}

/* Small segments, so that many become half dead; a small cache, so that much is read from disk. */
static void the_books_balance_while_segments_are_compacted(void **state)
{
    struct pool *p = *state;
    char why[256];
    struct store_options options = {
        .pool = p->path,
        .cache_bytes = 1 << 20,
        .inode_entries = 20,
        .map_entries = 50,
        .map_size = 4ull << 30,
        .segment_bytes = 1 << 20,
    };
    uint64_t before = metric_read(METRIC_blocks_compacted);
    pool_close(p);
    atomic_store(&disk_is_small, true);
    assert_int_equal(store_local_open(&options, &p->s, why), 0);
    stress(p, steps_of(150), false);
    atomic_store(&disk_is_small, false);
    fprintf(stderr, "compacted: %lu blocks\n", metric_read(METRIC_blocks_compacted) - before);
}

/* ---- reads beside changes ---- */

enum { WRITES = 400, SPAN = 200000, READERS = 8 };

struct watched {
    struct pool *p;
    struct store_object o;
    _Atomic uint64_t change[WRITES]; /* of write i, which fills the span with i % 250 + 1 */
    atomic_int left, wrong;
    atomic_bool over;
};

static void overwrite(void *arg)
{
    struct watched *w = arg;
    uint8_t *bytes = malloc(SPAN);
    for (unsigned i = 0; i < WRITES; i++) {
        struct store_wcc wcc;
        memset(bytes, (int)(i % 250 + 1), SPAN);
        if (w->p->s->ops->write(w->p->s, &root_cred, &w->o, 100, bytes, SPAN, &wcc))
            atomic_fetch_add(&w->wrong, 1);
        atomic_store(&w->change[i], wcc.after.change);
    }
    free(bytes);
    atomic_store(&w->over, true);
    atomic_fetch_sub(&w->left, 1);
}

static void watch(void *arg)
{
    struct watched *w = arg;
    struct store *s = w->p->s;
    uint64_t old_change = 0;
    for (unsigned n = 0; !atomic_load(&w->over); n++) {
        struct slice_list list;
        struct store_attr attr;
        bool eof;
        slices_init(&list);
        int rc = s->ops->read(s, &root_cred, &w->o, 100, SPAN, &list, &eof, &attr);
        int value = -1;
        for (uint32_t i = 0; !rc && i < list.count; i++) {
            for (uint32_t b = 0; b < list.at[i].length; b++) {
                if (value < 0)
                    value = list.at[i].data[b];
                if (list.at[i].data[b] != value) {
                    fprintf(stderr, "read %d and %d in one\n", value, list.at[i].data[b]);
                    rc = -EIO;
                    break;
                }
            }
        }
        slices_clear(&list);
        if (attr.change < old_change)
            rc = -EIO;
        old_change = attr.change;
        coro_yield();
        for (unsigned i = 0; !rc && i < WRITES; i++) {
            /* Of a write within the last hundred that is newer than what was read. */
            if (atomic_load(&w->change[i]) == attr.change && value >= 0 && (int)(i % 250) + 1 > value &&
                (int)(i % 250) + 1 - value < 100) {
                fprintf(stderr, "attributes of write %u with data of %d\n", i, value - 1);
                rc = -EIO;
            }
        }
        if (rc)
            atomic_fetch_add(&w->wrong, 1);
        if (n % 4 == 0)
            coro_sleep(1);
    }
    atomic_fetch_sub(&w->left, 1);
}

static void reads_are_of_one_moment_and_not_older_than_their_attributes(void **state)
{
    struct watched *w = calloc(1, sizeof(*w));
    w->p = *state;
    w->o = made(w->p, &w->p->root, "f", STORE_REG);
    assert_int_equal(t_write(w->p, &root_cred, &w->o, 0, "x", 1), 0);
    atomic_store(&w->left, READERS + 1);
    assert_int_equal(worker_spawn(worker_at(0), overwrite, w), 0);
    for (unsigned i = 0; i < READERS; i++)
        assert_int_equal(worker_spawn(worker_at(i % workers_count()), watch, w), 0);
    while (atomic_load(&w->left))
        usleep(1000);
    assert_int_equal(atomic_load(&w->wrong), 0);
    audit(w->p);
    free(w);
}

static int tests(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, pool_setup, pool_teardown)
    const struct CMUnitTest all[] = {
        EACH(attributes_of_a_write_that_failed_are_not_handed_out),
        EACH(what_a_failed_group_saw_is_not_handed_out),
        EACH(a_mutation_that_fails_in_its_midst_leaves_nothing),
        EACH(a_commit_found_after_its_error_counts_its_blocks_once),
        EACH(what_was_written_before_a_failed_sync_is_never_used),
        EACH(a_disk_that_cannot_be_read_does_not_end_the_server),
        EACH(the_books_balance_after_many_changes_at_once),
        EACH(the_books_balance_after_failures),
        EACH(the_books_balance_while_segments_are_compacted),
        EACH(reads_are_of_one_moment_and_not_older_than_their_attributes),
    };
    if (txn_module_start() || sigaction(SIGBUS, NULL, &bus_handler))
        return 1;
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(void)
{
    return run_with_workers(tests);
}
