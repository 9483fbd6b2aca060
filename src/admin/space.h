/* Says when space runs out: the pool's, in the log and in the status, and that of volumes whose snapshots hold more
 * than what was reserved for them. */
#ifndef SLUICE_ADMIN_SPACE_H
#define SLUICE_ADMIN_SPACE_H

#include <jansson.h>

#include "sluice/store.h"

/* How near the pool is to being full: 0, or the percentage below which what is available has fallen (10, 5 or 2). */
unsigned space_level(const struct store_status *pool);
/* Sentences for the status, none where all is well. NULL: no memory. */
json_t *space_warnings(const struct store_status *pool);
/* Looks, and logs what has changed for the worse.  Every few seconds; coroutine. */
void space_watch(void);
/* Ends it soon, for the server stops; and frees what it has found, when it has ended. */
void space_stop(void);
void space_free(void);

#endif
