/* Calls over the backchannels of sessions (RFC 8881, 2.10.3.1 and 20): one at a time for each session, in its slot 0.
 * With the mutex held unless it says otherwise. */
#ifndef SLUICE_NFS_STATE_CALLBACKS_H
#define SLUICE_NFS_STATE_CALLBACKS_H

#include "nfs/state/private.h"

/* `where` is the session's backchannel from now on, and has to be proven. */
void callbacks_bind(struct state_session *session, struct rpc_connection where);
/* The session has been used after its backchannel was bound: proves that.  Without the mutex; hardly ever to be called,
 * see session->back.prove. */
void callbacks_prove(struct state_session *session);
/* A callback has been answered over some session of the client, and its connection is still thought to be there. */
bool callbacks_proven(const struct state_client *client);
/* One is on its way to prove it, or waits for the session's next request. */
bool callbacks_may_be_proven(const struct state_client *client);
/* Sends what waits in client->recalls, as far as backchannels are free. */
void callbacks_go_on(struct state_client *client);

#endif
