/* Where new data goes: runs of the open segment, new segments, and how much room the file system has. */
#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "store/local/seg_private.h"

#define MIB UINT64_C(1048576)
enum {
    RUN_BLOCKS_LEAST = 256,
    RUN_BLOCKS_MOST = 1024,
    STEP_BLOCKS_LEAST = 16,
    STEP_BLOCKS_MOST = 16384,
    WHOLE_FACTOR = 8, /* a segment is allocated as a whole while so many would fit */
    DEAD_PART = 16,   /* of a segment */
    MEASURE_NS = 50000000,
    FULL_NS = 50000000, /* a full disk is not asked again sooner */
};

/* ---- how much room there is ---- */

static void ballast_release(void *arg)
{
    struct seg_store *st = arg;
    int fd = openat(st->local->dir_fd, "ballast", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, 0) == 0) {
        atomic_store(&st->ballast_there, false);
        log_notice("space", "the disk is almost full: the ballast of %llu MiB was given up",
                   (unsigned long long)(st->ballast_bytes / MIB));
    }
    if (fd >= 0)
        close(fd);
    atomic_store(&st->ballast_busy, false);
    atomic_fetch_sub(&st->background, 1);
}

static void ballast_make(void *arg)
{
    struct seg_store *st = arg;
    int fd = openat(st->local->dir_fd, "ballast", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int error = fd < 0 ? -errno : 0;
    if (!error && fallocate(fd, 0, 0, (off_t)st->ballast_bytes)) {
        error = -errno;
        if (ftruncate(fd, 0))
            log_debug("space", "ballast: %s", sl_strerror(-errno));
    }
    if (fd >= 0)
        close(fd);
    /* Where fallocate is not known there is none: it would not keep room anyway. */
    atomic_store(&st->ballast_there, !error || error == -EOPNOTSUPP);
    atomic_store(&st->ballast_busy, false);
    atomic_fetch_sub(&st->background, 1);
}

static void ballast_do(struct seg_store *st, void (*what)(void *arg))
{
    if (atomic_exchange(&st->ballast_busy, true))
        return;
    atomic_fetch_add(&st->background, 1);
    if (blocking_spawn(what, st)) {
        atomic_store(&st->ballast_busy, false);
        atomic_fetch_sub(&st->background, 1);
    }
}

static void ballast_check(struct seg_store *st, uint64_t free_bytes)
{
    if (atomic_load(&st->ballast_there)) {
        if (free_bytes < st->reserve / 4)
            ballast_do(st, ballast_release);
    } else if (free_bytes > st->reserve + 2 * st->ballast_bytes) {
        ballast_do(st, ballast_make);
    }
}

/* What statvfs says, at most MEASURE_NS old. */
static uint64_t measure(struct seg_store *st, bool now)
{
    uint64_t last = atomic_load(&st->measured_ns), time = clock_monotonic_ns();
    if (last && !now && time - last < MEASURE_NS)
        return atomic_load(&st->free_bytes);
    struct statvfs info;
    atomic_store(&st->measured_ns, time);
    if (fstatvfs(st->data_fd, &info) == 0) {
        atomic_store(&st->total_bytes, (uint64_t)info.f_blocks * info.f_frsize);
        atomic_store(&st->free_bytes, (uint64_t)info.f_bavail * info.f_frsize);
        ballast_check(st, atomic_load(&st->free_bytes));
    }
    return atomic_load(&st->free_bytes);
}

void seg_space(struct local *l, uint64_t *total, uint64_t *available)
{
    struct seg_store *st = l->segs;
    uint64_t room = measure(st, false);
    room = room > st->reserve ? room - st->reserve : 0;
    int64_t spare = atomic_load(&st->spare_blocks);
    *total = atomic_load(&st->total_bytes);
    *available = room + (spare > 0 ? (uint64_t)spare * SEG_BLOCK : 0);
}

/* ---- runs ---- */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void run_drop(struct seg_store *st, struct seg_run *run)
{
    if (!run->seg)
        return;
    uint32_t left = run->end - run->next;
    atomic_fetch_sub(&run->seg->pending, left);
    atomic_fetch_sub(&st->spare_blocks, left);
    seg_put(run->seg);
    run->seg = NULL;
}

static uint32_t run_left(struct seg_store *st, struct seg_run *run)
{
    if (run->seg && (run->next == run->end || run->generation != atomic_load(&st->generation)))
        run_drop(st, run);
    return run->seg ? run->end - run->next : 0;
}

static unsigned run_take(struct seg_store *st, struct seg_run *run, unsigned blocks, place_t *place)
{
    uint32_t count = least(blocks, run->end - run->next);
    *place = (place_t)run->seg->number << PLACE_BITS | run->next;
    run->next += count;
    atomic_fetch_sub(&st->spare_blocks, count);
    return count;
}

/* A new run for a request of so many blocks; false: the open segment has too little.  `any`: what there is will do. */
static bool run_new(struct seg_store *st, unsigned blocks, bool any, struct seg_run *run)
{
    run->seg = NULL;
    pthread_mutex_lock(&st->lock);
    struct seg *seg = st->open;
    if (seg) {
        uint32_t tail = atomic_load(&seg->tail), there = seg->allocated - tail;
        uint32_t want = blocks > st->run_blocks ? blocks : st->run_blocks;
        if (there >= want || (there && (any || seg->allocated == seg->capacity))) {
            uint32_t count = least(there, want);
            *run = (struct seg_run){.seg = seg,
                                    .next = tail,
                                    .end = tail + count,
                                    .generation = atomic_load(&st->generation)};
            atomic_fetch_add(&seg->refs, 1);
            atomic_fetch_add(&seg->pending, count);
            atomic_store(&seg->tail, tail + count);
            if (tail + count == seg->capacity) {
                atomic_store(&seg->closed, true);
                st->open = NULL;
            }
        }
    }
    pthread_mutex_unlock(&st->lock);
    return run->seg;
}

static void run_install(struct seg_store *st, struct seg_worker *w, const struct seg_run *run)
{
    if (run_left(st, &w->main) > run_left(st, &w->spare)) {
        run_drop(st, &w->spare);
        w->spare = w->main;
    } else {
        run_drop(st, &w->main);
    }
    w->main = *run;
}

/* ---- making room ---- */

struct growth {
    struct seg_store *store;
    struct seg *seg; /* NULL: a new one */
    uint32_t number, capacity;
    uint32_t blocks; /* to add; 0 afterwards: nothing could be added */
    int error;
};

static int allocate(int fd, uint32_t from, uint32_t *blocks, uint32_t capacity)
{
    for (;;) {
        if (fallocate(fd, 0, (off_t)from * SEG_BLOCK, (off_t)*blocks * SEG_BLOCK) == 0)
            return 0;
        if (errno == EOPNOTSUPP) {
            *blocks = capacity - from;
            return ftruncate(fd, (off_t)capacity * SEG_BLOCK) ? -errno : 0;
        }
        if (errno == EINTR)
            continue;
        if (errno != ENOSPC || *blocks / 2 < STEP_BLOCKS_LEAST)
            return -errno;
        *blocks /= 2;
    }
}

static void create_file(struct growth *g)
{
    char name[SEG_NAME_ROOM];
    struct seg_store *st = g->store;
    seg_file_name(g->number, name);
    int fd = seg_file_open(st->data_fd, name, O_CREAT | O_EXCL);
    if (fd < 0) {
        g->error = fd;
        return;
    }
    g->error = allocate(fd, 0, &g->blocks, g->capacity);
    /* The file's own metadata is synced with the first data in it, before the commit that names it. */
    if (!g->error && fsync(st->data_fd))
        g->error = -errno;
    if (!g->error) {
        g->seg = seg_new(g->number, fd, g->capacity, g->blocks);
        g->error = g->seg ? seg_table_add(st, g->seg) : -ENOMEM;
    }
    if (g->error) {
        free(g->seg);
        g->seg = NULL;
        close(fd);
        unlinkat(st->data_fd, name, 0); /* the next start removes what stays */
    }
}

static void growth_run(void *arg)
{
    struct growth *g = arg;
    if (g->seg)
        g->error = allocate(g->seg->fd, g->seg->allocated, &g->blocks, g->seg->capacity);
    else
        create_file(g);
}

static uint32_t step_blocks(struct seg_store *st, uint32_t capacity, uint64_t free_bytes,
                            uint32_t want)
{
    uint64_t room = free_bytes > st->reserve ? (free_bytes - st->reserve) / SEG_BLOCK : 0;
    if (room >= (uint64_t)capacity * WHOLE_FACTOR)
        return capacity;
    uint64_t step = room / 32;
    if (step < want)
        step = want;
    if (step > STEP_BLOCKS_MOST)
        step = STEP_BLOCKS_MOST;
    if (step > room)
        step = room;
    return step < STEP_BLOCKS_LEAST ? 0 : least((uint32_t)step, capacity);
}

/* On a small disk a segment is a small part of it, so that the space of one that empties is a small part too. */
static uint32_t capacity_blocks(struct seg_store *st)
{
    uint64_t bytes = st->segment_bytes, share = atomic_load(&st->total_bytes) / 16;
    if (share < 8 * MIB)
        share = 8 * MIB;
    if (bytes > share)
        bytes = share;
    uint64_t blocks = bytes / SEG_BLOCK / FRAME_ALIGN * FRAME_ALIGN;
    return blocks > SEG_BLOCKS_MOST ? SEG_BLOCKS_MOST : (uint32_t)blocks;
}

/* Under `growing`.  0: worth another look at the open segment. */
static int grow(struct seg_store *st, unsigned blocks)
{
    struct growth g = {.store = st};
    pthread_mutex_lock(&st->lock);
    struct seg *seg = st->open;
    if (seg)
        atomic_fetch_add(&seg->refs, 1);
    pthread_mutex_unlock(&st->lock);
    uint64_t free_bytes = measure(st, true);
    uint32_t want = blocks > st->run_blocks ? blocks : st->run_blocks;
    g.seg = seg;
    g.capacity = seg ? seg->capacity : capacity_blocks(st);
    g.blocks = step_blocks(st, seg ? seg->capacity - seg->allocated : g.capacity, free_bytes, want);
    if (!g.blocks) {
        g.error = -ENOSPC;
    } else {
        if (!seg)
            g.number = st->next_number++;
        blocking_run(growth_run, &g);
    }
    pthread_mutex_lock(&st->lock);
    if (!g.error) {
        atomic_fetch_add(&st->spare_blocks, g.blocks);
        if (seg)
            seg->allocated += g.blocks;
        else
            st->open = g.seg;
    }
    pthread_mutex_unlock(&st->lock);
    if (seg)
        seg_put(seg);
    if (g.error == -ENOSPC)
        atomic_store(&st->full_until_ns, clock_monotonic_ns() + FULL_NS);
    return g.error;
}

/* Installs a run for the request, or leaves it to the caller to look again. */
static int refill(struct seg_store *st, struct seg_worker *w, unsigned blocks)
{
    struct seg_run run;
    if (run_new(st, blocks, false, &run)) {
        run_install(st, w, &run);
        return 0;
    }
    if (!coro_self())
        return SL_EWAIT;
    int error = 0;
    coro_mutex_lock(&st->growing);
    /* Others on this worker have gone on meanwhile, and may have left something. */
    if (run_left(st, &w->main) < blocks && run_left(st, &w->spare) < blocks) {
        bool got = run_new(st, blocks, false, &run);
        if (!got) {
            bool full = clock_monotonic_ns() < atomic_load(&st->full_until_ns);
            error = full ? -ENOSPC : grow(st, blocks);
            got = run_new(st, blocks, error == -ENOSPC, &run);
        }
        if (got) {
            run_install(st, w, &run);
            error = 0;
        }
    }
    coro_mutex_unlock(&st->growing);
    return error;
}

int seg_reserve(struct local *l, unsigned blocks, place_t *place, unsigned *got)
{
    struct seg_store *st = l->segs;
    struct seg_worker *w = &st->workers[worker_index(worker_self())];
    for (;;) {
        struct seg_run *run = NULL;
        uint32_t in_main = run_left(st, &w->main), in_spare = run_left(st, &w->spare);
        if (in_spare >= blocks)
            run = &w->spare;
        else if (in_main >= blocks || in_main >= RUN_BLOCKS_LEAST / 2)
            run = &w->main;
        if (run) {
            *got = run_take(st, run, blocks, place);
            return 0;
        }
        int error = refill(st, w, blocks);
        if (error == -ENOSPC && in_main + in_spare) {
            run = in_main > in_spare ? &w->main : &w->spare;
            if (!run_left(st, run))
                continue;
            *got = run_take(st, run, blocks, place);
            return 0;
        }
        if (error)
            return error;
        if (run_left(st, &w->main) && run_left(st, &w->main) < blocks) {
            *got = run_take(st, &w->main, blocks, place); /* the end of a segment: what there is */
            return 0;
        }
    }
}

void seg_abandon(struct local *l, place_t place, unsigned blocks)
{
    struct seg *seg = seg_get(l->segs, place_segment(place));
    if (!seg)
        return;
    atomic_fetch_sub(&seg->pending, blocks);
    seg_put(seg);
}

static void close_open(struct seg_store *st)
{
    pthread_mutex_lock(&st->lock);
    struct seg *seg = st->open;
    st->open = NULL;
    atomic_fetch_add(&st->generation, 1);
    if (seg) {
        atomic_fetch_sub(&st->spare_blocks, seg->allocated - atomic_load(&seg->tail));
        atomic_store(&seg->closed, true);
    }
    pthread_mutex_unlock(&st->lock);
}

void seg_retire_open(struct local *l)
{
    close_open(l->segs); /* the next start gives back what lies past its tail */
}

void seg_close_dead(struct seg_store *st)
{
    pthread_mutex_lock(&st->lock);
    const struct seg *seg = st->open;
    bool dead = seg && !atomic_load(&seg->live) && !atomic_load(&seg->pending) &&
                atomic_load(&seg->tail) >= seg->capacity / DEAD_PART;
    pthread_mutex_unlock(&st->lock);
    if (dead)
        close_open(st);
}

/* ---- opening ---- */

int seg_space_open(struct seg_store *st)
{
    const struct store_options *options = &st->local->options;
    struct stat info;
    atomic_store(&st->ballast_there, true); /* not before the sizes are known */
    measure(st, true);
    uint64_t total = atomic_load(&st->total_bytes);
    st->segment_bytes = options->segment_bytes ? options->segment_bytes : 4096 * MIB;
    if (st->segment_bytes < MIB)
        st->segment_bytes = MIB;
    st->reserve = options->reserve_bytes;
    if (!st->reserve) {
        st->reserve = total / 50;
        st->reserve = st->reserve < 4 * MIB      ? 4 * MIB
                      : st->reserve > 1024 * MIB ? 1024 * MIB
                                                 : st->reserve;
    }
    st->ballast_bytes = total / 100 < 64 * MIB ? total / 100 : 64 * MIB;
    st->run_blocks = capacity_blocks(st) / 64;
    if (st->run_blocks < RUN_BLOCKS_LEAST)
        st->run_blocks = RUN_BLOCKS_LEAST;
    if (st->run_blocks > RUN_BLOCKS_MOST)
        st->run_blocks = RUN_BLOCKS_MOST;
    bool there = fstatat(st->local->dir_fd, "ballast", &info, 0) == 0 && (uint64_t)info.st_size > 0;
    atomic_store(&st->ballast_there, there);
    ballast_check(st, atomic_load(&st->free_bytes));
    return 0;
}

void seg_space_close(struct seg_store *st)
{
    while (atomic_load(&st->background))
        usleep(1000);
    struct seg *seg = st->open;
    if (seg && ftruncate(seg->fd, (off_t)atomic_load(&seg->tail) * SEG_BLOCK))
        log_warning("segment", "cannot give back the end of %08x: %s", seg->number,
                    sl_strerror(-errno));
    close_open(st);
    for (unsigned i = 0; st->workers && i < workers_count(); i++) {
        run_drop(st, &st->workers[i].main);
        run_drop(st, &st->workers[i].spare);
    }
}
