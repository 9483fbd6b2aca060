#include <string.h>

#include "store/local/ops_private.h"

enum { DEPTH_MAX = 4096 }; /* the walk up from the new parent is the writer's time */

struct rename_op {
    struct op op;
    const struct store_object *from_object, *to_object;
    struct store_name from, to;
    struct inode from_dir, to_dir; /* to_dir only where `across` */
    bool across;                   /* between two directories */
    bool replaces;                 /* there is a target */
    struct victim source, target;
};

static struct inode *new_parent(struct rename_op *r)
{
    return r->across ? &r->to_dir : &r->from_dir;
}

/* Is the source above the directory that it is to move to? */
static int descendant_check(struct rename_op *r, struct meta_txn *t)
{
    struct inode above = r->to_dir;
    for (unsigned depth = 0; above.ino != r->op.tree.root; depth++) {
        if (above.ino == r->source.inode.ino)
            return -EINVAL;
        if (depth == DEPTH_MAX)
            return -ENAMETOOLONG;
        int rc = op_dangling(meta_inode(t, r->op.tree.id, above.parent, &above));
        if (rc)
            return rc;
    }
    return 0;
}

static int dirs_check(struct rename_op *r, struct meta_txn *t)
{
    struct op *op = &r->op;
    int rc = op_dir(op, t, 0, r->from_object, &r->from_dir);
    r->across = r->from_object->ino != r->to_object->ino;
    /* Also for one directory: its handle may be wrong, and its wcc is asked for twice. */
    int rc_to = op_dir(op, t, 1, r->to_object, &r->to_dir);
    if (!rc)
        rc = rc_to;
    if (!rc)
        rc = name_check(r->from);
    if (!rc)
        rc = name_check(r->to);
    if (rc)
        return rc;
    if (name_is_dot(r->from) || name_is_dotdot(r->from) || name_is_dot(r->to) ||
        name_is_dotdot(r->to))
        return -EINVAL;
    rc = perm_dir(op->cred, &r->from_dir, PERM_EXEC);
    return rc ? rc : perm_dir(op->cred, &r->to_dir, PERM_EXEC);
}

static int target_check(struct rename_op *r, struct meta_txn *t)
{
    int rc = victim_may_leave(&r->op, new_parent(r), &r->target);
    if (rc)
        return rc;
    bool source_is_dir = r->source.inode.type == STORE_DIR;
    bool target_is_dir = r->target.inode.type == STORE_DIR;
    if (source_is_dir != target_is_dir)
        return target_is_dir ? -EISDIR : -ENOTDIR;
    return victim_check(&r->op, t, &r->target);
}

static int rename_check(struct op *op, struct meta_txn *t)
{
    struct rename_op *r = (struct rename_op *)op;
    int rc = dirs_check(r, t);
    if (!rc)
        rc = victim_find(op, t, r->from_dir.ino, r->from, &r->source);
    if (rc)
        return rc;
    bool is_dir = r->source.inode.type == STORE_DIR;
    if (is_dir && r->across && (rc = descendant_check(r, t)))
        return rc;
    rc = victim_find(op, t, r->to_dir.ino, r->to, &r->target);
    r->replaces = rc == 0;
    if (rc && rc != -ENOENT)
        return rc;
    if (r->replaces && r->target.inode.ino == r->source.inode.ino)
        return OP_NOTHING;
    rc = victim_may_leave(op, &r->from_dir, &r->source);
    if (rc)
        return rc;
    if (r->replaces)
        rc = target_check(r, t);
    else if (!(rc = perm_dir(op->cred, &r->to_dir, PERM_WRITE)))
        rc = name_check_new(r->to);
    /* Its ".." is written. */
    if (!rc && is_dir && r->across)
        rc = perm_dir(op->cred, &r->source.inode, PERM_WRITE);
    return rc;
}

/* The entry under the new name; first what may refuse. */
static int put_new_entry(struct rename_op *r, struct meta_txn *t, uint64_t *position)
{
    const struct inode *moved = &r->source.inode;
    uint32_t tree = r->op.tree.id;
    uint64_t dir = new_parent(r)->ino;
    if (!r->replaces)
        return meta_put_entry(t, tree, dir, r->to, moved->ino, moved->generation,
                              (enum store_type)moved->type, position);
    int rc = victim_put_first(&r->op, t, &r->target);
    if (rc)
        return rc;
    struct entry entry = r->target.entry;
    entry.ino = moved->ino;
    entry.generation = moved->generation;
    entry.type = moved->type;
    *position = entry.position;
    return meta_set_entry(t, tree, dir, &entry);
}

static int put_moved(struct rename_op *r, struct meta_txn *t, uint64_t position, uint64_t change)
{
    struct inode *moved = &r->source.inode;
    uint32_t tree = r->op.tree.id;
    uint64_t from_dir = r->from_dir.ino, from_position = r->source.entry.position;
    uint64_t to_dir = new_parent(r)->ino;
    int rc = meta_del_entry(t, tree, from_dir, from_position);
    if (rc)
        return rc;
    if (moved->parent == from_dir && moved->position == from_position) {
        moved->parent = to_dir;
        moved->position = position;
    } else {
        rc = meta_del_link(t, tree, moved->ino, from_dir, from_position);
        if (!rc)
            rc = meta_put_link(t, tree, moved->ino, to_dir, position);
    }
    inode_changed(moved, t->now, change);
    return rc ? rc : meta_put_inode(t, tree, moved);
}

static int put_dirs(struct rename_op *r, struct meta_txn *t, uint64_t change)
{
    struct inode *to = new_parent(r);
    inode_modified(&r->from_dir, t->now, change);
    if (r->across)
        inode_modified(&r->to_dir, t->now, change);
    if (r->source.inode.type == STORE_DIR) {
        r->from_dir.nlink--;
        if (!r->replaces)
            to->nlink++;
    }
    if (r->op.wcc[0])
        wcc_after(r->op.wcc[0], &r->op.tree, &r->from_dir);
    if (r->op.wcc[1])
        wcc_after(r->op.wcc[1], &r->op.tree, to);
    int rc = meta_put_inode(t, r->op.tree.id, &r->from_dir);
    if (!rc && r->across)
        rc = meta_put_inode(t, r->op.tree.id, &r->to_dir);
    return rc;
}

static int rename_put(struct op *op, struct meta_txn *t)
{
    struct rename_op *r = (struct rename_op *)op;
    uint64_t position, change = meta_next_change(t);
    int rc = put_new_entry(r, t, &position);
    if (!rc)
        rc = put_moved(r, t, position, change);
    if (!rc && r->replaces)
        rc = victim_put(op, t, &r->target, new_parent(r)->ino, change);
    return rc ? rc : put_dirs(r, t, change);
}

int local_rename(struct store *s, const struct store_cred *c, const struct store_object *from_dir,
                 struct store_name from, const struct store_object *to_dir, struct store_name to,
                 struct store_wcc *from_wcc, struct store_wcc *to_wcc)
{
    struct rename_op r = {
        .op = {.check = rename_check, .put = rename_put, .wcc = {from_wcc, to_wcc}},
        .from_object = from_dir,
        .to_object = to_dir,
        .from = from,
        .to = to,
    };
    int rc = op_begin(&r.op, s, c, from_dir->tree);
    if (rc)
        return rc;
    if (from_dir->tree != to_dir->tree)
        return -EXDEV;
    return victim_over(&r.op, &r.target, op_run(&r.op));
}
