#include "admin/pool_check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <urcu.h>

#include "admin/commands.h"
#include "sluice/base_config.h"
#include "sluice/base_protocol.h"
#include "sluice/base_worker.h"

enum { NICE = 10, LABEL_ROOM = 2 * VOLUME_NAME_MAX + 64 };
static const uint64_t scrub_rate = UINT64_C(200000000);

/* ---- names ---- */

struct label {
    uint32_t tree;
    char *to;
    bool found;
};

static int label_volume(void *arg, const struct volume_info *info)
{
    struct label *label = arg;
    if (info->tree != label->tree)
        return 0;
    snprintf(label->to, LABEL_ROOM, "%s", info->config->name);
    label->found = true;
    return -EEXIST;
}

static int label_deleted(void *arg, const struct volume_info *info, int64_t deleted)
{
    struct label *label = arg;
    int found = label_volume(arg, info);
    if (found)
        strcat(label->to, " (deleted)");
    return found;
}

static void label_tree(uint32_t tree, char to[LABEL_ROOM])
{
    struct label label = {.tree = tree, .to = to};
    char name[VOLUME_NAME_MAX + 1];
    uint32_t volume;
    bool snapshot = volume_snapshot_of(tree, &volume, name) == 0;
    if (snapshot)
        label.tree = volume;
    volume_each(label_volume, &label);
    if (!label.found)
        volume_each_deleted(label_deleted, &label);
    if (!label.found)
        snprintf(to, LABEL_ROOM, "volume number %u", label.tree);
    if (snapshot) {
        size_t length = strlen(to);
        snprintf(to + length, LABEL_ROOM - length, "@%s", name);
    }
}

/* ---- the thread ---- */

static void finding(void *arg, const struct store_finding *f)
{
    struct pool_check *p = arg;
    char label[LABEL_ROOM];
    json_t *trees = json_array();
    json_t *event = json_pack("{s:s, s:s, s:b}", "event", "finding", "text", f->text, "data", (int)f->is_data);
    if (!event) /* a name in it is not UTF-8 */
        event = json_pack("{s:s, s:s, s:b}", "event", "finding", "text", "something about a file whose name is not "
                          "UTF-8",
                          "data", (int)f->is_data);
    for (unsigned i = 0; i < f->tree_count; i++) {
        label_tree(f->trees[i], label);
        json_array_append_new(trees, json_string(label));
    }
    json_object_set_new(event, "volumes", trees);
    if (f->path && event)
        protocol_put_bytes(event, "path", f->path, f->path_length);
    pthread_mutex_lock(&p->lock);
    json_array_append_new(p->events, event);
    pthread_mutex_unlock(&p->lock);
}

static void *run(void *arg)
{
    struct pool_check *p = arg;
    rcu_register_thread();
    if (p->job.gently)
        setpriority(PRIO_PROCESS, 0, NICE); /* of this thread alone; without it, it pauses all the same */
    p->result = store_check_run(p->store, &p->job);
    rcu_unregister_thread();
    atomic_store(&p->ended, true);
    return NULL;
}

int pool_check_start(struct pool_check *p)
{
    p->job.findings_most = POOL_FINDINGS_MOST;
    p->job.finding = finding;
    p->job.arg = p;
    p->events = json_array();
    if (!p->events)
        return -ENOMEM;
    pthread_mutex_init(&p->lock, NULL);
    int error = -pthread_create(&p->thread, NULL, run, p);
    if (error)
        json_decref(p->events);
    return error;
}

json_t *pool_check_events(struct pool_check *p)
{
    json_t *fresh = json_array();
    pthread_mutex_lock(&p->lock);
    json_t *events = p->events;
    if (fresh)
        p->events = fresh;
    pthread_mutex_unlock(&p->lock);
    return fresh ? events : NULL;
}

static json_t *numbers(const struct pool_check *p)
{
    static const char *const phases[] = {"versions", "names", "chunks", "sums", "data", "end"};
    const struct store_check *job = &p->job;
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "phase", phases[job->phase], "records",
                     (json_int_t)job->records, "records_total", (json_int_t)job->records_total, "bytes",
                     (json_int_t)job->bytes, "bytes_total", (json_int_t)job->bytes_total, "findings",
                     (json_int_t)job->findings, "damaged_blocks", (json_int_t)job->damaged_blocks, "unsettled",
                     (json_int_t)job->unsettled);
}

json_t *pool_check_progress(const struct pool_check *p)
{
    json_t *event = numbers(p);
    if (event)
        json_object_set_new(event, "event", json_string("progress"));
    return event;
}

json_t *pool_check_end(struct pool_check *p)
{
    pthread_join(p->thread, NULL);
    pthread_mutex_destroy(&p->lock);
    json_decref(p->events);
    return p->result ? NULL : numbers(p);
}

/* ---- the server's commands ---- */

static int send_events(struct request *r, struct pool_check *p)
{
    json_t *events = pool_check_events(p), *event;
    size_t i;
    int error = events ? 0 : -ENOMEM;
    json_array_foreach (events, i, event) {
        int now = request_send(r, json_incref(event));
        error = error ? error : now;
    }
    json_decref(events);
    return error;
}

static void watch(struct request *r, struct pool_check *p)
{
    uint64_t last = clock_monotonic_ns();
    for (bool ended = false; !ended;) {
        ended = atomic_load(&p->ended);
        if (!ended)
            coro_sleep(POOL_PAUSE_MS);
        int error = request_left(r) ? -EPIPE : send_events(r, p);
        if (!error && clock_monotonic_ns() - last >= POOL_PROGRESS_MS * UINT64_C(1000000)) {
            last = clock_monotonic_ns();
            error = request_send(r, pool_check_progress(p));
        }
        if (error)
            atomic_store(&p->job.stop, true);
    }
}

static json_t *read_rate(const struct request *r, uint64_t *rate)
{
    const char *text = request_text(r, "rate");
    if (!text)
        return NULL;
    if (strcmp(text, "none") == 0)
        *rate = 0;
    else if (size_parse(text, rate) || *rate < STORE_CHUNK)
        return request_error(-EINVAL, "'%.80s' is no rate; right would be bytes a second, like 50M, 256Ki at least, "
                             "or none",
                             text);
    return NULL;
}

static json_t *run_check(struct request *r, bool metadata, bool data)
{
    struct pool_check *p = calloc(1, sizeof *p);
    if (!p)
        return request_error(-ENOMEM, "no memory");
    p->store = volume_store();
    p->job.metadata = metadata;
    p->job.data = data;
    p->job.gently = true;
    p->job.rate = scrub_rate;
    json_t *answer = read_rate(r, &p->job.rate);
    int error = answer ? 0 : pool_check_start(p);
    if (!answer && !error) {
        watch(r, p);
        answer = pool_check_end(p);
        error = p->result;
    }
    if (!answer)
        answer = request_error(error, error == -ECANCELED ? "stopped before the end" : "the pool cannot be checked: %s",
                               sl_strerror(error));
    free(p);
    return answer;
}

json_t *command_pool_check(struct request *r)
{
    return run_check(r, true, json_is_true(json_object_get(r->args, "data")));
}

json_t *command_pool_scrub(struct request *r)
{
    return run_check(r, false, true);
}
