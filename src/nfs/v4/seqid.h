/* The seqids of minor version 0 (RFC 7530, 9.1.7), around an operation that has one.  Workers; coroutine. */
#ifndef SLUICE_NFS_V4_SEQID_H
#define SLUICE_NFS_V4_SEQID_H

#include "nfs/v4/compound.h"

/* True: go on, and end with nfs4_seqid_end().  False: *status is the operation's; its result has been put where the
 * request was made before. */
bool nfs4_seqid_by_owner(struct nfs4_compound *c, uint64_t clientid, struct state_bytes open_owner, uint32_t seqid,
                         struct state_owner **owner, enum nfs4_status *status);
bool nfs4_seqid_by_stateid(struct nfs4_compound *c, const struct nfs4_stateid *stateid, uint32_t seqid,
                           struct state_owner **owner, enum nfs4_status *status);
/* Keeps the result, which has been put, for the request's repetition; gives `status` back. */
enum nfs4_status nfs4_seqid_end(struct nfs4_compound *c, struct state_owner *owner, enum nfs4_status status,
                                const struct store_object *object);

#endif
