#include "test_meta_fixture.h"

#include <fcntl.h>
#include <signal.h>

#include "store/local/reaper.h"

/* ---- trees ---- */

struct seen {
    uint32_t id;
    char props[8192];
    size_t length;
    uint64_t limit, files, fsid;
    int count;
};

static int see(void *arg, const struct store_tree *tree)
{
    struct seen *seen = arg;
    seen->count++;
    if (tree->id == seen->id) {
        memcpy(seen->props, tree->props, tree->props_length);
        seen->length = tree->props_length;
        seen->limit = tree->limits.bytes;
        seen->files = tree->usage.files_used;
        seen->fsid = tree->fsid;
    }
    return 0;
}

static struct seen look(uint32_t id)
{
    struct seen seen = {.id = id};
    assert_int_equal(tree_each(&l->store, see, &seen), 0);
    return seen;
}

static void trees_and_counters_survive_reopening(void **state)
{
    static char props[5000];
    memset(props, 'p', sizeof(props));
    struct tree_call c = {.props = props, .length = sizeof(props)};
    uint32_t first = new_tree();
    assert_int_equal(worker_call(worker_at(1), tree_call_run, &c), 0);
    assert_true(c.id > first);
    uint64_t fsid = look(c.id).fsid;
    fixture_close();
    fixture_open();
    struct seen seen = look(c.id);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.length, sizeof(props));
    assert_memory_equal(seen.props, props, sizeof(props));
    assert_true(seen.fsid == fsid && fsid != 0 && seen.files == 1);
    c.what = 1;
    c.length = 100;
    assert_int_equal(worker_call(worker_at(1), tree_call_run, &c), 0);
    fixture_close();
    fixture_open();
    seen = look(c.id);
    assert_true(seen.length == 100 && seen.limit == 77 && seen.fsid == fsid);
    uint32_t next = new_tree();
    assert_true(next > c.id);
    c.what = 2;
    assert_int_equal(worker_call(worker_at(1), tree_call_run, &c), 0);
    assert_int_equal(worker_call(worker_at(1), tree_call_run, &c), -ESTALE);
    struct tree tree;
    assert_int_equal(meta_tree(l, c.id, &tree), -ESTALE);
    assert_int_equal(look(c.id).count, 2);
}

/* ---- versions, against a model ---- */

enum { TREES = 12, INOS = 6 };

static struct {
    uint32_t id;                    /* 0: none */
    bool read_only;
    uint64_t inode[INOS], chunk[INOS], entry[INOS]; /* what it must hold: a number, 0: nothing */
} model[TREES];
static const uint64_t base_ino = 1000, base_dir = 5000;

struct step {
    int tree, from, what;
    uint64_t ino, number;
};

static int put_number(struct meta_txn *t, void *arg)
{
    struct step *s = arg;
    struct inode inode = {.ino = s->ino, .type = STORE_REG, .generation = 1, .size = 1000, .change = s->number};
    struct chunk_map map = {.kind = CHUNK_INLINE, .inline_length = 8};
    struct entry entry = {.position = s->ino << 8 | 3, .ino = s->number, .type = STORE_REG};
    int64_t delta;
    uint32_t id = model[s->tree].id;
    memcpy(map.bytes, &s->number, sizeof(s->number));
    if (s->what == 0)
        return s->number ? meta_put_inode(t, id, &inode) : meta_del_inode(t, id, s->ino);
    if (s->what == 1)
        return s->number ? meta_put_chunk(t, id, s->ino, 0, &map, s->number, &delta)
                         : meta_del_chunk(t, id, s->ino, 0, &delta);
    return s->number ? meta_set_entry(t, id, base_dir, &entry) : meta_del_entry(t, id, base_dir, entry.position);
}

/* A snapshot: a new tree has the version, the old one goes on in a child; a clone: a new tree in a child of it. */
static int branch(struct meta_txn *t, void *arg)
{
    struct step *s = arg;
    struct tree_record from = tree_present(t, model[s->from].id)->record, made = from;
    made.id = model[s->tree].id = (uint32_t)++group_counters(t->group)->tree;
    made.props_length = from.props_length = 0;
    if (model[s->from].read_only)
        made.version = version_new(t, from.version, made.id);
    else
        from.version = version_new(t, from.version, from.id);
    tree_put(t, &from, "");
    return tree_put(t, &made, "");
}

static uint64_t number_of(const struct chunk_map *map)
{
    uint64_t number;
    memcpy(&number, map->bytes, sizeof(number));
    return number;
}

static int compare_in_coroutine(void *arg)
{
    static struct chunk_map map;
    struct inode inode, shown = {.size = 1000};
    struct entry entry;
    struct meta_txn *t;
    if (meta_read_begin(l, &t))
        return -1;
    for (int n = 0; n < TREES; n++) {
        uint64_t after = 0;
        for (uint64_t i = 0; model[n].id && i < INOS; i++) {
            uint32_t id = model[n].id;
            shown.ino = base_ino + i;
            int error = meta_inode(t, id, base_ino + i, &inode);
            if (model[n].inode[i] ? error || inode.change != model[n].inode[i] : error != -ESTALE)
                return 1;
            error = meta_chunk(t, id, &shown, 0, &map);
            if (model[n].chunk[i] ? error || number_of(&map) != model[n].chunk[i] : error != -ENOENT)
                return 2;
            if (!model[n].entry[i])
                continue;
            error = meta_entry_next(t, id, base_dir, after, &entry);
            if (error || entry.position != ((base_ino + i) << 8 | 3) || entry.ino != model[n].entry[i])
                return 3;
            after = entry.position;
        }
        if (model[n].id && meta_entry_next(t, model[n].id, base_dir, after, &entry) != -ENOENT)
            return 4;
    }
    meta_read_end(t);
    for (int n = 0; n < TREES; n++)
        for (uint64_t i = 0; model[n].id && i < INOS; i++) {
            int error = meta_get_inode(l, model[n].id, base_ino + i, &inode);
            if (model[n].inode[i] ? error || inode.change != model[n].inode[i] : error != -ESTALE)
                return 5;
            shown.ino = base_ino + i;
            error = meta_get_chunk(l, model[n].id, &shown, 0, &map);
            if (model[n].chunk[i] ? error || number_of(&map) != model[n].chunk[i] : error != -ENOENT)
                return 6;
        }
    return 0;
}

static void random_step(uint64_t number)
{
    struct step s = {.tree = (int)random() % TREES, .from = (int)random() % TREES, .what = (int)random() % 3,
                     .number = random() % 4 ? number : 0};
    uint64_t i = (uint64_t)random() % INOS;
    s.ino = base_ino + i;
    if (!model[s.tree].id && model[s.from].id && random() % 6 == 0) {
        assert_int_equal(mutate(branch, &s), 0);
        uint32_t id = model[s.tree].id;
        bool clone = model[s.from].read_only;
        model[s.tree] = model[s.from];
        model[s.tree].id = id;
        model[s.tree].read_only = !clone;
        return;
    }
    if (!model[s.tree].id || model[s.tree].read_only)
        return;
    uint64_t *truth = s.what == 0   ? &model[s.tree].inode[i]
                      : s.what == 1 ? &model[s.tree].chunk[i]
                                    : &model[s.tree].entry[i];
    int want = s.number || *truth ? 0 : s.what == 0 ? -ESTALE : -ENOENT;
    assert_int_equal(mutate(put_number, &s), want);
    *truth = s.number;
}

static void each_version_sees_its_own(void **state)
{
    for (int history = 0; history < 3; history++) {
        memset(model, 0, sizeof(model));
        model[0].id = new_tree();
        for (uint64_t step = 1; step < 600; step++) {
            random_step(step);
            assert_int_equal(worker_call(worker_at(step % 2), compare_in_coroutine, NULL), 0);
        }
    }
}

/* ---- what an inode shows ---- */

static uint32_t tree;

static int put_chunk_newer(struct meta_txn *t, void *arg)
{
    struct chunk_map map = {.kind = CHUNK_INLINE, .inline_length = 3, .bytes = "abc"};
    int64_t delta;
    *(uint64_t *)arg = meta_next_change(t);
    return meta_put_chunk(t, tree, 77, 2, &map, *(uint64_t *)arg, &delta);
}

static int cuts_run(void *arg)
{
    static struct chunk_map map;
    uint64_t change = *(uint64_t *)arg, chunk;
    struct inode inode = {.ino = 77, .size = 3 * STORE_CHUNK, .cut_count = 1};
    struct meta_txn *t;
    inode.cuts[0] = (struct inode_cut){.chunk = 1, .change = change - 1};
    int good = meta_get_chunk(l, tree, &inode, 2, &map) == 0 && map.change == change;
    inode.cuts[0].change = change;
    good &= meta_get_chunk(l, tree, &inode, 2, &map) == -ENOENT;
    inode.cuts[0].chunk = 3;
    good &= meta_get_chunk(l, tree, &inode, 2, &map) == 0;
    inode.size = 2 * STORE_CHUNK;
    good &= meta_get_chunk(l, tree, &inode, 2, &map) == -ENOENT;
    if (meta_read_begin(l, &t))
        return 0;
    good &= meta_chunk(t, tree, &inode, 2, &map) == -ENOENT;
    good &= meta_chunk_next(t, tree, 77, 0, &chunk, &map) == 0 && chunk == 2 && map.inline_length == 3;
    good &= meta_chunk_next(t, tree, 77, 3, &chunk, &map) == -ENOENT;
    meta_read_end(t);
    return good;
}

static void cuts_and_sizes_hide_chunks(void **state)
{
    uint64_t change;
    tree = new_tree();
    assert_int_equal(mutate(put_chunk_newer, &change), 0);
    assert_int_equal(worker_call(worker_at(0), cuts_run, &change), 1);
}

static int table_run(void *arg)
{
    struct inode inode;
    struct tree t;
    static struct chunk_map map;
    meta_tree(l, tree, &t);
    if (meta_get_inode(l, tree, t.root, &inode))
        return 1;
    inode.size = 1 << 20; /* a hole of it is remembered as well */
    if (meta_get_chunk(l, tree, &inode, 1, &map) != -ENOENT)
        return 2;
    uint64_t reads = metric_read(METRIC_meta_reads);
    for (int i = 0; i < 100; i++)
        if (meta_get_inode(l, tree, t.root, &inode) || (inode.size = 1 << 20, 0) ||
            meta_get_chunk(l, tree, &inode, 1, &map) != -ENOENT)
            return 3;
    return metric_read(METRIC_meta_reads) == reads ? 0 : 4;
}

static void what_is_in_the_table_needs_no_transaction(void **state)
{
    tree = new_tree();
    assert_int_equal(worker_call(worker_at(0), table_run, NULL), 0);
}

/* ---- system records, links, targets ---- */

static int system_put_some(struct meta_txn *t, void *arg)
{
    for (int i = 0; i < 20; i++) {
        char key[64];
        snprintf(key, sizeof(key), "mine/%02d", i);
        meta_system_put(t, key, key, strlen(key));
    }
    meta_system_put(t, "mine", "a", 1);
    meta_system_put(t, "minf", "a", 1);
    return meta_system_put(t, "mine/07", NULL, 0);
}

static int system_run(void *arg)
{
    struct meta_txn *t;
    char key[64] = "", value[100];
    size_t length;
    int count = 0;
    if (meta_read_begin(l, &t))
        return -1;
    while (meta_system_next(t, "mine/", key, value, sizeof(value), &length) == 0)
        count += strlen(key) == length && memcmp(key, value, length) == 0;
    meta_read_end(t);
    return count;
}

static void system_records_are_listed_by_prefix(void **state)
{
    assert_int_equal(mutate(system_put_some, NULL), 0);
    assert_int_equal(worker_call(worker_at(0), system_run, NULL), 19);
}

static int put_links(struct meta_txn *t, void *arg)
{
    struct inode inode = {.ino = 50, .type = STORE_LNK, .generation = 1};
    for (uint64_t i = 0; i < 5; i++)
        meta_put_link(t, tree, 50, 10 + i % 2, 100 - i);
    meta_del_link(t, tree, 50, 10, 98);
    meta_put_target(t, tree, &inode, "to there", 8);
    struct inode back;
    meta_inode(t, tree, 50, &back);
    back.mode = 0123; /* a change of attributes keeps the target */
    return meta_put_inode(t, tree, &back);
}

static int links_run(void *arg)
{
    struct meta_txn *t;
    char target[STORE_LINK_TARGET_MAX];
    uint32_t length;
    uint64_t dir = 0, position = 0, sum = 0;
    if (meta_read_begin(l, &t))
        return -1;
    while (meta_link_next(t, tree, 50, &dir, &position) == 0)
        sum = sum * 10 + (dir - 9) + (position == 98) * 100;
    struct inode inode;
    int good = meta_target(t, tree, 50, target, &length) == 0 && length == 8 && !memcmp(target, "to there", 8);
    good &= meta_inode(t, tree, 50, &inode) == 0 && inode.mode == 0123;
    meta_read_end(t);
    return good ? (int)sum : -1;
}

static void links_are_listed_and_targets_kept(void **state)
{
    tree = new_tree();
    assert_int_equal(mutate(put_links, NULL), 0);
    assert_int_equal(worker_call(worker_at(0), links_run, NULL), 1122);
}

/* ---- dropping ---- */

static int put_many(struct meta_txn *t, void *arg)
{
    for (uint64_t i = 0; i < 500; i++) {
        struct inode inode = {.ino = meta_next_ino(t), .type = STORE_REG, .generation = 1};
        struct chunk_map map = {.kind = CHUNK_INLINE, .inline_length = 10};
        char name[16];
        uint64_t position;
        int64_t delta;
        struct store_name n = {.bytes = name, .length = (uint32_t)snprintf(name, sizeof(name), "%d", (int)i)};
        meta_put_entry(t, tree, 3, n, inode.ino, 1, STORE_REG, &position);
        meta_put_chunk(t, tree, inode.ino, 0, &map, 1, &delta);
        meta_put_link(t, tree, inode.ino, 3, 4);
        if (meta_put_inode(t, tree, &inode))
            break;
    }
    return t->failed;
}

static size_t records_in(enum db db)
{
    MDB_txn *txn;
    MDB_stat stat;
    mdb_txn_begin(l->meta->env, NULL, MDB_RDONLY, &txn);
    mdb_stat(txn, l->meta->dbi[db], &stat);
    mdb_txn_abort(txn);
    return stat.ms_entries;
}

static int settle(void *arg)
{
    return reaper_settle(l);
}

static void a_deleted_tree_leaves_nothing(void **state)
{
    static const enum db all[] = {DB_INODE, DB_ENTRY, DB_LINK, DB_CHUNK, DB_TOUCHED};
    tree = new_tree();
    assert_int_equal(mutate(put_many, NULL), 0);
    assert_true(records_in(DB_TOUCHED) > 2000);
    struct tree_call c = {.id = tree, .what = 2};
    assert_int_equal(worker_call(worker_at(0), tree_call_run, &c), 0);
    assert_int_equal(worker_call(worker_at(0), settle, NULL), 0);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        assert_int_equal(records_in(all[i]), 0);
}

static int put_and_remove_tree(struct meta_txn *t, void *arg)
{
    struct inode inode = {.ino = 999, .type = STORE_REG, .generation = 1};
    meta_put_inode(t, tree, &inode);
    return group_set_tree(t, tree, NULL);
}

static int get_999(void *arg)
{
    struct inode inode;
    return meta_get_inode(l, tree, 999, &inode);
}

static void a_tree_takes_what_its_last_group_wrote_along(void **state)
{
    tree = new_tree();
    assert_int_equal(mutate(put_and_remove_tree, NULL), 0);
    assert_int_equal(worker_call(worker_at(0), get_999, NULL), -ESTALE);
}

/* ---- a disk that does not answer ---- */

/* What LMDB had just allocated when SIGBUS took it out of a call is lost. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:mdb_cursor_open";
}

static struct sigaction bus_handler;

static int start(void **state)
{
    if (txn_module_start() || sigaction(SIGBUS, NULL, &bus_handler))
        return -1;
    return fixture_workers_start(state);
}

static int read_root(void *arg)
{
    struct inode inode;
    struct tree t;
    int error = meta_tree(l, tree, &t);
    return error ? error : meta_get_inode(l, tree, t.root, &inode);
}

static void a_bus_error_is_an_io_error(void **state)
{
    char path[128];
    tree = new_tree();
    assert_int_equal(mutate(put_many, NULL), 0);
    fixture_close();
    sigaction(SIGBUS, &bus_handler, NULL); /* cmocka puts its own in for each test */
    fixture_open();
    snprintf(path, sizeof(path), "%s/meta/data.mdb", pool_path);
    assert_int_equal(truncate(path, 8192), 0); /* the map now ends in nothing */
    for (int i = 0; i < 3; i++)
        assert_int_equal(worker_call(worker_at(i % 2), read_root, NULL), -EIO);
    assert_true(mutate(put_many, NULL) < 0);
}

static void data_without_metadata_is_refused(void **state)
{
    char why[256], from[128], to[128];
    struct store *s;
    struct store_options options = {.pool = pool_path, .cache_bytes = 4 << 20};
    fixture_close();
    snprintf(from, sizeof(from), "%s/meta", pool_path);
    snprintf(to, sizeof(to), "%s/elsewhere", pool_path);
    assert_int_equal(rename(from, to), 0);
    snprintf(from, sizeof(from), "%s/data/00000001.seg", pool_path);
    close(open(from, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(store_local_open(&options, &s, why), SL_ECORRUPT);
    assert_non_null(strstr(why, "no metadata"));
    assert_int_equal(access(from, F_OK), 0);
}

static void pools_are_told_from_other_directories(void **state)
{
    char why[256], path[128];
    struct store *s;
    struct store_options options = {.pool = pool_path, .cache_bytes = 4 << 20};
    assert_int_equal(store_local_open(&options, &s, why), -EBUSY);
    assert_non_null(strstr(why, "in use"));
    fixture_close();
    snprintf(path, sizeof(path), "%s/POOL", pool_path);
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "sluice-pool 9", 13, 0), 13);
    close(fd);
    assert_int_equal(store_local_open(&options, &s, why), -EINVAL);
    assert_non_null(strstr(why, "format 9"));
    unlink(path);
    assert_int_equal(store_local_open(&options, &s, why), -ENOTEMPTY);
    options.pool = "/tmp/sluice-not-there/below";
    assert_int_equal(store_local_open(&options, &s, why), -ENOENT);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, fixture_start, fixture_stop)
    const struct CMUnitTest tests[] = {
        EACH(trees_and_counters_survive_reopening),
        EACH(each_version_sees_its_own),
        EACH(cuts_and_sizes_hide_chunks),
        EACH(what_is_in_the_table_needs_no_transaction),
        EACH(system_records_are_listed_by_prefix),
        EACH(links_are_listed_and_targets_kept),
        EACH(a_deleted_tree_leaves_nothing),
        EACH(a_tree_takes_what_its_last_group_wrote_along),
        EACH(data_without_metadata_is_refused),
        EACH(pools_are_told_from_other_directories),
        EACH(a_bus_error_is_an_io_error),
    };
    return cmocka_run_group_tests(tests, start, fixture_workers_stop);
}
