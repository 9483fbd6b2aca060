#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "admin/import.h"
#include "sluice/base_worker.h"

/* ---- attributes ---- */

static struct store_time store_time(const struct timespec *t)
{
    return (struct store_time){t->tv_sec, (uint32_t)t->tv_nsec};
}

void import_times(struct store_setattr *set, const struct stat *st)
{
    set->set |= STORE_SET_ATIME | STORE_SET_MTIME;
    set->atime = store_time(&st->st_atim);
    set->mtime = store_time(&st->st_mtim);
}

static void all_attributes(struct store_setattr *set, const struct stat *st)
{
    *set = (struct store_setattr){.set = STORE_SET_MODE | STORE_SET_UID | STORE_SET_GID,
                                  .mode = st->st_mode & 07777, .uid = st->st_uid, .gid = st->st_gid};
    import_times(set, st);
}

static bool same_mtime(const struct store_attr *attr, const struct stat *st)
{
    return attr->mtime.seconds == st->st_mtim.tv_sec && attr->mtime.nanoseconds == st->st_mtim.tv_nsec;
}

static bool same_owner_and_mode(const struct store_attr *attr, const struct stat *st)
{
    return attr->mode == (st->st_mode & 07777) && attr->uid == st->st_uid && attr->gid == st->st_gid;
}

static int set_all(struct import *im, const struct store_object *o, const struct stat *st, bool size)
{
    struct store_setattr set;
    struct store_wcc wcc;
    all_attributes(&set, st);
    if (size) {
        set.set |= STORE_SET_SIZE;
        set.size = (uint64_t)st->st_size;
    }
    return im->store->ops->setattr(im->store, &root_cred, o, &set, NULL, &wcc);
}

static struct store_name name_of(const char *name)
{
    return (struct store_name){name, (uint32_t)strlen(name)};
}

static int find(struct import *im, const struct import_dir *dir, const char *name,
                struct store_object *out, struct store_attr *attr)
{
    return im->store->ops->lookup(im->store, &root_cred, &dir->object, name_of(name), out, attr, NULL);
}

static int make(struct import *im, const struct import_dir *dir, const struct import_entry *e,
                struct store_make *how, struct store_object *out)
{
    struct store_attr attr;
    struct store_wcc wcc;
    how->how = STORE_MAKE_GUARDED;
    all_attributes(&how->attr, &e->st);
    return im->store->ops->make(im->store, &root_cred, &dir->object, name_of(e->name), how, out, &attr,
                                &wcc);
}

static void count(struct import *im, const struct stat *st, bool skipped)
{
    im->done_files++;
    if (skipped) {
        im->skipped_files++;
        if (S_ISREG(st->st_mode)) {
            im->skipped_bytes += (uint64_t)st->st_size;
            im->done_bytes += (uint64_t)st->st_size;
        }
    }
}

static void in_the_way(struct import *im, const struct import_dir *dir, const char *name)
{
    import_failed(im, dir, name, "the volume has something else under this name; remove it there first", 0);
}

/* ---- reading the local file, on a blocking thread ---- */

struct read_job {
    int fd;
    const struct stat *st;
    uint64_t offset, end; /* in: where to look; out: offset of what was read */
    char *buffer;
    uint32_t length; /* out; 0: nothing but a hole up to end */
    int error;
};

/* Narrows [offset, end) to the data that begins first in it; false if there is only a hole. */
static bool find_data(struct read_job *job)
{
    if ((uint64_t)job->st->st_blocks * 512 >= (uint64_t)job->st->st_size)
        return true;
    off_t data = lseek(job->fd, (off_t)job->offset, SEEK_DATA);
    if (data < 0)
        return errno != ENXIO; /* a file system that knows no holes: all is data */
    if ((uint64_t)data >= job->end)
        return false;
    off_t hole = lseek(job->fd, data, SEEK_HOLE);
    job->offset = (uint64_t)data;
    if (hole > data && (uint64_t)hole < job->end)
        job->end = (uint64_t)hole;
    return true;
}

static void read_piece(void *arg)
{
    struct read_job *job = arg;
    job->length = 0;
    job->error = 0;
    if (!find_data(job))
        return;
    uint64_t most = STORE_IO_MAX - job->offset % STORE_IO_MAX;
    size_t want = job->end - job->offset < most ? job->end - job->offset : most;
    while (job->length < want) {
        ssize_t got = pread(job->fd, job->buffer + job->length, want - job->length,
                            (off_t)(job->offset + job->length));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            job->error = -errno;
        if (got <= 0)
            return;
        job->length += (uint32_t)got;
    }
}

struct open_job {
    struct import_dir *dir;
    const char *name;
    struct stat st;
    int fd, error;
    struct read_job read; /* the first piece, which for most files is all */
};

static void open_file(void *arg)
{
    struct open_job *job = arg;
    job->error = 0;
    job->fd = openat(job->dir->fd, job->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (job->fd < 0 || fstat(job->fd, &job->st)) {
        job->error = -errno;
        if (job->fd >= 0)
            close(job->fd);
        job->fd = -1;
        return;
    }
    job->read.fd = job->fd;
    job->read.st = &job->st;
    job->read.offset = 0;
    job->read.end = (uint64_t)job->st.st_size;
    if (job->read.end && job->read.end <= IMPORT_RANGE)
        read_piece(&job->read);
}

struct close_job {
    int fd;
    struct stat st;
    bool changed;
};

static void close_file(void *arg)
{
    struct close_job *job = arg;
    struct stat now;
    job->changed = fstat(job->fd, &now) || now.st_size != job->st.st_size ||
                   now.st_mtim.tv_sec != job->st.st_mtim.tv_sec ||
                   now.st_mtim.tv_nsec != job->st.st_mtim.tv_nsec;
    close(job->fd);
}

/* ---- regular files ---- */

static void report(struct import *im, struct import_file *file, bool changed)
{
    if (file->error && file->local_error)
        import_failed(im, file->dir, file->name, "cannot be read", file->error);
    else if (file->error)
        import_store_failed(im, file->dir, file->name, file->error);
    else if (changed)
        import_failed(im, file->dir, file->name, "changed while it was read; import again", 0);
}

/* The content is there; times come last, so that a file left half done does not look complete. */
static void complete_file(struct import *im, struct import_file *file)
{
    struct close_job job = {.fd = file->fd, .st = file->st};
    blocking_run(close_file, &job);
    if (!file->error && !job.changed && !im->cancelled)
        file->error = set_all(im, &file->object, &file->st, true);
    bool good = !file->error && !job.changed && !im->cancelled;
    report(im, file, job.changed);
    if (file->st.st_nlink > 1)
        import_link_done(im, &file->st, good ? &file->object : NULL);
    if (good)
        count(im, &file->st, false);
    import_dir_release(im, file->dir);
    free(file);
}

static void fail_file(struct import_file *file, int error, bool local)
{
    int none = 0;
    if (__atomic_compare_exchange_n(&file->error, &none, error, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        file->local_error = local;
}

static void write_piece(struct import *im, struct import_file *file, const struct read_job *job)
{
    struct store_wcc wcc;
    if (job->error)
        fail_file(file, job->error, true);
    if (job->error || !job->length)
        return;
    int error = im->store->ops->write(im->store, &root_cred, &file->object, job->offset, job->buffer,
                                      job->length, &wcc);
    if (error)
        fail_file(file, error, false);
}

void import_copy_range(struct import_worker *w, struct import_file *file, uint64_t from, uint64_t to)
{
    struct import *im = w->import;
    while (from < to && !file->error && !im->cancelled) {
        struct read_job job = {.fd = file->fd, .st = &file->st, .offset = from, .end = to,
                               .buffer = w->buffer};
        blocking_run(read_piece, &job);
        write_piece(im, file, &job);
        uint64_t reached = job.length ? job.offset + job.length : to; /* nothing left but a hole */
        im->done_bytes += reached - from;
        from = reached;
    }
    pthread_mutex_lock(&im->lock);
    bool last = --file->refs == 0;
    pthread_mutex_unlock(&im->lock);
    if (last)
        complete_file(im, file);
}

static void copy_content(struct import_worker *w, struct import_file *file, const struct read_job *first)
{
    struct import *im = w->import;
    uint64_t size = (uint64_t)file->st.st_size, from = 0;
    if (size > IMPORT_RANGE) {
        import_share_file(im, file);
        return;
    }
    if (size) {
        write_piece(im, file, first);
        from = first->length ? first->offset + first->length : size;
        im->done_bytes += from;
    }
    import_copy_range(w, file, from, size);
}

static int empty_existing(struct import *im, const struct store_object *o, uint64_t size)
{
    struct store_setattr set = {.set = STORE_SET_SIZE};
    struct store_wcc wcc;
    return size ? im->store->ops->setattr(im->store, &root_cred, o, &set, NULL, &wcc) : 0;
}

/* Another import may have made the file since it was looked for. */
static int make_file(struct import *im, struct import_file *file, const struct import_entry *e)
{
    struct store_make how = {.type = STORE_REG};
    struct store_attr attr;
    int error = make(im, file->dir, e, &how, &file->object);
    if (error != -EEXIST || find(im, file->dir, e->name, &file->object, &attr) || attr.type != STORE_REG)
        return error;
    return empty_existing(im, &file->object, attr.size);
}

static void give_up(struct import *im, struct import_file *file)
{
    if (file->fd >= 0) {
        struct close_job job = {.fd = file->fd, .st = file->st};
        blocking_run(close_file, &job);
    }
    if (file->st.st_nlink > 1)
        import_link_done(im, &file->st, NULL);
    import_dir_release(im, file->dir);
    free(file);
}

/* Opens the local file, makes or empties the one in the volume, copies. */
static void copy_file(struct import_worker *w, struct import_file *file, const struct import_entry *e,
                      bool exists, uint64_t old_size)
{
    struct import *im = w->import;
    struct open_job job = {.dir = file->dir, .name = e->name, .read.buffer = w->buffer};
    blocking_run(open_file, &job);
    file->fd = job.fd;
    if (job.error || !S_ISREG(job.st.st_mode) || job.st.st_ino != e->st.st_ino) {
        import_failed(im, file->dir, e->name, job.error ? "cannot be opened" : "was replaced while it was read",
                      job.error);
        give_up(im, file);
        return;
    }
    file->st = job.st;
    file->st.st_nlink = e->st.st_nlink; /* what the table of links was told */
    int error = exists ? empty_existing(im, &file->object, old_size) : make_file(im, file, e);
    if (error) {
        import_store_failed(im, file->dir, e->name, error);
        give_up(im, file);
        return;
    }
    copy_content(w, file, &job.read);
}

static void skip_file(struct import *im, const struct import_dir *dir, const struct import_entry *e,
                      const struct store_object *o, const struct store_attr *attr)
{
    int error = same_owner_and_mode(attr, &e->st) ? 0 : set_all(im, o, &e->st, false);
    if (e->st.st_nlink > 1)
        import_link_done(im, &e->st, o);
    if (error)
        import_store_failed(im, dir, e->name, error);
    else
        count(im, &e->st, true);
}

static void import_regular(struct import_worker *w, struct import_dir *dir, const struct import_entry *e)
{
    struct import *im = w->import;
    struct store_object object = {0};
    struct store_attr attr = {0};
    int error = find(im, dir, e->name, &object, &attr);
    bool there = !error;
    if (there && attr.type == STORE_REG && attr.size == (uint64_t)e->st.st_size && same_mtime(&attr, &e->st)) {
        skip_file(im, dir, e, &object, &attr);
        return;
    }
    struct import_file *file = error && error != -ENOENT ? NULL : calloc(1, sizeof *file);
    if (!file || (there && attr.type != STORE_REG)) {
        if (there && attr.type != STORE_REG)
            in_the_way(im, dir, e->name);
        else
            import_store_failed(im, dir, e->name, there || error == -ENOENT ? -ENOMEM : error);
        if (e->st.st_nlink > 1)
            import_link_done(im, &e->st, NULL);
        free(file);
        return;
    }
    *file = (struct import_file){.dir = dir, .fd = -1, .object = object, .st = e->st, .refs = 1};
    memcpy(file->name, e->name, sizeof file->name);
    dir->refs++;
    copy_file(w, file, e, there, attr.size);
}

/* ---- everything else ---- */

static enum store_type type_of(const struct stat *st)
{
    switch (st->st_mode & S_IFMT) {
    case S_IFREG: return STORE_REG;
    case S_IFLNK: return STORE_LNK;
    case S_IFCHR: return STORE_CHR;
    case S_IFBLK: return STORE_BLK;
    case S_IFIFO: return STORE_FIFO;
    default: return STORE_SOCK;
    }
}

static int link_name(struct import *im, struct import_dir *dir, const struct import_entry *e,
                     const struct store_object *target)
{
    struct store_object object;
    struct store_attr attr;
    struct store_wcc wcc;
    int error = im->store->ops->link(im->store, &root_cred, target, &dir->object, name_of(e->name), &attr,
                                     &wcc);
    if (error == -EEXIST && find(im, dir, e->name, &object, &attr) == 0 && object.ino == target->ino)
        return 0; /* made by another import since it was looked for */
    return error;
}

/* Gives another name to what an earlier one led to.  A file of the same type under that name is what an import left
 * that was stopped, or what it overwrites anyhow. */
static void import_link(struct import *im, struct import_dir *dir, const struct import_entry *e,
                        const struct store_object *target)
{
    struct store_object object;
    struct store_attr attr;
    struct store_wcc wcc;
    int error = find(im, dir, e->name, &object, &attr);
    if (!error && object.ino == target->ino) {
        count(im, &e->st, true);
        return;
    }
    if (!error && attr.type != type_of(&e->st)) {
        in_the_way(im, dir, e->name);
        return;
    }
    if (!error)
        error = im->store->ops->remove(im->store, &root_cred, &dir->object, name_of(e->name), &wcc);
    if (!error || error == -ENOENT)
        error = link_name(im, dir, e, target);
    if (error) {
        import_store_failed(im, dir, e->name, error);
        return;
    }
    count(im, &e->st, false);
    if (S_ISREG(e->st.st_mode))
        im->done_bytes += (uint64_t)e->st.st_size;
}

struct readlink_job {
    int fd;
    const char *name;
    char *target;
    ssize_t length;
    int error;
};

static void read_target(void *arg)
{
    struct readlink_job *job = arg;
    job->length = readlinkat(job->fd, job->name, job->target, PATH_MAX);
    job->error = job->length < 0 ? -errno : 0;
}

static bool same_target(struct import *im, const struct store_object *o, const struct store_make *how)
{
    char target[STORE_LINK_TARGET_MAX];
    uint32_t length = 0;
    struct store_attr attr;
    return im->store->ops->readlink(im->store, &root_cred, o, target, &length, &attr) == 0 &&
           length == how->target.length && memcmp(target, how->target.bytes, length) == 0;
}

/* Symbolic links and special files: made whole by one call.  Returns whether *out is in the volume. */
static bool import_special(struct import *im, struct import_dir *dir, const struct import_entry *e,
                           struct store_make *how, struct store_object *out)
{
    struct store_attr attr;
    int error = find(im, dir, e->name, out, &attr);
    if (!error && (attr.type != how->type || (how->type == STORE_LNK && !same_target(im, out, how)))) {
        in_the_way(im, dir, e->name);
        return false;
    }
    bool there = !error;
    if (there)
        error = same_owner_and_mode(&attr, &e->st) && same_mtime(&attr, &e->st)
                    ? 0
                    : set_all(im, out, &e->st, false);
    else if (error == -ENOENT)
        error = make(im, dir, e, how, out);
    if (!there && error == -EEXIST) /* made by another import since it was looked for */
        error = find(im, dir, e->name, out, &attr);
    if (error)
        import_store_failed(im, dir, e->name, error);
    else
        count(im, &e->st, there);
    return !error;
}

static void import_other(struct import_worker *w, struct import_dir *dir, const struct import_entry *e)
{
    struct import *im = w->import;
    struct store_make how = {.type = type_of(&e->st), .rdev_major = major(e->st.st_rdev),
                             .rdev_minor = minor(e->st.st_rdev)};
    struct store_object object;
    bool made = false;
    struct readlink_job job = {.fd = dir->fd, .name = e->name, .target = w->buffer};
    if (how.type == STORE_LNK)
        blocking_run(read_target, &job);
    how.target = (struct store_name){job.target, (uint32_t)job.length};
    if (job.error)
        import_failed(im, dir, e->name, "cannot be read", job.error);
    else
        made = import_special(im, dir, e, &how, &object);
    if (e->st.st_nlink > 1)
        import_link_done(im, &e->st, made ? &object : NULL);
}

static void import_subdir(struct import *im, struct import_dir *dir, const struct import_entry *e)
{
    struct store_object object;
    struct store_attr attr;
    if (e->st.st_dev == im->pool_dev && e->st.st_ino == im->pool_ino) {
        import_failed(im, dir, e->name, "holds the pool and cannot be imported into itself", 0);
        return;
    }
    struct store_make how = {.type = STORE_DIR};
    int error = find(im, dir, e->name, &object, &attr);
    if (!error && attr.type != STORE_DIR) {
        in_the_way(im, dir, e->name);
        return;
    }
    if (error == -ENOENT)
        error = make(im, dir, e, &how, &object);
    if (error == -EEXIST && find(im, dir, e->name, &object, &attr) == 0 && attr.type == STORE_DIR)
        error = 0; /* made by another import since it was looked for */
    struct import_dir *sub = error ? NULL : import_dir_new(dir, e->name, &e->st, &object);
    if (sub)
        import_push_dir(im, sub);
    else
        import_store_failed(im, dir, e->name, error ? error : -ENOMEM);
}

void import_entry(struct import_worker *w, struct import_dir *dir, const struct import_entry *e)
{
    struct import *im = w->import;
    struct store_object object;
    if (e->error) {
        import_failed(im, dir, e->name, "cannot be looked at", e->error);
        return;
    }
    if (S_ISDIR(e->st.st_mode)) {
        import_subdir(im, dir, e);
        return;
    }
    if (e->st.st_nlink > 1) {
        enum import_link link = import_link_begin(im, &e->st, &object);
        if (link == IMPORT_LINK_THERE)
            import_link(im, dir, e, &object);
        else if (link == IMPORT_LINK_NO_MEMORY)
            import_store_failed(im, dir, e->name, -ENOMEM);
        if (link != IMPORT_LINK_FIRST)
            return;
    }
    if (S_ISREG(e->st.st_mode))
        import_regular(w, dir, e);
    else
        import_other(w, dir, e);
}
