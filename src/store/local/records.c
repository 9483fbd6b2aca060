#include "store/local/records.h"

#include <assert.h>
#include <endian.h>
#include <isa-l/crc.h>
#include <string.h>

enum { FORMAT_1 = 1 };
enum { HAS_DEVICE = 1, HAS_VERIFIER = 2, HAS_CUTS = 4, HAS_TARGET = 8 };
enum { TREE_READ_ONLY = 1 };

/* ---- packing ---- */

static uint8_t *put8(uint8_t *to, uint8_t value)
{
    *to = value;
    return to + 1;
}

static uint8_t *put16(uint8_t *to, uint16_t value)
{
    value = htole16(value);
    return (uint8_t *)memcpy(to, &value, sizeof(value)) + sizeof(value);
}

static uint8_t *put32(uint8_t *to, uint32_t value)
{
    value = htole32(value);
    return (uint8_t *)memcpy(to, &value, sizeof(value)) + sizeof(value);
}

static uint8_t *put64(uint8_t *to, uint64_t value)
{
    value = htole64(value);
    return (uint8_t *)memcpy(to, &value, sizeof(value)) + sizeof(value);
}

static uint8_t *put_bytes(uint8_t *to, const void *bytes, size_t length)
{
    if (length)
        memcpy(to, bytes, length);
    return to + length;
}

static uint8_t *put_time(uint8_t *to, struct store_time time)
{
    return put32(put64(to, (uint64_t)time.seconds), time.nanoseconds);
}

/* What is taken past the end is zero and marks the reader as broken; one check at the end is enough. */
struct reader {
    const uint8_t *at, *end;
    bool broken;
};

static const uint8_t *take(struct reader *r, size_t length)
{
    if ((size_t)(r->end - r->at) < length) {
        r->broken = true;
        return NULL;
    }
    r->at += length;
    return r->at - length;
}

static uint64_t get(struct reader *r, size_t length)
{
    uint64_t value = 0;
    const uint8_t *bytes = take(r, length);
    if (bytes)
        memcpy(&value, bytes, length);
    return le64toh(value);
}

static struct store_time get_time(struct reader *r)
{
    struct store_time time = {.seconds = (int64_t)get(r, 8)};
    time.nanoseconds = (uint32_t)get(r, 4);
    return time;
}

static struct reader reader_start(const uint8_t *bytes, size_t length)
{
    struct reader r = {.at = bytes, .end = bytes + length};
    if (get(&r, 1) != FORMAT_1)
        r.broken = true;
    return r;
}

static int reader_end(const struct reader *r)
{
    return r->broken || r->at != r->end ? SL_ECORRUPT : 0;
}

/* ---- inodes ---- */

static uint8_t inode_parts(const struct inode *inode)
{
    static const uint8_t zero[8];
    return (inode->rdev_major || inode->rdev_minor ? HAS_DEVICE : 0) |
           (memcmp(inode->verifier, zero, sizeof(zero)) ? HAS_VERIFIER : 0) |
           (inode->cut_count ? HAS_CUTS : 0) | (inode->target_length ? HAS_TARGET : 0);
}

size_t inode_encode(const struct inode *inode, const char *target, uint8_t *to)
{
    assert(inode->cut_count <= INODE_CUTS && inode->target_length <= STORE_LINK_TARGET_MAX);
    uint8_t *start = to, parts = inode_parts(inode);
    to = put8(to, FORMAT_1);
    to = put8(to, inode->type);
    to = put8(to, parts);
    to = put16(to, inode->mode);
    to = put32(to, inode->generation);
    to = put32(to, inode->nlink);
    to = put32(to, inode->uid);
    to = put32(to, inode->gid);
    to = put64(to, inode->size);
    to = put64(to, inode->blocks);
    to = put64(to, inode->change);
    to = put64(to, inode->parent);
    to = put64(to, inode->position);
    to = put_time(to, inode->atime);
    to = put_time(to, inode->mtime);
    to = put_time(to, inode->ctime);
    to = put_time(to, inode->btime);
    if (parts & HAS_DEVICE)
        to = put32(put32(to, inode->rdev_major), inode->rdev_minor);
    if (parts & HAS_VERIFIER)
        to = put_bytes(to, inode->verifier, sizeof(inode->verifier));
    if (parts & HAS_CUTS) {
        to = put8(to, inode->cut_count);
        for (unsigned i = 0; i < inode->cut_count; i++)
            to = put64(put64(to, inode->cuts[i].chunk), inode->cuts[i].change);
    }
    if (parts & HAS_TARGET)
        to = put_bytes(put16(to, inode->target_length), target, inode->target_length);
    return (size_t)(to - start);
}

static void inode_decode_parts(struct reader *r, unsigned parts, struct inode *out, const char **target)
{
    if (parts & HAS_DEVICE) {
        out->rdev_major = (uint32_t)get(r, 4);
        out->rdev_minor = (uint32_t)get(r, 4);
    }
    if (parts & HAS_VERIFIER) {
        const uint8_t *verifier = take(r, sizeof(out->verifier));
        if (verifier)
            memcpy(out->verifier, verifier, sizeof(out->verifier));
    }
    if (parts & HAS_CUTS) {
        out->cut_count = (uint8_t)get(r, 1);
        if (out->cut_count > INODE_CUTS) {
            out->cut_count = 0;
            r->broken = true;
        }
        for (unsigned i = 0; i < out->cut_count; i++) {
            out->cuts[i].chunk = get(r, 8);
            out->cuts[i].change = get(r, 8);
        }
    }
    if (parts & HAS_TARGET) {
        out->target_length = (uint16_t)get(r, 2);
        const uint8_t *bytes = take(r, out->target_length);
        if (target)
            *target = (const char *)bytes;
        if (out->target_length > STORE_LINK_TARGET_MAX)
            r->broken = true;
    }
}

int inode_decode(const uint8_t *bytes, size_t length, uint64_t ino, struct inode *out, const char **target)
{
    struct reader r = reader_start(bytes, length);
    memset(out, 0, sizeof(*out));
    if (target)
        *target = NULL;
    out->ino = ino;
    out->type = (uint8_t)get(&r, 1);
    unsigned parts = (unsigned)get(&r, 1);
    out->mode = (uint16_t)get(&r, 2);
    out->generation = (uint32_t)get(&r, 4);
    out->nlink = (uint32_t)get(&r, 4);
    out->uid = (uint32_t)get(&r, 4);
    out->gid = (uint32_t)get(&r, 4);
    out->size = get(&r, 8);
    out->blocks = get(&r, 8);
    out->change = get(&r, 8);
    out->parent = get(&r, 8);
    out->position = get(&r, 8);
    out->atime = get_time(&r);
    out->mtime = get_time(&r);
    out->ctime = get_time(&r);
    out->btime = get_time(&r);
    inode_decode_parts(&r, parts, out, target);
    if (out->type < STORE_REG || out->type > STORE_FIFO || out->size > STORE_FILE_MAX)
        r.broken = true;
    return reader_end(&r);
}

/* ---- entries ---- */

size_t entry_encode(const struct entry *entry, uint8_t *to)
{
    uint8_t *start = to;
    to = put8(to, FORMAT_1);
    to = put8(to, entry->type);
    to = put64(to, entry->ino);
    to = put32(to, entry->generation);
    to = put8(to, entry->length);
    to = put_bytes(to, entry->name, entry->length);
    return (size_t)(to - start);
}

int entry_decode(const uint8_t *bytes, size_t length, uint64_t position, struct entry *out)
{
    struct reader r = reader_start(bytes, length);
    out->position = position;
    out->type = (uint8_t)get(&r, 1);
    out->ino = get(&r, 8);
    out->generation = (uint32_t)get(&r, 4);
    out->length = (uint8_t)get(&r, 1);
    const uint8_t *name = take(&r, out->length);
    if (name)
        memcpy(out->name, name, out->length);
    out->name[name ? out->length : 0] = 0;
    return reader_end(&r);
}

/* ---- chunks ---- */

static uint32_t checksum(const uint8_t *bytes, size_t length)
{
    return ~crc32_iscsi((unsigned char *)bytes, (int)length, ~0u);
}

size_t chunk_encode(const struct chunk_map *map, uint64_t change, uint8_t *to)
{
    uint8_t *start = to;
    to = put8(to, FORMAT_1);
    to = put8(to, map->kind);
    to = put64(to, change);
    if (map->kind == CHUNK_INLINE) {
        assert(map->inline_length <= INLINE_MAX);
        to = put16(to, map->inline_length);
        to = put32(to, checksum(map->bytes, map->inline_length));
        to = put_bytes(to, map->bytes, map->inline_length);
        return (size_t)(to - start);
    }
    assert(map->kind == CHUNK_MAP && map->extent_count <= CHUNK_BLOCKS);
    to = put8(to, map->extent_count);
    for (unsigned i = 0; i < map->extent_count; i++) {
        to = put64(to, map->extents[i].place);
        to = put8(to, map->extents[i].block);
        to = put8(to, map->extents[i].count);
    }
    for (unsigned i = 0; i < map->extent_count; i++)
        for (unsigned b = map->extents[i].block; b < (unsigned)map->extents[i].block + map->extents[i].count; b++)
            to = put32(to, map->crc[b]);
    return (size_t)(to - start);
}

static void inline_decode(struct reader *r, struct chunk_map *out)
{
    out->inline_length = (uint16_t)get(r, 2);
    uint32_t crc = (uint32_t)get(r, 4);
    const uint8_t *bytes = take(r, out->inline_length);
    if (!bytes || out->inline_length > INLINE_MAX || checksum(bytes, out->inline_length) != crc) {
        r->broken = true;
        return;
    }
    memcpy(out->bytes, bytes, out->inline_length);
}

static void extents_decode(struct reader *r, struct chunk_map *out)
{
    out->extent_count = (uint8_t)get(r, 1);
    if (out->extent_count > CHUNK_BLOCKS) {
        r->broken = true;
        return;
    }
    unsigned free_from = 0;
    for (unsigned i = 0; i < out->extent_count; i++) {
        struct extent *e = &out->extents[i];
        e->place = get(r, 8);
        e->block = (uint8_t)get(r, 1);
        e->count = (uint8_t)get(r, 1);
        if (e->place == 0 || e->count == 0 || e->block < free_from || e->block + e->count > CHUNK_BLOCKS) {
            r->broken = true;
            return;
        }
        free_from = (unsigned)e->block + e->count;
    }
}

/* All but the CRCs, which the reader stands before. */
static struct reader chunk_decode_start(const uint8_t *bytes, size_t length, struct chunk_map *out)
{
    struct reader r = reader_start(bytes, length);
    out->kind = (uint8_t)get(&r, 1);
    out->change = get(&r, 8);
    out->extent_count = 0;
    out->inline_length = 0;
    if (out->kind == CHUNK_INLINE)
        inline_decode(&r, out);
    else if (out->kind == CHUNK_MAP)
        extents_decode(&r, out);
    else
        r.broken = true;
    return r;
}

int chunk_decode(const uint8_t *bytes, size_t length, struct chunk_map *out)
{
    struct reader r = chunk_decode_start(bytes, length, out);
    for (unsigned i = 0; !r.broken && i < out->extent_count; i++)
        for (unsigned n = 0; n < out->extents[i].count; n++)
            out->crc[out->extents[i].block + n] = (uint32_t)get(&r, 4);
    return reader_end(&r);
}

int chunk_decode_extents(const uint8_t *bytes, size_t length, struct chunk_map *out)
{
    struct reader r = chunk_decode_start(bytes, length, out);
    for (unsigned i = 0; !r.broken && i < out->extent_count; i++)
        take(&r, out->extents[i].count * sizeof(out->crc[0]));
    return reader_end(&r);
}

place_t chunk_record_place(const uint8_t *bytes, size_t length, unsigned block)
{
    if (length == 0)
        return 0;
    struct reader r = reader_start(bytes, length);
    unsigned kind = (unsigned)get(&r, 1);
    take(&r, 8); /* change */
    unsigned extents = kind == CHUNK_MAP ? (unsigned)get(&r, 1) : 0;
    for (unsigned i = 0; i < extents && !r.broken; i++) {
        place_t place = get(&r, 8);
        unsigned first = (unsigned)get(&r, 1), count = (unsigned)get(&r, 1);
        if (block >= first && block - first < count && !r.broken)
            return place + (block - first);
    }
    return 0;
}

/* ---- system ---- */

size_t tree_encode(const struct tree_record *tree, uint8_t *to)
{
    uint8_t *start = to;
    to = put8(to, FORMAT_1);
    to = put8(to, tree->read_only ? TREE_READ_ONLY : 0);
    to = put32(to, tree->id);
    to = put64(to, tree->version);
    to = put64(to, tree->root);
    to = put64(to, tree->orphans);
    to = put64(to, tree->fsid);
    to = put64(to, tree->size_limit);
    to = put32(to, tree->props_length);
    to = put32(to, tree->parent);
    to = put32(to, tree->origin);
    to = put32(to, tree->number);
    to = put64(to, tree->listed_change);
    to = put64(to, tree->restored_change);
    to = put_time(to, tree->created);
    to = put_time(to, tree->listed);
    to = put_time(to, tree->restored);
    if (tree->file_limit)
        to = put64(to, tree->file_limit);
    return (size_t)(to - start);
}

int tree_decode(const uint8_t *bytes, size_t length, struct tree_record *out)
{
    struct reader r = reader_start(bytes, length);
    out->read_only = get(&r, 1) & TREE_READ_ONLY;
    out->id = (uint32_t)get(&r, 4);
    out->version = get(&r, 8);
    out->root = get(&r, 8);
    out->orphans = get(&r, 8);
    out->fsid = get(&r, 8);
    out->size_limit = get(&r, 8);
    out->props_length = (uint32_t)get(&r, 4);
    out->parent = (uint32_t)get(&r, 4);
    out->origin = (uint32_t)get(&r, 4);
    out->number = (uint32_t)get(&r, 4);
    out->listed_change = get(&r, 8);
    out->restored_change = get(&r, 8);
    out->created = get_time(&r);
    out->listed = get_time(&r);
    out->restored = get_time(&r);
    out->file_limit = r.at < r.end ? get(&r, 8) : 0;
    return reader_end(&r);
}

size_t usage_encode(const struct usage_record *usage, uint8_t *to)
{
    uint8_t *start = to;
    to = put8(to, FORMAT_1);
    to = put64(to, usage->blocks);
    to = put64(to, usage->files);
    return (size_t)(to - start);
}

int usage_decode(const uint8_t *bytes, size_t length, struct usage_record *out)
{
    struct reader r = reader_start(bytes, length);
    out->blocks = get(&r, 8);
    out->files = get(&r, 8);
    return reader_end(&r);
}

size_t version_encode(const struct version_record *version, uint8_t *to)
{
    return (size_t)(put64(put64(put8(to, FORMAT_1), version->parent), version->touched) - to);
}

int version_decode(const uint8_t *bytes, size_t length, struct version_record *out)
{
    struct reader r = reader_start(bytes, length);
    out->parent = get(&r, 8);
    out->touched = get(&r, 8);
    return reader_end(&r);
}

size_t counters_encode(const struct counters *counters, uint8_t *to)
{
    uint8_t *start = to;
    to = put8(to, FORMAT_1);
    to = put64(to, counters->ino);
    to = put64(to, counters->change);
    to = put64(to, counters->version);
    to = put64(to, counters->tree);
    to = put64(to, counters->serial);
    to = put64(to, counters->group);
    return (size_t)(to - start);
}

int counters_decode(const uint8_t *bytes, size_t length, struct counters *out)
{
    struct reader r = reader_start(bytes, length);
    out->ino = get(&r, 8);
    out->change = get(&r, 8);
    out->version = get(&r, 8);
    out->tree = get(&r, 8);
    out->serial = get(&r, 8);
    out->group = get(&r, 8);
    return reader_end(&r);
}
