/* What admins see of the clients' state, and how they end it: the clients are noted first, then looked at a few at a
 * time, so that the mutex is never held for long. */
#include "sluice/nfs_state.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nfs/state/private.h"

enum { LOOKED_AT_ONCE = 256, ENDED_AT_ONCE = 32 };

bool state_count(struct state_counts *counts)
{
    *counts = (struct state_counts){0};
    if (!state_all.running)
        return false;
    state_lock_all();
    counts->clients = state_all.client_count;
    counts->sessions = state_all.session_count;
    counts->opens = state_all.state_count - state_all.delegation_count;
    counts->locks = state_all.range_count;
    counts->delegations = state_all.delegation_count;
    state_unlock_all();
    return true;
}

static bool is_at(const struct state_client *client, const struct sockaddr_storage *address)
{
    const struct sockaddr_storage *peer = &client->peer;
    if (peer->ss_family != address->ss_family)
        return false;
    if (peer->ss_family == AF_INET)
        return ((const struct sockaddr_in *)peer)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)address)->sin_addr.s_addr;
    return memcmp(&((const struct sockaddr_in6 *)peer)->sin6_addr, &((const struct sockaddr_in6 *)address)->sin6_addr,
                  sizeof(struct in6_addr)) == 0;
}

/* The ids of all clients, or of an address's, the oldest first; to be freed.  NULL: no memory. */
static uint64_t *note(const struct sockaddr_storage *address, unsigned *count)
{
    *count = 0;
    state_lock_all();
    uint64_t *ids = malloc((state_all.client_count + 1) * sizeof *ids);
    for (struct state_link *at = state_all.client_list.previous; ids && at != &state_all.client_list;
         at = at->previous) {
        const struct state_client *client = link_of(at, struct state_client, all);
        if (!address || is_at(client, address))
            ids[(*count)++] = client->by_id.key;
    }
    state_unlock_all();
    return ids;
}

/* ---- the list ---- */

static void put_name(char to[STATE_NAME_ROOM], const uint8_t *bytes, uint32_t length)
{
    enum { HEX = 4, MORE = 4 /* "..." and its end */ };
    size_t at = 0;
    uint32_t i = 0;
    for (; i < length && at + HEX + MORE <= STATE_NAME_ROOM; i++) {
        if (bytes[i] < ' ' || bytes[i] > '~' || bytes[i] == '\\')
            at += (size_t)snprintf(to + at, STATE_NAME_ROOM - at, "\\x%02x", bytes[i]);
        else
            to[at++] = (char)bytes[i];
    }
    snprintf(to + at, STATE_NAME_ROOM - at, "%s", i < length ? "..." : "");
}

static void describe(const struct state_client *client, struct state_client_info *to)
{
    to->number = (uint32_t)client->by_id.key;
    to->minor = client->minor_told;
    to->peer = client->peer;
    to->confirmed = client->confirmed;
    to->expired = client_is_expired(client);
    uint32_t now = state_seconds(), renewed = atomic_load(&client->renewed);
    to->silent_seconds = now > renewed ? now - renewed : 0;
    to->opens = client->opens;
    to->locks = client->locks;
    to->delegations = client->delegations;
    put_name(to->owner, client->owner, client->owner_length);
    put_name(to->implementation, client->owner + client->owner_length, client->implementation_length);
}

static unsigned describe_all(const uint64_t *ids, unsigned count, struct state_client_info *list)
{
    unsigned found = 0;
    for (unsigned i = 0; i < count;) {
        state_lock_all();
        for (unsigned n = 0; n < LOOKED_AT_ONCE && i < count; n++, i++) {
            const struct state_client *client = client_find(ids[i]);
            if (client)
                describe(client, &list[found++]);
        }
        state_unlock_all();
        state_pause();
    }
    return found;
}

int state_clients(struct state_client_info **list, unsigned *count)
{
    *list = NULL;
    *count = 0;
    if (!state_all.running)
        return 0;
    unsigned noted;
    uint64_t *ids = note(NULL, &noted);
    if (ids)
        *list = calloc(noted + 1, sizeof **list);
    if (*list)
        *count = describe_all(ids, noted, *list);
    free(ids);
    return *list ? 0 : -ENOMEM;
}

/* ---- the end ---- */

static void end(struct state_client *client)
{
    if (client->confirmed)
        recovery_evict(client->owner_hash);
    client_destroy(client);
}

static unsigned end_all(const uint64_t *ids, unsigned count)
{
    unsigned ended = 0;
    for (unsigned i = 0; i < count;) {
        state_lock_all();
        for (unsigned n = 0; n < ENDED_AT_ONCE && i < count; n++, i++) {
            struct state_client *client = client_find(ids[i]);
            if (!client)
                continue;
            end(client);
            ended++;
        }
        state_unlock_all();
        state_pause();
    }
    recovery_settle();
    return ended;
}

bool state_evict(uint32_t number, struct state_client_info *was)
{
    if (!state_all.running)
        return false;
    state_lock_all();
    struct state_client *client = client_find((uint64_t)state_all.epoch << 32 | number);
    if (client) {
        describe(client, was);
        end(client);
    }
    state_unlock_all();
    recovery_settle();
    return client;
}

int state_evict_address(const struct sockaddr_storage *address)
{
    unsigned count;
    if (!state_all.running)
        return 0;
    uint64_t *ids = note(address, &count);
    int ended = ids ? (int)end_all(ids, count) : -ENOMEM;
    free(ids);
    return ended;
}
