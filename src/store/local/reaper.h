/* The reaper: background work in remembered steps of at most 4 ms of the writer each: orphaned inodes, what lies behind
 * cuts, deleted trees, freed runs to punch, segments to compact.  What is to be done is found in records (orphan
 * directories, cut marks, `system`, `free`), so that a restart goes on with it. */
#ifndef SLUICE_STORE_LOCAL_REAPER_H
#define SLUICE_STORE_LOCAL_REAPER_H

#include "store/local/writer.h"

int reaper_start(struct local *l); /* finds what an earlier run left */
void reaper_stop(struct local *l);

/* There is (new) work of a kind; any thread, cheap. */
void reaper_orphan(struct local *l, uint32_t tree, uint64_t ino); /* an inode went to the orphan directory */
void reaper_orphans(struct local *l);                             /* ... or inodes of any trees may be reaped now */
void reaper_cut(struct local *l, uint32_t tree, uint64_t ino);    /* an inode got a cut mark */
void reaper_versions(struct local *l);                            /* a version has lost its name */
void reaper_freed(struct local *l);                               /* the free list has grown */
void reaper_tables(struct local *l);                              /* the decoded tables have a tree to forget */
/* Coroutine: returns when the inode's cuts have been worked off (or it is gone). */
int reaper_wait_cuts(struct local *l, uint32_t tree, uint64_t ino);
/* Coroutine: returns when nothing is left to do. */
int reaper_settle(struct local *l);
uint64_t reaper_backlog(struct local *l);

#endif
