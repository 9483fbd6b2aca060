/* Who may do what: the volume's access rules applied to each request, by the volume in its handle.  The answer is
 * remembered in the connection's scratch words 0 to 2, which belong to this module.  Workers; never waits. */
#ifndef SLUICE_NFS_ACCESS_H
#define SLUICE_NFS_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice/rpc.h"
#include "sluice/store.h"

enum { ACCESS_ADDRESS_TEXT = 64, ACCESS_GATE_SCRATCH = 4 }; /* the gate has words 4 and 5 */

/* The credential with which the caller acts in `tree`, squashed, read-only where no rule lets it write.
 * -EACCES: no rule lets this address in.  SL_EWAIT: the user's groups have to be looked up.  -ESTALE: no such tree. */
int access_check(struct rpc_call *call, uint32_t tree, struct store_cred *cred);

/* Some rule lets the caller's address in. */
bool access_permitted(struct rpc_call *call, uint32_t tree);

/* The same for a call whose answer shall not be remembered (EXPORT asks for every volume). */
bool access_allowed(const struct rpc_call *call, uint32_t tree);

/* Logs, at most once a second, that the caller may not mount the volume, why, and the command that lets it. */
void access_log_refused(const struct rpc_call *call, uint32_t tree);

/* The caller's address as text without its port, at most ACCESS_ADDRESS_TEXT bytes. */
void access_peer_text(const struct sockaddr_storage *peer, char to[ACCESS_ADDRESS_TEXT]);

#endif
