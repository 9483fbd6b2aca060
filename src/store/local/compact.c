/* Segments in which nothing is live go as a whole: first the record, in a commit, then the file.  Those that are mostly
 * dead are emptied first. */
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/local/seg_private.h"
#include "store/local/writer.h"

enum {
    VICTIMS_MOST = 64,
    MOVED_MOST = 4 << 20, /* blocks whose places are remembered */
    PIECE_BYTES = 16 << 20,
    PAUSE_NS_MOST = 100000000,
    SHRINK_NS = 100000000
};
#define MIB UINT64_C(1048576)

struct removal {
    struct mutation m; /* first */
    struct seg *seg;
};

/* Nothing more can come to be live in it than is. */
static bool is_settled(const struct seg *seg)
{
    return atomic_load(&seg->closed) && !atomic_load(&seg->pending);
}

/* An empty segment, with a reference.  Once empty it stays so. */
static struct seg *find_empty(struct seg_store *st)
{
    struct seg *found = NULL;
    rcu_read_lock();
    const struct seg_table *table = rcu_dereference(st->table);
    for (unsigned i = 0; i < table->count && !found; i++) {
        struct seg *seg = table->at[i];
        if (!is_settled(seg) || atomic_load(&seg->live))
            continue;
        found = seg; /* the table's own reference holds it as long as we are in here */
        atomic_fetch_add(&seg->refs, 1);
    }
    rcu_read_unlock();
    return found;
}

static int apply_removal(struct mutation *m, struct meta_txn *t)
{
    struct removal *removal = (struct removal *)m;
    char key[SEG_KEY_ROOM];
    /* A group whose commit had failed may have been found on disk since. */
    if (atomic_load(&removal->seg->live))
        return SL_EREFUSED;
    seg_record_key(removal->seg->number, key);
    int error = meta_system_put(t, key, NULL, 0);
    return error == -ENOENT ? 0 : error; /* no group ever used it */
}

void seg_pause(uint64_t since_ns)
{
    uint64_t took = clock_monotonic_ns() - since_ns;
    if (took > PAUSE_NS_MOST)
        took = PAUSE_NS_MOST;
    nanosleep(&(struct timespec){.tv_nsec = (long)took}, NULL);
}

/* A part of the file that goes.  To remove a large one at once keeps others from the device for half a second where the
 * file system discards what it frees. */
static void shrink(void *arg)
{
    struct seg_store *st = arg;
    struct stat info;
    uint64_t end = clock_monotonic_ns() + SHRINK_NS;
    off_t size = fstat(st->removing->fd, &info) ? 0 : info.st_size;
    while (size > 0 && clock_monotonic_ns() < end) {
        uint64_t start = clock_monotonic_ns();
        size = size > PIECE_BYTES ? size - PIECE_BYTES : 0;
        if (ftruncate(st->removing->fd, size))
            size = 0; /* then at once */
        seg_pause(start);
    }
    st->shrunk = size == 0;
}

void seg_removing_end(struct seg_store *st)
{
    char name[SEG_NAME_ROOM];
    seg_file_name(st->removing->number, name);
    if (unlinkat(st->data_fd, name, 0) && errno != ENOENT)
        log_warning("segment", "cannot remove data/%s: %s", name,
                    sl_strerror(-errno)); /* the next start will */
    seg_table_remove(st, st->removing);
    seg_put(st->removing);
    st->removing = NULL;
}

static void remove_more(struct seg_store *st)
{
    blocking_run(shrink, st);
    if (st->shrunk)
        seg_removing_end(st);
}

/* 1: one was empty, or is going; 0: none is empty. */
static int remove_empty(struct local *l)
{
    struct seg_store *st = l->segs;
    if (st->removing) {
        remove_more(st);
        return 1;
    }
    seg_close_dead(st);
    struct removal removal = {.m.apply = apply_removal, .seg = find_empty(st)};
    if (!removal.seg)
        return 0;
    int error = writer_run(l, &removal.m);
    if (!error)
        st->removing = removal.seg;
    else
        seg_put(removal.seg);
    return error && error != SL_EREFUSED ? error : 1;
}

/* Holes that were punched are counted out. */
static uint64_t bytes_on_disk(const struct seg *seg)
{
    struct stat info;
    return fstat(seg->fd, &info) ? 0 : (uint64_t)info.st_blocks * 512;
}

/* What emptying it would give back; 0: it is more than half live. */
static uint64_t gain_of(const struct seg *seg)
{
    uint64_t live = (uint64_t)atomic_load(&seg->live) * SEG_BLOCK;
    if (!live || live / SEG_BLOCK == seg->swept_live)
        return 0;
    uint64_t there = bytes_on_disk(seg);
    return there > 2 * live ? there - live : 0;
}

/* Worth a walk over all chunk records: one percent of the disk, or what there is where room is short. */
static bool is_worth_it(struct local *l, uint64_t gain)
{
    uint64_t total, available, share;
    if (l->segs->worth_least)
        return gain >= l->segs->worth_least;
    seg_space(l, &total, &available);
    share = available < total / 10 ? 256 * 1024 : total / 100;
    return gain && gain >= (share > 64 * MIB ? 64 * MIB : share);
}

/* In all segments.  In an RCU read section. */
static uint64_t live_blocks(const struct seg_table *table)
{
    uint64_t live = 0;
    for (unsigned i = 0; i < table->count; i++)
        live += atomic_load(&table->at[i]->live);
    return live;
}

static struct sweep *choose(struct local *l)
{
    struct seg_store *st = l->segs;
    uint32_t *numbers = malloc(VICTIMS_MOST * sizeof(*numbers));
    unsigned count = 0;
    uint64_t gain = 0, live = 0;
    if (!numbers)
        return NULL;
    st->swept_bytes = st->swept_newest = 0;
    rcu_read_lock();
    const struct seg_table *table = rcu_dereference(st->table);
    bool nothing_new = st->swept_in_vain && live_blocks(table) == st->swept_in_vain;
    for (unsigned i = 0; i < table->count && count < VICTIMS_MOST; i++) {
        uint64_t own = is_settled(table->at[i]) ? gain_of(table->at[i]) : 0;
        if (own && count && live + atomic_load(&table->at[i]->live) > MOVED_MOST)
            continue; /* another time */
        live += own ? atomic_load(&table->at[i]->live) : 0;
        gain += own;
        if (own) {
            numbers[count++] = table->at[i]->number;
            st->swept_bytes += bytes_on_disk(table->at[i]);
        }
    }
    for (unsigned i = 0; i < table->count; i++)
        if (table->at[i]->number > st->swept_newest)
            st->swept_newest = table->at[i]->number;
    rcu_read_unlock();
    if (!nothing_new && is_worth_it(l, gain))
        return sweep_new(l, numbers, count);
    free(numbers);
    return NULL;
}

/* Where nothing was moved, what is still live in the sweep's segments could not be: they are not tried again as long
 * as that is so.  Where moving took nearly as much room as it gave back (segments that are small for what a worker
 * takes at once), doing it again would, too: nothing is tried again until something has become live or has died. */
static void remember_rest(struct seg_store *st)
{
    uint64_t taken = 0;
    rcu_read_lock();
    const struct seg_table *table = rcu_dereference(st->table);
    for (unsigned i = 0; i < table->count; i++)
        if (table->at[i]->number > st->swept_newest)
            taken += bytes_on_disk(table->at[i]);
    bool was_worth_it = sweep_has_moved(st->sweep) && taken < st->swept_bytes / 4 * 3;
    st->swept_in_vain = was_worth_it ? 0 : live_blocks(table);
    for (unsigned i = 0; i < table->count && !was_worth_it; i++)
        if (sweep_has(st->sweep, table->at[i]->number))
            table->at[i]->swept_live = atomic_load(&table->at[i]->live);
    rcu_read_unlock();
}

int seg_compact_step(struct local *l)
{
    struct seg_store *st = l->segs;
    int result = remove_empty(l);
    if (result)
        return result;
    if (!st->sweep)
        st->sweep = choose(l);
    if (!st->sweep)
        return 0;
    result = sweep_step(st->sweep);
    if (result > 0)
        return result;
    if (!result)
        remember_rest(st);
    sweep_free(st->sweep);
    st->sweep = NULL;
    if (result == -ENOSPC) /* nowhere to move to: when there is room again */
        return 0;
    return result ? result : 1;
}
