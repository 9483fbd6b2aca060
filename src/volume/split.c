/* Clones that get their own copy of what they share: one after another, in the background; whether it is wanted is in
 * the volume's record, so that it goes on after a restart. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "sluice/base_log.h"
#include "volume/change.h"

static struct {
    _Atomic uint32_t tree; /* 0: none at work */
    _Atomic uint64_t bytes, total;
    atomic_bool stop;
} job;
static struct coro_mutex running;

static bool keeps_going(void *arg, uint64_t bytes)
{
    atomic_store(&job.bytes, bytes);
    return !atomic_load(&job.stop) && volume_split_state(atomic_load(&job.tree)) == VOLUME_SPLIT_WANTED;
}

enum volume_split volume_split_state(uint32_t tree)
{
    rcu_read_lock();
    struct volume *v = table_by_tree(table_current(), tree);
    enum volume_split state = v ? v->config.split : VOLUME_SPLIT_NONE;
    rcu_read_unlock();
    return state;
}

bool volume_split_progress(uint32_t tree, uint64_t *bytes, uint64_t *total)
{
    *bytes = atomic_load(&job.bytes);
    *total = atomic_load(&job.total);
    return atomic_load(&job.tree) == tree;
}

/* May the state become this one? */
static int may_become(const struct volume *v, enum volume_split state, char why[256])
{
    enum volume_split now = v->config.split;
    if (!v->origin)
        snprintf(why, 256, "it is no clone, so it shares nothing that could be split off");
    else if (state == VOLUME_SPLIT_PAUSED && now != VOLUME_SPLIT_WANTED)
        snprintf(why, 256, now == VOLUME_SPLIT_NONE ? "it is not being split" : "it is paused already");
    else
        return 0;
    return -EINVAL;
}

static int set_state(uint32_t tree, enum volume_split state, char why[256])
{
    coro_mutex_lock(&volume_changes);
    struct volume *old = table_by_tree(table_current(), tree);
    struct volume *v = NULL;
    int error = old ? may_become(old, state, why) : change_gone(why);
    if (!error) {
        struct volume_config config = old->config;
        config.split = state;
        v = volume_next(old, &config);
        error = v ? change_write(old, v, why) : change_no_memory(why);
    }
    coro_mutex_unlock(&volume_changes);
    if (error)
        volume_free(v);
    return error;
}

int volume_split(uint32_t tree, bool pause, char why[256])
{
    return set_state(tree, pause ? VOLUME_SPLIT_PAUSED : VOLUME_SPLIT_WANTED, why);
}

static int find_wanted(void *arg, const struct volume_info *info)
{
    if (info->config->split != VOLUME_SPLIT_WANTED)
        return 0;
    *(uint32_t *)arg = info->tree;
    return -EEXIST;
}

/* False: it is still wanted, and the next round tries again. */
static bool run(uint32_t tree)
{
    struct store *store = volume_the_store;
    struct store_usage usage = {0};
    char why[256] = "";
    store->ops->usage(store, tree, &usage);
    atomic_store(&job.bytes, 0);
    atomic_store(&job.total, usage.bytes_used);
    atomic_store(&job.tree, tree);
    int error = store->ops->split(store, tree, keeps_going, NULL);
    atomic_store(&job.tree, 0);
    if (error == SL_EFROZEN)
        return false; /* it says so itself, and takes changes again by itself */
    if (!error)
        error = set_state(tree, VOLUME_SPLIT_NONE, why);
    if (!error || error == -ECANCELED || error == -ESTALE)
        return true;
    log_warning("volume", "splitting volume number %u is paused: %s", tree, *why ? why : sl_strerror(error));
    return set_state(tree, VOLUME_SPLIT_PAUSED, why) == 0;
}

void volume_split_some(void)
{
    uint32_t tree = 0;
    coro_mutex_lock(&running);
    while (!atomic_load(&job.stop) && volume_each(find_wanted, &tree) == -EEXIST && run(tree))
        ;
    coro_mutex_unlock(&running);
}

void volume_split_stop(void)
{
    atomic_store(&job.stop, true);
}
