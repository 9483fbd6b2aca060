/* Sums over many records that looked wrong after the steps: taken again in one transaction, in which nothing changes.
 * It is no RCU read section, since a group that makes a snapshot waits for those; the environment is not closed under
 * it, as who closes it waits until meta.long_readers is 0. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <urcu.h>

#include "store/local/check_private.h"

enum { TRIES = 5, VERSIONS_MANY = 1000 };

/* ---- the transaction ---- */

static int long_begin(struct check *c)
{
    int error = meta_read_begin(c->l, &c->t);
    if (error)
        return error;
    c->vs = versions_copy(txn_versions(c->t));
    c->again = true;
    c->drops_known = false;
    atomic_fetch_add(&c->l->meta->long_readers, 1);
    rcu_read_unlock();
    return c->vs ? 0 : -ENOMEM;
}

static void long_end(struct check *c)
{
    rcu_read_lock();
    meta_read_end(c->t);
    atomic_fetch_sub(&c->l->meta->long_readers, 1);
    versions_free(c->vs);
    c->vs = NULL;
    c->t = NULL;
    c->again = false;
}

static bool env_goes(struct check *c)
{
    return !uatomic_read(&c->l->meta->env);
}

/* ---- walks in it, which only step ---- */

/* -ECANCELED: stopped; -EAGAIN: the environment goes. */
static int scan_from(struct check *c, const struct check_walk *w, const struct key *from, bool one_owner)
{
    uint64_t owner = one_owner ? key_number(from->bytes, 0) : 0;
    int error = db_seek(c->t, w->db, from, c->row);
    while (!error) {
        if (one_owner && key_number(c->row->key, 0) != owner)
            break;
        error = group_load(c, &c->group, w->db);
        if (error && error != -ENOENT)
            return error;
        w->group(c, &c->group);
        if (check_stopped(c))
            return c->error;
        if (env_goes(c))
            return -EAGAIN;
    }
    return error == -ENOENT ? 0 : error;
}

int scan(struct check *c, const struct check_walk *w)
{
    const struct key first = {.length = 1};
    return scan_from(c, w, &first, false);
}

static void usage_group(struct check *c, struct check_group *g)
{
    usage_add(c, g);
}

static void chunk_group(struct check *c, struct check_group *g)
{
    hold_blocks(c, g, false);
}

static int again_usage(struct check *c)
{
    static const struct check_walk inodes = {DB_INODE, usage_group, NULL};
    bool wrong;
    c->usage_count = 0;
    int error = scan(c, &inodes);
    if (!error)
        usage_compare(c, true, &wrong);
    return error;
}

static int again_refs(struct check *c)
{
    place_t from = 0;
    int end = 0;
    while (!end) {
        end = refs_read_on(c, &from);
        if (check_stopped(c))
            return c->error;
        if (env_goes(c))
            return -EAGAIN;
    }
    return end == -ENOENT ? 0 : end;
}

static int again_segments(struct check *c)
{
    static const struct check_walk chunks = {DB_CHUNK, chunk_group, NULL};
    for (unsigned i = 0; i < c->segs.count; i++) {
        struct check_seg *seg = &c->segs.at[i];
        seg->held = 0;
        seg->seen = seg->expected = 0;
        free(seg->holds);
        seg->holds = NULL;
    }
    segs_load(c);
    int error = again_refs(c);
    if (!error)
        error = scan(c, &chunks);
    if (error)
        return error;
    segs_compare(c, true);
    return holders_settle(c);
}

static int again_owner(struct check *c, const struct check_split *split)
{
    const struct check_walk w = {split->db, split->db == DB_CHUNK ? sum_chunk : sum_entry, NULL};
    struct key first;
    c->sums.count = 0;
    key_inode(&first, split->owner);
    int error = scan_from(c, &w, &first, true);
    if (!error)
        owner_is_right(c, split->db, split->owner, true);
    c->sums.count = 0;
    return error ? error : c->error;
}

/* ---- rows of `touched` ---- */

static int again_touched(struct check *c)
{
    uint8_t value[RECORD_MAX];
    char key[64] = "";
    size_t length;
    struct version_record record;
    while (meta_system_next(c->t, "version/", key, value, sizeof(value), &length) == 0) {
        uint64_t version = strtoull(key + strlen("version/"), NULL, 16);
        if (version_decode(value, length, &record) || !versions_known(c->vs, version))
            continue; /* found otherwise */
        int64_t rows = touched_count(c, version);
        if (rows < 0)
            return (int)rows;
        if (rows != (int64_t)record.touched)
            found(c, versions_tree(c->vs, version) ? version : 0, 0, false,
                  "version %llu has %lld rows in `touched`, and its record says %llu: deleting snapshots may take "
                  "longer than it should", (unsigned long long)version, (long long)rows,
                  (unsigned long long)record.touched);
        if (check_stopped(c))
            return c->error;
        if (env_goes(c))
            return -EAGAIN;
    }
    return 0;
}

/* ---- */

struct doubts {
    bool usage, segments, touched;
};

/* What the steps came to, in a transaction of its own.  To compare many versions would take it too long. */
static void compare(struct check *c, struct doubts *doubts)
{
    if (step_begin(c))
        return;
    if (versions_count(c->vs) > VERSIONS_MANY) {
        step_end(c);
        *doubts = (struct doubts){true, true, true};
        return;
    }
    usage_compare(c, false, &doubts->usage);
    segs_compare(c, false);
    holders_compare(c);
    for (unsigned i = 0; i < c->segs.count; i++)
        doubts->segments |= c->segs.at[i].doubtful;
    doubts->touched = touched_is_doubtful(c);
    step_end(c);
}

static int try(struct check *c, struct doubts *doubts)
{
    int error = 0;
    while (!error && c->split_count) {
        error = again_owner(c, &c->splits[c->split_count - 1]);
        c->split_count -= !error;
    }
    if (!error && doubts->usage) {
        error = again_usage(c);
        doubts->usage = error;
    }
    if (!error && doubts->touched) {
        error = again_touched(c);
        doubts->touched = error;
    }
    if (!error && doubts->segments) {
        error = again_segments(c);
        doubts->segments = error;
    }
    return error;
}

/* A transaction for each kind would be shorter, and what is compared in it is its own anyway: but then the next begins
 * when more has changed, and all of it is read twice at most. */
void check_again(struct check *c)
{
    struct doubts doubts = {0};
    int error = 0;
    compare(c, &doubts);
    segs_have_files(c);
    for (unsigned tries = 0; tries < TRIES && !c->error; tries++) {
        if (!c->split_count && !doubts.usage && !doubts.segments && !doubts.touched)
            return;
        error = long_begin(c);
        if (!error) {
            error = try(c, &doubts);
            long_end(c);
        }
        holders_report(c);
        if (error && error != -EAGAIN && error != -EIO && !c->error)
            c->error = error;
    }
    if (!c->error)
        atomic_fetch_add(&c->job->unsettled,
                         (uint64_t)c->split_count + doubts.usage + doubts.segments + doubts.touched);
}
