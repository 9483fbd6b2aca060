/* What the metadata's own modules share:
 *
 *   meta.c        the environment: opening, reopening, closing          meta_txn.c  transactions, SIGBUS, LMDB calls
 *   meta_read.c   records as a version sees them, decoded tables        meta_put.c  changes of records
 *   meta_dir.c    directory positions, names in RAM                     meta_free.c blocks released, the free list
 *   meta_group.c  what a group changes in RAM: kept with its commit, dropped with its abort
 *   tree.c        trees        snapshot.c  snapshots, clones, restore   meta_drop.c versions that go
 *   meta_refs.c   how many records hold a block
 */
#ifndef SLUICE_STORE_LOCAL_META_PRIVATE_H
#define SLUICE_STORE_LOCAL_META_PRIVATE_H

#include <lmdb.h>
#include <pthread.h>
#include <urcu.h>

#include "store/local/keys.h"
#include "store/local/meta.h"
#include "store/local/records.h"
#include "store/local/table.h"
#include "store/local/version.h"

enum db { DB_INODE, DB_ENTRY, DB_LINK, DB_CHUNK, DB_TOUCHED, DB_FREE, DB_REF, DB_SYSTEM, DB_COUNT };

struct tree_table;

struct meta {
    struct local *local;
    MDB_env *env; /* RCU; NULL while it is being reopened */
    bool stuck;   /* the writer's: SIGBUS left one of its transactions in the middle of a call of LMDB */
    MDB_dbi dbi[DB_COUNT];
    size_t map_size;
    _Atomic uint64_t publishing; /* id of the last transaction whose changes began to go into the tables */
    _Atomic uint64_t published;  /* id of the last transaction whose changes are in the tables */
    _Atomic unsigned long_readers; /* read transactions that are not within RCU read sections (check_sums.c) */
    struct rtable *inodes, *chunks, *names;
    struct versions *versions;   /* RCU */
    struct tree_table *trees;    /* RCU */
    struct counters counters;    /* the writer's */
    struct store_time restored;  /* the writer's: of the last restore of any volume */
    _Atomic uint64_t space_measured_ns;
    atomic_bool space_low;
    unsigned hash_bits;          /* of a directory position: 55, fewer in tests */
    uint8_t hash_key[16];
};

/* ---- transactions ---- */

/* One record, copied out of the map: a pointer into it could raise SIGBUS anywhere. */
struct record {
    uint8_t key_length;
    uint16_t length;
    uint8_t key[KEY_ROOM];
    uint8_t value[RECORD_MAX];
};

struct txn {
    struct meta_txn t; /* first */
    MDB_txn *mdb;
    MDB_cursor *cursors[DB_COUNT];
    bool cursor_stale[DB_COUNT]; /* to be renewed before use */
    bool broken;                 /* left in the middle of a call: not to be used again */
    struct txn *next;            /* in the pool of its thread */
    /* Where meta_entry_next() left the cursor of DB_ENTRY. */
    bool standing;
    uint64_t stand_dir, stand_position;
};

static inline struct txn *txn_of(struct meta_txn *t)
{
    return (struct txn *)t;
}

static inline struct meta *meta_of(struct meta_txn *t)
{
    return t->local->meta;
}

/* The writer's transaction.  Any LMDB error but "not found" sets t->failed. */
int txn_write_begin(struct local *l, struct txn *txn);
int txn_write_commit(struct txn *txn); /* the transaction is gone, whatever comes back */
void txn_write_abort(struct txn *txn);
uint64_t txn_id(struct txn *txn);
/* Aborts every pooled read transaction: no thread is in one (env is NULL, a grace period has passed). */
void txn_pool_empty(struct meta *m);
int txn_module_start(void); /* SIGBUS handler and thread keys; once or often */
/* Runs fn(arg), which looks into the map: what it returns, or EIO when SIGBUS took it out of its midst. */
int map_guarded(int (*fn)(void *arg), void *arg);

/* An LMDB code as an error of ours. */
int lmdb_error(int code);

/* One record; -ENOENT.  db_seek: the first whose key is not less.  db_step: the one after where the cursor stands
 * (read transactions only). `out` may be NULL. */
int db_get(struct meta_txn *t, enum db db, const struct key *k, struct record *out);
int db_seek(struct meta_txn *t, enum db db, const struct key *k, struct record *out);
int db_step(struct meta_txn *t, enum db db, struct record *out);
int db_put(struct meta_txn *t, enum db db, const struct key *k, const void *value, size_t length);
int db_del(struct meta_txn *t, enum db db, const struct key *k);

/* ---- versioned records ---- */

/* The record of k (without a version) that `version` sees.  *found: the record's version, 0: none.  -ENOENT when
 * there is none, or it is "gone" (then *found is not 0). */
int visible(struct meta_txn *t, enum db db, const struct key *k, uint64_t version, struct record *out,
            uint64_t *found);
/* The first key >= k (without a version) that agrees with it in its first `prefix` bytes and that `version` sees
 * there.  k becomes that key. */
int visible_from(struct meta_txn *t, enum db db, struct key *k, size_t prefix, uint64_t version,
                 struct record *out);

/* The same, but after `most` keys that it does not see: -EAGAIN, and k is the last of them. */
int visible_within(struct meta_txn *t, enum db db, struct key *k, size_t prefix, uint64_t version, unsigned most,
                   struct record *out);

/* Writes k's record of `version`; `seen` is what visible() found.  Appends to `touched` at its first write. */
int versioned_put(struct meta_txn *t, enum db db, const struct key *k, uint64_t version, uint64_t seen,
                  const void *value, size_t length);
/* Removes it, or writes "gone" where an ancestor has a record. */
int versioned_del(struct meta_txn *t, enum db db, const struct key *k, uint64_t version, uint64_t seen);

/* Appends to `touched`. */
void touch(struct meta_txn *t, enum db db, const struct key *k, uint64_t version);
/* An ancestor of `version` has a record of k that is not "gone". */
bool lies_beneath(struct meta_txn *t, enum db db, const struct key *k, uint64_t version);

/* The version a tree is at, as this transaction sees it.  -ESTALE. */
int tree_version(struct meta_txn *t, uint32_t tree, uint64_t *version);
const struct versions *txn_versions(struct meta_txn *t);

/* The key of a name in the table of names. */
struct rtable_key name_key(struct meta *m, uint32_t tree, uint64_t dir, struct store_name name);

/* ---- groups ---- */

enum { GROUP_TREES = 64 };

struct group;
/* Begins the transaction and sets t up; numbers go on from the last committed ones. */
int group_begin(struct local *l, struct group **g, struct txn *txn);
static inline struct store_time time_later(struct store_time a, struct store_time b)
{
    bool less = a.seconds < b.seconds || (a.seconds == b.seconds && a.nanoseconds < b.nanoseconds);
    return less ? b : a;
}

/* The time of a mutation's changes: never before a restore, whose time its objects show. */
struct store_time group_now(struct local *l);
/* Before commit: counters, usage, freed runs. */
int group_seal(struct meta_txn *t);
/* After commit: RAM follows.  Returns true when blocks were freed. */
bool group_publish(struct group *g);
void group_free(struct group *g);
/* The decoded tables forget what they know of a tree that goes, or that becomes another (a restore). */
void tables_forget(struct meta *m, uint32_t tree);
/* Some of what that left to be done; is there more? */
bool tables_forget_step(struct meta *m);
uint64_t group_txn_id(const struct group *g);
/* An estimate of the pages that the group has dirtied. */
unsigned group_dirty(const struct group *g);
void group_dirtied(struct group *g, unsigned pages);
struct counters *group_counters(struct group *g);

/* Notes for publication.  All set t->failed when there is no memory. */
void group_note_inode(struct meta_txn *t, uint32_t tree, const struct inode *inode);
void group_note_inode_gone(struct meta_txn *t, uint32_t tree, uint64_t ino);
void group_note_chunk(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t chunk, const void *value,
                      size_t length); /* length 0: a hole */
/* A record of this version names other places now: who sees it forgets what it knew. */
void group_note_chunk_moved(struct meta_txn *t, uint64_t version, uint64_t ino, uint64_t chunk);
/* The name stands for this entry now; for none any more. */
void group_note_name(struct meta_txn *t, const struct rtable_key *key, const struct entry *entry);
void group_note_name_gone(struct meta_txn *t, const struct rtable_key *key);
void group_note_usage(struct meta_txn *t, uint32_t tree, int64_t blocks, int64_t files);
void group_note_freed(struct meta_txn *t, place_t place, uint32_t blocks);
void group_usage(const struct group *g, uint32_t tree, int64_t *blocks, int64_t *files);

/* Trees and versions that the group makes, replaces or removes. */
struct tree_node { /* RCU: replaced, never changed, except the counters in `tree` */
    struct tree_node *next;
    struct rcu_head retired;
    struct tree tree;
    struct tree_record record;
    char *props;
};
/* node NULL: removed.  The group owns the node until it is published. */
int group_set_tree(struct meta_txn *t, uint32_t id, struct tree_node *node);
/* False: the group has not changed this tree. */
bool group_tree(const struct group *g, uint32_t id, const struct tree_node **node);
/* The group's own copy of the versions, to be changed; made by the first call.  NULL (t->failed): no memory. */
struct versions *group_versions_own(struct meta_txn *t);
const struct versions *group_versions(const struct group *g);
/* `touched` has got (or lost) records of this version: added to its record when the group is sealed. */
void group_note_touched(struct meta_txn *t, uint64_t version, int64_t by);
int64_t group_touched(const struct group *g, uint64_t version);
/* Versions wait to be looked at (meta_drop.c): the reaper is told when the group is published. */
void group_note_drops(struct meta_txn *t);
/* When the group is published, the tables forget what they know of this tree: it becomes another. */
void group_note_restored(struct meta_txn *t, uint32_t tree);

/* ---- trees in RAM (tree.c) ---- */

struct tree_table *tree_table_new(void);
void tree_table_free(struct tree_table *table); /* nobody reads it any more */
/* Under RCU or on the writer. NULL: no such tree. */
struct tree_node *tree_table_find(struct tree_table *table, uint32_t id);
/* Writer: puts in, replaces or (node NULL) removes; readers see it at once.  Cannot fail. */
void tree_table_set(struct tree_table *table, uint32_t id, struct tree_node *node);
void tree_node_free(struct tree_node *node);
/* The tree as the rest of the group sees it (on the writer), or as published (under RCU).  NULL: no such tree. */
const struct tree_node *tree_present(struct meta_txn *t, uint32_t id);
/* What a tree holds as the group will have left it. */
struct usage_record tree_usage(struct meta_txn *t, uint32_t id);
/* Makes or replaces a tree: its records, its name for the version, its node in RAM.  The second keeps the props. */
int tree_put(struct meta_txn *t, const struct tree_record *record, const char *props);
int tree_put_record(struct meta_txn *t, const struct tree_node *node, const struct tree_record *record);
/* The volume's list of snapshots has changed. */
int tree_listed(struct meta_txn *t, uint32_t volume);
uint64_t tree_new_fsid(uint32_t id);
/* Does a snapshot of the volume have this number?  The writer; looks at all trees, but not at those of this group. */
bool trees_have_number(struct meta_txn *t, uint32_t volume, uint32_t number);
/* The volume (not snapshot) with the least id greater than `after`; 0: none.  Any thread. */
uint32_t trees_next_volume(struct local *l, uint32_t after);

void version_key(char key[64], uint64_t version);
/* A new version, a child of `parent` (0: a root), named by the tree and seen by the rest of the group.  t->failed tells
 * of failure. */
uint64_t version_new(struct meta_txn *t, uint64_t parent, uint32_t tree);
/* Nothing names it any more: it is dropped in the background (meta_drop.c). */
void version_unname(struct meta_txn *t, uint64_t version);
/* Has the background look at a version that nothing names; of others nothing. */
void version_look_at(struct meta_txn *t, uint64_t version);
/* A record of this version, which nothing names, has just been hidden from one below: looked at later. */
void version_hidden(struct meta_txn *t, uint64_t version, enum db db, const struct key *k);
/* Reads all trees and versions from the database. */
int trees_load(struct meta_txn *t, struct tree_table **trees, struct versions **versions);

/* ---- blocks ---- */

/* A record stops holding blocks: those that no other holds are free. */
void blocks_release(struct meta_txn *t, place_t place, uint32_t blocks);
/* A record begins to hold fresh blocks. */
void blocks_take(struct meta_txn *t, place_t place, uint32_t blocks);
/* A record begins to hold blocks that another one holds already. */
void blocks_hold(struct meta_txn *t, place_t place, uint32_t blocks);
/* Sorts and joins runs, writes them to the free list under the group's number. */
struct freed_run {
    place_t place;
    uint32_t blocks;
};
int free_list_append(struct meta_txn *t, uint64_t group, struct freed_run *runs, size_t count);

/* ---- the environment, for the writer's failures ---- */

/* Workers leave their transactions, the environment is closed and opened again.  *last: the id of the last transaction
 * found.  On an error there is no environment: try again. */
int meta_reopen(struct local *l, uint64_t *last);
/* So little room in the file system that only changes which give some back are taken.  Any thread; cheap. */
bool meta_space_low(struct meta *m);

#endif
