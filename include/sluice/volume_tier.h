/* Tiers: named performance levels, and the limits that a volume has for itself.  A limit is so much a second, or so
 * much for each TiB of the volume's size; what it comes to is told to the gate (volume_gate.h) whenever the volume, its
 * size or its tier changes.  Texts, arithmetic and tier_get: any thread; changes: coroutines, as those of volumes. */
#ifndef SLUICE_VOLUME_TIER_H
#define SLUICE_VOLUME_TIER_H

#include <stdbool.h>
#include <stdint.h>

struct volume_limits; /* sluice/volume_gate.h */

enum { TIER_NAME_MAX = 64, TIER_RATE_TEXT = 48 };
enum { TIER_TOGETHER, TIER_READS, TIER_WRITES, TIER_WAYS };

#define TIER_BURST_DEFAULT UINT64_C(100000000) /* 100 ms */

struct tier_rate {
    uint64_t amount; /* bytes or operations a second; 0: no limit */
    bool per_tib;
};
struct tier_limits {
    struct tier_rate bandwidth[TIER_WAYS], iops[TIER_WAYS];
    uint64_t burst_ns; /* 0: not set */
};
struct volume_tier {
    char name[TIER_NAME_MAX + 1];
    bool built_in;
    struct tier_limits limits;
};

/* ---- texts ---- */

/* Sets the limit `key` (bandwidth, read-bandwidth, write-bandwidth, iops, read-iops, write-iops, burst) from "2G/s",
 * "128MiB/s/TiB", "200k", "1000/TiB", "1s", or takes it away: "none".  -EINVAL with a sentence that says what would be
 * right; -ENOENT: no such key, why is as it was. */
int tier_limit_set(struct tier_limits *limits, const char *key, const char *value, char why[256]);
/* Calls each() for every limit that is set, with its text, which tier_limit_set takes. */
void tier_limit_each(const struct tier_limits *limits, void (*each)(void *arg, const char *key, const char *text),
                     void *arg);
/* The keys that tier_limit_set knows. */
void tier_each_key(void (*each)(void *arg, const char *key), void *arg);
bool tier_limited(const struct tier_limits *limits);
bool tier_per_tib(const struct tier_limits *limits);
/* A guaranteed minimum, "50M/s": as a bandwidth, but not per TiB.  "none" is 0.  -EINVAL. */
int tier_minimum_parse(const char *text, uint64_t *out, char why[256]);
/* "1Gi/s"; `to` holds TIER_RATE_TEXT bytes; returns it. */
char *tier_rate_format(const struct tier_rate *rate, char *to);

/* ---- arithmetic ---- */

/* The tier's limits, but where the volume has its own these. */
void tier_combine(const struct tier_limits *tier, const struct tier_limits *own, struct tier_limits *out);
/* What they come to for a volume of `size` bytes.  What is per TiB comes to at least 1 MiB/s and 100 operations/s. */
void tier_amounts(const struct tier_limits *limits, uint64_t size, struct volume_limits *out);

/* ---- the list ---- */

/* By name, "" being unlimited.  -ENOENT. */
int tier_get(const char *name, struct volume_tier *out);
/* -ENOENT with a sentence that offers the nearest name. */
int tier_find(const char *name, struct volume_tier *out, char why[256]);
/* In the order of names; each() must not wait; a negative return ends the walk and is given back. */
int tier_each(int (*each)(void *arg, const struct volume_tier *tier), void *arg);
/* -EEXIST; -EINVAL: a bad name or no limit. */
int tier_create(const struct volume_tier *tier, char why[256]);
/* Changes a tier, for all its volumes at once: change() makes of the limits what they shall be, with nobody else
 * changing anything meanwhile, or returns an error with a sentence.  -ENOENT; -EINVAL: built in, no limit is left, or
 * per TiB while a volume in it has no size. */
typedef int tier_change_fn(void *arg, struct tier_limits *limits, char why[256]);
int tier_change(const char *name, tier_change_fn *change, void *arg, char why[256]);
/* -EBUSY: a volume has it. */
int tier_delete(const char *name, char why[256]);

#endif
