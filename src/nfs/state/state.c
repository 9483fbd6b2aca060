#include "nfs/state/state.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <time.h>

#include "nfs/state/private.h"
#include "sluice/base_coro.h"
#include "sluice/base_worker.h"

struct state_all state_all = {.lock = PTHREAD_MUTEX_INITIALIZER, .options.lease_seconds = 90};

enum { CLIENT_BUCKETS = 1 << 14, SESSION_BUCKETS = 1 << 14, STATE_BUCKETS = 1 << 17 };

uint32_t state_seconds(void)
{
    return (uint32_t)(clock_monotonic_ns() / 1000000000);
}

void state_pause(void)
{
    enum { WHOLE_PASS = 1 << 20 };
    coro_pace(WHOLE_PASS, true);
}

uint64_t state_new_number(void)
{
    return atomic_fetch_add(&state_all.numbers, 1) + 1;
}

uint64_t state_hash(const void *bytes, size_t length, uint64_t more)
{
    uint8_t hash[crypto_shorthash_BYTES];
    uint64_t out;
    crypto_shorthash(hash, bytes, length, state_all.key);
    memcpy(&out, hash, sizeof out);
    return out ^ more * UINT64_C(0x9e3779b97f4a7c15);
}

struct state_principal state_principal(const struct state_caller *caller)
{
    return (struct state_principal){.flavor = caller->call->cred.flavor, .uid = caller->call->cred.uid};
}

bool state_same_principal(struct state_principal a, struct state_principal b)
{
    return a.flavor == b.flavor && a.uid == b.uid;
}

bool state_runs(void)
{
    return state_all.running;
}

uint32_t state_lease_seconds(void)
{
    return state_all.options.lease_seconds;
}

static int make_tables(void)
{
    int error = state_table_init(&state_all.clients, CLIENT_BUCKETS);
    if (!error)
        error = state_table_init(&state_all.client_owners, CLIENT_BUCKETS);
    if (!error)
        error = state_table_init(&state_all.sessions, SESSION_BUCKETS);
    if (!error)
        error = state_table_init(&state_all.owners, STATE_BUCKETS);
    if (!error)
        error = state_table_init(&state_all.files, STATE_BUCKETS);
    return error ? error : state_table_init(&state_all.states, STATE_BUCKETS);
}

/* No two starts have the same: it goes up every 17 ms, and is met again after two years. */
static uint32_t epoch_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    return (uint32_t)(ns >> 24);
}

int state_start(struct store *store, const struct state_options *options)
{
    _Static_assert(sizeof state_all.key == crypto_shorthash_KEYBYTES, "SipHash-2-4 key");
    state_all.store = store;
    state_all.options = *options;
    state_all.epoch = epoch_now();
    link_init(&state_all.client_list);
    randombytes_buf(state_all.key, sizeof state_all.key);
    int error = make_tables();
    if (!error)
        error = recovery_start();
    state_all.running = !error;
    return error;
}

void state_tick(void)
{
    if (!state_all.running || recovery_in_grace())
        return;
    files_let_go();
}

void state_stop(void)
{
    if (!state_all.running)
        return;
    /* What ends here is reclaimed after the next start. */
    state_all.store->ops->keep_unlinked(state_all.store, true);
    state_lock_all();
    while (!link_is_empty(&state_all.client_list))
        client_destroy(link_of(state_all.client_list.next, struct state_client, all));
    state_unlock_all();
    rcu_barrier();
    recovery_stop();
    state_table_free(&state_all.clients);
    state_table_free(&state_all.client_owners);
    state_table_free(&state_all.sessions);
    state_table_free(&state_all.owners);
    state_table_free(&state_all.files);
    state_table_free(&state_all.states);
    state_all.running = false;
}
