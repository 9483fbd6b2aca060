/* The pool's directory: its POOL file (format version, pool id, secret, write verifier, when it was created) and the
 * lock that a server holds on it while it runs.  Main thread. */
#ifndef SLUICE_STORE_LOCAL_POOL_H
#define SLUICE_STORE_LOCAL_POOL_H

#include "store/local/local.h"

/* Creates a pool in a missing or empty directory, opens a pool, refuses anything else.  Sets path, dir_fd, lock_fd,
 * pool_id, secret and verifier.  *why: a sentence. */
int pool_open(struct local *l, const char *path, char why[256]);
void pool_close(struct local *l);

#endif
