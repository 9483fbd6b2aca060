#include "nfs/v4/attr.h"

#include <stdio.h>
#include <string.h>

#include "nfs/snapview.h"
#include "nfs/v4/pseudo.h"

#define BIT(name) (UINT32_C(1) << FATTR4_##name % 32)

static const uint32_t nanoseconds_end = 1000000000;
enum { CHANGE_MONOTONIC = 0 /* NFS4_CHANGE_TYPE_IS_MONOTONIC_INCR */ };

enum {
    WORD_0 = BIT(SUPPORTED_ATTRS) | BIT(TYPE) | BIT(FH_EXPIRE_TYPE) | BIT(CHANGE) | BIT(SIZE) | BIT(LINK_SUPPORT) |
             BIT(SYMLINK_SUPPORT) | BIT(NAMED_ATTR) | BIT(FSID) | BIT(UNIQUE_HANDLES) | BIT(LEASE_TIME) |
             BIT(RDATTR_ERROR) | BIT(CANSETTIME) | BIT(CASE_INSENSITIVE) | BIT(CASE_PRESERVING) |
             BIT(CHOWN_RESTRICTED) | BIT(FILEHANDLE) | BIT(FILEID) | BIT(FILES_AVAIL) | BIT(FILES_FREE) |
             BIT(FILES_TOTAL) | BIT(HOMOGENEOUS) | BIT(MAXFILESIZE) | BIT(MAXLINK) | BIT(MAXNAME) | BIT(MAXREAD),
    WORD_1 = BIT(MODE) | BIT(NO_TRUNC) | BIT(NUMLINKS) | BIT(OWNER) | BIT(OWNER_GROUP) | BIT(RAWDEV) |
             BIT(SPACE_AVAIL) | BIT(SPACE_FREE) | BIT(SPACE_TOTAL) | BIT(SPACE_USED) | BIT(TIME_ACCESS) |
             BIT(TIME_ACCESS_SET) | BIT(TIME_CREATE) | BIT(TIME_DELTA) | BIT(TIME_METADATA) | BIT(TIME_MODIFY) |
             BIT(TIME_MODIFY_SET) | BIT(MOUNTED_ON_FILEID),
    SET_ONLY_1 = BIT(TIME_ACCESS_SET) | BIT(TIME_MODIFY_SET),
    SET_ONLY_2 = BIT(MODE_UMASK),
    /* What an exclusive OPEN may set (RFC 8881, 18.16.3): all that can be set, its verifier has a place of its own. */
    EXCLUSIVE_0 = BIT(SIZE),
    EXCLUSIVE_1 = BIT(MODE) | BIT(OWNER) | BIT(OWNER_GROUP) | SET_ONLY_1,
};

static const struct nfs4_bitmap supported[] = {
    {.word = {WORD_0 | BIT(MAXWRITE), WORD_1, 0}},
    {.word = {WORD_0 | BIT(MAXWRITE), WORD_1, BIT(SUPPATTR_EXCLCREAT)}},
    {.word = {WORD_0 | BIT(MAXWRITE), WORD_1,
              BIT(SUPPATTR_EXCLCREAT) | BIT(CLONE_BLKSIZE) | BIT(CHANGE_ATTR_TYPE) | BIT(MODE_UMASK)}},
};
static const struct nfs4_bitmap exclusive = {.word = {EXCLUSIVE_0, EXCLUSIVE_1, 0}};

/* ---- bitmaps ---- */

struct nfs4_bitmap nfs4_get_bitmap(struct xdr_in *x)
{
    struct nfs4_bitmap map = {0};
    uint32_t count = xdr_get_u32(x);
    if (count > xdr_left(x) / 4)
        x->bad = true;
    for (uint32_t i = 0; i < count && !x->bad; i++) {
        uint32_t word = xdr_get_u32(x);
        if (i < ATTR_WORDS)
            map.word[i] = word;
        else
            map.more = map.more || word;
    }
    return map;
}

void nfs4_put_bitmap(struct xdr_out *x, const struct nfs4_bitmap *map)
{
    uint32_t count = ATTR_WORDS;
    while (count && !map->word[count - 1])
        count--;
    xdr_put_u32(x, count);
    for (uint32_t i = 0; i < count; i++)
        xdr_put_u32(x, map->word[i]);
}

const struct nfs4_bitmap *nfs4_supported(uint32_t minor)
{
    return &supported[minor];
}

static struct nfs4_bitmap readable(uint32_t minor)
{
    struct nfs4_bitmap map = supported[minor];
    map.word[1] &= ~(uint32_t)SET_ONLY_1;
    map.word[2] &= ~(uint32_t)SET_ONLY_2;
    return map;
}

static bool within(const struct nfs4_bitmap *map, const struct nfs4_bitmap *all)
{
    return !map->more && !(map->word[0] & ~all->word[0]) && !(map->word[1] & ~all->word[1]) &&
           !(map->word[2] & ~all->word[2]);
}

bool nfs4_all_supported(uint32_t minor, const struct nfs4_bitmap *map)
{
    return within(map, &supported[minor]);
}

bool nfs4_all_readable(uint32_t minor, const struct nfs4_bitmap *map)
{
    struct nfs4_bitmap all = readable(minor);
    return within(map, &all);
}

bool nfs4_wants_usage(const struct nfs4_bitmap *map)
{
    return map->word[0] & (BIT(FILES_AVAIL) | BIT(FILES_FREE) | BIT(FILES_TOTAL)) ||
           map->word[1] & (BIT(SPACE_AVAIL) | BIT(SPACE_FREE) | BIT(SPACE_TOTAL));
}

bool nfs4_wants_attr(const struct nfs4_bitmap *map)
{
    return map->word[0] & ~(BIT(RDATTR_ERROR) | BIT(FILEID) | BIT(FILEHANDLE)) ||
           map->word[1] & ~(uint32_t)BIT(MOUNTED_ON_FILEID) || map->word[2];
}

/* ---- values ---- */

static void put_time(struct xdr_out *x, struct store_time time)
{
    xdr_put_u64(x, (uint64_t)time.seconds);
    xdr_put_u32(x, time.nanoseconds < nanoseconds_end ? time.nanoseconds : nanoseconds_end - 1);
}

static void put_number(struct xdr_out *x, uint32_t id)
{
    char text[12], *at = text + sizeof text;
    do
        *--at = (char)('0' + id % 10);
    while (id /= 10);
    xdr_put_opaque(x, at, (uint32_t)(text + sizeof text - at));
}

static void put_handle(struct xdr_out *x, const struct nfs4_fh *fh)
{
    uint8_t handle[NFS_HANDLE_SIZE];
    if (fh->kind == NFS4_FH_ROOT)
        handle_encode_pseudo_root(handle);
    else
        handle_encode(&fh->object, handle);
    xdr_put_opaque(x, handle, sizeof handle);
}

static uint64_t mounted_on(const struct nfs4_attr_source *from, uint64_t fileid)
{
    if (from->fh->kind == NFS4_FH_OBJECT && from->fh->object.ino && nfs4_is_volume_root(&from->fh->object))
        return pseudo_mounted_on(from->fh->object.tree);
    return fileid;
}

static void put_fs_value(struct xdr_out *x, unsigned bit, const struct nfs4_compound *c,
                         const struct store_usage *usage)
{
    switch (bit) {
    case FATTR4_SUPPORTED_ATTRS: nfs4_put_bitmap(x, &supported[c->minor]); break;
    case FATTR4_FH_EXPIRE_TYPE: xdr_put_u32(x, 0); break; /* FH4_PERSISTENT */
    case FATTR4_LINK_SUPPORT:
    case FATTR4_SYMLINK_SUPPORT:
    case FATTR4_UNIQUE_HANDLES:
    case FATTR4_CANSETTIME:
    case FATTR4_CASE_PRESERVING:
    case FATTR4_CHOWN_RESTRICTED:
    case FATTR4_HOMOGENEOUS:
    case FATTR4_NO_TRUNC: xdr_put_bool(x, true); break;
    case FATTR4_NAMED_ATTR:
    case FATTR4_CASE_INSENSITIVE: xdr_put_bool(x, false); break;
    case FATTR4_LEASE_TIME: xdr_put_u32(x, state_lease_seconds()); break;
    case FATTR4_FILES_AVAIL:
    case FATTR4_FILES_FREE: xdr_put_u64(x, usage->files_free); break;
    case FATTR4_FILES_TOTAL: xdr_put_u64(x, usage->files_total); break;
    case FATTR4_MAXFILESIZE: xdr_put_u64(x, STORE_FILE_MAX); break;
    case FATTR4_MAXLINK: xdr_put_u32(x, STORE_LINKS_MAX); break;
    case FATTR4_MAXNAME: xdr_put_u32(x, STORE_NAME_MAX); break;
    case FATTR4_MAXREAD:
    case FATTR4_MAXWRITE: xdr_put_u64(x, STORE_IO_MAX); break;
    case FATTR4_SPACE_AVAIL: xdr_put_u64(x, usage->bytes_available); break;
    case FATTR4_SPACE_FREE: xdr_put_u64(x, usage->bytes_free); break;
    case FATTR4_SPACE_TOTAL: xdr_put_u64(x, usage->bytes_total); break;
    case FATTR4_TIME_DELTA: put_time(x, (struct store_time){.nanoseconds = 1}); break;
    case FATTR4_SUPPATTR_EXCLCREAT: nfs4_put_bitmap(x, &exclusive); break;
    case FATTR4_CLONE_BLKSIZE: xdr_put_u32(x, STORE_BLOCK); break;
    case FATTR4_CHANGE_ATTR_TYPE: xdr_put_u32(x, CHANGE_MONOTONIC); break;
    default: break;
    }
}

static void put_value(struct xdr_out *x, unsigned bit, const struct nfs4_compound *c,
                      const struct nfs4_attr_source *from)
{
    const struct store_attr *attr = from->attr;
    uint64_t fileid = attr ? attr->fileid : from->fileid;
    switch (bit) {
    case FATTR4_RDATTR_ERROR: xdr_put_u32(x, from->error); break;
    case FATTR4_FILEHANDLE: put_handle(x, from->fh); break;
    case FATTR4_FILEID: xdr_put_u64(x, fileid); break;
    case FATTR4_MOUNTED_ON_FILEID: xdr_put_u64(x, mounted_on(from, fileid)); break;
    case FATTR4_TYPE: xdr_put_u32(x, attr->type); break; /* nfs_ftype4 has the store's numbers */
    case FATTR4_CHANGE: xdr_put_u64(x, attr->change); break;
    case FATTR4_SIZE: xdr_put_u64(x, attr->size); break;
    case FATTR4_FSID:
        xdr_put_u64(x, attr->fsid);
        xdr_put_u64(x, 0);
        break;
    case FATTR4_MODE: xdr_put_u32(x, attr->mode); break;
    case FATTR4_NUMLINKS: xdr_put_u32(x, attr->nlink); break;
    case FATTR4_OWNER: put_number(x, attr->uid); break;
    case FATTR4_OWNER_GROUP: put_number(x, attr->gid); break;
    case FATTR4_RAWDEV:
        xdr_put_u32(x, attr->rdev_major);
        xdr_put_u32(x, attr->rdev_minor);
        break;
    case FATTR4_SPACE_USED: xdr_put_u64(x, attr->used); break;
    case FATTR4_TIME_ACCESS: put_time(x, attr->atime); break;
    case FATTR4_TIME_CREATE: put_time(x, attr->btime); break;
    case FATTR4_TIME_METADATA: put_time(x, attr->ctime); break;
    case FATTR4_TIME_MODIFY: put_time(x, attr->mtime); break;
    default: put_fs_value(x, bit, c, from->usage);
    }
}
_Static_assert(STORE_REG == 1 && STORE_FIFO == 7, "nfs_ftype4 on the wire");

void nfs4_put_attrs(const struct nfs4_compound *c, const struct nfs4_bitmap *map,
                    const struct nfs4_attr_source *from)
{
    struct xdr_out *x = &c->call->out;
    struct nfs4_bitmap there = readable(c->minor);
    for (unsigned i = 0; i < ATTR_WORDS; i++)
        there.word[i] &= map->word[i];
    if (!from->attr) {
        there.word[0] &= BIT(RDATTR_ERROR) | BIT(FILEID);
        there.word[1] &= BIT(MOUNTED_ON_FILEID);
        there.word[2] = 0;
    }
    if (from->fh->kind == NFS4_FH_OBJECT && !from->fh->object.ino)
        there.word[0] &= ~(uint32_t)BIT(FILEHANDLE);
    nfs4_put_bitmap(x, &there);
    uint8_t *length = xdr_reserve(x, 4);
    for (unsigned i = 0; i < ATTR_WORDS; i++)
        for (uint32_t left = there.word[i]; left; left &= left - 1)
            put_value(x, i * 32 + (unsigned)__builtin_ctz(left), c, from);
    if (length && !x->full) {
        uint32_t bytes = htobe32((uint32_t)(x->at - length - 4));
        memcpy(length, &bytes, sizeof bytes);
    }
}

/* ---- where they come from ---- */

int nfs4_usage(const struct nfs4_fh *fh, const struct nfs4_bitmap *map, struct store_usage *out)
{
    if (fh->kind == NFS4_FH_OBJECT && nfs4_wants_usage(map))
        return nfs_server.ops->usage(nfs_server.store, fh->object.tree, out);
    memset(out, 0, sizeof *out);
    return 0;
}

int nfs4_attr(const struct nfs4_compound *c, const struct nfs4_fh *fh, struct store_attr *out)
{
    if (fh->kind == NFS4_FH_ROOT) {
        pseudo_attr(c, out);
        return 0;
    }
    return nfs_server.ops->getattr(nfs_server.store, &fh->object, out);
}
