#include "nfs/state/callbacks.h"

#include <stdlib.h>
#include <string.h>

#include "nfs/handle.h"
#include "nfs/state/delegations.h"
#include "sluice/base_log.h"

enum { NFS_CB = 1, CB_COMPOUND = 1, OP_CB_RECALL = 4, OP_CB_SEQUENCE = 11, TAG_MOST = 1024 };
enum { ANSWER_SECONDS = 15, TRIES_MOST = 3 };

struct job {
    struct rpc_back_call call; /* first */
    struct state_session *session; /* held */
    uint64_t recalled; /* number of the delegation; 0: only the backchannel is to be proven */
};

/* ---- what goes out ---- */

static void put_sequence(struct xdr_out *x, const struct state_session *session)
{
    xdr_put_u32(x, OP_CB_SEQUENCE);
    xdr_put_fixed(x, session->id, NFS4_SESSIONID_SIZE);
    xdr_put_u32(x, session->back_channel.sequence);
    xdr_put_u32(x, 0);      /* slot */
    xdr_put_u32(x, 0);      /* the highest one */
    xdr_put_bool(x, false); /* keep the reply */
    xdr_put_u32(x, 0);      /* referring calls */
}

static void put_recall(struct xdr_out *x, struct state *state)
{
    uint8_t handle[NFS_HANDLE_SIZE];
    struct nfs4_stateid stateid = state_stateid(state);
    handle_encode(&state->file->object, handle);
    xdr_put_u32(x, OP_CB_RECALL);
    xdr_put_u32(x, stateid.seqid);
    xdr_put_fixed(x, stateid.other, sizeof stateid.other);
    xdr_put_bool(x, false); /* truncate */
    xdr_put_opaque(x, handle, sizeof handle);
}

static void finished(struct rpc_back_call *call, int error, struct xdr_in *results);

static void send_callback(struct state_session *session, struct state *state)
{
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return; /* whoever waits for the delegation asks again */
    const struct state_callback_sec *security = &session->security;
    job->call.program = session->callback_program;
    job->call.version = NFS_CB;
    job->call.procedure = CB_COMPOUND;
    job->call.cred = (struct rpc_cred){.flavor = security->flavor, .uid = security->uid, .gid = security->gid};
    job->call.seconds = ANSWER_SECONDS;
    job->call.done = finished;
    struct xdr_out x = xdr_out(job->call.args, sizeof job->call.args);
    xdr_put_opaque(&x, "", 0);
    xdr_put_u32(&x, session->minor);
    xdr_put_u32(&x, 0); /* callback_ident: of minor version 0 */
    xdr_put_u32(&x, state ? 2 : 1);
    put_sequence(&x, session);
    if (state) {
        put_recall(&x, state);
        job->recalled = state->by_number.key;
        state->recall_sent = true;
    }
    job->call.length = (uint32_t)xdr_used(&x);
    job->session = session;
    atomic_fetch_add(&session->references, 1);
    session->back_channel.busy = true;
    rpc_call_back(session->back_channel.where, &job->call);
}

static bool is_free(const struct state_session *session)
{
    const struct state_back *back = &session->back_channel;
    return back->bound && !back->busy && !atomic_load(&session->dead);
}

void callbacks_go_on(struct state_client *client)
{
    for (struct state_link *at = client->sessions.next; at != &client->sessions; at = at->next) {
        struct state_session *session = link_of(at, struct state_session, of_client);
        if (link_is_empty(&client->recalls))
            return;
        if (!is_free(session))
            continue;
        struct state *state = link_of(client->recalls.next, struct state, of_recalls);
        link_remove(&state->of_recalls);
        send_callback(session, state);
    }
}

void callbacks_bind(struct state_session *session, struct rpc_connection where)
{
    struct state_back *back = &session->back_channel;
    back->where = where;
    back->bound = true;
    back->proven = back->down = false;
    back->tries = 0;
    atomic_store(&back->prove, true); /* by its next request the client knows the session */
    client_flags(session->client);
}

void callbacks_prove(struct state_session *session)
{
    state_lock_all();
    if (atomic_exchange(&session->back_channel.prove, false) && is_free(session))
        send_callback(session, NULL);
    callbacks_go_on(session->client);
    state_unlock_all();
}

static bool any(const struct state_client *client, bool proven)
{
    for (const struct state_link *at = client->sessions.next; at != &client->sessions; at = at->next) {
        const struct state_back *back = &link_of(at, struct state_session, of_client)->back_channel;
        if (back->bound && (proven ? back->proven : back->busy || atomic_load(&back->prove)))
            return true;
    }
    return false;
}

bool callbacks_proven(const struct state_client *client)
{
    return any(client, true);
}

bool callbacks_may_be_proven(const struct state_client *client)
{
    return any(client, false);
}

/* ---- what comes back ---- */

struct answer {
    enum nfs4_status sequence, recall;
};

static struct answer get_answer(struct xdr_in *x)
{
    struct answer answer = {NFS4ERR_BADXDR, NFS4ERR_BADXDR};
    uint32_t length;
    xdr_get_u32(x); /* the status of the last operation */
    xdr_get_opaque(x, TAG_MOST, &length);
    uint32_t count = xdr_get_u32(x);
    if (!count || xdr_get_u32(x) != OP_CB_SEQUENCE || x->bad)
        return answer;
    answer.sequence = (enum nfs4_status)xdr_get_u32(x);
    if (answer.sequence == NFS4_OK)
        xdr_take(x, NFS4_SESSIONID_SIZE + 4 * 4);
    if (count > 1 && xdr_get_u32(x) == OP_CB_RECALL)
        answer.recall = (enum nfs4_status)xdr_get_u32(x);
    if (x->bad)
        answer = (struct answer){NFS4ERR_BADXDR, NFS4ERR_BADXDR};
    return answer;
}

/* The client can be reached no more: it is told by SEQUENCE's flags, and binds a connection. */
static void went_down(struct state_session *session)
{
    static _Atomic long logged;
    struct state_back *back = &session->back_channel;
    back->proven = back->bound = false;
    back->down = true;
    if (log_ratelimit(&logged))
        log_notice("nfs4", "a backchannel does not answer: no delegations until the client has bound a new one");
}

/* True: the same is to be sent again. */
static bool settle_sequence(struct state_session *session, enum nfs4_status status)
{
    struct state_back *back = &session->back_channel;
    switch (status) {
    case NFS4_OK:
        back->sequence++;
        back->proven = true;
        back->tries = 0;
        return false;
    case NFS4ERR_RETRY_UNCACHED_REP: /* an earlier one has come, though its answer has not */
    case NFS4ERR_SEQ_FALSE_RETRY:
    case NFS4ERR_SEQ_MISORDERED:
        back->sequence++;
        break;
    case NFS4ERR_DELAY:
        return false;
    case NFS4ERR_BADSESSION: /* its reply may still be on the way */
        back->proven = false;
        atomic_store(&back->prove, ++back->tries < TRIES_MOST);
        return false;
    default:
        break;
    }
    if (++back->tries < TRIES_MOST)
        return true;
    went_down(session);
    return false;
}

static struct state *recalled_one(const struct job *job)
{
    struct state_node *node = job->recalled ? state_table_find(&state_all.states, job->recalled) : NULL;
    struct state *state = node ? link_of(node, struct state, by_number) : NULL;
    return state && state->file ? state : NULL;
}

static void finished(struct rpc_back_call *call, int error, struct xdr_in *results)
{
    struct job *job = (struct job *)call;
    struct state_session *session = job->session;
    struct answer answer = {NFS4_OK, NFS4_OK};
    if (!error)
        answer = get_answer(results);
    state_lock_all();
    struct state_back *back = &session->back_channel;
    struct state *state = recalled_one(job);
    back->busy = false;
    bool again = false, same = !memcmp(&back->where.number, &call->connection, sizeof call->connection);
    if (!error)
        again = settle_sequence(session, answer.sequence);
    else if (same)
        went_down(session); /* else another connection has been bound meanwhile */
    if (state && (error || answer.sequence != NFS4_OK || answer.recall != NFS4_OK))
        state->recall_sent = false;
    if (again && is_free(session))
        send_callback(session, state);
    if (!session->client->gone) {
        client_flags(session->client);
        callbacks_go_on(session->client);
    }
    state_unlock_all();
    session_drop(session);
    free(job);
}
