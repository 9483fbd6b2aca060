/* The one error space of the server: negative errno values, and a few of our own below -4095.
 * Every function that can fail returns int: 0 or a count when it went well, one of these otherwise.
 * Each protocol has one table from here to its own numbers (nfs/nfs3_status.c).  Any thread. */
#ifndef SLUICE_BASE_ERROR_H
#define SLUICE_BASE_ERROR_H

#include <errno.h>

enum sl_error {
    SL_EWAIT = -4096,      /* would have to wait, and the caller is not a coroutine: run again in one */
    SL_EBADHANDLE = -4097, /* not a handle of ours: wrong size, format, pool or hash */
    SL_ENOTSYNC = -4098,   /* a guard (SETATTR's ctime) does not match */
    SL_EBADCOOKIE = -4099, /* a directory cookie that no listing gave out */
    SL_ETOOSMALL = -4100,  /* the caller's limit leaves no room for one entry */
    SL_EBADTYPE = -4101,   /* an object type that cannot be made */
    SL_EDELAY = -4102,     /* not now: the client shall ask again later (JUKEBOX, DELAY) */
    SL_EREFUSED = -4103,   /* what a mutation was prepared from has changed: prepare it again */
    SL_EFROZEN = -4104,    /* the pool takes no changes after a failed write; clients see an I/O error */
    SL_ECORRUPT = -4105,   /* a record or block that does not match its checksum or format */
};

/* A sentence fragment for people: "no space left", never NULL, static storage. */
const char *sl_strerror(int error);

/* The symbolic name for programs: "ENOSPC", "SL_EWAIT", never NULL, static storage. */
const char *sl_errname(int error);

#endif
