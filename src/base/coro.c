#include "sluice/base_coro.h"

#include <assert.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/worker_private.h"

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
#define WITH_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define WITH_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
#define WITH_TSAN 1
#include <sanitizer/tsan_interface.h>
#else
#define WITH_TSAN 0
#endif

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define VALGRIND_STACK_REGISTER(start, end) 0
#define VALGRIND_STACK_DEREGISTER(id)       ((void)(id))
#endif

enum {
    STACK_SIZE = (WITH_ASAN || WITH_TSAN ? 256 : 64) * 1024,
    POOL_MOST = 256,
    LIMIT_DEFAULT = 20000,
    SPINS_BEFORE_YIELD = 200,
    PACE_BYTES = 256 * 1024, /* some 25 us of copying with checksums */
};

void coro_switch(void **save, void *to);
void coro_first(void);

static unsigned coro_limit = LIMIT_DEFAULT;
static atomic_uint coro_total;

void coro_set_limit(unsigned limit)
{
    coro_limit = limit;
}

unsigned coro_count(void)
{
    return atomic_load(&coro_total);
}

struct coro *coro_self(void)
{
    struct worker *w = worker_self();
    return w && w->current != &w->main ? w->current : NULL;
}

static void queue_push(struct coro_queue *q, struct coro *c)
{
    c->next = NULL;
    if (q->last)
        q->last->next = c;
    else
        q->first = c;
    q->last = c;
}

static void queue_push_first(struct coro_queue *q, struct coro *c)
{
    c->next = q->first;
    q->first = c;
    if (!q->last)
        q->last = c;
}

static struct coro *queue_pop(struct coro_queue *q)
{
    struct coro *c = q->first;
    if (c) {
        q->first = c->next;
        if (!q->first)
            q->last = NULL;
    }
    return c;
}

/* ---- stacks ---- */

static size_t mapping_size(void)
{
    return STACK_SIZE + (size_t)sysconf(_SC_PAGESIZE);
}

static struct coro *stack_map(struct worker *w)
{
    size_t guard = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *mapping = mmap(NULL, mapping_size(), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return NULL;
    if (mprotect(mapping, guard, PROT_NONE)) {
        munmap(mapping, mapping_size());
        return NULL;
    }
    size_t own = (sizeof(struct coro) + 63) & ~(size_t)63;
    struct coro *c = (struct coro *)(mapping + mapping_size() - own);
    memset(c, 0, sizeof(*c));
    c->worker = w;
    c->mapping = mapping;
    c->bottom = mapping + guard;
    c->size = STACK_SIZE - own;
    c->valgrind_id = VALGRIND_STACK_REGISTER(c->bottom, (uint8_t *)c->bottom + c->size);
    c->older = w->all;
    if (w->all)
        w->all->newer = c;
    w->all = c;
    return c;
}

static void stack_unmap(struct coro *c)
{
    struct worker *w = c->worker;
    if (c->newer)
        c->newer->older = c->older;
    else
        w->all = c->older;
    if (c->older)
        c->older->newer = c->newer;
    VALGRIND_STACK_DEREGISTER(c->valgrind_id);
#if WITH_ASAN
    /* The shadow outlives the mapping and would poison what is mapped here next. */
    __asan_unpoison_memory_region(c->bottom, c->size);
#endif
#if WITH_TSAN
    if (c->tsan_fiber)
        __tsan_destroy_fiber(c->tsan_fiber);
#endif
    munmap(c->mapping, mapping_size());
}

static struct coro *stack_take(struct worker *w)
{
    struct coro *c = w->pool;
    if (!c)
        return stack_map(w);
    w->pool = c->next;
    w->pooled--;
#if WITH_ASAN
    /* The last frames of the coroutine before never returned. */
    __asan_unpoison_memory_region(c->bottom, c->size);
#endif
    return c;
}

static void stack_give_back(struct coro *c)
{
    struct worker *w = c->worker;
#if WITH_TSAN
    __tsan_destroy_fiber(c->tsan_fiber);
    c->tsan_fiber = NULL;
#endif
    if (w->pooled < POOL_MOST) {
        c->next = w->pool;
        w->pool = c;
        w->pooled++;
    } else {
        stack_unmap(c);
    }
}

/* ---- switching ---- */

static void switch_to(struct coro *to)
{
    struct worker *w = to->worker;
    struct coro *from = w->current;
    w->current = to;
#if WITH_ASAN
    __sanitizer_start_switch_fiber(from->ended ? NULL : &from->fake_stack, to->bottom, to->size);
#endif
#if WITH_TSAN
    __tsan_switch_to_fiber(to->tsan_fiber, 0);
#endif
    coro_switch(&from->stack_pointer, to->stack_pointer);
#if WITH_ASAN
    __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}

static void coro_main(struct coro *c)
{
#if WITH_ASAN
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(NULL, &bottom, &size);
    if (c->resumer == &c->worker->main) {
        c->resumer->bottom = bottom;
        c->resumer->size = size;
    }
#endif
    c->fn(c->arg);
    c->ended = true;
    switch_to(c->resumer);
    __builtin_unreachable();
}

static void first_frame(struct coro *c)
{
    uintptr_t top = ((uintptr_t)c->bottom + c->size) & ~(uintptr_t)15;
#if defined(__x86_64__)
    /* r15 r14 r13 r12 rbx rbp and the return address; coro_first calls with the stack aligned to 16. */
    void **frame = (void **)(top - 72);
    memset(frame, 0, 72);
    frame[3] = (void *)coro_main;
    frame[4] = c;
    frame[6] = (void *)coro_first;
    c->stack_pointer = frame;
    _Static_assert(sizeof(void *) == 8, "the frame counts in words of eight bytes");
#else
    void **frame = (void **)(top - 160);
    memset(frame, 0, 160);
    frame[0] = c;
    frame[1] = (void *)coro_main;
    frame[11] = (void *)coro_first;
    c->stack_pointer = frame;
#endif
}

/* Runs c until it waits or ends; from the main stack, or from the coroutine that starts c. */
static void resume(struct worker *w, struct coro *c)
{
    c->resumer = w->current;
    switch_to(c);
    if (c->ended) {
        stack_give_back(c);
        atomic_fetch_sub(&coro_total, 1);
    }
}

static void remote_wake_run(struct task *task)
{
    coro_wake((struct coro *)((char *)task - offsetof(struct coro, remote_wake)));
}

int coro_start(void (*fn)(void *arg), void *arg)
{
    struct worker *w = worker_self();
    assert(w && "coroutines start on a worker");
    if (atomic_fetch_add(&coro_total, 1) >= coro_limit) {
        atomic_fetch_sub(&coro_total, 1);
        return -EAGAIN;
    }
    struct coro *c = stack_take(w);
    if (!c) {
        atomic_fetch_sub(&coro_total, 1);
        return -ENOMEM;
    }
    c->fn = fn;
    c->arg = arg;
    c->ended = c->queued = false;
    c->fake_stack = NULL;
    memset(c->spent, 0, sizeof(c->spent));
    c->remote_wake.run = remote_wake_run;
#if WITH_TSAN
    c->tsan_fiber = __tsan_create_fiber(0);
#endif
    first_frame(c);
    resume(w, c);
    return 0;
}

void coro_wait(void)
{
    struct coro *c = coro_self();
    assert(c && "only a coroutine can wait");
    switch_to(c->resumer);
}

void coro_wait_for(enum coro_spent what)
{
    struct coro *c = coro_self();
    uint64_t since = clock_monotonic_ns();
    coro_wait();
    c->spent[what] += clock_monotonic_ns() - since;
}

const uint64_t *coro_spent(void)
{
    return coro_self()->spent;
}

void coro_wake(struct coro *c)
{
    assert(c->worker == worker_self() && "coro_wake_remote is for other threads");
    assert(!c->queued && "one wake for one wait");
    c->queued = true;
    queue_push(&c->worker->ready, c);
}

void coro_wake_remote(struct coro *c)
{
    worker_post(c->worker, &c->remote_wake);
}

void coro_yield(void)
{
    struct coro *c = coro_self();
    assert(c && "only a coroutine can wait");
    c->queued = true;
    queue_push(&c->worker->yielded, c);
    switch_to(c->resumer);
}

void coro_pace(unsigned bytes, bool begun)
{
    struct coro *c = coro_self();
    if (!c)
        return;
    struct worker *w = c->worker;
    if (w->paced_bytes >= PACE_BYTES || (!begun && w->paced.first)) {
        c->queued = true;
        if (begun)
            queue_push_first(&w->paced, c);
        else
            queue_push(&w->paced, c);
        switch_to(c->resumer);
    }
    w->paced_bytes += bytes;
}

void coro_run_paced(struct worker *w)
{
    struct coro *c;
    w->paced_bytes = 0;
    while (w->paced_bytes < PACE_BYTES && (c = queue_pop(&w->paced))) {
        c->queued = false;
        resume(w, c);
    }
}

struct sleeper {
    struct worker_timer timer;
    struct coro *coro;
};

static void sleeper_expired(struct worker_timer *timer)
{
    coro_wake(((struct sleeper *)timer)->coro);
}

void coro_sleep(unsigned ms)
{
    struct sleeper sleeper = {.coro = coro_self()};
    worker_timer_start(&sleeper.timer, ms, sleeper_expired);
    coro_wait();
}

void coro_run_ready(struct worker *w, unsigned budget)
{
    struct coro *c;
    while (budget-- && (c = queue_pop(&w->ready))) {
        c->queued = false;
        resume(w, c);
    }
}

void coro_ready_yielded(struct worker *w)
{
    struct coro *c;
    while ((c = queue_pop(&w->yielded)))
        queue_push(&w->ready, c);
}

void coro_init_worker(struct worker *w)
{
    w->main.worker = w;
    w->current = &w->main;
#if WITH_TSAN
    w->main.tsan_fiber = __tsan_get_current_fiber();
#endif
}

void coro_free_worker(struct worker *w)
{
    for (struct coro *c = w->pool; c; c = c->next)
        c->ended = true;
    for (struct coro *c = w->all, *older; c; c = older) {
        older = c->older;
        if (!c->ended)
            atomic_fetch_sub(&coro_total, 1);
        stack_unmap(c);
    }
    w->pool = NULL;
    w->pooled = 0;
}

/* ---- the lock ---- */

struct coro_mutex_waiter {
    struct coro_mutex_waiter *next;
    struct coro *coro;
};

static void spin_take(int *spin)
{
    for (unsigned tries = 0; __atomic_exchange_n(spin, 1, __ATOMIC_ACQUIRE); tries++) {
        /* The holder may have lost its processor. */
        if (tries >= SPINS_BEFORE_YIELD)
            sched_yield();
    }
}

static void spin_give(int *spin)
{
    __atomic_store_n(spin, 0, __ATOMIC_RELEASE);
}

bool coro_mutex_try(struct coro_mutex *m)
{
    spin_take(&m->spin);
    bool got = !m->held;
    m->held = true;
    spin_give(&m->spin);
    return got;
}

void coro_mutex_lock(struct coro_mutex *m)
{
    struct coro_mutex_waiter waiter = {.coro = coro_self()};
    assert(waiter.coro && "a main stack can only try");
    spin_take(&m->spin);
    if (!m->held) {
        m->held = true;
        spin_give(&m->spin);
        return;
    }
    if (m->last)
        m->last->next = &waiter;
    else
        m->first = &waiter;
    m->last = &waiter;
    spin_give(&m->spin);
    coro_wait(); /* the unlocker leaves `held` set: the lock is ours when we wake */
}

void coro_mutex_unlock(struct coro_mutex *m)
{
    struct coro *heir = NULL;
    spin_take(&m->spin);
    assert(m->held && "unlocked twice");
    if (m->first) {
        heir = m->first->coro;
        m->first = m->first->next;
        if (!m->first)
            m->last = NULL;
    } else {
        m->held = false;
    }
    spin_give(&m->spin);
    if (!heir)
        return;
    if (heir->worker == worker_self())
        coro_wake(heir);
    else
        coro_wake_remote(heir);
}
