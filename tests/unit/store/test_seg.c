/* Segments: places are given out once, a full disk is survived, files come and go. */
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "ops_fixture.h"
#include "store/local/seg.h"

enum { BLOCK = STORE_BLOCK, MIB = 1 << 20 };

static uint8_t buffer[STORE_IO_MAX], back[STORE_IO_MAX];

static void open_with(struct pool *p, struct store_options options)
{
    char why[256] = "";
    options.pool = p->path;
    options.cache_bytes = 8 * MIB;
    options.inode_entries = options.map_entries = 1000;
    options.map_size = 1ull << 30;
    int error = store_local_open(&options, &p->s, why);
    if (error)
        fail_msg("open: %s: %s", sl_strerror(error), why);
}

/* ---- places ---- */

enum { TAKERS = 12, TAKES = 200 };

struct taken {
    struct local *l;
    atomic_uint left, next, failed;
    struct {
        place_t place;
        unsigned count;
    } at[TAKERS * TAKES];
};

static void take_places(void *arg)
{
    struct taken *t = arg;
    uint8_t *bytes = aligned_alloc(BLOCK, 40 * BLOCK);
    uint64_t seed = atomic_load(&t->left);
    memset(bytes, 1, 40 * BLOCK);
    for (unsigned i = 0; i < TAKES; i++) {
        unsigned slot = atomic_fetch_add(&t->next, 1), want;
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        want = 1 + (unsigned)(seed >> 33) % 40;
        int error = seg_reserve(t->l, want, &t->at[slot].place, &t->at[slot].count);
        if (error || t->at[slot].count < 1 || t->at[slot].count > want) {
            atomic_fetch_add(&t->failed, 1);
            continue;
        }
        struct iovec iov = {bytes, (size_t)t->at[slot].count * BLOCK};
        memset(bytes, (int)(t->at[slot].place % 251), iov.iov_len);
        if (seg_write(t->l, t->at[slot].place, &iov, 1, t->at[slot].count))
            atomic_fetch_add(&t->failed, 1);
    }
    free(bytes);
    atomic_fetch_sub(&t->left, 1);
}

static int check_places(void *arg)
{
    struct taken *t = arg;
    uint8_t *bytes = aligned_alloc(BLOCK, 40 * BLOCK);
    int bad = 0;
    for (unsigned i = 0; i < TAKERS * TAKES; i++) {
        struct iovec iov = {bytes, (size_t)t->at[i].count * BLOCK};
        bad += seg_read(t->l, t->at[i].place, &iov, 1, t->at[i].count) != 0;
        for (unsigned b = 0; b < iov.iov_len; b += 512)
            bad += bytes[b] != t->at[i].place % 251;
        seg_abandon(t->l, t->at[i].place, t->at[i].count);
    }
    free(bytes);
    return bad;
}

static int compare_places(const void *a, const void *b)
{
    place_t x = *(const place_t *)a, y = *(const place_t *)b;
    return x < y ? -1 : x > y;
}

static void a_place_is_given_out_once(void **state)
{
    struct pool *p = *state;
    pool_close(p);
    open_with(p, (struct store_options){.segment_bytes = 8 * MIB});
    struct taken *t = calloc(1, sizeof(*t));
    t->l = local_of(p->s);
    atomic_store(&t->left, TAKERS);
    for (unsigned i = 0; i < TAKERS; i++)
        assert_int_equal(worker_spawn(worker_at(i % workers_count()), take_places, t), 0);
    while (atomic_load(&t->left))
        usleep(1000);
    assert_int_equal(atomic_load(&t->failed), 0);
    assert_true(seg_count(t->l) > 10);
    assert_int_equal(worker_call(worker_at(0), check_places, t), 0);
    qsort(t->at, TAKERS * TAKES, sizeof(t->at[0]), compare_places);
    for (unsigned i = 1; i < TAKERS * TAKES; i++)
        assert_true(t->at[i - 1].place + t->at[i - 1].count <= t->at[i].place);
    free(t);
}

static int compact_all(void *arg)
{
    int more;
    while ((more = seg_compact_step(arg)) > 0)
        ;
    return more;
}

static bool data_file(struct pool *p, unsigned number, char path[128])
{
    struct stat info;
    snprintf(path, 128, "%s/data/%08x.seg", p->path, number);
    return stat(path, &info) == 0;
}

static void numbers_of_segments_are_not_used_again(void **state)
{
    struct pool *p = *state;
    char path[128];
    struct store_object o = made(p, &p->root, "f", STORE_REG);
    assert_int_equal(t_write(p, &root_cred, &o, 0, buffer, STORE_IO_MAX), 0);
    assert_true(data_file(p, 1, path));
    assert_int_equal(t_remove(p, &p->root, "f"), 0);
    settle(p);
    pool_reopen(p);
    settle(p);
    assert_int_equal(worker_call(worker_at(0), compact_all, local_of(p->s)), 0);
    assert_false(data_file(p, 1, path));
    pool_reopen(p);
    /* What a crash leaves: a file that no record names. */
    data_file(p, 7, path);
    close(open(path, O_CREAT | O_RDWR, 0600));
    pool_reopen(p);
    assert_false(data_file(p, 7, path));
    o = made(p, &p->root, "g", STORE_REG);
    assert_int_equal(t_write(p, &root_cred, &o, 0, buffer, STORE_IO_MAX), 0);
    assert_false(data_file(p, 1, path));
    assert_false(data_file(p, 2, path));
    assert_true(data_file(p, 8, path));
}

/* ---- compaction ---- */

enum { STRIPES = 8192, STRIPE = 4 * BLOCK, STRIPERS = 48 };

struct stripes {
    struct store *s;
    struct store_object o;
    atomic_uint next, left, failed;
    unsigned blocks; /* of each stripe that are written, from its first on */
    uint32_t round;
};

static void stripe_fill(uint8_t *bytes, unsigned stripe, uint32_t round, unsigned blocks)
{
    for (unsigned i = 0; i < blocks * BLOCK; i += 4)
        memcpy(bytes + i, &(uint32_t){stripe * 8191 + round * 77 + i}, 4);
}

static void write_stripes(void *arg)
{
    struct stripes *w = arg;
    uint8_t *bytes = malloc(STRIPE);
    struct store_wcc wcc;
    unsigned i;
    while ((i = atomic_fetch_add(&w->next, 1)) < STRIPES) {
        stripe_fill(bytes, i, w->round, w->blocks);
        if (w->s->ops->write(w->s, &root_cred, &w->o, (uint64_t)i * STRIPE, bytes,
                             w->blocks * BLOCK, &wcc))
            atomic_fetch_add(&w->failed, 1);
    }
    free(bytes);
    atomic_fetch_sub(&w->left, 1);
}

static void start_stripes(struct stripes *w)
{
    atomic_store(&w->next, 0);
    atomic_store(&w->left, STRIPERS);
    for (unsigned i = 0; i < STRIPERS; i++)
        assert_int_equal(worker_spawn(worker_at(i % workers_count()), write_stripes, w), 0);
}

static void wait_stripes(struct stripes *w)
{
    while (atomic_load(&w->left))
        usleep(1000);
    assert_int_equal(atomic_load(&w->failed), 0);
}

static void check_stripes(struct pool *p, const struct stripes *w, uint32_t first_round)
{
    uint8_t want[STRIPE];
    uint32_t got;
    for (unsigned i = 0; i < STRIPES; i++) {
        unsigned in = i * STRIPE % STORE_IO_MAX;
        if (!in)
            assert_int_equal(
                t_read(p, &root_cred, &w->o, (uint64_t)i * STRIPE, back, STORE_IO_MAX, &got), 0);
        stripe_fill(want, i, first_round, 4);
        stripe_fill(want, i, w->round, w->blocks);
        assert_memory_equal(back + in, want, STRIPE);
    }
}

static uint64_t disk_used(struct pool *p)
{
    char command[128];
    unsigned long long kib = 0;
    snprintf(command, sizeof(command), "du -sk %s/data", p->path);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    assert_int_equal(fscanf(out, "%llu", &kib), 1);
    pclose(out);
    return kib * 1024;
}

static void scattered_space_comes_back(void **state)
{
    struct pool *p = *state;
    pool_close(p);
    open_with(p, (struct store_options){.segment_bytes = 8 * MIB});
    struct stripes w = {.s = p->s, .o = made(p, &p->root, "f", STORE_REG), .blocks = 4, .round = 1};
    start_stripes(&w);
    wait_stripes(&w);
    w.blocks = 3;
    for (w.round = 2; w.round < 4; w.round++) {
        start_stripes(&w);
        if (w.round == 3)
            settle(p); /* moves blocks while they are overwritten */
        wait_stripes(&w);
    }
    w.round = 3;
    settle(p);
    check_stripes(p, &w, 1);
    uint64_t live = (uint64_t)STRIPES * STRIPE, used = disk_used(p);
    print_message("    %llu MiB for %llu\n", (unsigned long long)used / MIB,
                  (unsigned long long)live / MIB);
    assert_true(used < 2 * live);
    pool_close(p);
    open_with(p, (struct store_options){.segment_bytes = 8 * MIB});
    check_stripes(p, &w, 1);
    assert_int_equal(t_remove(p, &p->root, "f"), 0);
    settle(p);
    pool_close(p);
    open_with(p, (struct store_options){.segment_bytes = 8 * MIB});
    settle(p);
    assert_int_equal(worker_call(worker_at(0), compact_all, local_of(p->s)), 0);
    assert_int_equal(seg_count(local_of(p->s)), 0);
}

/* ---- a small disk ---- */

struct disk {
    char image[48], mount[48];
    struct pool pool;
};

static int run_command(const char *command)
{
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* False: this machine does not let us mount. */
static bool disk_make(struct disk *d, unsigned mib)
{
    char command[512];
    strcpy(d->image, "/tmp/sluice-disk-XXXXXX");
    int fd = mkstemp(d->image);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)mib * MIB), 0);
    close(fd);
    strcpy(d->mount, "/tmp/sluice-mount-XXXXXX");
    assert_non_null(mkdtemp(d->mount));
    snprintf(command, sizeof(command),
             "mkfs.ext4 -q -F -m 0 %s >/dev/null 2>&1 && mount -o loop %s %s 2>/dev/null", d->image,
             d->image, d->mount);
    if (geteuid() != 0 || run_command(command)) {
        rmdir(d->mount);
        unlink(d->image);
        return false;
    }
    snprintf(d->pool.path, sizeof(d->pool.path), "%s/pool", d->mount);
    return true;
}

static void disk_remove(struct disk *d)
{
    pool_close(&d->pool);
    assert_int_equal(umount2(d->mount, MNT_DETACH), 0);
    rmdir(d->mount);
    unlink(d->image);
}

static void pattern(unsigned file, uint32_t length)
{
    for (uint32_t i = 0; i < length; i += 4)
        memcpy(buffer + i, &(uint32_t){file * 1000003 + i}, 4);
}

/* Files of `size` bytes until it is full; how many. */
static unsigned fill_up(struct pool *p, const char *prefix, uint32_t size)
{
    unsigned count = 0;
    for (;; count++) {
        char name[32];
        struct store_object o;
        snprintf(name, sizeof(name), "%s%u", prefix, count);
        int error = t_make(p, &root_cred, &p->root, name, STORE_REG, 0644, &o);
        if (!error) {
            pattern(count, size);
            error = t_write(p, &root_cred, &o, 0, buffer, size);
            if (error)
                assert_int_equal(t_remove(p, &p->root, name), 0);
        }
        if (error) {
            assert_int_equal(error, -ENOSPC);
            return count;
        }
    }
}

static void check_files(struct pool *p, const char *prefix, unsigned from, unsigned to,
                        uint32_t size)
{
    for (unsigned i = from; i < to; i++) {
        char name[32];
        struct store_object o;
        uint32_t got;
        snprintf(name, sizeof(name), "%s%u", prefix, i);
        assert_int_equal(t_lookup(p, &root_cred, &p->root, name, &o), 0);
        assert_int_equal(t_read(p, &root_cred, &o, 0, back, STORE_IO_MAX, &got), 0);
        assert_int_equal(got, size);
        pattern(i, size);
        assert_memory_equal(back, buffer, size);
    }
}

static void remove_files(struct pool *p, const char *prefix, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%s%u", prefix, i);
        assert_int_equal(t_remove(p, &p->root, name), 0);
    }
}

static void a_full_disk_is_survived(void **state)
{
    static const unsigned sizes[] = {64, 200};
    for (unsigned s = 0; s < 2; s++) {
        struct disk d = {0};
        if (!disk_make(&d, sizes[s]))
            skip();
        struct pool *p = &d.pool;
        open_with(p, (struct store_options){0});
        p->tree = pool_tree(p, 0);
        assert_int_equal(p->s->ops->root(p->s, p->tree, &p->root), 0);
        unsigned first = 0;
        for (unsigned cycle = 0; cycle < 4; cycle++) {
            uint32_t size = cycle % 2 ? 300000 : STORE_IO_MAX;
            unsigned count = fill_up(p, "f", size);
            print_message("    %u MiB: %u files of %u\n", sizes[s], count, size);
            if (cycle == 0)
                first = count;
            else if (cycle == 2)
                assert_true(count * 10 >= first * 9);
            assert_true((uint64_t)count * size > (uint64_t)sizes[s] * MIB / 2);
            check_files(p, "f", 0, count, size);
            pool_close(p);
            open_with(p, (struct store_options){0});
            check_files(p, "f", 0, count, size);
            remove_files(p, "f", 0, count / 2);
            check_files(p, "f", count / 2, count, size);
            remove_files(p, "f", count / 2, count);
            settle(p);
            usleep(100000); /* longer than a full disk is remembered */
        }
        disk_remove(&d);
    }
}

/* ext4 gives freed blocks back with its next commit only. */
static void sync_disk(const struct disk *d)
{
    int fd = open(d->mount, O_RDONLY | O_DIRECTORY);
    assert_int_equal(syncfs(fd), 0);
    close(fd);
}

static void others_may_fill_the_disk(void **state)
{
    struct disk d = {0};
    if (!disk_make(&d, 128))
        skip();
    struct pool *p = &d.pool;
    open_with(p, (struct store_options){0});
    p->tree = pool_tree(p, 0);
    assert_int_equal(p->s->ops->root(p->s, p->tree, &p->root), 0);
    unsigned count = fill_up(p, "f", 100000) / 2;
    remove_files(p, "f", count, count * 2);
    settle(p); /* the reaper gives the space back once a second */
    sync_disk(&d);
    char path[128];
    snprintf(path, sizeof(path), "%s/foreign", d.mount);
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    while (write(fd, buffer, sizeof(buffer)) > 0)
        ;
    fsync(fd);
    struct statvfs info;
    assert_int_equal(statvfs(d.mount, &info), 0);
    print_message("    %lu blocks left\n", (unsigned long)info.f_bavail);
    fill_up(p, "g", 100000);
    check_files(p, "f", 0, count, 100000);
    remove_files(p, "f", 0, count / 2);
    check_files(p, "f", count / 2, count, 100000);
    close(fd);
    unlink(path);
    settle(p);
    sync_disk(&d);
    usleep(100000); /* longer than a full disk is remembered */
    struct store_object o = made(p, &p->root, "again", STORE_REG);
    assert_int_equal(t_write(p, &root_cred, &o, 0, buffer, STORE_IO_MAX), 0);
    disk_remove(&d);
}

static int tests(void)
{
    const struct CMUnitTest list[] = {
        cmocka_unit_test_setup_teardown(a_place_is_given_out_once, pool_setup, pool_teardown),
        cmocka_unit_test_setup_teardown(numbers_of_segments_are_not_used_again, pool_setup,
                                        pool_teardown),
        cmocka_unit_test_setup_teardown(scattered_space_comes_back, pool_setup, pool_teardown),
        cmocka_unit_test(a_full_disk_is_survived),
        cmocka_unit_test(others_may_fill_the_disk),
    };
    return cmocka_run_group_tests(list, NULL, NULL);
}

int main(void)
{
    return run_with_workers(tests);
}
