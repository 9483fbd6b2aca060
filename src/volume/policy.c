/* Policies: their text, when they are due, and the list of them. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "sluice/base_date.h"
#include "sluice/base_log.h"
#include "volume/change.h"
#include "volume/named_list.h"
#include "volume/policy.h"

enum { MINUTE = 60, HOUR = 3600, DAY = 86400, WEEK = 7 * DAY, THURSDAY = 4, KEEP_MOST = 1000000 };

static const struct {
    const char *name;
    uint8_t minute, hour, day;
} periods[] = {[POLICY_EVERY] = {"every", 0, 0, 0},
               [POLICY_HOURLY] = {"hourly", 5, 0, 0},
               [POLICY_DAILY] = {"daily", 10, 0, 0},
               [POLICY_WEEKLY] = {"weekly", 15, 0, 0},
               [POLICY_MONTHLY] = {"monthly", 20, 0, 1}};
enum { PERIODS = sizeof periods / sizeof *periods };

static const char *const weekdays[] = {"sun", "mon", "tue", "wed", "thu", "fri", "sat"};

/* ---- parsing ---- */

static int wrong(char why[256], const char *word, const char *right)
{
    snprintf(why, 256, "'%.80s': right would be %s", word, right);
    return -EINVAL;
}

static bool number(const char **at, unsigned most, unsigned *out)
{
    char *end;
    if (!isdigit((unsigned char)**at))
        return false;
    unsigned long value = strtoul(*at, &end, 10);
    *at = end;
    *out = (unsigned)value;
    return value <= most;
}

static bool parse_day(struct policy_keep *k, const char **at)
{
    unsigned day;
    if (k->period == POLICY_MONTHLY) {
        if (!number(at, 28, &day) || day == 0)
            return false;
        k->day = (uint8_t)day;
        return true;
    }
    for (day = 0; day < 7; day++)
        if (strncasecmp(*at, weekdays[day], 3) == 0) {
            k->day = (uint8_t)day;
            *at += 3;
            return true;
        }
    return false;
}

/* ":05", "00:10", "sun-00:15", "1-00:20" */
static bool parse_time(struct policy_keep *k, const char *at)
{
    unsigned hour = 0, minute;
    if (k->period == POLICY_EVERY)
        return false;
    if (k->period >= POLICY_WEEKLY && (!parse_day(k, &at) || *at++ != '-'))
        return false;
    if (k->period >= POLICY_DAILY && !number(&at, 23, &hour))
        return false;
    if (*at++ != ':' || !number(&at, 59, &minute) || *at)
        return false;
    k->hour = (uint8_t)hour;
    k->minute = (uint8_t)minute;
    return true;
}

static bool parse_count(struct policy_keep *k, char *text)
{
    const char *at = text;
    if (k->period == POLICY_EVERY) {
        char *colon = strchr(text, ':');
        int64_t every;
        if (!colon)
            return false;
        *colon = 0;
        if (span_parse(text, &every) || every < MINUTE || every > 52 * WEEK)
            return false;
        k->every = (uint32_t)every;
        snprintf(k->prefix, sizeof k->prefix, "%s", text);
        at = colon + 1;
    }
    unsigned keep;
    if (!number(&at, KEEP_MOST, &keep) || *at || keep == 0)
        return false;
    k->keep = keep;
    return true;
}

static int parse_extra(struct policy_keep *k, const char *text, char why[256])
{
    if (strncmp(text, "prefix=", 7) == 0) {
        text += 7;
        if (strcmp(text, "admin") == 0 || strcmp(text, "restore") == 0) /* what a schedule must not delete */
            return wrong(why, text, "another prefix: that is what snapshots made by hand and by restores are told by");
        if (strlen(text) > POLICY_PREFIX_MAX || volume_name_check(text, why))
            return wrong(why, text, "a prefix of at most 31 of A-Z a-z 0-9 . _ -");
        snprintf(k->prefix, sizeof k->prefix, "%s", text);
        return 0;
    }
    if (strncmp(text, "lock=", 5) == 0)
        return span_parse(text + 5, &k->lock) ? wrong(why, text, "lock=7d") : 0;
    return wrong(why, text, "/prefix=NAME or /lock=7d");
}

static int parse_keep(char *text, struct policy_keep *k, char why[256])
{
    char *more = NULL, *part = strtok_r(text, "/", &more);
    char *equals = part ? strchr(part, '=') : NULL;
    if (!equals)
        return wrong(why, part ? part : "", "PERIOD=COUNT, for example hourly=6");
    *equals = 0;
    unsigned period = 0;
    while (period < PERIODS && strcmp(periods[period].name, part) != 0)
        period++;
    if (period == PERIODS)
        return wrong(why, part, "every, hourly, daily, weekly or monthly");
    *k = (struct policy_keep){.period = period,
                              .minute = periods[period].minute,
                              .hour = periods[period].hour,
                              .day = periods[period].day};
    snprintf(k->prefix, sizeof k->prefix, "%s", part);
    char *time = strchr(equals + 1, '@');
    if (time)
        *time++ = 0;
    if (!parse_count(k, equals + 1))
        return wrong(why, equals + 1,
                     period == POLICY_EVERY ? "SPAN:COUNT of at least a minute, for example every=15m:4"
                                            : "how many to keep, 1 to 1000000");
    if (time && !parse_time(k, time))
        return wrong(why, time, "hourly=6@:05, daily=2@00:10, weekly=2@sun-00:15 or monthly=1@1-00:20 (UTC)");
    int error = 0;
    while (!error && (part = strtok_r(NULL, "/", &more)))
        error = parse_extra(k, part, why);
    return error;
}

static bool prefix_twice(const struct volume_policy *p)
{
    for (unsigned i = 0; i + 1 < p->count; i++)
        if (strcmp(p->keeps[i].prefix, p->keeps[p->count - 1].prefix) == 0)
            return true;
    return false;
}

int policy_parse(const char *name, const char *text, struct volume_policy *out, char why[256])
{
    char *copy = strdup(text), *more = NULL;
    int error = volume_name_check(name, why);
    *out = (struct volume_policy){0};
    if (!copy)
        return change_no_memory(why);
    if (!error)
        snprintf(out->name, sizeof out->name, "%s", name);
    for (char *part = strtok_r(copy, ",", &more); part && !error; part = strtok_r(NULL, ",", &more)) {
        if (out->count == POLICY_KEEPS_MOST) {
            snprintf(why, 256, "a policy has at most %d parts", POLICY_KEEPS_MOST);
            error = -EINVAL;
            break;
        }
        error = parse_keep(part, &out->keeps[out->count++], why);
        if (!error && prefix_twice(out))
            error = wrong(why, out->keeps[out->count - 1].prefix, "a prefix of its own for each part: /prefix=NAME");
    }
    free(copy);
    if (!error && out->count == 0)
        error = wrong(why, text, "what to keep, for example hourly=6,daily=2");
    return error;
}

/* ---- formatting ---- */

static int format_time(const struct policy_keep *k, char *to, size_t room)
{
    switch (k->period) {
    case POLICY_EVERY:
        return 0;
    case POLICY_HOURLY:
        return snprintf(to, room, "@:%02u", k->minute);
    case POLICY_DAILY:
        return snprintf(to, room, "@%02u:%02u", k->hour, k->minute);
    case POLICY_WEEKLY:
        return snprintf(to, room, "@%s-%02u:%02u", weekdays[k->day % 7], k->hour, k->minute);
    case POLICY_MONTHLY:
        return snprintf(to, room, "@%u-%02u:%02u", k->day, k->hour, k->minute);
    }
    return 0;
}

static void span_text(int64_t seconds, char to[24])
{
    static const struct {
        int64_t seconds;
        char unit;
    } units[] = {{WEEK, 'w'}, {DAY, 'd'}, {HOUR, 'h'}, {MINUTE, 'm'}, {1, 's'}};
    unsigned i = 0;
    while (seconds % units[i].seconds)
        i++;
    snprintf(to, 24, "%lld%c", (long long)(seconds / units[i].seconds), units[i].unit);
}

void policy_format(const struct volume_policy *policy, char *to, size_t room)
{
    char part[160], span[24];
    if (room)
        *to = 0;
    for (unsigned i = 0; i < policy->count; i++) {
        const struct policy_keep *k = &policy->keeps[i];
        int used = snprintf(part, sizeof part, "%s%s=", i ? "," : "", periods[k->period].name);
        const char *usual = periods[k->period].name;
        if (k->period == POLICY_EVERY) {
            span_text(k->every, span);
            used += snprintf(part + used, sizeof part - (size_t)used, "%s:", span);
            usual = span;
        }
        used += snprintf(part + used, sizeof part - (size_t)used, "%u", k->keep);
        used += format_time(k, part + used, sizeof part - (size_t)used);
        if (strcmp(k->prefix, usual) != 0)
            used += snprintf(part + used, sizeof part - (size_t)used, "/prefix=%s", k->prefix);
        if (k->lock) {
            span_text(k->lock, span);
            snprintf(part + used, sizeof part - (size_t)used, "/lock=%s", span);
        }
        size_t length = strlen(to);
        snprintf(to + length, room - length, "%s", part);
    }
}

/* ---- due ---- */

static int64_t floor_to(int64_t now, int64_t period, int64_t offset)
{
    int64_t since = now - offset;
    int64_t periods_past = since >= 0 ? since / period : (since - period + 1) / period;
    return periods_past * period + offset;
}

static int64_t month_due(const struct policy_keep *k, int64_t now)
{
    struct tm parts;
    time_t when = (time_t)now;
    if (!gmtime_r(&when, &parts))
        return 0;
    parts.tm_mday = k->day;
    parts.tm_hour = k->hour;
    parts.tm_min = k->minute;
    parts.tm_sec = 0;
    int64_t due = timegm(&parts);
    if (due > now) {
        parts.tm_mon--; /* timegm takes -1 for December of the year before */
        due = timegm(&parts);
    }
    return due;
}

int64_t policy_due(const struct policy_keep *k, int64_t now)
{
    int64_t time_of_day = k->hour * HOUR + k->minute * MINUTE;
    switch (k->period) {
    case POLICY_EVERY:
        return floor_to(now, k->every, 0);
    case POLICY_HOURLY:
        return floor_to(now, HOUR, k->minute * MINUTE);
    case POLICY_DAILY:
        return floor_to(now, DAY, time_of_day);
    case POLICY_WEEKLY: /* 1970 began on a Thursday */
        return floor_to(now, WEEK, (int64_t)((k->day + 7 - THURSDAY) % 7) * DAY + time_of_day);
    case POLICY_MONTHLY:
        return month_due(k, now);
    }
    return 0;
}

/* ---- the list ---- */

static struct named_list policies = NAMED_LIST("policy.", struct volume_policy);

int policy_get(const char *name, struct volume_policy *out)
{
    return named_list_get(&policies, name, out);
}

struct each_policy {
    int (*each)(void *arg, const struct volume_policy *policy);
    void *arg;
};

static int each_item(void *arg, const void *item)
{
    const struct each_policy *e = arg;
    return e->each(e->arg, item);
}

int policy_each(int (*each)(void *arg, const struct volume_policy *policy), void *arg)
{
    return named_list_each(&policies, each_item, &(struct each_policy){each, arg});
}

/* ---- start, stop ---- */

static int load_one(const char *name, const json_t *record)
{
    struct volume_policy policy;
    char why[256] = "its record is damaged";
    const char *keep = json_string_value(json_object_get(record, "keep"));
    if (name && keep && policy_parse(name, keep, &policy, why) == 0)
        return named_list_set(&policies, &policy);
    log_error("volume", "the policy '%.80s' is not in effect: %s", name ? name : "", why);
    return 0;
}

int policies_start(struct store *store)
{
    static const char *const built_in[][2] = {
        {"default", "hourly=6@:05,daily=2@00:10,weekly=2@sun-00:15"}, {"none", NULL}};
    for (unsigned i = 0; i < 2; i++) {
        struct volume_policy policy = {0};
        char why[256];
        if (built_in[i][1])
            policy_parse(built_in[i][0], built_in[i][1], &policy, why);
        snprintf(policy.name, sizeof policy.name, "%s", built_in[i][0]);
        policy.built_in = true;
        if (named_list_set(&policies, &policy))
            return -ENOMEM;
    }
    return named_list_load(&policies, store, load_one);
}

void policies_stop(void)
{
    named_list_free(&policies);
}

/* ---- changes ---- */

static int not_built_in(const char *name, char why[256])
{
    struct volume_policy there;
    if (policy_get(name, &there) || !there.built_in)
        return 0;
    snprintf(why, 256, "the policy %s is built in and stays as it is", name);
    return -EINVAL;
}

static int write_policy(const struct volume_policy *policy, char why[256])
{
    char keep[512];
    policy_format(policy, keep, sizeof keep);
    return named_list_write(&policies, policy, json_pack("{s:s, s:s}", "name", policy->name, "keep", keep), why);
}

int policy_put(const struct volume_policy *policy, bool replace, char why[256])
{
    struct volume_policy there;
    coro_mutex_lock(&volume_changes);
    int error = not_built_in(policy->name, why);
    if (!error && !replace && policy_get(policy->name, &there) == 0) {
        snprintf(why, 256, "there is a policy '%s' already; sluice policy change changes it for all its volumes",
                 policy->name);
        error = -EEXIST;
    }
    if (!error && replace && policy_get(policy->name, &there)) {
        snprintf(why, 256, "there is no policy '%s'; sluice policy list shows those there are", policy->name);
        error = -ENOENT;
    }
    if (!error)
        error = write_policy(policy, why);
    coro_mutex_unlock(&volume_changes);
    return error;
}

static int uses(void *arg, const struct volume_info *info)
{
    const char **name = arg;
    if (strcmp(info->config->policy, name[0]) != 0)
        return 0;
    name[1] = info->config->name; /* valid while the caller is in its read section */
    return -EBUSY;
}

static int not_used(const char *name, char why[256])
{
    const char *search[2] = {name, NULL};
    rcu_read_lock();
    int error = volume_each(uses, search);
    if (error)
        snprintf(why, 256, "the volume %s has this policy; sluice policy set %s none takes it away", search[1],
                 search[1]);
    rcu_read_unlock();
    return error;
}

int policy_delete(const char *name, char why[256])
{
    struct volume_policy there;
    coro_mutex_lock(&volume_changes);
    int error = policy_get(name, &there);
    if (error)
        snprintf(why, 256, "there is no policy '%.80s'; sluice policy list shows those there are", name);
    if (!error)
        error = not_built_in(name, why);
    if (!error)
        error = not_used(name, why);
    if (!error)
        error = named_list_delete(&policies, name, why);
    coro_mutex_unlock(&volume_changes);
    return error;
}
