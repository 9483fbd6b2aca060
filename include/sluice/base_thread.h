/* Threads of the server take no signals: those are for the main thread. */
#ifndef SLUICE_BASE_THREAD_H
#define SLUICE_BASE_THREAD_H

#include <pthread.h>

/* pthread_create() with all signals blocked that are not about the thread's own instruction.  -EAGAIN. */
int thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
