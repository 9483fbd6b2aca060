#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/commands.h"
#include "admin/space.h"
#include "admin/metrics_http.h"
#include "admin/warm.h"
#include "sluice/base_worker.h"
#include "sluice/nfs.h"
#include "sluice/nfs_state.h"
#include "sluice/rpc.h"

static int count_volume(void *arg, const struct volume_info *info)
{
    ++*(unsigned *)arg;
    return 0;
}

static void add_procedure(void *arg, const char *program, const char *procedure, uint64_t calls,
                          uint64_t errors)
{
    json_array_append_new(arg, json_pack("{s:s, s:s, s:I, s:I}", "program", program, "procedure",
                                         procedure, "calls", (json_int_t)calls, "errors",
                                         (json_int_t)errors));
}

static json_t *listeners(void)
{
    enum { MOST = 32 };
    char text[MOST][64];
    json_t *all = json_array();
    unsigned count = rpc_listeners(text, MOST);
    for (unsigned i = 0; i < count && i < MOST; i++)
        json_array_append_new(all, json_string(text[i]));
    return all;
}

static json_t *pool_status(void)
{
    struct store_status pool;
    struct store *s = volume_store();
    s->ops->status(s, &pool);
    return json_pack("{s:o, s:i, s:s, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "warnings",
                     space_warnings(&pool), "below_percent", (int)space_level(&pool), "path", pool.path, "frozen",
                     pool.frozen, "reason", pool.reason, "bytes_total", (json_int_t)pool.bytes_total,
                     "bytes_free", (json_int_t)pool.bytes_free, "cache_bytes",
                     (json_int_t)pool.cache_bytes, "cache_used_bytes",
                     (json_int_t)pool.cache_used_bytes, "meta_bytes", (json_int_t)pool.meta_bytes,
                     "segments", (json_int_t)pool.segments, "work_left", (json_int_t)pool.work_left);
}

static json_t *client_status(void)
{
    struct rpc_stats stats;
    rpc_stats(&stats);
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "connections", (json_int_t)stats.connections,
                     "requests_in_flight", (json_int_t)stats.requests_in_flight, "bytes_in_flight",
                     (json_int_t)stats.bytes_in_flight, "duplicate_entries",
                     (json_int_t)stats.duplicate_entries, "duplicate_bytes",
                     (json_int_t)stats.duplicate_bytes);
}

/* Null where NFSv4 is not served. */
static json_t *nfs4_status(void)
{
    struct state_counts counts;
    if (!state_count(&counts))
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "clients", (json_int_t)counts.clients, "sessions",
                     (json_int_t)counts.sessions, "opens", (json_int_t)counts.opens, "locks",
                     (json_int_t)counts.locks, "delegations", (json_int_t)counts.delegations);
}

json_t *command_status(struct request *r)
{
    unsigned volumes = 0;
    volume_each(count_volume, &volumes);
    json_t *procedures = json_array();
    nfs_each_procedure(add_procedure, procedures);
    return json_pack("{s:i, s:I, s:i, s:i, s:i, s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "pid", (int)getpid(), "uptime",
                     (json_int_t)(time(NULL) - commands_started), "workers", (int)workers_count(),
                     "coroutines", (int)coro_count(), "volumes", (int)volumes, "listen", listeners(),
                     "metrics", metrics_http_url(), "pool", pool_status(), "clients", client_status(),
                     "nfs4", nfs4_status(), "procedures", procedures, "warming", warm_status());
}
