/* Which files are being read from one end to the other, and how far ahead it pays to load them.  Knows nothing of
 * disks and caches: it is told of READs and says what to load.  Any thread; never waits, never allocates after open.
 *
 * Streams of one file are kept apart by where they are; READs of one stream may come out of order and from several
 * workers.  A READ that fits no stream is a candidate for one: those that follow score, more for going on exactly
 * where the last one ended than for going on a little further (a memory map that is walked), and enough of a score
 * makes a stream.  READs in random order make candidates that are soon forgotten. */
#ifndef SLUICE_STORE_LOCAL_STREAMS_H
#define SLUICE_STORE_LOCAL_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    STREAM_WINDOW_LEAST = 64 << 10, /* bytes ahead of a reader */
    STREAM_WINDOW_MOST = 8 << 20,
    STREAM_LARGE = 128 << 10, /* a READ of this many bytes says more than a small one */
};

struct streams;
struct streams *streams_new(void); /* NULL: no memory */
void streams_free(struct streams *t);

struct stream_read {
    uint64_t ino;
    uint32_t tree;
    uint64_t offset, end; /* of the READ, within the file */
    uint64_t size;        /* of the file */
    uint64_t room;        /* how many bytes may be loaded ahead of all streams just now */
};

/* A READ that did not find all in RAM, or found what had been loaded ahead.  True: load [*from, *to). */
bool streams_note(struct streams *t, const struct stream_read *r, uint64_t *from, uint64_t *to);

#endif
