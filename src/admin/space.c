#include "admin/space.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "sluice/base_config.h"
#include "sluice/base_coro.h"
#include "sluice/base_log.h"
#include "sluice/base_worker.h"
#include "sluice/volume.h"

enum { PERCENT = 100, RELIEF = 2, RESERVE_EVERY_S = 300, NS_A_SECOND = 1000000000 };

static const unsigned levels[] = {2, 5, 10}; /* percent */

static bool below(uint64_t available, uint64_t total, unsigned percent)
{
    return (unsigned __int128)available * PERCENT < (unsigned __int128)total * percent;
}

/* The metadata's map is 1 TiB, or what the process may have; it can be the smaller of the two. */
static bool pool_below(const struct store_status *pool, unsigned percent)
{
    return below(pool->bytes_free, pool->bytes_total, percent) ||
           below(pool->meta_free_bytes, pool->meta_bytes + pool->meta_free_bytes, percent);
}

unsigned space_level(const struct store_status *pool)
{
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (pool_below(pool, levels[i]))
            return levels[i];
    return 0;
}

static void pool_sentence(const struct store_status *pool, char to[256])
{
    char a[SIZE_TEXT], b[SIZE_TEXT];
    bool meta = below(pool->meta_free_bytes, pool->meta_bytes + pool->meta_free_bytes, levels[2]);
    uint64_t left = meta ? pool->meta_free_bytes : pool->bytes_free;
    uint64_t all = meta ? pool->meta_bytes + pool->meta_free_bytes : pool->bytes_total;
    snprintf(to, 256, "the pool is nearly full: %s of %s%s are available; deleting files and snapshots makes room",
             size_format(left, a), size_format(all, b), meta ? " for metadata" : "");
}

/* ---- snapshots and their reserves ---- */

struct overdrawn {
    uint32_t tree;
    uint64_t held;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list */
static struct overdrawn *list;
static unsigned list_count, list_room;

/* True if it was not there. */
static bool list_add(uint32_t tree, uint64_t held)
{
    unsigned i = 0;
    bool fresh = false;
    pthread_mutex_lock(&lock);
    while (i < list_count && list[i].tree != tree)
        i++;
    if (i == list_room) {
        unsigned room = list_room ? 2 * list_room : 16;
        struct overdrawn *more = realloc(list, room * sizeof *more);
        list = more ? more : list;
        list_room = more ? room : list_room;
    }
    if (i < list_room) {
        fresh = i == list_count;
        list_count += fresh;
        list[i] = (struct overdrawn){tree, held};
    }
    pthread_mutex_unlock(&lock);
    return fresh;
}

static void list_remove(uint32_t tree)
{
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < list_count; i++)
        if (list[i].tree == tree) {
            list[i] = list[--list_count];
            break;
        }
    pthread_mutex_unlock(&lock);
}

static uint64_t list_held(uint32_t tree)
{
    uint64_t held = 0;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < list_count; i++)
        if (list[i].tree == tree)
            held = list[i].held;
    pthread_mutex_unlock(&lock);
    return held;
}

static void reserve_sentence(const struct volume_config *config, uint64_t held, char to[256])
{
    char a[SIZE_TEXT], b[SIZE_TEXT];
    snprintf(to, 256, "the snapshots of %s hold %s, more than their reserve of %s; deleting some of them makes room",
             config->name, size_format(held, a), size_format(volume_reserve_of(config), b));
}

struct next_volume {
    uint32_t after, tree;
    char sentence[256];
    uint64_t reserve;
    struct volume_config config; /* without its rules */
};

/* The one with the next tree number that has a reserve. */
static int find_next(void *arg, const struct volume_info *info)
{
    struct next_volume *next = arg;
    uint64_t reserve = volume_reserve_of(info->config);
    if (!reserve || info->tree <= next->after || (next->tree && info->tree > next->tree))
        return 0;
    next->tree = info->tree;
    next->reserve = reserve;
    next->config = *info->config;
    next->config.rules = NULL;
    return 0;
}

static atomic_bool stopping;

static bool go_on(void *arg)
{
    return !atomic_load(&stopping);
}

static void look_at_reserve(struct next_volume *next)
{
    struct store *store = volume_store();
    uint64_t held = 0;
    if (volume_snapshot_count(next->tree) && store->ops->snapshots_held(store, next->tree, go_on, NULL, &held))
        return; /* it went meanwhile, or the next round will know */
    reserve_sentence(&next->config, held, next->sentence);
    if (held <= next->reserve)
        list_remove(next->tree);
    else if (list_add(next->tree, held))
        log_warning("space", "%s", next->sentence);
}

static void look_at_reserves(void)
{
    struct next_volume next = {0};
    do {
        next.after = next.tree;
        next.tree = 0;
        volume_each(find_next, &next);
        if (next.tree)
            look_at_reserve(&next);
    } while (next.tree && go_on(NULL));
}

/* ---- both ---- */

void space_watch(void)
{
    static unsigned logged;
    static uint64_t looked_ns;
    struct store *store = volume_store();
    struct store_status pool;
    char sentence[256];
    store->ops->status(store, &pool);
    unsigned level = space_level(&pool);
    pool_sentence(&pool, sentence);
    if (level && (!logged || level < logged)) {
        log_warning("space", "%s", sentence);
        logged = level;
    } else if (logged && !pool_below(&pool, logged + RELIEF)) {
        if (!level)
            log_notice("space", "the pool has room again");
        logged = level;
    }
    uint64_t now = clock_monotonic_ns();
    if (looked_ns && now - looked_ns < (uint64_t)RESERVE_EVERY_S * NS_A_SECOND)
        return;
    looked_ns = now;
    look_at_reserves();
}

void space_stop(void)
{
    atomic_store(&stopping, true);
}

void space_free(void)
{
    free(list);
    list = NULL;
    list_count = list_room = 0;
}

static int add_overdrawn(void *arg, const struct volume_info *info)
{
    char sentence[256];
    uint64_t held = list_held(info->tree), reserve = volume_reserve_of(info->config);
    if (!reserve || held <= reserve)
        return 0;
    reserve_sentence(info->config, held, sentence);
    return json_array_append_new(arg, json_string(sentence));
}

json_t *space_warnings(const struct store_status *pool)
{
    char sentence[256];
    json_t *all = json_array();
    if (all && space_level(pool)) {
        pool_sentence(pool, sentence);
        json_array_append_new(all, json_string(sentence));
    }
    if (all)
        volume_each(add_overdrawn, all);
    return all;
}
