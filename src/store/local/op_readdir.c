#include <stdlib.h>
#include <string.h>
#include <urcu/compiler.h>

#include "store/local/ops_private.h"

enum {
    COOKIE_DOT = 1,
    COOKIE_DOTDOT = 2,
    SLOT_FIRST = 3, /* the low byte of a position */
    BATCH_FIRST = 32,
    BATCH_MOST = 128,
    CHECK_EVERY = 32, /* entries between two looks at the clock */
    TXN_MOST_NS = 3000000,
    LISTING_ENDS = 1, /* not an error */
};

struct listing {
    struct local *local;
    struct tree tree;
    struct inode dir;
    store_entry_fn *each;
    void *arg;
    uint64_t last;   /* the position or cookie listed last */
    uint64_t passed; /* no entry lies between that and this */
    bool any;        /* has been handed out */
    struct meta_txn *txn;
    uint64_t txn_since;
};

static bool cookie_is_possible(uint64_t cookie)
{
    return cookie <= COOKIE_DOTDOT || (cookie <= INT64_MAX && (cookie & 0xff) >= SLOT_FIRST);
}

static int txn_open(struct listing *d)
{
    d->txn_since = clock_monotonic_ns();
    return meta_read_begin(d->local, &d->txn);
}

/* Long listings let go of their transaction now and then.  Not on the main stack: there it could not be had again
 * without waiting, and entries have been handed out. */
static int txn_renew(struct listing *d)
{
    if (!coro_self() || clock_monotonic_ns() - d->txn_since < TXN_MOST_NS)
        return 0;
    meta_read_end(d->txn);
    d->txn = NULL;
    coro_yield();
    return txn_open(d);
}

static bool hand_out(struct listing *d, struct store_name name, uint64_t cookie,
                     const struct store_object *object, enum store_type type,
                     const struct store_attr *attr)
{
    struct store_entry out = {
        .name = name,
        .fileid = attr_fileid(&d->tree, object->ino),
        .cookie = cookie,
        .object = *object,
        .type = type,
        .attr = attr,
    };
    if (!d->each(d->arg, &out))
        return false;
    d->last = cookie;
    d->any = true;
    return true;
}

static bool hand_out_dir(struct listing *d, const char *name, uint64_t cookie,
                         const struct inode *inode, bool attributes)
{
    struct store_name as = {.bytes = name, .length = (uint32_t)strlen(name)};
    struct store_object object;
    struct store_attr attr;
    op_object(d->tree.id, inode, &object);
    if (attributes)
        attr_from_inode(&d->tree, inode, &attr);
    return hand_out(d, as, cookie, &object, STORE_DIR, attributes ? &attr : NULL);
}

/* "." and "..".  *full: there was no room for one of them. */
static int list_dots(struct listing *d, bool attributes, bool *full)
{
    *full = false;
    if (d->last < COOKIE_DOT && !hand_out_dir(d, ".", COOKIE_DOT, &d->dir, attributes)) {
        *full = true;
        return 0;
    }
    if (d->last >= COOKIE_DOTDOT)
        return 0;
    /* It may have moved since it was taken from RAM. */
    struct inode parent;
    int rc = meta_inode(d->txn, d->tree.id, d->dir.ino, &parent);
    if (!rc && parent.ino != d->tree.root)
        rc = op_dangling(meta_inode(d->txn, d->tree.id, parent.parent, &parent));
    if (rc)
        return rc;
    *full = !hand_out_dir(d, "..", COOKIE_DOTDOT, &parent, attributes);
    return 0;
}

static uint64_t after(const struct listing *d)
{
    uint64_t last = d->last > COOKIE_DOTDOT ? d->last : 0;
    return last > d->passed ? last : d->passed;
}

/* What only other trees see of a directory that clones have filled in their own ways is passed in steps.  On the main
 * stack the listing ends before it, or is run again in a coroutine where nothing has been handed out. */
static int pass_on(struct listing *d, uint64_t position)
{
    if (!coro_self())
        return d->any ? LISTING_ENDS : SL_EWAIT;
    d->passed = position;
    return txn_renew(d);
}

static int list_names(struct listing *d, bool *eof)
{
    struct entry e;
    for (unsigned count = 1;; count++) {
        int rc = meta_entry_near(d->txn, d->tree.id, d->dir.ino, after(d), &e);
        if (rc == -EAGAIN && (rc = pass_on(d, e.position)) == 0)
            continue;
        if (rc) {
            *eof = rc == -ENOENT;
            return *eof || rc == LISTING_ENDS ? 0 : rc;
        }
        struct store_name name = {.bytes = e.name, .length = e.length};
        struct store_object object = {.tree = d->tree.id, .generation = e.generation, .ino = e.ino};
        if (!hand_out(d, name, e.position, &object, (enum store_type)e.type, NULL))
            return 0;
        if (count % CHECK_EVERY == 0 && (rc = txn_renew(d)))
            return rc;
    }
}

/* ---- with attributes: names are gathered, then their inodes read together ---- */

struct item {
    struct entry entry;
    struct inode inode;
};
struct batch {
    unsigned count;
    bool end;
    uint64_t passed; /* after them, up to here, there is none; 0: not known */
    bool there[BATCH_MOST]; /* not: the entry is still listed, but without attributes */
    struct inode_look looks[BATCH_MOST];
    struct item items[BATCH_MOST];
};

static int batch_names(struct listing *d, struct batch *b, unsigned most)
{
    uint64_t position = after(d);
    b->end = false;
    b->passed = 0;
    for (b->count = 0; b->count < most; b->count++) {
        struct item *item = &b->items[b->count];
        int rc = meta_entry_near(d->txn, d->tree.id, d->dir.ino, position, &item->entry);
        b->end = rc == -ENOENT;
        b->passed = rc == -EAGAIN ? item->entry.position : 0;
        if (rc)
            return b->end || b->passed ? 0 : rc;
        position = item->entry.position;
        b->looks[b->count] = (struct inode_look){.ino = item->entry.ino, .inode = &item->inode};
    }
    return 0;
}

static int batch_fill(struct listing *d, struct batch *b, unsigned most)
{
    int rc = batch_names(d, b, most);
    if (!rc)
        rc = meta_inodes(d->txn, d->tree.id, b->looks, b->count);
    for (unsigned i = 0; i < b->count && !rc; i++)
        b->there[caa_container_of(b->looks[i].inode, struct item, inode) - b->items] = b->looks[i].there;
    return rc;
}

static bool batch_hand_out(struct listing *d, const struct batch *b)
{
    for (unsigned i = 0; i < b->count; i++) {
        const struct item *item = &b->items[i];
        const struct entry *e = &item->entry;
        struct store_name name = {.bytes = e->name, .length = e->length};
        struct store_object object = {
            .tree = d->tree.id, .generation = e->generation, .ino = e->ino};
        struct store_attr attr;
        if (b->there[i])
            attr_from_inode(&d->tree, &item->inode, &attr);
        if (!hand_out(d, name, e->position, &object, (enum store_type)e->type,
                      b->there[i] ? &attr : NULL))
            return false;
    }
    return true;
}

static int list_inodes(struct listing *d, bool *eof)
{
    struct batch *b = malloc(sizeof(*b));
    if (!b)
        return -ENOMEM;
    int rc;
    for (unsigned most = BATCH_FIRST;; most = BATCH_MOST) {
        rc = batch_fill(d, b, most);
        if (rc || !batch_hand_out(d, b))
            break;
        *eof = b->end;
        rc = b->end ? LISTING_ENDS : b->passed ? pass_on(d, b->passed) : txn_renew(d);
        if (rc)
            break;
    }
    free(b);
    return rc == LISTING_ENDS ? 0 : rc;
}

static int list(struct listing *d, bool attributes, bool *eof)
{
    bool full;
    int rc = list_dots(d, attributes, &full);
    if (rc || full)
        return rc;
    return attributes ? list_inodes(d, eof) : list_names(d, eof);
}

int local_readdir(struct store *s, const struct store_cred *c, const struct store_object *dir,
                  uint64_t cookie, bool attributes, store_entry_fn *each, void *arg, bool *eof,
                  struct store_attr *dir_attr)
{
    struct listing d = {.local = local_of(s), .each = each, .arg = arg, .last = cookie};
    *eof = false;
    if (dir_attr)
        memset(dir_attr, 0, sizeof(*dir_attr));
    int rc = meta_tree(d.local, dir->tree, &d.tree);
    if (!rc)
        rc = op_get_inode(d.local, dir, &d.dir);
    if (rc)
        return rc;
    if (dir_attr)
        attr_from_inode(&d.tree, &d.dir, dir_attr);
    if (d.dir.type != STORE_DIR)
        return -ENOTDIR;
    rc = perm_dir(c, &d.dir, PERM_READ);
    if (!rc && !cookie_is_possible(cookie))
        rc = SL_EBADCOOKIE;
    if (!rc)
        rc = txn_open(&d);
    if (rc)
        return rc;
    rc = list(&d, attributes, eof);
    if (d.txn)
        meta_read_end(d.txn);
    return rc;
}
