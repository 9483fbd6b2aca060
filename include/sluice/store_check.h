/* Checking a pool, of a running server or one that is stopped: what its records say of each other, and the bytes of its
 * data against their checksums.  Compacting a stopped pool's metadata.
 *
 * A check of a running pool reads in transactions of a few milliseconds and goes on from its last key while clients
 * change things.  What belongs together is read in one transaction; sums over many are taken again in one longer
 * transaction if they look wrong, so that nothing is reported that is right.  What could not be settled (a pool that
 * was reopened meanwhile) is counted in `unsettled`. */
#ifndef SLUICE_STORE_CHECK_H
#define SLUICE_STORE_CHECK_H

#include <stdatomic.h>

#include "sluice/store.h"

struct store_finding {
    const uint32_t *trees; /* volumes and snapshots that it concerns; of many, some */
    unsigned tree_count;
    const char *path;      /* in the first of them, from its root; NULL: none, or not known */
    size_t path_length;
    const char *text;      /* what is wrong, and what to do: sentences */
    bool is_data;          /* bytes of a file are lost */
};

enum store_check_phase {
    STORE_CHECK_VERSIONS, STORE_CHECK_NAMES, STORE_CHECK_CHUNKS, STORE_CHECK_SUMS, STORE_CHECK_DATA, STORE_CHECK_END
};

struct store_check {
    /* what the caller wants */
    bool metadata, data;
    bool gently;            /* others use the pool: pauses as long as it works */
    uint64_t rate;          /* most bytes of data a second; 0: no limit */
    unsigned findings_most; /* of these finding() is called, the others are counted */
    void (*finding)(void *arg, const struct store_finding *finding);
    void *arg;
    /* set by anybody, looked at within milliseconds: -ECANCELED */
    atomic_bool stop;
    /* how far it is, for anybody */
    _Atomic unsigned phase;
    _Atomic uint64_t records, records_total; /* of the metadata; the total is an estimate */
    _Atomic uint64_t bytes, bytes_total;     /* of the data */
    _Atomic uint64_t findings, damaged_blocks, unsettled;
};

/* Blocks: a thread that is registered with liburcu and is no worker.  0, also when there are findings; -ECANCELED,
 * -ENOMEM, or what kept it from reading. */
int store_check_run(struct store *s, struct store_check *check);

/* A pool that no server uses, to be looked at only: its operations are tree_each, named_each and close, no others.
 * -EBUSY: a server has it; -ENOENT: there is no pool. */
int store_open_stopped(const char *path, struct store **out, char why[256]);

/* Rewrites a stopped pool's metadata without what is free in it.  At any moment a crash leaves the old or the new.
 * -EBUSY, -ENOENT; -ENOSPC: there is no room for the copy. */
int store_compact_stopped(const char *path, uint64_t *before, uint64_t *after, char why[256]);

#endif
