/* A connection that streams READs, and one GETATTR at a time beside them: how long does a small
 * reply wait behind bulk ones? */
#include <stdlib.h>

#include "load_conn.h"

struct stream {
    uint32_t reads; /* in flight */
    bool asking;    /* a GETATTR is */
};

uint32_t stream_slots(const struct load_options *o)
{
    return o->depth + 1;
}

int stream_open(struct conn *c, uint32_t number)
{
    conn_choose_region(c, number);
    c->state = calloc(1, sizeof(struct stream));
    return c->state ? 0 : -1;
}

void stream_close(struct conn *c)
{
    free(c->state);
}

bool stream_room(const struct conn *c)
{
    const struct stream *s = c->state;
    return !s->asking;
}

static void stream_read(struct conn *c, struct stream *s)
{
    const struct load_options *o = c->options;
    while (!c->shared->stop && s->reads < o->depth) {
        struct load_slot *slot = conn_slot(c, NFS3_READ, c->now);
        slot->file = c->file;
        slot->offset = c->cursor;
        slot->length = o->size;
        c->cursor += o->size;
        if (c->cursor + o->size > c->region_end)
            c->cursor = c->region_start;
        s->reads++;
        conn_call(c, slot);
    }
}

void stream_start(struct conn *c, uint64_t ticket, uint64_t start_ns)
{
    struct stream *s = c->state;
    struct load_slot *slot;
    (void)ticket;
    stream_read(c, s);
    slot = conn_slot(c, NFS3_GETATTR, start_ns);
    slot->file = c->file;
    slot->size = c->options->file_size;
    s->asking = true;
    conn_call(c, slot);
}

void stream_reply(struct conn *c, const struct load_slot *slot, bool good)
{
    struct stream *s = c->state;
    (void)good;
    if (slot->procedure == NFS3_READ) {
        s->reads--;
        conn_count_extra(c, 0, slot->start_ns);
        stream_read(c, s);
    } else {
        s->asking = false;
        conn_count_unit(c, slot->start_ns);
    }
}
