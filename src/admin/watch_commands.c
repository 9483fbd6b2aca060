/* What goes on: `sluice stats`, `sluice clients`, `sluice top`. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "admin/commands.h"
#include "admin/scrape.h"

static json_t *no_memory(void)
{
    return request_error(-ENOMEM, "no memory");
}

static json_t *seconds(uint64_t ns)
{
    return json_real((double)ns / 1e9);
}

static json_t *count(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static void add_cache(json_t *to, const struct scraped_volume *v)
{
    json_object_set_new(to, "cache_hit_bytes", count(scrape_hit_bytes(v)));
    json_object_set_new(to, "cache_miss_bytes", count(v->cache.missed_bytes));
    json_object_set_new(to, "cache_held_bytes", count(v->cache.held_bytes));
    json_object_set_new(to, "readahead_bytes", count(v->cache.ahead_bytes));
    json_object_set_new(to, "readahead_unused_bytes", count(v->cache.ahead_unused_bytes));
}

static void add_gate(json_t *to, const struct scraped_volume *v)
{
    const struct gate_stats *gate = &v->gate;
    json_object_set_new(to, "throttled_calls", count(gate->waits[GATE_READ] + gate->waits[GATE_WRITE]));
    json_object_set_new(to, "throttled_seconds", seconds(gate->wait_ns[GATE_READ] + gate->wait_ns[GATE_WRITE]));
    json_object_set_new(to, "delayed_calls", count(gate->delayed));
    json_object_set_new(to, "waiting_calls", count(gate->waiting));
    json_object_set_new(to, "waiting_bytes", count(gate->waiting_bytes));
}

/* ---- stats ---- */

static json_t *describe_op(const struct nfs_op_stats *op)
{
    json_t *bounds = json_array(), *buckets = json_array();
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        json_array_append_new(buckets, count(op->latency.bucket[i]));
        if (i < HISTOGRAM_BUCKETS - 1)
            json_array_append_new(bounds, seconds(histogram_bound(i)));
    }
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "protocol", op->protocol, "operation",
                     op->operation, "calls", count(op->calls), "errors", count(op->errors), "bytes",
                     count(op->bytes), "seconds", seconds(op->latency.sum), "median_seconds",
                     seconds(histogram_quantile(&op->latency, 0.5)), "p99_seconds",
                     seconds(histogram_quantile(&op->latency, 0.99)), "bucket_seconds", bounds, "buckets", buckets);
}

static json_t *describe(const struct scraped_volume *v)
{
    struct scraped_sum sum;
    scrape_sum(v, &sum);
    json_t *answer = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", v->name, "calls",
                               count(sum.calls), "errors", count(sum.errors), "read_bytes", count(sum.read_bytes),
                               "written_bytes", count(sum.written_bytes), "seconds", seconds(sum.latency.sum),
                               "used_bytes", count(v->used_bytes), "files", count(v->used_files));
    if (answer) {
        add_cache(answer, v);
        add_gate(answer, v);
    }
    return answer;
}

static json_t *stats_of(const struct scraped_volume *v)
{
    json_t *answer = describe(v), *operations = json_array();
    for (unsigned i = 0; i < v->op_count; i++)
        json_array_append_new(operations, describe_op(&v->ops[i]));
    if (json_object_set_new(answer, "operations", operations) ||
        json_object_set_new(answer, "since", json_integer(commands_started))) {
        json_decref(answer);
        return NULL;
    }
    return json_pack("{s:o}", "volume", answer);
}

json_t *command_stats(struct request *r)
{
    struct volume_copy named;
    json_t *answer = request_volume(r, "name", &named);
    if (answer)
        return answer;
    free(named.config.rules);
    struct scrape s;
    if (scrape_take(&s))
        answer = no_memory();
    for (unsigned i = 0; i < s.count && !answer; i++)
        if (s.volumes[i].tree == named.tree)
            answer = stats_of(&s.volumes[i]);
    scrape_free(&s);
    return answer ? answer : request_error(-ESTALE, "the volume is not there any more");
}

/* ---- clients ---- */

static const char *name_of(const struct scrape *s, uint32_t tree)
{
    for (unsigned i = 1; i < s->count; i++)
        if (s->volumes[i].tree == tree)
            return s->volumes[i].name;
    return NULL; /* deleted since */
}

static json_t *volumes_of(const struct scrape *s, const struct rpc_client_info *client)
{
    json_t *volumes = json_array();
    for (unsigned i = 0; i < client->tag_count; i++) {
        const char *name = name_of(s, client->tags[i]);
        if (name)
            json_array_append_new(volumes, json_string(name));
    }
    return volumes;
}

static json_t *describe_client(const struct scrape *s, const struct rpc_client_info *client)
{
    char address[ADDRESS_ROOM];
    return json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "address", address_text(address, &client->peer),
                     "connections", (int)client->connections, "volumes", volumes_of(s, client), "calls",
                     count(client->calls), "bytes_received", count(client->bytes_in), "bytes_sent",
                     count(client->bytes_out), "seconds", seconds(client->latency_ns), "throttled_seconds",
                     seconds(client->gate_ns), "idle_seconds", seconds(client->idle_ns));
}

static json_t *all_clients(const struct scrape *s)
{
    struct rpc_client_info *list;
    unsigned found;
    if (rpc_clients(&list, &found))
        return NULL;
    json_t *all = json_array();
    for (unsigned i = 0; i < found; i++)
        json_array_append_new(all, describe_client(s, &list[i]));
    free(list);
    return all;
}

json_t *command_clients(struct request *r)
{
    struct scrape s;
    json_t *clients = scrape_take(&s) ? NULL : all_clients(&s);
    scrape_free(&s);
    json_t *nfs4 = describe_nfs4_clients();
    if (clients && nfs4)
        return json_pack("{s:o, s:o}", "clients", clients, "nfs4_clients", nfs4);
    json_decref(clients);
    json_decref(nfs4);
    return no_memory();
}

/* ---- top: two of these tell what went on in between ---- */

json_t *command_activity(struct request *r)
{
    struct scrape s;
    json_t *clients = scrape_take(&s) ? NULL : all_clients(&s), *volumes = json_array();
    for (unsigned i = 1; clients && i < s.count; i++)
        json_array_append_new(volumes, describe(&s.volumes[i]));
    json_t *answer = NULL;
    if (clients)
        answer = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "monotonic_seconds", seconds(s.now_ns),
                           "since", json_integer(commands_started), "connections", count(s.rpc.connections),
                           "pool_bytes", count(s.pool.bytes_total), "pool_free_bytes", count(s.pool.bytes_free),
                           "cache_bytes", count(s.pool.cache_bytes), "cache_used_bytes",
                           count(s.pool.cache_used_bytes), "volumes", volumes, "clients", clients);
    else
        json_decref(volumes);
    scrape_free(&s);
    return answer ? answer : no_memory();
}
