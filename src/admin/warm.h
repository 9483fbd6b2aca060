/* Warm-up: loads what will be read into RAM before it is asked for.  A tree is walked and read in batches; a list of
 * names is followed in its order, some way ahead of the reader.  A job is one coroutine (and one that counts the
 * tree); it ends with its client's connection. */
#ifndef SLUICE_ADMIN_WARM_H
#define SLUICE_ADMIN_WARM_H

#include "admin/commands.h"

enum {
    WARM_JOBS_MOST = 8,
    WARM_BATCH_BYTES = 64 << 20,
    WARM_BATCH_RANGES = 4096,
    WARM_FAILURES_SAID = 10, /* the others are only counted */
};

struct warm_batch {
    unsigned count, files; /* files: that end in this batch */
    uint64_t bytes;
    struct store_range at[WARM_BATCH_RANGES];
};

struct warm_job {
    struct warm_job *next; /* of those running */
    struct request *request;
    struct store *store;
    uint32_t tree;
    char volume[2 * VOLUME_NAME_MAX + 2]; /* or VOL@NAME */
    const char *what; /* the path, or "list" */
    struct warm_batch *batch;
    uint64_t cache_bytes, said_ns;
    bool share; /* cache_bytes is the volume's share, not the whole cache */
    _Atomic uint64_t done_files, done_bytes, total_files, total_bytes, failed;
    _Atomic uint64_t disk_bytes, present_bytes, full_bytes;
    _Atomic bool totals_known, scanning, cancelled;
    /* of a list */
    bool list;
    _Atomic bool waiting;            /* for the reader */
    _Atomic uint64_t ahead_bytes;    /* loaded and not read yet */
    _Atomic uint64_t read_files, passed_files; /* passed: the reader went on without them */
};

/* ---- warm.c ---- */

/* Adds a piece of a file (at most WARM_BATCH_BYTES); `last`: the file's last. */
void warm_add(struct warm_job *job, const struct store_object *o, uint64_t offset, uint64_t length, bool last);
bool warm_batch_full(const struct warm_job *job);
/* Loads what was added.  -ECANCELED when nobody waits for it any more. */
int warm_load(struct warm_job *job);
/* Tells the client now and then; -ECANCELED as above. */
int warm_say(struct warm_job *job);
/* A name that cannot be warmed. */
int warm_failed(struct warm_job *job, const char *path, size_t length, const char *reason);
/* Does a part of the path lead up?  Then it may leave what was meant. */
bool warm_leads_up(const char *path, size_t length);
/* For `status`: an array. */
json_t *warm_status(void);

/* ---- warm_tree.c, warm_list.c: the work itself; 0 or an error ---- */

/* Everything under a directory, or one file.  *cut: the rest did not go into the cache. */
int warm_tree(struct warm_job *job, const struct store_object *top, bool *cut);
/* The names that the client sends when asked: {"event":"more"} is answered by {"names":[NAME or {"name_hex":HEX}...],
 * "end":true after the last}.  At most `ahead` bytes are loaded and not read. */
int warm_list(struct warm_job *job, uint64_t ahead);

#endif
