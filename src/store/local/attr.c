#include "store/local/ops_private.h"

enum { SECTOR = 512, DIR_SIZE = 4096 };

static uint64_t visible_size(const struct inode *inode)
{
    return inode->type == STORE_DIR ? DIR_SIZE : inode->size;
}

/* Never 0 for a file with bytes: archivers take such files for one hole and do not read them. */
static uint64_t used_bytes(const struct inode *inode)
{
    if (inode->type == STORE_DIR)
        return DIR_SIZE;
    if (inode->blocks)
        return inode->blocks * STORE_BLOCK;
    uint64_t within = inode->size < INLINE_MAX ? inode->size : INLINE_MAX;
    return (within + SECTOR - 1) / SECTOR * SECTOR;
}

/* Some clients judge by this alone whether a mount point's inside is its outside. */
uint64_t attr_fileid(const struct tree *tree, uint64_t ino)
{
    return ino + ((uint64_t)tree->number << 40);
}

void attr_from_inode(const struct tree *tree, const struct inode *inode, struct store_attr *out)
{
    *out = (struct store_attr){
        .type = (enum store_type)inode->type,
        .mode = inode->mode & 07777u,
        .nlink = inode->nlink,
        .uid = inode->uid,
        .gid = inode->gid,
        .rdev_major = inode->rdev_major,
        .rdev_minor = inode->rdev_minor,
        .tree = tree->id,
        .generation = inode->generation,
        .size = visible_size(inode),
        .used = used_bytes(inode),
        .fsid = tree->fsid,
        .fileid = attr_fileid(tree, inode->ino),
        .change = inode->change,
        .atime = inode->atime,
        .mtime = inode->mtime,
        .ctime = inode->ctime,
        .btime = inode->btime,
    };
}

void wcc_before(struct store_wcc *wcc, const struct inode *inode)
{
    wcc->has_before = true;
    wcc->before_size = visible_size(inode);
    wcc->before_change = inode->change;
    wcc->before_mtime = inode->mtime;
    wcc->before_ctime = inode->ctime;
}

void wcc_after(struct store_wcc *wcc, const struct tree *tree, const struct inode *inode)
{
    wcc->has_after = true;
    attr_from_inode(tree, inode, &wcc->after);
}

static bool time_is_valid(const struct store_time *time)
{
    return time->nanoseconds < 1000000000;
}

int times_check(const struct store_setattr *set)
{
    if ((set->set & STORE_SET_ATIME && !time_is_valid(&set->atime)) ||
        (set->set & STORE_SET_MTIME && !time_is_valid(&set->mtime)))
        return -EINVAL;
    return 0;
}

struct store_time time_after(struct store_time last, struct store_time now)
{
    if (now.seconds > last.seconds ||
        (now.seconds == last.seconds && now.nanoseconds > last.nanoseconds))
        return now;
    if (++last.nanoseconds == 1000000000) {
        last.nanoseconds = 0;
        last.seconds++;
    }
    return last;
}

struct store_time attr_change_time(const struct inode *inode, struct store_time now)
{
    return time_after(inode->ctime, now);
}

void inode_changed(struct inode *inode, struct store_time now, uint64_t change)
{
    inode->ctime = attr_change_time(inode, now);
    inode->change = change;
}

void inode_modified(struct inode *inode, struct store_time now, uint64_t change)
{
    inode_changed(inode, now, change);
    inode->mtime = inode->ctime;
}
