/* A COMPOUND and what its operations share: current and saved file handle, current stateid, the caller's credential,
 * and the helpers to decode and encode.  An operation is one function: decode, check, call the store or the state,
 * encode.  It returns its status; NFS4_WAIT, before it has changed anything, has it run again from its beginning in a
 * coroutine.  What it has encoded is taken back when it fails, unless it sets keep_result.  Workers. */
#ifndef SLUICE_NFS_V4_COMPOUND_H
#define SLUICE_NFS_V4_COMPOUND_H

#include "nfs/handle.h"
#include "nfs/server.h"
#include "nfs/state/state.h"
#include "nfs/v4/numbers.h"

/* Not on the wire: the operation has to wait. */
#define NFS4_WAIT ((enum nfs4_status)UINT32_MAX)
/* Nor this: the whole reply has been put, by nfs4_replay(). */
#define NFS4_REPLAYED ((enum nfs4_status)(UINT32_MAX - 1))

enum nfs4_fh_kind { NFS4_FH_NONE, NFS4_FH_ROOT /* the pseudo root */, NFS4_FH_OBJECT };

struct nfs4_fh {
    enum nfs4_fh_kind kind;
    struct store_object object;
};

struct nfs4_compound {
    struct rpc_call *call;
    struct state_caller caller;
    const uint8_t *args; /* COMPOUND4args; moves when the COMPOUND goes on in a coroutine */
    uint32_t minor;
    uint32_t op_count, op_index; /* how many there are, how many are done */
    uint32_t op;                 /* the present one */
    uint32_t op_at;              /* where its number stands in the arguments */
    uint32_t head_at, result_at; /* in out: the status of all; of the present operation */
    uint32_t data_bytes;         /* that the present operation has read or written, for the counters */
    uint32_t slice_bytes;        /* of the reply that are not in out */
    uint32_t reply_most;         /* bytes of the whole reply, its RPC header included */
    uint32_t cache_most;         /* the same where the reply is kept in a session's slot; else UINT32_MAX */
    bool keep_result, cred_known;
    bool has_stateid, has_saved_stateid;
    /* not zeroed at first, but for the handles' kinds: */
    struct nfs4_fh fh, saved;
    struct nfs4_stateid stateid, saved_stateid; /* current, of minor version 1 and later */
    struct store_cred cred;                     /* for the tree of `fh`, where cred_known */
    uint32_t cred_tree;
};
_Static_assert(sizeof(struct nfs4_compound) <= RPC_CALL_KEEP, "a compound fits into its call");

typedef enum nfs4_status nfs4_op_fn(struct nfs4_compound *c);

static inline struct xdr_in *nfs4_in(struct nfs4_compound *c)
{
    return &c->call->args;
}

static inline struct xdr_out *nfs4_out(struct nfs4_compound *c)
{
    return &c->call->out;
}

/* ---- compound.c ---- */

/* Room for `bytes` more of results.  NFS4ERR_DELAY: no memory; REP_TOO_BIG, REP_TOO_BIG_TO_CACHE, RESOURCE. */
enum nfs4_status nfs4_room(struct nfs4_compound *c, uint32_t bytes);
/* The same without a look at the limits, for an upper bound that the results hardly ever reach. */
enum nfs4_status nfs4_grow(struct nfs4_compound *c, uint32_t bytes);
/* How many bytes more the reply may have, at most `most`. */
uint32_t nfs4_room_left(const struct nfs4_compound *c, uint32_t most);

/* Answers the COMPOUND with what was answered before (COMPOUND4res). */
enum nfs4_status nfs4_replay(struct nfs4_compound *c, struct state_bytes reply);
/* The name of an operation, for counters; NULL: none. */
const char *nfs4_op_name(uint32_t op);

/* ---- look.c ---- */

bool nfs4_turn(struct rpc_call *call, struct rpc_turn *turn); /* rpc_version.turn */
bool nfs4_changes(const struct rpc_call *call); /* rpc_version.changes */
void nfs4_expect(const struct rpc_expected *calls, unsigned count); /* rpc_version.expect */

/* COPY writes bytes where its offsets do not agree modulo the store's block; so many at most in one call, for the gate
 * is told before. */
enum { NFS4_COPY_BYTES_MOST = 16 * 1024 * 1024 };
static inline bool nfs4_copy_shares(uint64_t from, uint64_t to)
{
    return from % STORE_BLOCK == to % STORE_BLOCK;
}
static inline uint32_t nfs4_copy_bytes(uint64_t count) /* 0: up to the source's end */
{
    return count && count < NFS4_COPY_BYTES_MOST ? (uint32_t)count : NFS4_COPY_BYTES_MOST;
}

/* ---- status.c ---- */

/* What the present operation answers for an error of ours (0: NFS4_OK; SL_EWAIT: NFS4_WAIT). */
enum nfs4_status nfs4_status(const struct nfs4_compound *c, int error);

/* ---- fh.c ---- */

/* The credential with which the caller acts on fh; c->cred afterwards. */
enum nfs4_status nfs4_cred(struct nfs4_compound *c, const struct nfs4_fh *fh);
/* fh is an object of a volume (NFS4ERR_ROFS for the pseudo root where `change`, NFS4ERR_INVAL else) and c->cred is the
 * caller's for it. */
enum nfs4_status nfs4_object(struct nfs4_compound *c, const struct nfs4_fh *fh, bool change);
void nfs4_set_fh(struct nfs4_compound *c, const struct store_object *object);
bool nfs4_is_volume_root(const struct store_object *object);
/* A component as it came.  INVAL: empty; NAMETOOLONG; BADNAME: "." and ".."; BADCHAR: a slash or a zero. */
struct store_name nfs4_get_name(struct xdr_in *x);
enum nfs4_status nfs4_check_name(struct store_name name);

/* ---- codec.c ---- */

struct nfs4_stateid nfs4_get_stateid(struct xdr_in *x);
void nfs4_put_stateid(struct xdr_out *x, const struct nfs4_stateid *stateid);
/* The stateid that an argument means: the current one where it says so.  NFS4ERR_BAD_STATEID. */
enum nfs4_status nfs4_resolve(const struct nfs4_compound *c, struct nfs4_stateid *stateid);
void nfs4_set_stateid(struct nfs4_compound *c, const struct nfs4_stateid *stateid);
/* May READ, WRITE or SETATTR of a size go on with this stateid?  `access` as in OPEN4_SHARE_ACCESS_*. */
enum nfs4_status nfs4_check_stateid(struct nfs4_compound *c, struct nfs4_stateid stateid, uint32_t access);
/* What an error of the store means where a regular file was expected and an object of `type` (0: not known) is. */
enum nfs4_status nfs4_not_a_file(const struct nfs4_compound *c, int error, uint32_t type);
void nfs4_put_change(struct xdr_out *x, const struct store_wcc *wcc);
void nfs4_put_verifier(struct xdr_out *x); /* the write verifier */

/* ---- operations, by RFC 8881's names ---- */

nfs4_op_fn nfs4_putfh, nfs4_putrootfh, nfs4_getfh, nfs4_savefh, nfs4_restorefh, nfs4_lookup, nfs4_lookupp,
    nfs4_secinfo, nfs4_secinfo_no_name;                          /* fh.c */
nfs4_op_fn nfs4_getattr, nfs4_setattr, nfs4_access, nfs4_readlink, nfs4_verify, nfs4_nverify; /* object.c */
nfs4_op_fn nfs4_read, nfs4_write, nfs4_commit;                   /* data.c */
nfs4_op_fn nfs4_readdir;                                         /* dir.c */
nfs4_op_fn nfs4_create, nfs4_remove, nfs4_rename, nfs4_link;     /* name.c */
nfs4_op_fn nfs4_allocate, nfs4_deallocate, nfs4_seek, nfs4_read_plus, nfs4_io_advise; /* ranges.c */
nfs4_op_fn nfs4_copy, nfs4_clone;                                /* copy.c */
nfs4_op_fn nfs4_exchange_id, nfs4_create_session, nfs4_sequence, nfs4_destroy_session, nfs4_bind_conn_to_session,
    nfs4_backchannel_ctl, nfs4_destroy_clientid, nfs4_reclaim_complete;                 /* session.c */
nfs4_op_fn nfs4_setclientid, nfs4_setclientid_confirm, nfs4_renew, nfs4_release_lockowner; /* client.c */
nfs4_op_fn nfs4_open, nfs4_open_confirm, nfs4_open_downgrade, nfs4_close;               /* open.c */
nfs4_op_fn nfs4_lock, nfs4_lockt, nfs4_locku;                                           /* lock.c */
nfs4_op_fn nfs4_test_stateid, nfs4_free_stateid, nfs4_delegreturn, nfs4_delegpurge;     /* stateid.c */

#endif
