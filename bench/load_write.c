/* Files written whole: CREATE (an old one becomes empty), WRITEs with up to --inflight at once,
 * COMMIT at the end and wherever a program would call fsync.  What `--prepare` does, too. */
#include "load_files.h"

int write_open(struct conn *c, uint32_t number)
{
    return files_open(c, number);
}

void write_start(struct conn *c, uint64_t ticket, uint64_t start_ns)
{
    struct file_job *job = files_take(c, ticket % c->options->files, start_ns);
    struct load_slot *slot = files_call(c, job, NFS3_CREATE, c->now);
    slot->learn = true;
    conn_call(c, slot);
}

static uint64_t write_limit(const struct load_options *o, const struct file_job *job)
{
    bool all = !o->sync_every || o->file_size - job->synced <= o->sync_every;
    return all ? o->file_size : job->synced + o->sync_every;
}

/* Goes on behind what is stable; true when nothing is left to do. */
static bool write_more(struct conn *c, struct file_job *job)
{
    const struct load_options *o = c->options;
    uint64_t limit = write_limit(o, job);
    while (job->next < limit && job->flying < o->inflight) {
        struct load_slot *slot = files_call(c, job, NFS3_WRITE, c->now);
        uint64_t left = limit - job->next;
        slot->offset = job->next;
        slot->length = left < o->size ? (uint32_t)left : o->size;
        job->next += slot->length;
        conn_call(c, slot);
    }
    if (job->flying)
        return false;
    if (job->synced == o->file_size || o->no_commit)
        return true;
    conn_call(c, files_call(c, job, NFS3_COMMIT, c->now));
    return false;
}

/* A server whose verifier changes has lost what was not yet stable (RFC 1813, 3.3.21). */
static bool write_verified(struct conn *c, struct file_job *job, const struct load_slot *slot)
{
    bool same = !job->verified || job->verifier == slot->verifier;
    if (!same)
        load_error(c->shared->counts, "COMMIT or WRITE: the write verifier has changed");
    job->verifier = slot->verifier;
    job->verified = slot->procedure == NFS3_WRITE;
    return same;
}

void write_reply(struct conn *c, const struct load_slot *slot, bool good)
{
    struct file_job *job = slot->job;
    if (good && slot->procedure == NFS3_WRITE) {
        conn_count_extra(c, 0, slot->start_ns);
        good = write_verified(c, job, slot);
    } else if (good && slot->procedure == NFS3_COMMIT) {
        conn_count_extra(c, 1, slot->start_ns);
        good = write_verified(c, job, slot);
        job->synced = job->next;
    }
    if (files_over(c, job, good))
        return;
    if (!job->file.fh_length) /* a server need not return the handle */
        files_lookup(c, job);
    else if (write_more(c, job))
        files_finish(c, job);
}
