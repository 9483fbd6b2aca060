/* NFSv4's clients: the part of `sluice clients` that tells of them, and `sluice clients evict`. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "admin/commands.h"
#include "sluice/nfs_state.h"

static json_t *describe(const struct state_client_info *client)
{
    char address[ADDRESS_ROOM];
    return json_pack("{s:I, s:s, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:b}", "number", (json_int_t)client->number,
                     "address", address_text(address, &client->peer), "minor_version", (int)client->minor, "owner",
                     client->owner, "implementation", client->implementation, "opens", (json_int_t)client->opens,
                     "locks", (json_int_t)client->locks, "delegations", (json_int_t)client->delegations,
                     "silent_seconds", (json_int_t)client->silent_seconds, "confirmed", (int)client->confirmed,
                     "expired", (int)client->expired);
}

json_t *describe_nfs4_clients(void)
{
    struct state_client_info *list;
    unsigned count;
    if (state_clients(&list, &count))
        return NULL;
    json_t *all = json_array();
    for (unsigned i = 0; i < count; i++)
        json_array_append_new(all, describe(&list[i]));
    free(list);
    return all;
}

/* ---- the end of what a client has ---- */

static json_t *evicted(int count)
{
    return json_pack("{s:i}", "evicted", count);
}

static bool is_number(const char *text, uint32_t *number)
{
    enum { DIGITS_MOST = 10 };
    size_t length = strlen(text);
    if (!length || length > DIGITS_MOST || text[strspn(text, "0123456789")])
        return false;
    unsigned long long value = strtoull(text, NULL, 10);
    *number = (uint32_t)value;
    return value <= UINT32_MAX;
}

/* The event is to tell who it was: the number alone says nothing later. */
static void note_for_event(struct request *r, const struct state_client_info *was)
{
    char address[ADDRESS_ROOM];
    json_object_set_new(r->args, "address", json_string(address_text(address, &was->peer)));
    json_object_set_new(r->args, "owner", json_string(was->owner));
}

static json_t *evict_number(struct request *r, uint32_t number)
{
    struct state_client_info was;
    if (!state_evict(number, &was))
        return request_error(-ENOENT, "there is no NFSv4 client %u; sluice clients lists those there are", number);
    note_for_event(r, &was);
    return evicted(1);
}

static json_t *evict_address(const char *text, const struct sockaddr_storage *address)
{
    int count = state_evict_address(address);
    if (count < 0)
        return request_error(count, "no memory");
    if (count == 0)
        return request_error(-ENOENT, "%s has no NFSv4 client; sluice clients lists those there are", text);
    return evicted(count);
}

json_t *command_clients_evict(struct request *r)
{
    struct state_counts unused;
    struct sockaddr_storage address;
    uint32_t number;
    const char *client = request_text(r, "client");
    if (!client)
        return request_error(-EINVAL, "the request has no \"client\": a client's number or its address");
    if (!state_count(&unused))
        return request_error(-ENOENT, "there are no NFSv4 clients: nfs-versions says that version 4 is not served");
    if (is_number(client, &number))
        return evict_number(r, number);
    if (address_parse(client, &address))
        return evict_address(client, &address);
    return request_error(-EINVAL, "'%.80s' is no client; right would be a number that sluice clients shows, or an "
                         "address: 10.1.2.3 or fd00::5", client);
}
