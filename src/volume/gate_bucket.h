/* Token buckets that may go into debt, all of a volume's together.  No locks, no clock: the caller's. */
#ifndef SLUICE_VOLUME_GATE_BUCKET_H
#define SLUICE_VOLUME_GATE_BUCKET_H

#include "sluice/volume_gate.h"

enum { BUCKETS = 6 }; /* bytes: together, reads, writes; then operations */

struct bucket {
    double level; /* tokens; below 0: debt */
    double rate;  /* a second; 0: no limit */
    double most;
};

struct bucket_set {
    struct bucket at[BUCKETS];
    uint64_t filled_ns;
};

/* New limits: what is owed stays owed, what was saved up is at most a burst.  A new limit begins with a burst. */
void buckets_limit(struct bucket_set *set, const struct volume_limits *limits, uint64_t now);
void buckets_fill(struct bucket_set *set, uint64_t now);
/* No bucket that counts for this way is in debt. */
bool buckets_open(const struct bucket_set *set, enum gate_way way);
void buckets_take(struct bucket_set *set, enum gate_way way, double bytes, double operations);
/* Nanoseconds until as many tokens more are there than these (0 and 0: until buckets_open()). */
uint64_t buckets_wait(const struct bucket_set *set, enum gate_way way, double bytes, double operations);

/* Moves what comes in `ns` at most from `set` to the empty set `lease`, for one way; back again all that is there. */
void buckets_lease(struct bucket_set *set, struct bucket_set *lease, enum gate_way way, uint64_t ns);
void buckets_return(struct bucket_set *set, struct bucket_set *lease);

#endif
