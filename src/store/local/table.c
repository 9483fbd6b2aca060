#include "store/local/table.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <urcu.h>

enum { FETCH_BYTES = 384 /* an inode, or the map of an unbroken chunk */ };
enum { SHARDS_MOST = 64, SHARD_ENTRIES_LEAST = 16, ENTRY_OVERHEAD = 16, DROPS_MOST = 16 };

struct item {
    struct item *next; /* RCU */
    struct rcu_head retired;
    struct rtable_key key;
    uint32_t length, slot; /* slot: index in the shard's ring */
    atomic_bool used;
    uint32_t epoch;        /* the table's when it was put in */
    _Alignas(8) uint8_t value[];
};

struct shard {
    pthread_mutex_t lock;
    _Atomic uint64_t published;
    uint64_t bytes, bytes_most;
    uint32_t count, count_most, hand, bucket_mask;
    struct item **buckets; /* RCU */
    struct item **ring;    /* the clock; [0, count) are all items, in no order */
} __attribute__((aligned(64)));

/* A tree that was dropped: its items from before that epoch are not there any more, and go by and by. */
struct drop {
    _Atomic uint32_t tree, epoch; /* epoch 0: none */
};

struct rtable {
    uint32_t shard_mask;
    struct shard *shards;
    _Atomic uint32_t epoch, drop_count;
    struct drop drops[DROPS_MOST];
    pthread_mutex_t drop_lock; /* of who takes items away, and of the two: */
    uint32_t drop_shard, drop_at;
};

static uint64_t hash(const struct rtable_key *key)
{
    uint64_t h = key->ino * 0x9e3779b97f4a7c15u ^ (key->sub + key->tree) * 0xc2b2ae3d27d4eb4fu ^
                 (uint64_t)key->tree << 32;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

static struct shard *shard_of(struct rtable *t, uint64_t h)
{
    return &t->shards[h & t->shard_mask];
}

static struct item **bucket_of(struct shard *s, uint64_t h)
{
    return &s->buckets[h >> 8 & s->bucket_mask];
}

static bool same(const struct rtable_key *a, const struct rtable_key *b)
{
    return a->ino == b->ino && a->sub == b->sub && a->tree == b->tree;
}

/* ---- made and freed ---- */

static int shard_start(struct shard *s, uint64_t entries, uint64_t bytes)
{
    uint32_t buckets = 16;
    while (buckets < entries && buckets < 1u << 24)
        buckets *= 2;
    pthread_mutex_init(&s->lock, NULL);
    s->count_most = (uint32_t)(entries < UINT32_MAX ? entries : UINT32_MAX);
    s->bytes_most = bytes;
    s->bucket_mask = buckets - 1;
    s->buckets = calloc(buckets, sizeof(struct item *));
    s->ring = calloc(s->count_most, sizeof(struct item *));
    return s->buckets && s->ring ? 0 : -1;
}

struct rtable *rtable_new(uint64_t entries, uint64_t bytes)
{
    if (entries < 1)
        entries = 1;
    uint32_t count = SHARDS_MOST;
    while (count > 1 && entries / count < SHARD_ENTRIES_LEAST)
        count /= 2;
    struct rtable *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->shard_mask = count - 1;
    t->shards = aligned_alloc(64, count * sizeof(struct shard));
    if (!t->shards) {
        free(t);
        return NULL;
    }
    memset(t->shards, 0, count * sizeof(struct shard));
    pthread_mutex_init(&t->drop_lock, NULL);
    atomic_init(&t->epoch, 1);
    int error = 0;
    for (uint32_t i = 0; i < count; i++)
        error |= shard_start(&t->shards[i], entries / count, bytes / count);
    if (error) {
        rtable_free(t);
        return NULL;
    }
    return t;
}

void rtable_free(struct rtable *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; i <= t->shard_mask; i++) {
        struct shard *s = &t->shards[i];
        for (uint32_t n = 0; n < s->count; n++)
            free(s->ring[n]);
        free(s->buckets);
        free(s->ring);
        pthread_mutex_destroy(&s->lock);
    }
    pthread_mutex_destroy(&t->drop_lock);
    free(t->shards);
    free(t);
}

/* ---- reading ---- */

static bool is_dropped(struct rtable *t, const struct item *item)
{
    if (!atomic_load_explicit(&t->drop_count, memory_order_acquire))
        return false;
    for (unsigned i = 0; i < DROPS_MOST; i++)
        if (item->epoch < atomic_load(&t->drops[i].epoch) && item->key.tree == atomic_load(&t->drops[i].tree))
            return true;
    return false;
}

const void *rtable_get(struct rtable *t, const struct rtable_key *key, size_t *length)
{
    uint64_t h = hash(key);
    struct item *item = rcu_dereference(*bucket_of(shard_of(t, h), h));
    while (item && !same(&item->key, key))
        item = rcu_dereference(item->next);
    if (!item || is_dropped(t, item))
        return NULL;
    if (!atomic_load_explicit(&item->used, memory_order_relaxed))
        atomic_store_explicit(&item->used, true, memory_order_relaxed);
    *length = item->length;
    return item->value;
}

void rtable_fetch_bucket(struct rtable *t, const struct rtable_key *key)
{
    uint64_t h = hash(key);
    __builtin_prefetch(bucket_of(shard_of(t, h), h));
}

void rtable_fetch_item(struct rtable *t, const struct rtable_key *key)
{
    uint64_t h = hash(key);
    const uint8_t *item = (const uint8_t *)rcu_dereference(*bucket_of(shard_of(t, h), h));
    for (size_t at = 0; item && at < FETCH_BYTES; at += 64)
        __builtin_prefetch(item + at);
}

uint64_t rtable_ticket(struct rtable *t, const struct rtable_key *key)
{
    return atomic_load(&shard_of(t, hash(key))->published);
}

/* ---- changing; the shard's lock is held ---- */

static uint64_t size_of(size_t length)
{
    return sizeof(struct item) + length + ENTRY_OVERHEAD;
}

static struct item **find(struct shard *s, uint64_t h, const struct rtable_key *key)
{
    struct item **at = bucket_of(s, h);
    while (*at && !same(&(*at)->key, key))
        at = &(*at)->next;
    return at;
}

static void item_free(struct rcu_head *head)
{
    free(caa_container_of(head, struct item, retired));
}

static void unlink_item(struct shard *s, struct item **at)
{
    struct item *item = *at;
    rcu_assign_pointer(*at, item->next);
    struct item *last = s->ring[--s->count];
    s->ring[item->slot] = last;
    last->slot = item->slot;
    s->bytes -= size_of(item->length);
    call_rcu(&item->retired, item_free);
}

static void evict_one(struct shard *s)
{
    for (;;) {
        if (s->hand >= s->count)
            s->hand = 0;
        struct item *item = s->ring[s->hand];
        if (atomic_exchange_explicit(&item->used, false, memory_order_relaxed)) {
            s->hand++;
            continue;
        }
        unlink_item(s, find(s, hash(&item->key), &item->key));
        return;
    }
}

/* Puts a new item in, over an old one with the key if there is one.  No memory, or too large: the key is then not
 * in the table, which is always right. */
static void set(struct rtable *t, struct shard *s, uint64_t h, const struct rtable_key *key, const void *value,
                size_t length)
{
    struct item **at = find(s, h, key);
    bool used = false;
    if (*at) {
        used = atomic_load_explicit(&(*at)->used, memory_order_relaxed);
        unlink_item(s, at);
    }
    if (size_of(length) > s->bytes_most)
        return;
    while (s->count >= s->count_most || s->bytes + size_of(length) > s->bytes_most)
        evict_one(s);
    struct item *item = malloc(sizeof(*item) + length);
    if (!item)
        return;
    item->key = *key;
    item->length = (uint32_t)length;
    item->epoch = atomic_load(&t->epoch);
    atomic_init(&item->used, used);
    if (length)
        memcpy(item->value, value, length);
    item->slot = s->count;
    s->ring[s->count++] = item;
    s->bytes += size_of(length);
    struct item **head = bucket_of(s, h);
    item->next = *head;
    rcu_assign_pointer(*head, item);
}

static bool is_there(struct rtable *t, struct shard *s, uint64_t h, const struct rtable_key *key)
{
    const struct item *item = *find(s, h, key);
    return item && !is_dropped(t, item);
}

void rtable_fill(struct rtable *t, const struct rtable_key *key, uint64_t ticket, const void *value, size_t length)
{
    uint64_t h = hash(key);
    struct shard *s = shard_of(t, h);
    pthread_mutex_lock(&s->lock);
    if (atomic_load(&s->published) == ticket && !is_there(t, s, h, key))
        set(t, s, h, key, value, length);
    pthread_mutex_unlock(&s->lock);
}

void rtable_fill_spare(struct rtable *t, const struct rtable_key *key, uint64_t ticket, const void *value,
                       size_t length)
{
    uint64_t h = hash(key);
    struct shard *s = shard_of(t, h);
    pthread_mutex_lock(&s->lock);
    bool spare = s->count < s->count_most && s->bytes + size_of(length) <= s->bytes_most;
    if (spare && atomic_load(&s->published) == ticket && !is_there(t, s, h, key))
        set(t, s, h, key, value, length);
    pthread_mutex_unlock(&s->lock);
}

void rtable_publish(struct rtable *t, const struct rtable_key *key, const void *value, size_t length, int insert)
{
    uint64_t h = hash(key);
    struct shard *s = shard_of(t, h);
    pthread_mutex_lock(&s->lock);
    atomic_fetch_add(&s->published, 1);
    struct item **at = find(s, h, key);
    if (value && (*at || insert))
        set(t, s, h, key, value, length);
    else if (*at)
        unlink_item(s, at);
    pthread_mutex_unlock(&s->lock);
}

/* Downwards: what takes the place of an item that goes comes from above, or is new. */
static void drop_some(struct rtable *t, unsigned *budget)
{
    struct shard *s = &t->shards[t->drop_shard];
    pthread_mutex_lock(&s->lock);
    if (t->drop_at > s->count)
        t->drop_at = s->count;
    for (; t->drop_at && *budget; --*budget) {
        struct item *item = s->ring[--t->drop_at];
        if (is_dropped(t, item))
            unlink_item(s, find(s, hash(&item->key), &item->key));
    }
    pthread_mutex_unlock(&s->lock);
}

static bool drop_step(struct rtable *t, unsigned budget)
{
    while (t->drop_shard <= t->shard_mask) {
        drop_some(t, &budget);
        if (t->drop_at)
            return true;
        t->drop_shard++;
        t->drop_at = UINT32_MAX;
    }
    if (atomic_load(&t->drop_count) == 0)
        return false;
    for (unsigned i = 0; i < DROPS_MOST; i++)
        atomic_store(&t->drops[i].epoch, 0);
    atomic_store(&t->drop_count, 0);
    return false;
}

bool rtable_drop_step(struct rtable *t, unsigned budget)
{
    pthread_mutex_lock(&t->drop_lock);
    bool more = drop_step(t, budget);
    pthread_mutex_unlock(&t->drop_lock);
    return more;
}

void rtable_drop_tree(struct rtable *t, uint32_t tree)
{
    /* What somebody has read before now may not be put in later. */
    for (uint32_t i = 0; i <= t->shard_mask; i++) {
        struct shard *s = &t->shards[i];
        pthread_mutex_lock(&s->lock);
        atomic_fetch_add(&s->published, 1);
        pthread_mutex_unlock(&s->lock);
    }
    pthread_mutex_lock(&t->drop_lock);
    if (atomic_load(&t->drop_count) == DROPS_MOST)
        while (drop_step(t, UINT32_MAX))
            ;
    unsigned at = atomic_load(&t->drop_count);
    atomic_store(&t->drops[at].tree, tree);
    atomic_store(&t->drops[at].epoch, atomic_load(&t->epoch) + 1);
    atomic_store(&t->drop_count, at + 1);
    atomic_fetch_add(&t->epoch, 1);
    t->drop_shard = 0; /* from the beginning, for all */
    t->drop_at = UINT32_MAX;
    pthread_mutex_unlock(&t->drop_lock);
}

void rtable_stats(struct rtable *t, uint64_t *entries, uint64_t *bytes)
{
    *entries = *bytes = 0;
    for (uint32_t i = 0; i <= t->shard_mask; i++) {
        struct shard *s = &t->shards[i];
        pthread_mutex_lock(&s->lock);
        *entries += s->count;
        *bytes += s->bytes;
        pthread_mutex_unlock(&s->lock);
    }
}
