#include "nfs/mount_list.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "nfs/server.h"

struct entry {
    char *host, *path;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry entries[MOUNT_LIST_MAX]; /* oldest first */
static unsigned count;

static void drop(unsigned index)
{
    free(entries[index].host);
    free(entries[index].path);
    count--;
    memmove(entries + index, entries + index + 1, (count - index) * sizeof *entries);
}

static void drop_matching(const char *host, const char *path)
{
    for (unsigned i = count; i-- > 0;)
        if (strcmp(entries[i].host, host) == 0 && (!path || strcmp(entries[i].path, path) == 0))
            drop(i);
}

void mount_list_add(const char *host, const char *path)
{
    struct entry entry = {.host = strdup(host), .path = strdup(path)};
    if (!entry.host || !entry.path) {
        free(entry.host);
        free(entry.path);
        return;
    }
    pthread_mutex_lock(&lock);
    drop_matching(host, path);
    if (count == MOUNT_LIST_MAX)
        drop(0);
    entries[count++] = entry;
    pthread_mutex_unlock(&lock);
}

void mount_list_remove(const char *host, const char *path)
{
    pthread_mutex_lock(&lock);
    drop_matching(host, path);
    pthread_mutex_unlock(&lock);
}

void mount_list_each(bool (*each)(void *arg, const char *host, const char *path), void *arg)
{
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < count && each(arg, entries[i].host, entries[i].path); i++)
        ;
    pthread_mutex_unlock(&lock);
}

void mount_list_clear(void)
{
    pthread_mutex_lock(&lock);
    while (count)
        drop(count - 1);
    pthread_mutex_unlock(&lock);
}
