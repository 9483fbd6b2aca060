/* What the file operations share: finding objects, names, the permissions that only they need, and the way of a change:
 * its check on the worker, then check and puts on the writer. */
#ifndef SLUICE_STORE_LOCAL_OPS_PRIVATE_H
#define SLUICE_STORE_LOCAL_OPS_PRIVATE_H

#include <sys/stat.h>

#include "store/local/holds.h"
#include "store/local/ops.h"
#include "store/local/writer.h"

/* ---- objects ---- */

/* The object's inode, seen by the transaction or taken from RAM (SL_EWAIT as in store.h).  -ESTALE also when its last
 * link is gone. */
int op_inode(struct meta_txn *t, const struct store_object *o, struct inode *out);
int op_get_inode(struct local *l, const struct store_object *o, struct inode *out);
void op_object(uint32_t tree, const struct inode *inode, struct store_object *out);

/* ---- names ---- */

/* Can an entry be called so: -EINVAL (empty, '/', NUL), -ENAMETOOLONG. */
int name_check(struct store_name name);
bool name_is_dot(struct store_name name);
bool name_is_dotdot(struct store_name name);
/* name_check() for a name that is to be made: also -EEXIST for "." and "..", -EPERM for what is ours. */
int name_check_new(struct store_name name);

/* ---- permissions (perm.c) ---- */

bool perm_group(const struct store_cred *c, uint32_t gid);
/* 0 or -EACCES: by mode, for directories. */
int perm_dir(const struct store_cred *c, const struct inode *dir, unsigned want);
/* -EPERM when `dir` is sticky and c owns neither it nor the inode that is to leave it. */
int perm_sticky(const struct store_cred *c, const struct inode *dir, const struct inode *leaving);
int perm_setattr(const struct store_cred *c, const struct inode *inode,
                 const struct store_setattr *set);
/* ACCESS3's bits as the mode grants them. */
uint32_t perm_access(const struct store_cred *c, const struct inode *inode, bool read_only);

/* ---- attributes (attr.c) ---- */

/* -EINVAL: given times that are none. */
int times_check(const struct store_setattr *set);
/* The time of a change of this inode: now, or just after its last ctime, for clients that tell changes by it. */
struct store_time attr_change_time(const struct inode *inode, struct store_time now);
/* A change of the inode's attributes (ctime); of its contents or entries as well (mtime). */
void inode_changed(struct inode *inode, struct store_time now, uint64_t change);
void inode_modified(struct inode *inode, struct store_time now, uint64_t change);

/* ---- changes ---- */

enum { OP_NOTHING = 1 }; /* of a check: all is well, and there is nothing to change */

struct op {
    struct mutation mutation; /* first */
    struct local *local;
    const struct store_cred *cred;
    struct tree tree;
    /* Reads and refuses; 0 or OP_NOTHING.  Runs several times, in transactions of either kind. */
    int (*check)(struct op *op, struct meta_txn *t);
    /* After a check in the same transaction.  Its first put may refuse, later ones only fail. */
    int (*put)(struct op *op, struct meta_txn *t);
    struct store_wcc *wcc[2]; /* cleared when a change was undone; NULL: none */
    bool putting;
};

/* For a change to this tree; SL_EWAIT on the main stack, -ESTALE.  Clears what wcc points at. */
int op_begin(struct op *op, struct store *s, const struct store_cred *c, uint32_t tree);
/* The check in a read transaction. */
int op_check(struct op *op);
/* Check and puts in the writer. */
int op_commit(struct op *op);
/* Both. */
int op_run(struct op *op);

/* Within a check: the inode's present state as both before and after. */
void op_wcc(struct op *op, unsigned which, const struct inode *inode);
/* Within a check: a directory that is to be changed: -ENOTDIR, -EROFS; fills wcc[which]. */
int op_dir(struct op *op, struct meta_txn *t, unsigned which, const struct store_object *o,
           struct inode *dir);
/* Within a check: a regular file whose data is to be changed: -EISDIR, -EINVAL, -EROFS, -EACCES; fills wcc[0]. */
int op_file(struct op *op, struct meta_txn *t, const struct store_object *o, struct inode *inode);
/* A transaction saw a reference to an inode that is not there. */
int op_dangling(int rc);

/* ---- inodes that lose a link (op_remove.c) ---- */

struct victim {
    struct entry entry;
    struct inode inode;
    bool small;    /* few enough records to go at once */
    bool orphaned; /* set by the puts: the reaper has work */
    uint64_t orphan_position;
    struct doom doom; /* small, and nobody has it open */
};

/* The entry and its inode.  -ENOENT. */
int victim_find(struct op *op, struct meta_txn *t, uint64_t dir, struct store_name name,
                struct victim *v);
/* May the cred take it out of dir? -EACCES, -EPERM. */
int victim_may_leave(struct op *op, const struct inode *dir, const struct victim *v);
/* A directory must be empty (-ENOTEMPTY); for a last link `small` is found out. */
int victim_check(struct op *op, struct meta_txn *t, struct victim *v);
/* The put that may refuse: before all others. */
int victim_put_first(struct op *op, struct meta_txn *t, struct victim *v);
/* After the mutation, whatever became of it: -> error, as it came. */
int victim_over(struct op *op, struct victim *v, int error);
/* The link at (dir, position) is gone (the entry is the caller's). */
int victim_put(struct op *op, struct meta_txn *t, struct victim *v, uint64_t dir, uint64_t change);

/* ---- truncation (op_setattr.c) ---- */

/* Remembers for a restart that the inode has a cut mark; reaper_cut() follows the mutation. */
int cut_remember(struct meta_txn *t, uint32_t tree, uint64_t ino);

#endif
