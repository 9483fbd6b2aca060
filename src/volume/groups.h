/* Users' groups (volume_user_groups). */
#ifndef SLUICE_VOLUME_GROUPS_H
#define SLUICE_VOLUME_GROUPS_H

/* Forgets all.  When nobody asks any more. */
void groups_free(void);

#endif
