/* What a client would get, over the control socket. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "admin/commands.h"

enum { PORT_PRIVILEGED = 1023, PORT_OTHER = 1024 };

static void set_port(struct sockaddr_storage *peer, in_port_t port)
{
    if (peer->ss_family == AF_INET)
        ((struct sockaddr_in *)peer)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)peer)->sin6_port = htons(port);
}

/* The rules with one for this address before them. */
static json_t *remedy(const struct volume_copy *v, const struct sockaddr_storage *peer, const char *address)
{
    size_t room = (size_t)v->config.rule_count * VOLUME_RULE_TEXT + 1;
    char *allow = malloc(room);
    json_t *text = NULL;
    if (allow) {
        volume_rules_format(v->config.rules, v->config.rule_count, allow, room);
        text = json_sprintf("sluice volume set %s allow=%s/%d:rw%s%s", v->config.name, address,
                            peer->ss_family == AF_INET ? 32 : 128, *allow ? "," : "", allow);
    }
    free(allow);
    return text;
}

static void add_identity(json_t *to, const struct volume_grant *grant, uint32_t uid)
{
    uint32_t groups[STORE_GROUPS_MAX], count = 0;
    struct store_cred cred;
    if (grant->server_groups && volume_user_groups(uid, groups, &count))
        count = 0;
    volume_squash(grant, uid, uid, groups, count, &cred);
    json_object_set_new(to, "uid", json_integer(uid));
    json_object_set_new(to, "acts_as", json_integer(cred.uid));
    if (!grant->server_groups)
        return;
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < cred.group_count; i++)
        json_array_append_new(list, json_integer(cred.groups[i]));
    json_object_set_new(to, "groups", list);
}

static json_t *explain(const struct volume_copy *v, uint32_t tree, const char *address,
                       struct sockaddr_storage *peer, const char *uid)
{
    uint64_t unused[VOLUME_ACCESS_CACHE] = {0}, again[VOLUME_ACCESS_CACHE] = {0};
    struct volume_grant grant, other;
    char rule[VOLUME_RULE_TEXT] = "";
    set_port(peer, PORT_PRIVILEGED);
    int error = volume_access(tree, peer, unused, &grant);
    set_port(peer, PORT_OTHER);
    if (!error)
        error = volume_access(tree, peer, again, &other);
    if (error || (grant.matched_rule != UINT32_MAX && grant.matched_rule >= v->config.rule_count))
        return request_error(-ESTALE, "the volume has just changed; ask again");
    if (grant.matched_rule != UINT32_MAX)
        volume_rules_format(&v->config.rules[grant.matched_rule], 1, rule, sizeof rule);
    json_t *answer = json_pack("{s:b, s:b, s:b, s:s, s:i, s:b, s:i, s:i, s:b, s:b}", "allowed", grant.allowed, "write",
                               grant.write, "privileged_port", grant.allowed && other.port_refused, "rule", rule,
                               "rule_number", grant.matched_rule == UINT32_MAX ? 0 : (int)grant.matched_rule + 1,
                               "squash_root", grant.squash_root, "anon_uid", (int)grant.anon_uid, "anon_gid",
                               (int)grant.anon_gid, "squash_all", grant.squash_all, "server_groups",
                               grant.server_groups);
    if (!answer)
        return request_error(-ENOMEM, "no memory");
    if (*rule && v->config.rules[grant.matched_rule].write && !grant.write)
        json_object_set_new(answer, "read_only_tree", json_true());
    if (!grant.allowed)
        json_object_set_new(answer, "remedy", remedy(v, peer, address));
    else if (uid)
        add_identity(answer, &grant, (uint32_t)strtoul(uid, NULL, 10));
    return answer;
}

json_t *command_access_check(struct request *r)
{
    const char *address = request_text(r, "address"), *uid = request_text(r, "uid"), *at;
    const char *name = request_text(r, "name");
    struct sockaddr_storage peer;
    struct volume_copy v;
    uint32_t tree, volume;
    char *end;
    if (!address || !address_parse(address, &peer))
        return request_error(-EINVAL, "'%.80s' is no address; right would be 10.1.2.3 or fd00::5",
                             address ? address : "");
    if (uid && (strspn(uid, "0123456789") != strlen(uid) || !*uid || strtoull(uid, &end, 10) >= UINT32_MAX))
        return request_error(-EINVAL, "'%.60s' is no user's number; right would be 1000", uid);
    json_t *answer = request_tree(r, "name", &tree);
    if (answer)
        return answer;
    at = strchr(name, '@');
    char of[VOLUME_NAME_MAX + 1];
    snprintf(of, sizeof of, "%.*s", (int)(at ? at - name : VOLUME_NAME_MAX), name);
    if (volume_by_name(of, strlen(of), &volume))
        return request_error(-ESTALE, "the volume has just changed; ask again");
    answer = volume_copy_of(volume, &v);
    if (answer)
        return answer;
    answer = explain(&v, tree, address, &peer, uid);
    free(v.config.rules);
    return answer;
}
