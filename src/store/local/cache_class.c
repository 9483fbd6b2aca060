/* Classes: which tree's, how they are set, and what they count.  They lie in a hash table that look-ups read without a
 * lock; making one takes one. */
#include <stdlib.h>
#include <sys/mman.h>

#include "store/local/cache_private.h"

enum { CLASS_PROBES = 32, SHRINK_FRAMES = 64 };

int classes_open(struct cache *c)
{
    unsigned workers = workers_count();
    c->counters = workers + 1;
    c->counts_bytes = (size_t)c->counters * (CACHE_CLASSES + 1) * sizeof(*c->counts);
    c->classes = calloc(CACHE_CLASSES + 1, sizeof(*c->classes));
    c->counts = mmap(NULL, c->counts_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                     -1, 0);
    if (c->counts == MAP_FAILED)
        c->counts = NULL;
    for (unsigned i = 0; c->classes && i <= CACHE_CLASSES; i++)
        atomic_store(&c->classes[i].stale_after, UINT32_MAX);
    return c->classes && c->counts ? 0 : -ENOMEM;
}

void classes_close(struct cache *c)
{
    for (unsigned i = 0; c->classes && i <= CACHE_CLASSES; i++)
        cache_sample_free(&c->classes[i]);
    free(c->classes);
    if (c->counts)
        munmap(c->counts, c->counts_bytes);
}

static struct cache_class *slot(struct cache *c, uint32_t tree, unsigned probe)
{
    return &c->classes[((tree * UINT32_C(0x9e3779b1) >> 20) + probe) % CACHE_CLASSES];
}

static struct cache_class *find(struct cache *c, uint32_t tree)
{
    for (unsigned probe = 0; tree && probe < CLASS_PROBES; probe++) {
        struct cache_class *class = slot(c, tree, probe);
        uint32_t have = atomic_load_explicit(&class->tree, memory_order_acquire);
        if (have == tree)
            return class;
        if (!have)
            return NULL;
    }
    return NULL;
}

static void begin(struct cache *c, struct cache_class *class, uint32_t tree)
{
    unsigned number = class_number(c, class);
    for (unsigned i = 0; i < c->counters; i++)
        c->counts[(size_t)i * (CACHE_CLASSES + 1) + number] = (struct class_count){0};
    atomic_store(&class->percent, 0);
    atomic_store(&class->bound, 0);
    atomic_store(&class->policy, STORE_CACHE_AUTO);
    atomic_store(&class->keeping, false);
    atomic_store(&class->gone, false);
    atomic_store_explicit(&class->tree, tree, memory_order_release);
}

struct cache_class *cache_class(struct cache *c, uint32_t tree)
{
    struct cache_class *class = find(c, tree);
    if (class)
        return class;
    spin_take(&c->classes_spin);
    class = find(c, tree);
    for (unsigned probe = 0; !class && tree && probe < CLASS_PROBES; probe++) {
        struct cache_class *at = slot(c, tree, probe);
        if (!atomic_load(&at->tree) || (atomic_load(&at->gone) && !atomic_load(&at->held)))
            class = at;
    }
    if (class && atomic_load(&class->tree) != tree)
        begin(c, class, tree);
    spin_give(&c->classes_spin);
    return class ? class : &c->classes[CACHE_CLASSES];
}

uint64_t class_bound(const struct cache *c, const struct cache_class *class)
{
    uint64_t bytes = atomic_load_explicit(&class->bound, memory_order_relaxed);
    uint32_t percent = atomic_load_explicit(&class->percent, memory_order_relaxed);
    if (percent)
        bytes = c->arena_bytes / 100 * percent;
    return bytes ? bytes / STORE_BLOCK : UINT64_MAX;
}

static void shrink(struct cache *c, struct cache_class *class)
{
    bool more = true;
    while (more) {
        more = false;
        for (unsigned i = 0; i < c->parts; i++) {
            struct part *p = &c->part[i];
            spin_take(&p->spin);
            more |= cache_shrink(c, p, class, SHRINK_FRAMES);
            spin_give(&p->spin);
        }
    }
}

void cache_set(struct cache *c, uint32_t tree, const struct store_cache_setting *setting)
{
    struct cache_class *class = cache_class(c, tree);
    if (class == &c->classes[CACHE_CLASSES])
        return;
    atomic_store(&class->percent, setting->share_percent);
    atomic_store(&class->bound, setting->share_bytes);
    atomic_store(&class->policy, setting->policy);
    cache_pick(class);
    shrink(c, class);
}

void cache_forget(struct cache *c, uint32_t tree)
{
    struct cache_class *class = find(c, tree);
    if (class)
        atomic_store(&class->gone, true);
}

/* ---- counting ---- */

static struct class_count *mine(struct cache *c, uint16_t class)
{
    struct worker *w = worker_self();
    unsigned i = w ? worker_index(w) : c->counters - 1;
    return &c->counts[(size_t)i * (CACHE_CLASSES + 1) + class];
}

static void add(uint64_t *counter, uint64_t blocks)
{
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + blocks, __ATOMIC_RELAXED);
}

void cache_count_read(struct cache *c, struct cache_class *class, uint64_t blocks)
{
    add(&mine(c, class_number(c, class))->read, blocks);
}

void cache_count_fetched(struct cache *c, struct cache_class *class, unsigned blocks, bool ahead)
{
    struct class_count *count = mine(c, class_number(c, class));
    add(ahead ? &count->ahead : &count->missed, blocks);
}

void class_count_loaded(struct cache *c, uint16_t class, uint16_t mask)
{
    add(&mine(c, class)->loaded, (unsigned)__builtin_popcount(mask));
}

void class_count_unused(struct cache *c, uint16_t class, unsigned blocks)
{
    add(&mine(c, class)->unused, blocks);
}

static uint64_t bytes_of(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED) * STORE_BLOCK;
}

void cache_stats(struct cache *c, uint32_t tree, struct store_cache_stats *out)
{
    struct cache_class *class = cache_class(c, tree);
    uint64_t bound = class_bound(c, class);
    *out = (struct store_cache_stats){
        .policy = atomic_load(&class->policy),
        .keeps = atomic_load(&class->keeping),
        .held_bytes = atomic_load(&class->held) * STORE_BLOCK,
        .bound_bytes = bound == UINT64_MAX ? 0 : bound * STORE_BLOCK,
    };
    for (unsigned i = 0; i < c->counters; i++) {
        struct class_count *count = &c->counts[(size_t)i * (CACHE_CLASSES + 1) + class_number(c, class)];
        out->read_bytes += bytes_of(&count->read);
        out->disk_bytes += bytes_of(&count->loaded);
        out->missed_bytes += bytes_of(&count->missed);
        out->ahead_bytes += bytes_of(&count->ahead);
        out->ahead_unused_bytes += bytes_of(&count->unused);
    }
}
