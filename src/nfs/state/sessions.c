/* Sessions and their slots (RFC 8881, 2.10): made and ended under the mutex, used without. */
#include <stdlib.h>
#include <string.h>

#include "nfs/state/callbacks.h"

enum {
    REQUEST_LEAST = 256, RESPONSE_LEAST = 256, /* a channel of less is of no use */
    REQUEST_MOST = STORE_IO_MAX + 65536,
    OPS_MOST = 128,
    RPC_HEAD = 512, /* of a call, AUTH_SYS included: what a request may have besides COMPOUND4args */
    HASHED_MOST = 512,
    KEPT_ALL_MOST = 256 << 20, /* of all slots; beyond it a repeated request is answered with RETRY_UNCACHED_REP */
};

static _Atomic uint64_t kept_bytes; /* replies that slots keep */

struct id { /* of a session */
    uint64_t clientid, number;
};
_Static_assert(sizeof(struct id) == NFS4_SESSIONID_SIZE, "a session id");

/* ---- replies that are kept: the slot's owner ---- */

static void keep(struct state_slot *slot, const uint8_t *reply, uint32_t length)
{
    if (atomic_load_explicit(&kept_bytes, memory_order_relaxed) + length > KEPT_ALL_MOST)
        return;
    slot->kept = malloc(length ? length : 1);
    if (!slot->kept)
        return;
    memcpy(slot->kept, reply, length);
    slot->kept_length = length;
    atomic_fetch_add_explicit(&kept_bytes, length, memory_order_relaxed);
}

static void forget_kept(struct state_slot *slot)
{
    if (!slot->kept)
        return;
    atomic_fetch_sub_explicit(&kept_bytes, slot->kept_length, memory_order_relaxed);
    free(slot->kept);
    slot->kept = NULL;
}

/* ---- coming and going ---- */

static void free_rcu(struct rcu_head *head)
{
    struct state_session *session = link_of(head, struct state_session, rcu);
    for (uint32_t i = 0; i < session->fore.max_requests; i++)
        forget_kept(&session->slots[i]);
    free(session);
}

void session_drop(struct state_session *session)
{
    if (atomic_fetch_sub(&session->references, 1) != 1)
        return;
    client_drop(session->client);
    call_rcu(&session->rcu, free_rcu);
}

static void close_slots(struct state_session *session)
{
    const uint32_t slots = session->fore.max_requests;
    uint32_t busy = 0;
    atomic_fetch_add(&session->references, slots); /* first, for a request may let go at once */
    for (uint32_t i = 0; i < slots; i++)
        busy += atomic_fetch_or(&session->slots[i].busy, SLOT_CLOSED) & SLOT_BUSY;
    atomic_fetch_sub(&session->references, slots - busy);
}

void session_destroy(struct state_session *session)
{
    atomic_store(&session->dead, true);
    close_slots(session);
    state_table_remove(&state_all.sessions, &session->by_number);
    link_remove(&session->of_client);
    state_all.session_count--;
    session_drop(session);
}

static struct state_session *find(const uint8_t id[NFS4_SESSIONID_SIZE])
{
    struct id parts;
    memcpy(&parts, id, sizeof parts);
    struct state_node *node = state_table_find(&state_all.sessions, parts.number);
    struct state_session *session = node ? link_of(node, struct state_session, by_number) : NULL;
    return session && memcmp(session->id, id, NFS4_SESSIONID_SIZE) == 0 && !atomic_load(&session->dead) ? session
                                                                                                      : NULL;
}

/* ---- CREATE_SESSION ---- */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static enum nfs4_status grant(struct state_create_session *create)
{
    struct state_channel *fore = &create->fore, *back = &create->back;
    if (fore->max_request < REQUEST_LEAST || fore->max_response < RESPONSE_LEAST || !fore->max_ops ||
        !fore->max_requests || back->max_request < REQUEST_LEAST)
        return NFS4ERR_TOOSMALL;
    fore->header_pad = back->header_pad = 0;
    fore->max_request = least(fore->max_request, REQUEST_MOST);
    fore->max_response = least(fore->max_response, REQUEST_MOST);
    fore->max_cached = least(fore->max_cached, least(KEPT_MOST, fore->max_response));
    fore->max_ops = least(fore->max_ops, OPS_MOST);
    fore->max_requests = least(fore->max_requests, SLOTS_MOST);
    back->max_requests = least(back->max_requests, SLOTS_MOST);
    create->flags &= CREATE_SESSION4_CONN_BACK_CHAN;
    return NFS4_OK;
}

static struct state_session *session_new(const struct state_caller *caller, struct state_client *client,
                                         const struct state_create_session *create)
{
    if (state_all.session_count >= state_all.options.sessions_most && !client_make_room())
        return NULL;
    struct state_session *session =
        calloc(1, sizeof *session + create->fore.max_requests * sizeof *session->slots);
    if (!session)
        return NULL;
    struct id id = {.clientid = client->by_id.key, .number = state_new_number()};
    memcpy(session->id, &id, sizeof id);
    session->by_number.key = id.number;
    session->fore = create->fore;
    session->back = create->back;
    session->flags = create->flags;
    session->callback_program = create->callback_program;
    session->security = create->security;
    session->references = 1;
    session->client = client;
    client_hold(client);
    session->minor = caller->minor;
    session->back_channel.sequence = 1;
    link_add(&client->sessions, &session->of_client);
    if (create->flags & CREATE_SESSION4_CONN_BACK_CHAN)
        callbacks_bind(session, rpc_connection_of(caller->call));
    state_table_add(&state_all.sessions, &session->by_number);
    state_all.session_count++;
    return session;
}

static enum nfs4_status create_new(const struct state_caller *caller, struct state_client *client,
                                   struct state_create_session *create)
{
    enum nfs4_status status = grant(create);
    if (status != NFS4_OK)
        return status;
    client_renew(client); /* first, so that room is not made of this one */
    struct state_session *session = session_new(caller, client, create);
    if (!session)
        return NFS4ERR_DELAY;
    memcpy(create->sessionid, session->id, sizeof create->sessionid);
    client_confirm(client);
    return NFS4_OK;
}

/* RFC 8881, 18.36.4.  The client's slot of one: what it answers last is answered again. */
static enum nfs4_status create_session(const struct state_caller *caller, struct state_create_session *create,
                                       uint8_t record[OWNER_HASH], bool *is_new)
{
    struct state_client *client = client_find(create->clientid);
    if (client && !client->confirmed && client_is_expired(client)) {
        client_destroy(client);
        client = NULL;
    }
    if (!client || client->minor == 0)
        return NFS4ERR_STALE_CLIENTID;
    if (client->created && create->sequence + 1 == client->sequence) {
        *create = client->last_created;
        return NFS4_OK;
    }
    if (create->sequence != client->sequence)
        return NFS4ERR_SEQ_MISORDERED;
    if (!client->confirmed && !state_same_principal(client->principal, state_principal(caller)))
        return NFS4ERR_CLID_INUSE;
    *is_new = !client->confirmed;
    memcpy(record, client->owner_hash, OWNER_HASH);
    enum nfs4_status status = create_new(caller, client, create);
    if (status != NFS4_OK)
        return status; /* it has changed nothing, and may be tried again with the same number */
    client->sequence++;
    client->created = true;
    client->last_created = *create;
    return NFS4_OK;
}

enum nfs4_status state_create_session(struct state_caller *caller, struct state_create_session *create)
{
    uint8_t record[OWNER_HASH];
    bool is_new = false;
    state_lock_all();
    enum nfs4_status status = create_session(caller, create, record, &is_new);
    state_unlock_all();
    /* Its record is there before it can have any state; a failure leaves it without, until it comes again. */
    if (status == NFS4_OK && is_new)
        recovery_record(record, 1);
    return status;
}

enum nfs4_status state_destroy_session(struct state_caller *caller, const uint8_t sessionid[NFS4_SESSIONID_SIZE])
{
    state_lock_all();
    struct state_session *session = find(sessionid);
    if (session)
        session_destroy(session);
    state_unlock_all();
    return session ? NFS4_OK : NFS4ERR_BADSESSION;
}

/* Clients that ask for no state protection have every connection bound that they use (RFC 8881, 2.10.8.3 and 18.34):
 * what is left to do is to say so. */
enum nfs4_status state_bind_conn(struct state_caller *caller, const uint8_t sessionid[NFS4_SESSIONID_SIZE],
                                 uint32_t *direction)
{
    state_lock_all();
    struct state_session *session = find(sessionid);
    if (session)
        client_renew(session->client);
    if (session && *direction != CDFC4_FORE)
        callbacks_bind(session, rpc_connection_of(caller->call));
    state_unlock_all();
    if (!session)
        return NFS4ERR_BADSESSION;
    *direction = *direction == CDFC4_FORE ? CDFS4_FORE : *direction == CDFC4_BACK ? CDFS4_BACK : CDFS4_BOTH;
    return NFS4_OK;
}

enum nfs4_status state_backchannel(struct state_caller *caller, uint32_t program,
                                   const struct state_callback_sec *security)
{
    if (!security->known)
        return NFS4ERR_NOENT; /* RFC 8881, 18.33.3: none of the flavours is supported */
    state_lock_all();
    caller->session->callback_program = program;
    caller->session->security = *security;
    state_unlock_all();
    return NFS4_OK;
}

/* ---- SEQUENCE ---- */

/* What tells a repeated request from another one with its numbers: its beginning, its length, and who asks. */
static uint64_t hash_request(const struct state_caller *caller, struct state_bytes request)
{
    uint32_t length = request.length < HASHED_MOST ? request.length : HASHED_MOST;
    struct state_principal principal = state_principal(caller);
    return state_hash(request.bytes, length, (uint64_t)request.length << 32 ^ principal.uid ^ principal.flavor << 28);
}

static enum nfs4_status repeat(const struct state_caller *caller, const struct state_slot *slot,
                               struct state_sequence *sequence)
{
    if (!slot->used)
        return NFS4ERR_SEQ_MISORDERED;
    if (!slot->kept)
        return NFS4ERR_RETRY_UNCACHED_REP;
    if (slot->request != hash_request(caller, sequence->request))
        return NFS4ERR_SEQ_FALSE_RETRY;
    sequence->kept = (struct state_bytes){slot->kept, slot->kept_length};
    return NFS4_OK;
}

static enum nfs4_status begin_new(const struct state_caller *caller, struct state_slot *slot,
                                  const struct state_sequence *sequence)
{
    if (sequence->sequence != slot->sequence + 1)
        return NFS4ERR_SEQ_MISORDERED;
    slot->sequence = sequence->sequence;
    slot->used = true;
    forget_kept(slot);
    slot->keep = sequence->cache_this;
    if (slot->keep)
        slot->request = hash_request(caller, sequence->request);
    return NFS4_OK;
}

static void give_slot(struct state_session *session, struct state_slot *slot)
{
    unsigned char busy = SLOT_BUSY;
    if (!atomic_compare_exchange_strong_explicit(&slot->busy, &busy, 0, memory_order_release, memory_order_relaxed))
        session_drop(session);
}

static enum nfs4_status take_slot(struct state_caller *caller, struct state_session *session,
                                  struct state_sequence *sequence)
{
    if (sequence->slot >= session->fore.max_requests)
        return NFS4ERR_BADSLOT;
    if (sequence->highest >= session->fore.max_requests)
        return NFS4ERR_BAD_HIGH_SLOT;
    if (sequence->op_count > session->fore.max_ops)
        return NFS4ERR_TOO_MANY_OPS;
    if (sequence->request.length > session->fore.max_request)
        return NFS4ERR_REQ_TOO_BIG;
    struct state_slot *slot = &session->slots[sequence->slot];
    unsigned char busy = 0;
    if (!atomic_compare_exchange_strong_explicit(&slot->busy, &busy, SLOT_BUSY, memory_order_acquire,
                                                 memory_order_relaxed))
        /* the same request again, while it runs; any other breaks the rules */
        return busy & SLOT_CLOSED ? NFS4ERR_BADSESSION : NFS4ERR_DELAY;
    enum nfs4_status status = sequence->sequence == slot->sequence ? repeat(caller, slot, sequence)
                                                                   : begin_new(caller, slot, sequence);
    if (status == NFS4_OK)
        caller->slot = slot;
    else
        give_slot(session, slot);
    return status;
}

enum nfs4_status state_sequence(struct state_caller *caller, struct state_sequence *sequence)
{
    sequence->kept = (struct state_bytes){0};
    rcu_read_lock();
    struct state_session *session = find(sequence->sessionid);
    enum nfs4_status status = session ? take_slot(caller, session, sequence) : NFS4ERR_BADSESSION;
    rcu_read_unlock();
    if (status != NFS4_OK)
        return status;
    caller->session = session;        /* held by the slot */
    caller->client = session->client; /* held by the session */
    uint32_t now = (uint32_t)(caller->call->received_ns / 1000000000);
    if (atomic_load_explicit(&session->client->renewed, memory_order_relaxed) != now)
        atomic_store_explicit(&session->client->renewed, now, memory_order_relaxed);
    sequence->highest_slot = sequence->target_highest = session->fore.max_requests - 1;
    sequence->status_flags = atomic_load_explicit(&session->client->status_flags, memory_order_relaxed);
    if (atomic_load_explicit(&session->back_channel.prove, memory_order_relaxed))
        callbacks_prove(session);
    sequence->fore = session->fore;
    return NFS4_OK;
}

void state_end(struct state_caller *caller, const uint8_t *reply, uint32_t length)
{
    struct state_slot *slot = caller->slot;
    if (slot) {
        if (reply && slot->keep && !slot->kept && length <= caller->session->fore.max_cached)
            keep(slot, reply, length);
        slot->keep = false;
        give_slot(caller->session, slot);
    } else if (caller->client) {
        client_drop(caller->client);
    }
    caller->slot = NULL;
    caller->session = NULL;
    caller->client = NULL;
}
