#include <string.h>

#include "store/local/ops_private.h"

static int still_there(struct local *l, const struct store_object *o, const struct inode *inode)
{
    return holds_is_there(l, o, inode) ? 0 : -ESTALE;
}

int op_inode(struct meta_txn *t, const struct store_object *o, struct inode *out)
{
    int rc = meta_inode(t, o->tree, o->ino, out);
    return rc ? rc : still_there(t->local, o, out);
}

int op_get_inode(struct local *l, const struct store_object *o, struct inode *out)
{
    int rc = meta_get_inode(l, o->tree, o->ino, out);
    return rc ? rc : still_there(l, o, out);
}

void op_object(uint32_t tree, const struct inode *inode, struct store_object *out)
{
    *out = (struct store_object){.tree = tree, .generation = inode->generation, .ino = inode->ino};
}

/* ---- names ---- */

bool name_is_dot(struct store_name name)
{
    return name.length == 1 && name.bytes[0] == '.';
}

bool name_is_dotdot(struct store_name name)
{
    return name.length == 2 && name.bytes[0] == '.' && name.bytes[1] == '.';
}

int name_check(struct store_name name)
{
    if (name.length == 0)
        return -EINVAL;
    if (name.length > STORE_NAME_MAX)
        return -ENAMETOOLONG;
    if (memchr(name.bytes, '/', name.length) || memchr(name.bytes, 0, name.length))
        return -EINVAL;
    return 0;
}

int name_check_new(struct store_name name)
{
    static const char ours[] = ".snapshot";
    int rc = name_check(name);
    if (rc)
        return rc;
    if (name_is_dot(name) || name_is_dotdot(name))
        return -EEXIST;
    if (name.length == sizeof(ours) - 1 && memcmp(name.bytes, ours, name.length) == 0)
        return -EPERM;
    return 0;
}

/* ---- changes ---- */

int op_begin(struct op *op, struct store *s, const struct store_cred *c, uint32_t tree)
{
    for (unsigned i = 0; i < 2; i++) {
        if (op->wcc[i])
            memset(op->wcc[i], 0, sizeof(*op->wcc[i]));
    }
    if (!coro_self())
        return SL_EWAIT;
    op->local = local_of(s);
    op->cred = c;
    return meta_tree(op->local, tree, &op->tree);
}

int op_check(struct op *op)
{
    struct meta_txn *t;
    int rc = meta_read_begin(op->local, &t);
    if (rc)
        return rc;
    rc = op->check(op, t);
    meta_read_end(t);
    return rc;
}

static int op_apply(struct mutation *m, struct meta_txn *t)
{
    struct op *op = (struct op *)m;
    op->putting = false;
    int rc = op->check(op, t);
    if (rc)
        return rc == OP_NOTHING ? 0 : rc;
    op->putting = true;
    return op->put(op, t);
}

int op_commit(struct op *op)
{
    op->putting = false;
    op->mutation.apply = op_apply;
    int rc = writer_run(op->local, &op->mutation);
    for (unsigned i = 0; i < 2; i++) {
        /* What the puts said, or the check in a group that failed, has not come to pass. */
        if (rc && (op->putting || op->mutation.failed) && op->wcc[i])
            memset(op->wcc[i], 0, sizeof(*op->wcc[i]));
    }
    return rc;
}

int op_run(struct op *op)
{
    int rc = op_check(op);
    if (rc)
        return rc == OP_NOTHING ? 0 : rc;
    return op_commit(op);
}

void op_wcc(struct op *op, unsigned which, const struct inode *inode)
{
    if (!op->wcc[which])
        return;
    wcc_before(op->wcc[which], inode);
    wcc_after(op->wcc[which], &op->tree, inode);
}

int op_dir(struct op *op, struct meta_txn *t, unsigned which, const struct store_object *o,
           struct inode *dir)
{
    int rc = op_inode(t, o, dir);
    if (rc)
        return rc;
    op_wcc(op, which, dir);
    if (dir->type != STORE_DIR)
        return -ENOTDIR;
    return op->cred->read_only || op->tree.read_only ? -EROFS : 0;
}

int op_file(struct op *op, struct meta_txn *t, const struct store_object *o, struct inode *inode)
{
    int rc = op_inode(t, o, inode);
    if (rc)
        return rc;
    op_wcc(op, 0, inode);
    if (inode->type != STORE_REG)
        return inode->type == STORE_DIR ? -EISDIR : -EINVAL;
    if (op->cred->read_only || op->tree.read_only)
        return -EROFS;
    return perm_write(op->cred, inode);
}

int op_dangling(int rc)
{
    return rc == -ESTALE ? SL_ECORRUPT : rc;
}
