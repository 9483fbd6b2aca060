/* `.snapshot`, as file operations over those of the store (DESIGN: "Handles and names"): two kinds of directories that
 * no store has.  An object's inode number tells its kind by its two highest bits, which no inode of a store uses; the
 * handle says it in a field of its own (handle.h).
 *
 *   ino              what the store has
 *   VIEW_LIST | ino  `.snapshot` of the directory `ino`; the tree is the volume's
 *   VIEW_PAST | ino  `.snapshot/NAME` there: the directory `ino` in a snapshot; the tree is the snapshot's
 *
 * Below `.snapshot/NAME` are ordinary objects of the snapshot.  Nothing can be changed (-EROFS), and the name cannot be
 * made (-EEXIST).  `.snapshot` is found by look-up in any directory of a volume; it is listed in the root alone, where
 * the volume shows it, with the cookie VIEW_COOKIE, which no entry of a store has.  It lists those snapshots in which
 * the directory is there, without handles and attributes. */
#ifndef SLUICE_NFS_SNAPVIEW_H
#define SLUICE_NFS_SNAPVIEW_H

#include "sluice/store.h"

#define VIEW_LIST (UINT64_C(1) << 62)
#define VIEW_PAST (UINT64_C(1) << 63)
#define VIEW_BITS (VIEW_LIST | VIEW_PAST)
enum { VIEW_COOKIE = 256 };

/* The store's operations with these in front of them; static, valid until the next call. */
const struct store_ops *snapview_over(const struct store_ops *store);

#endif
