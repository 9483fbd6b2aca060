/* libFuzzer: the arguments of one call after another, into the real MOUNT and NFS3 procedures over a fake store.  Each
 * call of the input: program and procedure, what the store does, how many of its bytes follow, and the arguments. */
#include "fake.h"
#include "nfs/nfs3.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void one_call(const struct rpc_program *program, uint32_t procedure, const uint8_t *bytes, size_t length)
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
        .program = program->program, .version = 3, .procedure = procedure, .cred = {RPC_AUTH_SYS, 7, 8, 0, {0}},
        .peer = &peer, .local = &peer, .conn_scratch = scratch, .args = xdr_in(args, length),
        .out = xdr_out(reply, 1024),
    };
    if (program->versions->expect) {
        struct rpc_expected expected = {.procedure = procedure, .args = call.args};
        program->versions->expect(&expected, 1);
    }
    enum rpc_result got = program->versions->procedures[procedure].handle(&call);
    must(got <= RPC_AUTH_TOOWEAK, "a result that there is");
    if (got == RPC_DONE) {
        must(!call.out.full || behaviour == 255, "the results do not fit");
        must((xdr_used(&call.out) & 3) == 0, "the results' length");
        touch(reply, xdr_used(&call.out));
    } else if (got == RPC_GARBAGE_ARGS) {
        must(length < (1 << 20), "garbage");
    }
    free(reply);
    free(args);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool started;
    if (!started) {
        must(nfs_start(&store) == 0, "starting");
        started = true;
    }
    for (unsigned calls = 0; size >= 4 && calls < CALLS_MOST; calls++) {
        const struct rpc_program *program = data[0] & 32 ? &mount_program : &nfs_program;
        uint32_t procedure = data[0] % 32 % program->versions->count;
        behaviour = data[1];
        size_t length = (size_t)data[2] << 8 | data[3];
        data += 4;
        size -= 4;
        if (length > size)
            length = size;
        one_call(program, procedure, data, length);
        data += length;
        size -= length;
    }
    return 0;
}
