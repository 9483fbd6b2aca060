/* Values of the metadata's records: compact, little-endian, packed, with a format byte in front.  A record that is
 * "gone" (for a chunk: "hole") is the single byte RECORD_GONE.  No value exceeds RECORD_MAX, so that LMDB never needs
 * overflow pages.  Decoders check everything: what they meet may come from a damaged disk (SL_ECORRUPT).
 * Pure functions, any thread. */
#ifndef SLUICE_STORE_LOCAL_RECORDS_H
#define SLUICE_STORE_LOCAL_RECORDS_H

#include "store/local/meta.h"

enum { RECORD_MAX = 1900, RECORD_GONE = 0, PROPS_PIECE = 1800, PROPS_MOST = 256 * PROPS_PIECE };

static inline bool record_is_gone(const uint8_t *bytes, size_t length)
{
    return length == 1 && bytes[0] == RECORD_GONE;
}

/* `target` has inode->target_length bytes.  Return the length; `to` has RECORD_MAX bytes. */
size_t inode_encode(const struct inode *inode, const char *target, uint8_t *to);
/* The ino is not in the value.  *target (may be NULL) points into `bytes`. */
int inode_decode(const uint8_t *bytes, size_t length, uint64_t ino, struct inode *out, const char **target);

size_t entry_encode(const struct entry *entry, uint8_t *to);
int entry_decode(const uint8_t *bytes, size_t length, uint64_t position, struct entry *out);

/* Of a CHUNK_INLINE or CHUNK_MAP; the record's change is `change`, not the map's. */
size_t chunk_encode(const struct chunk_map *map, uint64_t change, uint8_t *to);
int chunk_decode(const uint8_t *bytes, size_t length, struct chunk_map *out);

/* The same without the CRCs, which out does not get. */
int chunk_decode_extents(const uint8_t *bytes, size_t length, struct chunk_map *out);
/* The place of one block, straight from the record; 0: it has none, or the record is no good. */
place_t chunk_record_place(const uint8_t *bytes, size_t length, unsigned block);

struct tree_record {
    uint64_t version, root, orphans, fsid, size_limit, file_limit;
    uint32_t id, props_length;
    uint32_t parent, origin; /* of a snapshot: its volume; of a clone: the snapshot */
    uint32_t number;         /* of a snapshot in its volume; of a volume: its last snapshot's, counted on past 2^22 */
    bool read_only;
    uint64_t listed_change, restored_change; /* of the last change of the list of snapshots, of the last restore */
    struct store_time created, listed, restored;
};
size_t tree_encode(const struct tree_record *tree, uint8_t *to);
int tree_decode(const uint8_t *bytes, size_t length, struct tree_record *out);

struct usage_record {
    uint64_t blocks, files;
};
size_t usage_encode(const struct usage_record *usage, uint8_t *to);
int usage_decode(const uint8_t *bytes, size_t length, struct usage_record *out);

struct version_record {
    uint64_t parent, touched; /* touched: how many records `touched` has of it */
};
size_t version_encode(const struct version_record *version, uint8_t *to);
int version_decode(const uint8_t *bytes, size_t length, struct version_record *out);

/* The numbers that only grow: the last one given out of each kind. */
struct counters {
    uint64_t ino, change, version, tree, serial, group;
};
size_t counters_encode(const struct counters *counters, uint8_t *to);
int counters_decode(const uint8_t *bytes, size_t length, struct counters *out);

#endif
