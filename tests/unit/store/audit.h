/* Goes through all records of a pool at rest and counts what they say of each other: blocks held against what segments,
 * inodes and trees say they hold, the bytes of every block against its checksum, entries against inodes. */
#ifndef TESTS_UNIT_STORE_AUDIT_H
#define TESTS_UNIT_STORE_AUDIT_H

#include "ops_fixture.h"

#include "store/local/fetch.h"
#include "store/local/meta_private.h"
#include "store/local/seg_private.h"

struct audit {
    struct local *l;
    place_t *places;
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
    if (a->count == a->room)
        a->places = realloc(a->places, (a->room = a->room * 2 + 1024) * sizeof(place_t));
    a->places[a->count++] = place;
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

static inline void audit_segments(struct audit *a, struct meta_txn *t)
{
    struct seg_store *st = a->l->segs;
    if (a->count)
        qsort(a->places, a->count, sizeof(place_t), audit_order);
    for (size_t i = 1; i < a->count; i++)
        if (a->places[i] == a->places[i - 1])
            audit_says(a, "%lx is held twice", a->places[i]);
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

struct audit_call {
    struct pool *p;
    unsigned problems;
};

static inline int audit_run(void *arg)
{
    struct audit_call *call = arg;
    struct audit a = {.l = local_of(call->p->s)};
    struct meta_txn *t;
    struct tree tree;
    uint64_t ino = 0, files = 0;
    struct record *r = malloc(sizeof(*r));
    int rc = meta_tree(a.l, call->p->tree, &tree);
    if (!rc)
        rc = meta_read_begin(a.l, &t);
    if (rc)
        return rc;
    for (;; ino++) {
        struct key k;
        struct inode inode;
        key_inode(&k, ino);
        if (visible_from(t, DB_INODE, &k, 0, tree.version, r))
            break;
        ino = key_number(k.bytes, 0);
        rc = meta_inode(t, call->p->tree, ino, &inode);
        if (rc) {
            audit_says(&a, "inode %lu: %s", ino, sl_strerror(rc));
            continue;
        }
        if (ino == tree.orphans)
            continue;
        files++;
        uint64_t blocks = audit_chunks(&a, t, call->p->tree, &inode);
        if (blocks != inode.blocks)
            audit_says(&a, "inode %lu: %lu blocks, not %lu", ino, inode.blocks, blocks);
        a.blocks += blocks;
        if (ino != tree.root)
            audit_links(&a, t, call->p->tree, &inode);
    }
    size_t records = 0;
    struct key first;
    key_chunk(&first, 0, 0);
    for (rc = db_seek(t, DB_CHUNK, &first, r); !rc; rc = db_step(t, DB_CHUNK, r)) {
        struct inode inode;
        records++;
        if (meta_inode(t, call->p->tree, key_number(r->key, 0), &inode))
            audit_says(&a, "chunk records of inode %lu, which is not there", key_number(r->key, 0));
    }
    if (atomic_load(&tree.used_blocks) != a.blocks || atomic_load(&tree.used_files) != files)
        audit_says(&a, "the tree holds %lu blocks and %lu files, its usage says %lu and %lu", a.blocks, files,
                   atomic_load(&tree.used_blocks), atomic_load(&tree.used_files));
    audit_segments(&a, t);
    meta_read_end(t);
    free(a.places);
    free(r);
    call->problems = a.problems;
    return 0;
}

/* No call is going on. */
static inline void audit(struct pool *p)
{
    struct audit_call call = {.p = p};
    settle(p);
    assert_int_equal(worker_call(worker_at(0), audit_run, &call), 0);
    assert_int_equal(call.problems, 0);
}

#endif
