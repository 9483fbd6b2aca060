/* Segments in which nothing is live go as a whole: first the record, in a commit, then the file. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/local/seg_private.h"
#include "store/local/writer.h"

struct removal {
    struct mutation m; /* first */
    struct seg_store *store;
    struct seg *seg;
};

/* Nothing live and nothing on its way to be: once a closed segment is so it stays so. */
static bool is_empty(const struct seg *seg)
{
    return atomic_load(&seg->closed) && !atomic_load(&seg->pending) && !atomic_load(&seg->live);
}

/* An empty segment with a reference, and how many more there are. */
static struct seg *find_empty(struct seg_store *st, unsigned *more)
{
    struct seg *found = NULL;
    *more = 0;
    rcu_read_lock();
    const struct seg_table *table = rcu_dereference(st->table);
    for (unsigned i = 0; i < table->count; i++) {
        struct seg *seg = table->at[i];
        if (!is_empty(seg))
            continue;
        if (found) {
            ++*more;
        } else {
            found = seg; /* the table's own reference holds it as long as we are in here */
            atomic_fetch_add(&seg->refs, 1);
        }
    }
    rcu_read_unlock();
    return found;
}

static int apply_removal(struct mutation *m, struct meta_txn *t)
{
    struct removal *removal = (struct removal *)m;
    char key[SEG_KEY_ROOM];
    seg_record_key(removal->seg->number, key);
    int error = meta_system_put(t, key, NULL, 0);
    return error == -ENOENT ? 0 : error; /* no group ever used it */
}

static void remove_file(void *arg)
{
    struct removal *removal = arg;
    char name[SEG_NAME_ROOM];
    seg_file_name(removal->seg->number, name);
    if (unlinkat(removal->store->data_fd, name, 0) && errno != ENOENT)
        log_warning("segment", "cannot remove data/%s: %s", name, sl_strerror(-errno)); /* the next start will */
}

int seg_compact_step(struct local *l)
{
    struct seg_store *st = l->segs;
    unsigned more;
    struct removal removal = {.m.apply = apply_removal, .store = st, .seg = find_empty(st, &more)};
    if (!removal.seg)
        return 0;
    int error = writer_run(l, &removal.m);
    if (!error) {
        blocking_run(remove_file, &removal);
        seg_table_remove(st, removal.seg);
    }
    seg_put(removal.seg);
    return error ? error : more > 0;
}
