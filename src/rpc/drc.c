#include "rpc/drc.h"

#include <errno.h>
#include <isa-l.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>

enum { SHARDS = 64, HASHED_WHOLE = 1024 };

struct drc_entry {
    struct drc_key key;
    struct drc_target newest;
    struct drc_reply *reply; /* NULL while the call runs */
    struct drc_entry *chain;
    struct drc_entry *older, *newer; /* among the shard's finished ones */
};

struct shard {
    pthread_mutex_t lock;
    struct drc_entry **buckets;
    struct drc_entry *oldest, *newest;
    uint64_t finished, bytes; /* kept replies */
} __attribute__((aligned(64)));

static struct {
    uint64_t entries, bytes, bucket_count; /* of each shard; bucket_count 0: off */
    uint8_t secret[crypto_shorthash_siphashx24_KEYBYTES];
    struct shard shards[SHARDS];
} drc;

int drc_start(uint64_t entries, uint64_t bytes)
{
    drc.bucket_count = 0;
    if (entries == 0)
        return 0;
    if (sodium_init() < 0)
        return -ENOSYS;
    randombytes_buf(drc.secret, sizeof(drc.secret));
    drc.entries = (entries + SHARDS - 1) / SHARDS;
    drc.bytes = (bytes + SHARDS - 1) / SHARDS;
    for (int i = 0; i < SHARDS; i++) {
        struct shard *shard = &drc.shards[i];
        *shard = (struct shard){.lock = PTHREAD_MUTEX_INITIALIZER};
        shard->buckets = calloc(drc.entries, sizeof(struct drc_entry *));
        if (!shard->buckets) {
            while (i-- > 0)
                free(drc.shards[i].buckets);
            return -ENOMEM;
        }
    }
    drc.bucket_count = drc.entries;
    return 0;
}

static void free_chain(struct drc_entry *entry)
{
    while (entry) {
        struct drc_entry *next = entry->chain;
        if (entry->reply)
            drc_reply_drop(entry->reply);
        free(entry);
        entry = next;
    }
}

void drc_stop(void)
{
    for (int i = 0; i < SHARDS && drc.bucket_count; i++) {
        for (uint64_t bucket = 0; bucket < drc.bucket_count; bucket++)
            free_chain(drc.shards[i].buckets[bucket]);
        free(drc.shards[i].buckets);
        pthread_mutex_destroy(&drc.shards[i].lock);
    }
    drc.bucket_count = 0;
}

static void put_address(struct xdr_out *to, const struct sockaddr_storage *peer)
{
    xdr_put_u32(to, peer->ss_family);
    if (peer->ss_family == AF_INET6)
        xdr_put_fixed(to, &((const struct sockaddr_in6 *)peer)->sin6_addr, 16);
    else
        xdr_put_fixed(to, &((const struct sockaddr_in *)peer)->sin_addr, 4);
}

void drc_key(const struct rpc_call *call, uint32_t length, struct drc_key *key)
{
    uint8_t text[256 + HASHED_WHOLE];
    struct xdr_out to = xdr_out(text, sizeof(text));
    put_address(&to, call->peer);
    const uint32_t words[] = {call->xid,       call->program,  call->version,
                              call->procedure, length,         (uint32_t)call->cred.flavor,
                              call->cred.uid,  call->cred.gid, call->cred.group_count};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        xdr_put_u32(&to, words[i]);
    for (uint32_t i = 0; i < call->cred.group_count; i++)
        xdr_put_u32(&to, call->cred.groups[i]);
    /* SipHash over a megabyte would cost more than writing it; what lies behind the first kilobyte
     * only has to tell one client's own calls apart, which a CRC does. */
    size_t left = xdr_left(&call->args), head = left < HASHED_WHOLE ? left : HASHED_WHOLE;
    if (left > head)
        xdr_put_u32(&to, crc32_iscsi((unsigned char *)(uintptr_t)(call->args.at + head),
                                     (int)(left - head), 0));
    xdr_put_fixed(&to, call->args.at, head);
    crypto_shorthash_siphashx24(key->hash, text, xdr_used(&to), drc.secret);
}

static struct shard *shard_of(const struct drc_key *key, struct drc_entry ***bucket)
{
    uint64_t number;
    memcpy(&number, key->hash + 8, sizeof(number));
    struct shard *shard = &drc.shards[key->hash[0] % SHARDS];
    *bucket = &shard->buckets[number % drc.bucket_count];
    return shard;
}

static void unchain(struct drc_entry **at, struct drc_entry *entry)
{
    while (*at != entry)
        at = &(*at)->chain;
    *at = entry->chain;
}

/* Takes the oldest finished entries out until the shard is within its bounds; returns them
 * chained. */
static struct drc_entry *expire(struct shard *shard)
{
    struct drc_entry *gone = NULL;
    while (shard->oldest && (shard->finished > drc.entries || shard->bytes > drc.bytes)) {
        struct drc_entry *entry = shard->oldest, **bucket;
        shard_of(&entry->key, &bucket);
        unchain(bucket, entry);
        shard->oldest = entry->newer;
        if (entry->newer)
            entry->newer->older = NULL;
        else
            shard->newest = NULL;
        shard->finished--;
        shard->bytes -= entry->reply->length;
        entry->chain = gone;
        gone = entry;
    }
    return gone;
}

enum drc_state drc_begin(const struct drc_key *key, struct drc_target from,
                         struct drc_entry **entry, struct drc_reply **reply)
{
    *entry = NULL;
    if (!drc.bucket_count)
        return DRC_NEW;
    struct drc_entry *fresh = malloc(sizeof(*fresh)), **bucket;
    if (!fresh)
        return DRC_NO_MEMORY;
    struct shard *shard = shard_of(key, &bucket);
    enum drc_state state = DRC_NEW;
    pthread_mutex_lock(&shard->lock);
    struct drc_entry *found = *bucket;
    while (found && memcmp(found->key.hash, key->hash, sizeof(key->hash)) != 0)
        found = found->chain;
    if (!found) {
        *fresh = (struct drc_entry){.key = *key, .newest = from, .chain = *bucket};
        *bucket = *entry = fresh;
        fresh = NULL;
    } else if (found->reply) {
        drc_reply_hold(found->reply);
        *reply = found->reply;
        state = DRC_FINISHED;
    } else {
        found->newest = from;
        state = DRC_RUNNING;
    }
    pthread_mutex_unlock(&shard->lock);
    free(fresh);
    return state;
}

struct drc_target drc_finish(struct drc_entry *entry, struct drc_reply *reply)
{
    struct drc_entry **bucket;
    struct shard *shard = shard_of(&entry->key, &bucket);
    pthread_mutex_lock(&shard->lock);
    struct drc_target newest = entry->newest;
    entry->reply = reply;
    entry->older = shard->newest;
    entry->newer = NULL;
    if (shard->newest)
        shard->newest->newer = entry;
    else
        shard->oldest = entry;
    shard->newest = entry;
    shard->finished++;
    shard->bytes += reply->length;
    struct drc_entry *gone = expire(shard);
    pthread_mutex_unlock(&shard->lock);
    free_chain(gone);
    return newest;
}

struct drc_target drc_forget(struct drc_entry *entry)
{
    struct drc_entry **bucket;
    struct shard *shard = shard_of(&entry->key, &bucket);
    pthread_mutex_lock(&shard->lock);
    struct drc_target newest = entry->newest;
    unchain(bucket, entry);
    pthread_mutex_unlock(&shard->lock);
    free(entry);
    return newest;
}

struct drc_reply *drc_reply_new(uint32_t length)
{
    struct drc_reply *reply = malloc(sizeof(*reply) + length);
    if (reply) {
        reply->references = 1;
        reply->length = length;
    }
    return reply;
}

void drc_reply_hold(struct drc_reply *reply)
{
    __atomic_add_fetch(&reply->references, 1, __ATOMIC_RELAXED);
}

void drc_reply_drop(struct drc_reply *reply)
{
    if (__atomic_sub_fetch(&reply->references, 1, __ATOMIC_ACQ_REL) == 0)
        free(reply);
}

void drc_stats(uint64_t *entries, uint64_t *bytes)
{
    *entries = *bytes = 0;
    for (int i = 0; i < SHARDS && drc.bucket_count; i++) {
        pthread_mutex_lock(&drc.shards[i].lock);
        *entries += drc.shards[i].finished;
        *bytes += drc.shards[i].bytes;
        pthread_mutex_unlock(&drc.shards[i].lock);
    }
}
