/* Chunk maps and the blocks they hold: places within segments, not free, and as many in each segment as its record
 * says.  Places never mean two things, so a block that was free once stays so.  What has to be remembered is a bit for
 * each block. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/local/check_private.h"
#include "store/local/chunk_map.h"
#include "store/local/meta_refs.h"
#include "store/local/seg_private.h"

#define ADVICE "; restore the file from a snapshot or a backup"
enum { SEG_WORDS = (1 << PLACE_BITS) / 64, SEG_RECORD = 3 };
typedef unsigned long long number;

/* ---- segments ---- */

static int read_segment(struct check *c, uint32_t number_of, struct check_seg *out)
{
    uint32_t words[SEG_RECORD];
    char key[SEG_KEY_ROOM];
    size_t length;
    seg_record_key(number_of, key);
    int error = meta_system_get(c->t, key, words, sizeof(words), &length);
    if (!error && length != sizeof(words))
        error = SL_ECORRUPT;
    if (!error) {
        out->tail = le32toh(words[0]);
        out->live = le32toh(words[1]);
    }
    return error;
}

static unsigned seg_position(const struct check *c, uint32_t number_of)
{
    unsigned low = 0, high = c->segs.count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (c->segs.at[middle].number < number_of)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct check_seg *seg_known(struct check *c, place_t place)
{
    unsigned at = seg_position(c, place_segment(place));
    return at < c->segs.count && c->segs.at[at].number == place_segment(place) ? &c->segs.at[at] : NULL;
}

static struct check_seg *seg_add(struct check *c, const struct check_seg *seg)
{
    struct check_segs *s = &c->segs;
    unsigned at = seg_position(c, seg->number);
    if (at < s->count && s->at[at].number == seg->number)
        return &s->at[at];
    s->at = grow(c, s->at, sizeof(*s->at), s->count, &s->room);
    if (c->error)
        return NULL;
    memmove(s->at + at + 1, s->at + at, (s->count - at) * sizeof(*s->at));
    s->at[at] = *seg;
    s->count++;
    return &s->at[at];
}

int segs_load(struct check *c)
{
    uint32_t words[SEG_RECORD];
    char key[64] = "";
    size_t length;
    int error;
    while (!c->error && (error = meta_system_next(c->t, "segment/", key, words, sizeof(words), &length)) == 0) {
        struct check_seg seg = {.number = (uint32_t)strtoul(key + strlen("segment/"), NULL, 16)};
        seg.tail = le32toh(words[0]);
        seg.live = le32toh(words[1]);
        seg_add(c, &seg);
    }
    return c->error;
}

/* Looks the segment up again where the place lies past what is known of it. */
struct check_seg *seg_of(struct check *c, place_t place)
{
    uint32_t number_of = place_segment(place);
    struct check_seg *seg = seg_known(c, place);
    if (seg && place_block(place) < seg->tail)
        return seg;
    struct check_seg fresh = seg ? *seg : (struct check_seg){.number = number_of};
    if (read_segment(c, number_of, &fresh))
        return NULL;
    if (seg)
        *seg = fresh;
    else
        seg = seg_add(c, &fresh);
    return seg && place_block(place) < seg->tail ? seg : NULL;
}

static uint64_t *bits_of(struct check *c, uint64_t **bits)
{
    if (!*bits)
        *bits = calloc(SEG_WORDS, sizeof(uint64_t));
    if (!*bits)
        c->error = -ENOMEM;
    return *bits;
}

void segs_forget(struct check *c)
{
    for (unsigned i = 0; i < c->segs.count; i++) {
        struct check_seg *seg = &c->segs.at[i];
        free(seg->holds);
        free(seg->counts);
        free(seg->freed);
        free(seg->read);
    }
    free(c->segs.at);
    c->segs = (struct check_segs){0};
}

/* ---- what is free ---- */

static void mark_free(struct check *c, place_t place, uint32_t blocks)
{
    for (uint32_t i = 0; i < blocks && !c->error; i++) {
        struct check_seg *seg = seg_of(c, place + i);
        if (!seg)
            continue; /* it may have gone since */
        uint64_t *bits = bits_of(c, &seg->freed);
        if (bits)
            bit_set(bits, place_block(place + i));
    }
}

static int read_free(struct check *c, struct key *at)
{
    int error = db_seek(c->t, DB_FREE, at, c->row);
    for (unsigned n = 1; !error && !c->error; n++) {
        at->length = c->row->key_length;
        memcpy(at->bytes, c->row->key, at->length);
        if (at->length == 20)
            mark_free(c, key_number(at->bytes, 8), key_number32(at->bytes, 16));
        else
            found(c, 0, 0, false, "an entry of the list of free blocks cannot be read: space is lost, no data");
        atomic_fetch_add_explicit(&c->job->records, 1, memory_order_relaxed);
        if (!key_increment(at))
            return -ENOENT;
        if (n % 64 == 0 && step_is_over(c))
            return 0;
        error = db_step(c->t, DB_FREE, c->row);
    }
    return error;
}

int free_read(struct check *c)
{
    struct key at = {.length = 1};
    int end = 0;
    while (!end && !check_stopped(c) && !step_begin(c)) {
        end = read_free(c, &at);
        step_end(c);
    }
    if (end && end != -ENOENT && !c->error)
        c->error = end;
    return c->error;
}

/* ---- chunk records ---- */

static bool is_cut(const struct inode *inode, uint64_t chunk, uint64_t change)
{
    for (unsigned i = 0; i < inode->cut_count; i++)
        if (chunk >= inode->cuts[i].chunk && change <= inode->cuts[i].change)
            return true;
    return false;
}

static bool test_chunk(struct check *c, const struct check_group *g, unsigned i, uint64_t viewer, char *why)
{
    struct chunk_map map;
    struct inode inode;
    struct key k;
    uint64_t seen, ino = key_number(g->key.bytes, 0), chunk = key_number(g->key.bytes, 8);
    chunk_decode_extents(item_value(g, i), g->items[i].length, &map); /* known to be good */
    key_inode(&k, ino);
    if (visible(c->t, DB_INODE, &k, viewer, c->row, &seen) ||
        inode_decode(c->row->value, c->row->length, ino, &inode, NULL) || inode.type != STORE_REG) {
        snprintf(why, WHY_ROOM, "data of inode %llu, which is no file (any more): space is lost, no data", (number)ino);
        return false;
    }
    if (chunk > STORE_FILE_MAX / STORE_CHUNK ||
        (chunk * STORE_CHUNK >= inode.size && !is_cut(&inode, chunk, map.change))) {
        snprintf(why, WHY_ROOM, "inode %llu: data of chunk %llu lie past its end at %llu and would come back if it "
                 "grew; copy the file and delete it", (number)ino, (number)chunk, (number)inode.size);
        return false;
    }
    if (map.kind == CHUNK_INLINE && (chunk || map.inline_length > inode.size)) {
        snprintf(why, WHY_ROOM, "inode %llu: more bytes (%u) in chunk %llu's record than belong "
                 "there" ADVICE, (number)ino,
                 map.inline_length, (number)chunk);
        return false;
    }
    return true;
}

static bool places_add(struct check *c, place_t place)
{
    if (c->place_count == c->place_room) {
        size_t room = c->place_room * 2 + 1024;
        place_t *grown = realloc(c->places, room * sizeof(*grown));
        if (!grown) {
            c->error = -ENOMEM;
            return false;
        }
        c->places = grown;
        c->place_room = room;
    }
    c->places[c->place_count++] = place;
    return true;
}

static int by_place(const void *a, const void *b)
{
    place_t x = *(const place_t *)a, y = *(const place_t *)b;
    return x < y ? -1 : x > y;
}

void gather_places(struct check *c, const struct check_group *g)
{
    struct chunk_map map;
    unsigned maps = 0;
    c->place_count = 0;
    for (unsigned i = 0; i < g->count; i++) {
        if (g->items[i].gone || chunk_decode_extents(item_value(g, i), g->items[i].length, &map) ||
            map.kind != CHUNK_MAP)
            continue;
        maps++;
        for (unsigned e = 0; e < map.extent_count; e++)
            for (unsigned n = 0; n < map.extents[e].count; n++)
                if (!places_add(c, map.extents[e].place + n))
                    return;
    }
    if (maps > 1 && c->place_count)
        qsort(c->places, c->place_count, sizeof(place_t), by_place);
}

/* A block that `holders` records of this key hold. */
static void hold_one(struct check *c, const struct check_group *g, place_t place, unsigned holders, bool may_report)
{
    uint64_t ino = key_number(g->key.bytes, 0), chunk = key_number(g->key.bytes, 8);
    struct check_seg *seg = seg_of(c, place);
    uint32_t block = place_block(place), length = 1;
    if (!seg) {
        if (may_report)
            found_in(c, g, 0, ino, true, "inode %llu, chunk %llu: a block lies at %llx, where no segment is" ADVICE,
                     (number)ino, (number)chunk, (number)place);
        return;
    }
    if (!bits_of(c, &seg->holds))
        return;
    bool first = !bit_get(seg->holds, block);
    if (bit_get(seg->freed, block) && may_report)
        found_in(c, g, 0, ino, true, "inode %llu, chunk %llu: the block at %llx is on the list of free blocks; copy "
                 "the file elsewhere now", (number)ino, (number)chunk, (number)place);
    seg->held += first;
    bit_set(seg->holds, block);
    holders_seen(seg, place, holders, first);
    /* Other files' records may hold it as well: then it is the sums that tell. */
    long counted = may_report && holders > 1 ? refs_count(c->t, place, &length) : holders;
    if (counted < (long)holders)
        found_in(c, g, 0, ino, false, HOLDERS_FORMAT, (number)ino, (number)chunk, holders, (number)place, counted);
}

void hold_blocks(struct check *c, struct check_group *g, bool may_report)
{
    gather_places(c, g);
    for (size_t i = 0, same; i < c->place_count && !c->error; i += same) {
        for (same = 1; i + same < c->place_count && c->places[i + same] == c->places[i]; same++)
            ;
        hold_one(c, g, c->places[i], (unsigned)same, may_report);
    }
}

static int64_t chunk_weight(const struct check *c, const struct check_group *g, long i)
{
    struct chunk_map map;
    int64_t blocks;
    if (i < 0 || g->items[i].gone || chunk_decode_extents(item_value(g, (unsigned)i), g->items[i].length, &map))
        return 0;
    blocks = chunk_map_inside(c->l, &map);
    for (unsigned e = 0; map.kind == CHUNK_MAP && e < map.extent_count; e++)
        blocks += map.extents[e].count;
    return blocks;
}

void sum_chunk(struct check *c, struct check_group *g)
{
    for (unsigned i = 0; i < g->count && !c->error; i++) {
        int64_t by = chunk_weight(c, g, i) - chunk_weight(c, g, group_beneath(c, g, i));
        if (by || !c->sums.count)
            sums_add(c, &c->sums, g->items[i].version, by);
    }
}

void check_chunk(struct check *c, struct check_group *g)
{
    uint64_t ino = key_number(g->key.bytes, 0);
    struct chunk_map map;
    for (unsigned i = 0; i < g->count && !c->error; i++) {
        examine_record(c, g, i);
        if (g->items[i].gone)
            continue;
        if (chunk_decode(item_value(g, i), g->items[i].length, &map))
            found_in(c, g, i, ino, true, "the record of inode %llu's chunk %llu cannot be read" ADVICE, (number)ino,
                     (number)key_number(g->key.bytes, 8));
        else
            examine(c, g, i, ino, test_chunk);
    }
    hold_blocks(c, g, true);
    sum_chunk(c, g);
}

/* ---- sums ---- */

/* Of a segment whose record is still there. */
static void compare_segment(struct check *c, struct check_seg *seg, bool may_report)
{
    struct check_seg now = *seg;
    if (read_segment(c, seg->number, &now)) {
        if (seg->held)
            seg->doubtful = true;
        return;
    }
    seg->tail = now.tail;
    seg->live = now.live;
    seg->doubtful |= seg->held != seg->live;
    if (!may_report)
        return;
    if (seg->held != seg->live)
        found(c, 0, 0, false, "segment %08x: records hold %u blocks, and %u are counted: %s", seg->number, seg->held,
              seg->live, seg->held < seg->live ? "space is lost, no data"
                                               : "do not delete anything, and copy the pool's volumes into a new pool");
}

void segs_compare(struct check *c, bool may_report)
{
    for (unsigned i = 0; i < c->segs.count && !c->error; i++)
        compare_segment(c, &c->segs.at[i], may_report);
}

static bool file_is_short(struct check *c, const struct check_seg *seg)
{
    char name[SEG_NAME_ROOM], path[SEG_NAME_ROOM + 8];
    struct stat info;
    seg_file_name(seg->number, name);
    snprintf(path, sizeof(path), "data/%s", name);
    return fstatat(c->l->dir_fd, path, &info, 0) || info.st_size < (off_t)seg->live * STORE_BLOCK;
}

/* A segment's record goes before its file does: where that is missing, the record is read again afterwards. */
void segs_have_files(struct check *c)
{
    for (unsigned i = 0; i < c->segs.count && !check_stopped(c); i++) {
        struct check_seg *seg = &c->segs.at[i];
        if (!seg->live || !file_is_short(c, seg))
            continue;
        if (step_begin(c))
            return;
        if (read_segment(c, seg->number, seg) == 0 && seg->live && file_is_short(c, seg))
            found(c, 0, 0, true, "data/%08x.seg is not there or too short, and should hold %u blocks: bring it back "
                  "from a backup", seg->number, seg->live);
        step_end(c);
    }
}
