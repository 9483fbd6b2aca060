#include <stdlib.h>

#include "store/local/meta_private.h"
#include "store/local/meta_refs.h"
#include "store/local/seg_private.h"
#include "store/local/sweep_places.h"

void blocks_take(struct meta_txn *t, place_t place, uint32_t blocks)
{
    seg_account(t, place, blocks, 1);
}

void blocks_hold(struct meta_txn *t, place_t place, uint32_t blocks)
{
    refs_hold(t, place, blocks);
}

static void blocks_dead(struct meta_txn *t, place_t place, uint32_t blocks)
{
    seg_account(t, place, blocks, -1);
    group_note_freed(t, place, blocks);
    metric_add(METRIC_blocks_freed, blocks);
    sweep_places_died(t->local->segs->moved, place, blocks);
}

void blocks_release(struct meta_txn *t, place_t place, uint32_t blocks)
{
    refs_release(t, place, blocks, blocks_dead);
}

static int by_place(const void *a, const void *b)
{
    const struct freed_run *x = a, *y = b;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Runs never go on into the next segment: its first block is another file. */
static bool continues(const struct freed_run *run, const struct freed_run *next)
{
    return run->place + run->blocks == next->place && run->place >> PLACE_BITS == next->place >> PLACE_BITS;
}

int free_list_append(struct meta_txn *t, uint64_t group, struct freed_run *runs, size_t count)
{
    struct key k;
    if (count == 0)
        return t->failed;
    qsort(runs, count, sizeof(*runs), by_place);
    struct freed_run run = runs[0];
    for (size_t i = 1; i <= count; i++) {
        if (i < count && continues(&run, &runs[i])) {
            run.blocks += runs[i].blocks;
            continue;
        }
        key_free(&k, group, run.place, run.blocks);
        db_put(t, DB_FREE, &k, "", 0);
        if (i < count)
            run = runs[i];
    }
    return t->failed;
}

int meta_free_del(struct meta_txn *t, uint64_t serial, place_t place)
{
    struct key k;
    struct record r;
    key_free(&k, serial, place, 0);
    int error = db_seek(t, DB_FREE, &k, &r);
    if (error)
        return error;
    if (key_number(r.key, 0) != serial || key_number(r.key, 8) != place)
        return -ENOENT;
    key_free(&k, serial, place, key_number32(r.key, 16));
    return db_del(t, DB_FREE, &k);
}
