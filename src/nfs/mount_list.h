/* Who has mounted what: the list that MOUNT's DUMP shows.  Advisory (RFC 1813, 5.2.2), in RAM, bounded: past the
 * limit the oldest entry goes.  Any worker; the lock is held for microseconds. */
#ifndef SLUICE_NFS_MOUNT_LIST_H
#define SLUICE_NFS_MOUNT_LIST_H

#include <stdbool.h>

enum { MOUNT_LIST_MAX = 1024 };

/* Without memory the entry is left out: nothing depends on it. */
void mount_list_add(const char *host, const char *path);
void mount_list_remove(const char *host, const char *path); /* path NULL: all of the host */

/* Calls each() for every entry, with the lock held, until it returns false. */
void mount_list_each(bool (*each)(void *arg, const char *host, const char *path), void *arg);

#endif
