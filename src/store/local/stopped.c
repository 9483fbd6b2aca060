/* A pool that no server uses: opened for a look at it, or to compact its metadata.
 *
 * Compacting copies what is in use into meta.new/, syncs it and exchanges the two directories; what was meta/ is then
 * removed.  Whoever opens the metadata removes a meta.new/ that a crash has left, whichever of the two it is: the
 * exchange is one step, and the copy was whole before it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "sluice/store_check.h"
#include "store/local/meta_private.h"
#include "store/local/named.h"
#include "store/local/ops.h"
#include "store/local/pool.h"

enum { ROOM_MORE = 1 << 20 };
static const char directory[] = "meta", copy[] = "meta.new", data_name[] = "data.mdb";

/* ---- opening ---- */

static bool is_pool(const char *path, char why[256])
{
    char name[4096];
    struct stat info;
    if (snprintf(name, sizeof(name), "%s/POOL", path) < (int)sizeof(name) && stat(name, &info) == 0 &&
        snprintf(name, sizeof(name), "%s/meta/data.mdb", path) < (int)sizeof(name) && stat(name, &info) == 0)
        return true;
    snprintf(why, 256, "%.200s is no pool: %s", path, errno == EACCES ? "permission denied" : "it has no POOL and "
             "meta/");
    return false;
}

static void close_stopped(struct store *s)
{
    struct local *l = local_of(s);
    meta_close(l);
    pool_close(l);
    free(l);
}

static const struct store_ops stopped_ops = {
    .name = "stopped",
    .tree_each = tree_each,
    .named_each = named_each,
    .close = close_stopped,
};

static int open_stopped(struct local *l, const char *path, char why[256])
{
    if (!is_pool(path, why))
        return -ENOENT;
    int error = pool_open(l, path, why);
    if (!error)
        error = meta_open(l, why);
    l->options.pool = l->path;
    return error;
}

int store_open_stopped(const char *path, struct store **out, char why[256])
{
    struct local *l = calloc(1, sizeof(*l));
    why[0] = 0;
    if (!l)
        return -ENOMEM;
    l->store.ops = &stopped_ops;
    l->dir_fd = l->lock_fd = -1;
    int error = open_stopped(l, path, why);
    if (error) {
        l->store.ops->close(&l->store);
        return error;
    }
    *out = &l->store;
    return 0;
}

/* ---- compacting ---- */

static int sync_fd(struct local *l, const char *name)
{
    int fd = openat(l->dir_fd, name, O_RDONLY | O_CLOEXEC);
    int error = fd < 0 || fsync(fd) ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return error;
}

/* Also of files that only copies have. */
static int remove_copy(struct local *l)
{
    static const char *const files[] = {"meta.new/data.mdb", "meta.new/lock.mdb"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (unlinkat(l->dir_fd, files[i], 0) && errno != ENOENT)
            return -errno;
    return unlinkat(l->dir_fd, copy, AT_REMOVEDIR) && errno != ENOENT ? -errno : 0;
}

static int size_of(struct local *l, const char *name, uint64_t *size)
{
    char path[64];
    struct stat info;
    snprintf(path, sizeof(path), "%s/%s", name, data_name);
    if (fstatat(l->dir_fd, path, &info, 0))
        return -errno;
    *size = (uint64_t)info.st_size;
    return 0;
}

/* The copy is no larger than the pages in use. */
static int check_room(struct local *l, char why[256])
{
    struct statvfs info;
    uint64_t used, map_left, spare = 0;
    struct meta_txn *t;
    int error = meta_read_begin(l, &t);
    if (error)
        return error;
    struct record *r = malloc(sizeof(*r));
    MDB_cursor *cursor = NULL;
    MDB_val key, value;
    if (r && mdb_cursor_open(t->mdb, 0, &cursor) == 0) {
        while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0)
            if (value.mv_size >= sizeof(size_t))
                spare += *(const size_t *)value.mv_data * STORE_BLOCK;
        mdb_cursor_close(cursor);
    }
    free(r);
    meta_read_end(t);
    meta_space(l, &used, &map_left);
    uint64_t need = (used > spare ? used - spare : used) + ROOM_MORE;
    if (fstatvfs(l->dir_fd, &info))
        return -errno;
    uint64_t room = (uint64_t)info.f_bavail * info.f_frsize;
    if (room >= need)
        return 0;
    snprintf(why, 256, "there is no room for a copy of the metadata: it needs %llu MiB and %llu are free; delete "
             "something else on this file system", (unsigned long long)(need >> 20) + 1,
             (unsigned long long)room >> 20);
    return -ENOSPC;
}

static int make_copy(struct local *l)
{
    char path[4096];
    int error = remove_copy(l);
    if (!error && mkdirat(l->dir_fd, copy, 0700))
        error = -errno;
    if (!error && snprintf(path, sizeof(path), "%s/%s", l->path, copy) >= (int)sizeof(path))
        error = -ENAMETOOLONG;
    if (!error)
        error = lmdb_error(mdb_env_copy2(l->meta->env, path, MDB_CP_COMPACT));
    if (!error && fchmodat(l->dir_fd, "meta.new/data.mdb", 0600, 0))
        error = -errno;
    if (!error)
        error = sync_fd(l, "meta.new/data.mdb");
    return error ? error : sync_fd(l, copy);
}

static int exchange(struct local *l)
{
    int error = 0;
    if (renameat2(l->dir_fd, copy, l->dir_fd, directory, RENAME_EXCHANGE))
        error = -errno;
    /* A file system that cannot do so: the data file alone, which is one step as well. */
    if (error == -EINVAL || error == -ENOSYS)
        error = renameat(l->dir_fd, "meta.new/data.mdb", l->dir_fd, "meta/data.mdb") ? -errno : sync_fd(l, directory);
    return error ? error : sync_fd(l, ".");
}

static int compact(struct local *l, uint64_t *before, uint64_t *after, char why[256])
{
    int error = size_of(l, directory, before);
    if (!error)
        error = check_room(l, why);
    if (!error)
        error = make_copy(l);
    if (!error)
        error = size_of(l, copy, after);
    meta_close(l);
    if (!error)
        error = exchange(l);
    int left = remove_copy(l);
    return error ? error : left;
}

int store_compact_stopped(const char *path, uint64_t *before, uint64_t *after, char why[256])
{
    struct store *s;
    int error = store_open_stopped(path, &s, why);
    if (error)
        return error;
    error = compact(local_of(s), before, after, why);
    if (error && !why[0])
        snprintf(why, 256, "%.120s: the metadata is as it was: %s", path, sl_strerror(error));
    s->ops->close(s);
    return error;
}
