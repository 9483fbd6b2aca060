/* Files read whole, in the order of an epoch: LOOKUP, GETATTR, READs with up to --inflight at once.
 * Also records through shards, where each READ counts. */
#include <stdlib.h>

#include "load_files.h"

uint32_t files_slots(const struct load_options *o)
{
    return o->depth * o->inflight;
}

int files_open(struct conn *c, uint32_t number)
{
    const struct load_options *o = c->options;
    struct files_state *s = calloc(1, sizeof *s + o->depth * sizeof s->jobs[0]);
    (void)number;
    c->state = s;
    if (!s)
        return -1;
    for (uint32_t i = 0; i < o->depth; i++) {
        s->jobs[i].next_free = s->free;
        s->free = &s->jobs[i];
    }
    return 0;
}

void files_close(struct conn *c)
{
    free(c->state);
}

bool files_room(const struct conn *c)
{
    const struct files_state *s = c->state;
    return s->free;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Where `i` stands in a random order of 0 to n - 1 that follows from the key: a Feistel network
 * over the next even number of bits, gone through until the value is one of the n. */
static uint64_t permuted(uint64_t i, uint64_t n, uint64_t key)
{
    unsigned bits = n > 1 ? 64 - (unsigned)__builtin_clzll(n - 1) : 1, half = (bits + 1) / 2;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (unsigned round = 0; round < 6; round++) {
            uint64_t next = left ^ (mix(right + mix(key + round)) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

static uint64_t files_index(const struct conn *c, uint64_t ticket)
{
    const struct load_options *o = c->options;
    const uint32_t *listing = c->shared->target->listing;
    uint64_t epoch = ticket / o->files, i = ticket % o->files;
    if (o->order == ORDER_SHUFFLED)
        return permuted(i, o->files, mix(o->seed) + epoch * CONTENT_STEP);
    return listing ? listing[i] : i;
}

struct file_job *files_take(struct conn *c, uint64_t index, uint64_t start_ns)
{
    struct files_state *s = c->state;
    struct file_job *job = s->free;
    s->free = job->next_free;
    *job = (struct file_job){.index = index, .start_ns = start_ns};
    setup_file_content(c->options, index, &job->file);
    return job;
}

struct load_slot *files_call(struct conn *c, struct file_job *job, enum procedure procedure,
                             uint64_t start_ns)
{
    struct load_slot *slot = conn_slot(c, procedure, start_ns);
    slot->job = job;
    slot->file = &job->file;
    slot->index = job->index;
    job->flying++;
    return slot;
}

bool files_over(struct conn *c, struct file_job *job, bool good)
{
    struct files_state *s = c->state;
    job->flying--;
    job->failed |= !good;
    if (!job->failed && !c->shared->halt)
        return false;
    if (!job->flying) {
        job->next_free = s->free;
        s->free = job;
    }
    return true;
}

void files_finish(struct conn *c, struct file_job *job)
{
    struct files_state *s = c->state;
    if (!(c->options->op->flags & OP_RECORDS))
        conn_count_unit(c, job->start_ns);
    job->next_free = s->free;
    s->free = job;
}

void files_lookup(struct conn *c, struct file_job *job)
{
    struct load_slot *slot = files_call(c, job, NFS3_LOOKUP, c->now);
    slot->learn = true;
    conn_call(c, slot);
}

void files_start(struct conn *c, uint64_t ticket, uint64_t start_ns)
{
    files_lookup(c, files_take(c, files_index(c, ticket), start_ns));
}

static void files_getattr(struct conn *c, struct file_job *job)
{
    struct load_slot *slot = files_call(c, job, NFS3_GETATTR, c->now);
    slot->size = c->options->file_size;
    conn_call(c, slot);
}

static void files_read(struct conn *c, struct file_job *job)
{
    const struct load_options *o = c->options;
    while (job->next < o->file_size && job->flying < o->inflight) {
        struct load_slot *slot = files_call(c, job, NFS3_READ, c->now);
        uint64_t left = o->file_size - job->next;
        slot->offset = job->next;
        slot->length = left < o->size ? (uint32_t)left : o->size;
        job->next += slot->length;
        conn_call(c, slot);
    }
    if (!job->flying)
        files_finish(c, job);
}

void files_reply(struct conn *c, const struct load_slot *slot, bool good)
{
    struct file_job *job = slot->job;
    if (slot->procedure == NFS3_READ) {
        if (c->options->op->flags & OP_RECORDS)
            conn_count_unit(c, slot->start_ns);
        else
            conn_count_extra(c, 0, slot->start_ns);
    }
    if (files_over(c, job, good))
        return;
    if (slot->procedure == NFS3_LOOKUP)
        files_getattr(c, job);
    else
        files_read(c, job);
}
