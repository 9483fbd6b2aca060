/* Before a call of any version is run it passes its volume's gate: what rpc asks for turns, over the gate's calls.  The
 * versions say which tree a call is about and what it counts as.  Workers. */
#ifndef SLUICE_NFS_GATE_H
#define SLUICE_NFS_GATE_H

#include "sluice/rpc.h"
#include "sluice/volume_gate.h"

/* For rpc_version.turn, when gate_is_off() is false.  A caller who may not use the tree is answered without being
 * counted. */
bool nfs_gate_turn(struct rpc_call *call, uint32_t tree, enum gate_way way, uint32_t bytes, struct rpc_turn *turn);
/* rpc_version.hold. */
int nfs_gate_hold(struct rpc_turn *turn);

#endif
