/* NFSv4's state: clients, sessions, opens, locks, delegations, leases, and what of it survives a restart.  The protocol
 * (nfs/v4) decodes and encodes; what a request means for the state is decided here.
 *
 * Workers.  Functions marked "coroutine" may wait; the others never do, and those on the way of a READ or GETATTR
 * (state_sequence, state_io) take no shared lock and no memory from the heap.  All return an nfs4_status;
 * out-parameters are filled with NFS4_OK alone unless it says otherwise. */
#ifndef SLUICE_NFS_STATE_STATE_H
#define SLUICE_NFS_STATE_STATE_H

#include "nfs/v4/numbers.h"
#include "sluice/nfs_state.h"
#include "sluice/rpc.h"
#include "sluice/store.h"

struct state_client;
struct state_session;
struct state_slot;
struct state_owner; /* an open-owner or a lock-owner of minor version 0 while its request is looked at */

struct state_bytes {
    const uint8_t *bytes;
    uint32_t length;
};

/* Who asks, for the time of one COMPOUND; zeroes at first.  The client is known from SEQUENCE on; in minor version 0
 * each operation names it.  What is in it is held until state_end(). */
struct state_caller {
    struct rpc_call *call;
    uint32_t minor;
    struct state_client *client;
    struct state_session *session;
    struct state_slot *slot;
};

/* ---- the whole ---- */

/* Loads the clients' records; grace begins if there are any.  Main thread, after volume_start(). */
int state_start(struct store *store, const struct state_options *options);
void state_stop(void);
/* Every few seconds: ends grace, and what silent clients have of files that are gone.  Main thread. */
void state_tick(void);
bool state_runs(void); /* NFSv4 is served */
uint32_t state_lease_seconds(void);

/* ---- clients of minor version 1 and later ---- */

enum { /* EXCHGID4_FLAG_* */
       EXCHGID4_SUPP_MOVED_REFER = 1, EXCHGID4_SUPP_MOVED_MIGR = 2, EXCHGID4_BIND_PRINC_STATEID = 0x100,
       EXCHGID4_USE_NON_PNFS = 0x10000, EXCHGID4_USE_PNFS_MDS = 0x20000, EXCHGID4_USE_PNFS_DS = 0x40000,
       EXCHGID4_UPD_CONFIRMED_REC_A = 0x40000000,
};
#define EXCHGID4_CONFIRMED_R UINT32_C(0x80000000)

struct state_exchange {
    uint8_t verifier[NFS4_VERIFIER_SIZE];
    struct state_bytes owner;
    uint32_t flags;               /* those of the request; then those of the reply */
    struct state_bytes domain, implementation; /* of the client, for people; may be empty */
    uint64_t clientid;            /* reply */
    uint32_t sequence;            /* reply: eir_sequenceid */
};
/* RFC 8881, 18.35.  Coroutine. */
enum nfs4_status state_exchange_id(struct state_caller *caller, struct state_exchange *exchange);

struct state_channel { /* channel_attrs4, without RDMA */
    uint32_t header_pad, max_request, max_response, max_cached, max_ops, max_requests;
};
enum { CREATE_SESSION4_PERSIST = 1, CREATE_SESSION4_CONN_BACK_CHAN = 2, CREATE_SESSION4_CONN_RDMA = 4 };
struct state_callback_sec { /* the first flavour offered that the server can use */
    bool known;
    uint32_t flavor, uid, gid;
};
struct state_create_session {
    uint64_t clientid;
    uint32_t sequence, flags;
    struct state_channel fore, back; /* asked for; then granted */
    uint32_t callback_program;
    struct state_callback_sec security;
    uint8_t sessionid[NFS4_SESSIONID_SIZE]; /* reply */
};
/* 18.36, its own replay cache included; confirms the client.  Coroutine. */
enum nfs4_status state_create_session(struct state_caller *caller, struct state_create_session *create);
/* 18.37.  Also the session of the COMPOUND itself, whose reply is then not kept. */
enum nfs4_status state_destroy_session(struct state_caller *caller, const uint8_t sessionid[NFS4_SESSIONID_SIZE]);
/* 18.50.  Coroutine. */
enum nfs4_status state_destroy_clientid(struct state_caller *caller, uint64_t clientid);
enum { CDFC4_FORE = 1, CDFC4_BACK = 2, CDFC4_FORE_OR_BOTH = 3, CDFC4_BACK_OR_BOTH = 7 };
enum { CDFS4_FORE = 1, CDFS4_BACK = 2, CDFS4_BOTH = 3 };
/* 18.34; *direction: CDFC4_* asked for, then CDFS4_* that it is. */
enum nfs4_status state_bind_conn(struct state_caller *caller, const uint8_t sessionid[NFS4_SESSIONID_SIZE],
                                 uint32_t *direction);
/* 18.33 */
enum nfs4_status state_backchannel(struct state_caller *caller, uint32_t program,
                                   const struct state_callback_sec *security);
/* 18.51.  Coroutine. */
enum nfs4_status state_reclaim_complete(struct state_caller *caller, bool one_fs);

struct state_sequence {
    uint8_t sessionid[NFS4_SESSIONID_SIZE];
    uint32_t sequence, slot, highest;
    bool cache_this;
    uint32_t op_count;
    struct state_bytes request; /* COMPOUND4args */
    /* reply: */
    uint32_t highest_slot, target_highest, status_flags;
    struct state_channel fore; /* the session's limits */
    struct state_bytes kept;   /* not NULL: the reply (COMPOUND4res) of a request made before; until state_end() */
};
/* 18.46: BADSESSION, BADSLOT, SEQ_MISORDERED, RETRY_UNCACHED_REP, SEQ_FALSE_RETRY, DELAY (the slot is still busy with
 * the same request), CONN_NOT_BOUND_TO_SESSION, DEADSESSION, TOO_MANY_OPS, REQ_TOO_BIG.  With NFS4_OK the slot is the
 * caller's until state_end().  Renews the lease. */
enum nfs4_status state_sequence(struct state_caller *caller, struct state_sequence *sequence);
/* The COMPOUND is over: gives the slot back with its reply (COMPOUND4res; NULL: none that could be kept) and lets go of
 * all that the caller holds.  To be called once for each COMPOUND, SEQUENCE or not. */
void state_end(struct state_caller *caller, const uint8_t *reply, uint32_t length);

/* ---- clients of minor version 0 ---- */

struct state_setclientid {
    uint8_t verifier[NFS4_VERIFIER_SIZE];
    struct state_bytes owner;
    uint64_t clientid;                     /* reply, and of _confirm's request */
    uint8_t confirm[NFS4_VERIFIER_SIZE];   /* the same */
    struct sockaddr_storage in_use;        /* of CLID_INUSE: who has it */
};
enum nfs4_status state_setclientid(struct state_caller *caller, struct state_setclientid *set); /* RFC 7530, 16.33 */
/* 16.34.  Coroutine. */
enum nfs4_status state_setclientid_confirm(struct state_caller *caller, const struct state_setclientid *set);
enum nfs4_status state_renew(struct state_caller *caller, uint64_t clientid); /* 16.30 */
/* 16.36 */
enum nfs4_status state_release_lockowner(struct state_caller *caller, uint64_t clientid, struct state_bytes owner);

/* ---- seqids of minor version 0 (RFC 7530, 9.1.7) ----
 * OPEN, OPEN_CONFIRM, OPEN_DOWNGRADE, CLOSE, LOCK, LOCKU begin with one of the first two and end with
 * state_seqid_end(); with minor version 1 all three do nothing.  *kept is set when the request was made before: its
 * result, from the operation's status on, and for OPEN the object, valid until state_seqid_end().  The owner is the
 * caller's in between.  Coroutine (a request of the same owner may be in progress). */
struct state_kept {
    struct state_bytes result; /* NULL: the request is new */
    struct store_object object;
};
enum nfs4_status state_seqid_by_owner(struct state_caller *caller, uint64_t clientid, struct state_bytes open_owner,
                                      uint32_t seqid, struct state_owner **owner, struct state_kept *kept);
enum nfs4_status state_seqid_by_stateid(struct state_caller *caller, const struct nfs4_stateid *stateid,
                                        uint32_t seqid, struct state_owner **owner, struct state_kept *kept);
/* `result` from the status on; NULL: it is kept already.  `object` NULL unless OPEN.  Statuses that do not count
 * (BAD_SEQID, STALE_CLIENTID and the others of 9.1.7) leave the seqid as it was. */
void state_seqid_end(struct state_owner *owner, enum nfs4_status status, struct state_bytes result,
                     const struct store_object *object);

/* ---- opens ---- */

struct state_open {
    uint64_t clientid;              /* minor version 0 */
    struct state_bytes open_owner;
    struct state_owner *owner;      /* minor version 0: from state_seqid_by_owner() */
    enum nfs4_claim claim;
    enum nfs4_delegation delegate_type; /* CLAIM_PREVIOUS */
    struct nfs4_stateid delegation; /* CLAIM_DELEGATE_CUR, CLAIM_DELEG_CUR_FH */
    uint32_t access, deny;          /* OPEN4_SHARE_*; `access` with what is wanted of delegations */
    struct store_object object;
    struct store_cred cred;
    bool made;                      /* the file is new */
    bool hold_taken;                /* reply: the caller's hold of the object has become the state's */
    bool immutable;                 /* it is a snapshot's */
    /* reply: */
    struct nfs4_stateid stateid;
    uint32_t result_flags;          /* OPEN4_RESULT_* */
    enum nfs4_delegation given;     /* OPEN_DELEGATE_* */
    struct nfs4_stateid given_stateid;
    bool recall;
    uint32_t why_none;              /* why_no_delegation4, with OPEN_DELEGATE_NONE_EXT */
    bool recalling;                 /* of the state module alone */
};
/* May this client open by this claim now?  GRACE, NO_GRACE, RECLAIM_BAD, STALE_CLIENTID, EXPIRED.  Before the file is
 * looked for or made. */
enum nfs4_status state_may_open(struct state_caller *caller, const struct state_open *open);
/* The open itself, of an object that the caller holds (store_ops.hold): SHARE_DENIED, DELAY (a delegation is being
 * recalled), RESOURCE.  An open of the same owner and file is widened, and its seqid goes up.  Coroutine. */
enum nfs4_status state_open(struct state_caller *caller, struct state_open *open);
/* In the following `stateid` comes in as the client said and goes out as it is afterwards. */
enum nfs4_status state_open_confirm(struct state_caller *caller, const struct store_object *object,
                                    struct nfs4_stateid *stateid);
enum nfs4_status state_open_downgrade(struct state_caller *caller, const struct store_object *object, uint32_t access,
                                      uint32_t deny, struct nfs4_stateid *stateid);
enum nfs4_status state_close(struct state_caller *caller, const struct store_object *object,
                             struct nfs4_stateid *stateid);

/* May this READ, WRITE or SETATTR of a size go on?  Special stateids meet others' share reservations (LOCKED), opens
 * their own mode (OPENMODE).  `access`: OPEN4_SHARE_ACCESS_READ or _WRITE. */
enum nfs4_status state_io(struct state_caller *caller, const struct store_object *object,
                          const struct nfs4_stateid *stateid, uint32_t access);

/* ---- locks ---- */

struct state_lock {
    struct store_object object;
    enum nfs4_lock_type type;
    uint64_t offset, length;       /* length UINT64_MAX: to the end */
    bool reclaim, new_owner;
    struct nfs4_stateid stateid;   /* the open's (new_owner) or the lock's; reply: the lock's */
    uint64_t clientid;             /* minor version 0: the lock-owner's */
    struct state_bytes lock_owner; /* new_owner, and LOCKT */
    uint32_t lock_seqid;           /* minor version 0: of the lock-owner */
    /* with NFS4ERR_DENIED: */
    struct {
        uint64_t offset, length, clientid;
        enum nfs4_lock_type type;
        uint32_t owner_length;
        uint8_t owner[NFS4_OPAQUE_LIMIT];
    } denied;
};
enum nfs4_status state_lock(struct state_caller *caller, struct state_lock *lock); /* coroutine */
enum nfs4_status state_lockt(struct state_caller *caller, struct state_lock *lock);
enum nfs4_status state_locku(struct state_caller *caller, struct state_lock *lock);

/* ---- stateids and delegations ---- */

enum nfs4_status state_test_stateid(struct state_caller *caller, const struct nfs4_stateid *stateid);
enum nfs4_status state_free_stateid(struct state_caller *caller, const struct nfs4_stateid *stateid);
enum nfs4_status state_delegreturn(struct state_caller *caller, const struct store_object *object,
                                   const struct nfs4_stateid *stateid);
enum nfs4_status state_delegpurge(struct state_caller *caller, uint64_t clientid);

/* ---- changes, by whatever protocol ---- */

enum { STATE_CHANGES_MOST = 4 };
struct state_change { /* zeroes at first */
    unsigned count;
    uint16_t slots[STATE_CHANGES_MOST];
};
/* Somebody is about to change an object's data, attributes or names: until state_changed() nobody gets a delegation of
 * it.  Delegations that others than `by` (NULL: not known) hold are recalled, which is waited for a little; SL_EDELAY:
 * not yet returned, the client is to come again.  state_changed() has to follow in either case.  Coroutine. */
int state_changing(struct state_change *change, const struct state_caller *by, const struct store_object *object);
void state_changed(struct state_change *change);

/* A volume's tree changes by other ways than clients' calls, by a restore or an import: to be told before (`begins`)
 * and after.  Its delegations are recalled, and none is given meanwhile.  Any thread. */
void state_tree_changes(uint32_t tree, bool begins);
/* Trees are gone, or may be used no longer by some: what clients have where keeps() denies it ends; they are told by
 * SEQUENCE and by the status of their stateids.  keeps() must not wait. */
void state_recheck(bool (*keeps)(uint32_t tree, const struct sockaddr_storage *peer));

#endif
