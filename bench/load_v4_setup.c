/* Before a run over NFSv4.1: one client for all connections, their sessions, the files found and opened. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "load_setup.h"

enum {
    OPEN_READ_NO_DELEGATION = 0x401, /* OPEN4_SHARE_ACCESS_READ | .._WANT_NO_DELEG */
    CLAIM_FH = 4,
    USE_NON_PNFS = 0x10000,
    MESSAGE_ROOM = 65536 /* of calls and replies, besides data */
};

/* A client, and the session with which it sets up: one slot. */
struct v4_client {
    struct setup *setup;
    uint64_t id;
    uint32_t sequence; /* of the next CREATE_SESSION */
    uint32_t slot;     /* its sequence */
    struct load_session session;
};

static void begin(struct v4_client *v, uint32_t operations)
{
    struct setup *s = v->setup;
    setup_begin(s, NFS_PROGRAM, 4, 1);
    v4_put_compound(&s->out, s->options->minor, operations);
}

static void begin_in_session(struct v4_client *v, uint32_t operations)
{
    begin(v, operations + 1);
    v4_put_sequence(&v->setup->out, &v->session, 0);
}

/* Calls; s->in stands before the first result behind SEQUENCE. */
static int finish(struct v4_client *v, const char *what, const char *name)
{
    struct setup *s = v->setup;
    int64_t status = setup_finish(s, what);
    if (status)
        return setup_fail(what, name, status);
    v4_skip_compound(&s->in);
    return 0;
}

static int finish_in_session(struct v4_client *v, const char *what, const char *name)
{
    int error = finish(v, what, name);
    if (!error && !v4_take_sequence(&v->setup->in, &v->session, 0)) {
        fprintf(stderr, "load: SEQUENCE: another result than was asked for\n");
        error = -1;
    }
    return error;
}

static int bad_reply(const char *what)
{
    fprintf(stderr, "load: %s: no good reply\n", what);
    return -1;
}

static int exchange_id(struct v4_client *v)
{
    struct setup *s = v->setup;
    char owner[32];
    snprintf(owner, sizeof owner, "load %d", (int)getpid());
    begin(v, 1);
    xdr_put_u32(&s->out, V4_EXCHANGE_ID);
    xdr_put_u64(&s->out, clock_ns()); /* verifier */
    xdr_put_opaque(&s->out, owner, (uint32_t)strlen(owner));
    xdr_put_u32(&s->out, USE_NON_PNFS);
    xdr_put_u32(&s->out, 0); /* SP4_NONE */
    xdr_put_u32(&s->out, 0); /* no implementation's name */
    if (finish(v, "EXCHANGE_ID", owner))
        return -1;
    bool good = v4_take(&s->in, V4_EXCHANGE_ID);
    v->id = xdr_get_u64(&s->in);
    v->sequence = xdr_get_u32(&s->in);
    return good && !s->in.bad ? 0 : bad_reply("EXCHANGE_ID");
}

static void put_channel(struct xdr_out *x, uint32_t size, uint32_t slots)
{
    const uint32_t channel[] = {0, size, size, 4096, 8, slots, 0};
    for (size_t i = 0; i < sizeof channel / sizeof channel[0]; i++)
        xdr_put_u32(x, channel[i]);
}

/* `sequences` has a word for each slot. */
static int create_session(struct v4_client *v, uint32_t slots, uint32_t *sequences,
                          struct load_session *session)
{
    struct setup *s = v->setup;
    begin(v, 1);
    xdr_put_u32(&s->out, V4_CREATE_SESSION);
    xdr_put_u64(&s->out, v->id);
    xdr_put_u32(&s->out, v->sequence++);
    xdr_put_u32(&s->out, 0); /* flags */
    put_channel(&s->out, s->options->size_max + MESSAGE_ROOM, slots);
    put_channel(&s->out, 4096, 1);
    xdr_put_u32(&s->out, 0x40000000); /* callback program */
    xdr_put_u64(&s->out, UINT64_C(1) << 32); /* one flavour: AUTH_NONE */
    if (finish(v, "CREATE_SESSION", ""))
        return -1;
    bool good = v4_take(&s->in, V4_CREATE_SESSION);
    const uint8_t *id = xdr_take(&s->in, SESSIONID_SIZE);
    xdr_take(&s->in, 12); /* sequence, flags, header padding */
    xdr_get_u32(&s->in);  /* most bytes of a request */
    uint32_t response = xdr_get_u32(&s->in);
    xdr_take(&s->in, 8);
    session->slots = xdr_get_u32(&s->in);
    session->sequences = sequences;
    if (!good || !id || s->in.bad)
        return bad_reply("CREATE_SESSION");
    memcpy(session->id, id, SESSIONID_SIZE);
    if (session->slots >= slots && response >= s->options->size_max + 512)
        return 0;
    fprintf(stderr, "load: the server gives a session %u slots (not %u) and replies of %u bytes\n",
            session->slots, slots, response);
    return -1;
}

static int reclaim_complete(struct v4_client *v)
{
    begin_in_session(v, 1);
    xdr_put_u32(&v->setup->out, V4_RECLAIM_COMPLETE);
    xdr_put_bool(&v->setup->out, false);
    return finish_in_session(v, "RECLAIM_COMPLETE", "");
}

/* PUTFH and LOOKUP (without a directory: PUTROOTFH), GETFH. */
static int lookup(struct v4_client *v, const struct load_file *dir, const char *name, size_t length,
                  struct load_file *file)
{
    struct setup *s = v->setup;
    begin_in_session(v, 3);
    xdr_put_u32(&s->out, dir->fh_length ? V4_PUTFH : V4_PUTROOTFH);
    if (dir->fh_length)
        rpc_put_fh(&s->out, dir);
    xdr_put_u32(&s->out, V4_LOOKUP);
    xdr_put_opaque(&s->out, name, (uint32_t)length);
    xdr_put_u32(&s->out, V4_GETFH);
    if (finish_in_session(v, "LOOKUP", name))
        return -1;
    bool good = v4_take(&s->in, dir->fh_length ? V4_PUTFH : V4_PUTROOTFH) &&
                v4_take(&s->in, V4_LOOKUP) && v4_take(&s->in, V4_GETFH);
    return good && !setup_take_fh(s, file) ? 0 : bad_reply("LOOKUP");
}

/* Goes down `path` from *dir on. */
static int lookup_path(struct v4_client *v, const char *path, struct load_file *dir)
{
    int error = 0;
    while (!error && *(path += strspn(path, "/"))) {
        size_t length = strcspn(path, "/");
        struct load_file found = {0};
        error = lookup(v, dir, path, length, &found);
        *dir = found;
        path += length;
    }
    return error;
}

static int open_file(struct v4_client *v, struct load_file *file)
{
    struct setup *s = v->setup;
    begin_in_session(v, 2);
    xdr_put_u32(&s->out, V4_PUTFH);
    rpc_put_fh(&s->out, file);
    xdr_put_u32(&s->out, V4_OPEN);
    xdr_put_u32(&s->out, 0); /* seqid */
    xdr_put_u32(&s->out, OPEN_READ_NO_DELEGATION);
    xdr_put_u32(&s->out, 0); /* denies nothing */
    xdr_put_u64(&s->out, v->id);
    xdr_put_opaque(&s->out, "load", 4);
    xdr_put_u32(&s->out, 0); /* OPEN4_NOCREATE */
    xdr_put_u32(&s->out, CLAIM_FH);
    if (finish_in_session(v, "OPEN", ""))
        return -1;
    bool good = v4_take(&s->in, V4_PUTFH) && v4_take(&s->in, V4_OPEN);
    const uint8_t *stateid = xdr_take(&s->in, STATEID_SIZE);
    if (!good || !stateid)
        return bad_reply("OPEN");
    memcpy(file->stateid, stateid, STATEID_SIZE);
    return 0;
}

static int find_directories(struct v4_client *v, struct load_target *t)
{
    const struct load_options *o = v->setup->options;
    char name[NAME_ROOM];
    int error = lookup_path(v, o->path, &t->dir);
    if (!error && o->dir)
        error = lookup_path(v, o->dir, &t->dir);
    t->dirs = calloc(o->dirs, sizeof *t->dirs);
    if (!t->dirs)
        return -1;
    t->dirs[0] = t->dir;
    for (uint32_t i = 0; !error && o->dirs > 1 && i < o->dirs; i++) {
        snprintf(name, sizeof name, "d.%u", i);
        error = lookup(v, &t->dir, name, strlen(name), &t->dirs[i]);
    }
    return error;
}

static int find_files(struct v4_client *v, struct load_target *t)
{
    const struct load_options *o = v->setup->options;
    char name[NAME_ROOM];
    int error = 0;
    t->files = calloc(o->files, sizeof *t->files);
    if (!t->files)
        return -1;
    for (uint32_t i = 0; !error && i < o->files; i++) {
        setup_file_content(o, i, &t->files[i]);
        nfs_name(o, i, name);
        error = lookup(v, nfs_dir(o, t, i), name, strlen(name), &t->files[i]);
        if (!error && o->op->flags & OP_READS)
            error = open_file(v, &t->files[i]);
    }
    return error;
}

/* All of one piece of memory: the sessions, and the sequences of their slots. */
static int make_sessions(struct v4_client *v, struct load_target *t)
{
    const struct load_options *o = v->setup->options;
    uint32_t count = o->one_session ? 1 : o->connections;
    uint32_t slots = o->one_session ? o->connections * o->depth : o->depth;
    t->sessions = calloc(count, sizeof *t->sessions + (size_t)slots * sizeof(uint32_t));
    if (!t->sessions)
        return -1;
    uint32_t *sequences = (uint32_t *)(void *)(t->sessions + count);
    int error = 0;
    for (uint32_t i = 0; !error && i < count; i++)
        error = create_session(v, slots, sequences + (size_t)i * slots, &t->sessions[i]);
    return error;
}

int setup_v4(struct setup *s, struct load_target *t)
{
    struct v4_client v = {.setup = s};
    s->fd = setup_connect(s->options, s->options->port);
    int error = s->fd < 0 ? -1 : exchange_id(&v);
    if (!error)
        error = create_session(&v, 1, &v.slot, &v.session);
    if (!error)
        error = reclaim_complete(&v);
    if (!error)
        error = find_directories(&v, t);
    if (!error)
        error = find_files(&v, t);
    return error ? error : make_sessions(&v, t);
}
