#include "store/local/watch.h"

#include <stdlib.h>

/* 8 MiB of address space; a list keeps some thousand files in sight, so about one in a thousand shares its count. */
enum { SLOTS = 1 << 20 };

static _Atomic uint64_t *slot_of(_Atomic uint64_t *slots, const struct store_object *o)
{
    uint64_t x = (o->ino ^ (uint64_t)o->tree << 40) * UINT64_C(0x9e3779b97f4a7c15);
    return &slots[(x ^ x >> 29) >> 20 & (SLOTS - 1)];
}

int watch_begin(struct store *s)
{
    struct local *l = local_of(s);
    if (!atomic_load(&l->watched)) {
        _Atomic uint64_t *none = NULL, *slots = calloc(SLOTS, sizeof(*slots));
        if (!slots)
            return -ENOMEM;
        if (!atomic_compare_exchange_strong(&l->watched, &none, slots))
            free((void *)slots);
    }
    atomic_fetch_add(&l->watchers, 1);
    return 0;
}

void watch_end(struct store *s)
{
    atomic_fetch_sub(&local_of(s)->watchers, 1);
}

void watch_add(struct local *l, const struct store_object *o, uint64_t bytes)
{
    _Atomic uint64_t *slots = atomic_load(&l->watched);
    atomic_fetch_add_explicit(slot_of(slots, o), bytes, memory_order_relaxed);
}

uint64_t watch_count(struct store *s, const struct store_object *o)
{
    _Atomic uint64_t *slots = atomic_load(&local_of(s)->watched);
    return slots ? atomic_load_explicit(slot_of(slots, o), memory_order_relaxed) : 0;
}

void watch_free(struct local *l)
{
    free((void *)atomic_load(&l->watched));
}
