#include "copy_fixture.h"
#include "snapshot_fixture.h"

#include <fcntl.h>

#include "sluice/store_check.h"
#include "store/local/meta_private.h"
#include "store/local/meta_refs.h"
#include "store/local/reaper.h"
#include "store/local/seg_private.h"
#include "store/local/writer.h"

/* A pool with some of everything is right; and each kind of damage, made by hand in the records, is found. */

static uint8_t bytes[1 << 20];

/* ---- checking ---- */

struct findings {
    unsigned count;
    char text[65536];
};

static void note(void *arg, const struct store_finding *f)
{
    struct findings *all = arg;
    size_t used = strlen(all->text);
    snprintf(all->text + used, sizeof(all->text) - used, "%u trees, %.*s: %s\n", f->tree_count, (int)f->path_length,
             f->path ? f->path : "", f->text);
    all->count++;
}

static struct findings run_check(struct pool *p, bool data)
{
    static struct findings all;
    struct store_check job = {.metadata = true, .data = data, .findings_most = 50, .finding = note, .arg = &all};
    memset(&all, 0, sizeof(all));
    int rc = store_check_run(p->s, &job);
    if (rc)
        fail_msg("check: %s", sl_strerror(rc));
    assert_int_equal(job.findings < 50 ? job.findings : 50, all.count);
    assert_int_equal(job.unsettled, 0);
    return all;
}

static void is_right(struct pool *p)
{
    struct findings all = run_check(p, true);
    if (all.count)
        fail_msg("%s", all.text);
}

/* One of them says so; `path` may be NULL. */
static void finds(struct pool *p, const char *path, const char *what)
{
    struct findings all = run_check(p, false);
    if (!strstr(all.text, what) || (path && !strstr(all.text, path)))
        fail_msg("no '%s' (%s) in: %s", what, path ? path : "", all.text);
}

/* ---- damage ---- */

struct damage {
    struct mutation m;
    struct pool *p;
    void (*make)(struct meta_txn *t, struct damage *d);
    uint64_t ino, version, other;
    place_t place;
};

static int apply_damage(struct mutation *m, struct meta_txn *t)
{
    struct damage *d = (struct damage *)m;
    d->make(t, d);
    return t->failed;
}

static int damage_in_worker(void *arg)
{
    struct damage *d = arg;
    d->m.apply = apply_damage;
    return writer_run(local_of(d->p->s), &d->m);
}

static void damage(struct pool *p, struct damage d)
{
    d.p = p;
    assert_int_equal(worker_call(worker_at(0), damage_in_worker, &d), 0);
}

/* The first record of a key that begins with this number. */
static struct key first_of(struct meta_txn *t, enum db db, uint64_t number_of, struct record *r)
{
    struct key k;
    key_inode(&k, number_of);
    assert_int_equal(db_seek(t, db, &k, r), 0);
    assert_int_equal(key_number(r->key, 0), number_of);
    k.length = r->key_length;
    memcpy(k.bytes, r->key, r->key_length);
    return k;
}

/* ---- the pool: a snapshot, a clone, shared blocks, links, directories, what was removed ---- */

struct things {
    struct store_object dir, big, small, other, linked;
    uint32_t snap, clone;
};

static struct store_object file(struct pool *p, const struct store_object *dir, const char *name, uint32_t length)
{
    struct store_object o = made(p, dir, name, STORE_REG);
    memset(bytes, name[0], sizeof(bytes));
    assert_int_equal(t_write(p, &root_cred, &o, 0, bytes, length), 0);
    return o;
}

static struct things make_things(struct pool *p)
{
    struct things x = {0};
    x.dir = made(p, &p->root, "dir", STORE_DIR);
    made(p, &x.dir, "inner", STORE_DIR);
    x.big = file(p, &x.dir, "big", 700000);
    x.other = file(p, &p->root, "other", 300000);
    x.small = file(p, &p->root, "small", 100);
    x.linked = file(p, &p->root, "linked", 5000);
    assert_int_equal(t_link(p, &root_cred, &x.linked, &x.dir, "again"), 0);
    file(p, &p->root, "gone", 400000);
    x.snap = t_snapshot(p, p->tree);
    x.clone = t_clone(p, x.snap);
    /* The first chunk's other blocks are held by two records now. */
    assert_int_equal(t_write(p, &root_cred, &x.big, 8192, bytes, 4096), 0);
    assert_int_equal(t_remove(p, &p->root, "gone"), 0);
    assert_int_equal(t_rename(p, &p->root, "small", &x.dir, "moved"), 0);
    struct store_object root = root_of(p, x.clone);
    made(p, &root, "own", STORE_DIR);
    assert_int_equal(t_truncate(p, &(struct store_object){x.clone, x.big.generation, x.big.ino}, 300000), 0);
    settle(p);
    return x;
}

static uint64_t version_of(struct pool *p, uint32_t id)
{
    struct tree tree;
    assert_int_equal(meta_tree(local_of(p->s), id, &tree), 0);
    return tree.version;
}

/* ---- */

static void a_pool_with_snapshots_and_clones_is_right(void **state)
{
    struct pool *p = *state;
    make_things(p);
    is_right(p);
    uint32_t snap = t_snapshot(p, p->tree);
    t_clone(p, snap);
    is_right(p);
    pool_reopen(p);
    settle(p);
    is_right(p);
}

static void drop_entry(struct meta_txn *t, struct damage *d)
{
    struct record r;
    struct key k = first_of(t, DB_ENTRY, d->ino, &r);
    db_del(t, DB_ENTRY, &k);
}

static void an_inode_without_its_entry(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    struct store_object alone = made(p, &x.dir, "alone", STORE_DIR);
    file(p, &alone, "one", 10);
    damage(p, (struct damage){.make = drop_entry, .ino = alone.ino});
    finds(p, NULL, "named by no entry");
}

static void drop_inode(struct meta_txn *t, struct damage *d)
{
    struct key k;
    key_inode(&k, d->ino);
    key_add_version(&k, d->version);
    assert_int_equal(db_del(t, DB_INODE, &k), 0);
}

static void an_entry_without_its_inode(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = drop_inode, .ino = x.other.ino, .version = version_of(p, x.snap)});
    finds(p, NULL, "entry 'other' in directory");
    finds(p, NULL, "which is not there");
}

static void spoil_inode(struct meta_txn *t, struct damage *d)
{
    struct record r;
    struct key k = first_of(t, DB_INODE, d->ino, &r);
    r.value[1] = 99;
    db_put(t, DB_INODE, &k, r.value, r.length);
}

static void an_inode_that_cannot_be_read(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = spoil_inode, .ino = x.other.ino});
    finds(p, NULL, "cannot be read; restore");
}

static void change_inode(struct meta_txn *t, struct damage *d)
{
    struct record r;
    struct inode inode;
    uint8_t value[RECORD_MAX];
    struct key k = first_of(t, DB_INODE, d->ino, &r);
    inode_decode(r.value, r.length, d->ino, &inode, NULL);
    if (d->other)
        inode.size = d->other;
    else
        inode.nlink++;
    db_put(t, DB_INODE, &k, value, inode_encode(&inode, NULL, value));
}

static void a_wrong_link_count_of_a_file(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = change_inode, .ino = x.other.ino});
    finds(p, "/other", "has 2 links, and 1 are recorded");
}

static void a_wrong_link_count_of_a_directory(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = change_inode, .ino = x.dir.ino});
    finds(p, "/dir", "link count of 4, and 1 directories");
}

static void data_past_the_end(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = change_inode, .ino = x.other.ino, .other = 1000});
    finds(p, "/other", "past its end");
}

static void drop_link(struct meta_txn *t, struct damage *d)
{
    struct record r;
    struct key k = first_of(t, DB_LINK, d->ino, &r);
    db_del(t, DB_LINK, &k);
}

static void a_link_that_is_not_recorded(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = drop_link, .ino = x.linked.ino});
    finds(p, NULL, "has 2 links, and 1 are recorded");
    finds(p, NULL, "which says it is another");
}

static void drop_chunk(struct meta_txn *t, struct damage *d)
{
    struct record r;
    struct key k = first_of(t, DB_CHUNK, d->ino, &r);
    db_del(t, DB_CHUNK, &k);
}

static void lost_blocks(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = drop_chunk, .ino = x.other.ino});
    finds(p, "/other", "says it holds 74 blocks, and its data are 10");
    finds(p, NULL, "are counted: space is lost");
}

static void all_blocks_lost(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = drop_chunk, .ino = x.other.ino});
    damage(p, (struct damage){.make = drop_chunk, .ino = x.other.ino});
    finds(p, "/other", "should hold 74 blocks and holds none");
}

/* The first block of the file's first chunk lies at d->place from now on. */
static void move_block(struct meta_txn *t, struct damage *d)
{
    struct record r;
    struct chunk_map map;
    uint8_t value[RECORD_MAX];
    struct key k = first_of(t, DB_CHUNK, d->ino, &r);
    assert_int_equal(chunk_decode(r.value, r.length, &map), 0);
    map.extents[0].place = d->place;
    map.extents[0].count = 1;
    map.extent_count = 1;
    db_put(t, DB_CHUNK, &k, value, chunk_encode(&map, map.change, value));
}

static place_t place_of(struct pool *p, const struct store_object *o)
{
    struct meta_txn *t;
    struct chunk_map map;
    uint64_t chunk;
    assert_int_equal(meta_read_begin(local_of(p->s), &t), 0);
    assert_int_equal(meta_chunk_next(t, o->tree, o->ino, 0, &chunk, &map), 0);
    meta_read_end(t);
    return map.extents[0].place;
}

static void a_block_of_two_files(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = move_block, .ino = x.linked.ino, .place = place_of(p, &x.other)});
    finds(p, "/linked", "2 records hold the block at");
    finds(p, "/other", "and 1 are counted");
}

static void a_block_outside_of_segments(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = move_block, .ino = x.linked.ino, .place = 77ull << PLACE_BITS});
    finds(p, "/linked", "where no segment is");
}

static void free_block(struct meta_txn *t, struct damage *d)
{
    struct key k;
    key_free(&k, 1, d->place, 1);
    db_put(t, DB_FREE, &k, "", 0);
}

static void a_block_that_is_free(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = free_block, .place = place_of(p, &x.other)});
    finds(p, "/other", "on the list of free blocks");
}

static void hold_more(struct meta_txn *t, struct damage *d)
{
    refs_hold(t, d->place, 1);
}

static void not_dead(struct meta_txn *t, place_t place, uint32_t blocks)
{
    fail();
}

static void hold_less(struct meta_txn *t, struct damage *d)
{
    refs_release(t, d->place, 1, not_dead);
}

static void a_count_that_is_too_high(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = hold_more, .place = place_of(p, &x.big)});
    finds(p, NULL, "are counted as shared by more records than hold them: space is lost");
}

static void a_count_that_is_too_low(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = hold_less, .place = place_of(p, &x.big)});
    finds(p, "/dir/big", "records hold the block at");
}

static void a_count_of_a_block_that_one_record_holds(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = hold_more, .place = place_of(p, &x.other)});
    finds(p, NULL, "are counted as shared");
}

/* Blocks that two files share, one of which says less or more of them than is so. */
static struct store_object shared_file(struct pool *p, const struct things *x)
{
    struct store_object copy = made(p, &p->root, "copy", STORE_REG);
    assert_int_equal(t_clone_range(p, &x->other, 0, &copy, 0, attr_of(p, &x->other).size), 0);
    is_right(p);
    return copy;
}

static void a_count_of_two_files_that_is_too_low(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    struct store_object copy = shared_file(p, &x);
    damage(p, (struct damage){.make = hold_less, .place = place_of(p, &copy)});
    finds(p, "/other", "2 records hold the block at");
    finds(p, "/copy", "and 1 are counted");
}

static void a_count_of_two_files_that_is_too_high(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    struct store_object copy = shared_file(p, &x);
    damage(p, (struct damage){.make = hold_more, .place = place_of(p, &copy)});
    finds(p, NULL, "1 blocks, the first at");
}

static void one_of_two_records_that_is_lost(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    struct store_object copy = shared_file(p, &x);
    damage(p, (struct damage){.make = drop_chunk, .ino = copy.ino});
    finds(p, NULL, "64 blocks, the first at");
    finds(p, "/copy", "says it holds 74 blocks, and its data are 10");
}

static void change_usage(struct meta_txn *t, struct damage *d)
{
    uint8_t value[RECORD_MAX];
    char key[64];
    size_t length;
    struct usage_record usage;
    snprintf(key, sizeof(key), "usage/%08x", (unsigned)d->other);
    assert_int_equal(meta_system_get(t, key, value, sizeof(value), &length), 0);
    usage_decode(value, length, &usage);
    usage.files++;
    meta_system_put(t, key, value, usage_encode(&usage, value));
}

static void a_wrong_usage(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    const uint32_t trees[] = {p->tree, x.snap, x.clone};
    for (unsigned i = 0; i < 3; i++)
        damage(p, (struct damage){.make = change_usage, .other = trees[i]});
    struct findings all = run_check(p, false);
    assert_int_equal(all.count, 3);
    assert_non_null(strstr(all.text, "its usage says"));
}

static void change_segment(struct meta_txn *t, struct damage *d)
{
    char key[SEG_KEY_ROOM];
    uint32_t words[3];
    size_t length;
    seg_record_key(place_segment(d->place), key);
    assert_int_equal(meta_system_get(t, key, words, sizeof(words), &length), 0);
    words[1] += 5;
    meta_system_put(t, key, words, sizeof(words));
}

static void a_wrong_count_of_a_segment(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = change_segment, .place = place_of(p, &x.other)});
    finds(p, NULL, "are counted: space is lost");
}

/* A copy of the inode's record, as another version's. */
static void copy_inode(struct meta_txn *t, struct damage *d)
{
    struct record r;
    struct key k = first_of(t, DB_INODE, d->ino, &r);
    key_set_version(&k, d->version);
    db_put(t, DB_INODE, &k, r.value, r.length);
}

static void a_record_of_a_version_that_is_not_there(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = copy_inode, .ino = x.other.ino, .version = 9999});
    finds(p, NULL, "belongs to version 9999, which is not there");
}

static void delete_tree(struct pool *p, uint32_t id);

static void a_record_that_nobody_sees(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    uint64_t version = version_of(p, x.snap);
    delete_tree(p, x.snap);
    settle(p);
    is_right(p);
    /* Both the volume and the clone have changed their root directory since. */
    damage(p, (struct damage){.make = copy_inode, .ino = p->root.ino, .version = version});
    finds(p, NULL, "no volume or snapshot sees it");
}

static void a_record_that_is_not_touched(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = copy_inode, .ino = x.other.ino, .version = version_of(p, x.clone)});
    finds(p, NULL, "is not listed in `touched`");
}

static void add_row(struct meta_txn *t, struct damage *d)
{
    struct key k;
    key_touched(&k, d->version, 1);
    db_put(t, DB_TOUCHED, &k, "\0abcdefgh", 9);
}

static void a_wrong_count_of_rows(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = add_row, .version = version_of(p, x.clone)});
    finds(p, NULL, "rows in `touched`, and its record says");
}

static void say_gone(struct meta_txn *t, struct damage *d)
{
    static const uint8_t gone = RECORD_GONE;
    struct key k;
    key_link(&k, d->ino, 1, 1);
    key_add_version(&k, d->version);
    db_put(t, DB_LINK, &k, &gone, 1);
}

static void gone_where_nothing_was(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = say_gone, .ino = x.other.ino, .version = version_of(p, x.clone)});
    finds(p, NULL, "where nothing was before");
}

static void add_version(struct meta_txn *t, struct damage *d)
{
    uint64_t version = version_new(t, d->version, 0);
    assert_true(version > d->version);
}

static void a_version_without_a_name(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    damage(p, (struct damage){.make = add_version, .version = version_of(p, x.snap)});
    finds(p, NULL, "has no name, 0 children");
}

static void drop_top(struct meta_txn *t, struct damage *d)
{
    struct record r;
    struct key k = first_of(t, DB_INODE, d->ino, &r);
    while (key_number(r.key, 0) == d->ino) {
        db_del(t, DB_INODE, &k);
        if (db_seek(t, DB_INODE, &k, &r))
            break;
        k.length = r.key_length;
        memcpy(k.bytes, r.key, r.key_length);
    }
}

static void a_volume_without_a_root(void **state)
{
    struct pool *p = *state;
    make_things(p);
    damage(p, (struct damage){.make = drop_top, .ino = p->root.ino});
    finds(p, NULL, "its root directory");
}

static int delete_in_worker(struct call *k)
{
    return k->s->ops->tree_delete(k->s, *k->number);
}

static void delete_tree(struct pool *p, uint32_t id)
{
    assert_int_equal(call(p, (struct call){.run = delete_in_worker, .number = &id}), 0);
}

static void flip_byte(struct pool *p, place_t place)
{
    char path[128];
    uint8_t byte;
    snprintf(path, sizeof(path), "%s/data/%08x.seg", p->path, place_segment(place));
    int fd = open(path, O_RDWR);
    off_t at = (off_t)place_block(place) * STORE_BLOCK + 100;
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void a_damaged_block_is_named_once_with_all_who_see_it(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    flip_byte(p, place_of(p, &x.other));
    struct findings all = run_check(p, true);
    assert_int_equal(all.count, 1);
    assert_non_null(strstr(all.text, "3 trees, /other: bytes 0 to 4095 are damaged"));
}

static void a_missing_segment(void **state)
{
    struct pool *p = *state;
    struct things x = make_things(p);
    char path[128], away[160];
    snprintf(path, sizeof(path), "%s/data/%08x.seg", p->path, place_segment(place_of(p, &x.other)));
    snprintf(away, sizeof(away), "%s.away", path);
    assert_int_equal(rename(path, away), 0);
    struct findings all = run_check(p, true);
    assert_non_null(strstr(all.text, "is not there or too short"));
    assert_non_null(strstr(all.text, "cannot be read"));
    assert_int_equal(rename(away, path), 0);
}

/* ---- a stopped pool ---- */

static void a_stopped_pool_is_checked_and_compacted(void **state)
{
    struct pool *p = *state;
    char why[256];
    uint64_t before, after;
    struct store *s;
    char name[32];
    assert_int_equal(store_open_stopped(p->path, &s, why), -EBUSY);
    assert_int_equal(store_compact_stopped(p->path, &before, &after, why), -EBUSY);
    assert_int_equal(store_open_stopped("/nowhere", &s, why), -ENOENT);
    make_things(p);
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        file(p, &p->root, name, 1000);
    }
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        assert_int_equal(t_remove(p, &p->root, name), 0);
    }
    pool_close(p);
    assert_int_equal(store_compact_stopped(p->path, &before, &after, why), 0);
    assert_true(after < before / 2);
    assert_int_equal(store_open_stopped(p->path, &p->s, why), 0);
    is_right(p);
    pool_close(p);
    pool_open(p);
    settle(p);
    is_right(p);
}

/* ---- while others change things ---- */

static atomic_bool busy_stop;

static void be_busy(struct pool *p, unsigned round)
{
    char name[32], to[32];
    struct store_object dir, o;
    snprintf(name, sizeof(name), "r%u", round);
    dir = made(p, &p->root, name, STORE_DIR);
    for (unsigned i = 0; i < 8; i++) {
        snprintf(name, sizeof(name), "f%u", i);
        snprintf(to, sizeof(to), "t%u-%u", round, i);
        o = file(p, &dir, name, i % 2 ? 1000 : 300000);
        if (i % 3 == 0)
            assert_int_equal(t_link(p, &root_cred, &o, &p->root, to), 0);
        else
            assert_int_equal(t_rename(p, &dir, name, &p->root, to), 0);
        if (i % 4 == 0)
            assert_int_equal(t_truncate(p, &o, 5000), 0);
        if (i % 4 == 1)
            assert_int_equal(t_remove(p, i % 3 ? &p->root : &dir, i % 3 ? to : name), 0);
    }
    assert_int_equal(t_write(p, &root_cred, &o, 4096, bytes, 4096), 0);
    uint32_t snap = t_snapshot(p, p->tree), clone = t_clone(p, snap);
    struct store_object in = in_tree(&o, clone);
    if (attr_of(p, &o).size > 4096)
        assert_int_equal(t_write(p, &root_cred, &in, 0, bytes, 4096), 0);
    delete_tree(p, round % 2 ? snap : clone);
    if (round % 3 == 0)
        delete_tree(p, round % 2 ? clone : snap);
}

static void *busy_thread(void *arg)
{
    rcu_register_thread();
    for (unsigned round = 0; !atomic_load(&busy_stop); round++)
        be_busy(arg, round);
    rcu_unregister_thread();
    return NULL;
}

static void nothing_is_found_while_others_change_things(void **state)
{
    enum { CHECKS_LEAST = 20, SECONDS = 2 };
    struct pool *p = *state;
    pthread_t thread;
    unsigned checks = 0;
    make_things(p);
    atomic_store(&busy_stop, false);
    assert_int_equal(pthread_create(&thread, NULL, busy_thread, p), 0);
    for (uint64_t end = clock_monotonic_ns() + SECONDS * 1000000000ull;
         checks < CHECKS_LEAST || clock_monotonic_ns() < end; checks++) {
        struct findings all = run_check(p, checks % 4 == 0);
        if (all.count) {
            atomic_store(&busy_stop, true);
            pthread_join(thread, NULL);
            fail_msg("check %u: %s", checks, all.text);
        }
    }
    atomic_store(&busy_stop, true);
    pthread_join(thread, NULL);
    settle(p);
    is_right(p);
}

static int tests(void)
{
    const struct CMUnitTest all[] = {
#define EACH(name) cmocka_unit_test_setup_teardown(name, pool_setup, pool_teardown)
        EACH(a_pool_with_snapshots_and_clones_is_right),
        EACH(an_inode_without_its_entry),
        EACH(an_entry_without_its_inode),
        EACH(an_inode_that_cannot_be_read),
        EACH(a_wrong_link_count_of_a_file),
        EACH(a_wrong_link_count_of_a_directory),
        EACH(data_past_the_end),
        EACH(a_link_that_is_not_recorded),
        EACH(lost_blocks),
        EACH(all_blocks_lost),
        EACH(a_block_of_two_files),
        EACH(a_block_outside_of_segments),
        EACH(a_block_that_is_free),
        EACH(a_count_that_is_too_high),
        EACH(a_count_that_is_too_low),
        EACH(a_count_of_a_block_that_one_record_holds),
        EACH(a_count_of_two_files_that_is_too_low),
        EACH(a_count_of_two_files_that_is_too_high),
        EACH(one_of_two_records_that_is_lost),
        EACH(a_wrong_usage),
        EACH(a_wrong_count_of_a_segment),
        EACH(a_record_of_a_version_that_is_not_there),
        EACH(a_record_that_nobody_sees),
        EACH(a_record_that_is_not_touched),
        EACH(a_wrong_count_of_rows),
        EACH(gone_where_nothing_was),
        EACH(a_version_without_a_name),
        EACH(a_volume_without_a_root),
        EACH(a_damaged_block_is_named_once_with_all_who_see_it),
        EACH(a_missing_segment),
        EACH(a_stopped_pool_is_checked_and_compacted),
        EACH(nothing_is_found_while_others_change_things),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(void)
{
    return run_with_workers(tests);
}
