/* libFuzzer: one COMPOUND after another, into the real NFS4 operations over a fake store.  Each COMPOUND of the input:
 * what the store does, how many of its bytes follow, and COMPOUND4args.  One that wants to wait goes on as in a
 * coroutine, or as where there is none (behaviour 254). */
#include "fake.h"
#include "nfs/v4/compound.h"
#include "sluice/base_worker.h"

enum { NO_COROUTINE = 254 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Names of owners: the host's name service is none of this. */
void blocking_run(void (*fn)(void *arg), void *arg)
{
}

void blocking_set_limit(unsigned threads)
{
}

void blocking_stop(void)
{
}

int blocking_spawn(void (*fn)(void *arg), void *arg)
{
    return -EAGAIN;
}

static enum rpc_result run(struct rpc_call *call, const uint8_t *args, size_t length)
{
    enum rpc_result got = nfs4_version.procedures[1].handle(call);
    if (got != RPC_RESUME)
        return got;
    uint8_t *moved = malloc(length ? length : 1);
    must(moved != NULL, "memory");
    memcpy(moved, args, length);
    call->args = xdr_in(moved, length);
    call->resumed = true;
    call->must_end = behaviour == NO_COROUTINE;
    got = nfs4_version.procedures[1].handle(call);
    must(got != RPC_RESUME && got != RPC_WAIT, "it waits twice");
    free(moved);
    return got;
}

static void one_compound(const uint8_t *bytes, size_t length)
{
    static struct sockaddr_storage peer = {.ss_family = AF_INET};
    uint64_t scratch[RPC_CONN_SCRATCH] = {0};
    uint8_t *args = malloc(length ? length : 1); /* of exactly its size */
    must(args != NULL, "memory");
    memcpy(args, bytes, length);
    fill_handles(args, length);
    reply = malloc(1024);
    must(reply != NULL, "memory");
    slice_bytes = 0;
    struct rpc_call call = {
        .program = nfs_program.program, .version = 4, .procedure = 1, .cred = {RPC_AUTH_SYS, 7, 8, 0, {0}},
        .peer = &peer, .local = &peer, .conn_scratch = scratch, .args = xdr_in(args, length),
        .out = xdr_out(reply, 1024),
    };
    memset(call.keep, 0xa5, sizeof call.keep);
    enum rpc_result got = run(&call, args, length);
    must(got <= RPC_AUTH_TOOWEAK, "a result that there is");
    if (got == RPC_DONE) {
        must(!call.out.full || behaviour == 255, "the results do not fit");
        must((xdr_used(&call.out) & 3) == 0, "the results' length");
        must(xdr_used(&call.out) + slice_bytes <= REPLY_MOST, "the reply's size");
        touch(reply, xdr_used(&call.out));
    }
    answer_back_calls(-ENOTCONN, NULL, 0);
    free(reply);
    free(args);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool started;
    if (!started) {
        nfs_limit_state(&(struct state_options){.lease_seconds = 90, .grace_seconds = 90, .clients_most = 100000,
                                                .sessions_most = 100000, .opens_most = 1000000, .locks_most = 1000000,
                                                .delegations_most = 500000});
        must(nfs_serve(true, true) == 0 && nfs_start(&store) == 0, "starting");
        started = true;
    }
    for (unsigned calls = 0; size >= 3 && calls < CALLS_MOST; calls++) {
        behaviour = data[0];
        size_t length = (size_t)data[1] << 8 | data[2];
        data += 3;
        size -= 3;
        if (length > size)
            length = size;
        one_compound(data, length);
        data += length;
        size -= length;
    }
    return 0;
}
