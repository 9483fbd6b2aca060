#include "rpc/register.h"

#include <netinet/in.h>
#include <rpc/rpc.h>
#include <rpc/rpcb_clnt.h>

#include "rpc/listen.h"
#include "rpc/server.h"
#include "sluice/base_log.h"

static void each_version(void (*each)(const struct rpc_program *, uint32_t version, void *arg),
                         void *arg)
{
    for (unsigned i = 0; i < rpc_server.program_count; i++) {
        const struct rpc_program *program = rpc_server.programs[i];
        for (uint32_t v = 0; v < program->count; v++)
            each(program, program->versions[v].version, arg);
    }
}

/* rpcbind keeps one address for each version and family: the first listened on. */
struct place {
    bool done[2]; /* tcp, tcp6 */
    struct netconfig *netconfig;
    struct netbuf address;
};

static void set_version(const struct rpc_program *program, uint32_t version, void *arg)
{
    struct place *place = arg;
    if (!rpcb_set(program->program, version, place->netconfig, &place->address))
        log_warning("rpc", "rpcbind did not take %s version %u over %s; is it running?",
                    program->name, version, place->netconfig->nc_netid);
}

static void register_at(void *arg, const struct sockaddr_storage *address)
{
    bool six = address->ss_family == AF_INET6;
    struct sockaddr_storage copy = *address;
    struct place *place = arg;
    if (place->done[six])
        return;
    place->done[six] = true;
    place->netconfig = getnetconfigent(six ? "tcp6" : "tcp");
    if (!place->netconfig) {
        log_warning("rpc", "/etc/netconfig does not know %s; not registered with rpcbind",
                    six ? "tcp6" : "tcp");
        return;
    }
    place->address.buf = &copy;
    place->address.len = place->address.maxlen =
        six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    each_version(set_version, place);
    freenetconfigent(place->netconfig);
}

void register_programs(void)
{
    struct place place = {0};
    unregister_programs(); /* what a killed server left behind */
    listen_each(register_at, &place);
}

static void unset_version(const struct rpc_program *program, uint32_t version, void *arg)
{
    rpcb_unset(program->program, version, arg); /* without rpcbind there is nothing to take back */
}

void unregister_programs(void)
{
    static const char *const kinds[] = {"tcp", "tcp6"};
    for (int i = 0; i < 2; i++) {
        struct netconfig *netconfig = getnetconfigent(kinds[i]);
        if (!netconfig)
            continue;
        each_version(unset_version, netconfig);
        freenetconfigent(netconfig);
    }
}
