/* The pseudo root: a directory that no store has, which lists the volumes that the caller may mount (RFC 8881, 7.3).
 * Snapshots are found in it by name (VOL@NAME) and not listed.  Workers; never waits. */
#ifndef SLUICE_NFS_V4_PSEUDO_H
#define SLUICE_NFS_V4_PSEUDO_H

#include "nfs/v4/compound.h"

enum { PSEUDO_FILEID = 1, PSEUDO_MOUNTED_FIRST = 2 };

/* As a directory of a file system of its own, whose fsid is 0. */
void pseudo_attr(const struct nfs4_compound *c, struct store_attr *out);
/* Under which number a tree's root would be in the pseudo root, were nothing mounted there. */
static inline uint64_t pseudo_mounted_on(uint32_t tree)
{
    return (uint64_t)tree + PSEUDO_MOUNTED_FIRST;
}
/* As the store's readdir; the cookie of a volume is its tree's number and two.  Roots come without attributes. */
int pseudo_readdir(const struct nfs4_compound *c, uint64_t cookie, store_entry_fn *each, void *arg, bool *eof);

#endif
