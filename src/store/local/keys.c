#include "store/local/keys.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

static void add(struct key *k, uint64_t number)
{
    uint64_t bytes = htobe64(number);
    assert(k->length + sizeof(bytes) <= KEY_ROOM);
    memcpy(k->bytes + k->length, &bytes, sizeof(bytes));
    k->length += sizeof(bytes);
}

void key_inode(struct key *k, uint64_t ino)
{
    k->length = 0;
    add(k, ino);
}

void key_entry(struct key *k, uint64_t dir, uint64_t position)
{
    k->length = 0;
    add(k, dir);
    add(k, position);
}

void key_link(struct key *k, uint64_t ino, uint64_t dir, uint64_t position)
{
    k->length = 0;
    add(k, ino);
    add(k, dir);
    add(k, position);
}

void key_chunk(struct key *k, uint64_t ino, uint64_t chunk)
{
    k->length = 0;
    add(k, ino);
    add(k, chunk);
}

void key_touched(struct key *k, uint64_t version, uint64_t serial)
{
    k->length = 0;
    add(k, version);
    add(k, serial);
}

void key_free(struct key *k, uint64_t group, uint64_t place, uint32_t blocks)
{
    k->length = 0;
    add(k, group);
    add(k, place);
    uint32_t bytes = htobe32(blocks);
    memcpy(k->bytes + k->length, &bytes, sizeof(bytes));
    k->length += sizeof(bytes);
}

bool key_system(struct key *k, const char *text)
{
    size_t length = strlen(text);
    if (length == 0 || length > 63)
        return false;
    memcpy(k->bytes, text, length);
    k->length = (uint8_t)length;
    return true;
}

void key_add_version(struct key *k, uint64_t version)
{
    add(k, ~version);
}

void key_set_version(struct key *k, uint64_t version)
{
    k->length -= KEY_VERSION;
    add(k, ~version);
}

uint64_t key_version(const uint8_t *key, size_t length)
{
    return ~key_number(key, length - KEY_VERSION);
}

uint64_t key_number(const uint8_t *key, size_t at)
{
    uint64_t bytes;
    memcpy(&bytes, key + at, sizeof(bytes));
    return be64toh(bytes);
}

uint32_t key_number32(const uint8_t *key, size_t at)
{
    uint32_t bytes;
    memcpy(&bytes, key + at, sizeof(bytes));
    return be32toh(bytes);
}

bool key_increment(struct key *k)
{
    for (size_t i = k->length; i-- > 0;)
        if (++k->bytes[i] != 0)
            return true;
    return false;
}
