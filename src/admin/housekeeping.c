#include "admin/housekeeping.h"

#include <stdatomic.h>
#include <unistd.h>

#include "admin/space.h"
#include "sluice/base_coro.h"
#include "sluice/base_worker.h"
#include "sluice/volume.h"

static atomic_bool running, splitting, watching;

static void split(void *arg)
{
    volume_split_some();
    atomic_store(&splitting, false);
}

static void watch(void *arg)
{
    space_watch();
    atomic_store(&watching, false);
}

static void round_of(void *arg)
{
    volume_schedule();
    volume_purge(); /* what could not go now is tried again */
    atomic_store(&running, false);
}

static void begin(struct task *task)
{
    if (!atomic_exchange(&splitting, true) && coro_start(split, NULL))
        atomic_store(&splitting, false);
    if (!atomic_exchange(&watching, true) && coro_start(watch, NULL))
        atomic_store(&watching, false);
    if (coro_start(round_of, NULL))
        atomic_store(&running, false); /* no memory: the next tick */
}

void housekeeping_tick(void)
{
    static struct task task = {.run = begin};
    if (!atomic_exchange(&running, true))
        worker_post(worker_at(0), &task);
}

static bool works(void)
{
    return atomic_load(&running) || atomic_load(&splitting) || atomic_load(&watching);
}

bool housekeeping_stop(unsigned ms)
{
    volume_split_stop();
    space_stop();
    while (works() && ms--)
        usleep(1000);
    if (works())
        return false;
    space_free();
    return true;
}
