/* Versions that nothing names any more.
 *
 * `system` says what is to be done: "drop/~VERSION" for a version to be looked at, with how far that has come (newest
 * first: of those that go with all below them nothing has to be moved), and "again/VERSION/SERIAL" for a record of such
 * a version that one below has hidden.  A step takes up what it finds and goes on from the versions' tree as it is
 * now, so that nothing has to be remembered of how it was.
 *
 * Between any two steps every version that something names sees what it should: a record is removed when nobody sees
 * it, and moved between a version and its only child, which see the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/local/meta_private.h"

enum { STEP_BLOCKS_MOST = 262144 }; /* freed by one step: its runs are sorted and written with the group */

struct drop {
    struct meta_txn *t;
    uint64_t end;
    int64_t blocks;
    /* The row of `touched` being looked at, and the record it names. */
    struct record row, record;
    enum db db;
    struct key key; /* without a version */
    /* Versions to be looked at, and those where the record is hidden by "gone". */
    uint64_t *left, *gone;
    size_t left_count, gone_count;
};

static bool is_over(const struct drop *d)
{
    return d->t->failed || d->blocks >= STEP_BLOCKS_MOST || clock_monotonic_ns() >= d->end;
}

/* The group's own once it has changed them: as long as it has not, readers need not be waited for. */
static struct versions *versions_of(struct meta_txn *t)
{
    return group_versions(t->group) ? group_versions_own(t) : meta_of(t)->versions;
}

/* ---- what is to be done ---- */

static void drop_key(char key[64], uint64_t version)
{
    snprintf(key, 64, "drop/%016llx", (unsigned long long)~version);
}

/* How far that has come: rows of `touched` before `serial`, of the version itself (child 0) or of a child. */
struct progress {
    uint64_t serial, child;
};
#define ALL_ROWS UINT64_MAX

static void remember(struct meta_txn *t, uint64_t version, struct progress progress)
{
    char key[64];
    drop_key(key, version);
    meta_system_put(t, key, &progress, sizeof(progress));
    group_note_drops(t);
}

static void forget(struct meta_txn *t, uint64_t version)
{
    char key[64];
    drop_key(key, version);
    meta_system_put(t, key, NULL, 0);
}

void version_look_at(struct meta_txn *t, uint64_t version)
{
    if (version && versions_known(txn_versions(t), version) && !versions_tree(txn_versions(t), version))
        remember(t, version, (struct progress){0});
}

/* What they hold may have been seen by a version that is not there any more, or that has lost its name. */
static void look_at_all_above(struct meta_txn *t, uint64_t version)
{
    const struct versions *versions = txn_versions(t);
    uint64_t at = versions_parent(versions, version);
    for (; at && !versions_tree(versions, at); at = versions_parent(versions, at))
        remember(t, at, (struct progress){0});
}

void version_unname(struct meta_txn *t, uint64_t version)
{
    struct versions *versions = group_versions_own(t);
    const uint64_t *children;
    if (!versions)
        return;
    versions_name(versions, version, 0);
    remember(t, version, (struct progress){0});
    /* With one child that has a name it is merged, and what that hides of those above is looked at then. */
    if (versions_children(versions, version, &children) > 1 ||
        (versions_children(versions, version, &children) == 1 && !versions_tree(versions, children[0])))
        look_at_all_above(t, version);
}

void version_hidden(struct meta_txn *t, uint64_t version, enum db db, const struct key *k)
{
    uint8_t value[1 + KEY_ROOM];
    char key[64];
    snprintf(key, sizeof(key), "again/%016llx/%016llx", (unsigned long long)version,
             (unsigned long long)++group_counters(t->group)->serial);
    value[0] = (uint8_t)db;
    memcpy(value + 1, k->bytes, k->length);
    meta_system_put(t, key, value, 1 + (size_t)k->length);
    group_note_drops(t);
}

static int next_of(struct meta_txn *t, const char *prefix, char key[64], uint8_t *value, size_t *length)
{
    key[0] = 0;
    return meta_system_next(t, prefix, key, value, RECORD_MAX, length);
}

bool meta_drop_waits(struct meta_txn *t)
{
    uint8_t value[RECORD_MAX];
    char key[64];
    size_t length;
    return next_of(t, "drop/", key, value, &length) == 0 || next_of(t, "again/", key, value, &length) == 0;
}

/* ---- records ---- */

static struct key whole_key(const struct drop *d, uint64_t version)
{
    struct key k = d->key;
    key_add_version(&k, version);
    return k;
}

static bool has(struct drop *d, uint64_t version, struct record *out)
{
    struct key k = whole_key(d, version);
    return db_get(d->t, d->db, &k, out) == 0;
}

static void release(struct drop *d, const struct record *r, uint64_t version)
{
    struct chunk_map map;
    if (d->db != DB_CHUNK || record_is_gone(r->value, r->length))
        return;
    if (chunk_decode(r->value, r->length, &map)) {
        log_error("meta", "version %llu: a damaged block map; its blocks are lost", (unsigned long long)version);
        return;
    }
    for (unsigned i = 0; map.kind == CHUNK_MAP && i < map.extent_count; i++) {
        blocks_release(d->t, map.extents[i].place, map.extents[i].count);
        d->blocks += map.extents[i].count;
    }
}

static void delete(struct drop *d, uint64_t version)
{
    struct key k = whole_key(d, version);
    db_del(d->t, d->db, &k);
}

/* Removes the record `r` of the version. */
static void remove_record(struct drop *d, const struct record *r, uint64_t version)
{
    release(d, r, version);
    delete(d, version);
}

static void move_record(struct drop *d, const struct record *r, uint64_t from, uint64_t to, bool is_known)
{
    struct key k = whole_key(d, to);
    db_put(d->t, d->db, &k, r->value, r->length);
    delete(d, from);
    if (!is_known)
        touch(d->t, d->db, &d->key, to);
}

/* "gone" says that what lies beneath is not there; where nothing does it says nothing. */
static void remove_if_useless(struct drop *d, uint64_t version, uint64_t beneath)
{
    struct record r;
    uint64_t found;
    if (!has(d, version, &r) || !record_is_gone(r.value, r.length))
        return;
    if (beneath && visible(d->t, d->db, &d->key, beneath, &r, &found) == 0)
        return;
    delete(d, version);
}

/* ---- is a record seen? ---- */

static int push_children(struct drop *d, uint64_t version)
{
    const uint64_t *children;
    long count = versions_children(versions_of(d->t), version, &children);
    if (count < 0)
        return (int)count;
    if (count)
        memcpy(d->left + d->left_count, children, (size_t)count * sizeof(*children));
    d->left_count += (size_t)count;
    return 0;
}

/* 1: something that has a name sees the version's record of d->key; 0: nothing does. */
static int is_seen(struct drop *d, uint64_t version)
{
    struct record r;
    d->left_count = d->gone_count = 0;
    int error = push_children(d, version);
    while (!error && d->left_count) {
        uint64_t at = d->left[--d->left_count];
        if (has(d, at, &r)) {
            if (record_is_gone(r.value, r.length))
                d->gone[d->gone_count++] = at;
            continue;
        }
        if (versions_tree(versions_of(d->t), at))
            return 1;
        error = push_children(d, at);
    }
    return error;
}

/* Removes the record of a version without a name if nothing sees it. */
static void recheck(struct drop *d, uint64_t version)
{
    struct record r;
    if (!has(d, version, &r))
        return;
    int seen = is_seen(d, version);
    if (seen < 0)
        d->t->failed = seen;
    if (seen != 0)
        return;
    remove_record(d, &r, version);
    for (size_t i = 0; i < d->gone_count; i++)
        remove_if_useless(d, d->gone[i], versions_parent(versions_of(d->t), version));
}

/* ---- rows of `touched` ---- */

static bool key_from(struct drop *d, const uint8_t *value, size_t length)
{
    bool good = length > 1 && length - 1 <= KEY_ROOM - KEY_VERSION && value[0] < DB_TOUCHED;
    if (!good) {
        d->t->failed = SL_ECORRUPT;
        return false;
    }
    d->db = value[0];
    d->key.length = (uint8_t)(length - 1);
    memcpy(d->key.bytes, value + 1, d->key.length);
    return true;
}

/* The version's first row at or after *serial.  False at the end (or d->t->failed). */
static bool next_row(struct drop *d, uint64_t version, uint64_t *serial)
{
    struct key from;
    key_touched(&from, version, *serial);
    int error = db_seek(d->t, DB_TOUCHED, &from, &d->row);
    if (error || d->row.key_length != from.length || key_number(d->row.key, 0) != version)
        return false;
    *serial = key_number(d->row.key, 8);
    return key_from(d, d->row.value, d->row.length);
}

static void delete_row(struct drop *d, uint64_t version, uint64_t serial)
{
    struct key k;
    key_touched(&k, version, serial);
    db_del(d->t, DB_TOUCHED, &k);
    group_note_touched(d->t, version, -1);
}

static uint64_t count_rows(struct drop *d, uint64_t version)
{
    uint8_t value[RECORD_MAX];
    struct version_record record = {0};
    char key[64];
    size_t length;
    version_key(key, version);
    if (meta_system_get(d->t, key, value, sizeof(value), &length) || version_decode(value, length, &record))
        return 0;
    return record.touched + (uint64_t)group_touched(d->t->group, version);
}

/* ---- versions ---- */

static void put_parent(struct drop *d, uint64_t version, uint64_t parent)
{
    uint8_t value[RECORD_MAX];
    struct version_record record = {0};
    char key[64];
    size_t length;
    version_key(key, version);
    int error = meta_system_get(d->t, key, value, sizeof(value), &length);
    if (!error)
        error = version_decode(value, length, &record);
    if (error) {
        d->t->failed = error;
        return;
    }
    record.parent = parent;
    meta_system_put(d->t, key, value, version_encode(&record, value));
}

/* No records are left of it.  Its children get its parent. */
static void remove_version(struct drop *d, uint64_t version)
{
    const uint64_t *children;
    uint64_t parent = versions_parent(versions_of(d->t), version);
    char key[64];
    long count = versions_children(versions_of(d->t), version, &children);
    if (count < 0)
        d->t->failed = (int)count;
    for (long i = 0; i < count; i++)
        put_parent(d, children[i], parent);
    version_key(key, version);
    meta_system_put(d->t, key, NULL, 0);
    struct versions *versions = group_versions_own(d->t);
    if (versions)
        versions_remove(versions, version);
    forget(d->t, version);
}

static void drop_leaf(struct drop *d, uint64_t version)
{
    for (uint64_t serial = 0; next_row(d, version, &serial);) {
        if (has(d, version, &d->record))
            remove_record(d, &d->record, version);
        delete_row(d, version, serial);
        if (is_over(d))
            return;
    }
    look_at_all_above(d->t, version);
    remove_version(d, version);
}

/* What is hidden from a child that has a name is hidden by a record of its own: of those, the child with the fewest.
 * 0: there is none with fewer than the version has. */
static uint64_t few_rows(struct drop *d, uint64_t version)
{
    const uint64_t *children;
    long count = versions_children(versions_of(d->t), version, &children);
    uint64_t least = count_rows(d, version), found = 0;
    for (long i = 0; i < count; i++) {
        uint64_t rows = versions_tree(versions_of(d->t), children[i]) ? count_rows(d, children[i]) : UINT64_MAX;
        if (rows < least) {
            least = rows;
            found = children[i];
        }
    }
    return found;
}

static void recheck_all(struct drop *d, uint64_t version, struct progress progress)
{
    uint64_t child = few_rows(d, version), rows_of = child ? child : version;
    uint64_t serial = progress.child == child ? progress.serial : 0;
    for (; next_row(d, rows_of, &serial); serial++) {
        if (has(d, version, &d->record))
            recheck(d, version);
        else if (!child)
            delete_row(d, version, serial);
        if (is_over(d)) {
            remember(d->t, version, (struct progress){serial + 1, child});
            return;
        }
    }
    forget(d->t, version);
}

/* While the version had a name it may have been the last to see a record of one above, which its child hides. */
static void recheck_above(struct drop *d, uint64_t version)
{
    struct record r;
    uint64_t found = 0, parent = versions_parent(versions_of(d->t), version);
    if (!parent || versions_tree(versions_of(d->t), parent) || has(d, version, &r))
        return;
    int error = visible(d->t, d->db, &d->key, parent, &r, &found);
    if ((!error || error == -ENOENT) && found && !versions_tree(versions_of(d->t), found))
        recheck(d, found);
}

/* False: there is more, in another step. */
static bool recheck_above_child(struct drop *d, uint64_t version, uint64_t child, struct progress progress)
{
    uint64_t parent = versions_parent(versions_of(d->t), version);
    uint64_t serial = progress.child == child ? progress.serial : 0;
    if (!parent || versions_tree(versions_of(d->t), parent) || serial == ALL_ROWS)
        return true;
    for (; next_row(d, child, &serial); serial++) {
        recheck_above(d, version);
        if (is_over(d)) {
            remember(d->t, version, (struct progress){serial + 1, child});
            return false;
        }
    }
    remember(d->t, version, (struct progress){ALL_ROWS, child});
    return true;
}

/* Its records become the child's where that has none, and it goes. */
static void merge_down(struct drop *d, uint64_t version, uint64_t child, struct progress progress)
{
    struct record theirs;
    uint64_t parent = versions_parent(versions_of(d->t), version);
    if (!recheck_above_child(d, version, child, progress))
        return;
    for (uint64_t serial = 0; next_row(d, version, &serial);) {
        if (has(d, version, &d->record)) {
            if (has(d, child, &theirs)) {
                remove_record(d, &d->record, version);
                remove_if_useless(d, child, parent);
            } else {
                move_record(d, &d->record, version, child, false);
                if (!versions_tree(versions_of(d->t), child))
                    recheck(d, child); /* perhaps only this version saw it, when it had a name */
            }
        }
        delete_row(d, version, serial);
        if (is_over(d))
            return;
    }
    remove_version(d, version);
}

/* The child takes the version's number, or a child that takes its place: who named that names this. */
static void take_place(struct drop *d, uint64_t version, uint64_t child)
{
    uint32_t name = versions_tree(versions_of(d->t), child);
    remove_version(d, child);
    if (!name)
        return;
    const struct tree_node *node = tree_present(d->t, name);
    if (!node) {
        d->t->failed = SL_ECORRUPT;
        return;
    }
    struct tree_record record = node->record;
    record.version = version;
    tree_put_record(d->t, node, &record);
    forget(d->t, version);
}

static bool is_live(const struct drop *d, uint64_t version)
{
    uint32_t name = versions_tree(versions_of(d->t), version);
    const struct tree_node *node = name ? tree_present(d->t, name) : NULL;
    return node && !node->record.parent;
}

/* The child's records replace the version's.  The version stays where the child is still being written. */
static void merge_up(struct drop *d, uint64_t version, uint64_t child, struct progress progress)
{
    struct record mine;
    bool live = is_live(d, child);
    uint64_t serial = live && progress.child == child ? progress.serial : 0;
    uint64_t parent = versions_parent(versions_of(d->t), version);
    for (; next_row(d, child, &serial); serial++) {
        recheck_above(d, version);
        if (has(d, child, &d->record)) {
            bool both = has(d, version, &mine);
            if (both) {
                remove_record(d, &mine, version);
                remove_if_useless(d, child, parent);
            }
            if (!live && has(d, child, &d->record))
                move_record(d, &d->record, child, version, both);
        }
        if (!live)
            delete_row(d, child, serial);
        if (is_over(d)) {
            remember(d->t, version, (struct progress){serial + 1, child});
            return;
        }
    }
    if (live)
        forget(d->t, version);
    else
        take_place(d, version, child);
}

static void look_at(struct drop *d, uint64_t version, struct progress progress)
{
    const uint64_t *children;
    if (!versions_known(versions_of(d->t), version) || versions_tree(versions_of(d->t), version)) {
        forget(d->t, version);
        return;
    }
    long count = versions_children(versions_of(d->t), version, &children);
    if (count < 0)
        d->t->failed = (int)count;
    else if (count == 0)
        drop_leaf(d, version);
    else if (count > 1)
        recheck_all(d, version, progress);
    else if (count_rows(d, version) <= count_rows(d, children[0]))
        merge_down(d, version, children[0], progress);
    else
        merge_up(d, version, children[0], progress);
}

/* ---- a step ---- */

static void look_again(struct drop *d, const char *key, const uint8_t *value, size_t length)
{
    uint64_t version = strtoull(key + strlen("again/"), NULL, 16);
    meta_system_put(d->t, key, NULL, 0);
    /* Of those that have gone since the records were looked at when they moved. */
    const struct versions *versions = versions_of(d->t);
    if (key_from(d, value, length) && versions_known(versions, version) && !versions_tree(versions, version))
        recheck(d, version);
}

static bool do_next(struct drop *d)
{
    uint8_t value[RECORD_MAX];
    char key[64];
    size_t length;
    if (next_of(d->t, "drop/", key, value, &length) == 0) {
        struct progress progress = {0};
        if (length == sizeof(progress))
            memcpy(&progress, value, length);
        look_at(d, ~strtoull(key + strlen("drop/"), NULL, 16), progress);
        return true;
    }
    if (next_of(d->t, "again/", key, value, &length) == 0) {
        look_again(d, key, value, length);
        return true;
    }
    return false;
}

int meta_drop_step(struct meta_txn *t, unsigned budget_us, bool *more)
{
    struct drop *d = calloc(1, sizeof(*d));
    size_t room = (versions_count(versions_of(t)) + 1) * sizeof(*d->left);
    uint64_t start = clock_monotonic_ns();
    if (d) {
        d->t = t;
        d->end = start + budget_us * 1000ull;
        d->left = malloc(room);
        d->gone = malloc(room);
    }
    if (!d || !d->left || !d->gone) {
        t->failed = -ENOMEM;
    } else {
        *more = true;
        do
            *more = do_next(d);
        while (*more && !is_over(d));
    }
    if (d) {
        free(d->left);
        free(d->gone);
    }
    free(d);
    metric_add(METRIC_drop_steps, 1);
    metric_add(METRIC_drop_ns, clock_monotonic_ns() - start);
    return t->failed;
}
