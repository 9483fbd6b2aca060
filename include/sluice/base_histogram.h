/* Latencies counted in buckets whose bounds are powers of two: the first holds what took less than 2^13 ns (8.2 us),
 * the last what took 2^34 ns (17 s) or more.  One thread counts in a histogram; any thread may read it, and adds up
 * those of several threads. */
#ifndef SLUICE_BASE_HISTOGRAM_H
#define SLUICE_BASE_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_FIRST = 13, HISTOGRAM_BUCKETS = 23 };

struct histogram {
    uint64_t sum; /* ns */
    uint64_t bucket[HISTOGRAM_BUCKETS];
};

static inline void histogram_bump(uint64_t *counter, uint64_t amount)
{
    __atomic_store_n(counter, *counter + amount, __ATOMIC_RELAXED);
}

static inline unsigned histogram_bucket(uint64_t ns)
{
    uint64_t above = ns >> HISTOGRAM_FIRST;
    unsigned bucket = above ? 64 - (unsigned)__builtin_clzll(above) : 0;
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

static inline void histogram_add(struct histogram *h, uint64_t ns)
{
    histogram_bump(&h->sum, ns);
    histogram_bump(&h->bucket[histogram_bucket(ns)], 1);
}

/* The bucket holds what took less than this, ns; the last one has no bound (UINT64_MAX). */
static inline uint64_t histogram_bound(unsigned bucket)
{
    return bucket < HISTOGRAM_BUCKETS - 1 ? UINT64_C(1) << (HISTOGRAM_FIRST + bucket) : UINT64_MAX;
}

/* Adds what another thread is counting in `from` to `to`, which is the caller's own. */
void histogram_sum(struct histogram *to, const struct histogram *from);
uint64_t histogram_count(const struct histogram *h);
/* What the share `part` (0 to 1) took at most, ns: estimated within its bucket; 0 where nothing was counted. */
uint64_t histogram_quantile(const struct histogram *h, double part);

#endif
