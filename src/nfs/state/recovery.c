/* What survives a restart: which owners of client ids had confirmed clients.  After a start there is grace for these to
 * reclaim what they had: until all of them have said that they are done, and no longer than the configuration says. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nfs/state/private.h"
#include "sluice/base_coro.h"
#include "sluice/base_log.h"
#include "sluice/base_worker.h"

enum { KNOWN_BUCKETS = 1 << 12, KEY_LENGTH = 48, FORGETTERS_MOST = 16, WAIT_MS = 1 };
static const char prefix[] = "v4client-";

/* What is to happen to a record.  Whoever comes back while it is in the queue keeps it. */
enum going { GOES_NOT, GOES_LATER /* it is in the queue */, GOES_NOW /* it is being removed from the pool */ };

struct known { /* an owner that is recorded in the pool */
    struct state_node by_hash;
    struct state_link all, queue;
    enum going going;
    uint8_t hash[OWNER_HASH];
    uint8_t minor;
    bool before; /* from before the start, and not yet done */
    bool here;   /* has come since the start */
};

static int remove_now(const uint8_t hash[OWNER_HASH]);
static struct state_table table;
static struct state_link list, queue;
static uint64_t known_count;
static unsigned forgetters; /* coroutines that go through the queue */

static void key_text(const uint8_t hash[OWNER_HASH], char to[KEY_LENGTH])
{
    int at = snprintf(to, KEY_LENGTH, "%s", prefix);
    for (unsigned i = 0; i < OWNER_HASH; i++)
        at += snprintf(to + at, KEY_LENGTH - (size_t)at, "%02x", hash[i]);
}

static bool hash_of(const char *key, uint8_t hash[OWNER_HASH])
{
    size_t skip = strlen(prefix);
    if (strncmp(key, prefix, skip) != 0 || strlen(key) != skip + 2 * OWNER_HASH)
        return false;
    for (unsigned i = 0; i < OWNER_HASH; i++) {
        unsigned byte;
        if (sscanf(key + skip + 2 * i, "%2x", &byte) != 1)
            return false;
        hash[i] = (uint8_t)byte;
    }
    return true;
}

static uint64_t number_of(const uint8_t hash[OWNER_HASH])
{
    uint64_t number;
    memcpy(&number, hash, sizeof number);
    return number;
}

/* NULL also when the server stops, which some coroutine may see that has waited. */
static struct known *find(const uint8_t hash[OWNER_HASH])
{
    struct state_node *node = table.buckets ? state_table_find(&table, number_of(hash)) : NULL;
    for (; node; node = state_table_next(node)) {
        struct known *known = link_of(node, struct known, by_hash);
        if (memcmp(known->hash, hash, OWNER_HASH) == 0)
            return known;
    }
    return NULL;
}

static struct known *add(const uint8_t hash[OWNER_HASH], uint8_t minor)
{
    struct known *known = calloc(1, sizeof *known);
    if (!known)
        return NULL;
    memcpy(known->hash, hash, OWNER_HASH);
    known->minor = minor;
    link_init(&known->queue);
    known->by_hash.key = number_of(hash);
    state_table_add(&table, &known->by_hash);
    link_add(&list, &known->all);
    known_count++;
    return known;
}

static void take_away(struct known *known)
{
    state_table_remove(&table, &known->by_hash);
    link_remove(&known->all);
    link_remove(&known->queue);
    known_count--;
    free(known); /* only ever looked at under the mutex */
}

/* ---- the grace period ---- */

static int load(void *arg, const char *key, const void *value, size_t length)
{
    uint8_t hash[OWNER_HASH];
    if (!hash_of(key, hash))
        return 0;
    struct known *known = add(hash, length ? *(const uint8_t *)value : 0);
    if (!known)
        return -ENOMEM;
    known->before = true;
    state_all.reclaimers++;
    return 0;
}

int recovery_start(void)
{
    struct store *store = state_all.store;
    link_init(&list);
    link_init(&queue);
    known_count = forgetters = 0;
    state_all.reclaimers = state_all.reclaimers_done = 0;
    atomic_store(&state_all.grace_end, 0);
    int error = state_table_init(&table, KNOWN_BUCKETS);
    if (!error && store->ops->named_each)
        error = store->ops->named_each(store, load, NULL);
    if (!error && !state_all.reclaimers)
        store->ops->keep_unlinked(store, false);
    if (error || !state_all.reclaimers)
        return error;
    atomic_store(&state_all.grace_end, state_seconds() + state_all.options.grace_seconds);
    log_notice("nfs4", "%llu clients may reclaim what they had open for %u s at most",
               (unsigned long long)state_all.reclaimers, state_all.options.grace_seconds);
    return 0;
}

void recovery_stop(void)
{
    state_lock_all();
    while (!link_is_empty(&list))
        take_away(link_of(list.next, struct known, all));
    state_table_free(&table);
    state_unlock_all();
}

/* Takes what is in the queue.  Its failures let a client reclaim that may not: nothing was given to others but now. */
static void forget_queued(void *arg)
{
    uint8_t hash[OWNER_HASH];
    for (;;) {
        state_lock_all();
        if (link_is_empty(&queue))
            break;
        struct known *known = link_of(queue.previous, struct known, queue);
        link_remove(&known->queue);
        known->going = GOES_NOW;
        memcpy(hash, known->hash, sizeof hash);
        state_unlock_all();
        remove_now(hash);
    }
    forgetters--;
    state_unlock_all();
}

/* With the mutex held.  Thousands may go at once: a few coroutines do it. */
static void forget_later(struct known *known)
{
    if (known->going != GOES_NOT)
        return;
    known->going = GOES_LATER;
    link_add(&queue, &known->queue);
    struct worker *worker = worker_self() ? worker_self() : worker_at(0);
    if (forgetters < FORGETTERS_MOST && !worker_spawn(worker, forget_queued, NULL))
        forgetters++;
}

/* Who has not come back while there was grace may not the next time: others may have had what it held. */
static void forget_absent(void *arg)
{
    state_lock_all();
    for (struct state_link *at = list.next; at != &list; at = at->next) {
        struct known *known = link_of(at, struct known, all);
        if (known->before && !known->here)
            forget_later(known);
    }
    state_unlock_all();
}

static void end_grace(const char *why)
{
    if (!atomic_exchange(&state_all.grace_end, 0))
        return;
    log_notice("nfs4", "the time to reclaim is over: %s", why);
    state_all.store->ops->keep_unlinked(state_all.store, false);
    worker_spawn(worker_at(0), forget_absent, NULL); /* without memory: as after a failure */
}

bool recovery_in_grace(void)
{
    uint32_t end = atomic_load_explicit(&state_all.grace_end, memory_order_relaxed);
    if (!end)
        return false;
    if (state_seconds() < end)
        return true;
    end_grace("it was used up");
    return false;
}

bool recovery_knows(const uint8_t hash[OWNER_HASH])
{
    struct known *known = find(hash);
    if (known)
        known->here = true;
    return known && known->before && known->going == GOES_NOT;
}

/* It reclaims nothing more. */
static void is_done(struct known *known)
{
    if (!known || !known->before)
        return;
    known->before = false;
    if (++state_all.reclaimers_done == state_all.reclaimers)
        end_grace("every client has reclaimed");
}

void recovery_done(struct state_client *client)
{
    client->reclaim_complete = true;
    is_done(find(client->owner_hash));
}

/* ---- records ---- */

/* The owner's record with the mutex held, when it is not just being removed. */
static struct known *find_settled(const uint8_t hash[OWNER_HASH])
{
    struct known *known;
    for (;;) {
        state_lock_all();
        known = find(hash);
        if (!known || known->going != GOES_NOW)
            break;
        state_unlock_all();
        coro_sleep(WAIT_MS);
    }
    if (known)
        link_remove(&known->queue);
    if (known)
        known->going = GOES_NOT;
    return known;
}

int recovery_record(const uint8_t hash[OWNER_HASH], uint32_t minor)
{
    char key[KEY_LENGTH];
    uint8_t value = (uint8_t)minor;
    struct known *known = find_settled(hash);
    bool there = known != NULL;
    if (!known && table.buckets)
        known = add(hash, value);
    if (known)
        known->here = true;
    state_unlock_all();
    if (!known)
        return -ENOMEM;
    if (there)
        return 0;
    key_text(hash, key);
    int error = state_all.store->ops->named_put(state_all.store, key, &value, sizeof value);
    if (error) {
        log_warning("nfs4", "a client cannot be recorded, and will not be able to reclaim after a restart: %s",
                    sl_strerror(error));
        state_lock_all();
        known = find(hash);
        if (known && known->going != GOES_NOW)
            take_away(known);
        state_unlock_all();
    }
    return error;
}

/* Removes a record that is GOES_NOW, whether that works or not: what fails is there again after the next start. */
static int remove_now(const uint8_t hash[OWNER_HASH])
{
    char key[KEY_LENGTH];
    key_text(hash, key);
    int error = state_all.store->ops->named_put(state_all.store, key, NULL, 0);
    state_lock_all();
    struct known *known = find(hash);
    if (known)
        take_away(known);
    state_unlock_all();
    return error;
}

int recovery_forget(const uint8_t hash[OWNER_HASH])
{
    struct known *known = find_settled(hash);
    if (known)
        known->going = GOES_NOW;
    state_unlock_all();
    return known ? remove_now(hash) : 0;
}

void recovery_forget_later(const uint8_t hash[OWNER_HASH])
{
    struct known *known = find(hash);
    if (known)
        forget_later(known);
}

void recovery_evict(const uint8_t hash[OWNER_HASH])
{
    is_done(find(hash));
    recovery_forget_later(hash);
}

void recovery_settle(void)
{
    enum { WAITS_MOST = 10000 };
    unsigned left = 1;
    for (unsigned i = 0; left && i < WAITS_MOST; i++) {
        state_lock_all();
        left = forgetters;
        state_unlock_all();
        if (left)
            coro_sleep(WAIT_MS);
    }
}
