#include "rpc/record.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define MARK_LAST UINT32_C(0x80000000)
enum { MARK_SIZE = 4, DIRECT_LEAST = 4096, DIRECT_MOST = 256 * 1024 /* at once: others are waiting */ };

int record_reader_init(struct record_reader *r, struct buffer_pool *pool, uint32_t record_max)
{
    *r = (struct record_reader){.pool = pool, .record_max = record_max};
    return buffer_get(pool, BUFFER_SMALL, &r->input);
}

void record_reader_free(struct record_reader *r)
{
    buffer_put(r->pool, &r->input);
    buffer_put(r->pool, &r->record);
}

void record_space(struct record_reader *r, uint8_t **at, uint32_t *room, bool *whole)
{
    r->direct = r->record.at && r->left >= DIRECT_LEAST && r->start == r->end;
    *whole = r->direct;
    if (r->direct) {
        *at = r->record.at + r->have;
        *room = r->left < DIRECT_MOST ? r->left : DIRECT_MOST;
        return;
    }
    if (r->start == r->end) {
        r->start = r->end = 0;
    } else if (r->end > r->input.room / 2) {
        memmove(r->input.at, r->input.at + r->start, r->end - r->start);
        r->end -= r->start;
        r->start = 0;
    }
    *at = r->input.at + r->end;
    *room = r->input.room - r->end;
}

void record_received(struct record_reader *r, uint32_t bytes)
{
    if (r->direct) {
        r->have += bytes;
        r->left -= bytes;
    } else {
        r->end += bytes;
    }
}

static uint32_t load_mark(const uint8_t *from)
{
    uint32_t mark;
    memcpy(&mark, from, MARK_SIZE);
    return be32toh(mark);
}

static uint32_t mark_at(const struct record_reader *r)
{
    return load_mark(r->input.at + r->start);
}

/* Moves the record into a larger buffer when `length` bytes more would not fit. */
static int make_room(struct record_reader *r, uint32_t length)
{
    if (r->record.room - r->have >= length)
        return 0;
    struct buffer larger;
    int error = buffer_get(r->pool, r->have + length, &larger);
    if (error < 0)
        return error;
    memcpy(larger.at, r->record.at, r->have);
    buffer_put(r->pool, &r->record);
    r->record = larger;
    return 0;
}

static int gather(struct record_reader *r, struct record *out)
{
    for (;;) {
        uint32_t there = r->end - r->start;
        if (r->left) {
            uint32_t take = r->left < there ? r->left : there;
            memcpy(r->record.at + r->have, r->input.at + r->start, take);
            r->have += take;
            r->left -= take;
            r->start += take;
            there -= take;
            if (r->left)
                return 0;
        }
        if (r->last) {
            *out = (struct record){.data = r->record.at, .length = r->have, .own = &r->record};
            return 1;
        }
        if (there < MARK_SIZE)
            return 0;
        uint32_t mark = mark_at(r), length = mark & ~MARK_LAST;
        if (length > r->record_max - r->have)
            return -EMSGSIZE;
        int error = make_room(r, length);
        if (error < 0)
            return error;
        r->start += MARK_SIZE;
        r->left = length;
        r->last = mark & MARK_LAST;
    }
}

int record_next(struct record_reader *r, struct record *out)
{
    if (r->record.at)
        return gather(r, out);
    uint32_t there = r->end - r->start;
    if (there < MARK_SIZE)
        return 0;
    uint32_t mark = mark_at(r), length = mark & ~MARK_LAST;
    if (length > r->record_max)
        return -EMSGSIZE;
    if (mark & MARK_LAST) {
        if (there - MARK_SIZE >= length) {
            *out = (struct record){.data = r->input.at + r->start + MARK_SIZE, .length = length};
            return 1;
        }
        if (length <= RECORD_IN_PLACE)
            return 0;
    }
    int error = buffer_get(r->pool, length, &r->record);
    if (error < 0)
        return error;
    r->start += MARK_SIZE;
    r->have = 0;
    r->left = length;
    r->last = mark & MARK_LAST;
    return gather(r, out);
}

unsigned record_ahead(const struct record_reader *r, struct record *out, unsigned most)
{
    unsigned count = 0;
    for (uint32_t at = r->start; !r->record.at && count < most && r->end - at >= MARK_SIZE;) {
        uint32_t mark = load_mark(r->input.at + at), length = mark & ~MARK_LAST;
        if (!(mark & MARK_LAST) || length > r->end - at - MARK_SIZE)
            break;
        out[count++] = (struct record){.data = r->input.at + at + MARK_SIZE, .length = length};
        at += MARK_SIZE + length;
    }
    return count;
}

bool record_is_followed(const struct record_reader *r, const struct record *record)
{
    uint32_t own = record->own ? 0 : MARK_SIZE + record->length;
    return r->end - r->start > own;
}

bool record_begun(const struct record_reader *r)
{
    return r->record.at || r->start != r->end;
}

uint32_t record_held(const struct record_reader *r)
{
    return r->record.at ? r->have + r->left : 0;
}

void record_done(struct record_reader *r, const struct record *record)
{
    if (!record->own) {
        r->start += MARK_SIZE + record->length;
        return;
    }
    buffer_put(r->pool, &r->record);
    r->have = r->left = 0;
    r->last = false;
}
