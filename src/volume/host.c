#include "volume/host.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <urcu.h>

#include "sluice/base_log.h"
#include "sluice/base_worker.h"
#include "sluice/volume.h"
#include "volume/rules.h"

struct host_address {
    uint8_t family, bytes[16];
};

struct host_list {
    struct rcu_head rcu;
    uint64_t made; /* clock_monotonic_ns */
    unsigned count;
    struct host_address at[];
};

static struct host_list *current;
static int refreshing;

enum { REFRESH_NS = 1000000000 };

static bool is_loopback(uint8_t family, const uint8_t *address)
{
    static const uint8_t one[16] = {[15] = 1};
    return family == AF_INET ? address[0] == 127 : memcmp(address, one, 16) == 0;
}

static struct host_list *read_addresses(void)
{
    struct ifaddrs *all;
    if (getifaddrs(&all))
        return NULL;
    unsigned room = 0;
    for (struct ifaddrs *i = all; i; i = i->ifa_next)
        room++;
    struct host_list *list = calloc(1, sizeof *list + room * sizeof list->at[0]);
    if (list) {
        list->made = clock_monotonic_ns();
        for (struct ifaddrs *i = all; i; i = i->ifa_next) {
            struct host_address *to = &list->at[list->count];
            struct sockaddr_storage address = {0};
            if (!i->ifa_addr)
                continue;
            if (i->ifa_addr->sa_family == AF_INET)
                memcpy(&address, i->ifa_addr, sizeof(struct sockaddr_in));
            else if (i->ifa_addr->sa_family == AF_INET6)
                memcpy(&address, i->ifa_addr, sizeof(struct sockaddr_in6));
            if (rule_address(&address, &to->family, to->bytes))
                list->count++;
        }
    }
    freeifaddrs(all);
    return list;
}

static void free_list(struct rcu_head *head)
{
    free(caa_container_of(head, struct host_list, rcu));
}

/* One caller at a time refreshes; the others go on with the list there is. */
static void refresh(void)
{
    if (__atomic_exchange_n(&refreshing, 1, __ATOMIC_ACQUIRE))
        return;
    struct host_list *fresh = read_addresses();
    if (fresh) {
        struct host_list *old = rcu_xchg_pointer(&current, fresh);
        if (old)
            call_rcu(&old->rcu, free_list);
    } else {
        static _Atomic long last;
        if (log_ratelimit(&last))
            log_warning("volume", "this machine's addresses could not be read: %s",
                        sl_strerror(-errno));
    }
    __atomic_store_n(&refreshing, 0, __ATOMIC_RELEASE);
}

bool volume_is_this_host(const struct sockaddr_storage *peer)
{
    uint8_t family, address[16];
    if (!rule_address(peer, &family, address))
        return false;
    if (is_loopback(family, address))
        return true;
    bool found = false;
    rcu_read_lock();
    struct host_list *list = rcu_dereference(current);
    if (!list || clock_monotonic_ns() - list->made > REFRESH_NS) {
        refresh();
        list = rcu_dereference(current);
    }
    for (unsigned i = 0; list && i < list->count && !found; i++)
        found = list->at[i].family == family && memcmp(list->at[i].bytes, address, 16) == 0;
    rcu_read_unlock();
    return found;
}

void host_addresses_free(void)
{
    struct host_list *old = rcu_xchg_pointer(&current, NULL);
    if (old) {
        synchronize_rcu();
        free(old);
    }
}
