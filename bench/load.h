/* The load generator's inside: a closed (or paced) loop of NFSv3 calls over many connections,
 * every reply checked. load.c reads the options and prints the result, load_setup.c mounts and
 * finds the files with a blocking client, load_rpc.c makes calls and judges replies, load_conn.c
 * moves them, load_stats.c counts.  A connection belongs to one thread; what threads share
 * (options, targets) does not change while they run, the ticket counter excepted. */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "sluice/base_xdr.h"

enum load_op {
    OP_READ_RAND,
    OP_READ_SEQ,
    OP_WRITE_RAND,
    OP_WRITE_SEQ,
    OP_GETATTR,
    OP_LOOKUP,
    OP_CREATE,
    OP_REMOVE,
    OP_RMDIR,
    OP_TRUNCATE,
    OP_COUNT
};

enum {
    NFS3_PROGRAM = 100003,
    MOUNT_PROGRAM = 100005,
    FH_MAX = 64,
    NAME_ROOM = 128,
    CALL_ROOM = 512
};

struct load_options {
    const char *host, *path, *dir, *prefix;
    uint16_t port, mount_port;
    enum load_op op;
    uint32_t connections, threads, depth, size, files, stable, uid;
    uint64_t file_size; /* bytes of a data file */
    uint64_t stride;    /* from one sequential request to the next; 0: its size */
    uint64_t period;    /* content repeats after so many bytes, alike in all files; 0: no */
    uint64_t count;     /* operations in all; 0: as many as fit into `seconds` */
    uint64_t first;     /* number in the first name */
    uint64_t rate;      /* operations a second in all; 0: closed loop */
    double seconds, warmup;
    int server_pid, receive_buffer;
    bool prepare, check_full;
};

struct load_file {
    uint8_t fh[FH_MAX];
    uint32_t fh_length;
    uint64_t id; /* the content depends on it */
};

struct load_target {
    struct load_file dir;
    struct load_file *files;
};

/* Content: each 8-byte word of a file follows from the file's id and the word's offset. */
#define CONTENT_STEP UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t content_word(uint64_t id, uint64_t offset)
{
    return (id + 1) * UINT64_C(0xd6e8feb86659fd93) + offset / 8 * CONTENT_STEP;
}

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
double process_cpu_seconds(
    int pid); /* all threads, those that ended too; pid 0: this process; < 0: unknown */

struct load_slot {
    uint32_t xid, length;
    bool busy;
    uint64_t start_ns, offset;
    const struct load_file *file;
    uint8_t *payload; /* of a WRITE */
};

/* What a thread has counted inside the measured time, and errors at any time. */
struct load_counts {
    struct hist latency;
    uint64_t operations, bytes, errors, jukebox;
    uint32_t last_status;
    char error[160]; /* the first one, in words */
};

/* load_rpc.c */
size_t rpc_call_header(struct xdr_out *x, uint32_t xid, uint32_t program, uint32_t procedure,
                       uint32_t uid);
void rpc_put_fh(struct xdr_out *x, const struct load_file *file);
void rpc_finish_record(struct xdr_out *x, size_t payload);
bool rpc_reply_accepted(struct xdr_in *x); /* from after the xid to the results */
uint32_t nfs_procedure(enum load_op op);
void nfs_encode_call(const struct load_options *o, const struct load_target *t,
                     struct load_slot *slot, uint64_t ticket, struct xdr_out *x);
void nfs_name(const struct load_options *o, uint64_t number, char name[NAME_ROOM]);
bool nfs_check_reply(const struct load_options *o, const struct load_slot *slot, struct xdr_in *x,
                     struct load_counts *counts);
/* Reads a READ reply up to its data; false, and counted, when it is not the one expected. */
bool nfs_read_header(const struct load_options *o, const struct load_slot *slot, struct xdr_in *x,
                     struct load_counts *counts);
bool nfs_check_words(const struct load_options *o, const struct load_slot *slot, uint32_t position,
                     const uint8_t *data, size_t length, struct load_counts *counts);
void load_error(struct load_counts *counts, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* load_setup.c: mounts, makes `dir`, finds or makes the data files.  0, or -1 after a message. */
int setup_target(const struct load_options *o, struct load_target *t);
int setup_commit(const struct load_options *o, const struct load_target *t);
int setup_connect(const struct load_options *o, uint16_t port);

/* load_conn.c: runs the load to its end with all threads; the counts are merged into *total. */
struct load_run {
    const struct load_options *options;
    const struct load_target *target;
    struct load_counts total;
    double seconds, client_cpu, server_cpu;
    uint64_t
        tickets; /* numbers handed out: names made or removed are first .. first + tickets - 1 */
};

int load_run(struct load_run *run);

#endif
