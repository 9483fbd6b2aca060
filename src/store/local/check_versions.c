/* Trees, the tree of versions, and whether `touched` lists every record.
 *
 * `touched` is kept as a set of hashes, some bits for each row (a Bloom filter), since it has no order by key: a record
 * whose row is missing is overlooked once in some thousand times.  Rows only come with greater numbers, so what has
 * come since the rows of a version were read is read when a record seems to have none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/local/check_private.h"

/* ---- trees ---- */

static void add_number(struct check *c, uint64_t **list, unsigned *count, unsigned *room, uint64_t number)
{
    unsigned at = *count;
    if (list_has(*list, *count, number))
        return;
    *list = grow(c, *list, sizeof(**list), *count, room);
    if (c->error)
        return;
    for (; at && (*list)[at - 1] > number; at--)
        (*list)[at] = (*list)[at - 1];
    (*list)[at] = number;
    (*count)++;
}

void tops_load(struct check *c)
{
    uint8_t value[RECORD_MAX];
    size_t length;
    struct tree_record tree;
    while (!c->error &&
           meta_system_next(c->t, "tree/", c->last_tree, value, sizeof(value), &length) == 0) {
        if (tree_decode(value, length, &tree))
            continue;
        add_number(c, &c->roots, &c->root_count, &c->root_room, tree.root);
        add_number(c, &c->orphans, &c->orphan_count, &c->orphan_room, tree.orphans);
    }
}

/* A directory that every tree must have. */
static void check_top(struct check *c, const struct tree_record *tree, uint64_t ino, const char *what)
{
    struct inode inode;
    struct key k;
    uint64_t seen;
    key_inode(&k, ino);
    int error = visible(c->t, DB_INODE, &k, tree->version, c->row, &seen);
    if (!error)
        error = inode_decode(c->row->value, c->row->length, ino, &inode, NULL);
    if (error || inode.type != STORE_DIR)
        found(c, tree->version, 0, true, "its %s (inode %llu) is not there or damaged: restore the volume from a "
              "snapshot", what, (unsigned long long)ino);
}

static void check_tree(struct check *c, const char *key, const struct tree_record *tree)
{
    if (tree->id != strtoul(key + strlen("tree/"), NULL, 16) || versions_tree(c->vs, tree->version) != tree->id) {
        found(c, 0, 0, true, "volume or snapshot number %u says it is version %llu, which is not there or another's: "
              "restart the server, and if that does not help copy what can be read into a new pool", tree->id,
              (unsigned long long)tree->version);
        return;
    }
    check_top(c, tree, tree->root, "root directory");
    check_top(c, tree, tree->orphans, "list of files that are open and removed");
}

void check_trees(struct check *c)
{
    uint8_t value[RECORD_MAX];
    char key[64] = "";
    size_t length;
    while (!c->error && meta_system_next(c->t, "tree/", key, value, sizeof(value), &length) == 0) {
        struct tree_record tree;
        if (tree_decode(value, length, &tree)) {
            found(c, 0, 0, true, "the record %s of a volume or snapshot cannot be read: restore the pool's meta/ from "
                  "a backup, or copy what can be read into a new pool", key);
            continue;
        }
        check_tree(c, key, &tree);
    }
}

/* ---- the tree of versions ---- */

static bool is_live(struct check *c, uint64_t version)
{
    uint8_t value[RECORD_MAX];
    char key[64];
    size_t length;
    struct tree_record tree;
    uint32_t id = versions_tree(c->vs, version);
    snprintf(key, sizeof(key), "tree/%08x", id);
    return id && meta_system_get(c->t, key, value, sizeof(value), &length) == 0 &&
           tree_decode(value, length, &tree) == 0 && !tree.parent;
}

static void check_version(struct check *c, uint64_t version, const struct version_record *record)
{
    const uint64_t *children;
    if (!versions_known(c->vs, version) || record->parent != versions_parent(c->vs, version) ||
        record->parent >= version) {
        found(c, 0, 0, true, "version %llu is said to be a child of %llu, which it is not: do not delete snapshots, "
              "and copy the pool's volumes into a new pool", (unsigned long long)version,
              (unsigned long long)record->parent);
        return;
    }
    if (versions_tree(c->vs, version))
        return;
    long count = versions_children(c->vs, version, &children);
    if (count > 1 || (count == 1 && is_live(c, children[0])) || is_dropping(c, version))
        return;
    found(c, 0, 0, false, "version %llu has no name, %ld %s, and nothing is waiting to remove it: space is lost, no "
          "data",
          (unsigned long long)version, count, count == 1 ? "child" : "children");
}

/* In steps, each with the versions as they are then. */
void check_versions(struct check *c)
{
    uint8_t value[RECORD_MAX];
    char key[64] = "";
    size_t length;
    int end = 0;
    while (!end && !check_stopped(c) && !step_begin(c)) {
        while (!end && !step_is_over(c)) {
            struct version_record record;
            end = meta_system_next(c->t, "version/", key, value, sizeof(value), &length);
            if (end)
                break;
            uint64_t version = strtoull(key + strlen("version/"), NULL, 16);
            if (version_decode(value, length, &record))
                found(c, 0, 0, true, "the record of version %llu cannot be read: restore the pool's meta/ from a "
                      "backup",
                      (unsigned long long)version);
            else
                check_version(c, version, &record);
        }
        step_end(c);
    }
}

/* ---- touched ---- */

enum { HASHES = 8, BITS_A_ROW = 16, ROWS_MORE = 65536 };

struct rows { /* of a version */
    uint64_t version, last, count; /* the last row's number */
};

struct check_touched {
    uint64_t *bits, mask;
    struct rows *rows; /* ascending versions */
    unsigned count, room;
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t hash(uint64_t version, uint8_t db, const uint8_t *key, size_t length)
{
    uint64_t h = mix(version * 8 + db);
    for (size_t i = 0; i + 8 <= length; i += 8)
        h = mix(h ^ key_number(key, i)) + 0x9e3779b97f4a7c15u;
    return h;
}

static void filter_add(struct check_touched *f, uint64_t h)
{
    uint64_t step = mix(h) | 1;
    for (unsigned i = 0; i < HASHES; i++, h += step)
        f->bits[(h & f->mask) / 64] |= UINT64_C(1) << (h & f->mask) % 64;
}

static bool filter_has(const struct check_touched *f, uint64_t h)
{
    uint64_t step = mix(h) | 1;
    for (unsigned i = 0; i < HASHES; i++, h += step)
        if (!(f->bits[(h & f->mask) / 64] >> (h & f->mask) % 64 & 1))
            return false;
    return true;
}

static struct rows *rows_of(struct check *c, uint64_t version)
{
    struct check_touched *f = c->touched;
    unsigned low = 0, high = f->count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (f->rows[middle].version < version)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < f->count && f->rows[low].version == version)
        return &f->rows[low];
    f->rows = grow(c, f->rows, sizeof(*f->rows), f->count, &f->room);
    if (c->error)
        return NULL;
    memmove(f->rows + low + 1, f->rows + low, (f->count - low) * sizeof(*f->rows));
    f->rows[low] = (struct rows){.version = version};
    f->count++;
    return &f->rows[low];
}

static void take_row(struct check *c, const struct record *r)
{
    uint64_t version = key_number(r->key, 0);
    if (r->key_length != 16 || r->length < 2 || r->value[0] >= DB_TOUCHED) {
        found(c, 0, 0, false, "a row of `touched` cannot be read: deleting snapshots may not give all space back");
        return;
    }
    struct rows *rows = rows_of(c, version);
    if (!rows)
        return;
    if (!rows->count && !versions_known(c->vs, version))
        found(c, 0, 0, false, "`touched` lists records of version %llu, which is not there: space is lost, no data",
              (unsigned long long)version);
    rows->last = key_number(r->key, 8);
    rows->count++;
    filter_add(c->touched, hash(version, r->value[0], r->value + 1, r->length - 1u));
}

static int touched_new(struct check *c)
{
    MDB_stat stat;
    int error = lmdb_error(mdb_stat(c->t->mdb, c->l->meta->dbi[DB_TOUCHED], &stat));
    c->touched = calloc(1, sizeof(*c->touched));
    if (error || !c->touched)
        return c->error = error ? error : -ENOMEM;
    uint64_t bits = 64;
    while (bits < (stat.ms_entries + stat.ms_entries / 4 + ROWS_MORE) * BITS_A_ROW)
        bits *= 2;
    c->touched->bits = calloc(bits / 64, sizeof(uint64_t));
    c->touched->mask = bits - 1;
    return c->touched->bits ? 0 : (c->error = -ENOMEM);
}

int touched_read(struct check *c)
{
    struct key at = {.length = 1};
    int end = 0;
    while (!end && !check_stopped(c) && !step_begin(c)) {
        end = c->touched ? 0 : touched_new(c);
        if (!end)
            end = db_seek(c->t, DB_TOUCHED, &at, c->row);
        for (unsigned n = 1; !end && !c->error; n++) {
            at.length = c->row->key_length;
            memcpy(at.bytes, c->row->key, at.length);
            take_row(c, c->row);
            atomic_fetch_add_explicit(&c->job->records, 1, memory_order_relaxed);
            end = key_increment(&at) ? 0 : -ENOENT;
            if (!end && n % 64 == 0 && step_is_over(c))
                break;
            if (!end)
                end = db_step(c->t, DB_TOUCHED, c->row);
        }
        step_end(c);
    }
    if (end && end != -ENOENT && !c->error)
        c->error = end;
    return c->error;
}

/* What has come to the version's rows since they were read. */
static void catch_up(struct check *c, uint64_t version)
{
    struct key at;
    struct record *r = malloc(sizeof(*r));
    struct rows *rows = r ? rows_of(c, version) : NULL;
    if (!rows) {
        free(r);
        c->error = -ENOMEM;
        return;
    }
    key_touched(&at, version, rows->last + 1);
    for (int error = db_seek(c->t, DB_TOUCHED, &at, r); !error && key_number(r->key, 0) == version && !c->error;
         error = db_step(c->t, DB_TOUCHED, r))
        take_row(c, r);
    free(r);
}

void touched_has(struct check *c, const struct check_group *g, unsigned i)
{
    uint64_t version = g->items[i].version, h = hash(version, (uint8_t)g->db, g->key.bytes, g->key.length);
    if (!c->touched || filter_has(c->touched, h))
        return;
    catch_up(c, version);
    if (!c->error && !filter_has(c->touched, h))
        found_in(c, g, i, 0, false, "a record of inode %llu, version %llu, is not listed in `touched`: when the "
                 "snapshot is deleted, its space will not come back", (unsigned long long)key_number(g->key.bytes, 0),
                 (unsigned long long)version);
}

/* The rows that were read are not as many as the versions' records say now. */
bool touched_is_doubtful(struct check *c)
{
    uint8_t value[RECORD_MAX];
    char key[64] = "";
    size_t length;
    struct version_record record;
    while (meta_system_next(c->t, "version/", key, value, sizeof(value), &length) == 0) {
        const struct rows *rows = rows_of(c, strtoull(key + strlen("version/"), NULL, 16));
        if (!rows || (version_decode(value, length, &record) == 0 && rows->count != record.touched))
            return true;
    }
    return false;
}

void touched_free(struct check *c)
{
    if (!c->touched)
        return;
    free(c->touched->bits);
    free(c->touched->rows);
    free(c->touched);
}

int64_t touched_count(struct check *c, uint64_t version)
{
    struct key at;
    int64_t count = 0;
    int error;
    key_touched(&at, version, 0);
    for (error = db_seek(c->t, DB_TOUCHED, &at, c->row); !error && key_number(c->row->key, 0) == version;
         error = db_step(c->t, DB_TOUCHED, c->row))
        count++;
    return error && error != -ENOENT ? error : count;
}
