/* The cache's arena as registered buffers of the workers' rings: the kernel then neither looks its pages up nor counts
 * them for each read.  Registered in pieces, in the background, as they are touched; until then, and where locked
 * memory is denied (which is said once), reads go without. */
#ifndef SLUICE_STORE_LOCAL_FIXED_H
#define SLUICE_STORE_LOCAL_FIXED_H

#include <stddef.h>

#include "store/local/local.h"

/* After cache_open(); goes on in coroutines of the workers.  That there is no memory for it is no error. */
int fixed_open(struct local *l);
/* Ends that and takes the buffers off the rings; before cache_close().  Not on a worker. */
void fixed_close(struct local *l);

/* The registered buffer of the calling worker that holds [data, data + length), or -1. */
int fixed_index(struct local *l, const uint8_t *data, size_t length);
/* The number of bytes registered with all rings. */
uint64_t fixed_bytes(struct local *l);

#endif
