/* A COMPOUND is looked at before it is run, as far as its operations are of those that come with data: to pass its
 * volume's gate, which is that of the first handle in it (of COPY and CLONE: the target's), with what all of its READs
 * and WRITEs ask for (one that concerns no volume, or one that the caller may not use, passes); and to fetch what the
 * calls that arrived together will need. */
#include "nfs/gate.h"
#include "nfs/nfs3.h"
#include "nfs/v4/compound.h"

enum { LOOK_AT_MOST = 64, SEQUENCE_SIZE = NFS4_SESSIONID_SIZE + 16 };

struct view {
    uint32_t minor;
    bool changes_names; /* or attributes */
    bool has_object;
    struct store_object object;       /* the first handle */
    const uint8_t *handle;            /* the last one, where there are several */
    uint32_t handle_length;
    uint64_t bytes;
    enum gate_way way;
    uint64_t offset; /* of the first READ, whose length is the bytes */
    bool has_read;
    struct store_name name; /* of the first LOOKUP */
};

static void add_bytes(struct view *view, uint32_t bytes)
{
    view->bytes += bytes < STORE_IO_MAX ? bytes : STORE_IO_MAX;
}

static void look_at_handle(struct xdr_in *in, struct view *view)
{
    uint32_t length;
    const uint8_t *handle = xdr_get_opaque(in, NFS4_FHSIZE, &length);
    if (in->bad)
        return;
    if (view->has_object) {
        view->handle = handle;
        view->handle_length = length;
    } else {
        view->has_object = handle_peek(handle, length, &view->object) && view->object.tree;
    }
}

static bool look_at_read(struct xdr_in *in, struct view *view)
{
    xdr_take(in, NFS4_STATEID_SIZE);
    uint64_t offset = xdr_get_u64(in);
    if (!view->has_read)
        view->offset = offset;
    view->has_read = true;
    add_bytes(view, xdr_get_u32(in));
    return true;
}

static bool look_at_name(struct xdr_in *in, struct view *view)
{
    struct store_name name;
    name.bytes = (const char *)xdr_get_opaque(in, STORE_NAME_MAX, &name.length);
    if (!view->name.length)
        view->name = name;
    return true;
}

/* One change of the target's volume; what is not shared is counted by its bytes. */
static void look_at_copy(struct xdr_in *in, struct view *view)
{
    xdr_take(in, 2 * NFS4_STATEID_SIZE);
    uint64_t from = xdr_get_u64(in), to = xdr_get_u64(in), count = xdr_get_u64(in);
    view->way = GATE_WRITE;
    if (!in->bad && !nfs4_copy_shares(from, to))
        view->bytes += nfs4_copy_bytes(count);
    struct store_object target;
    if (view->handle && handle_peek(view->handle, view->handle_length, &target) && target.tree)
        view->object = target;
}

/* False: what follows is not looked at. */
static bool look_at(struct xdr_in *in, struct view *view)
{
    uint32_t length;
    switch (xdr_get_u32(in)) {
    case OP4_SEQUENCE:
        return xdr_take(in, SEQUENCE_SIZE);
    case OP4_PUTFH:
        look_at_handle(in, view);
        return true;
    case OP4_PUTROOTFH:
    case OP4_SAVEFH:
    case OP4_RESTOREFH:
    case OP4_GETFH:
        return true;
    case OP4_ACCESS:
        xdr_get_u32(in);
        return true;
    case OP4_GETATTR:
        length = xdr_get_u32(in);
        return length < 16 && xdr_take(in, 4 * (size_t)length);
    case OP4_COMMIT:
        return xdr_take(in, 12);
    case OP4_READ:
        return look_at_read(in, view);
    case OP4_LOOKUP:
        return look_at_name(in, view);
    case OP4_WRITE:
        xdr_take(in, NFS4_STATEID_SIZE + 8 + 4);
        view->way = GATE_WRITE;
        xdr_get_opaque(in, UINT32_MAX, &length);
        add_bytes(view, length);
        return true;
    case OP4_COPY:
    case OP4_CLONE:
        look_at_copy(in, view);
        return false;
    case OP4_ALLOCATE:
    case OP4_DEALLOCATE:
        view->way = GATE_WRITE;
        return false;
    case OP4_CREATE:
    case OP4_LINK:
    case OP4_REMOVE:
    case OP4_RENAME:
    case OP4_SETATTR:
        view->way = GATE_WRITE;
        view->changes_names = true;
        return false;
    default:
        return false;
    }
}

/* False: nothing in it is in a volume by its handle. */
static bool look(struct xdr_in in, struct view *view)
{
    uint32_t length;
    view->changes_names = view->has_object = view->has_read = false; /* one by one, for this is done often */
    view->handle = NULL;
    view->bytes = view->offset = 0;
    view->way = GATE_READ;
    view->name = (struct store_name){0};
    xdr_get_opaque(&in, UINT32_MAX, &length); /* tag */
    view->minor = xdr_get_u32(&in);
    uint32_t count = xdr_get_u32(&in);
    for (uint32_t i = 0; i < count && i < LOOK_AT_MOST && !in.bad; i++)
        if (!look_at(&in, view))
            break;
    return view->has_object && !in.bad;
}

bool nfs4_turn(struct rpc_call *call, struct rpc_turn *turn)
{
    struct view view;
    if (gate_is_off() || call->procedure == 0 || !look(call->args, &view))
        return true;
    uint32_t bytes = view.bytes < UINT32_MAX ? (uint32_t)view.bytes : UINT32_MAX;
    return nfs_gate_turn(call, view.object.tree, view.way, bytes, turn);
}

/* Minor version 0 alone has no slots that would answer such calls once; its OPENs and locks have their seqids. */
bool nfs4_changes(const struct rpc_call *call)
{
    struct view view;
    if (call->procedure != 1)
        return false;
    look(call->args, &view);
    return view.minor == 0 && view.changes_names;
}

void nfs4_expect(const struct rpc_expected *calls, unsigned count)
{
    struct store_range ranges[RPC_EXPECT_MOST];
    unsigned found = 0;
    if (!nfs_server.ops->expect)
        return;
    for (unsigned i = 0; i < count; i++) {
        struct view view;
        if (calls[i].procedure != 1 || !look(calls[i].args, &view) || view.way != GATE_READ)
            continue;
        ranges[found++] = (struct store_range){.object = view.object, .offset = view.offset,
                                               .length = view.has_read ? (uint32_t)view.bytes : 0, .name = view.name};
    }
    if (found)
        nfs_server.ops->expect(nfs_server.store, ranges, found);
}
