#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SETUP_ROOM = 4096, NFS3ERR_EXIST = 17, NFS3ERR_NOENT = 2 };

/* One call at a time over one connection. */
struct setup {
    const struct load_options *options;
    int fd;
    uint32_t xid;
    uint8_t call[SETUP_ROOM], reply[SETUP_ROOM];
    struct xdr_out out;
    struct xdr_in in;
};

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

static void setup_begin(struct setup *s, uint32_t program, uint32_t procedure)
{
    s->out = xdr_out(s->call, sizeof s->call);
    rpc_call_header(&s->out, ++s->xid, program, procedure, s->options->uid);
}

static bool setup_receive(int fd, void *to, size_t length)
{
    return recv(fd, to, length, MSG_WAITALL) == (ssize_t)length;
}

/* The status of the call, or -1 after a message; s->in stands behind it. */
static int64_t setup_finish(struct setup *s, const char *what)
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

static int setup_fail(const char *what, const char *name, int64_t status)
{
    if (status >= 0)
        fprintf(stderr, "load: %s %s: status %lld\n", what, name, (long long)status);
    return -1;
}

static int setup_take_fh(struct setup *s, struct load_file *file)
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
    setup_begin(s, MOUNT_PROGRAM, 1);
    xdr_put_opaque(&s->out, path, (uint32_t)strlen(path));
    int64_t status = setup_finish(s, "MNT");
    close(s->fd);
    return status || setup_take_fh(s, root) ? setup_fail("MNT", path, status) : 0;
}

static int64_t setup_lookup(struct setup *s, const struct load_file *dir, const char *name,
                            struct load_file *file)
{
    setup_begin(s, NFS3_PROGRAM, 3);
    rpc_put_fh(&s->out, dir);
    xdr_put_opaque(&s->out, name, (uint32_t)strlen(name));
    int64_t status = setup_finish(s, "LOOKUP");
    return !status && setup_take_fh(s, file) ? -1 : status;
}

/* CREATE (8, UNCHECKED) or MKDIR (9), then LOOKUP: a server need not return the handle. */
static int setup_make(struct setup *s, uint32_t procedure, const struct load_file *dir,
                      const char *name, struct load_file *file)
{
    setup_begin(s, NFS3_PROGRAM, procedure);
    rpc_put_fh(&s->out, dir);
    xdr_put_opaque(&s->out, name, (uint32_t)strlen(name));
    if (procedure == 8)
        xdr_put_u32(&s->out, 0);
    xdr_put_u64(&s->out, UINT64_C(1) << 32 | (procedure == 8 ? 0644 : 0755));
    for (unsigned i = 0; i < 5; i++)
        xdr_put_u32(&s->out, 0);
    int64_t status = setup_finish(s, "CREATE or MKDIR");
    if (status && status != NFS3ERR_EXIST)
        return setup_fail("making", name, status);
    status = setup_lookup(s, dir, name, file);
    return status ? setup_fail("LOOKUP", name, status) : 0;
}

static bool setup_needs_files(const struct load_options *o)
{
    return o->op != OP_CREATE && o->op != OP_REMOVE && o->op != OP_RMDIR;
}

static int setup_file(struct setup *s, const struct load_target *t, uint32_t number)
{
    char name[NAME_ROOM];
    struct load_file *file = &t->files[number];
    nfs_name(s->options, s->options->first + number, name);
    file->id = s->options->period ? 0 : s->options->first + number;
    int64_t status = setup_lookup(s, &t->dir, name, file);
    if (status == NFS3ERR_NOENT &&
        (s->options->op == OP_WRITE_SEQ || s->options->op == OP_WRITE_RAND))
        return setup_make(s, 8, &t->dir, name, file);
    return status ? setup_fail("LOOKUP", name, status) : 0;
}

static int setup_connect_nfs(struct setup *s)
{
    s->fd = setup_connect(s->options, s->options->port);
    return s->fd < 0 ? -1 : 0;
}

int setup_target(const struct load_options *o, struct load_target *t)
{
    struct setup s = {.options = o, .xid = (uint32_t)clock_ns()};
    struct load_file root;
    t->files = calloc(o->files, sizeof *t->files);
    if (!t->files || setup_mount(&s, &root) || setup_connect_nfs(&s))
        return -1;
    int error = 0;
    if (o->dir)
        error = setup_make(&s, 9, &root, o->dir, &t->dir);
    else
        t->dir = root;
    for (uint32_t i = 0; !error && setup_needs_files(o) && i < o->files; i++)
        error = setup_file(&s, t, i);
    close(s.fd);
    return error;
}

int setup_commit(const struct load_options *o, const struct load_target *t)
{
    struct setup s = {.options = o, .xid = (uint32_t)clock_ns()};
    if (setup_connect_nfs(&s))
        return -1;
    int64_t status = 0;
    for (uint32_t i = 0; !status && i < o->files; i++) {
        setup_begin(&s, NFS3_PROGRAM, 21);
        rpc_put_fh(&s.out, &t->files[i]);
        xdr_put_u64(&s.out, 0);
        xdr_put_u32(&s.out, 0);
        status = setup_finish(&s, "COMMIT");
    }
    close(s.fd);
    return status ? setup_fail("COMMIT", "", status) : 0;
}
