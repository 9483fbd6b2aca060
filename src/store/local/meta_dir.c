#include <sodium.h>
#include <string.h>

#include "store/local/meta_private.h"

/* A position is (hash(name) & mask) << 8 | slot.  Slots 0 to 2 are never used, so that no position is the cookie of
 * the start, "." or "..". */
enum {
    SLOT_FIRST = 3,
    SLOT_LAST = 255,
    SLOT_BITS = 8,
    BUCKET_PREFIX = 15, /* bytes of a key that name a bucket */
    PASSED_MOST = 256,  /* entries of other versions: a millisecond */
};

static uint64_t bucket_of(struct meta *m, struct store_name name)
{
    uint8_t hash[crypto_shorthash_BYTES];
    crypto_shorthash(hash, (const uint8_t *)name.bytes, name.length, m->hash_key);
    uint64_t number;
    memcpy(&number, hash, sizeof(number));
    return (number & ((1ull << m->hash_bits) - 1)) << SLOT_BITS;
}

static bool is_named(const struct entry *entry, struct store_name name)
{
    return entry->length == name.length && memcmp(entry->name, name.bytes, name.length) == 0;
}

/* ---- names in RAM: an item for each hash, which holds the whole name; of two names with one hash one is there ---- */

struct rtable_key name_key(struct meta *m, uint32_t tree, uint64_t dir, struct store_name name)
{
    return (struct rtable_key){.ino = dir, .sub = bucket_of(m, name), .tree = tree};
}

static bool is_orphans(struct meta_txn *t, uint32_t tree, uint64_t dir)
{
    const struct tree_node *node;
    if (!group_tree(t->group, tree, &node))
        node = tree_table_find(meta_of(t)->trees, tree);
    return node && dir == node->tree.orphans;
}

static void note_name(struct meta_txn *t, uint32_t tree, uint64_t dir, const struct entry *entry)
{
    struct store_name name = {.bytes = entry->name, .length = entry->length};
    struct rtable_key key = name_key(meta_of(t), tree, dir, name);
    if (!is_orphans(t, tree, dir)) /* nobody can look there */
        group_note_name(t, &key, entry);
}

static void note_name_gone(struct meta_txn *t, uint32_t tree, uint64_t dir, const struct entry *entry)
{
    struct store_name name = {.bytes = entry->name, .length = entry->length};
    struct rtable_key key = name_key(meta_of(t), tree, dir, name);
    group_note_name_gone(t, &key);
}

/* 1: not known in RAM. */
static int entry_known(struct rtable *table, const struct rtable_key *key, struct store_name name, struct entry *out)
{
    size_t length;
    int error = 1;
    rcu_read_lock();
    const struct entry *known = rtable_get(table, key, &length);
    if (known && is_named(known, name)) {
        memcpy(out, known, length);
        error = known->ino ? 0 : -ENOENT;
    }
    rcu_read_unlock();
    return error;
}

static int entry_read(struct local *l, uint32_t tree, uint64_t dir, struct store_name name, struct entry *out)
{
    struct meta_txn *t;
    int error = meta_read_begin(l, &t);
    if (error)
        return error;
    error = meta_entry(t, tree, dir, name, out);
    meta_read_end(t);
    return error;
}

static void no_entry(struct store_name name, struct entry *out)
{
    *out = (struct entry){.length = (uint8_t)name.length};
    memcpy(out->name, name.bytes, name.length);
}

int meta_get_entry(struct local *l, uint32_t tree, uint64_t dir, struct store_name name, struct entry *out)
{
    struct rtable *table = l->meta->names;
    const struct rtable_key key = name_key(l->meta, tree, dir, name);
    int error = entry_known(table, &key, name, out);
    if (error <= 0) {
        metric_add(METRIC_name_hits, 1);
        return error;
    }
    metric_add(METRIC_name_misses, 1);
    uint64_t ticket = rtable_ticket(table, &key);
    error = entry_read(l, tree, dir, name, out);
    if (error && error != -ENOENT)
        return error;
    if (error)
        no_entry(name, out);
    rtable_fill(table, &key, ticket, out, ENTRY_SIZE(name.length));
    return error;
}

/* ---- in the database ---- */

int meta_entry(struct meta_txn *t, uint32_t tree, uint64_t dir, struct store_name name, struct entry *out)
{
    uint64_t version;
    struct key k;
    struct record r;
    int error = tree_version(t, tree, &version);
    if (error)
        return error;
    key_entry(&k, dir, bucket_of(meta_of(t), name) | SLOT_FIRST);
    for (;;) {
        error = visible_from(t, DB_ENTRY, &k, BUCKET_PREFIX, version, &r);
        if (!error)
            error = entry_decode(r.value, r.length, key_number(k.bytes, 8), out);
        if (error || is_named(out, name))
            return error;
        if ((out->position & SLOT_LAST) == SLOT_LAST)
            return -ENOENT;
        key_increment(&k);
    }
}

/* A step from where the last call left the cursor.  1: the record there needs a seek (k says from where). */
static int next_by_step(struct meta_txn *t, struct key *k, uint64_t version, struct record *r)
{
    const struct txn *txn = txn_of(t);
    uint64_t dir = txn->stand_dir, after = txn->stand_position;
    do {
        int error = db_step(t, DB_ENTRY, r);
        if (error)
            return error;
        if (key_number(r->key, 0) != dir)
            return -ENOENT;
    } while (key_number(r->key, 8) == after);
    key_entry(k, dir, key_number(r->key, 8));
    return key_version(r->key, r->key_length) == version && !record_is_gone(r->value, r->length) ? 0 : 1;
}

int meta_entry_next(struct meta_txn *t, uint32_t tree, uint64_t dir, uint64_t after, struct entry *out)
{
    int error;
    do {
        error = meta_entry_near(t, tree, dir, after, out);
        after = out->position;
    } while (error == -EAGAIN);
    return error;
}

int meta_entry_near(struct meta_txn *t, uint32_t tree, uint64_t dir, uint64_t after, struct entry *out)
{
    struct txn *txn = txn_of(t);
    uint64_t version;
    struct key k;
    struct record r;
    int error = tree_version(t, tree, &version);
    if (error || after == UINT64_MAX)
        return error ? error : -ENOENT;
    key_entry(&k, dir, after + 1);
    bool stands = !t->write && txn->standing && txn->stand_dir == dir && txn->stand_position == after;
    error = stands ? next_by_step(t, &k, version, &r) : 1;
    if (error == 1)
        error = visible_within(t, DB_ENTRY, &k, 8, version, PASSED_MOST, &r);
    out->position = key_number(k.bytes, 8);
    txn->standing = error == 0;
    txn->stand_dir = dir;
    txn->stand_position = key_number(k.bytes, 8);
    return error ? error : entry_decode(r.value, r.length, txn->stand_position, out);
}

/* The first slot of the bucket that this version does not see used. */
static int free_slot(struct meta_txn *t, uint64_t dir, uint64_t bucket, uint64_t version, uint64_t *position)
{
    static _Atomic long said;
    struct key k;
    struct record r;
    for (uint64_t slot = SLOT_FIRST; slot <= SLOT_LAST; slot++) {
        key_entry(&k, dir, bucket | slot);
        int error = visible_from(t, DB_ENTRY, &k, BUCKET_PREFIX, version, &r);
        if (error && error != -ENOENT)
            return error;
        *position = bucket | slot;
        if (error || key_number(k.bytes, 8) != *position)
            return 0;
    }
    if (log_ratelimit(&said))
        log_warning("meta", "directory %llu: all %d places for names with one hash are taken",
                    (unsigned long long)dir, SLOT_LAST - SLOT_FIRST + 1);
    return -ENOSPC;
}

static int put_entry(struct meta_txn *t, uint32_t tree, uint64_t dir, uint64_t version, const struct entry *entry)
{
    uint64_t seen;
    struct key k;
    struct record r;
    uint8_t value[RECORD_MAX];
    key_entry(&k, dir, entry->position);
    int error = visible(t, DB_ENTRY, &k, version, &r, &seen);
    if (error && error != -ENOENT)
        return error;
    note_name(t, tree, dir, entry);
    return versioned_put(t, DB_ENTRY, &k, version, seen, value, entry_encode(entry, value));
}

int meta_put_entry(struct meta_txn *t, uint32_t tree, uint64_t dir, struct store_name name, uint64_t ino,
                   uint32_t generation, enum store_type type, uint64_t *position)
{
    struct entry entry = {.ino = ino, .generation = generation, .type = (uint8_t)type};
    uint64_t version;
    int error = tree_version(t, tree, &version);
    if (!error)
        error = free_slot(t, dir, bucket_of(meta_of(t), name), version, &entry.position);
    if (error)
        return error;
    entry.length = (uint8_t)name.length;
    memcpy(entry.name, name.bytes, name.length);
    *position = entry.position;
    return put_entry(t, tree, dir, version, &entry);
}

int meta_set_entry(struct meta_txn *t, uint32_t tree, uint64_t dir, const struct entry *entry)
{
    uint64_t version;
    int error = tree_version(t, tree, &version);
    return error ? error : put_entry(t, tree, dir, version, entry);
}

int meta_del_entry(struct meta_txn *t, uint32_t tree, uint64_t dir, uint64_t position)
{
    uint64_t version, seen;
    struct key k;
    struct record r;
    struct entry entry;
    int error = tree_version(t, tree, &version);
    if (error)
        return error;
    key_entry(&k, dir, position);
    error = visible(t, DB_ENTRY, &k, version, &r, &seen);
    if (!error)
        error = entry_decode(r.value, r.length, position, &entry);
    if (error)
        return error;
    note_name_gone(t, tree, dir, &entry);
    return versioned_del(t, DB_ENTRY, &k, version, seen);
}
