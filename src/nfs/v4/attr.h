/* Attributes (RFC 8881, 5; RFC 7862, 12): which there are in each minor version, out of what the store says, and into
 * what it is told to set.  Owners are numbers in decimal on the way out; on the way in NAME@DOMAIN is known too,
 * through this host's name service.  Workers. */
#ifndef SLUICE_NFS_V4_ATTR_H
#define SLUICE_NFS_V4_ATTR_H

#include "nfs/v4/compound.h"

enum { ATTR_WORDS = 3, ATTR_SIZE_MOST = 512 /* bytes of all that nfs4_put_attrs() may encode */ };

enum nfs4_attr {
    FATTR4_SUPPORTED_ATTRS, FATTR4_TYPE, FATTR4_FH_EXPIRE_TYPE, FATTR4_CHANGE, FATTR4_SIZE, FATTR4_LINK_SUPPORT,
    FATTR4_SYMLINK_SUPPORT, FATTR4_NAMED_ATTR, FATTR4_FSID, FATTR4_UNIQUE_HANDLES, FATTR4_LEASE_TIME,
    FATTR4_RDATTR_ERROR, FATTR4_ACL, FATTR4_ACLSUPPORT, FATTR4_ARCHIVE, FATTR4_CANSETTIME, FATTR4_CASE_INSENSITIVE,
    FATTR4_CASE_PRESERVING, FATTR4_CHOWN_RESTRICTED, FATTR4_FILEHANDLE, FATTR4_FILEID, FATTR4_FILES_AVAIL,
    FATTR4_FILES_FREE, FATTR4_FILES_TOTAL, FATTR4_FS_LOCATIONS, FATTR4_HIDDEN, FATTR4_HOMOGENEOUS, FATTR4_MAXFILESIZE,
    FATTR4_MAXLINK, FATTR4_MAXNAME, FATTR4_MAXREAD, FATTR4_MAXWRITE, FATTR4_MIMETYPE, FATTR4_MODE, FATTR4_NO_TRUNC,
    FATTR4_NUMLINKS, FATTR4_OWNER, FATTR4_OWNER_GROUP, FATTR4_QUOTA_AVAIL_HARD, FATTR4_QUOTA_AVAIL_SOFT,
    FATTR4_QUOTA_USED, FATTR4_RAWDEV, FATTR4_SPACE_AVAIL, FATTR4_SPACE_FREE, FATTR4_SPACE_TOTAL, FATTR4_SPACE_USED,
    FATTR4_SYSTEM, FATTR4_TIME_ACCESS, FATTR4_TIME_ACCESS_SET, FATTR4_TIME_BACKUP, FATTR4_TIME_CREATE,
    FATTR4_TIME_DELTA, FATTR4_TIME_METADATA, FATTR4_TIME_MODIFY, FATTR4_TIME_MODIFY_SET, FATTR4_MOUNTED_ON_FILEID,
    FATTR4_SUPPATTR_EXCLCREAT = 75, FATTR4_CLONE_BLKSIZE = 77, FATTR4_CHANGE_ATTR_TYPE = 79, FATTR4_MODE_UMASK = 81,
    FATTR4_XATTR_SUPPORT = 82,
};

struct nfs4_bitmap {
    uint32_t word[ATTR_WORDS];
    bool more; /* bits beyond those that anybody knows */
};

static inline bool nfs4_bit(const struct nfs4_bitmap *map, unsigned bit)
{
    return map->word[bit / 32] >> bit % 32 & 1;
}

/* Of any length that the arguments hold; at most ATTR_WORDS are kept. */
struct nfs4_bitmap nfs4_get_bitmap(struct xdr_in *x);
void nfs4_put_bitmap(struct xdr_out *x, const struct nfs4_bitmap *map);
/* The attributes there are: those that can be had, and those that can only be set as well. */
const struct nfs4_bitmap *nfs4_supported(uint32_t minor);
/* False: some are not there, or (nfs4_readable) can only be set. */
bool nfs4_all_supported(uint32_t minor, const struct nfs4_bitmap *map);
bool nfs4_all_readable(uint32_t minor, const struct nfs4_bitmap *map);

/* Where the values come from. */
struct nfs4_attr_source {
    const struct store_attr *attr;       /* NULL: fileid and mounted_on_fileid alone are known */
    const struct store_usage *usage;     /* needed where nfs4_wants_usage() */
    const struct nfs4_fh *fh;
    uint64_t fileid;                     /* without attr */
    enum nfs4_status error;              /* of rdattr_error */
};
bool nfs4_wants_usage(const struct nfs4_bitmap *map);
/* No more than fileids, errors and handles: then no inode has to be looked at. */
bool nfs4_wants_attr(const struct nfs4_bitmap *map);
/* A fattr4 of what of `map` is there, in at most ATTR_SIZE_MOST bytes. */
void nfs4_put_attrs(const struct nfs4_compound *c, const struct nfs4_bitmap *map,
                    const struct nfs4_attr_source *from);
/* Usage for the tree of fh, where wanted; zeroes for the pseudo root. */
int nfs4_usage(const struct nfs4_fh *fh, const struct nfs4_bitmap *map, struct store_usage *out);
/* Attributes of the current file handle. */
int nfs4_attr(const struct nfs4_compound *c, const struct nfs4_fh *fh, struct store_attr *out);

/* ---- setattr.c ---- */

/* A fattr4 that is to be set; *map says what it holds. `making`: of an object that is being made (mode_umask).
 * ATTRNOTSUPP, INVAL (may not be set, no sensible value), BADOWNER, BADXDR. */
enum nfs4_status nfs4_get_settable(struct nfs4_compound *c, bool making, struct nfs4_bitmap *map,
                                   struct store_setattr *set);

#endif
