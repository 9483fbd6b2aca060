/* A clone's own copy of what it shares: store_ops.split (contract in sluice/store.h). */
#ifndef SLUICE_STORE_LOCAL_SPLIT_H
#define SLUICE_STORE_LOCAL_SPLIT_H

#include "sluice/store.h"

int split_tree(struct store *s, uint32_t tree, bool (*go_on)(void *arg, uint64_t bytes), void *arg);

#endif
