#include "sluice/nfs.h"

#include <string.h>

#include "nfs/counters.h"
#include "nfs/server.h"
#include "nfs/snapview.h"
#include "sluice/base_worker.h"

struct nfs_server nfs_server;

int nfs_start(struct store *store)
{
    nfs_server.store = store;
    nfs_server.ops = snapview_over(store->ops);
    nfs_server.pool = store->ops->pool_id(store);
    memcpy(nfs_server.handle_key, store->ops->secret(store), sizeof nfs_server.handle_key);
    int error = counters_start(workers_count());
    if (!error)
        error = rpc_register(&mount_program);
    if (!error)
        error = rpc_register(&nfs_program);
    return error;
}

void nfs_stop(void)
{
    counters_stop();
    mount_list_clear();
}

static void each_of(enum counters_program which, const struct rpc_program *program,
                    void (*each)(void *arg, const char *program, const char *procedure,
                                 uint64_t calls, uint64_t errors),
                    void *arg)
{
    const struct rpc_version *version = program->versions;
    for (uint32_t i = 0; i < version->count; i++) {
        uint64_t calls, errors;
        counters_read(which, i, &calls, &errors);
        if (calls)
            each(arg, program->name, version->procedures[i].name, calls, errors);
    }
}

void nfs_each_procedure(void (*each)(void *arg, const char *program, const char *procedure,
                                     uint64_t calls, uint64_t errors),
                        void *arg)
{
    each_of(COUNTERS_MOUNT3, &mount_program, each, arg);
    each_of(COUNTERS_NFS3, &nfs_program, each, arg);
}
