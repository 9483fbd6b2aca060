/* Read delegations.  With the mutex held unless it says otherwise. */
#ifndef SLUICE_NFS_STATE_DELEGATIONS_H
#define SLUICE_NFS_STATE_DELEGATIONS_H

#include "nfs/state/private.h"

/* Fills open->given and what belongs to it; the open itself has succeeded. */
void delegation_offer(const struct state_caller *caller, struct state_client *client, struct state_file *file,
                      struct state_open *open);
/* How many delegations of others than `by` (NULL: everybody is another) stand on the file; each is being recalled
 * afterwards, but for those whose client has been silent, or has not answered for a lease's time: these are gone.
 * `file` must be held. */
unsigned delegations_recall(struct state_file *file, const struct state_client *by);
/* The delegation that CLAIM_DELEGATE_CUR names: BAD_STATEID and others.  `file` NULL: of whatever file. */
enum nfs4_status delegation_claimed(struct state_caller *caller, const struct state_open *open,
                                    const struct state_file *file);

#endif
