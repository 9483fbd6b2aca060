#include "admin/warm.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sluice/base_config.h"
#include "sluice/base_coro.h"
#include "sluice/base_protocol.h"
#include "sluice/base_worker.h"

enum { PROGRESS_MS = 500, SCAN_PAUSE_MS = 5, PATH_SHOWN = 200 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct warm_job *jobs;

/* ---- batches ---- */

void warm_add(struct warm_job *job, const struct store_object *o, uint64_t offset, uint64_t length, bool last)
{
    struct warm_batch *b = job->batch;
    b->at[b->count++] = (struct store_range){.object = *o, .offset = offset, .length = (uint32_t)length};
    b->bytes += length;
    b->files += last;
}

bool warm_batch_full(const struct warm_job *job)
{
    return job->batch->count == WARM_BATCH_RANGES || job->batch->bytes >= WARM_BATCH_BYTES;
}

int warm_load(struct warm_job *job)
{
    struct warm_batch *b = job->batch;
    struct store_warmed out = {0};
    int error = b->count ? job->store->ops->warm(job->store, b->at, b->count, &out) : 0;
    job->disk_bytes += out.disk;
    job->present_bytes += out.present;
    job->full_bytes += out.full;
    job->failed += out.failed > 0;
    job->done_files += b->files;
    job->done_bytes += b->bytes;
    b->count = b->files = 0;
    b->bytes = 0;
    return error ? error : warm_say(job);
}

/* ---- what the client hears ---- */

static json_t *progress(struct warm_job *job)
{
    json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I}", "done_files",
                          (json_int_t)job->done_files, "done_bytes", (json_int_t)job->done_bytes, "total_files",
                          (json_int_t)job->total_files, "total_bytes", (json_int_t)job->total_bytes, "totals_known",
                          (int)job->totals_known, "disk_bytes", (json_int_t)job->disk_bytes, "present_bytes",
                          (json_int_t)job->present_bytes, "full_bytes", (json_int_t)job->full_bytes, "cache_bytes",
                          (json_int_t)job->cache_bytes, "failed", (json_int_t)job->failed);
    if (o && job->list) {
        json_object_set_new(o, "ahead_bytes", json_integer((json_int_t)job->ahead_bytes));
        json_object_set_new(o, "read_files", json_integer((json_int_t)job->read_files));
        json_object_set_new(o, "passed_files", json_integer((json_int_t)job->passed_files));
        json_object_set_new(o, "waiting", json_boolean(job->waiting));
    }
    return o;
}

int warm_say(struct warm_job *job)
{
    if (request_left(job->request))
        return -ECANCELED;
    uint64_t now = clock_monotonic_ns();
    if (now - job->said_ns < (uint64_t)PROGRESS_MS * 1000000)
        return 0;
    job->said_ns = now;
    json_t *event = progress(job);
    if (event)
        json_object_set_new(event, "event", json_string("progress"));
    return request_send(job->request, event) == -EPIPE ? -ECANCELED : 0;
}

int warm_failed(struct warm_job *job, const char *path, size_t length, const char *reason)
{
    if (job->failed++ >= WARM_FAILURES_SAID)
        return 0;
    json_t *event = json_pack("{s:s, s:s}", "event", "failed", "reason", reason);
    if (event)
        protocol_put_bytes(event, "path", path, length);
    return request_send(job->request, event) == -EPIPE ? -ECANCELED : 0;
}

static int add_job(json_t *to, struct warm_job *job)
{
    json_t *o = progress(job);
    json_t *what = json_string(job->what);
    if (o) {
        json_object_set_new(o, "volume", json_string(job->volume));
        json_object_set_new(o, "what", what ? what : json_string("?")); /* a path that is not UTF-8 */
    } else {
        json_decref(what);
    }
    return json_array_append_new(to, o);
}

bool warm_leads_up(const char *path, size_t length)
{
    for (size_t at = 0; at < length;) {
        const char *slash = memchr(path + at, '/', length - at);
        size_t end = slash ? (size_t)(slash - path) : length;
        if (end - at == 2 && path[at] == '.' && path[at + 1] == '.')
            return true;
        at = end + 1;
    }
    return false;
}

json_t *warm_status(void)
{
    json_t *all = json_array();
    pthread_mutex_lock(&lock);
    for (struct warm_job *job = jobs; job; job = job->next)
        (void)add_job(all, job);
    pthread_mutex_unlock(&lock);
    return all;
}

/* ---- the command ---- */

static bool enlist(struct warm_job *job)
{
    unsigned count = 0;
    pthread_mutex_lock(&lock);
    for (struct warm_job *other = jobs; other; other = other->next)
        count++;
    if (count < WARM_JOBS_MOST) {
        job->next = jobs;
        jobs = job;
    }
    pthread_mutex_unlock(&lock);
    return count < WARM_JOBS_MOST;
}

static void leave(struct warm_job *job)
{
    pthread_mutex_lock(&lock);
    for (struct warm_job **at = &jobs; *at; at = &(*at)->next) {
        if (*at == job) {
            *at = job->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

static json_t *end(struct warm_job *job, int error, bool cut)
{
    if (error == -ECANCELED)
        return request_error(error, "the warm-up was stopped; what it loaded stays as long as the cache keeps it");
    if (error == -EINVAL)
        return request_error(error, "the list is not as it should be: right would be {\"names\":[...]}, and an "
                             "\"end\" with the last");
    if (error == -ENODATA)
        return request_error(error, "the list names no file");
    if (error)
        return request_error(error, "the warm-up stopped: %s", sl_strerror(error));
    json_t *answer = progress(job);
    if (answer)
        json_object_set_new(answer, "cut", json_boolean(cut));
    if (answer)
        json_object_set_new(answer, "share", json_boolean(job->share));
    return answer;
}

/* How far ahead of the reader a list may be: NULL, or what is wrong with the request. */
static json_t *ahead_of(struct request *r, uint64_t cache, uint64_t *out)
{
    const char *text = request_text(r, "ahead");
    *out = cache / 4;
    if (!text)
        return NULL;
    if (size_parse(text, out) || *out == 0)
        return request_error(-EINVAL, "ahead: '%.80s' is no size; right would be 500M or 2G", text);
    if (*out > cache / 2)
        return request_error(-EINVAL, "ahead: %.80s is more than half of what the volume may have of the "
                             "cache, and what is loaded too early is lost before it is read", text);
    return NULL;
}

static json_t *run_list(struct warm_job *job)
{
    uint64_t ahead;
    json_t *answer = ahead_of(job->request, job->cache_bytes, &ahead);
    return answer ? answer : end(job, warm_list(job, ahead), false);
}

static json_t *run_tree(struct warm_job *job)
{
    struct store_object top;
    size_t length = 1, at;
    bool cut = false;
    if (request_text(job->request, "ahead"))
        return request_error(-EINVAL, "ahead goes with a list; a tree is loaded as fast as it goes");
    char *path = protocol_get_bytes(job->request->args, "path", &length);
    const char *from = path ? path : "/";
    bool up = warm_leads_up(from, length);
    int error = up ? 0 : path_find(job->tree, &root_cred, from, length, &top, &at);
    json_t *answer;
    if (up) {
        answer = request_error(-EINVAL, "%.500s: \"..\" may lead out of the volume; name it from the volume's root",
                               from);
    } else if (error) {
        answer = request_error(error, "%s:%.500s: %s", job->volume, from, sl_strerror(error));
    } else {
        job->what = from;
        error = warm_tree(job, &top, &cut);
        answer = end(job, error, cut);
    }
    job->cancelled = true;
    while (job->scanning)
        coro_sleep(SCAN_PAUSE_MS);
    pthread_mutex_lock(&lock);
    job->what = "";
    pthread_mutex_unlock(&lock);
    free(path);
    return answer;
}

/* What the volume may have of the cache. */
static void find_room(struct warm_job *job)
{
    struct store_status status;
    struct store_cache_stats stats = {0};
    job->store->ops->status(job->store, &status);
    job->cache_bytes = status.cache_bytes;
    if (job->store->ops->tree_cache_stats(job->store, job->tree, &stats) == 0 && stats.bound_bytes &&
        stats.bound_bytes < job->cache_bytes) {
        job->cache_bytes = stats.bound_bytes;
        job->share = true;
    }
}

static json_t *run_job(struct warm_job *job)
{
    job->batch = calloc(1, sizeof *job->batch);
    if (!job->batch)
        return request_error(-ENOMEM, "no memory");
    find_room(job);
    job->said_ns = clock_monotonic_ns();
    json_t *answer = job->list ? run_list(job) : run_tree(job);
    free(job->batch);
    return answer;
}

json_t *command_warm(struct request *r)
{
    uint32_t tree;
    json_t *answer = request_tree(r, "name", &tree);
    if (answer)
        return answer;
    struct warm_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->request = r;
    job->store = volume_store();
    job->tree = tree;
    job->list = json_is_true(json_object_get(r->args, "list"));
    job->what = job->list ? "list" : "";
    snprintf(job->volume, sizeof job->volume, "%s", request_text(r, "name"));
    if (!job->store->ops->warm)
        answer = request_error(-ENOTSUP, "this pool has no cache to warm");
    else if (!enlist(job))
        answer = request_error(-EBUSY, "%d warm-ups run already, and more would only hold each other up; sluice "
                               "status shows them", WARM_JOBS_MOST);
    else {
        answer = run_job(job);
        leave(job);
    }
    free(job);
    return answer;
}
