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

enum { VOLUME_NAME_MAX = 64 };

enum volume_squash { VOLUME_SQUASH_ROOT, VOLUME_SQUASH_NONE, VOLUME_SQUASH_ALL };

/* One access rule: an address range and what it may do.  "host" rules (any address of this machine, never root
 * squashed) are written as the word `host`. */
struct volume_rule {
    bool host;
    uint8_t family;     /* AF_INET, AF_INET6, or AF_UNSPEC: `all` */
    uint8_t prefix;     /* bits */
    uint8_t address[16];
    bool write;
};

struct volume_config {
    char name[VOLUME_NAME_MAX + 1];
    uint64_t size; /* bytes; 0: no limit */
    enum volume_squash squash;
    uint32_t rule_count;
    struct volume_rule *rules; /* first match wins; the most specific need not come first: the order given */
};

/* ---- look-ups ---- */

struct volume_grant {
    bool allowed, write, squash_root, squash_all;
    uint32_t matched_rule; /* index, for the log; ~0: none */
};

/* What `peer` may do in the tree.  `cache` are two words the caller keeps per connection (zero at first): the
 * answer for the connection's last tree is found there without searching the rules.  -ESTALE: no such tree. */
int volume_access(uint32_t tree, const struct sockaddr_storage *peer, uint64_t cache[2],
                  struct volume_grant *out);

/* The credential a caller acts with, after squashing (65534:65534) and with read_only set. */
void volume_squash(const struct volume_grant *grant, uint32_t uid, uint32_t gid, const uint32_t *groups,
                   uint32_t group_count, struct store_cred *out);

/* A volume by the name a client mounts.  -ENOENT. */
int volume_by_name(const char *name, size_t length, uint32_t *tree);

/* Each volume in the order of names; what it gets is valid during the call, which must not wait.  Any thread
 * that is registered with liburcu (workers and blocking threads are).  A negative return of
 * each() ends the walk and is given back. */
struct volume_info {
    uint32_t tree;
    const struct volume_config *config;
    int64_t created; /* seconds since 1970 */
};
int volume_each(int (*each)(void *arg, const struct volume_info *info), void *arg);

/* True if the address is one of this machine's. Refreshed when it is older than a second. */
bool volume_is_this_host(const struct sockaddr_storage *peer);

/* ---- changes ---- */

struct store *volume_store(void);          /* the one given to volume_start() */
int volume_start(struct store *store);     /* loads every volume; main thread */
void volume_stop(void);

/* -EEXIST -EINVAL (name, rules); why gets a sentence that says what would be right. */
int volume_create(const struct volume_config *config, uint32_t uid, uint32_t gid, uint32_t mode,
                  uint32_t *tree, char why[256]);
int volume_update(uint32_t tree, const struct volume_config *config, char why[256]); /* rename as well */
int volume_delete(uint32_t tree, char why[256]);

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

#endif
