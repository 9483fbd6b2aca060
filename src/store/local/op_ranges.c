/* Ranges of a file without their bytes: where data is, making a hole, making room. */
#include <stdlib.h>
#include <string.h>

#include "store/local/chunk_map.h"
#include "store/local/data.h"
#include "store/local/ops_private.h"

enum { BLOCK = STORE_BLOCK, LOOKS_MOST = 256, PUNCH_MOST = 64 };

/* ---- where data is ---- */

struct seeking {
    struct meta_txn *t;
    const struct store_object *object;
    struct inode inode;
    bool data;      /* it is data that is wanted */
    uint64_t at;    /* nothing before it is what is wanted */
    bool found;
};

/* Looks at one chunk from `at` on. */
static void look_in(struct seeking *s, uint64_t chunk, const struct chunk_map *map)
{
    uint64_t start = chunk * STORE_CHUNK;
    unsigned block = s->at > start ? (unsigned)((s->at - start) / BLOCK) : 0;
    if (map->kind == CHUNK_INLINE) { /* counts as one block */
        s->found = !s->data || s->at < BLOCK;
        if (!s->data && s->at < BLOCK)
            s->at = BLOCK;
        else if (!s->found)
            s->at = STORE_CHUNK;
        return;
    }
    while (block < CHUNK_BLOCKS) {
        place_t place;
        unsigned run = chunk_map_run(map, block, CHUNK_BLOCKS - block, &place);
        if ((place != 0) == s->data) {
            uint64_t from = start + (uint64_t)block * BLOCK;
            s->found = true;
            s->at = from > s->at ? from : s->at;
            return;
        }
        block += run;
    }
    s->at = start + STORE_CHUNK;
}

/* Goes on until it is found, the file ends, or enough was looked at for one transaction. */
static int look_on(struct seeking *s, struct chunk_map *map)
{
    int rc = op_inode(s->t, s->object, &s->inode);
    if (rc)
        return rc;
    for (unsigned i = 0; i < LOOKS_MOST && !s->found && s->at < s->inode.size; i++) {
        uint64_t chunk = s->at / STORE_CHUNK, next;
        rc = meta_chunk(s->t, s->object->tree, &s->inode, chunk, map);
        if (!rc) {
            look_in(s, chunk, map);
        } else if (rc != -ENOENT) {
            return rc;
        } else if (!s->data) {
            s->found = true;
        } else {
            rc = meta_chunk_next(s->t, s->object->tree, s->object->ino, chunk + 1, &next, map);
            if (rc && rc != -ENOENT)
                return rc;
            s->at = rc ? s->inode.size : next * STORE_CHUNK;
        }
    }
    return 0;
}

static int seek_once(struct local *l, struct seeking *s, struct chunk_map *map)
{
    int rc = meta_read_begin(l, &s->t);
    if (rc)
        return rc;
    rc = look_on(s, map);
    meta_read_end(s->t);
    return rc;
}

int local_seek(struct store *st, const struct store_cred *c, const struct store_object *o, uint64_t offset, bool data,
               uint64_t *found)
{
    if (!coro_self())
        return SL_EWAIT;
    struct local *l = local_of(st);
    struct seeking s = {.object = o, .data = data, .at = offset};
    struct chunk_map *map = malloc(sizeof(*map));
    int rc = map ? op_get_inode(l, o, &s.inode) : -ENOMEM;
    if (!rc && s.inode.type != STORE_REG)
        rc = s.inode.type == STORE_DIR ? -EISDIR : -EINVAL;
    if (!rc)
        rc = perm_read(c, &s.inode);
    if (!rc && offset >= s.inode.size)
        rc = -ENXIO;
    while (!rc && !s.found) {
        rc = seek_once(l, &s, map);
        if (!rc && s.at >= s.inode.size)
            break;
        if (!rc && !s.found)
            coro_yield();
    }
    free(map);
    if (rc)
        return rc;
    if (data && (!s.found || s.at >= s.inode.size))
        return -ENXIO;
    *found = s.at < s.inode.size ? s.at : s.inode.size; /* the end is a hole */
    return 0;
}

/* ---- a hole ---- */

struct punch_op {
    struct op op;
    const struct store_object *object;
    uint64_t first, end; /* whole blocks */
    struct inode inode;
    uint64_t next;       /* chunk to go on with */
};

static int punch_check(struct op *op, struct meta_txn *t)
{
    struct punch_op *p = (struct punch_op *)op;
    return op_file(op, t, p->object, &p->inode);
}

static int punch_chunk(struct punch_op *p, struct meta_txn *t, uint64_t chunk, struct chunk_map *map, uint64_t change)
{
    uint32_t tree = p->op.tree.id;
    uint64_t start = chunk * CHUNK_BLOCKS;
    int rc = meta_chunk(t, tree, &p->inode, chunk, map);
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    unsigned from = p->first > start ? (unsigned)(p->first - start) : 0;
    unsigned to = p->end < start + CHUNK_BLOCKS ? (unsigned)(p->end - start) : CHUNK_BLOCKS;
    if (map->kind == CHUNK_INLINE ? from > 0 : !chunk_map_used(map, from, to - from))
        return 0;
    int64_t delta = 0;
    if (map->kind == CHUNK_INLINE)
        chunk_map_clear(map); /* all of it is in the first block */
    else
        chunk_map_punch(map, from, to - from);
    rc = map->extent_count ? meta_put_chunk(t, tree, p->inode.ino, chunk, map, change, &delta)
                           : meta_del_chunk(t, tree, p->inode.ino, chunk, &delta);
    p->inode.blocks = (uint64_t)((int64_t)p->inode.blocks + delta);
    return rc;
}

static int punch_put(struct op *op, struct meta_txn *t)
{
    struct punch_op *p = (struct punch_op *)op;
    struct chunk_map *map = malloc(sizeof(*map));
    uint64_t change = meta_next_change(t), chunk = p->first / CHUNK_BLOCKS, last = (p->end - 1) / CHUNK_BLOCKS;
    int rc = map ? 0 : -ENOMEM;
    for (unsigned i = 0; !rc && i < PUNCH_MOST && chunk <= last; i++) {
        uint64_t next;
        rc = meta_chunk_next(t, op->tree.id, p->inode.ino, chunk, &next, map);
        if (rc == -ENOENT || (!rc && next > last)) {
            rc = 0;
            chunk = last + 1;
            break;
        }
        if (!rc)
            rc = punch_chunk(p, t, next, map, change);
        chunk = next + 1;
    }
    free(map);
    if (rc)
        return rc;
    p->next = chunk;
    p->inode.mode = perm_mode_after_write(op->cred, &p->inode);
    inode_modified(&p->inode, t->now, change);
    if (op->wcc[0])
        wcc_after(op->wcc[0], &op->tree, &p->inode);
    return meta_put_inode(t, op->tree.id, &p->inode);
}

/* Zeroes over bytes of one block, unless nothing is there. */
static int zero_edge(struct store *st, const struct store_cred *c, const struct store_object *o, uint64_t from,
                     uint64_t to, struct store_wcc *wcc)
{
    static const uint8_t zeroes[BLOCK];
    struct inode inode;
    struct local *l = local_of(st);
    int rc = op_get_inode(l, o, &inode);
    if (!rc && to > inode.size)
        to = inode.size;
    if (rc || from >= to)
        return rc;
    return data_write(st, c, o, from, zeroes, (uint32_t)(to - from), wcc);
}

int local_punch(struct store *st, const struct store_cred *c, const struct store_object *o, uint64_t offset,
                uint64_t length, struct store_wcc *wcc)
{
    struct punch_op p = {.op = {.check = punch_check, .put = punch_put, .wcc = {wcc}}, .object = o};
    int rc = op_begin(&p.op, st, c, o->tree);
    if (!rc)
        rc = op_check(&p.op);
    if (rc || !length)
        return rc;
    uint64_t end = length > UINT64_MAX - offset ? UINT64_MAX : offset + length;
    if (end > p.inode.size)
        end = (p.inode.size + BLOCK - 1) / BLOCK * BLOCK; /* what lies behind the end in its block is zero */
    if (offset >= end)
        return 0;
    p.first = (offset + BLOCK - 1) / BLOCK;
    p.end = end / BLOCK;
    if (p.first > p.end) /* within one block */
        return zero_edge(st, c, o, offset, end, wcc);
    if (offset % BLOCK)
        rc = zero_edge(st, c, o, offset, p.first * BLOCK, wcc);
    if (!rc && end % BLOCK)
        rc = zero_edge(st, c, o, p.end * BLOCK, end, wcc);
    while (!rc && p.first < p.end) {
        rc = op_run(&p.op);
        p.first = p.next * CHUNK_BLOCKS;
    }
    return rc;
}

/* ---- room ---- */

struct extend_op {
    struct op op;
    const struct store_object *object;
    uint64_t size;
    struct inode inode;
};

static int extend_check(struct op *op, struct meta_txn *t)
{
    struct extend_op *e = (struct extend_op *)op;
    int rc = op_file(op, t, e->object, &e->inode);
    if (!rc && e->size > STORE_FILE_MAX)
        rc = -EFBIG;
    return rc ? rc : e->inode.size >= e->size ? OP_NOTHING : 0;
}

static int extend_put(struct op *op, struct meta_txn *t)
{
    struct extend_op *e = (struct extend_op *)op;
    e->inode.size = e->size;
    e->inode.mode = perm_mode_after_write(op->cred, &e->inode);
    inode_modified(&e->inode, t->now, meta_next_change(t));
    if (op->wcc[0])
        wcc_after(op->wcc[0], &op->tree, &e->inode);
    return meta_put_inode(t, op->tree.id, &e->inode);
}

int local_extend(struct store *st, const struct store_cred *c, const struct store_object *o, uint64_t size,
                 struct store_wcc *wcc)
{
    struct extend_op e = {.op = {.check = extend_check, .put = extend_put, .wcc = {wcc}}, .object = o, .size = size};
    int rc = op_begin(&e.op, st, c, o->tree);
    return rc ? rc : op_run(&e.op);
}
