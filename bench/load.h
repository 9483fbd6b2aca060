/* The load generator's inside: a closed (or paced) loop of NFSv3 or NFSv4.1 calls over many
 * connections, every reply checked.
 *   load.c          a run from options to result: files made, epochs, reading back
 *   load_options.c  reads the options           load_report.c  prints the result
 *   load_ops.c      the table of operations, and those of one call
 *   load_files.c    whole files, and records through shards      load_write.c  files written
 *   load_list.c     listings                    load_stream.c  GETATTR beside a stream of READs
 *   load_setup.c    mounts and finds directories and files, with a blocking client
 *   load_run.c      threads, time and pace      load_conn.c    moves calls and replies
 *   load_rpc.c      writes calls, judges replies               load_frame.c  RPC frames
 *   load_v4.c       the same for NFSv4.1 and 4.2               load_v4_setup.c  its sessions, opens
 *   load_stats.c    counts
 * A connection belongs to one thread; what threads share (options, targets) does not change while
 * they run, the ticket counter excepted. */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "sluice/base_xdr.h"

enum {
    NFS_PROGRAM = 100003,
    MOUNT_PROGRAM = 100005,
    FH_MAX = 128,
    STATEID_SIZE = 16,
    SESSIONID_SIZE = 16,
    NAME_ROOM = 128,
    CALL_ROOM = 512,
    SLOTS_MAX = 4096, /* calls in flight on a connection: the slot's number is in the xid */
    EXTRAS = 2
};

enum procedure {
    NFS3_GETATTR = 1,
    NFS3_SETATTR = 2,
    NFS3_LOOKUP = 3,
    NFS3_ACCESS = 4,
    NFS3_READ = 6,
    NFS3_WRITE = 7,
    NFS3_CREATE = 8,
    NFS3_MKDIR = 9,
    NFS3_REMOVE = 12,
    NFS3_RMDIR = 13,
    NFS3_READDIR = 16,
    NFS3_READDIRPLUS = 17,
    NFS3_COMMIT = 21
};

struct load_operation;
enum load_order { ORDER_SHUFFLED, ORDER_LISTING, ORDER_DISK, ORDER_COUNT };

struct load_options {
    const char *host, *path, *dir, *prefix;
    uint16_t port, mount_port;
    const struct load_operation *op;
    enum load_order order;
    uint32_t connections, threads, prepare_connections;
    uint32_t minor; /* of NFS version 4; 0: version 3 */
    uint32_t depth, inflight; /* units at once on a connection, calls at once within a unit */
    uint32_t size, size_min, size_max, files, dirs, stable, uid, epochs;
    uint64_t file_size;  /* bytes of a data file */
    uint64_t stride;     /* from one sequential request to the next; 0: its size */
    uint64_t align;      /* of random offsets; 0: by stride and size */
    uint64_t sync_every; /* bytes of a file from COMMIT to COMMIT; 0: one at its end */
    uint64_t period;     /* content repeats after so many bytes, through all files; 0: no */
    uint64_t count;      /* units in all; 0: as many as fit into `seconds` */
    uint64_t first;      /* number in the first name */
    uint64_t rate;       /* units a second in all; 0: closed loop */
    uint64_t seed;       /* of the shuffled orders */
    double seconds, warmup;
    int server_pid, receive_buffer;
    bool prepare, check_full, read_back, no_commit, one_session;
};

struct load_file {
    uint8_t fh[FH_MAX];
    uint32_t fh_length;
    uint64_t id, base; /* byte N of the file is byte base + N of content `id` */
    uint8_t stateid[STATEID_SIZE]; /* of an open for reading */
};

/* Of NFSv4.1.  Each slot belongs to one connection. */
struct load_session {
    uint8_t id[SESSIONID_SIZE];
    uint32_t slots, *sequences; /* of each slot, the last one used */
};

struct load_target {
    struct load_file dir, *dirs; /* `dirs` are the o->dirs directories of files, or `dir` itself */
    struct load_file *files;     /* for operations on known handles */
    uint32_t *listing;           /* index of each file in the order of READDIR, or NULL */
    struct load_session *sessions; /* one for each connection, or one for all; NFSv3: NULL */
};

/* Content: each 8-byte word of a file follows from the file's id and the word's offset. */
#define CONTENT_STEP UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t content_word(uint64_t id, uint64_t offset)
{
    return (id + 1) * UINT64_C(0xd6e8feb86659fd93) + offset / 8 * CONTENT_STEP;
}

/* Whole words: up to 7 bytes more than `length`; `offset` is a multiple of 8. */
static inline void content_fill(void *to, uint64_t id, uint64_t offset, size_t length)
{
    uint64_t word = content_word(id, offset);
    uint8_t *at = to;
    for (size_t i = 0; i < length; i += 8, word += CONTENT_STEP)
        memcpy(at + i, &word, 8);
}

/* A histogram of nanoseconds, 64 steps an octave. */
enum { HIST_STEPS = 64, HIST_BUCKETS = HIST_STEPS * 40 };

struct hist {
    uint64_t count, max, buckets[HIST_BUCKETS];
};

void hist_add(struct hist *h, uint64_t ns);
void hist_merge(struct hist *into, const struct hist *from);
uint64_t hist_quantile(const struct hist *h, double q);
uint64_t clock_ns(void);
/* All threads, those that ended too; pid 0: this process; < 0: unknown. */
double process_cpu_seconds(int pid);

/* One call in flight. */
struct load_slot {
    uint32_t xid, length;
    enum procedure procedure;
    bool busy, learn, guarded; /* learn: LOOKUP and CREATE put the handle into *file */
    uint64_t start_ns, offset; /* offset: the cookie of READDIR */
    uint64_t index;            /* of the file that a name is of */
    uint64_t size;             /* what GETATTR must find, or UINT64_MAX */
    uint64_t verifier;         /* that WRITE or COMMIT answered */
    struct load_file *file;
    void *job;        /* the unit that it is part of */
    uint8_t *payload; /* of a WRITE */
};

/* What a thread has counted inside the measured time, and errors at any time. */
struct load_counts {
    struct hist latency, extra[EXTRAS]; /* of units, and of calls that an operation names */
    uint64_t operations, bytes, calls, entries, errors, jukebox;
    uint64_t missed; /* paced units that never started, since no connection had room */
    uint32_t last_status;
    char error[160]; /* the first one, in words */
};

void load_error(struct load_counts *counts, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* load_frame.c */
size_t rpc_call_header(struct xdr_out *x, uint32_t xid, uint32_t program, uint32_t version,
                       uint32_t procedure, uint32_t uid);
void rpc_put_fh(struct xdr_out *x, const struct load_file *file);
void rpc_finish_record(struct xdr_out *x, size_t payload);
bool rpc_reply_accepted(struct xdr_in *x); /* from after the xid to the results */

/* load_rpc.c */
void nfs_skip_attributes(struct xdr_in *x);
void nfs_encode_call(const struct load_options *o, const struct load_target *t,
                     const struct load_slot *slot, struct xdr_out *x);
void nfs_name(const struct load_options *o, uint64_t index, char name[NAME_ROOM]);
const struct load_file *nfs_dir(const struct load_options *o, const struct load_target *t,
                                uint64_t index);
/* The results of `slot`'s call, from after the xid on; false, and counted, when they are not those
 * expected. */
bool nfs_check_reply(const struct load_options *o, struct load_slot *slot, struct xdr_in *x,
                     struct load_counts *counts);
/* Takes a reply up to its status; false, and counted, unless that is 0. */
bool nfs_accepted(const struct load_slot *slot, struct xdr_in *x, struct load_counts *counts);
/* Reads a READ reply up to its data. */
bool nfs_read_header(const struct load_slot *slot, struct xdr_in *x, struct load_counts *counts);
/* `data` is what the reply holds at `position` of its payload.  Sampled: a word of each 512 bytes
 * and the last. */
bool nfs_check_words(const struct load_options *o, const struct load_slot *slot, uint32_t position,
                     const uint8_t *data, size_t length, struct load_counts *counts);

/* load_list.c: the entries of a READDIR or READDIRPLUS reply, from the directory's attributes on. */
void list_check(const struct load_options *o, struct load_slot *slot, struct xdr_in *x,
                struct load_counts *counts);

/* load_setup.c: mounts, finds or makes the directories, finds the data files (the writing
 * operations make them).  0, or -1 after a message. */
int setup_target(const struct load_options *o, struct load_target *t);
void setup_free(struct load_target *t);
int setup_connect(const struct load_options *o, uint16_t port);
void setup_file_content(const struct load_options *o, uint64_t index, struct load_file *file);

/* load_run.c: runs the load to its end with all threads; the counts are added to run->total. */
struct load_run {
    const struct load_options *options;
    struct load_target *target;
    struct load_counts total;
    double seconds, client_cpu, server_cpu;
    uint64_t first_ticket, tickets; /* numbers handed out; a ticket is a unit's number */
};

int load_run(struct load_run *run);
void load_run_add(struct load_run *total, const struct load_run *run);

/* load_report.c */
struct load_report {
    const struct load_run *total, *epochs, *read_back; /* epochs: options->epochs of them or NULL */
};

void report_print(const struct load_report *report);

/* load_options.c: ends the process after a message when they are wrong. */
struct load_options options_parse(int argc, char **argv);

#endif
