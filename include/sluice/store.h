/* The store: file operations as a table of functions, so that the protocols do not know what keeps the data.
 * `local` (LMDB and segments) is the first; cephfs may follow.
 *
 * Who calls: protocols and the volume layer, on workers.  Unless a function says otherwise it may have to wait:
 * on a worker's main stack (coro_self() == NULL) it then returns SL_EWAIT before it has changed or handed out
 * anything, and the caller runs the call again in a coroutine.  Functions that change something always wait.
 *
 * The contract of every change: when the function returns 0 the change is durable, and no other caller has seen
 * it before it was.  On an error nothing has changed.  Attributes handed out are never newer than data handed
 * out in the same call.
 *
 * Errors are those of base_error.h.  Common to all: -ESTALE (the object is gone), -EIO (disk, checksum),
 * SL_EFROZEN (the pool takes no changes), -ENOMEM, -EROFS (changes to a snapshot), -EACCES, -EPERM. */
#ifndef SLUICE_STORE_H
#define SLUICE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "sluice/base_error.h"
#include "sluice/base_slice.h"

enum {
    STORE_NAME_MAX = 255,       /* bytes of a name */
    STORE_LINK_TARGET_MAX = 1024, /* bytes of a symbolic link's target */
    STORE_IO_MAX = 1048576,     /* most bytes of one read or write */
    STORE_CHUNK = 262144,
    STORE_BLOCK = 4096,
    STORE_LINKS_MAX = 65000,
    STORE_GROUPS_MAX = 256,
    STORE_NAMED_MOST = 1024,
    STORE_SNAPSHOTS_MOST = 1 << 22, /* of one volume */
    STORE_CLONE_ONCE = 128 * STORE_CHUNK,
};
#define STORE_FILE_MAX ((uint64_t)INT64_MAX)

struct store;

/* What a file handle names: a tree (the pool-wide number of a volume or snapshot), an inode in it, and the
 * inode's generation. */
struct store_object {
    uint32_t tree;
    uint32_t generation;
    uint64_t ino;
};

enum store_type { /* the numbers of ftype3 (RFC 1813, 2.3.5) */
    STORE_REG = 1, STORE_DIR, STORE_BLK, STORE_CHR, STORE_LNK, STORE_SOCK, STORE_FIFO
};

struct store_time {
    int64_t seconds;
    uint32_t nanoseconds;
};

struct store_attr {
    enum store_type type;
    uint32_t mode;  /* permission bits with suid, sgid, sticky: 07777 */
    uint32_t nlink, uid, gid;
    uint32_t rdev_major, rdev_minor;
    uint32_t tree, generation;
    uint64_t size, used; /* bytes */
    uint64_t fsid, fileid;
    uint64_t change;     /* grows with every change of this object, unique in the pool */
    struct store_time atime, mtime, ctime, btime;
};

/* Who asks, after squashing.  uid 0 overrides permissions, as on any Unix.  `read_only` is set for callers whose
 * access rule does not let them write: every change is -EROFS. */
struct store_cred {
    uint32_t uid, gid;
    uint32_t group_count;
    uint32_t groups[STORE_GROUPS_MAX];
    bool read_only;
};

/* What to set; fields whose bit is not in `set` are ignored. */
enum {
    STORE_SET_MODE = 1, STORE_SET_UID = 2, STORE_SET_GID = 4, STORE_SET_SIZE = 8,
    STORE_SET_ATIME = 16, STORE_SET_MTIME = 32,         /* to the given time */
    STORE_SET_ATIME_NOW = 64, STORE_SET_MTIME_NOW = 128, /* to the server's */
};
struct store_setattr {
    uint32_t set, mode, uid, gid;
    uint64_t size;
    struct store_time atime, mtime;
};

/* Weak cache consistency (RFC 1813, 2.6): what an object was just before and just after the change, both from
 * the transaction that made it.  Filled as far as known on errors too (`after` then is the present state). */
struct store_wcc {
    bool has_before, has_after;
    uint64_t before_size, before_change;
    struct store_time before_mtime, before_ctime;
    struct store_attr after;
};

/* A range of a file, and where it goes. */
struct store_copy {
    struct store_object from, to;
    uint64_t from_offset, to_offset, length;
    const struct store_cred *from_cred, *to_cred; /* who asks, in each tree */
};

struct store_name {
    const char *bytes; /* not terminated; any bytes */
    uint32_t length;
};

enum { /* access bits, the numbers of ACCESS3 (RFC 1813, 3.3.4) */
    STORE_ACCESS_READ = 1, STORE_ACCESS_LOOKUP = 2, STORE_ACCESS_MODIFY = 4, STORE_ACCESS_EXTEND = 8,
    STORE_ACCESS_DELETE = 16, STORE_ACCESS_EXECUTE = 32,
};

/* How make() treats a name that is there: GUARDED fails with -EEXIST; UNCHECKED opens a regular file that
 * exists (and applies only a size in `attr`); EXCLUSIVE compares the stored 8-byte verifier and is the same call
 * again when it matches (RFC 1813, 3.3.8).  UNCHECKED and EXCLUSIVE are for regular files. */
enum store_make_how { STORE_MAKE_UNCHECKED, STORE_MAKE_GUARDED, STORE_MAKE_EXCLUSIVE };
struct store_make {
    enum store_type type;
    enum store_make_how how;
    struct store_setattr attr; /* mode without bits: 0644 or 0755 are the protocol's business, not the store's */
    uint8_t verifier[8];
    uint32_t rdev_major, rdev_minor;
    struct store_name target;  /* of a symbolic link */
};

/* One entry of a listing.  The callback returns false when it has no room for this entry: the listing ends
 * before it. `attr` is NULL where attributes were not asked for or could not be had.  It must not wait. */
struct store_entry {
    struct store_name name;
    uint64_t fileid, cookie;
    struct store_object object;
    enum store_type type;
    const struct store_attr *attr;
};
typedef bool store_entry_fn(void *arg, const struct store_entry *entry);

/* Bytes and inodes of one tree.  Free is what its limit leaves, available what of this there is in the pool. */
struct store_usage {
    uint64_t bytes_total, bytes_free, bytes_available, bytes_used;
    uint64_t files_total, files_free, files_used;
};

/* What a volume may hold, as it is now; its snapshots are apart.  Exact: the writer decides, block by block and file by
 * file.  Files are everything that has an inode, the root too; bytes are in blocks, of which a file has at least one
 * unless it is empty. */
struct store_limits {
    uint64_t bytes, files; /* 0: no limit */
};

/* A tree as the volume layer keeps it: a volume or a snapshot.  `props` is the volume layer's own text, stored in the
 * same record. */
struct store_tree {
    uint32_t id;
    uint32_t parent;     /* of a snapshot: its volume's tree; else 0 */
    uint32_t origin;     /* of a clone: the snapshot's tree that it was made from (which may be gone); else 0 */
    uint32_t number;     /* of a snapshot: its number in its volume, 1 to STORE_SNAPSHOTS_MOST, reused late */
    uint64_t fsid;
    struct store_limits limits;
    struct store_object root;
    struct store_usage usage;
    const char *props;
    size_t props_length;
};

/* A snapshot to be taken of a volume's tree; the store fills id and number. */
struct store_snapshot {
    uint32_t volume;
    const char *props;
    size_t props_length;
    uint32_t id, number;
};

/* One path that differs.  Paths begin with a slash; names are any bytes but that and zero.  A file that was renamed and
 * changed comes twice.  Times and link counts of directories alone are no change. */
enum store_difference_kind { STORE_DIFF_CREATED, STORE_DIFF_CHANGED, STORE_DIFF_REMOVED, STORE_DIFF_RENAMED };
struct store_difference {
    enum store_difference_kind kind;
    enum store_type type;
    const char *path;
    const char *new_path; /* RENAMED */
};

struct store_status {
    const char *path;
    bool frozen;             /* takes no changes after a failure, until the probe succeeds */
    char reason[160];        /* why, or "" */
    uint64_t bytes_total, bytes_free;       /* of the file system under the pool */
    uint64_t cache_bytes, cache_used_bytes; /* RAM for data */
    uint64_t meta_bytes, meta_free_bytes;   /* LMDB pages in use, and what its map has room for */
    uint64_t segments;                      /* segment files */
    uint64_t work_left;                     /* entries waiting for the reaper */
};

/* How much RAM a tree's data may take, and what stays when it is full.  LRU: what is used again and again.  EPOCH: what
 * came first, as long as it is read at all: for data that is read once in each round, in a new order each time.  AUTO:
 * whichever of the two would have served the last reads better. */
enum store_cache_policy { STORE_CACHE_AUTO, STORE_CACHE_LRU, STORE_CACHE_EPOCH };
struct store_cache_setting {
    enum store_cache_policy policy;
    uint32_t share_percent; /* of the cache; 0: see share_bytes */
    uint64_t share_bytes;   /* 0: no bound */
};
struct store_cache_stats { /* since the start; frames are shared, and count where they were made */
    enum store_cache_policy policy;
    bool keeps;                       /* behaves as EPOCH at present */
    uint64_t held_bytes, bound_bytes; /* bound: what the share comes to; 0: none */
    uint64_t read_bytes;              /* READ has asked for, in whole blocks */
    uint64_t disk_bytes;              /* of those, and read ahead, that came from disk */
    uint64_t missed_bytes;            /* that READ had to wait for the disk for */
    uint64_t ahead_bytes, ahead_unused_bytes; /* loaded ahead of readers; given to other data without being read */
};

struct store_range { /* what a call is about to look at */
    struct store_object object;
    uint64_t offset;
    uint32_t length;        /* 0: no data, only the object */
    struct store_name name; /* to be looked up in the object; length 0: none */
};

enum { STORE_EXPECT_MOST = 16 };

struct store_warmed { /* bytes in whole blocks */
    uint64_t disk;    /* loaded from disk */
    uint64_t present; /* in RAM already */
    uint64_t full;    /* passed over: the cache does not take them */
    uint64_t failed;  /* could not be read, or moved meanwhile */
    uint64_t gone;    /* ranges of files that are not there any more; not bytes */
};

struct store_ops {
    const char *name;

    /* ---- files ---- */
    int (*root)(struct store *s, uint32_t tree, struct store_object *out); /* never waits */
    int (*getattr)(struct store *s, const struct store_object *o, struct store_attr *out);
    /* guard: NULL, or the ctime that must hold (else SL_ENOTSYNC). */
    int (*setattr)(struct store *s, const struct store_cred *c, const struct store_object *o,
                   const struct store_setattr *set, const struct store_time *guard, struct store_wcc *wcc);
    /* "." and ".." work; ".." of the root is the root.  dir_attr (may be NULL) is filled on errors too where the
     * directory exists; its type tells (0: not filled). -ENOENT -ENOTDIR -ENAMETOOLONG -EINVAL (bad name). */
    int (*lookup)(struct store *s, const struct store_cred *c, const struct store_object *dir,
                  struct store_name name, struct store_object *out, struct store_attr *attr,
                  struct store_attr *dir_attr);
    int (*access)(struct store *s, const struct store_cred *c, const struct store_object *o, uint32_t want,
                  uint32_t *granted, struct store_attr *attr);
    /* target holds STORE_LINK_TARGET_MAX bytes. -EINVAL: not a symbolic link. */
    int (*readlink)(struct store *s, const struct store_cred *c, const struct store_object *o, char *target,
                    uint32_t *length, struct store_attr *attr);
    /* Appends slices of exactly the bytes there are of [offset, offset+length) (length <= STORE_IO_MAX) to
     * `data`, holes as zeroes.  attr is filled on errors too where the object exists. -EISDIR; -EINVAL for
     * other types. */
    int (*read)(struct store *s, const struct store_cred *c, const struct store_object *o, uint64_t offset,
                uint32_t length, struct slice_list *data, bool *eof, struct store_attr *attr);
    /* These calls (at most STORE_EXPECT_MOST) are about to come: fetches into the processor's cache what they will
     * look at.  A hint, may be NULL; the ranges are unchecked; never waits, changes nothing. */
    void (*expect)(struct store *s, const struct store_range *ranges, unsigned count);
    /* All of it or nothing.  -EFBIG -ENOSPC -EDQUOT -EISDIR -EINVAL. */
    int (*write)(struct store *s, const struct store_cred *c, const struct store_object *o, uint64_t offset,
                 const void *bytes, uint32_t length, struct store_wcc *wcc);
    int (*make)(struct store *s, const struct store_cred *c, const struct store_object *dir,
                struct store_name name, const struct store_make *how, struct store_object *out,
                struct store_attr *attr, struct store_wcc *dir_wcc);
    /* remove: anything but directories (-EISDIR); rmdir: directories only (-ENOTDIR -ENOTEMPTY; "." -EINVAL,
     * ".." -EEXIST). */
    int (*remove)(struct store *s, const struct store_cred *c, const struct store_object *dir,
                  struct store_name name, struct store_wcc *dir_wcc);
    int (*rmdir)(struct store *s, const struct store_cred *c, const struct store_object *dir,
                 struct store_name name, struct store_wcc *dir_wcc);
    /* Replaces what is at the target if it is compatible.  -EXDEV between trees; -EINVAL into itself. */
    int (*rename)(struct store *s, const struct store_cred *c, const struct store_object *from_dir,
                  struct store_name from, const struct store_object *to_dir, struct store_name to,
                  struct store_wcc *from_wcc, struct store_wcc *to_wcc);
    int (*link)(struct store *s, const struct store_cred *c, const struct store_object *o,
                const struct store_object *dir, struct store_name name, struct store_attr *attr,
                struct store_wcc *dir_wcc);
    /* Lists entries after `cookie` (0: from the start, with "." and ".." first: cookies 1 and 2).  `attributes`
     * as in READDIRPLUS.  Sets *eof when the last entry was taken.  SL_EBADCOOKIE is only for impossible cookies:
     * the cookie of an entry that is gone is good. */
    int (*readdir)(struct store *s, const struct store_cred *c, const struct store_object *dir, uint64_t cookie,
                   bool attributes, store_entry_fn *each, void *arg, bool *eof, struct store_attr *dir_attr);
    /* Brings ranges of one tree's regular files into RAM, their metadata too (all there is of a range of length 0), in
     * the order in which they lie on disk; many reads in flight, fewer while clients read.  What does not go is counted
     * in *out, and no error.  -ENOMEM.  Coroutine. */
    int (*warm)(struct store *s, const struct store_range *ranges, unsigned count, struct store_warmed *out);
    /* A file that was warmed has been read and will not be again for a while: its data may go before other data.
     * Coroutine. */
    void (*cool)(struct store *s, const struct store_object *o);
    /* How many bytes of a file READ has given out so far, counted while somebody watches; to be compared with an
     * earlier answer.  Files may share a count, rarely.  watch_begin: -ENOMEM; every begin has its end.  Any thread. */
    int (*watch_begin)(struct store *s);
    void (*watch_end)(struct store *s);
    uint64_t (*watch_count)(struct store *s, const struct store_object *o);
    int (*usage)(struct store *s, uint32_t tree, struct store_usage *out);
    /* Everything acknowledged is durable, so this only has to find the object. */
    int (*commit)(struct store *s, const struct store_object *o, struct store_attr *attr);
    /* Where the next data (or hole) begins at or behind `offset`, as far as blocks tell; the end is a hole.  -ENXIO:
     * there is none, or offset is not within the file.  Coroutine. */
    int (*seek)(struct store *s, const struct store_cred *c, const struct store_object *o, uint64_t offset, bool data,
                uint64_t *found);
    /* The range reads as zeroes afterwards, whole blocks of it hold no space; the size stays.  Not at one instant where
     * the range is large. */
    int (*punch)(struct store *s, const struct store_cred *c, const struct store_object *o, uint64_t offset,
                 uint64_t length, struct store_wcc *wcc);
    /* Copies the beginning of a range, one bounded step: *done bytes of it, more than 0 where there are any; again for
     * the rest.  Whole blocks are shared where both offsets agree modulo STORE_BLOCK, also between volumes and from
     * snapshots; holes stay holes.  A step happens at one instant, but for holes at other offsets.  The ranges do not
     * overlap in one file.  -EINVAL: not regular files, or the source ends before the range does; -EISDIR -EFBIG
     * -ENOSPC -EDQUOT. */
    int (*copy)(struct store *s, const struct store_copy *copy, uint64_t *done, struct store_wcc *wcc);
    /* All of a range.  -EINVAL: its offsets are no multiples of STORE_BLOCK, or its end is not, nor the source's (where
     * that is inside a block, zeroes go over the rest of the target's).  At one instant where it has at most
     * STORE_CLONE_ONCE bytes, and else where it goes behind the target's last chunk.  A longer one over what is there
     * goes in steps from its beginning, and an error or a crash leaves those that were done.  Otherwise as copy(). */
    int (*clone_range)(struct store *s, const struct store_copy *copy, struct store_wcc *wcc);
    /* The file has at least this size.  -EFBIG. */
    int (*extend)(struct store *s, const struct store_cred *c, const struct store_object *o, uint64_t size,
                  struct store_wcc *wcc);
    void (*write_verifier)(struct store *s, uint8_t verifier[8]); /* constant for the pool's life; never waits */

    /* ---- files that are open: each is there as long as somebody holds it, named or not ---- */
    /* -ESTALE also for one without a name that nobody held, unless such are kept (keep_unlinked).  SL_EDELAY: it is
     * just being removed.  Each hold has its release. */
    int (*hold)(struct store *s, const struct store_object *o);
    void (*release)(struct store *s, const struct store_object *o); /* any thread; never waits */
    /* While set, what has no name does not end: who had it open before a restart may come back.  Any thread. */
    void (*keep_unlinked)(struct store *s, bool keep);
    /* Some of the files that are held and have no name, from *at on (0 at first); none: that was all.  Any thread. */
    unsigned (*unlinked)(struct store *s, struct store_object *out, unsigned most, uint32_t *at);

    /* ---- trees: for the volume layer ---- */
    /* A new tree with an empty root directory.  *id is pool-wide and never reused. */
    int (*tree_create)(struct store *s, const char *props, size_t props_length, const struct store_limits *limits,
                       uint32_t uid, uint32_t gid, uint32_t mode, uint32_t *id);
    /* -EDQUOT: it holds more than a limit that is new or lower than before. */
    int (*tree_update)(struct store *s, uint32_t id, const char *props, size_t props_length,
                       const struct store_limits *limits);
    /* Volumes and snapshots, in any order, also while clones of them live.  The tree's handles are STALE at once; what
     * no other version holds goes in the background. */
    int (*tree_delete)(struct store *s, uint32_t id);
    /* One instant for all `count` volumes: what each holds becomes a snapshot, a tree of its own that never changes;
     * the volumes go on.  -ENOSPC: a volume has STORE_SNAPSHOTS_MOST.  -EINVAL: one is a snapshot. */
    int (*snapshot)(struct store *s, struct store_snapshot *each, unsigned count);
    /* A new volume that begins as the snapshot is.  -EINVAL: `snapshot` is a volume. */
    int (*clone)(struct store *s, uint32_t snapshot, const char *props, size_t props_length,
                 const struct store_limits *limits, uint32_t *id);
    /* The volume goes on from the snapshot: one of its own, or of a volume that it has versions in common with (-EXDEV
     * otherwise).  What it held is given up, or becomes the snapshot `safety` where that is not NULL.  From then on
     * change and ctime of every object of the volume are no less than the restore's. */
    int (*restore)(struct store *s, uint32_t volume, uint32_t snapshot, struct store_snapshot *safety);
    /* What differs between two trees with versions in common (-EXDEV otherwise): time and memory in proportion to that,
     * not to the volume.  each() comes in the order of paths; it may wait; a negative return ends it and is given back.
     * What changes meanwhile in a tree that is no snapshot may be told or not.  Coroutine. */
    int (*diff)(struct store *s, uint32_t from, uint32_t to, int (*each)(void *arg, const struct store_difference *d),
                void *arg);
    /* Copies what the tree shares with others, block by block, until it shares none; slowly enough for others to go on.
     * go_on() is told the bytes passed, of usage's bytes_used, and may end it: -ECANCELED; calling it again goes on.
     * Coroutine. */
    int (*split)(struct store *s, uint32_t tree, bool (*go_on)(void *arg, uint64_t bytes), void *arg);
    /* What deleting this snapshot would give back, but for what its clones see. Coroutine. */
    int (*held)(struct store *s, uint32_t snapshot, uint64_t *bytes);
    /* What all snapshots of the volume hold that neither it nor anybody else has in records of his own: what deleting
     * all of them would give back, but for what clones see in them.  Takes time for what was changed since the oldest;
     * go_on() is asked now and then and may end it: -ECANCELED.  Coroutine. */
    int (*snapshots_held)(struct store *s, uint32_t volume, bool (*go_on)(void *arg), void *arg, uint64_t *bytes);
    /* When the snapshots of a volume came, went or were renamed (tree_update of one) last: a number that grows and
     * never repeats in the pool, and the time.  Never waits. */
    int (*snapshots_changed)(struct store *s, uint32_t volume, uint64_t *change, struct store_time *when);
    /* How the tree's data is cached, from now on: kept in RAM only.  Never waits for the disk. */
    int (*tree_cache)(struct store *s, uint32_t id, const struct store_cache_setting *setting);
    int (*tree_cache_stats)(struct store *s, uint32_t id, struct store_cache_stats *out); /* any thread */
    /* Calls each() for every tree; what it gets is valid during the call.  Any thread; never waits. */
    int (*tree_each)(struct store *s, int (*each)(void *arg, const struct store_tree *tree), void *arg);

    /* ---- small records that the volume layer keeps in the pool: `key` has up to 48 characters without '/' ---- */
    /* value NULL: no longer.  At most STORE_NAMED_MOST bytes. */
    int (*named_put)(struct store *s, const char *key, const void *value, size_t length);
    /* Calls each() for every one, in the order of keys.  A negative return ends it and is given back.  Any thread that
     * may wait. */
    int (*named_each)(struct store *s, int (*each)(void *arg, const char *key, const void *value, size_t length),
                      void *arg);

    /* ---- the whole ---- */
    uint32_t (*pool_id)(struct store *s);             /* any thread */
    const uint8_t *(*secret)(struct store *s);        /* 32 bytes: keys for handles' hashes; any thread */
    void (*status)(struct store *s, struct store_status *out); /* any thread */
    /* Waits until background work (reaping, punching, compaction) has nothing left; tests and `sluice pool wait`
     * use it. Coroutine. */
    int (*settle)(struct store *s);
    /* Main thread, workers running: finishes what is queued, syncs, closes. */
    void (*close)(struct store *s);
};

struct store {
    const struct store_ops *ops;
};

struct store_options {
    const char *pool;         /* directory */
    uint64_t cache_bytes;     /* RAM for data frames */
    uint64_t inode_entries, map_entries, name_entries; /* bounds of the decoded tables; 0: default */
    uint64_t map_size;        /* LMDB's address space; 0: 1 TiB or what RLIMIT_AS allows */
    uint64_t segment_bytes;   /* 0: 4 GiB; smaller for tests */
    uint64_t reserve_bytes;   /* appends stop when the file system has less free; 0: default */
    bool keep_unlinked;       /* as if keep_unlinked() had been called */
};

/* Opens or creates the pool (store/local).  Main thread, workers running.  *why gets a sentence for people on
 * failure (static or owned by the store module). */
int store_local_open(const struct store_options *options, struct store **out, char why[256]);

#endif
