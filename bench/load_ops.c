/* The table of operations, and those that are one call each. */
#include "load_conn.h"

static uint64_t stride_of(const struct load_options *o)
{
    return o->stride ? o->stride : o->size;
}

void conn_choose_region(struct conn *c, uint32_t number)
{
    const struct load_options *o = c->options;
    uint64_t sharers = (o->connections + o->files - 1) / o->files;
    uint64_t length = o->file_size / sharers / stride_of(o) * stride_of(o);
    c->file = &c->shared->target->files[number % o->files];
    c->region_start = c->cursor = number / o->files * length;
    c->region_end = c->region_start + length;
}

static int call_open(struct conn *c, uint32_t number)
{
    if (c->options->op->flags & OP_HANDLES)
        conn_choose_region(c, number);
    return 0;
}

static bool call_room(const struct conn *c)
{
    return c->free_count;
}

static void call_reply(struct conn *c, const struct load_slot *slot, bool good)
{
    (void)good;
    conn_count_unit(c, slot->start_ns);
}

static struct load_slot *call_slot(struct conn *c, uint64_t start_ns)
{
    struct load_slot *slot = conn_slot(c, c->options->op->procedure, start_ns);
    slot->length = c->options->size;
    return slot;
}

static struct load_file *any_file(struct conn *c)
{
    uint32_t files = c->options->files;
    return &c->shared->target->files[files > 1 ? conn_random(c, files) : 0];
}

static void start_random(struct conn *c, uint64_t ticket, uint64_t start_ns)
{
    const struct load_options *o = c->options;
    struct load_slot *slot = call_slot(c, start_ns);
    (void)ticket;
    slot->file = any_file(c);
    slot->index = (uint64_t)(slot->file - c->shared->target->files);
    if (o->size_max > o->size_min)
        slot->length = o->size_min + 8 * (uint32_t)conn_random(c, (o->size_max - o->size_min) / 8 + 1);
    if (o->align)
        slot->offset = conn_random(c, (o->file_size - slot->length) / o->align + 1) * o->align;
    else if (o->file_size >= stride_of(o))
        slot->offset = conn_random(c, o->file_size / stride_of(o)) * stride_of(o);
    conn_call(c, slot);
}

static void start_sequential(struct conn *c, uint64_t ticket, uint64_t start_ns)
{
    const struct load_options *o = c->options;
    struct load_slot *slot = call_slot(c, start_ns);
    uint64_t places = o->file_size / stride_of(o);
    if (o->count) {
        slot->file = &c->shared->target->files[ticket / places % o->files];
        slot->offset = ticket % places * stride_of(o);
    } else {
        slot->file = c->file;
        slot->offset = c->cursor;
        c->cursor += stride_of(o);
        if (c->cursor >= c->region_end)
            c->cursor = c->region_start;
    }
    conn_call(c, slot);
}

/* On the name of a ticket's number. */
static void start_named(struct conn *c, uint64_t ticket, uint64_t start_ns)
{
    struct load_slot *slot = call_slot(c, start_ns);
    slot->index = ticket;
    slot->guarded = true;
    conn_call(c, slot);
}

static void start_resolve(struct conn *c, uint64_t ticket, uint64_t start_ns)
{
    struct load_slot *slot = call_slot(c, start_ns);
    slot->index = ticket;
    slot->file = &c->shared->target->files[ticket];
    slot->learn = true;
    conn_call(c, slot);
}

#define ONE_CALL(how) .open = call_open, .room = call_room, .start = (how), .reply = call_reply
#define FILES                                                                                      \
    .slots = files_slots, .open = files_open, .close = files_close, .room = files_room,            \
    .start = files_start, .reply = files_reply
#define WRITES                                                                                     \
    .slots = files_slots, .open = write_open, .close = files_close, .room = files_room,            \
    .start = write_start, .reply = write_reply
#define LISTS .open = list_open, .close = list_close, .room = list_room, .start = list_start,      \
              .reply = list_reply

const struct load_operation load_operations[] = {
    {"read-rand", "READs at random places (--size-min, --size-max, --align)",
     OP_HANDLES | OP_ALIGNED | OP_READS | OP_V4, NFS3_READ, ONE_CALL(start_random)},
    {"read-seq", "READs one after another, each connection in its part of a file",
     OP_HANDLES | OP_ALIGNED | OP_READS | OP_V4, NFS3_READ, ONE_CALL(start_sequential)},
    {"write-rand", "WRITEs at random places", OP_HANDLES | OP_MAKES | OP_ALIGNED, NFS3_WRITE,
     ONE_CALL(start_random)},
    {"write-seq", "WRITEs one after another", OP_HANDLES | OP_MAKES | OP_ALIGNED, NFS3_WRITE,
     ONE_CALL(start_sequential)},
    {"getattr", "GETATTR of the files", OP_HANDLES | OP_V4, NFS3_GETATTR, ONE_CALL(start_random)},
    {"lookup", "LOOKUP of the files' names", OP_HANDLES, NFS3_LOOKUP, ONE_CALL(start_random)},
    {"create", "CREATE of new names", 0, NFS3_CREATE, ONE_CALL(start_named)},
    {"remove", "REMOVE of names", 0, NFS3_REMOVE, ONE_CALL(start_named)},
    {"rmdir", "RMDIR of names", 0, NFS3_RMDIR, ONE_CALL(start_named)},
    {"truncate", "SETATTR of the size to --file-size", OP_HANDLES, NFS3_SETATTR,
     ONE_CALL(start_random)},
    {"files", "whole files: LOOKUP, GETATTR, READs", OP_WHOLE | OP_PROMPT | OP_READS, 0, {"read"},
     1 << 20, 4, 110 << 10, FILES},
    {"records", "READs of --size one after another through each of the files (shards)",
     OP_WHOLE | OP_PROMPT | OP_READS | OP_RECORDS, 0, {NULL}, 114660, 1, 1251 * 114660, FILES},
    {"checkpoint", "files written (CREATE, WRITEs, COMMIT), then read with --read-back", OP_WHOLE,
     0, {"write", "commit"}, 1 << 20, 16, 1 << 30, WRITES},
    {"readdir", "READDIR from the start to the end of --dir", OP_LISTS, NFS3_READDIR, {"call"},
     64 << 10, 1, 0, LISTS},
    {"readdirplus", "READDIRPLUS from the start to the end of --dir", OP_LISTS, NFS3_READDIRPLUS,
     {"call"}, 64 << 10, 1, 0, LISTS},
    {"stream-getattr", "one GETATTR at a time, while --depth READs stream on the same connection",
     OP_HANDLES | OP_ALIGNED | OP_PROMPT | OP_READS, 0, {"read"}, 1 << 20, 1, 0,
     stream_slots, stream_open, stream_close, stream_room, stream_start, stream_reply},
};
const size_t load_operation_count = sizeof load_operations / sizeof load_operations[0];

const struct load_operation op_prepare = {"prepare", NULL, OP_WHOLE, .extra = {"write", "commit"},
                                          WRITES};
const struct load_operation op_resolve = {"resolve", NULL, 0, NFS3_LOOKUP,
                                          ONE_CALL(start_resolve)};
const struct load_operation op_read_back = {"read-back", NULL, OP_WHOLE | OP_PROMPT | OP_READS,
                                            .extra = {"read"}, FILES};
