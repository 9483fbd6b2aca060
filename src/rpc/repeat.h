/* Between calls and the duplicate request cache: repeated calls are answered without being run, and
 * a reply goes to the connection its newest copy came by, which may be another worker's. */
#ifndef RPC_REPEAT_H
#define RPC_REPEAT_H

#include "rpc/call.h"

/* DRC_NEW: run it.  DRC_RUNNING and DRC_FINISHED: the call is dealt with and gone.  DRC_NO_MEMORY:
 * nothing done. */
enum drc_state repeat_begin(struct call *call, uint32_t length);
/* The call could not be started after all. */
void repeat_cancel(struct call *call);
/* The call's reply is set: keeps it if `keep`, and sends it to where it is wanted. */
void repeat_finish(struct call *call, bool keep);

#endif
