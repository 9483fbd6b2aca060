/* Read-ahead over directories of small files (siblings.h): loads the next files, in the order in which they lie on
 * disk. */
#ifndef SLUICE_STORE_LOCAL_READAHEAD_FILES_H
#define SLUICE_STORE_LOCAL_READAHEAD_FILES_H

#include "store/local/siblings.h"
#include "store/local/meta.h"

/* Coroutine: does the plan with at most `room` bytes, and tells siblings_loaded(). */
void readahead_files(struct local *l, struct siblings *t, const struct siblings_plan *plan, uint64_t room);
/* Coroutine: is the file one of the next few behind `before` in its directory's listing? */
bool readahead_is_next(struct local *l, const struct sibling *s, uint64_t before);

#endif
