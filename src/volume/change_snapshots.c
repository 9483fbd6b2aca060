#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "volume/change.h"

enum { VOLUMES_MOST = 256 }; /* in one snapshot of several */

static int not_there(char why[256])
{
    snprintf(why, 256, "the snapshot is not there any more");
    return -ESTALE;
}

static int in_the_past(char why[256])
{
    snprintf(why, 256, "that is in the past; right would be a time to come");
    return -EINVAL;
}

static bool find(uint32_t tree, struct volume **v, struct snapshot **s)
{
    *s = snapshot_by_tree(tree);
    *v = *s ? table_by_tree(table_current(), (*s)->volume) : NULL;
    return *v;
}

static int name_is_free(const struct volume *v, const char *name, char why[256])
{
    if (!snapshot_by_name(v->snapshots, name, strlen(name)))
        return 0;
    snprintf(why, 256, "there is a snapshot %s@%s already; choose another name", v->config.name, name);
    return -EEXIST;
}

/* ---- create ---- */

/* What one volume's part of a snapshot needs before the store is asked. */
struct taking {
    struct volume *volume;
    struct snapshot *snapshot;
    struct snapshot_list *list;
    char *props;
};

static int take_ready(struct taking *t, const struct volume_snapshot *as, char why[256])
{
    int error = name_is_free(t->volume, as->name, why);
    if (error)
        return error;
    t->snapshot = snapshot_new(as);
    if (t->snapshot)
        t->snapshot->volume = t->volume->tree;
    t->props = t->snapshot ? snapshot_dump(t->snapshot) : NULL;
    t->list = t->props ? snapshots_prepare(t->volume->snapshots, NULL, t->snapshot) : NULL;
    return t->list ? 0 : change_no_memory(why);
}

static void take_undo(struct taking *t)
{
    free(t->snapshot);
    free(t->list);
}

static void take_publish(struct taking *t, const struct store_snapshot *made)
{
    t->snapshot->tree = made->id;
    t->snapshot->number = made->number;
    snapshots_publish(t->volume->snapshots, t->list, NULL, t->snapshot);
}

/* All volumes are there, none twice. */
static int find_volumes(struct taking *all, const uint32_t *volumes, unsigned count, char why[256])
{
    for (unsigned i = 0; i < count; i++) {
        all[i].volume = table_by_tree(table_current(), volumes[i]);
        if (!all[i].volume)
            return change_gone(why);
        for (unsigned j = 0; j < i; j++)
            if (volumes[j] == volumes[i]) {
                snprintf(why, 256, "the volume %s is named twice", all[i].volume->config.name);
                return -EINVAL;
            }
    }
    return 0;
}

static int take(struct taking *all, struct store_snapshot *each, unsigned count, const struct volume_snapshot *as,
                char why[256])
{
    struct store *store = volume_the_store;
    int error = 0;
    for (unsigned i = 0; i < count && !error; i++) {
        error = take_ready(&all[i], as, why);
        if (!error)
            each[i] = (struct store_snapshot){
                .volume = all[i].volume->tree, .props = all[i].props, .props_length = strlen(all[i].props)};
    }
    if (!error)
        error = change_store_said(store->ops->snapshot(store, each, count), why);
    for (unsigned i = 0; i < count; i++) {
        free(all[i].props);
        if (error)
            take_undo(&all[i]);
        else
            take_publish(&all[i], &each[i]);
    }
    return error;
}

int volume_snapshot_create(const uint32_t *volumes, unsigned count, const char *name, const char *by, int64_t lock,
                           uint32_t *snapshots, char why[256])
{
    const struct volume_snapshot as = {.name = name, .by = by, .created = volume_now(), .locked_until = lock};
    int error = volume_name_check(name, why);
    if (error)
        return error;
    if (count == 0 || count > VOLUMES_MOST) {
        snprintf(why, 256, "a snapshot is of 1 to %d volumes", VOLUMES_MOST);
        return -EINVAL;
    }
    if (lock && lock <= as.created)
        return in_the_past(why);
    struct taking *all = calloc(count, sizeof *all);
    struct store_snapshot *each = calloc(count, sizeof *each);
    if (!all || !each) {
        error = change_no_memory(why);
    } else {
        coro_mutex_lock(&volume_changes);
        error = find_volumes(all, volumes, count, why);
        if (!error)
            error = take(all, each, count, &as, why);
        coro_mutex_unlock(&volume_changes);
    }
    for (unsigned i = 0; i < count && !error; i++)
        snapshots[i] = each[i].id;
    free(all);
    free(each);
    return error;
}

/* ---- delete ---- */

static int delete_it(struct volume *v, struct snapshot *s, char why[256])
{
    struct store *store = volume_the_store;
    if (s->locked_until > volume_now()) {
        snprintf(why, 256, "%s@%s is locked; sluice snapshot list %s shows until when", v->config.name, s->name,
                 v->config.name);
        return -EBUSY;
    }
    struct snapshot_list *fresh = snapshots_prepare(v->snapshots, s, NULL);
    if (!fresh)
        return change_no_memory(why);
    int error = change_store_said(store->ops->tree_delete(store, s->tree), why);
    if (error) {
        free(fresh);
        return error;
    }
    snapshots_publish(v->snapshots, fresh, s, NULL);
    change_tell_access();
    return 0;
}

int volume_snapshot_delete(uint32_t snapshot, char why[256])
{
    struct volume *v;
    struct snapshot *s;
    coro_mutex_lock(&volume_changes);
    int error = find(snapshot, &v, &s) ? delete_it(v, s, why) : not_there(why);
    coro_mutex_unlock(&volume_changes);
    return error;
}

/* ---- rename, lock ---- */

static int replace(struct volume *v, struct snapshot *old, const struct volume_snapshot *as, char why[256])
{
    static const struct store_limits none; /* its tree has none of its own */
    struct store *store = volume_the_store;
    struct snapshot *s = snapshot_new(as);
    char *props = s ? snapshot_dump(s) : NULL;
    struct snapshot_list *fresh = props ? snapshots_prepare(v->snapshots, old, s) : NULL;
    int error = fresh ? 0 : change_no_memory(why);
    if (!error)
        error = change_store_said(store->ops->tree_update(store, s->tree, props, strlen(props), &none), why);
    free(props);
    if (error) {
        free(s);
        free(fresh);
    } else {
        snapshots_publish(v->snapshots, fresh, old, s);
    }
    return error;
}

static struct volume_snapshot copy_of(const struct snapshot *s)
{
    return (struct volume_snapshot){.tree = s->tree,
                                    .volume = s->volume,
                                    .number = s->number,
                                    .name = s->name,
                                    .by = s->by,
                                    .created = s->created,
                                    .locked_until = s->locked_until};
}

int volume_snapshot_rename(uint32_t snapshot, const char *to, char why[256])
{
    struct volume *v;
    struct snapshot *s;
    int error = volume_name_check(to, why);
    if (error)
        return error;
    coro_mutex_lock(&volume_changes);
    error = find(snapshot, &v, &s) ? name_is_free(v, to, why) : not_there(why);
    if (!error) {
        struct volume_snapshot as = copy_of(s);
        as.name = to;
        error = replace(v, s, &as, why);
    }
    coro_mutex_unlock(&volume_changes);
    return error;
}

int volume_snapshot_lock(uint32_t snapshot, int64_t until, char why[256])
{
    struct volume *v;
    struct snapshot *s;
    coro_mutex_lock(&volume_changes);
    int error = find(snapshot, &v, &s) ? 0 : not_there(why);
    if (!error && until <= volume_now()) {
        error = in_the_past(why);
    } else if (!error && until < s->locked_until) {
        snprintf(why, 256, "it is locked for longer already, and a lock can only be made longer");
        error = -EINVAL;
    }
    if (!error) {
        struct volume_snapshot as = copy_of(s);
        as.locked_until = until;
        error = replace(v, s, &as, why);
    }
    coro_mutex_unlock(&volume_changes);
    return error;
}

/* ---- restore ---- */

static int restore_said(int error, char why[256])
{
    if (error != -EXDEV)
        return change_store_said(error, why);
    snprintf(why, 256, "the snapshot is of a volume that has nothing in common with this one; a clone of it would do");
    return error;
}

static int restore(struct volume *v, uint32_t snapshot, const char *safety, char why[256])
{
    struct store *store = volume_the_store;
    struct taking t = {.volume = v};
    struct volume_snapshot as = {.name = safety, .by = "restore", .created = volume_now()};
    struct store_snapshot made = {.volume = v->tree};
    int error = safety ? take_ready(&t, &as, why) : 0;
    if (!error && safety) {
        made.props = t.props;
        made.props_length = strlen(t.props);
    }
    change_tell_restoring(v->tree, true);
    if (!error)
        error = restore_said(store->ops->restore(store, v->tree, snapshot, safety ? &made : NULL), why);
    change_tell_restoring(v->tree, false);
    free(t.props);
    if (error)
        take_undo(&t);
    else if (safety)
        take_publish(&t, &made);
    return error;
}

int volume_restore(uint32_t volume, uint32_t snapshot, const char *safety, char why[256])
{
    int error = safety ? volume_name_check(safety, why) : 0;
    if (error)
        return error;
    coro_mutex_lock(&volume_changes);
    struct volume *v = table_by_tree(table_current(), volume);
    if (!v)
        error = change_gone(why);
    else if (!snapshot_by_tree(snapshot))
        error = not_there(why);
    else
        error = restore(v, snapshot, safety, why);
    coro_mutex_unlock(&volume_changes);
    return error;
}

/* ---- clone ---- */

static int make_clone(struct volume *v, uint32_t snapshot, char why[256])
{
    struct store *store = volume_the_store;
    int error = change_config_is_right(&v->config, NULL, why);
    if (!error)
        error = change_name_is_free(v->config.name, NULL, why);
    if (error)
        return error;
    const struct store_limits limits = change_store_limits(&v->config);
    char *props = props_dump(v);
    struct volume_table *fresh = table_prepare(NULL, v);
    if (!props || !fresh)
        error = change_no_memory(why);
    else
        error = change_store_said(store->ops->clone(store, snapshot, props, strlen(props), &limits, &v->tree), why);
    free(props);
    if (error) {
        free(fresh);
    } else {
        table_publish(fresh, NULL);
        change_in_effect(v);
    }
    return error;
}

int volume_clone(uint32_t snapshot, const struct volume_config *config, uint32_t *tree, char why[256])
{
    int error;
    struct volume *v = volume_new(0, config, volume_now(), NULL);
    if (!v)
        return change_no_memory(why);
    v->origin = snapshot;
    coro_mutex_lock(&volume_changes);
    if (snapshot_by_tree(snapshot)) {
        error = make_clone(v, snapshot, why);
    } else if (table_by_tree(table_current(), snapshot)) {
        snprintf(why, 256, "a clone is made of a snapshot, not of a volume that goes on changing; "
                           "sluice snapshot create takes one");
        error = -EINVAL;
    } else {
        error = not_there(why);
    }
    if (!error)
        *tree = v->tree;
    coro_mutex_unlock(&volume_changes);
    if (error) {
        free(v->snapshots);
        volume_free(v);
    }
    return error;
}
