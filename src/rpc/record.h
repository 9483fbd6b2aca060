/* Record marking (RFC 5531, section 11) over a byte stream that comes in pieces.  It knows no
 * sockets: the connection asks where the next bytes shall go, says how many came, and takes the
 * records that are complete.
 *
 * A record of one fragment that lies whole in the receive buffer is given out in place.  One that
 * is longer than RECORD_IN_PLACE and not there yet, or that has several fragments, is gathered in
 * a buffer of its own, which the call may keep. */
#ifndef RPC_RECORD_H
#define RPC_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/buffers.h"

enum { RECORD_IN_PLACE = 8 * 1024 };

struct record_reader {
    struct buffer_pool *pool;
    uint32_t record_max;
    struct buffer input; /* bytes start..end are not looked at yet */
    uint32_t start, end;
    struct buffer record; /* being gathered */
    uint32_t have, left;  /* bytes of it, and bytes to come of the present fragment */
    bool last, direct;
};

struct record {
    const uint8_t *data;
    uint32_t length;
    struct buffer *own; /* the buffer that holds it alone, or NULL when it lies in place */
};

/* -ENOMEM. */
int record_reader_init(struct record_reader *r, struct buffer_pool *pool, uint32_t record_max);
void record_reader_free(struct record_reader *r);

/* Where the next bytes go and how many of them at most (never 0 after record_next() gave 0).
 * *whole: they are the rest of a long fragment, so that waiting for all of them is right. */
void record_space(struct record_reader *r, uint8_t **at, uint32_t *room, bool *whole);
void record_received(struct record_reader *r, uint32_t bytes);

/* 1: *out is the next record, valid until record_done(); asked again, it is the same one.  0: more
 * bytes are needed.  -EMSGSIZE: longer than record_max.  -ENOMEM: try again later. */
int record_next(struct record_reader *r, struct record *out);
/* A look at the records that lie whole in the buffer, the next one first: how many, at most `most`.
 * Takes nothing. */
unsigned record_ahead(const struct record_reader *r, struct record *out, unsigned most);
/* Something has come behind the record that record_next() gave. */
bool record_is_followed(const struct record_reader *r, const struct record *record);
/* A record has begun to come and has not ended. */
bool record_begun(const struct record_reader *r);
/* Bytes of memory for a record that is being gathered: those that have come and those announced. */
uint32_t record_held(const struct record_reader *r);
/* Goes on behind the record that record_next() gave.  Who wants to keep *own moves it out (and
 * clears it) before. */
void record_done(struct record_reader *r, const struct record *record);

#endif
