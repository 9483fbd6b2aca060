#include "store/local/fixed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "store/local/cache.h"

enum {
    BUFFERS_MOST = 16384, /* of a ring; the kernel's limit */
    PIECE_MOST = 64 << 20,
    PIECE_LEAST = 8 << 20, /* a millisecond of the worker in pages of 4 KiB, much less in huge ones */
    PAUSE_MS = 5,          /* between two of them */
    WAIT_MS = 50,          /* for pages to be touched */
};

struct ring_state {
    _Alignas(64) struct local *local;
    _Atomic unsigned ready; /* buffers, from the arena's beginning */
    bool sparse;            /* there is a table to take away again; the worker's own */
};

struct fixed {
    uint8_t *arena;
    uint64_t bytes, piece;
    unsigned pieces, workers;
    atomic_bool stopping, told;
    _Atomic unsigned busy; /* coroutines */
    struct ring_state rings[];
};

static void say_why(struct fixed *f, int error)
{
    struct rlimit limit;
    if (atomic_exchange(&f->told, true))
        return;
    if (error == -ENOMEM && !getrlimit(RLIMIT_MEMLOCK, &limit) && limit.rlim_cur != RLIM_INFINITY)
        log_notice("cache",
                   "not registered with the kernel, which makes reads from disk cheaper: RLIMIT_MEMLOCK is %llu"
                   " KiB; raise it to the cache times the workers (ulimit -l, LimitMEMLOCK=infinity)",
                   (unsigned long long)limit.rlim_cur / 1024);
    else
        log_notice("cache", "not registered with the kernel, which makes reads from disk cheaper: %s",
                   sl_strerror(error));
}

static int add_piece(struct fixed *f, unsigned i)
{
    uint64_t at = i * f->piece, left = f->bytes - at;
    struct iovec iov = {f->arena + at, left < f->piece ? left : f->piece};
    int done = io_uring_register_buffers_update_tag(worker_ring(worker_self()), i, &iov, NULL, 1);
    return done == 1 ? 0 : done < 0 ? done : -EIO;
}

/* A coroutine of each worker. */
static void register_all(void *arg)
{
    struct ring_state *ring = arg;
    struct local *l = ring->local;
    struct fixed *f = l->fixed;
    int error = io_uring_register_buffers_sparse(worker_ring(worker_self()), f->pieces);
    ring->sparse = error == 0;
    for (unsigned i = 0; !error && i < f->pieces && !atomic_load(&f->stopping);) {
        uint64_t end = (i + 1) * f->piece;
        if (cache_touched(l->cache) < (end < f->bytes ? end : f->bytes)) {
            coro_sleep(WAIT_MS);
            continue;
        }
        error = add_piece(f, i);
        if (!error)
            atomic_store_explicit(&ring->ready, ++i, memory_order_release);
        coro_sleep(PAUSE_MS);
    }
    if (error)
        say_why(f, error);
    atomic_fetch_sub(&f->busy, 1);
}

int fixed_open(struct local *l)
{
    unsigned workers = workers_count();
    size_t size = sizeof(struct fixed) + workers * sizeof(struct ring_state);
    struct fixed *f = aligned_alloc(64, (size + 63) & ~(size_t)63);
    if (!f)
        return -ENOMEM;
    memset(f, 0, size);
    f->arena = cache_arena(l->cache, &f->bytes);
    f->piece = PIECE_LEAST;
    while (f->piece < PIECE_MOST && f->bytes / f->piece >= BUFFERS_MOST / 4)
        f->piece *= 2;
    uint64_t pieces = (f->bytes + f->piece - 1) / f->piece;
    f->pieces = pieces < BUFFERS_MOST ? (unsigned)pieces : BUFFERS_MOST;
    f->workers = workers;
    l->fixed = f;
    for (unsigned i = 0; i < workers; i++) {
        f->rings[i].local = l;
        atomic_fetch_add(&f->busy, 1);
        if (worker_spawn(worker_at(i), register_all, &f->rings[i]))
            atomic_fetch_sub(&f->busy, 1);
    }
    return 0;
}

static int take_away(void *arg)
{
    struct ring_state *ring = arg;
    atomic_store(&ring->ready, 0);
    return ring->sparse ? io_uring_unregister_buffers(worker_ring(worker_self())) : 0;
}

void fixed_close(struct local *l)
{
    struct fixed *f = l->fixed;
    if (!f)
        return;
    atomic_store(&f->stopping, true);
    if (workers_count()) {
        while (atomic_load(&f->busy))
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        for (unsigned i = 0; i < f->workers; i++)
            worker_call(worker_at(i), take_away, &f->rings[i]);
    }
    free(f);
    l->fixed = NULL;
}

int fixed_index(struct local *l, const uint8_t *data, size_t length)
{
    struct fixed *f = l->fixed;
    if (!f || data < f->arena || data >= f->arena + f->bytes)
        return -1;
    uint64_t at = (uint64_t)(data - f->arena), piece = at / f->piece;
    if ((at + length - 1) / f->piece != piece)
        return -1;
    const struct ring_state *ring = &f->rings[worker_index(worker_self())];
    return piece < atomic_load_explicit(&ring->ready, memory_order_acquire) ? (int)piece : -1;
}

uint64_t fixed_bytes(struct local *l)
{
    struct fixed *f = l->fixed;
    uint64_t pieces = f && f->workers ? f->pieces : 0;
    for (unsigned i = 0; f && i < f->workers; i++) {
        unsigned ready = atomic_load(&f->rings[i].ready);
        pieces = ready < pieces ? ready : pieces;
    }
    return f && pieces * f->piece < f->bytes ? pieces * f->piece : f ? f->bytes : 0;
}
