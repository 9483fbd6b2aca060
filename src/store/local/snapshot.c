/* Snapshots, clones and restores (contracts in sluice/store.h): a few records each, whatever the volume holds.  A
 * volume's live version becomes the snapshot's, and the volume goes on in a new child of it; a clone, or a volume that
 * is restored, goes on in a new child of the snapshot's version. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "store/local/meta_private.h"
#include "store/local/ops.h"
#include "store/local/reaper.h"
#include "store/local/writer.h"

static uint32_t tree_new_id(struct meta_txn *t)
{
    return (uint32_t)++group_counters(t->group)->tree;
}

struct usage_record tree_usage(struct meta_txn *t, uint32_t id)
{
    const struct tree_node *node = tree_table_find(meta_of(t)->trees, id);
    struct usage_record usage = {0};
    int64_t blocks, files;
    if (!node)
        node = tree_present(t, id);
    if (node) {
        usage.blocks = atomic_load(&node->tree.used_blocks);
        usage.files = atomic_load(&node->tree.used_files);
    }
    group_usage(t->group, id, &blocks, &files);
    usage.blocks += (uint64_t)blocks;
    usage.files += (uint64_t)files;
    return usage;
}

/* A new tree that begins with that usage. */
static int put_new_tree(struct meta_txn *t, const struct tree_record *record, const char *props,
                        const struct usage_record *usage)
{
    uint8_t value[RECORD_MAX];
    char key[64];
    if (tree_put(t, record, props))
        return t->failed;
    struct tree *tree = (struct tree *)&tree_present(t, record->id)->tree; /* nobody knows of it yet */
    atomic_store(&tree->used_blocks, usage->blocks);
    atomic_store(&tree->used_files, usage->files);
    snprintf(key, sizeof(key), "usage/%08x", record->id);
    return meta_system_put(t, key, value, usage_encode(usage, value));
}

/* ---- snapshots ---- */

/* Numbers are counted on, and used again only after all of them have been. */
static int next_number(struct meta_txn *t, const struct tree_record *volume, uint32_t *last, uint32_t *number)
{
    for (uint32_t tried = 0; tried < STORE_SNAPSHOTS_MOST; tried++) {
        *last = volume->number + 1 + tried;
        if (*last > 2 * STORE_SNAPSHOTS_MOST)
            *last -= STORE_SNAPSHOTS_MOST; /* still past the first round */
        *number = (*last - 1) % STORE_SNAPSHOTS_MOST + 1;
        if (*last <= STORE_SNAPSHOTS_MOST || !trees_have_number(t, volume->id, *number))
            return 0;
    }
    return -ENOSPC;
}

static int is_volume(struct meta_txn *t, uint32_t id)
{
    const struct tree_node *node = tree_present(t, id);
    if (!node)
        return -ESTALE;
    return node->record.parent ? -EINVAL : 0;
}

/* What the volume holds becomes the snapshot's; the volume's record says in *volume how it goes on, but for its
 * version, which is the caller's to make. */
static int put_snapshot(struct meta_txn *t, struct store_snapshot *s, struct tree_record *volume)
{
    const struct usage_record usage = tree_usage(t, s->volume);
    int error = next_number(t, volume, &volume->number, &s->number);
    if (error)
        return error;
    struct tree_record record = *volume;
    record.id = s->id = tree_new_id(t);
    record.fsid = tree_new_fsid(record.id);
    record.parent = volume->id;
    record.origin = 0;
    record.number = s->number;
    record.read_only = true;
    record.created = t->now;
    record.props_length = (uint32_t)s->props_length;
    /* A version above it that waited for this one to be a snapshot can be merged now. */
    version_look_at(t, versions_parent(txn_versions(t), record.version));
    volume->listed_change = meta_next_change(t);
    volume->listed = time_after(volume->listed, t->now);
    return put_new_tree(t, &record, s->props, &usage);
}

struct snapshot_change {
    struct mutation m;
    struct store_snapshot *each;
    unsigned count;
};

static int snapshot_check(const struct snapshot_change *c, struct meta_txn *t)
{
    uint32_t last, number;
    for (unsigned i = 0; i < c->count; i++) {
        int error = is_volume(t, c->each[i].volume);
        if (!error)
            error = next_number(t, &tree_present(t, c->each[i].volume)->record, &last, &number);
        if (error)
            return error;
    }
    return meta_space_low(meta_of(t)) ? -ENOSPC : 0;
}

static int snapshot_apply(struct mutation *m, struct meta_txn *t)
{
    struct snapshot_change *c = (struct snapshot_change *)m;
    int error = snapshot_check(c, t);
    for (unsigned i = 0; i < c->count && !error; i++) {
        struct tree_record volume = tree_present(t, c->each[i].volume)->record;
        error = put_snapshot(t, &c->each[i], &volume);
        if (error)
            return error;
        volume.version = version_new(t, volume.version, volume.id);
        error = tree_put_record(t, tree_present(t, volume.id), &volume);
    }
    return error;
}

int snapshot_take(struct store *s, struct store_snapshot *each, unsigned count)
{
    struct snapshot_change c = {.m.apply = snapshot_apply, .each = each, .count = count};
    for (unsigned i = 0; i < count; i++)
        if (each[i].props_length > PROPS_MOST)
            return -EINVAL;
    return writer_run(local_of(s), &c.m);
}

/* ---- clones ---- */

struct clone_change {
    struct mutation m;
    uint32_t snapshot, id;
    const char *props;
    size_t props_length;
    const struct store_limits *limits;
};

static int clone_apply(struct mutation *m, struct meta_txn *t)
{
    struct clone_change *c = (struct clone_change *)m;
    const struct tree_node *snapshot = tree_present(t, c->snapshot);
    if (!snapshot)
        return -ESTALE;
    if (!snapshot->record.parent)
        return -EINVAL;
    if (meta_space_low(meta_of(t)))
        return -ENOSPC;
    const struct usage_record usage = tree_usage(t, c->snapshot);
    struct tree_record record = snapshot->record;
    record.id = c->id = tree_new_id(t);
    record.fsid = tree_new_fsid(record.id);
    record.version = version_new(t, record.version, record.id);
    record.parent = 0;
    record.origin = c->snapshot;
    record.number = 0;
    record.read_only = false;
    record.created = record.listed = t->now;
    record.listed_change = meta_next_change(t);
    record.size_limit = c->limits->bytes;
    record.file_limit = c->limits->files;
    record.props_length = (uint32_t)c->props_length;
    return put_new_tree(t, &record, c->props, &usage);
}

int snapshot_clone(struct store *s, uint32_t snapshot, const char *props, size_t props_length,
                   const struct store_limits *limits, uint32_t *id)
{
    struct clone_change c = {.m.apply = clone_apply,
                             .snapshot = snapshot,
                             .props = props,
                             .props_length = props_length,
                             .limits = limits};
    if (props_length > PROPS_MOST)
        return -EINVAL;
    int error = writer_run(local_of(s), &c.m);
    *id = c.id;
    if (!error)
        reaper_orphan(local_of(s), c.id, 0); /* of files that were open in the origin */
    return error;
}

/* ---- restore ---- */

struct restore_change {
    struct mutation m;
    uint32_t volume, snapshot;
    struct store_snapshot *safety;
};

static int restore_check(const struct restore_change *c, struct meta_txn *t)
{
    uint32_t last, number;
    const struct tree_node *snapshot = tree_present(t, c->snapshot);
    int error = is_volume(t, c->volume);
    if (error)
        return error;
    if (!snapshot)
        return -ESTALE;
    const struct tree_record *volume = &tree_present(t, c->volume)->record;
    if (!snapshot->record.parent)
        return -EINVAL;
    if (snapshot->record.root != volume->root) /* all that have versions in common share it */
        return -EXDEV;
    if (meta_space_low(meta_of(t)))
        return -ENOSPC;
    return c->safety ? next_number(t, volume, &last, &number) : 0;
}

/* No less than any time that was shown before it. */
static struct store_time restore_time(struct meta_txn *t, const struct tree_record *volume)
{
    struct timespec clock;
    clock_gettime(CLOCK_REALTIME, &clock); /* others' times are up to a tick behind it */
    struct store_time now = {.seconds = clock.tv_sec, .nanoseconds = (uint32_t)clock.tv_nsec};
    return time_after(volume->restored, time_later(now, group_now(t->local)));
}

static int restore_apply(struct mutation *m, struct meta_txn *t)
{
    struct restore_change *c = (struct restore_change *)m;
    int error = restore_check(c, t);
    if (error)
        return error;
    struct tree_record volume = tree_present(t, c->volume)->record;
    const struct usage_record from = tree_usage(t, c->volume), to = tree_usage(t, c->snapshot);
    if (c->safety) {
        error = put_snapshot(t, c->safety, &volume);
        if (error)
            return error;
    } else {
        version_unname(t, volume.version);
    }
    volume.version = version_new(t, tree_present(t, c->snapshot)->tree.version, volume.id);
    volume.restored_change = meta_next_change(t);
    volume.restored = meta_of(t)->restored = restore_time(t, &volume);
    group_note_usage(t, c->volume, (int64_t)(to.blocks - from.blocks), (int64_t)(to.files - from.files));
    group_note_restored(t, c->volume);
    return tree_put_record(t, tree_present(t, c->volume), &volume);
}

int snapshot_restore(struct store *s, uint32_t volume, uint32_t snapshot, struct store_snapshot *safety)
{
    struct restore_change c = {.m.apply = restore_apply, .volume = volume, .snapshot = snapshot, .safety = safety};
    if (safety) {
        if (safety->props_length > PROPS_MOST)
            return -EINVAL;
        safety->volume = volume;
    }
    int error = writer_run(local_of(s), &c.m);
    if (!error)
        reaper_orphan(local_of(s), volume, 0);
    return error;
}
