/* File handles, as clients keep them (DESIGN.md, "Handles and names").  32 bytes, integers big-endian:
 *
 *   0 format (1)   1 kind   2 zero (2)   4 pool (4)   8 tree (4)   12 generation (4)   16 inode (8)
 *   24 SipHash-2-4 of the first 24 bytes under the pool's secret (8)
 *
 * They hold nothing that a restart or a rename of the volume changes.  Any thread; never waits. */
#ifndef SLUICE_NFS_HANDLE_H
#define SLUICE_NFS_HANDLE_H

#include <stdint.h>

#include "sluice/nfs.h"

/* An inode of a tree; the synthetic directories `.snapshot` and `.snapshot/NAME` (snapview.h), whose inode field is
 * that of the directory they stand for. */
/* HANDLE_PSEUDO_ROOT is NFSv4's: its other fields are zero. */
enum handle_kind { HANDLE_OBJECT = 1, HANDLE_SNAPSHOT_LIST, HANDLE_SNAPSHOT_PAST, HANDLE_PSEUDO_ROOT };

void handle_encode(const struct store_object *object, uint8_t handle[NFS_HANDLE_SIZE]);

/* SL_EBADHANDLE: not one that this pool gave out.  Whether the object still exists the store says. */
int handle_decode(const uint8_t *handle, uint32_t length, struct store_object *out);

/* The handle of NFSv4's pseudo root; handle_decode() refuses it. */
void handle_encode_pseudo_root(uint8_t handle[NFS_HANDLE_SIZE]);
bool handle_is_pseudo_root(const uint8_t *handle, uint32_t length);

/* What the handle says, without a look at its hash: for hints. */
bool handle_peek(const uint8_t *handle, uint32_t length, struct store_object *out);

#endif
