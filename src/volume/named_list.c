#include "volume/named_list.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "volume/change.h"

static char *item_at(const struct named_list *l, unsigned at)
{
    return l->items + at * l->size;
}

static unsigned position(const struct named_list *l, const char *name, bool *there)
{
    unsigned at = 0;
    while (at < l->count && strcmp(item_at(l, at), name) < 0)
        at++;
    *there = at < l->count && strcmp(item_at(l, at), name) == 0;
    return at;
}

static int make_room(struct named_list *l)
{
    if (l->count < l->room)
        return 0;
    unsigned room = l->room ? l->room * 2 : 16;
    char *more = realloc(l->items, room * l->size);
    if (!more)
        return -ENOMEM;
    l->items = more;
    l->room = room;
    return 0;
}

int named_list_set(struct named_list *l, const void *item)
{
    bool there;
    pthread_mutex_lock(&l->lock);
    unsigned at = position(l, item, &there);
    int error = there ? 0 : make_room(l);
    if (!error && !there) {
        memmove(item_at(l, at + 1), item_at(l, at), (l->count - at) * l->size);
        l->count++;
    }
    if (!error)
        memcpy(item_at(l, at), item, l->size);
    pthread_mutex_unlock(&l->lock);
    return error;
}

static void list_remove(struct named_list *l, const char *name)
{
    bool there;
    pthread_mutex_lock(&l->lock);
    unsigned at = position(l, name, &there);
    if (there)
        memmove(item_at(l, at), item_at(l, at + 1), (--l->count - at) * l->size);
    pthread_mutex_unlock(&l->lock);
}

int named_list_get(struct named_list *l, const char *name, void *out)
{
    bool there;
    pthread_mutex_lock(&l->lock);
    unsigned at = position(l, name, &there);
    if (there)
        memcpy(out, item_at(l, at), l->size);
    pthread_mutex_unlock(&l->lock);
    return there ? 0 : -ENOENT;
}

int named_list_each(struct named_list *l, int (*each)(void *arg, const void *item), void *arg)
{
    int result = 0;
    pthread_mutex_lock(&l->lock);
    for (unsigned i = 0; i < l->count && result >= 0; i++)
        result = each(arg, item_at(l, i));
    pthread_mutex_unlock(&l->lock);
    return result < 0 ? result : 0;
}

void named_list_free(struct named_list *l)
{
    free(l->items);
    l->items = NULL;
    l->count = l->room = 0;
}

/* ---- records ---- */

/* Keys have 48 characters and names 64: the name is in the value too. */
static void key_of(const struct named_list *l, const char *name, char key[64])
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (const char *at = name; *at; at++)
        hash = (hash ^ (uint8_t)*at) * UINT64_C(1099511628211);
    snprintf(key, 64, "%s%016llx", l->prefix, (unsigned long long)hash);
}

struct loading {
    struct named_list *list;
    int (*load)(const char *name, const json_t *record);
};

static int load_one(void *arg, const char *key, const void *value, size_t length)
{
    const struct loading *loading = arg;
    if (strncmp(key, loading->list->prefix, strlen(loading->list->prefix)) != 0)
        return 0;
    json_t *record = json_loadb(value, length, 0, NULL);
    int error = loading->load(json_string_value(json_object_get(record, "name")), record);
    json_decref(record);
    return error == -ENOMEM ? error : 0;
}

int named_list_load(struct named_list *l, struct store *store, int (*load)(const char *name, const json_t *record))
{
    struct loading loading = {l, load};
    return store->ops->named_each ? store->ops->named_each(store, load_one, &loading) : 0;
}

int named_list_write(struct named_list *l, const void *item, json_t *record, char why[256])
{
    struct store *store = volume_the_store;
    char key[64], *text = record ? json_dumps(record, JSON_COMPACT) : NULL;
    json_decref(record);
    if (!text)
        return change_no_memory(why);
    key_of(l, item, key);
    int error = change_store_said(store->ops->named_put(store, key, text, strlen(text)), why);
    free(text);
    if (!error && named_list_set(l, item))
        error = change_no_memory(why);
    return error;
}

int named_list_delete(struct named_list *l, const char *name, char why[256])
{
    struct store *store = volume_the_store;
    char key[64];
    key_of(l, name, key);
    int error = change_store_said(store->ops->named_put(store, key, NULL, 0), why);
    if (!error)
        list_remove(l, name);
    return error;
}
