/* The RAM cache of file data: a fixed arena of frames of 64 KiB (aligned runs of a segment) and 4 KiB, with one valid
 * bit for each 4 KiB block.  A place never means two things, so nothing in here is ever invalidated.
 *
 * Look-ups take no lock: descriptors of frames never go away, a look-up pins the one it found and then checks that it
 * still is what it looked for.  Inserting and evicting take the spin lock of one of many parts.  Any thread; only
 * cache_wait() waits, and needs a coroutine.
 *
 * Who pins a frame may read its valid blocks.  A block that is not valid is written only by who claimed it for a disk
 * read (cache_claim), or by who holds its place as a fresh reservation of seg_reserve(). */
#ifndef SLUICE_STORE_LOCAL_CACHE_H
#define SLUICE_STORE_LOCAL_CACHE_H

#include "store/local/local.h"

enum { FRAME_BLOCKS = 16 }; /* of a large frame; one never crosses a boundary of that many blocks */

struct cache;
struct cache_class;
struct frame;
enum frame_size { FRAME_SMALL, FRAME_LARGE };

/* Reserves options.cache_bytes of address space (at least 1 MiB); touched by a thread in the background. */
int cache_open(struct local *l, char why[256]);
/* No frame may be pinned any more. */
void cache_close(struct local *l);
/* Bytes of the arena, and of frames that hold something. */
void cache_usage(struct local *l, uint64_t *total, uint64_t *used);

/* Whose frames a volume's reads and writes make, and for whom its hits count; its snapshots' too.  Never NULL: when
 * there are too many trees the last ones share a class.  Frames are found by their place alone, whoever made them.
 * Look-ups take no lock. */
struct cache_class *cache_class(struct cache *c, uint32_t tree);
/* The tree's policy and share, from now on.  May take some milliseconds when it has to give up much. */
void cache_set(struct cache *c, uint32_t tree, const struct store_cache_setting *setting);
void cache_stats(struct cache *c, uint32_t tree, struct store_cache_stats *out);
/* The tree is deleted: what only it has used goes first. */
void cache_forget(struct cache *c, uint32_t tree);
/* A READ has got so many blocks.  For the statistics. */
void cache_count_read(struct cache *c, struct cache_class *class, uint64_t blocks);
/* So many blocks were read from disk for it: because somebody waits for them, or ahead of that. */
void cache_count_fetched(struct cache *c, struct cache_class *class, unsigned blocks, bool ahead);

/* Where all frames' data lies, and how much of it from its beginning has been touched. */
uint8_t *cache_arena(struct cache *c, uint64_t *bytes);
uint64_t cache_touched(struct cache *c);

/* How many of the blocks [place, place + want) lie valid in one frame, counted from `place` (0: a miss).  The frame is
 * pinned then.  `want` must not cross a frame boundary.  Counts as a use by the class. */
unsigned cache_find(struct cache *c, struct cache_class *class, place_t place, unsigned want, struct frame **out);
/* For cache_find() of these places soon (0: none): brings what it looks at, and the beginning of the data, into the
 * processor's cache. */
void cache_expect(struct cache *c, const place_t *places, unsigned count);
/* The pinned frame of this size for the place, whatever is valid in it, made if it was not there: then it is the
 * class's.  NULL: everything is pinned; use memory of your own. */
struct frame *cache_get(struct cache *c, struct cache_class *class, place_t place, enum frame_size size);
/* The same without making one. */
struct frame *cache_peek(struct cache *c, place_t place, enum frame_size size);
void frame_unpin(struct frame *f);
/* Its blocks are loaded for a use that is still to come: it stays as one that is used often.  That use is over: it may
 * go like one that was never used. */
void frame_expect_use(struct frame *f);
void frame_expect_none(struct frame *f);
/* slice.release for slices into frames; the owner is the frame. */
void frame_release(void *owner, const uint8_t *data, uint32_t length);
/* Where the block of this place lies. */
uint8_t *frame_data(struct cache *c, struct frame *f, place_t place);

/* A mask over the blocks of the frame for [place, place + count): bit 0 is the frame's first block. */
uint16_t frame_mask(struct cache *c, const struct frame *f, place_t place, unsigned count);
uint16_t frame_valid(const struct frame *f);
/* The blocks of `mask` that the caller has to read now: neither valid nor being read by another. */
uint16_t cache_claim(struct cache *c, struct frame *f, uint16_t mask);
/* Ends a claim: `good` are valid from now on, the others are nobody's again. */
void cache_loaded(struct cache *c, struct frame *f, uint16_t claimed, uint16_t good);
/* Coroutine: returns when none of `mask` is being read by anybody. */
void cache_wait(struct cache *c, struct frame *f, uint16_t mask);
/* Blocks that were loaded before anybody asked for them are marked, before cache_loaded(), until their first use, so
 * that it shows how much of them was of use: use() takes the marks of [place, place + count) off and returns how many
 * there were.  How much is marked and waits for its use. */
void cache_mark_ahead(struct cache *c, struct frame *f, uint16_t mask);
unsigned cache_use_ahead(struct cache *c, struct frame *f, place_t place, unsigned count);
uint64_t cache_ahead_bytes(struct cache *c);
/* After publication of a write: these blocks are valid. */
void cache_publish(struct frame *f, uint16_t mask);

/* Buffers of INLINE_MAX bytes for replies, kept per worker. NULL: no memory. */
uint8_t *cache_scratch(struct cache *c);
void cache_scratch_release(void *owner, const uint8_t *data, uint32_t length); /* the owner is the cache */

#endif
