#include <string.h>

#include "store/local/ops_private.h"
#include "store/local/seg.h"

enum {
    ROOT_GENERATION = 1,
    LOOKUP_TRIES = 16,        /* an entry whose inode has gone by the time it is read */
    META_BYTES_A_FILE = 1024, /* to tell how many files there is still room for */
};

int local_root(struct store *s, uint32_t tree, struct store_object *out)
{
    struct tree found;
    int rc = meta_tree(local_of(s), tree, &found);
    if (rc)
        return rc;
    *out = (struct store_object){.tree = tree, .generation = ROOT_GENERATION, .ino = found.root};
    return 0;
}

/* The object's inode and, from it, its attributes. */
static int get(struct store *s, const struct store_object *o, struct tree *tree,
               struct inode *inode, struct store_attr *attr)
{
    int rc = meta_tree(local_of(s), o->tree, tree);
    if (!rc)
        rc = op_get_inode(local_of(s), o, inode);
    if (!rc && attr)
        attr_from_inode(tree, inode, attr);
    return rc;
}

int local_getattr(struct store *s, const struct store_object *o, struct store_attr *out)
{
    struct tree tree;
    struct inode inode;
    return get(s, o, &tree, &inode, out);
}

int local_commit(struct store *s, const struct store_object *o, struct store_attr *attr)
{
    return local_getattr(s, o, attr);
}

/* ---- lookup ---- */

/* The inode that the name means just now; -EAGAIN: it went while we looked. */
static int find_child(struct local *l, const struct tree *tree, const struct inode *dir,
                      struct store_name name, struct inode *child)
{
    if (name_is_dot(name)) {
        *child = *dir;
        return 0;
    }
    bool up = name_is_dotdot(name);
    if (up && dir->ino == tree->root) {
        *child = *dir;
        return 0;
    }
    if (up) {
        int rc = meta_get_inode(l, tree->id, dir->parent, child);
        return rc == -ESTALE || (!rc && child->nlink == 0) ? -EAGAIN : rc;
    }
    struct entry entry;
    int rc = meta_get_entry(l, tree->id, dir->ino, name, &entry);
    if (rc)
        return rc;
    const struct store_object found = {.tree = tree->id, .generation = entry.generation, .ino = entry.ino};
    rc = op_get_inode(l, &found, child);
    /* Or it has lost this name, and is only open. */
    return rc == -ESTALE || (!rc && child->nlink == 0) ? -EAGAIN : rc;
}

static int lookup_once(struct store *s, const struct store_cred *c, const struct store_object *dir,
                       struct store_name name, struct store_object *out, struct store_attr *attr,
                       struct store_attr *dir_attr)
{
    struct tree tree;
    struct inode parent, child;
    int rc = get(s, dir, &tree, &parent, dir_attr);
    if (rc)
        return rc;
    if (parent.type != STORE_DIR)
        return -ENOTDIR;
    rc = name_check(name);
    if (!rc)
        rc = perm_dir(c, &parent, PERM_EXEC);
    if (!rc)
        rc = find_child(local_of(s), &tree, &parent, name, &child);
    if (rc)
        return rc;
    op_object(tree.id, &child, out);
    if (attr)
        attr_from_inode(&tree, &child, attr);
    return 0;
}

int local_lookup(struct store *s, const struct store_cred *c, const struct store_object *dir,
                 struct store_name name, struct store_object *out, struct store_attr *attr,
                 struct store_attr *dir_attr)
{
    if (dir_attr)
        memset(dir_attr, 0, sizeof(*dir_attr));
    for (unsigned tries = 0; tries < LOOKUP_TRIES; tries++) {
        int rc = lookup_once(s, c, dir, name, out, attr, dir_attr);
        if (rc != -EAGAIN)
            return rc;
    }
    return SL_ECORRUPT; /* nobody replaces a name that often between two reads */
}

/* ---- */

int local_access(struct store *s, const struct store_cred *c, const struct store_object *o,
                 uint32_t want, uint32_t *granted, struct store_attr *attr)
{
    struct tree tree;
    struct inode inode;
    int rc = get(s, o, &tree, &inode, attr);
    if (!rc)
        *granted = want & perm_access(c, &inode, c->read_only || tree.read_only);
    return rc;
}

int local_readlink(struct store *s, const struct store_cred *c, const struct store_object *o,
                   char *target, uint32_t *length, struct store_attr *attr)
{
    struct local *l = local_of(s);
    struct tree tree;
    struct inode inode;
    struct meta_txn *t;
    int rc = get(s, o, &tree, &inode, attr);
    if (rc)
        return rc;
    if (inode.type != STORE_LNK)
        return -EINVAL;
    rc = meta_read_begin(l, &t);
    if (rc)
        return rc;
    rc = meta_target(t, o->tree, o->ino, target, length);
    meta_read_end(t);
    return rc;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void usage_pool(struct local *l, struct usage_pool *out)
{
    uint64_t meta_used;
    *out = (struct usage_pool){0};
    if (l->segs) /* not in a stopped pool */
        seg_space(l, &out->total, &out->available);
    meta_space(l, &meta_used, &out->meta_free);
}

static uint64_t left_of(uint64_t limit, uint64_t used)
{
    return used < limit ? limit - used : 0;
}

void usage_of_tree(const struct tree *tree, const struct usage_pool *pool, struct store_usage *out)
{
    uint64_t used = atomic_load(&tree->used_blocks) * STORE_BLOCK;
    uint64_t files_used = atomic_load(&tree->used_files);
    uint64_t files_room = least(pool->meta_free, pool->available) / META_BYTES_A_FILE;
    uint64_t limit = tree->size_limit / STORE_BLOCK * STORE_BLOCK;
    *out = (struct store_usage){
        .bytes_total = limit ? limit : pool->total,
        .bytes_free = limit ? left_of(limit, used) : pool->available,
        .bytes_available = limit ? least(pool->available, left_of(limit, used)) : pool->available,
        .bytes_used = used,
        .files_total = tree->file_limit ? tree->file_limit : files_used + files_room,
        .files_free = tree->file_limit ? least(files_room, left_of(tree->file_limit, files_used)) : files_room,
        .files_used = files_used,
    };
}

int local_usage(struct store *s, uint32_t id, struct store_usage *out)
{
    struct tree tree;
    struct usage_pool pool;
    int rc = meta_tree(local_of(s), id, &tree);
    if (rc)
        return rc;
    usage_pool(local_of(s), &pool);
    usage_of_tree(&tree, &pool, out);
    return 0;
}
