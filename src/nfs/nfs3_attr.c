#include <endian.h>
#include <string.h>

#include "nfs/access.h"
#include "nfs/nfs3.h"
#include "nfs/opstats.h"

enum { NANOSECONDS_END = 1000000000 };

struct nfs3_fh nfs3_get_fh(struct xdr_in *x)
{
    struct nfs3_fh fh;
    fh.bytes = xdr_get_opaque(x, NFS3_HANDLE_MAX, &fh.length);
    return fh;
}

struct store_name nfs3_get_name(struct xdr_in *x)
{
    struct store_name name;
    name.bytes = (const char *)xdr_get_opaque(x, UINT32_MAX, &name.length);
    return name;
}

struct store_time nfs3_get_time(struct xdr_in *x)
{
    struct store_time time;
    time.seconds = xdr_get_u32(x);
    time.nanoseconds = xdr_get_u32(x);
    return time;
}

enum { DONT_CHANGE, SET_TO_SERVER_TIME, SET_TO_CLIENT_TIME }; /* time_how */

static void get_set_time(struct xdr_in *x, struct store_setattr *set, uint32_t given_bit,
                         uint32_t now_bit, struct store_time *time, int *error)
{
    switch (xdr_get_u32(x)) {
    case DONT_CHANGE:
        break;
    case SET_TO_SERVER_TIME:
        set->set |= now_bit;
        break;
    case SET_TO_CLIENT_TIME:
        set->set |= given_bit;
        *time = nfs3_get_time(x);
        if (time->nanoseconds >= NANOSECONDS_END)
            *error = -EINVAL;
        break;
    default:
        x->bad = true;
    }
}

struct store_setattr nfs3_get_sattr(struct xdr_in *x, int *error)
{
    struct store_setattr set = {0};
    if (xdr_get_bool(x)) {
        set.set |= STORE_SET_MODE;
        set.mode = xdr_get_u32(x) & 07777;
    }
    if (xdr_get_bool(x)) {
        set.set |= STORE_SET_UID;
        set.uid = xdr_get_u32(x);
    }
    if (xdr_get_bool(x)) {
        set.set |= STORE_SET_GID;
        set.gid = xdr_get_u32(x);
    }
    if (xdr_get_bool(x)) {
        set.set |= STORE_SET_SIZE;
        set.size = xdr_get_u64(x);
    }
    get_set_time(x, &set, STORE_SET_ATIME, STORE_SET_ATIME_NOW, &set.atime, error);
    get_set_time(x, &set, STORE_SET_MTIME, STORE_SET_MTIME_NOW, &set.mtime, error);
    return set;
}

static inline uint8_t *word(uint8_t *to, uint32_t value)
{
    value = htobe32(value);
    memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

static inline uint8_t *hyper(uint8_t *to, uint64_t value)
{
    value = htobe64(value);
    memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

/* nfstime3 counts seconds from 1970 to 2106; a time outside shows as the nearest that it can say. */
static inline uint8_t *time_out(uint8_t *to, struct store_time time)
{
    if (time.seconds < 0)
        time = (struct store_time){0};
    else if (time.seconds > UINT32_MAX)
        time = (struct store_time){.seconds = UINT32_MAX, .nanoseconds = NANOSECONDS_END - 1};
    return word(word(to, (uint32_t)time.seconds), time.nanoseconds);
}

static uint8_t *fattr(uint8_t *to, const struct store_attr *attr)
{
    to = word(to, attr->type);
    to = word(to, attr->mode);
    to = word(to, attr->nlink);
    to = word(to, attr->uid);
    to = word(to, attr->gid);
    to = hyper(to, attr->size);
    to = hyper(to, attr->used);
    to = word(to, attr->rdev_major);
    to = word(to, attr->rdev_minor);
    to = hyper(to, attr->fsid);
    to = hyper(to, attr->fileid);
    to = time_out(to, attr->atime);
    to = time_out(to, attr->mtime);
    return time_out(to, attr->ctime);
}

void nfs3_put_fattr(struct xdr_out *x, const struct store_attr *attr)
{
    uint8_t *to = xdr_reserve(x, NFS3_FATTR_SIZE);
    if (to)
        fattr(to, attr);
}

void nfs3_put_post_op_attr(struct xdr_out *x, const struct store_attr *attr)
{
    if (!attr || !attr->type) {
        xdr_put_bool(x, false);
        return;
    }
    uint8_t *to = xdr_reserve(x, NFS3_POST_OP_ATTR_SIZE);
    if (to)
        fattr(word(to, true), attr);
}

void nfs3_put_post_op_fh(struct xdr_out *x, const struct store_object *object)
{
    uint8_t *to = xdr_reserve(x, NFS3_POST_OP_FH_SIZE);
    if (to)
        handle_encode(object, word(word(to, true), NFS_HANDLE_SIZE));
}

void nfs3_put_wcc(struct xdr_out *x, const struct store_wcc *wcc)
{
    xdr_put_bool(x, wcc->has_before);
    if (wcc->has_before) {
        uint8_t *to = xdr_reserve(x, 24);
        if (to)
            time_out(time_out(hyper(to, wcc->before_size), wcc->before_mtime), wcc->before_ctime);
    }
    nfs3_put_post_op_attr(x, wcc->has_after ? &wcc->after : NULL);
}

enum nfs3_status nfs3_put_status(struct rpc_call *call, int error)
{
    enum nfs3_status status = nfs3_status(call->procedure, error);
    xdr_put_u32(&call->out, status);
    opstats_done(call, OPSTATS_NFS3 + call->procedure, status != NFS3_OK);
    return status;
}

int nfs3_open(struct rpc_call *call, struct nfs3_fh fh, struct store_object *object,
              struct store_cred *cred)
{
    int error = handle_decode(fh.bytes, fh.length, object);
    if (!error)
        error = access_check(call, object->tree, cred);
    return !error && call->delayed ? SL_EDELAY : error;
}
