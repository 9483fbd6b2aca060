/* Open-owners and lock-owners, and the seqids of minor version 0 (RFC 7530, 9.1.7). */
#include <stdlib.h>
#include <string.h>

#include "nfs/state/private.h"
#include "sluice/base_coro.h"

enum { KEPT_RESULT_MOST = 2048, WAIT_MS = 1, WAITS_MOST = 20000 };

static uint64_t key_of(const struct state_client *client, bool is_lock, struct state_bytes name)
{
    return state_hash(name.bytes, name.length, client->by_id.key * 2 + is_lock);
}

struct state_owner *owner_find(struct state_client *client, bool is_lock, struct state_bytes name)
{
    struct state_node *node = state_table_find(&state_all.owners, key_of(client, is_lock, name));
    for (; node; node = state_table_next(node)) {
        struct state_owner *owner = link_of(node, struct state_owner, by_name);
        if (owner->client == client && owner->is_lock == is_lock && owner->length == name.length &&
            memcmp(owner->bytes, name.bytes, name.length) == 0)
            return owner;
    }
    return NULL;
}

/* Owners of minor version 0 stay when their last file is closed, for a repeated CLOSE: until there is no room. */
static bool free_idle(struct state_client *client)
{
    for (struct state_link *at = client->owners.previous; at != &client->owners; at = at->previous) {
        struct state_owner *owner = link_of(at, struct state_owner, of_client);
        if (!owner->busy && link_is_empty(&owner->states)) {
            owner_free(owner);
            return true;
        }
    }
    return client_make_room();
}

struct state_owner *owner_get(struct state_client *client, bool is_lock, struct state_bytes name)
{
    struct state_owner *owner = owner_find(client, is_lock, name);
    if (owner)
        return owner;
    if (state_all.owner_count >= state_all.options.opens_most * 2 && !free_idle(client))
        return NULL;
    owner = calloc(1, sizeof *owner + name.length);
    if (!owner)
        return NULL;
    owner->client = client;
    owner->is_lock = is_lock;
    owner->fresh = true;
    owner->length = name.length;
    memcpy(owner->bytes, name.bytes, name.length);
    owner->by_name.key = key_of(client, is_lock, name);
    link_init(&owner->states);
    link_add(&client->owners, &owner->of_client);
    state_table_add(&state_all.owners, &owner->by_name);
    state_all.owner_count++;
    return owner;
}

void owner_free(struct state_owner *owner)
{
    state_table_remove(&state_all.owners, &owner->by_name);
    link_remove(&owner->of_client);
    state_all.owner_count--;
    owner_forget_closed(owner);
    if (owner->busy) { /* its request frees it */
        owner->client = NULL;
        return;
    }
    free(owner->kept);
    free(owner);
}

/* ---- seqids ---- */

/* The owner is this request's from now on. */
static enum nfs4_status take(struct state_owner *owner, uint32_t seqid, struct state_kept *kept)
{
    if (!owner->fresh && seqid == owner->seqid && owner->kept) {
        kept->result = (struct state_bytes){owner->kept, owner->kept_length};
        kept->object = owner->kept_object;
    } else if (!owner->fresh && seqid != owner->seqid + 1) {
        return NFS4ERR_BAD_SEQID;
    }
    owner->claimed = seqid;
    owner->busy = true;
    return NFS4_OK;
}

/* An owner that never confirmed its open begins anew: what it had is gone (RFC 7530, 16.16.5). */
static void begin_anew(struct state_owner *owner)
{
    while (!link_is_empty(&owner->states))
        state_free(link_of(owner->states.next, struct state, of_owner));
    owner->fresh = true;
    free(owner->kept);
    owner->kept = NULL;
}

struct taking { /* one of the two ways to name an owner */
    struct state_caller *caller;
    const struct nfs4_stateid *stateid;
    uint64_t clientid;
    struct state_bytes name;
    uint32_t seqid;
    struct state_kept *kept;
    struct state_owner *owner;
    bool busy;
};

static enum nfs4_status by_name(struct taking *t)
{
    struct state_client *client;
    enum nfs4_status status = client_find_4_0(t->clientid, &client);
    if (status != NFS4_OK)
        return status;
    client_renew(client);
    t->owner = owner_get(client, false, t->name);
    if (!t->owner)
        return NFS4ERR_RESOURCE;
    t->busy = t->owner->busy;
    if (t->busy)
        return NFS4_OK;
    bool again = t->owner->kept && t->seqid == t->owner->seqid;
    if (!t->owner->confirmed && !t->owner->fresh && !again)
        begin_anew(t->owner);
    return take(t->owner, t->seqid, t->kept);
}

static enum nfs4_status by_stateid(struct taking *t)
{
    struct state *state;
    struct nfs4_stateid any = *t->stateid;
    any.seqid = 0; /* a repeated request's is older than the state's */
    t->owner = state_owner_of(t->caller, t->stateid);
    if (!t->owner) {
        enum nfs4_status status = state_find(t->caller, &any, 0, &state);
        if (status != NFS4_OK)
            return status;
        t->owner = state->owner;
    }
    client_renew(t->owner->client);
    t->busy = t->owner->busy;
    return t->busy ? NFS4_OK : take(t->owner, t->seqid, t->kept);
}

/* Waits while another request of the owner is in progress. */
static enum nfs4_status wait_and_take(struct taking *t, struct state_owner **owner)
{
    for (unsigned i = 0; i < WAITS_MOST; i++) {
        state_lock_all();
        enum nfs4_status status = t->stateid ? by_stateid(t) : by_name(t);
        state_unlock_all();
        if (!t->busy) {
            *owner = status == NFS4_OK ? t->owner : NULL;
            return status;
        }
        coro_sleep(WAIT_MS);
    }
    return NFS4ERR_RESOURCE;
}

enum nfs4_status state_seqid_by_owner(struct state_caller *caller, uint64_t clientid, struct state_bytes open_owner,
                                      uint32_t seqid, struct state_owner **owner, struct state_kept *kept)
{
    struct taking t = {.caller = caller, .clientid = clientid, .name = open_owner, .seqid = seqid, .kept = kept};
    *owner = NULL;
    return caller->minor ? NFS4_OK : wait_and_take(&t, owner);
}

enum nfs4_status state_seqid_by_stateid(struct state_caller *caller, const struct nfs4_stateid *stateid,
                                        uint32_t seqid, struct state_owner **owner, struct state_kept *kept)
{
    struct taking t = {.caller = caller, .stateid = stateid, .seqid = seqid, .kept = kept};
    *owner = NULL;
    return caller->minor ? NFS4_OK : wait_and_take(&t, owner);
}

/* Does a request that ended so count? (RFC 7530, 9.1.7) */
static bool counts(enum nfs4_status status)
{
    switch (status) {
    case NFS4ERR_STALE_CLIENTID:
    case NFS4ERR_STALE_STATEID:
    case NFS4ERR_BAD_STATEID:
    case NFS4ERR_BAD_SEQID:
    case NFS4ERR_BADXDR:
    case NFS4ERR_RESOURCE:
    case NFS4ERR_NOFILEHANDLE:
    case NFS4ERR_MOVED:
        return false;
    default:
        return true;
    }
}

static void keep(struct state_owner *owner, struct state_bytes result, const struct store_object *object)
{
    free(owner->kept);
    owner->kept = result.length <= KEPT_RESULT_MOST ? malloc(result.length) : NULL;
    owner->kept_length = result.length;
    if (owner->kept)
        memcpy(owner->kept, result.bytes, result.length);
    owner->kept_object = object ? *object : (struct store_object){0};
}

void state_seqid_end(struct state_owner *owner, enum nfs4_status status, struct state_bytes result,
                     const struct store_object *object)
{
    if (!owner)
        return;
    state_lock_all();
    owner->busy = false;
    if (!owner->client) { /* it has ended meanwhile */
        free(owner->kept);
        free(owner);
    } else if (result.bytes && counts(status)) {
        owner->seqid = owner->claimed;
        owner->fresh = false;
        keep(owner, result, object);
    }
    state_unlock_all();
}

/* With its last state a lock-owner goes by itself. */
static void end_lock_owner(struct state_owner *owner)
{
    if (link_is_empty(&owner->states)) {
        owner_free(owner);
        return;
    }
    for (bool last = false; !last;) {
        struct state *state = link_of(owner->states.next, struct state, of_owner);
        last = state->of_owner.next == &owner->states;
        state_free(state);
    }
}

enum nfs4_status state_release_lockowner(struct state_caller *caller, uint64_t clientid, struct state_bytes name)
{
    struct state_client *client;
    state_lock_all();
    enum nfs4_status status = client_find_4_0(clientid, &client);
    struct state_owner *owner = status == NFS4_OK ? owner_find(client, true, name) : NULL;
    for (struct state_link *at = owner ? owner->states.next : NULL; at && at != &owner->states; at = at->next)
        if (!link_is_empty(&link_of(at, struct state, of_owner)->ranges))
            status = NFS4ERR_LOCKS_HELD;
    if (owner && status == NFS4_OK)
        end_lock_owner(owner);
    state_unlock_all();
    return status;
}
