#include "load_setup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MANY_FILES = 256, NFS3ERR_EXIST = 17, NFS3ERR_NOENT = 2 };

int setup_connect(const struct load_options *o, uint16_t port)
{
    char service[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    snprintf(service, sizeof service, "%u", port);
    int error = getaddrinfo(o->host, service, &hints, &list);
    if (error) {
        fprintf(stderr, "load: %s: %s\n", o->host, gai_strerror(error));
        return -1;
    }
    int one = 1, fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (o->receive_buffer)
            setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &o->receive_buffer, sizeof o->receive_buffer);
    }
    if (fd < 0 || connect(fd, list->ai_addr, list->ai_addrlen)) {
        fprintf(stderr, "load: %s port %u: %s\n", o->host, port, strerror(errno));
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    return fd;
}

void setup_begin(struct setup *s, uint32_t program, uint32_t version, uint32_t procedure)
{
    s->out = xdr_out(s->call, sizeof s->call);
    rpc_call_header(&s->out, ++s->xid, program, version, procedure, s->options->uid);
}

static bool setup_receive(int fd, void *to, size_t length)
{
    return recv(fd, to, length, MSG_WAITALL) == (ssize_t)length;
}

int64_t setup_finish(struct setup *s, const char *what)
{
    uint32_t mark = 0, length = 0;
    rpc_finish_record(&s->out, 0);
    size_t size = xdr_used(&s->out);
    if (send(s->fd, s->call, size, MSG_NOSIGNAL) == (ssize_t)size &&
        setup_receive(s->fd, &mark, 4)) {
        length = be32toh(mark) & 0x7fffffff;
        if (length <= sizeof s->reply && setup_receive(s->fd, s->reply, length)) {
            s->in = xdr_in(s->reply, length);
            if (xdr_get_u32(&s->in) == s->xid && rpc_reply_accepted(&s->in))
                return xdr_get_u32(&s->in);
        }
    }
    fprintf(stderr, "load: %s: no good reply\n", what);
    return -1;
}

int setup_fail(const char *what, const char *name, int64_t status)
{
    if (status >= 0)
        fprintf(stderr, "load: %s %s: status %lld\n", what, name, (long long)status);
    return -1;
}

int setup_take_fh(struct setup *s, struct load_file *file)
{
    const uint8_t *fh = xdr_get_opaque(&s->in, FH_MAX, &file->fh_length);
    if (!fh)
        return -1;
    memcpy(file->fh, fh, file->fh_length);
    return 0;
}

static int setup_mount(struct setup *s, struct load_file *root)
{
    const char *path = s->options->path;
    s->fd = setup_connect(s->options, s->options->mount_port);
    if (s->fd < 0)
        return -1;
    setup_begin(s, MOUNT_PROGRAM, 3, 1);
    xdr_put_opaque(&s->out, path, (uint32_t)strlen(path));
    int64_t status = setup_finish(s, "MNT");
    close(s->fd);
    s->fd = -1;
    return status || setup_take_fh(s, root) ? setup_fail("MNT", path, status) : 0;
}

static int64_t setup_lookup(struct setup *s, const struct load_file *dir, const char *name,
                            struct load_file *file)
{
    setup_begin(s, NFS_PROGRAM, 3, NFS3_LOOKUP);
    rpc_put_fh(&s->out, dir);
    xdr_put_opaque(&s->out, name, (uint32_t)strlen(name));
    int64_t status = setup_finish(s, "LOOKUP");
    return !status && setup_take_fh(s, file) ? -1 : status;
}

/* CREATE (UNCHECKED) or MKDIR, then LOOKUP: a server need not return the handle. */
static int setup_make(struct setup *s, uint32_t procedure, const struct load_file *dir,
                      const char *name, struct load_file *file)
{
    setup_begin(s, NFS_PROGRAM, 3, procedure);
    rpc_put_fh(&s->out, dir);
    xdr_put_opaque(&s->out, name, (uint32_t)strlen(name));
    if (procedure == NFS3_CREATE)
        xdr_put_u32(&s->out, 0);
    xdr_put_u64(&s->out, UINT64_C(1) << 32 | (procedure == NFS3_CREATE ? 0644 : 0755));
    for (unsigned i = 0; i < 5; i++)
        xdr_put_u32(&s->out, 0);
    int64_t status = setup_finish(s, "CREATE or MKDIR");
    if (status && status != NFS3ERR_EXIST)
        return setup_fail("making", name, status);
    status = setup_lookup(s, dir, name, file);
    return status ? setup_fail("LOOKUP", name, status) : 0;
}

void setup_file_content(const struct load_options *o, uint64_t index, struct load_file *file)
{
    file->id = o->period ? 0 : o->first + index;
    file->base = o->period ? (o->first + index) * o->file_size : 0;
}

static int setup_file(struct setup *s, const struct load_target *t, uint32_t index)
{
    char name[NAME_ROOM];
    struct load_file *file = &t->files[index];
    const struct load_file *dir = nfs_dir(s->options, t, index);
    nfs_name(s->options, index, name);
    int64_t status = setup_lookup(s, dir, name, file);
    if (status == NFS3ERR_NOENT && s->options->op->flags & OP_MAKES)
        return setup_make(s, NFS3_CREATE, dir, name, file);
    return status ? setup_fail("LOOKUP", name, status) : 0;
}

/* Many handles at once, over connections of their own. */
static int setup_resolve(const struct load_options *options, struct load_target *t)
{
    struct load_options o = *options;
    struct load_run *run = calloc(1, sizeof *run);
    o.op = &op_resolve;
    o.connections = 4;
    o.threads = 1;
    o.depth = 32;
    o.count = o.files;
    o.rate = 0;
    int error = -1;
    if (run) {
        run->options = &o;
        run->target = t;
        error = load_run(run);
        if (!error && run->total.errors) {
            fprintf(stderr, "load: finding the files: %s\n", run->total.error);
            error = -1;
        }
    }
    free(run);
    return error;
}

static int setup_files(struct setup *s, struct load_target *t)
{
    const struct load_options *o = s->options;
    t->files = calloc(o->files, sizeof *t->files);
    if (!t->files)
        return -1;
    for (uint32_t i = 0; i < o->files; i++)
        setup_file_content(o, i, &t->files[i]);
    if (o->files >= MANY_FILES && !(o->op->flags & OP_MAKES))
        return setup_resolve(o, t);
    int error = 0;
    for (uint32_t i = 0; !error && i < o->files; i++)
        error = setup_file(s, t, i);
    return error;
}

static int setup_directory(struct setup *s, const struct load_file *parent, const char *name,
                           struct load_file *dir)
{
    int64_t status = setup_lookup(s, parent, name, dir);
    if (status == NFS3ERR_NOENT)
        return setup_make(s, NFS3_MKDIR, parent, name, dir);
    return status ? setup_fail("LOOKUP", name, status) : 0;
}

static int setup_directories(struct setup *s, struct load_target *t)
{
    const struct load_options *o = s->options;
    char name[NAME_ROOM];
    t->dirs = calloc(o->dirs, sizeof *t->dirs);
    if (!t->dirs)
        return -1;
    t->dirs[0] = t->dir;
    for (uint32_t i = 0; o->dirs > 1 && i < o->dirs; i++) {
        snprintf(name, sizeof name, "d.%u", i);
        if (setup_directory(s, &t->dir, name, &t->dirs[i]))
            return -1;
    }
    return 0;
}

/* The index behind a name's last dot; o->files if it is none of the files. */
static uint64_t setup_index(const struct load_options *o, const char *name, uint32_t length)
{
    char text[NAME_ROOM], expected[NAME_ROOM];
    if (!length || length >= sizeof text)
        return o->files;
    memcpy(text, name, length);
    text[length] = 0;
    const char *dot = strrchr(text, '.');
    uint64_t index = dot ? strtoull(dot + 1, NULL, 10) - o->first : o->files;
    nfs_name(o, index, expected);
    return index < o->files && !strcmp(text, expected) ? index : o->files;
}

/* Appends the files of a directory in the order of its listing. */
static int setup_list(struct setup *s, struct load_target *t, const struct load_file *dir,
                      uint32_t *count)
{
    const struct load_options *o = s->options;
    uint64_t cookie = 0, verifier = 0;
    for (bool end = false; !end;) {
        setup_begin(s, NFS_PROGRAM, 3, NFS3_READDIR);
        rpc_put_fh(&s->out, dir);
        xdr_put_u64(&s->out, cookie);
        xdr_put_u64(&s->out, verifier);
        xdr_put_u32(&s->out, SETUP_ROOM - 256);
        int64_t status = setup_finish(s, "READDIR");
        if (status)
            return setup_fail("READDIR", "", status);
        nfs_skip_attributes(&s->in);
        verifier = xdr_get_u64(&s->in);
        while (xdr_get_bool(&s->in)) {
            uint32_t length;
            xdr_get_u64(&s->in);
            const char *name = (const char *)xdr_get_opaque(&s->in, 255, &length);
            cookie = xdr_get_u64(&s->in);
            uint64_t index = s->in.bad ? o->files : setup_index(o, name, length);
            if (index < o->files && *count < o->files)
                t->listing[(*count)++] = (uint32_t)index;
        }
        end = xdr_get_bool(&s->in) || s->in.bad;
    }
    return s->in.bad ? setup_fail("READDIR", "", 0) : 0;
}

static int setup_listing(struct setup *s, struct load_target *t)
{
    const struct load_options *o = s->options;
    uint32_t count = 0;
    int error = 0;
    t->listing = calloc(o->files, sizeof *t->listing);
    if (!t->listing)
        return -1;
    for (uint32_t i = 0; !error && i < o->dirs; i++)
        error = setup_list(s, t, &t->dirs[i], &count);
    if (!error && count != o->files) {
        fprintf(stderr, "load: the listing names %u of the %u files\n", count, o->files);
        error = -1;
    }
    return error;
}

static int setup_v3(struct setup *s, struct load_target *t)
{
    const struct load_options *o = s->options;
    struct load_file root = {0};
    int error = setup_mount(s, &root);
    if (!error) {
        s->fd = setup_connect(o, o->port);
        error = s->fd < 0 ? -1 : 0;
    }
    t->dir = root;
    if (!error && o->dir)
        error = setup_directory(s, &root, o->dir, &t->dir);
    if (!error)
        error = setup_directories(s, t);
    if (!error && o->op->flags & OP_HANDLES)
        error = setup_files(s, t);
    if (!error && o->op->flags & OP_WHOLE && o->order == ORDER_LISTING)
        error = setup_listing(s, t);
    return error;
}

int setup_target(const struct load_options *o, struct load_target *t)
{
    struct setup *s = calloc(1, sizeof *s);
    if (!s)
        return -1;
    s->options = o;
    s->xid = (uint32_t)clock_ns();
    int error = o->minor ? setup_v4(s, t) : setup_v3(s, t);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
    return error;
}

void setup_free(struct load_target *t)
{
    free(t->dirs);
    free(t->files);
    free(t->listing);
    free(t->sessions);
    *t = (struct load_target){0};
}
