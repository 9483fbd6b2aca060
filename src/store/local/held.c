/* What a snapshot alone holds: blocks of its version's own records that the version below has replaced, or whose files
 * it has removed, where no other record holds them.  Looked for on the side that has touched less. */
#include <string.h>

#include "store/local/diff.h"
#include "store/local/held_runs.h"

struct held {
    struct walk walk;
    uint64_t version, child; /* child 0: nothing goes on from it */
    uint32_t child_tree;
    struct held_runs runs;
};

/* The version's own record of a key. */
static int own_record(struct held *h, uint64_t version, enum db db, const struct key *k, struct record *out)
{
    struct key whole = *k;
    key_add_version(&whole, version);
    int error = db_get(h->walk.t, db, &whole, out);
    return error ? error : record_is_gone(out->value, out->length) ? -ENOENT : 0;
}

static int count_chunk(struct held *h, const struct key *k)
{
    struct record r;
    struct chunk_map map;
    int error = own_record(h, h->version, DB_CHUNK, k, &r);
    if (!error)
        error = chunk_decode(r.value, r.length, &map);
    if (!error)
        error = held_runs_add_map(&h->runs, h->walk.t, &map);
    return error == -ENOENT ? 0 : error;
}

/* Does the version below have the file? */
static int is_below(struct held *h, uint64_t ino, struct inode *inode)
{
    struct key k;
    struct record r;
    uint64_t found;
    key_inode(&k, ino);
    int error = visible(h->walk.t, DB_INODE, &k, h->child, &r, &found);
    return error ? error : inode_decode(r.value, r.length, ino, inode, NULL);
}

static int count_all_chunks(struct held *h, uint64_t ino, uint64_t from)
{
    struct key at, k;
    struct record r;
    key_chunk(&at, ino, from);
    for (;;) {
        int error = visible_from(h->walk.t, DB_CHUNK, &at, 8, h->version, &r);
        if (error)
            return error == -ENOENT ? 0 : error;
        k = at;
        error = count_chunk(h, &k);
        if (!error)
            error = walk_on(&h->walk);
        if (error)
            return error;
        if (!key_increment(&at))
            return 0;
    }
}

/* What the version below has touched. */
static int hidden_by(void *arg, enum db db, const struct key *k)
{
    struct held *h = arg;
    struct inode inode;
    if (db != DB_CHUNK && db != DB_INODE)
        return 0;
    uint64_t ino = key_number(k->bytes, 0);
    int error = is_below(h, ino, &inode);
    if (error && error != -ENOENT)
        return error;
    if (db == DB_CHUNK)
        return error || key_number(k->bytes, 8) * STORE_CHUNK >= inode.size ? 0 : count_chunk(h, k);
    uint64_t first = error ? 0 : (inode.size + STORE_CHUNK - 1) / STORE_CHUNK;
    return error || inode.type == STORE_REG ? count_all_chunks(h, ino, first) : 0;
}

/* What the snapshot has touched itself. */
static int hidden_of(void *arg, enum db db, const struct key *k)
{
    struct held *h = arg;
    struct inode inode;
    struct record r;
    if (db != DB_CHUNK)
        return 0;
    int error = h->child ? is_below(h, key_number(k->bytes, 0), &inode) : -ENOENT;
    if (error && error != -ENOENT)
        return error;
    bool hidden = error || key_number(k->bytes, 8) * STORE_CHUNK >= inode.size;
    if (!hidden) {
        struct key whole = *k;
        key_add_version(&whole, h->child);
        error = db_get(h->walk.t, DB_CHUNK, &whole, &r);
        if (error)
            return error == -ENOENT ? 0 : error;
    }
    return count_chunk(h, k);
}

static uint64_t touched_of(struct held *h, uint64_t version)
{
    struct version_record record = {0};
    uint8_t value[RECORD_MAX];
    size_t length;
    char key[64];
    version_key(key, version);
    if (!meta_system_get(h->walk.t, key, value, sizeof(value), &length))
        version_decode(value, length, &record);
    return record.touched;
}

int held_bytes(struct store *s, uint32_t snapshot, uint64_t *bytes)
{
    struct held h = {0};
    bool several = false;
    int error = walk_begin(&h.walk, local_of(s));
    *bytes = 0;
    if (error)
        return error;
    error = tree_version(h.walk.t, snapshot, &h.version);
    h.child = error ? 0 : versions_only_child(txn_versions(h.walk.t), h.version, &several);
    if (!error && !several) {
        bool from_child = h.child && touched_of(&h, h.child) < touched_of(&h, h.version);
        error = from_child ? walk_touched(&h.walk, h.child, hidden_by, &h)
                           : walk_touched(&h.walk, h.version, hidden_of, &h);
    }
    walk_end(&h.walk);
    *bytes = error ? 0 : held_runs_count(&h.runs) * STORE_BLOCK;
    held_runs_free(&h.runs);
    return error;
}
