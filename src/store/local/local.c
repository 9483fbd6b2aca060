#include "store/local/local.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/local/cache.h"
#include "store/local/data.h"
#include "store/local/diff.h"
#include "store/local/fixed.h"
#include "store/local/holds.h"
#include "store/local/named.h"
#include "store/local/ops.h"
#include "store/local/pool.h"
#include "store/local/readahead.h"
#include "store/local/reaper.h"
#include "store/local/seg.h"
#include "store/local/split.h"
#include "store/local/warm.h"
#include "store/local/watch.h"

struct store_time local_now(void)
{
    struct timespec now;
    clock_realtime_coarse(&now);
    return (struct store_time){.seconds = now.tv_sec, .nanoseconds = (uint32_t)now.tv_nsec};
}

static void local_write_verifier(struct store *s, uint8_t verifier[8])
{
    memcpy(verifier, local_of(s)->verifier, sizeof(local_of(s)->verifier));
}

static uint32_t local_pool_id(struct store *s)
{
    return local_of(s)->pool_id;
}

static const uint8_t *local_secret(struct store *s)
{
    return local_of(s)->secret;
}

static void local_status(struct store *s, struct store_status *out)
{
    struct local *l = local_of(s);
    *out = (struct store_status){.path = l->path, .frozen = atomic_load(&l->frozen)};
    writer_reason(l, out->reason);
    seg_space(l, &out->bytes_total, &out->bytes_free);
    cache_usage(l, &out->cache_bytes, &out->cache_used_bytes);
    meta_space(l, &out->meta_bytes, &out->meta_free_bytes);
    out->segments = seg_count(l);
    out->work_left = reaper_backlog(l);
}

static int local_tree_cache(struct store *s, uint32_t id, const struct store_cache_setting *setting)
{
    struct tree tree;
    int error = meta_tree(local_of(s), id, &tree);
    if (!error)
        cache_set(local_of(s)->cache, id, setting);
    return error;
}

static int local_tree_cache_stats(struct store *s, uint32_t id, struct store_cache_stats *out)
{
    struct tree tree;
    int error = meta_tree(local_of(s), id, &tree);
    if (!error)
        cache_stats(local_of(s)->cache, tree.volume, out);
    return error;
}

static int local_settle(struct store *s)
{
    return reaper_settle(local_of(s));
}

static void local_close(struct store *s)
{
    struct local *l = local_of(s);
    atomic_store(&l->stopping, true);
    if (l->reaper)
        reaper_stop(l);
    writer_stop(l);
    readahead_close(l);
    fixed_close(l);
    if (l->cache)
        cache_close(l);
    seg_close(l);
    meta_close(l);
    writer_free(l);
    pool_close(l);
    holds_free(l);
    watch_free(l);
    free(l);
}

static const struct store_ops local_ops = {
    .name = "local",
    .root = local_root,
    .getattr = local_getattr,
    .setattr = local_setattr,
    .lookup = local_lookup,
    .access = local_access,
    .readlink = local_readlink,
    .read = data_read,
    .expect = data_expect,
    .write = data_write,
    .make = local_make,
    .remove = local_remove,
    .rmdir = local_rmdir,
    .rename = local_rename,
    .link = local_link,
    .readdir = local_readdir,
    .warm = warm_ranges,
    .cool = warm_cool,
    .watch_begin = watch_begin,
    .watch_end = watch_end,
    .watch_count = watch_count,
    .usage = local_usage,
    .commit = local_commit,
    .seek = local_seek,
    .punch = local_punch,
    .copy = local_copy,
    .clone_range = local_clone_range,
    .extend = local_extend,
    .write_verifier = local_write_verifier,
    .hold = local_hold,
    .release = local_release,
    .keep_unlinked = local_keep_unlinked,
    .unlinked = local_unlinked,
    .tree_create = tree_create,
    .tree_update = tree_update,
    .tree_delete = tree_delete,
    .snapshot = snapshot_take,
    .clone = snapshot_clone,
    .restore = snapshot_restore,
    .snapshots_changed = trees_snapshots_changed,
    .tree_cache = local_tree_cache,
    .tree_cache_stats = local_tree_cache_stats,
    .tree_each = tree_each,
    .diff = diff_trees,
    .held = held_bytes,
    .snapshots_held = held_by_snapshots,
    .split = split_tree,
    .named_put = named_put,
    .named_each = named_each,
    .pool_id = local_pool_id,
    .secret = local_secret,
    .status = local_status,
    .settle = local_settle,
    .close = local_close,
};

static int step(int error, const char *what, char why[256])
{
    if (error && !why[0])
        snprintf(why, 256, "%s: %s", what, sl_strerror(error));
    return error;
}

static int open_steps(struct local *l, char why[256])
{
    int error = pool_open(l, l->options.pool, why);
    if (error)
        return step(error, "opening the pool", why);
    error = meta_open(l, why);
    if (error)
        return step(error, "opening the metadata", why);
    error = seg_open(l, why);
    if (error)
        return step(error, "opening the segments", why);
    error = cache_open(l, why);
    if (error)
        return step(error, "making the cache", why);
    error = holds_open(l);
    if (error)
        return step(error, "remembering what is open", why);
    error = fixed_open(l);
    if (error)
        return step(error, "registering the cache", why);
    error = readahead_open(l);
    if (error)
        return step(error, "starting read-ahead", why);
    error = writer_start(l);
    if (error)
        return step(error, "starting the writer", why);
    return step(reaper_start(l), "starting background work", why);
}

int store_local_open(const struct store_options *options, struct store **out, char why[256])
{
    struct local *l = calloc(1, sizeof(*l));
    if (l)
        l->share_most = STORE_CLONE_ONCE / STORE_CHUNK;
    why[0] = 0;
    if (!l)
        return step(-ENOMEM, "opening the pool", why);
    l->store.ops = &local_ops;
    l->options = *options;
    l->dir_fd = l->lock_fd = -1;
    int error = open_steps(l, why);
    if (error) {
        local_close(&l->store);
        return error;
    }
    l->options.pool = l->path;
    *out = &l->store;
    return 0;
}
