#include <string.h>

#include "store/local/ops_private.h"

struct link_op {
    struct op op;
    const struct store_object *object, *dir_object;
    struct store_name name;
    struct inode inode, dir;
    struct store_attr *attr;
};

static int link_check(struct op *op, struct meta_txn *t)
{
    struct link_op *k = (struct link_op *)op;
    struct entry entry;
    int rc = op_inode(t, k->object, &k->inode);
    if (!rc && !k->inode.nlink)
        rc = -ENOENT; /* it is only open, and stays without a name */
    if (rc)
        return rc;
    if (k->attr)
        attr_from_inode(&op->tree, &k->inode, k->attr);
    rc = op_dir(op, t, 0, k->dir_object, &k->dir);
    if (!rc && k->inode.type == STORE_DIR)
        rc = -EISDIR;
    if (!rc)
        rc = name_check_new(k->name);
    if (!rc)
        rc = perm_dir(op->cred, &k->dir, PERM_EXEC);
    if (rc)
        return rc;
    rc = meta_entry(t, op->tree.id, k->dir.ino, k->name, &entry);
    if (rc != -ENOENT)
        return rc ? rc : -EEXIST;
    rc = perm_dir(op->cred, &k->dir, PERM_WRITE);
    if (rc)
        return rc;
    if (k->inode.nlink >= STORE_LINKS_MAX)
        return -EMLINK;
    return t->write ? meta_record_room(t) : 0;
}

static int link_put(struct op *op, struct meta_txn *t)
{
    struct link_op *k = (struct link_op *)op;
    uint32_t tree = op->tree.id;
    uint64_t position, change = meta_next_change(t);
    int rc = meta_put_entry(t, tree, k->dir.ino, k->name, k->inode.ino, k->inode.generation,
                            (enum store_type)k->inode.type, &position);
    if (!rc)
        rc = meta_put_link(t, tree, k->inode.ino, k->dir.ino, position);
    if (rc)
        return rc;
    k->inode.nlink++;
    inode_changed(&k->inode, t->now, change);
    rc = meta_put_inode(t, tree, &k->inode);
    if (rc)
        return rc;
    inode_modified(&k->dir, t->now, change);
    if (k->attr)
        attr_from_inode(&op->tree, &k->inode, k->attr);
    if (op->wcc[0])
        wcc_after(op->wcc[0], &op->tree, &k->dir);
    return meta_put_inode(t, tree, &k->dir);
}

int local_link(struct store *s, const struct store_cred *c, const struct store_object *o,
               const struct store_object *dir, struct store_name name, struct store_attr *attr,
               struct store_wcc *dir_wcc)
{
    struct link_op k = {
        .op = {.check = link_check, .put = link_put, .wcc = {dir_wcc}},
        .object = o,
        .dir_object = dir,
        .name = name,
        .attr = attr,
    };
    if (attr)
        memset(attr, 0, sizeof(*attr));
    int rc = op_begin(&k.op, s, c, dir->tree);
    if (rc)
        return rc;
    if (o->tree != dir->tree)
        return -EXDEV;
    rc = op_run(&k.op);
    if (rc && (k.op.putting || k.op.mutation.failed) && attr)
        memset(attr, 0, sizeof(*attr)); /* it told of a link that did not come to be */
    return rc;
}
