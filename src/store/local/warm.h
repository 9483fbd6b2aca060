/* Loading ahead of the readers: store_ops.warm and .cool (contracts there). */
#ifndef SLUICE_STORE_LOCAL_WARM_H
#define SLUICE_STORE_LOCAL_WARM_H

#include "store/local/local.h"

int warm_ranges(struct store *s, const struct store_range *ranges, unsigned count, struct store_warmed *out);
void warm_cool(struct store *s, const struct store_object *o);

#endif
