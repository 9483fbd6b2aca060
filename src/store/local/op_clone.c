/* CLONE of a range.  What one mutation cannot do is prepared behind the target's end, under a cut mark that hides it,
 * and shown by taking the mark away: so it is all there or not at all, for readers, and after a crash, when the reaper
 * does with the mark what it does with any.  Who writes there meanwhile has the clone go on in steps that all see. */
#include <pthread.h>

#include "store/local/op_share.h"
#include "store/local/reaper.h"

enum { BLOCK = STORE_BLOCK, REFUSALS_MOST = 1000 };

/* ---- which inodes have something prepared: one clone each ---- */

struct staging {
    struct sharing s; /* first */
    struct staging *next;
    struct local *local;
    uint32_t tree;
    uint64_t ino, change; /* change 0: the mark is not there yet */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct staging *stagings;

static struct staging *find(const struct local *l, uint32_t tree, uint64_t ino)
{
    for (struct staging *g = stagings; g; g = g->next)
        if (g->local == l && g->tree == tree && g->ino == ino)
            return g;
    return NULL;
}

bool clone_is_staging(struct local *l, uint32_t tree, uint64_t ino, uint64_t change)
{
    pthread_mutex_lock(&lock);
    const struct staging *g = find(l, tree, ino);
    bool is = g && g->change == change;
    pthread_mutex_unlock(&lock);
    return is;
}

static bool enter(struct staging *g)
{
    pthread_mutex_lock(&lock);
    bool first = !find(g->local, g->tree, g->ino);
    if (first) {
        g->next = stagings;
        stagings = g;
    }
    pthread_mutex_unlock(&lock);
    return first;
}

static void leave(struct staging *g)
{
    struct staging **at = &stagings;
    pthread_mutex_lock(&lock);
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    pthread_mutex_unlock(&lock);
    reaper_cut(g->local, g->tree, g->ino); /* takes what was left, and wakes those who wait for it */
}

static void set_mark(struct staging *g, uint64_t change)
{
    pthread_mutex_lock(&lock);
    g->change = change;
    pthread_mutex_unlock(&lock);
}

/* ---- the mark comes and goes ---- */

static int begin_check(struct op *op, struct meta_txn *t)
{
    struct staging *g = (struct staging *)op;
    struct sharing *s = &g->s;
    s->stage = (struct inode_cut){.chunk = s->copy->to_offset / STORE_CHUNK};
    int rc = sharing_look(s, t);
    s->lost = s->inode.size > s->stage.chunk * STORE_CHUNK || s->inode.cut_count == INODE_CUTS;
    return !rc && s->lost ? SL_EREFUSED : rc;
}

static int begin_put(struct op *op, struct meta_txn *t)
{
    struct staging *g = (struct staging *)op;
    struct inode *inode = &g->s.inode;
    uint64_t change = meta_next_change(t);
    set_mark(g, change);
    inode->cuts[inode->cut_count++] = (struct inode_cut){g->s.stage.chunk, change};
    int rc = cut_remember(t, g->tree, g->ino);
    return rc ? rc : meta_put_inode(t, g->tree, inode);
}

static int show_check(struct op *op, struct meta_txn *t)
{
    return sharing_look((struct sharing *)op, t);
}

static int show_put(struct op *op, struct meta_txn *t)
{
    struct sharing *s = (struct sharing *)op;
    struct inode *inode = &s->inode;
    for (unsigned i = sharing_mark(inode, s->stage) + 1; i < inode->cut_count; i++)
        inode->cuts[i - 1] = inode->cuts[i];
    inode->cut_count--;
    return sharing_show(s, t, s->copy->length, meta_next_change(t));
}

static int run(struct staging *g, struct store *st, const struct store_copy *c,
               int (*check)(struct op *op, struct meta_txn *t), int (*put)(struct op *op, struct meta_txn *t))
{
    struct sharing *s = &g->s;
    s->copy = c;
    s->length = c->length;
    s->op.check = check;
    s->op.put = put;
    int rc = op_begin(&s->op, st, c->to_cred, c->to.tree);
    return rc ? rc : op_run(&s->op);
}

static int prepare(struct staging *g, struct store *st, const struct store_copy *whole)
{
    struct store_copy c = *whole;
    int rc = 0;
    while (!rc && c.length) {
        uint64_t done = 0;
        g->s.copy = &c;
        g->s.length = c.length;
        rc = sharing_step(&g->s, st, &done);
        c.from_offset += done;
        c.to_offset += done;
        c.length -= done;
    }
    return rc;
}

/* SL_EREFUSED: it cannot be done so. */
static int clone_behind(struct store *st, const struct store_copy *c, struct store_wcc *wcc)
{
    struct staging g = {
        .s = {.zero_rest = true, .bounded = true}, .local = local_of(st), .tree = c->to.tree, .ino = c->to.ino};
    if (!enter(&g))
        return SL_EREFUSED;
    int rc = run(&g, st, c, begin_check, begin_put);
    if (!rc) {
        g.s.stage.change = g.change;
        rc = prepare(&g, st, c);
    }
    if (!rc) {
        g.s.op.wcc[0] = wcc;
        rc = run(&g, st, c, show_check, show_put);
    }
    leave(&g);
    return rc;
}

/* ---- in steps ---- */

/* The bytes of a tiny file, then zeroes up to the block's end. */
static int clone_bytes(struct store *st, const struct store_copy *c, const struct sharing *s, uint64_t *done,
                       struct store_wcc *wcc)
{
    uint64_t end = c->to_offset + c->length, zeroes = -c->length % BLOCK;
    *done = c->length;
    if (end + zeroes > s->inode.size)
        zeroes = s->inode.size > end ? s->inode.size - end : 0;
    return copy_bytes(st, c, (uint32_t)*done, (uint32_t)zeroes, wcc);
}

/* How much of a file is cloned at one instant, whatever that takes the writer. */
static bool fits_at_once(struct store *st, const struct store_copy *c)
{
    return c->length <= (uint64_t)local_of(st)->share_most * STORE_CHUNK;
}

static int clone_step(struct store *st, const struct store_copy *c, bool bounded, uint64_t *done,
                      struct store_wcc *wcc)
{
    struct sharing s = {
        .op = {.wcc = {wcc}}, .copy = c, .length = c->length, .zero_rest = true, .bounded = bounded};
    int rc = sharing_step(&s, st, done);
    return rc == SL_EREFUSED && s.by_bytes ? clone_bytes(st, c, &s, done, wcc) : rc;
}

static int clone_in_steps(struct store *st, const struct store_copy *whole, struct store_wcc *wcc)
{
    struct store_copy c = *whole;
    bool bounded = !fits_at_once(st, whole);
    int rc = 0;
    unsigned refusals = 0;
    do {
        uint64_t done = 0;
        rc = clone_step(st, &c, bounded, &done, wcc);
        if (rc == SL_EREFUSED && ++refusals < REFUSALS_MOST) {
            rc = 0;
            continue;
        }
        if (rc)
            break;
        c.from_offset += done;
        c.to_offset += done;
        c.length -= done;
    } while (c.length);
    return rc == SL_EREFUSED ? SL_EDELAY : rc;
}

int local_clone_range(struct store *st, const struct store_copy *c, struct store_wcc *wcc)
{
    if (!coro_self())
        return SL_EWAIT;
    if (c->from_offset % BLOCK || c->to_offset % BLOCK)
        return -EINVAL;
    int rc = fits_at_once(st, c) ? SL_EREFUSED : clone_behind(st, c, wcc);
    return rc == SL_EREFUSED ? clone_in_steps(st, c, wcc) : rc;
}
