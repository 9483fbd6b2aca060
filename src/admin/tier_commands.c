/* Tiers over the control socket. */
#include <string.h>

#include "admin/commands.h"

static void put_text(void *arg, const char *key, const char *text)
{
    json_object_set_new(arg, key, json_string(text));
}

json_t *limits_texts(const struct tier_limits *limits)
{
    json_t *all = json_object();
    if (all)
        tier_limit_each(limits, put_text, all);
    return all;
}

/* The arguments of the request but its name: the limits to set. */
static int take_limits(void *arg, struct tier_limits *limits, char why[256])
{
    const struct request *r = arg;
    const char *key;
    json_t *value;
    unsigned count = 0;
    json_object_foreach (r->args, key, value) {
        if (strcmp(key, "command") == 0 || strcmp(key, "name") == 0)
            continue;
        if (!json_is_string(value)) {
            snprintf(why, 256, "%.60s must be a text", key);
            return -EINVAL;
        }
        int error = tier_limit_set(limits, key, json_string_value(value), why);
        if (error)
            return error;
        count++;
    }
    if (count)
        return 0;
    snprintf(why, 256, "no limit is given; right would be --bandwidth 2G/s or --iops 200k, or both");
    return -EINVAL;
}

json_t *command_tier_create(struct request *r)
{
    const char *name = request_text(r, "name");
    struct volume_tier tier = {0};
    char why[256];
    if (!name)
        return request_error(-EINVAL, "the request has no \"name\" for the tier");
    int error = volume_name_check(name, why);
    if (!error) {
        snprintf(tier.name, sizeof tier.name, "%s", name);
        error = take_limits(r, &tier.limits, why);
    }
    if (!error)
        error = tier_create(&tier, why);
    return error ? request_error(error, "%s", why) : json_object();
}

json_t *command_tier_set(struct request *r)
{
    const char *name = request_text(r, "name");
    char why[256];
    int error = tier_change(name ? name : "", take_limits, r, why);
    return error ? request_error(error, "%s", why) : json_object();
}

struct tier_list {
    json_t *all;
    const char *name; /* whose volumes are counted */
    json_int_t volumes;
};

static int count_if_in(void *arg, const struct volume_info *info)
{
    struct tier_list *list = arg;
    const char *tier = *info->config->tier ? info->config->tier : "unlimited";
    list->volumes += strcmp(tier, list->name) == 0;
    return 0;
}

static int describe(void *arg, const struct volume_tier *tier)
{
    struct tier_list *list = arg;
    list->name = tier->name;
    list->volumes = 0;
    volume_each(count_if_in, list);
    json_t *one = json_pack("{s:s, s:o, s:I, s:b}", "name", tier->name, "limits", limits_texts(&tier->limits),
                            "volumes", list->volumes, "built_in", tier->built_in);
    return json_array_append_new(list->all, one) ? -ENOMEM : 0;
}

json_t *command_tier_list(struct request *r)
{
    struct tier_list list = {.all = json_array()};
    int error = tier_each(describe, &list);
    if (!error)
        return json_pack("{s:o}", "tiers", list.all);
    json_decref(list.all);
    return request_error(error, "no memory");
}

json_t *command_tier_delete(struct request *r)
{
    const char *name = request_text(r, "name");
    char why[256];
    int error = tier_delete(name ? name : "", why);
    return error ? request_error(error, "%s", why) : json_object();
}
