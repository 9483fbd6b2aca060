#include "store/local/readahead.h"

#include <stdlib.h>

#include "store/local/cache.h"
#include "store/local/chunk_map.h"
#include "store/local/fetch.h"
#include "store/local/holds.h"
#include "store/local/readahead_files.h"
#include "store/local/streams.h"

enum {
    CACHE_PART = 32, /* of the cache may be loaded ahead and not used yet */
    JOB_CHUNKS = 4,  /* that one coroutine loads: 1 MiB, a read of the device where it lies together */
    CLOSE_POLL_NS = 1000000,
};

struct readahead {
    struct streams *streams;
    struct siblings *siblings;
    uint64_t most; /* bytes */
    _Atomic uint64_t in_flight;
    _Atomic unsigned jobs;
};

struct job { /* a part of a file */
    struct local *local;
    struct store_object object;
    uint64_t from, to;
};

int readahead_open(struct local *l)
{
    struct readahead *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    uint64_t total, used;
    cache_usage(l, &total, &used);
    r->most = total / CACHE_PART;
    r->streams = streams_new();
    r->siblings = siblings_new();
    l->readahead = r;
    return r->streams && r->siblings ? 0 : -ENOMEM;
}

void readahead_close(struct local *l)
{
    struct readahead *r = l->readahead;
    if (!r)
        return;
    while (atomic_load(&r->jobs))
        nanosleep(&(struct timespec){.tv_nsec = CLOSE_POLL_NS}, NULL);
    streams_free(r->streams);
    siblings_free(r->siblings);
    free(r);
    l->readahead = NULL;
}

static uint64_t room(struct local *l)
{
    struct readahead *r = l->readahead;
    uint64_t taken = cache_ahead_bytes(l->cache) + atomic_load(&r->in_flight);
    return taken < r->most ? r->most - taken : 0;
}

/* ---- loading ---- */

static int add_chunk(const struct job *job, const struct inode *inode, uint64_t chunk, struct chunk_map *map,
                     struct fetch_list *list)
{
    uint64_t start = chunk * STORE_CHUNK;
    unsigned first = job->from > start ? (unsigned)((job->from - start) / STORE_BLOCK) : 0;
    unsigned last = job->to - start < STORE_CHUNK
                        ? (unsigned)((job->to - start + STORE_BLOCK - 1) / STORE_BLOCK)
                        : CHUNK_BLOCKS;
    int error = meta_get_chunk(job->local, job->object.tree, inode, chunk, map);
    if (error || map->kind != CHUNK_MAP)
        return error == -ENOENT ? 0 : error;
    for (unsigned block = first; !error && block < last;) {
        place_t place;
        unsigned blocks = chunk_map_run(map, block, last - block, &place);
        if (place)
            error = fetch_add(job->local, list, place, blocks, map->crc + block);
        block += blocks;
    }
    return error;
}

/* What goes wrong here the READ that really wants the data meets again, and says so. */
static void load(const struct job *job)
{
    struct chunk_map maps[JOB_CHUNKS];
    struct fetch_list list = {.class = fetch_class(job->local, job->object.tree), .ahead = true};
    struct inode inode;
    int error = meta_get_inode(job->local, job->object.tree, job->object.ino, &inode);
    if (error || !holds_is_there(job->local, &job->object, &inode))
        return;
    unsigned count = 0;
    for (uint64_t at = job->from; !error && at < job->to && count < JOB_CHUNKS; count++) {
        uint64_t chunk = at / STORE_CHUNK;
        error = add_chunk(job, &inode, chunk, &maps[count], &list);
        at = (chunk + 1) * STORE_CHUNK;
    }
    if (!error)
        fetch_run(job->local, &list);
    fetch_clear(&list);
}

static void job_run(void *arg)
{
    struct job job = *(struct job *)arg;
    struct readahead *r = job.local->readahead;
    free(arg);
    coro_yield(); /* first what somebody waits for */
    if (!atomic_load(&job.local->stopping))
        load(&job);
    atomic_fetch_sub(&r->in_flight, job.to - job.from);
    atomic_fetch_sub(&r->jobs, 1);
}

static void start(struct local *l, const struct store_object *o, uint64_t from, uint64_t to)
{
    struct readahead *r = l->readahead;
    struct job *job = malloc(sizeof(*job));
    if (!job)
        return;
    *job = (struct job){.local = l, .object = *o, .from = from, .to = to};
    atomic_fetch_add(&r->in_flight, to - from);
    atomic_fetch_add(&r->jobs, 1);
    if (coro_start(job_run, job)) {
        atomic_fetch_sub(&r->in_flight, to - from);
        atomic_fetch_sub(&r->jobs, 1);
        free(job);
    }
}

/* ---- directories of small files ---- */

struct files_job {
    struct local *local;
    struct siblings_plan plan;
    uint64_t bytes;
};

static void files_run(void *arg)
{
    struct files_job job = *(struct files_job *)arg;
    struct readahead *r = job.local->readahead;
    free(arg);
    coro_yield();
    readahead_files(job.local, r->siblings, &job.plan, job.bytes);
    atomic_fetch_sub(&r->in_flight, job.bytes);
    atomic_fetch_sub(&r->jobs, 1);
}

static void start_files(struct local *l, const struct siblings_plan *plan)
{
    struct readahead *r = l->readahead;
    struct files_job *job = malloc(sizeof(*job));
    if (!job) {
        siblings_loaded(r->siblings, plan, plan->after, 0);
        return;
    }
    *job = (struct files_job){.local = l, .plan = *plan, .bytes = room(l)};
    uint64_t bytes = job->bytes;
    atomic_fetch_add(&r->in_flight, bytes);
    atomic_fetch_add(&r->jobs, 1);
    if (coro_start(files_run, job)) {
        siblings_loaded(r->siblings, plan, plan->after, 0);
        atomic_fetch_sub(&r->in_flight, bytes);
        atomic_fetch_sub(&r->jobs, 1);
        free(job);
    }
}

/* A whole file.  Candidates are asked for in coroutines only, where something was missing: looking into the directory
 * may have to wait. */
static void note_file(struct local *l, const struct store_object *o, const struct inode *inode)
{
    struct siblings *t = l->readahead->siblings;
    const struct sibling s = {
        .dir = inode->parent, .position = inode->position, .ino = o->ino, .tree = o->tree};
    struct siblings_plan plan;
    uint64_t before;
    bool load, known = siblings_advance(t, &s, &plan, &load);
    if (!known && coro_self()) {
        enum siblings_answer answer = siblings_candidate(t, &s, &before, &plan);
        load = answer == SIBLINGS_LOAD || (answer == SIBLINGS_ASK && readahead_is_next(l, &s, before) &&
                                           siblings_follow(t, &s, before, &plan));
    }
    if (load)
        start_files(l, &plan);
}

void readahead_note(struct local *l, const struct store_object *o, const struct inode *inode, uint64_t offset,
                    uint64_t end)
{
    if (offset == 0 && end == inode->size) {
        note_file(l, o, inode);
        return;
    }
    struct stream_read read = {
        .ino = o->ino,
        .tree = o->tree,
        .offset = offset,
        .end = end,
        .size = inode->size,
        .room = room(l),
    };
    uint64_t from, to;
    if (!streams_note(l->readahead->streams, &read, &from, &to))
        return;
    while (from < to) {
        uint64_t next = (from / STORE_CHUNK + JOB_CHUNKS) * STORE_CHUNK;
        start(l, o, from, next < to ? next : to);
        from = next;
    }
}
