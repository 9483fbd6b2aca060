/* Policies over the control socket. */
#include <string.h>

#include "admin/commands.h"

static json_t *put(struct request *r, bool replace)
{
    const char *name = request_text(r, "name"), *keep = request_text(r, "keep");
    struct volume_policy policy;
    char why[256];
    if (!name)
        return request_error(-EINVAL, "the request has no \"name\" for the policy");
    if (!keep)
        return request_error(-EINVAL, "what shall it keep? right would be --keep hourly=6,daily=2");
    int error = policy_parse(name, keep, &policy, why);
    if (!error)
        error = policy_put(&policy, replace, why);
    return error ? request_error(error, "%s", why) : json_object();
}

json_t *command_policy_create(struct request *r)
{
    return put(r, false);
}

json_t *command_policy_change(struct request *r)
{
    return put(r, true);
}

static int describe(void *arg, const struct volume_policy *policy)
{
    char keep[512];
    policy_format(policy, keep, sizeof keep);
    json_t *one = json_pack("{s:s, s:s, s:b}", "name", policy->name, "keep", keep, "built_in", policy->built_in);
    return json_array_append_new(arg, one) ? -ENOMEM : 0;
}

json_t *command_policy_list(struct request *r)
{
    json_t *list = json_array();
    int error = policy_each(describe, list);
    if (!error)
        return json_pack("{s:o}", "policies", list);
    json_decref(list);
    return request_error(error, "no memory");
}

json_t *command_policy_delete(struct request *r)
{
    const char *name = request_text(r, "name");
    char why[256];
    int error = policy_delete(name ? name : "", why);
    return error ? request_error(error, "%s", why) : json_object();
}
