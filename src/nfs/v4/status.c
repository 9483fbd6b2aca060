#include "nfs/v4/compound.h"

static const struct {
    int error;
    enum nfs4_status status;
} statuses[] = {
    {-EPERM, NFS4ERR_PERM},
    {-ENOENT, NFS4ERR_NOENT},
    {-EIO, NFS4ERR_IO},
    {-ENXIO, NFS4ERR_NXIO},
    {-EACCES, NFS4ERR_ACCESS},
    {-EEXIST, NFS4ERR_EXIST},
    {-EXDEV, NFS4ERR_XDEV},
    {-ENOTDIR, NFS4ERR_NOTDIR},
    {-EISDIR, NFS4ERR_ISDIR},
    {-EINVAL, NFS4ERR_INVAL},
    {-EFBIG, NFS4ERR_FBIG},
    {-ENOSPC, NFS4ERR_NOSPC},
    {-EROFS, NFS4ERR_ROFS},
    {-EMLINK, NFS4ERR_MLINK},
    {-ENAMETOOLONG, NFS4ERR_NAMETOOLONG},
    {-ENOTEMPTY, NFS4ERR_NOTEMPTY},
    {-EDQUOT, NFS4ERR_DQUOT},
    {-ESTALE, NFS4ERR_STALE},
    {-EOPNOTSUPP, NFS4ERR_NOTSUPP},
    /* Shortages pass: the client asks again, and the application sees nothing of it. */
    {-ENOMEM, NFS4ERR_DELAY},
    {-EAGAIN, NFS4ERR_DELAY},
    {-EBUSY, NFS4ERR_DELAY},
    {SL_EDELAY, NFS4ERR_DELAY},
    {SL_EREFUSED, NFS4ERR_DELAY},
    {SL_EWAIT, NFS4_WAIT},
    {SL_EBADHANDLE, NFS4ERR_BADHANDLE},
    {SL_EBADCOOKIE, NFS4ERR_BAD_COOKIE},
    {SL_ETOOSMALL, NFS4ERR_TOOSMALL},
    {SL_EBADTYPE, NFS4ERR_BADTYPE},
    {SL_EFROZEN, NFS4ERR_IO},
    {SL_ECORRUPT, NFS4ERR_IO},
};

/* Where an operation's list of errors (RFC 8881, 15.2; RFC 7530, 13.2) has another status for the case. */
static const struct {
    uint32_t minor; /* and later ones */
    enum nfs4_op op;
    enum nfs4_status status, instead;
} exceptions[] = {
    {1, OP4_SETATTR, NFS4ERR_ISDIR, NFS4ERR_INVAL},
};

static enum nfs4_status plain_status(int error)
{
    for (unsigned i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].error == error)
            return statuses[i].status;
    return NFS4ERR_SERVERFAULT;
}

enum nfs4_status nfs4_status(const struct nfs4_compound *c, int error)
{
    if (error == 0)
        return NFS4_OK;
    enum nfs4_status status = plain_status(error);
    for (unsigned i = 0; i < sizeof exceptions / sizeof *exceptions; i++)
        if (c->minor >= exceptions[i].minor && exceptions[i].op == c->op && exceptions[i].status == status)
            return exceptions[i].instead;
    return status;
}
