#include "store/local/readahead_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/local/cache.h"
#include "store/local/chunk_map.h"
#include "store/local/fetch.h"

enum {
    STEP_FILES = 32, /* looked up without letting others run */
    STEPS_MOST = 32,
    RUNS_MOST = 1024,
    BLOCKS_MOST = 2048,      /* of a plan: 8 MiB */
    LOAD_BLOCKS = 256,       /* at once */
    FILE_MOST = 1 << 20,     /* bytes; larger files are streams of their own */
    NEXT_MOST = 2,
};

struct run {
    place_t place;
    unsigned blocks, crc; /* the first of its CRCs */
};

struct gathered {
    struct local *local;
    const struct siblings_plan *plan;
    uint64_t last; /* looked at, in the plan's order; 0: there is no more */
    unsigned files, runs, blocks, most;
    struct run run[RUNS_MOST];
    uint32_t crc[BLOCKS_MOST], sorted[BLOCKS_MOST];
};

/* ---- which files ---- */

struct step { /* files looked up together */
    uint64_t ino[STEP_FILES], key[STEP_FILES]; /* and where each is in the plan's order */
    unsigned count;
};

static int next_listed(struct local *l, const struct siblings_plan *plan, uint64_t after, struct step *s)
{
    struct meta_txn *t;
    struct entry e;
    int error = meta_read_begin(l, &t);
    if (error)
        return error;
    for (s->count = 0; s->count < STEP_FILES; s->count++) {
        error = meta_entry_next(t, plan->tree, plan->dir, after, &e);
        if (error)
            break;
        after = s->key[s->count] = e.position;
        s->ino[s->count] = e.type == STORE_REG ? e.ino : 0;
    }
    meta_read_end(t);
    return error;
}

static int next_made(uint64_t after, struct step *s)
{
    for (s->count = 0; s->count < STEP_FILES; s->count++)
        s->ino[s->count] = s->key[s->count] = ++after;
    return 0;
}

bool readahead_is_next(struct local *l, const struct sibling *s, uint64_t before)
{
    struct meta_txn *t;
    struct entry e;
    bool found = false;
    if (meta_read_begin(l, &t))
        return false;
    for (unsigned i = 0; i < NEXT_MOST && !found && before < s->position; i++) {
        if (meta_entry_next(t, s->tree, s->dir, before, &e))
            break;
        before = e.position;
        found = before == s->position;
    }
    meta_read_end(t);
    return found;
}

/* ---- where they lie ---- */

static int gather_chunk(struct gathered *g, const struct inode *inode, uint64_t chunk)
{
    struct chunk_map map;
    int error = meta_get_chunk(g->local, g->plan->tree, inode, chunk, &map);
    if (error || map.kind != CHUNK_MAP)
        return error == -ENOENT ? 0 : error;
    for (unsigned block = 0; block < CHUNK_BLOCKS;) {
        place_t place;
        unsigned blocks = chunk_map_run(&map, block, CHUNK_BLOCKS - block, &place);
        if (place) {
            if (g->runs == RUNS_MOST || g->blocks + blocks > g->most)
                return -ENOSPC;
            g->run[g->runs++] = (struct run){place, blocks, g->blocks};
            memcpy(g->crc + g->blocks, map.crc + block, blocks * sizeof(map.crc[0]));
            g->blocks += blocks;
        }
        block += blocks;
    }
    return 0;
}

/* -ENOSPC: no more fits.  1: no file of the directory. */
static int gather_file(struct gathered *g, uint64_t ino)
{
    struct inode inode;
    int error = meta_get_inode(g->local, g->plan->tree, ino, &inode);
    if (error || inode.parent != g->plan->dir || inode.type != STORE_REG || !inode.nlink)
        return 1;
    g->files++;
    for (uint64_t chunk = 0; inode.size <= FILE_MOST && chunk * STORE_CHUNK < inode.size; chunk++) {
        error = gather_chunk(g, &inode, chunk);
        if (error)
            return error;
    }
    return 0;
}

static void gather(struct gathered *g)
{
    struct step s = {.count = 0};
    bool listed = g->plan->order == SIBLINGS_LISTED;
    for (unsigned steps = 0; steps < STEPS_MOST && g->files < g->plan->files; steps++) {
        unsigned before = g->files;
        int end = listed ? next_listed(g->local, g->plan, g->last, &s) : next_made(g->last, &s);
        for (unsigned i = 0; i < s.count; i++) {
            if (s.ino[i] && gather_file(g, s.ino[i]) == -ENOSPC)
                return;
            g->last = s.key[i];
        }
        if (end || (!listed && g->files == before)) {
            g->last = 0;
            return;
        }
        coro_yield();
    }
}

/* ---- loading ---- */

static int by_place(const void *a, const void *b)
{
    const struct run *x = a, *y = b;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Runs [from, to) as they lie, neighbours as one. */
static void load_runs(struct gathered *g, unsigned from, unsigned to)
{
    struct fetch_list list = {.class = cache_class(g->local->cache, g->plan->tree), .ahead = true};
    unsigned filled = 0;
    int error = 0;
    for (unsigned i = from; i < to && !error;) {
        place_t place = g->run[i].place;
        unsigned first = filled;
        for (; i < to && g->run[i].place == place + (filled - first); i++) {
            memcpy(g->sorted + filled, g->crc + g->run[i].crc, g->run[i].blocks * sizeof(g->crc[0]));
            filled += g->run[i].blocks;
        }
        error = fetch_add(g->local, &list, place, filled - first, g->sorted + first);
    }
    if (!error)
        fetch_run(g->local, &list); /* what goes wrong the READ meets again */
    fetch_clear(&list);
}

static void load(struct gathered *g)
{
    qsort(g->run, g->runs, sizeof(g->run[0]), by_place);
    for (unsigned from = 0, to; from < g->runs && !atomic_load(&g->local->stopping); from = to) {
        unsigned blocks = 0;
        for (to = from; to < g->runs && (to == from || blocks + g->run[to].blocks <= LOAD_BLOCKS); to++)
            blocks += g->run[to].blocks;
        load_runs(g, from, to);
    }
}

void readahead_files(struct local *l, struct siblings *t, const struct siblings_plan *plan, uint64_t room)
{
    struct gathered *g = malloc(sizeof(*g));
    if (!g) {
        siblings_loaded(t, plan, plan->after, 0);
        return;
    }
    g->local = l;
    g->plan = plan;
    g->last = plan->after;
    g->files = g->runs = g->blocks = 0;
    g->most = room / STORE_BLOCK < BLOCKS_MOST ? (unsigned)(room / STORE_BLOCK) : BLOCKS_MOST;
    gather(g);
    siblings_loaded(t, plan, g->last, g->files);
    load(g);
    free(g);
}
