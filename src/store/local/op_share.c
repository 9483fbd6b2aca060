#include "store/local/op_share.h"

#include <stdlib.h>

#include "store/local/chunk_map.h"
#include "store/local/data_private.h"
#include "store/local/seg.h"

enum {
    BLOCK = STORE_BLOCK,
    TRIES = 8,
    LOOKS_MOST = 512,    /* chunks that one mutation looks at, holes in both files included */
    EXTENTS_MOST = 2048, /* and holds once more, where it may be less than all: 1 to 2 us each */
};

struct share_part { /* of the target */
    uint64_t chunk, shared; /* a bit for each block that the source holds too */
    struct chunk_map map;   /* as it will be */
};

/* ---- one chunk of the target ---- */

static uint64_t source_block(const struct sharing *s, uint64_t block)
{
    return s->copy->from_offset / BLOCK + (block - s->first);
}

/* The source's map for one of its blocks. */
static int look_at_source(struct sharing *s, struct meta_txn *t, uint64_t block)
{
    if (s->from_known && s->from_chunk == block / CHUNK_BLOCKS)
        return 0;
    s->from_chunk = block / CHUNK_BLOCKS;
    int rc = meta_chunk(t, s->copy->from.tree, &s->source, s->from_chunk, &s->from);
    s->from_known = !rc || rc == -ENOENT;
    if (rc == -ENOENT)
        chunk_map_clear(&s->from);
    return s->from_known ? 0 : rc;
}

static void take_run(struct share_part *p, unsigned block, unsigned count, place_t place, const uint32_t *crc)
{
    if (!place) {
        chunk_map_punch(&p->map, block, count);
        return;
    }
    chunk_map_set(&p->map, block, count, place, crc);
    for (unsigned b = block; b < block + count; b++)
        p->shared |= UINT64_C(1) << b;
}

/* Block 0 of a file whose bytes are in the record `map`, as block `to` of the target. */
static int take_inside(struct sharing *s, unsigned whose, const struct chunk_map *map, struct share_part *p,
                       unsigned to)
{
    struct share_inside *inside = &s->inside[whose];
    uint64_t change = map->change;
    if (!inside->place || inside->change != change) {
        s->met = whose;
        s->by_bytes = whose == SHARE_SOURCE && s->length <= BLOCK;
        return SL_EREFUSED;
    }
    if (map == &p->map)
        chunk_map_clear(&p->map);
    chunk_map_set(&p->map, to, 1, inside->place, &inside->crc);
    inside->used = true;
    return 0;
}

/* Puts what the source has over the target's blocks from s->at on, up to `to` of their chunk. */
static int take_blocks(struct sharing *s, struct meta_txn *t, struct share_part *p, unsigned to)
{
    while (s->at < p->chunk * CHUNK_BLOCKS + to) {
        uint64_t from = source_block(s, s->at);
        unsigned block = (unsigned)(s->at % CHUNK_BLOCKS), within = (unsigned)(from % CHUNK_BLOCKS);
        unsigned most = CHUNK_BLOCKS - within < to - block ? CHUNK_BLOCKS - within : to - block;
        place_t place;
        int rc = look_at_source(s, t, from);
        if (rc)
            return rc;
        if (s->from.kind == CHUNK_INLINE && within == 0) {
            rc = take_inside(s, SHARE_SOURCE, &s->from, p, block);
            if (rc)
                return rc;
            s->at++;
            continue;
        }
        unsigned run = chunk_map_run(&s->from, within, most, &place);
        take_run(p, block, run, place, s->from.crc + within);
        s->at += run;
    }
    return 0;
}

/* 1: there is nothing to change. */
static int look_at_chunk(struct sharing *s, struct meta_txn *t, struct share_part *p)
{
    p->chunk = s->at / CHUNK_BLOCKS;
    p->shared = 0;
    uint64_t start = p->chunk * CHUNK_BLOCKS, left = s->end - start;
    int rc = meta_chunk(t, s->op.tree.id, &s->inode, p->chunk, &p->map);
    if (rc && rc != -ENOENT)
        return rc;
    bool was_there = !rc, is_inline = was_there && p->map.kind == CHUNK_INLINE;
    s->more -= is_inline ? t->local->tiny_blocks : chunk_map_used(&p->map, 0, was_there ? CHUNK_BLOCKS : 0);
    if (is_inline && s->at > start) {
        rc = take_inside(s, SHARE_TARGET, &p->map, p, 0);
        if (rc)
            return rc;
    } else if (!was_there || is_inline) {
        chunk_map_clear(&p->map);
    }
    rc = take_blocks(s, t, p, left < CHUNK_BLOCKS ? (unsigned)left : CHUNK_BLOCKS);
    s->more += chunk_map_used(&p->map, 0, CHUNK_BLOCKS);
    return rc ? rc : !was_there && !p->map.extent_count;
}

/* Goes on where either file has a record: the chunk before has none. */
static int pass_holes(struct sharing *s, struct meta_txn *t)
{
    uint64_t chunk, next = s->end, from = source_block(s, s->at);
    struct chunk_map *map = &s->from;
    s->from_known = false;
    int rc = meta_chunk_next(t, s->copy->from.tree, s->source.ino, from / CHUNK_BLOCKS, &chunk, map);
    if (!rc && chunk * CHUNK_BLOCKS <= from)
        return 0;
    if (!rc && chunk * CHUNK_BLOCKS - from < next - s->at)
        next = s->at + (chunk * CHUNK_BLOCKS - from);
    if (!rc || rc == -ENOENT)
        rc = meta_chunk_next(t, s->op.tree.id, s->inode.ino, s->at / CHUNK_BLOCKS, &chunk, map);
    if (rc)
        chunk = UINT64_MAX / CHUNK_BLOCKS;
    if (chunk * CHUNK_BLOCKS < next)
        next = chunk * CHUNK_BLOCKS;
    if (next > s->at)
        s->at = next;
    return rc == -ENOENT ? 0 : rc;
}

/* ---- a step ---- */

unsigned sharing_mark(const struct inode *inode, struct inode_cut mark)
{
    for (unsigned i = 0; i < inode->cut_count; i++)
        if (inode->cuts[i].chunk == mark.chunk && inode->cuts[i].change == mark.change)
            return i;
    return INODE_CUTS;
}

static int look_at_ends(struct sharing *s)
{
    const struct store_copy *c = s->copy;
    if (c->from_offset > s->source.size || c->length > s->source.size - c->from_offset)
        return -EINVAL;
    if (c->to_offset > STORE_FILE_MAX || c->length > STORE_FILE_MAX - c->to_offset)
        return -EFBIG;
    if (s->length % BLOCK == 0)
        return 0;
    if (c->from_offset + s->length != s->source.size)
        return s->zero_rest ? -EINVAL : SL_EREFUSED;
    return s->zero_rest || s->inode.size <= c->to_offset + s->length ? 0 : SL_EREFUSED;
}

static bool is_staged(struct sharing *s)
{
    s->lost = s->inode.size > s->stage.chunk * STORE_CHUNK || sharing_mark(&s->inode, s->stage) == INODE_CUTS;
    return !s->lost;
}

int sharing_look(struct sharing *s, struct meta_txn *t)
{
    const struct store_copy *c = s->copy;
    int rc = op_inode(t, &c->from, &s->source);
    if (rc)
        return rc;
    if (s->source.type != STORE_REG)
        return s->source.type == STORE_DIR ? -EISDIR : -EINVAL;
    rc = perm_read(c->from_cred, &s->source);
    if (!rc)
        rc = op_file(&s->op, t, &c->to, &s->inode);
    if (!rc)
        rc = look_at_ends(s);
    return !rc && s->stage.change && !is_staged(s) ? SL_EREFUSED : rc;
}

/* Of the target: one more where its chunks are not the source's. */
static unsigned parts_most(const struct sharing *s)
{
    return s->op.local->share_most + 1;
}

static bool may_look_on(const struct sharing *s, unsigned looks)
{
    return s->at < s->end && s->count < parts_most(s) && looks < LOOKS_MOST &&
           !(s->bounded && s->extents >= EXTENTS_MOST);
}

static int sharing_check(struct op *op, struct meta_txn *t)
{
    struct sharing *s = (struct sharing *)op;
    s->first = s->at = s->copy->to_offset / BLOCK;
    s->end = s->first + (s->length + BLOCK - 1) / BLOCK;
    s->count = s->extents = 0;
    s->more = 0;
    s->by_bytes = s->from_known = false;
    s->met = SHARE_NOT;
    s->inside[SHARE_SOURCE].used = s->inside[SHARE_TARGET].used = false;
    int rc = sharing_look(s, t);
    for (unsigned i = 0; !rc && may_look_on(s, i); i++) {
        rc = look_at_chunk(s, t, &s->parts[s->count]);
        if (rc == 0)
            s->extents += s->parts[s->count++].map.extent_count;
        else if (rc == 1)
            rc = s->at < s->end ? pass_holes(s, t) : 0;
    }
    if (!rc && s->more > 0)
        rc = meta_tree_room(t, op->tree.id, (uint64_t)s->more, 0);
    if (!rc)
        rc = meta_record_room(t);
    return !rc && s->first == s->end ? OP_NOTHING : rc;
}

static uint64_t bytes_done(const struct sharing *s)
{
    uint64_t bytes = (s->at - s->first) * BLOCK;
    return bytes < s->length ? bytes : s->length;
}

static int sharing_put(struct op *op, struct meta_txn *t)
{
    struct sharing *s = (struct sharing *)op;
    uint32_t tree = op->tree.id;
    uint64_t change = s->stage.change ? s->stage.change : meta_next_change(t);
    for (unsigned i = 0; i < s->count; i++) {
        const struct share_part *p = &s->parts[i];
        int64_t delta;
        int rc = p->map.extent_count
                     ? meta_share_chunk(t, tree, s->inode.ino, p->chunk, &p->map, p->shared, change, &delta)
                     : meta_del_chunk(t, tree, s->inode.ino, p->chunk, &delta);
        if (rc && rc != -ENOENT)
            return rc;
        s->inode.blocks = (uint64_t)((int64_t)s->inode.blocks + delta);
    }
    return s->stage.change ? meta_put_inode(t, tree, &s->inode) : sharing_show(s, t, bytes_done(s), change);
}

int sharing_show(struct sharing *s, struct meta_txn *t, uint64_t bytes, uint64_t change)
{
    struct op *op = &s->op;
    uint64_t end = s->copy->to_offset + bytes;
    if (end > s->inode.size)
        s->inode.size = end;
    s->inode.mode = perm_mode_after_write(op->cred, &s->inode);
    inode_modified(&s->inode, t->now, change);
    if (op->wcc[0])
        wcc_after(op->wcc[0], &op->tree, &s->inode);
    return meta_put_inode(t, op->tree.id, &s->inode);
}

static unsigned blocks_shared(const struct sharing *s)
{
    unsigned blocks = 0;
    for (unsigned i = 0; i < s->count; i++)
        blocks += (unsigned)__builtin_popcountll(s->parts[i].shared);
    return blocks;
}

static int make_inside(struct sharing *s)
{
    const struct chunk_map *map = s->met == SHARE_SOURCE ? &s->from : &s->parts[s->count].map;
    struct share_inside *inside = &s->inside[s->met];
    if (inside->place)
        seg_abandon(s->op.local, inside->place, 1);
    inside->change = map->change;
    return data_inline_block(s->op.local, map, &inside->place, &inside->crc);
}

static void settle_inside(struct sharing *s, bool done)
{
    for (unsigned whose = SHARE_SOURCE; whose <= SHARE_TARGET; whose++) {
        struct share_inside *inside = &s->inside[whose];
        if (inside->place && !(done && inside->used))
            seg_abandon(s->op.local, inside->place, 1);
        inside->place = 0;
    }
}

static int run(struct sharing *s)
{
    int rc = op_run(&s->op);
    for (unsigned i = 0; i < TRIES && rc == SL_EREFUSED && s->met && !s->by_bytes; i++) {
        rc = make_inside(s);
        if (!rc)
            rc = op_run(&s->op);
    }
    settle_inside(s, rc == 0);
    return rc;
}

int sharing_step(struct sharing *s, struct store *st, uint64_t *done)
{
    s->op.check = sharing_check;
    s->op.put = sharing_put;
    int rc = op_begin(&s->op, st, s->copy->to_cred, s->copy->to.tree);
    s->parts = rc ? NULL : malloc(parts_most(s) * sizeof(*s->parts));
    if (!rc)
        rc = s->parts ? run(s) : -ENOMEM;
    if (!rc) {
        *done = bytes_done(s);
        metric_add(METRIC_blocks_shared, blocks_shared(s));
    }
    free(s->parts);
    return rc;
}
