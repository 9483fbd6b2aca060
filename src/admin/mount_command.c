#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "admin/commands.h"
#include "sluice/base_worker.h"
#include "sluice/nfs.h"
#include "sluice/rpc.h"

enum { READ_AHEAD_KB = 16384, NCONNECT_LEAST = 2, NCONNECT_MOST = 16 };

struct listener {
    char host[INET6_ADDRSTRLEN];
    unsigned port;
    bool six, loopback, wildcard;
};

static bool listener_parse(char *text, struct listener *out)
{
    struct in_addr four;
    struct in6_addr six;
    char *colon = strrchr(text, ':');
    if (!colon)
        return false;
    *colon = 0;
    out->port = (unsigned)strtoul(colon + 1, NULL, 10);
    char *host = text;
    size_t length = strlen(text);
    out->six = host[0] == '[';
    if (out->six) {
        host[length - 1] = 0;
        host++;
    }
    snprintf(out->host, sizeof out->host, "%.45s", host);
    if (out->six && inet_pton(AF_INET6, host, &six) == 1) {
        out->loopback = IN6_IS_ADDR_LOOPBACK(&six);
        out->wildcard = IN6_IS_ADDR_UNSPECIFIED(&six);
        return true;
    }
    if (out->six || inet_pton(AF_INET, host, &four) != 1)
        return false;
    out->loopback = ntohl(four.s_addr) >> 24 == 127;
    out->wildcard = four.s_addr == 0;
    return true;
}

/* An address of this machine that other hosts could use, for a server that listens on every one. */
static void own_address(struct listener *l)
{
    struct ifaddrs *all;
    int family = l->six ? AF_INET6 : AF_INET;
    snprintf(l->host, sizeof l->host, "%s", l->six ? "::1" : "127.0.0.1");
    if (getifaddrs(&all))
        return;
    for (struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != family || i->ifa_flags & IFF_LOOPBACK)
            continue;
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)i->ifa_addr;
        if (l->six && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
            continue;
        const void *address = l->six ? (const void *)&six->sin6_addr
                                     : &((const struct sockaddr_in *)i->ifa_addr)->sin_addr;
        inet_ntop(family, address, l->host, sizeof l->host);
        break;
    }
    freeifaddrs(all);
}

/* The listener that most clients can reach: not loopback before loopback, IPv4 before IPv6. */
static bool best_listener(struct listener *best)
{
    enum { MOST = 32 };
    char text[MOST][64];
    unsigned count = rpc_listeners(text, MOST);
    int best_score = -1;
    for (unsigned i = 0; i < count && i < MOST; i++) {
        struct listener l;
        if (!listener_parse(text[i], &l))
            continue;
        int score = (l.loopback ? 0 : 2) + (l.six ? 0 : 1);
        if (score > best_score) {
            best_score = score;
            *best = l;
        }
    }
    if (best_score >= 0 && best->wildcard)
        own_address(best);
    return best_score >= 0;
}

static void add_warnings(json_t *warnings, const struct listener *l, const struct volume_config *config)
{
    bool remote = false;
    char text[512];
    for (uint32_t i = 0; i < config->rule_count; i++)
        remote = remote || !config->rules[i].host;
    if (l->loopback)
        json_array_append_new(warnings, json_string("the server listens on loopback only, so this works on this host "
                              "alone; --listen 0.0.0.0:2049, or listen = 0.0.0.0:2049 in its configuration, lets "
                              "others in"));
    if (config->rule_count == 0)
        snprintf(text, sizeof text, "no rule lets anyone in; sluice volume set %s allow=host:rw lets this "
                 "host in", config->name);
    else if (!remote && !l->loopback)
        snprintf(text, sizeof text, "the rules let only this host in; sluice volume set %s "
                 "allow=host:rw,10.0.0.0/8:rw lets others in", config->name);
    else
        return;
    json_array_append_new(warnings, json_string(text));
}

/* `name` as it is mounted; what nobody changes clients may cache without asking. */
static json_t *answer_with(const char *server, const struct listener *l, const struct volume_config *config,
                           const char *name, bool read_only)
{
    char version3[160], version4[64], rest[512], mount[800], locks[800], ahead[256];
    unsigned connections = workers_count();
    if (connections < NCONNECT_LEAST)
        connections = NCONNECT_LEAST;
    if (connections > NCONNECT_MOST)
        connections = NCONNECT_MOST;
    bool six = server ? strchr(server, ':') != NULL : l->six;
    const char *host = server ? server : l->host;
    bool brackets = six && host[0] != '[';
    const char *protocol = six ? "tcp6" : "tcp";
    snprintf(version3, sizeof version3, "vers=3,proto=%s,port=%u,mountport=%u,mountproto=%s,nolock", protocol, l->port,
             l->port, protocol);
    snprintf(version4, sizeof version4, "vers=4.2,proto=%s,port=%u", protocol, l->port);
    snprintf(rest, sizeof rest, "nconnect=%u,rsize=1048576,wsize=1048576,hard%s %s%s%s:/%s /mnt/%s", connections,
             read_only ? ",ro,nocto,actimeo=86400" : "", brackets ? "[" : "", host, brackets ? "]" : "", name, name);
    snprintf(mount, sizeof mount, "mkdir -p /mnt/%s && mount -t nfs -o %s,%s", name,
             nfs_serves(3) ? version3 : version4, rest);
    snprintf(locks, sizeof locks, "mkdir -p /mnt/%s && mount -t nfs -o %s,%s", name, version4, rest);
    snprintf(ahead, sizeof ahead,
             "echo %d > /sys/class/bdi/$(mountpoint -d /mnt/%s)/read_ahead_kb", READ_AHEAD_KB,
             name);
    json_t *warnings = json_array();
    add_warnings(warnings, l, config);
    json_t *answer = json_pack("{s:s, s:s, s:o}", "mount", mount, "read_ahead", ahead, "warnings", warnings);
    if (answer && nfs_serves(3) && nfs_serves(4))
        json_object_set_new(answer, "mount_with_locks", json_string(locks));
    return answer;
}

static bool server_name_good(const char *name)
{
    return *name && strlen(name) < 256 && strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                                       "0123456789.-_:[]%") == strlen(name);
}

/* The volume that is mounted, or whose snapshot is. */
static json_t *find_mounted(const struct request *r, const char *name, struct volume_copy *v)
{
    uint32_t volume, snapshot;
    if (!name || !strchr(name, '@'))
        return request_volume(r, "name", v);
    json_t *problem = snapshot_find(name, &volume, &snapshot);
    return problem ? problem : volume_copy_of(volume, v);
}

json_t *command_mount(struct request *r)
{
    struct volume_copy v;
    struct listener l;
    const char *server = request_text(r, "server"), *name = request_text(r, "name");
    if (server && !server_name_good(server))
        return request_error(-EINVAL, "'%.80s' is no host's name or address", server);
    json_t *answer = find_mounted(r, name, &v);
    if (answer)
        return answer;
    if (best_listener(&l))
        answer = answer_with(server, &l, &v.config, name, strchr(name, '@') || v.config.read_only);
    else
        answer = request_error(-ENOTCONN, "the server listens on no address");
    free(v.config.rules);
    return answer;
}
