/* What two versions differ in, and what a snapshot alone holds: store_ops.diff and .held (contracts in
 * sluice/store.h). */
#ifndef SLUICE_STORE_LOCAL_DIFF_H
#define SLUICE_STORE_LOCAL_DIFF_H

#include "store/local/meta_private.h"

int diff_trees(struct store *s, uint32_t from, uint32_t to, int (*each)(void *arg, const struct store_difference *d),
               void *arg);
int held_bytes(struct store *s, uint32_t snapshot, uint64_t *bytes);
int held_by_snapshots(struct store *s, uint32_t volume, bool (*go_on)(void *arg), void *arg,
                      uint64_t *bytes); /* held_volume.c */

/* ---- walk.c: the rows of `touched`, across read transactions of a few milliseconds ---- */

struct walk {
    struct local *local;
    struct meta_txn *t;  /* NULL: none could be had */
    uint64_t since;      /* when it began */
    unsigned steps;
};
int walk_begin(struct walk *w, struct local *l);
/* Now and then: a transaction that has lasted for long is ended, others have their turn, and the next begins. */
int walk_on(struct walk *w);
void walk_end(struct walk *w);

/* Calls row() with the key (without a version) of each record that this version touched.  The record may be gone.
 * row() may call walk_on(). */
typedef int walk_row_fn(void *arg, enum db db, const struct key *k);
int walk_touched(struct walk *w, uint64_t version, walk_row_fn *row, void *arg);

#endif
