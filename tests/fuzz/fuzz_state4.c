/* libFuzzer: NFSv4's clients, sessions, opens and locks (nfs/state), without the protocol around them.  An input is a
 * list of steps of four bytes; what is to come of each is known from small models, and what must always hold is looked
 * at after each:
 *   - a slot answers a repeated request with the same reply, and one of other numbers, content or principal not;
 *   - a stateid is of use to its own client alone;
 *   - nobody writes a file of which somebody else has a delegation that is not being recalled;
 *   - opens of one file do not deny each other what they have; locks of different owners do not overlap;
 *   - the counts are those of what there is, and go back to zero when all clients have expired.
 * Requests may be in progress while others come, and while their session or client ends. */
#include "fake.h"
#include "nfs/state/private.h"
#include "sluice/base_log.h"
#include "sluice/base_worker.h"

#include <time.h>

enum {
    STEPS_MOST = 400, OWNERS = 4, CLIENTS = 12, SESSIONS = 8, SLOTS = 4, STATES = 24, PENDING = 4, OBJECTS = 3,
    RECORDS = 16, SPAWNED = 64, REPLY_BYTES = 64, LEASE = 90,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the clock, and coroutines of others ---- */

static uint64_t now_ns = UINT64_C(1000000000000);
static struct spawned {
    void (*fn)(void *arg);
    void *arg;
} spawned[SPAWNED];
static unsigned spawned_count;

uint64_t __wrap_clock_monotonic_ns(void);
time_t __wrap_time(time_t *out);
int __wrap_worker_spawn(struct worker *w, void (*fn)(void *arg), void *arg);
struct worker *__wrap_worker_self(void);
struct worker *__wrap_worker_at(unsigned index);
void __wrap_coro_sleep(unsigned ms);
int __wrap_state_table_init(struct state_table *table, uint64_t buckets);
int __real_state_table_init(struct state_table *table, uint64_t buckets);
void __wrap_urcu_memb_call_rcu(struct rcu_head *head, void (*fn)(struct rcu_head *head));
void __wrap_urcu_memb_barrier(void);

uint64_t __wrap_clock_monotonic_ns(void)
{
    return now_ns;
}

time_t __wrap_time(time_t *out)
{
    time_t seconds = (time_t)(now_ns / 1000000000);
    if (out)
        *out = seconds;
    return seconds;
}

int __wrap_worker_spawn(struct worker *w, void (*fn)(void *arg), void *arg)
{
    if (spawned_count == SPAWNED)
        return -ENOMEM;
    spawned[spawned_count++] = (struct spawned){fn, arg};
    return 0;
}

struct worker *__wrap_worker_self(void)
{
    return NULL;
}

struct worker *__wrap_worker_at(unsigned index)
{
    return NULL;
}

static void run_spawned(void)
{
    while (spawned_count) {
        struct spawned one = spawned[--spawned_count];
        one.fn(one.arg);
    }
}

/* What readers may still see goes after each step: there are none but the steps. */
static struct rcu_head *retired[1 << 16];
static void (*retire[1 << 16])(struct rcu_head *head);
static unsigned retired_count;

void __wrap_urcu_memb_call_rcu(struct rcu_head *head, void (*fn)(struct rcu_head *head))
{
    must(retired_count < sizeof retired / sizeof *retired, "no more than so many go at once");
    retired[retired_count] = head;
    retire[retired_count++] = fn;
}

void __wrap_urcu_memb_barrier(void)
{
    while (retired_count) {
        retired_count--;
        retire[retired_count](retired[retired_count]);
    }
}

/* A few buckets: quickly made, and with several things in each. */
int __wrap_state_table_init(struct state_table *table, uint64_t buckets)
{
    return __real_state_table_init(table, 8);
}

static void answer(unsigned how);
static unsigned answers; /* how clients answer while somebody waits */

void __wrap_coro_sleep(unsigned ms)
{
    now_ns += ms * UINT64_C(1000000);
    run_spawned();
    answer(answers);
}

void blocking_run(void (*fn)(void *arg), void *arg)
{
}

void blocking_set_limit(unsigned threads)
{
}

void blocking_stop(void)
{
}

int blocking_spawn(void (*fn)(void *arg), void *arg)
{
    return -EAGAIN;
}

/* ---- the pool's records ---- */

static struct record {
    char key[49];
    uint8_t value[16];
    size_t length;
} records[RECORDS];

static int named_put(struct store *s, const char *key, const void *value, size_t length)
{
    struct record *to = NULL;
    must(strlen(key) <= 48 && length <= sizeof to->value, "a record's size");
    for (struct record *r = records; r < records + RECORDS; r++) {
        if (strcmp(r->key, key) == 0)
            to = r;
        else if (!r->key[0] && !to)
            to = r;
    }
    for (struct record *r = records; r < records + RECORDS; r++)
        if (strcmp(r->key, key) == 0)
            to = r;
    must(to != NULL || !value, "no more records than owners");
    if (!to)
        return 0;
    memset(to, 0, sizeof *to);
    if (value) {
        snprintf(to->key, sizeof to->key, "%s", key);
        memcpy(to->value, value, length);
        to->length = length;
    }
    return 0;
}

static int named_each(struct store *s, int (*each)(void *arg, const char *key, const void *value, size_t length),
                      void *arg)
{
    int error = 0;
    for (struct record *r = records; r < records + RECORDS && !error; r++)
        if (r->key[0])
            error = each(arg, r->key, r->value, r->length);
    return error;
}

/* ---- models ---- */

static struct m_client {
    uint64_t id; /* 0: none */
    unsigned minor, owner;
    uint32_t sequence;
    uint8_t confirm[NFS4_VERIFIER_SIZE];
    bool created;
    uint8_t session[NFS4_SESSIONID_SIZE]; /* the last one made */
} clients[CLIENTS];

static struct m_slot {
    bool used, kept, busy;
    uint32_t sequence;
    uint8_t request[2];
    uint32_t uid;
    uint8_t reply[REPLY_BYTES];
} slots[SESSIONS][SLOTS];

static struct m_session {
    bool there;
    uint64_t client;
    uint8_t id[NFS4_SESSIONID_SIZE];
    uint32_t slots;
} sessions[SESSIONS];

static struct m_state {
    struct nfs4_stateid stateid;
    uint64_t client;
    unsigned object;
    enum state_kind kind;
    bool there;
} states[STATES];

static struct pending { /* a COMPOUND behind its SEQUENCE */
    struct state_caller caller;
    struct rpc_call call;
    unsigned session, slot;
    bool cache;
} pending[PENDING];
static unsigned pending_count, next_client, next_session, next_state;
static const uint8_t *step; /* four bytes */

static struct store_object object_of(unsigned number)
{
    return (struct store_object){.tree = TREE, .generation = 1, .ino = 10 + number % OBJECTS};
}

static struct state_bytes name_of(unsigned number)
{
    static const uint8_t names[OWNERS][3] = {"one", "two", "thr", "fou"};
    return (struct state_bytes){names[number % OWNERS], 3};
}

static bool is_alive(uint64_t clientid)
{
    state_lock_all();
    struct state_client *client = client_find(clientid);
    state_unlock_all();
    return client != NULL;
}

static bool session_alive(const struct m_session *session)
{
    return session->there && is_alive(session->client);
}

static struct state_caller caller_of(struct rpc_call *call, uint32_t minor, uint32_t uid)
{
    static struct sockaddr_storage peer = {.ss_family = AF_INET};
    static uint64_t scratch[RPC_CONN_SCRATCH];
    memset(call, 0, offsetof(struct rpc_call, keep));
    call->cred.flavor = RPC_AUTH_SYS;
    call->cred.uid = uid;
    call->peer = call->local = &peer;
    call->conn_scratch = scratch;
    call->received_ns = now_ns;
    return (struct state_caller){.call = call, .minor = minor};
}

static struct m_client *client_known(uint64_t id, unsigned minor, unsigned owner)
{
    for (struct m_client *c = clients; c < clients + CLIENTS; c++)
        if (c->id == id)
            return c;
    struct m_client *c;
    do
        c = &clients[next_client++ % CLIENTS]; /* there are fewer on the server */
    while (is_alive(c->id));
    *c = (struct m_client){.id = id, .minor = minor, .owner = owner};
    return c;
}

static struct m_state *state_known(const struct nfs4_stateid *stateid)
{
    for (struct m_state *s = states; s < states + STATES; s++)
        if (s->there && memcmp(s->stateid.other, stateid->other, sizeof stateid->other) == 0)
            return s;
    return NULL;
}

static struct m_state *keep_state(uint64_t client, unsigned object, enum state_kind kind,
                                  const struct nfs4_stateid *stateid)
{
    struct m_state *to = state_known(stateid);
    if (to)
        must(to->client == client && to->kind == kind && to->object == object % OBJECTS, "a stateid means one state");
    else
        to = &states[next_state++ % STATES];
    *to = (struct m_state){*stateid, client, object % OBJECTS, kind, true};
    return to;
}

/* A stateid from those given out, as it is or with a seqid of the past or the future; or one like it.  *state is what
 * it stands for as far as that is known. */
static struct nfs4_stateid some_stateid(struct m_state **state)
{
    static struct m_state unknown;
    const struct m_state *from = &states[step[1] % STATES];
    struct nfs4_stateid stateid = from->stateid;
    if (step[3] & 0x80)
        stateid.seqid = step[3] & 0x40 ? 0 : stateid.seqid + (step[3] & 0x20 ? 1 : UINT32_MAX);
    if ((step[3] & 0x1f) == 0x1f || !from->there)
        stateid.other[step[2] % NFS4_OTHER_SIZE] ^= 1;
    *state = state_known(&stateid);
    if (!*state) {
        unknown = (struct m_state){.object = from->object, .kind = from->kind};
        *state = &unknown;
    }
    return stateid;
}

/* The client's number stands in the stateid. */
static void mine(const struct nfs4_stateid *stateid, const struct m_state *state, uint64_t client,
                 enum nfs4_status status)
{
    uint32_t of;
    memcpy(&of, stateid->other + 4, sizeof of);
    must(status != NFS4_OK || (of == (uint32_t)client && (!state->there || state->client == client)),
         "a stateid of another client is taken");
}

/* ---- clients and sessions of minor version 1 ---- */

static void exchange(void)
{
    struct rpc_call call;
    struct state_caller caller = caller_of(&call, 1, step[2] & 1);
    struct state_exchange e = {.owner = name_of(step[1]), .flags = step[2] & 4 ? EXCHGID4_UPD_CONFIRMED_REC_A : 0};
    e.verifier[0] = step[2] >> 4 & 1;
    enum nfs4_status status = state_exchange_id(&caller, &e);
    state_end(&caller, NULL, 0);
    if (status != NFS4_OK)
        return;
    must(is_alive(e.clientid), "the client that was answered");
    struct m_client *client = client_known(e.clientid, 1, step[1] % OWNERS);
    must(client->owner == step[1] % OWNERS, "a client id has one owner");
    must(!client->sequence || client->sequence == e.sequence, "eir_sequenceid");
    client->sequence = e.sequence;
}

static void create_session(void)
{
    static const uint32_t deltas[8] = {0, 0, 0, 0, 0, UINT32_MAX, UINT32_MAX, 1};
    struct m_client *client = &clients[step[1] % CLIENTS];
    struct rpc_call call;
    struct state_caller caller = caller_of(&call, 1, step[3] & 1);
    uint32_t delta = deltas[step[2] % 8];
    struct state_create_session c = {.clientid = client->id, .sequence = client->sequence + delta};
    c.flags = step[2] & 0x10 ? CREATE_SESSION4_CONN_BACK_CHAN : 0;
    c.security.known = true;
    c.fore = c.back = (struct state_channel){0, 4096, 4096, REPLY_BYTES, 8, 1 + step[3] / 64 % SLOTS};
    bool alive = is_alive(client->id);
    enum nfs4_status status = state_create_session(&caller, &c);
    state_end(&caller, NULL, 0);
    must(alive || client->minor || status == NFS4ERR_STALE_CLIENTID, "a session of no client");
    must(delta != 1 || status != NFS4_OK, "a CREATE_SESSION with a wrong number");
    if (status != NFS4_OK)
        return;
    if (delta) {
        must(client->created && memcmp(client->session, c.sessionid, sizeof c.sessionid) == 0,
             "CREATE_SESSION is answered as before");
        return;
    }
    client->sequence++;
    client->created = true;
    memcpy(client->session, c.sessionid, sizeof c.sessionid);
    unsigned at = next_session++ % SESSIONS;
    for (unsigned i = 0; i < pending_count; i++)
        if (pending[i].session == at)
            return; /* its model is in use */
    sessions[at] = (struct m_session){.there = true, .client = client->id, .slots = c.fore.max_requests};
    memcpy(sessions[at].id, c.sessionid, sizeof c.sessionid);
    memset(slots[at], 0, sizeof slots[at]);
}

static enum nfs4_status expected(const struct m_session *session, const struct m_slot *slot, unsigned number,
                                 uint32_t sequence, uint32_t uid)
{
    if (!session_alive(session))
        return NFS4ERR_BADSESSION;
    if (number >= session->slots)
        return NFS4ERR_BADSLOT;
    if (slot->busy)
        return NFS4ERR_DELAY;
    if (sequence == slot->sequence + 1)
        return NFS4_OK;
    if (sequence != slot->sequence || !slot->used)
        return NFS4ERR_SEQ_MISORDERED;
    if (!slot->kept)
        return NFS4ERR_RETRY_UNCACHED_REP;
    bool same = slot->uid == uid && memcmp(slot->request, step + 2, sizeof slot->request) == 0;
    return same ? NFS4_OK : NFS4ERR_SEQ_FALSE_RETRY;
}

static void end_pending(unsigned index)
{
    struct pending p = pending[index];
    struct m_slot *slot = &slots[p.session][p.slot];
    uint8_t reply_bytes[REPLY_BYTES];
    for (unsigned i = 0; i < REPLY_BYTES; i++)
        reply_bytes[i] = (uint8_t)(now_ns >> 20) ^ (uint8_t)(slot->sequence * 31 + i) ^ p.caller.call->xid;
    p.caller.call = &p.call;
    state_end(&p.caller, reply_bytes, sizeof reply_bytes);
    slot->busy = false;
    slot->kept = p.cache;
    memcpy(slot->reply, reply_bytes, sizeof slot->reply);
    pending[index] = pending[--pending_count];
    for (unsigned i = 0; i < pending_count; i++)
        pending[i].caller.call = &pending[i].call;
}

static void sequence(void)
{
    static const uint32_t deltas[8] = {1, 1, 1, 1, 0, 0, 2, UINT32_MAX};
    unsigned at = step[1] % SESSIONS, number = step[1] / SESSIONS % (SLOTS + 1);
    struct m_session *session = &sessions[at];
    struct m_slot none = {0}, *slot = number < SLOTS ? &slots[at][number] : &none;
    uint32_t uid = step[3] & 1;
    if (pending_count == PENDING)
        end_pending(0);
    struct pending *p = &pending[pending_count];
    struct state_sequence s = {.sequence = slot->sequence + deltas[step[3] >> 1 & 7], .slot = number,
                               .cache_this = step[3] & 0x10, .op_count = 2,
                               .request = {step + 2, sizeof slot->request}};
    memcpy(s.sessionid, session->id, sizeof s.sessionid);
    enum nfs4_status want = expected(session, slot, number, s.sequence, uid);
    p->caller = caller_of(&p->call, 1, uid);
    enum nfs4_status status = state_sequence(&p->caller, &s);
    must(status == want, "SEQUENCE's status");
    if (status == NFS4_OK && !s.kept.bytes) {
        *slot = (struct m_slot){.used = true, .busy = true, .sequence = s.sequence, .uid = uid};
        memcpy(slot->request, step + 2, sizeof slot->request);
        p->session = at;
        p->slot = number;
        p->cache = s.cache_this;
        pending_count++;
        return;
    }
    if (status == NFS4_OK) {
        must(s.kept.length == REPLY_BYTES && memcmp(s.kept.bytes, slot->reply, REPLY_BYTES) == 0, "the reply of before");
        touch(s.kept.bytes, s.kept.length);
    }
    state_end(&p->caller, NULL, 0);
}

static void destroy_session(void)
{
    struct rpc_call call;
    struct state_caller caller = caller_of(&call, 1, 0);
    struct m_session *session = &sessions[step[1] % SESSIONS];
    bool alive = session_alive(session);
    enum nfs4_status status = state_destroy_session(&caller, session->id);
    must(status == (alive ? NFS4_OK : NFS4ERR_BADSESSION), "DESTROY_SESSION");
    session->there = false;
}

static void destroy_clientid(void)
{
    struct rpc_call call;
    struct state_caller caller = caller_of(&call, 1, 0);
    struct m_client *client = &clients[step[1] % CLIENTS];
    bool alive = is_alive(client->id), has = false;
    for (unsigned i = 0; i < SESSIONS; i++)
        has |= sessions[i].client == client->id && session_alive(&sessions[i]);
    enum nfs4_status status = state_destroy_clientid(&caller, client->id);
    must(status != NFS4_OK || (alive && !has && !is_alive(client->id)), "DESTROY_CLIENTID");
}

/* ---- operations in a session ---- */

static struct state_caller *some_caller(uint64_t *client)
{
    if (!pending_count)
        return NULL;
    struct pending *p = &pending[step[2] % pending_count];
    *client = sessions[p->session].client;
    return &p->caller;
}

/* With the hold of the file that the protocol takes before. */
static enum nfs4_status open_it(struct state_caller *caller, uint64_t client, unsigned object, struct state_open *o)
{
    enum nfs4_status status = state_may_open(caller, o);
    if (status != NFS4_OK)
        return status;
    holds++;
    status = state_open(caller, o);
    if (!o->hold_taken)
        holds--;
    if (status == NFS4_OK)
        keep_state(client, object, STATE_OPEN, &o->stateid);
    return status;
}

static void open_41(struct state_caller *caller, uint64_t client)
{
    struct state_open o = {.open_owner = name_of(step[1]), .claim = step[1] & 0x10 ? CLAIM_PREVIOUS : CLAIM_FH,
                           .access = 1 + step[3] % 3, .deny = step[3] / 4 % 4, .object = object_of(step[1] >> 5)};
    o.immutable = step[3] & 0x40;
    o.object.tree += o.immutable;
    if (o.immutable && (o.access != OPEN4_SHARE_ACCESS_READ || o.deny))
        return; /* of a snapshot */
    open_it(caller, client, step[1] >> 5, &o);
    if (o.given == OPEN_DELEGATE_READ)
        keep_state(client, step[1] >> 5, STATE_DELEGATION, &o.given_stateid);
}

static void close_41(struct state_caller *caller, uint64_t client)
{
    struct m_state *state;
    struct nfs4_stateid stateid = some_stateid(&state), sent = stateid;
    struct store_object object = object_of(state->object);
    enum nfs4_status status = state_close(caller, &object, &stateid);
    mine(&sent, state, client, status);
    must(status != NFS4_OK || !state->there || state->kind == STATE_OPEN, "CLOSE of another state");
}

static void downgrade_41(struct state_caller *caller, uint64_t client)
{
    struct m_state *state;
    struct nfs4_stateid stateid = some_stateid(&state), sent = stateid;
    struct store_object object = object_of(state->object);
    enum nfs4_status status = state_open_downgrade(caller, &object, 1 + step[3] % 3, step[3] / 4 % 4, &stateid);
    mine(&sent, state, client, status);
    if (status == NFS4_OK && state->there)
        keep_state(client, state->object, STATE_OPEN, &stateid);
}

static void io(struct state_caller *caller, uint64_t client)
{
    struct m_state *state;
    struct nfs4_stateid stateid = some_stateid(&state);
    struct store_object object = object_of(step[3] & 3 ? state->object : step[3] >> 2);
    enum nfs4_status status = state_io(caller, &object, &stateid, 1 + (step[3] >> 4 & 1));
    mine(&stateid, state, client, status);
    must(status != NFS4_OK || !state->there || object.ino == object_of(state->object).ino, "a stateid of another file");
    stateid = (struct nfs4_stateid){0};
    state_io(caller, &object, &stateid, 1 + (step[3] >> 4 & 1));
}

static struct state_lock some_lock(void)
{
    struct state_lock lock = {.type = step[3] & 1 ? WRITE_LT : READ_LT, .offset = step[3] >> 1 & 7,
                              .length = step[3] & 0x40 ? UINT64_MAX : 1 + (step[3] >> 4 & 3),
                              .lock_owner = name_of(step[2] >> 4), .reclaim = step[2] & 0x40};
    return lock;
}

static void lock_41(struct state_caller *caller, uint64_t client)
{
    struct m_state *state;
    struct nfs4_stateid stateid = some_stateid(&state);
    struct state_lock lock = some_lock();
    lock.stateid = stateid;
    lock.new_owner = state->kind != STATE_LOCK;
    lock.object = object_of(state->object);
    enum nfs4_status status = state_lock(caller, &lock);
    mine(&stateid, state, client, status);
    if (status == NFS4_OK && state->there)
        keep_state(client, state->object, STATE_LOCK, &lock.stateid);
}

static void locku_41(struct state_caller *caller, uint64_t client)
{
    struct m_state *state;
    struct nfs4_stateid stateid = some_stateid(&state);
    struct state_lock lock = some_lock();
    lock.stateid = stateid;
    lock.object = object_of(state->object);
    enum nfs4_status status = state_locku(caller, &lock);
    mine(&stateid, state, client, status);
    if (status == NFS4_OK && state->there)
        keep_state(client, state->object, STATE_LOCK, &lock.stateid);
}

static void lockt_41(struct state_caller *caller, uint64_t client)
{
    struct state_lock lock = some_lock();
    lock.object = object_of(step[1]);
    lock.clientid = client;
    state_lockt(caller, &lock);
}

static void return_delegation(struct state_caller *caller, uint64_t client)
{
    struct m_state *state;
    struct nfs4_stateid stateid = some_stateid(&state);
    struct store_object object = object_of(state->object);
    object.tree += step[3] & 1;
    mine(&stateid, state, client, state_delegreturn(caller, &object, &stateid));
}

static void test_and_free(struct state_caller *caller, uint64_t client)
{
    struct m_state *state;
    struct nfs4_stateid stateid = some_stateid(&state);
    mine(&stateid, state, client, state_test_stateid(caller, &stateid));
    if (step[2] & 0x80)
        mine(&stateid, state, client, state_free_stateid(caller, &stateid));
}

static void in_session(unsigned what)
{
    static void (*const all[])(struct state_caller *caller, uint64_t client) = {
        open_41, close_41, downgrade_41, io, lock_41, locku_41, lockt_41, test_and_free, return_delegation};
    uint64_t client;
    struct state_caller *caller = some_caller(&client);
    if (caller)
        all[what](caller, client);
}

static void reclaim_complete(void)
{
    uint64_t client;
    struct state_caller *caller = some_caller(&client);
    if (caller)
        state_reclaim_complete(caller, step[3] & 1);
}

/* ---- callbacks, and who changes files without an open ---- */

static size_t put_words(uint8_t *to, const uint32_t *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t word = htobe32(words[i]);
        memcpy(to + 4 * i, &word, 4);
    }
    return 4 * count;
}

/* CB_COMPOUND4res of CB_SEQUENCE and CB_RECALL. */
static void answer(unsigned how)
{
    static const uint32_t statuses[] = {NFS4_OK, NFS4ERR_DELAY, NFS4ERR_BADSESSION, NFS4ERR_SEQ_MISORDERED};
    uint32_t sequence = statuses[how / 2 % 4], recall = how & 1 ? NFS4ERR_BAD_STATEID : NFS4_OK;
    const uint32_t good[] = {recall, 0, 2, 11, NFS4_OK, 0, 0, 0, 0, 1, 0, 0, 0, 4, recall};
    const uint32_t bad[] = {sequence, 0, 1, 11, sequence};
    uint8_t bytes[sizeof good];
    size_t length = sequence ? put_words(bytes, bad, 5) : put_words(bytes, good, 15);
    if (how % 16 == 8)
        return; /* not yet */
    answer_back_calls(how % 16 == 9 ? -ENOTCONN : how % 16 == 10 ? -ETIMEDOUT : 0, bytes, how % 16 == 11 ? 10 : length);
}

static void answer_now(void)
{
    answer(step[1]);
    answers = step[2];
}

static void change(void)
{
    struct state_change change = {0};
    uint64_t client;
    struct state_caller *caller = step[3] & 1 ? some_caller(&client) : NULL;
    struct store_object object = object_of(step[1]);
    int error = state_changing(&change, caller, &object);
    must(!error || error == SL_EDELAY, "what a change is told");
    state_changed(&change);
}

static bool keeps(uint32_t tree, const struct sockaddr_storage *peer)
{
    return tree == TREE + (step[1] & 1);
}

static void recheck(void)
{
    if (step[2] & 1) {
        state_recheck(keeps);
        return;
    }
    state_tree_changes(TREE, true);
    state_tree_changes(TREE, false);
}

/* ---- minor version 0 ---- */

static void set_clientid(void)
{
    struct rpc_call call;
    struct state_caller caller = caller_of(&call, 0, step[2] & 1);
    struct state_setclientid set = {.owner = name_of(step[1])};
    set.verifier[0] = step[2] >> 4 & 1;
    if (state_setclientid(&caller, &set) != NFS4_OK)
        return;
    struct m_client *client = client_known(set.clientid, 0, step[1] % OWNERS);
    must(!client->minor, "a client id has one minor version");
    memcpy(client->confirm, set.confirm, sizeof set.confirm);
}

static void confirm_clientid(void)
{
    struct rpc_call call;
    struct state_caller caller = caller_of(&call, 0, step[2] & 1);
    struct m_client *client = &clients[step[1] % CLIENTS];
    struct state_setclientid set = {.clientid = client->id};
    memcpy(set.confirm, client->confirm, sizeof set.confirm);
    set.confirm[0] ^= step[3] == 0xff;
    enum nfs4_status status = state_setclientid_confirm(&caller, &set);
    must(status != NFS4_OK || (!client->minor && step[3] != 0xff), "SETCLIENTID_CONFIRM");
    state_renew(&caller, client->id);
}

/* OPEN, and again with the same seqid: the result is that of before, and nothing is opened. */
static void open_40(void)
{
    struct rpc_call call;
    struct state_caller caller = caller_of(&call, 0, 0);
    struct m_client *client = &clients[step[1] % CLIENTS];
    struct state_bytes name = name_of(step[2]);
    struct state_open o = {.clientid = client->id, .open_owner = name, .claim = CLAIM_NULL, .access = 1 + step[3] % 3,
                           .deny = step[3] / 4 % 4, .object = object_of(step[2] >> 4)};
    struct state_kept kept = {0};
    uint32_t seqid = step[3] >> 4;
    if (state_seqid_by_owner(&caller, client->id, name, seqid, &o.owner, &kept) != NFS4_OK)
        return;
    if (kept.result.bytes) {
        touch(kept.result.bytes, kept.result.length);
        state_seqid_end(o.owner, NFS4_OK, (struct state_bytes){0}, NULL);
        return;
    }
    enum nfs4_status status = open_it(&caller, client->id, step[2] >> 4, &o);
    uint8_t text[8] = {(uint8_t)status, step[2], step[3]};
    state_seqid_end(o.owner, status, (struct state_bytes){text, sizeof text}, &o.object);
    if (status == NFS4ERR_STALE_CLIENTID || status == NFS4ERR_RESOURCE || status == NFS4ERR_BAD_STATEID)
        return;
    uint64_t opens = state_all.state_count;
    if (state_seqid_by_owner(&caller, client->id, name, seqid, &o.owner, &kept) != NFS4_OK)
        return;
    must(kept.result.length == sizeof text && memcmp(kept.result.bytes, text, sizeof text) == 0 &&
             opens == state_all.state_count, "an OPEN that is repeated");
    state_seqid_end(o.owner, status, (struct state_bytes){0}, NULL);
}

static enum nfs4_status with_40(struct state_caller *caller, struct m_state *state, struct nfs4_stateid *stateid)
{
    struct store_object object = object_of(state->object);
    struct state_lock lock = some_lock();
    enum nfs4_status status;
    switch (step[2] % 6) {
    case 0:
        return state_open_confirm(caller, &object, stateid);
    case 1:
        return state_close(caller, &object, stateid);
    case 2:
        return state_open_downgrade(caller, &object, 1 + step[3] % 3, step[3] / 4 % 4, stateid);
    case 3:
        return state_io(caller, &object, stateid, 1 + (step[3] & 1));
    default:
        lock.object = object;
        lock.stateid = *stateid;
        lock.new_owner = state->kind != STATE_LOCK;
        lock.clientid = state->client;
        status = step[2] % 6 == 4 ? state_lock(caller, &lock) : state_locku(caller, &lock);
        if (status == NFS4_OK && lock.new_owner)
            keep_state(state->client, state->object, STATE_LOCK, &lock.stateid);
        return status;
    }
}

static void by_stateid_40(void)
{
    struct rpc_call call;
    struct state_caller caller = caller_of(&call, 0, 0);
    struct m_state *state;
    struct nfs4_stateid stateid = some_stateid(&state);
    struct state_owner *owner;
    struct state_kept kept = {0};
    if (state_seqid_by_stateid(&caller, &stateid, step[3] & 15, &owner, &kept) != NFS4_OK)
        return;
    enum nfs4_status status = NFS4_OK;
    uint8_t text[4] = {step[2]};
    if (!kept.result.bytes)
        status = with_40(&caller, state, &stateid);
    else
        touch(kept.result.bytes, kept.result.length);
    state_seqid_end(owner, status, kept.result.bytes ? (struct state_bytes){0} : (struct state_bytes){text, 4}, NULL);
}

static void release_lockowner(void)
{
    struct rpc_call call;
    struct state_caller caller = caller_of(&call, 0, 0);
    state_release_lockowner(&caller, clients[step[1] % CLIENTS].id, name_of(step[2]));
}

/* ---- what must hold ---- */

static void look_at_ranges(const struct state_file *file)
{
    for (struct state_link *at = file->locks.next; at != &file->locks; at = at->next) {
        struct state_range *a = link_of(at, struct state_range, of_file);
        must(a->first <= a->last, "an empty range");
        for (struct state_link *other = at->next; other != &file->locks; other = other->next) {
            struct state_range *b = link_of(other, struct state_range, of_file);
            bool overlap = a->first <= b->last && b->first <= a->last;
            must(!overlap || (a->state->owner != b->state->owner && !a->write && !b->write), "locks overlap");
        }
    }
}

/* Nobody else writes, or denies reading, unless it is being recalled.  1 unless it never is. */
static uint32_t look_at_delegation(const struct state_file *file, const struct state *delegation)
{
    for (struct state_link *at = file->opens.next; at != &file->opens; at = at->next) {
        struct state *open = link_of(at, struct state, of_file);
        bool meets = open->kind == STATE_OPEN && open->client != delegation->client &&
                     (open->access & OPEN4_SHARE_ACCESS_WRITE || open->deny & OPEN4_SHARE_DENY_READ);
        must(!meets || delegation->immutable || delegation->recalled_since, "a delegation beside a writer");
    }
    return !delegation->immutable;
}

static void look_at_file(const struct state_file *file)
{
    uint32_t shares[4] = {0}, delegations = 0;
    for (struct state_link *at = file->opens.next; at != &file->opens; at = at->next) {
        struct state *a = link_of(at, struct state, of_file);
        must(a->file == file, "whose a state is");
        if (a->kind == STATE_DELEGATION)
            delegations += look_at_delegation(file, a);
        if (a->kind != STATE_OPEN)
            continue;
        for (unsigned i = 0; i < 4; i++)
            shares[i] += (a->access | a->deny << 2) >> i & 1;
        for (struct state_link *other = at->next; other != &file->opens; other = other->next) {
            struct state *b = link_of(other, struct state, of_file);
            must(b->kind != STATE_OPEN || a->owner != b->owner, "an owner opens a file once");
            must(b->kind != STATE_OPEN || !((a->access & b->deny) | (a->deny & b->access)), "shares conflict");
        }
    }
    must(delegations == file->delegations, "delegations of a file are counted");
    must(memcmp(shares, file->shares, sizeof shares) == 0, "shares are counted");
    must(file->deny == ((shares[2] ? 1u : 0) | (shares[3] ? 2u : 0)), "the sum of what is denied");
    look_at_ranges(file);
}

static void look_at_everything(void)
{
    uint64_t client_count = 0, session_count = 0, state_count = 0, owner_count = 0, delegations = 0, live = 0;
    for (struct state_link *c = state_all.client_list.next; c != &state_all.client_list; c = c->next) {
        struct state_client *client = link_of(c, struct state_client, all);
        must(!client->gone, "who is gone is in no list");
        client_count++;
        for (struct state_link *at = client->sessions.next; at != &client->sessions; at = at->next)
            session_count++;
        for (struct state_link *at = client->owners.next; at != &client->owners; at = at->next)
            owner_count++;
        for (struct state_link *at = client->states.next; at != &client->states; at = at->next) {
            struct state *state = link_of(at, struct state, of_client);
            must(state->client == client && (!state->owner || state->owner->client == client), "whose a state is");
            must(!state->file == (state->revoked != 0), "what is revoked has no file");
            must(!state->owner == (state->kind == STATE_DELEGATION || state->revoked), "a delegation has no owner");
            if (state->file)
                look_at_file(state->file);
            state_count++;
            delegations += state->kind == STATE_DELEGATION;
            live += state->kind == STATE_DELEGATION && state->file && !state->immutable;
        }
    }
    must(client_count == state_all.client_count && session_count == state_all.session_count, "clients, sessions counted");
    must(delegations == state_all.delegation_count && live == state_all.live_delegations, "delegations counted");
    must(state_count == state_all.state_count && owner_count == state_all.owner_count, "states, owners counted");
}

/* ---- the whole ---- */

static void end_all(void)
{
    while (pending_count)
        end_pending(0);
    while (back_call_count)
        answer_back_calls(-ENOTCONN, NULL, 0);
}

static void start(void)
{
    static struct store_ops with_records;
    static struct store pool = {.ops = &with_records};
    static const struct state_options options = {
        .lease_seconds = LEASE, .grace_seconds = LEASE, .clients_most = 6, .sessions_most = 6, .opens_most = 10,
        .locks_most = 8, .delegations_most = 4,
    };
    with_records = ops;
    with_records.named_put = named_put;
    with_records.named_each = named_each;
    must(state_start(&pool, &options) == 0, "starting");
}

static void restart(void)
{
    end_all();
    run_spawned();
    state_stop();
    now_ns += UINT64_C(1000000000);
    start();
    must(!state_all.client_count && !state_all.session_count && !state_all.state_count && !state_all.range_count,
         "nothing is there after a start");
}

static void let_time_pass(void)
{
    now_ns += step[1] * (step[2] & 1 ? UINT64_C(1000000000) : UINT64_C(10000000));
}

/* All are silent for long: each goes when room is needed, and nothing of it stays. */
static void let_all_expire(void)
{
    end_all();
    now_ns += UINT64_C(1000000000) * 1000;
    state_lock_all();
    while (client_make_room())
        continue;
    must(!state_all.client_count && !state_all.session_count && !state_all.owner_count && !state_all.state_count &&
             !state_all.range_count && !state_all.delegation_count && !state_all.live_delegations && !holds,
         "counts are zero when all have expired");
    state_unlock_all();
    recovery_in_grace();
    run_spawned();
}

static void one_step(void)
{
    unsigned what = step[0] % 28;
    static void (*const others[])(void) = {
        exchange, exchange, create_session, create_session, sequence, sequence, sequence, destroy_session,
        destroy_clientid, reclaim_complete, set_clientid, confirm_clientid, open_40, by_stateid_40, release_lockowner,
        let_time_pass, answer_now, change, recheck};
    if (what < 9)
        in_session(what);
    else
        others[what - 9]();
    if (step[0] >= 0xf0 && pending_count)
        end_pending(step[3] % pending_count);
    if (step[0] == 0xee)
        restart();
    if (step[0] & 0x40)
        run_spawned();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool started;
    if (!started) {
        log_set_level(LOG_LEVEL_ERROR);
        urcu_memb_register_thread();
        start();
        started = true;
    }
    memset(clients, 0, sizeof clients);
    memset(sessions, 0, sizeof sessions);
    memset(slots, 0, sizeof slots);
    memset(states, 0, sizeof states);
    answers = 0;
    for (unsigned steps = 0; size >= 4 && steps < STEPS_MOST; steps++, size -= 4, data += 4) {
        step = data;
        one_step();
        __wrap_urcu_memb_barrier();
        look_at_everything();
    }
    let_all_expire();
    __wrap_urcu_memb_barrier();
    look_at_everything();
    for (unsigned i = 0; i < RECORDS; i++)
        if (records[i].key[0]) { /* of a client that came back and was never confirmed */
            memset(records, 0, sizeof records);
            restart();
        }
    return 0;
}
