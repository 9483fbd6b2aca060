#include "admin/volume_config.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "sluice/base_text.h"

enum { NOBODY = 65534 };

static int parse_id(const char *text, uint32_t *id)
{
    if (!isdigit((unsigned char)*text))
        return -EINVAL;
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (*end || errno || value >= UINT32_MAX)
        return -EINVAL;
    *id = (uint32_t)value;
    return 0;
}

static int set_owner(struct volume_settings *s, const char *value, char why[256])
{
    char user[32];
    const char *colon = strchr(value, ':');
    size_t length = colon ? (size_t)(colon - value) : 0;
    if (length > 0 && length < sizeof user) {
        memcpy(user, value, length);
        user[length] = 0;
        if (!parse_id(user, &s->uid) && !parse_id(colon + 1, &s->gid)) {
            s->owner_set = true;
            return 0;
        }
    }
    snprintf(why, 256, "owner '%.60s': right would be UID:GID in numbers, for example 1000:1000", value);
    return -EINVAL;
}

static int set_mode(struct volume_settings *s, const char *value, char why[256])
{
    char *end;
    unsigned long mode = strtoul(value, &end, 8);
    if (!isdigit((unsigned char)*value) || *end || mode > 07777) {
        snprintf(why, 256, "mode '%.60s': right would be octal digits, for example 0755", value);
        return -EINVAL;
    }
    s->mode = (uint32_t)mode;
    s->mode_set = true;
    return 0;
}

static int set_size(struct volume_settings *s, const char *value, char why[256])
{
    if (strcmp(value, "none") == 0) {
        s->config->size = 0;
        return 0;
    }
    uint64_t size = 0;
    int error = size_parse(value, &size);
    if (!error && size) {
        s->config->size = size;
        return 0;
    }
    snprintf(why, 256, "size '%.60s': right would be 500G, 1.5Ti, plain bytes, or none for no limit", value);
    return -EINVAL;
}

static int set_files(struct volume_settings *s, const char *value, char why[256])
{
    uint64_t files = 0;
    if (strcmp(value, "none") != 0 && (size_parse(value, &files) || !files)) {
        snprintf(why, 256, "files '%.60s': right would be a number, like 5M or 200000, or none for no limit", value);
        return -EINVAL;
    }
    s->config->files = files;
    return 0;
}

static int set_reserve(struct volume_settings *s, const char *value, char why[256])
{
    int error = volume_reserve_parse(value, s->config);
    if (error)
        snprintf(why, 256, "snapshot-reserve '%.60s': right would be 1%% to 90%% of the size, a size such as 500G, or "
                 "none", value);
    return error;
}

static int set_allow(struct volume_settings *s, const char *value, char why[256])
{
    struct volume_rule *rules;
    uint32_t count;
    int error = volume_rules_parse(value, &rules, &count, why);
    if (error)
        return error;
    free(s->config->rules);
    s->config->rules = rules;
    s->config->rule_count = count;
    return 0;
}

static int set_squash(struct volume_settings *s, const char *value, char why[256])
{
    int error = volume_squash_parse(value, &s->config->squash);
    if (error)
        snprintf(why, 256, "squash '%.60s': right would be root, none or all", value);
    return error;
}

static int set_groups(struct volume_settings *s, const char *value, char why[256])
{
    if (strcmp(value, "client") == 0 || strcmp(value, "server") == 0) {
        s->config->server_groups = *value == 's';
        return 0;
    }
    snprintf(why, 256, "groups '%.60s': right would be client or server", value);
    return -EINVAL;
}

static int set_flag(const char *key, const char *value, bool *to, char why[256])
{
    if (strcmp(value, "yes") == 0 || strcmp(value, "no") == 0) {
        *to = *value == 'y';
        return 0;
    }
    snprintf(why, 256, "%s '%.60s': right would be yes or no", key, value);
    return -EINVAL;
}

static int set_writable(struct volume_settings *s, const char *value, char why[256])
{
    bool writable = !s->config->read_only;
    int error = set_flag("writable", value, &writable, why);
    s->config->read_only = !writable;
    return error;
}

static int set_policy(struct volume_settings *s, const char *value, char why[256])
{
    struct volume_policy policy;
    if (policy_get(value, &policy)) {
        snprintf(why, 256, "there is no policy '%.80s'; sluice policy list shows those there are", value);
        return -ENOENT;
    }
    snprintf(s->config->policy, sizeof s->config->policy, "%s", policy.count ? value : "");
    s->config->policy_since = volume_now();
    return 0;
}

static int set_show_snapshots(struct volume_settings *s, const char *value, char why[256])
{
    return set_flag("show-snapshots", value, &s->config->show_snapshots, why);
}

static int set_cache(struct volume_settings *s, const char *value, char why[256])
{
    int error = volume_cache_parse(value, &s->config->cache.policy);
    if (error)
        snprintf(why, 256, "cache '%.60s': right would be auto, lru or epoch", value);
    return error;
}

static int set_cache_share(struct volume_settings *s, const char *value, char why[256])
{
    int error = volume_cache_share_parse(value, &s->config->cache);
    if (error)
        snprintf(why, 256, "cache-share '%.60s': right would be 1%% to 100%% of the cache, a size such as 64G, or none",
                 value);
    return error;
}

/* Limits of its own that were set before stand no more: the last word is the tier's. */
static int set_tier(struct volume_settings *s, const char *value, char why[256])
{
    struct volume_tier tier;
    int error = tier_find(strcmp(value, "none") == 0 ? "unlimited" : value, &tier, why);
    if (error)
        return error;
    snprintf(s->config->tier, sizeof s->config->tier, "%s", strcmp(tier.name, "unlimited") == 0 ? "" : tier.name);
    s->config->limits = (struct tier_limits){0};
    return 0;
}

static int set_min_bandwidth(struct volume_settings *s, const char *value, char why[256])
{
    return tier_minimum_parse(value, &s->config->min_bandwidth, why);
}

static void look(void *arg, const char *key)
{
    text_nearest_look(arg, key);
}

int settings_set(struct volume_settings *s, const char *key, const char *value, char why[256])
{
    static const struct {
        const char *key;
        int (*set)(struct volume_settings *s, const char *value, char why[256]);
    } keys[] = {{"size", set_size}, {"files", set_files}, {"snapshot-reserve", set_reserve},
                {"allow", set_allow}, {"squash", set_squash}, {"groups", set_groups},
                {"owner", set_owner}, {"mode", set_mode},
                {"writable", set_writable}, {"show-snapshots", set_show_snapshots},
                {"policy", set_policy}, {"cache", set_cache}, {"cache-share", set_cache_share},
                {"tier", set_tier}, {"min-bandwidth", set_min_bandwidth}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(key, keys[i].key) == 0)
            return keys[i].set(s, value, why);
    int error = tier_limit_set(&s->config->limits, key, value, why);
    if (error != -ENOENT)
        return error;
    struct text_nearest nearest = {.word = key};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        text_nearest_look(&nearest, keys[i].key);
    tier_each_key(look, &nearest);
    const char *meant = text_nearest(&nearest);
    snprintf(why, 256, "unknown key '%.60s'; %s%s%ssluice help volume set lists those there are", key,
             *meant ? "did you mean '" : "", meant, *meant ? "'? " : "");
    return -EINVAL;
}

/* ---- who can write ---- */

static bool others_write(const struct volume_settings *s)
{
    if (s->mode & 02)
        return true;
    if (s->config->squash == VOLUME_SQUASH_ALL)
        return (s->uid == NOBODY && s->mode & 0200) || (s->gid == NOBODY && s->mode & 020);
    return (s->uid != 0 && s->mode & 0200) || (s->gid != 0 && s->mode & 020);
}

void settings_nobody_writes(const struct volume_settings *s, char to[512])
{
    const struct volume_config *c = s->config;
    bool any = false, host = false;
    for (uint32_t i = 0; i < c->rule_count; i++) {
        any = any || c->rules[i].write;
        host = host || (c->rules[i].host && c->rules[i].write);
    }
    to[0] = 0;
    if (c->rule_count == 0)
        snprintf(to, 512, "no rule lets anyone in; sluice volume set %s allow=host:rw lets this host in",
                 c->name);
    else if (!any)
        snprintf(to, 512, "nobody can write: every rule is ro; sluice volume set %s allow=host:rw lets "
                 "this host write", c->name);
    else if (others_write(s) || (c->squash != VOLUME_SQUASH_ALL && (host || c->squash == VOLUME_SQUASH_NONE)))
        return;
    else if (c->squash == VOLUME_SQUASH_ALL)
        snprintf(to, 512, "nobody can write: squash=all makes everyone 65534, who does not own the volume; "
                 "sluice volume set %s owner=65534:65534 mode=0755 helps", c->name);
    else
        snprintf(to, 512, "nobody can write: root owns the volume, and squash=root makes other hosts' root "
                 "65534; sluice volume set %s squash=none lets their root write; "
                 "sluice volume set %s owner=1000:1000 mode=0755 gives it to uid 1000", c->name, c->name);
}
