#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "volume/rules.h"
#include "volume/table.h"

static int put(json_t *to, const char *key, json_t *value)
{
    return value ? json_object_set_new(to, key, value) : -1;
}

/* Where it is 0 the key is not there. */
static int put_flag(json_t *to, const char *key, int64_t value)
{
    json_object_del(to, key);
    return value ? put(to, key, json_integer(value)) : 0;
}

/* Where it is "" the key is not there. */
static int put_name(json_t *to, const char *key, const char *name)
{
    json_object_del(to, key);
    return *name ? put(to, key, json_string(name)) : 0;
}

/* With the size, since the store has only what is left of it. */
static int put_reserve(json_t *to, const struct volume_config *config)
{
    char reserve[32];
    volume_reserve_format(config, reserve);
    bool none = strcmp(reserve, "none") == 0;
    return put_name(to, "snapshot_reserve", none ? "" : reserve) ||
           put_flag(to, "size", none ? 0 : (int64_t)config->size);
}

static void put_limit(void *arg, const char *key, const char *text)
{
    json_object_set_new(arg, key, json_string(text));
}

static int put_limits(json_t *to, const struct tier_limits *limits)
{
    json_t *all = json_object();
    json_object_del(to, "limits");
    if (!all)
        return -1;
    tier_limit_each(limits, put_limit, all);
    if (json_object_size(all))
        return put(to, "limits", all);
    json_decref(all);
    return 0;
}

/* What is not the default. */
static int put_cache(json_t *to, const struct store_cache_setting *cache)
{
    char share[32];
    json_object_del(to, "cache");
    json_object_del(to, "cache_share");
    volume_cache_share_format(cache, share);
    if (cache->policy != STORE_CACHE_AUTO && put(to, "cache", json_string(volume_cache_text(cache->policy))))
        return -1;
    return strcmp(share, "none") ? put(to, "cache_share", json_string(share)) : 0;
}

char *props_dump(const struct volume *v)
{
    size_t room = (size_t)v->config.rule_count * VOLUME_RULE_TEXT + 1;
    char *allow = malloc(room), *text = NULL;
    json_t *all = v->props ? json_deep_copy(v->props) : json_object();
    if (allow && all) {
        volume_rules_format(v->config.rules, v->config.rule_count, allow, room);
        if (!put(all, "name", json_string(v->config.name)) &&
            !put(all, "squash", json_string(volume_squash_text(v->config.squash))) &&
            !put(all, "allow", json_string(allow)) &&
            !put(all, "created", json_integer(v->created)) && !put_flag(all, "deleted", v->deleted) &&
            !put_flag(all, "read_only", v->config.read_only) && !put_flag(all, "split", v->config.split) &&
            !put_flag(all, "show_snapshots", v->config.show_snapshots) && !put_name(all, "policy", v->config.policy) &&
            !put_flag(all, "policy_since", v->config.policy_since) &&
            !put_flag(all, "server_groups", v->config.server_groups) && !put_cache(all, &v->config.cache) &&
            !put_name(all, "tier", v->config.tier) && !put_limits(all, &v->config.limits) &&
            !put_flag(all, "min_bandwidth", (int64_t)v->config.min_bandwidth) &&
            !put_reserve(all, &v->config))
            text = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
    }
    json_decref(all);
    free(allow);
    return text;
}

static int read_limits(json_t *props, struct volume_config *config, char why[256])
{
    const char *tier = json_string_value(json_object_get(props, "tier")), *key;
    json_t *text;
    int error = 0;
    snprintf(config->tier, sizeof config->tier, "%s", tier ? tier : "");
    config->min_bandwidth = (uint64_t)json_integer_value(json_object_get(props, "min_bandwidth"));
    json_object_foreach (json_object_get(props, "limits"), key, text)
        if (!error && json_is_string(text))
            error = tier_limit_set(&config->limits, key, json_string_value(text), why);
    return error == -ENOENT ? 0 : error; /* one that a later version knows */
}

static int read_config(json_t *props, struct volume_config *config, char why[256])
{
    const char *name = json_string_value(json_object_get(props, "name"));
    const char *squash = json_string_value(json_object_get(props, "squash"));
    const char *allow = json_string_value(json_object_get(props, "allow"));
    if (!name || volume_name_check(name, why)) {
        snprintf(why, 256, "its record has no valid name");
        return -EINVAL;
    }
    snprintf(config->name, sizeof config->name, "%s", name);
    if (!squash || volume_squash_parse(squash, &config->squash)) {
        snprintf(why, 256, "its record has no valid squash");
        return -EINVAL;
    }
    config->read_only = json_integer_value(json_object_get(props, "read_only"));
    config->split = (enum volume_split)json_integer_value(json_object_get(props, "split"));
    config->show_snapshots = json_integer_value(json_object_get(props, "show_snapshots"));
    config->server_groups = json_integer_value(json_object_get(props, "server_groups"));
    config->policy_since = json_integer_value(json_object_get(props, "policy_since"));
    const char *cache = json_string_value(json_object_get(props, "cache"));
    const char *share = json_string_value(json_object_get(props, "cache_share"));
    if ((cache && volume_cache_parse(cache, &config->cache.policy)) ||
        (share && volume_cache_share_parse(share, &config->cache))) {
        snprintf(why, 256, "its record has no valid cache policy");
        return -EINVAL;
    }
    const char *reserve = json_string_value(json_object_get(props, "snapshot_reserve"));
    if (reserve && volume_reserve_parse(reserve, config)) {
        snprintf(why, 256, "its record has no valid snapshot-reserve");
        return -EINVAL;
    }
    if (reserve)
        config->size = (uint64_t)json_integer_value(json_object_get(props, "size"));
    const char *policy = json_string_value(json_object_get(props, "policy"));
    snprintf(config->policy, sizeof config->policy, "%s", policy ? policy : "");
    int error = read_limits(props, config, why);
    if (error)
        return error;
    return volume_rules_parse(allow ? allow : "", &config->rules, &config->rule_count, why);
}

int props_load(const struct store_tree *tree, struct volume **out, char why[256])
{
    json_error_t problem;
    json_t *props = json_loadb(tree->props, tree->props_length, 0, &problem);
    if (!json_is_object(props)) {
        snprintf(why, 256, "its record is no JSON object: %.150s", problem.text);
        json_decref(props);
        return -EINVAL;
    }
    struct volume_config config = {.size = tree->limits.bytes, .files = tree->limits.files};
    int error = read_config(props, &config, why);
    if (!error) {
        int64_t created = json_integer_value(json_object_get(props, "created"));
        *out = volume_new(tree->id, &config, created, props);
        if (!*out) {
            snprintf(why, 256, "no memory");
            error = -ENOMEM;
        } else {
            (*out)->origin = tree->origin;
            (*out)->deleted = json_integer_value(json_object_get(props, "deleted"));
        }
    }
    free(config.rules);
    json_decref(props);
    return error;
}
