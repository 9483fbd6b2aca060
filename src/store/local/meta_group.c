#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <urcu.h>

#include "store/local/meta_private.h"
#include "store/local/reaper.h"

enum note_kind { NOTE_CHUNK, NOTE_CHUNK_GONE, NOTE_NAME, NOTE_NAME_GONE, NOTE_INODE, NOTE_INODE_GONE };

struct note {
    struct rtable_key key;
    enum note_kind kind;
    uint32_t length;
    size_t offset; /* in group.bytes */
};

struct usage_note {
    uint32_t tree;
    int64_t blocks, files;
};

struct tree_note {
    uint32_t id;
    struct tree_node *node;
};

struct touched_note {
    uint64_t version;
    int64_t by;
};

struct list { /* grows */
    void *items;
    size_t count, room;
};

struct group {
    struct local *local;
    uint64_t txn_id;
    unsigned dirty;
    struct counters counters;
    struct list notes, bytes, usage, freed, trees, touched, restored;
    struct versions *versions;
    bool drops;
};

static void *list_add(struct meta_txn *t, struct list *list, size_t size, size_t count)
{
    if (list->count + count > list->room) {
        size_t room = (list->count + count) * 2;
        void *grown = realloc(list->items, room * size);
        if (!grown) {
            t->failed = -ENOMEM;
            return NULL;
        }
        list->items = grown;
        list->room = room;
    }
    list->count += count;
    return (char *)list->items + (list->count - count) * size;
}

/* ---- begin, seal ---- */

struct store_time group_now(struct local *l)
{
    return time_later(local_now(), l->meta->restored);
}

int group_begin(struct local *l, struct group **out, struct txn *txn)
{
    struct group *g = calloc(1, sizeof(*g));
    if (!g)
        return -ENOMEM;
    int error = txn_write_begin(l, txn);
    if (error) {
        free(g);
        return error;
    }
    g->local = l;
    g->txn_id = txn_id(txn);
    g->counters = l->meta->counters;
    g->counters.group++;
    txn->t.group = g;
    txn->t.now = group_now(l);
    *out = g;
    return 0;
}

/* What the usage will be; false: the tree goes with this group. */
static bool usage_after(const struct group *g, const struct usage_note *note, struct usage_record *out)
{
    const struct tree_node *node = tree_table_find(g->local->meta->trees, note->tree);
    *out = (struct usage_record){0};
    if (node || (group_tree(g, note->tree, &node) && node)) {
        out->blocks = atomic_load(&node->tree.used_blocks);
        out->files = atomic_load(&node->tree.used_files);
    }
    out->blocks += (uint64_t)note->blocks;
    out->files += (uint64_t)note->files;
    return !group_tree(g, note->tree, &node) || node;
}

static void seal_usage(struct meta_txn *t, const struct usage_note *note)
{
    struct usage_record usage;
    if (!usage_after(t->group, note, &usage))
        return;
    uint8_t value[RECORD_MAX];
    char key[64];
    snprintf(key, sizeof(key), "usage/%08x", note->tree);
    meta_system_put(t, key, value, usage_encode(&usage, value));
}

/* Of a version that has gone meanwhile there is no record. */
static void seal_touched(struct meta_txn *t, const struct touched_note *note)
{
    struct version_record record;
    uint8_t value[RECORD_MAX];
    char key[64];
    size_t length;
    version_key(key, note->version);
    if (!note->by || meta_system_get(t, key, value, sizeof(value), &length))
        return;
    int error = version_decode(value, length, &record);
    if (error)
        t->failed = error;
    record.touched += (uint64_t)note->by;
    meta_system_put(t, key, value, version_encode(&record, value));
}

int group_seal(struct meta_txn *t)
{
    struct group *g = t->group;
    uint8_t value[RECORD_MAX];
    for (size_t i = 0; i < g->touched.count; i++)
        seal_touched(t, (const struct touched_note *)g->touched.items + i);
    const struct usage_note *usage = g->usage.items;
    for (size_t i = 0; i < g->usage.count; i++)
        seal_usage(t, &usage[i]);
    free_list_append(t, g->counters.group, g->freed.items, g->freed.count);
    meta_system_put(t, "counters", value, counters_encode(&g->counters, value));
    return t->failed;
}

/* ---- after the commit ---- */

static void publish_note(struct meta *m, const struct group *g, const struct note *note)
{
    const uint8_t *bytes = (const uint8_t *)g->bytes.items + note->offset;
    switch (note->kind) {
    case NOTE_CHUNK:
        rtable_publish(m->chunks, &note->key, bytes, note->length, 1);
        break;
    case NOTE_CHUNK_GONE:
        rtable_publish(m->chunks, &note->key, NULL, 0, 0);
        break;
    case NOTE_NAME:
        rtable_publish(m->names, &note->key, bytes, note->length, 1);
        break;
    case NOTE_NAME_GONE:
        rtable_publish(m->names, &note->key, NULL, 0, 0);
        break;
    case NOTE_INODE:
        rtable_publish(m->inodes, &note->key, bytes, note->length, 1);
        break;
    case NOTE_INODE_GONE:
        rtable_publish(m->inodes, &note->key, NULL, 0, 0);
        break;
    }
}

static void publish_usage(struct meta *m, const struct usage_note *note)
{
    struct tree_node *node = tree_table_find(m->trees, note->tree);
    if (node) {
        atomic_fetch_add(&node->tree.used_blocks, (uint64_t)note->blocks);
        atomic_fetch_add(&node->tree.used_files, (uint64_t)note->files);
    }
}

void tables_forget(struct meta *m, uint32_t tree)
{
    rtable_drop_tree(m->chunks, tree);
    rtable_drop_tree(m->names, tree);
    rtable_drop_tree(m->inodes, tree);
    reaper_tables(m->local);
}

bool tables_forget_step(struct meta *m)
{
    enum { BUDGET = 1024 };
    bool more = rtable_drop_step(m->chunks, BUDGET);
    more |= rtable_drop_step(m->names, BUDGET);
    more |= rtable_drop_step(m->inodes, BUDGET);
    return more;
}

static void publish_trees(struct meta *m, struct group *g)
{
    struct tree_note *trees = g->trees.items;
    for (size_t i = 0; i < g->trees.count; i++) {
        const struct tree_node *old = tree_table_find(m->trees, trees[i].id);
        bool was_volume = old && !old->record.parent;
        tree_table_set(m->trees, trees[i].id, trees[i].node);
        /* Of a snapshot nobody can ask, and what the tables know of it makes room for others. */
        if (!trees[i].node && was_volume)
            tables_forget(m, trees[i].id);
        trees[i].node = NULL; /* the table's now */
    }
}

static void publish_notes(struct meta *m, const struct group *g, enum note_kind first, enum note_kind last)
{
    const struct note *notes = g->notes.items;
    for (size_t i = 0; i < g->notes.count; i++)
        if (notes[i].kind >= first && notes[i].kind <= last)
            publish_note(m, g, &notes[i]);
}

/* Readers find records by the tree's version and the versions' ancestry: both must be those of their transaction.
 * Those that are older than this group are waited for, and newer ones wait until it is published. */
static void publish_versions(struct meta *m, struct group *g)
{
    struct versions *old = m->versions;
    if (!g->versions)
        return;
    synchronize_rcu();
    rcu_assign_pointer(m->versions, g->versions);
    g->versions = NULL;
    versions_free(old);
}

/* Chunks and names before inodes: attributes are never newer than the data and the names that are read after them. */
bool group_publish(struct group *g)
{
    struct meta *m = g->local->meta;
    atomic_store(&m->publishing, g->txn_id);
    m->counters = g->counters;
    publish_versions(m, g);
    publish_notes(m, g, NOTE_CHUNK, NOTE_CHUNK_GONE);
    publish_notes(m, g, NOTE_NAME, NOTE_NAME_GONE);
    publish_notes(m, g, NOTE_INODE, NOTE_INODE_GONE);
    for (size_t i = 0; i < g->restored.count; i++)
        tables_forget(m, ((const uint32_t *)g->restored.items)[i]);
    publish_trees(m, g); /* after the notes: a tree that goes takes them along */
    for (size_t i = 0; i < g->usage.count; i++)
        publish_usage(m, (struct usage_note *)g->usage.items + i);
    atomic_store(&m->published, g->txn_id);
    if (g->drops)
        reaper_versions(g->local);
    return g->freed.count > 0;
}

void group_free(struct group *g)
{
    if (!g)
        return;
    const struct tree_note *trees = g->trees.items;
    for (size_t i = 0; i < g->trees.count; i++)
        tree_node_free(trees[i].node);
    versions_free(g->versions);
    free(g->notes.items);
    free(g->bytes.items);
    free(g->usage.items);
    free(g->freed.items);
    free(g->trees.items);
    free(g->touched.items);
    free(g->restored.items);
    free(g);
}

uint64_t group_txn_id(const struct group *g)
{
    return g->txn_id;
}

unsigned group_dirty(const struct group *g)
{
    return g->dirty;
}

void group_dirtied(struct group *g, unsigned pages)
{
    if (g)
        g->dirty += pages;
}

struct counters *group_counters(struct group *g)
{
    return &g->counters;
}

/* ---- notes ---- */

static void add_note(struct meta_txn *t, enum note_kind kind, struct rtable_key key, const void *value,
                     size_t length)
{
    enum { ALIGNED = 8 };
    struct group *g = t->group;
    size_t padded = (length + ALIGNED - 1) / ALIGNED * ALIGNED;
    uint8_t *bytes = list_add(t, &g->bytes, 1, padded);
    struct note *note = bytes || !padded ? list_add(t, &g->notes, sizeof(*note), 1) : NULL;
    if (!note)
        return;
    if (length)
        memcpy(bytes, value, length);
    *note = (struct note){key, kind, (uint32_t)length, g->bytes.count - padded};
}

void group_note_inode(struct meta_txn *t, uint32_t tree, const struct inode *inode)
{
    add_note(t, NOTE_INODE, (struct rtable_key){.ino = inode->ino, .tree = tree}, inode, sizeof(*inode));
}

void group_note_inode_gone(struct meta_txn *t, uint32_t tree, uint64_t ino)
{
    add_note(t, NOTE_INODE_GONE, (struct rtable_key){.ino = ino, .tree = tree}, NULL, 0);
}

void group_note_chunk(struct meta_txn *t, uint32_t tree, uint64_t ino, uint64_t chunk, const void *value,
                      size_t length)
{
    add_note(t, NOTE_CHUNK, (struct rtable_key){.ino = ino, .sub = chunk, .tree = tree}, value, length);
}

void group_note_chunk_moved(struct meta_txn *t, uint64_t version, uint64_t ino, uint64_t chunk)
{
    const struct versions *versions = txn_versions(t);
    for (uint64_t v = version; v; v = versions_next(versions, v)) {
        uint32_t tree = versions_tree(versions, v);
        if (tree && versions_is_ancestor(versions, version, v))
            add_note(t, NOTE_CHUNK_GONE, (struct rtable_key){.ino = ino, .sub = chunk, .tree = tree}, NULL, 0);
    }
}

void group_note_name(struct meta_txn *t, const struct rtable_key *key, const struct entry *entry)
{
    add_note(t, NOTE_NAME, *key, entry, ENTRY_SIZE(entry->length));
}

void group_note_name_gone(struct meta_txn *t, const struct rtable_key *key)
{
    add_note(t, NOTE_NAME_GONE, *key, NULL, 0);
}

void group_note_usage(struct meta_txn *t, uint32_t tree, int64_t blocks, int64_t files)
{
    struct list *list = &t->group->usage;
    struct usage_note *note = list->items;
    for (size_t i = 0; i < list->count; i++, note++)
        if (note->tree == tree)
            goto found;
    note = list_add(t, list, sizeof(*note), 1);
    if (!note)
        return;
    *note = (struct usage_note){.tree = tree};
found:
    note->blocks += blocks;
    note->files += files;
}

void group_usage(const struct group *g, uint32_t tree, int64_t *blocks, int64_t *files)
{
    const struct usage_note *note = g->usage.items;
    *blocks = *files = 0;
    for (size_t i = 0; i < g->usage.count; i++, note++)
        if (note->tree == tree) {
            *blocks = note->blocks;
            *files = note->files;
        }
}

void group_note_freed(struct meta_txn *t, place_t place, uint32_t blocks)
{
    struct freed_run *run = list_add(t, &t->group->freed, sizeof(*run), 1);
    if (run)
        *run = (struct freed_run){place, blocks};
}

int group_set_tree(struct meta_txn *t, uint32_t id, struct tree_node *node)
{
    struct tree_note *note = list_add(t, &t->group->trees, sizeof(*note), 1);
    if (!note) {
        tree_node_free(node);
        return t->failed;
    }
    *note = (struct tree_note){id, node};
    return 0;
}

bool group_tree(const struct group *g, uint32_t id, const struct tree_node **node)
{
    const struct tree_note *notes = g->trees.items;
    for (size_t i = g->trees.count; i-- > 0;)
        if (notes[i].id == id) {
            *node = notes[i].node;
            return true;
        }
    return false;
}

struct versions *group_versions_own(struct meta_txn *t)
{
    struct group *g = t->group;
    if (!g->versions)
        g->versions = versions_copy(meta_of(t)->versions);
    if (!g->versions)
        t->failed = -ENOMEM;
    return g->versions;
}

const struct versions *group_versions(const struct group *g)
{
    return g->versions;
}

static struct touched_note *find_touched(const struct group *g, uint64_t version)
{
    struct touched_note *note = g->touched.items;
    for (size_t i = g->touched.count; i-- > 0;)
        if (note[i].version == version)
            return &note[i];
    return NULL;
}

void group_note_touched(struct meta_txn *t, uint64_t version, int64_t by)
{
    struct touched_note *note = find_touched(t->group, version);
    if (!note) {
        note = list_add(t, &t->group->touched, sizeof(*note), 1);
        if (!note)
            return;
        *note = (struct touched_note){.version = version};
    }
    note->by += by;
}

int64_t group_touched(const struct group *g, uint64_t version)
{
    const struct touched_note *note = find_touched(g, version);
    return note ? note->by : 0;
}

void group_note_drops(struct meta_txn *t)
{
    t->group->drops = true;
}

void group_note_restored(struct meta_txn *t, uint32_t tree)
{
    uint32_t *note = list_add(t, &t->group->restored, sizeof(*note), 1);
    if (note)
        *note = tree;
}
