#include "admin/import.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sluice/base_protocol.h"
#include "sluice/base_worker.h"
#include "sluice/nfs.h"

enum { FAILURES_UNSENT = 1000, PROGRESS_MS = 1000, PAUSE_MS = 20 };

/* ---- failures ---- */

static char *path_of(const struct import_dir *dir, const char *name)
{
    size_t room = name ? strlen(name) + 2 : 1;
    for (const struct import_dir *d = dir; d; d = d->parent)
        room += strlen(d->name) + 1;
    char *path = malloc(room);
    if (!path)
        return NULL;
    char *at = path + room - 1;
    *at = 0;
    for (const struct import_dir *d = dir; d || name; d = name ? d : d->parent, name = NULL) {
        const char *part = name ? name : d->name;
        size_t length = strlen(part);
        at -= length;
        memcpy(at, part, length);
        if (name || d->parent)
            *--at = '/';
    }
    memmove(path, at, strlen(at) + 1);
    return path;
}

void import_failed(struct import *im, const struct import_dir *dir, const char *name, const char *what,
                   int error)
{
    struct import_failure *failure = calloc(1, sizeof *failure);
    im->failed_files++;
    if (!failure)
        return; /* counted, which is all that is left */
    failure->path = path_of(dir, name);
    if (asprintf(&failure->reason, "%s%s%s", what, error ? ": " : "", error ? sl_strerror(error) : "") < 0)
        failure->reason = NULL;
    pthread_mutex_lock(&im->lock);
    *im->failures_end = failure;
    im->failures_end = &failure->next;
    im->failure_count++;
    pthread_mutex_unlock(&im->lock);
    while (im->failure_count > FAILURES_UNSENT && !im->cancelled)
        coro_sleep(PAUSE_MS);
}

static void wake_idle(struct import *im)
{
    while (im->idle) {
        struct import_idle *idle = im->idle;
        im->idle = idle->next;
        coro_wake_remote(idle->coro); /* may be gone right after */
    }
}

static void cancel(struct import *im)
{
    im->cancelled = true;
    pthread_mutex_lock(&im->lock);
    wake_idle(im);
    pthread_mutex_unlock(&im->lock);
}

void import_store_failed(struct import *im, const struct import_dir *dir, const char *name, int error)
{
    import_failed(im, dir, name, "the volume does not take it", error);
    if (error != -ENOSPC && error != -EDQUOT && error != SL_EFROZEN && error != -ESTALE &&
        error != -EROFS)
        return;
    im->fatal = error;
    cancel(im);
}

static int send_failures(struct import *im)
{
    pthread_mutex_lock(&im->lock);
    struct import_failure *failure = im->failures;
    im->failures = NULL;
    im->failures_end = &im->failures;
    im->failure_count = 0;
    pthread_mutex_unlock(&im->lock);
    int error = 0;
    while (failure) {
        struct import_failure *next = failure->next;
        json_t *event = json_pack("{s:s, s:s}", "event", "failed", "reason",
                                  failure->reason ? failure->reason : "no memory");
        if (failure->path && event)
            protocol_put_bytes(event, "path", failure->path, strlen(failure->path));
        int now = request_send(im->request, event);
        error = error ? error : now;
        free(failure->path);
        free(failure->reason);
        free(failure);
        failure = next;
    }
    return error;
}

/* ---- directories and the stack ---- */

struct import_dir *import_dir_new(struct import_dir *parent, const char *name, const struct stat *st,
                                  const struct store_object *object)
{
    size_t length = strlen(name) + 1;
    struct import_dir *dir = calloc(1, sizeof *dir + length);
    if (!dir)
        return NULL;
    dir->parent = parent;
    dir->fd = -1;
    dir->object = *object;
    dir->st = *st;
    dir->refs = 1;
    memcpy(dir->name, name, length);
    if (parent)
        parent->refs++;
    return dir;
}

static void close_stream(void *arg)
{
    closedir(arg);
}

static void set_dir_attributes(struct import *im, struct import_dir *dir)
{
    struct store_setattr set = {0};
    struct store_wcc wcc;
    if (!dir->keep_owner) {
        set = (struct store_setattr){.set = STORE_SET_MODE | STORE_SET_UID | STORE_SET_GID,
                                     .mode = dir->st.st_mode & 07777, .uid = dir->st.st_uid,
                                     .gid = dir->st.st_gid};
    }
    import_times(&set, &dir->st);
    int error = im->store->ops->setattr(im->store, &root_cred, &dir->object, &set, NULL, &wcc);
    if (error)
        import_store_failed(im, dir, NULL, error);
}

void import_dir_release(struct import *im, struct import_dir *dir)
{
    while (dir && --dir->refs == 0) {
        struct import_dir *parent = dir->parent;
        if (!im->cancelled)
            set_dir_attributes(im, dir);
        if (dir->stream)
            blocking_run(close_stream, dir->stream);
        free(dir);
        dir = parent;
    }
}

void import_push_dir(struct import *im, struct import_dir *dir)
{
    pthread_mutex_lock(&im->lock);
    dir->next = im->stack;
    im->stack = dir;
    wake_idle(im);
    pthread_mutex_unlock(&im->lock);
}

static void take_off_stack(struct import *im, struct import_dir *dir)
{
    for (struct import_dir **at = &im->stack; *at; at = &(*at)->next) {
        if (*at == dir) {
            *at = dir->next;
            return;
        }
    }
}

struct list_job {
    struct import_dir *dir;
    struct import_entry *entries;
    unsigned count;
    bool end;
    int error;
};

static int open_dir(struct import_dir *dir)
{
    dir->fd = openat(dir->parent ? dir->parent->fd : AT_FDCWD, dir->name,
                     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir->fd < 0)
        return -errno;
    dir->stream = fdopendir(dir->fd);
    if (dir->stream)
        return 0;
    int error = -errno;
    close(dir->fd);
    dir->fd = -1;
    return error;
}

static void list_some(void *arg)
{
    struct list_job *job = arg;
    struct import_dir *dir = job->dir;
    job->error = dir->stream ? 0 : open_dir(dir);
    while (!job->error && job->count < IMPORT_BATCH) {
        errno = 0;
        struct dirent *found = readdir(dir->stream);
        if (!found) {
            job->error = -errno;
            job->end = true;
            return;
        }
        if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0)
            continue;
        struct import_entry *entry = &job->entries[job->count++];
        snprintf(entry->name, sizeof entry->name, "%s", found->d_name);
        entry->error = fstatat(dir->fd, found->d_name, &entry->st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
    }
}

/* ---- the coroutines ---- */

static void import_batch(struct import_worker *w, struct import_dir *dir)
{
    struct import *im = w->import;
    struct list_job job = {.dir = dir, .entries = w->entries};
    blocking_run(list_some, &job);
    bool ended = job.end || job.error;
    dir->refs++;
    pthread_mutex_lock(&im->lock);
    if (ended)
        take_off_stack(im, dir);
    else
        dir->busy = false;
    if (!ended)
        wake_idle(im);
    pthread_mutex_unlock(&im->lock);
    if (job.error)
        import_failed(im, dir, NULL, "cannot be read", job.error);
    for (unsigned i = 0; i < job.count && !im->cancelled; i++)
        import_entry(w, dir, &w->entries[i]);
    if (ended)
        import_dir_release(im, dir);
    import_dir_release(im, dir);
}

void import_share_file(struct import *im, struct import_file *file)
{
    pthread_mutex_lock(&im->lock);
    file->next = im->shared;
    im->shared = file;
    wake_idle(im);
    pthread_mutex_unlock(&im->lock);
}

/* With the lock: the next range of a shared file.  The last one takes over the reference the list had. */
static struct import_file *take_range(struct import *im, uint64_t *from, uint64_t *to)
{
    struct import_file *file = im->shared;
    if (!file)
        return NULL;
    uint64_t size = (uint64_t)file->st.st_size;
    *from = file->next_offset;
    *to = size - *from > IMPORT_RANGE ? *from + IMPORT_RANGE : size;
    file->next_offset = *to;
    if (*to == size || im->cancelled || file->error)
        im->shared = file->next;
    else
        file->refs++;
    return file;
}

static struct import_dir *take_dir(struct import *im)
{
    struct import_dir *dir = im->stack;
    while (dir && dir->busy)
        dir = dir->next;
    if (dir)
        dir->busy = true;
    return dir;
}

/* With the lock, which is given up in between. */
static void wait_for_work(struct import *im)
{
    struct import_idle idle = {.next = im->idle, .coro = coro_self()};
    im->idle = &idle;
    pthread_mutex_unlock(&im->lock);
    coro_wait();
    pthread_mutex_lock(&im->lock);
}

/* One piece of work; false when there is and will be none. */
static bool import_step(struct import_worker *w)
{
    struct import *im = w->import;
    struct import_file *file = NULL;
    struct import_dir *dir = NULL;
    uint64_t from, to;
    pthread_mutex_lock(&im->lock);
    for (;;) {
        file = take_range(im, &from, &to);
        if (!file && !im->cancelled)
            dir = take_dir(im);
        if (file || dir || !im->active || im->cancelled)
            break;
        wait_for_work(im);
    }
    im->active += file || dir;
    pthread_mutex_unlock(&im->lock);
    if (!file && !dir)
        return false;
    if (file)
        import_copy_range(w, file, from, to);
    else
        import_batch(w, dir);
    pthread_mutex_lock(&im->lock);
    if (--im->active == 0)
        wake_idle(im);
    pthread_mutex_unlock(&im->lock);
    return true;
}

static void import_coroutine(void *arg)
{
    struct import *im = arg;
    struct import_worker w = {.import = im};
    w.entries = malloc(IMPORT_BATCH * sizeof *w.entries);
    w.buffer = malloc(STORE_IO_MAX);
    if (w.entries && w.buffer)
        while (import_step(&w))
            ;
    else
        im->fatal = -ENOMEM;
    free(w.entries);
    free(w.buffer);
    im->running--;
}

/* ---- the command ---- */

static json_t *progress(struct import *im)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:I}", "done_bytes", (json_int_t)im->done_bytes,
                     "total_bytes", (json_int_t)im->total_bytes, "done_files",
                     (json_int_t)im->done_files, "total_files", (json_int_t)im->total_files,
                     "totals_known", (int)im->totals_known, "skipped", (json_int_t)im->skipped_files,
                     "skipped_bytes", (json_int_t)im->skipped_bytes, "failed", (json_int_t)im->failed_files);
}

static int send_progress(struct import *im)
{
    json_t *event = progress(im);
    if (event)
        json_object_set_new(event, "event", json_string("progress"));
    return request_send(im->request, event);
}

static void watch(struct import *im)
{
    uint64_t last = clock_monotonic_ns();
    while (im->running || im->scanning) {
        coro_sleep(PAUSE_MS);
        int error = request_left(im->request) ? -EPIPE : send_failures(im);
        if (clock_monotonic_ns() - last >= (uint64_t)PROGRESS_MS * 1000000) {
            last = clock_monotonic_ns();
            error = error ? error : send_progress(im);
        }
        if ((error || !im->running) && !im->cancelled)
            cancel(im); /* nobody listens, or only the count goes on */
    }
}

static void free_rest(struct import *im)
{
    im->cancelled = true;
    while (im->stack) {
        struct import_dir *dir = im->stack;
        im->stack = dir->next;
        import_dir_release(im, dir);
    }
    import_links_free(im);
    send_failures(im);
}

static json_t *run_import(struct import *im, struct import_dir *top)
{
    import_push_dir(im, top);
    im->scanning = true;
    if (blocking_spawn(import_scan, im))
        im->scanning = false; /* then without totals */
    for (unsigned i = 0; i < IMPORT_COROUTINES; i++) {
        im->running++;
        if (worker_spawn(worker_at(i % workers_count()), import_coroutine, im))
            im->running--;
    }
    watch(im);
    bool stopped = request_gone(im->request) || im->stack;
    free_rest(im);
    if (im->fatal)
        return request_error(im->fatal, "the import stopped: %s; when that is mended, import again: it goes "
                             "on where it was", sl_strerror(im->fatal));
    if (stopped)
        return request_error(-ECANCELED, "the import was stopped; import again, it goes on where it was");
    return progress(im);
}

static bool inside(const char *path, const char *dir)
{
    size_t length = strlen(dir);
    return strncmp(path, dir, length) == 0 &&
           (path[length] == 0 || path[length] == '/' || (length > 0 && dir[length - 1] == '/'));
}

struct look_job {
    const char *from;
    char *real, *pool;
    struct stat st, pool_st;
    int error;
    bool unreadable_pool;
};

static void look(void *arg)
{
    struct look_job *job = arg;
    job->real = realpath(job->from, NULL);
    if (!job->real || stat(job->real, &job->st))
        job->error = -errno;
    job->pool = realpath(commands_options->pool, NULL);
    if (!job->pool || stat(job->pool, &job->pool_st))
        job->unreadable_pool = true;
}

static const char *relation(const char *dir, const char *pool)
{
    return strcmp(dir, pool) == 0 ? "is" : inside(pool, dir) ? "holds" : "lies in";
}

/* NULL when the directory may be imported, else the answer. */
static json_t *check_source(struct look_job *job)
{
    if (job->from[0] != '/')
        return request_error(-EINVAL, "'%.500s' is no absolute path", job->from);
    blocking_run(look, job);
    if (job->error)
        return request_error(job->error, "%.500s: %s; the server itself reads it, as uid %u", job->from,
                             sl_strerror(job->error), (unsigned)geteuid());
    if (!S_ISDIR(job->st.st_mode))
        return request_error(-ENOTDIR, "%.500s is no directory", job->from);
    if (job->unreadable_pool)
        return request_error(-EIO, "the pool's own directory cannot be found, so it cannot be kept apart");
    if (inside(job->pool, job->real) || inside(job->real, job->pool))
        return request_error(-EINVAL, "%.400s %s the pool %.400s; import a directory outside of it",
                             job->from, relation(job->real, job->pool), job->pool);
    return NULL;
}

/* Finds or makes the directory `path`; *made: its last part is new. */
static int make_path(struct import *im, const char *path, size_t length, struct store_object *out,
                     bool *made)
{
    size_t at;
    int error = path_find(im->tree, &root_cred, path, length, out, &at);
    while (error == -ENOENT) {
        struct store_object dir = *out;
        struct store_attr attr;
        struct store_wcc wcc;
        size_t end = at;
        while (end < length && path[end] != '/')
            end++;
        struct store_name name = {path + at, (uint32_t)(end - at)};
        struct store_make how = {
            .type = STORE_DIR, .how = STORE_MAKE_GUARDED,
            .attr = {.set = STORE_SET_MODE | STORE_SET_UID | STORE_SET_GID, .mode = 0755,
                     .uid = im->request->uid, .gid = im->request->gid}};
        error = im->store->ops->make(im->store, &root_cred, &dir, name, &how, out, &attr, &wcc);
        *made = true;
        if (!error || error == -EEXIST)
            error = path_find(im->tree, &root_cred, path, length, out, &at);
    }
    struct store_attr attr;
    if (!error)
        error = im->store->ops->getattr(im->store, out, &attr);
    return error ? error : attr.type == STORE_DIR ? 0 : -ENOTDIR;
}

static json_t *import_into(struct import *im, const struct stat *st)
{
    struct store_object object;
    size_t length = 0;
    bool made = false;
    char *to = protocol_get_bytes(im->request->args, "to", &length);
    int error = make_path(im, to ? to : "/", to ? length : 1, &object, &made);
    struct import_dir *top = error ? NULL : import_dir_new(NULL, im->from, st, &object);
    json_t *answer;
    if (top) {
        top->keep_owner = !made; /* what was there before keeps its owner and mode */
        answer = run_import(im, top);
    } else {
        error = error ? error : -ENOMEM;
        answer = request_error(error, "%.500s in the volume: %s", to ? to : "/", sl_strerror(error));
    }
    free(to);
    return answer;
}

json_t *command_import(struct request *r)
{
    struct volume_copy v;
    size_t length;
    const char *name = request_text(r, "name");
    if (name && strchr(name, '@'))
        return request_error(-EROFS, "'%.140s' is a snapshot, and those stay as they are; import into its volume, or "
                             "into a writable clone of it", name);
    json_t *answer = request_volume(r, "name", &v);
    if (answer)
        return answer;
    free(v.config.rules);
    if (v.config.read_only)
        return request_error(-EROFS, "the volume %s is read-only; sluice volume set %s writable=yes changes that",
                             v.config.name, v.config.name);
    char *from = protocol_get_bytes(r->args, "from", &length);
    if (!from)
        return request_error(-EINVAL, "the request has no \"from\", the directory to import");
    struct look_job job = {.from = from};
    answer = check_source(&job);
    struct import *im = answer ? NULL : calloc(1, sizeof *im);
    if (im) {
        im->request = r;
        im->store = volume_store();
        im->tree = v.tree;
        im->pool_dev = job.pool_st.st_dev;
        im->pool_ino = job.pool_st.st_ino;
        im->from = job.real;
        im->failures_end = &im->failures;
        pthread_mutex_init(&im->lock, NULL);
        pthread_mutex_init(&im->links_lock, NULL);
        nfs_tree_changes(im->tree, true);
        answer = import_into(im, &job.st);
        nfs_tree_changes(im->tree, false);
        free(im);
    }
    free(job.real);
    free(job.pool);
    free(from);
    return answer;
}
