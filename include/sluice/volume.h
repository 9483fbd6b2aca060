/* Volumes: names, access rules, limits; what may be mounted by whom.  The volume layer keeps the list in RAM (an
 * RCU-protected table) and its durable form in the store's tree records, as JSON of its own.
 *
 * Look-ups: any worker, never wait.  Changes: coroutines on a worker (the control plane gets there by
 * worker_call); they return when the change is durable. */
#ifndef SLUICE_VOLUME_H
#define SLUICE_VOLUME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "sluice/store.h"
#include "sluice/volume_tier.h"

enum { VOLUME_NAME_MAX = 64, VOLUME_KEPT_SECONDS = 24 * 3600 };

/* Is a clone being given its own copy of what it shares? */
enum volume_split { VOLUME_SPLIT_NONE, VOLUME_SPLIT_WANTED, VOLUME_SPLIT_PAUSED };

enum volume_squash { VOLUME_SQUASH_ROOT, VOLUME_SQUASH_NONE, VOLUME_SQUASH_ALL };

enum { VOLUME_NOBODY = 65534, VOLUME_RULE_TEXT = 128 }; /* the longest rule as text, with its separator */

/* One access rule: an address range and what it may do.  "host" rules (any address of this machine, never root
 * squashed unless they say so) are written as the word `host`. */
struct volume_rule {
    bool host;
    uint8_t family;     /* AF_INET, AF_INET6, or AF_UNSPEC: `all` */
    uint8_t prefix;     /* bits */
    uint8_t address[16];
    bool write;
    bool secure;        /* only from a port below 1024 */
    bool has_squash;    /* its own, not the volume's */
    enum volume_squash squash;
    uint32_t anon_uid, anon_gid; /* whom the squashed become */
};

struct volume_config {
    char name[VOLUME_NAME_MAX + 1];
    uint64_t size;             /* bytes; 0: no limit */
    uint64_t files;            /* 0: no limit */
    uint64_t reserve_bytes;    /* of the size: left for snapshots, so what it holds now may not take it */
    uint32_t reserve_percent;  /* the same as a part of the size, whatever that is; one of the two is 0 */
    enum volume_squash squash;
    uint32_t rule_count;
    struct volume_rule *rules; /* first match wins; the most specific need not come first: the order given */
    bool read_only;            /* a clone that was not made writable */
    enum volume_split split;
    bool show_snapshots;       /* `.snapshot` is in the listing of the root */
    char policy[VOLUME_NAME_MAX + 1]; /* of its schedule; "" is none */
    int64_t policy_since;             /* when it was given; seconds since 1970 */
    struct store_cache_setting cache;
    bool server_groups; /* groups come from this host's name service, not from the call */
    char tier[TIER_NAME_MAX + 1];     /* "" is unlimited */
    struct tier_limits limits;        /* its own: in the place of the tier's */
    uint64_t min_bandwidth;           /* bytes a second that it gets when others compete; 0: no such promise */
};

/* ---- look-ups ---- */

struct volume_grant {
    bool allowed, write, squash_root, squash_all;
    bool port_refused;     /* a rule matched, but wants a port below 1024 */
    bool server_groups;
    uint32_t anon_uid, anon_gid;
    uint32_t matched_rule; /* index, for the log; ~0: none */
};

/* What `peer` may do in the tree.  `cache` are VOLUME_ACCESS_CACHE words the caller keeps per connection (zero at
 * first): the answer for the connection's last tree is found there without searching the rules.  -ESTALE: no such
 * tree. */
enum { VOLUME_ACCESS_CACHE = 3 };
int volume_access(uint32_t tree, const struct sockaddr_storage *peer, uint64_t cache[VOLUME_ACCESS_CACHE],
                  struct volume_grant *out);

/* A user's groups by the host's name service.  They are kept for `groups-lifetime`, also that there is no such user,
 * and bounded in number.  0 with *count groups (0: the name service knows no such user) in groups[STORE_GROUPS_MAX];
 * SL_EWAIT: not known yet, and the caller is no coroutine.  Workers. */
int volume_user_groups(uint32_t uid, uint32_t *groups, uint32_t *count);
void volume_set_groups_lifetime(unsigned seconds); /* 300 unless set */

/* The credential a caller acts with, after squashing and with read_only set. */
void volume_squash(const struct volume_grant *grant, uint32_t uid, uint32_t gid, const uint32_t *groups,
                   uint32_t group_count, struct store_cred *out);

/* A volume, or a snapshot ("VOL@NAME"), by the name a client mounts.  -ENOENT. */
int volume_by_name(const char *name, size_t length, uint32_t *tree);

/* Each volume in the order of names; what it gets is valid during the call, which must not wait.  Any thread
 * that is registered with liburcu (workers and blocking threads are).  A negative return of
 * each() ends the walk and is given back. */
struct volume_info {
    uint32_t tree;
    const struct volume_config *config;
    int64_t created; /* seconds since 1970 */
    uint32_t origin; /* of a clone: the snapshot it was made from, which may be gone; else 0 */
};
int volume_each(int (*each)(void *arg, const struct volume_info *info), void *arg);

/* ---- snapshots ----
 * A snapshot is a tree of its own (store.h).  volume_access() of it follows its volume's rules and never lets write. */

struct volume_snapshot {
    uint32_t tree, volume;   /* its own number and its volume's */
    uint32_t number;         /* in its volume */
    const char *name;        /* without the volume's */
    const char *by;          /* who took it: "admin", or the kind of a schedule, "hourly" */
    int64_t created;         /* seconds since 1970 */
    int64_t locked_until;    /* 0: not locked */
};
typedef int volume_snapshot_fn(void *arg, const struct volume_snapshot *snapshot);

/* The volume's snapshots in the order in which they were taken, those with a tree number greater than `after`.  What
 * each() gets is valid during the call, which must not wait; a negative return ends the walk and is given back. */
int volume_each_snapshot(uint32_t volume, uint32_t after, volume_snapshot_fn *each, void *arg);
uint32_t volume_snapshot_count(uint32_t volume);
/* -ENOENT. */
int volume_snapshot_by_name(uint32_t volume, const char *name, size_t length, uint32_t *tree);
/* The volume and (unless NULL) the name of a snapshot.  -ESTALE: not the number of a snapshot. */
int volume_snapshot_of(uint32_t tree, uint32_t *volume, char name[VOLUME_NAME_MAX + 1]);
/* True if the address is one of this machine's. Refreshed when it is older than a second. */
bool volume_is_this_host(const struct sockaddr_storage *peer);

/* ---- changes ---- */

/* Who has to know when somebody may no longer use what he has used: called in the coroutine of the change, which is in
 * effect then.  Must not wait. */
struct volume_watcher {
    void (*access_changed)(void);                     /* other rules, or a volume or snapshot is gone */
    void (*restoring)(uint32_t volume, bool begins);  /* before, and after it has been restored or has not */
};
/* One, whose memory stays; main thread, before anything changes. */
void volume_watch(const struct volume_watcher *watcher);

struct store *volume_store(void);          /* the one given to volume_start() */
int volume_start(struct store *store);     /* loads every volume; main thread */
void volume_stop(void);

/* -EEXIST -EINVAL (name, rules); why gets a sentence that says what would be right. */
int volume_create(const struct volume_config *config, uint32_t uid, uint32_t gid, uint32_t mode,
                  uint32_t *tree, char why[256]);
int volume_update(uint32_t tree, const struct volume_config *config, char why[256]); /* rename as well */
/* The same, but change() makes of the present config what it shall be, with nobody else changing any volume or tier
 * meanwhile: two admins never undo each other's work.  It may free and replace config->rules, must not wait, and may
 * refuse with a sentence. */
typedef int volume_change_fn(void *arg, struct volume_config *config, char why[256]);
int volume_change(uint32_t tree, volume_change_fn *change, void *arg, char why[256]);
/* What of its size is left for snapshots: bytes, in whole blocks. */
uint64_t volume_reserve_of(const struct volume_config *config);
/* What tier and limits of its own come to for a volume like this.  Any thread. */
void volume_limits_of(const struct volume_config *config, struct volume_limits *out);
/* Keeps the volume for VOLUME_KEPT_SECONDS, or with `now` not at all: nobody reaches it or its snapshots any more (its
 * handles are STALE), its name is free.  -EBUSY: a snapshot of it is locked. */
int volume_delete(uint32_t tree, bool now, char why[256]);
/* Takes the volume deleted last under `name` back, as `to`.  -ENOENT; -EEXIST: `to` is taken. */
int volume_undelete(const char *name, const char *to, uint32_t *tree, char why[256]);
/* Deleted volumes that are kept, oldest first; `deleted` is when.  Contract as volume_each(). */
int volume_each_deleted(int (*each)(void *arg, const struct volume_info *info, int64_t deleted), void *arg);
/* Lets go of what was deleted VOLUME_KEPT_SECONDS ago.  A clock that jumps ahead by more than an hour between two calls
 * does not count as time that has passed: to be called every few seconds. */
int volume_purge(void);

/* One instant for all `volumes`: each gets a snapshot of this name.  `by` as in struct volume_snapshot; `lock` is until
 * when (0: not).  -EEXIST, -EINVAL (name), -ENOSPC (too many). Nothing is half done. */
int volume_snapshot_create(const uint32_t *volumes, unsigned count, const char *name, const char *by, int64_t lock,
                           uint32_t *snapshots, char why[256]);
/* -EBUSY: locked.  Clones of it live on. */
int volume_snapshot_delete(uint32_t snapshot, char why[256]);
int volume_snapshot_rename(uint32_t snapshot, const char *to, char why[256]);
/* `until` may only be later than it is.  -EINVAL. */
int volume_snapshot_lock(uint32_t snapshot, int64_t until, char why[256]);
/* The volume goes on from the snapshot, which may be any of its own, of its origin's or of its clones'.  All snapshots
 * stay.  `safety` NULL: what the volume held is given up; else it is kept as the snapshot of that name. */
int volume_restore(uint32_t volume, uint32_t snapshot, const char *safety, char why[256]);
/* A new volume from a snapshot: config->name, ->read_only and what else the caller set.  config of the origin is the
 * caller's to copy. -EINVAL: a live volume. */
int volume_clone(uint32_t snapshot, const struct volume_config *config, uint32_t *tree, char why[256]);

/* Has a clone be given its own copy of what it shares, in the background, or pauses that; it goes on after a restart.
 * -EINVAL: no clone, or nothing to pause. */
int volume_split(uint32_t tree, bool pause, char why[256]);
enum volume_split volume_split_state(uint32_t tree);
/* True while it is this volume's turn: how far it is. Any thread. */
bool volume_split_progress(uint32_t tree, uint64_t *bytes, uint64_t *total);
/* Works on what is wanted until nothing is; one at a time.  To be called now and then.  Coroutine. */
void volume_split_some(void);
/* Ends it soon, for the server stops. */
void volume_split_stop(void);

/* ---- policies: which snapshots are taken by themselves, and how many are kept ----
 * Times of day are UTC.  What was taken by a kind of a policy is known by `by`, so nothing else is ever deleted. */

enum { POLICY_KEEPS_MOST = 5, POLICY_PREFIX_MAX = 31 };
enum policy_period { POLICY_EVERY, POLICY_HOURLY, POLICY_DAILY, POLICY_WEEKLY, POLICY_MONTHLY };
struct volume_policy {
    char name[VOLUME_NAME_MAX + 1];
    bool built_in; /* "default", "none" */
    unsigned count;
    struct policy_keep {
        enum policy_period period;
        uint32_t keep;              /* so many; the oldest goes first */
        uint32_t every;             /* seconds: POLICY_EVERY, at multiples since midnight UTC 1970 */
        uint8_t minute, hour;       /* of the others */
        uint8_t day;                /* weekly: 0 Sunday to 6; monthly: 1 to 28 */
        int64_t lock;               /* seconds for which each is locked; 0: not */
        char prefix[POLICY_PREFIX_MAX + 1]; /* of its snapshots' names: "hourly" unless told otherwise */
    } keeps[POLICY_KEEPS_MOST];
};

/* "hourly=6@:05,daily=2@00:10,weekly=2@sun-00:15,monthly=1@1-00:20,every=15m:4", each with /prefix=NAME and /lock=7d
 * behind it where wanted; the times shown are the defaults.  -EINVAL with the word that is wrong. */
int policy_parse(const char *name, const char *text, struct volume_policy *out, char why[256]);
void policy_format(const struct volume_policy *policy, char *to, size_t room); /* the same text back */
/* The last time at or before `now` at which this one is due. */
int64_t policy_due(const struct policy_keep *keep, int64_t now);

/* By name; -ENOENT. Any thread. */
int policy_get(const char *name, struct volume_policy *out);
/* In the order of names; contract as volume_each(). */
int policy_each(int (*each)(void *arg, const struct volume_policy *policy), void *arg);
/* Changes, as those of volumes.  -EEXIST with `replace` false; -EINVAL: built in; delete: -EBUSY: a volume has it. */
int policy_put(const struct volume_policy *policy, bool replace, char why[256]);
int policy_delete(const char *name, char why[256]);

/* Takes what is due and deletes what is too many, for every volume: to be called every few seconds.  What was
 * missed is taken once.  A clock that was set back starts again from where it is. Coroutine. */
void volume_schedule(void);

/* The clock that all of this goes by, in seconds since 1970: the host's, or what a test makes up. NULL: the host's. */
void volume_set_clock(int64_t (*clock)(void));
int64_t volume_now(void);

/* ---- texts ---- */

/* 1 to 64 of A-Z a-z 0-9 . _ -, not "." or ".."; -EINVAL with a sentence. */
int volume_name_check(const char *name, char why[256]);
/* "10.0.0.0/8:rw,host:rw,[fd00::]/8:ro" (also without brackets: fd00::/8:ro); the word `all` is every address.
 * Default access is rw.  Rules are owned by the caller (free).  -EINVAL with the word that is wrong. */
int volume_rules_parse(const char *text, struct volume_rule **rules, uint32_t *count, char why[256]);
/* The same text back; at most `room` bytes. */
void volume_rules_format(const struct volume_rule *rules, uint32_t count, char *to, size_t room);
int volume_squash_parse(const char *text, enum volume_squash *out);
const char *volume_squash_text(enum volume_squash squash);
/* auto, lru or epoch. */
int volume_cache_parse(const char *text, enum store_cache_policy *out);
const char *volume_cache_text(enum store_cache_policy policy);
/* "40%", "64G", or "none", which "100%" is as well.  -EINVAL. */
int volume_cache_share_parse(const char *text, struct store_cache_setting *out);
void volume_cache_share_format(const struct store_cache_setting *setting, char to[32]);
/* "20%", up to 90%, a size such as "500G", or "none".  -EINVAL. */
int volume_reserve_parse(const char *text, struct volume_config *out);
void volume_reserve_format(const struct volume_config *config, char to[32]);

#endif
