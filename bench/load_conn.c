#include "load_conn.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

uint64_t conn_random(struct conn *c, uint64_t limit)
{
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return (uint64_t)((unsigned __int128)c->random * limit >> 64);
}

static size_t conn_in_room(const struct load_options *o)
{
    size_t largest = (size_t)o->size_max + 4096;
    bool whole = o->check_full || o->op->flags & OP_LISTS;
    return whole && largest > IN_ROOM ? largest : IN_ROOM;
}

int conn_open(struct conn *c, struct conn_shared *shared, uint32_t number)
{
    const struct load_options *o = shared->options;
    *c = (struct conn){.options = o, .shared = shared};
    c->slot_count = c->free_count = o->op->slots ? o->op->slots(o) : o->depth;
    c->random = (clock_ns() ^ (number + 1) * CONTENT_STEP) | 1;
    c->sequence = (uint32_t)conn_random(c, 1 << 20);
    c->in_room = conn_in_room(o);
    c->peek = o->op->flags & OP_READS && o->size_max > BULK_MIN && !o->check_full;
    c->slots = calloc(c->slot_count, sizeof *c->slots);
    c->free = calloc(c->slot_count, sizeof *c->free);
    c->heads = calloc(2 * c->slot_count, CALL_ROOM);
    c->iov = calloc(2 * c->slot_count + 2, sizeof *c->iov);
    c->in = malloc(c->in_room);
    c->fd = setup_connect(o, o->port);
    if (c->fd < 0 || !c->slots || !c->free || !c->heads || !c->iov || !c->in)
        return -1;
    for (uint32_t i = 0; i < c->slot_count; i++)
        c->free[i] = c->slot_count - 1 - i;
    if (o->minor) {
        c->session = &shared->target->sessions[o->one_session ? 0 : number];
        c->session_slot = o->one_session ? number * c->slot_count : 0;
    }
    return o->op->open ? o->op->open(c, number) : 0;
}

void conn_close(struct conn *c)
{
    if (!c->options)
        return;
    if (c->options->op->close && c->state)
        c->options->op->close(c);
    if (c->fd >= 0)
        close(c->fd);
    for (uint32_t i = 0; c->slots && i < c->slot_count; i++)
        free(c->slots[i].payload);
    free(c->slots);
    free(c->free);
    free(c->heads);
    free(c->iov);
    free(c->in);
}

static bool conn_measures_at(const struct conn *c, uint64_t ns)
{
    const struct conn_shared *s = c->shared;
    return ns >= s->begin_ns && (!s->end_ns || ns <= s->end_ns);
}

static bool conn_measures(const struct conn *c)
{
    return conn_measures_at(c, c->now);
}

static uint64_t conn_since(const struct conn *c, uint64_t start_ns)
{
    return c->now > start_ns ? c->now - start_ns : 0;
}

void conn_count_unit(struct conn *c, uint64_t start_ns)
{
    c->shared->counts->operations += conn_measures(c);
    /* Paced: what was due in time has a latency, also when it is done only after the end. */
    if (c->options->rate ? conn_measures_at(c, start_ns) : conn_measures(c))
        hist_add(&c->shared->counts->latency, conn_since(c, start_ns));
}

void conn_count_entries(struct conn *c, uint32_t entries)
{
    if (conn_measures(c))
        c->shared->counts->entries += entries;
}

void conn_count_extra(struct conn *c, unsigned which, uint64_t start_ns)
{
    if (conn_measures(c))
        hist_add(&c->shared->counts->extra[which], conn_since(c, start_ns));
}

static void conn_queue(struct conn *c, void *data, size_t length)
{
    struct iovec *last = c->iov_count ? &c->iov[c->iov_first + c->iov_count - 1] : NULL;
    if (last && (uint8_t *)last->iov_base + last->iov_len == (uint8_t *)data) {
        last->iov_len += length;
        return;
    }
    if (c->iov_first + c->iov_count == 2 * c->slot_count + 2) {
        memmove(c->iov, c->iov + c->iov_first, c->iov_count * sizeof *c->iov);
        c->iov_first = 0;
    }
    c->iov[c->iov_first + c->iov_count++] = (struct iovec){data, length};
}

static void conn_break(struct conn *c, const char *why)
{
    load_error(c->shared->counts, "connection: %s", why);
    close(c->fd);
    c->fd = -1;
}

struct load_slot *conn_slot(struct conn *c, enum procedure procedure, uint64_t start_ns)
{
    uint32_t index = c->free[--c->free_count];
    struct load_slot *slot = &c->slots[index];
    *slot = (struct load_slot){.xid = c->sequence++ << 12 | index,
                               .procedure = procedure,
                               .busy = true,
                               .size = UINT64_MAX,
                               .start_ns = start_ns,
                               .payload = slot->payload};
    return slot;
}

void conn_call(struct conn *c, struct load_slot *slot)
{
    /* At most `slot_count` calls are unsent, so the ring of twice as many never overtakes itself. */
    if (c->head_at + CALL_ROOM > (size_t)2 * c->slot_count * CALL_ROOM)
        c->head_at = 0;
    struct xdr_out x = xdr_out(c->heads + c->head_at, CALL_ROOM);
    if (c->session)
        v4_encode_call(c, slot, &x);
    else
        nfs_encode_call(c->options, c->shared->target, slot, &x);
    conn_queue(c, x.start, xdr_used(&x));
    c->head_at += xdr_used(&x);
    if (slot->procedure != NFS3_WRITE)
        return;
    if (!slot->payload && !(slot->payload = malloc((size_t)c->options->size_max + 8))) {
        conn_break(c, "out of memory");
        return;
    }
    content_fill(slot->payload, slot->file->id, slot->offset, slot->length);
    conn_queue(c, slot->payload, slot->length);
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

static void conn_done(struct conn *c, struct load_slot *slot, bool good)
{
    const struct load_slot done = *slot;
    struct load_counts *counts = c->shared->counts;
    if (conn_measures(c)) {
        counts->calls++;
        if (done.procedure == NFS3_READ || done.procedure == NFS3_WRITE)
            counts->bytes += done.length;
    }
    slot->busy = false;
    c->free[c->free_count++] = (uint32_t)(slot - c->slots);
    c->options->op->reply(c, &done, good);
    c->shared->refill(c->shared->opaque, c);
}

static struct load_slot *conn_find(struct conn *c, const uint8_t *record)
{
    uint32_t xid;
    memcpy(&xid, record + 4, 4);
    xid = be32toh(xid);
    uint32_t index = xid & (SLOTS_MAX - 1);
    if (index < c->slot_count && c->slots[index].busy && c->slots[index].xid == xid)
        return &c->slots[index];
    conn_break(c, "a reply with an unknown xid");
    return NULL;
}

static void conn_begin_bulk(struct conn *c, struct load_slot *slot, const struct xdr_in *x,
                            uint32_t tail)
{
    uint32_t half = slot->length / 2;
    c->bulk = (struct bulk){.slot = slot, .tail = tail, .good = true};
    c->bulk.samples[1] = (BULK_SAMPLE + (uint32_t)conn_random(c, half)) & ~7u;
    c->bulk.samples[2] = slot->length - BULK_SAMPLE;
    c->in_start = (size_t)(x->at - c->in);
}

/* Goes forward in a bulk reply; false when more must be received (or discarded) first. */
static bool conn_step_bulk(struct conn *c)
{
    struct bulk *b = &c->bulk;
    size_t buffered = c->in_end - c->in_start;
    if (b->next == BULK_SAMPLES) {
        struct load_slot *slot = b->slot;
        struct xdr_in tail = xdr_in(c->in + c->in_start, b->tail);
        if (buffered < b->tail)
            return false;
        c->in_start += b->tail;
        b->good &= !b->tail || v4_check_tail(c, slot, &tail);
        b->slot = NULL;
        conn_done(c, slot, b->good);
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
    b->good &= nfs_check_words(c->options, b->slot, b->position, c->in + c->in_start, BULK_SAMPLE,
                               c->shared->counts);
    c->in_start += BULK_SAMPLE;
    b->position += BULK_SAMPLE;
    b->next++;
    return true;
}

static bool conn_step_header(struct conn *c, struct load_slot *slot, const uint8_t *record,
                             size_t length)
{
    struct xdr_in x = xdr_in(record + 8, BULK_SAMPLE - 4);
    bool good = c->session ? v4_read_header(c, slot, &x)
                           : nfs_read_header(slot, &x, c->shared->counts);
    size_t without_tail = (size_t)(x.at - record) - 4 + slot->length;
    if (good && without_tail <= length && length - without_tail <= (c->session ? BULK_SAMPLE : 0)) {
        conn_begin_bulk(c, slot, &x, (uint32_t)(length - without_tail));
        return true;
    }
    conn_break(c, "a bulk reply that is not one");
    return false;
}

/* Takes one record, or a bulk reply's header, out of the buffer; false when more must be
 * received first. */
static bool conn_step(struct conn *c)
{
    if (c->bulk.slot)
        return conn_step_bulk(c);
    size_t buffered = c->in_end - c->in_start;
    uint8_t *record = c->in + c->in_start;
    uint32_t mark;
    if (buffered < 8)
        return false;
    memcpy(&mark, record, 4);
    mark = be32toh(mark);
    size_t length = mark & 0x7fffffff;
    struct load_slot *slot = conn_find(c, record);
    if (!slot)
        return false;
    bool bulk = length > BULK_MIN && slot->procedure == NFS3_READ && c->peek;
    if (!(mark >> 31) || (!bulk && length + 4 > c->in_room) || length < 24) {
        conn_break(c, "a reply in fragments, or of an impossible length");
        return false;
    }
    if (buffered < (bulk ? BULK_SAMPLE + 4 : length + 4))
        return false;
    if (bulk)
        return conn_step_header(c, slot, record, length);
    struct xdr_in x = xdr_in(record + 8, length - 4);
    c->in_start += length + 4;
    conn_done(c, slot,
              c->session ? v4_check_reply(c, slot, &x)
                         : nfs_check_reply(c->options, slot, &x, c->shared->counts));
    return true;
}

static void conn_make_room(struct conn *c)
{
    if (c->in_start == c->in_end) {
        c->in_start = c->in_end = 0;
    } else if (c->in_start && c->in_room - c->in_start < (size_t)c->options->size_max + 1024) {
        memmove(c->in, c->in + c->in_start, c->in_end - c->in_start);
        c->in_end -= c->in_start;
        c->in_start = 0;
    }
}

void conn_receive(struct conn *c)
{
    const bool prompt = c->options->op->flags & OP_PROMPT;
    for (;;) {
        conn_make_room(c);
        size_t room = c->in_room - c->in_end;
        if (c->peek && room > BULK_PEEK)
            room = BULK_PEEK;
        ssize_t got = c->skip ? recv(c->fd, NULL, room = c->skip, MSG_TRUNC | MSG_DONTWAIT)
                              : recv(c->fd, c->in + c->in_end, room, MSG_DONTWAIT);
        if (got <= 0) {
            if (!got || (errno != EAGAIN && errno != EINTR))
                conn_break(c, got ? strerror(errno) : "closed by the server");
            return;
        }
        c->now = clock_ns();
        if (c->skip)
            c->skip -= (size_t)got;
        else
            c->in_end += (size_t)got;
        while (!c->skip && c->fd >= 0 && conn_step(c))
            continue;
        if (prompt && c->iov_count)
            conn_flush(c);
        if (c->fd < 0 || (size_t)got < room)
            return;
    }
}
