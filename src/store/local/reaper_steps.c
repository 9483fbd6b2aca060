#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/local/holds.h"
#include "store/local/meta_private.h"
#include "store/local/op_share.h"
#include "store/local/reaper_private.h"
#include "store/local/seg.h"

static uint64_t step_deadline(void)
{
    return clock_monotonic_ns() + STEP_US * 1000ull;
}

static bool step_is_over(uint64_t deadline)
{
    return clock_monotonic_ns() >= deadline;
}

/* Removes the chunk records at or after *from that are not newer than `change`, until the deadline; *from is where to
 * go on.  0: none are left; 1: that is enough for a step. */
static int remove_chunks(struct meta_txn *t, uint32_t tree, struct inode *inode, uint64_t change,
                         uint64_t *from, uint64_t deadline)
{
    struct chunk_map map;
    uint64_t chunk;
    int64_t delta;
    for (unsigned seen = 1;; seen++) {
        int rc = meta_chunk_next(t, tree, inode->ino, *from, &chunk, &map);
        if (rc)
            return rc == -ENOENT ? 0 : rc;
        *from = chunk + 1;
        if (map.change <= change) {
            rc = meta_del_chunk(t, tree, inode->ino, chunk, &delta);
            if (rc)
                return rc;
            inode->blocks = (uint64_t)((int64_t)inode->blocks + delta);
        }
        if (seen == STEP_RECORDS || step_is_over(deadline))
            return 1;
    }
}

/* ---- orphans ---- */

enum { DOOMS_MOST = 64, LOOKS_MOST = 256 };

struct orphan_step {
    struct mutation mutation;
    uint32_t tree;
    uint64_t orphans; /* the directory */
    uint64_t from, after; /* where it begins, and where the next one goes on */
    bool more;
    struct doom dooms[DOOMS_MOST];
    unsigned doom_count;
};

/* What is left of it is no file any more, also after a restart: no handle has this generation. */
static int half_gone(struct meta_txn *t, const struct orphan_step *s, struct entry *e, struct inode *inode)
{
    inode->generation = e->generation = 0;
    int rc = meta_put_inode(t, s->tree, inode);
    if (!rc)
        rc = meta_set_entry(t, s->tree, s->orphans, e);
    return rc ? rc : 1;
}

static int remove_orphan(struct meta_txn *t, struct orphan_step *s, struct entry *e, uint64_t deadline)
{
    struct inode inode;
    uint64_t from = 0;
    int rc = meta_inode(t, s->tree, e->ino, &inode);
    if (rc == -ESTALE)
        return meta_del_entry(t, s->tree, s->orphans, e->position);
    if (!rc && inode.generation && !holds_doom(t->local, s->tree, e->ino, &s->dooms[s->doom_count]))
        return 0;
    s->doom_count += s->dooms[s->doom_count].set;
    if (!rc)
        rc = remove_chunks(t, s->tree, &inode, UINT64_MAX, &from, deadline);
    if (rc)
        return rc < 0 ? rc : half_gone(t, s, e, &inode);
    rc = meta_del_inode(t, s->tree, e->ino);
    return rc ? rc : meta_del_entry(t, s->tree, s->orphans, e->position);
}

static int orphan_apply(struct mutation *m, struct meta_txn *t)
{
    struct orphan_step *s = (struct orphan_step *)m;
    uint64_t deadline = step_deadline();
    struct entry e;
    int rc = 0;
    s->more = true;
    s->after = s->from;
    for (unsigned i = 0; i < LOOKS_MOST && s->doom_count < DOOMS_MOST && !step_is_over(deadline); i++) {
        rc = meta_entry_next(t, s->tree, s->orphans, s->after, &e);
        if (rc == -ENOENT) {
            s->more = false;
            return 0;
        }
        if (!rc)
            rc = remove_orphan(t, s, &e, deadline);
        if (rc)
            break;
        s->after = e.position;
    }
    return rc < 0 ? rc : 0;
}

/* Passes those that are held, in a transaction that nobody waits for.  -ENOENT: there is nothing else; 1: once more. */
static int first_orphan(struct local *l, const struct tree *tree, uint64_t *after)
{
    struct meta_txn *t;
    struct entry e;
    int rc = meta_read_begin(l, &t);
    if (rc)
        return rc;
    for (unsigned i = 0; i < LOOKS_MOST; i++) {
        rc = meta_entry_next(t, tree->id, tree->orphans, *after, &e);
        if (rc || !holds_pass(l, tree->id, e.ino))
            break;
        *after = e.position;
        rc = 1;
    }
    meta_read_end(t);
    return rc;
}

int reap_orphans(struct local *l, struct orphan_cursor *at, bool *more)
{
    struct tree tree;
    *more = false;
    int rc = meta_tree(l, at->tree, &tree);
    if (!rc)
        rc = tree.read_only ? -ENOENT : first_orphan(l, &tree, &at->after);
    if (!rc) {
        struct orphan_step s = {
            .mutation.apply = orphan_apply,
            .tree = at->tree,
            .orphans = tree.orphans,
            .from = at->after,
        };
        rc = writer_run(l, &s.mutation);
        for (unsigned i = 0; i < DOOMS_MOST; i++)
            holds_undoom(l, &s.dooms[i]);
        *more = s.more;
        at->after = s.after;
    } else if (rc == 1) {
        *more = true;
        rc = 0;
    }
    /* What a deleted tree held goes with its version. */
    return rc == -ENOENT || rc == -ESTALE ? 0 : rc;
}

/* ---- what lies behind cuts ---- */

struct cut_step {
    struct mutation mutation;
    const struct cut_cursor *at;
    uint64_t from; /* where the next step goes on, in this cut of this version: */
    struct inode_cut cut;
    uint64_t version;
    bool more; /* of this record */
    bool finished;
};

static int cut_forget(struct cut_step *s, struct meta_txn *t)
{
    s->more = false;
    s->finished = true;
    return meta_system_put(t, s->at->key, NULL, 0);
}

/* Its first cut hides what a clone prepares. */
static bool is_staging(struct meta_txn *t, uint32_t tree, const struct inode *inode)
{
    return inode->cut_count && clone_is_staging(t->local, tree, inode->ino, inode->cuts[0].change);
}

static int cut_apply(struct mutation *m, struct meta_txn *t)
{
    struct cut_step *s = (struct cut_step *)m;
    const struct cut_cursor *at = s->at;
    struct inode inode;
    s->more = true;
    s->finished = false;
    int rc = meta_inode(t, at->tree, at->ino, &inode);
    /* The chunks of an inode without links go with it. */
    if (rc == -ESTALE || (!rc && (inode.cut_count == 0 || (!inode.nlink && !holds_keeps(t->local, at->tree, at->ino)))))
        return cut_forget(s, t);
    if (rc)
        return rc;
    if (is_staging(t, at->tree, &inode)) {
        s->more = false;
        return 0;
    }
    s->cut = inode.cuts[0];
    rc = tree_version(t, at->tree, &s->version);
    if (rc)
        return rc;
    /* A restore may have brought back the mark and what it hides. */
    bool same = s->cut.chunk == at->cut.chunk && s->cut.change == at->cut.change && s->version == at->version;
    s->from = same && at->from > s->cut.chunk ? at->from : s->cut.chunk;
    uint64_t blocks = inode.blocks;
    rc = remove_chunks(t, at->tree, &inode, s->cut.change, &s->from, step_deadline());
    if (rc < 0)
        return rc;
    if (rc == 0) {
        inode.cut_count--;
        memmove(inode.cuts, inode.cuts + 1, inode.cut_count * sizeof(inode.cuts[0]));
        s->finished = true;
    } else if (blocks == inode.blocks) {
        return 0; /* all that was seen is newer than the cut */
    }
    rc = meta_put_inode(t, at->tree, &inode);
    return !rc && inode.cut_count == 0 ? cut_forget(s, t) : rc;
}

/* The next inode that has cut marks. -ENOENT. */
static int cut_next(struct meta_txn *t, struct cut_cursor *at)
{
    char value[8];
    size_t length;
    unsigned long long ino;
    struct inode inode;
    for (;;) {
        int rc = meta_system_next(t, "cut/", at->key, value, sizeof(value), &length);
        if (rc)
            return rc;
        if (sscanf(at->key, "cut/%x/%llx", &at->tree, &ino) != 2)
            return SL_ECORRUPT;
        at->ino = ino;
        if (meta_inode(t, at->tree, at->ino, &inode) || !is_staging(t, at->tree, &inode))
            return 0;
    }
}

static int cut_find(struct local *l, struct cut_cursor *at)
{
    struct meta_txn *t;
    memset(at, 0, sizeof(*at));
    strcpy(at->key, "cut/");
    int rc = meta_read_begin(l, &t);
    if (!rc) {
        rc = cut_next(t, at);
        meta_read_end(t);
    }
    if (rc)
        at->key[0] = 0;
    return rc;
}

int reap_cuts(struct local *l, struct cut_cursor *at, bool *finished, bool *more)
{
    *finished = *more = false;
    int rc = at->key[0] ? 0 : cut_find(l, at);
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    struct cut_step s = {.mutation.apply = cut_apply, .at = at};
    rc = writer_run(l, &s.mutation);
    if (rc)
        return rc;
    at->from = s.from;
    at->cut = s.cut;
    at->version = s.version;
    if (!s.more)
        at->key[0] = 0;
    *finished = s.finished;
    *more = true; /* of this inode, or another one */
    return 0;
}

/* ---- versions that nothing names ---- */

struct version_step {
    struct mutation mutation;
    bool more;
};

static int version_apply(struct mutation *m, struct meta_txn *t)
{
    struct version_step *s = (struct version_step *)m;
    return meta_drop_step(t, STEP_US, &s->more);
}

int reap_versions(struct local *l, bool *more)
{
    struct version_step s = {.mutation.apply = version_apply};
    struct meta_txn *t;
    *more = false;
    int rc = meta_read_begin(l, &t);
    if (rc)
        return rc;
    bool waits = meta_drop_waits(t);
    meta_read_end(t);
    if (!waits)
        return 0;
    rc = writer_run(l, &s.mutation);
    *more = rc == 0 && s.more;
    return rc;
}

/* ---- freed runs ---- */

enum {
    FREED_MOST = 1024,
    PUNCH_BLOCKS = 16,  /* 64 KiB */
    PIECE_BLOCKS = 256,
    RUN_BLOCKS_MOST = 65536,
    PUNCH_NS = 100000000, /* then other work has its turn */
};

struct freed {
    uint64_t serial;
    place_t place;
    uint32_t blocks;
};
struct freed_pass {
    struct mutation mutation;
    struct local *local;
    bool all, late; /* some were left for the next pass */
    unsigned count, runs;
    unsigned first, reached;        /* of those to forget: this step's */
    struct freed freed[FREED_MOST]; /* as in the records */
    struct freed run[FREED_MOST];   /* sorted, neighbours joined */
    bool keep[FREED_MOST];          /* this run, for now */
};

static int freed_gather(struct freed_pass *p, const struct freed_cursor *from)
{
    struct meta_txn *t;
    struct freed at = {from->serial, from->place, from->blocks};
    int rc = meta_read_begin(p->local, &t);
    if (rc)
        return rc;
    for (p->count = 0; p->count < FREED_MOST; p->count++) {
        rc = meta_free_next(t, &at.serial, &at.place, &at.blocks);
        if (rc)
            break;
        p->freed[p->count] = at;
    }
    meta_read_end(t);
    return rc == -ENOENT ? 0 : rc;
}

static int by_place(const void *a, const void *b)
{
    place_t x = ((const struct freed *)a)->place, y = ((const struct freed *)b)->place;
    return x < y ? -1 : x > y;
}

static void freed_join(struct freed_pass *p)
{
    memcpy(p->run, p->freed, p->count * sizeof(p->run[0]));
    qsort(p->run, p->count, sizeof(p->run[0]), by_place);
    p->runs = 0;
    for (unsigned i = 0; i < p->count; i++) {
        struct freed *last = p->runs ? &p->run[p->runs - 1] : NULL;
        const struct freed *next = &p->run[i];
        bool joins = last && last->place + last->blocks == next->place &&
                     last->blocks + next->blocks <= RUN_BLOCKS_MOST &&
                     last->place >> PLACE_BITS == next->place >> PLACE_BITS;
        if (joins)
            last->blocks += next->blocks;
        else
            p->run[p->runs++] = *next;
    }
}

static void freed_choose(struct freed_pass *p)
{
    for (unsigned i = 0; i < p->runs; i++)
        p->keep[i] = !p->all && p->run[i].blocks >= PUNCH_BLOCKS &&
                     seg_is_busy(p->local, p->run[i].place);
}

static bool is_kept(const struct freed_pass *p, place_t place)
{
    unsigned low = 0, high = p->runs; /* the last run that begins at or before the place */
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (p->run[middle].place <= place)
            low = middle;
        else
            high = middle;
    }
    return p->keep[low];
}

/* Leaves those to be forgotten. */
static void freed_without_kept(struct freed_pass *p)
{
    unsigned count = 0;
    for (unsigned i = 0; i < p->count; i++)
        if (!is_kept(p, p->freed[i].place))
            p->freed[count++] = p->freed[i];
    p->count = count;
}

/* In pieces, and half the time: meanwhile nobody can read from this segment, and where the file system discards what it
 * frees the whole device is slow. */
static int punch_gently(struct freed_pass *p, const struct freed *run)
{
    int rc = 0;
    for (uint32_t done = 0, blocks; done < run->blocks && !rc; done += blocks) {
        uint64_t start = clock_monotonic_ns();
        blocks = run->blocks - done < PIECE_BLOCKS ? run->blocks - done : PIECE_BLOCKS;
        rc = seg_punch(p->local, run->place + done, blocks);
        if (!p->all)
            seg_pause(start);
    }
    return rc;
}

static void freed_punch(void *arg)
{
    struct freed_pass *p = arg;
    uint64_t end = clock_monotonic_ns() + PUNCH_NS;
    for (unsigned i = 0; i < p->runs; i++) {
        const struct freed *run = &p->run[i];
        /* Smaller ones come back when their segment is compacted. */
        if (p->keep[i] || run->blocks < PUNCH_BLOCKS)
            continue;
        p->late = i && clock_monotonic_ns() > end;
        p->keep[i] = p->late;
        if (p->late)
            continue;
        int rc = punch_gently(p, run);
        /* The space is lost until the segment goes; to try for ever would lose more. */
        if (rc)
            log_warning("reaper", "cannot give %u freed blocks back to the file system: %s",
                        run->blocks, sl_strerror(rc));
    }
}

static int freed_apply(struct mutation *m, struct meta_txn *t)
{
    struct freed_pass *p = (struct freed_pass *)m;
    uint64_t deadline = step_deadline();
    for (p->reached = p->first; p->reached < p->count && !step_is_over(deadline); p->reached++) {
        const struct freed *f = &p->freed[p->reached];
        int rc = meta_free_del(t, f->serial, f->place);
        if (rc)
            return rc;
    }
    return 0;
}

static int freed_pass(struct freed_pass *p)
{
    freed_join(p);
    freed_choose(p);
    blocking_run(freed_punch, p);
    freed_without_kept(p);
    p->mutation.apply = freed_apply;
    int rc = 0;
    for (p->first = 0; p->first < p->count && !rc; p->first = p->reached)
        rc = writer_run(p->local, &p->mutation);
    return rc;
}

int reap_freed(struct local *l, struct freed_cursor *at, bool all, bool *more)
{
    struct freed_pass *p = malloc(sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->local = l;
    p->all = all;
    p->late = false;
    *more = false;
    int rc = freed_gather(p, at);
    unsigned count = p->count;
    if (!rc && count) {
        struct freed last = p->freed[count - 1];
        rc = freed_pass(p);
        *more = !rc && (count == FREED_MOST || p->late);
        if (!p->late) {
            *at = (struct freed_cursor){last.serial, last.place, last.blocks, false,
                                        at->kept || p->count < count};
        }
    }
    at->more = *more;
    if (rc)
        memset(at, 0, sizeof(*at));
    free(p);
    return rc;
}
