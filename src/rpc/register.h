/* Registration with rpcbind, for clients that ask for ports there.  Blocks; never on a worker. */
#ifndef RPC_REGISTER_H
#define RPC_REGISTER_H

/* Registers every version of every program at the first address listened on of each family; what
 * fails is logged, and that is all: the server is of use without. */
void register_programs(void);
void unregister_programs(void);

#endif
