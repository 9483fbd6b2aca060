/* Goes through all records of a pool at rest and counts what they say of each other: blocks held against what segments,
 * inodes, trees and reference counts say, the bytes of every block against its checksum, entries against inodes, records
 * against the versions that see them, and the tree of versions against what it may hold. */
#ifndef TESTS_UNIT_STORE_AUDIT_H
#define TESTS_UNIT_STORE_AUDIT_H

#include "ops_fixture.h"

#include "sluice/store_check.h"
#include "store/local/fetch.h"
#include "store/local/meta_private.h"
#include "store/local/meta_refs.h"
#include "store/local/seg_private.h"

struct audit {
    struct local *l;
    place_t *places; /* one for each block of each record */
    size_t count, room;
    unsigned problems;
    uint64_t blocks; /* of the tree */
};

#define audit_says(a, ...) (fprintf(stderr, "audit: " __VA_ARGS__), fputc('\n', stderr), (a)->problems++)

static inline void audit_block(struct audit *a, const struct inode *inode, uint64_t chunk, unsigned block,
                               place_t place, uint32_t crc, uint8_t *bytes)
{
    struct seg *seg = seg_get(a->l->segs, place_segment(place));
    uint64_t start = (chunk * CHUNK_BLOCKS + block) * STORE_BLOCK;
    if (!seg) {
        audit_says(a, "inode %lu chunk %lu block %u lies in segment %x, which is not there", inode->ino, chunk, block,
                   place_segment(place));
        return;
    }
    if (place_block(place) >= atomic_load(&seg->tail))
        audit_says(a, "inode %lu: %lx lies past its segment's tail", inode->ino, place);
    if (pread(seg->fd, bytes, STORE_BLOCK, (off_t)place_block(place) * STORE_BLOCK) != STORE_BLOCK ||
        block_crc(bytes) != crc)
        audit_says(a, "inode %lu chunk %lu block %u: %lx is not what its checksum says", inode->ino, chunk, block, place);
    for (uint64_t i = inode->size > start ? inode->size - start : 0; i < STORE_BLOCK && start < inode->size; i++) {
        if (bytes[i]) {
            audit_says(a, "inode %lu: byte %lu, past its end at %lu, is not zero", inode->ino, start + i, inode->size);
            break;
        }
    }
    seg_put(seg);
}

static inline uint64_t audit_chunks(struct audit *a, struct meta_txn *t, uint32_t tree, const struct inode *inode)
{
    uint64_t from = 0, chunk, blocks = 0;
    struct chunk_map *map = malloc(sizeof(*map));
    uint8_t *bytes = aligned_alloc(STORE_BLOCK, STORE_BLOCK);
    int rc;
    for (; (rc = meta_chunk_next(t, tree, inode->ino, from, &chunk, map)) == 0; from = chunk + 1) {
        struct chunk_map *shown = malloc(sizeof(*shown));
        bool is_shown = meta_chunk(t, tree, inode, chunk, shown) == 0;
        free(shown);
        bool cut = false;
        for (unsigned i = 0; i < inode->cut_count; i++)
            cut |= chunk >= inode->cuts[i].chunk && map->change <= inode->cuts[i].change;
        if (!is_shown && !cut)
            audit_says(a, "inode %lu: chunk %lu lies past the end at %lu and nothing hides it", inode->ino, chunk,
                       inode->size);
        if (map->kind == CHUNK_INLINE && map->inline_length > inode->size)
            audit_says(a, "inode %lu: more bytes in its record than its size", inode->ino);
        blocks += map->kind == CHUNK_INLINE;
        for (unsigned i = 0; map->kind == CHUNK_MAP && i < map->extent_count; i++)
            for (unsigned n = 0; n < map->extents[i].count; n++, blocks++)
                audit_block(a, inode, chunk, map->extents[i].block + n, map->extents[i].place + n,
                            map->crc[map->extents[i].block + n], bytes);
    }
    if (rc != -ENOENT)
        audit_says(a, "inode %lu: %s", inode->ino, sl_strerror(rc));
    free(map);
    free(bytes);
    return blocks;
}

static inline void audit_links(struct audit *a, struct meta_txn *t, uint32_t tree, const struct inode *inode)
{
    uint64_t dir = 0, position = 0;
    unsigned links = 1;
    struct entry e;
    int rc = meta_entry_next(t, tree, inode->parent, inode->position - 1, &e);
    if (rc || e.position != inode->position || e.ino != inode->ino)
        audit_says(a, "inode %lu: its first link is not where it says", inode->ino);
    for (; meta_link_next(t, tree, inode->ino, &dir, &position) == 0; links++) {
        rc = meta_entry_next(t, tree, dir, position - 1, &e);
        if (rc || e.position != position || e.ino != inode->ino)
            audit_says(a, "inode %lu: a link is not where it is said to be", inode->ino);
    }
    if (inode->type != STORE_DIR && links != inode->nlink && inode->nlink)
        audit_says(a, "inode %lu: %u links, not %u", inode->ino, inode->nlink, links);
}

static inline int audit_order(const void *x, const void *y)
{
    place_t a = *(const place_t *)x, b = *(const place_t *)y;
    return a < b ? -1 : a > b;
}

/* What more than one record holds is in `ref`, and nothing else is.  Leaves each place once. */
static inline void audit_counts(struct audit *a, struct meta_txn *t)
{
    size_t kept = 0;
    struct refs_run run = {0};
    place_t at = 0;
    int rc = refs_next(t, 0, &run);
    for (size_t i = 0, same; i < a->count; i += same) {
        for (same = 1; i + same < a->count && a->places[i + same] == a->places[i]; same++)
            ;
        place_t place = a->places[i];
        a->places[kept++] = place;
        if (same == 1)
            continue;
        for (; !rc && run.place + run.blocks <= place; rc = refs_next(t, at, &run)) {
            if ((at > run.place ? at : run.place) < run.place + run.blocks)
                audit_says(a, "ref counts %lx, which less than two records hold", run.place);
            at = run.place + run.blocks;
        }
        place_t expected = at > run.place ? at : run.place;
        if (rc || run.place > place || run.count != same)
            audit_says(a, "%lx is held by %zu records, ref says %u", place, same, rc || run.place > place ? 1 : run.count);
        else if (expected != place)
            audit_says(a, "ref counts %lx, which less than two records hold", expected);
        at = place + 1;
    }
    if (!rc && at < run.place + run.blocks && at > run.place)
        audit_says(a, "ref counts %lx, which less than two records hold", at);
    for (rc = refs_next(t, at, &run); !rc; at = run.place + run.blocks, rc = refs_next(t, at, &run))
        if (run.place >= at)
            audit_says(a, "ref counts %lx, which less than two records hold", run.place);
    a->count = kept;
}

static inline void audit_segments(struct audit *a, struct meta_txn *t)
{
    struct seg_store *st = a->l->segs;
    if (a->count)
        qsort(a->places, a->count, sizeof(place_t), audit_order);
    audit_counts(a, t);
    for (unsigned i = 0; i < st->table->count; i++) {
        struct seg *seg = st->table->at[i];
        char key[SEG_KEY_ROOM];
        uint32_t words[3] = {0}, held = 0;
        size_t length;
        int64_t pending = 0;
        for (size_t n = 0; n < a->count; n++)
            held += place_segment(a->places[n]) == seg->number;
        seg_record_key(seg->number, key);
        int rc = meta_system_get(t, key, words, sizeof(words), &length);
        if (held != atomic_load(&seg->live) || (rc == 0 && held != words[1]) || (rc && held))
            audit_says(a, "segment %x: %u blocks are held, RAM says %u, its record %u", seg->number, held,
                       atomic_load(&seg->live), words[1]);
        for (unsigned w = 0; w < workers_count(); w++) {
            const struct seg_run *runs[] = {&st->workers[w].main, &st->workers[w].spare};
            for (unsigned r = 0; r < 2; r++)
                pending += runs[r]->seg == seg ? runs[r]->end - runs[r]->next : 0;
        }
        if (pending != atomic_load(&seg->pending))
            audit_says(a, "segment %x: %ld blocks are pending, not %ld", seg->number,
                       (long)atomic_load(&seg->pending), (long)pending);
    }
}

/* ---- as a tree sees it ---- */

static inline int audit_tree(struct audit *a, struct meta_txn *t, uint32_t id)
{
    struct tree tree;
    uint64_t ino = 0, files = 0;
    struct record *r = malloc(sizeof(*r));
    struct key first;
    int rc = meta_tree(a->l, id, &tree);
    a->blocks = 0;
    for (; !rc; ino++) {
        struct key k;
        struct inode inode;
        key_inode(&k, ino);
        if (visible_from(t, DB_INODE, &k, 0, tree.version, r))
            break;
        ino = key_number(k.bytes, 0);
        int bad = meta_inode(t, id, ino, &inode);
        if (bad) {
            audit_says(a, "inode %lu: %s", ino, sl_strerror(bad));
            continue;
        }
        if (ino == tree.orphans)
            continue;
        files++;
        uint64_t blocks = audit_chunks(a, t, id, &inode);
        if (blocks != inode.blocks)
            audit_says(a, "tree %u inode %lu: %lu blocks, not %lu", id, ino, inode.blocks, blocks);
        a->blocks += blocks;
        if (ino != tree.root)
            audit_links(a, t, id, &inode);
    }
    key_chunk(&first, 0, 0);
    while (!rc && visible_from(t, DB_CHUNK, &first, 0, tree.version, r) == 0) {
        struct inode inode;
        if (meta_inode(t, id, key_number(r->key, 0), &inode))
            audit_says(a, "tree %u: chunk records of inode %lu, which is not there", id, key_number(r->key, 0));
        key_increment(&first);
    }
    if (!rc && (atomic_load(&tree.used_blocks) != a->blocks || atomic_load(&tree.used_files) != files))
        audit_says(a, "tree %u holds %lu blocks and %lu files, its usage says %lu and %lu", id, a->blocks, files,
                   atomic_load(&tree.used_blocks), atomic_load(&tree.used_files));
    free(r);
    return rc;
}

/* ---- records and versions ---- */

static inline bool audit_is_touched(struct meta_txn *t, enum db db, const struct record *r, uint64_t version)
{
    struct record *row = malloc(sizeof(*row));
    bool found = false;
    struct key k;
    for (uint64_t serial = 0; !found; serial++) {
        key_touched(&k, version, serial);
        if (db_seek(t, DB_TOUCHED, &k, row) || key_number(row->key, 0) != version)
            break;
        serial = key_number(row->key, 8);
        found = row->value[0] == db && row->length - 1 == r->key_length - KEY_VERSION &&
                memcmp(row->value + 1, r->key, row->length - 1u) == 0;
    }
    free(row);
    return found;
}

static inline void audit_record(struct audit *a, struct meta_txn *t, enum db db, const struct record *r)
{
    const struct versions *vs = txn_versions(t);
    uint64_t version = key_version(r->key, r->key_length), found = 0;
    struct key k = {.length = (uint8_t)(r->key_length - KEY_VERSION)};
    struct record *other = malloc(sizeof(*other));
    memcpy(k.bytes, r->key, k.length);
    if (!versions_known(vs, version))
        audit_says(a, "database %d has a record of version %lu, which is not there", db, version);
    bool seen = false;
    for (uint64_t v = version; v && !seen; v = versions_next(vs, v)) {
        if (!versions_tree(vs, v))
            continue;
        visible(t, db, &k, v, other, &found);
        seen = found == version;
    }
    if (!seen)
        audit_says(a, "database %d, key %lu, version %lu (tree %u, parent %lu), %s: nobody sees it", db,
                   key_number(r->key, 0), version, versions_tree(vs, version), versions_parent(vs, version),
                   record_is_gone(r->value, r->length) ? "gone" : "there");
    if (!audit_is_touched(t, db, r, version))
        audit_says(a, "database %d, key %lu, version %lu: not in `touched`", db, key_number(r->key, 0), version);
    uint64_t parent = versions_parent(vs, version);
    if (record_is_gone(r->value, r->length) && (!parent || visible(t, db, &k, parent, other, &found)))
        audit_says(a, "database %d, key %lu, version %lu: gone, but nothing is beneath", db, key_number(r->key, 0),
                   version);
    free(other);
}

static inline void audit_places(struct audit *a, const struct record *r)
{
    struct chunk_map *map = malloc(sizeof(*map));
    if (!record_is_gone(r->value, r->length) && chunk_decode(r->value, r->length, map))
        audit_says(a, "a chunk record of inode %lu cannot be read", key_number(r->key, 0));
    else if (!record_is_gone(r->value, r->length) && map->kind == CHUNK_MAP)
        for (unsigned i = 0; i < map->extent_count; i++)
            for (unsigned n = 0; n < map->extents[i].count; n++) {
                if (a->count == a->room)
                    a->places = realloc(a->places, (a->room = a->room * 2 + 1024) * sizeof(place_t));
                a->places[a->count++] = map->extents[i].place + n;
            }
    free(map);
}

static inline void audit_records(struct audit *a, struct meta_txn *t)
{
    struct record *r = malloc(sizeof(*r));
    for (enum db db = DB_INODE; db <= DB_CHUNK; db++) {
        struct key at = {.length = 1};
        while (db_seek(t, db, &at, r) == 0) {
            at.length = r->key_length;
            memcpy(at.bytes, r->key, r->key_length);
            audit_record(a, t, db, r);
            if (db == DB_CHUNK)
                audit_places(a, r);
            key_increment(&at);
        }
    }
    free(r);
}

static inline void audit_version(struct audit *a, struct meta_txn *t, struct versions *vs, uint64_t v)
{
    uint8_t value[RECORD_MAX];
    struct version_record record = {0};
    struct record *row = malloc(sizeof(*row));
    const uint64_t *children;
    char text[64];
    size_t length;
    struct key k;
    uint64_t rows = 0;
    long count = versions_children(vs, v, &children);
    if (!versions_tree(vs, v) && count < 2) {
        const struct tree_node *node = count ? tree_present(t, versions_tree(vs, children[0])) : NULL;
        if (!node || node->record.parent)
            audit_says(a, "version %lu has no name and %ld children", v, count);
    }
    if (versions_tree(vs, v)) {
        const struct tree_node *node = tree_present(t, versions_tree(vs, v));
        if (!node || node->tree.version != v || node->record.version != v)
            audit_says(a, "version %lu is not that of tree %u, which names it", v, versions_tree(vs, v));
    }
    version_key(text, v);
    if (meta_system_get(t, text, value, sizeof(value), &length) || version_decode(value, length, &record) ||
        record.parent != versions_parent(vs, v))
        audit_says(a, "version %lu: its record says %lu, memory %lu", v, record.parent, versions_parent(vs, v));
    key_touched(&k, v, 0);
    for (int rc = db_seek(t, DB_TOUCHED, &k, row); !rc && key_number(row->key, 0) == v; rc = db_step(t, DB_TOUCHED, row))
        rows++;
    if (rows != record.touched)
        audit_says(a, "version %lu: %lu rows in `touched`, its record says %lu", v, rows, record.touched);
    free(row);
}

static inline void audit_versions(struct audit *a, struct meta_txn *t)
{
    uint8_t value[RECORD_MAX];
    char key[64] = "";
    size_t length, records = 0;
    struct versions *vs = versions_copy(txn_versions(t));
    struct record *row = malloc(sizeof(*row));
    struct key first = {.length = 1};
    for (uint64_t v = versions_next(vs, 0); v; v = versions_next(vs, v))
        audit_version(a, t, vs, v);
    for (; meta_system_next(t, "version/", key, value, sizeof(value), &length) == 0; records++)
        ;
    if (records != versions_count(vs))
        audit_says(a, "%zu records of versions, %zu in memory", records, versions_count(vs));
    for (int rc = db_seek(t, DB_TOUCHED, &first, row); !rc; rc = db_step(t, DB_TOUCHED, row))
        if (!versions_known(vs, key_number(row->key, 0)))
            audit_says(a, "`touched` of version %lu, which is not there", key_number(row->key, 0));
    if (meta_drop_waits(t))
        audit_says(a, "versions are waiting to be looked at");
    versions_free(vs);
    free(row);
}

struct audit_call {
    struct pool *p;
    unsigned problems;
};

struct audit_trees {
    uint32_t ids[512];
    unsigned count;
};

static inline int audit_add_tree(void *arg, const struct store_tree *tree)
{
    struct audit_trees *trees = arg;
    assert_true(trees->count < 512);
    trees->ids[trees->count++] = tree->id;
    return 0;
}

static inline int audit_run(void *arg)
{
    struct audit_call *call = arg;
    struct audit a = {.l = local_of(call->p->s)};
    struct audit_trees trees = {.count = 0};
    struct meta_txn *t;
    int rc = tree_each(call->p->s, audit_add_tree, &trees);
    if (!rc)
        rc = meta_read_begin(a.l, &t);
    if (rc)
        return rc;
    for (unsigned i = 0; i < trees.count && !rc; i++)
        rc = audit_tree(&a, t, trees.ids[i]);
    audit_records(&a, t);
    audit_versions(&a, t);
    audit_segments(&a, t);
    meta_read_end(t);
    free(a.places);
    call->problems = a.problems;
    return rc;
}

static inline void audit_finding(void *arg, const struct store_finding *f)
{
    fprintf(stderr, "check: %s\n", f->text);
}

/* What `sluice pool check` says is the same. */
static inline void audit_check(struct pool *p)
{
    struct store_check job = {.metadata = true, .findings_most = 20, .finding = audit_finding};
    assert_int_equal(store_check_run(p->s, &job), 0);
    assert_int_equal(job.findings, 0);
    assert_int_equal(job.unsettled, 0);
}

/* No call is going on. */
static inline void audit(struct pool *p)
{
    struct audit_call call = {.p = p};
    settle(p);
    assert_int_equal(worker_call(worker_at(0), audit_run, &call), 0);
    assert_int_equal(call.problems, 0);
    audit_check(p);
}

#endif
