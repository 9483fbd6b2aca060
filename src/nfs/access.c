#include "nfs/access.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "nfs/opstats.h"
#include "sluice/base_log.h"
#include "sluice/volume.h"

int access_check(struct rpc_call *call, uint32_t tree, struct store_cred *cred)
{
    struct volume_grant grant;
    int error = volume_access(tree, call->peer, call->conn_scratch, &grant);
    if (error)
        return error;
    opstats_tree(call, tree);
    if (!grant.allowed)
        return -EACCES;
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
    uint64_t unused[2] = {0};
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
    char address[ACCESS_ADDRESS_TEXT], rules[1024];
    access_peer_text(refused->call->peer, address);
    volume_rules_format(config->rules, config->rule_count, rules, sizeof rules);
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
