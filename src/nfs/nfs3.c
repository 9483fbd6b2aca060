#include "nfs/nfs3.h"

#include "nfs/gate.h"
#include "nfs/opstats.h"

static enum rpc_result nfs3_null(struct rpc_call *call)
{
    opstats_done(call, OPSTATS_NFS3 + NFS3_NULL, false);
    return RPC_DONE;
}

static const struct rpc_procedure procedures[NFS3_PROCEDURES] = {
    [NFS3_NULL] = {"NULL", nfs3_null, false},
    [NFS3_GETATTR] = {"GETATTR", nfs3_getattr, false},
    [NFS3_SETATTR] = {"SETATTR", nfs3_setattr, true},
    [NFS3_LOOKUP] = {"LOOKUP", nfs3_lookup, false},
    [NFS3_ACCESS] = {"ACCESS", nfs3_access, false},
    [NFS3_READLINK] = {"READLINK", nfs3_readlink, false},
    [NFS3_READ] = {"READ", nfs3_read, false},
    [NFS3_WRITE] = {"WRITE", nfs3_write, true},
    [NFS3_CREATE] = {"CREATE", nfs3_create, true},
    [NFS3_MKDIR] = {"MKDIR", nfs3_mkdir, true},
    [NFS3_SYMLINK] = {"SYMLINK", nfs3_symlink, true},
    [NFS3_MKNOD] = {"MKNOD", nfs3_mknod, true},
    [NFS3_REMOVE] = {"REMOVE", nfs3_remove, true},
    [NFS3_RMDIR] = {"RMDIR", nfs3_rmdir, true},
    [NFS3_RENAME] = {"RENAME", nfs3_rename, true},
    [NFS3_LINK] = {"LINK", nfs3_link, true},
    [NFS3_READDIR] = {"READDIR", nfs3_readdir, false},
    [NFS3_READDIRPLUS] = {"READDIRPLUS", nfs3_readdirplus, false},
    [NFS3_FSSTAT] = {"FSSTAT", nfs3_fsstat, false},
    [NFS3_FSINFO] = {"FSINFO", nfs3_fsinfo, false},
    [NFS3_PATHCONF] = {"PATHCONF", nfs3_pathconf, false},
    [NFS3_COMMIT] = {"COMMIT", nfs3_commit, false},
};

static uint32_t bytes_of(uint32_t procedure, struct xdr_in *args)
{
    if (procedure != NFS3_READ && procedure != NFS3_WRITE)
        return 0;
    xdr_get_u64(args); /* offset */
    uint32_t count = xdr_get_u32(args);
    return count < STORE_IO_MAX ? count : STORE_IO_MAX;
}

/* rpc_version.turn: by the volume in the first handle. */
static bool nfs3_turn(struct rpc_call *call, struct rpc_turn *turn)
{
    if (gate_is_off() || call->procedure == NFS3_NULL)
        return true;
    struct xdr_in args = call->args;
    struct nfs3_fh fh = nfs3_get_fh(&args);
    uint32_t bytes = bytes_of(call->procedure, &args);
    struct store_object object;
    if (args.bad || !handle_peek(fh.bytes, fh.length, &object))
        return true;
    enum gate_way way = procedures[call->procedure].changes ? GATE_WRITE : GATE_READ;
    return nfs_gate_turn(call, object.tree, way, bytes, turn);
}

static const struct rpc_version versions[] = {
    {.version = 3, .procedures = procedures, .count = NFS3_PROCEDURES, .expect = nfs3_expect,
     .turn = nfs3_turn, .hold = nfs_gate_hold, .withdraw = gate_withdraw},
};

const struct rpc_program nfs_program = {
    .program = 100003, .name = "nfs", .versions = versions, .count = 1};
