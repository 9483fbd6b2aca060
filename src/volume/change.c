#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sluice/base_coro.h"
#include "sluice/base_log.h"
#include "volume/host.h"
#include "volume/rules.h"
#include "volume/table.h"

static struct store *store;
static struct coro_mutex changes; /* one change at a time, across the store's waits */

struct store *volume_store(void)
{
    return store;
}

/* ---- start and stop ---- */

struct load {
    struct volume **volumes;
    uint32_t count, room;
};

static int load_tree(void *arg, const struct store_tree *tree)
{
    struct load *load = arg;
    char why[256];
    if (tree->props_length == 0)
        return 0;
    if (load->count == load->room) {
        uint32_t room = load->room ? load->room * 2 : 64;
        struct volume **more = realloc(load->volumes, room * sizeof *more);
        if (!more)
            return -ENOMEM;
        load->volumes = more;
        load->room = room;
    }
    int error = props_load(tree, &load->volumes[load->count], why);
    if (error == -ENOMEM)
        return error;
    if (error) /* the others shall be served all the same */
        log_error("volume", "volume number %u is not served: %s", tree->id, why);
    else
        load->count++;
    return 0;
}

int volume_start(struct store *from)
{
    struct load load = {0};
    store = from;
    int error = store->ops->tree_each(store, load_tree, &load);
    if (!error)
        error = table_load(load.volumes, load.count);
    if (error)
        for (uint32_t i = 0; i < load.count; i++)
            volume_free(load.volumes[i]);
    free(load.volumes);
    return error;
}

void volume_stop(void)
{
    table_free();
    host_addresses_free();
    store = NULL;
}

/* ---- changes, holding the lock ---- */

static int no_memory(char why[256])
{
    snprintf(why, 256, "no memory");
    return -ENOMEM;
}

static int store_said(int error, char why[256])
{
    if (error)
        snprintf(why, 256, "the pool did not take the change: %s", sl_strerror(error));
    return error;
}

static int name_is_free(const char *name, const struct volume *except, char why[256])
{
    struct volume *there = table_by_name(table_current(), name, strlen(name));
    if (!there || there == except)
        return 0;
    snprintf(why, 256, "there is a volume '%s' already; choose another name", name);
    return -EEXIST;
}

static int size_is_right(uint64_t size, char why[256])
{
    if (size <= STORE_FILE_MAX)
        return 0;
    snprintf(why, 256, "a volume's size is at most 8E less one byte");
    return -EINVAL;
}

static int create(struct volume *v, uint32_t uid, uint32_t gid, uint32_t mode, char why[256])
{
    int error = name_is_free(v->config.name, NULL, why);
    if (error)
        return error;
    char *props = props_dump(v);
    struct volume_table *fresh = table_prepare(NULL, v);
    if (!props || !fresh) {
        error = no_memory(why);
    } else {
        error = store_said(store->ops->tree_create(store, props, strlen(props), v->config.size, uid,
                                                   gid, mode, &v->tree), why);
    }
    free(props);
    if (error)
        free(fresh);
    else
        table_publish(fresh, NULL);
    return error;
}

int volume_create(const struct volume_config *config, uint32_t uid, uint32_t gid, uint32_t mode,
                  uint32_t *tree, char why[256])
{
    int error = volume_name_check(config->name, why);
    if (!error)
        error = size_is_right(config->size, why);
    if (error)
        return error;
    struct volume *v = volume_new(0, config, time(NULL), NULL);
    if (!v)
        return no_memory(why);
    coro_mutex_lock(&changes);
    error = create(v, uid, gid, mode, why);
    if (!error)
        *tree = v->tree;
    coro_mutex_unlock(&changes);
    if (error)
        volume_free(v);
    return error;
}

static int update(struct volume *old, struct volume *v, char why[256])
{
    int error = name_is_free(v->config.name, old, why);
    if (error)
        return error;
    char *props = props_dump(v);
    struct volume_table *fresh = table_prepare(old, v);
    if (!props || !fresh)
        error = no_memory(why);
    else
        error = store_said(store->ops->tree_update(store, v->tree, props, strlen(props),
                                                   v->config.size), why);
    free(props);
    if (error)
        free(fresh);
    else
        table_publish(fresh, old);
    return error;
}

static int gone(char why[256])
{
    snprintf(why, 256, "the volume is not there any more");
    return -ESTALE;
}

int volume_update(uint32_t tree, const struct volume_config *config, char why[256])
{
    int error = volume_name_check(config->name, why);
    if (!error)
        error = size_is_right(config->size, why);
    if (error)
        return error;
    coro_mutex_lock(&changes);
    struct volume *old = table_by_tree(table_current(), tree);
    struct volume *v = old ? volume_new(tree, config, old->created, old->props) : NULL;
    if (!old)
        error = gone(why);
    else if (!v)
        error = no_memory(why);
    else
        error = update(old, v, why);
    coro_mutex_unlock(&changes);
    if (error)
        volume_free(v);
    return error;
}

int volume_delete(uint32_t tree, char why[256])
{
    coro_mutex_lock(&changes);
    int error = 0;
    struct volume *old = table_by_tree(table_current(), tree);
    struct volume_table *fresh = old ? table_prepare(old, NULL) : NULL;
    if (!old)
        error = gone(why);
    else if (!fresh)
        error = no_memory(why);
    else
        error = store_said(store->ops->tree_delete(store, tree), why);
    if (error)
        free(fresh);
    else
        table_publish(fresh, old);
    coro_mutex_unlock(&changes);
    return error;
}
