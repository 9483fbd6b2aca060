#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <urcu.h>

#include "sluice/base_thread.h"
#include "sluice/base_worker.h"

enum { THREADS_DEFAULT = 8, THREADS_MOST = 256 };

struct job {
    struct job *next;
    void (*fn)(void *arg);
    void *arg;
    struct coro *waiting; /* NULL: nobody, and the job is ours to free */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static struct job *first, *last;
static unsigned queued, idle, limit = THREADS_DEFAULT;
static unsigned started; /* to be joined */
static unsigned serving; /* of these, not ended yet */
static bool stopping;
static pthread_t threads[THREADS_MOST];

void blocking_set_limit(unsigned most)
{
    pthread_mutex_lock(&lock);
    limit = most < 1 ? 1 : most > THREADS_MOST ? THREADS_MOST : most;
    pthread_mutex_unlock(&lock);
}

static void job_run(struct job *job)
{
    struct coro *waiting = job->waiting;
    job->fn(job->arg);
    if (waiting)
        coro_wake_remote(waiting); /* the job was on its stack, and may be gone now */
    else
        free(job);
}

static void *thread_main(void *arg)
{
    pthread_setname_np(pthread_self(), "blocking");
    rcu_register_thread();
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!first && !stopping) {
            idle++;
            pthread_cond_wait(&arrived, &lock);
            idle--;
        }
        struct job *job = first;
        if (!job)
            break;
        first = job->next;
        if (!first)
            last = NULL;
        queued--;
        pthread_mutex_unlock(&lock);
        job_run(job);
        pthread_mutex_lock(&lock);
    }
    serving--;
    pthread_mutex_unlock(&lock);
    rcu_unregister_thread();
    return NULL;
}

/* False when there is no thread and none can be made; the job is not queued then. */
static bool enqueue(struct job *job)
{
    pthread_mutex_lock(&lock);
    if (queued >= idle && started < limit && !stopping &&
        thread_start(&threads[started], thread_main, NULL) == 0) {
        started++;
        serving++;
    }
    bool served = serving > 0;
    if (served) {
        job->next = NULL;
        if (last)
            last->next = job;
        else
            first = job;
        last = job;
        queued++;
        pthread_cond_signal(&arrived);
    }
    pthread_mutex_unlock(&lock);
    return served;
}

void blocking_run(void (*fn)(void *arg), void *arg)
{
    struct job job = {.fn = fn, .arg = arg, .waiting = coro_self()};
    /* Late is better than never: without any thread the caller's own has to do it. */
    if (!job.waiting || !enqueue(&job))
        fn(arg);
    else
        coro_wait();
}

int blocking_spawn(void (*fn)(void *arg), void *arg)
{
    struct job *job = malloc(sizeof(*job));
    if (!job)
        return -ENOMEM;
    *job = (struct job){.fn = fn, .arg = arg};
    if (!enqueue(job)) {
        free(job);
        return -EAGAIN;
    }
    return 0;
}

void blocking_stop(void)
{
    pthread_mutex_lock(&lock);
    stopping = true;
    pthread_cond_broadcast(&arrived);
    unsigned count = started;
    pthread_mutex_unlock(&lock);
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_lock(&lock);
    started = 0;
    stopping = false;
    pthread_mutex_unlock(&lock);
}
