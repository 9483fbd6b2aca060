#include <string.h>

#include "store/local/ops_private.h"

struct make_op {
    struct op op;
    const struct store_object *dir_object;
    struct store_name name;
    const struct store_make *how;
    struct inode dir;
    struct inode inode; /* the new one, or the one that was there */
    bool existed;
};

/* The name is there: is it the same call again, or an open of what exists? */
static int make_existing(struct make_op *m, struct meta_txn *t, const struct entry *entry)
{
    m->existed = true;
    if (m->how->how == STORE_MAKE_GUARDED)
        return -EEXIST;
    int rc = op_dangling(meta_inode(t, m->op.tree.id, entry->ino, &m->inode));
    if (rc)
        return rc;
    if (m->inode.type != STORE_REG)
        return -EEXIST;
    if (m->how->how == STORE_MAKE_UNCHECKED)
        return OP_NOTHING;
    /* Zeroes stand for no verifier: they prove nothing. */
    static const uint8_t none[sizeof(m->inode.verifier)];
    bool same = memcmp(m->inode.verifier, m->how->verifier, sizeof(none)) == 0 &&
                memcmp(m->inode.verifier, none, sizeof(none)) != 0;
    return same ? OP_NOTHING : -EEXIST;
}

static int type_check(const struct store_cred *c, const struct store_make *how)
{
    switch (how->type) {
    case STORE_REG:
        return how->attr.set & STORE_SET_SIZE && how->attr.size > STORE_FILE_MAX ? -EFBIG : 0;
    case STORE_LNK:
        if (how->target.length == 0 || memchr(how->target.bytes, 0, how->target.length))
            return -EINVAL;
        return how->target.length > STORE_LINK_TARGET_MAX ? -ENAMETOOLONG : 0;
    case STORE_BLK:
    case STORE_CHR:
        return c->uid == 0 ? 0 : -EPERM;
    case STORE_DIR:
    case STORE_SOCK:
    case STORE_FIFO:
        return 0;
    }
    return SL_EBADTYPE;
}

static int make_check(struct op *op, struct meta_txn *t)
{
    struct make_op *m = (struct make_op *)op;
    struct entry entry;
    m->existed = false;
    int rc = op_dir(op, t, 0, m->dir_object, &m->dir);
    if (!rc)
        rc = name_check_new(m->name);
    if (!rc)
        rc = perm_dir(op->cred, &m->dir, PERM_EXEC);
    if (rc)
        return rc;
    rc = meta_entry(t, op->tree.id, m->dir.ino, m->name, &entry);
    if (rc != -ENOENT)
        return rc ? rc : make_existing(m, t, &entry);
    rc = perm_dir(op->cred, &m->dir, PERM_WRITE);
    if (!rc)
        rc = type_check(op->cred, m->how);
    if (!rc)
        rc = times_check(&m->how->attr);
    if (!rc && t->write)
        rc = meta_tree_room(t, op->tree.id, 0, 1);
    return rc;
}

/* Owner, group and mode of a new inode in this directory. */
static void make_owned(const struct store_cred *c, const struct store_make *how,
                       const struct inode *dir, struct inode *made)
{
    const struct store_setattr *attr = &how->attr;
    made->uid = attr->set & STORE_SET_UID && c->uid == 0 ? attr->uid : c->uid;
    made->gid = dir->mode & S_ISGID ? dir->gid : c->gid;
    if (attr->set & STORE_SET_GID && (c->uid == 0 || perm_group(c, attr->gid)))
        made->gid = attr->gid;
    if (how->type == STORE_LNK) {
        made->mode = 0777;
        return;
    }
    made->mode = attr->set & STORE_SET_MODE ? attr->mode & 07777 : 0;
    if (how->type == STORE_DIR && dir->mode & S_ISGID)
        made->mode |= S_ISGID;
    else if (c->uid != 0 && !perm_group(c, made->gid))
        made->mode &= (uint16_t)~S_ISGID;
}

static void make_inode(struct make_op *m, struct meta_txn *t, uint64_t change)
{
    const struct store_make *how = m->how;
    const struct store_setattr *attr = &how->attr;
    struct inode *made = &m->inode;
    *made = (struct inode){
        .ino = meta_next_ino(t),
        .change = change,
        .parent = m->dir.ino,
        .generation = 1, /* inode numbers are not used again */
        .nlink = how->type == STORE_DIR ? 2 : 1,
        .type = (uint8_t)how->type,
        .atime = t->now,
        .mtime = t->now,
        .ctime = t->now,
        .btime = t->now,
    };
    make_owned(m->op.cred, how, &m->dir, made);
    if (how->type == STORE_BLK || how->type == STORE_CHR) {
        made->rdev_major = how->rdev_major;
        made->rdev_minor = how->rdev_minor;
    }
    if (how->type == STORE_REG && attr->set & STORE_SET_SIZE)
        made->size = attr->size;
    if (how->type == STORE_LNK) {
        made->size = how->target.length;
        made->target_length = (uint16_t)how->target.length;
    }
    if (how->how == STORE_MAKE_EXCLUSIVE)
        memcpy(made->verifier, how->verifier, sizeof(made->verifier));
    if (attr->set & STORE_SET_ATIME)
        made->atime = attr->atime;
    if (attr->set & STORE_SET_MTIME)
        made->mtime = attr->mtime;
}

static int make_put(struct op *op, struct meta_txn *t)
{
    struct make_op *m = (struct make_op *)op;
    struct inode *made = &m->inode;
    uint32_t tree = op->tree.id;
    uint64_t change = meta_next_change(t);
    make_inode(m, t, change);
    int rc = meta_put_entry(t, tree, m->dir.ino, m->name, made->ino, made->generation, m->how->type,
                            &made->position);
    if (rc)
        return rc;
    if (made->type == STORE_LNK)
        rc = meta_put_target(t, tree, made, m->how->target.bytes, m->how->target.length);
    else
        rc = meta_put_inode(t, tree, made);
    if (rc)
        return rc;
    inode_modified(&m->dir, t->now, change);
    if (made->type == STORE_DIR)
        m->dir.nlink++;
    if (op->wcc[0])
        wcc_after(op->wcc[0], &op->tree, &m->dir);
    return meta_put_inode(t, tree, &m->dir);
}

/* An UNCHECKED create of an existing file is an open; of its attributes only the size counts. */
static int open_existing(struct make_op *m, struct store *s, struct store_attr *attr)
{
    struct store_object o;
    struct store_wcc wcc;
    struct store_setattr size = {.set = STORE_SET_SIZE, .size = m->how->attr.size};
    op_object(m->op.tree.id, &m->inode, &o);
    int rc = local_setattr(s, m->op.cred, &o, &size, NULL, &wcc);
    if (!rc)
        *attr = wcc.after;
    return rc;
}

int local_make(struct store *s, const struct store_cred *c, const struct store_object *dir,
               struct store_name name, const struct store_make *how, struct store_object *out,
               struct store_attr *attr, struct store_wcc *dir_wcc)
{
    struct make_op m = {
        .op = {.check = make_check, .put = make_put, .wcc = {dir_wcc}},
        .dir_object = dir,
        .name = name,
        .how = how,
    };
    struct store_attr made;
    int rc;
    do {
        rc = op_begin(&m.op, s, c, dir->tree);
        if (!rc)
            rc = op_run(&m.op);
        if (rc)
            return rc;
        attr_from_inode(&m.op.tree, &m.inode, &made);
        if (m.existed && how->how == STORE_MAKE_UNCHECKED && how->attr.set & STORE_SET_SIZE)
            rc = open_existing(&m, s, &made);
    } while (rc == -ESTALE); /* removed since: then there is one to make */
    if (rc)
        return rc;
    op_object(m.op.tree.id, &m.inode, out);
    if (attr)
        *attr = made;
    return 0;
}
