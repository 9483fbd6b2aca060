/* File operations of the local store, one function for each entry of store_ops (contracts in sluice/store.h). */
#ifndef SLUICE_STORE_LOCAL_OPS_H
#define SLUICE_STORE_LOCAL_OPS_H

#include "store/local/meta.h"

int local_root(struct store *s, uint32_t tree, struct store_object *out);
int local_getattr(struct store *s, const struct store_object *o, struct store_attr *out);
int local_setattr(struct store *s, const struct store_cred *c, const struct store_object *o,
                  const struct store_setattr *set, const struct store_time *guard, struct store_wcc *wcc);
int local_lookup(struct store *s, const struct store_cred *c, const struct store_object *dir,
                 struct store_name name, struct store_object *out, struct store_attr *attr,
                 struct store_attr *dir_attr);
int local_access(struct store *s, const struct store_cred *c, const struct store_object *o, uint32_t want,
                 uint32_t *granted, struct store_attr *attr);
int local_readlink(struct store *s, const struct store_cred *c, const struct store_object *o, char *target,
                   uint32_t *length, struct store_attr *attr);
int local_make(struct store *s, const struct store_cred *c, const struct store_object *dir,
               struct store_name name, const struct store_make *how, struct store_object *out,
               struct store_attr *attr, struct store_wcc *dir_wcc);
int local_remove(struct store *s, const struct store_cred *c, const struct store_object *dir,
                 struct store_name name, struct store_wcc *dir_wcc);
int local_rmdir(struct store *s, const struct store_cred *c, const struct store_object *dir,
                struct store_name name, struct store_wcc *dir_wcc);
int local_rename(struct store *s, const struct store_cred *c, const struct store_object *from_dir,
                 struct store_name from, const struct store_object *to_dir, struct store_name to,
                 struct store_wcc *from_wcc, struct store_wcc *to_wcc);
int local_link(struct store *s, const struct store_cred *c, const struct store_object *o,
               const struct store_object *dir, struct store_name name, struct store_attr *attr,
               struct store_wcc *dir_wcc);
int local_readdir(struct store *s, const struct store_cred *c, const struct store_object *dir, uint64_t cookie,
                  bool attributes, store_entry_fn *each, void *arg, bool *eof, struct store_attr *dir_attr);
int local_usage(struct store *s, uint32_t tree, struct store_usage *out);
int local_commit(struct store *s, const struct store_object *o, struct store_attr *attr);
int local_seek(struct store *s, const struct store_cred *c, const struct store_object *o, uint64_t offset, bool data,
               uint64_t *found);
int local_punch(struct store *s, const struct store_cred *c, const struct store_object *o, uint64_t offset,
                uint64_t length, struct store_wcc *wcc);
int local_copy(struct store *s, const struct store_copy *copy, uint64_t *done, struct store_wcc *wcc); /* op_copy.c */
int local_clone_range(struct store *s, const struct store_copy *copy, struct store_wcc *wcc);
int local_extend(struct store *s, const struct store_cred *c, const struct store_object *o, uint64_t size,
                 struct store_wcc *wcc);

/* What trees have in common in their usage, asked for once; and a tree's usage within it. */
struct usage_pool {
    uint64_t total, available, meta_free; /* bytes */
};
void usage_pool(struct local *l, struct usage_pool *out);
void usage_of_tree(const struct tree *tree, const struct usage_pool *pool, struct store_usage *out);

/* ---- shared with data.c ---- */

uint64_t attr_fileid(const struct tree *tree, uint64_t ino);
/* Inode to attributes (fileid, fsid from the tree). */
void attr_from_inode(const struct tree *tree, const struct inode *inode, struct store_attr *out);
/* `now`, or just after `last`, whichever is later. */
struct store_time time_after(struct store_time last, struct store_time now);
/* Fills before/after parts. */
void wcc_before(struct store_wcc *wcc, const struct inode *inode);
void wcc_after(struct store_wcc *wcc, const struct tree *tree, const struct inode *inode);

/* Permissions as NFS servers need them: the owner of a regular file may read and write whatever its mode says,
 * execute permission allows READ; uid 0 may everything that is possible.  want: enum perm bits.  -EACCES. */
enum perm { PERM_READ = 4, PERM_WRITE = 2, PERM_EXEC = 1 };
bool perm_mode(const struct store_cred *c, const struct inode *inode, unsigned want); /* honest: by mode alone */
int perm_read(const struct store_cred *c, const struct inode *inode);  /* for READ */
int perm_write(const struct store_cred *c, const struct inode *inode); /* for WRITE and truncation */
/* Mode after a write or truncation by c: suid and sgid cleared as POSIX says (root keeps them). */
uint16_t perm_mode_after_write(const struct store_cred *c, const struct inode *inode);

#endif
