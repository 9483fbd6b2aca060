#include "sluice/nfs.h"

#include <string.h>

#include "nfs/counters.h"
#include "nfs/opstats.h"
#include "nfs/server.h"
#include "nfs/snapview.h"
#include "nfs/v4/compound.h"
#include "sluice/base_worker.h"
#include "sluice/volume.h"

struct nfs_server nfs_server;

enum { VERSIONS = 2 };
static struct rpc_version served_versions[VERSIONS];
static struct rpc_program served = {.versions = served_versions};

static struct state_options limits;

bool nfs_serves(unsigned version)
{
    for (uint32_t i = 0; i < served.count; i++)
        if (served_versions[i].version == version)
            return true;
    return false;
}

void nfs_limit_state(const struct state_options *options)
{
    limits = *options;
}

int nfs_serve(bool three, bool four)
{
    served.count = 0;
    if (three)
        served_versions[served.count++] = nfs_program.versions[0];
    if (four)
        served_versions[served.count++] = nfs4_version;
    return served.count ? 0 : -EINVAL;
}

static int register_nfs(void)
{
    if (!served.count)
        nfs_serve(true, false);
    served.program = nfs_program.program;
    served.name = nfs_program.name;
    return rpc_register(&served);
}

static bool keeps(uint32_t tree, const struct sockaddr_storage *peer)
{
    uint64_t unused[VOLUME_ACCESS_CACHE] = {0};
    struct volume_grant grant;
    return volume_access(tree, peer, unused, &grant) == 0 && grant.allowed;
}

static void access_changed(void)
{
    state_recheck(keeps);
}

static const struct volume_watcher watcher = {access_changed, state_tree_changes};

void nfs_tree_changes(uint32_t tree, bool begins)
{
    state_tree_changes(tree, begins);
}

int nfs_start(struct store *store)
{
    nfs_server.store = store;
    nfs_server.ops = snapview_over(store->ops);
    nfs_server.pool = store->ops->pool_id(store);
    memcpy(nfs_server.handle_key, store->ops->secret(store), sizeof nfs_server.handle_key);
    int error = counters_start(workers_count());
    if (!error)
        error = opstats_start(workers_count());
    if (!error && nfs_serves(4))
        error = state_start(store, &limits);
    if (!error && nfs_serves(4))
        volume_watch(&watcher);
    if (!error)
        error = rpc_register(&mount_program);
    if (!error)
        error = register_nfs();
    return error;
}

void nfs_tick(void)
{
    state_tick();
}

void nfs_stop(void)
{
    state_stop();
    counters_stop();
    opstats_stop();
    mount_list_clear();
}

bool nfs_op_name(unsigned op, const char **protocol, const char **operation)
{
    const struct rpc_version *nfs3 = &nfs_program.versions[0];
    bool three = op - OPSTATS_NFS3 < nfs3->count;
    *protocol = three ? "nfs3" : "nfs4";
    *operation = three ? nfs3->procedures[op - OPSTATS_NFS3].name : nfs4_op_name(op - OPSTATS_NFS4);
    return *operation;
}

void nfs_each_procedure(void (*each)(void *arg, const char *program, const char *procedure,
                                     uint64_t calls, uint64_t errors),
                        void *arg)
{
    const struct rpc_version *mount = mount_program.versions;
    const char *protocol, *operation;
    uint64_t calls, errors;
    for (uint32_t i = 0; i < mount->count; i++) {
        counters_read(COUNTERS_MOUNT3, i, &calls, &errors);
        if (calls)
            each(arg, mount_program.name, mount->procedures[i].name, calls, errors);
    }
    for (unsigned op = 0; op < OPSTATS_OPS; op++) {
        if (!nfs_op_name(op, &protocol, &operation))
            continue;
        opstats_total(op, &calls, &errors);
        if (calls)
            each(arg, protocol, operation, calls, errors);
    }
}
