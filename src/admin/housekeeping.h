/* What the server does by itself now and then: schedules, deleted volumes, clones to be split.  */
#ifndef SLUICE_ADMIN_HOUSEKEEPING_H
#define SLUICE_ADMIN_HOUSEKEEPING_H

#include <stdbool.h>

/* Every few seconds, or when there is something to do: begins a round on a worker unless the last one still runs.  Any
 * thread. */
void housekeeping_tick(void);
/* No further rounds; waits at most `ms` for the one that runs.  False: it still does. */
bool housekeeping_stop(unsigned ms);

#endif
