/* Where a sweep has moved the blocks that more than one record holds: the next record that names the old place gets the
 * same new one, so that what was shared stays shared.  An entry goes when the block at its new place dies, since nobody
 * may hold that again.  Any thread. */
#ifndef SLUICE_STORE_LOCAL_SWEEP_PLACES_H
#define SLUICE_STORE_LOCAL_SWEEP_PLACES_H

#include "store/local/local.h"

struct sweep_places;

struct sweep_places *sweep_places_new(void);
void sweep_places_free(struct sweep_places *p);
/* The new place; 0: not known. */
place_t sweep_places_get(struct sweep_places *p, place_t from);
/* -ENOMEM. */
int sweep_places_add(struct sweep_places *p, place_t from, place_t to);
/* Nothing is there any more; cheap where nothing was moved. */
void sweep_places_died(struct sweep_places *p, place_t to, uint32_t blocks);
void sweep_places_clear(struct sweep_places *p);

#endif
