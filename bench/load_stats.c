#include "load.h"

#include <time.h>

static unsigned hist_bucket(uint64_t ns)
{
    if (ns < 2 * HIST_STEPS)
        return (unsigned)ns;
    unsigned octave =
        63 - (unsigned)__builtin_clzll(ns) - 6; /* 1 from 128 on: ns >> octave is 64 to 127 */
    unsigned bucket = octave * HIST_STEPS + (unsigned)(ns >> octave);
    return bucket < HIST_BUCKETS ? bucket : HIST_BUCKETS - 1;
}

static uint64_t hist_value(unsigned bucket)
{
    if (bucket < 2 * HIST_STEPS)
        return bucket;
    unsigned octave = bucket / HIST_STEPS - 1;
    return (uint64_t)(bucket - octave * HIST_STEPS) << octave;
}

void hist_add(struct hist *h, uint64_t ns)
{
    h->buckets[hist_bucket(ns)]++;
    h->count++;
    if (ns > h->max)
        h->max = ns;
}

void hist_merge(struct hist *into, const struct hist *from)
{
    for (unsigned i = 0; i < HIST_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
    into->count += from->count;
    if (from->max > into->max)
        into->max = from->max;
}

uint64_t hist_quantile(const struct hist *h, double q)
{
    uint64_t rank = (uint64_t)(q * (double)h->count), seen = 0;
    for (unsigned i = 0; i < HIST_BUCKETS; i++) {
        seen += h->buckets[i];
        if (seen > rank)
            return hist_value(i);
    }
    return h->max;
}

uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

double process_cpu_seconds(int pid)
{
    clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
    struct timespec t;
    if ((pid && clock_getcpuclockid(pid, &clock)) || clock_gettime(clock, &t))
        return -1;
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
