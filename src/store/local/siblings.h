/* Which directories of small files are being read file by file, and in which order: that of the listing, or that in
 * which the files were made (names that rise, usually), which is how they lie on disk.  Knows nothing of disks and
 * caches: it is told of files that are read whole, and says which to load.  Any thread; never waits. */
#ifndef SLUICE_STORE_LOCAL_SIBLINGS_H
#define SLUICE_STORE_LOCAL_SIBLINGS_H

#include <stdbool.h>
#include <stdint.h>

enum sibling_order { SIBLINGS_LISTED, SIBLINGS_MADE };

struct sibling { /* a file, by where it is in its directory */
    uint64_t dir, position, ino;
    uint32_t tree;
};

struct siblings_plan {
    enum sibling_order order;
    uint64_t dir, after; /* load the files behind this position, or inode number */
    uint32_t tree;
    unsigned files;
    unsigned slot, serial;
};

struct siblings;
struct siblings *siblings_new(void); /* NULL: no memory */
void siblings_free(struct siblings *t);

/* A file that was in RAM because it had been loaded ahead, or one that was not there.  True: it belongs to a known
 * reader; then *load says whether to do the plan and call siblings_loaded(). */
bool siblings_advance(struct siblings *t, const struct sibling *s, struct siblings_plan *plan, bool *load);
/* One that was not in RAM and belongs to nothing known: do the plan; or find out whether it comes soon behind
 * *before in the listing, for siblings_follow(). */
enum siblings_answer { SIBLINGS_NOTHING, SIBLINGS_LOAD, SIBLINGS_ASK };
enum siblings_answer siblings_candidate(struct siblings *t, const struct sibling *s, uint64_t *before,
                                        struct siblings_plan *plan);
/* It does.  True: do the plan. */
bool siblings_follow(struct siblings *t, const struct sibling *s, uint64_t before, struct siblings_plan *plan);

/* The plan has been done up to `last`, in its order, with so many files loaded; last 0: there are no more. */
void siblings_loaded(struct siblings *t, const struct siblings_plan *plan, uint64_t last, unsigned files);

#endif
