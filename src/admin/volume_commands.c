#include <stdlib.h>
#include <string.h>

#include "admin/commands.h"
#include "admin/volume_config.h"
#include "sluice/base_worker.h"
#include "sluice/volume_gate.h"

/* ---- create ---- */

static int take_setting(struct request *r, struct volume_settings *s, const char *key,
                        const char *fallback, char why[256])
{
    json_t *value = json_object_get(r->args, key);
    if (value && !json_is_string(value)) {
        snprintf(why, 256, "%s must be a text", key);
        return -EINVAL;
    }
    const char *text = value ? json_string_value(value) : fallback;
    return text ? settings_set(s, key, text, why) : 0;
}

static json_t *created(const struct volume_settings *s, uint32_t tree)
{
    char warning[512];
    settings_nobody_writes(s, warning);
    json_t *answer = json_pack("{s:s, s:I}", "name", s->config->name, "number", (json_int_t)tree);
    if (*warning)
        json_object_set_new(answer, "warning", json_string(warning));
    return answer;
}

json_t *command_volume_create(struct request *r)
{
    static const char *const keys[][2] = {
        {"size", NULL}, {"files", NULL}, {"allow", "host:rw"}, {"squash", "root"}, {"owner", NULL}, {"mode", "0755"},
        {"tier", NULL}};
    struct volume_config config = {0};
    struct volume_settings s = {.config = &config, .uid = r->uid, .gid = r->gid};
    const char *name = request_text(r, "name");
    char why[256];
    uint32_t tree = 0;
    if (!name)
        return request_error(-EINVAL, "the request has no \"name\" for the new volume");
    int error = volume_name_check(name, why);
    if (!error)
        snprintf(config.name, sizeof config.name, "%s", name);
    for (size_t i = 0; !error && i < sizeof keys / sizeof keys[0]; i++)
        error = take_setting(r, &s, keys[i][0], keys[i][1], why);
    if (!error)
        error = volume_create(&config, s.uid, s.gid, s.mode, &tree, why);
    json_t *answer = error ? request_error(error, "%s", why) : created(&s, tree);
    free(config.rules);
    return answer;
}

/* ---- list, show ---- */

struct copies {
    struct volume_copy *at;
    size_t count, room;
};

static int copy_volume(void *arg, const struct volume_info *info)
{
    struct copies *all = arg;
    if (all->count == all->room) {
        size_t room = all->room ? 2 * all->room : 32;
        struct volume_copy *more = realloc(all->at, room * sizeof *more);
        if (!more)
            return -ENOMEM;
        all->at = more;
        all->room = room;
    }
    int error = volume_copy(&all->at[all->count], info);
    all->count += !error;
    return error;
}

static int copy_deleted(void *arg, const struct volume_info *info, int64_t deleted)
{
    int error = copy_volume(arg, info);
    if (!error) {
        struct copies *all = arg;
        all->at[all->count - 1].deleted = deleted;
    }
    return error;
}

static int root_attributes(uint32_t tree, struct store_attr *attr)
{
    struct store *s = volume_store();
    struct store_object root;
    int error = s->ops->root(s, tree, &root);
    return error ? error : s->ops->getattr(s, &root, attr);
}

static void add_owner(json_t *to, uint32_t tree)
{
    struct store_attr attr;
    char owner[32], mode[8];
    if (root_attributes(tree, &attr))
        return;
    snprintf(owner, sizeof owner, "%u:%u", attr.uid, attr.gid);
    snprintf(mode, sizeof mode, "%04o", attr.mode & 07777);
    json_object_set_new(to, "owner", json_string(owner));
    json_object_set_new(to, "mode", json_string(mode));
}

static void add_usage(json_t *to, uint32_t tree)
{
    struct store *s = volume_store();
    struct store_usage usage;
    if (s->ops->usage(s, tree, &usage))
        return;
    json_object_set_new(to, "bytes_used", json_integer((json_int_t)usage.bytes_used));
    json_object_set_new(to, "bytes_available", json_integer((json_int_t)usage.bytes_available));
    json_object_set_new(to, "files", json_integer((json_int_t)usage.files_used));
}

/* What it is a clone of, its snapshots, and when it was deleted. */
static void add_versions(json_t *to, const struct volume_copy *v)
{
    uint32_t volume;
    char name[VOLUME_NAME_MAX + 1], origin[2 * VOLUME_NAME_MAX + 2] = "gone";
    struct volume_copy from;
    if (v->origin && !volume_snapshot_of(v->origin, &volume, name)) {
        json_t *problem = volume_copy_of(volume, &from);
        if (problem) {
            json_decref(problem);
        } else {
            snprintf(origin, sizeof origin, "%s@%s", from.config.name, name);
            free(from.config.rules);
        }
    }
    if (v->origin)
        json_object_set_new(to, "origin", json_string(origin));
    if (v->config.split != VOLUME_SPLIT_NONE)
        json_object_set_new(to, "split",
                            json_string(v->config.split == VOLUME_SPLIT_PAUSED ? "paused" : "running"));
    json_object_set_new(to, "writable", json_boolean(!v->config.read_only));
    json_object_set_new(to, "show_snapshots", json_boolean(v->config.show_snapshots));
    json_object_set_new(to, "policy", json_string(*v->config.policy ? v->config.policy : "none"));
    json_object_set_new(to, "snapshots", json_integer(volume_snapshot_count(v->tree)));
    if (v->deleted)
        json_object_set_new(to, "deleted", json_integer(v->deleted));
}

static void add_cache(json_t *to, const struct volume_copy *v)
{
    struct store *s = volume_store();
    struct store_cache_stats stats;
    char share[32];
    volume_cache_share_format(&v->config.cache, share);
    json_object_set_new(to, "cache", json_string(volume_cache_text(v->config.cache.policy)));
    json_object_set_new(to, "cache_share", json_string(share));
    if (s->ops->tree_cache_stats(s, v->tree, &stats))
        return;
    json_object_set_new(to, "cache_now", json_string(volume_cache_text(stats.keeps ? STORE_CACHE_EPOCH
                                                                                   : STORE_CACHE_LRU)));
    json_object_set_new(to, "cache_held_bytes", json_integer((json_int_t)stats.held_bytes));
    json_object_set_new(to, "cache_read_bytes", json_integer((json_int_t)stats.read_bytes));
    json_object_set_new(to, "cache_disk_bytes", json_integer((json_int_t)stats.disk_bytes));
}

/* The tier, the volume's own limits as they were set, and what both come to: 0 is no limit. */
static void add_limits(json_t *to, const struct volume_copy *v)
{
    struct volume_limits limits;
    volume_limits_of(&v->config, &limits);
    json_object_set_new(to, "tier", json_string(*v->config.tier ? v->config.tier : "unlimited"));
    json_object_set_new(to, "own_limits", limits_texts(&v->config.limits));
    json_object_set_new(
        to, "limits",
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "bandwidth", (json_int_t)limits.bandwidth[TIER_TOGETHER],
                  "read_bandwidth", (json_int_t)limits.bandwidth[TIER_READS], "write_bandwidth",
                  (json_int_t)limits.bandwidth[TIER_WRITES], "iops", (json_int_t)limits.iops[TIER_TOGETHER],
                  "read_iops", (json_int_t)limits.iops[TIER_READS], "write_iops",
                  (json_int_t)limits.iops[TIER_WRITES], "burst_ms", (json_int_t)(limits.burst_ns / 1000000),
                  "min_bandwidth", (json_int_t)limits.min_bandwidth));
}

static void add_space(json_t *to, const struct volume_copy *v)
{
    char reserve[32];
    volume_reserve_format(&v->config, reserve);
    json_object_set_new(to, "files_limit", json_integer((json_int_t)v->config.files));
    json_object_set_new(to, "snapshot_reserve", json_string(reserve));
    json_object_set_new(to, "snapshot_reserve_bytes", json_integer((json_int_t)volume_reserve_of(&v->config)));
}

static json_t *describe(const struct volume_copy *v)
{
    size_t room = (size_t)v->config.rule_count * VOLUME_RULE_TEXT + 1;
    char *allow = malloc(room);
    if (!allow)
        return NULL;
    volume_rules_format(v->config.rules, v->config.rule_count, allow, room);
    json_t *answer = json_pack("{s:s, s:I, s:I, s:s, s:s, s:I}", "name", v->config.name, "number",
                               (json_int_t)v->tree, "size", (json_int_t)v->config.size, "allow", allow,
                               "squash", volume_squash_text(v->config.squash), "created",
                               (json_int_t)v->created);
    free(allow);
    if (answer) {
        json_object_set_new(answer, "groups", json_string(v->config.server_groups ? "server" : "client"));
        add_owner(answer, v->tree);
        add_usage(answer, v->tree);
        add_versions(answer, v);
        add_cache(answer, v);
        add_limits(answer, v);
        add_space(answer, v);
    }
    return answer;
}

json_t *command_volume_list(struct request *r)
{
    struct copies all = {0};
    bool deleted = json_is_true(json_object_get(r->args, "deleted"));
    int error = deleted ? volume_each_deleted(copy_deleted, &all) : volume_each(copy_volume, &all);
    json_t *list = json_array();
    for (size_t i = 0; i < all.count; i++) {
        if (!error && json_array_append_new(list, describe(&all.at[i])))
            error = -ENOMEM;
        free(all.at[i].config.rules);
    }
    free(all.at);
    if (!error)
        return json_pack("{s:o}", "volumes", list);
    json_decref(list);
    return request_error(error, "the list cannot be made: %s", sl_strerror(error));
}

struct patience {
    struct request *r;
    uint64_t until_ns;
};

static bool still_patient(void *arg)
{
    const struct patience *p = arg;
    return !request_gone(p->r) && clock_monotonic_ns() < p->until_ns;
}

/* Takes time for what has changed since the oldest snapshot: so it is not in the list, and missing where it would take
 * too long. */
static void add_held(json_t *to, struct request *r, uint32_t tree)
{
    static const uint64_t patience_ns = 3000000000;
    struct patience patience = {r, clock_monotonic_ns() + patience_ns};
    struct store *s = volume_store();
    uint64_t held;
    if (volume_snapshot_count(tree) && !s->ops->snapshots_held(s, tree, still_patient, &patience, &held))
        json_object_set_new(to, "snapshots_held_bytes", json_integer((json_int_t)held));
}

json_t *command_volume_show(struct request *r)
{
    struct volume_copy v;
    json_t *answer = request_volume(r, "name", &v);
    if (answer)
        return answer;
    json_t *shown = describe(&v);
    if (shown)
        add_held(shown, r, v.tree);
    free(v.config.rules);
    return json_pack("{s:o}", "volume", shown);
}

/* ---- set ---- */

/* "set" is a list of "KEY=VALUE".  A tier goes first, wherever it stands: it takes the volume's own limits away. */
static int take_assignments(json_t *list, bool tiers, struct volume_settings *s, char why[256])
{
    size_t i;
    json_t *item;
    if (!json_is_array(list) || json_array_size(list) == 0) {
        snprintf(why, 256, "nothing to set; right would be KEY=VALUE, for example size=2T");
        return -EINVAL;
    }
    json_array_foreach (list, i, item) {
        const char *text = json_string_value(item);
        const char *equals = text ? strchr(text, '=') : NULL;
        char key[64];
        if (!equals || (size_t)(equals - text) >= sizeof key) {
            snprintf(why, 256, "'%.80s': right would be KEY=VALUE, for example size=2T",
                     text ? text : "?");
            return -EINVAL;
        }
        snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
        if ((strcmp(key, "tier") == 0) != tiers)
            continue;
        int error = settings_set(s, key, equals + 1, why);
        if (error)
            return error;
    }
    return 0;
}

static int set_root(uint32_t tree, const struct volume_settings *s, char why[256])
{
    struct store *store = volume_store();
    struct store_object root;
    struct store_wcc wcc;
    struct store_setattr set = {.uid = s->uid, .gid = s->gid, .mode = s->mode};
    set.set = (s->owner_set ? STORE_SET_UID | STORE_SET_GID : 0) | (s->mode_set ? STORE_SET_MODE : 0);
    if (!set.set)
        return 0;
    int error = store->ops->root(store, tree, &root);
    if (!error)
        error = store->ops->setattr(store, &root_cred, &root, &set, NULL, &wcc);
    if (error)
        snprintf(why, 256, "owner and mode are as they were: %s", sl_strerror(error));
    return error;
}

static void fill_root(uint32_t tree, struct volume_settings *s)
{
    struct store_attr attr;
    if (root_attributes(tree, &attr))
        return;
    if (!s->owner_set) {
        s->uid = attr.uid;
        s->gid = attr.gid;
    }
    if (!s->mode_set)
        s->mode = attr.mode;
}

struct assignments {
    json_t *list;
    struct volume_settings settings;
};

static int assign(void *arg, struct volume_config *config, char why[256])
{
    struct assignments *a = arg;
    a->settings = (struct volume_settings){.config = config};
    int error = take_assignments(a->list, true, &a->settings, why);
    return error ? error : take_assignments(a->list, false, &a->settings, why);
}

static json_t *describe_changed(uint32_t tree, struct volume_settings *s)
{
    struct volume_copy v;
    char warning[512];
    json_t *answer = volume_copy_of(tree, &v);
    if (answer)
        return answer;
    s->config = &v.config;
    fill_root(tree, s);
    settings_nobody_writes(s, warning);
    answer = json_pack("{s:o}", "volume", describe(&v));
    if (*warning)
        json_object_set_new(answer, "warning", json_string(warning));
    free(v.config.rules);
    return answer;
}

json_t *command_volume_set(struct request *r)
{
    struct assignments a = {.list = json_object_get(r->args, "set")};
    struct volume_copy v;
    char why[256];
    json_t *answer = request_volume(r, "name", &v);
    if (answer)
        return answer;
    free(v.config.rules);
    int error = volume_change(v.tree, assign, &a, why);
    if (!error)
        error = set_root(v.tree, &a.settings, why);
    return error ? request_error(error, "%s", why) : describe_changed(v.tree, &a.settings);
}

/* ---- rename, delete ---- */

static int set_name(void *arg, struct volume_config *config, char why[256])
{
    const char *to = arg;
    int error = volume_name_check(to, why);
    if (!error)
        snprintf(config->name, sizeof config->name, "%s", to);
    return error;
}

json_t *command_volume_rename(struct request *r)
{
    struct volume_copy v;
    char why[256];
    const char *to = request_text(r, "to");
    json_t *answer = request_volume(r, "name", &v);
    if (answer)
        return answer;
    free(v.config.rules);
    if (!to)
        return request_error(-EINVAL, "the request has no \"to\", the new name");
    int error = volume_change(v.tree, set_name, (void *)to, why);
    return error ? request_error(error, "%s", why) : json_object();
}

json_t *command_volume_delete(struct request *r)
{
    struct volume_copy v;
    char why[256];
    json_t *answer = request_volume(r, "name", &v);
    if (answer)
        return answer;
    free(v.config.rules);
    bool now = json_is_true(json_object_get(r->args, "now"));
    int error = volume_delete(v.tree, now, why);
    if (error)
        return request_error(error, "%s", why);
    return json_pack("{s:I}", "kept_seconds", (json_int_t)(now ? 0 : VOLUME_KEPT_SECONDS));
}

json_t *command_volume_undelete(struct request *r)
{
    const char *name = request_text(r, "name"), *to = request_text(r, "to");
    char why[256];
    uint32_t tree;
    if (!name)
        return request_error(-EINVAL, "the request has no \"name\", which the volume had");
    int error = volume_undelete(name, to ? to : name, &tree, why);
    return error ? request_error(error, "%s", why) : json_pack("{s:s}", "name", to ? to : name);
}
