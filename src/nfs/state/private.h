/* What the parts of the state module share.  All of it is guarded by one mutex, held for some look-ups and never across
 * a wait, but for what is said to be read without: sessions and stateids are found under RCU, a slot belongs to whoever
 * has set it busy, leases are coarse timestamps. */
#ifndef SLUICE_NFS_STATE_PRIVATE_H
#define SLUICE_NFS_STATE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <urcu.h>

#include "nfs/state/state.h"

enum { SLOTS_MOST = 128, KEPT_MOST = 8192, OWNER_HASH = 16 };

/* ---- a table of numbers (table.c) ---- */

struct state_node {
    struct state_node *next;
    uint64_t key;
};

struct state_table {
    struct state_node **buckets;
    uint64_t mask;
};

int state_table_init(struct state_table *table, uint64_t buckets); /* a power of two; -ENOMEM */
void state_table_free(struct state_table *table);
void state_table_add(struct state_table *table, struct state_node *node);
void state_table_remove(struct state_table *table, struct state_node *node); /* readers may still see it */
/* The first with this key, or the next one behind `node`.  Within an RCU section or under the mutex. */
struct state_node *state_table_find(const struct state_table *table, uint64_t key);
struct state_node *state_table_next(struct state_node *node);

/* ---- a list ---- */

struct state_link {
    struct state_link *next, *previous;
};

static inline void link_init(struct state_link *head)
{
    head->next = head->previous = head;
}

static inline bool link_is_empty(const struct state_link *head)
{
    return head->next == head;
}

static inline void link_add(struct state_link *head, struct state_link *link)
{
    link->next = head->next;
    link->previous = head;
    head->next->previous = link;
    head->next = link;
}

static inline void link_remove(struct state_link *link)
{
    link->next->previous = link->previous;
    link->previous->next = link->next;
    link_init(link);
}

#define link_of(at, type, member) ((type *)(void *)((char *)(at) - offsetof(type, member)))

/* ---- what there is ---- */

struct state_principal {
    uint32_t flavor, uid;
};

struct state_client {
    struct state_node by_id;      /* key: the client id; confirmed or not */
    struct state_node by_owner;   /* key: of the owner */
    struct state_link all;
    struct state_link sessions, owners, states;
    atomic_uint references;       /* the tables' one; sessions' and callers' */
    struct rcu_head rcu;
    uint32_t minor;               /* 0, or 1 for all with sessions */
    uint32_t minor_told;          /* of the COMPOUND that it came with: for people */
    uint32_t opens, locks, delegations;
    bool confirmed, gone, reclaim_complete, may_reclaim, recorded;
    struct state_link recalls;    /* delegations whose recall waits for a backchannel */
    uint32_t revoked_delegations, revoked_others; /* that the client has not yet freed */
    _Atomic uint32_t status_flags; /* SEQ4_STATUS_*, for SEQUENCE */
    _Atomic uint32_t renewed;     /* seconds, monotonic; read and written without the mutex */
    struct state_principal principal;
    uint8_t verifier[NFS4_VERIFIER_SIZE], confirm[NFS4_VERIFIER_SIZE];
    uint8_t owner_hash[OWNER_HASH];
    struct sockaddr_storage peer;
    uint32_t sequence;            /* of CREATE_SESSION: the next */
    bool created;                 /* ... and its last reply, if there was one */
    struct state_create_session last_created;
    uint32_t owner_length, implementation_length;
    uint8_t owner[];              /* and its implementation, for people */
};

/* Who sets a slot busy owns it, and keeps the session's memory until he lets go: so a request counts nothing that all
 * requests of a session would share.  SLOT_CLOSED: the session has ended, and no request takes the slot any more. */
enum { SLOT_BUSY = 1, SLOT_CLOSED = 2 };

struct state_slot {
    atomic_uchar busy;
    bool used;              /* some request has been made */
    uint32_t sequence;
    uint64_t request;       /* hash of the one that is kept */
    uint8_t *kept;
    uint32_t kept_length;
    bool keep;              /* of the present request: the client wants it */
};

struct state_back { /* a session's backchannel: one connection, one slot */
    struct rpc_connection where;
    bool bound, proven, busy, down;
    atomic_bool prove;       /* with the session's next request; read without the mutex */
    uint32_t sequence;       /* of the next callback */
    unsigned tries;
};

struct state_session {
    struct state_node by_number; /* key: in the session id */
    struct state_link of_client;
    struct rcu_head rcu;
    atomic_uint references; /* the table's one; after its end those of busy slots */
    struct state_client *client;
    uint8_t id[NFS4_SESSIONID_SIZE];
    struct state_channel fore, back;
    uint32_t flags, callback_program;
    struct state_callback_sec security;
    uint32_t minor;              /* that of the client's COMPOUNDs */
    struct state_back back_channel;
    atomic_bool dead;
    struct state_slot slots[];
};

/* An open-owner or a lock-owner. */
struct state_owner {
    struct state_node by_name;
    struct state_link of_client, states;
    struct state_client *client;
    bool is_lock, confirmed, busy, fresh;
    uint32_t seqid;          /* the last one, of minor version 0 */
    uint32_t claimed;        /* of the request in progress */
    uint8_t *kept;
    uint32_t kept_length;
    struct store_object kept_object;
    struct state *closed;    /* the last one, of minor version 0 */
    uint32_t length;
    uint8_t bytes[];
};

struct state_file {
    struct state_node by_object;
    struct store_object object;
    struct state_link opens, locks;
    struct rcu_head rcu;
    uint32_t shares[4];      /* how many opens access it for READ, for WRITE, deny READ, deny WRITE */
    _Atomic uint32_t deny;   /* of all opens; read without the mutex */
    bool held;               /* in the store: it is there as long as this is */
    _Atomic uint32_t delegations; /* that a change has to recall; the same */
};

enum state_kind { STATE_OPEN = 1, STATE_LOCK, STATE_DELEGATION };

struct state {
    struct state_node by_number; /* key: in the stateid */
    struct state_link of_owner, of_client, of_file;
    struct rcu_head rcu;
    enum state_kind kind;
    struct state_client *client;
    struct state_owner *owner;   /* NULL: a delegation, or revoked */
    struct state_file *file;     /* NULL: revoked; read without the mutex */
    struct state *open;          /* of a lock: the open it came from */
    struct state_link lock_states, of_open; /* of an open: its locks' states */
    struct state_link ranges;    /* of a lock */
    _Atomic uint32_t seqid, access, deny; /* read without the mutex */
    uint32_t shares;             /* bit (access | deny << 2): such an open has been made and not closed */
    struct state_link of_recalls; /* of a delegation */
    uint32_t recalled_since;     /* seconds; 0: it is not */
    bool recall_sent;            /* and the client has not answered that it cannot */
    bool immutable;              /* of a snapshot's file: never recalled */
    _Atomic uint32_t revoked;    /* nfs4_status for whoever still uses it; 0: it is not */
    bool unconfirmed;
    bool closed;                 /* there only for a repeated CLOSE: owner->closed */
};

struct state_range {
    struct state_link of_file, of_state;
    struct state *state;
    uint64_t first, last; /* inclusive */
    bool write;
};

struct state_all {
    pthread_mutex_t lock;
    struct store *store;
    struct state_options options;
    bool running;
    uint32_t epoch;              /* of this start alone; in all ids */
    _Atomic uint64_t numbers;
    uint8_t key[16];             /* of hashes */
    struct state_table clients, client_owners, sessions, owners, files, states;
    struct state_link client_list;
    uint64_t client_count, session_count, owner_count, state_count, range_count, delegation_count;
    _Atomic uint64_t live_delegations; /* those that a change may have to recall */
    /* recovery.c */
    _Atomic uint32_t grace_end;  /* seconds, monotonic; 0: none */
    uint64_t reclaimers, reclaimers_done;
};
extern struct state_all state_all;

static inline void state_lock_all(void)
{
    pthread_mutex_lock(&state_all.lock);
}

static inline void state_unlock_all(void)
{
    pthread_mutex_unlock(&state_all.lock);
}

/* ---- state.c ---- */

uint32_t state_seconds(void);
uint64_t state_new_number(void);
uint64_t state_hash(const void *bytes, size_t length, uint64_t more);
struct state_principal state_principal(const struct state_caller *caller);
/* Lets others of the worker run; without the mutex. */
void state_pause(void);
bool state_same_principal(struct state_principal a, struct state_principal b);

/* ---- clients.c: with the mutex held ---- */

struct state_client *client_find(uint64_t clientid);
/* A confirmed client of minor version 0: STALE_CLIENTID, EXPIRED. */
enum nfs4_status client_find_4_0(uint64_t clientid, struct state_client **out);
/* It takes the place of what its owner had before. */
void client_confirm(struct state_client *client);
bool client_is_expired(const struct state_client *client);
void client_renew(struct state_client *client);
void client_flags(struct state_client *client); /* brings status_flags up to date */
bool client_has_state(const struct state_client *client);
/* Ends the client and all that it has.  Its record stays unless forget_record() follows. */
void client_destroy(struct state_client *client);
/* Lets go of a client that has been silent for longer than its lease, to make room.  False: there is none. */
bool client_make_room(void);
void client_hold(struct state_client *client);
void client_drop(struct state_client *client);
/* Opens and what lock-owners have in them. */
static inline bool opens_are_full(void)
{
    return state_all.state_count - state_all.delegation_count >= state_all.options.opens_most;
}

/* A silent client in the way of somebody else goes.  False: `gone` have gone by now, which is enough under one hold of
 * the mutex; the caller answers STATE_MORE, and is called again after state_pause(). */
bool client_give_way(struct state_client *client, unsigned *gone);
#define STATE_MORE ((enum nfs4_status)UINT32_MAX)

/* ---- sessions.c ---- */

void session_destroy(struct state_session *session); /* with the mutex held */
void session_drop(struct state_session *session);

/* ---- owners.c: with the mutex held ---- */

struct state_owner *owner_find(struct state_client *client, bool is_lock, struct state_bytes name);
struct state_owner *owner_get(struct state_client *client, bool is_lock, struct state_bytes name); /* NULL: no room */
void owner_free(struct state_owner *owner); /* it has no states */

/* ---- opens.c: with the mutex held ---- */

struct state_file *file_get(const struct store_object *object); /* NULL: no memory */
struct state_file *file_find(const struct store_object *object);
void file_check(struct state_file *file); /* frees it if nothing is left */
/* `owner` NULL: it has none. */
struct state *state_new(enum state_kind kind, struct state_client *client, struct state_owner *owner,
                        struct state_file *file);
void state_free(struct state *state);     /* with its locks */
/* The same for all but the client: whoever uses its stateid is told `why`, until it frees it. */
void state_revoke(struct state *state, enum nfs4_status why);
void owner_forget_closed(struct state_owner *owner);
/* Whose last closed open this was; NULL: nobody's. */
struct state_owner *state_owner_of(const struct state_caller *caller, const struct nfs4_stateid *stateid);
/* What a stateid of this caller stands for.  `kind` 0: any.  seqid 0 is the present one. */
enum nfs4_status state_find(struct state_caller *caller, const struct nfs4_stateid *stateid, unsigned kind,
                            struct state **out);
struct nfs4_stateid state_stateid(struct state *state);
struct nfs4_stateid state_bump(struct state *state);


/* ---- unlinked.c ---- */

/* A file without a name is nobody's who has been silent for longer than his lease.  Main thread, without the mutex. */
void files_let_go(void);

/* ---- locks.c: with the mutex held ---- */

void ranges_free(struct state *state);

/* ---- recovery.c ---- */

int recovery_start(void);
bool recovery_in_grace(void);
/* From where nobody may wait; with the mutex held. */
void recovery_forget_later(const uint8_t owner_hash[OWNER_HASH]);
bool recovery_knows(const uint8_t owner_hash[OWNER_HASH]);
void recovery_done(struct state_client *client); /* RECLAIM_COMPLETE; with the mutex held */
int recovery_record(const uint8_t owner_hash[OWNER_HASH], uint32_t minor); /* coroutine, without the mutex */
int recovery_forget(const uint8_t owner_hash[OWNER_HASH]);
/* The same as recovery_forget_later(), and whoever comes with that owner may not reclaim in this grace period. */
void recovery_evict(const uint8_t owner_hash[OWNER_HASH]);
void recovery_settle(void); /* until all that was to be forgotten is; coroutine, without the mutex */
void recovery_stop(void);

#endif
