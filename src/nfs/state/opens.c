/* Opens, their share reservations, and what a stateid stands for. */
#include <stdlib.h>
#include <string.h>

#include "nfs/state/callbacks.h"
#include "nfs/state/delegations.h"
#include "sluice/base_coro.h"

enum { WAIT_MS = 10, PROOF_WAITS = 10, RECALL_WAITS = 50 }; /* of an OPEN */

/* ---- files ---- */

static uint64_t key_of(const struct store_object *object)
{
    return object->ino * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)object->tree << 32 ^ object->generation;
}

static bool is_same(const struct store_object *a, const struct store_object *b)
{
    return a->ino == b->ino && a->tree == b->tree && a->generation == b->generation;
}

struct state_file *file_find(const struct store_object *object)
{
    struct state_node *node = state_table_find(&state_all.files, key_of(object));
    for (; node; node = state_table_next(node)) {
        struct state_file *file = link_of(node, struct state_file, by_object);
        if (is_same(&file->object, object))
            return file;
    }
    return NULL;
}

struct state_file *file_get(const struct store_object *object)
{
    struct state_file *file = file_find(object);
    if (file || !(file = calloc(1, sizeof *file)))
        return file;
    file->object = *object;
    file->by_object.key = key_of(object);
    link_init(&file->opens);
    link_init(&file->locks);
    state_table_add(&state_all.files, &file->by_object);
    return file;
}

static void free_file(struct rcu_head *head)
{
    free(link_of(head, struct state_file, rcu));
}

/* Many may have one file open: what all of them have is counted, not looked for. */
static void count_shares(struct state_file *file, uint32_t access, uint32_t deny, int by)
{
    for (unsigned i = 0; i < 4; i++)
        file->shares[i] += (access | deny << 2) >> i & 1 ? (uint32_t)by : 0;
    uint32_t denied = file->shares[2] ? OPEN4_SHARE_ACCESS_READ : 0;
    atomic_store(&file->deny, denied | (file->shares[3] ? OPEN4_SHARE_ACCESS_WRITE : 0));
}

static void set_shares(struct state *state, uint32_t access, uint32_t deny)
{
    count_shares(state->file, state->access, state->deny, -1);
    atomic_store(&state->access, access);
    atomic_store(&state->deny, deny);
    count_shares(state->file, access, deny, 1);
}

static bool shares_conflict(const struct state_file *file, uint32_t access, uint32_t deny)
{
    for (unsigned i = 0; i < 2; i++)
        if ((access >> i & 1 && file->shares[2 + i]) || (deny >> i & 1 && file->shares[i]))
            return true;
    return false;
}

void file_check(struct state_file *file)
{
    if (!link_is_empty(&file->opens) || !link_is_empty(&file->locks))
        return;
    state_table_remove(&state_all.files, &file->by_object);
    if (file->held)
        state_all.store->ops->release(state_all.store, &file->object);
    call_rcu(&file->rcu, free_file);
}

/* ---- states ---- */

struct other { /* of a stateid */
    uint32_t epoch;
    uint32_t number[2]; /* the client's and its own: whose client is gone, has expired */
};
_Static_assert(sizeof(struct other) == NFS4_OTHER_SIZE, "a stateid");

static enum nfs4_status number_of(const struct state_caller *caller, const struct nfs4_stateid *stateid,
                                  uint64_t *number)
{
    struct other other;
    memcpy(&other, stateid->other, sizeof other);
    *number = (uint64_t)other.number[0] << 32 | other.number[1];
    if (other.epoch == state_all.epoch)
        return NFS4_OK;
    /* Of an earlier start, or of none. */
    return !caller->minor && other.epoch && other.epoch < state_all.epoch ? NFS4ERR_STALE_STATEID : NFS4ERR_BAD_STATEID;
}

struct nfs4_stateid state_stateid(struct state *state)
{
    struct nfs4_stateid stateid = {.seqid = state->seqid};
    struct other other = {state_all.epoch,
                          {(uint32_t)(state->by_number.key >> 32), (uint32_t)state->by_number.key}};
    memcpy(stateid.other, &other, sizeof other);
    return stateid;
}

struct nfs4_stateid state_bump(struct state *state)
{
    uint32_t next = state->seqid + 1;
    atomic_store(&state->seqid, next ? next : 1);
    return state_stateid(state);
}

struct state *state_new(enum state_kind kind, struct state_client *client, struct state_owner *owner,
                        struct state_file *file)
{
    struct state *state = calloc(1, sizeof *state);
    if (!state)
        return NULL;
    state->kind = kind;
    state->client = client;
    state->owner = owner;
    state->file = file;
    state->by_number.key = client->by_id.key << 32 | (uint32_t)state_new_number();
    link_init(&state->lock_states);
    link_init(&state->of_open);
    link_init(&state->ranges);
    link_init(&state->of_owner);
    link_init(&state->of_recalls);
    if (owner)
        link_add(&owner->states, &state->of_owner);
    link_add(&client->states, &state->of_client);
    link_add(&file->opens, &state->of_file);
    state_table_add(&state_all.states, &state->by_number);
    state_all.state_count++;
    state_all.delegation_count += kind == STATE_DELEGATION;
    client->opens += kind == STATE_OPEN;
    client->delegations += kind == STATE_DELEGATION;
    return state;
}

static void free_rcu(struct rcu_head *head)
{
    free(link_of(head, struct state, rcu));
}

void owner_forget_closed(struct state_owner *owner)
{
    struct state *state = owner->closed;
    owner->closed = NULL;
    if (!state)
        return;
    state_table_remove(&state_all.states, &state->by_number);
    call_rcu(&state->rcu, free_rcu);
}

struct state_owner *state_owner_of(const struct state_caller *caller, const struct nfs4_stateid *stateid)
{
    uint64_t number;
    if (number_of(caller, stateid, &number) != NFS4_OK)
        return NULL;
    struct state_node *node = state_table_find(&state_all.states, number);
    struct state *state = node ? link_of(node, struct state, by_number) : NULL;
    return state && state->closed ? state->owner : NULL;
}

static void free_owner_if_idle(struct state *state)
{
    struct state_owner *owner = state->owner;
    if (owner && link_is_empty(&owner->states) && (state->client->minor || owner->is_lock) && !owner->busy)
        owner_free(owner);
}

/* Takes it out of its file, with its locks. */
static void leave_file(struct state *state)
{
    struct state_file *file = state->file;
    while (!link_is_empty(&state->lock_states))
        state_free(link_of(state->lock_states.next, struct state, of_open));
    ranges_free(state);
    link_remove(&state->of_open);
    link_remove(&state->of_recalls);
    link_remove(&state->of_file);
    state->client->opens -= state->kind == STATE_OPEN;
    state->client->delegations -= state->kind == STATE_DELEGATION;
    if (state->kind == STATE_OPEN)
        count_shares(file, state->access, state->deny, -1);
    if (state->kind == STATE_DELEGATION && !state->immutable) {
        atomic_fetch_sub(&file->delegations, 1);
        atomic_fetch_sub(&state_all.live_delegations, 1);
    }
    file_check(file);
}

static void count_revoked(struct state *state, uint32_t change)
{
    if (state->kind == STATE_DELEGATION && state->revoked == NFS4ERR_DELEG_REVOKED)
        state->client->revoked_delegations += change;
    else
        state->client->revoked_others += change;
    client_flags(state->client);
}

/* Takes it out of all that it is in, but for the table of stateids. */
static void take_apart(struct state *state)
{
    if (state->file)
        leave_file(state);
    else
        count_revoked(state, (uint32_t)-1);
    link_remove(&state->of_owner);
    link_remove(&state->of_client);
    state_all.state_count--;
    state_all.delegation_count -= state->kind == STATE_DELEGATION;
}

void state_revoke(struct state *state, enum nfs4_status why)
{
    atomic_store(&state->revoked, why);
    leave_file(state);
    rcu_assign_pointer(state->file, NULL);
    link_remove(&state->of_owner);
    free_owner_if_idle(state);
    state->owner = NULL;
    count_revoked(state, 1);
}

/* In minor version 0 a CLOSE may be repeated, and its stateid has to lead to its owner until that goes on. */
static void close_and_keep(struct state *state)
{
    take_apart(state);
    state->closed = true;
    owner_forget_closed(state->owner);
    state->owner->closed = state;
}

void state_free(struct state *state)
{
    take_apart(state);
    state_table_remove(&state_all.states, &state->by_number);
    free_owner_if_idle(state);
    call_rcu(&state->rcu, free_rcu);
}

/* ---- stateids ---- */

/* RFC 8881, 8.2.2: 0 is the present one; the future is not known. */
static enum nfs4_status check_seqid(const struct state_caller *caller, uint32_t seqid, uint32_t now)
{
    if (seqid == now || seqid == 0)
        return NFS4_OK;
    return (int32_t)(seqid - now) < 0 ? NFS4ERR_OLD_STATEID : NFS4ERR_BAD_STATEID;
}

/* Within an RCU section or under the mutex. */
static enum nfs4_status find(const struct state_caller *caller, const struct nfs4_stateid *stateid, struct state **out)
{
    uint64_t number;
    enum nfs4_status status = number_of(caller, stateid, &number);
    if (status != NFS4_OK)
        return status;
    struct state_node *node = state_table_find(&state_all.states, number);
    struct state *state = node ? link_of(node, struct state, by_number) : NULL;
    if (!state && !caller->minor && !client_find((uint64_t)state_all.epoch << 32 | number >> 32))
        return NFS4ERR_EXPIRED;
    if (!state || state->closed || (caller->client && state->client != caller->client) ||
        !caller->minor != !state->client->minor)
        return NFS4ERR_BAD_STATEID;
    *out = state;
    return check_seqid(caller, stateid->seqid, state->seqid);
}

enum nfs4_status state_find(struct state_caller *caller, const struct nfs4_stateid *stateid, unsigned kind,
                            struct state **out)
{
    enum nfs4_status status = find(caller, stateid, out);
    if (status != NFS4_OK)
        return status;
    if ((*out)->revoked)
        return (enum nfs4_status)(*out)->revoked;
    return kind && (*out)->kind != kind ? NFS4ERR_BAD_STATEID : NFS4_OK;
}

static bool is_filled(const struct nfs4_stateid *stateid, uint8_t with)
{
    for (unsigned i = 0; i < sizeof stateid->other; i++)
        if (stateid->other[i] != with)
            return false;
    return true;
}

/* Without a stateid of its own: others' share reservations hold.  The bypassing one reads past them. */
static enum nfs4_status special(const struct store_object *object, uint32_t access, bool bypasses)
{
    struct state_file *file = file_find(object);
    uint32_t deny = file ? atomic_load(&file->deny) : 0;
    if (bypasses)
        deny &= ~(uint32_t)OPEN4_SHARE_DENY_READ;
    return deny & access ? NFS4ERR_LOCKED : NFS4_OK;
}

static enum nfs4_status own(struct state_caller *caller, const struct store_object *object,
                            const struct nfs4_stateid *stateid, uint32_t access)
{
    struct state *state;
    enum nfs4_status status = find(caller, stateid, &state);
    if (status != NFS4_OK)
        return status;
    const struct state_file *file = rcu_dereference(state->file);
    if (!file)
        return (enum nfs4_status)atomic_load(&state->revoked);
    if (!is_same(&file->object, object))
        return NFS4ERR_BAD_STATEID;
    if (!caller->minor)
        client_renew(state->client);
    const struct state *open = state->kind == STATE_LOCK ? state->open : state;
    if (open->unconfirmed)
        return NFS4ERR_BAD_STATEID;
    uint32_t has = open->access;
    if (access & OPEN4_SHARE_ACCESS_WRITE && !(has & OPEN4_SHARE_ACCESS_WRITE))
        return NFS4ERR_OPENMODE;
    return NFS4_OK; /* who may write reads as well: clients do so to fill a page (RFC 8881, 9.1.2) */
}

enum nfs4_status state_io(struct state_caller *caller, const struct store_object *object,
                          const struct nfs4_stateid *stateid, uint32_t access)
{
    bool anonymous = stateid->seqid == 0 && is_filled(stateid, 0);
    bool bypass = stateid->seqid == UINT32_MAX && is_filled(stateid, 0xff);
    rcu_read_lock();
    enum nfs4_status status = anonymous || bypass ? special(object, access, bypass && access == OPEN4_SHARE_ACCESS_READ)
                                                  : own(caller, object, stateid, access);
    rcu_read_unlock();
    if (status == NFS4_OK && anonymous && access == OPEN4_SHARE_ACCESS_WRITE && recovery_in_grace())
        return NFS4ERR_GRACE; /* it might meet a share that is going to be reclaimed */
    return status;
}

/* ---- OPEN ---- */

static enum nfs4_status client_of(struct state_caller *caller, uint64_t clientid, struct state_client **out)
{
    *out = caller->client;
    return caller->minor ? NFS4_OK : client_find_4_0(clientid, out);
}

static enum nfs4_status may_open(struct state_caller *caller, const struct state_open *open)
{
    struct state_client *client;
    enum nfs4_status status = client_of(caller, open->clientid, &client);
    if (status != NFS4_OK)
        return status;
    switch (open->claim) {
    case CLAIM_PREVIOUS:
        if (!recovery_in_grace() || client->reclaim_complete)
            return NFS4ERR_NO_GRACE;
        return client->may_reclaim ? NFS4_OK : NFS4ERR_RECLAIM_BAD;
    case CLAIM_DELEGATE_PREV:
    case CLAIM_DELEG_PREV_FH:
        return NFS4ERR_NOTSUPP;
    case CLAIM_DELEGATE_CUR:
    case CLAIM_DELEG_CUR_FH:
        status = delegation_claimed(caller, open, NULL);
        if (status != NFS4_OK)
            return status;
        break;
    case CLAIM_NULL:
    case CLAIM_FH:
        break;
    }
    if (recovery_in_grace())
        return NFS4ERR_GRACE;
    if (caller->minor && !client->reclaim_complete)
        return NFS4ERR_GRACE; /* RFC 8881, 18.51.3: first it has to say that it reclaims nothing more */
    return NFS4_OK;
}

enum nfs4_status state_may_open(struct state_caller *caller, const struct state_open *open)
{
    state_lock_all();
    enum nfs4_status status = may_open(caller, open);
    state_unlock_all();
    return status;
}

/* The share that another open stands against; silent clients give way. */
static enum nfs4_status check_shares(struct state_file *file, const struct state_owner *owner, uint32_t access,
                                     uint32_t deny)
{
    struct state_link *at = file->opens.next;
    unsigned gone = 0;
    while (at != &file->opens && shares_conflict(file, access, deny)) {
        struct state *state = link_of(at, struct state, of_file);
        at = at->next;
        if (state->kind != STATE_OPEN)
            continue; /* one's own opens count as well (RFC 8881, 9.7) */
        if (!(state->deny & access) && !(state->access & deny))
            continue;
        if (state->client == owner->client || !client_is_expired(state->client))
            return NFS4ERR_SHARE_DENIED;
        if (!client_give_way(state->client, &gone))
            return STATE_MORE;
        at = file->opens.next; /* `file` is held by whoever opens */
    }
    return NFS4_OK;
}

/* A file may be open by thousands of owners, and an owner have thousands of files open: whichever is less is gone
 * through. */
static struct state *open_of(struct state_file *file, const struct state_owner *owner)
{
    const struct state_link *of_file = file->opens.next, *of_owner = owner->states.next;
    while (of_file != &file->opens && of_owner != &owner->states) {
        struct state *one = link_of(of_file, struct state, of_file);
        struct state *other = link_of(of_owner, struct state, of_owner);
        if (one->kind == STATE_OPEN && one->owner == owner)
            return one;
        if (other->kind == STATE_OPEN && other->file == file)
            return other;
        of_file = of_file->next;
        of_owner = of_owner->next;
    }
    return NULL;
}

static uint32_t share_bit(uint32_t access, uint32_t deny)
{
    return UINT32_C(1) << (access | deny << 2);
}

static enum nfs4_status open_file(struct state_owner *owner, struct state_file *file, struct state_open *open)
{
    uint32_t access = open->access & OPEN4_SHARE_ACCESS_BOTH;
    enum nfs4_status status = check_shares(file, owner, access, open->deny);
    if (status != NFS4_OK)
        return status;
    if ((access & OPEN4_SHARE_ACCESS_WRITE || open->deny & OPEN4_SHARE_DENY_READ) && atomic_load(&file->delegations) &&
        delegations_recall(file, owner->client)) {
        open->recalling = true;
        return NFS4ERR_DELAY;
    }
    struct state *state = open_of(file, owner);
    if (!state && opens_are_full() && !client_make_room())
        return owner->client->minor ? NFS4ERR_DELAY : NFS4ERR_RESOURCE;
    if (!state && !(state = state_new(STATE_OPEN, owner->client, owner, file)))
        return NFS4ERR_DELAY;
    set_shares(state, state->access | access, state->deny | open->deny);
    state->shares |= share_bit(access, open->deny);
    open->stateid = state_bump(state);
    open->result_flags = OPEN4_RESULT_LOCKTYPE_POSIX;
    if (owner->client->minor)
        open->result_flags |= OPEN4_RESULT_PRESERVE_UNLINKED;
    if (open->claim == CLAIM_PREVIOUS)
        owner->confirmed = true; /* a reclaim must not need it: RFC 7530, 9.1.11 */
    state->unconfirmed = !owner->client->minor && !owner->confirmed;
    if (state->unconfirmed)
        open->result_flags |= OPEN4_RESULT_CONFIRM;
    return NFS4_OK;
}

static enum nfs4_status do_open(struct state_caller *caller, struct state_open *open)
{
    struct state_client *client;
    enum nfs4_status status = client_of(caller, open->clientid, &client);
    if (status == NFS4_OK && client->gone)
        status = caller->minor ? NFS4ERR_BADSESSION : NFS4ERR_EXPIRED;
    if (status != NFS4_OK)
        return status;
    struct state_owner *owner = caller->minor ? owner_get(client, false, open->open_owner) : open->owner;
    if (!owner || !owner->client)
        return caller->minor ? NFS4ERR_DELAY : NFS4ERR_RESOURCE;
    struct state_file *file = file_get(&open->object);
    if (!file)
        return NFS4ERR_DELAY;
    client_renew(client); /* who needs room does not make it of his own */
    /* It must not go while others are looked at. */
    struct state_link hold;
    link_add(&file->locks, &hold);
    status = delegation_claimed(caller, open, file);
    if (status == NFS4_OK)
        status = open_file(owner, file, open);
    if (status == NFS4_OK)
        delegation_offer(caller, client, file, open);
    link_remove(&hold);
    if (status == NFS4_OK && !file->held)
        file->held = open->hold_taken = true;
    file_check(file);
    if (caller->minor && link_is_empty(&owner->states))
        owner_free(owner);
    return status;
}

/* A client that has just bound its backchannel proves it in a moment. */
static bool is_being_proven(const struct state_caller *caller, const struct state_open *open)
{
    return caller->minor && !open->immutable && open->access & OPEN4_SHARE_ACCESS_READ &&
           !callbacks_proven(caller->client) && callbacks_may_be_proven(caller->client);
}

enum nfs4_status state_open(struct state_caller *caller, struct state_open *open)
{
    enum nfs4_status status = NFS4_OK;
    bool again = true;
    for (unsigned i = 0; again; i++) {
        if (i && status != STATE_MORE)
            coro_sleep(WAIT_MS);
        else if (i)
            state_pause();
        open->recalling = false;
        status = NFS4_OK;
        state_lock_all();
        bool proving = i < PROOF_WAITS && is_being_proven(caller, open);
        if (!proving)
            status = do_open(caller, open);
        state_unlock_all();
        again = proving || status == STATE_MORE || (open->recalling && i < RECALL_WAITS);
    }
    return status;
}

/* ---- what follows an OPEN ---- */

static enum nfs4_status find_open(struct state_caller *caller, const struct store_object *object,
                                  const struct nfs4_stateid *stateid, struct state **out)
{
    enum nfs4_status status = state_find(caller, stateid, STATE_OPEN, out);
    return status == NFS4_OK && !is_same(&(*out)->file->object, object) ? NFS4ERR_BAD_STATEID : status;
}

enum nfs4_status state_open_confirm(struct state_caller *caller, const struct store_object *object,
                                    struct nfs4_stateid *stateid)
{
    struct state *state;
    state_lock_all();
    enum nfs4_status status = find_open(caller, object, stateid, &state);
    if (status == NFS4_OK && !state->unconfirmed)
        status = NFS4ERR_BAD_STATEID;
    if (status == NFS4_OK) {
        state->unconfirmed = false;
        state->owner->confirmed = true;
        *stateid = state_bump(state);
    }
    state_unlock_all();
    return status;
}

/* What is left must be the union of opens that were made (RFC 8881, 18.18.3). */
static bool was_made(const struct state *state, uint32_t access, uint32_t deny, uint32_t *shares)
{
    uint32_t has_access = 0, has_deny = 0;
    *shares = 0;
    for (uint32_t a = 1; a <= OPEN4_SHARE_ACCESS_BOTH; a++) {
        for (uint32_t d = 0; d <= OPEN4_SHARE_DENY_BOTH; d++) {
            if (!(state->shares & share_bit(a, d)) || a & ~access || d & ~deny)
                continue;
            has_access |= a;
            has_deny |= d;
            *shares |= share_bit(a, d);
        }
    }
    return has_access == access && has_deny == deny;
}

static enum nfs4_status downgrade(struct state *state, uint32_t access, uint32_t deny)
{
    uint32_t shares;
    if (access & ~state->access || deny & ~state->deny || !was_made(state, access, deny, &shares))
        return NFS4ERR_INVAL;
    set_shares(state, access, deny);
    state->shares = shares;
    return NFS4_OK;
}

enum nfs4_status state_open_downgrade(struct state_caller *caller, const struct store_object *object, uint32_t access,
                                      uint32_t deny, struct nfs4_stateid *stateid)
{
    struct state *state;
    state_lock_all();
    enum nfs4_status status = find_open(caller, object, stateid, &state);
    if (status == NFS4_OK && state->unconfirmed)
        status = NFS4ERR_BAD_STATEID;
    if (status == NFS4_OK)
        status = downgrade(state, access, deny);
    if (status == NFS4_OK)
        *stateid = state_bump(state);
    state_unlock_all();
    return status;
}

static bool has_ranges(const struct state *open)
{
    for (struct state_link *at = open->lock_states.next; at != &open->lock_states; at = at->next)
        if (!link_is_empty(&link_of(at, struct state, of_open)->ranges))
            return true;
    return false;
}

enum nfs4_status state_close(struct state_caller *caller, const struct store_object *object,
                             struct nfs4_stateid *stateid)
{
    struct state *state;
    state_lock_all();
    enum nfs4_status status = find_open(caller, object, stateid, &state);
    if (status == NFS4_OK && has_ranges(state))
        status = NFS4ERR_LOCKS_HELD;
    if (status == NFS4_OK) {
        *stateid = caller->minor ? (struct nfs4_stateid){.seqid = UINT32_MAX} : state_bump(state);
        if (caller->minor)
            state_free(state);
        else
            close_and_keep(state);
    }
    state_unlock_all();
    return status;
}

/* ---- stateids as such ---- */

enum nfs4_status state_test_stateid(struct state_caller *caller, const struct nfs4_stateid *stateid)
{
    struct state *state;
    state_lock_all();
    enum nfs4_status status = state_find(caller, stateid, 0, &state);
    state_unlock_all();
    return status;
}

enum nfs4_status state_free_stateid(struct state_caller *caller, const struct nfs4_stateid *stateid)
{
    struct state *state;
    state_lock_all();
    enum nfs4_status status = find(caller, stateid, &state);
    if (status == NFS4_OK && !state->revoked && (state->kind != STATE_LOCK || !link_is_empty(&state->ranges)))
        status = NFS4ERR_LOCKS_HELD;
    if (status == NFS4_OK)
        state_free(state);
    state_unlock_all();
    return status;
}
