#include "store/local/ops_private.h"

bool perm_group(const struct store_cred *c, uint32_t gid)
{
    if (c->gid == gid)
        return true;
    for (uint32_t i = 0; i < c->group_count && i < STORE_GROUPS_MAX; i++) {
        if (c->groups[i] == gid)
            return true;
    }
    return false;
}

bool perm_mode(const struct store_cred *c, const struct inode *inode, unsigned want)
{
    if (c->uid == 0)
        return !(want & PERM_EXEC) || inode->type == STORE_DIR || (inode->mode & 0111) != 0;
    unsigned shift = c->uid == inode->uid ? 6 : perm_group(c, inode->gid) ? 3 : 0;
    return ((unsigned)inode->mode >> shift & want) == want;
}

static bool owns_file(const struct store_cred *c, const struct inode *inode)
{
    return inode->type == STORE_REG && c->uid == inode->uid;
}

int perm_read(const struct store_cred *c, const struct inode *inode)
{
    bool may = c->uid == 0 || owns_file(c, inode) || perm_mode(c, inode, PERM_READ) ||
               perm_mode(c, inode, PERM_EXEC);
    return may ? 0 : -EACCES;
}

int perm_write(const struct store_cred *c, const struct inode *inode)
{
    if (c->read_only)
        return -EROFS;
    return owns_file(c, inode) || perm_mode(c, inode, PERM_WRITE) ? 0 : -EACCES;
}

uint16_t perm_mode_after_write(const struct store_cred *c, const struct inode *inode)
{
    uint16_t mode = inode->mode;
    if (c->uid == 0)
        return mode;
    mode &= (uint16_t)~S_ISUID;
    /* Without group execution the bit once meant mandatory locks, not another group's rights. */
    if (mode & S_IXGRP)
        mode &= (uint16_t)~S_ISGID;
    return mode;
}

int perm_dir(const struct store_cred *c, const struct inode *dir, unsigned want)
{
    return perm_mode(c, dir, want) ? 0 : -EACCES;
}

int perm_sticky(const struct store_cred *c, const struct inode *dir, const struct inode *leaving)
{
    bool may =
        !(dir->mode & S_ISVTX) || c->uid == 0 || c->uid == dir->uid || c->uid == leaving->uid;
    return may ? 0 : -EPERM;
}

int perm_setattr(const struct store_cred *c, const struct inode *inode,
                 const struct store_setattr *set)
{
    if (c->uid == 0)
        return 0;
    bool owner = c->uid == inode->uid;
    int rc = set->set & STORE_SET_SIZE ? perm_write(c, inode) : 0;
    if (rc)
        return rc;
    if (set->set & STORE_SET_UID && (!owner || set->uid != inode->uid))
        return -EPERM;
    if (set->set & STORE_SET_GID &&
        (!owner || (set->gid != inode->gid && !perm_group(c, set->gid))))
        return -EPERM;
    if (set->set & (STORE_SET_MODE | STORE_SET_ATIME | STORE_SET_MTIME) && !owner)
        return -EPERM;
    if (set->set & (STORE_SET_ATIME_NOW | STORE_SET_MTIME_NOW) && !owner)
        return perm_mode(c, inode, PERM_WRITE) ? 0 : -EACCES;
    return 0;
}

uint32_t perm_access(const struct store_cred *c, const struct inode *inode, bool read_only)
{
    uint32_t granted = perm_mode(c, inode, PERM_READ) ? STORE_ACCESS_READ : 0;
    if (inode->type == STORE_DIR) {
        if (perm_mode(c, inode, PERM_EXEC))
            granted |= STORE_ACCESS_LOOKUP;
        if (!read_only && perm_mode(c, inode, PERM_WRITE | PERM_EXEC))
            granted |= STORE_ACCESS_MODIFY | STORE_ACCESS_EXTEND | STORE_ACCESS_DELETE;
        return granted;
    }
    if (perm_mode(c, inode, PERM_EXEC))
        granted |= STORE_ACCESS_EXECUTE;
    /* What is written to a device or pipe goes to the client's own kernel. */
    bool ours = inode->type == STORE_REG || inode->type == STORE_LNK;
    if (perm_mode(c, inode, PERM_WRITE) && !(read_only && ours))
        granted |= STORE_ACCESS_MODIFY | STORE_ACCESS_EXTEND;
    return granted;
}
