#include "nfs/nfs3.h"

static const struct {
    int error;
    enum nfs3_status status;
} statuses[] = {
    {-EPERM, NFS3ERR_PERM},
    {-ENOENT, NFS3ERR_NOENT},
    {-EIO, NFS3ERR_IO},
    {-ENXIO, NFS3ERR_NXIO},
    {-EACCES, NFS3ERR_ACCES},
    {-EEXIST, NFS3ERR_EXIST},
    {-EXDEV, NFS3ERR_XDEV},
    {-ENODEV, NFS3ERR_NODEV},
    {-ENOTDIR, NFS3ERR_NOTDIR},
    {-EISDIR, NFS3ERR_ISDIR},
    {-EINVAL, NFS3ERR_INVAL},
    {-EFBIG, NFS3ERR_FBIG},
    {-ENOSPC, NFS3ERR_NOSPC},
    {-EROFS, NFS3ERR_ROFS},
    {-EMLINK, NFS3ERR_MLINK},
    {-ENAMETOOLONG, NFS3ERR_NAMETOOLONG},
    {-ENOTEMPTY, NFS3ERR_NOTEMPTY},
    {-EDQUOT, NFS3ERR_DQUOT},
    {-ESTALE, NFS3ERR_STALE},
    {-EREMOTE, NFS3ERR_REMOTE},
    {-EOPNOTSUPP, NFS3ERR_NOTSUPP},
    /* Shortages pass: the client asks again, and the application sees nothing of it. */
    {-ENOMEM, NFS3ERR_JUKEBOX},
    {-EAGAIN, NFS3ERR_JUKEBOX},
    {-EBUSY, NFS3ERR_JUKEBOX},
    {SL_EDELAY, NFS3ERR_JUKEBOX},
    {SL_EREFUSED, NFS3ERR_JUKEBOX},
    {SL_EBADHANDLE, NFS3ERR_BADHANDLE},
    {SL_ENOTSYNC, NFS3ERR_NOT_SYNC},
    {SL_EBADCOOKIE, NFS3ERR_BAD_COOKIE},
    {SL_ETOOSMALL, NFS3ERR_TOOSMALL},
    {SL_EBADTYPE, NFS3ERR_BADTYPE},
    {SL_EFROZEN, NFS3ERR_IO},
    {SL_ECORRUPT, NFS3ERR_IO},
};

/* Where RFC 1813's list for a procedure (its section "ERRORS") lacks a status and names another for the case. */
static const struct {
    enum nfs3_procedure procedure;
    enum nfs3_status status, instead;
} exceptions[] = {
    {NFS3_SETATTR, NFS3ERR_ISDIR, NFS3ERR_INVAL},
    {NFS3_READ, NFS3ERR_ISDIR, NFS3ERR_INVAL},
    {NFS3_WRITE, NFS3ERR_ISDIR, NFS3ERR_INVAL},
};

static enum nfs3_status plain_status(int error)
{
    for (unsigned i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].error == error)
            return statuses[i].status;
    return NFS3ERR_SERVERFAULT;
}

enum nfs3_status nfs3_status(enum nfs3_procedure procedure, int error)
{
    if (error == 0)
        return NFS3_OK;
    enum nfs3_status status = plain_status(error);
    for (unsigned i = 0; i < sizeof exceptions / sizeof *exceptions; i++)
        if (exceptions[i].procedure == procedure && exceptions[i].status == status)
            return exceptions[i].instead;
    return status;
}
