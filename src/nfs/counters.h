/* Calls and errors of each procedure that concerns no volume (those that do: opstats.h).  A worker counts in a block of
 * its own; reading adds the blocks up. */
#ifndef SLUICE_NFS_COUNTERS_H
#define SLUICE_NFS_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

enum counters_program { COUNTERS_MOUNT3, COUNTERS_PROGRAMS };
enum { COUNTERS_PROCEDURES = 24 };

int counters_start(unsigned workers); /* -ENOMEM */
void counters_stop(void);

/* One call of `procedure` has been answered, with an error or without.  Workers. */
void counters_answered(enum counters_program program, uint32_t procedure, bool error);

/* The sums over all workers.  Any thread. */
void counters_read(enum counters_program program, uint32_t procedure, uint64_t *calls,
                   uint64_t *errors);

#endif
