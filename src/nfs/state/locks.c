/* Byte-range locks, as POSIX has them: an owner's ranges never overlap, a new one takes the place of what it covers. */
#include <stdlib.h>
#include <string.h>

#include "nfs/state/private.h"

static void range_free(struct state_range *range)
{
    link_remove(&range->of_file);
    link_remove(&range->of_state);
    range->state->client->locks--;
    state_all.range_count--;
    free(range);
}

void ranges_free(struct state *state)
{
    while (!link_is_empty(&state->ranges))
        range_free(link_of(state->ranges.next, struct state_range, of_state));
}

static struct state_range *range_new(struct state *state, uint64_t first, uint64_t last, bool write)
{
    struct state_range *range = malloc(sizeof *range);
    if (!range)
        return NULL;
    *range = (struct state_range){.state = state, .first = first, .last = last, .write = write};
    link_add(&state->ranges, &range->of_state);
    link_add(&state->file->locks, &range->of_file);
    state->client->locks++;
    state_all.range_count++;
    return range;
}

static uint64_t last_of(const struct state_lock *lock)
{
    return lock->length == UINT64_MAX ? UINT64_MAX : lock->offset + lock->length - 1;
}

static bool is_write(const struct state_lock *lock)
{
    return lock->type == WRITE_LT || lock->type == WRITEW_LT;
}

/* ---- conflicts ---- */

static bool conflicts(const struct state_range *range, const struct state_lock *lock, const struct state_owner *owner)
{
    return range->state->owner != owner && range->first <= last_of(lock) && range->last >= lock->offset &&
           (range->write || is_write(lock));
}

static void tell(struct state_lock *lock, const struct state_range *range)
{
    const struct state_owner *owner = range->state->owner;
    uint32_t length = owner->length < NFS4_OPAQUE_LIMIT ? owner->length : NFS4_OPAQUE_LIMIT;
    lock->denied.offset = range->first;
    lock->denied.length = range->last == UINT64_MAX ? UINT64_MAX : range->last - range->first + 1;
    lock->denied.type = range->write ? WRITE_LT : READ_LT;
    lock->denied.clientid = range->state->client->by_id.key;
    lock->denied.owner_length = length;
    memcpy(lock->denied.owner, owner->bytes, length);
}

/* Silent clients give way.  `file` stays, whoever goes. */
static enum nfs4_status check(struct state_file *file, struct state_lock *lock, const struct state_owner *owner,
                              const struct state_client *client)
{
    struct state_link *at = file->locks.next;
    unsigned gone = 0;
    while (at != &file->locks) {
        struct state_range *range = link_of(at, struct state_range, of_file);
        at = at->next;
        if (!conflicts(range, lock, owner))
            continue;
        if (range->state->client == client || !client_is_expired(range->state->client)) {
            tell(lock, range);
            return NFS4ERR_DENIED;
        }
        if (!client_give_way(range->state->client, &gone))
            return STATE_MORE;
        at = file->locks.next;
    }
    return NFS4_OK;
}

/* ---- changing ---- */

/* Does taking out [first, last] cut a range in two? */
static bool cuts(const struct state *state, uint64_t first, uint64_t last)
{
    const struct state_link *all = &state->file->locks;
    for (const struct state_link *at = all->next; at != all; at = at->next) {
        const struct state_range *range = link_of(at, struct state_range, of_file);
        if (range->state->owner == state->owner && range->first < first && range->last > last)
            return true;
    }
    return false;
}

/* The rest of a range that is cut in two: of the same stateid. */
static void make_rest(struct state_range *rest, const struct state_range *range, uint64_t first)
{
    rest->first = first;
    rest->last = range->last;
    rest->write = range->write;
    rest->state = range->state;
    link_remove(&rest->of_state);
    link_add(&range->state->ranges, &rest->of_state);
}

/* Takes [first, last] out of what the owner has in this file, by whichever of his opens.  What is cut in two needs one
 * range more, which the caller has made. */
static void take_out(struct state *state, uint64_t first, uint64_t last, struct state_range **spare)
{
    struct state_link *all = &state->file->locks, *at = all->next;
    while (at != all) {
        struct state_range *range = link_of(at, struct state_range, of_file);
        at = at->next;
        if (range->state->owner != state->owner || range->first > range->last || range->first > last ||
            range->last < first)
            continue;
        if (range->first < first && range->last > last) {
            make_rest(*spare, range, last + 1);
            *spare = NULL;
            range->last = first - 1;
        } else if (range->first < first) {
            range->last = first - 1;
        } else if (range->last > last) {
            range->first = last + 1;
        } else {
            range_free(range);
        }
    }
}

/* Joins what lies beside the range and is of its kind. */
static void join(struct state *state, struct state_range *range)
{
    struct state_link *at = state->ranges.next;
    while (at != &state->ranges) {
        struct state_range *other = link_of(at, struct state_range, of_state);
        at = at->next;
        if (other == range || other->first > other->last || other->write != range->write)
            continue;
        if (other->last != UINT64_MAX && other->last + 1 == range->first)
            range->first = other->first;
        else if (range->last != UINT64_MAX && range->last + 1 == other->first)
            range->last = other->last;
        else
            continue;
        range_free(other);
    }
}

/* A range that is nowhere yet, so that a cut cannot fail half-way: empty ones are (1, 0). */
static struct state_range *spare_range(struct state *state)
{
    return range_new(state, 1, 0, false);
}

static enum nfs4_status set(struct state *state, const struct state_lock *lock)
{
    if (state_all.range_count + 2 > state_all.options.locks_most)
        return state->client->minor ? NFS4ERR_DELAY : NFS4ERR_RESOURCE;
    struct state_range *spare = spare_range(state), *range = spare ? spare_range(state) : NULL;
    if (!range) {
        if (spare)
            range_free(spare);
        return NFS4ERR_DELAY;
    }
    take_out(state, lock->offset, last_of(lock), &spare);
    range->first = lock->offset;
    range->last = last_of(lock);
    range->write = is_write(lock);
    join(state, range);
    if (spare)
        range_free(spare);
    return NFS4_OK;
}

/* ---- LOCK ---- */

static struct state *state_for(struct state *open, const struct state_owner *owner)
{
    for (struct state_link *at = open->lock_states.next; at != &open->lock_states; at = at->next) {
        struct state *state = link_of(at, struct state, of_open);
        if (state->owner == owner)
            return state;
    }
    return NULL;
}

/* The state of a lock-owner that comes with an open's stateid. */
static enum nfs4_status new_state(struct state_caller *caller, struct state_lock *lock, struct state **out)
{
    struct state *open;
    enum nfs4_status status = state_find(caller, &lock->stateid, STATE_OPEN, &open);
    if (status != NFS4_OK)
        return status;
    if (open->unconfirmed)
        return NFS4ERR_BAD_STATEID;
    if (!caller->minor && lock->clientid != open->client->by_id.key)
        return NFS4ERR_STALE_CLIENTID;
    struct state_owner *owner = owner_get(open->client, true, lock->lock_owner);
    if (!owner)
        return caller->minor ? NFS4ERR_DELAY : NFS4ERR_RESOURCE;
    *out = state_for(open, owner);
    if (*out)
        return NFS4_OK;
    if (opens_are_full() ||
        !(*out = state_new(STATE_LOCK, owner->client, owner, open->file))) {
        if (link_is_empty(&owner->states))
            owner_free(owner);
        return caller->minor ? NFS4ERR_DELAY : NFS4ERR_RESOURCE;
    }
    (*out)->open = open;
    link_add(&open->lock_states, &(*out)->of_open);
    owner->seqid = lock->lock_seqid;
    owner->fresh = false;
    return NFS4_OK;
}

static enum nfs4_status may_lock(const struct state_lock *lock, const struct state *state)
{
    if (lock->object.ino != state->file->object.ino || lock->object.tree != state->file->object.tree)
        return NFS4ERR_BAD_STATEID;
    uint32_t access = is_write(lock) ? OPEN4_SHARE_ACCESS_WRITE : OPEN4_SHARE_ACCESS_READ;
    if (!(state->open->access & access))
        return NFS4ERR_OPENMODE;
    if (lock->reclaim && (!recovery_in_grace() || state->client->reclaim_complete))
        return NFS4ERR_NO_GRACE;
    if (lock->reclaim && !state->client->may_reclaim)
        return NFS4ERR_RECLAIM_BAD;
    return !lock->reclaim && recovery_in_grace() ? NFS4ERR_GRACE : NFS4_OK;
}

static enum nfs4_status do_lock(struct state_caller *caller, struct state_lock *lock)
{
    struct state *state;
    enum nfs4_status status = lock->new_owner ? new_state(caller, lock, &state)
                                              : state_find(caller, &lock->stateid, STATE_LOCK, &state);
    if (status != NFS4_OK)
        return status;
    status = may_lock(lock, state);
    if (status == NFS4_OK)
        status = check(state->file, lock, state->owner, state->client);
    if (status == NFS4_OK)
        status = set(state, lock);
    if (status == NFS4_OK)
        lock->stateid = state_bump(state);
    else if (lock->new_owner && !state->seqid)
        state_free(state); /* it was made for this */
    return status;
}

enum nfs4_status state_lock(struct state_caller *caller, struct state_lock *lock)
{
    for (;;) {
        state_lock_all();
        enum nfs4_status status = do_lock(caller, lock);
        state_unlock_all();
        if (status != STATE_MORE)
            return status;
        state_pause();
    }
}

static enum nfs4_status do_lockt(struct state_caller *caller, struct state_lock *lock)
{
    struct state_client *client = caller->client;
    enum nfs4_status status = caller->minor ? NFS4_OK : client_find_4_0(lock->clientid, &client);
    if (status != NFS4_OK)
        return status;
    client_renew(client);
    if (recovery_in_grace())
        return NFS4ERR_GRACE;
    struct state_file *file = file_find(&lock->object);
    if (!file)
        return NFS4_OK;
    const struct state_owner *owner = owner_find(client, true, lock->lock_owner);
    for (struct state_link *at = file->locks.next; at != &file->locks; at = at->next) {
        struct state_range *range = link_of(at, struct state_range, of_file);
        if (!conflicts(range, lock, owner) || client_is_expired(range->state->client))
            continue;
        tell(lock, range);
        return NFS4ERR_DENIED;
    }
    return NFS4_OK;
}

enum nfs4_status state_lockt(struct state_caller *caller, struct state_lock *lock)
{
    state_lock_all();
    enum nfs4_status status = do_lockt(caller, lock);
    state_unlock_all();
    return status;
}

static enum nfs4_status do_locku(struct state_caller *caller, struct state_lock *lock)
{
    struct state *state;
    enum nfs4_status status = state_find(caller, &lock->stateid, STATE_LOCK, &state);
    if (status != NFS4_OK)
        return status;
    if (lock->object.ino != state->file->object.ino || lock->object.tree != state->file->object.tree)
        return NFS4ERR_BAD_STATEID;
    bool cut = cuts(state, lock->offset, last_of(lock));
    if (cut && state_all.range_count >= state_all.options.locks_most)
        return caller->minor ? NFS4ERR_DELAY : NFS4ERR_RESOURCE;
    struct state_range *spare = cut ? spare_range(state) : NULL;
    if (cut && !spare)
        return NFS4ERR_DELAY;
    take_out(state, lock->offset, last_of(lock), &spare);
    if (spare)
        range_free(spare);
    lock->stateid = state_bump(state);
    return NFS4_OK;
}

enum nfs4_status state_locku(struct state_caller *caller, struct state_lock *lock)
{
    state_lock_all();
    enum nfs4_status status = do_locku(caller, lock);
    state_unlock_all();
    return status;
}
