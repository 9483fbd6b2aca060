/* The commands of the control socket.  Each runs in a coroutine and returns its final answer: an object with the
 * result ("ok":true is added), or request_error(). NULL: no memory. */
#ifndef SLUICE_ADMIN_COMMANDS_H
#define SLUICE_ADMIN_COMMANDS_H

#include <netinet/in.h>

#include "admin/control.h"
#include "admin/options.h"
#include "sluice/volume.h"

/* Set once before the control socket listens. */
extern const struct options *commands_options;
extern time_t commands_started;

json_t *command_run(struct request *r);

json_t *command_status(struct request *r);
json_t *command_metrics(struct request *r);
json_t *command_stats(struct request *r);
json_t *command_clients(struct request *r);
json_t *command_clients_evict(struct request *r); /* client_commands.c */
json_t *command_activity(struct request *r);
json_t *command_events(struct request *r);
json_t *command_settle(struct request *r);
json_t *command_volume_create(struct request *r);
json_t *command_volume_list(struct request *r);
json_t *command_volume_show(struct request *r);
json_t *command_volume_set(struct request *r);
json_t *command_volume_rename(struct request *r);
json_t *command_volume_delete(struct request *r);
json_t *command_volume_undelete(struct request *r);
json_t *command_snapshot_create(struct request *r);
json_t *command_snapshot_list(struct request *r);
json_t *command_snapshot_delete(struct request *r);
json_t *command_snapshot_rename(struct request *r);
json_t *command_snapshot_lock(struct request *r);
json_t *command_policy_create(struct request *r);
json_t *command_policy_change(struct request *r);
json_t *command_policy_list(struct request *r);
json_t *command_policy_delete(struct request *r);
json_t *command_access_check(struct request *r); /* access_commands.c */
json_t *command_tier_create(struct request *r);
json_t *command_tier_list(struct request *r);
json_t *command_tier_set(struct request *r);
json_t *command_tier_delete(struct request *r);
json_t *command_diff(struct request *r);
json_t *command_restore(struct request *r);
json_t *command_clone_create(struct request *r);
json_t *command_clone_split(struct request *r);
json_t *command_mount(struct request *r);
json_t *command_ls(struct request *r);
json_t *command_cat(struct request *r);
json_t *command_import(struct request *r);
json_t *command_warm(struct request *r);
json_t *command_pool_check(struct request *r);
json_t *command_pool_scrub(struct request *r);

/* {"bandwidth":"2G/s"}: what is set, as it is typed. */
json_t *limits_texts(const struct tier_limits *limits);

/* A string argument, or NULL. */
const char *request_text(const struct request *r, const char *key);

/* A volume's copy, taken out of the table: free volume->config.rules. */
struct volume_copy {
    uint32_t tree, origin;
    int64_t created;
    struct volume_config config;
    int64_t deleted; /* 0: it is not */
};
/* The volume that args names under `key`.  NULL when found, else the answer. */
json_t *request_volume(const struct request *r, const char *key, struct volume_copy *out);

/* The tree of a volume, or of a snapshot: "VOL@NAME".  NULL when found, else the answer. */
json_t *request_tree(const struct request *r, const char *key, uint32_t *tree);
int volume_copy(struct volume_copy *to, const struct volume_info *info); /* -ENOMEM */
json_t *volume_copy_of(uint32_t tree, struct volume_copy *out);           /* the same by number */
/* The snapshot that "VOL@NAME" names, and its volume.  NULL when found, else the answer. */
json_t *snapshot_find(const char *text, uint32_t *volume, uint32_t *snapshot);

/* NFSv4's clients, an array; NULL: no memory (client_commands.c). */
json_t *describe_nfs4_clients(void);

/* ---- addresses of hosts (address.c) ---- */

enum { ADDRESS_ROOM = INET6_ADDRSTRLEN };
bool address_parse(const char *text, struct sockaddr_storage *address); /* its port is 0 */
const char *address_text(char to[ADDRESS_ROOM], const struct sockaddr_storage *address);

/* ---- paths in a volume (paths.c) ---- */

/* Walks an absolute path from the volume's root as `cred`; symbolic links are not followed.  On failure *at is
 * the number of bytes of `path` that were found. */
int path_find(uint32_t tree, const struct store_cred *cred, const char *path, size_t length,
              struct store_object *out, size_t *at);
extern const struct store_cred root_cred;

#endif
