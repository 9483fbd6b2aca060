/* The bytes of the data against their checksums: a read of at most a chunk at a time, past the page cache and past
 * ours, each block once however many records hold it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "store/local/check_private.h"
#include "store/local/fetch.h"
#include "store/local/seg_private.h"

enum { BATCH = 64, PAUSE_NS_MOST = 200000000 };
typedef unsigned long long number;

struct piece { /* a chunk record */
    struct key key;
    struct chunk_map map;
};

struct reading {
    struct check *c;
    struct piece *pieces;
    unsigned count;
    uint8_t *buffer; /* of a chunk */
    int fd;
    uint32_t fd_number; /* 0: none is open */
    uint64_t began, paced; /* when, and the bytes since then */
};

/* ---- gathering ---- */

static int gather(struct reading *r, struct key *at)
{
    struct check *c = r->c;
    r->count = 0;
    if (step_begin(c))
        return c->error;
    int error = db_seek(c->t, DB_CHUNK, at, c->row);
    while (!error && r->count < BATCH) {
        struct piece *p = &r->pieces[r->count];
        const struct record *row = c->row;
        at->length = row->key_length;
        memcpy(at->bytes, row->key, row->key_length);
        if (!record_is_gone(row->value, row->length) && row->key_length == 24 &&
            chunk_decode(row->value, row->length, &p->map) == 0 && p->map.kind == CHUNK_MAP) {
            key_chunk(&p->key, key_number(row->key, 0), key_number(row->key, 8));
            r->count++;
        }
        if (!key_increment(at))
            error = -ENOENT;
        else if (step_is_over(c))
            break;
        else
            error = db_step(c->t, DB_CHUNK, c->row);
    }
    step_end(c);
    return error;
}

/* ---- reading ---- */

static int open_segment(struct reading *r, uint32_t number_of)
{
    char name[SEG_NAME_ROOM], path[SEG_NAME_ROOM + 8];
    if (r->fd_number == number_of)
        return 0;
    if (r->fd_number)
        close(r->fd);
    r->fd_number = 0;
    seg_file_name(number_of, name);
    snprintf(path, sizeof(path), "data/%s", name);
    r->fd = openat(r->c->l->dir_fd, path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (r->fd < 0 && errno == EINVAL)
        r->fd = openat(r->c->l->dir_fd, path, O_RDONLY | O_CLOEXEC);
    if (r->fd < 0)
        return -errno;
    r->fd_number = number_of;
    return 0;
}

static int read_blocks(struct reading *r, place_t place, unsigned blocks)
{
    size_t done = 0, length = (size_t)blocks * STORE_BLOCK;
    off_t from = (off_t)place_block(place) * STORE_BLOCK;
    int error = open_segment(r, place_segment(place));
    while (!error && done < length) {
        ssize_t now = pread(r->fd, r->buffer + done, length - done, from + (off_t)done);
        if (now < 0 && errno == EINTR)
            continue;
        if (now <= 0) {
            error = now ? -errno : -EIO; /* past its end */
            break;
        }
        done += (size_t)now;
    }
    if (!error)
        posix_fadvise(r->fd, from, (off_t)length, POSIX_FADV_DONTNEED); /* where there is no O_DIRECT */
    return error;
}

/* As long as it took, when others use the device; and no faster than the rate. */
static void pace(struct reading *r, uint64_t began, size_t bytes)
{
    struct store_check *job = r->c->job;
    uint64_t now = clock_monotonic_ns(), pause = job->gently ? now - began : 0;
    r->paced += bytes;
    if (job->rate) {
        uint64_t due = r->began + (uint64_t)((double)r->paced / (double)job->rate * 1e9);
        if (due > now + pause)
            pause = due - now;
        else if (due + PAUSE_NS_MOST < now) { /* not to be made up for later */
            r->began = now;
            r->paced = 0;
        }
    }
    while (pause && !check_stopped(r->c)) {
        uint64_t part = pause < PAUSE_NS_MOST ? pause : PAUSE_NS_MOST;
        nanosleep(&(struct timespec){.tv_nsec = (long)part}, NULL);
        pause -= part;
    }
}

/* ---- what does not match ---- */

static bool holds_still(const struct check_group *g, unsigned i, unsigned block, place_t place, uint32_t *crc)
{
    struct chunk_map map;
    if (g->items[i].gone || chunk_decode(item_value(g, i), g->items[i].length, &map) || map.kind != CHUNK_MAP ||
        chunk_place(&map, block) != place)
        return false;
    *crc = map.crc[block];
    return true;
}

/* Looks it up again: it may have been freed, and its place given back, between the record and the read. */
static void damaged(struct reading *r, const struct piece *p, unsigned block, place_t place, unsigned count, int error)
{
    struct check *c = r->c;
    uint64_t ino = key_number(p->key.bytes, 0), chunk = key_number(p->key.bytes, 8);
    uint32_t crc;
    if (step_begin(c))
        return;
    int bad = group_find(c, &c->group, DB_CHUNK, &p->key);
    if (bad)
        c->error = bad;
    for (unsigned i = c->group.count; !c->error && i-- > 0;) {
        if (!holds_still(&c->group, i, block, place, &crc))
            continue;
        /* With the record there, the place is: once more, that it was no passing trouble. */
        if (!error && read_blocks(r, place, 1) == 0 && block_crc(r->buffer) == crc)
            break;
        atomic_fetch_add(&c->job->damaged_blocks, count);
        metric_add(METRIC_checked_damaged, count);
        found_in(c, &c->group, i, ino, true, "bytes %llu to %llu are damaged: they %s (segment %08x, block %x); "
                 "restore the file from a snapshot that is older, or a "
                 "backup", (number)(chunk * STORE_CHUNK + block * STORE_BLOCK),
                 (number)(chunk * STORE_CHUNK + (block + count) * STORE_BLOCK - 1),
                 error ? "cannot be read" : "do not match their checksum", place_segment(place), place_block(place));
        break;
    }
    step_end(c);
}

/* ---- a run of blocks ---- */

static bool is_read(struct check *c, place_t place)
{
    const struct check_seg *seg = seg_known(c, place);
    return seg && bit_get(seg->read, place_block(place));
}

static void verify_each(struct reading *r, const struct piece *p, unsigned block, place_t place, unsigned count)
{
    int missing = open_segment(r, place_segment(place));
    if (missing)
        damaged(r, p, block, place, count, missing);
    for (unsigned i = 0; i < count && !missing && !check_stopped(r->c); i++) {
        int error = read_blocks(r, place + i, 1);
        if (error || block_crc(r->buffer) != p->map.crc[block + i])
            damaged(r, p, block + i, place + i, 1, error);
    }
}

static void verify(struct reading *r, const struct piece *p, unsigned block, place_t place, unsigned count)
{
    uint64_t began = clock_monotonic_ns();
    int error = read_blocks(r, place, count);
    bool good = error == 0;
    for (unsigned i = 0; i < count && good; i++)
        good = block_crc(r->buffer + (size_t)i * STORE_BLOCK) == p->map.crc[block + i];
    if (!good)
        verify_each(r, p, block, place, count);
    metric_add(METRIC_checked_bytes, (uint64_t)count * STORE_BLOCK);
    atomic_fetch_add(&r->c->job->bytes, (uint64_t)count * STORE_BLOCK);
    pace(r, began, (size_t)count * STORE_BLOCK);
}

static void mark_read(struct check *c, place_t place, unsigned count)
{
    struct check_seg *seg = seg_known(c, place);
    if (seg && !seg->read)
        seg->read = calloc((1 << PLACE_BITS) / 64, sizeof(uint64_t));
    for (unsigned n = 0; seg && seg->read && n < count; n++)
        bit_set(seg->read, place_block(place + n));
}

static void verify_piece(struct reading *r, const struct piece *p)
{
    for (unsigned e = 0; e < p->map.extent_count; e++) {
        const struct extent *x = &p->map.extents[e];
        for (unsigned from = 0, to; from < x->count && !check_stopped(r->c); from = to) {
            to = from + 1;
            if (is_read(r->c, x->place + from))
                continue;
            while (to < x->count && !is_read(r->c, x->place + to))
                to++;
            verify(r, p, x->block + from, x->place + from, to - from);
            mark_read(r->c, x->place + from, to - from);
        }
    }
}

/* The segments that there are now: of one that comes later blocks are read as often as they are held. */
static void load_segments(struct check *c)
{
    if (step_begin(c))
        return;
    segs_load(c);
    step_end(c);
}

void check_data(struct check *c)
{
    struct reading r = {.c = c, .began = clock_monotonic_ns()};
    struct key at = {.length = 1};
    int end = 0;
    r.pieces = malloc(BATCH * sizeof(*r.pieces));
    r.buffer = aligned_alloc(STORE_BLOCK, STORE_CHUNK);
    if (!r.pieces || !r.buffer)
        c->error = -ENOMEM;
    if (!c->error)
        load_segments(c);
    while (!end && !check_stopped(c)) {
        end = gather(&r, &at);
        for (unsigned i = 0; i < r.count && !c->error; i++)
            verify_piece(&r, &r.pieces[i]);
    }
    if (end && end != -ENOENT && !c->error)
        c->error = end;
    if (r.fd_number)
        close(r.fd);
    free(r.pieces);
    free(r.buffer);
}
