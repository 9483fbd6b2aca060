/* Metadata: records in LMDB whose keys end in the version that wrote them (POOL.md), read as a tree's version sees
 * them, and the decoded tables in front of it.
 *
 * Two kinds of transaction share one type, so that a mutation's check is one function for the worker (which brings
 * the pages in) and the writer (which decides): read transactions from meta_read_begin() on workers and pool
 * threads, and the writer's.  A read transaction is ended before its coroutine waits, at the latest after 5 ms.
 * A SIGBUS beneath the map (an I/O error) becomes -EIO of the function that met it.
 *
 * All functions return 0 or an error; -ESTALE: no such tree or inode (or one that is gone); -ENOENT: no such
 * entry or chunk record. */
#ifndef SLUICE_STORE_LOCAL_META_H
#define SLUICE_STORE_LOCAL_META_H

#include "store/local/local.h"

struct meta_txn {
    struct local *local;
    void *mdb;               /* MDB_txn */
    bool write;
    struct store_time now;   /* write: the time of this mutation's changes */
    struct group *group;     /* write: what to publish */
    int failed;              /* write: an LMDB error; the group will be aborted and its mutations run singly */
};

/* ---- reading ---- */

/* Where it has to wait (for a group's publication, for the environment to be reopened) it does so in a coroutine or on
 * a thread that is no worker, up to some seconds, then -EIO; on a worker's main stack it returns SL_EWAIT.
 * An RCU read section lasts from begin to end. */
int meta_read_begin(struct local *l, struct meta_txn **out);
void meta_read_end(struct meta_txn *t);

struct inode_cut { /* chunks from `chunk` on whose record is not newer than `change` are hidden */
    uint64_t chunk, change;
};

struct inode {
    uint64_t ino, size, blocks; /* blocks: 4 KiB blocks the file holds (attribute `used`) */
    uint64_t change;
    uint64_t parent, position;  /* the first link: directory and position there; of a directory: its place */
    uint32_t generation, nlink, uid, gid, rdev_major, rdev_minor;
    uint16_t mode;
    uint8_t type; /* enum store_type */
    uint8_t cut_count;
    struct inode_cut cuts[INODE_CUTS];
    uint8_t verifier[8]; /* of an exclusive create; zero otherwise */
    struct store_time atime, mtime, ctime, btime;
    uint16_t target_length; /* symbolic links: the target is read by meta_target() */
};

int meta_inode(struct meta_txn *t, uint32_t tree, uint64_t ino, struct inode *out);
/* Many inodes at once, of each what the tree's version sees or, from RAM, what has been published since.  `there` tells
 * whether there is one.  Changes the order of `looks`. */
struct inode_look {
    uint64_t ino;
    struct inode *inode;
    bool there;
};
int meta_inodes(struct meta_txn *t, uint32_t tree, struct inode_look *looks, unsigned count);
int meta_target(struct meta_txn *t, uint32_t tree, uint64_t ino, char *target, uint32_t *length);

struct entry {
    uint64_t position, ino;
    uint32_t generation;
    uint8_t type;
    uint8_t length;
    char name[STORE_NAME_MAX + 1];
};
#define ENTRY_SIZE(length) (offsetof(struct entry, name) + (length)) /* bytes of it that count */

int meta_entry(struct meta_txn *t, uint32_t tree, uint64_t dir, struct store_name name, struct entry *out);
/* The first entry whose position is greater than `after`, in the order of positions.  -ENOENT at the end.  One
 * cursor is kept in the transaction, so that going on from the last position costs a step, not a seek. */
int meta_entry_next(struct meta_txn *t, uint32_t tree, uint64_t dir, uint64_t after, struct entry *out);
/* The same, for those who let go of their transaction now and then: -EAGAIN after many entries that only other trees
 * see; out->position is where to go on. */
int meta_entry_near(struct meta_txn *t, uint32_t tree, uint64_t dir, uint64_t after, struct entry *out);
/* Further links of an inode (all but the first): the first after (dir, position). */
int meta_link_next(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t *dir, uint64_t *position);

enum chunk_kind { CHUNK_HOLE, CHUNK_INLINE, CHUNK_MAP };
struct extent {
    place_t place;
    uint8_t block, count; /* blocks [block, block + count) of the chunk; count 1 to 64 */
};
/* A chunk's whole map.  Blocks in no extent are holes.  Extents are sorted by block and do not overlap; neighbours
 * that continue each other are one. */
struct chunk_map {
    uint64_t change; /* of the mutation that wrote the record; set by meta_put_chunk */
    uint8_t kind, extent_count;
    uint16_t inline_length;
    union {
        struct {
            struct extent extents[CHUNK_BLOCKS];
            uint32_t crc[CHUNK_BLOCKS]; /* CRC32C of block i, where it is in an extent */
        };
        uint8_t bytes[INLINE_MAX]; /* CHUNK_INLINE: the file's bytes (chunk 0 only); checked when decoded */
    };
};

/* The place of one block; 0: a hole. */
place_t chunk_place(const struct chunk_map *map, unsigned block);

/* The chunk as the inode shows it: records behind its size or hidden by its cuts are -ENOENT, as are "hole"s. */
int meta_chunk(struct meta_txn *t, uint32_t tree, const struct inode *inode, uint64_t chunk,
               struct chunk_map *out);
/* The next chunk record at or after `from` that this tree's version sees, whether the inode shows it or not: for
 * the reaper, truncation and checks. */
int meta_chunk_next(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t from, uint64_t *chunk,
                    struct chunk_map *out);

/* ---- from RAM, else LMDB: any worker, may need to wait (SL_EWAIT as in store.h) ---- */

int meta_get_inode(struct local *l, uint32_t tree, uint64_t ino, struct inode *out);
/* Also remembers in RAM that a name is not there.  `name` is one that can be (at most STORE_NAME_MAX bytes). */
int meta_get_entry(struct local *l, uint32_t tree, uint64_t dir, struct store_name name, struct entry *out);
/* -ENOENT for a hole (also remembered in RAM).  `inode` decides what is visible, as in meta_chunk(). */
int meta_get_chunk(struct local *l, uint32_t tree, const struct inode *inode, uint64_t chunk,
                   struct chunk_map *out);

/* The same without the CRCs, which `out` does not get: for who finds the blocks in frames. */
int meta_get_extents(struct local *l, uint32_t tree, const struct inode *inode, uint64_t chunk,
                     struct chunk_map *out);
/* Fetches into the processor's cache what meta_get_inode(), meta_get_chunk() and meta_get_entry() look at for these
 * ranges.  places[i]: where the first block of range i lies, 0 where the tables do not know.  At most
 * STORE_EXPECT_MOST. */
void meta_expect(struct local *l, const struct store_range *ranges, unsigned count, place_t *places);

/* ---- changing: the writer only.  Each put is atomic with the group; refusals must come before the first put of a
 * mutation.  Versions, `touched`, "gone", freed blocks, tree usage and publication are taken care of here. ---- */

uint64_t meta_next_change(struct meta_txn *t);
uint64_t meta_next_ino(struct meta_txn *t);
int meta_put_inode(struct meta_txn *t, uint32_t tree, const struct inode *inode);
int meta_put_target(struct meta_txn *t, uint32_t tree, const struct inode *inode, const char *target,
                    uint32_t length); /* instead of meta_put_inode, for a new symbolic link */
int meta_del_inode(struct meta_txn *t, uint32_t tree, uint64_t ino);
/* Finds a free slot in the name's bucket: -ENOSPC when it is full (logged). The caller has checked that the name
 * is not there. */
int meta_put_entry(struct meta_txn *t, uint32_t tree, uint64_t dir, struct store_name name, uint64_t ino,
                   uint32_t generation, enum store_type type, uint64_t *position);
/* Points an existing entry at another inode (rename over). */
int meta_set_entry(struct meta_txn *t, uint32_t tree, uint64_t dir, const struct entry *entry);
int meta_del_entry(struct meta_txn *t, uint32_t tree, uint64_t dir, uint64_t position);
int meta_put_link(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t dir, uint64_t position);
int meta_del_link(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t dir, uint64_t position);
/* Replaces the chunk's record; `change` is the mutation's.  Blocks that the old record held and the new one does
 * not are released; blocks that only the new one has count as used now (seg_account).  Updates tree usage; the
 * caller keeps inode->blocks with the returned difference (*delta, in blocks). */
int meta_put_chunk(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t chunk, const struct chunk_map *map,
                   uint64_t change, int64_t *delta);
/* The same where some blocks (a bit each in `shared`) get places that records hold, as this transaction sees. */
int meta_share_chunk(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t chunk, const struct chunk_map *map,
                     uint64_t shared, uint64_t change, int64_t *delta);
int meta_del_chunk(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t chunk, int64_t *delta);

/* system records: `key` is a short text such as "segment/0000002a".  value NULL: remove. */
int meta_system_put(struct meta_txn *t, const char *key, const void *value, size_t length);
int meta_system_get(struct meta_txn *t, const char *key, void *value, size_t room, size_t *length);
/* The first record whose key is greater than `key` and begins with `prefix`; replaces key (64 bytes of room). */
int meta_system_next(struct meta_txn *t, const char *prefix, char key[64], void *value, size_t room,
                     size_t *length);

/* The free list: runs freed by committed groups, oldest first.  next: the first record greater than (serial, place);
 * del: forgets one. */
int meta_free_next(struct meta_txn *t, uint64_t *serial, place_t *place, uint32_t *blocks);
int meta_free_del(struct meta_txn *t, uint64_t serial, place_t place);

/* ---- trees ---- */

struct tree { /* in RAM, RCU-protected; replaced, never changed, except the usage counters */
    uint32_t id;
    uint64_t version, root, orphans; /* the live version; root and orphan directory inodes */
    uint64_t fsid, size_limit, file_limit;
    uint32_t number;                 /* of a snapshot in its volume; else 0 */
    uint32_t volume;                 /* itself, or the volume it is a snapshot of */
    bool read_only;
    _Atomic uint64_t used_blocks, used_files;
};
/* Copies what is known of the tree; -ESTALE. Any thread, never waits. */
int meta_tree(struct local *l, uint32_t id, struct tree *out);
/* -ENOSPC when `more_blocks` or `more_files` would exceed the tree's limit, or there is no room for metadata; in a
 * mutation before its first put. */
int meta_tree_room(struct meta_txn *t, uint32_t id, uint64_t more_blocks, uint64_t more_files);
/* The same for records that count as neither. */
int meta_record_room(struct meta_txn *t);

/* The trees of store_ops (contracts in sluice/store.h). */
int tree_create(struct store *s, const char *props, size_t props_length, const struct store_limits *limits,
                uint32_t uid, uint32_t gid, uint32_t mode, uint32_t *id);
int tree_update(struct store *s, uint32_t id, const char *props, size_t props_length,
                const struct store_limits *limits);
int tree_delete(struct store *s, uint32_t id);
int trees_snapshots_changed(struct store *s, uint32_t volume, uint64_t *change, struct store_time *when);
int snapshot_take(struct store *s, struct store_snapshot *each, unsigned count);
int snapshot_clone(struct store *s, uint32_t snapshot, const char *props, size_t props_length,
                   const struct store_limits *limits, uint32_t *id);
int snapshot_restore(struct store *s, uint32_t volume, uint32_t snapshot, struct store_snapshot *safety);
int tree_each(struct store *s, int (*each)(void *arg, const struct store_tree *tree), void *arg);

/* ---- dropping: for the reaper ---- */

/* The dropping of versions that nothing names (POOL.md, "Versions"): a step of about `budget_us` microseconds, and what
 * is left to do in records.  *more: call again in another mutation. */
int meta_drop_step(struct meta_txn *t, unsigned budget_us, bool *more);
/* Is there anything to do?  In a transaction of either kind. */
bool meta_drop_waits(struct meta_txn *t);

/* ---- the environment ---- */
int meta_open(struct local *l, char why[256]);  /* creates what is missing */
void meta_close(struct local *l);
/* LMDB bytes in use and free inside the map. */
void meta_space(struct local *l, uint64_t *used, uint64_t *free_bytes);

#endif
