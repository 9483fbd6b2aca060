#include "audit.h"
#include "snapshot_fixture.h"

/* What snapshots, clones and restores mean for those who look at the trees. */

static uint8_t bytes[1 << 20], got[1 << 20];

static void fill(uint8_t with, size_t length)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(with + i / 4096 + i);
}

static struct store_object file(struct pool *p, const struct store_object *dir, const char *name, uint8_t with,
                                uint32_t length)
{
    struct store_object o;
    assert_int_equal(t_make(p, &root_cred, dir, name, STORE_REG, 0644, &o), 0);
    fill(with, length);
    assert_int_equal(t_write(p, &root_cred, &o, 0, bytes, length), 0);
    return o;
}

static void holds(struct pool *p, const struct store_object *o, uint8_t with, uint32_t length)
{
    uint32_t count;
    fill(with, length);
    assert_int_equal(t_read(p, &root_cred, o, 0, got, sizeof(got), &count), 0);
    assert_int_equal(count, length);
    assert_memory_equal(got, bytes, length);
}

static bool at_least(struct store_time a, struct store_time b)
{
    return a.seconds > b.seconds || (a.seconds == b.seconds && a.nanoseconds >= b.nanoseconds);
}

/* ---- */

static void a_snapshot_stays_as_it_was(void **state)
{
    struct pool *p = *state;
    struct store_object big = file(p, &p->root, "big", 1, 500000), small = file(p, &p->root, "small", 2, 100), o;
    struct store_object gone = file(p, &p->root, "gone", 3, 300000);
    struct store_attr before = attr_of(p, &big), old_root = attr_of(p, &p->root);
    uint32_t snap = t_snapshot(p, p->tree);
    struct store_object root = root_of(p, snap), in = in_tree(&big, snap);
    /* The live volume goes on: parts of chunks, whole files, names. */
    fill(9, 10000);
    assert_int_equal(t_write(p, &root_cred, &big, 70000, bytes, 10000), 0);
    assert_int_equal(t_write(p, &root_cred, &small, 50, bytes, 10), 0);
    assert_int_equal(t_remove(p, &p->root, "gone"), 0);
    assert_int_equal(t_rename(p, &p->root, "small", &p->root, "other"), 0);
    file(p, &p->root, "new", 4, 100);
    settle(p);
    for (int round = 0; round < 2; round++) {
        holds(p, &in, 1, 500000);
        assert_int_equal(t_lookup(p, &root_cred, &root, "gone", &o), 0);
        holds(p, &o, 3, 300000);
        assert_int_equal(o.ino, gone.ino);
        assert_int_equal(t_lookup(p, &root_cred, &root, "small", &o), 0);
        holds(p, &o, 2, 100);
        assert_int_equal(t_lookup(p, &root_cred, &root, "other", &o), -ENOENT);
        assert_int_equal(t_lookup(p, &root_cred, &root, "new", &o), -ENOENT);
        struct store_attr attr = attr_of(p, &in), root_attr = attr_of(p, &root);
        assert_true(attr.change == before.change && attr.size == before.size && attr.used == before.used);
        assert_true(attr.ctime.nanoseconds == before.ctime.nanoseconds && attr.nlink == before.nlink);
        assert_true(root_attr.change == old_root.change);
        assert_true(attr.fsid != before.fsid && attr.fileid == before.fileid + (1ull << 40));
        pool_reopen(p);
    }
    struct store_usage usage = usage_of(p, snap);
    assert_int_equal(usage.files_used, 4);
    assert_int_equal(usage.bytes_used, before.used + (74 + 1) * 4096);
}

static void a_snapshot_refuses_every_change(void **state)
{
    struct pool *p = *state;
    struct store_object o = file(p, &p->root, "f", 1, 5000);
    uint32_t snap = t_snapshot(p, p->tree);
    struct store_object root = root_of(p, snap), in = in_tree(&o, snap);
    assert_int_equal(t_write(p, &root_cred, &in, 0, "x", 1), -EROFS);
    assert_int_equal(t_truncate(p, &in, 0), -EROFS);
    assert_int_equal(t_remove(p, &root, "f"), -EROFS);
    assert_int_equal(t_make(p, &root_cred, &root, "g", STORE_REG, 0644, &o), -EROFS);
    assert_int_equal(t_rename(p, &root, "f", &root, "g"), -EROFS);
    assert_int_equal(t_link(p, &root_cred, &in, &root, "g"), -EROFS);
    struct snapshot_call clone = {.p = p, .what = 1, .snapshot = p->tree};
    assert_int_equal(call_snapshot(&clone), -EINVAL); /* of a live volume */
    struct store_snapshot again = {.volume = snap};
    struct snapshot_call of_it = {.p = p, .each = &again, .count = 1};
    assert_int_equal(call_snapshot(&of_it), -EINVAL);
    assert_int_equal(t_restore(p, p->tree, p->tree, NULL), -EINVAL);
    assert_int_equal(t_restore(p, snap, snap, NULL), -EINVAL);
    uint32_t other = pool_tree(p, 0);
    assert_int_equal(t_restore(p, other, snap, NULL), -EXDEV);
}

static void clones_go_their_own_ways(void **state)
{
    struct pool *p = *state;
    struct store_object o = file(p, &p->root, "f", 1, 400000);
    uint32_t snap = t_snapshot(p, p->tree), a = t_clone(p, snap), b = t_clone(p, snap);
    struct store_object in_a = in_tree(&o, a), in_b = in_tree(&o, b), root_a = root_of(p, a), found;
    fill(7, 400000);
    assert_int_equal(t_write(p, &root_cred, &in_a, 0, bytes, 400000), 0);
    assert_int_equal(t_truncate(p, &in_b, 100000), 0);
    file(p, &root_a, "mine", 5, 10000);
    for (int round = 0; round < 2; round++) {
        struct store_object in_snap = in_tree(&o, snap), root_b = root_of(p, b);
        holds(p, &in_a, 7, 400000);
        holds(p, &in_b, 1, 100000);
        holds(p, &in_snap, 1, 400000);
        holds(p, &o, 1, 400000);
        assert_int_equal(t_lookup(p, &root_cred, &root_b, "mine", &found), -ENOENT);
        assert_int_equal(usage_of(p, a).files_used, 3);
        assert_int_equal(usage_of(p, b).files_used, 2);
        assert_int_equal(usage_of(p, b).bytes_used, 25 * 4096);
        pool_reopen(p);
    }
    /* A snapshot of a clone, a clone of that; then the origin goes. */
    uint32_t deep = t_clone(p, t_snapshot(p, a));
    assert_int_equal(t_tree_delete(p, snap), 0);
    assert_int_equal(t_tree_delete(p, p->tree), 0);
    settle(p);
    struct store_object in_deep = in_tree(&o, deep);
    struct store_attr attr;
    holds(p, &in_deep, 7, 400000);
    holds(p, &in_b, 1, 100000);
    assert_int_equal(t_getattr(p, &o, &attr), -ESTALE);
}

static void a_restore_brings_back_what_was(void **state)
{
    struct pool *p = *state;
    struct store_object kept = file(p, &p->root, "kept", 1, 300000), lost, found;
    struct store_attr attr;
    uint32_t first = t_snapshot(p, p->tree);
    fill(8, 300000);
    assert_int_equal(t_write(p, &root_cred, &kept, 0, bytes, 300000), 0);
    lost = file(p, &p->root, "lost", 2, 5000);
    struct store_attr changed = attr_of(p, &kept), root_before = attr_of(p, &p->root);
    struct store_snapshot safety = {.props = "safe", .props_length = 4};
    assert_int_equal(t_restore(p, p->tree, first, &safety), 0);
    assert_int_equal(safety.number, 2);
    for (int round = 0; round < 2; round++) {
        holds(p, &kept, 1, 300000);
        assert_int_equal(t_getattr(p, &lost, &attr), -ESTALE);
        assert_int_equal(t_lookup(p, &root_cred, &p->root, "lost", &found), -ENOENT);
        attr = attr_of(p, &kept);
        assert_true(attr.change > changed.change && at_least(attr.ctime, changed.ctime));
        assert_true(attr.change > root_before.change && attr_of(p, &p->root).change == attr.change);
        assert_true(at_least(attr_of(p, &p->root).ctime, root_before.ctime));
        struct store_object safe = in_tree(&kept, safety.id), root = root_of(p, safety.id);
        holds(p, &safe, 8, 300000);
        assert_int_equal(t_lookup(p, &root_cred, &root, "lost", &found), 0);
        assert_int_equal(usage_of(p, p->tree).files_used, 2);
        pool_reopen(p);
    }
    /* A change after it is newer still, and the guard of a SETATTR is what was answered. */
    struct store_setattr mode = {.set = STORE_SET_MODE, .mode = 0600};
    struct store_wcc wcc;
    struct call guarded = {
        .run = call_setattr, .c = &root_cred, .o = &kept, .set = &mode, .guard = &attr.ctime, .wcc = &wcc};
    attr = attr_of(p, &kept);
    assert_int_equal(call(p, guarded), 0);
    assert_true(attr_of(p, &kept).change > attr.change && wcc.before_change == attr.change);
    /* To the safety snapshot and back, without another. */
    assert_int_equal(t_restore(p, p->tree, safety.id, NULL), 0);
    holds(p, &kept, 8, 300000);
    assert_int_equal(t_lookup(p, &root_cred, &p->root, "lost", &found), 0);
    assert_int_equal(t_restore(p, p->tree, first, NULL), 0);
    holds(p, &kept, 1, 300000);
    settle(p);
    holds(p, &kept, 1, 300000);
}

static void several_volumes_are_taken_at_one_instant(void **state)
{
    struct pool *p = *state;
    uint32_t other = pool_tree(p, 0);
    struct store_object other_root = root_of(p, other), found;
    file(p, &p->root, "a", 1, 100);
    file(p, &other_root, "b", 1, 100);
    struct store_snapshot each[2] = {{.volume = p->tree, .props = "1", .props_length = 1},
                                     {.volume = other, .props = "22", .props_length = 2}};
    struct snapshot_call k = {.p = p, .each = each, .count = 2};
    assert_int_equal(call_snapshot(&k), 0);
    struct store_object a = root_of(p, each[0].id), b = root_of(p, each[1].id);
    assert_int_equal(t_lookup(p, &root_cred, &a, "a", &found), 0);
    assert_int_equal(t_lookup(p, &root_cred, &b, "b", &found), 0);
    each[1].volume = 999;
    assert_int_equal(call_snapshot(&k), -ESTALE);
    uint64_t change, later;
    struct store_time when;
    assert_int_equal(p->s->ops->snapshots_changed(p->s, p->tree, &change, &when), 0);
    assert_int_equal(t_tree_delete(p, each[0].id), 0);
    assert_int_equal(p->s->ops->snapshots_changed(p->s, p->tree, &later, &when), 0);
    assert_true(later > change);
    each[1].volume = other;
    assert_int_equal(call_snapshot(&k), 0);
    assert_int_equal(each[0].number, 2);
    assert_int_equal(each[1].number, 2);
}

static bool count_entry(void *arg, const struct store_entry *e)
{
    *(unsigned *)arg += e->name.bytes[0] != '.';
    return true;
}

static bool until_full(void *arg, const struct store_entry *e)
{
    unsigned *room = arg;
    (void)e;
    return *room && (*room)--;
}

/* More than a listing passes at a time, of entries that only a clone sees. */
static void what_clones_have_added_is_in_no_listing_of_the_origin(void **state)
{
    enum { ADDED = 1500, OWN = 40 };
    struct pool *p = *state;
    char name[16];
    for (unsigned i = 0; i < OWN; i++) {
        snprintf(name, sizeof(name), "own%u", i);
        assert_int_equal(t_make(p, &root_cred, &p->root, name, STORE_FIFO, 0644, NULL), 0);
    }
    uint32_t snap = t_snapshot(p, p->tree), clone = t_clone(p, snap);
    struct store_object root = root_of(p, clone), in_snap = root_of(p, snap);
    for (unsigned i = 0; i < ADDED; i++) {
        snprintf(name, sizeof(name), "added%u", i);
        assert_int_equal(t_make(p, &root_cred, &root, name, STORE_FIFO, 0644, NULL), 0);
    }
    for (int attributes = 0; attributes < 2; attributes++) {
        unsigned entries = 0;
        bool eof;
        assert_int_equal(t_readdir(p, &root_cred, &p->root, 0, attributes, count_entry, &entries, &eof), 0);
        assert_true(eof && entries == OWN);
        entries = 0;
        assert_int_equal(t_readdir(p, &root_cred, &in_snap, 0, attributes, count_entry, &entries, &eof), 0);
        assert_true(eof && entries == OWN);
        entries = 0;
        assert_int_equal(t_readdir(p, &root_cred, &root, 0, attributes, count_entry, &entries, &eof), 0);
        assert_true(eof && entries == OWN + ADDED);
        entries = 10;
        assert_int_equal(t_readdir(p, &root_cred, &p->root, 0, attributes, until_full, &entries, &eof), 0);
        assert_true(!eof && entries == 0);
    }
}

/* Orphans: large enough that the reaper has to take them away, and has not yet. */
static void what_was_removed_before_is_in_no_clone(void **state)
{
    enum { LARGE = 12 };
    struct pool *p = *state;
    struct store_object o;
    assert_int_equal(t_make(p, &root_cred, &p->root, "large", STORE_REG, 0644, &o), 0);
    fill(1, 4096);
    for (uint64_t i = 0; i < LARGE; i++)
        assert_int_equal(t_write(p, &root_cred, &o, i * STORE_CHUNK, bytes, 4096), 0);
    uint32_t with = t_snapshot(p, p->tree);
    assert_int_equal(t_remove(p, &p->root, "large"), 0);
    uint32_t snap = t_snapshot(p, p->tree), clone = t_clone(p, snap);
    assert_int_equal(t_restore(p, p->tree, with, NULL), 0);
    settle(p);
    struct store_object root = root_of(p, clone), in = in_tree(&o, clone);
    struct store_attr attr;
    unsigned entries = 0;
    bool eof;
    assert_int_equal(t_readdir(p, &root_cred, &root, 0, true, count_entry, &entries, &eof), 0);
    assert_int_equal(entries, 0);
    assert_int_equal(t_getattr(p, &in, &attr), -ESTALE);
    assert_int_equal(usage_of(p, clone).files_used, 1);
    assert_int_equal(usage_of(p, clone).bytes_used, 0);
    assert_int_equal(usage_of(p, p->tree).bytes_used, LARGE * 4096);
    assert_int_equal(attr_of(p, &o).size, (LARGE - 1) * STORE_CHUNK + 4096);
}

static uint64_t blocks_live(struct pool *p)
{
    const struct seg_table *table = local_of(p->s)->segs->table;
    uint64_t live = 0;
    for (unsigned i = 0; i < table->count; i++)
        live += atomic_load(&table->at[i]->live);
    return live;
}

/* Small segments in which a little is left of much: two files in a snapshot and in clones that have changed a part. */
static void what_is_shared_stays_so_when_it_is_moved(void **state)
{
    enum { CLONES = 5, FILES = 40 };
    struct pool *p = *state;
    struct store_object kept[2], in[CLONES + 1][2];
    uint32_t clones[CLONES];
    char name[16];
    pool_close(p);
    p->segment_bytes = 4 << 20;
    pool_open(p);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        struct store_object o = file(p, &p->root, name, 3, 400000);
        if (i % 20 == 7)
            kept[i / 20] = o;
    }
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        if (i % 20 != 7)
            assert_int_equal(t_remove(p, &p->root, name), 0);
    }
    uint32_t snap = t_snapshot(p, p->tree);
    for (int i = 0; i < CLONES; i++) {
        clones[i] = t_clone(p, snap);
        for (int f = 0; f < 2; f++) {
            in[i][f] = in_tree(&kept[f], clones[i]);
            fill((uint8_t)(100 + i), 4096);
            assert_int_equal(t_write(p, &root_cred, &in[i][f], 8192, bytes, 4096), 0);
        }
    }
    uint64_t before = blocks_live(p), moved = metric_read(METRIC_blocks_compacted);
    assert_int_equal(before, 2 * (98 + CLONES));
    local_of(p->s)->segs->worth_least = 64 << 10;
    settle(p);
    pool_reopen(p); /* ends what is being written to */
    local_of(p->s)->segs->worth_least = 64 << 10;
    for (int round = 0; round < 3; round++) {
        settle(p);
        assert_int_equal(blocks_live(p), before);
        for (int i = 0; i < CLONES; i++)
            for (int f = 0; f < 2; f++) {
                uint32_t count;
                assert_int_equal(t_read(p, &root_cred, &in[i][f], 0, got, sizeof(got), &count), 0);
                fill((uint8_t)(100 + i), 4096);
                assert_memory_equal(got + 8192, bytes, 4096);
                fill(3, 400000);
                assert_memory_equal(got, bytes, 8192);
                assert_memory_equal(got + 12288, bytes + 12288, 400000 - 12288);
            }
        holds(p, &kept[0], 3, 400000);
        holds(p, &kept[1], 3, 400000);
    }
    assert_true(metric_read(METRIC_blocks_compacted) - moved >= 2 * 98);
    assert_true(local_of(p->s)->segs->table->count <= 3);
}

static int audited_teardown(void **state)
{
    audit(*state);
    return pool_teardown(state);
}

static int tests(void)
{
    const struct CMUnitTest all[] = {
#define EACH(name) cmocka_unit_test_setup_teardown(name, pool_setup, audited_teardown)
        EACH(a_snapshot_stays_as_it_was),
        EACH(a_snapshot_refuses_every_change),
        EACH(clones_go_their_own_ways),
        EACH(a_restore_brings_back_what_was),
        EACH(several_volumes_are_taken_at_one_instant),
        EACH(what_was_removed_before_is_in_no_clone),
        EACH(what_clones_have_added_is_in_no_listing_of_the_origin),
        EACH(what_is_shared_stays_so_when_it_is_moved),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(void)
{
    return run_with_workers(tests);
}
