/* Read delegations (RFC 8881, 10.4): given on files that nobody writes, and recalled before somebody does.
 *
 * Between a change and an OPEN that gives a delegation there is no lock.  A change first counts itself in `changing`,
 * under its file's hash, and then looks for delegations; an OPEN first enters its delegation, and then looks whether
 * something is changing: one of the two sees the other. */
#include "nfs/state/delegations.h"

#include <stdlib.h>

#include "nfs/state/callbacks.h"
#include "sluice/base_coro.h"
#include "sluice/base_error.h"
#include "sluice/base_metrics.h"
#include "sluice/base_worker.h"

enum { FILES = 4096 /* hashes of files */, TREES = 64 };
enum { WITHHELD_SECONDS = 10, WAIT_MS = 10, WAITS_MOST = 50, WAITERS_MOST = 256 };
enum { WND4_NOT_WANTED = 0, WND4_CONTENTION = 1, WND4_RESOURCE = 2, WND4_NOT_SUPP_FTYPE = 3 };

static _Atomic uint32_t changing[FILES]; /* changes in progress */
static _Atomic uint32_t recalled_at[FILES]; /* seconds: the last conflict; 0: none */
static _Atomic uint32_t waiters;
/* Trees that change by other ways than clients' calls; with the mutex. */
static uint32_t trees[TREES];
static unsigned tree_count;
static bool too_many_trees; /* all are taken to change, until none does */

static unsigned slot_of(const struct store_object *object)
{
    uint64_t mixed = (object->ino ^ (uint64_t)object->tree << 40) * UINT64_C(0x9e3779b97f4a7c15);
    return (unsigned)(mixed >> 52) % FILES;
}

/* ---- giving ---- */

static bool has_one(const struct state_file *file, const struct state_client *client)
{
    for (const struct state_link *at = file->opens.next; at != &file->opens; at = at->next) {
        const struct state *state = link_of(at, struct state, of_file);
        if (state->kind == STATE_DELEGATION && state->client == client)
            return true;
    }
    return false;
}

static bool withheld(const struct store_object *object)
{
    uint32_t at = atomic_load_explicit(&recalled_at[slot_of(object)], memory_order_relaxed);
    return at && state_seconds() - at < WITHHELD_SECONDS;
}

static bool wanted(const struct state_open *open)
{
    uint32_t want = open->access & OPEN4_SHARE_ACCESS_WANT_MASK;
    if (open->claim == CLAIM_PREVIOUS)
        return open->delegate_type == OPEN_DELEGATE_READ;
    return want != OPEN4_SHARE_ACCESS_WANT_NO_DELEG && want != OPEN4_SHARE_ACCESS_WANT_CANCEL &&
           (open->claim == CLAIM_NULL || open->claim == CLAIM_FH);
}

static bool tree_changes(uint32_t tree)
{
    for (unsigned i = 0; i < tree_count; i++)
        if (trees[i] == tree)
            return true;
    return too_many_trees;
}

/* Enters it, and takes it back if the file is being changed. */
static struct state *enter(struct state_client *client, struct state_file *file, bool immutable)
{
    struct state *state = state_new(STATE_DELEGATION, client, NULL, file);
    if (!state)
        return NULL;
    state->access = OPEN4_SHARE_ACCESS_READ;
    state->immutable = immutable;
    if (immutable)
        return state;
    atomic_fetch_add(&state_all.live_delegations, 1);
    atomic_fetch_add(&file->delegations, 1);
    if (!atomic_load(&changing[slot_of(&file->object)]) && !tree_changes(file->object.tree))
        return state;
    state_free(state);
    return NULL;
}

static bool give(const struct state_caller *caller, struct state_client *client, struct state_file *file,
                 struct state_open *open)
{
    bool claims = open->claim == CLAIM_PREVIOUS;
    open->why_none = WND4_CONTENTION;
    bool in_the_way = file->shares[1] /* somebody writes */ || file->shares[2] /* or denies reading */ ||
                      (withheld(&file->object) && !claims);
    if (!open->immutable && in_the_way)
        return false;
    open->why_none = WND4_RESOURCE;
    if (has_one(file, client) || state_all.delegation_count >= state_all.options.delegations_most ||
        (!open->immutable && !claims && !callbacks_proven(client)))
        return false;
    struct state *state = enter(client, file, open->immutable);
    if (!state)
        return false;
    open->given = OPEN_DELEGATE_READ;
    open->given_stateid = state_bump(state);
    open->recall = false;
    metric_add(METRIC_nfs4_delegations, 1);
    return true;
}

void delegation_offer(const struct state_caller *caller, struct state_client *client, struct state_file *file,
                      struct state_open *open)
{
    bool asked = open->access & OPEN4_SHARE_ACCESS_WANT_MASK;
    open->given = OPEN_DELEGATE_NONE;
    if (!caller->minor)
        return;
    open->why_none = WND4_NOT_WANTED;
    bool reads = (open->access & OPEN4_SHARE_ACCESS_BOTH) == OPEN4_SHARE_ACCESS_READ && !open->deny;
    if (wanted(open)) {
        open->why_none = WND4_RESOURCE;
        if (reads && give(caller, client, file, open))
            return;
    }
    if (asked)
        open->given = OPEN_DELEGATE_NONE_EXT;
}

enum nfs4_status delegation_claimed(struct state_caller *caller, const struct state_open *open,
                                    const struct state_file *file)
{
    struct state *state;
    if (open->claim != CLAIM_DELEGATE_CUR && open->claim != CLAIM_DELEG_CUR_FH)
        return NFS4_OK;
    if (!caller->minor)
        return NFS4ERR_BAD_STATEID; /* none are given there */
    enum nfs4_status status = state_find(caller, &open->delegation, STATE_DELEGATION, &state);
    return status == NFS4_OK && file && state->file != file ? NFS4ERR_BAD_STATEID : status;
}

/* ---- taking back ---- */

static void recall(struct state *state)
{
    struct state_client *client = state->client;
    uint32_t now = state_seconds();
    atomic_store(&recalled_at[slot_of(&state->file->object)], now ? now : 1);
    if (!state->recalled_since) {
        state->recalled_since = now ? now : 1;
        metric_add(METRIC_nfs4_recalls, 1);
    }
    if (!state->recall_sent && link_is_empty(&state->of_recalls))
        link_add(client->recalls.previous, &state->of_recalls);
    callbacks_go_on(client);
}

/* False: the delegation is gone. */
static bool stands(struct state *state, unsigned *gone)
{
    if (client_is_expired(state->client))
        return !client_give_way(state->client, gone);
    if (state->recalled_since && state_seconds() - state->recalled_since > state_all.options.lease_seconds) {
        metric_add(METRIC_nfs4_revoked, 1);
        state_revoke(state, NFS4ERR_DELEG_REVOKED);
        return false;
    }
    return true;
}

unsigned delegations_recall(struct state_file *file, const struct state_client *by)
{
    unsigned left = 0, gone = 0;
    struct state_link *at = file->opens.next;
    while (at != &file->opens) {
        struct state *state = link_of(at, struct state, of_file);
        at = at->next;
        if (state->kind != STATE_DELEGATION || state->immutable || state->client == by)
            continue;
        if (!stands(state, &gone)) {
            at = file->opens.next; /* others of that client may be gone as well */
            left = 0;
            continue;
        }
        recall(state);
        left++;
    }
    return left;
}

/* ---- changes ---- */

/* Within an RCU section or under the mutex: a hint, but never wrong for those entered before the change counted. */
static bool has_delegations(const struct store_object *object)
{
    rcu_read_lock();
    const struct state_file *file = file_find(object);
    bool has = file && atomic_load(&file->delegations);
    rcu_read_unlock();
    return has;
}

static unsigned recall_of(const struct store_object *object, const struct state_client *by)
{
    struct state_link hold;
    unsigned left = 0;
    state_lock_all();
    struct state_file *file = file_find(object);
    if (file) {
        link_add(&file->locks, &hold);
        left = delegations_recall(file, by);
        link_remove(&hold);
        file_check(file);
    }
    state_unlock_all();
    return left;
}

/* Clients return a delegation within milliseconds; those who are told to come again come in seconds. */
static int wait_for_return(const struct store_object *object, const struct state_client *by)
{
    if (!recall_of(object, by))
        return 0;
    if (!coro_self() || atomic_fetch_add(&waiters, 1) >= WAITERS_MOST) {
        if (coro_self())
            atomic_fetch_sub(&waiters, 1);
        return SL_EDELAY;
    }
    unsigned left = 1;
    for (unsigned i = 0; left && i < WAITS_MOST; i++) {
        coro_sleep(WAIT_MS);
        left = recall_of(object, by);
    }
    atomic_fetch_sub(&waiters, 1);
    return left ? SL_EDELAY : 0;
}

int state_changing(struct state_change *change, const struct state_caller *by, const struct store_object *object)
{
    if (!state_all.running)
        return 0;
    unsigned slot = slot_of(object);
    atomic_fetch_add(&changing[slot], 1);
    change->slots[change->count++] = (uint16_t)slot;
    if (!atomic_load(&state_all.live_delegations) || !has_delegations(object))
        return 0;
    return wait_for_return(object, by ? by->client : NULL);
}

void state_changed(struct state_change *change)
{
    while (change->count)
        atomic_fetch_sub(&changing[change->slots[--change->count]], 1);
}

/* ---- whole trees ---- */

static bool is_of(const struct state *state, uint32_t tree)
{
    return state->file && state->file->object.tree == tree;
}

static void count_tree(uint32_t tree, bool begins)
{
    if (begins && tree_count < TREES)
        trees[tree_count++] = tree;
    else if (begins)
        too_many_trees = true;
    if (begins)
        return;
    unsigned at = 0;
    while (at < tree_count && trees[at] != tree)
        at++;
    if (at < tree_count)
        trees[at] = trees[--tree_count];
    too_many_trees = too_many_trees && tree_count;
}

static void recall_all(struct state_client *client, uint32_t tree)
{
    for (struct state_link *at = client->states.next; at != &client->states; at = at->next) {
        struct state *state = link_of(at, struct state, of_client);
        if (state->kind == STATE_DELEGATION && is_of(state, tree))
            recall(state);
    }
}

void state_tree_changes(uint32_t tree, bool begins)
{
    if (!state_all.running)
        return;
    state_lock_all();
    count_tree(tree, begins);
    for (struct state_link *c = state_all.client_list.next; c != &state_all.client_list; c = c->next)
        recall_all(link_of(c, struct state_client, all), tree);
    state_unlock_all();
}

/* The next that is no lock's: those go with their open. */
static struct state_link *next_of(struct state_client *client, struct state_link *at)
{
    do
        at = at->next;
    while (at != &client->states && link_of(at, struct state, of_client)->kind == STATE_LOCK);
    return at;
}

static void recheck(struct state_client *client, bool (*keeps)(uint32_t tree, const struct sockaddr_storage *peer))
{
    uint32_t kept = 0;
    struct state_link *next;
    for (struct state_link *at = next_of(client, &client->states); at != &client->states; at = next) {
        struct state *state = link_of(at, struct state, of_client);
        next = next_of(client, at);
        if (!state->file || state->file->object.tree == kept)
            continue;
        if (keeps(state->file->object.tree, &client->peer)) {
            kept = state->file->object.tree;
            continue;
        }
        metric_add(METRIC_nfs4_revoked, 1);
        state_revoke(state, NFS4ERR_ADMIN_REVOKED);
    }
}

void state_recheck(bool (*keeps)(uint32_t tree, const struct sockaddr_storage *peer))
{
    if (!state_all.running)
        return;
    state_lock_all();
    for (struct state_link *c = state_all.client_list.next; c != &state_all.client_list; c = c->next)
        recheck(link_of(c, struct state_client, all), keeps);
    state_unlock_all();
}

/* ---- operations ---- */

enum nfs4_status state_delegreturn(struct state_caller *caller, const struct store_object *object,
                                   const struct nfs4_stateid *stateid)
{
    struct state *state;
    if (!caller->minor)
        return NFS4ERR_BAD_STATEID; /* none are given there */
    state_lock_all();
    enum nfs4_status status = state_find(caller, stateid, STATE_DELEGATION, &state);
    if (status == NFS4_OK && !(state->file->object.ino == object->ino && state->file->object.tree == object->tree &&
                               state->file->object.generation == object->generation))
        status = NFS4ERR_BAD_STATEID;
    if (status == NFS4_OK)
        state_free(state);
    state_unlock_all();
    return status;
}

enum nfs4_status state_delegpurge(struct state_caller *caller, uint64_t clientid)
{
    return NFS4ERR_NOTSUPP; /* CLAIM_DELEGATE_PREV is not supported either (RFC 8881, 18.5.3) */
}
