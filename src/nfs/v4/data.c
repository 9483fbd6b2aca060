/* READ, WRITE, COMMIT. */
#include <string.h>

#include "nfs/changes.h"
#include "nfs/v4/compound.h"
#include "sluice/volume_gate.h"

/* Cuts what a READ asks for to what the store takes: bytes past the largest file's end are not there. */
static void clamp_range(uint64_t *offset, uint32_t *count)
{
    if (*offset > STORE_FILE_MAX)
        *offset = STORE_FILE_MAX;
    if (*count > STORE_IO_MAX)
        *count = STORE_IO_MAX;
    if (*count > STORE_FILE_MAX - *offset)
        *count = (uint32_t)(STORE_FILE_MAX - *offset);
}

/* Data of a reply that is kept is copied into it. */
static enum nfs4_status put_copy(struct nfs4_compound *c, const struct slice_list *data)
{
    enum nfs4_status status = nfs4_room(c, (data->bytes + 3) & ~3u);
    uint8_t *to = status == NFS4_OK ? xdr_reserve(nfs4_out(c), (data->bytes + 3) & ~(size_t)3) : NULL;
    if (!to)
        return status == NFS4_OK ? NFS4ERR_DELAY : status;
    for (uint32_t i = 0; i < data->count; i++) {
        memcpy(to, data->at[i].data, data->at[i].length);
        to += data->at[i].length;
    }
    memset(to, 0, -data->bytes & 3);
    return NFS4_OK;
}

static enum nfs4_status put_data(struct nfs4_compound *c, bool eof, uint32_t count, struct slice_list *data)
{
    uint32_t bytes = data->bytes;
    enum nfs4_status status = NFS4_OK;
    c->data_bytes = bytes;
    if (c->call->ticket && bytes < count)
        gate_give_back(c->call->ticket, GATE_READ, count - bytes);
    xdr_put_bool(nfs4_out(c), eof);
    xdr_put_u32(nfs4_out(c), bytes);
    if (bytes && c->cache_most != UINT32_MAX) {
        status = put_copy(c, data);
    } else if (bytes) {
        if (rpc_reply_slices(c->call, data))
            status = NFS4ERR_DELAY;
        else
            c->slice_bytes += (bytes + 3) & ~3u;
    }
    return status;
}

enum nfs4_status nfs4_read(struct nfs4_compound *c) /* RFC 8881, 18.22 */
{
    struct nfs4_stateid stateid = nfs4_get_stateid(nfs4_in(c));
    uint64_t offset = xdr_get_u64(nfs4_in(c));
    uint32_t count = xdr_get_u32(nfs4_in(c));
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    clamp_range(&offset, &count);

    enum nfs4_status status = nfs4_object(c, &c->fh, false);
    if (status == NFS4_OK)
        status = nfs4_check_stateid(c, stateid, OPEN4_SHARE_ACCESS_READ);
    if (status == NFS4_OK && nfs4_room_left(c, 8 + ((count + 3) & ~3u)) < 8 + count)
        status = nfs4_room(c, 8 + ((count + 3) & ~3u)); /* says which limit it is */
    if (status != NFS4_OK)
        return status;
    rpc_reply_estimate(c->call, c->slice_bytes + count);

    struct store_attr attr;
    struct slice_list data;
    bool eof = false;
    attr.type = 0;
    slices_init(&data);
    int error = nfs_server.ops->read(nfs_server.store, &c->cred, &c->fh.object, offset, count, &data, &eof, &attr);
    status = error ? nfs4_not_a_file(c, error, attr.type) : put_data(c, eof, count, &data);
    slices_clear(&data);
    return status;
}

enum { UNSTABLE4, DATA_SYNC4, FILE_SYNC4 }; /* stable_how4 */

enum nfs4_status nfs4_write(struct nfs4_compound *c) /* 18.32 */
{
    struct xdr_in *in = nfs4_in(c);
    struct nfs4_stateid stateid = nfs4_get_stateid(in);
    uint64_t offset = xdr_get_u64(in);
    uint32_t stable = xdr_get_u32(in);
    uint32_t count;
    const uint8_t *bytes = xdr_get_opaque(in, UINT32_MAX, &count);
    if (in->bad || stable > FILE_SYNC4)
        return NFS4ERR_BADXDR;
    if (count > STORE_IO_MAX)
        count = STORE_IO_MAX; /* the reply's count says so, and the client sends the rest again */
    if (offset > STORE_FILE_MAX)
        offset = STORE_FILE_MAX; /* still too far, and sums no longer wrap */

    struct store_wcc wcc = {0};
    enum nfs4_status status = nfs4_object(c, &c->fh, true);
    if (status == NFS4_OK)
        status = nfs4_check_stateid(c, stateid, OPEN4_SHARE_ACCESS_WRITE);
    if (status != NFS4_OK)
        return status;
    int error = changes_write(&c->caller, &c->cred, &c->fh.object, offset, bytes, count, &wcc);
    if (error)
        return nfs4_not_a_file(c, error, wcc.has_after ? wcc.after.type : 0);
    c->data_bytes = count;
    xdr_put_u32(nfs4_out(c), count);
    xdr_put_u32(nfs4_out(c), FILE_SYNC4);
    nfs4_put_verifier(nfs4_out(c));
    return NFS4_OK;
}

/* 18.3.  Everything acknowledged is durable: offset and count do not matter. */
enum nfs4_status nfs4_commit(struct nfs4_compound *c)
{
    xdr_get_u64(nfs4_in(c));
    xdr_get_u32(nfs4_in(c));
    if (nfs4_in(c)->bad)
        return NFS4ERR_BADXDR;
    struct store_attr attr;
    enum nfs4_status status = nfs4_object(c, &c->fh, false);
    if (status != NFS4_OK)
        return status;
    int error = nfs_server.ops->commit(nfs_server.store, &c->fh.object, &attr);
    if (!error && attr.type != STORE_REG)
        error = attr.type == STORE_DIR ? -EISDIR : -EINVAL;
    if (error)
        return nfs4_not_a_file(c, error, error == -EINVAL ? attr.type : 0);
    nfs4_put_verifier(nfs4_out(c));
    return NFS4_OK;
}
