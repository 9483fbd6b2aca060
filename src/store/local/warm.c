#include "store/local/warm.h"

#include <stdlib.h>
#include <string.h>

#include "store/local/chunk_map.h"
#include "store/local/fetch.h"
#include "store/local/holds.h"
#include "store/local/meta.h"

enum {
    BLOCK = STORE_BLOCK,
    PLAN_BLOCKS = 32768,  /* 128 MiB are put in order at once */
    WINDOW_BLOCKS = 256,  /* 1 MiB, whose frames one loader pins at a time */
    LOADERS = 8,
    YIELD_EVERY = 32,     /* look-ups in the metadata */
    PAUSE_MOST_MS = 50,
    LARGE_FROM = 8,       /* blocks: fewer may lie in small frames */
};

struct run { /* of blocks that lie together */
    place_t place;
    uint32_t count, crc; /* crc: index of the first block's */
};

struct warm {
    struct local *l;
    struct store_warmed *out;
    struct cache_class *class;
    struct run *runs;
    uint32_t *crcs;
    unsigned run_count, run_room, blocks, lookups;
    /* while it is loaded */
    unsigned next_run, next_block, running;
    struct coro *waits;
    int error;
};

/* ---- the plan ---- */

static int by_place(const void *a, const void *b)
{
    place_t x = ((const struct run *)a)->place, y = ((const struct run *)b)->place;
    return x < y ? -1 : x > y;
}

/* Sorted, neighbours joined, and the CRCs in the same order. */
static int plan_sort(struct warm *w)
{
    uint32_t *sorted = malloc((size_t)w->blocks * sizeof(*sorted));
    if (!sorted)
        return -ENOMEM;
    qsort(w->runs, w->run_count, sizeof(*w->runs), by_place);
    unsigned runs = 0, blocks = 0;
    for (unsigned i = 0; i < w->run_count; i++) {
        struct run run = w->runs[i], *last = runs ? &w->runs[runs - 1] : NULL;
        if (last && run.place < last->place + last->count) { /* named twice */
            uint64_t again = last->place + last->count - run.place;
            if (again >= run.count)
                continue;
            run = (struct run){run.place + again, run.count - (uint32_t)again, run.crc + (uint32_t)again};
        }
        memcpy(sorted + blocks, w->crcs + run.crc, run.count * sizeof(*sorted));
        if (last && run.place == last->place + last->count)
            last->count += run.count;
        else
            w->runs[runs++] = (struct run){run.place, run.count, blocks};
        blocks += run.count;
    }
    free(w->crcs);
    w->crcs = sorted;
    w->run_count = runs;
    w->blocks = blocks;
    return 0;
}

static int plan_room(struct warm *w)
{
    if (!w->crcs && !(w->crcs = malloc((PLAN_BLOCKS + CHUNK_BLOCKS) * sizeof(*w->crcs))))
        return -ENOMEM;
    if (w->run_count < w->run_room)
        return 0;
    unsigned room = w->run_room ? w->run_room * 2 : 256;
    struct run *grown = realloc(w->runs, room * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    w->runs = grown;
    w->run_room = room;
    return 0;
}

static int plan_chunk(struct warm *w, const struct chunk_map *map, unsigned from, unsigned to)
{
    while (from < to) {
        place_t place;
        unsigned count = chunk_map_run(map, from, to - from, &place);
        int error = place ? plan_room(w) : 0;
        if (error)
            return error;
        if (place) {
            memcpy(w->crcs + w->blocks, map->crc + from, count * sizeof(*w->crcs));
            w->runs[w->run_count++] = (struct run){place, count, w->blocks};
            w->blocks += count;
        }
        from += count;
    }
    return 0;
}

/* ---- loading it ---- */

/* What the cache has no place for is not read. */
static void drop_refused(struct warm *w, struct fetch_list *list)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < list->count; i++) {
        struct fetch *f = &list->at[i];
        if (f->frame) {
            list->at[kept++] = *f;
            continue;
        }
        w->out->full += (uint64_t)f->count * BLOCK;
        free(f->data);
    }
    list->count = kept;
}

static int window_add(struct warm *w, struct fetch_list *list)
{
    unsigned left = WINDOW_BLOCKS;
    while (left && w->next_run < w->run_count) {
        const struct run *run = &w->runs[w->next_run];
        unsigned count = run->count - w->next_block, from = w->next_block;
        if (count > left)
            count = left;
        w->next_block += count;
        left -= count;
        if (w->next_block == run->count) {
            w->next_run++;
            w->next_block = 0;
        }
        int error = fetch_add(w->l, list, run->place + from, count, w->crcs + run->crc + from);
        if (error)
            return error;
    }
    return 0;
}

static void window_count(struct warm *w, const struct fetch_list *list)
{
    for (unsigned i = 0; i < list->count; i++) {
        const struct fetch *f = &list->at[i];
        unsigned loaded = (unsigned)__builtin_popcount(f->good);
        w->out->disk += (uint64_t)loaded * BLOCK;
        metric_add(METRIC_warm_blocks, loaded);
        if (f->result)
            w->out->failed += (uint64_t)(f->count - loaded) * BLOCK;
        else
            w->out->present += (uint64_t)(f->count - loaded) * BLOCK;
        frame_expect_use(f->frame);
    }
}

/* Clients come first: while they read, we rest as long as we worked. */
static void rest(uint64_t since, uint64_t reads)
{
    uint64_t ms = (clock_monotonic_ns() - since + 999999) / 1000000;
    if (metric_read(METRIC_read_ops) == reads)
        coro_yield();
    else
        coro_sleep(ms < PAUSE_MOST_MS ? (unsigned)ms : PAUSE_MOST_MS);
}

static void load_windows(struct warm *w)
{
    while (w->next_run < w->run_count && !w->error && !atomic_load(&w->l->stopping)) {
        struct fetch_list list = {.class = w->class, .warm = true};
        uint64_t since = clock_monotonic_ns(), reads = metric_read(METRIC_read_ops);
        int error = window_add(w, &list);
        drop_refused(w, &list);
        if (!error) {
            error = fetch_run(w->l, &list);
            if (error != -ENOMEM)
                error = 0; /* counted below, block by block */
        }
        if (!error)
            window_count(w, &list);
        fetch_clear(&list);
        if (error)
            w->error = error;
        rest(since, reads);
    }
}

static void loader(void *arg)
{
    struct warm *w = arg;
    load_windows(w);
    if (--w->running == 0 && w->waits)
        coro_wake(w->waits);
}

/* Some coroutines of this worker take a window each until all is loaded. */
static int plan_load(struct warm *w)
{
    int error = w->run_count ? plan_sort(w) : 0;
    if (error)
        return error;
    w->next_run = w->next_block = 0;
    for (unsigned i = 1; i < LOADERS && i * WINDOW_BLOCKS < w->blocks; i++) {
        w->running++;
        if (coro_start(loader, w)) {
            w->running--;
            break; /* fewer are slower, no more */
        }
    }
    load_windows(w);
    while (w->running) {
        w->waits = coro_self();
        coro_wait();
        w->waits = NULL;
    }
    free(w->crcs);
    w->crcs = NULL;
    w->run_count = w->blocks = 0;
    return w->error;
}

/* ---- ranges ---- */

static void breathe(struct warm *w)
{
    if (++w->lookups % YIELD_EVERY == 0)
        coro_yield();
}

static int plan_range(struct warm *w, const struct store_range *range)
{
    struct local *l = w->l;
    const struct store_object *o = &range->object;
    struct inode inode;
    struct chunk_map map;
    breathe(w);
    int error = meta_get_inode(l, o->tree, o->ino, &inode);
    if (!error && (!holds_is_there(l, o, &inode) || inode.type != STORE_REG))
        error = -ESTALE;
    uint64_t at = range->offset, end = error || inode.size < at ? at : inode.size;
    if (end - at > range->length)
        end = at + range->length;
    for (uint64_t chunk = at / STORE_CHUNK; !error && chunk * STORE_CHUNK < end; chunk++) {
        uint64_t start = chunk * STORE_CHUNK, left = (end - start + BLOCK - 1) / BLOCK;
        breathe(w);
        error = meta_get_chunk(l, o->tree, &inode, chunk, &map);
        if (!error && map.kind == CHUNK_MAP)
            error = plan_chunk(w, &map, at > start ? (unsigned)((at - start) / BLOCK) : 0,
                               left < CHUNK_BLOCKS ? (unsigned)left : CHUNK_BLOCKS);
        else if (error == -ENOENT)
            error = 0; /* a hole */
        if (!error && w->blocks >= PLAN_BLOCKS)
            error = plan_load(w);
    }
    if (error != -ESTALE)
        return error;
    w->out->gone++;
    return 0;
}

int warm_ranges(struct store *s, const struct store_range *ranges, unsigned count, struct store_warmed *out)
{
    struct warm w = {.l = local_of(s), .out = out};
    int error = 0;
    *out = (struct store_warmed){0};
    if (!coro_self())
        return SL_EWAIT;
    if (count)
        w.class = fetch_class(w.l, ranges[0].object.tree);
    for (unsigned i = 0; !error && i < count; i++)
        error = plan_range(&w, &ranges[i]);
    if (!error)
        error = plan_load(&w);
    free(w.crcs);
    free(w.runs);
    return error;
}

/* ---- cooling ---- */

static void cool_frame(struct cache *c, place_t place, enum frame_size size)
{
    struct frame *f = cache_peek(c, place, size);
    if (!f)
        return;
    frame_expect_none(f);
    frame_unpin(f);
}

static void cool_run(struct cache *c, place_t place, unsigned count)
{
    while (count) {
        unsigned most = FRAME_BLOCKS - (unsigned)(place % FRAME_BLOCKS);
        unsigned here = most < count ? most : count;
        cool_frame(c, place, FRAME_LARGE);
        for (unsigned b = 0; here < LARGE_FROM && b < here; b++)
            cool_frame(c, place + b, FRAME_SMALL);
        place += here;
        count -= here;
    }
}

void warm_cool(struct store *s, const struct store_object *o)
{
    struct local *l = local_of(s);
    struct inode inode;
    struct chunk_map map;
    int error = meta_get_inode(l, o->tree, o->ino, &inode);
    for (uint64_t chunk = 0; !error && chunk * STORE_CHUNK < inode.size; chunk++) {
        error = meta_get_extents(l, o->tree, &inode, chunk, &map);
        if (error == -ENOENT) {
            error = 0;
            continue;
        }
        for (unsigned i = 0; !error && map.kind == CHUNK_MAP && i < map.extent_count; i++)
            cool_run(l->cache, map.extents[i].place, map.extents[i].count);
        if (chunk % YIELD_EVERY == YIELD_EVERY - 1)
            coro_yield();
    }
}
