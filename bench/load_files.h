/* What reading and writing whole files share: the files that a connection is busy with. */
#ifndef BENCH_LOAD_FILES_H
#define BENCH_LOAD_FILES_H

#include "load_conn.h"

struct file_job {
    struct load_file file;
    struct file_job *next_free;
    uint64_t index, start_ns;
    uint64_t next, synced; /* bytes asked for or sent; bytes known to be stable */
    uint64_t verifier;     /* of the WRITEs since the last COMMIT */
    uint32_t flying;
    bool failed, verified;
};

struct files_state {
    struct file_job *free;
    struct file_job jobs[];
};

/* There must be room. */
struct file_job *files_take(struct conn *c, uint64_t index, uint64_t start_ns);
struct load_slot *files_call(struct conn *c, struct file_job *job, enum procedure procedure,
                             uint64_t start_ns);
void files_lookup(struct conn *c, struct file_job *job);
/* To be called with each reply: whether the file is given up, since a call failed or time is over. */
bool files_over(struct conn *c, struct file_job *job, bool good);
void files_finish(struct conn *c, struct file_job *job); /* counts it as done */

#endif
