#include "sluice/base_metrics.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define METRIC_NAME(name, help) #name,
#define METRIC_HELP(name, help) help,
const char *const metric_names[METRIC_COUNT] = {METRICS(METRIC_NAME)};
const char *const metric_helps[METRIC_COUNT] = {METRICS(METRIC_HELP)};

_Thread_local struct metric_block *metric_mine;

/* The block of a thread that ended goes on being counted, and to the next thread that needs one. */
struct owned_block {
    struct metric_block block;
    atomic_bool taken;
};

/* For threads that got no block: counts made at the same moment may be lost, which beats failing. */
static struct owned_block shared = {.taken = true};
static struct metric_block *_Atomic blocks = &shared.block;
static pthread_key_t at_exit;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void give_back(void *block)
{
    metric_mine = NULL;
    atomic_store(&((struct owned_block *)block)->taken, false);
}

static void prepare(void)
{
    /* Without a key, blocks of ended threads are only counted and not used again. */
    if (pthread_key_create(&at_exit, give_back))
        at_exit = (pthread_key_t)-1;
}

static struct owned_block *take_used(void)
{
    for (struct metric_block *b = atomic_load(&blocks); b; b = b->next) {
        struct owned_block *owned = (struct owned_block *)b;
        bool free_one = false;
        if (atomic_compare_exchange_strong(&owned->taken, &free_one, true))
            return owned;
    }
    return NULL;
}

struct metric_block *metric_register(void)
{
    pthread_once(&once, prepare);
    struct owned_block *owned = take_used();
    if (!owned) {
        size_t size = (sizeof(*owned) + 63) & ~(size_t)63;
        owned = aligned_alloc(64, size);
        if (!owned)
            return &shared.block;
        memset(owned, 0, size);
        atomic_init(&owned->taken, true);
        owned->block.next = atomic_load(&blocks);
        while (!atomic_compare_exchange_weak(&blocks, &owned->block.next, &owned->block))
            ;
    }
    if (at_exit != (pthread_key_t)-1)
        pthread_setspecific(at_exit, owned);
    metric_mine = &owned->block;
    return metric_mine;
}

uint64_t metric_read(enum metric metric)
{
    uint64_t sum = 0;
    for (struct metric_block *b = atomic_load(&blocks); b; b = b->next)
        sum += __atomic_load_n(&b->value[metric], __ATOMIC_RELAXED);
    return sum;
}
