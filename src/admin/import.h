/* The importer: reads a local tree into a volume.  Some coroutines on all workers share a stack of directories
 * (the deepest first, so memory stays bounded) and take a few entries at a time; large files are shared in ranges.
 * Whatever blocks (reading the local tree) runs on the blocking threads. */
#ifndef SLUICE_ADMIN_IMPORT_H
#define SLUICE_ADMIN_IMPORT_H

#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>

#include "admin/commands.h"
#include "sluice/base_coro.h"

/* Many at once fill the groups that commit: a tree of 62,000 small files took 18 s with 64 of them, 7.5 s with 256. */
enum { IMPORT_COROUTINES = 256, IMPORT_BATCH = 16, IMPORT_RANGE = 16 << 20 };

/* A local directory and its image in the volume.  Freed, and its times set, when its last entry is done. */
struct import_dir {
    struct import_dir *parent, *next; /* next: on the stack */
    DIR *stream;
    int fd; /* -1: not opened yet; the parent's is open until this one is freed */
    struct store_object object;
    struct stat st;
    _Atomic unsigned refs; /* subdirectories, batches in work, and one until it was listed to its end */
    bool busy, keep_owner;
    char name[]; /* of the top: its whole path */
};

/* A regular file whose content is being copied, in ranges by several coroutines if it is large. */
struct import_file {
    struct import_file *next;
    struct import_dir *dir;
    int fd;
    struct store_object object;
    struct stat st;
    uint64_t next_offset; /* of the next range; with import.lock */
    unsigned refs;        /* with import.lock */
    _Atomic int error;
    bool local_error; /* the error came from the local file */
    char name[NAME_MAX + 1];
};

struct import_entry {
    struct stat st;
    int error; /* of lstat */
    char name[NAME_MAX + 1];
};

struct import_failure {
    struct import_failure *next;
    char *path, *reason;
};

struct import_idle {
    struct import_idle *next;
    struct coro *coro;
};

struct import {
    struct request *request;
    struct store *store;
    uint32_t tree;
    dev_t pool_dev;
    ino_t pool_ino;
    char *from;
    _Atomic uint64_t done_bytes, done_files, skipped_files, skipped_bytes, failed_files, total_bytes, total_files;
    _Atomic bool totals_known, scanning, cancelled;
    _Atomic int fatal; /* an error after which going on makes no sense */
    _Atomic unsigned running;

    pthread_mutex_t lock; /* held for a few instructions */
    struct import_dir *stack;
    struct import_file *shared; /* large files with ranges to take */
    struct import_idle *idle;
    unsigned active;
    struct import_failure *failures, **failures_end;
    unsigned failure_count;

    pthread_mutex_t links_lock;
    void *links; /* tsearch: files with several names */
};

/* What one coroutine keeps between entries. */
struct import_worker {
    struct import *import;
    struct import_entry *entries;
    char *buffer; /* STORE_IO_MAX */
};

/* ---- import.c ---- */

void import_push_dir(struct import *im, struct import_dir *dir);
struct import_dir *import_dir_new(struct import_dir *parent, const char *name, const struct stat *st,
                                  const struct store_object *object);
void import_dir_release(struct import *im, struct import_dir *dir);
/* Offers a file's ranges to every coroutine. */
void import_share_file(struct import *im, struct import_file *file);
/* Records a file that could not be imported; waits while too many are unsent. `name` may be NULL. */
void import_failed(struct import *im, const struct import_dir *dir, const char *name, const char *what,
                   int error);
/* The same for an error of the store, which may end the import. */
void import_store_failed(struct import *im, const struct import_dir *dir, const char *name, int error);

/* ---- import_file.c ---- */

void import_entry(struct import_worker *w, struct import_dir *dir, const struct import_entry *entry);
/* Copies [from, to), then lets go of the file; whoever is last completes it. */
void import_copy_range(struct import_worker *w, struct import_file *file, uint64_t from, uint64_t to);
void import_times(struct store_setattr *set, const struct stat *st);

/* ---- import_links.c ---- */

enum import_link { IMPORT_LINK_FIRST, IMPORT_LINK_THERE, IMPORT_LINK_NO_MEMORY };
/* A name of a file with several: FIRST when the caller shall import it (and then call import_link_done), THERE with
 * the object that the earlier name led to.  Waits while another coroutine imports the first. */
enum import_link import_link_begin(struct import *im, const struct stat *st, struct store_object *out);
void import_link_done(struct import *im, const struct stat *st, const struct store_object *object);
void import_links_free(struct import *im);

/* ---- import_scan.c ---- */

/* Counts files and bytes for the progress; on a blocking thread. */
void import_scan(void *import);

#endif
