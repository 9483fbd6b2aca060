#include "nfs/access.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "nfs/opstats.h"
#include "sluice/base_log.h"
#include "sluice/volume.h"

/* What the host's name service says, in place of the sixteen groups that a call has room for. */
static int squash_with_groups(const struct rpc_call *call, const struct volume_grant *grant, struct store_cred *cred)
{
    uint32_t groups[STORE_GROUPS_MAX], count;
    int error = volume_user_groups(call->cred.uid, groups, &count);
    if (error)
        return error;
    if (count)
        volume_squash(grant, call->cred.uid, call->cred.gid, groups, count, cred);
    else
        volume_squash(grant, call->cred.uid, call->cred.gid, call->cred.groups, call->cred.group_count, cred);
    return 0;
}

int access_check(struct rpc_call *call, uint32_t tree, struct store_cred *cred)
{
    struct volume_grant grant;
    int error = volume_access(tree, call->peer, call->conn_scratch, &grant);
    if (error)
        return error;
    opstats_tree(call, tree);
    if (!grant.allowed)
        return -EACCES;
    if (grant.server_groups && call->cred.flavor == RPC_AUTH_SYS)
        return squash_with_groups(call, &grant, cred);
    volume_squash(&grant, call->cred.uid, call->cred.gid, call->cred.groups, call->cred.group_count,
                  cred);
    return 0;
}

bool access_permitted(struct rpc_call *call, uint32_t tree)
{
    struct volume_grant grant;
    return volume_access(tree, call->peer, call->conn_scratch, &grant) == 0 && grant.allowed;
}

bool access_allowed(const struct rpc_call *call, uint32_t tree)
{
    uint64_t unused[VOLUME_ACCESS_CACHE] = {0};
    struct volume_grant grant;
    return volume_access(tree, call->peer, unused, &grant) == 0 && grant.allowed;
}

void access_peer_text(const struct sockaddr_storage *peer, char to[ACCESS_ADDRESS_TEXT])
{
    const void *address = peer->ss_family == AF_INET
                              ? (const void *)&((const struct sockaddr_in *)peer)->sin_addr
                              : (const void *)&((const struct sockaddr_in6 *)peer)->sin6_addr;
    if (!inet_ntop(peer->ss_family, address, to, ACCESS_ADDRESS_TEXT))
        snprintf(to, ACCESS_ADDRESS_TEXT, "unknown");
}

struct refused {
    const struct rpc_call *call;
    uint32_t tree;
};

static int log_if_it(void *arg, const struct volume_info *info)
{
    const struct refused *refused = arg;
    if (info->tree != refused->tree)
        return 0;
    const struct volume_config *config = info->config;
    uint64_t unused[VOLUME_ACCESS_CACHE] = {0};
    struct volume_grant grant = {0};
    char address[ACCESS_ADDRESS_TEXT], rules[1024];
    access_peer_text(refused->call->peer, address);
    volume_rules_format(config->rules, config->rule_count, rules, sizeof rules);
    if (volume_access(info->tree, refused->call->peer, unused, &grant) == 0 && grant.port_refused)
        log_warning("mount",
                    "%s may not mount /%s: its rule in allow=%s is secure, and the client's port is not below 1024; "
                    "without :secure it lets it in",
                    address, config->name, rules);
    else
        log_warning("mount",
                    "%s may not mount /%s: no rule of allow=%s matches it; this lets it in: "
                    "sluice volume set %s allow=%s%s%s/%d:rw",
                    address, config->name, rules, config->name, rules, *rules ? "," : "", address,
                    refused->call->peer->ss_family == AF_INET ? 32 : 128);
    return 0;
}

void access_log_refused(const struct rpc_call *call, uint32_t tree)
{
    static _Atomic long last;
    if (!log_ratelimit(&last))
        return;
    struct refused refused = {.call = call, .tree = tree};
    volume_each(log_if_it, &refused); /* log_if_it never fails */
}
