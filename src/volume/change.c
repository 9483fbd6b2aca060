#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sluice/base_config.h"
#include "sluice/base_log.h"
#include "sluice/volume_gate.h"
#include "volume/change.h"
#include "volume/groups.h"
#include "volume/host.h"
#include "volume/policy.h"
#include "volume/rules.h"
#include "volume/tier.h"

struct store *volume_the_store;
struct coro_mutex volume_changes;

struct store *volume_store(void)
{
    return volume_the_store;
}

static void change_cache(const struct volume *v)
{
    struct store *store = volume_the_store;
    int error = store->ops->tree_cache ? store->ops->tree_cache(store, v->tree, &v->config.cache) : 0;
    if (error)
        log_error("volume", "%s: its cache policy is not in effect: %s", v->config.name, sl_strerror(error));
}

void change_in_effect(const struct volume *v)
{
    change_cache(v);
    tier_apply(v);
}

/* ---- start and stop ---- */

struct load {
    struct volume **volumes;
    uint32_t count, room;
    struct snapshot **snapshots;
    uint32_t snapshot_count, snapshot_room;
};

static void *grow(void *at, uint32_t *room)
{
    uint32_t more = *room ? *room * 2 : 64;
    void *grown = realloc(at, more * sizeof(void *));
    if (grown)
        *room = more;
    return grown;
}

static int load_volume(struct load *load, const struct store_tree *tree, char why[256])
{
    if (load->count == load->room) {
        struct volume **more = grow(load->volumes, &load->room);
        if (!more)
            return -ENOMEM;
        load->volumes = more;
    }
    int error = props_load(tree, &load->volumes[load->count], why);
    load->count += !error;
    return error;
}

static int load_snapshot(struct load *load, const struct store_tree *tree, char why[256])
{
    if (load->snapshot_count == load->snapshot_room) {
        struct snapshot **more = grow(load->snapshots, &load->snapshot_room);
        if (!more)
            return -ENOMEM;
        load->snapshots = more;
    }
    int error = snapshot_load(tree, &load->snapshots[load->snapshot_count], why);
    load->snapshot_count += !error;
    return error;
}

static int load_tree(void *arg, const struct store_tree *tree)
{
    struct load *load = arg;
    char why[256];
    if (tree->props_length == 0)
        return 0;
    int error = tree->parent ? load_snapshot(load, tree, why) : load_volume(load, tree, why);
    if (error && error != -ENOMEM) /* the others shall be served all the same */
        log_error("volume", "%s number %u is not served: %s", tree->parent ? "snapshot" : "volume", tree->id, why);
    return error == -ENOMEM ? error : 0;
}

static int by_volume(const void *a, const void *b)
{
    const struct snapshot *const *x = a, *const *y = b;
    return ((*x)->volume > (*y)->volume) - ((*x)->volume < (*y)->volume);
}

/* Each volume's share of the snapshots, which are sorted by volume. */
static int give_snapshots(struct load *load, struct volume *v)
{
    uint32_t first = 0, end = load->snapshot_count;
    while (first < end) {
        uint32_t middle = first + (end - first) / 2;
        if (load->snapshots[middle]->volume < v->tree)
            first = middle + 1;
        else
            end = middle;
    }
    for (end = first; end < load->snapshot_count && load->snapshots[end]->volume == v->tree; end++)
        ;
    return snapshots_load(v->snapshots, load->snapshots + first, end - first);
}

static int load_all(struct load *load)
{
    uint32_t present = 0;
    int error = 0;
    if (load->snapshot_count)
        qsort(load->snapshots, load->snapshot_count, sizeof *load->snapshots, by_volume);
    for (uint32_t i = 0; i < load->count && !error; i++)
        error = give_snapshots(load, load->volumes[i]);
    for (uint32_t i = 0; i < load->count && !error; i++) {
        struct volume *v = load->volumes[i];
        if (v->deleted) {
            change_cache(v);
            error = deleted_add(v);
        } else {
            change_in_effect(v);
            load->volumes[present++] = v;
        }
    }
    return error ? error : table_load(load->volumes, present);
}

static const struct volume_watcher *watcher;

void volume_watch(const struct volume_watcher *with)
{
    watcher = with;
}

void change_tell_access(void)
{
    if (watcher)
        watcher->access_changed();
}

void change_tell_restoring(uint32_t volume, bool begins)
{
    if (watcher)
        watcher->restoring(volume, begins);
}

int volume_start(struct store *from)
{
    struct load load = {0};
    volume_the_store = from;
    int error = from->ops->tree_each(from, load_tree, &load);
    if (!error)
        error = policies_start(from);
    if (!error)
        error = tiers_start(from);
    if (!error)
        error = load_all(&load); /* what it took over stays when it fails: the server does not start then */
    free(load.volumes);
    free(load.snapshots);
    return error;
}

void volume_stop(void)
{
    gate_stop();
    table_free();
    deleted_free();
    schedule_stop();
    policies_stop();
    tiers_stop();
    host_addresses_free();
    groups_free();
    volume_the_store = NULL;
}

/* ---- changes, holding the lock ---- */

int change_no_memory(char why[256])
{
    snprintf(why, 256, "no memory");
    return -ENOMEM;
}

int change_store_said(int error, char why[256])
{
    if (error == -ENOSPC)
        snprintf(why, 256, "the pool is full; deleting files, snapshots or volumes makes room");
    else if (error == SL_EFROZEN)
        snprintf(why, 256, "the pool takes no changes at present; sluice status says why");
    else if (error)
        snprintf(why, 256, "the pool did not take the change: %s", sl_strerror(error));
    return error;
}

int change_name_is_free(const char *name, const struct volume *except, char why[256])
{
    struct volume *there = table_by_name(table_current(), name, strlen(name));
    if (!there || there == except)
        return 0;
    snprintf(why, 256, "there is a volume '%s' already; choose another name", name);
    return -EEXIST;
}

static int size_is_right(const struct volume_config *config, char why[256])
{
    enum { FILES_LEAST = 2 };
    char a[SIZE_TEXT], b[SIZE_TEXT];
    if (config->size > STORE_FILE_MAX)
        snprintf(why, 256, "a volume's size is at most 8Ei less one byte");
    else if (config->size && config->size < STORE_BLOCK)
        snprintf(why, 256, "a volume's size is at least a block, 4Ki; none is no limit");
    else if (config->files && config->files < FILES_LEAST)
        snprintf(why, 256, "a volume holds at least 2 files, of which its root directory is one; none is no limit");
    else if ((config->reserve_bytes || config->reserve_percent) && !config->size)
        snprintf(why, 256, "a snapshot-reserve is a part of the size, and %s has none; size=2T beside it gives it one",
                 config->name);
    else if (config->size && volume_reserve_of(config) + STORE_BLOCK > config->size)
        snprintf(why, 256, "snapshot-reserve=%s leaves nothing of the size of %s",
                 size_exact(volume_reserve_of(config), a), size_exact(config->size, b));
    else
        return 0;
    return -EINVAL;
}

uint64_t volume_reserve_of(const struct volume_config *config)
{
    enum { PERCENT = 100 };
    uint64_t part = (uint64_t)((unsigned __int128)config->size * config->reserve_percent / PERCENT);
    uint64_t reserve = config->reserve_percent ? part : config->reserve_bytes;
    return reserve > STORE_FILE_MAX ? STORE_FILE_MAX : reserve / STORE_BLOCK * STORE_BLOCK;
}

struct store_limits change_store_limits(const struct volume_config *config)
{
    uint64_t reserve = config->size ? volume_reserve_of(config) : 0;
    return (struct store_limits){.bytes = config->size - reserve, .files = config->files};
}

int change_config_is_right(const struct volume_config *config, const struct volume *old, char why[256])
{
    int error = volume_name_check(config->name, why);
    if (!error)
        error = size_is_right(config, why);
    return error ? error : tier_fits(config, old ? &old->config : NULL, why);
}

static int create(struct volume *v, uint32_t uid, uint32_t gid, uint32_t mode, char why[256])
{
    struct store *store = volume_the_store;
    int error = change_config_is_right(&v->config, NULL, why);
    if (!error)
        error = change_name_is_free(v->config.name, NULL, why);
    if (error)
        return error;
    char *props = props_dump(v);
    struct volume_table *fresh = table_prepare(NULL, v);
    if (!props || !fresh) {
        error = change_no_memory(why);
    } else {
        const struct store_limits limits = change_store_limits(&v->config);
        error = store->ops->tree_create(store, props, strlen(props), &limits, uid, gid, mode, &v->tree);
        change_store_said(error, why);
    }
    free(props);
    if (error) {
        free(fresh);
    } else {
        table_publish(fresh, NULL);
        change_in_effect(v);
    }
    return error;
}

/* One that was never published. */
static void discard(struct volume *v)
{
    free(v->snapshots);
    volume_free(v);
}

int volume_create(const struct volume_config *config, uint32_t uid, uint32_t gid, uint32_t mode,
                  uint32_t *tree, char why[256])
{
    struct volume *v = volume_new(0, config, volume_now(), NULL);
    if (!v)
        return change_no_memory(why);
    coro_mutex_lock(&volume_changes);
    int error = create(v, uid, gid, mode, why);
    if (!error)
        *tree = v->tree;
    coro_mutex_unlock(&volume_changes);
    if (error)
        discard(v);
    return error;
}

/* A limit below what is used: says so in the words of the setting that was changed. */
static void holds_more(const struct volume *v, const struct store_limits *limits, char why[256])
{
    struct store *store = volume_the_store;
    struct store_usage usage = {0};
    char limit[SIZE_TEXT], used[SIZE_TEXT];
    int error = store->ops->usage(store, v->tree, &usage);
    if (!error && limits->files && usage.files_used > limits->files)
        snprintf(why, 256, "%s holds %llu files and directories, more than files=%llu; at least that many, or none",
                 v->config.name, (unsigned long long)usage.files_used, (unsigned long long)limits->files);
    else
        snprintf(why, 256, "%s holds %s (%llu bytes), more than the %s that its files would have; deleting some of "
                 "them makes it possible", v->config.name, size_format(usage.bytes_used, used),
                 (unsigned long long)usage.bytes_used, size_exact(limits->bytes, limit));
}

static bool same_rules(const struct volume_config *a, const struct volume_config *b)
{
    return a->rule_count == b->rule_count &&
           (!a->rule_count || memcmp(a->rules, b->rules, a->rule_count * sizeof *a->rules) == 0);
}

int change_write(struct volume *old, struct volume *v, char why[256])
{
    struct store *store = volume_the_store;
    int error = change_name_is_free(v->config.name, old, why);
    if (error)
        return error;
    char *props = props_dump(v);
    struct volume_table *fresh = table_prepare(old, v);
    if (!props || !fresh) {
        error = change_no_memory(why);
    } else {
        const struct store_limits limits = change_store_limits(&v->config);
        error = store->ops->tree_update(store, v->tree, props, strlen(props), &limits);
        if (error == -EDQUOT)
            holds_more(v, &limits, why);
        else
            change_store_said(error, why);
    }
    free(props);
    if (error) {
        free(fresh);
        return error;
    }
    bool tell = old && !same_rules(&old->config, &v->config);
    table_publish(fresh, old);
    change_in_effect(v);
    if (tell)
        change_tell_access();
    return 0;
}

int change_gone(char why[256])
{
    snprintf(why, 256, "the volume is not there any more");
    return -ESTALE;
}

static int change_and_write(struct volume *old, struct volume *v, volume_change_fn *change, void *arg, char why[256])
{
    int error = change(arg, &v->config, why);
    if (!error)
        error = change_config_is_right(&v->config, old, why);
    return error ? error : change_write(old, v, why);
}

int volume_change(uint32_t tree, volume_change_fn *change, void *arg, char why[256])
{
    int error;
    coro_mutex_lock(&volume_changes);
    struct volume *old = table_by_tree(table_current(), tree);
    struct volume *v = old ? volume_next(old, &old->config) : NULL;
    if (!old)
        error = change_gone(why);
    else if (!v)
        error = change_no_memory(why);
    else
        error = change_and_write(old, v, change, arg, why);
    coro_mutex_unlock(&volume_changes);
    if (error)
        volume_free(v);
    return error;
}

static int replace(void *arg, struct volume_config *config, char why[256])
{
    const struct volume_config *with = arg;
    struct volume_rule *rules = calloc(with->rule_count + 1, sizeof *rules);
    if (!rules)
        return change_no_memory(why);
    if (with->rule_count)
        memcpy(rules, with->rules, with->rule_count * sizeof *rules);
    free(config->rules);
    *config = *with;
    config->rules = rules;
    return 0;
}

int volume_update(uint32_t tree, const struct volume_config *config, char why[256])
{
    return volume_change(tree, replace, (void *)config, why);
}
