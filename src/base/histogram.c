#include "sluice/base_histogram.h"

void histogram_sum(struct histogram *to, const struct histogram *from)
{
    to->sum += __atomic_load_n(&from->sum, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        to->bucket[i] += __atomic_load_n(&from->bucket[i], __ATOMIC_RELAXED);
}

uint64_t histogram_count(const struct histogram *h)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        count += h->bucket[i];
    return count;
}

uint64_t histogram_quantile(const struct histogram *h, double part)
{
    uint64_t count = histogram_count(h), passed = 0;
    double wanted = part * (double)count;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (!h->bucket[i] || (double)(passed + h->bucket[i]) < wanted) {
            passed += h->bucket[i];
            continue;
        }
        uint64_t low = i ? histogram_bound(i - 1) : 0;
        if (i == HISTOGRAM_BUCKETS - 1)
            return low; /* at least */
        double within = (wanted - (double)passed) / (double)h->bucket[i];
        return low + (uint64_t)((double)(histogram_bound(i) - low) * (within > 0 ? within : 0));
    }
    return 0;
}
