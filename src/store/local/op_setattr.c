#include <stdio.h>
#include <string.h>

#include "store/local/data.h"
#include "store/local/ops_private.h"
#include "store/local/reaper.h"
#include "store/local/seg.h"

struct setattr_op {
    struct op op;
    const struct store_object *object;
    const struct store_setattr *set;
    const struct store_time *guard;
    struct inode inode;
    struct data_tail tail;
    bool background;
};

static int values_check(const struct inode *inode, const struct store_setattr *set)
{
    if (set->set & STORE_SET_SIZE) {
        if (inode->type != STORE_REG)
            return inode->type == STORE_DIR ? -EISDIR : -EINVAL;
        if (set->size > STORE_FILE_MAX)
            return -EFBIG;
    }
    return times_check(set);
}

static int setattr_check(struct op *op, struct meta_txn *t)
{
    struct setattr_op *s = (struct setattr_op *)op;
    struct inode *inode = &s->inode;
    s->background = false;
    int rc = op_inode(t, s->object, inode);
    if (rc)
        return rc;
    op_wcc(op, 0, inode);
    if (op->cred->read_only || op->tree.read_only)
        return -EROFS;
    rc = values_check(inode, s->set);
    if (rc)
        return rc;
    if (s->guard && (s->guard->seconds != inode->ctime.seconds ||
                     s->guard->nanoseconds != inode->ctime.nanoseconds))
        return SL_ENOTSYNC;
    rc = perm_setattr(op->cred, inode, s->set);
    if (rc)
        return rc;
    return s->set->set ? 0 : OP_NOTHING;
}

static void set_owner_and_mode(const struct store_cred *c, const struct store_setattr *set,
                               struct inode *inode)
{
    if (set->set & STORE_SET_UID)
        inode->uid = set->uid;
    if (set->set & STORE_SET_GID)
        inode->gid = set->gid;
    if (set->set & STORE_SET_MODE && inode->type != STORE_LNK) {
        inode->mode = set->mode & 07777;
        if (c->uid != 0 && !perm_group(c, inode->gid))
            inode->mode &= (uint16_t)~S_ISGID;
    } else if (set->set & (STORE_SET_UID | STORE_SET_GID) && inode->type != STORE_DIR) {
        /* For root as well: the bits were given to the old owner's program. */
        static const struct store_cred nobody = {.uid = UINT32_MAX, .gid = UINT32_MAX};
        inode->mode = perm_mode_after_write(&nobody, inode);
    }
}

static void set_times(const struct store_setattr *set, struct inode *inode)
{
    if (set->set & STORE_SET_ATIME)
        inode->atime = set->atime;
    else if (set->set & STORE_SET_ATIME_NOW)
        inode->atime = inode->ctime;
    if (set->set & STORE_SET_MTIME)
        inode->mtime = set->mtime;
    else if (set->set & (STORE_SET_MTIME_NOW | STORE_SET_SIZE))
        inode->mtime = inode->ctime;
}

int cut_remember(struct meta_txn *t, uint32_t tree, uint64_t ino)
{
    char key[64];
    snprintf(key, sizeof(key), "cut/%08x/%016llx", tree, (unsigned long long)ino);
    return meta_system_put(t, key, "", 1);
}

static int setattr_put(struct op *op, struct meta_txn *t)
{
    struct setattr_op *s = (struct setattr_op *)op;
    struct inode *inode = &s->inode;
    uint64_t change = meta_next_change(t);
    int rc = 0;
    if (s->set->set & STORE_SET_SIZE) {
        rc = data_truncate_apply(t, op->tree.id, inode, s->set->size, change, &s->tail,
                                 &s->background);
        if (rc)
            return rc;
        inode->mode = perm_mode_after_write(op->cred, inode);
    }
    inode_changed(inode, t->now, change);
    set_owner_and_mode(op->cred, s->set, inode);
    set_times(s->set, inode);
    if (s->background)
        rc = cut_remember(t, op->tree.id, inode->ino);
    if (!rc)
        rc = meta_put_inode(t, op->tree.id, inode);
    if (op->wcc[0])
        wcc_after(op->wcc[0], &op->tree, inode);
    return rc;
}

struct cut_change {
    struct mutation m;
    const struct store_object *object;
};

static int cut_again_apply(struct mutation *m, struct meta_txn *t)
{
    const struct store_object *o = ((struct cut_change *)m)->object;
    struct inode inode;
    int rc = op_inode(t, o, &inode);
    return rc || inode.cut_count == 0 ? rc : cut_remember(t, o->tree, o->ino);
}

/* All marks are taken: returns when the reaper has worked one off.  It may not know of them yet, when they came with a
 * snapshot that the tree was cloned or restored from. */
static int wait_for_cuts(struct local *l, const struct store_object *o)
{
    struct cut_change c = {.m.apply = cut_again_apply, .object = o};
    int rc = writer_run(l, &c.m);
    if (rc)
        return rc;
    reaper_cut(l, o->tree, o->ino);
    return reaper_wait_cuts(l, o->tree, o->ino);
}

/* One try: what it prepares may have changed until the writer looks (SL_EREFUSED). */
static int setattr_once(struct setattr_op *s)
{
    int rc = op_check(&s->op);
    if (rc)
        return rc == OP_NOTHING ? 0 : rc;
    memset(&s->tail, 0, sizeof(s->tail));
    if (s->set->set & STORE_SET_SIZE) {
        rc = data_tail_prepare(s->op.local, s->op.tree.id, &s->inode, s->set->size, &s->tail);
        if (rc)
            return rc;
    }
    rc = op_commit(&s->op);
    if (rc && s->tail.needed && s->tail.to)
        seg_abandon(s->op.local, s->tail.to, 1);
    return rc;
}

int local_setattr(struct store *st, const struct store_cred *c, const struct store_object *o,
                  const struct store_setattr *set, const struct store_time *guard,
                  struct store_wcc *wcc)
{
    struct setattr_op s = {
        .op = {.check = setattr_check, .put = setattr_put, .wcc = {wcc}},
        .object = o,
        .set = set,
        .guard = guard,
    };
    int rc = op_begin(&s.op, st, c, o->tree);
    if (rc)
        return rc;
    for (;;) {
        rc = setattr_once(&s);
        if (rc == -EAGAIN) {
            rc = wait_for_cuts(s.op.local, o);
            if (rc)
                return rc;
        } else if (rc != SL_EREFUSED) {
            break;
        }
    }
    if (!rc && s.background)
        reaper_cut(s.op.local, o->tree, o->ino);
    return rc;
}
