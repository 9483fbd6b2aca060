/* Takes what a policy says at its times, and deletes what is too many.
 *
 * When a part of a policy was last served is kept in RAM and begins, at start, with the newest snapshot that it took:
 * what was missed meanwhile is due once, and taken once.  Without such a snapshot it begins when the volume got the
 * policy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sluice/base_log.h"
#include "volume/change.h"
#include "volume/policy.h"

struct served { /* one part of one volume's policy */
    struct served *next;
    uint32_t volume;
    char prefix[POLICY_PREFIX_MAX + 1];
    int64_t last;
};
static int64_t (*the_clock)(void);
static struct served *served;
static struct coro_mutex running; /* one round at a time */

void volume_set_clock(int64_t (*clock)(void))
{
    the_clock = clock;
}

int64_t volume_now(void)
{
    return the_clock ? the_clock() : time(NULL);
}

void schedule_stop(void)
{
    while (served) {
        struct served *next = served->next;
        free(served);
        served = next;
    }
}

/* ---- what it has taken ---- */

struct taken {
    const char *by;
    uint32_t count, oldest;
    int64_t newest; /* when; 0: none */
};

static int count_taken(void *arg, const struct volume_snapshot *s)
{
    struct taken *t = arg;
    if (strcmp(s->by, t->by) != 0)
        return 0;
    if (t->count++ == 0)
        t->oldest = s->tree;
    t->newest = s->created;
    return 0;
}

static struct taken taken_by(uint32_t volume, const char *prefix)
{
    struct taken t = {.by = prefix};
    volume_each_snapshot(volume, 0, count_taken, &t);
    return t;
}

static struct served *served_of(uint32_t volume, const struct policy_keep *k, int64_t since)
{
    for (struct served *s = served; s; s = s->next)
        if (s->volume == volume && strcmp(s->prefix, k->prefix) == 0)
            return s;
    struct served *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    int64_t newest = taken_by(volume, k->prefix).newest;
    *s = (struct served){.next = served, .volume = volume, .last = newest ? newest : since};
    snprintf(s->prefix, sizeof s->prefix, "%s", k->prefix);
    served = s;
    return s;
}

/* ---- one volume ---- */

static void complain(const char *volume, const char *what, const char *why)
{
    static _Atomic long last;
    if (log_ratelimit(&last))
        log_warning("schedule", "%s of volume %s: %s", what, volume, why);
}

static void take(const char *volume_name, uint32_t volume, const struct policy_keep *k, int64_t due, int64_t now)
{
    char name[VOLUME_NAME_MAX + 1], when[32], why[256];
    time_t at = (time_t)due;
    struct tm parts;
    uint32_t made;
    strftime(when, sizeof when, "%Y-%m-%d_%H%MZ", gmtime_r(&at, &parts));
    snprintf(name, sizeof name, "%s.%s", k->prefix, when);
    int error = volume_snapshot_create(&volume, 1, name, k->prefix, k->lock ? now + k->lock : 0, &made, why);
    if (error && error != -EEXIST) /* a clock that was set back comes by the same minute again */
        complain(volume_name, name, why);
}

/* By the order in which they were taken, whatever the clock said then.  What is locked stays, and counts. */
static void prune(const char *volume_name, uint32_t volume, const struct policy_keep *k)
{
    struct taken t;
    char why[256];
    while ((t = taken_by(volume, k->prefix)).count > k->keep) {
        int error = volume_snapshot_delete(t.oldest, why);
        if (error) {
            if (error != -EBUSY)
                complain(volume_name, k->prefix, why);
            break;
        }
    }
}

static void serve_part(const char *name, uint32_t volume, const struct policy_keep *k, int64_t since, int64_t now)
{
    struct served *s = served_of(volume, k, since);
    if (!s)
        return; /* no memory: the next round */
    if (s->last > now)
        s->last = now; /* the clock was set back */
    int64_t due = policy_due(k, now);
    if (due > s->last) {
        s->last = due;
        take(name, volume, k, due, now);
    }
    prune(name, volume, k);
}

/* ---- all ---- */

struct todo {
    struct {
        uint32_t volume;
        int64_t since;
        char name[VOLUME_NAME_MAX + 1], policy[VOLUME_NAME_MAX + 1];
    } *at;
    size_t count, room;
};

static int note(void *arg, const struct volume_info *info)
{
    struct todo *todo = arg;
    if (!*info->config->policy)
        return 0;
    if (todo->count == todo->room) {
        size_t room = todo->room ? todo->room * 2 : 64;
        void *more = realloc(todo->at, room * sizeof *todo->at);
        if (!more)
            return -ENOMEM;
        todo->at = more;
        todo->room = room;
    }
    todo->at[todo->count].volume = info->tree;
    todo->at[todo->count].since = info->config->policy_since;
    strcpy(todo->at[todo->count].name, info->config->name);
    strcpy(todo->at[todo->count++].policy, info->config->policy);
    return 0;
}

/* Volumes that are gone, and parts of policies that are no longer theirs: should one come back it begins anew. */
static void forget(const struct todo *todo)
{
    for (struct served **link = &served, *s; (s = *link);) {
        bool wanted = false;
        for (size_t i = 0; i < todo->count && !wanted; i++) {
            struct volume_policy policy;
            if (todo->at[i].volume != s->volume || policy_get(todo->at[i].policy, &policy))
                continue;
            for (unsigned k = 0; k < policy.count; k++)
                wanted = wanted || strcmp(policy.keeps[k].prefix, s->prefix) == 0;
        }
        if (wanted) {
            link = &s->next;
        } else {
            *link = s->next;
            free(s);
        }
    }
}

void volume_schedule(void)
{
    int64_t now = volume_now();
    struct todo todo = {0};
    struct volume_policy policy;
    coro_mutex_lock(&running);
    if (volume_each(note, &todo) == 0) {
        for (size_t i = 0; i < todo.count; i++) {
            if (policy_get(todo.at[i].policy, &policy))
                continue;
            for (unsigned k = 0; k < policy.count; k++)
                serve_part(todo.at[i].name, todo.at[i].volume, &policy.keeps[k], todo.at[i].since, now);
        }
        forget(&todo);
    }
    free(todo.at);
    coro_mutex_unlock(&running);
}
