/* What the parts of the checker know of each other.
 *
 *   check.c           steps, walks over records, findings, the order of things
 *   check_versions.c  trees, the tree of versions, `touched`
 *   check_names.c     inodes, entries, links
 *   check_chunks.c    chunk maps, blocks, the free list, segments
 *   check_holders.c   how many records hold each block
 *   check_sums.c      sums that looked wrong, in one transaction
 *   check_data.c      the bytes of the data
 *
 * A record is judged as its own version sees it, together with what it refers to: of two records that a version sees
 * the deeper one's version sees both.  Where that version has no name, some of what it saw may have gone; then those
 * that have a name and see the record decide. */
#ifndef SLUICE_STORE_LOCAL_CHECK_PRIVATE_H
#define SLUICE_STORE_LOCAL_CHECK_PRIVATE_H

#include "sluice/store_check.h"
#include "store/local/meta_private.h"

#define HOLDERS_FORMAT \
    "inode %llu, chunk %llu: %u records hold the block at %llx, and %ld are counted; do not delete snapshots, clones " \
    "or copies of it, copy it elsewhere"
enum { WHY_ROOM = 400, PATH_ROOM = 4096, TREES_SHOWN = 8, SPLITS_MOST = 4096 };

/* All records of one key, in ascending order of versions. */
struct check_item {
    uint64_t version;
    uint32_t at; /* of the value, in group.bytes */
    uint16_t length;
    bool gone;
};
struct check_group {
    enum db db;
    struct key key; /* without a version */
    unsigned count, room;
    struct check_item *items;
    uint8_t *bytes;
    size_t used, bytes_room;
};

/* Sums over the records of one inode's chunks, or of one directory's entries, by version: what a version adds to what
 * its parent sees. */
struct check_sum {
    uint64_t version;
    int64_t by;
};
struct check_sums {
    struct check_sum *at; /* ascending */
    unsigned count, room;
};

struct check_split { /* an owner whose records were not read in one transaction, and that looked wrong */
    enum db db;
    uint64_t owner;
};

struct check_usage { /* of a version: what it adds to its parent's */
    uint64_t version;
    int64_t blocks, files;
};

struct check_seg {
    uint32_t number, tail, live;
    uint32_t held;      /* blocks that records hold */
    uint64_t *holds;    /* a bit for each block: a record holds it */
    uint64_t *freed;    /* it was on the free list before the chunks were looked at; NULL: none */
    uint64_t *read;     /* its bytes have been checked */
    uint64_t seen, expected; /* sums over its blocks' holders: those that were seen, and as `ref` has it */
    uint32_t *counts;   /* holders of each block, where the sums differ; NULL: not now */
    bool doubtful;      /* look again */
};

struct check_wrong { /* a block that more records hold than are counted, and one of them */
    uint64_t ino, chunk;
    place_t place;
    uint32_t holders;
};

struct check_segs {
    struct check_seg *at; /* ascending */
    unsigned count, room;
};

struct check_touched;

struct check {
    struct local *l;
    struct store_check *job;
    int error;
    /* the transaction */
    struct meta_txn *t;
    struct versions *vs; /* as the transaction sees them; a copy of our own */
    bool again;          /* the long one: no RCU read section, nothing but records and `vs` */
    uint64_t step_began;
    bool drops_known;
    uint64_t *drops; /* versions that wait to be looked at */
    size_t drop_count, drop_room;
    uint64_t *stack; /* of versions */
    unsigned stack_room;
    struct record *row;
    struct check_group group, other;
    /* what must be remembered from step to step */
    uint64_t *roots, *orphans; /* directories' inode numbers, ascending */
    char last_tree[64];        /* the last record they were read from */
    unsigned root_count, orphan_count, root_room, orphan_room;
    struct check_segs segs;
    struct check_sums sums;
    bool owner_open, owner_split;
    uint64_t owner;
    struct check_split *splits;
    unsigned split_count;
    struct check_usage *usage; /* ascending */
    unsigned usage_count, usage_room;
    struct check_touched *touched;
    struct check_wrong *wrong;
    unsigned wrong_count, wrong_room;
    place_t *places; /* of one chunk */
    size_t place_count, place_room;
};

/* ---- check.c ---- */

/* A step: a transaction with its versions.  0, or c->error. */
int step_begin(struct check *c);
void step_end(struct check *c);
bool step_is_over(const struct check *c);
bool check_stopped(struct check *c);

/* Reads all records of the key that c->row stands at; c->row is the next one's first then.  0, -ENOENT (the last one)
 * or an error. */
int group_load(struct check *c, struct check_group *g, enum db db);
/* The same of a key; an empty group where there is none. */
int group_find(struct check *c, struct check_group *g, enum db db, const struct key *k);
static inline const uint8_t *item_value(const struct check_group *g, unsigned i)
{
    return g->bytes + g->items[i].at;
}
/* The item that `version` sees; less than 0: none.  group_beneath: that lies beneath item i. */
long group_seen(const struct check *c, const struct check_group *g, uint64_t version);
long group_beneath(const struct check *c, const struct check_group *g, unsigned i);
/* The index of the greatest of `versions` (ascending, `stride` bytes apart) that is `version` or an ancestor. */
long nearest(const struct versions *vs, const uint64_t *versions, size_t stride, unsigned count, uint64_t version);

/* Goes through a database in steps.  group() is called for each key, in a transaction; owner() after the last one that
 * begins with the same eight bytes (NULL: not). */
struct check_walk {
    enum db db;
    void (*group)(struct check *c, struct check_group *g);
    void (*owner)(struct check *c, uint64_t owner);
};
int walk(struct check *c, const struct check_walk *w);

/* Tests item i as `viewer` sees it; false: `why` says what is wrong. */
typedef bool check_test(struct check *c, const struct check_group *g, unsigned i, uint64_t viewer, char *why);
/* Runs the test as the item's own version, or those with a name that see it, and reports what is wrong with `ino`. */
void examine(struct check *c, const struct check_group *g, unsigned i, uint64_t ino, check_test *test);
/* What can be said of any record: its version is known, somebody sees it, "gone" hides something. */
void examine_record(struct check *c, const struct check_group *g, unsigned i);
/* Some work of the background's is still to come for this version. */
bool is_dropping(struct check *c, uint64_t version);

/* Reports.  `ino` as `version` sees it, or 0. */
void found(struct check *c, uint64_t version, uint64_t ino, bool is_data, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The same of item i of a group: of all that see it. */
void found_in(struct check *c, const struct check_group *g, unsigned i, uint64_t ino, bool is_data,
              const char *format, ...) __attribute__((format(printf, 6, 7)));

void sums_add(struct check *c, struct check_sums *sums, uint64_t version, int64_t by);
/* The list is ascending. */
bool list_has(const uint64_t *list, unsigned count, uint64_t number);
void *grow(struct check *c, void *list, size_t size, unsigned count, unsigned *room);

/* ---- the parts ---- */

void check_trees(struct check *c);
/* The top directories of trees that have come since the last call. */
void tops_load(struct check *c);
void check_versions(struct check *c);
int touched_read(struct check *c);
void touched_has(struct check *c, const struct check_group *g, unsigned i);
bool touched_is_doubtful(struct check *c);
void touched_free(struct check *c);
/* Rows of a version; less than 0: an error. */
int64_t touched_count(struct check *c, uint64_t version);

void check_inode(struct check *c, struct check_group *g);
void check_entry(struct check *c, struct check_group *g);
void check_link(struct check *c, struct check_group *g);
/* The end of a directory: its link count. */
void check_directory(struct check *c, uint64_t dir);
/* Of an entry or a chunk: what it adds to the sums of its owner. */
void sum_entry(struct check *c, struct check_group *g);
void sum_chunk(struct check *c, struct check_group *g);
/* Compares an owner's sums with its inodes; true: all is right. */
bool owner_is_right(struct check *c, enum db db, uint64_t owner, bool report);
void usage_add(struct check *c, const struct check_group *g);
void usage_compare(struct check *c, bool report, bool *wrong);

int segs_load(struct check *c);
/* NULL: not known, or (seg_of) not there or shorter than that. */
struct check_seg *seg_known(struct check *c, place_t place);
struct check_seg *seg_of(struct check *c, place_t place);
int free_read(struct check *c);
void check_chunk(struct check *c, struct check_group *g);
void check_file(struct check *c, uint64_t ino);
/* Marks what the group's records hold. */
void hold_blocks(struct check *c, struct check_group *g, bool report);
void segs_compare(struct check *c, bool report);
void segs_have_files(struct check *c);
void segs_forget(struct check *c);
/* All places in the group's records go to c->places, ascending where there are several records. */
void gather_places(struct check *c, const struct check_group *g);

/* Adds all of `ref` to what is expected: in steps; or, in a transaction, from *from on, some: -ENOENT at the end. */
int refs_read(struct check *c);
int refs_read_on(struct check *c, place_t *from);
/* So many records of one key hold the block; `first`: none was seen before. */
void holders_seen(struct check_seg *seg, place_t place, unsigned holders, bool first);
void holders_compare(struct check *c);
/* In the long transaction, with all sums taken in it: what is wrong where they differ.  -EAGAIN as scan(). */
int holders_settle(struct check *c);
/* Afterwards, in steps: what that found of files. */
void holders_report(struct check *c);
/* Calls group() for all keys of a database in the long transaction.  -ECANCELED; -EAGAIN: the environment goes. */
int scan(struct check *c, const struct check_walk *w);

void check_again(struct check *c);
void check_data(struct check *c);

static inline bool bit_get(const uint64_t *bits, uint32_t i)
{
    return bits && bits[i / 64] >> i % 64 & 1;
}
static inline void bit_set(uint64_t *bits, uint32_t i)
{
    bits[i / 64] |= UINT64_C(1) << i % 64;
}

#endif
