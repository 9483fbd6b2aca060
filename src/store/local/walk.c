#include <string.h>

#include "store/local/diff.h"

enum { STEPS = 64, MOST_NS = 4000000 };

int walk_begin(struct walk *w, struct local *l)
{
    *w = (struct walk){.local = l};
    int error = meta_read_begin(l, &w->t);
    if (error)
        w->t = NULL;
    w->since = clock_monotonic_ns();
    return error;
}

void walk_end(struct walk *w)
{
    if (w->t)
        meta_read_end(w->t);
    w->t = NULL;
}

int walk_on(struct walk *w)
{
    if (++w->steps % STEPS || clock_monotonic_ns() - w->since < MOST_NS)
        return 0;
    walk_end(w);
    coro_yield();
    return walk_begin(w, w->local);
}

int walk_touched(struct walk *w, uint64_t version, walk_row_fn *row, void *arg)
{
    struct key at, k;
    struct record r;
    uint64_t serial = 0;
    for (;;) {
        key_touched(&at, version, serial);
        int error = db_seek(w->t, DB_TOUCHED, &at, &r);
        if (error || r.key_length != at.length || key_number(r.key, 0) != version)
            return error == -ENOENT ? 0 : error;
        if (r.length < 1 || r.length - 1 > KEY_ROOM)
            return SL_ECORRUPT;
        serial = key_number(r.key, 8) + 1;
        k.length = (uint8_t)(r.length - 1);
        memcpy(k.bytes, r.value + 1, k.length);
        error = row(arg, r.value[0], &k);
        if (!error)
            error = walk_on(w);
        if (error)
            return error;
    }
}
