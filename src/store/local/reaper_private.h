/* The steps of the reaper: each does a bounded piece of one kind of work in one mutation and says whether there is
 * more.  Called by the reaper's coroutine alone; what is to be done they find in the records. */
#ifndef SLUICE_STORE_LOCAL_REAPER_PRIVATE_H
#define SLUICE_STORE_LOCAL_REAPER_PRIVATE_H

#include "store/local/reaper.h"

enum {
    STEP_US = 2000,     /* of the writer's time, */
    STEP_RECORDS = 512, /* and so many chunks at most: to take one out of the tables later costs more than its record */
};

/* The cut being worked off, and how far; zeroes: none. */
struct cut_cursor {
    char key[64];
    uint32_t tree;
    uint64_t ino, from, version;
    struct inode_cut cut;
};

/* How far the free list has been gone through; zeroes: not at all. */
struct freed_cursor {
    uint64_t serial;
    uint64_t place;
    uint32_t blocks;
    bool more; /* not at its end */
    bool kept; /* something was left there: runs in segments that are being written */
};

/* How far a tree's orphans have been gone through; zeroes: not at all. */
struct orphan_cursor {
    uint32_t tree;
    uint64_t after;
};
/* *more: of this tree. */
int reap_orphans(struct local *l, struct orphan_cursor *at, bool *more);
/* *finished: a cut has been worked off. */
int reap_cuts(struct local *l, struct cut_cursor *at, bool *finished, bool *more);
int reap_versions(struct local *l, bool *more);
/* `all`: also what lies in segments that are being written. */
int reap_freed(struct local *l, struct freed_cursor *at, bool all, bool *more);

#endif
