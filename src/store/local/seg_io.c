/* Reads and writes on the workers' rings; syncs on the writer's own ring; holes. */
#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/local/fixed.h"
#include "store/local/seg_private.h"

enum {
    SYNC_ENTRIES = 64,
    BATCH_VECTORS = 256, /* of one merged write */
    BATCH_BLOCKS = 256,
    WRITE_TRIES = 3,
    SUBMIT_FROM = 64, /* reads queued: the device can begin.  Each submission may be a VM exit: fewer are dearer */
    QUIET_NS = 1000000000,
};

/* ---- writes ---- */

struct seg_request {
    struct seg_request *next;
    struct seg *seg;
    place_t place;
    const struct iovec *iov;
    unsigned iov_count, blocks;
    struct coro *coro;
    int result; /* 0, an error, or 1: only a part was written */
};

struct batch {
    struct ring_op op;
    struct seg_store *store;
    struct seg_request *first;
    struct iovec iov[];
};

void seg_mark_dirty(struct seg_store *st, struct seg *seg)
{
    if (atomic_exchange(&seg->dirty, true))
        return;
    atomic_fetch_add(&seg->refs, 1);
    seg->dirty_next = atomic_load(&st->dirty);
    while (!atomic_compare_exchange_weak(&st->dirty, &seg->dirty_next, seg))
        ;
}

static void batch_done(struct ring_op *op, int result, uint32_t cqe_flags)
{
    struct batch *batch = caa_container_of(op, struct batch, op);
    int64_t left = result;
    if (result > 0) {
        seg_mark_dirty(batch->store, batch->first->seg);
        atomic_store(&batch->first->seg->written_ns, clock_monotonic_ns());
    }
    for (struct seg_request *r = batch->first, *next; r; r = next) {
        next = r->next;
        left -= (int64_t)r->blocks * SEG_BLOCK;
        r->result = result < 0 ? result : left < 0;
        coro_wake(r->coro);
    }
    free(batch);
}

/* How many of the list go out together, as one run of places. */
static unsigned batch_size(const struct seg_request *first, unsigned *vectors)
{
    unsigned count = 1, blocks = first->blocks;
    *vectors = first->iov_count;
    for (const struct seg_request *r = first, *n = r->next; n; r = n, n = n->next) {
        if (n->place != r->place + r->blocks || *vectors + n->iov_count > BATCH_VECTORS ||
            blocks + n->blocks > BATCH_BLOCKS)
            break;
        *vectors += n->iov_count;
        blocks += n->blocks;
        count++;
    }
    return count;
}

static void batch_submit(struct seg_store *st, struct seg_request *first, unsigned vectors)
{
    struct batch *batch = malloc(sizeof(*batch) + vectors * sizeof(batch->iov[0]));
    if (!batch) {
        for (struct seg_request *r = first, *next; r; r = next) {
            next = r->next;
            r->result = -ENOMEM;
            coro_wake(r->coro);
        }
        return;
    }
    batch->op.done = batch_done;
    batch->store = st;
    batch->first = first;
    unsigned filled = 0;
    for (struct seg_request *r = first; r; r = r->next) {
        memcpy(batch->iov + filled, r->iov, r->iov_count * sizeof(*r->iov));
        filled += r->iov_count;
    }
    struct io_uring_sqe *sqe = worker_sqe(&batch->op);
    io_uring_prep_writev(sqe, first->seg->fd, batch->iov, filled,
                         (uint64_t)place_block(first->place) * SEG_BLOCK);
    ring_op_attach(sqe, &batch->op);
}

static void flush_run(struct task *task)
{
    struct seg_worker *w = caa_container_of(task, struct seg_worker, flush);
    struct seg_request *r = w->first;
    w->first = w->last = NULL;
    w->flush_queued = false;
    while (r) {
        unsigned vectors, count = batch_size(r, &vectors);
        struct seg_request *first = r, *last = r;
        while (--count)
            last = last->next;
        r = last->next;
        last->next = NULL;
        batch_submit(w->store, first, vectors);
    }
}

static void queue_request(struct seg_worker *w, struct seg_request *r)
{
    /* Reserved in one order, written in another: kept by place, as that is what makes neighbours. */
    struct seg_request **link = &w->first;
    if (w->last && w->last->place < r->place) {
        link = &w->last->next;
    } else {
        while (*link && (*link)->place < r->place)
            link = &(*link)->next;
    }
    r->next = *link;
    *link = r;
    if (!r->next)
        w->last = r;
    if (!w->flush_queued) {
        w->flush_queued = true;
        w->flush.run = flush_run;
        worker_at_pass_end(&w->flush);
    }
}

int seg_write(struct local *l, place_t place, const struct iovec *iov, unsigned iov_count,
              unsigned blocks)
{
    struct seg_store *st = l->segs;
    struct seg_request r = {
        .place = place, .iov = iov, .iov_count = iov_count, .blocks = blocks, .coro = coro_self()};
    assert(r.coro && iov_count <= BATCH_VECTORS);
    r.seg = seg_get(st, place_segment(place));
    if (!r.seg)
        return -EIO;
    struct seg_worker *w = &st->workers[worker_index(worker_self())];
    for (unsigned tries = 0; tries < WRITE_TRIES; tries++) {
        queue_request(w, &r);
        coro_wait_for(CORO_SPENT_DISK);
        if (r.result <= 0 && r.result != -EINTR && r.result != -EAGAIN)
            break;
    }
    int result = r.result > 0 ? -EIO : r.result;
    if (result) {
        static _Atomic long logged;
        if (log_ratelimit(&logged))
            log_error("segment", "writing %u blocks to %08x: %s", blocks, place_segment(place),
                      sl_strerror(result));
        if (result != -ENOMEM)
            seg_retire_open(l); /* places already given out are not, and need not be, affected */
    }
    seg_put(r.seg);
    return result;
}

/* ---- reads ---- */

static void read_submit(struct seg_read_op *op)
{
    struct io_uring_sqe *sqe = ring_wait_sqe(&op->wait);
    uint64_t at = (uint64_t)place_block(op->place) * SEG_BLOCK;
    if (op->fixed >= 0)
        io_uring_prep_read_fixed(sqe, op->seg->fd, op->iov[0].iov_base, op->blocks * SEG_BLOCK, at,
                                 op->fixed);
    else if (op->iov_count == 1)
        io_uring_prep_read(sqe, op->seg->fd, op->iov[0].iov_base, (unsigned)op->iov[0].iov_len, at);
    else
        io_uring_prep_readv(sqe, op->seg->fd, op->iov, op->iov_count, at);
    ring_op_attach(sqe, &op->wait.op);
    worker_submit_from(SUBMIT_FROM);
}

/* Frames of neighbouring places often are neighbours in the arena too: then they are one buffer. */
static int fixed_of(struct local *l, const struct iovec *iov, unsigned iov_count)
{
    const uint8_t *first = iov[0].iov_base, *end = first;
    for (unsigned i = 0; i < iov_count; i++) {
        if (iov[i].iov_base != end)
            return -1;
        end += iov[i].iov_len;
    }
    return fixed_index(l, first, (size_t)(end - first));
}

int seg_read_begin(struct local *l, struct seg_read_op *op, place_t place, const struct iovec *iov,
                   unsigned iov_count, unsigned blocks)
{
    *op =
        (struct seg_read_op){.place = place, .iov = iov, .iov_count = iov_count, .blocks = blocks};
    op->seg = seg_get(l->segs, place_segment(place));
    if (!op->seg)
        return -ENOENT;
    op->fixed = fixed_of(l, iov, iov_count);
    read_submit(op);
    metric_add(METRIC_read_disk_ops, 1);
    metric_add(METRIC_read_disk_bytes, (uint64_t)blocks * SEG_BLOCK);
    return 0;
}

/* What lies past the end of the file reads as zeroes. */
static void zero_from(const struct seg_read_op *op, size_t from)
{
    for (unsigned i = 0; i < op->iov_count; i++) {
        size_t length = op->iov[i].iov_len;
        if (from < length)
            memset((uint8_t *)op->iov[i].iov_base + from, 0, length - from);
        from -= from < length ? from : length;
    }
}

int seg_read_end(struct seg_read_op *op)
{
    size_t whole = (size_t)op->blocks * SEG_BLOCK;
    int result = ring_wait(&op->wait);
    if (result < 0 || (size_t)result < whole) {
        /* Once more from the start: a short read means a signal or the end of the file. */
        read_submit(op);
        result = ring_wait(&op->wait);
    }
    if (result >= 0 && (size_t)result < whole)
        zero_from(op, (size_t)result);
    seg_put(op->seg);
    op->seg = NULL;
    return result < 0 ? result : 0;
}

int seg_read(struct local *l, place_t place, const struct iovec *iov, unsigned iov_count,
             unsigned blocks)
{
    struct seg_read_op op;
    int error = seg_read_begin(l, &op, place, iov, iov_count, blocks);
    return error ? error : seg_read_end(&op);
}

/* ---- syncs; the writer's thread ---- */

int seg_io_open(struct seg_store *st)
{
    int error = io_uring_queue_init(SYNC_ENTRIES, &st->ring, 0);
    st->ring_ready = error == 0;
    return error;
}

static struct seg_sync *sync_take(struct seg_store *st)
{
    struct seg *seg = atomic_exchange(&st->dirty, NULL);
    struct seg_sync *list = NULL;
    for (struct seg *next; seg; seg = next) {
        next = seg->dirty_next;
        struct seg_sync *sync = calloc(1, sizeof(*sync));
        /* From here on a write that completes makes it dirty again. */
        atomic_store(&seg->dirty, false);
        if (!sync) {
            seg_mark_dirty(st, seg);
            seg_put(seg);
            st->sync_error = -ENOMEM;
            continue;
        }
        sync->seg = seg;
        sync->next = list;
        list = sync;
    }
    return list;
}

static void sync_reap(struct seg_store *st)
{
    unsigned head, seen = 0;
    struct io_uring_cqe *cqe;
    io_uring_for_each_cqe(&st->ring, head, cqe)
    {
        struct seg_sync *sync = io_uring_cqe_get_data(cqe);
        sync->result = cqe->res;
        sync->finished = true;
        st->syncs_left--;
        seen++;
    }
    io_uring_cq_advance(&st->ring, seen);
}

static void sync_submit(struct seg_store *st, struct seg_sync *sync)
{
    struct io_uring_sqe *sqe;
    while (!(sqe = io_uring_get_sqe(&st->ring))) {
        io_uring_submit_and_wait(&st->ring, 1);
        sync_reap(st);
    }
    io_uring_prep_fsync(sqe, sync->seg->fd, IORING_FSYNC_DATASYNC);
    io_uring_sqe_set_data(sqe, sync);
    st->syncs_left++;
}

int seg_sync_start(struct local *l)
{
    struct seg_store *st = l->segs;
    assert(!st->syncs && "one at a time");
    st->sync_error = 0;
    st->syncs = sync_take(st);
    for (struct seg_sync *sync = st->syncs; sync; sync = sync->next)
        sync_submit(st, sync);
    if (st->syncs_left)
        io_uring_submit(&st->ring); /* what it leaves over goes with the wait */
    return 0;
}

int seg_sync_wait(struct local *l)
{
    struct seg_store *st = l->segs;
    while (st->syncs_left) {
        io_uring_submit_and_wait(&st->ring, 1);
        sync_reap(st);
    }
    int error = st->sync_error;
    for (struct seg_sync *sync = st->syncs, *next; sync; sync = next) {
        next = sync->next;
        if (sync->result < 0) {
            error = sync->result;
            log_error("segment", "fdatasync of %08x: %s", sync->seg->number, sl_strerror(error));
            sync->seg->unsure = true;
        }
        seg_put(sync->seg);
        free(sync);
    }
    st->syncs = NULL;
    if (error)
        seg_retire_open(l);
    return error;
}

void seg_io_close(struct seg_store *st)
{
    if (st->ring_ready)
        io_uring_queue_exit(&st->ring);
    struct seg *seg = atomic_exchange(&st->dirty, NULL);
    for (struct seg *next; seg; seg = next) {
        next = seg->dirty_next;
        seg_put(seg);
    }
}

/* ---- the probe and holes ---- */

int seg_probe(struct local *l)
{
    static const char name[] = "probe";
    struct seg_store *st = l->segs;
    void *block = aligned_alloc(SEG_BLOCK, SEG_BLOCK);
    if (!block)
        return -ENOMEM;
    memset(block, 0, SEG_BLOCK);
    int error = 0, fd = seg_file_open(st->data_fd, name, O_CREAT);
    if (fd < 0) {
        free(block);
        return fd;
    }
    ssize_t written = pwrite(fd, block, SEG_BLOCK, 0);
    if (written != SEG_BLOCK)
        error = written < 0 ? -errno : -EIO;
    else if (fdatasync(fd))
        error = -errno;
    close(fd);
    unlinkat(st->data_fd, name, 0); /* when it stays, the next probe uses it */
    free(block);
    return error;
}

bool seg_is_busy(struct local *l, place_t place)
{
    struct seg *seg = seg_get(l->segs, place_segment(place));
    uint64_t total, available;
    if (!seg)
        return false;
    bool busy = clock_monotonic_ns() - atomic_load(&seg->written_ns) < QUIET_NS;
    seg_put(seg);
    if (!busy)
        return false;
    seg_space(l, &total, &available);
    return available >= total / 10;
}

int seg_punch(struct local *l, place_t place, unsigned blocks)
{
    struct seg *seg = seg_get(l->segs, place_segment(place));
    if (!seg)
        return 0; /* went with its segment */
    if (atomic_load(&seg->closed) && !atomic_load(&seg->pending) && !atomic_load(&seg->live)) {
        seg_put(seg);
        return 0; /* goes with it in a moment */
    }
    int error = fallocate(seg->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          (off_t)place_block(place) * SEG_BLOCK, (off_t)blocks * SEG_BLOCK)
                    ? -errno
                    : 0;
    if (!error)
        metric_add(METRIC_blocks_punched, blocks);
    seg_put(seg);
    return error == -EOPNOTSUPP ? 0 : error;
}
