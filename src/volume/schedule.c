/* Takes what a policy says at its times, and deletes what is too many.
 *
 * When a part of a policy was last served is kept in RAM and begins, at start, with the newest snapshot that it took:
 * what was missed meanwhile is due once, and taken once.  Without such a snapshot, or where the volume got the policy
 * later, it begins then. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sluice/base_log.h"
#include "volume/change.h"
#include "volume/policy.h"

enum { BUCKETS = 1024 };

struct served { /* one part of one volume's policy */
    struct served *next;
    uint32_t volume, round; /* round: the last that met it */
    char prefix[POLICY_PREFIX_MAX + 1];
    int64_t last;
};
static int64_t (*the_clock)(void);
static struct served *served[BUCKETS]; /* by volume */
static uint32_t rounds;
static struct coro_mutex running; /* one round at a time */

void volume_set_clock(int64_t (*clock)(void))
{
    the_clock = clock;
}

int64_t volume_now(void)
{
    return the_clock ? the_clock() : time(NULL);
}

/* Those that the last round did not meet: volumes that are gone, and parts of policies that are no longer theirs.
 * Should one come back it begins anew. */
static void forget(void)
{
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
        for (struct served **link = &served[bucket], *s; (s = *link);) {
            if (s->round == rounds) {
                link = &s->next;
            } else {
                *link = s->next;
                free(s);
            }
        }
}

void schedule_stop(void)
{
    rounds++;
    forget();
}

/* ---- what it has taken ---- */

struct taken {
    const char *by;
    uint32_t count;
    int64_t newest; /* when; 0: none */
};

static int count_taken(void *arg, const struct volume_snapshot *s)
{
    struct taken *t = arg;
    if (strcmp(s->by, t->by) != 0)
        return 0;
    t->count++;
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
    struct served **bucket = &served[volume % BUCKETS], *s = *bucket;
    while (s && (s->volume != volume || strcmp(s->prefix, k->prefix) != 0))
        s = s->next;
    if (!s && (s = calloc(1, sizeof *s))) {
        int64_t newest = taken_by(volume, k->prefix).newest;
        *s = (struct served){.next = *bucket, .volume = volume, .last = newest > since ? newest : since};
        snprintf(s->prefix, sizeof s->prefix, "%s", k->prefix);
        *bucket = s;
    }
    if (s)
        s->round = rounds;
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

struct too_many {
    const char *by;
    int64_t now;
    uint32_t left, tree; /* left: how many more may be looked at; tree 0: none can go */
};

static int find_unlocked(void *arg, const struct volume_snapshot *s)
{
    struct too_many *m = arg;
    if (strcmp(s->by, m->by) != 0)
        return 0;
    if (m->left-- == 0)
        return -ENOENT;
    m->tree = s->locked_until > m->now ? 0 : s->tree;
    return m->tree ? -EEXIST : 0;
}

/* The oldest go first, by the order in which they were taken, whatever the clock said then.  The newest `keep` stay;
 * an older one that is locked stays as well, and holds up no other. */
static void prune(const char *volume_name, uint32_t volume, const struct policy_keep *k)
{
    char why[256];
    for (;;) {
        uint32_t count = taken_by(volume, k->prefix).count;
        struct too_many m = {.by = k->prefix, .now = volume_now(), .left = count > k->keep ? count - k->keep : 0};
        if (!m.left)
            break;
        volume_each_snapshot(volume, 0, find_unlocked, &m);
        int error = m.tree ? volume_snapshot_delete(m.tree, why) : -EBUSY;
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

void volume_schedule(void)
{
    int64_t now = volume_now();
    struct todo todo = {0};
    struct volume_policy policy;
    coro_mutex_lock(&running);
    rounds++;
    if (volume_each(note, &todo) == 0) {
        for (size_t i = 0; i < todo.count; i++) {
            if (policy_get(todo.at[i].policy, &policy))
                continue;
            for (unsigned k = 0; k < policy.count; k++)
                serve_part(todo.at[i].name, todo.at[i].volume, &policy.keeps[k], todo.at[i].since, now);
        }
        forget();
    }
    free(todo.at);
    coro_mutex_unlock(&running);
}
