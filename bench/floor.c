/* The floor of `make bench`: what a server on this machine could do at best.  It parses calls
 * only as far as it must (xid, procedure, offset and count of a READ), answers out of one piece
 * of RAM, and gathers the replies of a pass in one sendmsg; it has no files, no cache and no
 * locks.  With --size as large as the data of the servers it is compared with, its data comes from
 * RAM as theirs does, not from the CPU's cache; and like a server's cache it is in huge pages
 * (MADV_HUGEPAGE; how much really is, the floor says when it starts).
 *
 * MNT, GETATTR, LOOKUP, ACCESS and READ are answered for any name, so that the load generator runs
 * unchanged (load --period SIZE).  A name's number, behind its last dot, is in its handle, and file
 * N begins at byte N * --file-size of the content, which starts again after --size bytes.
 *
 * With --disk FILE the content is in that file, which the floor first writes, and each READ of up to a
 * page is one read of it (O_DIRECT) by the same ring: what a server can do whose data is not in RAM.
 *
 * The main thread accepts and hands each connection, through a pipe, to the next of N threads
 * with a ring each. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "load.h"

enum {
    IN_BYTES = 64 * 1024,
    REPLIES_MAX = 480, /* in one sendmsg, which takes 1,024 pieces */
    BATCH_BYTES = 2 << 20,
    HEAD_ROOM = 192,
    READ_MAX = 1 << 20,
    SEND_BUFFER = 512 * 1024,
    THREADS_MAX = 64,
    FH_BYTES = 32,
    DISK_READ_MAX = 2 * 4096, /* a READ of a page, wherever it begins */
    DISK_READS = 256, /* at once on a connection */
    PAGE = 4096,
    HUGE_PAGE = 2 << 20,
    NFS3ERR_NOTSUPP = 10004
};

struct batch {
    unsigned replies, pieces, first; /* pieces from `first` on are not sent yet */
    size_t bytes;
    struct disk_read *sent;
    struct iovec iov[2 * REPLIES_MAX];
    uint8_t heads[REPLIES_MAX][HEAD_ROOM];
};

/* A READ that waits for the disk, and its data until it is sent. */
struct disk_read {
    struct peer *peer;
    struct disk_read *next; /* of the free ones, or of those whose data a batch sends */
    uint64_t place;
    uint32_t xid, count;
    uint8_t *data;
};

struct peer {
    int fd;
    bool receiving, sending, closing;
    unsigned filling; /* the batch that takes replies; the other one may be in flight */
    size_t in_end;
    struct disk_read *idle, *reads; /* with --disk: those that are free, and where all of them are */
    uint8_t *disk_data;
    unsigned reading;
    struct msghdr message;
    struct batch batches[2];
    uint8_t in[IN_BYTES];
};

struct floor_thread {
    pthread_t id;
    struct io_uring ring;
    int pipe[2], accepted;
};

static uint8_t *content; /* `content_size` bytes and READ_MAX more, from the start again */
static int disk = -1;    /* with --disk: the file that has the content instead */
static uint64_t content_size = 1 << 20, file_size; /* file_size 0: as large as the content, all alike */

/* What completes; the low bits of user_data, a peer's address above them. */
enum { DONE_ACCEPT, DONE_RECEIVE, DONE_SEND, DONE_DISK, DONE_MASK = 3 };

static struct io_uring_sqe *floor_sqe(struct floor_thread *t, void *who, uintptr_t what)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&t->ring);
    if (!sqe) {
        io_uring_submit(&t->ring);
        sqe = io_uring_get_sqe(&t->ring);
    }
    sqe->user_data = (uintptr_t)who | what;
    return sqe;
}

static void floor_prepare(struct io_uring_sqe *sqe, int op, int fd, const void *data,
                          unsigned length, unsigned flags)
{
    uint64_t user = sqe->user_data;
    io_uring_prep_rw(op, sqe, fd, data, length, 0);
    sqe->msg_flags = flags;
    sqe->user_data = user;
}

static void floor_wait_accept(struct floor_thread *t)
{
    struct io_uring_sqe *sqe = floor_sqe(t, NULL, DONE_ACCEPT);
    floor_prepare(sqe, IORING_OP_READ, t->pipe[0], &t->accepted, sizeof t->accepted, 0);
}

static void peer_receive(struct floor_thread *t, struct peer *p)
{
    floor_prepare(floor_sqe(t, p, DONE_RECEIVE), IORING_OP_RECV, p->fd, p->in + p->in_end,
                  (unsigned)(IN_BYTES - p->in_end), 0);
    p->receiving = true;
}

static void peer_send(struct floor_thread *t, struct peer *p, struct batch *b)
{
    p->message = (struct msghdr){.msg_iov = b->iov + b->first, .msg_iovlen = b->pieces - b->first};
    floor_prepare(floor_sqe(t, p, DONE_SEND), IORING_OP_SENDMSG, p->fd, &p->message, 1,
                  MSG_NOSIGNAL | MSG_WAITALL);
    p->sending = true;
}

static bool batch_full(const struct batch *b)
{
    return b->replies == REPLIES_MAX || b->bytes >= BATCH_BYTES;
}

static void put_attributes(struct xdr_out *x)
{
    static const uint32_t type_to_gid[] = {1, 0644, 1, 0, 0};
    static const uint32_t rdev_to_ctime[] = {0, 0, 0, 7, 0, 42, 1, 0, 1, 0, 1, 0};
    uint64_t size = file_size ? file_size : content_size;
    for (size_t i = 0; i < 5; i++)
        xdr_put_u32(x, type_to_gid[i]);
    xdr_put_u64(x, size);
    xdr_put_u64(x, size);
    for (size_t i = 0; i < 12; i++)
        xdr_put_u32(x, rdev_to_ctime[i]);
}

static void put_fh(struct xdr_out *x, uint64_t number)
{
    uint8_t fh[FH_BYTES] = "floor";
    memcpy(fh + 8, &number, sizeof number);
    xdr_put_opaque(x, fh, sizeof fh);
}

/* The number behind the last dot. */
static uint64_t name_number(const uint8_t *name, uint32_t length)
{
    uint64_t number = 0, unit = 1;
    while (length && name[length - 1] >= '0' && name[length - 1] <= '9') {
        number += unit * (uint64_t)(name[--length] - '0');
        unit *= 10;
    }
    return length && name[length - 1] == '.' ? number : 0;
}

/* Number of the file whose handle comes next. */
static uint64_t get_fh(struct xdr_in *in)
{
    uint32_t length;
    uint64_t number = 0;
    const uint8_t *fh = xdr_get_opaque(in, FH_MAX, &length);
    if (fh && length == FH_BYTES)
        memcpy(&number, fh + 8, sizeof number);
    return number;
}

/* Where a READ's data is in the content, and how much of it is asked for. */
static uint64_t get_read(struct xdr_in *in, uint32_t *count)
{
    uint64_t place = get_fh(in) * file_size;
    place += xdr_get_u64(in);
    *count = xdr_get_u32(in);
    *count = *count < READ_MAX ? *count & ~3u : READ_MAX;
    return place % content_size;
}

static void put_read(struct xdr_out *x, uint32_t count)
{
    xdr_put_u64(x, 1); /* NFS3_OK, attributes follow */
    put_attributes(x);
    xdr_put_u32(x, count);
    xdr_put_u32(x, 0);
    xdr_put_u32(x, count);
}

/* The results of a READ; its data becomes a piece of its own. */
static void answer_read(struct batch *b, struct xdr_in *in, struct xdr_out *x)
{
    uint32_t count;
    uint64_t place = get_read(in, &count);
    put_read(x, count);
    b->iov[b->pieces + 1] = (struct iovec){content + place, count};
}

static void answer_lookup(struct xdr_in *in, struct xdr_out *x)
{
    uint32_t length;
    get_fh(in);
    const uint8_t *name = xdr_get_opaque(in, 255, &length);
    xdr_put_u32(x, 0);
    put_fh(x, name_number(name, length));
    xdr_put_u32(x, 1); /* attributes of the file, none of the directory */
    put_attributes(x);
    xdr_put_u32(x, 0);
}

static void answer_nfs(struct batch *b, uint32_t procedure, struct xdr_in *in, struct xdr_out *x)
{
    switch (procedure) {
    case 0:
        break;
    case NFS3_READ:
        answer_read(b, in, x);
        break;
    case NFS3_GETATTR:
        xdr_put_u32(x, 0);
        put_attributes(x);
        break;
    case NFS3_LOOKUP:
        answer_lookup(in, x);
        break;
    case NFS3_ACCESS:
        xdr_put_u64(x, 0); /* NFS3_OK, no attributes */
        xdr_put_u32(x, 0x3f);
        break;
    default:
        xdr_put_u32(x, NFS3ERR_NOTSUPP);
    }
}

/* MNT and NULL. */
static void answer_mount(uint32_t procedure, struct xdr_out *x)
{
    if (procedure != 1)
        return;
    xdr_put_u32(x, 0);
    put_fh(x, 0);
    xdr_put_u64(x, UINT64_C(1) << 32 | 1); /* one flavour, AUTH_SYS */
}

static struct xdr_out answer_begin(struct batch *b, uint32_t xid)
{
    struct xdr_out x = xdr_out(b->heads[b->replies++], HEAD_ROOM);
    const uint32_t accepted[] = {0, xid, 1, 0, 0, 0, 0};
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++)
        xdr_put_u32(&x, accepted[i]);
    b->iov[b->pieces + 1].iov_len = 0;
    return x;
}

/* `x` is the head; the data, if there is any, is the piece after the next. */
static void answer_end(struct batch *b, struct xdr_out *x)
{
    size_t data = b->iov[b->pieces + 1].iov_len;
    rpc_finish_record(x, data);
    b->iov[b->pieces] = (struct iovec){b->heads[b->replies - 1], xdr_used(x)};
    b->pieces += data ? 2 : 1;
    b->bytes += xdr_used(x) + data;
}

/* Reads whole pages around what is asked for. */
static void disk_start(struct floor_thread *t, struct peer *p, uint32_t xid, struct xdr_in *in)
{
    struct disk_read *r = p->idle;
    p->idle = r->next;
    p->reading++;
    r->xid = xid;
    r->place = get_read(in, &r->count);
    if (r->count > DISK_READ_MAX - PAGE)
        r->count = DISK_READ_MAX - PAGE;
    uint64_t first = r->place & ~(uint64_t)(PAGE - 1);
    unsigned length = (unsigned)((r->place + r->count - first + PAGE - 1) & ~(uint64_t)(PAGE - 1));
    struct io_uring_sqe *sqe = floor_sqe(t, r, DONE_DISK);
    uint64_t user = sqe->user_data;
    io_uring_prep_read(sqe, disk, r->data, length, first);
    sqe->user_data = user;
}

static void answer(struct floor_thread *t, struct peer *p, struct batch *b, struct xdr_in *in)
{
    uint32_t length, xid = xdr_get_u32(in);
    xdr_take(in, 8); /* CALL, RPC version */
    uint32_t program = xdr_get_u32(in);
    xdr_get_u32(in);
    uint32_t procedure = xdr_get_u32(in);
    for (unsigned i = 0; i < 2; i++) {
        xdr_get_u32(in);
        xdr_get_opaque(in, 400, &length);
    }
    if (disk >= 0 && program == NFS_PROGRAM && procedure == NFS3_READ) {
        disk_start(t, p, xid, in);
        return;
    }
    struct xdr_out x = answer_begin(b, xid);
    if (program == NFS_PROGRAM)
        answer_nfs(b, procedure, in, &x);
    else
        answer_mount(procedure, &x);
    answer_end(b, &x);
}

/* Answers whole calls until none is left or the batch is full; -1 when framing is lost. */
static int peer_parse(struct floor_thread *t, struct peer *p)
{
    struct batch *b = &p->batches[p->filling];
    size_t at = 0;
    while (p->in_end - at >= 4 && !batch_full(b) && (disk < 0 || p->idle)) {
        uint32_t mark;
        memcpy(&mark, p->in + at, 4);
        size_t length = be32toh(mark) & 0x7fffffff;
        if (!(be32toh(mark) >> 31) || length > IN_BYTES - 4)
            return -1;
        if (p->in_end - at < 4 + length)
            break;
        struct xdr_in in = xdr_in(p->in + at + 4, length);
        answer(t, p, b, &in);
        at += 4 + length;
    }
    memmove(p->in, p->in + at, p->in_end - at);
    p->in_end -= at;
    return 0;
}

static void peer_advance(struct floor_thread *t, struct peer *p)
{
    if (!p->closing && peer_parse(t, p))
        p->closing = true;
    if (!p->closing && !p->sending && p->batches[p->filling].pieces) {
        peer_send(t, p, &p->batches[p->filling]);
        p->filling ^= 1;
        peer_parse(t, p);
    }
    if (!p->closing && !p->receiving && p->in_end < IN_BYTES &&
        !batch_full(&p->batches[p->filling]) && (disk < 0 || p->idle))
        peer_receive(t, p);
    if (p->closing && p->receiving)
        shutdown(p->fd, SHUT_RDWR);
    if (p->closing && !p->receiving && !p->sending && !p->reading) {
        close(p->fd);
        free(p->reads);
        free(p->disk_data);
        free(p);
    }
}

static void peer_received(struct floor_thread *t, struct peer *p, int result)
{
    p->receiving = false;
    if (result > 0)
        p->in_end += (size_t)result;
    else if (result != -EINTR && result != -EAGAIN)
        p->closing = true;
    peer_advance(t, p);
}

static void peer_sent(struct floor_thread *t, struct peer *p, int result)
{
    struct batch *b = &p->batches[p->filling ^ 1];
    p->sending = false;
    if (result < 0 && result != -EINTR && result != -EAGAIN)
        p->closing = true;
    for (size_t left = result > 0 ? (size_t)result : 0; left;) {
        struct iovec *piece = &b->iov[b->first];
        size_t part = left < piece->iov_len ? left : piece->iov_len;
        piece->iov_base = (uint8_t *)piece->iov_base + part;
        piece->iov_len -= part;
        left -= part;
        if (!piece->iov_len)
            b->first++;
    }
    if (b->first < b->pieces && !p->closing) {
        peer_send(t, p, b);
        return;
    }
    for (struct disk_read *r = b->sent; r; r = b->sent) {
        b->sent = r->next;
        r->next = p->idle;
        p->idle = r;
    }
    b->replies = b->pieces = b->first = 0;
    b->bytes = 0;
    peer_advance(t, p);
}

static void disk_done(struct floor_thread *t, struct disk_read *r, int result)
{
    struct peer *p = r->peer;
    struct batch *b = &p->batches[p->filling];
    uint32_t before = (uint32_t)(r->place & (PAGE - 1));
    p->reading--;
    if (result < (int)(before + r->count) || batch_full(b))
        p->closing = true; /* the batch has room for as many READs as there can be */
    if (!p->closing) {
        struct xdr_out x = answer_begin(b, r->xid);
        put_read(&x, r->count);
        b->iov[b->pieces + 1] = (struct iovec){r->data + before, r->count};
        answer_end(b, &x);
        r->next = b->sent;
        b->sent = r;
    }
    peer_advance(t, p);
}

static bool peer_disk(struct peer *p)
{
    p->reads = calloc(DISK_READS, sizeof *p->reads);
    p->disk_data = aligned_alloc(PAGE, (size_t)DISK_READS * DISK_READ_MAX);
    if (!p->reads || !p->disk_data)
        return false;
    for (size_t i = 0; i < DISK_READS; i++) {
        p->reads[i] = (struct disk_read){p, p->idle, .data = p->disk_data + i * DISK_READ_MAX};
        p->idle = &p->reads[i];
    }
    return true;
}

static void floor_accepted(struct floor_thread *t)
{
    struct peer *p = malloc(sizeof *p);
    if (p) {
        memset(p, 0, offsetof(struct peer, batches));
        for (unsigned i = 0; i < 2; i++) {
            p->batches[i].replies = p->batches[i].pieces = p->batches[i].first = 0;
            p->batches[i].bytes = 0;
            p->batches[i].sent = NULL;
        }
    }
    if (p && (disk < 0 || peer_disk(p))) {
        p->fd = t->accepted;
        peer_receive(t, p);
    } else {
        close(t->accepted);
    }
    floor_wait_accept(t);
}

static void floor_complete(struct floor_thread *t, const struct io_uring_cqe *cqe)
{
    struct peer *p = (struct peer *)(uintptr_t)(cqe->user_data & ~(uint64_t)DONE_MASK);
    switch (cqe->user_data & DONE_MASK) {
    case DONE_ACCEPT:
        floor_accepted(t);
        break;
    case DONE_DISK:
        disk_done(t, (struct disk_read *)p, cqe->res);
        break;
    case DONE_RECEIVE:
        peer_received(t, p, cqe->res);
        break;
    default:
        peer_sent(t, p, cqe->res);
    }
}

static void *floor_main(void *opaque)
{
    struct floor_thread *t = opaque;
    int error = io_uring_queue_init(1024, &t->ring,
                                    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
    if (error)
        error = io_uring_queue_init(1024, &t->ring, 0);
    if (error) {
        fprintf(stderr, "floor: io_uring: %s\n", strerror(-error));
        exit(1);
    }
    io_uring_register_ring_fd(&t->ring);
    floor_wait_accept(t);
    for (;;) {
        struct io_uring_cqe *cqes[64];
        io_uring_submit_and_wait(&t->ring, 1);
        unsigned count = io_uring_peek_batch_cqe(&t->ring, cqes, 64);
        for (unsigned i = 0; i < count; i++)
            floor_complete(t, cqes[i]);
        io_uring_cq_advance(&t->ring, count);
    }
    return NULL;
}

static int floor_listen(uint16_t port)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htobe16(port)};
    struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htobe16(port)};
    int one = 1, zero = 0, size = SEND_BUFFER, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool v6 = fd >= 0;
    if (!v6)
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size); /* accepted sockets inherit these */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (v6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, v6 ? (struct sockaddr *)&any : (struct sockaddr *)&any4,
             v6 ? sizeof any : sizeof any4) ||
        listen(fd, 128)) {
        fprintf(stderr, "floor: port %u: %s\n", port, strerror(errno));
        return -1;
    }
    return fd;
}

/* Bytes of this process' memory that are in huge pages, by what the kernel says. */
static uint64_t huge_bytes(void)
{
    char line[256];
    unsigned long long kilobytes = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "re");
    while (f && fgets(line, sizeof line, f) &&
           sscanf(line, "AnonHugePages: %llu kB", &kilobytes) != 1)
        continue;
    if (f)
        fclose(f);
    return kilobytes << 10;
}

static int floor_content(void)
{
    size_t size = content_size + READ_MAX + HUGE_PAGE;
    content = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (content == MAP_FAILED) {
        fprintf(stderr, "floor: %zu bytes of content: %s\n", size, strerror(errno));
        return -1;
    }
    content += -(uintptr_t)content & (HUGE_PAGE - 1);
    madvise(content, size - HUGE_PAGE, MADV_HUGEPAGE);
    content_fill(content, 0, 0, content_size);
    memcpy(content + content_size, content, READ_MAX);
    fprintf(stderr, "floor: %llu MiB of content, %llu MiB in huge pages\n",
            (unsigned long long)content_size >> 20, (unsigned long long)huge_bytes() >> 20);
    return 0;
}

/* Writes the content to `file`, and takes it from there. */
static int floor_disk(const char *file)
{
    disk = open(file, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
    uint8_t *piece = aligned_alloc(PAGE, READ_MAX);
    bool good = disk >= 0 && piece && !ftruncate(disk, (off_t)(content_size + DISK_READ_MAX));
    for (uint64_t at = 0; good && at < content_size + DISK_READ_MAX; at += READ_MAX) {
        content_fill(piece, 0, at % content_size, READ_MAX);
        good = pwrite(disk, piece, READ_MAX, (off_t)at) == READ_MAX;
    }
    if (!good || fsync(disk))
        fprintf(stderr, "floor: %s: %s\n", file, strerror(errno));
    free(piece);
    return good ? 0 : -1;
}

struct floor_options {
    const char *disk;
    uint16_t port;
    unsigned threads;
};

static uint64_t parse_size(const char *text)
{
    static const char units[] = "KMGT";
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (end == text || (*end && (!unit || end[1])))
        return 0;
    return unit ? value << 10 * (unit - units + 1) : value;
}

static int floor_parse(struct floor_options *o, int argc, char **argv)
{
    static const struct option arguments[] = {{"port", 1, NULL, 'p'},      {"workers", 1, NULL, 'w'},
                                              {"threads", 1, NULL, 'w'},   {"size", 1, NULL, 's'},
                                              {"file-size", 1, NULL, 'f'}, {"disk", 1, NULL, 'd'},
                                              {NULL, 0, NULL, 0}};
    int argument;
    while ((argument = getopt_long(argc, argv, "", arguments, NULL)) != -1) {
        if (argument == 'p')
            o->port = (uint16_t)atoi(optarg);
        else if (argument == 'w')
            o->threads = (unsigned)atoi(optarg);
        else if (argument == 's')
            content_size = parse_size(optarg);
        else if (argument == 'd')
            o->disk = optarg;
        else if (argument != 'f' || !(file_size = parse_size(optarg)))
            return -1;
    }
    bool good = o->port && o->threads && o->threads <= THREADS_MAX && optind == argc;
    return good && content_size >= READ_MAX && content_size % (o->disk ? READ_MAX : 8) == 0 && file_size % 4 == 0 ? 0 : -1;
}

int main(int argc, char **argv)
{
    static struct floor_thread threads[THREADS_MAX];
    struct floor_options o = {.threads = 1};
    if (floor_parse(&o, argc, argv)) {
        fprintf(stderr,
                "usage: floor --port N [--workers 1..%d] [--size SIZE] [--file-size SIZE] [--disk FILE]\n"
                "  --size       of all content (1M or more, a multiple of 8), in huge pages\n"
                "  --disk       the content is there: written first, read for each READ; whole MiB\n"
                "  --file-size  where the next file's content begins, and what GETATTR tells (a\n"
                "               multiple of 4; without it all files are the content from its start)\n",
                THREADS_MAX);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    if (o.disk ? floor_disk(o.disk) : floor_content())
        return 1;
    int fd = floor_listen(o.port); /* from now on it is there */
    if (fd < 0)
        return 1;
    for (unsigned i = 0; i < o.threads; i++) {
        struct floor_thread *t = &threads[i];
        if (pipe2(t->pipe, O_CLOEXEC) || pthread_create(&t->id, NULL, floor_main, t))
            return 1;
    }
    for (unsigned next = 0;; next++) {
        int accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (accepted < 0)
            continue;
        if (write(threads[next % o.threads].pipe[1], &accepted, sizeof accepted) < 0)
            close(accepted);
    }
}
