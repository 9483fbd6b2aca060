/* READ, WRITE, COMMIT. */
#include "nfs/changes.h"
#include "nfs/handle.h"
#include "nfs/nfs3.h"
#include "nfs/opstats.h"
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

static enum rpc_result put_read(struct rpc_call *call, const struct store_attr *attr, bool eof,
                                uint32_t count, struct slice_list *data)
{
    if (call->ticket && data->bytes < count)
        gate_give_back(call->ticket, GATE_READ, count - data->bytes);
    nfs3_put_status(call, 0);
    opstats_bytes(call, data->bytes);
    nfs3_put_post_op_attr(&call->out, attr);
    xdr_put_u32(&call->out, data->bytes);
    xdr_put_bool(&call->out, eof);
    xdr_put_u32(&call->out, data->bytes);
    int error = data->bytes ? rpc_reply_slices(call, data) : 0;
    slices_clear(data);
    return error ? RPC_SYSTEM_ERR : RPC_DONE;
}

enum rpc_result nfs3_read(struct rpc_call *call) /* RFC 1813, 3.3.6 */
{
    struct nfs3_fh fh = nfs3_get_fh(&call->args);
    uint64_t offset = xdr_get_u64(&call->args);
    uint32_t count = xdr_get_u32(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;
    clamp_range(&offset, &count);
    rpc_reply_estimate(call, count);

    struct store_object object;
    struct store_cred cred;
    struct store_attr attr;
    struct slice_list data;
    bool eof = false;
    attr.type = 0;
    slices_init(&data);
    int error = nfs3_open(call, fh, &object, &cred);
    if (!error)
        error = nfs_server.ops->read(nfs_server.store, &cred, &object, offset, count, &data, &eof,
                                     &attr);
    if (error == SL_EWAIT) {
        slices_clear(&data);
        return RPC_WAIT;
    }

    if (!error)
        return put_read(call, &attr, eof, count, &data);
    slices_clear(&data);
    nfs3_put_status(call, error);
    nfs3_put_post_op_attr(&call->out, &attr);
    return RPC_DONE;
}

/* What the call will look at; false: nothing that could be fetched beforehand. */
static bool expect_one(const struct rpc_expected *call, struct store_range *out)
{
    struct xdr_in args = call->args;
    struct nfs3_fh fh = nfs3_get_fh(&args);
    *out = (struct store_range){0};
    switch (call->procedure) {
    case NFS3_READ:
        out->offset = xdr_get_u64(&args);
        out->length = xdr_get_u32(&args);
        break;
    case NFS3_LOOKUP:
        out->name = nfs3_get_name(&args);
        break;
    case NFS3_GETATTR:
    case NFS3_ACCESS:
        break;
    default:
        return false;
    }
    return !args.bad && out->name.length <= STORE_NAME_MAX && handle_peek(fh.bytes, fh.length, &out->object);
}

void nfs3_expect(const struct rpc_expected *calls, unsigned count)
{
    struct store_range ranges[RPC_EXPECT_MOST];
    unsigned found = 0;
    if (!nfs_server.ops->expect)
        return;
    for (unsigned i = 0; i < count; i++)
        found += expect_one(&calls[i], &ranges[found]);
    if (found)
        nfs_server.ops->expect(nfs_server.store, ranges, found);
}

static void put_verifier(struct xdr_out *out)
{
    uint8_t verifier[8];
    nfs_server.ops->write_verifier(nfs_server.store, verifier);
    xdr_put_fixed(out, verifier, sizeof verifier);
}

enum { UNSTABLE, DATA_SYNC, FILE_SYNC }; /* stable_how */

enum rpc_result nfs3_write(struct rpc_call *call) /* RFC 1813, 3.3.7 */
{
    struct nfs3_fh fh = nfs3_get_fh(&call->args);
    uint64_t offset = xdr_get_u64(&call->args);
    uint32_t count = xdr_get_u32(&call->args);
    uint32_t stable = xdr_get_u32(&call->args);
    uint32_t length;
    const uint8_t *data = xdr_get_opaque(&call->args, UINT32_MAX, &length);
    if (call->args.bad || stable > FILE_SYNC)
        return RPC_GARBAGE_ARGS;

    struct store_object object;
    struct store_cred cred;
    struct store_wcc wcc = {0};
    int error = nfs3_open(call, fh, &object, &cred);
    if (!error && count != length)
        error = -EINVAL;
    if (count > STORE_IO_MAX)
        count = STORE_IO_MAX; /* the reply's count says so, and the client sends the rest again */
    if (offset > STORE_FILE_MAX)
        offset = STORE_FILE_MAX; /* still too far, and sums no longer wrap */
    if (!error)
        error = changes_write(NULL, &cred, &object, offset, data, count, &wcc);
    if (error == SL_EWAIT)
        return RPC_WAIT;

    enum nfs3_status status = nfs3_put_status(call, error);
    nfs3_put_wcc(&call->out, &wcc);
    if (status == NFS3_OK) {
        opstats_bytes(call, count);
        xdr_put_u32(&call->out, count);
        xdr_put_u32(&call->out, FILE_SYNC);
        put_verifier(&call->out);
    }
    return RPC_DONE;
}

/* RFC 1813, 3.3.21.  Everything acknowledged is durable: offset and count do not matter. */
enum rpc_result nfs3_commit(struct rpc_call *call)
{
    struct nfs3_fh fh = nfs3_get_fh(&call->args);
    xdr_get_u64(&call->args);
    xdr_get_u32(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;

    struct store_object object;
    struct store_cred cred;
    struct store_wcc wcc = {0};
    int error = nfs3_open(call, fh, &object, &cred);
    if (!error)
        error = nfs_server.ops->commit(nfs_server.store, &object, &wcc.after);
    if (error == SL_EWAIT)
        return RPC_WAIT;

    wcc.has_after = true; /* post_op_attr looks at the type as well */
    enum nfs3_status status = nfs3_put_status(call, error);
    nfs3_put_wcc(&call->out, &wcc);
    if (status == NFS3_OK)
        put_verifier(&call->out);
    return RPC_DONE;
}
