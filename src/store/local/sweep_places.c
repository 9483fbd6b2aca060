#include "store/local/sweep_places.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = UINT32_MAX, ROOM_LEAST = 1024 };

struct moved {
    place_t from, to;
    uint32_t next_from, next_to; /* in their buckets; of one that is free: the next free one */
};

struct sweep_places {
    pthread_mutex_t lock;
    _Atomic uint32_t count;
    uint32_t room, free; /* as many buckets as there is room */
    struct moved *moved;
    uint32_t *by_from, *by_to;
};

static uint32_t bucket(const struct sweep_places *p, place_t place)
{
    return (uint32_t)((place * 0x9e3779b97f4a7c15ull) >> 32) & (p->room - 1);
}

struct sweep_places *sweep_places_new(void)
{
    struct sweep_places *p = calloc(1, sizeof(*p));
    if (p)
        pthread_mutex_init(&p->lock, NULL);
    return p;
}

static void clear(struct sweep_places *p)
{
    free(p->moved);
    free(p->by_from);
    free(p->by_to);
    p->moved = NULL;
    p->by_from = p->by_to = NULL;
    p->room = 0;
    p->free = NONE;
    atomic_store(&p->count, 0);
}

void sweep_places_free(struct sweep_places *p)
{
    if (!p)
        return;
    clear(p);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void sweep_places_clear(struct sweep_places *p)
{
    pthread_mutex_lock(&p->lock);
    clear(p);
    pthread_mutex_unlock(&p->lock);
}

/* Its entry by old place, or by new one. */
static uint32_t find(const struct sweep_places *p, place_t place, bool by_to)
{
    uint32_t at = p->room ? (by_to ? p->by_to : p->by_from)[bucket(p, place)] : NONE;
    while (at != NONE && (by_to ? p->moved[at].to : p->moved[at].from) != place)
        at = by_to ? p->moved[at].next_to : p->moved[at].next_from;
    return at;
}

static void link_in(struct sweep_places *p, uint32_t at)
{
    struct moved *m = &p->moved[at];
    uint32_t from = bucket(p, m->from), to = bucket(p, m->to);
    m->next_from = p->by_from[from];
    m->next_to = p->by_to[to];
    p->by_from[from] = p->by_to[to] = at;
}

static void unlink_at(struct sweep_places *p, uint32_t at)
{
    struct moved *m = &p->moved[at];
    uint32_t *link = &p->by_from[bucket(p, m->from)];
    while (*link != at)
        link = &p->moved[*link].next_from;
    *link = m->next_from;
    link = &p->by_to[bucket(p, m->to)];
    while (*link != at)
        link = &p->moved[*link].next_to;
    *link = m->next_to;
    m->next_from = p->free;
    m->from = 0;
    p->free = at;
    atomic_fetch_sub(&p->count, 1);
}

static int grow(struct sweep_places *p)
{
    uint32_t before = p->room, room = before ? before * 2 : ROOM_LEAST;
    struct moved *moved = realloc(p->moved, room * sizeof(*moved));
    if (moved)
        p->moved = moved;
    uint32_t *by_from = malloc(room * sizeof(*by_from)), *by_to = malloc(room * sizeof(*by_to));
    if (!moved || !by_from || !by_to) {
        free(by_from);
        free(by_to);
        return -ENOMEM;
    }
    free(p->by_from);
    free(p->by_to);
    p->by_from = by_from;
    p->by_to = by_to;
    p->room = room;
    memset(by_from, 0xff, room * sizeof(*by_from));
    memset(by_to, 0xff, room * sizeof(*by_to));
    for (uint32_t i = 0; i < before; i++) /* none is free */
        link_in(p, i);
    p->free = NONE;
    for (uint32_t i = room; i-- > before;) {
        p->moved[i] = (struct moved){.next_from = p->free};
        p->free = i;
    }
    return 0;
}

static int add(struct sweep_places *p, place_t from, place_t to)
{
    if (!p->room || p->free == NONE) {
        int error = grow(p);
        if (error)
            return error;
    }
    uint32_t at = p->free;
    p->free = p->moved[at].next_from;
    p->moved[at] = (struct moved){.from = from, .to = to};
    link_in(p, at);
    atomic_fetch_add(&p->count, 1);
    return 0;
}

place_t sweep_places_get(struct sweep_places *p, place_t from)
{
    if (!atomic_load(&p->count))
        return 0;
    pthread_mutex_lock(&p->lock);
    uint32_t at = find(p, from, false);
    place_t to = at == NONE ? 0 : p->moved[at].to;
    pthread_mutex_unlock(&p->lock);
    return to;
}

int sweep_places_add(struct sweep_places *p, place_t from, place_t to)
{
    pthread_mutex_lock(&p->lock);
    int error = add(p, from, to);
    pthread_mutex_unlock(&p->lock);
    return error;
}

void sweep_places_died(struct sweep_places *p, place_t to, uint32_t blocks)
{
    if (!atomic_load(&p->count))
        return;
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < blocks; i++) {
        uint32_t at = find(p, to + i, true);
        if (at != NONE)
            unlink_at(p, at);
    }
    pthread_mutex_unlock(&p->lock);
}
