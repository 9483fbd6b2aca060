#include <search.h>
#include <stdlib.h>

#include "admin/import.h"

struct link {
    dev_t dev;
    ino_t ino;
    bool known;
    uint64_t names_left; /* when none is, the entry goes */
    struct store_object object;
};

static int compare(const void *a, const void *b)
{
    const struct link *x = a, *y = b;
    if (x->dev != y->dev)
        return x->dev < y->dev ? -1 : 1;
    return x->ino == y->ino ? 0 : x->ino < y->ino ? -1 : 1;
}

static struct link *find(struct import *im, const struct stat *st)
{
    struct link key = {.dev = st->st_dev, .ino = st->st_ino};
    struct link **found = tfind(&key, &im->links, compare);
    return found ? *found : NULL;
}

static void drop(struct import *im, struct link *link)
{
    tdelete(link, &im->links, compare);
    free(link);
}

static enum import_link try_begin(struct import *im, const struct stat *st, struct store_object *out,
                                  bool *wait)
{
    struct link *link = find(im, st);
    *wait = link && !link->known;
    if (*wait)
        return IMPORT_LINK_FIRST;
    if (link) {
        *out = link->object;
        if (--link->names_left == 0)
            drop(im, link);
        return IMPORT_LINK_THERE;
    }
    link = calloc(1, sizeof *link);
    if (!link)
        return IMPORT_LINK_NO_MEMORY;
    *link = (struct link){.dev = st->st_dev, .ino = st->st_ino, .names_left = st->st_nlink - 1};
    if (!tsearch(link, &im->links, compare)) {
        free(link);
        return IMPORT_LINK_NO_MEMORY;
    }
    return IMPORT_LINK_FIRST;
}

enum import_link import_link_begin(struct import *im, const struct stat *st, struct store_object *out)
{
    for (;;) {
        bool wait;
        pthread_mutex_lock(&im->links_lock);
        enum import_link result = try_begin(im, st, out, &wait);
        pthread_mutex_unlock(&im->links_lock);
        if (!wait)
            return result;
        coro_sleep(5);
    }
}

void import_link_done(struct import *im, const struct stat *st, const struct store_object *object)
{
    pthread_mutex_lock(&im->links_lock);
    struct link *link = find(im, st);
    if (link && object) {
        link->object = *object;
        link->known = true;
    } else if (link) { /* it failed: the next name tries again */
        drop(im, link);
    }
    pthread_mutex_unlock(&im->links_lock);
}

void import_links_free(struct import *im)
{
    tdestroy(im->links, free);
    im->links = NULL;
}
