/* The tree of versions (POOL.md, "Versions"), as one immutable piece of memory: the writer makes a new one for each
 * change, readers use the one they found under RCU.  A version belongs to a branch and has an order in it; a branch
 * is a chain of versions, each the parent of the next, and begins at its fork point, a version of another branch.  So
 * ancestry is a comparison of orders after one hop for each branch between.  A child is greater than its parent. */
#ifndef SLUICE_STORE_LOCAL_VERSION_H
#define SLUICE_STORE_LOCAL_VERSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct versions;

struct version_link { /* parent 0: a root */
    uint64_t version, parent;
};

/* From links in ascending order of versions; a parent that is not among them counts as none.  NULL: no memory. */
struct versions *versions_build(const struct version_link *links, size_t count);
/* A copy with one more (greater than all others), or one less (its children get its parent). */
struct versions *versions_with(const struct versions *vs, uint64_t version, uint64_t parent);
struct versions *versions_without(const struct versions *vs, uint64_t version);
void versions_free(struct versions *vs);

bool versions_known(const struct versions *vs, uint64_t version);
uint64_t versions_parent(const struct versions *vs, uint64_t version); /* 0: none, or not known */
/* `ancestor` is v or an ancestor of v. */
bool versions_is_ancestor(const struct versions *vs, uint64_t ancestor, uint64_t v);
/* The greatest ancestor of v (or v itself) that is less than `limit`; 0: none. */
uint64_t versions_below(const struct versions *vs, uint64_t v, uint64_t limit);

#endif
