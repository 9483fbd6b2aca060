/* Operations that took long, with where their time went, in the log. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "nfs/access.h"
#include "nfs/opstats.h"
#include "sluice/base_log.h"
#include "sluice/volume.h"

struct naming {
    uint32_t volume;
    char *name;
};

static int name_if_it(void *arg, const struct volume_info *info)
{
    struct naming *naming = arg;
    if (info->tree != naming->volume)
        return 0;
    strcpy(naming->name, info->config->name);
    return -EEXIST;
}

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

void nfs_slow(const struct rpc_slow *slow)
{
    static _Atomic long last;
    static _Atomic unsigned passed_over;
    const struct rpc_call *call = slow->call;
    if (!log_ratelimit(&last)) {
        atomic_fetch_add(&passed_over, 1);
        return;
    }
    char name[VOLUME_NAME_MAX + 1] = "", address[ACCESS_ADDRESS_TEXT], others[64] = "";
    struct naming naming = {.volume = opstats_volume(call), .name = name};
    if (naming.volume)
        volume_each(name_if_it, &naming);
    access_peer_text(call->peer, address);
    unsigned more = atomic_exchange(&passed_over, 0);
    if (more)
        snprintf(others, sizeof others, "; %u more were slow since the last of these lines", more);
    const char *protocol = "", *operation = slow->procedure;
    if (call->latency)
        nfs_op_name(opstats_of(call->latency)->op, &protocol, &operation);
    uint64_t known = slow->socket_ns, total = slow->total_ns;
    for (unsigned i = 0; i < CORO_SPENTS; i++)
        known += call->spent_ns[i];
    log_warning("slow", "%s on %s from %s, uid %" PRIu32 ", took %.1f ms: gate %.1f, metadata %.1f, disk %.1f, "
                "socket %.1f, else %.1f%s",
                operation, *name ? name : "no volume", address, call->cred.uid, ms(total),
                ms(call->spent_ns[CORO_SPENT_GATE]), ms(call->spent_ns[CORO_SPENT_META]),
                ms(call->spent_ns[CORO_SPENT_DISK]), ms(slow->socket_ns), ms(total > known ? total - known : 0),
                others);
}
