#include "store/local/held_runs.h"

#include <stdlib.h>

#include "store/local/meta_refs.h"

static int remember(struct held_runs *r, place_t place, uint32_t blocks, uint32_t holders)
{
    struct held_run *last = r->count ? &r->at[r->count - 1] : NULL;
    /* No longer than a chunk, so that few others lie over any of them. */
    if (last && last->place + last->blocks == place && last->holders == holders &&
        last->blocks + blocks <= CHUNK_BLOCKS) {
        last->blocks += blocks;
        return 0;
    }
    if (r->count == r->room) {
        size_t room = r->room ? r->room * 2 : 256;
        struct held_run *grown = realloc(r->at, room * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        r->at = grown;
        r->room = room;
    }
    r->at[r->count++] = (struct held_run){place, blocks, holders};
    return 0;
}

int held_runs_add(struct held_runs *r, struct meta_txn *t, place_t place, uint32_t blocks)
{
    while (blocks) {
        uint32_t length = blocks;
        long holders = refs_count(t, place, &length);
        int error = holders < 0 ? (int)holders : 0;
        if (holders == 1)
            r->alone += length;
        else if (!error)
            error = remember(r, place, length, (uint32_t)holders);
        if (error)
            return error;
        place += length;
        blocks -= length;
    }
    return 0;
}

int held_runs_add_map(struct held_runs *r, struct meta_txn *t, const struct chunk_map *map)
{
    int error = 0;
    for (unsigned i = 0; map->kind == CHUNK_MAP && i < map->extent_count && !error; i++)
        error = held_runs_add(r, t, map->extents[i].place, map->extents[i].count);
    return error;
}

static int by_place(const void *a, const void *b)
{
    const struct held_run *x = a, *y = b;
    return (x->place > y->place) - (x->place < y->place);
}

/* The runs from `first` on that begin at or before `at` and reach it: how many, and where that changes next. */
static uint32_t covering(const struct held_runs *r, size_t first, place_t at, place_t *until, uint32_t *holders)
{
    uint32_t count = 0;
    *until = UINT64_MAX;
    for (size_t i = first; i < r->count; i++) {
        const struct held_run *run = &r->at[i];
        place_t end = run->place + run->blocks, change = run->place > at ? run->place : end;
        if (end <= at)
            continue;
        *until = change < *until ? change : *until;
        if (run->place > at)
            break;
        count++;
        *holders = run->holders;
    }
    return count;
}

uint64_t held_runs_count(struct held_runs *r)
{
    uint64_t blocks = r->alone;
    place_t at = 0, until;
    size_t first = 0;
    if (r->count)
        qsort(r->at, r->count, sizeof(*r->at), by_place);
    while (first < r->count) {
        uint32_t holders = 0;
        at = at > r->at[first].place ? at : r->at[first].place;
        if (r->at[first].place + r->at[first].blocks <= at) {
            first++;
            continue;
        }
        if (covering(r, first, at, &until, &holders) >= holders)
            blocks += until - at;
        at = until;
    }
    return blocks;
}

void held_runs_free(struct held_runs *r)
{
    free(r->at);
    *r = (struct held_runs){0};
}
