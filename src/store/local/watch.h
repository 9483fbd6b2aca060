/* What READ has given out of each file, counted while somebody wants to know: how the warm-up of a list learns how far
 * the reader has come.  Counts lie in a table of fixed size without keys, so files may share one.  Any thread. */
#ifndef SLUICE_STORE_LOCAL_WATCH_H
#define SLUICE_STORE_LOCAL_WATCH_H

#include "store/local/local.h"

/* store_ops.watch_begin, .watch_end, .watch_count (contracts there). */
int watch_begin(struct store *s);
void watch_end(struct store *s);
uint64_t watch_count(struct store *s, const struct store_object *o);
void watch_free(struct local *l);

void watch_add(struct local *l, const struct store_object *o, uint64_t bytes);

/* READ has given out so many bytes. */
static inline void watch_note(struct local *l, const struct store_object *o, uint64_t bytes)
{
    if (__builtin_expect(atomic_load_explicit(&l->watchers, memory_order_relaxed) != 0, 0))
        watch_add(l, o, bytes);
}

#endif
