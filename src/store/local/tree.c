#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <urcu.h>

#include "store/local/cache.h"
#include "store/local/meta_private.h"
#include "store/local/ops.h"
#include "store/local/writer.h"

enum {
    BUCKETS = 16384,
    ROOT_GENERATION = 1,
};

/* ---- the table in RAM ---- */

struct tree_table {
    struct tree_node *buckets[BUCKETS];
};

struct tree_table *tree_table_new(void)
{
    return calloc(1, sizeof(struct tree_table));
}

void tree_table_free(struct tree_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct tree_node *node = table->buckets[i], *next; node; node = next) {
            next = node->next;
            tree_node_free(node);
        }
    free(table);
}

void tree_node_free(struct tree_node *node)
{
    if (node)
        free(node->props);
    free(node);
}

static void node_retired(struct rcu_head *head)
{
    tree_node_free(caa_container_of(head, struct tree_node, retired));
}

struct tree_node *tree_table_find(struct tree_table *table, uint32_t id)
{
    struct tree_node *node = rcu_dereference(table->buckets[id % BUCKETS]);
    while (node && node->tree.id != id)
        node = rcu_dereference(node->next);
    return node;
}

void tree_table_set(struct tree_table *table, uint32_t id, struct tree_node *node)
{
    struct tree_node **at = &table->buckets[id % BUCKETS];
    while (*at && (*at)->tree.id != id)
        at = &(*at)->next;
    struct tree_node *old = *at;
    struct tree_node *rest = old ? old->next : NULL;
    if (node) {
        node->next = rest;
        if (old) {
            atomic_store(&node->tree.used_blocks, atomic_load(&old->tree.used_blocks));
            atomic_store(&node->tree.used_files, atomic_load(&old->tree.used_files));
        }
    }
    rcu_assign_pointer(*at, node ? node : rest);
    if (old)
        call_rcu(&old->retired, node_retired);
}

static struct tree_node *node_new(const struct tree_record *record, const char *props)
{
    struct tree_node *node = calloc(1, sizeof(*node));
    char *copy = malloc(record->props_length + (size_t)1);
    if (!node || !copy) {
        free(node);
        free(copy);
        return NULL;
    }
    if (record->props_length)
        memcpy(copy, props, record->props_length);
    copy[record->props_length] = 0;
    node->props = copy;
    node->record = *record;
    node->tree.id = record->id;
    node->tree.version = record->version;
    node->tree.root = record->root;
    node->tree.orphans = record->orphans;
    node->tree.fsid = record->fsid;
    node->tree.size_limit = record->size_limit;
    node->tree.file_limit = record->file_limit;
    node->tree.number = record->parent ? record->number : 0;
    node->tree.volume = record->parent ? record->parent : record->id;
    node->tree.read_only = record->read_only;
    return node;
}

static void tree_copy(const struct tree *from, struct tree *to)
{
    to->id = from->id;
    to->version = from->version;
    to->root = from->root;
    to->orphans = from->orphans;
    to->fsid = from->fsid;
    to->size_limit = from->size_limit;
    to->file_limit = from->file_limit;
    to->number = from->number;
    to->volume = from->volume;
    to->read_only = from->read_only;
    atomic_store_explicit(&to->used_blocks, atomic_load_explicit(&from->used_blocks, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&to->used_files, atomic_load_explicit(&from->used_files, memory_order_relaxed),
                          memory_order_relaxed);
}

int meta_tree(struct local *l, uint32_t id, struct tree *out)
{
    rcu_read_lock();
    const struct tree_node *node = tree_table_find(rcu_dereference(l->meta->trees), id);
    if (node)
        tree_copy(&node->tree, out);
    rcu_read_unlock();
    return node ? 0 : -ESTALE;
}

int meta_record_room(struct meta_txn *t)
{
    return meta_space_low(meta_of(t)) ? -ENOSPC : 0;
}

int meta_tree_room(struct meta_txn *t, uint32_t id, uint64_t more_blocks, uint64_t more_files)
{
    struct tree tree;
    int64_t blocks = 0, files = 0;
    int error = meta_tree(t->local, id, &tree);
    if (error)
        return error;
    if ((more_blocks || more_files) && meta_space_low(meta_of(t)))
        return -ENOSPC;
    if (t->write) {
        const struct tree_node *present = tree_present(t, id); /* with limits that this group has changed */
        if (!present)
            return -ESTALE;
        tree.size_limit = present->tree.size_limit;
        tree.file_limit = present->tree.file_limit;
        group_usage(t->group, id, &blocks, &files);
    }
    uint64_t used = atomic_load(&tree.used_blocks) + (uint64_t)blocks;
    uint64_t held = atomic_load(&tree.used_files) + (uint64_t)files;
    if (tree.size_limit && more_blocks && used + more_blocks > tree.size_limit / STORE_BLOCK)
        return -ENOSPC;
    return tree.file_limit && more_files && held + more_files > tree.file_limit ? -ENOSPC : 0;
}

/* ---- records ---- */

static void props_key(char key[64], uint32_t id, unsigned piece)
{
    snprintf(key, 64, "props/%08x/%02x", id, piece);
}

static unsigned pieces_of(size_t length)
{
    return (unsigned)((length + PROPS_PIECE - 1) / PROPS_PIECE);
}

static void write_props(struct meta_txn *t, const struct tree_node *node, size_t before)
{
    char key[64];
    size_t length = node->record.props_length;
    for (unsigned i = 0; i < pieces_of(length); i++) {
        size_t from = (size_t)i * PROPS_PIECE, left = length - from;
        props_key(key, node->record.id, i);
        meta_system_put(t, key, node->props + from, left < PROPS_PIECE ? left : PROPS_PIECE);
    }
    for (unsigned i = pieces_of(length); i < pieces_of(before); i++) {
        props_key(key, node->record.id, i);
        meta_system_put(t, key, NULL, 0);
    }
}

const struct tree_node *tree_present(struct meta_txn *t, uint32_t id)
{
    const struct tree_node *node;
    if (t->write && group_tree(t->group, id, &node))
        return node;
    return tree_table_find(rcu_dereference(meta_of(t)->trees), id);
}

static int put_tree(struct meta_txn *t, const struct tree_record *record, const char *props, bool with_props)
{
    uint8_t value[RECORD_MAX];
    char key[64];
    const struct tree_node *old = tree_present(t, record->id);
    size_t before = old ? old->record.props_length : 0;
    struct tree_node *node = node_new(record, props);
    if (!node)
        return t->failed = -ENOMEM;
    if (group_set_tree(t, record->id, node))
        return t->failed;
    if (versions_tree(txn_versions(t), record->version) != record->id && group_versions_own(t))
        versions_name(group_versions_own(t), record->version, record->id);
    if (with_props)
        write_props(t, node, before);
    snprintf(key, sizeof(key), "tree/%08x", record->id);
    return meta_system_put(t, key, value, tree_encode(record, value));
}

int tree_put(struct meta_txn *t, const struct tree_record *record, const char *props)
{
    return put_tree(t, record, props, true);
}

int tree_put_record(struct meta_txn *t, const struct tree_node *node, const struct tree_record *record)
{
    return put_tree(t, record, node->props, false);
}

static void remove_tree(struct meta_txn *t, const struct tree_node *node)
{
    char key[64];
    for (unsigned i = 0; i < pieces_of(node->record.props_length); i++) {
        props_key(key, node->tree.id, i);
        meta_system_put(t, key, NULL, 0);
    }
    snprintf(key, sizeof(key), "tree/%08x", node->tree.id);
    meta_system_put(t, key, NULL, 0);
    snprintf(key, sizeof(key), "usage/%08x", node->tree.id);
    meta_system_put(t, key, NULL, 0);
}

static int load_props(struct meta_txn *t, const struct tree_record *record, char *props)
{
    char key[64];
    size_t have = 0;
    for (unsigned i = 0; i < pieces_of(record->props_length); i++) {
        size_t length;
        props_key(key, record->id, i);
        int error = meta_system_get(t, key, props + have, record->props_length - have, &length);
        if (error)
            return error;
        have += length;
    }
    return have == record->props_length ? 0 : SL_ECORRUPT;
}

static int load_tree(struct meta_txn *t, const uint8_t *value, size_t length, struct tree_table *table)
{
    struct tree_record record;
    struct usage_record usage = {0};
    uint8_t bytes[RECORD_MAX];
    char key[64];
    int error = tree_decode(value, length, &record);
    if (error || record.props_length > PROPS_MOST)
        return SL_ECORRUPT;
    meta_of(t)->restored = time_later(meta_of(t)->restored, record.restored);
    char *props = malloc(record.props_length + (size_t)1);
    if (!props)
        return -ENOMEM;
    error = load_props(t, &record, props);
    struct tree_node *node = error ? NULL : node_new(&record, props);
    free(props);
    if (!node)
        return error ? error : -ENOMEM;
    snprintf(key, sizeof(key), "usage/%08x", record.id);
    error = meta_system_get(t, key, bytes, sizeof(bytes), &length);
    if (!error)
        error = usage_decode(bytes, length, &usage);
    if (error && error != -ENOENT) {
        tree_node_free(node);
        return error;
    }
    atomic_store(&node->tree.used_blocks, usage.blocks);
    atomic_store(&node->tree.used_files, usage.files);
    tree_table_set(table, record.id, node);
    return 0;
}

static int load_trees(struct meta_txn *t, struct tree_table *table)
{
    uint8_t value[RECORD_MAX];
    char key[64] = "";
    size_t length;
    int error;
    while ((error = meta_system_next(t, "tree/", key, value, sizeof(value), &length)) == 0) {
        error = load_tree(t, value, length, table);
        if (error)
            return error;
    }
    return error == -ENOENT ? 0 : error;
}

static int load_versions(struct meta_txn *t, struct versions **out)
{
    uint8_t value[RECORD_MAX];
    char key[64] = "";
    size_t length, count = 0, room = 0;
    struct version_link *links = NULL;
    int error;
    while ((error = meta_system_next(t, "version/", key, value, sizeof(value), &length)) == 0) {
        struct version_record record;
        error = version_decode(value, length, &record);
        if (error)
            break;
        if (count == room) {
            room = room ? room * 2 : 64;
            struct version_link *grown = realloc(links, room * sizeof(*links));
            if (!grown) {
                error = -ENOMEM;
                break;
            }
            links = grown;
        }
        links[count++] = (struct version_link){strtoull(key + strlen("version/"), NULL, 16), record.parent, 0};
    }
    if (error == -ENOENT) {
        *out = versions_build(links, count);
        error = *out ? 0 : -ENOMEM;
    }
    free(links);
    return error;
}

static void name_versions(struct versions *versions, struct tree_table *trees)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (const struct tree_node *node = trees->buckets[i]; node; node = node->next)
            versions_name(versions, node->tree.version, node->tree.id);
}

int trees_load(struct meta_txn *t, struct tree_table **trees, struct versions **versions)
{
    *versions = NULL;
    *trees = tree_table_new();
    int error = *trees ? load_trees(t, *trees) : -ENOMEM;
    if (!error)
        error = load_versions(t, versions);
    if (!error) {
        name_versions(*versions, *trees);
        return 0;
    }
    tree_table_free(*trees);
    *trees = NULL;
    return error;
}

/* ---- changes ---- */

void version_key(char key[64], uint64_t version)
{
    snprintf(key, 64, "version/%016llx", (unsigned long long)version);
}

uint64_t version_new(struct meta_txn *t, uint64_t parent, uint32_t tree)
{
    uint8_t value[RECORD_MAX];
    char key[64];
    uint64_t version = ++group_counters(t->group)->version;
    struct version_record record = {.parent = parent};
    struct versions *versions = group_versions_own(t);
    version_key(key, version);
    meta_system_put(t, key, value, version_encode(&record, value));
    if (versions && versions_add(versions, version, parent, tree))
        t->failed = -ENOMEM;
    return version;
}

struct tree_change {
    struct mutation m;
    const char *props;
    size_t props_length;
    const struct store_limits *limits;
    uint32_t uid, gid, mode;
    uint32_t id;
};

static struct inode new_directory(struct meta_txn *t, uint64_t ino, const struct tree_change *c, uint32_t mode)
{
    return (struct inode){
        .ino = ino,
        .change = meta_next_change(t),
        .parent = ino,
        .generation = ROOT_GENERATION,
        .nlink = 2,
        .uid = c->uid,
        .gid = c->gid,
        .mode = (uint16_t)(mode & 07777),
        .type = STORE_DIR,
        .atime = t->now,
        .mtime = t->now,
        .ctime = t->now,
        .btime = t->now,
    };
}

/* A tree's number is its own, and so is what ends in it. */
uint64_t tree_new_fsid(uint32_t id)
{
    uint32_t high;
    do
        high = randombytes_random();
    while (high == 0);
    return (uint64_t)high << 32 | id;
}

static int create_apply(struct mutation *m, struct meta_txn *t)
{
    struct tree_change *c = (struct tree_change *)m;
    if (meta_space_low(meta_of(t)))
        return -ENOSPC;
    struct tree_record record = {
        .id = (uint32_t)++group_counters(t->group)->tree,
        .root = meta_next_ino(t),
        .orphans = meta_next_ino(t),
        .size_limit = c->limits->bytes,
        .file_limit = c->limits->files,
        .props_length = (uint32_t)c->props_length,
        .created = t->now,
        .listed = t->now,
    };
    record.fsid = tree_new_fsid(record.id);
    record.version = version_new(t, 0, record.id);
    c->id = record.id;
    if (tree_put(t, &record, c->props))
        return t->failed;
    struct inode root = new_directory(t, record.root, c, c->mode);
    struct inode orphans = new_directory(t, record.orphans, c, 0);
    meta_put_inode(t, c->id, &root);
    meta_put_inode(t, c->id, &orphans);
    return t->failed;
}

int tree_listed(struct meta_txn *t, uint32_t volume)
{
    const struct tree_node *node = tree_present(t, volume);
    if (!node) /* it went before its snapshots did */
        return t->failed;
    struct tree_record record = node->record;
    record.listed_change = meta_next_change(t);
    record.listed = time_after(record.listed, t->now);
    return tree_put_record(t, node, &record);
}

static bool is_lower(uint64_t limit, uint64_t than)
{
    return limit && (!than || limit < than);
}

static int check_limits(struct meta_txn *t, const struct tree_record *now, const struct store_limits *limits)
{
    const struct usage_record usage = tree_usage(t, now->id);
    bool bytes = is_lower(limits->bytes, now->size_limit) && usage.blocks > limits->bytes / STORE_BLOCK;
    bool files = is_lower(limits->files, now->file_limit) && usage.files > limits->files;
    return bytes || files ? -EDQUOT : 0;
}

static int update_apply(struct mutation *m, struct meta_txn *t)
{
    struct tree_change *c = (struct tree_change *)m;
    const struct tree_node *old = tree_present(t, c->id);
    if (!old)
        return -ESTALE;
    struct tree_record record = old->record;
    if (!record.parent) {
        int error = check_limits(t, &record, c->limits);
        if (error)
            return error;
        record.size_limit = c->limits->bytes;
        record.file_limit = c->limits->files;
    }
    record.props_length = (uint32_t)c->props_length;
    if (tree_put(t, &record, c->props))
        return t->failed;
    return record.parent ? tree_listed(t, record.parent) : 0;
}

static int delete_apply(struct mutation *m, struct meta_txn *t)
{
    struct tree_change *c = (struct tree_change *)m;
    const struct tree_node *node = tree_present(t, c->id);
    if (!node)
        return -ESTALE;
    uint32_t parent = node->record.parent;
    version_unname(t, node->tree.version);
    remove_tree(t, node);
    group_set_tree(t, c->id, NULL);
    return parent ? tree_listed(t, parent) : t->failed;
}

int tree_create(struct store *s, const char *props, size_t props_length, const struct store_limits *limits,
                uint32_t uid, uint32_t gid, uint32_t mode, uint32_t *id)
{
    struct tree_change c = {.m.apply = create_apply,
                            .props = props,
                            .props_length = props_length,
                            .limits = limits,
                            .uid = uid,
                            .gid = gid,
                            .mode = mode};
    if (props_length > PROPS_MOST)
        return -EINVAL;
    int error = writer_run(local_of(s), &c.m);
    *id = c.id;
    return error;
}

int tree_update(struct store *s, uint32_t id, const char *props, size_t props_length,
                const struct store_limits *limits)
{
    struct tree_change c = {.m.apply = update_apply,
                            .id = id,
                            .props = props,
                            .props_length = props_length,
                            .limits = limits};
    if (props_length > PROPS_MOST)
        return -EINVAL;
    return writer_run(local_of(s), &c.m);
}

int tree_delete(struct store *s, uint32_t id)
{
    struct tree_change c = {.m.apply = delete_apply, .id = id};
    int error = writer_run(local_of(s), &c.m);
    if (!error)
        cache_forget(local_of(s)->cache, id);
    return error;
}

/* ---- listing ---- */

int tree_each(struct store *s, int (*each)(void *arg, const struct store_tree *tree), void *arg)
{
    int error = 0;
    struct usage_pool pool;
    usage_pool(local_of(s), &pool);
    rcu_read_lock();
    struct tree_table *table = rcu_dereference(local_of(s)->meta->trees);
    for (size_t i = 0; i < BUCKETS && !error; i++) {
        const struct tree_node *node = rcu_dereference(table->buckets[i]);
        for (; node && !error; node = rcu_dereference(node->next)) {
            struct store_tree tree = {
                .id = node->tree.id,
                .parent = node->record.parent,
                .origin = node->record.origin,
                .number = node->tree.number,
                .fsid = node->tree.fsid,
                .limits = {node->tree.size_limit, node->tree.file_limit},
                .root = {.tree = node->tree.id, .generation = ROOT_GENERATION, .ino = node->tree.root},
                .props = node->props,
                .props_length = node->record.props_length,
            };
            usage_of_tree(&node->tree, &pool, &tree.usage);
            error = each(arg, &tree);
        }
    }
    rcu_read_unlock();
    return error;
}

uint32_t trees_next_volume(struct local *l, uint32_t after)
{
    uint32_t found = 0;
    rcu_read_lock();
    struct tree_table *table = rcu_dereference(l->meta->trees);
    for (size_t i = 0; i < BUCKETS; i++) {
        const struct tree_node *node = rcu_dereference(table->buckets[i]);
        for (; node; node = rcu_dereference(node->next))
            if (node->tree.id > after && !node->record.parent && (found == 0 || node->tree.id < found))
                found = node->tree.id;
    }
    rcu_read_unlock();
    return found;
}

bool trees_have_number(struct meta_txn *t, uint32_t volume, uint32_t number)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (const struct tree_node *node = meta_of(t)->trees->buckets[i]; node; node = node->next)
            if (node->record.parent == volume && node->tree.number == number)
                return true;
    return false;
}

int trees_snapshots_changed(struct store *s, uint32_t volume, uint64_t *change, struct store_time *when)
{
    rcu_read_lock();
    const struct tree_node *node = tree_table_find(rcu_dereference(local_of(s)->meta->trees), volume);
    if (node) {
        *change = node->record.listed_change;
        *when = node->record.listed;
    }
    rcu_read_unlock();
    return node ? 0 : -ESTALE;
}
