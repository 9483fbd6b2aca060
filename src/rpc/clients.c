#include "rpc/clients.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sluice/base_worker.h"

enum { HASHES = 1024 };

/* Connections come and go under the lock; counting takes none. */
static struct {
    pthread_mutex_t lock;
    struct rpc_client *at[HASHES];
    struct rpc_client *newest, *oldest; /* without a connection */
    unsigned idle, count;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const void *address_of(const struct sockaddr_storage *peer, size_t *length)
{
    if (peer->ss_family == AF_INET) {
        *length = sizeof(struct in_addr);
        return &((const struct sockaddr_in *)peer)->sin_addr;
    }
    *length = sizeof(struct in6_addr);
    return &((const struct sockaddr_in6 *)peer)->sin6_addr;
}

static int compare_addresses(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    size_t length, other;
    const void *x = address_of(a, &length), *y = address_of(b, &other);
    if (a->ss_family != b->ss_family)
        return a->ss_family < b->ss_family ? -1 : 1;
    return memcmp(x, y, length);
}

static struct rpc_client **chain_of(const struct sockaddr_storage *peer)
{
    size_t length;
    const uint8_t *bytes = address_of(peer, &length);
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return &table.at[(hash ^ hash >> 16) % HASHES];
}

/* ---- without a connection ---- */

static void idle_add(struct rpc_client *c)
{
    c->newer = NULL;
    c->older = table.newest;
    if (c->older)
        c->older->newer = c;
    else
        table.oldest = c;
    table.newest = c;
    table.idle++;
}

static void idle_remove(struct rpc_client *c)
{
    *(c->newer ? &c->newer->older : &table.newest) = c->older;
    *(c->older ? &c->older->newer : &table.oldest) = c->newer;
    table.idle--;
}

static void forget(struct rpc_client *c)
{
    struct rpc_client **at = chain_of(&c->peer);
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    table.count--;
    free(c);
}

/* ---- connections ---- */

static struct rpc_client *find(unsigned worker, const struct sockaddr_storage *peer)
{
    struct rpc_client *c = *chain_of(peer);
    while (c && (c->worker != worker || compare_addresses(&c->peer, peer) != 0))
        c = c->next;
    return c;
}

static struct rpc_client *add(unsigned worker, const struct sockaddr_storage *peer)
{
    struct rpc_client *c = aligned_alloc(64, (sizeof(*c) + 63) & ~(size_t)63);
    if (!c)
        return NULL;
    memset(c, 0, sizeof(*c));
    c->worker = worker;
    c->peer = *peer;
    if (peer->ss_family == AF_INET)
        ((struct sockaddr_in *)&c->peer)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)&c->peer)->sin6_port = 0;
    struct rpc_client **chain = chain_of(peer);
    c->next = *chain;
    *chain = c;
    table.count++;
    return c;
}

struct rpc_client *client_enter(unsigned worker, const struct sockaddr_storage *peer)
{
    pthread_mutex_lock(&table.lock);
    struct rpc_client *c = find(worker, peer);
    if (c && !c->connections)
        idle_remove(c);
    if (!c)
        c = add(worker, peer);
    if (c)
        c->connections++;
    pthread_mutex_unlock(&table.lock);
    return c;
}

void client_leave(struct rpc_client *c)
{
    pthread_mutex_lock(&table.lock);
    if (--c->connections == 0) {
        c->left_ns = clock_monotonic_ns();
        idle_add(c);
    }
    while (table.idle > RPC_CLIENTS_IDLE) {
        struct rpc_client *oldest = table.oldest;
        idle_remove(oldest);
        forget(oldest);
    }
    pthread_mutex_unlock(&table.lock);
}

void clients_free(void)
{
    pthread_mutex_lock(&table.lock);
    while (table.oldest) {
        struct rpc_client *oldest = table.oldest;
        idle_remove(oldest);
        forget(oldest);
    }
    pthread_mutex_unlock(&table.lock);
}

/* ---- telling ---- */

static uint64_t value(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

void rpc_client_tag(struct rpc_client_tags *tags, uint32_t tag)
{
    unsigned i = 0;
    while (i < RPC_CLIENT_TAGS - 1 && tags->at[i] && tags->at[i] != tag)
        i++;
    for (; i; i--)
        __atomic_store_n(&tags->at[i], tags->at[i - 1], __ATOMIC_RELAXED);
    __atomic_store_n(&tags->at[0], tag, __ATOMIC_RELAXED);
}

static void join_tags(struct rpc_client_info *to, const struct rpc_client_tags *tags)
{
    for (unsigned i = 0; i < RPC_CLIENT_TAGS; i++) {
        uint32_t tag = __atomic_load_n(&tags->at[i], __ATOMIC_RELAXED);
        unsigned have = 0;
        while (have < to->tag_count && to->tags[have] != tag)
            have++;
        if (tag && have == to->tag_count && have < RPC_CLIENT_TAGS)
            to->tags[to->tag_count++] = tag;
    }
}

static void join(struct rpc_client_info *to, const struct rpc_client *c, uint64_t now)
{
    uint64_t idle = c->connections || now < c->left_ns ? 0 : now - c->left_ns;
    to->connections += c->connections;
    to->calls += value(&c->calls);
    to->bytes_in += value(&c->bytes_in);
    to->bytes_out += value(&c->bytes_out);
    to->latency_ns += value(&c->latency_ns);
    to->gate_ns += value(&c->gate_ns);
    if (idle < to->idle_ns)
        to->idle_ns = idle;
    join_tags(to, &c->tags);
}

static int compare_clients(const void *a, const void *b)
{
    const struct rpc_client *const *x = a, *const *y = b;
    return compare_addresses(&(*x)->peer, &(*y)->peer);
}

/* The entries of one address become one. */
static unsigned merge(struct rpc_client_info *to, struct rpc_client **all, unsigned count)
{
    unsigned merged = 0;
    uint64_t now = clock_monotonic_ns();
    qsort(all, count, sizeof(*all), compare_clients);
    for (unsigned i = 0; i < count; i++) {
        if (i == 0 || compare_clients(&all[i - 1], &all[i]) != 0)
            to[merged++] = (struct rpc_client_info){.peer = all[i]->peer, .idle_ns = UINT64_MAX};
        join(&to[merged - 1], all[i], now);
    }
    return merged;
}

int rpc_clients(struct rpc_client_info **list, unsigned *count)
{
    pthread_mutex_lock(&table.lock);
    struct rpc_client **all = calloc(table.count + 1, sizeof(*all));
    *list = calloc(table.count + 1, sizeof(**list));
    *count = 0;
    if (all && *list) {
        unsigned found = 0;
        for (unsigned i = 0; i < HASHES; i++)
            for (struct rpc_client *c = table.at[i]; c; c = c->next)
                all[found++] = c;
        *count = merge(*list, all, found);
    }
    pthread_mutex_unlock(&table.lock);
    int error = all && *list ? 0 : -ENOMEM;
    free(all);
    if (error) {
        free(*list);
        *list = NULL;
    }
    return error;
}
