#include <stdlib.h>
#include <limits.h>
#include <string.h>
#include <urcu.h>

#include "store/local/meta_private.h"

/* ---- records as a version sees them ---- */

const struct versions *txn_versions(struct meta_txn *t)
{
    const struct versions *own = t->write ? group_versions(t->group) : NULL;
    return own ? own : rcu_dereference(meta_of(t)->versions);
}

int tree_version(struct meta_txn *t, uint32_t tree, uint64_t *version)
{
    const struct tree_node *node = tree_present(t, tree);
    if (!node)
        return -ESTALE;
    *version = node->tree.version;
    return 0;
}

static bool key_is(const struct record *r, const struct key *k)
{
    return r->key_length == k->length + KEY_VERSION && memcmp(r->key, k->bytes, k->length) == 0;
}

int visible(struct meta_txn *t, enum db db, const struct key *k, uint64_t version, struct record *out,
            uint64_t *found)
{
    struct key at = *k;
    key_add_version(&at, version);
    *found = 0;
    for (;;) {
        int error = db_seek(t, db, &at, out);
        if (error)
            return error;
        if (!key_is(out, k))
            return -ENOENT;
        uint64_t seen = key_version(out->key, out->key_length);
        if (seen == version || versions_is_ancestor(txn_versions(t), seen, version)) {
            *found = seen;
            return record_is_gone(out->value, out->length) ? -ENOENT : 0;
        }
        uint64_t below = versions_below(txn_versions(t), version, seen);
        if (below == 0)
            return -ENOENT;
        key_set_version(&at, below);
    }
}

int visible_from(struct meta_txn *t, enum db db, struct key *k, size_t prefix, uint64_t version,
                 struct record *out)
{
    return visible_within(t, db, k, prefix, version, UINT_MAX, out);
}

int visible_within(struct meta_txn *t, enum db db, struct key *k, size_t prefix, uint64_t version, unsigned most,
                   struct record *out)
{
    const struct key first = *k;
    struct key at = *k;
    key_add_version(&at, ~0ull); /* before all versions of k */
    for (;;) {
        int error = db_seek(t, db, &at, out);
        if (error)
            return error;
        if (out->key_length != at.length || memcmp(out->key, first.bytes, prefix) != 0)
            return -ENOENT;
        memcpy(k->bytes, out->key, k->length);
        if (key_version(out->key, out->key_length) != version) {
            uint64_t found;
            error = visible(t, db, k, version, out, &found);
            if (error && error != -ENOENT)
                return error;
        } else {
            error = record_is_gone(out->value, out->length) ? -ENOENT : 0;
        }
        if (error == 0)
            return 0;
        at = *k;
        if (!key_increment(&at))
            return -ENOENT;
        if (--most == 0)
            return -EAGAIN;
        key_add_version(&at, ~0ull);
    }
}

/* ---- inodes ---- */

static int inode_record(struct meta_txn *t, uint32_t tree, uint64_t ino, struct record *r)
{
    uint64_t version, found;
    int error = tree_version(t, tree, &version);
    if (error)
        return error;
    struct key k;
    key_inode(&k, ino);
    error = visible(t, DB_INODE, &k, version, r, &found);
    return error == -ENOENT ? -ESTALE : error;
}

/* What has not changed since the volume was restored has changed then, for clients. */
static void show_restored(const struct tree_record *tree, struct inode *inode)
{
    const struct store_time *then = &tree->restored;
    if (inode->change >= tree->restored_change)
        return;
    inode->change = tree->restored_change;
    if (inode->ctime.seconds < then->seconds ||
        (inode->ctime.seconds == then->seconds && inode->ctime.nanoseconds < then->nanoseconds))
        inode->ctime = *then;
}

int meta_inode(struct meta_txn *t, uint32_t tree, uint64_t ino, struct inode *out)
{
    struct record r;
    int error = inode_record(t, tree, ino, &r);
    if (!error)
        error = inode_decode(r.value, r.length, ino, out, NULL);
    if (!error)
        show_restored(&tree_present(t, tree)->record, out);
    return error;
}

int meta_target(struct meta_txn *t, uint32_t tree, uint64_t ino, char *target, uint32_t *length)
{
    struct record r;
    struct inode inode;
    const char *bytes;
    int error = inode_record(t, tree, ino, &r);
    if (!error)
        error = inode_decode(r.value, r.length, ino, &inode, &bytes);
    if (error)
        return error;
    if (inode.type != STORE_LNK || !bytes)
        return -EINVAL;
    memcpy(target, bytes, inode.target_length);
    *length = inode.target_length;
    return 0;
}

int meta_link_next(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t *dir, uint64_t *position)
{
    uint64_t version;
    struct record r;
    struct key k;
    int error = tree_version(t, tree, &version);
    if (error)
        return error;
    key_link(&k, ino, *dir, *position);
    if (!key_increment(&k))
        return -ENOENT;
    error = visible_from(t, DB_LINK, &k, 8, version, &r);
    if (error)
        return error;
    *dir = key_number(k.bytes, 8);
    *position = key_number(k.bytes, 16);
    return 0;
}

/* ---- chunks ---- */

static bool chunk_in_file(const struct inode *inode, uint64_t chunk)
{
    return chunk <= STORE_FILE_MAX / STORE_CHUNK && chunk * STORE_CHUNK < inode->size;
}

static bool chunk_is_cut(const struct inode *inode, uint64_t chunk, uint64_t change)
{
    for (unsigned i = 0; i < inode->cut_count; i++)
        if (chunk >= inode->cuts[i].chunk && change <= inode->cuts[i].change)
            return true;
    return false;
}

typedef int chunk_decode_fn(const uint8_t *bytes, size_t length, struct chunk_map *out);

static int chunk_shown(chunk_decode_fn *decode, const uint8_t *bytes, size_t length,
                       const struct inode *inode, uint64_t chunk, struct chunk_map *out)
{
    int error = decode(bytes, length, out);
    if (error)
        return error;
    return chunk_is_cut(inode, chunk, out->change) ? -ENOENT : 0;
}

static int chunk_record(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t chunk, struct record *r)
{
    uint64_t version, found;
    struct key k;
    int error = tree_version(t, tree, &version);
    if (error)
        return error;
    key_chunk(&k, ino, chunk);
    return visible(t, DB_CHUNK, &k, version, r, &found);
}

int meta_chunk(struct meta_txn *t, uint32_t tree, const struct inode *inode, uint64_t chunk, struct chunk_map *out)
{
    struct record r;
    if (!chunk_in_file(inode, chunk))
        return -ENOENT;
    int error = chunk_record(t, tree, inode->ino, chunk, &r);
    return error ? error : chunk_shown(chunk_decode, r.value, r.length, inode, chunk, out);
}

int meta_chunk_next(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t from, uint64_t *chunk,
                    struct chunk_map *out)
{
    uint64_t version;
    struct record r;
    struct key k;
    int error = tree_version(t, tree, &version);
    if (error)
        return error;
    key_chunk(&k, ino, from);
    error = visible_from(t, DB_CHUNK, &k, 8, version, &r);
    if (error)
        return error;
    *chunk = key_number(k.bytes, 8);
    return chunk_decode(r.value, r.length, out);
}

/* ---- from RAM, else LMDB ---- */

int meta_get_inode(struct local *l, uint32_t tree, uint64_t ino, struct inode *out)
{
    struct rtable *table = l->meta->inodes;
    const struct rtable_key key = {.ino = ino, .tree = tree};
    size_t length;
    rcu_read_lock();
    const struct inode *known = rtable_get(table, &key, &length);
    if (known)
        *out = *known;
    rcu_read_unlock();
    if (known) {
        metric_add(METRIC_table_hits, 1);
        return 0;
    }
    metric_add(METRIC_table_misses, 1);
    struct meta_txn *t;
    uint64_t ticket = rtable_ticket(table, &key);
    int error = meta_read_begin(l, &t);
    if (error)
        return error;
    error = meta_inode(t, tree, ino, out);
    meta_read_end(t);
    if (!error)
        rtable_fill(table, &key, ticket, out, sizeof(*out));
    return error;
}

/* ---- many inodes: all that are in RAM together, then the others in the order of the database ---- */

enum { LOOKS_TOGETHER = 16 };

static void fetch_looks(struct rtable *table, struct inode_look *looks, unsigned count, uint32_t tree)
{
    for (unsigned i = 0; i < count; i++)
        rtable_fetch_bucket(table, &(struct rtable_key){.ino = looks[i].ino, .tree = tree});
    for (unsigned i = 0; i < count; i++)
        rtable_fetch_item(table, &(struct rtable_key){.ino = looks[i].ino, .tree = tree});
}

/* Those that are not in RAM come to the front; how many they are. */
static unsigned looks_from_ram(struct rtable *table, struct inode_look *looks, unsigned count, uint32_t tree)
{
    unsigned missing = 0;
    for (unsigned i = 0; i < count; i++) {
        size_t length;
        struct inode_look look = looks[i];
        if (i % LOOKS_TOGETHER == 0)
            fetch_looks(table, looks + i, count - i < LOOKS_TOGETHER ? count - i : LOOKS_TOGETHER, tree);
        const struct inode *known = rtable_get(table, &(struct rtable_key){.ino = look.ino, .tree = tree}, &length);
        if (known) {
            *look.inode = *known;
            looks[i].there = true;
        } else {
            looks[i] = looks[missing];
            looks[missing++] = look;
        }
    }
    return missing;
}

/* What the transaction saw goes into the table unless a group newer than the transaction has begun to be published:
 * with the ticket taken before, a group that begins after the look at `publishing` is met by rtable_fill_spare(). */
static int look_up(struct meta_txn *t, uint32_t tree, struct inode_look *look)
{
    struct meta *m = meta_of(t);
    const struct rtable_key key = {.ino = look->ino, .tree = tree};
    uint64_t ticket = rtable_ticket(m->inodes, &key);
    bool current = !t->write && atomic_load(&m->publishing) <= txn_id(txn_of(t));
    int error = meta_inode(t, tree, look->ino, look->inode);
    look->there = error == 0;
    if (!error && current)
        rtable_fill_spare(m->inodes, &key, ticket, look->inode, sizeof(*look->inode));
    return error == -ESTALE ? 0 : error;
}

static int look_by_ino(const void *a, const void *b)
{
    uint64_t x = ((const struct inode_look *)a)->ino, y = ((const struct inode_look *)b)->ino;
    return x < y ? -1 : x > y;
}

int meta_inodes(struct meta_txn *t, uint32_t tree, struct inode_look *looks, unsigned count)
{
    unsigned missing = looks_from_ram(meta_of(t)->inodes, looks, count, tree);
    metric_add(METRIC_table_hits, count - missing);
    metric_add(METRIC_table_misses, missing);
    qsort(looks, missing, sizeof(*looks), look_by_ino);
    for (unsigned i = 0; i < missing; i++) {
        int error = look_up(t, tree, &looks[i]);
        if (error)
            return error;
    }
    return 0;
}

/* ---- chunks ---- */

/* 1: not known in RAM. */
static int chunk_known(chunk_decode_fn *decode, struct rtable *table, const struct rtable_key *key,
                       const struct inode *inode, struct chunk_map *out)
{
    size_t length;
    int error = 1;
    rcu_read_lock();
    const uint8_t *bytes = rtable_get(table, key, &length);
    if (bytes)
        error =
            length == 0 ? -ENOENT : chunk_shown(decode, bytes, length, inode, key->sub, out);
    rcu_read_unlock();
    return error;
}

static int get_chunk(chunk_decode_fn *decode, struct local *l, uint32_t tree,
                     const struct inode *inode, uint64_t chunk, struct chunk_map *out)
{
    struct rtable *table = l->meta->chunks;
    const struct rtable_key key = {.ino = inode->ino, .sub = chunk, .tree = tree};
    if (!chunk_in_file(inode, chunk))
        return -ENOENT;
    int error = chunk_known(decode, table, &key, inode, out);
    if (error <= 0) {
        metric_add(METRIC_table_hits, 1);
        return error;
    }
    metric_add(METRIC_table_misses, 1);
    struct meta_txn *t;
    struct record r;
    uint64_t ticket = rtable_ticket(table, &key);
    error = meta_read_begin(l, &t);
    if (error)
        return error;
    error = chunk_record(t, tree, inode->ino, chunk, &r);
    meta_read_end(t);
    if (error && error != -ENOENT)
        return error;
    rtable_fill(table, &key, ticket, r.value, error ? 0 : r.length);
    return error ? error : chunk_shown(decode, r.value, r.length, inode, chunk, out);
}

int meta_get_chunk(struct local *l, uint32_t tree, const struct inode *inode, uint64_t chunk,
                   struct chunk_map *out)
{
    return get_chunk(chunk_decode, l, tree, inode, chunk, out);
}

int meta_get_extents(struct local *l, uint32_t tree, const struct inode *inode, uint64_t chunk,
                     struct chunk_map *out)
{
    return get_chunk(chunk_decode_extents, l, tree, inode, chunk, out);
}

/* Steps for all calls together, so that the processor waits for their memory at once and not one by one. */
struct expected {
    struct rtable_key inode, chunk, name;
};

static void expect_buckets(struct meta *m, const struct store_range *r, struct expected *e)
{
    const struct store_object *o = &r->object;
    e->inode = (struct rtable_key){.ino = o->ino, .tree = o->tree};
    rtable_fetch_bucket(m->inodes, &e->inode);
    if (r->length) {
        e->chunk = (struct rtable_key){.ino = o->ino, .sub = r->offset / STORE_CHUNK, .tree = o->tree};
        rtable_fetch_bucket(m->chunks, &e->chunk);
    }
    if (r->name.length) {
        e->name = name_key(m, o->tree, o->ino, r->name);
        rtable_fetch_bucket(m->names, &e->name);
    }
}

static void expect_items(struct meta *m, const struct store_range *r, const struct expected *e)
{
    rtable_fetch_item(m->inodes, &e->inode);
    if (r->length)
        rtable_fetch_item(m->chunks, &e->chunk);
    if (r->name.length)
        rtable_fetch_item(m->names, &e->name);
}

/* The first block's place; of a name: the inode it stands for becomes the one expected. */
static place_t expect_next(struct meta *m, const struct store_range *r, struct expected *e)
{
    size_t length;
    if (r->name.length) {
        const struct entry *entry = rtable_get(m->names, &e->name, &length);
        e->inode.ino = entry ? entry->ino : 0;
        rtable_fetch_bucket(m->inodes, &e->inode);
    }
    const uint8_t *bytes = r->length ? rtable_get(m->chunks, &e->chunk, &length) : NULL;
    return bytes ? chunk_record_place(bytes, length, (unsigned)(r->offset % STORE_CHUNK / STORE_BLOCK)) : 0;
}

void meta_expect(struct local *l, const struct store_range *ranges, unsigned count, place_t *places)
{
    struct meta *m = l->meta;
    struct expected expected[STORE_EXPECT_MOST];
    rcu_read_lock();
    for (unsigned i = 0; i < count; i++)
        expect_buckets(m, &ranges[i], &expected[i]);
    for (unsigned i = 0; i < count; i++)
        expect_items(m, &ranges[i], &expected[i]);
    for (unsigned i = 0; i < count; i++)
        places[i] = expect_next(m, &ranges[i], &expected[i]);
    for (unsigned i = 0; i < count; i++)
        if (ranges[i].name.length)
            rtable_fetch_item(m->inodes, &expected[i].inode);
    rcu_read_unlock();
}

/* ---- system records and the free list ---- */

static int copy_value(const struct record *r, void *value, size_t room, size_t *length)
{
    if (r->length > room)
        return SL_ETOOSMALL;
    memcpy(value, r->value, r->length);
    *length = r->length;
    return 0;
}

int meta_system_get(struct meta_txn *t, const char *key, void *value, size_t room, size_t *length)
{
    struct key k;
    struct record r;
    if (!key_system(&k, key))
        return -EINVAL;
    int error = db_get(t, DB_SYSTEM, &k, &r);
    return error ? error : copy_value(&r, value, room, length);
}

int meta_system_next(struct meta_txn *t, const char *prefix, char key[64], void *value, size_t room,
                     size_t *length)
{
    struct key k;
    struct record r;
    size_t prefix_length = strlen(prefix);
    if (!key_system(&k, strcmp(key, prefix) < 0 ? prefix : key))
        return -EINVAL;
    int error = db_seek(t, DB_SYSTEM, &k, &r);
    if (!error && r.key_length == strlen(key) && memcmp(r.key, key, r.key_length) == 0) {
        k.bytes[k.length++] = 0; /* the least key after this one */
        error = db_seek(t, DB_SYSTEM, &k, &r);
    }
    if (error)
        return error;
    if (r.key_length < prefix_length || memcmp(r.key, prefix, prefix_length) != 0)
        return -ENOENT;
    if (r.key_length > 63)
        return SL_ECORRUPT;
    memcpy(key, r.key, r.key_length);
    key[r.key_length] = 0;
    return copy_value(&r, value, room, length);
}

int meta_free_next(struct meta_txn *t, uint64_t *serial, place_t *place, uint32_t *blocks)
{
    struct key k;
    struct record r;
    key_free(&k, *serial, *place, UINT32_MAX);
    int error = db_seek(t, DB_FREE, &k, &r);
    if (error)
        return error;
    if (r.key_length != 20)
        return SL_ECORRUPT;
    *serial = key_number(r.key, 0);
    *place = key_number(r.key, 8);
    *blocks = key_number32(r.key, 16);
    return 0;
}
