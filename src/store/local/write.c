/* A write is prepared by its worker (new places, merged edge blocks, CRCs, the write itself) and decided by the writer,
 * which refuses it when what was merged is no longer what is there.  Then it is prepared again. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "store/local/block.h"
#include "store/local/cache.h"
#include "store/local/chunk_map.h"
#include "store/local/data_private.h"
#include "store/local/fetch.h"
#include "store/local/ops.h"
#include "store/local/ops_private.h"
#include "store/local/seg.h"

enum {
    BLOCK = STORE_BLOCK,
    BLOCKS_MOST = STORE_IO_MAX / BLOCK + 1,
    RUNS_MOST = 32,
    PARTS_MOST = BLOCKS_MOST / FRAME_BLOCKS + 2 * RUNS_MOST + 2,
    EDGE_LOCKS = 1024,
    REFUSALS_MOST = 1000,
    STREAM_LEAST = 16, /* blocks; smaller writes may well be read again soon */
};

/* Unaligned writers to one block take turns from the merge to the publication, or they would refuse each other for
 * ever.  Keyed by hash. */
static struct coro_mutex edge_locks[EDGE_LOCKS];

struct run {
    place_t place;
    unsigned first, count; /* blocks, counted from the write's first */
};

struct part { /* new blocks in one frame */
    place_t place;
    unsigned first, count;
    struct frame *frame; /* NULL: `data` is ours */
    uint8_t *data;
};

struct edge { /* a block that the write covers only in part */
    uint64_t block;
    place_t from; /* what was merged; 0: nothing was there */
    uint8_t *old; /* NULL: zeroes */
};

struct write {
    struct mutation m; /* first */
    struct local *l;
    const struct store_cred *c;
    const struct store_object *o;
    uint64_t offset, end;
    const uint8_t *bytes;
    struct store_wcc *wcc;
    bool too_far; /* past the largest file */

    uint64_t first; /* block of the file */
    unsigned blocks;
    struct run runs[RUNS_MOST];
    unsigned run_count;
    struct part parts[PARTS_MOST];
    unsigned part_count;
    struct iovec iov[PARTS_MOST];
    uint32_t crc[BLOCKS_MOST];
    struct edge edges[2];
    unsigned edge_count;
    bool inline_merged;     /* the bytes of an inline file went into the new block 0 */
    uint64_t inline_change; /* from the record with this change */
    place_t extra;          /* that block 0, when it is not one of the write's own; 0: none */
    uint32_t extra_crc;
    uint8_t *old[2]; /* of the edges; allocated with their first use */
    struct chunk_map maps[DATA_CHUNKS_MOST];
};

/* ---- what the writer does ---- */

static int check_inode(struct write *w, const struct tree *tree, const struct inode *inode)
{
    if (!holds_is_there(w->l, w->o, inode))
        return -ESTALE;
    if (w->wcc) {
        wcc_before(w->wcc, inode);
        wcc_after(w->wcc, tree, inode);
    }
    if (inode->type == STORE_DIR)
        return -EISDIR;
    if (inode->type != STORE_REG)
        return -EINVAL;
    if (tree->read_only || w->c->read_only)
        return -EROFS;
    return perm_write(w->c, inode);
}

static int apply_begin(struct write *w, struct meta_txn *t, struct tree *tree, struct inode *inode)
{
    int error = meta_tree(t->local, w->o->tree, tree);
    if (!error)
        error = meta_inode(t, w->o->tree, w->o->ino, inode);
    return error ? error : check_inode(w, tree, inode);
}

static int apply_end(struct write *w, struct meta_txn *t, const struct tree *tree,
                     struct inode *inode, int64_t delta, uint64_t change)
{
    inode->blocks = (uint64_t)((int64_t)inode->blocks + delta);
    inode->mode = perm_mode_after_write(w->c, inode);
    if (w->end > inode->size)
        inode->size = w->end;
    inode_modified(inode, t->now, change);
    int error = meta_put_inode(t, w->o->tree, inode);
    if (!error && w->wcc)
        wcc_after(w->wcc, tree, inode);
    return error;
}

static int apply_inline(struct mutation *m, struct meta_txn *t)
{
    struct write *w = (struct write *)m;
    struct tree tree;
    struct inode inode;
    struct chunk_map *map = &w->maps[0];
    int64_t delta = 0;
    int error = apply_begin(w, t, &tree, &inode);
    if (error)
        return error;
    if (inode.size > INLINE_MAX)
        return SL_EREFUSED;
    error = meta_chunk(t, w->o->tree, &inode, 0, map);
    if (error && error != -ENOENT)
        return error;
    if (!error && map->kind != CHUNK_INLINE)
        return SL_EREFUSED;
    bool fresh = error;
    error = meta_tree_room(t, w->o->tree, fresh ? t->local->tiny_blocks : 0, 0);
    if (!error && fresh)
        error = meta_record_room(t);
    if (error)
        return error;
    if (fresh)
        memset(map, 0, sizeof(*map));
    map->kind = CHUNK_INLINE;
    if (map->inline_length < w->end) {
        memset(map->bytes + map->inline_length, 0, w->end - map->inline_length);
        map->inline_length = (uint16_t)w->end;
    }
    memcpy(map->bytes + w->offset, w->bytes, w->end - w->offset);
    uint64_t change = meta_next_change(t);
    error = meta_put_chunk(t, w->o->tree, w->o->ino, 0, map, change, &delta);
    return error ? error : apply_end(w, t, &tree, &inode, delta, change);
}

/* The write's blocks in one chunk: [*from, *to) of the chunk. */
static void chunk_part(const struct write *w, uint64_t chunk, unsigned *from, unsigned *to)
{
    uint64_t start = chunk * CHUNK_BLOCKS, end = w->first + w->blocks;
    *from = w->first > start ? (unsigned)(w->first - start) : 0;
    *to = end - start < CHUNK_BLOCKS ? (unsigned)(end - start) : CHUNK_BLOCKS;
}

static bool covers_block_0(const struct write *w)
{
    return w->offset == 0 && w->end >= BLOCK;
}

/* The chunk's present map, ready to be changed; refuses when it is not what was merged.  *more less what bytes in the
 * record counted for. */
static int apply_map(struct write *w, struct meta_txn *t, const struct inode *inode, uint64_t chunk,
                     struct chunk_map *map, uint64_t *more)
{
    int error = meta_chunk(t, w->o->tree, inode, chunk, map);
    if (error && error != -ENOENT)
        return error;
    bool is_inline = !error && map->kind == CHUNK_INLINE;
    if (is_inline && !covers_block_0(w) && !(w->inline_merged && map->change == w->inline_change))
        return SL_EREFUSED;
    if (chunk == 0 && w->inline_merged && !is_inline)
        return SL_EREFUSED;
    *more -= is_inline ? t->local->tiny_blocks : 0;
    if (error || is_inline)
        chunk_map_clear(map);
    for (unsigned i = 0; i < w->edge_count; i++) {
        const struct edge *e = &w->edges[i];
        if (e->block / CHUNK_BLOCKS == chunk &&
            chunk_place(map, e->block % CHUNK_BLOCKS) != e->from)
            return SL_EREFUSED;
    }
    return 0;
}

static void map_new_blocks(const struct write *w, uint64_t chunk, struct chunk_map *map)
{
    unsigned from, to;
    chunk_part(w, chunk, &from, &to);
    unsigned offset =
        (unsigned)(chunk * CHUNK_BLOCKS + from - w->first); /* of `from` in the write */
    unsigned end = offset + (to - from);
    for (unsigned i = 0; i < w->run_count; i++) {
        const struct run *run = &w->runs[i];
        unsigned a = run->first > offset ? run->first : offset;
        unsigned b = run->first + run->count < end ? run->first + run->count : end;
        if (a < b)
            chunk_map_set(map, from + (a - offset), b - a, run->place + (a - run->first),
                          w->crc + a);
    }
    if (chunk == 0 && w->extra)
        chunk_map_set(map, 0, 1, w->extra, &w->extra_crc);
}

static int apply_blocks(struct mutation *m, struct meta_txn *t)
{
    struct write *w = (struct write *)m;
    struct tree tree;
    struct inode inode;
    int64_t delta = 0;
    uint64_t more = w->extra ? 1 : 0;
    int error = apply_begin(w, t, &tree, &inode);
    if (error)
        return error;
    uint64_t chunk = w->first / CHUNK_BLOCKS, last = (w->first + w->blocks - 1) / CHUNK_BLOCKS;
    for (uint64_t i = chunk; i <= last; i++) {
        unsigned from, to;
        struct chunk_map *map = &w->maps[i - chunk];
        error = apply_map(w, t, &inode, i, map, &more);
        if (error)
            return error;
        chunk_part(w, i, &from, &to);
        more += to - from - chunk_map_used(map, from, to - from);
        map_new_blocks(w, i, map);
    }
    error = meta_tree_room(t, w->o->tree, more, 0);
    if (error)
        return error;
    uint64_t change = meta_next_change(t);
    for (uint64_t i = chunk; i <= last; i++) {
        int64_t added = 0;
        error = meta_put_chunk(t, w->o->tree, w->o->ino, i, &w->maps[i - chunk], change, &added);
        if (error)
            return error;
        delta += added;
    }
    return apply_end(w, t, &tree, &inode, delta, change);
}

/* ---- what the worker does ---- */

static unsigned edge_lock_of(const struct store_object *o, uint64_t block)
{
    uint64_t hash = (o->ino * 31 + o->tree) * UINT64_C(0x9e3779b97f4a7c15) + block;
    hash ^= hash >> 32;
    hash *= UINT64_C(0xbf58476d1ce4e5b9);
    return (unsigned)(hash >> 40) % EDGE_LOCKS;
}

struct locked {
    unsigned at[2], count;
};

/* The blocks that are covered in part, and their locks, always in one order. */
static void lock_edges(struct write *w, struct locked *locked)
{
    uint64_t last = w->first + w->blocks - 1;
    w->edge_count = 0;
    if (w->offset % BLOCK || w->end < (w->first + 1) * BLOCK)
        w->edges[w->edge_count++].block = w->first;
    if (w->end % BLOCK && (last != w->first || !w->edge_count))
        w->edges[w->edge_count++].block = last;
    locked->count = 0;
    for (unsigned i = 0; i < w->edge_count; i++)
        locked->at[locked->count++] = edge_lock_of(w->o, w->edges[i].block);
    if (locked->count == 2 && locked->at[0] == locked->at[1])
        locked->count = 1;
    if (locked->count == 2 && locked->at[0] > locked->at[1]) {
        unsigned first = locked->at[1];
        locked->at[1] = locked->at[0];
        locked->at[0] = first;
    }
    for (unsigned i = 0; i < locked->count; i++)
        coro_mutex_lock(&edge_locks[locked->at[i]]);
}

static void unlock_edges(const struct locked *locked)
{
    for (unsigned i = locked->count; i-- > 0;)
        coro_mutex_unlock(&edge_locks[locked->at[i]]);
}

static uint8_t *old_buffer(struct write *w, unsigned i)
{
    if (!w->old[i])
        w->old[i] = malloc(BLOCK);
    return w->old[i];
}

static int merge_edges(struct write *w, const struct inode *inode)
{
    for (unsigned i = 0; i < w->edge_count; i++) {
        struct edge *e = &w->edges[i];
        struct chunk_map *map = &w->maps[0];
        uint64_t chunk = e->block / CHUNK_BLOCKS;
        unsigned block = e->block % CHUNK_BLOCKS;
        e->from = 0;
        e->old = NULL;
        int error = meta_get_chunk(w->l, w->o->tree, inode, chunk, map);
        if (error == -ENOENT)
            continue;
        if (error)
            return error;
        e->from = chunk_place(map, block);
        if (!e->from)
            continue; /* a hole; inline bytes come with merge_inline() */
        e->old = old_buffer(w, i);
        if (!e->old)
            return -ENOMEM;
        error = data_old_block(w->l, w->o->tree, w->o->ino, chunk, block, e->from, map->crc[block],
                               e->old);
        if (error)
            return error;
    }
    return 0;
}

int data_inline_block(struct local *l, const struct chunk_map *map, place_t *place, uint32_t *crc)
{
    unsigned got;
    uint8_t *block = aligned_alloc(BLOCK, BLOCK);
    int error = block ? seg_reserve(l, 1, place, &got) : -ENOMEM;
    if (!error) {
        memset(block, 0, BLOCK);
        memcpy(block, map->bytes, map->inline_length);
        *crc = block_crc(block);
        error = seg_write(l, *place, &(struct iovec){block, BLOCK}, 1, 1);
        if (error)
            seg_abandon(l, *place, 1);
    }
    free(block);
    if (error)
        *place = 0;
    return error;
}

/* An inline file becomes one with blocks: its bytes go into block 0, the write's own or one beside it. */
static int merge_inline(struct write *w, const struct inode *inode)
{
    struct chunk_map *map = &w->maps[0];
    w->inline_merged = false;
    if (w->first >= CHUNK_BLOCKS || covers_block_0(w))
        return 0;
    int error = meta_get_chunk(w->l, w->o->tree, inode, 0, map);
    if (error == -ENOENT || (!error && map->kind != CHUNK_INLINE))
        return 0;
    if (error)
        return error;
    w->inline_merged = true;
    w->inline_change = map->change;
    if (w->first)
        return data_inline_block(w->l, map, &w->extra, &w->extra_crc);
    struct edge *e = &w->edges[0];
    assert(w->edge_count && e->block == 0 && "block 0 is covered in part");
    e->old = old_buffer(w, 0);
    if (!e->old)
        return -ENOMEM;
    memset(e->old, 0, BLOCK);
    memcpy(e->old, map->bytes, map->inline_length);
    return 0;
}

static int reserve(struct write *w)
{
    unsigned done = 0;
    while (done < w->blocks) {
        if (w->run_count == RUNS_MOST)
            return -ENOSPC; /* crumbs only */
        struct run *run = &w->runs[w->run_count];
        unsigned got;
        int error = seg_reserve(w->l, w->blocks - done, &run->place, &got);
        if (error)
            return error;
        run->first = done;
        run->count = got;
        w->run_count++;
        done += got;
    }
    return 0;
}

static int take_parts(struct write *w)
{
    struct cache_class *class = cache_class(w->l->cache, w->o->tree);
    for (unsigned i = 0; i < w->run_count; i++) {
        const struct run *run = &w->runs[i];
        for (unsigned done = 0; done < run->count;) {
            struct part *p = &w->parts[w->part_count];
            unsigned most;
            assert(w->part_count < PARTS_MOST);
            *p = (struct part){.place = run->place + done, .first = run->first + done};
            most = FRAME_BLOCKS - (unsigned)(p->place % FRAME_BLOCKS);
            p->count = run->count - done < most ? run->count - done : most;
            p->frame = cache_get(w->l->cache, class, p->place, FRAME_LARGE);
            p->data = p->frame ? frame_data(w->l->cache, p->frame, p->place)
                               : aligned_alloc(BLOCK, (size_t)p->count * BLOCK);
            if (!p->data)
                return -ENOMEM;
            w->iov[w->part_count++] = (struct iovec){p->data, (size_t)p->count * BLOCK};
            done += p->count;
        }
    }
    return 0;
}

static void fill_block(const struct write *w, uint64_t block, uint8_t *to)
{
    uint64_t start = block * BLOCK, from = start, end = start + BLOCK;
    if (w->offset > from)
        from = w->offset;
    if (w->end < end)
        end = w->end;
    if (end - from < BLOCK) {
        const struct edge *e = &w->edges[0];
        if (e->block != block)
            e = &w->edges[1];
        if (e->old)
            memcpy(to, e->old, BLOCK);
        else
            memset(to, 0, BLOCK);
    }
    memcpy(to + (from - start), w->bytes + (from - w->offset), end - from);
}

static void fill_parts(struct write *w)
{
    for (unsigned i = 0; i < w->part_count; i++) {
        const struct part *p = &w->parts[i];
        coro_pace(p->count * BLOCK, i > 0);
        for (unsigned b = 0; b < p->count; b++) {
            uint64_t block = w->first + p->first + b;
            uint8_t *to = p->data + (size_t)b * BLOCK;
            if (w->blocks >= STREAM_LEAST && block * BLOCK >= w->offset &&
                (block + 1) * BLOCK <= w->end) {
                w->crc[p->first + b] = block_stream(to, w->bytes + (block * BLOCK - w->offset));
            } else {
                fill_block(w, block, to);
                w->crc[p->first + b] = block_crc(to);
            }
        }
    }
    block_stream_end();
}

static int write_runs(struct write *w)
{
    unsigned part = 0;
    for (unsigned i = 0; i < w->run_count; i++) {
        const struct run *run = &w->runs[i];
        unsigned first = part;
        while (part < w->part_count && w->parts[part].first < run->first + run->count)
            part++;
        int error = seg_write(w->l, run->place, w->iov + first, part - first, run->count);
        if (error)
            return error;
    }
    return 0;
}

/* After the decision: the frames are good, or the places are given up. */
static void finish(struct write *w, bool published)
{
    for (unsigned i = 0; i < w->part_count; i++) {
        struct part *p = &w->parts[i];
        if (!p->frame) {
            free(p->data);
            continue;
        }
        if (published)
            cache_publish(p->frame, frame_mask(w->l->cache, p->frame, p->place, p->count));
        frame_unpin(p->frame);
    }
    if (!published) {
        for (unsigned i = 0; i < w->run_count; i++)
            seg_abandon(w->l, w->runs[i].place, w->runs[i].count);
        if (w->extra)
            seg_abandon(w->l, w->extra, 1);
    }
    w->part_count = w->run_count = 0;
    w->extra = 0;
}

static int prepare_blocks(struct write *w, const struct inode *inode)
{
    int error = merge_edges(w, inode);
    if (!error)
        error = merge_inline(w, inode);
    if (!error)
        error = reserve(w);
    if (!error)
        error = take_parts(w);
    if (error)
        return error;
    fill_parts(w);
    return write_runs(w);
}

static int write_blocks(struct write *w)
{
    struct locked locked;
    struct inode inode;
    lock_edges(w, &locked);
    /* As it is now that nobody else merges: the one looked at before may be of before the lock was to be had. */
    int error = meta_get_inode(w->l, w->o->tree, w->o->ino, &inode);
    if (!error)
        error = prepare_blocks(w, &inode);
    if (!error) {
        w->m = (struct mutation){.apply = apply_blocks};
        error = writer_run(w->l, &w->m);
    }
    finish(w, error == 0);
    unlock_edges(&locked);
    return error;
}

static int write_inline(struct write *w)
{
    w->m = (struct mutation){.apply = apply_inline};
    return writer_run(w->l, &w->m);
}

/* Does the file stay one whose bytes are in its record?  1 or 0. */
static int stays_inline(struct write *w, const struct inode *inode)
{
    if (w->end > INLINE_MAX || inode->size > INLINE_MAX)
        return 0;
    int error = meta_get_chunk(w->l, w->o->tree, inode, 0, &w->maps[0]);
    if (error && error != -ENOENT)
        return error;
    return error || w->maps[0].kind == CHUNK_INLINE;
}

static int attempt(struct write *w)
{
    struct tree tree;
    struct inode inode;
    int error = meta_get_inode(w->l, w->o->tree, w->o->ino, &inode);
    if (!error)
        error = meta_tree(w->l, w->o->tree, &tree);
    if (!error)
        error = check_inode(w, &tree, &inode);
    if (!error && w->too_far)
        error = -EFBIG; /* what the object is comes first */
    if (error || w->offset == w->end)
        return error;
    error = stays_inline(w, &inode);
    if (error < 0)
        return error;
    return error ? write_inline(w) : write_blocks(w);
}

static int run(struct write *w)
{
    int error = SL_EREFUSED;
    for (unsigned tries = 0; error == SL_EREFUSED && tries < REFUSALS_MOST; tries++) {
        error = attempt(w);
        if (error == SL_EREFUSED)
            metric_add(METRIC_mutations_refused, 1);
    }
    return error == SL_EREFUSED ? SL_EDELAY : error;
}

int data_write(struct store *s, const struct store_cred *c, const struct store_object *o,
               uint64_t offset, const void *bytes, uint32_t length, struct store_wcc *wcc)
{
    if (!coro_self())
        return SL_EWAIT;
    if (wcc)
        wcc->has_before = wcc->has_after = false;
    bool too_far = offset > STORE_FILE_MAX || length > STORE_FILE_MAX - offset;
    if (too_far)
        offset = length = 0;
    if (length > STORE_IO_MAX)
        return -EINVAL;
    struct local *l = local_of(s);
    if (atomic_load(&l->frozen))
        return SL_EFROZEN;
    struct write *w = malloc(sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->l = l;
    w->c = c;
    w->o = o;
    w->too_far = too_far;
    w->offset = offset;
    w->end = offset + length;
    w->bytes = bytes;
    w->wcc = wcc;
    w->first = offset / BLOCK;
    w->blocks = length ? (unsigned)((w->end - 1) / BLOCK - w->first + 1) : 0;
    w->run_count = w->part_count = w->edge_count = 0;
    w->extra = 0;
    w->inline_merged = false;
    w->m.failed = false;
    w->old[0] = w->old[1] = NULL;
    int error = run(w);
    /* What was seen or put in a group that failed has never come to pass. */
    if (error && w->m.failed && wcc)
        wcc->has_before = wcc->has_after = false;
    free(w->old[0]);
    free(w->old[1]);
    free(w);
    if (error)
        return error;
    metric_add(METRIC_write_ops, 1);
    metric_add(METRIC_write_bytes, length);
    return 0;
}
