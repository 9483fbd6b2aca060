#include <stdio.h>

#include "store/local/ops_private.h"
#include "store/local/reaper.h"

enum { SMALL_CHUNKS = 8 };

/* ---- inodes that lose a link ---- */

int victim_find(struct op *op, struct meta_txn *t, uint64_t dir, struct store_name name,
                struct victim *v)
{
    v->orphaned = v->small = false;
    int rc = meta_entry(t, op->tree.id, dir, name, &v->entry);
    if (rc)
        return rc;
    return op_dangling(meta_inode(t, op->tree.id, v->entry.ino, &v->inode));
}

int victim_may_leave(struct op *op, const struct inode *dir, const struct victim *v)
{
    int rc = perm_dir(op->cred, dir, PERM_WRITE | PERM_EXEC);
    return rc ? rc : perm_sticky(op->cred, dir, &v->inode);
}

static bool is_last(const struct victim *v)
{
    return v->inode.type == STORE_DIR || v->inode.nlink == 1;
}

/* Of a chunk record only the number is of interest here, and the rest is large. */
static int next_chunk(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t from,
                      uint64_t *chunk)
{
    struct chunk_map map;
    return meta_chunk_next(t, tree, ino, from, chunk, &map);
}

static int has_few_chunks(struct meta_txn *t, uint32_t tree, uint64_t ino, bool *few)
{
    uint64_t chunk, from = 0;
    *few = false;
    for (unsigned count = 0; count <= SMALL_CHUNKS; count++) {
        int rc = next_chunk(t, tree, ino, from, &chunk);
        if (rc) {
            *few = rc == -ENOENT;
            return rc == -ENOENT ? 0 : rc;
        }
        from = chunk + 1;
    }
    return 0;
}

int victim_check(struct op *op, struct meta_txn *t, struct victim *v)
{
    if (v->inode.type == STORE_DIR) {
        struct entry first;
        int rc = meta_entry_next(t, op->tree.id, v->inode.ino, 0, &first);
        v->small = true;
        return rc == 0 ? -ENOTEMPTY : rc == -ENOENT ? 0 : rc;
    }
    if (v->inode.type != STORE_REG)
        v->small = true;
    else if (is_last(v))
        return has_few_chunks(t, op->tree.id, v->inode.ino, &v->small);
    return 0;
}

int victim_put_first(struct op *op, struct meta_txn *t, struct victim *v)
{
    char hex[20];
    if (is_last(v) && v->small && v->inode.type == STORE_REG)
        v->small = holds_doom(op->local, op->tree.id, v->inode.ino, &v->doom);
    v->orphaned = is_last(v) && !v->small;
    if (!v->orphaned)
        return 0;
    int length = snprintf(hex, sizeof(hex), "%llx", (unsigned long long)v->inode.ino);
    struct store_name name = {.bytes = hex, .length = (uint32_t)length};
    return meta_put_entry(t, op->tree.id, op->tree.orphans, name, v->inode.ino, v->inode.generation,
                          (enum store_type)v->inode.type, &v->orphan_position);
}

static int remove_at_once(struct op *op, struct meta_txn *t, struct victim *v)
{
    uint64_t chunk, from = 0;
    int64_t delta;
    int rc = 0;
    while (v->inode.type == STORE_REG) {
        rc = next_chunk(t, op->tree.id, v->inode.ino, from, &chunk);
        if (!rc)
            rc = meta_del_chunk(t, op->tree.id, v->inode.ino, chunk, &delta);
        if (rc)
            break;
        from = chunk + 1;
    }
    return rc && rc != -ENOENT ? rc : meta_del_inode(t, op->tree.id, v->inode.ino);
}

/* Another link becomes the first, which the inode itself names. */
static int lose_link(struct op *op, struct meta_txn *t, struct inode *inode, uint64_t dir,
                     uint64_t position)
{
    if (inode->parent != dir || inode->position != position)
        return meta_del_link(t, op->tree.id, inode->ino, dir, position);
    uint64_t next_dir = 0, next_position = 0;
    int rc = meta_link_next(t, op->tree.id, inode->ino, &next_dir, &next_position);
    if (rc)
        return rc == -ENOENT ? SL_ECORRUPT : rc;
    inode->parent = next_dir;
    inode->position = next_position;
    return meta_del_link(t, op->tree.id, inode->ino, next_dir, next_position);
}

int victim_put(struct op *op, struct meta_txn *t, struct victim *v, uint64_t dir, uint64_t change)
{
    struct inode *inode = &v->inode;
    if (is_last(v) && v->small)
        return remove_at_once(op, t, v);
    inode_changed(inode, t->now, change);
    inode->nlink--;
    if (v->orphaned) {
        inode->parent = op->tree.orphans;
        inode->position = v->orphan_position;
    } else {
        int rc = lose_link(op, t, inode, dir, v->entry.position);
        if (rc)
            return rc;
    }
    return meta_put_inode(t, op->tree.id, inode);
}

int victim_over(struct op *op, struct victim *v, int error)
{
    holds_undoom(op->local, &v->doom);
    if (!error && v->orphaned)
        reaper_orphan(op->local, op->tree.id, v->inode.ino);
    return error;
}

/* ---- REMOVE and RMDIR ---- */

struct remove_op {
    struct op op;
    const struct store_object *dir_object;
    struct store_name name;
    bool directory; /* RMDIR */
    struct inode dir;
    struct victim victim;
};

static int dots_check(struct store_name name, bool directory)
{
    if (!name_is_dot(name) && !name_is_dotdot(name))
        return 0;
    if (!directory)
        return -EISDIR;
    return name_is_dot(name) ? -EINVAL : -EEXIST;
}

static int remove_check(struct op *op, struct meta_txn *t)
{
    struct remove_op *r = (struct remove_op *)op;
    struct victim *v = &r->victim;
    int rc = op_dir(op, t, 0, r->dir_object, &r->dir);
    if (!rc)
        rc = name_check(r->name);
    if (!rc)
        rc = dots_check(r->name, r->directory);
    if (!rc)
        rc = perm_dir(op->cred, &r->dir, PERM_EXEC);
    if (!rc)
        rc = victim_find(op, t, r->dir.ino, r->name, v);
    if (!rc)
        rc = victim_may_leave(op, &r->dir, v);
    if (rc)
        return rc;
    if ((v->inode.type == STORE_DIR) != r->directory)
        return r->directory ? -ENOTDIR : -EISDIR;
    return victim_check(op, t, v);
}

static int remove_put(struct op *op, struct meta_txn *t)
{
    struct remove_op *r = (struct remove_op *)op;
    uint64_t change = meta_next_change(t);
    int rc = victim_put_first(op, t, &r->victim);
    if (!rc)
        rc = meta_del_entry(t, op->tree.id, r->dir.ino, r->victim.entry.position);
    if (!rc)
        rc = victim_put(op, t, &r->victim, r->dir.ino, change);
    if (rc)
        return rc;
    inode_modified(&r->dir, t->now, change);
    if (r->directory)
        r->dir.nlink--;
    if (op->wcc[0])
        wcc_after(op->wcc[0], &op->tree, &r->dir);
    return meta_put_inode(t, op->tree.id, &r->dir);
}

static int remove_run(struct remove_op *r, struct store *s, const struct store_cred *c)
{
    r->op.check = remove_check;
    r->op.put = remove_put;
    int rc = op_begin(&r->op, s, c, r->dir_object->tree);
    if (!rc)
        rc = victim_over(&r->op, &r->victim, op_run(&r->op));
    return rc;
}

int local_remove(struct store *s, const struct store_cred *c, const struct store_object *dir,
                 struct store_name name, struct store_wcc *dir_wcc)
{
    struct remove_op r = {.op = {.wcc = {dir_wcc}}, .dir_object = dir, .name = name};
    return remove_run(&r, s, c);
}

int local_rmdir(struct store *s, const struct store_cred *c, const struct store_object *dir,
                struct store_name name, struct store_wcc *dir_wcc)
{
    struct remove_op r = {
        .op = {.wcc = {dir_wcc}},
        .dir_object = dir,
        .name = name,
        .directory = true,
    };
    return remove_run(&r, s, c);
}
