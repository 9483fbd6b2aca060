#include "nfs/snapview.h"

#include <stdlib.h>
#include <string.h>

#include "sluice/volume.h"

enum { NAME_LENGTH = 9, COOKIE_SELF = 1, COOKIE_PARENT = 2, COOKIE_FIRST = 2, BATCH = 64 };
static const char snapshot_name[NAME_LENGTH + 1] = ".snapshot";

static const struct store_ops *under; /* the store's own */

/* ---- kinds ---- */

static bool is_list(const struct store_object *o)
{
    return o->ino & VIEW_LIST;
}

static bool is_past(const struct store_object *o)
{
    return o->ino & VIEW_PAST;
}

static bool is_view(const struct store_object *o)
{
    return o->ino & VIEW_BITS;
}

static bool names_view(struct store_name name)
{
    return name.length == NAME_LENGTH && memcmp(name.bytes, snapshot_name, NAME_LENGTH) == 0;
}

/* The directory that it stands in, or for. */
static struct store_object plain(const struct store_object *o)
{
    struct store_object object = *o;
    object.ino &= ~VIEW_BITS;
    return object;
}

static struct store_object list_in(uint32_t volume, const struct store_object *dir)
{
    uint64_t ino = (dir->ino & ~VIEW_BITS) | VIEW_LIST;
    return (struct store_object){.tree = volume, .generation = dir->generation, .ino = ino};
}

/* ---- attributes ---- */

/* File ids of objects are below 2^62 (inode number, and the snapshot's number << 40), so these are their own. */
static void past_attr(struct store_attr *attr)
{
    if (attr->type)
        attr->fileid |= VIEW_LIST;
}

/* From those of the directory that it stands in. */
static int list_attr(struct store *s, uint32_t volume, struct store_attr *attr)
{
    uint64_t change;
    struct store_time when;
    int error = under->snapshots_changed(s, volume, &change, &when);
    if (error)
        return error;
    attr->mode &= 0555;
    attr->nlink = 2;
    attr->size = attr->used = STORE_BLOCK;
    attr->fileid |= VIEW_LIST;
    attr->change = change;
    attr->mtime = attr->ctime = when;
    return 0;
}

static int view_attr(struct store *s, const struct store_object *o, struct store_attr *attr)
{
    if (is_list(o))
        return list_attr(s, o->tree, attr);
    past_attr(attr);
    return 0;
}

static int getattr(struct store *s, const struct store_object *o, struct store_attr *out)
{
    if (!is_view(o))
        return under->getattr(s, o, out);
    struct store_object object = plain(o);
    int error = under->getattr(s, &object, out);
    if (!error && out->type != STORE_DIR)
        error = -ESTALE;
    return error ? error : view_attr(s, o, out);
}

static int access_of(struct store *s, const struct store_cred *c, const struct store_object *o, uint32_t want,
                     uint32_t *granted, struct store_attr *attr)
{
    if (!is_view(o))
        return under->access(s, c, o, want, granted, attr);
    struct store_object object = plain(o);
    int error = under->access(s, c, &object, want & (STORE_ACCESS_READ | STORE_ACCESS_LOOKUP), granted, attr);
    return error ? error : view_attr(s, o, attr);
}

/* ---- look-up ---- */

/* The caller may search the directory, and it is one; its attributes come along. */
static int may_search(struct store *s, const struct store_cred *c, const struct store_object *dir,
                      struct store_attr *attr)
{
    uint32_t granted = 0;
    int error = under->access(s, c, dir, STORE_ACCESS_LOOKUP, &granted, attr);
    if (!error && attr->type != STORE_DIR)
        error = -ENOTDIR;
    return !error && !granted ? -EACCES : error;
}

/* `.snapshot` in a directory of the store. */
static int find_list(struct store *s, const struct store_cred *c, const struct store_object *dir,
                     struct store_object *out, struct store_attr *attr, struct store_attr *dir_attr)
{
    uint32_t volume;
    int error = may_search(s, c, dir, attr);
    if (dir_attr)
        *dir_attr = *attr;
    if (error)
        return error;
    if (!volume_snapshot_of(dir->tree, &volume, NULL))
        return -ENOENT; /* none inside a snapshot, so that nobody walks in circles */
    *out = list_in(dir->tree, dir);
    return list_attr(s, dir->tree, attr);
}

/* `.snapshot/NAME` */
static int find_past(struct store *s, const struct store_object *list, struct store_name name,
                     struct store_object *out, struct store_attr *attr)
{
    *out = plain(list);
    int error = volume_snapshot_by_name(list->tree, name.bytes, name.length, &out->tree);
    if (error)
        return error;
    error = under->getattr(s, out, attr);
    if (error == -ESTALE)
        return -ENOENT; /* the directory was not there yet */
    out->ino |= VIEW_PAST;
    past_attr(attr);
    return error;
}

static bool is_dots(struct store_name name, uint32_t length)
{
    return name.length == length && memcmp(name.bytes, "..", length) == 0;
}

static int look_up_in_list(struct store *s, const struct store_cred *c, const struct store_object *list,
                           struct store_name name, struct store_object *out, struct store_attr *attr,
                           struct store_attr *dir_attr)
{
    struct store_object dir = plain(list);
    struct store_attr own;
    int error = may_search(s, c, &dir, &own);
    *attr = own;
    if (!error)
        error = list_attr(s, list->tree, &own);
    if (dir_attr && !error)
        *dir_attr = own;
    if (error)
        return error;
    if (is_dots(name, 1)) {
        *out = *list;
        *attr = own;
        return 0;
    }
    if (is_dots(name, 2)) {
        *out = dir;
        return 0; /* *attr are its attributes */
    }
    return find_past(s, list, name, out, attr);
}

static int look_up_in_past(struct store *s, const struct store_cred *c, const struct store_object *past,
                           struct store_name name, struct store_object *out, struct store_attr *attr,
                           struct store_attr *dir_attr)
{
    struct store_object dir = plain(past);
    uint32_t volume;
    if (names_view(name))
        return -ENOENT;
    int error = under->lookup(s, c, &dir, name, out, attr, dir_attr);
    if (dir_attr)
        past_attr(dir_attr);
    if (error || !(is_dots(name, 1) || is_dots(name, 2)))
        return error;
    *out = *past;
    if (is_dots(name, 2)) {
        error = volume_snapshot_of(past->tree, &volume, NULL);
        *out = list_in(volume, past);
    }
    return error ? error : getattr(s, out, attr);
}

static int lookup(struct store *s, const struct store_cred *c, const struct store_object *dir, struct store_name name,
                  struct store_object *out, struct store_attr *attr, struct store_attr *dir_attr)
{
    struct store_attr unwanted = {0};
    if (!is_view(dir) && !names_view(name))
        return under->lookup(s, c, dir, name, out, attr, dir_attr);
    if (dir_attr)
        dir_attr->type = 0;
    if (!attr)
        attr = &unwanted;
    if (!is_view(dir))
        return find_list(s, c, dir, out, attr, dir_attr);
    return is_list(dir) ? look_up_in_list(s, c, dir, name, out, attr, dir_attr)
                        : look_up_in_past(s, c, dir, name, out, attr, dir_attr);
}

/* ---- listing ---- */

struct listing {
    store_entry_fn *each;
    void *arg;
    const struct store_object *dir; /* as the caller knows it */
    uint32_t volume;                /* of `.snapshot/NAME`'s parent */
    uint64_t cookie;                /* where the caller goes on */
    bool given, full;
};

static bool give(struct listing *l, const char *name, uint64_t fileid, uint64_t cookie)
{
    struct store_entry entry = {
        .name = {name, (uint32_t)strlen(name)}, .fileid = fileid, .cookie = cookie, .type = STORE_DIR};
    l->full = l->full || !l->each(l->arg, &entry);
    return !l->full;
}

/* "." and ".." of `.snapshot/NAME` are not those that the store knows. */
static bool past_entry(void *arg, const struct store_entry *entry)
{
    struct listing *l = arg;
    if (entry->cookie != COOKIE_SELF && entry->cookie != COOKIE_PARENT)
        return l->each(l->arg, entry);
    return give(l, entry->cookie == COOKIE_SELF ? "." : "..",
                entry->cookie == COOKIE_SELF ? entry->fileid | VIEW_LIST : l->dir->ino | VIEW_LIST, entry->cookie);
}

static int list_past(struct store *s, const struct store_cred *c, const struct store_object *past, uint64_t cookie,
                     bool attributes, store_entry_fn *each, void *arg, bool *eof, struct store_attr *dir_attr)
{
    struct store_object dir = plain(past);
    struct listing l = {.each = each, .arg = arg, .dir = &dir};
    int error = under->readdir(s, c, &dir, cookie, attributes, past_entry, &l, eof, dir_attr);
    if (dir_attr)
        past_attr(dir_attr);
    return error;
}

/* The entry comes where its cookie is in the order of cookies. */
static bool root_entry(void *arg, const struct store_entry *entry)
{
    struct listing *l = arg;
    if (!l->given && entry->cookie > VIEW_COOKIE) {
        l->given = true;
        if (!give(l, snapshot_name, l->dir->ino | VIEW_LIST, VIEW_COOKIE))
            return false;
    }
    bool more = l->each(l->arg, entry);
    l->full = l->full || !more;
    return more;
}

static int list_root(struct store *s, const struct store_cred *c, const struct store_object *root, uint64_t cookie,
                     bool attributes, store_entry_fn *each, void *arg, bool *eof, struct store_attr *dir_attr)
{
    struct listing l = {.each = each, .arg = arg, .dir = root, .given = cookie >= VIEW_COOKIE};
    uint64_t from = cookie == VIEW_COOKIE ? VIEW_COOKIE - 1 : cookie; /* the store has no such cookie */
    int error = under->readdir(s, c, root, from, attributes, root_entry, &l, eof, dir_attr);
    if (!error && *eof && !l.given && !give(&l, snapshot_name, root->ino | VIEW_LIST, VIEW_COOKIE))
        *eof = false;
    return error;
}

/* ---- the listing of `.snapshot` ---- */

struct batch {
    struct {
        uint32_t tree, number;
        char name[VOLUME_NAME_MAX + 1];
    } at[BATCH];
    unsigned count;
};

static int copy_snapshot(void *arg, const struct volume_snapshot *snapshot)
{
    struct batch *batch = arg;
    if (batch->count == BATCH)
        return -EEXIST; /* the next batch goes on from here */
    batch->at[batch->count].tree = snapshot->tree;
    batch->at[batch->count].number = snapshot->number;
    strcpy(batch->at[batch->count++].name, snapshot->name);
    return 0;
}

/* 1: the directory is there in the snapshot. */
static int was_there(struct store *s, const struct store_object *dir, uint32_t snapshot)
{
    struct store_object then = {.tree = snapshot, .generation = dir->generation, .ino = dir->ino};
    struct store_attr attr;
    int error = under->getattr(s, &then, &attr);
    return error == -ESTALE ? 0 : error ? error : 1;
}

static int give_batch(struct store *s, struct listing *l, const struct store_object *dir, const struct batch *batch)
{
    for (unsigned i = 0; i < batch->count && !l->full; i++) {
        int there = was_there(s, dir, batch->at[i].tree);
        if (there < 0)
            return there;
        if (there)
            give(l, batch->at[i].name, dir->ino | VIEW_LIST | (uint64_t)batch->at[i].number << 40,
                 (uint64_t)batch->at[i].tree + COOKIE_FIRST);
    }
    return 0;
}

static int give_snapshots(struct store *s, struct listing *l, const struct store_object *dir, bool *eof)
{
    struct batch *batch = malloc(sizeof *batch);
    uint32_t after = l->cookie > COOKIE_FIRST ? (uint32_t)(l->cookie - COOKIE_FIRST) : 0;
    int error = batch ? 0 : -ENOMEM;
    bool more = true;
    while (!error && more && !l->full) {
        batch->count = 0;
        more = volume_each_snapshot(dir->tree, after, copy_snapshot, batch) < 0;
        error = give_batch(s, l, dir, batch);
        if (batch->count)
            after = batch->at[batch->count - 1].tree;
    }
    free(batch);
    *eof = !error && !l->full;
    return error;
}

static int list_snapshots(struct store *s, const struct store_cred *c, const struct store_object *list,
                          uint64_t cookie, store_entry_fn *each, void *arg, bool *eof, struct store_attr *dir_attr)
{
    struct store_object dir = plain(list);
    struct listing l = {.each = each, .arg = arg, .cookie = cookie};
    struct store_attr attr;
    uint32_t granted = 0;
    *eof = false;
    int error = access_of(s, c, list, STORE_ACCESS_READ, &granted, &attr);
    if (dir_attr)
        *dir_attr = attr;
    if (!error && attr.type != STORE_DIR)
        error = -ESTALE;
    if (!error && !granted)
        error = -EACCES;
    if (!error && cookie > (uint64_t)UINT32_MAX + COOKIE_FIRST)
        error = SL_EBADCOOKIE;
    if (error)
        return error;
    if (cookie < COOKIE_SELF)
        give(&l, ".", attr.fileid, COOKIE_SELF);
    if (cookie < COOKIE_PARENT && !l.full)
        give(&l, "..", dir.ino, COOKIE_PARENT);
    return l.full ? 0 : give_snapshots(s, &l, &dir, eof);
}

static int shown_in(void *arg, const struct volume_info *info)
{
    const struct store_object *dir = arg;
    return info->tree == dir->tree && info->config->show_snapshots ? -EEXIST : 0;
}

/* Does this directory's listing have `.snapshot`?  Asked once for each READDIR of a root. */
static bool shows(struct store *s, const struct store_object *dir)
{
    struct store_object root;
    struct store_object copy = *dir;
    return !under->root(s, dir->tree, &root) && root.ino == dir->ino && volume_each(shown_in, &copy) == -EEXIST;
}

static int readdir(struct store *s, const struct store_cred *c, const struct store_object *dir, uint64_t cookie,
                   bool attributes, store_entry_fn *each, void *arg, bool *eof, struct store_attr *dir_attr)
{
    if (is_list(dir))
        return list_snapshots(s, c, dir, cookie, each, arg, eof, dir_attr);
    if (is_past(dir))
        return list_past(s, c, dir, cookie, attributes, each, arg, eof, dir_attr);
    if (shows(s, dir))
        return list_root(s, c, dir, cookie, attributes, each, arg, eof, dir_attr);
    return under->readdir(s, c, dir, cookie, attributes, each, arg, eof, dir_attr);
}

/* ---- what a directory is not for, and what nobody may ---- */

static int read_view(struct store *s, const struct store_cred *c, const struct store_object *o, uint64_t offset,
                     uint32_t length, struct slice_list *data, bool *eof, struct store_attr *attr)
{
    if (!is_view(o))
        return under->read(s, c, o, offset, length, data, eof, attr);
    attr->type = 0;
    return -EISDIR;
}

static int readlink_view(struct store *s, const struct store_cred *c, const struct store_object *o, char *target,
                         uint32_t *length, struct store_attr *attr)
{
    if (!is_view(o))
        return under->readlink(s, c, o, target, length, attr);
    attr->type = 0;
    return -EINVAL;
}

static int commit(struct store *s, const struct store_object *o, struct store_attr *attr)
{
    return is_view(o) ? -EINVAL : under->commit(s, o, attr);
}

static int setattr(struct store *s, const struct store_cred *c, const struct store_object *o,
                   const struct store_setattr *set, const struct store_time *guard, struct store_wcc *wcc)
{
    return is_view(o) ? -EROFS : under->setattr(s, c, o, set, guard, wcc);
}

static int write_view(struct store *s, const struct store_cred *c, const struct store_object *o, uint64_t offset,
                      const void *bytes, uint32_t length, struct store_wcc *wcc)
{
    return is_view(o) ? -EROFS : under->write(s, c, o, offset, bytes, length, wcc);
}

/* May this name come to be in this directory? */
static int may_make(const struct store_cred *c, const struct store_object *dir, struct store_name name)
{
    if (is_view(dir))
        return -EROFS;
    if (names_view(name))
        return c->read_only ? -EROFS : -EEXIST;
    return 0;
}

static bool may_not_go(const struct store_object *dir, struct store_name name)
{
    return is_view(dir) || names_view(name);
}

static int make(struct store *s, const struct store_cred *c, const struct store_object *dir, struct store_name name,
                const struct store_make *how, struct store_object *out, struct store_attr *attr,
                struct store_wcc *dir_wcc)
{
    int error = may_make(c, dir, name);
    return error ? error : under->make(s, c, dir, name, how, out, attr, dir_wcc);
}

static int remove_view(struct store *s, const struct store_cred *c, const struct store_object *dir,
                       struct store_name name, struct store_wcc *dir_wcc)
{
    return may_not_go(dir, name) ? -EROFS : under->remove(s, c, dir, name, dir_wcc);
}

static int rmdir_view(struct store *s, const struct store_cred *c, const struct store_object *dir,
                      struct store_name name, struct store_wcc *dir_wcc)
{
    return may_not_go(dir, name) ? -EROFS : under->rmdir(s, c, dir, name, dir_wcc);
}

static int rename_view(struct store *s, const struct store_cred *c, const struct store_object *from_dir,
                       struct store_name from, const struct store_object *to_dir, struct store_name to,
                       struct store_wcc *from_wcc, struct store_wcc *to_wcc)
{
    int error = may_not_go(from_dir, from) ? -EROFS : may_make(c, to_dir, to);
    return error ? error : under->rename(s, c, from_dir, from, to_dir, to, from_wcc, to_wcc);
}

static int link_view(struct store *s, const struct store_cred *c, const struct store_object *o,
                     const struct store_object *dir, struct store_name name, struct store_attr *attr,
                     struct store_wcc *dir_wcc)
{
    int error = is_view(o) ? -EROFS : may_make(c, dir, name);
    return error ? error : under->link(s, c, o, dir, name, attr, dir_wcc);
}

const struct store_ops *snapview_over(const struct store_ops *store)
{
    static struct store_ops ops;
    under = store;
    ops = *store;
    ops.getattr = getattr;
    ops.setattr = setattr;
    ops.lookup = lookup;
    ops.access = access_of;
    ops.readlink = readlink_view;
    ops.read = read_view;
    ops.write = write_view;
    ops.make = make;
    ops.remove = remove_view;
    ops.rmdir = rmdir_view;
    ops.rename = rename_view;
    ops.link = link_view;
    ops.readdir = readdir;
    ops.commit = commit;
    return &ops;
}
