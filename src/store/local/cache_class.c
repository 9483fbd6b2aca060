/* Which class of frames belongs to a tree.  Classes lie in a hash table that look-ups read without a lock. */
#include "store/local/cache_private.h"

enum { CLASS_PROBES = 32 };

struct cache_class *cache_class(struct cache *c, uint32_t tree)
{
    uint32_t at = tree * UINT32_C(0x9e3779b1) >> 20;
    for (unsigned probe = 0; tree && probe < CLASS_PROBES; probe++) {
        struct cache_class *class = &c->classes[(at + probe) % CACHE_CLASSES];
        uint32_t have = atomic_load_explicit(&class->tree, memory_order_relaxed);
        if (have == tree)
            return class;
        if (!have && (atomic_compare_exchange_strong(&class->tree, &have, tree) || have == tree))
            return class;
    }
    return &c->classes[CACHE_CLASSES];
}
