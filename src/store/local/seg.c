#include "store/local/seg_private.h"
#include "store/local/sweep_places.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RECORD_BYTES = 12 };
static const char record_prefix[] = "segment/";
static const char number_key[] =
    "segments"; /* the highest number ever recorded: they are never used again */

/* ---- the table ---- */

static struct seg *table_find(const struct seg_table *table, uint32_t number)
{
    unsigned low = 0, high = table->count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (table->at[middle]->number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < table->count && table->at[low]->number == number ? table->at[low] : NULL;
}

struct seg *seg_get(struct seg_store *st, uint32_t number)
{
    rcu_read_lock();
    struct seg *seg = table_find(rcu_dereference(st->table), number);
    if (seg) {
        uint32_t refs = atomic_load(&seg->refs);
        while (refs && !atomic_compare_exchange_weak(&seg->refs, &refs, refs + 1))
            ;
        if (!refs)
            seg = NULL;
    }
    rcu_read_unlock();
    return seg;
}

static void seg_free(struct rcu_head *head)
{
    struct seg *seg = caa_container_of(head, struct seg, rcu);
    close(seg->fd); /* of an unlinked file this takes its time: not on a worker */
    free(seg);
}

void seg_put(struct seg *seg)
{
    if (atomic_fetch_sub(&seg->refs, 1) == 1)
        call_rcu(&seg->rcu, seg_free);
}

struct seg *seg_new(uint32_t number, int fd, uint32_t capacity, uint32_t allocated)
{
    struct seg *seg = calloc(1, sizeof(*seg));
    if (!seg)
        return NULL;
    seg->number = number;
    seg->fd = fd;
    seg->capacity = capacity;
    seg->allocated = allocated;
    atomic_store(&seg->refs, 1);
    return seg;
}

static void table_free(struct rcu_head *head)
{
    free(caa_container_of(head, struct seg_table, rcu));
}

static void table_replace(struct seg_store *st, struct seg_table *table)
{
    struct seg_table *old = st->table;
    rcu_assign_pointer(st->table, table);
    atomic_store(&st->count, table->count);
    if (old)
        call_rcu(&old->rcu, table_free);
}

static struct seg_table *table_new(unsigned count)
{
    struct seg_table *table = malloc(sizeof(*table) + count * sizeof(table->at[0]));
    if (table)
        table->count = 0;
    return table;
}

int seg_table_add(struct seg_store *st, struct seg *seg)
{
    pthread_mutex_lock(&st->table_lock);
    struct seg_table *old = st->table, *table = table_new(old->count + 1);
    if (table) {
        unsigned i = 0;
        while (i < old->count && old->at[i]->number < seg->number) {
            table->at[i] = old->at[i];
            i++;
        }
        table->at[i] = seg;
        memcpy(table->at + i + 1, old->at + i, (old->count - i) * sizeof(old->at[0]));
        table->count = old->count + 1;
        table_replace(st, table);
    }
    pthread_mutex_unlock(&st->table_lock);
    return table ? 0 : -ENOMEM;
}

void seg_table_remove(struct seg_store *st, struct seg *seg)
{
    pthread_mutex_lock(&st->table_lock);
    struct seg_table *old = st->table, *table = table_new(old->count);
    if (table) {
        for (unsigned i = 0; i < old->count; i++) {
            if (old->at[i] != seg)
                table->at[table->count++] = old->at[i];
        }
        table_replace(st, table);
    }
    pthread_mutex_unlock(&st->table_lock);
    if (table)
        seg_put(seg);
    /* Without memory it stays in the table, empty and never written again, until the server restarts. */
}

uint64_t seg_count(struct local *l)
{
    return atomic_load(&l->segs->count);
}

/* ---- files ---- */

void seg_file_name(uint32_t number, char name[SEG_NAME_ROOM])
{
    snprintf(name, SEG_NAME_ROOM, "%08" PRIx32 ".seg", number);
}

void seg_record_key(uint32_t number, char key[SEG_KEY_ROOM])
{
    snprintf(key, SEG_KEY_ROOM, "%s%08" PRIx32, record_prefix, number);
}

static bool number_parse(const char *text, const char *suffix, uint32_t *number)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 16);
    if (errno || end != text + 8 || strcmp(end, suffix) != 0 || !value || value > UINT32_MAX)
        return false;
    *number = (uint32_t)value;
    return true;
}

int seg_file_open(int dir_fd, const char *name, int flags)
{
    int fd = openat(dir_fd, name, flags | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
    if (fd < 0 && errno == EINVAL) /* O_CREAT may have made it before the flag was refused */
        fd = openat(dir_fd, name, (flags & ~O_EXCL) | O_RDWR | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : fd;
}

/* ---- records ---- */

struct seg_record {
    uint32_t tail, live, state;
};
enum { STATE_OPEN = 1, STATE_CLOSED = 2 };

static void record_encode(const struct seg_record *r, uint8_t out[RECORD_BYTES])
{
    uint32_t words[] = {htole32(r->tail), htole32(r->live), htole32(r->state)};
    memcpy(out, words, RECORD_BYTES);
}

static int record_decode(const uint8_t *bytes, size_t length, struct seg_record *r)
{
    uint32_t words[3];
    if (length != RECORD_BYTES)
        return SL_ECORRUPT;
    memcpy(words, bytes, RECORD_BYTES);
    *r = (struct seg_record){le32toh(words[0]), le32toh(words[1]), le32toh(words[2])};
    return r->tail > (1u << PLACE_BITS) || r->live > r->tail ? SL_ECORRUPT : 0;
}

static struct seg *find_touched(struct seg_store *st, uint32_t number)
{
    for (struct seg *s = st->touched; s; s = s->touched_next) {
        if (s->number == number)
            return s;
    }
    return NULL;
}

void seg_account(struct meta_txn *t, place_t place, unsigned blocks, int delta)
{
    struct seg_store *st = t->local->segs;
    struct seg *seg = find_touched(st, place_segment(place));
    if (!seg) {
        seg = seg_get(st, place_segment(place));
        if (!seg) {
            log_error("segment", "a record names %08" PRIx32 ", which is not there",
                      place_segment(place));
            if (delta > 0)
                t->failed = -EIO;
            return;
        }
        seg->touched = true; /* and keeps the reference */
        seg->group_live = seg->group_taken = 0;
        seg->touched_next = st->touched;
        st->touched = seg;
    }
    if (delta > 0 && seg->unsure) {
        t->failed = -EIO;
        return;
    }
    seg->group_live += delta * (int64_t)blocks;
    if (delta > 0)
        seg->group_taken += blocks;
}

int seg_group_flush(struct meta_txn *t)
{
    struct seg_store *st = t->local->segs;
    st->group_number = st->recorded_number;
    for (struct seg *seg = st->touched; seg; seg = seg->touched_next) {
        char key[SEG_KEY_ROOM];
        uint8_t value[RECORD_BYTES];
        int64_t live = (int64_t)atomic_load(&seg->live) + seg->group_live;
        assert(live >= 0 && "blocks are freed once");
        record_encode(
            &(struct seg_record){.tail = atomic_load(&seg->tail),
                                 .live = (uint32_t)live,
                                 .state = atomic_load(&seg->closed) ? STATE_CLOSED : STATE_OPEN},
            value);
        seg_record_key(seg->number, key);
        int error = meta_system_put(t, key, value, sizeof(value));
        if (error)
            return error;
        if (seg->number > st->group_number)
            st->group_number = seg->number;
    }
    if (st->group_number == st->recorded_number)
        return 0;
    uint32_t number = htole32(st->group_number);
    return meta_system_put(t, number_key, &number, sizeof(number));
}

/* `own_pending`: what the group took is still pending. */
static void group_done(struct seg_store *st, bool committed, bool own_pending)
{
    struct seg *next;
    for (struct seg *seg = st->touched; seg; seg = next) {
        next = seg->touched_next;
        if (committed)
            atomic_fetch_add(&seg->live, (uint32_t)seg->group_live);
        if (committed && own_pending)
            atomic_fetch_sub(&seg->pending, seg->group_taken);
        seg->touched = false;
        seg_put(seg);
    }
    st->touched = NULL;
    if (committed)
        st->recorded_number = st->group_number;
}

void seg_group_done(struct local *l, bool committed)
{
    group_done(l->segs, committed, true);
}

void seg_group_found(struct local *l)
{
    group_done(l->segs, true, false);
}

/* ---- opening ---- */

static int open_recorded(struct seg_store *st, uint32_t number, const struct seg_record *record,
                         char why[256])
{
    char name[SEG_NAME_ROOM];
    struct stat info;
    seg_file_name(number, name);
    int fd = seg_file_open(st->data_fd, name, 0);
    if (fd < 0 || fstat(fd, &info)) {
        int error = fd < 0 ? fd : -errno;
        snprintf(why, 256, "data/%s: %s", name, sl_strerror(error));
        if (fd >= 0)
            close(fd);
        return error;
    }
    off_t used = (off_t)record->tail * SEG_BLOCK;
    if (info.st_size > used && ftruncate(fd, used))
        log_warning("segment", "%s: cannot give back what lies past its end: %s", name,
                    sl_strerror(-errno));
    struct seg *seg = seg_new(number, fd, record->tail, record->tail);
    int error = seg ? seg_table_add(st, seg) : -ENOMEM;
    if (error) {
        close(fd);
        free(seg);
        return error;
    }
    atomic_store(&seg->tail, record->tail);
    atomic_store(&seg->live, record->live);
    atomic_store(&seg->closed, true);
    return 0;
}

static int open_all_recorded(struct seg_store *st, char why[256])
{
    struct meta_txn *t;
    int error = meta_read_begin(st->local, &t);
    if (error)
        return error;
    char key[SEG_KEY_ROOM] = "segment/";
    uint8_t value[RECORD_BYTES];
    size_t length;
    uint32_t number = 0;
    error = meta_system_get(t, number_key, &number, sizeof(number), &length);
    if (!error)
        st->recorded_number = le32toh(number);
    else if (error != -ENOENT)
        goto out;
    while (!(error = meta_system_next(t, record_prefix, key, value, sizeof(value), &length))) {
        struct seg_record record;
        if (!number_parse(key + strlen(record_prefix), "", &number) ||
            record_decode(value, length, &record)) {
            snprintf(why, 256, "the record of segment %s is damaged", key);
            error = SL_ECORRUPT;
            goto out;
        }
        error = open_recorded(st, number, &record, why);
        if (error)
            goto out;
        if (number > st->recorded_number)
            st->recorded_number = number;
    }
    if (error == -ENOENT)
        error = 0;
out:
    meta_read_end(t);
    return error;
}

/* Files that no record names hold nothing that was ever acknowledged. */
static int remove_unrecorded(struct seg_store *st)
{
    int fd = openat(st->data_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int error = -errno;
        if (fd >= 0)
            close(fd);
        return error;
    }
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        uint32_t number;
        if (!number_parse(entry->d_name, ".seg", &number))
            continue;
        if (number >= st->next_number)
            st->next_number = number + 1;
        if (!table_find(st->table, number) && unlinkat(st->data_fd, entry->d_name, 0))
            log_warning("segment", "cannot remove data/%s: %s", entry->d_name, sl_strerror(-errno));
    }
    closedir(dir);
    return 0;
}

static int open_directory(struct seg_store *st)
{
    struct local *l = st->local;
    if (mkdirat(l->dir_fd, "data", 0700) == 0) {
        if (fsync(l->dir_fd))
            return -errno;
    } else if (errno != EEXIST) {
        return -errno;
    }
    st->data_fd = openat(l->dir_fd, "data", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return st->data_fd < 0 ? -errno : 0;
}

static int open_steps(struct seg_store *st, char why[256])
{
    unsigned workers = workers_count();
    st->workers = aligned_alloc(64, (workers ? workers : 1) * sizeof(*st->workers));
    st->table = table_new(0);
    if (!st->workers || !st->table)
        return -ENOMEM;
    memset(st->workers, 0, (workers ? workers : 1) * sizeof(*st->workers));
    for (unsigned i = 0; i < workers; i++)
        st->workers[i].store = st;
    int error = open_directory(st);
    if (!error)
        error = open_all_recorded(st, why);
    st->next_number = st->recorded_number + 1;
    if (!error)
        error = remove_unrecorded(st);
    if (!error)
        error = seg_space_open(st);
    return error ? error : seg_io_open(st);
}

int seg_open(struct local *l, char why[256])
{
    struct seg_store *st = calloc(1, sizeof(*st));
    if (!st)
        return -ENOMEM;
    st->local = l;
    st->data_fd = -1;
    pthread_mutex_init(&st->lock, NULL);
    pthread_mutex_init(&st->table_lock, NULL);
    l->segs = st;
    why[0] = 0;
    st->moved = sweep_places_new();
    int error = st->moved ? open_steps(st, why) : -ENOMEM;
    if (error) {
        if (!why[0])
            snprintf(why, 256, "%s/data: %s", l->path ? l->path : "the pool", sl_strerror(error));
        seg_close(l);
    }
    return error;
}

void seg_close(struct local *l)
{
    struct seg_store *st = l->segs;
    if (!st)
        return;
    sweep_free(st->sweep);
    if (st->removing)
        seg_removing_end(st);
    seg_space_close(st);
    seg_io_close(st);
    for (unsigned i = 0; st->table && i < st->table->count; i++)
        seg_put(st->table->at[i]);
    rcu_barrier();
    sweep_places_free(st->moved);
    free(st->table);
    free(st->workers);
    if (st->data_fd >= 0)
        close(st->data_fd);
    pthread_mutex_destroy(&st->lock);
    pthread_mutex_destroy(&st->table_lock);
    free(st);
    l->segs = NULL;
}
