/* The volume layer's small records: store_ops.named_put and .named_each (contracts in sluice/store.h). */
#ifndef SLUICE_STORE_LOCAL_NAMED_H
#define SLUICE_STORE_LOCAL_NAMED_H

#include "sluice/store.h"

int named_put(struct store *s, const char *key, const void *value, size_t length);
int named_each(struct store *s, int (*each)(void *arg, const char *key, const void *value, size_t length), void *arg);

#endif
