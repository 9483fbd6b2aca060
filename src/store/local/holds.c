#include "store/local/holds.h"

#include <pthread.h>
#include <stdlib.h>

#include "store/local/reaper.h"

enum { BUCKET_BITS = 14 };

struct hold {
    struct hold *next;
    struct store_object object;
    uint32_t count;
    bool unlinked; /* the reaper has met it */
};

struct bucket {
    struct hold *holds;
    struct doom *dooms;
};

struct holds {
    pthread_mutex_t lock;
    atomic_bool keep;
    uint64_t unlinked; /* how many holds say so */
    struct bucket buckets[1 << BUCKET_BITS];
};

int holds_open(struct local *l)
{
    l->holds = calloc(1, sizeof(*l->holds));
    if (!l->holds)
        return -ENOMEM;
    pthread_mutex_init(&l->holds->lock, NULL);
    atomic_init(&l->holds->keep, l->options.keep_unlinked);
    return 0;
}

void holds_free(struct local *l)
{
    struct holds *h = l->holds;
    for (unsigned i = 0; h && i < 1 << BUCKET_BITS; i++) {
        for (struct hold *at = h->buckets[i].holds, *next; at; at = next) {
            next = at->next;
            free(at);
        }
    }
    if (h)
        pthread_mutex_destroy(&h->lock);
    free(h);
}

static struct bucket *bucket_of(struct holds *h, uint32_t tree, uint64_t ino)
{
    uint64_t mixed = (ino ^ (uint64_t)tree << 40) * UINT64_C(0x9e3779b97f4a7c15);
    return &h->buckets[mixed >> (64 - BUCKET_BITS)];
}

/* Where the pointer to it is, or would be. */
static struct hold **find(struct bucket *b, uint32_t tree, uint64_t ino)
{
    struct hold **at = &b->holds;
    while (*at && ((*at)->object.ino != ino || (*at)->object.tree != tree))
        at = &(*at)->next;
    return at;
}

static bool is_doomed(const struct bucket *b, uint32_t tree, uint64_t ino)
{
    for (const struct doom *d = b->dooms; d; d = d->next)
        if (d->ino == ino && d->tree == tree)
            return true;
    return false;
}

/* ---- who holds ---- */

/* *alone: nobody held it before. */
static int take_hold(struct holds *h, const struct store_object *o, bool *alone)
{
    int error = 0;
    struct bucket *b = bucket_of(h, o->tree, o->ino);
    pthread_mutex_lock(&h->lock);
    struct hold **at = find(b, o->tree, o->ino);
    *alone = !*at;
    if (is_doomed(b, o->tree, o->ino))
        error = SL_EDELAY;
    else if (!*at && !(*at = calloc(1, sizeof(**at))))
        error = -ENOMEM;
    if (!error) {
        (*at)->object = *o;
        (*at)->count++;
    }
    pthread_mutex_unlock(&h->lock);
    return error;
}

int local_hold(struct store *s, const struct store_object *o)
{
    struct local *l = local_of(s);
    struct inode inode;
    bool alone;
    int error = take_hold(l->holds, o, &alone);
    if (error)
        return error;
    /* What has been published by now: who decides later sees the hold. */
    error = meta_get_inode(l, o->tree, o->ino, &inode);
    if (!error && inode.generation != o->generation)
        error = -ESTALE;
    if (!error && !inode.nlink && alone && !atomic_load(&l->holds->keep))
        error = -ESTALE; /* the last who had it open has closed it */
    if (error)
        local_release(s, o);
    return error;
}

void local_release(struct store *s, const struct store_object *o)
{
    struct local *l = local_of(s);
    struct holds *h = l->holds;
    struct hold *ended = NULL;
    pthread_mutex_lock(&h->lock);
    struct hold **at = find(bucket_of(h, o->tree, o->ino), o->tree, o->ino);
    if (*at && --(*at)->count == 0) {
        ended = *at;
        *at = ended->next;
        h->unlinked -= ended->unlinked;
    }
    pthread_mutex_unlock(&h->lock);
    if (ended && ended->unlinked)
        reaper_orphan(l, o->tree, o->ino);
    free(ended);
}

/* ---- who serves ---- */

bool holds_serves(struct local *l, uint32_t tree, uint64_t ino)
{
    pthread_mutex_lock(&l->holds->lock);
    bool held = *find(bucket_of(l->holds, tree, ino), tree, ino);
    pthread_mutex_unlock(&l->holds->lock);
    return held;
}

bool holds_keeps(struct local *l, uint32_t tree, uint64_t ino)
{
    return atomic_load(&l->holds->keep) || holds_serves(l, tree, ino);
}

/* ---- who ends ---- */

/* False: nobody holds it. */
static bool note_unlinked(struct holds *h, struct bucket *b, uint32_t tree, uint64_t ino)
{
    struct hold *held = *find(b, tree, ino);
    if (held && !held->unlinked) {
        held->unlinked = true;
        h->unlinked++;
    }
    return held;
}

bool holds_pass(struct local *l, uint32_t tree, uint64_t ino)
{
    struct holds *h = l->holds;
    if (atomic_load(&h->keep))
        return true; /* all are looked at when that ends */
    pthread_mutex_lock(&h->lock);
    bool held = note_unlinked(h, bucket_of(h, tree, ino), tree, ino);
    pthread_mutex_unlock(&h->lock);
    return held;
}

bool holds_doom(struct local *l, uint32_t tree, uint64_t ino, struct doom *doom)
{
    struct holds *h = l->holds;
    if (doom->set)
        return true; /* by an earlier run of the mutation */
    if (atomic_load(&h->keep))
        return false;
    struct bucket *b = bucket_of(h, tree, ino);
    pthread_mutex_lock(&h->lock);
    bool held = note_unlinked(h, b, tree, ino);
    if (!held) {
        *doom = (struct doom){.next = b->dooms, .ino = ino, .tree = tree, .set = true};
        b->dooms = doom;
    }
    pthread_mutex_unlock(&h->lock);
    return !held;
}

void holds_undoom(struct local *l, struct doom *doom)
{
    struct holds *h = l->holds;
    if (!doom->set)
        return;
    pthread_mutex_lock(&h->lock);
    struct doom **at = &bucket_of(h, doom->tree, doom->ino)->dooms;
    while (*at != doom)
        at = &(*at)->next;
    *at = doom->next;
    pthread_mutex_unlock(&h->lock);
    doom->set = false;
}

/* ---- all of them ---- */

void local_keep_unlinked(struct store *s, bool keep)
{
    struct local *l = local_of(s);
    if (atomic_exchange(&l->holds->keep, keep) && !keep)
        reaper_orphans(l);
}

unsigned local_unlinked(struct store *s, struct store_object *out, unsigned most, uint32_t *at)
{
    struct holds *h = local_of(s)->holds;
    unsigned count = 0;
    pthread_mutex_lock(&h->lock);
    for (; h->unlinked && *at < 1 << BUCKET_BITS && count < most; ++*at)
        for (const struct hold *held = h->buckets[*at].holds; held && count < most; held = held->next)
            if (held->unlinked)
                out[count++] = held->object;
    pthread_mutex_unlock(&h->lock);
    return count;
}
