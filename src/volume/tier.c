/* The list of tiers, its durable form, and which volumes are in which. */
#include <stdio.h>
#include <string.h>

#include "sluice/base_log.h"
#include "sluice/base_text.h"
#include "sluice/volume_gate.h"
#include "volume/change.h"
#include "volume/named_list.h"
#include "volume/tier.h"

static struct named_list tiers = NAMED_LIST("tier.", struct volume_tier);

static const char unlimited[] = "unlimited";

int tier_get(const char *name, struct volume_tier *out)
{
    return named_list_get(&tiers, *name ? name : unlimited, out);
}

struct each_tier {
    int (*each)(void *arg, const struct volume_tier *tier);
    void *arg;
};

static int each_item(void *arg, const void *item)
{
    const struct each_tier *e = arg;
    return e->each(e->arg, item);
}

int tier_each(int (*each)(void *arg, const struct volume_tier *tier), void *arg)
{
    return named_list_each(&tiers, each_item, &(struct each_tier){each, arg});
}

static int look(void *arg, const struct volume_tier *tier)
{
    text_nearest_look(arg, tier->name);
    return 0;
}

int tier_find(const char *name, struct volume_tier *out, char why[256])
{
    if (tier_get(name, out) == 0)
        return 0;
    struct text_nearest nearest = {.word = name};
    tier_each(look, &nearest);
    const char *meant = text_nearest(&nearest);
    if (*meant)
        snprintf(why, 256, "there is no tier '%.60s'; did you mean '%s'? sluice tier list shows those there are", name,
                 meant);
    else
        snprintf(why, 256, "there is no tier '%.60s'; sluice tier list shows those there are", name);
    return -ENOENT;
}

/* ---- records ---- */

static void put_limit(void *arg, const char *key, const char *text)
{
    json_object_set_new(arg, key, json_string(text));
}

static int write_tier(const struct volume_tier *tier, char why[256])
{
    json_t *record = json_pack("{s:s}", "name", tier->name);
    if (record)
        tier_limit_each(&tier->limits, put_limit, record);
    return named_list_write(&tiers, tier, record, why);
}

static int load_one(const char *name, const json_t *record)
{
    struct volume_tier tier = {0};
    char why[256] = "it has no name";
    const char *limit;
    json_t *item;
    int error = name && strlen(name) <= TIER_NAME_MAX ? 0 : -EINVAL;
    if (!error)
        snprintf(tier.name, sizeof tier.name, "%s", name);
    json_object_foreach ((json_t *)record, limit, item)
        if (!error && strcmp(limit, "name") != 0 && json_is_string(item))
            error = tier_limit_set(&tier.limits, limit, json_string_value(item), why);
    if (!error)
        return named_list_set(&tiers, &tier);
    log_error("volume", "the tier '%.80s' is not read: %s", name ? name : "", why);
    return 0;
}

/* 16 KiB an operation use both limits up at once. */
static const struct {
    const char *name;
    uint64_t mib, iops; /* for each TiB; 0: no limit */
} built_in[] = {{"standard", 16, 1000}, {"premium", 64, 4000}, {"extreme", 128, 8000}, {unlimited, 0, 0}};

int tiers_start(struct store *store)
{
    int error = named_list_load(&tiers, store, load_one);
    for (size_t i = 0; i < sizeof built_in / sizeof *built_in && !error; i++) {
        struct volume_tier tier = {.built_in = true};
        bool limited = built_in[i].mib;
        snprintf(tier.name, sizeof tier.name, "%s", built_in[i].name);
        tier.limits.bandwidth[TIER_TOGETHER] = (struct tier_rate){built_in[i].mib << 20, limited};
        tier.limits.iops[TIER_TOGETHER] = (struct tier_rate){built_in[i].iops, limited};
        error = named_list_set(&tiers, &tier);
    }
    return error;
}

void tiers_stop(void)
{
    named_list_free(&tiers);
}

/* ---- a volume's limits ---- */

void volume_limits_of(const struct volume_config *config, struct volume_limits *out)
{
    struct volume_tier tier;
    struct tier_limits all;
    if (tier_get(config->tier, &tier))
        tier = (struct volume_tier){0};
    tier_combine(&tier.limits, &config->limits, &all);
    tier_amounts(&all, config->size, out);
    out->min_bandwidth = config->min_bandwidth;
    if (out->bandwidth[TIER_TOGETHER] && out->min_bandwidth > out->bandwidth[TIER_TOGETHER])
        out->min_bandwidth = out->bandwidth[TIER_TOGETHER];
}

void tier_apply(const struct volume *v)
{
    struct volume_limits limits;
    struct volume_tier tier;
    if (tier_get(v->config.tier, &tier))
        log_warning("volume", "%s: there is no tier '%s' any more; it has only the limits of its own", v->config.name,
                    v->config.tier);
    volume_limits_of(&v->config, &limits);
    int error = gate_set(v->tree, &limits);
    if (error)
        log_error("volume", "%s: its limits are not in effect: %s", v->config.name, sl_strerror(error));
}

static int needs_size(const struct volume_config *config, const struct tier_limits *limits, char why[256])
{
    if (config->size || !tier_per_tib(limits))
        return 0;
    if (tier_per_tib(&config->limits))
        snprintf(why, 256, "a limit per TiB is of the volume's size, and %s has none; size=2T beside it gives it one",
                 config->name);
    else
        snprintf(why, 256, "the tier %s is per TiB of the volume's size, and %s has none; a size beside the tier gives "
                 "it one: size=2T", config->tier, config->name);
    return -EINVAL;
}

int tier_fits(const struct volume_config *config, const struct volume_config *old, char why[256])
{
    struct volume_tier tier;
    struct tier_limits all;
    char a[TIER_RATE_TEXT], b[TIER_RATE_TEXT];
    bool same = old && strcmp(old->tier, config->tier) == 0;
    if (tier_get(config->tier, &tier)) {
        if (!same)
            return tier_find(config->tier, &tier, why);
        tier = (struct volume_tier){0};
    }
    tier_combine(&tier.limits, &config->limits, &all);
    int error = needs_size(config, &all, why);
    if (error)
        return error;
    struct volume_limits amounts;
    tier_amounts(&all, config->size, &amounts);
    uint64_t most = amounts.bandwidth[TIER_TOGETHER];
    if (!most || config->min_bandwidth <= most)
        return 0;
    snprintf(why, 256, "min-bandwidth=%s is more than the %s that the volume may have",
             tier_rate_format(&(struct tier_rate){config->min_bandwidth, false}, a),
             tier_rate_format(&(struct tier_rate){most, false}, b));
    return -EINVAL;
}

/* ---- changes ---- */

static int not_built_in(const struct volume_tier *tier, char why[256])
{
    if (!tier->built_in)
        return 0;
    snprintf(why, 256, "the tier %s is built in and stays as it is; sluice tier create NAME makes one of your own",
             tier->name);
    return -EINVAL;
}

static int not_empty(const struct volume_tier *tier, char why[256])
{
    if (tier_limited(&tier->limits))
        return 0;
    snprintf(why, 256, "the tier %s would have no limit; give it bandwidth or iops, like bandwidth 2G/s, "
             "or use the tier unlimited", tier->name);
    return -EINVAL;
}

int tier_create(const struct volume_tier *tier, char why[256])
{
    struct volume_tier there;
    int error = volume_name_check(tier->name, why);
    if (error)
        return error;
    error = not_empty(tier, why);
    if (error)
        return error;
    coro_mutex_lock(&volume_changes);
    if (tier_get(tier->name, &there) == 0) {
        snprintf(why, 256, "there is a tier '%s' already; sluice tier set changes it for all its volumes", tier->name);
        error = -EEXIST;
    } else {
        error = write_tier(tier, why);
    }
    coro_mutex_unlock(&volume_changes);
    return error;
}

/* Every volume in the tier must be able to live with what it shall become; under the changes' lock. */
static int all_fit(const struct volume_tier *tier, char why[256])
{
    const struct volume_table *t = table_current();
    for (uint32_t i = 0; t && i < t->count && tier_per_tib(&tier->limits); i++) {
        const struct volume_config *config = &t->by_name[i]->config;
        if (strcmp(config->tier, tier->name) != 0 || config->size)
            continue;
        snprintf(why, 256, "the volume %s is in this tier and has no size of which a limit per TiB could be; "
                 "sluice volume set %s size=2T gives it one", config->name, config->name);
        return -EINVAL;
    }
    return 0;
}

static void apply_all(const char *name)
{
    const struct volume_table *t = table_current();
    for (uint32_t i = 0; t && i < t->count; i++)
        if (strcmp(t->by_name[i]->config.tier, name) == 0)
            tier_apply(t->by_name[i]);
}

int tier_change(const char *name, tier_change_fn *change, void *arg, char why[256])
{
    struct volume_tier tier;
    coro_mutex_lock(&volume_changes);
    int error = tier_find(name, &tier, why);
    if (!error)
        error = not_built_in(&tier, why);
    if (!error)
        error = change(arg, &tier.limits, why);
    if (!error)
        error = not_empty(&tier, why);
    if (!error)
        error = all_fit(&tier, why);
    if (!error)
        error = write_tier(&tier, why);
    if (!error)
        apply_all(name);
    coro_mutex_unlock(&volume_changes);
    return error;
}

static int not_used(const char *name, char why[256])
{
    const struct volume_table *t = table_current();
    for (uint32_t i = 0; t && i < t->count; i++) {
        const struct volume_config *config = &t->by_name[i]->config;
        if (strcmp(config->tier, name) != 0)
            continue;
        snprintf(why, 256, "the volume %s is in this tier; sluice volume set %s tier=unlimited takes it out",
                 config->name, config->name);
        return -EBUSY;
    }
    return 0;
}

int tier_delete(const char *name, char why[256])
{
    struct volume_tier tier;
    coro_mutex_lock(&volume_changes);
    int error = tier_find(name, &tier, why);
    if (!error)
        error = not_built_in(&tier, why);
    if (!error)
        error = not_used(name, why);
    if (!error)
        error = named_list_delete(&tiers, name, why);
    coro_mutex_unlock(&volume_changes);
    return error;
}
