/* What the volume layer knows of tiers beyond sluice/volume_tier.h. */
#ifndef SLUICE_VOLUME_TIER_PRIVATE_H
#define SLUICE_VOLUME_TIER_PRIVATE_H

#include "volume/table.h"

int tiers_start(struct store *store); /* main thread */
void tiers_stop(void);

/* ---- holding the changes' lock ---- */

/* Are the tier and the limits such as a volume can have?  `old` is what it has now, or NULL.  -EINVAL, -ENOENT with a
 * sentence. */
int tier_fits(const struct volume_config *config, const struct volume_config *old, char why[256]);
/* Tells the gate what the volume's limits come to; after each publication. */
void tier_apply(const struct volume *v);

#endif
