#include "nfs/handle.h"

#include <endian.h>
#include <sodium.h>
#include <string.h>

#include "nfs/server.h"
#include "nfs/snapview.h"

enum { FORMAT = 1, KIND_SHIFT = 62 };
_Static_assert(VIEW_LIST >> KIND_SHIFT == 1 && VIEW_PAST >> KIND_SHIFT == 2, "the kinds follow the bits");

struct wire {
    uint8_t format, kind;
    uint16_t reserved;
    uint32_t pool, tree, generation;
    uint64_t ino;
    uint8_t hash[crypto_shorthash_BYTES];
};
_Static_assert(sizeof(struct wire) == NFS_HANDLE_SIZE, "a handle is 32 bytes");
_Static_assert(sizeof nfs_server.handle_key == crypto_shorthash_KEYBYTES, "SipHash-2-4 key");

static void hash(const struct wire *wire, uint8_t out[crypto_shorthash_BYTES])
{
    crypto_shorthash(out, (const unsigned char *)wire, offsetof(struct wire, hash),
                     nfs_server.handle_key);
}

void handle_encode(const struct store_object *object, uint8_t handle[NFS_HANDLE_SIZE])
{
    struct wire wire = {
        .format = FORMAT,
        .kind = (uint8_t)(HANDLE_OBJECT + (object->ino >> KIND_SHIFT)),
        .pool = htobe32(nfs_server.pool),
        .tree = htobe32(object->tree),
        .generation = htobe32(object->generation),
        .ino = htobe64(object->ino & ~VIEW_BITS),
    };
    hash(&wire, wire.hash);
    memcpy(handle, &wire, sizeof wire);
}

void handle_encode_pseudo_root(uint8_t handle[NFS_HANDLE_SIZE])
{
    struct wire wire = {.format = FORMAT, .kind = HANDLE_PSEUDO_ROOT, .pool = htobe32(nfs_server.pool)};
    hash(&wire, wire.hash);
    memcpy(handle, &wire, sizeof wire);
}

bool handle_is_pseudo_root(const uint8_t *handle, uint32_t length)
{
    uint8_t right[NFS_HANDLE_SIZE];
    if (length != sizeof right || handle[offsetof(struct wire, kind)] != HANDLE_PSEUDO_ROOT)
        return false;
    handle_encode_pseudo_root(right);
    return memcmp(handle, right, sizeof right) == 0; /* it is no secret */
}

static struct store_object object_of(const struct wire *wire)
{
    return (struct store_object){
        .tree = be32toh(wire->tree),
        .generation = be32toh(wire->generation),
        .ino = be64toh(wire->ino),
    };
}

bool handle_peek(const uint8_t *handle, uint32_t length, struct store_object *out)
{
    struct wire wire;
    if (length != sizeof wire)
        return false;
    memcpy(&wire, handle, sizeof wire);
    *out = object_of(&wire);
    return true;
}

int handle_decode(const uint8_t *handle, uint32_t length, struct store_object *out)
{
    struct wire wire;
    uint8_t right[crypto_shorthash_BYTES];
    if (length != sizeof wire)
        return SL_EBADHANDLE;
    memcpy(&wire, handle, sizeof wire);
    hash(&wire, right);
    if (sodium_memcmp(right, wire.hash, sizeof right) != 0)
        return SL_EBADHANDLE;
    unsigned view = (unsigned)wire.kind - HANDLE_OBJECT;
    if (wire.format != FORMAT || view > HANDLE_SNAPSHOT_PAST - HANDLE_OBJECT || wire.reserved ||
        wire.pool != htobe32(nfs_server.pool))
        return SL_EBADHANDLE;
    *out = object_of(&wire);
    out->ino |= (uint64_t)view << KIND_SHIFT;
    return 0;
}
