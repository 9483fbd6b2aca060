#include "nfs/counters.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sluice/base_worker.h"

struct block {
    uint64_t calls[COUNTERS_PROGRAMS][COUNTERS_PROCEDURES];
    uint64_t errors[COUNTERS_PROGRAMS][COUNTERS_PROCEDURES];
} __attribute__((aligned(64)));

static struct block *blocks;
static unsigned block_count;

int counters_start(unsigned workers)
{
    unsigned count = workers ? workers : 1;
    blocks = aligned_alloc(_Alignof(struct block), count * sizeof *blocks);
    if (!blocks)
        return -ENOMEM;
    memset(blocks, 0, count * sizeof *blocks);
    block_count = count;
    return 0;
}

void counters_stop(void)
{
    free(blocks);
    blocks = NULL;
    block_count = 0;
}

static inline void bump(uint64_t *counter)
{
    __atomic_store_n(counter, *counter + 1, __ATOMIC_RELAXED);
}

void counters_answered(enum counters_program program, uint32_t procedure, bool error)
{
    struct worker *worker = worker_self();
    unsigned index = worker ? worker_index(worker) : 0;
    if (index >= block_count || procedure >= COUNTERS_PROCEDURES)
        return;
    bump(&blocks[index].calls[program][procedure]);
    if (error)
        bump(&blocks[index].errors[program][procedure]);
}

void counters_read(enum counters_program program, uint32_t procedure, uint64_t *calls,
                   uint64_t *errors)
{
    *calls = *errors = 0;
    if (procedure >= COUNTERS_PROCEDURES)
        return;
    for (unsigned i = 0; i < block_count; i++) {
        *calls += __atomic_load_n(&blocks[i].calls[program][procedure], __ATOMIC_RELAXED);
        *errors += __atomic_load_n(&blocks[i].errors[program][procedure], __ATOMIC_RELAXED);
    }
}
