/* Page-aligned memory for received bytes, pooled: records of up to record_max bytes and the
 * connections' receive buffers.  A pool belongs to one worker (or one test) and is used by its
 * thread only. */
#ifndef RPC_BUFFERS_H
#define RPC_BUFFERS_H

#include <stdint.h>

enum { BUFFER_SMALL = 64 * 1024 };

struct buffer {
    uint8_t *at; /* NULL: none */
    uint32_t room;
};

struct buffer_link;

struct buffer_pool {
    uint32_t large; /* room of the larger kind */
    struct buffer_link *free[2];
    unsigned free_count[2];
    unsigned idle[2]; /* fewest that were free since the last buffers_trim() */
};

/* The largest buffer holds `most` bytes. */
void buffers_init(struct buffer_pool *pool, uint32_t most);
/* A buffer of at least `need` bytes (at most `most`).  -ENOMEM. */
int buffer_get(struct buffer_pool *pool, uint32_t need, struct buffer *out);
/* Gives it back and clears *buffer; one that is NULL is fine. */
void buffer_put(struct buffer_pool *pool, struct buffer *buffer);
/* Frees what nobody has needed since the last call. */
void buffers_trim(struct buffer_pool *pool);
/* Frees what the pool keeps. */
void buffers_free(struct buffer_pool *pool);

#endif
