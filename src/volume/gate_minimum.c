/* Guaranteed minimums.  What the machine can do is not known, and changes; so every 50 ms it is looked at what each
 * volume with a minimum got.  One that got less although more of its calls were waiting to be looked at is short: then
 * all that have no minimum share a common rate ("pressure"), which is what they had, less what is missing, and follows
 * from then on.  Pressure ends when nobody is short and the others do not use what they may. */
#include <errno.h>

#include "sluice/base_metrics.h"
#include "volume/gate.h"

enum { TICK_MS = 50, CALM_TICKS = 20 };

static const double smooth = 0.3;     /* weight of the last tick in a volume's rate */
static const double correction = 0.4; /* of what is missing or too much, in one tick */
static const double target = 1.01;    /* of the minimum, since what is kept to the byte is missed half of the time */
static const double least = 0.02;     /* what the others keep of all */
static const double pressed_least = 0.05;

atomic_bool pressure_on;
struct gate *gate_others;

static struct {
    pthread_mutex_t lock;
    double level, rate;
    uint64_t filled_ns;
} pressure = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Only the worker that ticks uses these, but for `ticking`. */
static struct worker_timer timer;
static struct task starting;
static atomic_bool ticking;
static uint64_t ticked_ns, seen_all;
static double others_rate;
static unsigned calm;

static void pressure_fill(void)
{
    uint64_t now = clock_monotonic_ns();
    pressure.level += (double)(now - pressure.filled_ns) * 1e-9 * pressure.rate;
    if (pressure.level > pressure.rate * 0.01)
        pressure.level = pressure.rate * 0.01;
    pressure.filled_ns = now;
}

bool pressure_take(double bytes)
{
    pthread_mutex_lock(&pressure.lock);
    pressure_fill();
    bool open = pressure.level >= 0;
    if (open)
        pressure.level -= bytes;
    pthread_mutex_unlock(&pressure.lock);
    return open;
}

void pressure_return(double bytes)
{
    pthread_mutex_lock(&pressure.lock);
    pressure.level += bytes;
    pthread_mutex_unlock(&pressure.lock);
}

bool pressure_open(void)
{
    return pressure_wait() == 0;
}

uint64_t pressure_wait(void)
{
    pthread_mutex_lock(&pressure.lock);
    pressure_fill();
    uint64_t wait = pressure.level < 0 ? (uint64_t)(-pressure.level / pressure.rate * 1e9) + 1 : 0;
    pthread_mutex_unlock(&pressure.lock);
    return wait;
}

static void pressure_set(double rate)
{
    pthread_mutex_lock(&pressure.lock);
    pressure_fill();
    pressure.rate = rate;
    pthread_mutex_unlock(&pressure.lock);
}

/* ---- a tick ---- */

struct seen {
    double seconds;
    double guaranteed; /* rate of all that have a minimum */
    double missing;    /* of those that are short; negative: what the one that is nearest has too much */
    unsigned with_minimum;
    bool wanting;      /* somebody has more to do than it gets */
};

static void look_at(void *arg, struct gate *g)
{
    struct seen *seen = arg;
    uint64_t bytes = 0, calls = 0, pressed = 0;
    for (unsigned i = 0; i < workers_count(); i++) {
        bytes += __atomic_load_n(&g->lease[i].bytes, __ATOMIC_RELAXED);
        calls += __atomic_load_n(&g->lease[i].calls, __ATOMIC_RELAXED);
        pressed += __atomic_load_n(&g->lease[i].pressed, __ATOMIC_RELAXED);
    }
    double rate = (double)(bytes - g->seen_bytes) / seen->seconds, minimum = (double)g->min_bandwidth * target;
    double share = calls > g->seen_calls ? (double)(pressed - g->seen_pressed) / (double)(calls - g->seen_calls) : 0;
    g->seen_bytes = bytes;
    g->seen_calls = calls;
    g->seen_pressed = pressed;
    g->rate += (rate - g->rate) * smooth;
    if (minimum == 0)
        return;
    seen->with_minimum++;
    seen->guaranteed += g->rate;
    double missing = minimum - g->rate;
    if (share < pressed_least)
        return; /* it has all that it asks for */
    if (!seen->wanting)
        seen->missing = missing;
    else if (missing > 0)
        seen->missing = missing + (seen->missing > 0 ? seen->missing : 0);
    else if (seen->missing < 0 && missing > seen->missing)
        seen->missing = missing;
    seen->wanting = true;
}

static void press(const struct seen *seen)
{
    if (!atomic_load(&pressure_on)) {
        if (!seen->wanting || seen->missing <= 0)
            return;
        pressure_set(others_rate > 0 ? others_rate : 1);
        calm = 0;
        atomic_store(&pressure_on, true);
        gate_forget_caches();
    }
    double rate = pressure.rate, floor = least * (others_rate + seen->guaranteed);
    rate += seen->wanting ? -correction * seen->missing : rate * 0.2;
    if (rate < floor)
        rate = floor;
    pressure_set(rate < 1e6 ? 1e6 : rate);
    calm = others_rate < rate / 2 ? calm + 1 : 0;
    if (calm < CALM_TICKS)
        return;
    atomic_store(&pressure_on, false);
    gate_forget_caches();
    gate_kick(gate_others);
}

static void tick(struct worker_timer *t)
{
    uint64_t now = clock_monotonic_ns();
    uint64_t all = metric_read(METRIC_read_bytes) + metric_read(METRIC_write_bytes);
    struct seen seen = {.seconds = (double)(now - ticked_ns) * 1e-9};
    gate_each(look_at, &seen);
    double others = (double)(all - seen_all) / seen.seconds - seen.guaranteed;
    others_rate += ((others > 0 ? others : 0) - others_rate) * smooth;
    ticked_ns = now;
    seen_all = all;
    press(&seen);
    if (seen.with_minimum) {
        worker_timer_start(t, TICK_MS, tick);
        return;
    }
    atomic_store(&pressure_on, false);
    gate_forget_caches();
    if (gate_others)
        gate_kick(gate_others);
    atomic_store(&ticking, false);
}

static void start(struct task *task)
{
    (void)task;
    if (timer.armed)
        return;
    ticked_ns = clock_monotonic_ns();
    seen_all = metric_read(METRIC_read_bytes) + metric_read(METRIC_write_bytes);
    others_rate = 0;
    worker_timer_start(&timer, TICK_MS, tick);
}

int minimum_start(void)
{
    if (!gate_others && !(gate_others = gate_new(0)))
        return -ENOMEM;
    if (!workers_count() || atomic_exchange(&ticking, true))
        return 0;
    starting.run = start;
    worker_post(worker_at(0), &starting);
    return 0;
}

void minimum_stop(void)
{
    atomic_store(&pressure_on, false);
}
