#include <stdlib.h>
#include <string.h>

#include "store/local/chunk_map.h"
#include "store/local/data_private.h"
#include "store/local/fetch.h"
#include "store/local/seg.h"

enum { BLOCK = STORE_BLOCK, DELETE_MOST = 64 };

static int copy_tail(struct local *l, uint32_t tree, const struct inode *inode, uint64_t new_size,
                     const struct chunk_map *map, struct data_tail *tail, uint8_t *copy)
{
    unsigned got, keep = new_size % BLOCK;
    int error = data_old_block(l, tree, inode->ino, tail->chunk, tail->block, tail->from,
                               map->crc[tail->block], copy);
    if (error)
        return error;
    memset(copy + keep, 0, BLOCK - keep);
    tail->crc = block_crc(copy);
    error = seg_reserve(l, 1, &tail->to, &got);
    if (error)
        return error;
    error = seg_write(l, tail->to, &(struct iovec){copy, BLOCK}, 1, 1);
    if (error)
        seg_abandon(l, tail->to, 1);
    return error;
}

int data_tail_prepare(struct local *l, uint32_t tree, const struct inode *inode, uint64_t new_size,
                      struct data_tail *tail)
{
    memset(tail, 0, sizeof(*tail));
    if (new_size >= inode->size || new_size % BLOCK == 0)
        return 0;
    tail->chunk = new_size / STORE_CHUNK;
    tail->block = (uint8_t)(new_size % STORE_CHUNK / BLOCK);
    struct chunk_map map;
    int error = meta_get_chunk(l, tree, inode, tail->chunk, &map);
    if (error)
        return error == -ENOENT ? 0 : error;
    tail->from = chunk_place(&map, tail->block);
    if (!tail->from)
        return 0;
    uint8_t *copy = aligned_alloc(BLOCK, BLOCK);
    if (!copy)
        return -ENOMEM;
    error = copy_tail(l, tree, inode, new_size, &map, tail, copy);
    free(copy);
    tail->needed = error == 0;
    return error;
}

struct cutting {
    struct meta_txn *t;
    uint32_t tree;
    struct inode *inode;
    uint64_t new_size, change;
    uint64_t keep;        /* chunks from here on go */
    bool mark;            /* there are too many to delete at once */
    unsigned cut;         /* where the mark goes */
    bool edge;            /* the chunk with the new end has a record to be changed */
    struct chunk_map map; /* that record */
    int64_t delta;
};

/* Changes nothing: what there is behind the new end, and where a mark could go. */
static int survey_behind(struct cutting *c)
{
    struct chunk_map *map = malloc(sizeof(*map)); /* one is on this stack already */
    uint64_t from = c->keep, chunk;
    unsigned count = 0;
    int error = map ? 0 : -ENOMEM;
    while (!error && count <= DELETE_MOST) {
        error = meta_chunk_next(c->t, c->tree, c->inode->ino, from, &chunk, map);
        from = chunk + 1;
        if (!error)
            count++;
    }
    free(map);
    if (error && error != -ENOENT)
        return error;
    c->mark = count > DELETE_MOST;
    if (!c->mark)
        return 0;
    /* A mark further on hides nothing that the new one would not. */
    for (c->cut = 0; c->cut < c->inode->cut_count; c->cut++) {
        if (c->inode->cuts[c->cut].chunk >= c->keep)
            return 0;
    }
    return c->cut < INODE_CUTS ? 0 : -EAGAIN;
}

static int survey_edge(struct cutting *c, const struct data_tail *tail)
{
    uint64_t chunk = c->new_size / STORE_CHUNK;
    unsigned within = c->new_size % STORE_CHUNK;
    bool needed = tail && tail->needed;
    c->edge = false;
    if (!within)
        return needed ? SL_EREFUSED : 0;
    int error = meta_chunk(c->t, c->tree, c->inode, chunk, &c->map);
    if (error == -ENOENT)
        return needed ? SL_EREFUSED : 0;
    if (error)
        return error;
    c->edge = true;
    if (c->map.kind == CHUNK_INLINE)
        return needed ? SL_EREFUSED : 0;
    place_t place = within % BLOCK ? chunk_place(&c->map, within / BLOCK) : 0;
    if (place ? !needed || tail->chunk != chunk || tail->block != within / BLOCK ||
                    tail->from != place
              : needed)
        return SL_EREFUSED;
    return 0;
}

static int put_or_delete(struct cutting *c, uint64_t chunk, bool empty)
{
    int64_t delta = 0;
    int error =
        empty ? meta_del_chunk(c->t, c->tree, c->inode->ino, chunk, &delta)
              : meta_put_chunk(c->t, c->tree, c->inode->ino, chunk, &c->map, c->change, &delta);
    c->delta += delta;
    return error;
}

static int cut_edge(struct cutting *c, const struct data_tail *tail)
{
    uint64_t chunk = c->new_size / STORE_CHUNK;
    unsigned within = c->new_size % STORE_CHUNK;
    if (!c->edge)
        return 0;
    if (c->map.kind == CHUNK_INLINE) {
        if (c->map.inline_length <= within)
            return 0;
        c->map.inline_length = (uint16_t)within;
        return put_or_delete(c, chunk, false);
    }
    unsigned stay = (within + BLOCK - 1) / BLOCK;
    bool more = chunk_map_used(&c->map, stay, CHUNK_BLOCKS - stay) > 0;
    if (!more && !(tail && tail->needed))
        return 0;
    chunk_map_cut(&c->map, stay);
    if (tail && tail->needed)
        chunk_map_set(&c->map, tail->block, 1, tail->to, &tail->crc);
    return put_or_delete(c, chunk, c->map.extent_count == 0);
}

/* They hide nothing that is not gone now, or hidden by the new mark. */
static void drop_marks_behind(struct cutting *c)
{
    struct inode *inode = c->inode;
    uint8_t kept = 0;
    for (unsigned i = 0; i < inode->cut_count; i++) {
        if (inode->cuts[i].chunk < c->keep)
            inode->cuts[kept++] = inode->cuts[i];
    }
    inode->cut_count = kept;
}

static void set_mark(struct cutting *c)
{
    struct inode *inode = c->inode;
    drop_marks_behind(c);
    inode->cuts[inode->cut_count++] = (struct inode_cut){.chunk = c->keep, .change = c->change};
}

static int delete_behind(struct cutting *c)
{
    uint64_t chunk;
    int error;
    while (!(error = meta_chunk_next(c->t, c->tree, c->inode->ino, c->keep, &chunk, &c->map))) {
        error = put_or_delete(c, chunk, true);
        if (error)
            return error;
    }
    if (error == -ENOENT)
        drop_marks_behind(c);
    return error == -ENOENT ? 0 : error;
}

int data_truncate_apply(struct meta_txn *t, uint32_t tree, struct inode *inode, uint64_t new_size,
                        uint64_t change, const struct data_tail *tail, bool *background)
{
    struct cutting c = {.t = t,
                        .tree = tree,
                        .inode = inode,
                        .new_size = new_size,
                        .change = change,
                        .keep = new_size / STORE_CHUNK + (new_size % STORE_CHUNK != 0)};
    *background = false;
    if (new_size >= inode->size) {
        if (tail && tail->needed)
            return SL_EREFUSED;
        inode->size = new_size;
        return 0;
    }
    int error = survey_edge(&c, tail);
    if (!error)
        error = survey_behind(&c);
    if (error)
        return error;
    error = cut_edge(&c, tail);
    if (!error && c.mark)
        set_mark(&c);
    else if (!error)
        error = delete_behind(&c);
    if (error)
        return error;
    *background = c.mark;
    inode->size = new_size;
    inode->blocks = (uint64_t)((int64_t)inode->blocks + c.delta);
    return 0;
}
