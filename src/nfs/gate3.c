/* Before an NFSv3 call is run it passes its volume's gate.  The volume is the one in the first handle; a caller who may
 * not use it is answered without being counted. */
#include <assert.h>

#include "nfs/access.h"
#include "nfs/nfs3.h"
#include "sluice/volume_gate.h"

static_assert(sizeof(struct gate_call) <= sizeof(((struct rpc_turn *)0)->room), "a gate's call fits");

static uint32_t bytes_of(uint32_t procedure, struct xdr_in *args)
{
    if (procedure != NFS3_READ && procedure != NFS3_WRITE)
        return 0;
    xdr_get_u64(args); /* offset */
    uint32_t count = xdr_get_u32(args);
    return count < STORE_IO_MAX ? count : STORE_IO_MAX;
}

static enum gate_way way_of(uint32_t procedure)
{
    switch (procedure) {
    case NFS3_SETATTR:
    case NFS3_WRITE:
    case NFS3_CREATE:
    case NFS3_MKDIR:
    case NFS3_SYMLINK:
    case NFS3_MKNOD:
    case NFS3_REMOVE:
    case NFS3_RMDIR:
    case NFS3_RENAME:
    case NFS3_LINK:
        return GATE_WRITE;
    default:
        return GATE_READ;
    }
}

bool nfs3_turn(struct rpc_call *call, struct rpc_turn *turn)
{
    if (gate_is_off() || call->procedure == NFS3_NULL)
        return true;
    struct xdr_in args = call->args;
    struct nfs3_fh fh = nfs3_get_fh(&args);
    uint32_t bytes = bytes_of(call->procedure, &args);
    struct store_object object;
    if (args.bad || !handle_peek(fh.bytes, fh.length, &object))
        return true;
    struct gate *gate = gate_of(object.tree, call->conn_scratch + ACCESS_GATE_SCRATCH);
    enum gate_way way = way_of(call->procedure);
    if (!gate || !access_permitted(call, object.tree))
        return true;
    call->ticket = gate;
    if (gate_try(gate, way, bytes, call->pressed) == 0)
        return true;
    *(struct gate_call *)turn->room = (struct gate_call){.gate = gate, .bytes = bytes, .way = way};
    return false;
}

static void turn_comes(struct task *task)
{
    struct gate_call *call = (struct gate_call *)task; /* its first member */
    struct rpc_turn *turn = (struct rpc_turn *)call;   /* and this is its room's */
    bool withdrawn = call->withdrawn;
    rpc_turn_comes(turn, gate_passed(call), withdrawn);
}

int nfs3_hold(struct rpc_turn *turn)
{
    struct gate_call *call = (struct gate_call *)turn->room;
    call->task.run = turn_comes;
    call->worker = turn->worker;
    call->connection = turn->connection;
    return gate_hold(call);
}
