/* Blocks that some records hold, and that go with them: those that nobody else holds. */
#ifndef SLUICE_STORE_LOCAL_HELD_RUNS_H
#define SLUICE_STORE_LOCAL_HELD_RUNS_H

#include "store/local/chunk_map.h"

struct held_run {
    place_t place;
    uint32_t blocks, holders; /* of each block, in all */
};

struct held_runs { /* begins as zeroes */
    uint64_t alone;       /* blocks with one holder */
    struct held_run *at;  /* the others, once for each of the records that hold them */
    size_t count, room;
};

/* One more record holds these blocks.  -ENOMEM. */
int held_runs_add(struct held_runs *r, struct meta_txn *t, place_t place, uint32_t blocks);
int held_runs_add_map(struct held_runs *r, struct meta_txn *t, const struct chunk_map *map);
/* How many blocks have all their holders among what was added.  Changes the order of the runs. */
uint64_t held_runs_count(struct held_runs *r);
void held_runs_free(struct held_runs *r);

#endif
