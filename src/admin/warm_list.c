#include <stdlib.h>
#include <string.h>

#include "admin/warm.h"
#include "sluice/base_coro.h"
#include "sluice/base_protocol.h"
#include "sluice/base_worker.h"

/* How a list stays ahead.  The files in sight are those loaded and not yet read, and some names more.  The store counts
 * what READ gives out of each; what is loaded and not read may be `ahead` bytes, and as the reader takes them more is
 * loaded.  A reader leaves files out (its client has them in its own cache, or it reads a part only): those go from
 * sight, as passed, when it has read half of `ahead` of what is listed behind them.  What it has read before we came to
 * it is not loaded, so that a warm-up that began late, or is slower than the reader, gets in front of it again.
 * A list may name a file several times (epochs): each turn begins where the one before is through with it. */

enum {
    NAMES_AHEAD = 16384,       /* looked up and not loaded */
    PIECE_LEAST = 1 << 20,     /* of a file, unless it is all that is left */
    LOOK_SHARE = 20,           /* looking takes at most this part of the time */
    YIELD_EVERY = 1024,        /* files looked at */
    NAMES_YIELD = 32,
    TURNS = 1 << 17, TURN_PROBES = 8,
    CHECKED_AT_ONCE = 32, NEAR_PART = 4, /* of `ahead` */
    PAUSE_MS = 20, ASKED_MS = 2,
};

/* A file that is in sight, or was.  Its progress is the store's count and what passed turns did not read. */
struct turn {
    uint64_t ino, next; /* next: the progress at which its last turn is through */
    uint64_t passed;
};

struct listed {
    struct store_object object;
    uint32_t turn;
    uint64_t size, loaded;
    uint64_t base; /* the file's progress when this turn begins */
};

struct list {
    struct warm_job *job;
    struct turn *turns;
    struct listed *at; /* [first, loading) are loaded, `loading` perhaps in part */
    size_t first, loading, count, room;
    size_t checked; /* up to here nothing was missing when its turn came near */
    uint64_t ahead, unread; /* unread: no less than it is; look() finds out */
    uint64_t looked_ns, looking_ns;
    bool asked, ended;
};

static uint64_t blocks(uint64_t bytes)
{
    return (bytes + STORE_BLOCK - 1) / STORE_BLOCK * STORE_BLOCK;
}

static uint64_t progress_of(const struct list *l, const struct store_object *o, uint32_t turn)
{
    const struct turn *t = &l->turns[turn];
    return l->job->store->ops->watch_count(l->job->store, o) + (t->ino == o->ino ? t->passed : 0);
}

static uint64_t read_of(const struct list *l, const struct listed *e)
{
    uint64_t progress = progress_of(l, &e->object, e->turn);
    uint64_t read = progress > e->base ? progress - e->base : 0;
    return read < e->size ? read : e->size;
}

static uint64_t left_of(const struct listed *e, uint64_t read)
{
    return e->loaded > read ? blocks(e->loaded - read) : 0;
}

/* ---- names ---- */

static int list_room(struct list *l)
{
    if (l->count < l->room)
        return 0;
    if (l->first > l->room / 2) {
        memmove(l->at, l->at + l->first, (l->count - l->first) * sizeof *l->at);
        l->count -= l->first;
        l->loading -= l->first;
        l->checked = l->checked > l->first ? l->checked - l->first : 0;
        l->first = 0;
        return 0;
    }
    size_t room = l->room ? l->room * 2 : NAMES_AHEAD * 2;
    struct listed *grown = realloc(l->at, room * sizeof *grown);
    if (!grown)
        return -ENOMEM;
    l->at = grown;
    l->room = room;
    return 0;
}

/* The file's place in the table; that of another one which is through, if it has none. */
static uint32_t turn_of(struct list *l, const struct store_object *o)
{
    uint32_t first = (uint32_t)((o->ino * UINT64_C(0x9e3779b97f4a7c15)) >> 40), found = first % TURNS;
    bool other = false;
    for (uint32_t i = 0; i < TURN_PROBES; i++) {
        uint32_t at = (first + i) % TURNS;
        struct turn *t = &l->turns[at];
        struct store_object that = {.tree = o->tree, .ino = t->ino};
        if (t->ino == o->ino)
            return at;
        if (!other && (!t->ino || progress_of(l, &that, at) >= t->next)) {
            found = at;
            other = true;
        }
    }
    l->turns[found] = (struct turn){.ino = o->ino};
    return found;
}

static void begin_turn(struct list *l, struct listed *e)
{
    e->turn = turn_of(l, &e->object);
    struct turn *t = &l->turns[e->turn];
    uint64_t progress = progress_of(l, &e->object, e->turn);
    e->base = t->next > progress ? t->next : progress;
    t->next = e->base + e->size;
}

static int add_name(struct list *l, const char *path, size_t length)
{
    struct warm_job *job = l->job;
    struct store *s = job->store;
    struct store_object o;
    struct store_attr attr;
    size_t at;
    job->total_files++;
    if (warm_leads_up(path, length))
        return warm_failed(job, path, length, "\"..\" is not for a list; name it from the volume's root");
    int error = path_find(job->tree, &root_cred, path, length, &o, &at);
    if (!error)
        error = s->ops->getattr(s, &o, &attr);
    if (error == -ENOMEM)
        return error;
    if (error)
        return warm_failed(job, path, length, sl_strerror(error));
    if (attr.type != STORE_REG)
        return warm_failed(job, path, length, attr.type == STORE_DIR ? "is a directory; a list names files"
                                                                     : "is no regular file");
    error = list_room(l);
    if (error)
        return error;
    struct listed *e = &l->at[l->count++];
    *e = (struct listed){.object = o, .size = attr.size};
    begin_turn(l, e);
    job->total_bytes += attr.size;
    return 0;
}

static int add_names(struct list *l, const json_t *line)
{
    const json_t *names = json_object_get(line, "names"), *item;
    size_t i;
    if (!json_is_array(names))
        return -EINVAL;
    json_array_foreach (names, i, item) {
        size_t length = json_string_length(item);
        char *bytes = json_is_object(item) ? protocol_get_bytes(item, "name", &length) : NULL;
        const char *path = bytes ? bytes : json_string_value(item);
        int error = path ? add_name(l, path, length) : -EINVAL;
        free(bytes);
        if (error)
            return error;
        if (i % NAMES_YIELD == NAMES_YIELD - 1)
            coro_yield();
    }
    l->ended = json_is_true(json_object_get(line, "end"));
    return 0;
}

static int more_names(struct list *l)
{
    if (l->ended)
        return 0;
    if (!l->asked && l->count - l->loading < NAMES_AHEAD) {
        if (request_send(l->job->request, json_pack("{s:s}", "event", "more")) == -EPIPE)
            return -ECANCELED;
        l->asked = true;
    }
    json_t *line;
    int error = l->asked ? request_next(l->job->request, &line) : -EAGAIN;
    if (error == -EAGAIN)
        return 0;
    if (error)
        return error == -EPIPE ? -ECANCELED : error;
    l->asked = false;
    error = add_names(l, line);
    json_decref(line);
    return error;
}

/* ---- the reader ---- */

static void pass(struct list *l, const struct listed *e, uint64_t read)
{
    struct turn *t = &l->turns[e->turn];
    if (t->ino == e->object.ino)
        t->passed += e->size - read;
    l->job->passed_files++;
}

/* Unless another turn of it is in sight. */
static void cool(struct list *l, const struct listed *e)
{
    const struct turn *t = &l->turns[e->turn];
    if (t->ino != e->object.ino || progress_of(l, &e->object, e->turn) >= t->next)
        l->job->store->ops->cool(l->job->store, &e->object);
}

static void leave_sight(struct list *l)
{
    if (l->loading == l->first++)
        l->loading = l->first;
}

/* Lets go of what was read or passed, in the list's order. */
static void let_go(struct list *l, uint64_t read_in_sight)
{
    while (l->first < l->count) {
        struct listed *e = &l->at[l->first];
        uint64_t read = read_of(l, e);
        bool done = read >= e->size && (e->size || l->first < l->loading);
        if (!done && read_in_sight - read < l->ahead / 2)
            return;
        if (done && e->size)
            l->job->read_files++;
        uint64_t left = left_of(e, read);
        l->unread -= left < l->unread ? left : l->unread;
        read_in_sight -= read < read_in_sight ? read : read_in_sight;
        if (!done)
            pass(l, e, read);
        cool(l, e);
        leave_sight(l);
    }
}

static void look(struct list *l)
{
    uint64_t begin = clock_monotonic_ns(), unread = 0, read_in_sight = 0;
    if (begin - l->looked_ns < l->looking_ns * LOOK_SHARE)
        return;
    for (size_t i = l->first; i < l->count; i++) {
        uint64_t read = read_of(l, &l->at[i]);
        read_in_sight += read;
        unread += left_of(&l->at[i], read);
        if (i % YIELD_EVERY == YIELD_EVERY - 1)
            coro_yield();
    }
    l->unread = unread;
    let_go(l, read_in_sight);
    l->looked_ns = clock_monotonic_ns();
    l->looking_ns = l->looked_ns - begin;
    l->job->ahead_bytes = l->unread;
}

/* ---- loading ---- */

/* How much of the next file is to be loaded now; 0: the reader must go on first. */
static uint64_t next_piece(const struct list *l, const struct listed *e)
{
    uint64_t left = e->size - e->loaded, room = l->ahead > l->unread ? l->ahead - l->unread : 0;
    uint64_t length = left < WARM_BATCH_BYTES ? left : WARM_BATCH_BYTES;
    if (length > room)
        length = room / STORE_BLOCK * STORE_BLOCK;
    return l->unread && length < left && length < PIECE_LEAST ? 0 : length;
}

/* *some: there was something to load. */
static int load(struct list *l, bool *some)
{
    struct warm_job *job = l->job;
    job->waiting = false;
    while (l->loading < l->count && !warm_batch_full(job) && job->batch->bytes < l->ahead / 4) {
        struct listed *e = &l->at[l->loading];
        if (e->size && read_of(l, e) == e->size) { /* the reader was faster */
            l->loading++;
            continue;
        }
        uint64_t length = next_piece(l, e);
        if (!length && e->size) {
            job->waiting = job->batch->count == 0;
            break;
        }
        warm_add(job, &e->object, e->loaded, length, e->loaded + length == e->size);
        e->loaded += length;
        l->unread += blocks(length);
        if (e->loaded == e->size)
            l->loading++;
    }
    *some = job->batch->count;
    job->ahead_bytes = l->unread;
    return warm_load(job);
}

/* What the reader comes to next is looked at once more: the cache has other users and a will of its own.  What it has
 * kept costs little to find. */
static int check_next(struct list *l, bool *some)
{
    struct warm_job *job = l->job;
    struct store_range ranges[CHECKED_AT_ONCE];
    struct store_warmed out;
    unsigned count = 0;
    uint64_t near = 0;
    for (size_t i = l->first; i < l->checked && i < l->loading; i++)
        near += left_of(&l->at[i], read_of(l, &l->at[i]));
    if (l->checked < l->first)
        l->checked = l->first;
    while (l->checked < l->loading && count < CHECKED_AT_ONCE && near < l->ahead / NEAR_PART) {
        const struct listed *e = &l->at[l->checked++];
        near += e->size;
        ranges[count++] = (struct store_range){.object = e->object, .length = UINT32_MAX};
    }
    if (!count)
        return 0;
    *some = true;
    int error = job->store->ops->warm(job->store, ranges, count, &out);
    job->disk_bytes += out.disk;
    return error;
}

static int follow(struct list *l)
{
    for (;;) {
        bool some = false;
        int error = more_names(l);
        if (error)
            return error;
        look(l);
        error = load(l, &some);
        if (!error)
            error = check_next(l, &some);
        if (error)
            return error;
        if (l->ended && l->loading == l->count)
            return l->job->total_files ? 0 : -ENODATA;
        if (!some)
            coro_sleep(l->asked ? ASKED_MS : PAUSE_MS);
    }
}

int warm_list(struct warm_job *job, uint64_t ahead)
{
    struct list l = {.job = job, .ahead = ahead, .turns = calloc(TURNS, sizeof *l.turns)};
    int error = l.turns ? job->store->ops->watch_begin(job->store) : -ENOMEM;
    if (!error) {
        error = follow(&l);
        job->store->ops->watch_end(job->store);
    }
    free(l.at);
    free(l.turns);
    return error;
}
