#include <stdlib.h>
#include <string.h>

#include "admin/warm.h"
#include "sluice/base_coro.h"
#include "sluice/base_worker.h"

/* ---- walking ---- */

enum { LISTED_MOST = 256, DEPTH_MOST = 4096 };

/* What is left of the cache for a tree: frames are shared with neighbours that were not asked for, and readers want
 * some as well. */
enum { CACHE_PART = 15, CACHE_PARTS = 16 };

struct level { /* a directory, and how far it has been listed */
    struct store_object dir;
    uint64_t cookie;
};

struct listed {
    struct store_object object;
    uint64_t size;
};

/* One listing: files until there is no room, or up to the first directory, which is walked next. */
struct listing {
    unsigned count;
    bool has_dir;
    uint64_t cookie;
    struct store_object dir;
    struct listed at[LISTED_MOST];
};

typedef int file_fn(struct warm_job *job, const struct store_object *o, uint64_t size);

struct walk {
    struct warm_job *job;
    file_fn *file;
    struct level *levels;
    unsigned depth, room;
    struct listing listing;
};

static bool take_entry(void *arg, const struct store_entry *e)
{
    struct listing *l = arg;
    if (l->has_dir || l->count == LISTED_MOST)
        return false;
    l->cookie = e->cookie;
    bool dot = e->name.bytes[0] == '.' && (e->name.length == 1 || (e->name.length == 2 && e->name.bytes[1] == '.'));
    if (e->type == STORE_DIR && !dot) {
        l->has_dir = true;
        l->dir = e->object;
    } else if (e->type == STORE_REG && e->attr) {
        l->at[l->count++] = (struct listed){e->object, e->attr->size};
    }
    return true;
}

static int push(struct walk *w, const struct store_object *dir)
{
    if (w->depth == w->room) {
        unsigned room = w->room ? w->room * 2 : 32;
        struct level *grown = room <= DEPTH_MOST ? realloc(w->levels, room * sizeof *grown) : NULL;
        if (!grown)
            return room <= DEPTH_MOST ? -ENOMEM : -ELOOP;
        w->levels = grown;
        w->room = room;
    }
    w->levels[w->depth++] = (struct level){.dir = *dir};
    return 0;
}

static int step(struct walk *w)
{
    struct level *level = &w->levels[w->depth - 1];
    struct listing *l = &w->listing;
    struct store *s = w->job->store;
    struct store_attr attr;
    bool eof = false;
    l->count = 0;
    l->has_dir = false;
    l->cookie = level->cookie;
    int error = s->ops->readdir(s, &root_cred, &level->dir, level->cookie, true, take_entry, l, &eof, &attr);
    level->cookie = l->cookie;
    if (error == -ESTALE || (!error && eof && !l->has_dir))
        w->depth--; /* ended, or removed meanwhile */
    if (error)
        return error == -ESTALE ? 0 : error;
    for (unsigned i = 0; !error && i < l->count; i++)
        error = w->file(w->job, &l->at[i].object, l->at[i].size);
    coro_yield();
    return error ? error : l->has_dir ? push(w, &l->dir) : 0;
}

static int walk(struct warm_job *job, const struct store_object *top, file_fn *file)
{
    struct walk *w = calloc(1, sizeof *w);
    if (!w)
        return -ENOMEM;
    w->job = job;
    w->file = file;
    int error = push(w, top);
    while (!error && w->depth && !job->cancelled)
        error = step(w);
    free(w->levels);
    free(w);
    return error;
}

/* ---- counting ---- */

struct scan {
    struct warm_job *job;
    struct store_object top;
};

static int count_file(struct warm_job *job, const struct store_object *o, uint64_t size)
{
    job->total_files++;
    job->total_bytes += size;
    return job->cancelled ? -ECANCELED : 0;
}

static void scan(void *arg)
{
    struct scan *s = arg;
    struct warm_job *job = s->job;
    job->totals_known = walk(job, &s->top, count_file) == 0 && !job->cancelled;
    free(s);
    job->scanning = false; /* the job may go now */
}

/* Only for the progress: without it there are no totals. */
static void start_scan(struct warm_job *job, const struct store_object *top)
{
    struct scan *s = malloc(sizeof *s);
    if (!s)
        return;
    *s = (struct scan){job, *top};
    job->scanning = true;
    if (coro_start(scan, s) == 0)
        return;
    job->scanning = false;
    free(s);
}

/* ---- loading ---- */

static uint64_t room_left(const struct warm_job *job)
{
    uint64_t most = job->cache_bytes / CACHE_PARTS * CACHE_PART;
    uint64_t used = job->disk_bytes + job->present_bytes + job->batch->bytes;
    return used < most ? most - used : 0;
}

static int load(struct warm_job *job)
{
    uint64_t before = job->disk_bytes + job->present_bytes, full = job->full_bytes;
    int error = warm_load(job);
    if (!error && job->full_bytes > full && job->disk_bytes + job->present_bytes == before)
        error = -ENOSPC; /* nothing goes in any more */
    return error;
}

static int load_file(struct warm_job *job, const struct store_object *o, uint64_t size)
{
    uint64_t at = 0;
    int error = 0;
    do {
        uint64_t length = size - at, room = room_left(job);
        if (length > WARM_BATCH_BYTES)
            length = WARM_BATCH_BYTES;
        if (length && !room)
            return -ENOSPC;
        if (length > room)
            length = room;
        warm_add(job, o, at, length, at + length == size);
        at += length;
        if (warm_batch_full(job))
            error = load(job);
    } while (!error && at < size);
    return error;
}

int warm_tree(struct warm_job *job, const struct store_object *top, bool *cut)
{
    struct store_attr attr;
    int error = job->store->ops->getattr(job->store, top, &attr);
    if (error)
        return error;
    if (attr.type == STORE_DIR) {
        start_scan(job, top);
        error = walk(job, top, load_file);
    } else if (attr.type == STORE_REG) {
        count_file(job, top, attr.size);
        job->totals_known = true;
        error = load_file(job, top, attr.size);
    } else {
        return -ENOTSUP;
    }
    *cut = error == -ENOSPC;
    if (!error || *cut)
        error = warm_load(job);
    /* The answer says how much of the tree this was. */
    while (!error && job->scanning) {
        coro_sleep(1);
        error = warm_say(job);
    }
    return error;
}
