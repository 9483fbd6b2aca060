/* The tree of versions (POOL.md, "Versions").  What readers use is one immutable piece of memory that they find under
 * RCU; the writer copies it once for each group that changes it, and changes its copy until that is published.
 *
 * Nodes lie in ascending order of versions, and a child is greater than its parent.  Each node knows its parent and one
 * ancestor further up (a skip pointer), so that ancestry takes a logarithm of the depth, and a copy is a memcpy. */
#ifndef SLUICE_STORE_LOCAL_VERSION_H
#define SLUICE_STORE_LOCAL_VERSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct versions;

struct version_link { /* parent 0: a root; tree 0: nothing names it */
    uint64_t version, parent;
    uint32_t tree;
};

/* From links in ascending order of versions; a parent that is not among them counts as none.  NULL: no memory. */
struct versions *versions_build(const struct version_link *links, size_t count);
struct versions *versions_copy(const struct versions *vs);
void versions_free(struct versions *vs);

/* ---- changing a copy of one's own ---- */

/* `version` is greater than all others.  -ENOMEM. */
int versions_add(struct versions *vs, uint64_t version, uint64_t parent, uint32_t tree);
/* Its children get its parent. */
void versions_remove(struct versions *vs, uint64_t version);
void versions_name(struct versions *vs, uint64_t version, uint32_t tree);

/* ---- reading ---- */

size_t versions_count(const struct versions *vs);
bool versions_known(const struct versions *vs, uint64_t version);
uint64_t versions_parent(const struct versions *vs, uint64_t version); /* 0: none, or not known */
uint32_t versions_tree(const struct versions *vs, uint64_t version);   /* 0: nothing names it, or not known */
/* `ancestor` is v or an ancestor of v. */
bool versions_is_ancestor(const struct versions *vs, uint64_t ancestor, uint64_t v);
/* The greatest ancestor of v (or v itself) that is less than `limit`; 0: none. */
uint64_t versions_below(const struct versions *vs, uint64_t v, uint64_t limit);
/* The least version that is greater than `after`; 0: none. */
uint64_t versions_next(const struct versions *vs, uint64_t after);

/* The one child of a version; 0: it has none, or several (*several).  Any reader; looks at all nodes after it. */
uint64_t versions_only_child(const struct versions *vs, uint64_t version, bool *several);

/* The children of a version, ascending: valid until the next change.  For one thread at a time, the writer: the first
 * call after a change goes through all versions.  Returns how many, or -ENOMEM. */
long versions_children(struct versions *vs, uint64_t version, const uint64_t **children);

#endif
