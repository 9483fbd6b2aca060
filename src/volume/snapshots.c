#include "volume/snapshots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By tree number: they are given out one after another, so the number itself spreads well. */
enum { BUCKETS = 4096 };
static struct snapshot *buckets[BUCKETS];

static const struct snapshot_list empty;

struct snapshot *snapshot_new(const struct volume_snapshot *from)
{
    struct snapshot *s = calloc(1, sizeof *s);
    if (!s || strlen(from->name) >= sizeof s->name) {
        free(s);
        return NULL;
    }
    s->tree = from->tree;
    s->volume = from->volume;
    s->number = from->number;
    s->created = from->created;
    s->locked_until = from->locked_until;
    strcpy(s->name, from->name);
    snprintf(s->by, sizeof s->by, "%s", from->by);
    return s;
}

/* ---- the record ---- */

char *snapshot_dump(const struct snapshot *s)
{
    json_t *all = json_pack("{s:s, s:s, s:I}", "name", s->name, "by", s->by, "created", (json_int_t)s->created);
    if (all && s->locked_until)
        json_object_set_new(all, "locked_until", json_integer(s->locked_until));
    char *text = all ? json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(all);
    return text;
}

int snapshot_load(const struct store_tree *tree, struct snapshot **out, char why[256])
{
    json_t *props = json_loadb(tree->props, tree->props_length, 0, NULL);
    const char *name = json_string_value(json_object_get(props, "name"));
    const char *by = json_string_value(json_object_get(props, "by"));
    int error = 0;
    if (!name || volume_name_check(name, why)) {
        snprintf(why, 256, "its record has no valid name");
        error = -EINVAL;
    } else {
        struct volume_snapshot from = {
            .tree = tree->id,
            .volume = tree->parent,
            .number = tree->number,
            .name = name,
            .by = by ? by : "admin",
            .created = json_integer_value(json_object_get(props, "created")),
            .locked_until = json_integer_value(json_object_get(props, "locked_until")),
        };
        *out = snapshot_new(&from);
        if (!*out) {
            snprintf(why, 256, "no memory");
            error = -ENOMEM;
        }
    }
    json_decref(props);
    return error;
}

/* ---- the table of all ---- */

static struct snapshot **bucket_of(uint32_t tree)
{
    return &buckets[tree % BUCKETS];
}

static void table_add(struct snapshot *s)
{
    struct snapshot **bucket = bucket_of(s->tree);
    s->next = *bucket;
    rcu_assign_pointer(*bucket, s);
}

static void table_remove(struct snapshot *s)
{
    struct snapshot **link = bucket_of(s->tree);
    while (*link != s)
        link = &(*link)->next;
    rcu_assign_pointer(*link, s->next);
}

struct snapshot *snapshot_by_tree(uint32_t tree)
{
    struct snapshot *s = rcu_dereference(*bucket_of(tree));
    while (s && s->tree != tree)
        s = rcu_dereference(s->next);
    return s;
}

/* ---- a volume's list ---- */

const struct snapshot_list *snapshot_list_of(const struct snapshot_set *set)
{
    const struct snapshot_list *list = rcu_dereference(set->list);
    return list ? list : &empty;
}

static int compare_name(const char *name, size_t length, const char *other)
{
    size_t other_length = strlen(other);
    int order = memcmp(name, other, length < other_length ? length : other_length);
    return order ? order : (length > other_length) - (length < other_length);
}

/* Where the name is, or would be. */
static uint32_t name_position(const struct snapshot_list *list, const char *name, size_t length, bool *there)
{
    uint32_t low = 0, high = list->count;
    *there = false;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = compare_name(name, length, list->by_name[middle]->name);
        *there = *there || order == 0;
        if (order <= 0)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct snapshot *snapshot_by_name(const struct snapshot_set *set, const char *name, size_t length)
{
    const struct snapshot_list *list = snapshot_list_of(set);
    bool there;
    uint32_t at = name_position(list, name, length, &there);
    return there ? list->by_name[at] : NULL;
}

static struct snapshot_list *list_new(uint32_t room)
{
    struct snapshot_list *list = calloc(1, sizeof *list + 2 * (size_t)room * sizeof list->at[0]);
    if (list) {
        list->by_tree = list->at;
        list->by_name = list->at + room;
    }
    return list;
}

struct snapshot_list *snapshots_prepare(const struct snapshot_set *set, const struct snapshot *without,
                                        struct snapshot *with)
{
    const struct snapshot_list *old = snapshot_list_of(set);
    struct snapshot_list *fresh = list_new(old->count + 1);
    if (!fresh)
        return NULL;
    uint32_t names = 0;
    bool there;
    uint32_t at = with ? name_position(old, with->name, strlen(with->name), &there) : 0;
    for (uint32_t i = 0; i < old->count; i++) {
        if (with && i == at)
            fresh->by_name[names++] = with;
        if (old->by_name[i] != without)
            fresh->by_name[names++] = old->by_name[i];
        if (old->by_tree[i] != without)
            fresh->by_tree[fresh->count++] = old->by_tree[i];
    }
    if (with && at == old->count)
        fresh->by_name[names++] = with;
    if (with)
        fresh->by_tree[fresh->count++] = with; /* to its place when its number is known */
    return fresh;
}

static void settle_last(struct snapshot_list *list)
{
    for (uint32_t i = list->count - 1; i > 0 && list->by_tree[i - 1]->tree > list->by_tree[i]->tree; i--) {
        struct snapshot *later = list->by_tree[i - 1];
        list->by_tree[i - 1] = list->by_tree[i];
        list->by_tree[i] = later;
    }
}

static void list_free_rcu(struct rcu_head *head)
{
    free(caa_container_of(head, struct snapshot_list, rcu));
}

static void snapshot_free_rcu(struct rcu_head *head)
{
    free(caa_container_of(head, struct snapshot, rcu));
}

/* A snapshot that takes another's place is there before that one goes: no reader finds neither. */
void snapshots_publish(struct snapshot_set *set, struct snapshot_list *fresh, struct snapshot *without,
                       struct snapshot *with)
{
    struct snapshot_list *old = set->list;
    if (with) {
        settle_last(fresh);
        table_add(with);
    }
    rcu_assign_pointer(set->list, fresh);
    if (without) {
        table_remove(without);
        call_rcu(&without->rcu, snapshot_free_rcu);
    }
    if (old)
        call_rcu(&old->rcu, list_free_rcu);
}

static int compare_trees(const void *a, const void *b)
{
    const struct snapshot *const *x = a, *const *y = b;
    return ((*x)->tree > (*y)->tree) - ((*x)->tree < (*y)->tree);
}

static int compare_names(const void *a, const void *b)
{
    const struct snapshot *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

int snapshots_load(struct snapshot_set *set, struct snapshot **snapshots, uint32_t count)
{
    struct snapshot_list *list = list_new(count);
    if (!list)
        return -ENOMEM;
    list->count = count;
    if (count) { /* without any there is no array either */
        memcpy(list->by_tree, snapshots, count * sizeof *snapshots);
        memcpy(list->by_name, snapshots, count * sizeof *snapshots);
    }
    qsort(list->by_tree, count, sizeof *snapshots, compare_trees);
    qsort(list->by_name, count, sizeof *snapshots, compare_names);
    for (uint32_t i = 0; i < count; i++)
        table_add(snapshots[i]);
    rcu_assign_pointer(set->list, list);
    return 0;
}

static void set_free_rcu(struct rcu_head *head)
{
    free(caa_container_of(head, struct snapshot_set, rcu));
}

void snapshots_drop(struct snapshot_set *set)
{
    struct snapshot_list *list = set->list;
    for (uint32_t i = 0; list && i < list->count; i++) {
        table_remove(list->by_tree[i]);
        call_rcu(&list->by_tree[i]->rcu, snapshot_free_rcu);
    }
    if (list)
        call_rcu(&list->rcu, list_free_rcu);
    call_rcu(&set->rcu, set_free_rcu);
}
