/* Clients of all minor versions: EXCHANGE_ID, SETCLIENTID and their confirmation, leases, and the end of a client. */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "nfs/state/private.h"

/* ---- finding ---- */

struct state_client *client_find(uint64_t clientid)
{
    struct state_node *node = state_table_find(&state_all.clients, clientid);
    return node ? link_of(node, struct state_client, by_id) : NULL;
}

static uint64_t owner_key(struct state_bytes owner, uint32_t minor)
{
    return state_hash(owner.bytes, owner.length, minor + 1);
}

/* The confirmed or the unconfirmed client of an owner. */
static struct state_client *find_owner(struct state_bytes owner, uint32_t minor, bool confirmed)
{
    struct state_node *node = state_table_find(&state_all.client_owners, owner_key(owner, minor));
    for (; node; node = state_table_next(node)) {
        struct state_client *client = link_of(node, struct state_client, by_owner);
        if (client->confirmed == confirmed && client->minor == minor && client->owner_length == owner.length &&
            memcmp(client->owner, owner.bytes, owner.length) == 0)
            return client;
    }
    return NULL;
}

enum nfs4_status client_find_4_0(uint64_t clientid, struct state_client **out)
{
    *out = client_find(clientid);
    if (*out && (*out)->minor == 0 && (*out)->confirmed)
        return NFS4_OK;
    *out = NULL;
    bool mine = clientid >> 32 == state_all.epoch && (uint32_t)clientid <= atomic_load(&state_all.numbers);
    return mine ? NFS4ERR_EXPIRED : NFS4ERR_STALE_CLIENTID;
}

/* ---- leases ---- */

bool client_is_expired(const struct state_client *client)
{
    return state_seconds() - atomic_load(&client->renewed) > state_all.options.lease_seconds;
}

void client_renew(struct state_client *client)
{
    atomic_store_explicit(&client->renewed, state_seconds(), memory_order_relaxed);
}

void client_flags(struct state_client *client)
{
    enum { /* SEQ4_STATUS_* */
           CB_PATH_DOWN = 1, ADMIN_STATE_REVOKED = 0x20, RECALLABLE_STATE_REVOKED = 0x40,
           CB_PATH_DOWN_SESSION = 0x200 };
    uint32_t flags = 0;
    bool up = false;
    for (struct state_link *at = client->sessions.next; at != &client->sessions; at = at->next) {
        const struct state_back *back = &link_of(at, struct state_session, of_client)->back_channel;
        flags |= back->down ? CB_PATH_DOWN_SESSION : 0;
        up = up || back->bound;
    }
    if (flags && !up)
        flags |= CB_PATH_DOWN;
    if (client->revoked_delegations)
        flags |= RECALLABLE_STATE_REVOKED;
    if (client->revoked_others)
        flags |= ADMIN_STATE_REVOKED;
    atomic_store_explicit(&client->status_flags, flags, memory_order_relaxed);
}

bool client_has_state(const struct state_client *client)
{
    return !link_is_empty(&client->states);
}

/* ---- coming and going ---- */

static void free_rcu(struct rcu_head *head)
{
    free(link_of(head, struct state_client, rcu));
}

void client_hold(struct state_client *client)
{
    atomic_fetch_add(&client->references, 1);
}

void client_drop(struct state_client *client)
{
    if (atomic_fetch_sub(&client->references, 1) == 1)
        call_rcu(&client->rcu, free_rcu);
}

void client_destroy(struct state_client *client)
{
    if (client->gone)
        return;
    client->gone = true;
    while (!link_is_empty(&client->sessions))
        session_destroy(link_of(client->sessions.next, struct state_session, of_client));
    while (!link_is_empty(&client->states))
        state_free(link_of(client->states.next, struct state, of_client));
    while (!link_is_empty(&client->owners))
        owner_free(link_of(client->owners.next, struct state_owner, of_client));
    state_table_remove(&state_all.clients, &client->by_id);
    state_table_remove(&state_all.client_owners, &client->by_owner);
    link_remove(&client->all);
    state_all.client_count--;
    client_drop(client);
}

bool client_give_way(struct state_client *client, unsigned *gone)
{
    enum { AT_ONCE = 32 };
    if (*gone == AT_ONCE)
        return false;
    ++*gone;
    recovery_forget_later(client->owner_hash);
    client_destroy(client);
    return true;
}

bool client_make_room(void)
{
    static uint32_t not_before; /* seconds: none of those looked at last expires sooner, and none that came since */
    uint32_t first = UINT32_MAX;
    if (state_seconds() < not_before)
        return false;
    for (struct state_link *at = state_all.client_list.previous; at != &state_all.client_list; at = at->previous) {
        struct state_client *client = link_of(at, struct state_client, all);
        if (client_is_expired(client)) {
            if (client->confirmed)
                recovery_forget_later(client->owner_hash);
            client_destroy(client);
            return true;
        }
        uint32_t renewed = atomic_load(&client->renewed);
        first = renewed < first ? renewed : first;
    }
    uint32_t now = state_seconds();
    first = first < now ? first : now;
    not_before = first + state_all.options.lease_seconds + 1;
    return false;
}

static struct state_client *client_new(const struct state_caller *caller, struct state_bytes owner, uint32_t minor,
                                       const uint8_t *verifier, struct state_bytes implementation)
{
    enum { IMPLEMENTATION_MOST = 80 };
    if (implementation.length > IMPLEMENTATION_MOST)
        implementation.length = IMPLEMENTATION_MOST;
    if (state_all.client_count >= state_all.options.clients_most && !client_make_room())
        return NULL;
    struct state_client *client = calloc(1, sizeof *client + owner.length + implementation.length);
    if (!client)
        return NULL;
    client->minor = minor;
    client->minor_told = caller->minor;
    client->principal = state_principal(caller);
    client->peer = *caller->call->peer;
    client->sequence = 1;
    client->owner_length = owner.length;
    memcpy(client->owner, owner.bytes, owner.length);
    client->implementation_length = implementation.length;
    if (implementation.length)
        memcpy(client->owner + owner.length, implementation.bytes, implementation.length);
    memcpy(client->verifier, verifier, sizeof client->verifier);
    crypto_generichash(client->owner_hash, sizeof client->owner_hash, owner.bytes, owner.length, NULL, 0);
    client->may_reclaim = recovery_knows(client->owner_hash);
    link_init(&client->sessions);
    link_init(&client->owners);
    link_init(&client->states);
    link_init(&client->recalls);
    client->references = 1;
    client_renew(client);
    client->by_id.key = (uint64_t)state_all.epoch << 32 | (uint32_t)state_new_number();
    client->by_owner.key = owner_key(owner, minor);
    state_table_add(&state_all.clients, &client->by_id);
    state_table_add(&state_all.client_owners, &client->by_owner);
    link_add(&state_all.client_list, &client->all);
    state_all.client_count++;
    return client;
}

/* A confirmed client takes the place of what its owner had before. */
void client_confirm(struct state_client *client)
{
    struct state_bytes owner = {client->owner, client->owner_length};
    struct state_client *old = find_owner(owner, client->minor, true);
    if (old && old != client)
        client_destroy(old);
    client->confirmed = true;
}

/* ---- EXCHANGE_ID (RFC 8881, 18.35.5) ---- */

static enum nfs4_status update(const struct state_caller *caller, struct state_client *known,
                               const struct state_exchange *exchange)
{
    if (!known)
        return NFS4ERR_NOENT;
    if (memcmp(known->verifier, exchange->verifier, sizeof known->verifier) != 0)
        return NFS4ERR_NOT_SAME;
    return state_same_principal(known->principal, state_principal(caller)) ? NFS4_OK : NFS4ERR_PERM;
}

/* *known becomes NULL where there is a new client to be made. */
static enum nfs4_status settle_known(const struct state_caller *caller, struct state_client **known,
                                     const struct state_exchange *exchange)
{
    struct state_client *client = *known;
    if (exchange->flags & EXCHGID4_UPD_CONFIRMED_REC_A)
        return update(caller, client, exchange);
    if (!client)
        return NFS4_OK;
    if (!state_same_principal(client->principal, state_principal(caller))) {
        if (client_has_state(client) && !client_is_expired(client))
            return NFS4ERR_CLID_INUSE;
        client_destroy(client);
        *known = NULL;
    } else if (memcmp(client->verifier, exchange->verifier, sizeof client->verifier) != 0) {
        *known = NULL; /* it has restarted; what it had goes when the new one is confirmed */
    }
    return NFS4_OK;
}

static enum nfs4_status exchange_id(struct state_caller *caller, struct state_exchange *exchange)
{
    struct state_client *known = find_owner(exchange->owner, 1, true);
    enum nfs4_status status = settle_known(caller, &known, exchange);
    if (status != NFS4_OK)
        return status;
    if (!known) {
        struct state_client *before = find_owner(exchange->owner, 1, false);
        if (before)
            client_destroy(before);
        known = client_new(caller, exchange->owner, 1, exchange->verifier, exchange->implementation);
        if (!known)
            return NFS4ERR_DELAY;
    }
    client_renew(known);
    exchange->clientid = known->by_id.key;
    exchange->sequence = known->sequence;
    exchange->flags = EXCHGID4_USE_NON_PNFS | (known->confirmed ? EXCHGID4_CONFIRMED_R : 0);
    return NFS4_OK;
}

enum nfs4_status state_exchange_id(struct state_caller *caller, struct state_exchange *exchange)
{
    if (exchange->owner.length == 0)
        return NFS4ERR_INVAL;
    state_lock_all();
    enum nfs4_status status = exchange_id(caller, exchange);
    state_unlock_all();
    return status;
}


/* ---- SETCLIENTID (RFC 7530, 16.33.5) ---- */

static enum nfs4_status setclientid(struct state_caller *caller, struct state_setclientid *set)
{
    struct state_client *known = find_owner(set->owner, 0, true);
    if (known && !state_same_principal(known->principal, state_principal(caller)) && client_has_state(known) &&
        !client_is_expired(known)) {
        set->in_use = known->peer;
        return NFS4ERR_CLID_INUSE;
    }
    if (known && memcmp(known->verifier, set->verifier, sizeof set->verifier) == 0) {
        /* The same client again, with a new callback: its id stays, and the confirmation is a new one. */
        randombytes_buf(known->confirm, sizeof known->confirm);
        set->clientid = known->by_id.key;
        memcpy(set->confirm, known->confirm, sizeof set->confirm);
        return NFS4_OK;
    }
    struct state_client *before = find_owner(set->owner, 0, false);
    if (before)
        client_destroy(before);
    struct state_client *client = client_new(caller, set->owner, 0, set->verifier, (struct state_bytes){0});
    if (!client)
        return NFS4ERR_RESOURCE;
    randombytes_buf(client->confirm, sizeof client->confirm);
    set->clientid = client->by_id.key;
    memcpy(set->confirm, client->confirm, sizeof set->confirm);
    return NFS4_OK;
}

enum nfs4_status state_setclientid(struct state_caller *caller, struct state_setclientid *set)
{
    state_lock_all();
    enum nfs4_status status = setclientid(caller, set);
    state_unlock_all();
    return status;
}

static enum nfs4_status setclientid_confirm(struct state_caller *caller, const struct state_setclientid *set,
                                            uint8_t record[OWNER_HASH], bool *is_new)
{
    struct state_client *client = client_find(set->clientid);
    if (!client || client->minor || memcmp(client->confirm, set->confirm, sizeof set->confirm) != 0)
        return NFS4ERR_STALE_CLIENTID;
    if (!state_same_principal(client->principal, state_principal(caller)))
        return NFS4ERR_CLID_INUSE;
    *is_new = !client->confirmed;
    memcpy(record, client->owner_hash, OWNER_HASH);
    client_renew(client);
    client_confirm(client);
    return NFS4_OK;
}

enum nfs4_status state_setclientid_confirm(struct state_caller *caller, const struct state_setclientid *set)
{
    uint8_t record[OWNER_HASH];
    bool is_new = false;
    state_lock_all();
    enum nfs4_status status = setclientid_confirm(caller, set, record, &is_new);
    state_unlock_all();
    if (status == NFS4_OK && is_new && recovery_record(record, 0))
        return NFS4ERR_DELAY; /* asked again it is confirmed, and only has no record */
    return status;
}

enum nfs4_status state_renew(struct state_caller *caller, uint64_t clientid) /* 16.30 */
{
    struct state_client *client;
    state_lock_all();
    enum nfs4_status status = client_find_4_0(clientid, &client);
    if (status == NFS4_OK)
        client_renew(client);
    state_unlock_all();
    return status;
}

/* ---- the end ---- */

enum nfs4_status state_reclaim_complete(struct state_caller *caller, bool one_fs) /* RFC 8881, 18.51 */
{
    enum nfs4_status status = NFS4_OK;
    state_lock_all();
    if (!one_fs && caller->client->reclaim_complete)
        status = NFS4ERR_COMPLETE_ALREADY;
    else if (!one_fs)
        recovery_done(caller->client);
    state_unlock_all();
    return status;
}

enum nfs4_status state_destroy_clientid(struct state_caller *caller, uint64_t clientid) /* RFC 8881, 18.50 */
{
    uint8_t record[OWNER_HASH];
    enum nfs4_status status = NFS4_OK;
    bool recorded = false;
    state_lock_all();
    struct state_client *client = client_find(clientid);
    if (!client || client->minor == 0) {
        status = NFS4ERR_STALE_CLIENTID;
    } else if (!link_is_empty(&client->sessions) || client_has_state(client)) {
        status = NFS4ERR_CLIENTID_BUSY;
    } else {
        recorded = client->confirmed;
        memcpy(record, client->owner_hash, sizeof record);
        client_destroy(client);
    }
    state_unlock_all();
    if (recorded && recovery_forget(record))
        return NFS4ERR_DELAY;
    return status;
}
