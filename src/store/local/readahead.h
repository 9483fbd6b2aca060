/* Read-ahead: loads into RAM what readers are about to ask for.  Sequential streams of a file (streams.h) are kept
 * ahead of by up to some MiB; all of it together stays within a small part of the cache, or what was loaded for one
 * would be gone before it is used.  Reads that follow no order are left alone. */
#ifndef SLUICE_STORE_LOCAL_READAHEAD_H
#define SLUICE_STORE_LOCAL_READAHEAD_H

#include "store/local/meta.h"

int readahead_open(struct local *l); /* after cache_open() */
/* Waits for what is being loaded; before cache_close().  Not on a worker. */
void readahead_close(struct local *l);

/* A READ of [offset, end) of the file that did not find all in RAM, or found what was loaded ahead.  On a worker,
 * its main stack included; returns at once. */
void readahead_note(struct local *l, const struct store_object *o, const struct inode *inode, uint64_t offset,
                    uint64_t end);

#endif
