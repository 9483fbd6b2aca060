#include "nfs/gate.h"

#include <assert.h>

#include "nfs/access.h"

static_assert(sizeof(struct gate_call) <= sizeof(((struct rpc_turn *)0)->room), "a gate's call fits");

bool nfs_gate_turn(struct rpc_call *call, uint32_t tree, enum gate_way way, uint32_t bytes, struct rpc_turn *turn)
{
    struct gate *gate = gate_of(tree, call->conn_scratch + ACCESS_GATE_SCRATCH);
    if (!gate || !access_permitted(call, tree))
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

int nfs_gate_hold(struct rpc_turn *turn)
{
    struct gate_call *call = (struct gate_call *)turn->room;
    call->task.run = turn_comes;
    call->worker = turn->worker;
    call->connection = turn->connection;
    return gate_hold(call);
}
