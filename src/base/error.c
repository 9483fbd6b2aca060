#include "sluice/base_error.h"

#include <stddef.h>
#include <string.h>

struct own_error {
    int error;
    const char *name, *text;
};

static const struct own_error own_errors[] = {
    {SL_EWAIT, "SL_EWAIT", "would have to wait"},
    {SL_EBADHANDLE, "SL_EBADHANDLE", "not a file handle of this server"},
    {SL_ENOTSYNC, "SL_ENOTSYNC", "the object has changed since it was looked at"},
    {SL_EBADCOOKIE, "SL_EBADCOOKIE", "a directory cookie that was never given out"},
    {SL_ETOOSMALL, "SL_ETOOSMALL", "no room for a single entry"},
    {SL_EBADTYPE, "SL_EBADTYPE", "objects of this type cannot be made"},
    {SL_EDELAY, "SL_EDELAY", "not possible now, try again later"},
    {SL_EREFUSED, "SL_EREFUSED", "what the change was prepared from is no longer so"},
    {SL_EFROZEN, "SL_EFROZEN", "the pool takes no changes after a failed write"},
    {SL_ECORRUPT, "SL_ECORRUPT", "does not match its checksum or format"},
};

/* Where the C library's words do not go well in the middle of a sentence. */
static const struct own_error words[] = {
    {-EPERM, NULL, "not permitted"},
    {-ENOENT, NULL, "no such file or directory"},
    {-EIO, NULL, "I/O error"},
    {-EAGAIN, NULL, "temporarily unavailable"},
    {-ENOMEM, NULL, "out of memory"},
    {-EACCES, NULL, "permission denied"},
    {-EBUSY, NULL, "in use"},
    {-EEXIST, NULL, "exists already"},
    {-EXDEV, NULL, "on another volume"},
    {-ENOTDIR, NULL, "not a directory"},
    {-EISDIR, NULL, "a directory"},
    {-EINVAL, NULL, "invalid argument"},
    {-ENFILE, NULL, "too many open files in the system"},
    {-EMFILE, NULL, "too many open files"},
    {-EFBIG, NULL, "file too large"},
    {-ENOSPC, NULL, "no space left"},
    {-EROFS, NULL, "read-only"},
    {-EMLINK, NULL, "too many links"},
    {-ERANGE, NULL, "out of range"},
    {-ENAMETOOLONG, NULL, "name too long"},
    {-ENOSYS, NULL, "not implemented"},
    {-ENOTEMPTY, NULL, "directory not empty"},
    {-ENODATA, NULL, "no such attribute"},
    {-EOPNOTSUPP, NULL, "not supported"},
    {-EADDRINUSE, NULL, "address already in use"},
    {-ECONNREFUSED, NULL, "connection refused"},
    {-ECONNRESET, NULL, "connection reset"},
    {-ETIMEDOUT, NULL, "timed out"},
    {-ESTALE, NULL, "stale file handle"},
    {-EDQUOT, NULL, "size limit reached"},
    {-ECANCELED, NULL, "cancelled"},
};

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static const struct own_error *find(const struct own_error *table, size_t count, int error)
{
    for (size_t i = 0; i < count; i++)
        if (table[i].error == error)
            return &table[i];
    return NULL;
}

const char *sl_strerror(int error)
{
    if (error >= 0)
        return "no error";
    const struct own_error *known = find(own_errors, COUNT(own_errors), error);
    if (!known)
        known = find(words, COUNT(words), error);
    if (known)
        return known->text;
    const char *text = error > SL_EWAIT ? strerrordesc_np(-error) : NULL;
    return text ? text : "unknown error";
}

const char *sl_errname(int error)
{
    if (error >= 0)
        return "OK";
    const struct own_error *known = find(own_errors, COUNT(own_errors), error);
    if (known)
        return known->name;
    const char *name = error > SL_EWAIT ? strerrorname_np(-error) : NULL;
    return name ? name : "UNKNOWN";
}
