/* recfs BACKING LOG CONTROL MOUNTPOINT [fuse options]: a file system that hands everything on to the directory
 * BACKING and writes down, in order, every change and every sync that reaches it.  From that record images.py builds
 * what a power loss could have left.  It sees io_uring's requests and LMDB's alike, since all go through the kernel.
 *
 * LOG holds one record an event (struct event, then the path's bytes, then the data).  A change and its record are one
 * step.  A sync is recorded when it is done, with the position at which it began: it covers what was recorded before
 * that.  O_DSYNC arrives as a write and a sync through the same handle, and is marked, since it covers no more than
 * that write.  A sync that was made to fail is recorded as such.  Nothing is synced below: a power loss is only ever played.
 *
 * CONTROL is a page shared with the tests: the position reached (read by the load, to know what was on disk when a
 * reply came), how long a sync takes, and switches that make operations fail.  Modes, owners and times of files,
 * sockets and locks are not part of the record. */
#define FUSE_USE_VERSION 312
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MAGIC = 0x52454346 };
enum event_type { EV_CREATE = 1, EV_MKDIR, EV_UNLINK, EV_RMDIR, EV_RENAME, EV_WRITE, EV_TRUNCATE, EV_ZERO, EV_GROW,
                  EV_SYNC, EV_SYNCDIR, EV_FAILED };
enum event_flag { FLAG_DATASYNC = 1, FLAG_DSYNC = 2 };

struct event {
    uint32_t magic, type;
    uint64_t file; /* number of the file, by creation */
    uint64_t offset, length, began;
    uint64_t handle; /* number of the open file description */
    uint32_t flags, path_length, data_length, unused;
};

/* Switches hold bits: below meta/ 1 is LMDB's usual descriptor, 2 the one opened O_DSYNC; elsewhere 1.  For reads 1 is
 * data, 2 is meta/. */
struct control {
    _Atomic uint64_t position; /* events recorded so far */
    _Atomic uint32_t fail_meta_write, fail_meta_sync, fail_data_write, fail_data_sync, fail_read;
    _Atomic uint32_t error;      /* with which errno; 0: EIO */
    _Atomic uint32_t limit;      /* so many failures, then the switches turn themselves off; 0: no limit */
    _Atomic uint32_t sync_us, sync_meta_us; /* what a sync takes, elsewhere and below meta/ */
    _Atomic uint32_t forget;     /* 1: the kernel drops what it has cached of LMDB's data; then 0 again */
    _Atomic uint32_t unused;
    _Atomic uint64_t failures;   /* made so far */
};

struct known { /* a path that a file has had */
    char *path;
    uint64_t file;
};

static struct {
    const char *backing;
    int log_fd;
    struct control *control;
    pthread_mutex_t lock; /* around each change and its record */
    struct known *known;
    size_t known_count;
    uint64_t next_file;
    _Atomic uint64_t next_handle;
} fs = {.lock = PTHREAD_MUTEX_INITIALIZER, .next_file = 1, .next_handle = 1};

struct handle {
    int fd;
    bool meta, dsync;
    bool lock; /* LMDB's lock file: never fails */
    uint64_t file, number;
};

static char *below(const char *path, char to[4096])
{
    snprintf(to, 4096, "%s%s", fs.backing, path);
    return to;
}

static bool is_meta(const char *path)
{
    return strstr(path, "/meta") != NULL; /* meta.new too */
}

static uint64_t file_number(const char *path, bool fresh) /* under the lock */
{
    for (size_t i = 0; i < fs.known_count; i++)
        if (!strcmp(fs.known[i].path, path)) {
            if (fresh)
                fs.known[i].file = fs.next_file++;
            return fs.known[i].file;
        }
    fs.known = realloc(fs.known, (fs.known_count + 1) * sizeof(*fs.known));
    fs.known[fs.known_count] = (struct known){strdup(path), fs.next_file++};
    return fs.known[fs.known_count++].file;
}

static void record(struct event e, const char *path, const void *data) /* under the lock */
{
    e.magic = MAGIC;
    e.path_length = path ? (uint32_t)strlen(path) : 0;
    struct iovec iov[3] = {{&e, sizeof(e)}, {(void *)path, e.path_length}, {(void *)data, e.data_length}};
    ssize_t length = (ssize_t)(sizeof(e) + e.path_length + e.data_length);
    if (writev(fs.log_fd, iov, 3) != length) {
        perror("recfs: log");
        _exit(3);
    }
    fs.control->position++;
}

/* What a path operation returns: the error, or 0 with its event recorded. */
static int done(int rc, struct event e, const char *path, const void *data) /* under the lock, which it ends */
{
    int error = rc ? -errno : 0;
    if (!error)
        record(e, path, data);
    pthread_mutex_unlock(&fs.lock);
    return error;
}

static int failing(_Atomic uint32_t *which, uint32_t bit)
{
    struct control *c = fs.control;
    if (!(*which & bit))
        return 0;
    c->failures++;
    if (c->limit && atomic_fetch_sub(&c->limit, 1) == 1)
        c->fail_meta_write = c->fail_meta_sync = c->fail_data_write = c->fail_data_sync = c->fail_read = 0;
    return c->error ? -(int)c->error : -EIO;
}

static int failing_write(const struct handle *h)
{
    if (h->lock)
        return 0;
    return h->meta ? failing(&fs.control->fail_meta_write, h->dsync ? 2 : 1)
                   : failing(&fs.control->fail_data_write, 1);
}

static struct handle *handle_of(struct fuse_file_info *fi)
{
    return fi ? (struct handle *)(uintptr_t)fi->fh : NULL;
}

/* ---- files ---- */

static int op_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
    char real[4096];
    int rc = handle_of(fi) ? fstat(handle_of(fi)->fd, st) : lstat(below(path, real), st);
    return rc ? -errno : 0;
}

static int open_locked(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    char real[4096];
    bool create = fi->flags & O_CREAT;
    bool fresh = create && access(below(path, real), F_OK) != 0;
    struct handle *h = calloc(1, sizeof(*h));
    h->meta = is_meta(path);
    h->dsync = fi->flags & O_DSYNC;
    h->lock = h->meta && strstr(path, "lock.mdb");
    int fail = fresh ? failing_write(h) : 0;
    int flags = fi->flags & ~(O_DIRECT | O_DSYNC | O_SYNC | O_EXCL | O_NOFOLLOW | O_APPEND | O_ACCMODE);
    h->fd = fail ? -1 : open(below(path, real), flags | O_RDWR | O_CLOEXEC, mode);
    if (h->fd < 0) {
        free(h);
        return fail ? fail : -errno;
    }
    h->file = file_number(path, fresh);
    h->number = fs.next_handle++;
    fi->fh = (uintptr_t)h;
    if (fresh)
        record((struct event){.type = EV_CREATE, .file = h->file, .length = mode}, path, NULL);
    else if (fi->flags & O_TRUNC)
        record((struct event){.type = EV_TRUNCATE, .file = h->file, .handle = h->number}, NULL, NULL);
    return 0;
}

static int op_open(const char *path, struct fuse_file_info *fi)
{
    pthread_mutex_lock(&fs.lock);
    int rc = open_locked(path, 0, fi);
    pthread_mutex_unlock(&fs.lock);
    return rc;
}

static int op_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    fi->flags |= O_CREAT;
    pthread_mutex_lock(&fs.lock);
    int rc = open_locked(path, mode, fi);
    pthread_mutex_unlock(&fs.lock);
    return rc;
}

static int op_read(const char *path, char *buffer, size_t size, off_t offset, struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    int fail = h->lock ? 0 : failing(&fs.control->fail_read, h->meta ? 2 : 1);
    if (fail)
        return fail;
    ssize_t got = pread(h->fd, buffer, size, offset);
    return got < 0 ? -errno : (int)got;
}

static int op_write(const char *path, const char *buffer, size_t size, off_t offset, struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    int fail = failing_write(h);
    if (fail)
        return fail;
    pthread_mutex_lock(&fs.lock);
    ssize_t written = pwrite(h->fd, buffer, size, offset);
    int rc = done(written < 0 ? -1 : 0,
                  (struct event){.type = EV_WRITE, .file = h->file, .offset = (uint64_t)offset,
                                 .length = (uint64_t)written, .handle = h->number,
                                 .data_length = (uint32_t)written},
                  NULL, buffer);
    return rc ? rc : (int)written;
}

static void take_time(bool meta)
{
    uint32_t us = meta ? fs.control->sync_meta_us : fs.control->sync_us;
    if (us)
        usleep(us / 2 + (uint32_t)random() % us);
}

static int op_fsync(const char *path, int datasync, struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    uint64_t began = fs.control->position;
    take_time(h->meta);
    int fail = h->meta ? failing(&fs.control->fail_meta_sync, h->dsync ? 2 : 1)
                       : failing(&fs.control->fail_data_sync, 1);
    uint32_t flags = (datasync ? FLAG_DATASYNC : 0) | (h->dsync ? FLAG_DSYNC : 0);
    pthread_mutex_lock(&fs.lock);
    done(0, (struct event){.type = fail ? EV_FAILED : EV_SYNC, .file = h->file, .began = began,
                           .handle = h->number, .flags = flags},
         NULL, NULL);
    return fail;
}

static int op_release(const char *path, struct fuse_file_info *fi)
{
    close(handle_of(fi)->fd);
    free(handle_of(fi));
    return 0;
}

static int op_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
    char real[4096];
    struct handle *h = handle_of(fi);
    pthread_mutex_lock(&fs.lock);
    int rc = h ? ftruncate(h->fd, size) : truncate(below(path, real), size);
    return done(rc, (struct event){.type = EV_TRUNCATE, .file = h ? h->file : file_number(path, false),
                                   .length = (uint64_t)size, .handle = h ? h->number : 0},
                NULL, NULL);
}

static int op_fallocate(const char *path, int mode, off_t offset, off_t length, struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    struct stat before, after;
    bool zeroes = mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE);
    int fail = zeroes ? 0 : failing_write(h);
    if (fail)
        return fail;
    pthread_mutex_lock(&fs.lock);
    int rc = fstat(h->fd, &before) || fallocate(h->fd, mode, offset, length) || fstat(h->fd, &after) ? -errno : 0;
    struct event e = {.file = h->file, .offset = (uint64_t)offset, .length = (uint64_t)length, .handle = h->number};
    if (!rc && zeroes) {
        e.type = EV_ZERO;
        record(e, NULL, NULL);
    }
    if (!rc && after.st_size != before.st_size) {
        e.type = EV_GROW;
        e.length = (uint64_t)after.st_size;
        record(e, NULL, NULL);
    }
    pthread_mutex_unlock(&fs.lock);
    return rc;
}

static off_t op_lseek(const char *path, off_t offset, int whence, struct fuse_file_info *fi)
{
    off_t at = lseek(handle_of(fi)->fd, offset, whence);
    return at < 0 ? -errno : at;
}

/* ---- names ---- */

static int op_unlink(const char *path)
{
    char real[4096];
    pthread_mutex_lock(&fs.lock);
    return done(unlink(below(path, real)), (struct event){.type = EV_UNLINK}, path, NULL);
}

static int op_rmdir(const char *path)
{
    char real[4096];
    pthread_mutex_lock(&fs.lock);
    return done(rmdir(below(path, real)), (struct event){.type = EV_RMDIR}, path, NULL);
}

static int op_mkdir(const char *path, mode_t mode)
{
    char real[4096];
    pthread_mutex_lock(&fs.lock);
    return done(mkdir(below(path, real), mode), (struct event){.type = EV_MKDIR, .length = mode}, path, NULL);
}

/* The files at and below `from` are now at and below `to`. */
static void move_known(const char *from, const char *to) /* under the lock */
{
    size_t length = strlen(from);
    for (size_t i = 0; i < fs.known_count; i++) { /* what was there is no more: its path must not be found again */
        if (!strcmp(fs.known[i].path, to))
            fs.known[i].path[0] = 0;
    }
    for (size_t i = 0; i < fs.known_count; i++) {
        char *old = fs.known[i].path, moved[8192];
        if (strncmp(old, from, length) || (old[length] && old[length] != '/'))
            continue;
        snprintf(moved, sizeof(moved), "%s%s", to, old + length);
        fs.known[i].path = strdup(moved);
        free(old);
    }
}

static int op_rename(const char *from, const char *to, unsigned flags)
{
    char a[4096], b[4096];
    if (flags)
        return -EINVAL;
    pthread_mutex_lock(&fs.lock);
    if (rename(below(from, a), below(to, b)))
        return done(-1, (struct event){0}, NULL, NULL);
    move_known(from, to);
    return done(0, (struct event){.type = EV_RENAME, .data_length = (uint32_t)strlen(to)}, from, to);
}

static int op_opendir(const char *path, struct fuse_file_info *fi)
{
    char real[4096];
    fi->fh = (uintptr_t)strdup(path);
    return access(below(path, real), F_OK) ? -errno : 0;
}

static int op_releasedir(const char *path, struct fuse_file_info *fi)
{
    free((char *)(uintptr_t)fi->fh);
    return 0;
}

static int op_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *fi,
                      enum fuse_readdir_flags flags)
{
    char real[4096];
    DIR *dir = opendir(below((char *)(uintptr_t)fi->fh, real));
    if (!dir)
        return -errno;
    struct dirent *entry;
    while ((entry = readdir(dir)))
        if (fill(buffer, entry->d_name, NULL, 0, 0))
            break;
    closedir(dir);
    return 0;
}

static int op_fsyncdir(const char *path, int datasync, struct fuse_file_info *fi)
{
    const char *name = (char *)(uintptr_t)fi->fh;
    uint64_t began = fs.control->position;
    take_time(is_meta(name));
    int fail = is_meta(name) ? failing(&fs.control->fail_meta_sync, 1) : failing(&fs.control->fail_data_sync, 1);
    if (fail)
        return fail;
    pthread_mutex_lock(&fs.lock);
    return done(0, (struct event){.type = EV_SYNCDIR, .began = began}, name, NULL);
}

/* ---- not recorded ---- */

static int op_statfs(const char *path, struct statvfs *out)
{
    return statvfs(fs.backing, out) ? -errno : 0;
}

static int op_chmod(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    char real[4096];
    int rc = handle_of(fi) ? fchmod(handle_of(fi)->fd, mode) : chmod(below(path, real), mode);
    return rc ? -errno : 0;
}

static int op_chown(const char *path, uid_t uid, gid_t gid, struct fuse_file_info *fi)
{
    return 0;
}

static int op_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *fi)
{
    return 0;
}

static int op_mknod(const char *path, mode_t mode, dev_t device)
{
    char real[4096];
    return mknod(below(path, real), mode, device) ? -errno : 0;
}

/* ---- the whole ---- */

static void *forget_thread(void *arg)
{
    for (;;) {
        usleep(10000);
        if (!fs.control->forget)
            continue;
        for (size_t i = 0;; i++) { /* without the lock: dropping a page waits for those who write it */
            pthread_mutex_lock(&fs.lock);
            char *path = i < fs.known_count ? strdup(fs.known[i].path) : NULL;
            pthread_mutex_unlock(&fs.lock);
            if (!path)
                break;
            if (is_meta(path) && !strstr(path, "lock.mdb"))
                fuse_invalidate_path(arg, path);
            free(path);
        }
        fs.control->forget = 0;
    }
    return NULL;
}

static void *op_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
    pthread_t thread;
    config->use_ino = 1;
    config->hard_remove = 1;
    config->nullpath_ok = 1;
    config->kernel_cache = 1; /* LMDB's map stays in memory: nobody else changes the files */
    config->attr_timeout = config->entry_timeout = 60;
    conn->want &= ~(unsigned)(FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_WRITEBACK_CACHE);
    conn->max_write = 1 << 20;
    pthread_create(&thread, NULL, forget_thread, fuse_get_context()->fuse);
    pthread_detach(thread);
    return NULL;
}

static const struct fuse_operations operations = {
    .init = op_init,         .getattr = op_getattr,   .open = op_open,       .create = op_create,
    .read = op_read,         .write = op_write,       .fsync = op_fsync,     .release = op_release,
    .truncate = op_truncate, .fallocate = op_fallocate, .lseek = op_lseek,   .unlink = op_unlink,
    .rmdir = op_rmdir,       .mkdir = op_mkdir,       .rename = op_rename,   .opendir = op_opendir,
    .readdir = op_readdir,   .fsyncdir = op_fsyncdir, .releasedir = op_releasedir, .statfs = op_statfs,
    .chmod = op_chmod,       .chown = op_chown,       .utimens = op_utimens, .mknod = op_mknod,
};

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: recfs BACKING LOG CONTROL MOUNTPOINT [options]\n");
        return 2;
    }
    fs.backing = realpath(argv[1], NULL);
    fs.log_fd = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    int fd = open(argv[3], O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (!fs.backing || fs.log_fd < 0 || fd < 0 || ftruncate(fd, 4096)) {
        perror("recfs");
        return 2;
    }
    fs.control = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fs.control == MAP_FAILED) {
        perror("recfs: control");
        return 2;
    }
    argv[3] = argv[0];
    return fuse_main(argc - 3, argv + 3, &operations, NULL);
}
