#include "store/local/fetch.h"

#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>

#include "store/local/meta.h"
#include "store/local/seg.h"

enum {
    BLOCK = STORE_BLOCK,
    LARGE_FROM = 8,   /* blocks of one frame that are worth a large one */
    READ_BLOCKS = 256, /* of one read of the device */
    TRIES = 16,
    PIECES_WITHIN = 20, /* of a load: without memory from the heap; a READ of 1 MiB in large frames has 17 */
};

struct piece { /* neighbouring blocks of one fetch that we read */
    struct fetch *fetch;
    unsigned first, count; /* counted from the fetch's first block */
    int error;
};

struct reads {
    struct piece *pieces;
    struct iovec *iov; /* one for each piece */
    struct seg_read_op *ops;
    unsigned count, op_count;
    void *memory; /* NULL: they are these */
    struct piece pieces_within[PIECES_WITHIN];
    struct iovec iov_within[PIECES_WITHIN];
    struct seg_read_op ops_within[PIECES_WITHIN];
};

uint32_t block_crc(const uint8_t *block)
{
    return ~crc32_iscsi((unsigned char *)(uintptr_t)block, BLOCK, ~0u);
}

struct cache_class *fetch_class(struct local *l, uint32_t tree)
{
    struct tree found;
    return cache_class(l->cache, meta_tree(l, tree, &found) ? tree : found.volume);
}

static struct fetch *append(struct fetch_list *list)
{
    if (!list->at) {
        list->at = list->within;
        list->room = FETCH_WITHIN;
    }
    if (list->count == list->room) {
        bool within = list->at == list->within;
        unsigned room = within ? 32 : list->room * 2;
        struct fetch *grown = realloc(within ? NULL : list->at, room * sizeof(*grown));
        if (!grown)
            return NULL;
        if (within)
            memcpy(grown, list->within, sizeof(list->within));
        list->at = grown;
        list->room = room;
    }
    return &list->at[list->count++];
}

static void place_frame(struct cache *c, struct cache_class *class, struct fetch *f, unsigned most)
{
    f->count = cache_find(c, class, f->place, most, &f->frame);
    if (f->count)
        return;
    f->count = most;
    f->frame = most >= LARGE_FROM ? cache_get(c, class, f->place, FRAME_LARGE)
                                  : cache_peek(c, f->place, FRAME_LARGE);
    if (!f->frame) {
        f->count = 1;
        f->frame = cache_get(c, class, f->place, FRAME_SMALL);
    }
}

int fetch_add(struct local *l, struct fetch_list *list, place_t place, unsigned count,
              const uint32_t *crc)
{
    while (count) {
        unsigned most = FRAME_BLOCKS - (unsigned)(place % FRAME_BLOCKS);
        struct fetch *f = append(list);
        if (!f)
            return -ENOMEM;
        *f = (struct fetch){.place = place, .crc = crc};
        place_frame(l->cache, list->class, f, most < count ? most : count);
        if (!f->frame && list->ahead)
            return -ENOMEM; /* memory of its own would not be found by who reads it later */
        f->data = f->frame ? frame_data(l->cache, f->frame, place)
                           : aligned_alloc(BLOCK, (size_t)f->count * BLOCK);
        if (!f->data)
            return -ENOMEM;
        place += f->count;
        crc += f->count;
        count -= f->count;
    }
    return 0;
}

static uint16_t mask_of(struct local *l, const struct fetch *f)
{
    return f->frame ? frame_mask(l->cache, f->frame, f->place, f->count) : 1;
}

/* Where the fetch's first block is in its masks. */
static unsigned shift_of(struct local *l, const struct fetch *f)
{
    return (unsigned)__builtin_ctz(mask_of(l, f));
}

static void claim(struct local *l, struct fetch *f)
{
    f->good = 0;
    f->result = 0;
    f->claimed = f->frame ? cache_claim(l->cache, f->frame, mask_of(l, f)) : 1;
}

static void collect(struct local *l, struct reads *r, struct fetch *f)
{
    unsigned shift = shift_of(l, f);
    for (unsigned b = 0; b < f->count;) {
        if (!(f->claimed >> (shift + b) & 1)) {
            b++;
            continue;
        }
        struct piece *p = &r->pieces[r->count];
        *p = (struct piece){.fetch = f, .first = b};
        while (b < f->count && (f->claimed >> (shift + b) & 1)) {
            b++;
            p->count++;
        }
        r->iov[r->count++] =
            (struct iovec){f->data + (size_t)p->first * BLOCK, (size_t)p->count * BLOCK};
    }
}

static place_t piece_place(const struct piece *p)
{
    return p->fetch->place + p->first;
}

/* How many pieces from `first` on are one run of places. */
static unsigned merge(const struct reads *r, unsigned first, unsigned *blocks)
{
    unsigned i = first + 1;
    *blocks = r->pieces[first].count;
    while (i < r->count && piece_place(&r->pieces[i]) == piece_place(&r->pieces[first]) + *blocks &&
           *blocks + r->pieces[i].count <= READ_BLOCKS) {
        *blocks += r->pieces[i].count;
        i++;
    }
    return i - first;
}

static void read_all(struct local *l, struct reads *r)
{
    for (unsigned i = 0; i < r->count;) {
        unsigned blocks, count = merge(r, i, &blocks);
        struct seg_read_op *op = &r->ops[r->op_count];
        int error = seg_read_begin(l, op, piece_place(&r->pieces[i]), r->iov + i, count, blocks);
        if (!error)
            r->op_count++;
        for (unsigned p = i; p < i + count; p++)
            r->pieces[p].error = error;
        i += count;
    }
    for (unsigned o = 0, i = 0; o < r->op_count; o++) {
        struct seg_read_op *op = &r->ops[o];
        int error = seg_read_end(op);
        while (r->iov + i < op->iov)
            i++;
        for (unsigned p = 0; p < op->iov_count; p++, i++)
            r->pieces[i].error = error;
    }
}

static void check(struct local *l, const struct piece *p)
{
    struct fetch *f = p->fetch;
    if (p->error) {
        f->result = p->error == -ENOENT ? SL_ECORRUPT : -EIO;
        return;
    }
    unsigned shift = shift_of(l, f);
    for (unsigned b = p->first; b < p->first + p->count; b++) {
        if (block_crc(f->data + (size_t)b * BLOCK) == f->crc[b])
            f->good |= (uint16_t)(1u << (shift + b));
        else
            f->result = SL_ECORRUPT;
    }
}

static int reads_room(struct reads *r, unsigned pieces)
{
    r->count = r->op_count = 0;
    r->memory = NULL;
    r->pieces = r->pieces_within;
    r->iov = r->iov_within;
    r->ops = r->ops_within;
    if (pieces <= PIECES_WITHIN)
        return 0;
    /* One allocation: three arrays behind each other, the strictest alignment first. */
    size_t ops = pieces * sizeof(*r->ops), first = ops + pieces * sizeof(*r->pieces);
    uint8_t *memory = malloc(first + pieces * sizeof(*r->iov));
    if (!memory)
        return -ENOMEM;
    r->memory = memory;
    r->ops = (struct seg_read_op *)memory;
    r->pieces = (struct piece *)(memory + ops);
    r->iov = (struct iovec *)(memory + first);
    return 0;
}

static void give_claims_back(struct local *l, struct fetch *at, unsigned count, bool ahead)
{
    for (unsigned i = 0; i < count; i++) {
        struct fetch *f = &at[i];
        if (!f->frame || !f->claimed)
            continue;
        if (ahead && f->good)
            cache_mark_ahead(l->cache, f->frame, f->good);
        cache_loaded(l->cache, f->frame, f->claimed, f->good);
    }
}

/* Reads what of [at, at + count) nobody else is reading. */
static int load(struct local *l, const struct fetch_list *list, struct fetch *at, unsigned count, bool ahead)
{
    unsigned blocks = 0, pieces = 0;
    struct reads r;
    for (unsigned i = 0; i < count; i++) {
        claim(l, &at[i]);
        blocks += (unsigned)__builtin_popcount(at[i].claimed);
        pieces += (unsigned)__builtin_popcount(at[i].claimed & ~((unsigned)at[i].claimed << 1));
    }
    if (!blocks)
        return 0;
    int error = reads_room(&r, pieces);
    for (unsigned i = 0; !error && i < count; i++)
        collect(l, &r, &at[i]);
    if (!error)
        read_all(l, &r);
    for (unsigned i = 0; i < r.count; i++)
        check(l, &r.pieces[i]);
    give_claims_back(l, at, count, ahead);
    free(r.memory);
    metric_add(ahead ? METRIC_readahead_bytes : METRIC_cache_misses, ahead ? (uint64_t)blocks * BLOCK : blocks);
    if (!list->warm)
        cache_count_fetched(l->cache, list->class, blocks, ahead);
    return error;
}

/* What others were reading; if that went wrong for them it is ours. */
static int await(struct local *l, const struct fetch_list *list, struct fetch *f)
{
    if (!f->frame)
        return f->result;
    uint16_t mask = mask_of(l, f);
    for (unsigned tries = 0; !f->result && (frame_valid(f->frame) & mask) != mask; tries++) {
        if (tries == TRIES)
            return f->result = -EIO;
        cache_wait(l->cache, f->frame, mask);
        int error = load(l, list, f, 1, false);
        if (error)
            return f->result = error;
    }
    return f->result;
}

int fetch_run(struct local *l, struct fetch_list *list)
{
    int error = load(l, list, list->at, list->count, list->ahead);
    if (error)
        return error;
    for (unsigned i = 0; i < list->count; i++) {
        int result = await(l, list, &list->at[i]);
        if (!error)
            error = result;
    }
    return error;
}

void fetch_clear(struct fetch_list *list)
{
    for (unsigned i = 0; i < list->count; i++) {
        struct fetch *f = &list->at[i];
        if (f->frame)
            frame_unpin(f->frame);
        else
            free(f->data);
    }
    if (list->at != list->within)
        free(list->at);
    list->at = NULL;
    list->count = list->room = 0;
}

int fetch_block(struct local *l, uint32_t tree, place_t place, uint32_t crc, uint8_t *to)
{
    struct fetch_list list = {.class = fetch_class(l, tree)};
    int error = fetch_add(l, &list, place, 1, &crc);
    if (!error)
        error = fetch_run(l, &list);
    if (!error)
        memcpy(to, list.at[0].data, BLOCK);
    fetch_clear(&list);
    return error;
}
