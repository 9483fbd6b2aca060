/* OPEN, OPEN_CONFIRM, OPEN_DOWNGRADE, CLOSE. */
#include <string.h>

#include "nfs/changes.h"
#include "nfs/v4/attr.h"
#include "nfs/v4/seqid.h"
#include "sluice/volume.h"

enum { OPEN4_NOCREATE, OPEN4_CREATE };
enum { UNCHECKED4, GUARDED4, EXCLUSIVE4, EXCLUSIVE4_1 };
enum { DEFAULT_FILE_MODE = 0644, EXCLUSIVE_MODE = 0600, TRIES = 8 };
enum { WND4_CONTENTION = 1, WND4_RESOURCE = 2 }; /* why_no_delegation4 with a flag behind it */

struct opening {
    struct state_open open;
    uint32_t seqid;
    bool create;
    uint32_t create_mode;
    struct nfs4_bitmap set; /* of `attr`, as the client sent it */
    struct store_setattr attr;
    uint8_t verifier[NFS4_VERIFIER_SIZE];
    struct store_name name;
    bool by_name;           /* the claim has one */
    enum nfs4_status wrong; /* in the arguments, short of BADXDR */
    bool held;              /* open.object, in the store */
    /* found: */
    struct store_attr file;
    struct store_wcc dir;
};

/* ---- arguments ---- */

static void get_createhow(struct nfs4_compound *c, struct opening *o)
{
    struct xdr_in *in = nfs4_in(c);
    o->create = true;
    o->create_mode = xdr_get_u32(in);
    if (o->create_mode > (c->minor ? EXCLUSIVE4_1 : EXCLUSIVE4))
        in->bad = true;
    if (o->create_mode == EXCLUSIVE4 || o->create_mode == EXCLUSIVE4_1) {
        const uint8_t *verifier = xdr_take(in, sizeof o->verifier);
        if (verifier)
            memcpy(o->verifier, verifier, sizeof o->verifier);
    }
    if (o->create_mode != EXCLUSIVE4 && !in->bad)
        o->wrong = nfs4_get_settable(c, true, &o->set, &o->attr);
    if (o->wrong == NFS4ERR_BADXDR)
        in->bad = true;
}

static void get_claim(struct nfs4_compound *c, struct opening *o)
{
    struct xdr_in *in = nfs4_in(c);
    struct state_open *open = &o->open;
    open->claim = (enum nfs4_claim)xdr_get_u32(in);
    switch (open->claim) {
    case CLAIM_NULL:
    case CLAIM_DELEGATE_PREV:
        o->by_name = true;
        break;
    case CLAIM_PREVIOUS:
        open->delegate_type = (enum nfs4_delegation)xdr_get_u32(in);
        if (open->delegate_type > OPEN_DELEGATE_WRITE)
            in->bad = true;
        break;
    case CLAIM_DELEGATE_CUR:
        open->delegation = nfs4_get_stateid(in);
        o->by_name = true;
        break;
    case CLAIM_DELEG_CUR_FH:
        open->delegation = nfs4_get_stateid(in);
        /* fallthrough */
    case CLAIM_FH:
    case CLAIM_DELEG_PREV_FH:
        if (!c->minor)
            in->bad = true;
        break;
    default:
        in->bad = true;
    }
    if (o->by_name)
        o->name = nfs4_get_name(in);
}

static enum nfs4_status check_share(const struct nfs4_compound *c, const struct state_open *open)
{
    uint32_t known = OPEN4_SHARE_ACCESS_BOTH;
    if (c->minor)
        known |= OPEN4_SHARE_ACCESS_WANT_MASK | OPEN4_SHARE_ACCESS_WANT_SIGNAL;
    if (open->access & ~known || !(open->access & OPEN4_SHARE_ACCESS_BOTH) || open->deny & ~OPEN4_SHARE_DENY_BOTH)
        return NFS4ERR_INVAL;
    if ((open->access & OPEN4_SHARE_ACCESS_WANT_MASK) > OPEN4_SHARE_ACCESS_WANT_CANCEL)
        return NFS4ERR_INVAL;
    return NFS4_OK;
}

static bool get_open(struct nfs4_compound *c, struct opening *o)
{
    struct xdr_in *in = nfs4_in(c);
    struct state_open *open = &o->open;
    o->seqid = xdr_get_u32(in);
    open->access = xdr_get_u32(in);
    open->deny = xdr_get_u32(in);
    open->clientid = xdr_get_u64(in);
    open->open_owner.bytes = xdr_get_opaque(in, NFS4_OPAQUE_LIMIT, &open->open_owner.length);
    uint32_t type = xdr_get_u32(in);
    if (type > OPEN4_CREATE)
        in->bad = true;
    if (type == OPEN4_CREATE && !in->bad)
        get_createhow(c, o);
    if (!in->bad)
        get_claim(c, o);
    if (in->bad)
        return false;
    if (o->wrong == NFS4_OK)
        o->wrong = check_share(c, open);
    if (o->wrong == NFS4_OK && o->by_name)
        o->wrong = nfs4_check_name(o->name);
    if (o->wrong == NFS4_OK && o->create && !(open->claim == CLAIM_NULL))
        o->wrong = NFS4ERR_INVAL; /* only a name can be made */
    return true;
}

/* ---- the file ---- */

static enum nfs4_status regular(const struct nfs4_compound *c, const struct store_attr *attr)
{
    switch (attr->type) {
    case STORE_REG:
        return NFS4_OK;
    case STORE_DIR:
        return NFS4ERR_ISDIR;
    case STORE_LNK:
        return NFS4ERR_SYMLINK;
    default:
        return c->minor ? NFS4ERR_WRONG_TYPE : NFS4ERR_SYMLINK; /* RFC 7530, 16.16.5 */
    }
}

/* One who may execute a file may read it, as clients do for those who run it. */
static enum nfs4_status permitted(struct nfs4_compound *c, const struct opening *o)
{
    uint32_t granted = 0;
    struct store_attr attr;
    struct nfs4_fh fh = {.kind = NFS4_FH_OBJECT, .object = o->open.object};
    uint32_t volume;
    bool writes = o->open.access & OPEN4_SHARE_ACCESS_WRITE;
    if (writes && (c->cred.read_only || !volume_snapshot_of(fh.object.tree, &volume, NULL)))
        return NFS4ERR_ROFS;
    int error = nfs_server.ops->access(nfs_server.store, &c->cred, &fh.object,
                                       STORE_ACCESS_READ | STORE_ACCESS_MODIFY | STORE_ACCESS_EXECUTE, &granted, &attr);
    if (error)
        return nfs4_status(c, error);
    if (writes && !(granted & STORE_ACCESS_MODIFY))
        return NFS4ERR_ACCESS;
    if (o->open.access & OPEN4_SHARE_ACCESS_READ && !(granted & (STORE_ACCESS_READ | STORE_ACCESS_EXECUTE)))
        return NFS4ERR_ACCESS;
    return NFS4_OK;
}

static int look_up(struct nfs4_compound *c, struct opening *o, struct store_attr *dir)
{
    dir->type = 0;
    int error = nfs_server.ops->lookup(nfs_server.store, &c->cred, &c->fh.object, o->name, &o->open.object, &o->file,
                                       dir);
    o->dir.has_before = o->dir.has_after = dir->type != 0;
    o->dir.before_change = dir->change;
    o->dir.after = *dir;
    return error;
}

static int make_file(struct nfs4_compound *c, struct opening *o)
{
    bool exclusive = o->create_mode == EXCLUSIVE4 || o->create_mode == EXCLUSIVE4_1;
    struct store_make how = {.type = STORE_REG, .attr = o->attr,
                             .how = exclusive ? STORE_MAKE_EXCLUSIVE : STORE_MAKE_GUARDED};
    memcpy(how.verifier, o->verifier, sizeof how.verifier);
    if (!(how.attr.set & STORE_SET_MODE)) {
        how.attr.set |= STORE_SET_MODE;
        how.attr.mode = exclusive ? EXCLUSIVE_MODE : DEFAULT_FILE_MODE;
    }
    o->dir = (struct store_wcc){0};
    return changes_make(&c->caller, &c->cred, &c->fh.object, o->name, &how, &o->open.object, &o->file,
                                &o->dir);
}

/* UNCHECKED4: what is there is opened, what is not is made. */
static int find_or_make(struct nfs4_compound *c, struct opening *o, struct store_attr *dir)
{
    int error = -EEXIST;
    if (o->create_mode != UNCHECKED4) {
        error = make_file(c, o);
        o->open.made = !error;
        return error;
    }
    for (unsigned i = 0; i < TRIES && error == -EEXIST; i++) {
        error = look_up(c, o, dir);
        if (error != -ENOENT)
            return error;
        error = make_file(c, o);
        o->open.made = !error;
    }
    return error == -EEXIST ? SL_EDELAY : error; /* made and removed again and again */
}

static enum nfs4_status find_by_name(struct nfs4_compound *c, struct opening *o)
{
    struct store_attr dir = {0};
    int error = o->create ? find_or_make(c, o, &dir) : look_up(c, o, &dir);
    uint32_t type = dir.type ? dir.type : o->dir.has_after ? o->dir.after.type : 0;
    if (error == -ENOTDIR && type == STORE_LNK)
        return NFS4ERR_SYMLINK;
    return nfs4_status(c, error);
}

/* From here on it is there, whatever becomes of its name. */
static enum nfs4_status hold(struct nfs4_compound *c, struct opening *o)
{
    int error = nfs_server.ops->hold(nfs_server.store, &o->open.object);
    o->held = !error;
    if (error == -ESTALE && o->by_name)
        error = SL_EDELAY; /* it has just been removed: the name may be another's when the client asks again */
    return nfs4_status(c, error);
}

static enum nfs4_status find_file(struct nfs4_compound *c, struct opening *o)
{
    enum nfs4_status status;
    if (c->fh.kind == NFS4_FH_ROOT)
        return o->create ? NFS4ERR_ROFS : NFS4ERR_ISDIR; /* there are directories alone */
    status = nfs4_cred(c, &c->fh);
    if (status != NFS4_OK)
        return status;
    o->open.cred = c->cred;
    status = o->by_name ? find_by_name(c, o) : NFS4_OK;
    if (!o->by_name)
        o->open.object = c->fh.object;
    if (status == NFS4_OK)
        status = hold(c, o);
    if (status == NFS4_OK && !o->by_name)
        status = nfs4_status(c, nfs_server.ops->getattr(nfs_server.store, &c->fh.object, &o->file));
    if (status == NFS4_OK)
        status = regular(c, &o->file);
    return status == NFS4_OK && !o->open.made ? permitted(c, o) : status;
}

/* UNCHECKED4 with a size of 0 empties a file that was there; the other attributes are for new ones alone. */
static enum nfs4_status empty_file(struct nfs4_compound *c, struct opening *o)
{
    bool empties = o->create && !o->open.made && o->create_mode == UNCHECKED4 && o->attr.set & STORE_SET_SIZE &&
                   o->attr.size == 0;
    if (o->create && !o->open.made && o->create_mode == UNCHECKED4) {
        o->set = (struct nfs4_bitmap){0};
        o->set.word[0] = empties ? 1u << FATTR4_SIZE : 0;
    }
    if (!empties)
        return NFS4_OK;
    struct store_setattr size = {.set = STORE_SET_SIZE};
    struct store_wcc wcc = {0};
    return nfs4_status(c, changes_setattr(&c->caller, &c->cred, &o->open.object, &size, NULL, &wcc));
}

/* ---- results ---- */

static void put_delegation(struct xdr_out *out, const struct state_open *open)
{
    xdr_put_u32(out, open->given);
    if (open->given == OPEN_DELEGATE_NONE_EXT) {
        xdr_put_u32(out, open->why_none);
        if (open->why_none == WND4_CONTENTION || open->why_none == WND4_RESOURCE)
            xdr_put_bool(out, false); /* nobody will be told when there could be one */
    }
    if (open->given != OPEN_DELEGATE_READ && open->given != OPEN_DELEGATE_WRITE)
        return;
    nfs4_put_stateid(out, &open->given_stateid);
    xdr_put_bool(out, open->recall);
    if (open->given == OPEN_DELEGATE_WRITE) {
        xdr_put_u32(out, 1); /* NFS_LIMIT_SIZE */
        xdr_put_u64(out, STORE_FILE_MAX);
    }
    /* Whom the client lets in without asking: nobody; it asks by ACCESS. */
    xdr_put_u32(out, 0);
    xdr_put_u32(out, 0);
    xdr_put_u32(out, 0);
    xdr_put_opaque(out, "", 0);
}

static enum nfs4_status put_open(struct nfs4_compound *c, const struct opening *o)
{
    struct xdr_out *out = nfs4_out(c);
    nfs4_set_fh(c, &o->open.object);
    nfs4_set_stateid(c, &o->open.stateid);
    nfs4_put_stateid(out, &o->open.stateid);
    nfs4_put_change(out, &o->dir);
    xdr_put_u32(out, o->open.result_flags);
    nfs4_put_bitmap(out, &o->set);
    put_delegation(out, &o->open);
    return NFS4_OK;
}

/* Nobody can change a snapshot's file. */
static void look_whether_immutable(struct opening *o)
{
    uint32_t volume;
    o->open.immutable = !volume_snapshot_of(o->open.object.tree, &volume, NULL);
}

static enum nfs4_status open_it(struct nfs4_compound *c, struct opening *o)
{
    enum nfs4_status status = o->wrong;
    if (status == NFS4_OK)
        status = state_may_open(&c->caller, &o->open);
    if (status == NFS4_OK)
        status = find_file(c, o);
    look_whether_immutable(o);
    if (status == NFS4_OK)
        status = state_open(&c->caller, &o->open);
    if (status == NFS4_OK)
        status = empty_file(c, o);
    return status == NFS4_OK ? put_open(c, o) : status;
}

/* RFC 8881, 18.16.  If emptying the file fails the open stays, and the client, which has no stateid for it, lets it
 * expire or opens again. */
enum nfs4_status nfs4_open(struct nfs4_compound *c)
{
    struct opening o = {0};
    struct state_owner *owner;
    enum nfs4_status status;
    if (!get_open(c, &o))
        return NFS4ERR_BADXDR;
    status = c->minor ? nfs4_resolve(c, &o.open.delegation) : NFS4_OK;
    if (status != NFS4_OK)
        return status;
    if (!nfs4_seqid_by_owner(c, o.open.clientid, o.open.open_owner, o.seqid, &owner, &status))
        return status;
    o.open.owner = owner;
    status = open_it(c, &o);
    if (o.held && !o.open.hold_taken)
        nfs_server.ops->release(nfs_server.store, &o.open.object);
    return nfs4_seqid_end(c, owner, status, status == NFS4_OK ? &o.open.object : NULL);
}

static enum nfs4_status put_state(struct nfs4_compound *c, enum nfs4_status status, const struct nfs4_stateid *stateid)
{
    if (status != NFS4_OK)
        return status;
    nfs4_set_stateid(c, stateid);
    nfs4_put_stateid(nfs4_out(c), stateid);
    return NFS4_OK;
}

enum nfs4_status nfs4_open_confirm(struct nfs4_compound *c) /* RFC 7530, 16.18 */
{
    struct nfs4_stateid stateid = nfs4_get_stateid(nfs4_in(c));
    uint32_t seqid = xdr_get_u32(nfs4_in(c));
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    struct state_owner *owner;
    enum nfs4_status status = nfs4_object(c, &c->fh, false);
    if (status != NFS4_OK || !nfs4_seqid_by_stateid(c, &stateid, seqid, &owner, &status))
        return status;
    status = put_state(c, state_open_confirm(&c->caller, &c->fh.object, &stateid), &stateid);
    return nfs4_seqid_end(c, owner, status, NULL);
}

enum nfs4_status nfs4_open_downgrade(struct nfs4_compound *c) /* RFC 8881, 18.18 */
{
    struct nfs4_stateid stateid = nfs4_get_stateid(nfs4_in(c));
    uint32_t seqid = xdr_get_u32(nfs4_in(c));
    struct state_open share = {.access = xdr_get_u32(nfs4_in(c))};
    share.deny = xdr_get_u32(nfs4_in(c));
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    struct state_owner *owner;
    enum nfs4_status status = nfs4_object(c, &c->fh, false);
    if (status == NFS4_OK)
        status = nfs4_resolve(c, &stateid);
    if (status != NFS4_OK || !nfs4_seqid_by_stateid(c, &stateid, seqid, &owner, &status))
        return status;
    status = check_share(c, &share);
    if (status == NFS4_OK)
        status = state_open_downgrade(&c->caller, &c->fh.object, share.access & OPEN4_SHARE_ACCESS_BOTH, share.deny,
                                      &stateid);
    return nfs4_seqid_end(c, owner, put_state(c, status, &stateid), NULL);
}

enum nfs4_status nfs4_close(struct nfs4_compound *c) /* 18.2 */
{
    uint32_t seqid = xdr_get_u32(nfs4_in(c));
    struct nfs4_stateid stateid = nfs4_get_stateid(nfs4_in(c));
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    struct state_owner *owner;
    enum nfs4_status status = nfs4_object(c, &c->fh, false);
    if (status == NFS4_OK)
        status = nfs4_resolve(c, &stateid);
    if (status != NFS4_OK || !nfs4_seqid_by_stateid(c, &stateid, seqid, &owner, &status))
        return status;
    status = put_state(c, state_close(&c->caller, &c->fh.object, &stateid), &stateid);
    return nfs4_seqid_end(c, owner, status, NULL);
}
