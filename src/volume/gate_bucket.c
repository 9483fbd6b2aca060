#include "volume/gate_bucket.h"

/* Bucket i of each kind counts for a way if it is that of both or its own. */
static bool counts_for(unsigned i, enum gate_way way)
{
    unsigned kind = i % 3;
    return kind == 0 || kind == 1u + way;
}

void buckets_limit(struct bucket_set *set, const struct volume_limits *limits, uint64_t now)
{
    double burst = (limits->burst_ns ? (double)limits->burst_ns : GATE_BURST_MS * 1e6) * 1e-9;
    buckets_fill(set, now);
    for (unsigned i = 0; i < BUCKETS; i++) {
        struct bucket *b = &set->at[i];
        bool is_new = b->rate == 0;
        b->rate = (double)(i < 3 ? limits->bandwidth[i] : limits->iops[i - 3]);
        b->most = b->rate * burst;
        if (b->rate == 0)
            b->level = 0;
        else if (is_new || b->level > b->most)
            b->level = b->most;
    }
}

void buckets_fill(struct bucket_set *set, uint64_t now)
{
    double seconds = now > set->filled_ns ? (double)(now - set->filled_ns) * 1e-9 : 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        struct bucket *b = &set->at[i];
        if (b->rate == 0)
            continue;
        b->level += seconds * b->rate;
        if (b->level > b->most)
            b->level = b->most;
    }
    if (now > set->filled_ns)
        set->filled_ns = now;
}

bool buckets_open(const struct bucket_set *set, enum gate_way way)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        if (set->at[i].level < 0 && counts_for(i, way))
            return false;
    return true;
}

void buckets_take(struct bucket_set *set, enum gate_way way, double bytes, double operations)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        if (set->at[i].rate != 0 && counts_for(i, way))
            set->at[i].level -= i < 3 ? bytes : operations;
}

uint64_t buckets_wait(const struct bucket_set *set, enum gate_way way, double bytes, double operations)
{
    double longest = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        const struct bucket *b = &set->at[i];
        if (b->rate == 0 || !counts_for(i, way))
            continue;
        double seconds = ((i < 3 ? bytes : operations) - b->level) / b->rate;
        if (seconds > longest)
            longest = seconds;
    }
    return (uint64_t)(longest * 1e9);
}

void buckets_lease(struct bucket_set *set, struct bucket_set *lease, enum gate_way way, uint64_t ns)
{
    for (unsigned i = 0; i < BUCKETS; i++) {
        struct bucket *from = &set->at[i], *to = &lease->at[i];
        to->rate = counts_for(i, way) ? from->rate : 0;
        double share = to->rate * (double)ns * 1e-9;
        to->level = share < from->level ? share : from->level;
        from->level -= to->level;
    }
}

void buckets_return(struct bucket_set *set, struct bucket_set *lease)
{
    for (unsigned i = 0; i < BUCKETS; i++) {
        struct bucket *to = &set->at[i], *from = &lease->at[i];
        if (to->rate != 0)
            to->level += from->level;
        *from = (struct bucket){0};
    }
}
