/* Copying whole blocks of large writes.  Any thread. */
#ifndef SLUICE_STORE_LOCAL_BLOCK_H
#define SLUICE_STORE_LOCAL_BLOCK_H

#include <stdint.h>

/* Copies one block past the processor's caches, where it can: the device reads it next, nobody else.  `to` is aligned
 * to a block.  Returns the CRC32C. */
uint32_t block_stream(uint8_t *to, const uint8_t *from);
/* After the last of some, before anybody else is told of them. */
void block_stream_end(void);

#endif
