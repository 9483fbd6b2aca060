/* What sluiced does with a pool that no server uses: --check and --compact. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <urcu.h>

#include "admin/options.h"
#include "admin/pool_check.h"
#include "sluice/base_protocol.h"
#include "sluice/volume.h"

enum { STATUS_FOUND = 1, STATUS_FAILED = 4 };

static void put_line(json_t *object)
{
    if (object)
        json_dumpf(object, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(object);
}

static void put_text(const json_t *event)
{
    const json_t *volumes = json_object_get(event, "volumes");
    size_t length = 0;
    char *path = protocol_get_bytes(event, "path", &length);
    for (size_t i = 0; i < json_array_size(volumes); i++)
        printf("%s%s", i ? ", " : "", json_string_value(json_array_get(volumes, i)));
    if (path)
        printf(":%s", path);
    printf("%s%s\n", json_array_size(volumes) || path ? ": " : "", json_string_value(json_object_get(event, "text")));
    free(path);
}

static int fail(bool json, int error, const char *text)
{
    if (json)
        put_line(json_pack("{s:b, s:s, s:s}", "ok", 0, "error", text, "code", sl_errname(error)));
    else
        fprintf(stderr, "sluiced: %s\n", text);
    return STATUS_FAILED;
}

/* ---- the check ---- */

static void put_events(struct pool_check *p, bool json)
{
    json_t *events = pool_check_events(p), *event;
    size_t i;
    json_array_foreach (events, i, event) {
        if (json)
            put_line(json_incref(event));
        else
            put_text(event);
    }
    json_decref(events);
}

static int follow(struct pool_check *p, bool json)
{
    char text[160];
    for (unsigned ms = 0; !atomic_load(&p->ended); ms += POOL_PAUSE_MS) {
        usleep(POOL_PAUSE_MS * 1000);
        put_events(p, json);
        if (json && ms % POOL_PROGRESS_MS == 0)
            put_line(pool_check_progress(p));
    }
    put_events(p, json);
    json_t *answer = pool_check_end(p);
    if (!answer) {
        snprintf(text, sizeof text, "the pool cannot be checked: %s", sl_strerror(p->result));
        return fail(json, p->result, text);
    }
    unsigned long long found = p->job.findings;
    if (json) {
        json_object_set_new(answer, "ok", json_true());
        put_line(answer);
    } else {
        json_decref(answer);
        if (found > POOL_FINDINGS_MOST)
            printf("and %llu more\n", found - POOL_FINDINGS_MOST);
        printf("%llu records%s checked: %s\n", (unsigned long long)p->job.records, p->job.data ? " and all data" : "",
               found ? "see above" : "all is right");
    }
    return found ? STATUS_FOUND : 0;
}

static int check(struct store *s, const struct options *o)
{
    struct pool_check *p = calloc(1, sizeof *p);
    int error = p ? volume_start(s) : -ENOMEM;
    if (error) {
        free(p);
        return fail(o->json, error, "the volumes' records cannot be read; restore the pool's meta/ from a backup");
    }
    p->store = s;
    p->job.metadata = true;
    p->job.data = o->check_data;
    error = pool_check_start(p);
    int status = error ? fail(o->json, error, sl_strerror(error)) : follow(p, o->json);
    volume_stop();
    free(p);
    return status;
}

int pool_check_stopped(const struct options *o)
{
    struct store *s;
    char why[256];
    rcu_register_thread();
    int error = store_open_stopped(o->pool, &s, why);
    int status = error ? fail(o->json, error, *why ? why : sl_strerror(error)) : check(s, o);
    if (!error)
        s->ops->close(s);
    rcu_unregister_thread();
    return status;
}

/* ---- compacting ---- */

int pool_compact_stopped(const struct options *o)
{
    uint64_t before = 0, after = 0;
    char why[256], a[32], b[32];
    rcu_register_thread();
    int error = store_compact_stopped(o->pool, &before, &after, why);
    rcu_unregister_thread();
    if (error)
        return fail(o->json, error, *why ? why : sl_strerror(error));
    if (o->json)
        put_line(json_pack("{s:b, s:I, s:I}", "ok", 1, "before", (json_int_t)before, "after", (json_int_t)after));
    else
        printf("metadata: %s, before %s\n", size_format(after, a), size_format(before, b));
    return 0;
}
