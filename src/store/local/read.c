#include <stdlib.h>
#include <string.h>

#include "store/local/cache.h"
#include "store/local/chunk_map.h"
#include "store/local/data_private.h"
#include "store/local/fetch.h"
#include "store/local/holds.h"
#include "store/local/ops.h"
#include "store/local/readahead.h"
#include "store/local/watch.h"

enum { BLOCK = STORE_BLOCK, MOVED_TRIES = 16 };

struct read {
    struct local *l;
    struct cache_class *class;
    const struct store_object *o;
    struct inode *inode;
    uint64_t offset, end;
    struct slice_list *data;
    unsigned ahead; /* blocks that had been loaded ahead */
};

/* The part of a read that lies in one chunk, in bytes from the chunk's start. */
struct span {
    uint64_t chunk;
    uint32_t from, to;
};

static bool next_span(const struct read *r, uint64_t *at, struct span *span)
{
    if (*at >= r->end)
        return false;
    span->chunk = *at / STORE_CHUNK;
    uint64_t start = span->chunk * STORE_CHUNK, left = r->end - start;
    span->from = (uint32_t)(*at - start);
    span->to = left < STORE_CHUNK ? (uint32_t)left : STORE_CHUNK;
    *at = start + span->to;
    return true;
}

static int add_inline(struct read *r, const struct chunk_map *map, const struct span *span)
{
    uint32_t stored = map->inline_length < span->to ? map->inline_length : span->to;
    uint32_t length = stored > span->from ? stored - span->from : 0;
    int error = 0;
    if (length) {
        uint8_t *copy = cache_scratch(r->l->cache);
        if (!copy)
            return -ENOMEM;
        memcpy(copy, map->bytes + span->from, length);
        error =
            slices_add(r->data, (struct slice){copy, length, cache_scratch_release, r->l->cache});
    }
    return error ? error : slices_add_zero(r->data, span->to - span->from - length);
}

/* The run of blocks of one kind at byte `at` of the span's chunk: its bytes inside the span. */
static uint32_t span_run(const struct chunk_map *map, const struct span *span, uint32_t at,
                         place_t *place, unsigned *blocks)
{
    unsigned block = at / BLOCK, last = (span->to + BLOCK - 1) / BLOCK;
    *blocks = chunk_map_run(map, block, last - block, place);
    uint32_t end = (block + *blocks) * BLOCK;
    return (end < span->to ? end : span->to) - at;
}

/* ---- all in RAM ---- */

static int add_frames(struct read *r, place_t place, unsigned blocks, uint32_t skip,
                      uint32_t length)
{
    while (length) {
        struct frame *frame;
        unsigned most = FRAME_BLOCKS - (unsigned)(place % FRAME_BLOCKS);
        unsigned found =
            cache_find(r->l->cache, r->class, place, most < blocks ? most : blocks, &frame);
        if (!found)
            return SL_EWAIT;
        r->ahead += cache_use_ahead(r->l->cache, frame, place, found);
        uint32_t bytes = found * BLOCK - skip;
        if (bytes > length)
            bytes = length;
        int error = slices_add(r->data, (struct slice){frame_data(r->l->cache, frame, place) + skip,
                                                       bytes, frame_release, frame});
        if (error)
            return error;
        place += found;
        blocks -= found;
        length -= bytes;
        skip = 0;
    }
    return 0;
}

static int fast_span(struct read *r, const struct span *span)
{
    struct chunk_map map;
    int error = meta_get_extents(r->l, r->o->tree, r->inode, span->chunk, &map);
    if (error == -ENOENT)
        return slices_add_zero(r->data, span->to - span->from);
    if (error)
        return error;
    if (map.kind == CHUNK_INLINE)
        return add_inline(r, &map, span);
    for (uint32_t at = span->from; at < span->to && !error;) {
        place_t place;
        unsigned blocks;
        uint32_t length = span_run(&map, span, at, &place, &blocks);
        error = place ? add_frames(r, place, blocks, at % BLOCK, length)
                      : slices_add_zero(r->data, length);
        at += length;
    }
    return error;
}

static int read_fast(struct read *r)
{
    uint64_t at = r->offset;
    struct span span;
    int error = 0;
    while (!error && next_span(r, &at, &span))
        error = fast_span(r, &span);
    return error;
}

/* ---- with reads of segments; a coroutine ---- */

struct slow {
    struct read *r;
    bool look_again; /* the tables may still be behind: from LMDB */
    struct span spans[DATA_CHUNKS_MOST];
    struct chunk_map maps[DATA_CHUNKS_MOST];
    unsigned count;
    struct fetch_list list;
};

/* The map as it is now; as far as the file still reaches. */
static int chunk_from_disk(struct read *r, uint64_t chunk, struct chunk_map *map)
{
    struct meta_txn *t;
    struct inode inode;
    int error = meta_read_begin(r->l, &t);
    if (error)
        return error;
    error = meta_inode(t, r->o->tree, r->o->ino, &inode);
    if (!error)
        error = meta_chunk(t, r->o->tree, &inode, chunk, map);
    meta_read_end(t);
    return error;
}

static int slow_map(struct slow *s, const struct span *span, struct chunk_map *map)
{
    struct read *r = s->r;
    int error = s->look_again ? chunk_from_disk(r, span->chunk, map)
                              : meta_get_chunk(r->l, r->o->tree, r->inode, span->chunk, map);
    if (error == -ENOENT) {
        chunk_map_clear(map);
        error = 0;
    }
    return error;
}

static int slow_plan(struct slow *s)
{
    uint64_t at = s->r->offset;
    int error = 0;
    s->count = 0;
    while (!error && s->count < DATA_CHUNKS_MOST && next_span(s->r, &at, &s->spans[s->count])) {
        struct span *span = &s->spans[s->count];
        struct chunk_map *map = &s->maps[s->count++];
        error = slow_map(s, span, map);
        for (uint32_t in = span->from; !error && map->kind == CHUNK_MAP && in < span->to;) {
            place_t place;
            unsigned blocks;
            uint32_t length = span_run(map, span, in, &place, &blocks);
            if (place)
                error = fetch_add(s->r->l, &s->list, place, blocks, map->crc + in / BLOCK);
            in += length;
        }
    }
    return error;
}

static void free_release(void *owner, const uint8_t *data, uint32_t length)
{
    free(owner);
}

static int hand_out(struct slow *s, struct fetch *f, uint32_t skip, uint32_t length)
{
    struct slice slice = {f->data + skip, length, f->frame ? frame_release : free_release,
                          f->frame ? (void *)f->frame : f->data};
    f->frame = NULL;
    f->data = NULL;
    return slices_add(s->r->data, slice);
}

/* The fetches in their order are the blocks of the spans in theirs. */
static int slow_slices(struct slow *s)
{
    struct fetch *f = s->list.at;
    int error = 0;
    for (unsigned i = 0; !error && i < s->count; i++) {
        struct span *span = &s->spans[i];
        if (s->maps[i].kind == CHUNK_INLINE) {
            error = add_inline(s->r, &s->maps[i], span);
            continue;
        }
        for (uint32_t at = span->from; !error && at < span->to;) {
            place_t place;
            unsigned blocks;
            uint32_t length = span_run(&s->maps[i], span, at, &place, &blocks);
            if (place) {
                uint32_t have = f->count * BLOCK - at % BLOCK;
                length = have < length ? have : length;
                if (f->frame)
                    cache_use_ahead(s->r->l->cache, f->frame, f->place, f->count);
                error = hand_out(s, f++, at % BLOCK, length);
            } else {
                error = slices_add_zero(s->r->data, length);
            }
            at += length;
        }
    }
    return error;
}

/* Which block of which chunk a bad fetch was: the first that is bad and has not moved decides.  0: all have moved. */
static int slow_judge(struct slow *s)
{
    struct read *r = s->r;
    struct fetch *f = s->list.at;
    for (unsigned i = 0; i < s->count; i++) {
        const struct span *span = &s->spans[i];
        for (uint32_t at = span->from; s->maps[i].kind == CHUNK_MAP && at < span->to;) {
            place_t place;
            unsigned blocks;
            uint32_t length = span_run(&s->maps[i], span, at, &place, &blocks);
            if (place) {
                uint32_t have = f->count * BLOCK - at % BLOCK;
                length = have < length ? have : length;
                for (unsigned b = 0; f->result == SL_ECORRUPT && b < f->count; b++) {
                    if (block_crc(f->data + (size_t)b * BLOCK) == f->crc[b])
                        continue;
                    int moved = data_moved(r->l, r->o->tree, r->o->ino, span->chunk, at / BLOCK + b,
                                           f->place + b);
                    if (moved <= 0)
                        return moved ? moved : -EIO;
                }
                f++;
            }
            at += length;
        }
    }
    return 0;
}

static void note_read(const struct read *r)
{
    readahead_note(r->l, r->o, r->inode, r->offset, r->end);
}

static void count_found(const struct fetch_list *list)
{
    unsigned found = 0;
    for (unsigned i = 0; i < list->count; i++)
        found += list->at[i].count - (unsigned)__builtin_popcount(list->at[i].claimed);
    metric_add(METRIC_cache_hits, found);
}

static int read_slow(struct read *r)
{
    struct slow slow, *s = &slow; /* some 7 KB; as much is touched as the READ has chunks */
    int error;
    s->r = r;
    s->look_again = false;
    s->list = (struct fetch_list){.class = r->class};
    for (unsigned tries = 0;; tries++) {
        error = slow_plan(s);
        if (!error && tries == 0)
            note_read(r);
        if (!error)
            error = fetch_run(r->l, &s->list);
        if (error != SL_ECORRUPT)
            break;
        error = tries < MOVED_TRIES ? slow_judge(s) : -EIO;
        if (error)
            break;
        fetch_clear(&s->list);
        s->look_again = true;
    }
    if (!error) {
        count_found(&s->list);
        error = slow_slices(s);
    }
    fetch_clear(&s->list);
    return error;
}

/* ---- shared ---- */

int data_moved(struct local *l, uint32_t tree, uint64_t ino, uint64_t chunk, unsigned block,
               place_t place)
{
    struct meta_txn *t;
    struct inode inode;
    struct chunk_map map;
    int error = meta_read_begin(l, &t);
    if (error)
        return error;
    error = meta_inode(t, tree, ino, &inode);
    if (!error)
        error = meta_chunk(t, tree, &inode, chunk, &map);
    meta_read_end(t);
    if (error == -ENOENT || error == -ESTALE)
        return 1;
    if (error)
        return error;
    if (chunk_place(&map, block) != place)
        return 1;
    static _Atomic long logged;
    metric_add(METRIC_crc_errors, 1);
    if (log_ratelimit(&logged))
        log_error("data",
                  "tree %u, inode %llu, block %llu: what is at %llx does not match its checksum",
                  tree, (unsigned long long)ino, (unsigned long long)(chunk * CHUNK_BLOCKS + block),
                  (unsigned long long)place);
    return 0;
}

int data_old_block(struct local *l, uint32_t tree, uint64_t ino, uint64_t chunk, unsigned block,
                   place_t place, uint32_t crc, uint8_t *to)
{
    int error = fetch_block(l, tree, place, crc, to);
    if (error != SL_ECORRUPT)
        return error;
    int moved = data_moved(l, tree, ino, chunk, block, place);
    return moved < 0 ? moved : moved ? SL_EREFUSED : -EIO;
}

/* Step by step for all of them, so that the processor waits for their memory at once and not one by one. */
void data_expect(struct store *s, const struct store_range *ranges, unsigned count)
{
    struct local *l = local_of(s);
    place_t places[STORE_EXPECT_MOST];
    if (count > STORE_EXPECT_MOST)
        count = STORE_EXPECT_MOST;
    meta_expect(l, ranges, count, places);
    cache_expect(l->cache, places, count);
}

static int check_object(const struct store_cred *c, const struct inode *inode)
{
    if (inode->type == STORE_DIR)
        return -EISDIR;
    if (inode->type != STORE_REG)
        return -EINVAL;
    return perm_read(c, inode);
}

int data_read(struct store *s, const struct store_cred *c, const struct store_object *o,
              uint64_t offset, uint32_t length, struct slice_list *data, bool *eof,
              struct store_attr *attr)
{
    struct local *l = local_of(s);
    struct tree tree;
    struct inode inode;
    struct read r = {.l = l, .o = o, .inode = &inode, .offset = offset, .data = data};
    uint32_t before = data->bytes;
    attr->type = 0;
    int error = meta_get_inode(l, o->tree, o->ino, &inode);
    if (!error)
        error = meta_tree(l, o->tree, &tree);
    if (error)
        return error;
    if (!holds_is_there(l, o, &inode))
        return -ESTALE;
    attr_from_inode(&tree, &inode, attr);
    error = check_object(c, &inode);
    if (error)
        return error;
    uint64_t left = offset < inode.size ? inode.size - offset : 0;
    if (length > STORE_IO_MAX)
        length = STORE_IO_MAX;
    r.class = cache_class(l->cache, tree.volume);
    r.end = offset + (left < length ? left : length);
    *eof = left <= length;
    error = read_fast(&r);
    if (error) {
        slices_cut(data, before);
        if (error == SL_EWAIT && coro_self()) {
            error = read_slow(&r);
            if (error)
                slices_cut(data, before);
        }
    } else {
        metric_add(METRIC_cache_hits, (r.end - r.offset + BLOCK - 1) / BLOCK);
        if (r.ahead)
            note_read(&r);
    }
    if (error)
        return error;
    watch_note(l, o, r.end - r.offset);
    cache_count_read(l->cache, r.class, (r.end - r.offset + BLOCK - 1) / BLOCK);
    metric_add(METRIC_read_ops, 1);
    metric_add(METRIC_read_bytes, r.end - r.offset);
    return 0;
}
