#include "rpc/buffers.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

/* What stays in a pool after a burst; more goes back to the kernel. */
enum { KEEP_SMALL = 64, KEEP_LARGE = 16 };

struct buffer_link {
    struct buffer_link *next;
};

void buffers_init(struct buffer_pool *pool, uint32_t most)
{
    *pool = (struct buffer_pool){.large = BUFFER_SMALL};
    if (most > BUFFER_SMALL)
        pool->large = (uint32_t)(((uint64_t)most + 4095) & ~UINT64_C(4095));
}

static int kind_of(uint32_t bytes)
{
    return bytes > BUFFER_SMALL;
}

int buffer_get(struct buffer_pool *pool, uint32_t need, struct buffer *out)
{
    int kind = kind_of(need);
    uint32_t room = kind ? pool->large : BUFFER_SMALL;
    struct buffer_link *link = pool->free[kind];
    if (link) {
        pool->free[kind] = link->next;
        if (--pool->free_count[kind] < pool->idle[kind])
            pool->idle[kind] = pool->free_count[kind];
        *out = (struct buffer){.at = (uint8_t *)link, .room = room};
        return 0;
    }
    void *at = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return -ENOMEM;
    *out = (struct buffer){.at = at, .room = room};
    return 0;
}

void buffer_put(struct buffer_pool *pool, struct buffer *buffer)
{
    if (!buffer->at)
        return;
    int kind = kind_of(buffer->room);
    if (pool->free_count[kind] < (kind ? KEEP_LARGE : KEEP_SMALL)) {
        struct buffer_link *link = (struct buffer_link *)buffer->at;
        link->next = pool->free[kind];
        pool->free[kind] = link;
        pool->free_count[kind]++;
    } else {
        munmap(buffer->at, buffer->room);
    }
    *buffer = (struct buffer){0};
}

static void unmap_one(struct buffer_pool *pool, int kind)
{
    struct buffer_link *link = pool->free[kind];
    pool->free[kind] = link->next;
    pool->free_count[kind]--;
    munmap(link, kind ? pool->large : BUFFER_SMALL);
}

void buffers_trim(struct buffer_pool *pool)
{
    for (int kind = 0; kind < 2; kind++) {
        for (unsigned i = pool->idle[kind]; i > 0; i--)
            unmap_one(pool, kind);
        pool->idle[kind] = pool->free_count[kind];
    }
}

void buffers_free(struct buffer_pool *pool)
{
    for (int kind = 0; kind < 2; kind++) {
        while (pool->free[kind])
            unmap_one(pool, kind);
    }
}
