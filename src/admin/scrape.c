#include "admin/scrape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sluice/base_worker.h"

static void *one_more(void *at, unsigned count, unsigned *room, size_t size)
{
    if (count < *room)
        return at;
    unsigned more = *room ? 2 * *room : 16;
    void *grown = realloc(at, more * size);
    if (grown)
        *room = more;
    return grown;
}

static struct scraped_volume *add_volume(struct scrape *s)
{
    struct scraped_volume *grown = one_more(s->volumes, s->count, &s->room, sizeof *grown);
    if (!grown)
        return NULL;
    s->volumes = grown;
    struct scraped_volume *v = &grown[s->count++];
    memset(v, 0, sizeof *v);
    return v;
}

static int take_volume(void *arg, const struct volume_info *info)
{
    struct scraped_volume *v = add_volume(arg);
    if (!v)
        return -ENOMEM;
    v->tree = info->tree;
    strcpy(v->name, info->config->name);
    volume_limits_of(info->config, &v->limits);
    return 0;
}

static int take_op(void *arg, const struct nfs_op_stats *stats)
{
    struct scraped_volume *v = arg;
    struct nfs_op_stats *grown = one_more(v->ops, v->op_count, &v->op_room, sizeof *grown);
    if (!grown)
        return -ENOMEM;
    v->ops = grown;
    grown[v->op_count++] = *stats;
    return 0;
}

static int compare_trees(const void *a, const void *b)
{
    const struct scraped_volume *const *x = a, *const *y = b;
    return ((*x)->tree > (*y)->tree) - ((*x)->tree < (*y)->tree);
}

struct finding {
    struct scraped_volume **by_tree;
    unsigned count;
};

static int take_tree(void *arg, const struct store_tree *tree)
{
    struct finding *finding = arg;
    struct scraped_volume key = {.tree = tree->id}, *wanted = &key;
    struct scraped_volume **found =
        bsearch(&wanted, finding->by_tree, finding->count, sizeof wanted, compare_trees);
    if (!found)
        return 0;
    (*found)->size_limit = tree->limits.bytes;
    (*found)->file_limit = tree->limits.files;
    (*found)->used_bytes = tree->usage.bytes_used;
    (*found)->used_files = tree->usage.files_used;
    return 0;
}

static int take_usage(struct scrape *s, struct store *store)
{
    struct finding finding = {.by_tree = calloc(s->count, sizeof *finding.by_tree), .count = s->count};
    if (!finding.by_tree)
        return -ENOMEM;
    for (unsigned i = 0; i < s->count; i++)
        finding.by_tree[i] = &s->volumes[i];
    qsort(finding.by_tree, s->count, sizeof *finding.by_tree, compare_trees);
    store->ops->tree_each(store, take_tree, &finding); /* take_tree never fails */
    free(finding.by_tree);
    return 0;
}

int scrape_take(struct scrape *s)
{
    struct store *store = volume_store();
    *s = (struct scrape){.now_ns = clock_monotonic_ns()};
    store->ops->status(store, &s->pool);
    rpc_stats(&s->rpc);
    state_count(&s->state);
    int error = add_volume(s) ? volume_each(take_volume, s) : -ENOMEM;
    for (unsigned i = 0; i < s->count; i++) {
        struct scraped_volume *v = &s->volumes[i];
        if (nfs_each_op(v->tree, take_op, v))
            error = -ENOMEM;
        if (!v->tree)
            continue;
        gate_stats(v->tree, &v->gate);
        v->snapshots = volume_snapshot_count(v->tree);
        if (store->ops->tree_cache_stats(store, v->tree, &v->cache))
            memset(&v->cache, 0, sizeof v->cache); /* deleted just now */
    }
    return s->count ? (take_usage(s, store) ? -ENOMEM : error) : error;
}

void scrape_free(struct scrape *s)
{
    for (unsigned i = 0; i < s->count; i++)
        free(s->volumes[i].ops);
    free(s->volumes);
    *s = (struct scrape){0};
}

void scrape_sum(const struct scraped_volume *v, struct scraped_sum *out)
{
    *out = (struct scraped_sum){0};
    for (unsigned i = 0; i < v->op_count; i++) {
        const struct nfs_op_stats *op = &v->ops[i];
        out->calls += op->calls;
        out->errors += op->errors;
        if (strncmp(op->operation, "READ", 4) == 0)
            out->read_bytes += op->bytes;
        else
            out->written_bytes += op->bytes;
        histogram_sum(&out->latency, &op->latency);
    }
}

uint64_t scrape_hit_bytes(const struct scraped_volume *v)
{
    return v->cache.read_bytes > v->cache.missed_bytes ? v->cache.read_bytes - v->cache.missed_bytes : 0;
}
