/* Volumes that were deleted and are kept for a while.  Their records say so; nobody finds them in the table. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sluice/base_log.h"
#include "sluice/volume_gate.h"
#include "volume/change.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the array; changes also hold volume_changes */
static struct volume **kept;
static uint32_t kept_count, kept_room;

int deleted_add(struct volume *v)
{
    int error = 0;
    pthread_mutex_lock(&lock);
    if (kept_count == kept_room) {
        uint32_t room = kept_room ? kept_room * 2 : 16;
        struct volume **more = realloc(kept, room * sizeof *more);
        error = more ? 0 : -ENOMEM;
        kept = more ? more : kept;
        kept_room = more ? room : kept_room;
    }
    if (!error) {
        uint32_t at = kept_count++;
        for (; at && kept[at - 1]->deleted > v->deleted; at--)
            kept[at] = kept[at - 1];
        kept[at] = v;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

/* Takes it out; it is the caller's again. */
static void deleted_remove(const struct volume *v)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < kept_count; i++)
        if (kept[i] == v) {
            memmove(&kept[i], &kept[i + 1], (--kept_count - i) * sizeof *kept);
            break;
        }
    pthread_mutex_unlock(&lock);
}

void deleted_free(void)
{
    for (uint32_t i = 0; i < kept_count; i++) {
        snapshots_drop(kept[i]->snapshots);
        volume_free(kept[i]);
    }
    rcu_barrier();
    free(kept);
    kept = NULL;
    kept_count = kept_room = 0;
}

int volume_each_deleted(int (*each)(void *arg, const struct volume_info *info, int64_t deleted), void *arg)
{
    int result = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < kept_count && result >= 0; i++) {
        const struct volume *v = kept[i];
        struct volume_info info = {
            .tree = v->tree, .config = &v->config, .created = v->created, .origin = v->origin};
        result = each(arg, &info, v->deleted);
    }
    pthread_mutex_unlock(&lock);
    return result < 0 ? result : 0;
}

/* ---- delete ---- */

/* Out of the table, and into the list of those that are kept. */
static int set_aside(struct volume *old, int64_t when, char why[256])
{
    struct store *store = volume_the_store;
    struct volume *v = volume_next(old, &old->config);
    if (v)
        v->deleted = when;
    char *props = v ? props_dump(v) : NULL;
    struct volume_table *fresh = table_prepare(old, NULL);
    int error = props && fresh ? deleted_add(v) : -ENOMEM;
    if (error) {
        volume_free(v);
        v = NULL;
        change_no_memory(why);
    } else {
        const struct store_limits limits = change_store_limits(&v->config);
        error = store->ops->tree_update(store, v->tree, props, strlen(props), &limits);
        change_store_said(error, why);
    }
    free(props);
    if (!error) {
        table_publish(fresh, old);
        gate_forget(v->tree);
        change_tell_access();
        return 0;
    }
    free(fresh);
    if (v) {
        deleted_remove(v);
        volume_free(v);
    }
    return error;
}

/* The trees of one that is set aside, its snapshots first.  What is left after a failure is still set aside. */
static int let_go(struct volume *v)
{
    struct store *store = volume_the_store;
    struct snapshot_set *set = v->snapshots;
    int error = 0;
    while (!error && snapshot_list_of(set)->count) {
        struct snapshot *last = snapshot_list_of(set)->by_tree[snapshot_list_of(set)->count - 1];
        struct snapshot_list *fresh = snapshots_prepare(set, last, NULL);
        error = fresh ? store->ops->tree_delete(store, last->tree) : -ENOMEM;
        if (error)
            free(fresh);
        else
            snapshots_publish(set, fresh, last, NULL);
    }
    if (!error)
        error = store->ops->tree_delete(store, v->tree);
    if (error)
        return error;
    deleted_remove(v);
    snapshots_drop(set);
    volume_free_later(v);
    change_tell_access();
    return 0;
}

static struct volume *first_due(int64_t now)
{
    pthread_mutex_lock(&lock);
    struct volume *v = kept_count && kept[0]->deleted + VOLUME_KEPT_SECONDS <= now ? kept[0] : NULL;
    pthread_mutex_unlock(&lock);
    return v;
}

/* The time by which they age: it begins with the clock's, goes back with it (what is deleted then must not look old),
 * and runs no more than an hour between two calls ahead of the other clock, which nobody sets. */
static int64_t aged(void)
{
    enum { JUMP = 3600 };
    static int64_t now, last_wall, last_steady;
    struct timespec steady;
    clock_gettime(CLOCK_BOOTTIME, &steady);
    int64_t wall = volume_now(), passed = wall - last_wall, really = (int64_t)steady.tv_sec - last_steady;
    if (!now)
        now = wall;
    else if (passed > 0)
        now += passed > really + JUMP ? really : passed;
    if (now > wall)
        now = wall;
    last_wall = wall;
    last_steady = steady.tv_sec;
    return now;
}

static int purge(int64_t now)
{
    int error = 0;
    struct volume *v;
    coro_mutex_lock(&volume_changes);
    while (!error && (v = first_due(now))) {
        error = let_go(v);
        coro_mutex_unlock(&volume_changes); /* others have their turn */
        coro_mutex_lock(&volume_changes);
    }
    coro_mutex_unlock(&volume_changes);
    return error;
}

int volume_purge(void)
{
    return purge(aged());
}

int change_not_locked(const struct volume *v, int64_t now, char why[256])
{
    const struct snapshot_list *list = snapshot_list_of(v->snapshots);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct snapshot *s = list->by_tree[i];
        if (s->locked_until <= now)
            continue;
        snprintf(why, 256, "its snapshot '%s' is locked; sluice snapshot list %s shows until when", s->name,
                 v->config.name);
        return -EBUSY;
    }
    return 0;
}

int volume_delete(uint32_t tree, bool now, char why[256])
{
    int64_t at = volume_now();
    coro_mutex_lock(&volume_changes);
    struct volume *old = table_by_tree(table_current(), tree);
    int error = old ? change_not_locked(old, at, why) : change_gone(why);
    if (!error)
        error = set_aside(old, now ? 1 : at, why); /* 1: due since 1970 */
    coro_mutex_unlock(&volume_changes);
    if (error || !now)
        return error;
    return change_store_said(purge(1 + VOLUME_KEPT_SECONDS), why);
}

/* ---- undelete ---- */

static struct volume *last_deleted(const char *name)
{
    for (uint32_t i = kept_count; i-- > 0;)
        if (strcmp(kept[i]->config.name, name) == 0 && kept[i]->deleted > 1)
            return kept[i];
    return NULL;
}

static int take_back(struct volume *old, const char *to, uint32_t *tree, char why[256])
{
    struct volume_config config = old->config;
    struct volume_policy policy;
    snprintf(config.name, sizeof config.name, "%s", to);
    if (*config.policy && policy_get(config.policy, &policy)) {
        log_warning("volume", "%s comes back without a policy: '%s' has been deleted", to, config.policy);
        config.policy[0] = 0;
    }
    struct volume *v = volume_next(old, &config);
    if (!v)
        return change_no_memory(why);
    v->deleted = 0;
    int error = change_write(NULL, v, why);
    if (error) {
        volume_free(v);
        return error;
    }
    *tree = v->tree;
    deleted_remove(old);
    volume_free_later(old);
    return 0;
}

int volume_undelete(const char *name, const char *to, uint32_t *tree, char why[256])
{
    int error = volume_name_check(to, why);
    if (error)
        return error;
    coro_mutex_lock(&volume_changes);
    struct volume *old = last_deleted(name);
    if (old) {
        error = take_back(old, to, tree, why);
    } else {
        snprintf(why, 256, "no deleted volume '%.80s' is kept; sluice volume list --deleted shows what there is", name);
        error = -ENOENT;
    }
    coro_mutex_unlock(&volume_changes);
    return error;
}
