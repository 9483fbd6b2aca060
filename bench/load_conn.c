#include "load_conn.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static bool op_writes(enum load_op op)
{
    return op == OP_WRITE_RAND || op == OP_WRITE_SEQ;
}

static bool op_reads(enum load_op op)
{
    return op == OP_READ_RAND || op == OP_READ_SEQ;
}

static uint64_t conn_random(struct conn *c, uint64_t limit)
{
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return (uint64_t)((unsigned __int128)c->random * limit >> 64);
}

static uint64_t op_stride(const struct load_options *o)
{
    return o->stride ? o->stride : o->size;
}

/* Each connection its own part of a file. */
static void conn_choose_region(struct conn *c, uint32_t number)
{
    const struct load_options *o = c->options;
    uint64_t sharers = (o->connections + o->files - 1) / o->files;
    uint64_t length = o->file_size / sharers / op_stride(o) * op_stride(o);
    c->file = &c->target->files[number % o->files];
    c->region_start = c->cursor = number / o->files * length;
    c->region_end = c->region_start + length;
}

int conn_open(struct conn *c, const struct load_options *o, const struct load_target *t,
              uint32_t number, struct load_counts *counts)
{
    *c = (struct conn){.options = o, .target = t, .counts = counts, .free_count = o->depth};
    c->random = (clock_ns() ^ (number + 1) * CONTENT_STEP) | 1;
    c->sequence = (uint32_t)conn_random(c, 1 << 20);
    c->in_room = o->check_full && o->size + 4096 > IN_ROOM ? o->size + 4096 : IN_ROOM;
    c->slots = calloc(o->depth, sizeof *c->slots);
    c->free = calloc(o->depth, sizeof *c->free);
    c->heads = calloc(2 * o->depth, CALL_ROOM);
    c->iov = calloc(2 * o->depth + 2, sizeof *c->iov);
    c->in = malloc(c->in_room);
    c->fd = setup_connect(o, o->port);
    if (c->fd < 0 || !c->slots || !c->free || !c->heads || !c->iov || !c->in)
        return -1;
    for (uint32_t i = 0; i < o->depth; i++) {
        c->free[i] = o->depth - 1 - i;
        if (op_writes(o->op) && !(c->slots[i].payload = malloc(o->size)))
            return -1;
    }
    conn_choose_region(c, number);
    return 0;
}

void conn_close(struct conn *c)
{
    if (c->fd >= 0)
        close(c->fd);
    for (uint32_t i = 0; c->slots && i < c->options->depth; i++)
        free(c->slots[i].payload);
    free(c->slots);
    free(c->free);
    free(c->heads);
    free(c->iov);
    free(c->in);
}

static void conn_choose_place(struct conn *c, struct load_slot *slot, uint64_t ticket)
{
    const struct load_options *o = c->options;
    uint64_t places = o->file_size / op_stride(o);
    slot->length = o->size;
    if (o->op != OP_READ_SEQ && o->op != OP_WRITE_SEQ) {
        slot->file = &c->target->files[o->files > 1 ? conn_random(c, o->files) : 0];
        slot->offset = places ? conn_random(c, places) * op_stride(o) : 0;
    } else if (o->count) {
        slot->file = &c->target->files[ticket / places % o->files];
        slot->offset = ticket % places * op_stride(o);
    } else {
        slot->file = c->file;
        slot->offset = c->cursor;
        c->cursor += op_stride(o);
        if (c->cursor >= c->region_end)
            c->cursor = c->region_start;
    }
}

static void conn_queue(struct conn *c, void *data, size_t length)
{
    struct iovec *last = c->iov_count ? &c->iov[c->iov_first + c->iov_count - 1] : NULL;
    if (last && (uint8_t *)last->iov_base + last->iov_len == (uint8_t *)data) {
        last->iov_len += length;
        return;
    }
    if (c->iov_first + c->iov_count == 2 * c->options->depth + 2) {
        memmove(c->iov, c->iov + c->iov_first, c->iov_count * sizeof *c->iov);
        c->iov_first = 0;
    }
    c->iov[c->iov_first + c->iov_count++] = (struct iovec){data, length};
}

void conn_call(struct conn *c, uint64_t ticket, uint64_t start_ns)
{
    const struct load_options *o = c->options;
    uint32_t index = c->free[--c->free_count];
    struct load_slot *slot = &c->slots[index];
    slot->xid = c->sequence++ << 12 | index;
    slot->busy = true;
    slot->start_ns = start_ns;
    conn_choose_place(c, slot, ticket);
    /* At most `depth` calls are unsent, so the ring of twice as many never overtakes itself. */
    if (c->head_at + CALL_ROOM > (size_t)2 * o->depth * CALL_ROOM)
        c->head_at = 0;
    struct xdr_out x = xdr_out(c->heads + c->head_at, CALL_ROOM);
    nfs_encode_call(o, c->target, slot, ticket, &x);
    conn_queue(c, x.start, xdr_used(&x));
    c->head_at += xdr_used(&x);
    if (slot->payload) {
        content_fill(slot->payload, slot->file->id, slot->offset, slot->length);
        conn_queue(c, slot->payload, slot->length);
    }
}

static void conn_break(struct conn *c, const char *why)
{
    load_error(c->counts, "connection: %s", why);
    close(c->fd);
    c->fd = -1;
}

void conn_flush(struct conn *c)
{
    while (c->fd >= 0 && c->iov_count) {
        struct msghdr message = {.msg_iov = c->iov + c->iov_first,
                                 .msg_iovlen = c->iov_count < IOV_MAX ? c->iov_count : IOV_MAX};
        ssize_t sent = sendmsg(c->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN && errno != EINTR)
                conn_break(c, strerror(errno));
            break;
        }
        for (size_t left = (size_t)sent; left;) {
            struct iovec *first = &c->iov[c->iov_first];
            size_t part = left < first->iov_len ? left : first->iov_len;
            first->iov_base = (uint8_t *)first->iov_base + part;
            first->iov_len -= part;
            left -= part;
            if (!first->iov_len) {
                c->iov_first++;
                c->iov_count--;
            }
        }
    }
    if (!c->iov_count)
        c->iov_first = 0;
}

static void conn_done(struct conn *c, struct load_slot *slot, const struct conn_events *events)
{
    slot->busy = false;
    c->free[c->free_count++] = (uint32_t)(slot - c->slots);
    events->done(events->opaque, c, slot);
}

static struct load_slot *conn_find(struct conn *c, uint32_t xid)
{
    uint32_t index = xid & 0xfff;
    if (index < c->options->depth && c->slots[index].busy && c->slots[index].xid == xid)
        return &c->slots[index];
    conn_break(c, "a reply with an unknown xid");
    return NULL;
}

static void conn_begin_bulk(struct conn *c, struct load_slot *slot, const struct xdr_in *x)
{
    uint32_t half = slot->length / 2;
    c->bulk = (struct bulk){.slot = slot};
    c->bulk.samples[1] = (BULK_SAMPLE + (uint32_t)conn_random(c, half)) & ~7u;
    c->bulk.samples[2] = slot->length - BULK_SAMPLE;
    c->in_start = (size_t)(x->at - c->in);
}

/* Goes forward in a bulk reply; false when more must be received (or discarded) first. */
static bool conn_step_bulk(struct conn *c, const struct conn_events *events)
{
    struct bulk *b = &c->bulk;
    size_t buffered = c->in_end - c->in_start;
    if (b->next == BULK_SAMPLES) {
        struct load_slot *slot = b->slot;
        b->slot = NULL;
        conn_done(c, slot, events);
        return true;
    }
    uint32_t gap = b->samples[b->next] - b->position;
    if (gap) {
        size_t part = gap < buffered ? gap : buffered;
        c->in_start += part;
        c->skip = gap - part;
        b->position += gap;
        return !c->skip;
    }
    if (buffered < BULK_SAMPLE)
        return false;
    nfs_check_words(c->options, b->slot, b->position, c->in + c->in_start, BULK_SAMPLE, c->counts);
    c->in_start += BULK_SAMPLE;
    b->position += BULK_SAMPLE;
    b->next++;
    return true;
}

/* Takes one record, or a bulk reply's header, out of the buffer; false when more must be
 * received first. */
static bool conn_step(struct conn *c, const struct conn_events *events)
{
    if (c->bulk.slot)
        return conn_step_bulk(c, events);
    size_t buffered = c->in_end - c->in_start;
    uint8_t *record = c->in + c->in_start;
    uint32_t mark;
    if (buffered < 4)
        return false;
    memcpy(&mark, record, 4);
    mark = be32toh(mark);
    size_t length = mark & 0x7fffffff;
    bool bulk = length > BULK_MIN && op_reads(c->options->op) && !c->options->check_full;
    if (!(mark >> 31) || (!bulk && length + 4 > c->in_room) || length < 24) {
        conn_break(c, "a reply in fragments, or of an impossible length");
        return false;
    }
    size_t wanted = bulk ? BULK_SAMPLE + 4 : length + 4;
    if (buffered < wanted)
        return false;
    struct xdr_in x = xdr_in(record + 4, wanted - 4);
    struct load_slot *slot = conn_find(c, xdr_get_u32(&x));
    if (!slot)
        return false;
    if (!bulk) {
        c->in_start += wanted;
        nfs_check_reply(c->options, slot, &x, c->counts);
        conn_done(c, slot, events);
        return true;
    }
    size_t header = length - slot->length;
    if (nfs_read_header(c->options, slot, &x, c->counts) && (size_t)(x.at - record) == header + 4) {
        conn_begin_bulk(c, slot, &x);
        return true;
    }
    conn_break(c, "a bulk reply that is not one");
    return false;
}

void conn_receive(struct conn *c, const struct conn_events *events)
{
    for (;;) {
        if (c->in_start == c->in_end) {
            c->in_start = c->in_end = 0;
        } else if (c->in_start && c->in_room - c->in_start < c->options->size + 1024) {
            memmove(c->in, c->in + c->in_start, c->in_end - c->in_start);
            c->in_end -= c->in_start;
            c->in_start = 0;
        }
        size_t room = c->in_room - c->in_end;
        bool peek =
            op_reads(c->options->op) && c->options->size > BULK_MIN && !c->options->check_full;
        if (peek && room > BULK_PEEK)
            room = BULK_PEEK;
        ssize_t got = c->skip ? recv(c->fd, NULL, room = c->skip, MSG_TRUNC | MSG_DONTWAIT)
                              : recv(c->fd, c->in + c->in_end, room, MSG_DONTWAIT);
        if (got <= 0) {
            if (!got || (errno != EAGAIN && errno != EINTR))
                conn_break(c, got ? strerror(errno) : "closed by the server");
            return;
        }
        if (c->skip)
            c->skip -= (size_t)got;
        else
            c->in_end += (size_t)got;
        while (!c->skip && c->fd >= 0 && conn_step(c, events))
            continue;
        if (c->fd < 0 || (size_t)got < room)
            return;
    }
}
