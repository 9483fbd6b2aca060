/* Snapshots over the control socket: create, list, delete, rename, lock, restore, clone. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "admin/commands.h"
#include "admin/housekeeping.h"
#include "sluice/base_coro.h"
#include "sluice/base_date.h"
#include "sluice/base_protocol.h"

enum { VOLUMES_MOST = 256, NAME_TEXT = 2 * VOLUME_NAME_MAX + 2, BATCH = 256 };

/* ---- names ---- */

json_t *snapshot_find(const char *text, uint32_t *volume, uint32_t *snapshot)
{
    const char *at = text ? strchr(text, '@') : NULL;
    if (!text)
        return request_error(-EINVAL, "the request has no \"name\", which names the snapshot as VOL@NAME");
    if (!at || at == text || !at[1])
        return request_error(-EINVAL, "'%.140s': right would be VOL@NAME, for example train@epoch-12", text);
    if (volume_by_name(text, (size_t)(at - text), volume))
        return request_error(-ENOENT, "there is no volume '%.*s'; sluice volume list shows those there are",
                             (int)(at - text < 80 ? at - text : 80), text);
    if (volume_snapshot_by_name(*volume, at + 1, strlen(at + 1), snapshot))
        return request_error(-ENOENT, "there is no snapshot '%.140s'; sluice snapshot list %.*s shows those there are",
                             text, (int)(at - text), text);
    return NULL;
}

/* ---- create ---- */

struct names {
    uint32_t volumes[VOLUMES_MOST], made[VOLUMES_MOST];
    char volume_names[VOLUMES_MOST][VOLUME_NAME_MAX + 1];
    unsigned count;
    char name[VOLUME_NAME_MAX + 1];
};

static json_t *add_volume(struct names *names, const char *name, size_t length)
{
    if (names->count == VOLUMES_MOST)
        return request_error(-EINVAL, "at most %d volumes at once", VOLUMES_MOST);
    if (length > VOLUME_NAME_MAX || volume_by_name(name, length, &names->volumes[names->count]))
        return request_error(-ENOENT, "there is no volume '%.*s'; sluice volume list shows those there are",
                             (int)(length < 80 ? length : 80), name);
    snprintf(names->volume_names[names->count++], VOLUME_NAME_MAX + 1, "%.*s", (int)length, name);
    return NULL;
}

/* "A,B,C@NAME"; without @NAME the time is the name. */
static json_t *take_names(struct names *names, const char *text)
{
    const char *at = strchr(text, '@'), *end = at ? at : text + strlen(text);
    time_t now = time(NULL);
    struct tm parts;
    if (at && (strlen(at + 1) > VOLUME_NAME_MAX || !at[1]))
        return request_error(-EINVAL, "'%.140s': a snapshot's name has 1 to %d characters", text, VOLUME_NAME_MAX);
    if (at)
        strcpy(names->name, at + 1);
    else
        strftime(names->name, sizeof names->name, "%Y-%m-%d_%H%M%SZ", gmtime_r(&now, &parts));
    while (text <= end) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        const char *stop = comma ? comma : end;
        json_t *problem = add_volume(names, text, (size_t)(stop - text));
        if (problem)
            return problem;
        text = stop + 1;
    }
    return NULL;
}

static json_t *take_date(const struct request *r, const char *key, int64_t *out)
{
    const char *text = request_text(r, key);
    if (!text || date_parse(text, time(NULL), out) == 0)
        return NULL;
    return request_error(-EINVAL, "'%.80s' is no time; right would be 2026-12-31, 2026-12-31 18:00 (UTC) or +30d",
                         text);
}

json_t *command_snapshot_create(struct request *r)
{
    struct names *names = calloc(1, sizeof *names);
    const char *text = request_text(r, "name");
    char why[256], full[NAME_TEXT];
    int64_t lock = 0;
    if (!names)
        return request_error(-ENOMEM, "no memory");
    json_t *answer = text ? take_names(names, text)
                          : request_error(-EINVAL, "the request has no \"name\"; right would be VOL@NAME");
    if (!answer)
        answer = take_date(r, "lock", &lock);
    if (!answer) {
        int error =
            volume_snapshot_create(names->volumes, names->count, names->name, "admin", lock, names->made, why);
        if (error)
            answer = request_error(error, "%s", why);
    }
    if (!answer) {
        json_t *list = json_array();
        for (unsigned i = 0; i < names->count; i++) {
            snprintf(full, sizeof full, "%s@%s", names->volume_names[i], names->name);
            json_array_append_new(list, json_pack("{s:s, s:I}", "name", full, "number", (json_int_t)names->made[i]));
        }
        answer = json_pack("{s:o}", "snapshots", list);
    }
    free(names);
    return answer;
}

/* ---- list ---- */

struct listed {
    uint32_t tree;
    int64_t created, locked_until;
    char name[VOLUME_NAME_MAX + 1], by[32];
};

struct batch { /* copies: what the list hands out must not be kept across a wait */
    struct listed at[BATCH];
    unsigned count;
};

static int copy_snapshot(void *arg, const struct volume_snapshot *s)
{
    struct batch *batch = arg;
    if (batch->count == BATCH)
        return -EEXIST; /* full: the next call goes on from here */
    struct listed *to = &batch->at[batch->count++];
    *to = (struct listed){.tree = s->tree, .created = s->created, .locked_until = s->locked_until};
    snprintf(to->name, sizeof to->name, "%s", s->name);
    snprintf(to->by, sizeof to->by, "%s", s->by);
    return 0;
}

/* Calls each() with every snapshot of the volume; it may wait. */
static int each_snapshot(uint32_t volume, int (*each)(void *arg, const struct listed *s), void *arg)
{
    struct batch *batch = malloc(sizeof *batch);
    uint32_t after = 0;
    int error = batch ? 0 : -ENOMEM;
    do {
        if (!error) {
            batch->count = 0;
            volume_each_snapshot(volume, after, copy_snapshot, batch);
        }
        for (unsigned i = 0; !error && i < batch->count; i++) {
            after = batch->at[i].tree;
            error = each(arg, &batch->at[i]);
        }
    } while (!error && batch->count == BATCH);
    free(batch);
    return error;
}

static int describe_snapshot(void *arg, const struct listed *s)
{
    struct store *store = volume_store();
    struct store_usage usage = {0};
    json_t *one = json_pack("{s:s, s:I, s:s, s:I}", "name", s->name, "created", (json_int_t)s->created, "by", s->by,
                            "number", (json_int_t)s->tree);
    if (!one)
        return -ENOMEM;
    if (s->locked_until > time(NULL))
        json_object_set_new(one, "locked_until", json_integer(s->locked_until));
    uint64_t held;
    if (!store->ops->held(store, s->tree, &held))
        json_object_set_new(one, "bytes_held", json_integer((json_int_t)held));
    if (!store->ops->usage(store, s->tree, &usage)) {
        json_object_set_new(one, "bytes_used", json_integer((json_int_t)usage.bytes_used));
        json_object_set_new(one, "files", json_integer((json_int_t)usage.files_used));
    }
    return json_array_append_new(arg, one) ? -ENOMEM : 0;
}

json_t *command_snapshot_list(struct request *r)
{
    struct volume_copy v;
    json_t *answer = request_volume(r, "name", &v);
    if (answer)
        return answer;
    free(v.config.rules);
    json_t *list = json_array();
    int error = each_snapshot(v.tree, describe_snapshot, list);
    if (!error)
        return json_pack("{s:s, s:o}", "volume", v.config.name, "snapshots", list);
    json_decref(list);
    return request_error(error, "the list cannot be made: %s", sl_strerror(error));
}

/* ---- delete ---- */

struct doomed {
    struct listed *at;
    size_t count, room;
    const char *pattern;
    int64_t before; /* taken before; INT64_MAX: whenever */
};

static int doom(void *arg, const struct listed *s)
{
    struct doomed *d = arg;
    if (fnmatch(d->pattern, s->name, 0) != 0 || s->created >= d->before)
        return 0;
    if (d->count == d->room) {
        size_t room = d->room ? d->room * 2 : 64;
        struct listed *more = realloc(d->at, room * sizeof *more);
        if (!more)
            return -ENOMEM;
        d->at = more;
        d->room = room;
    }
    d->at[d->count++] = *s;
    return 0;
}

/* "VOL@NAME", "VOL@PATTERN", or with an age also "VOL": which snapshots are meant. */
static json_t *find_doomed(const char *text, bool aged, struct doomed *d)
{
    const char *at = strchr(text, '@');
    size_t length = at ? (size_t)(at - text) : strlen(text);
    uint32_t volume;
    if (!at && !aged)
        return request_error(-EINVAL, "'%.140s' names no snapshot; right would be VOL@NAME or VOL@PATTERN", text);
    if (volume_by_name(text, length, &volume))
        return request_error(-ENOENT, "there is no volume '%.*s'; sluice volume list shows those there are",
                             (int)(length < 80 ? length : 80), text);
    size_t before = d->count;
    d->pattern = at ? at + 1 : "*";
    int error = each_snapshot(volume, doom, d);
    if (error)
        return request_error(error, "%s", sl_strerror(error));
    if (d->count == before && !aged)
        return request_error(-ENOENT, "there is no snapshot '%.140s'; sluice snapshot list %.*s shows those there are",
                             text, (int)length, text);
    return NULL;
}

/* Named one by one, none may be locked, or nothing is deleted; of a pattern those that are locked stay. */
static json_t *check_locks(const struct doomed *d)
{
    int64_t now = time(NULL);
    char until[DATE_TEXT];
    for (size_t i = 0; i < d->count; i++)
        if (d->at[i].locked_until > now) {
            date_format(d->at[i].locked_until, until);
            return request_error(-EBUSY, "the snapshot '%s' is locked until %s; nothing was deleted", d->at[i].name,
                                 until);
        }
    return NULL;
}

static json_t *delete_all(const struct doomed *d)
{
    json_t *gone = json_array(), *left = json_array();
    char why[256];
    for (size_t i = 0; i < d->count; i++) {
        int error = volume_snapshot_delete(d->at[i].tree, why);
        if (!error)
            json_array_append_new(gone, json_string(d->at[i].name));
        else if (error != -ESTALE) /* somebody else was faster */
            json_array_append_new(left, json_pack("{s:s, s:s}", "name", d->at[i].name, "why", why));
    }
    return json_pack("{s:o, s:o}", "deleted", gone, "left", left);
}

json_t *command_snapshot_delete(struct request *r)
{
    struct doomed d = {.before = INT64_MAX};
    json_t *names = json_object_get(r->args, "names"), *item, *answer = NULL;
    const char *older = request_text(r, "older");
    bool pattern = older != NULL;
    int64_t age;
    size_t i;
    if (older && span_parse(older, &age))
        return request_error(-EINVAL, "'%.80s' is no age; right would be 12h, 7d or 2w", older);
    if (older)
        d.before = time(NULL) - age;
    if (!json_is_array(names) || !json_array_size(names))
        return request_error(-EINVAL, "the request has no \"names\"; right would be a list of VOL@NAME");
    json_array_foreach (names, i, item) {
        const char *text = json_string_value(item);
        if (!answer)
            answer = text ? find_doomed(text, older, &d) : request_error(-EINVAL, "a name is a text");
        pattern = pattern || (text && strpbrk(text, "*?["));
    }
    if (!answer && !pattern)
        answer = check_locks(&d);
    if (!answer)
        answer = delete_all(&d);
    free(d.at);
    return answer;
}

/* ---- rename, lock ---- */

json_t *command_snapshot_rename(struct request *r)
{
    uint32_t volume, snapshot;
    char why[256];
    const char *to = request_text(r, "to");
    json_t *answer = snapshot_find(request_text(r, "name"), &volume, &snapshot);
    if (answer)
        return answer;
    if (!to)
        return request_error(-EINVAL, "the request has no \"to\", the new name");
    int error = volume_snapshot_rename(snapshot, to, why);
    return error ? request_error(error, "%s", why) : json_object();
}

json_t *command_snapshot_lock(struct request *r)
{
    uint32_t volume, snapshot;
    char why[256];
    int64_t until = 0;
    json_t *answer = snapshot_find(request_text(r, "name"), &volume, &snapshot);
    if (!answer && !request_text(r, "until"))
        answer = request_error(-EINVAL, "until when? right would be --until 2026-12-31 or --until +30d");
    if (!answer)
        answer = take_date(r, "until", &until);
    if (answer)
        return answer;
    int error = volume_snapshot_lock(snapshot, until, why);
    return error ? request_error(error, "%s", why) : json_pack("{s:I}", "locked_until", (json_int_t)until);
}

/* ---- diff ---- */

struct differences {
    struct request *request;
    json_int_t count[4]; /* by kind */
};
static const char *const kind_names[] = {"created", "changed", "removed", "renamed"};

static int send_difference(void *arg, const struct store_difference *d)
{
    struct differences *all = arg;
    json_t *line = json_pack("{s:s, s:b}", "event", kind_names[d->kind], "directory", d->type == STORE_DIR);
    all->count[d->kind]++;
    if (!line || protocol_put_bytes(line, "path", d->path, strlen(d->path)) ||
        (d->new_path && protocol_put_bytes(line, "new_path", d->new_path, strlen(d->new_path)))) {
        json_decref(line);
        return -ENOMEM;
    }
    return request_send(all->request, line);
}

static json_t *diff_error(int error, const char *from, const char *to)
{
    if (error == -EXDEV)
        return request_error(error, "%.140s and %.140s have nothing in common", from, to);
    if (error == -EAGAIN || error == -ENOENT)
        return request_error(-EAGAIN, "%.140s changes too fast to be compared; a snapshot of it would do", to);
    return request_error(error, "they cannot be compared: %s", sl_strerror(error));
}

/* Without "to" against the snapshot's volume as it is now. */
json_t *command_diff(struct request *r)
{
    struct differences all = {.request = r};
    struct store *store = volume_store();
    const char *from = request_text(r, "name"), *to = request_text(r, "to");
    uint32_t volume, a, b;
    json_t *answer = snapshot_find(from, &volume, &a);
    b = volume;
    if (!answer && to)
        answer = request_tree(r, "to", &b);
    if (answer)
        return answer;
    int error = store->ops->diff(store, a, b, send_difference, &all);
    if (error)
        return diff_error(error, from, to ? to : "the volume");
    return json_pack("{s:I, s:I, s:I, s:I}", "created", all.count[STORE_DIFF_CREATED], "changed",
                     all.count[STORE_DIFF_CHANGED], "removed", all.count[STORE_DIFF_REMOVED], "renamed",
                     all.count[STORE_DIFF_RENAMED]);
}

/* ---- restore, clone ---- */

/* Named by the time; a second one in the same second by a number behind it. */
static int restore_safely(uint32_t volume, uint32_t snapshot, char safety[VOLUME_NAME_MAX + 1], char why[256])
{
    time_t now = time(NULL);
    struct tm parts;
    size_t length = strftime(safety, VOLUME_NAME_MAX, "before-restore.%Y-%m-%d_%H%M%SZ", gmtime_r(&now, &parts));
    int error = volume_restore(volume, snapshot, safety, why);
    for (unsigned n = 2; error == -EEXIST && n < 1000; n++) {
        snprintf(safety + length, VOLUME_NAME_MAX + 1 - length, ".%u", n);
        error = volume_restore(volume, snapshot, safety, why);
    }
    return error;
}

json_t *command_restore(struct request *r)
{
    uint32_t volume, snapshot;
    char why[256], safety[VOLUME_NAME_MAX + 1];
    json_t *answer = snapshot_find(request_text(r, "name"), &volume, &snapshot);
    if (answer)
        return answer;
    bool none = json_is_false(json_object_get(r->args, "safety"));
    int error = none ? volume_restore(volume, snapshot, NULL, why) : restore_safely(volume, snapshot, safety, why);
    if (error)
        return request_error(error, "%s", why);
    answer = json_object();
    if (!none)
        json_object_set_new(answer, "safety", json_string(safety));
    return answer;
}

json_t *command_clone_create(struct request *r)
{
    struct volume_copy origin;
    uint32_t volume, snapshot, tree;
    char why[256];
    const char *to = request_text(r, "to");
    const char *name = request_text(r, "name");
    if (name && !strchr(name, '@'))
        return request_error(-EINVAL, "a clone is made of a snapshot, and '%.80s' goes on changing; "
                                      "sluice snapshot create %.80s@NAME takes one",
                             name, name);
    json_t *answer = snapshot_find(name, &volume, &snapshot);
    if (answer)
        return answer;
    if (!to)
        return request_error(-EINVAL, "the request has no \"to\", the name of the clone");
    int error = volume_name_check(to, why);
    if (error)
        return request_error(error, "%s", why);
    answer = volume_copy_of(volume, &origin);
    if (answer)
        return answer;
    snprintf(origin.config.name, sizeof origin.config.name, "%s", to);
    origin.config.policy[0] = 0;
    origin.config.split = VOLUME_SPLIT_NONE;
    origin.config.tier[0] = 0; /* its speed is its own */
    origin.config.limits = (struct tier_limits){0};
    origin.config.min_bandwidth = 0; /* what was promised was promised once */
    origin.config.read_only = !json_is_true(json_object_get(r->args, "writable"));
    error = volume_clone(snapshot, &origin.config, &tree, why);
    free(origin.config.rules);
    return error ? request_error(error, "%s", why)
                 : json_pack("{s:s, s:I, s:b}", "name", to, "number", (json_int_t)tree, "writable",
                             !origin.config.read_only);
}

static const char *split_text(enum volume_split state)
{
    return state == VOLUME_SPLIT_NONE ? "done" : state == VOLUME_SPLIT_PAUSED ? "paused" : "running";
}

/* With "wait" it tells how far it is, until it has ended or nobody listens; the copying goes on all the same. */
json_t *command_clone_split(struct request *r)
{
    struct volume_copy v;
    char why[256];
    json_t *answer = request_volume(r, "name", &v);
    if (answer)
        return answer;
    free(v.config.rules);
    int error = volume_split(v.tree, json_is_true(json_object_get(r->args, "pause")), why);
    if (error)
        return request_error(error, "%s", why);
    housekeeping_tick();
    while (json_is_true(json_object_get(r->args, "wait")) && !request_left(r) &&
           volume_split_state(v.tree) == VOLUME_SPLIT_WANTED) {
        uint64_t bytes, total;
        if (volume_split_progress(v.tree, &bytes, &total) &&
            request_send(r, json_pack("{s:s, s:I, s:I}", "event", "progress", "bytes", (json_int_t)bytes, "total",
                                      (json_int_t)total)))
            break;
        coro_sleep(200);
    }
    return json_pack("{s:s}", "state", split_text(volume_split_state(v.tree)));
}
