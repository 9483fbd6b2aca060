/* What the volume layer knows of its policies beyond sluice/volume.h: start and stop, on the main thread. */
#ifndef SLUICE_VOLUME_POLICY_H
#define SLUICE_VOLUME_POLICY_H

#include "sluice/volume.h"

int policies_start(struct store *store);
void policies_stop(void);
/* Forgets when each volume's snapshots were taken last (schedule.c). */
void schedule_stop(void);

#endif
