/* Limits as texts, and what they come to. */
#include "sluice/volume_tier.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sluice/base_config.h"
#include "sluice/volume_gate.h"

#define BANDWIDTH_LEAST UINT64_C(100000) /* a READ of 1 MiB takes ten seconds then */
#define BANDWIDTH_MOST UINT64_C(1000000000000)
#define IOPS_LEAST UINT64_C(10)
#define IOPS_MOST UINT64_C(100000000)
#define BANDWIDTH_FLOOR UINT64_C(1048576) /* of what is per TiB, for a volume of whatever size */
#define IOPS_FLOOR UINT64_C(100)
#define BURST_LEAST UINT64_C(10000000)
#define BURST_MOST UINT64_C(60000000000)
#define TIB (UINT64_C(1) << 40)

static const struct limit_key {
    const char *key;
    bool iops;
    uint8_t way;
} keys[] = {{"bandwidth", false, TIER_TOGETHER}, {"read-bandwidth", false, TIER_READS},
            {"write-bandwidth", false, TIER_WRITES}, {"iops", true, TIER_TOGETHER},
            {"read-iops", true, TIER_READS}, {"write-iops", true, TIER_WRITES}};
enum { KEYS = sizeof keys / sizeof *keys };

static struct tier_rate *rate_of(struct tier_limits *limits, const struct limit_key *key)
{
    return key->iops ? &limits->iops[key->way] : &limits->bandwidth[key->way];
}

/* ---- from text ---- */

static bool skip(const char **at, const char *word)
{
    size_t length = strlen(word);
    if (strncasecmp(*at, word, length) != 0 || isalnum((unsigned char)(*at)[length]))
        return false;
    *at += length;
    return true;
}

/* What comes behind the number: "B", "/s" and "/TiB", of which none, one or all may be there, each once. */
static bool parse_behind(const char *at, bool iops, bool unit, bool *per_tib)
{
    bool second = false, byte = false;
    *per_tib = false;
    if (!iops && *at == 'B') {
        byte = true;
        at++;
    }
    while (*at) {
        if (!second && skip(&at, "/s"))
            second = true;
        else if (!*per_tib && skip(&at, "/TiB"))
            *per_tib = true;
        else
            return false;
    }
    return iops || unit || byte;
}

static int wrong_rate(const char *key, const char *text, bool iops, char why[256])
{
    snprintf(why, 256, "%s '%.60s': right would be %s, or none", key, text,
             iops ? "operations a second, like 200k or 5000, or for each TiB of the size, 1000/TiB"
                  : "bytes a second with their unit, like 2G/s or 500Mi/s, or for each TiB of the size, 64Mi/s/TiB");
    return -EINVAL;
}

static int in_range(const char *key, const char *text, bool iops, uint64_t amount, char why[256])
{
    uint64_t least = iops ? IOPS_LEAST : BANDWIDTH_LEAST, most = iops ? IOPS_MOST : BANDWIDTH_MOST;
    char a[SIZE_TEXT], b[SIZE_TEXT];
    if (amount >= least && amount <= most)
        return 0;
    snprintf(why, 256, "%s '%.60s': it must be from %s to %s a second; none is no limit", key, text,
             size_exact(least, a), size_exact(most, b));
    return -EINVAL;
}

static int parse_rate(const char *key, const char *text, bool iops, struct tier_rate *out, char why[256])
{
    struct tier_rate rate = {0};
    const char *end = text;
    if (strcmp(text, "none") != 0) {
        int error = size_scan(text, &end, &rate.amount);
        if (error == -ERANGE)
            rate.amount = UINT64_MAX;
        bool unit = end > text && isalpha((unsigned char)end[-1]);
        bool zero = !error && rate.amount == 0;
        if (error == -EINVAL || !parse_behind(end, iops, unit || zero, &rate.per_tib))
            return wrong_rate(key, text, iops, why);
        error = in_range(key, text, iops, rate.amount, why);
        if (error)
            return error;
    }
    *out = rate;
    return 0;
}

static int parse_burst(const char *text, uint64_t *out, char why[256])
{
    char *end = NULL;
    uint64_t ns = 0;
    if (strcmp(text, "none") != 0) {
        unsigned long long count = isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0;
        uint64_t unit = !end ? 0 : strcmp(end, "ms") == 0 ? 1000000 : strcmp(end, "s") == 0 ? 1000000000 : 0;
        if (!unit || count > BURST_MOST || count * unit < BURST_LEAST || count * unit > BURST_MOST) {
            snprintf(why, 256, "burst '%.60s': right would be 10ms to 60s, like 100ms or 1s", text);
            return -EINVAL;
        }
        ns = count * unit;
    }
    *out = ns;
    return 0;
}

int tier_limit_set(struct tier_limits *limits, const char *key, const char *value, char why[256])
{
    if (strcmp(key, "burst") == 0)
        return parse_burst(value, &limits->burst_ns, why);
    for (int i = 0; i < KEYS; i++)
        if (strcmp(key, keys[i].key) == 0)
            return parse_rate(key, value, keys[i].iops, rate_of(limits, &keys[i]), why);
    return -ENOENT;
}

void tier_each_key(void (*each)(void *arg, const char *key), void *arg)
{
    for (int i = 0; i < KEYS; i++)
        each(arg, keys[i].key);
    each(arg, "burst");
}

int tier_minimum_parse(const char *text, uint64_t *out, char why[256])
{
    struct tier_rate rate;
    int error = parse_rate("min-bandwidth", text, false, &rate, why);
    if (!error && rate.per_tib) {
        snprintf(why, 256, "min-bandwidth '%.60s': a guaranteed minimum is so much for the volume, not for each TiB; "
                 "right would be 200M/s", text);
        error = -EINVAL;
    }
    if (!error)
        *out = rate.amount;
    return error;
}

/* ---- to text ---- */

static void format_rate(const struct tier_rate *rate, bool iops, char *to)
{
    char amount[SIZE_TEXT];
    size_exact(rate->amount, amount);
    bool unit = isalpha((unsigned char)amount[strlen(amount) - 1]);
    snprintf(to, TIER_RATE_TEXT, "%s%s%s", amount, iops ? "" : unit ? "/s" : "B/s", rate->per_tib ? "/TiB" : "");
}

char *tier_rate_format(const struct tier_rate *rate, char *to)
{
    format_rate(rate, false, to);
    return to;
}

void tier_limit_each(const struct tier_limits *limits, void (*each)(void *arg, const char *key, const char *text),
                     void *arg)
{
    char text[TIER_RATE_TEXT];
    struct tier_limits copy = *limits;
    for (int i = 0; i < KEYS; i++) {
        const struct tier_rate *rate = rate_of(&copy, &keys[i]);
        if (!rate->amount)
            continue;
        format_rate(rate, keys[i].iops, text);
        each(arg, keys[i].key, text);
    }
    if (!limits->burst_ns)
        return;
    bool whole = limits->burst_ns % 1000000000 == 0;
    snprintf(text, sizeof text, "%llu%s", (unsigned long long)(limits->burst_ns / (whole ? 1000000000 : 1000000)),
             whole ? "s" : "ms");
    each(arg, "burst", text);
}

/* ---- arithmetic ---- */

bool tier_limited(const struct tier_limits *limits)
{
    for (int way = 0; way < TIER_WAYS; way++)
        if (limits->bandwidth[way].amount || limits->iops[way].amount)
            return true;
    return false;
}

bool tier_per_tib(const struct tier_limits *limits)
{
    for (int way = 0; way < TIER_WAYS; way++)
        if (limits->bandwidth[way].per_tib || limits->iops[way].per_tib)
            return true;
    return false;
}

void tier_combine(const struct tier_limits *tier, const struct tier_limits *own, struct tier_limits *out)
{
    *out = *tier;
    for (int way = 0; way < TIER_WAYS; way++) {
        if (own->bandwidth[way].amount)
            out->bandwidth[way] = own->bandwidth[way];
        if (own->iops[way].amount)
            out->iops[way] = own->iops[way];
    }
    if (own->burst_ns)
        out->burst_ns = own->burst_ns;
}

static uint64_t amount_for(const struct tier_rate *rate, uint64_t size, uint64_t floor, uint64_t most)
{
    if (!rate->amount || !rate->per_tib)
        return rate->amount;
    if (!size) /* a deleted volume that came back, its tier having become one per TiB meanwhile */
        return 0;
    unsigned __int128 amount = (unsigned __int128)rate->amount * size / TIB;
    return amount < floor ? floor : amount > most ? most : (uint64_t)amount;
}

void tier_amounts(const struct tier_limits *limits, uint64_t size, struct volume_limits *out)
{
    *out = (struct volume_limits){.burst_ns = limits->burst_ns ? limits->burst_ns : TIER_BURST_DEFAULT};
    for (int way = 0; way < TIER_WAYS; way++) {
        out->bandwidth[way] = amount_for(&limits->bandwidth[way], size, BANDWIDTH_FLOOR, BANDWIDTH_MOST);
        out->iops[way] = amount_for(&limits->iops[way], size, IOPS_FLOOR, IOPS_MOST);
    }
}
