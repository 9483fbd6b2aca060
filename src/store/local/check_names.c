/* Inodes, entries and links: each against what it refers to, as its version sees it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/local/check_private.h"

#define ADVICE "; restore it from a snapshot, or copy it elsewhere and delete it"
typedef unsigned long long number;

/* ---- looking ---- */

static bool see_inode(struct check *c, uint64_t ino, uint64_t viewer, struct inode *out)
{
    struct key k;
    uint64_t seen;
    key_inode(&k, ino);
    return visible(c->t, DB_INODE, &k, viewer, c->row, &seen) == 0 &&
           inode_decode(c->row->value, c->row->length, ino, out, NULL) == 0;
}

static bool see_entry(struct check *c, uint64_t dir, uint64_t position, uint64_t viewer, struct entry *out)
{
    struct key k;
    uint64_t seen;
    key_entry(&k, dir, position);
    return visible(c->t, DB_ENTRY, &k, viewer, c->row, &seen) == 0 &&
           entry_decode(c->row->value, c->row->length, position, out) == 0;
}

static bool see_link(struct check *c, uint64_t ino, uint64_t dir, uint64_t position, uint64_t viewer)
{
    struct key k;
    uint64_t seen;
    key_link(&k, ino, dir, position);
    return visible(c->t, DB_LINK, &k, viewer, c->row, &seen) == 0;
}

/* The first record of an inode in a database whose keys begin with its number. */
static bool see_any(struct check *c, enum db db, uint64_t ino, uint64_t viewer)
{
    struct key k;
    if (db == DB_LINK)
        key_link(&k, ino, 0, 0);
    else if (db == DB_CHUNK)
        key_chunk(&k, ino, 0);
    else
        key_entry(&k, ino, 0);
    return visible_from(c->t, db, &k, 8, viewer, c->row) == 0;
}

static bool claims(struct check *c, const struct inode *inode, uint64_t dir, uint64_t position, uint64_t viewer)
{
    return (inode->parent == dir && inode->position == position) ||
           (inode->type != STORE_DIR && see_link(c, inode->ino, dir, position, viewer));
}

static bool is_top(const struct check *c, uint64_t ino)
{
    return list_has(c->roots, c->root_count, ino) || list_has(c->orphans, c->orphan_count, ino);
}

/* ---- inodes ---- */

static unsigned count_links(struct check *c, uint64_t ino, uint64_t viewer)
{
    unsigned count = 0;
    struct key k;
    for (key_link(&k, ino, 0, 0); visible_from(c->t, DB_LINK, &k, 8, viewer, c->row) == 0; count++)
        if (!key_increment(&k))
            break;
    return count;
}

static bool test_links(struct check *c, const struct inode *inode, uint64_t viewer, char *why)
{
    unsigned links = count_links(c, inode->ino, viewer);
    bool orphan = list_has(c->orphans, c->orphan_count, inode->parent);
    if ((inode->nlink == 0) != orphan && (inode->nlink == 0 || !orphan)) {
        snprintf(why, WHY_ROOM, "inode %llu has %u links and lies %s the removed files" ADVICE, (number)inode->ino,
                 inode->nlink, orphan ? "among" : "outside of");
        return false;
    }
    if (inode->nlink ? links + 1 == inode->nlink : links == 0)
        return true;
    snprintf(why, WHY_ROOM, "inode %llu has %u links, and %u are recorded" ADVICE, (number)inode->ino, inode->nlink,
             links + 1);
    return false;
}

static bool test_inode(struct check *c, const struct check_group *g, unsigned i, uint64_t viewer, char *why)
{
    struct inode inode;
    struct entry e;
    uint64_t ino = key_number(g->key.bytes, 0);
    inode_decode(item_value(g, i), g->items[i].length, ino, &inode, NULL); /* known to be good */
    if (is_top(c, ino))
        return true;
    if (!see_entry(c, inode.parent, inode.position, viewer, &e) || e.ino != ino) {
        snprintf(why, WHY_ROOM, "inode %llu is named by no entry where it says (directory %llu, position %llu): "
                 "nobody can reach it, and its space is "
                 "lost", (number)ino, (number)inode.parent, (number)inode.position);
        return false;
    }
    if (inode.type == STORE_DIR && inode.nlink != 2 && !see_any(c, DB_ENTRY, ino, viewer)) {
        snprintf(why, WHY_ROOM, "directory %llu is empty and has a link count of %u: delete it and make it again",
                 (number)ino, inode.nlink);
        return false;
    }
    if (inode.type == STORE_REG && inode.blocks && !see_any(c, DB_CHUNK, ino, viewer)) {
        snprintf(why, WHY_ROOM, "inode %llu should hold %llu blocks and holds none" ADVICE, (number)ino,
                 (number)inode.blocks);
        return false;
    }
    return inode.type == STORE_DIR || test_links(c, &inode, viewer, why);
}

/* What it had must have gone with it. */
static bool test_inode_gone(struct check *c, const struct check_group *g, unsigned i, uint64_t viewer, char *why)
{
    struct inode old;
    struct entry e;
    uint64_t ino = key_number(g->key.bytes, 0);
    long beneath = group_beneath(c, g, i);
    if (beneath >= 0 && !g->items[beneath].gone &&
        inode_decode(item_value(g, (unsigned)beneath), g->items[beneath].length, ino, &old, NULL) == 0 &&
        see_entry(c, old.parent, old.position, viewer, &e) && e.ino == ino) {
        snprintf(why, WHY_ROOM, "inode %llu is gone and its entry is not; delete the file, and restore it from a "
                 "snapshot",
                 (number)ino);
        return false;
    }
    if (see_any(c, DB_CHUNK, ino, viewer) || see_any(c, DB_LINK, ino, viewer)) {
        snprintf(why, WHY_ROOM, "inode %llu is gone, and records of its data or links are not: space is lost, no data",
                 (number)ino);
        return false;
    }
    return true;
}

void check_inode(struct check *c, struct check_group *g)
{
    uint64_t ino = key_number(g->key.bytes, 0);
    for (unsigned i = 0; i < g->count && !c->error; i++) {
        struct inode inode;
        examine_record(c, g, i);
        if (g->items[i].gone)
            examine(c, g, i, 0, test_inode_gone);
        else if (inode_decode(item_value(g, i), g->items[i].length, ino, &inode, NULL))
            found_in(c, g, i, ino, true, "the record of inode %llu cannot be read; restore the file from a snapshot "
                     "or a backup", (number)ino);
        else
            examine(c, g, i, ino, test_inode);
    }
    usage_add(c, g);
}

/* ---- entries ---- */

/* Another inode that the entry named before does not claim it any more. */
static bool test_displaced(struct check *c, const struct check_group *g, unsigned i, uint64_t now, uint64_t viewer,
                           char *why)
{
    struct inode inode;
    struct entry *old = malloc(sizeof(*old));
    uint64_t dir = key_number(g->key.bytes, 0), position = key_number(g->key.bytes, 8);
    long beneath = group_beneath(c, g, i);
    bool right = !old || beneath < 0 || g->items[beneath].gone ||
                 entry_decode(item_value(g, (unsigned)beneath), g->items[beneath].length, position, old) ||
                 old->ino == now || !see_inode(c, old->ino, viewer, &inode) ||
                 !claims(c, &inode, dir, position, viewer);
    if (!right)
        snprintf(why, WHY_ROOM, "inode %llu says it is in directory %llu, whose entry is gone: nobody can reach it, "
                 "and its space is lost", (number)old->ino, (number)dir);
    free(old);
    return right;
}

static bool entry_leads(struct check *c, const struct entry *e, uint64_t dir, uint64_t viewer, char *why)
{
    struct inode inode;
    if (!see_inode(c, dir, viewer, &inode) || inode.type != STORE_DIR) {
        snprintf(why, WHY_ROOM, "entry '%.100s' lies in directory %llu, which is not there: nobody can reach it, and "
                 "its space is lost", e->name, (number)dir);
        return false;
    }
    if (!see_inode(c, e->ino, viewer, &inode)) {
        snprintf(why, WHY_ROOM, "entry '%.100s' in directory %llu leads to inode %llu, which is not there; delete it, "
                 "and restore it from a snapshot", e->name, (number)dir, (number)e->ino);
        return false;
    }
    if (inode.type != e->type || inode.generation != e->generation || !claims(c, &inode, dir, e->position, viewer)) {
        snprintf(why, WHY_ROOM, "entry '%.100s' in directory %llu leads to inode %llu, which says it is another" ADVICE,
                 e->name, (number)dir, (number)e->ino);
        return false;
    }
    return true;
}

static bool test_entry(struct check *c, const struct check_group *g, unsigned i, uint64_t viewer, char *why)
{
    enum { SLOT_FIRST = 3, SLOT_MASK = 255 };
    struct entry *e = malloc(sizeof(*e));
    uint64_t dir = key_number(g->key.bytes, 0), position = key_number(g->key.bytes, 8);
    if (!e) {
        c->error = -ENOMEM;
        return true;
    }
    entry_decode(item_value(g, i), g->items[i].length, position, e); /* known to be good */
    struct store_name name = {.bytes = e->name, .length = e->length};
    bool right = e->length && (position & SLOT_MASK) >= SLOT_FIRST &&
                 name_key(c->l->meta, 0, dir, name).sub == (position & ~(uint64_t)SLOT_MASK);
    if (!right)
        snprintf(why, WHY_ROOM, "entry '%.100s' of directory %llu lies where it cannot be found; rename the "
                 "directory's files away and delete it", e->name, (number)dir);
    right = right && entry_leads(c, e, dir, viewer, why) && test_displaced(c, g, i, e->ino, viewer, why);
    free(e);
    return right;
}

static bool test_entry_gone(struct check *c, const struct check_group *g, unsigned i, uint64_t viewer, char *why)
{
    return test_displaced(c, g, i, 0, viewer, why);
}

void check_entry(struct check *c, struct check_group *g)
{
    uint64_t dir = key_number(g->key.bytes, 0);
    struct entry *e = malloc(sizeof(*e));
    if (!e)
        c->error = -ENOMEM;
    for (unsigned i = 0; i < g->count && !c->error; i++) {
        examine_record(c, g, i);
        if (g->items[i].gone)
            examine(c, g, i, 0, test_entry_gone);
        else if (entry_decode(item_value(g, i), g->items[i].length, key_number(g->key.bytes, 8), e))
            found_in(c, g, i, dir, true, "an entry of directory %llu cannot be read; restore the file from a "
                     "snapshot or a backup", (number)dir);
        else
            examine(c, g, i, dir, test_entry);
    }
    free(e);
    sum_entry(c, g);
}

/* ---- links ---- */

static bool test_link(struct check *c, const struct check_group *g, unsigned i, uint64_t viewer, char *why)
{
    struct inode inode;
    struct entry *e = malloc(sizeof(*e));
    uint64_t ino = key_number(g->key.bytes, 0), dir = key_number(g->key.bytes, 8);
    uint64_t position = key_number(g->key.bytes, 16);
    bool there = e && see_entry(c, dir, position, viewer, e) && e->ino == ino;
    free(e);
    bool known = see_inode(c, ino, viewer, &inode) && inode.type != STORE_DIR;
    bool right = g->items[i].gone ? !there || (known && inode.parent == dir && inode.position == position)
                                  : there && known && (inode.parent != dir || inode.position != position);
    if (!right)
        snprintf(why, WHY_ROOM, "a link of inode %llu in directory %llu is recorded otherwise than it is" ADVICE,
                 (number)ino, (number)dir);
    return right;
}

void check_link(struct check *c, struct check_group *g)
{
    for (unsigned i = 0; i < g->count && !c->error; i++) {
        examine_record(c, g, i);
        examine(c, g, i, key_number(g->key.bytes, 0), test_link);
    }
}

/* ---- sums ---- */

void sums_add(struct check *c, struct check_sums *sums, uint64_t version, int64_t by)
{
    unsigned at = sums->count;
    while (at && sums->at[at - 1].version > version)
        at--;
    if (at && sums->at[at - 1].version == version) {
        sums->at[at - 1].by += by;
        return;
    }
    sums->at = grow(c, sums->at, sizeof(*sums->at), sums->count, &sums->room);
    if (c->error)
        return;
    memmove(sums->at + at + 1, sums->at + at, (sums->count - at) * sizeof(*sums->at));
    sums->at[at] = (struct check_sum){version, by};
    sums->count++;
}

static int64_t entry_weight(const struct check_group *g, long i)
{
    enum { AT_TYPE = 1 };
    return i >= 0 && !g->items[i].gone && g->items[i].length > AT_TYPE &&
           item_value(g, (unsigned)i)[AT_TYPE] == STORE_DIR;
}

void sum_entry(struct check *c, struct check_group *g)
{
    for (unsigned i = 0; i < g->count && !c->error; i++) {
        int64_t by = entry_weight(g, i) - entry_weight(g, group_beneath(c, g, i));
        if (by || !c->sums.count)
            sums_add(c, &c->sums, g->items[i].version, by);
    }
}

/* What the sums come to for a version: its own and those of the versions above it. */
static void sums_total(struct check *c)
{
    struct check_sum *at = c->sums.at;
    for (unsigned k = 0; k < c->sums.count; k++) {
        uint64_t parent = versions_parent(c->vs, at[k].version);
        long above = parent ? nearest(c->vs, &at[0].version, sizeof(at[0]), k, parent) : -1;
        at[k].by += above < 0 ? 0 : at[above].by;
    }
}

struct comparison {
    enum db db;
    uint64_t owner;
    bool report, right;
};

static bool agrees(struct check *c, const struct check_group *g, uint64_t viewer, int64_t sum,
                   const struct comparison *k, char *why)
{
    struct inode inode;
    long seen = group_seen(c, g, viewer);
    if (seen < 0 || g->items[seen].gone ||
        inode_decode(item_value(g, (unsigned)seen), g->items[seen].length, k->owner, &inode, NULL))
        return true; /* found otherwise */
    if (k->db == DB_CHUNK && inode.blocks != (uint64_t)sum)
        snprintf(why, WHY_ROOM, "inode %llu says it holds %llu blocks, and its data are %lld" ADVICE, (number)k->owner,
                 (number)inode.blocks, (long long)sum);
    if (k->db == DB_ENTRY && inode.nlink != (uint64_t)sum + 2)
        snprintf(why, WHY_ROOM, "directory %llu has a link count of %u, and %lld directories in it: harmless; moving a "
                 "directory out and in again does not mend it, making it anew does", (number)k->owner, inode.nlink,
                 (long long)sum);
    return k->db == DB_CHUNK ? inode.blocks == (uint64_t)sum : inode.nlink == (uint64_t)sum + 2;
}

/* A version where the sum, or the inode, changes; and where it has no name, those that see the same. */
static void compare_at(struct check *c, const struct check_group *g, uint64_t version, struct comparison *k)
{
    char why[WHY_ROOM];
    for (uint64_t v = version; v; v = versions_next(c->vs, v)) {
        long sum = nearest(c->vs, &c->sums.at[0].version, sizeof(c->sums.at[0]), c->sums.count, v);
        if (v != version && !versions_is_ancestor(c->vs, version, v))
            continue;
        if (agrees(c, g, v, sum < 0 ? 0 : c->sums.at[sum].by, k, why)) {
            if (v == version)
                return;
            continue;
        }
        if (!versions_tree(c->vs, v))
            continue;
        k->right = false;
        if (k->report)
            found(c, v, k->owner, false, "%s", why);
        return;
    }
}

bool owner_is_right(struct check *c, enum db db, uint64_t owner, bool may_report)
{
    struct comparison k = {.db = db, .owner = owner, .report = may_report, .right = true};
    struct key key;
    struct check_sums *sums = &c->sums;
    key_inode(&key, owner);
    if (!sums->count || (db == DB_ENTRY && list_has(c->orphans, c->orphan_count, owner)))
        return true;
    int error = group_find(c, &c->other, DB_INODE, &key);
    if (error) {
        c->error = error;
        return true;
    }
    sums_total(c);
    for (unsigned i = 0; i < sums->count; i++)
        compare_at(c, &c->other, sums->at[i].version, &k);
    for (unsigned i = 0; i < c->other.count; i++) {
        uint64_t version = c->other.items[i].version;
        long same = nearest(c->vs, &sums->at[0].version, sizeof(sums->at[0]), sums->count, version);
        if (same < 0 || sums->at[same].version != version)
            compare_at(c, &c->other, version, &k);
    }
    return k.right;
}

static void owner_end(struct check *c, enum db db, uint64_t owner)
{
    if (owner_is_right(c, db, owner, !c->owner_split) || !c->owner_split)
        return;
    if (c->split_count < SPLITS_MOST)
        c->splits[c->split_count++] = (struct check_split){db, owner};
    else
        atomic_fetch_add(&c->job->unsettled, 1);
}

void check_directory(struct check *c, uint64_t dir)
{
    owner_end(c, DB_ENTRY, dir);
}

void check_file(struct check *c, uint64_t ino)
{
    owner_end(c, DB_CHUNK, ino);
}

/* ---- usage ---- */

static struct check_usage *usage_of(struct check *c, uint64_t version)
{
    unsigned low = 0, high = c->usage_count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (c->usage[middle].version < version)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < c->usage_count && c->usage[low].version == version)
        return &c->usage[low];
    c->usage = grow(c, c->usage, sizeof(*c->usage), c->usage_count, &c->usage_room);
    if (c->error)
        return NULL;
    memmove(c->usage + low + 1, c->usage + low, (c->usage_count - low) * sizeof(*c->usage));
    c->usage[low] = (struct check_usage){.version = version};
    c->usage_count++;
    return &c->usage[low];
}

static int64_t blocks_of(const struct check_group *g, long i)
{
    struct inode inode;
    bool good = i >= 0 && !g->items[i].gone &&
                inode_decode(item_value(g, (unsigned)i), g->items[i].length, 0, &inode, NULL) == 0;
    return good ? (int64_t)inode.blocks : 0;
}

void usage_add(struct check *c, const struct check_group *g)
{
    if (list_has(c->orphans, c->orphan_count, key_number(g->key.bytes, 0)))
        return;
    for (unsigned i = 0; i < g->count && !c->error; i++) {
        long beneath = group_beneath(c, g, i);
        struct check_usage *u = usage_of(c, g->items[i].version);
        if (!u)
            return;
        u->blocks += blocks_of(g, i) - blocks_of(g, beneath);
        u->files += !g->items[i].gone - (beneath >= 0 && !g->items[beneath].gone);
    }
}

/* What the versions add becomes what they see. */
static void usage_total(struct check *c)
{
    struct check_usage *at = c->usage;
    for (unsigned k = 0; k < c->usage_count; k++) {
        uint64_t parent = versions_parent(c->vs, at[k].version);
        long above = parent ? nearest(c->vs, &at[0].version, sizeof(at[0]), k, parent) : -1;
        at[k].blocks += above < 0 ? 0 : at[above].blocks;
        at[k].files += above < 0 ? 0 : at[above].files;
    }
}

static void compare_tree(struct check *c, const struct tree_record *tree, bool may_report, bool *wrong)
{
    uint8_t value[RECORD_MAX];
    char key[64];
    size_t length;
    struct usage_record says = {0}, is = {0};
    long at = c->usage_count
                  ? nearest(c->vs, &c->usage[0].version, sizeof(c->usage[0]), c->usage_count, tree->version) : -1;
    if (at >= 0)
        is = (struct usage_record){(uint64_t)c->usage[at].blocks, (uint64_t)c->usage[at].files};
    snprintf(key, sizeof(key), "usage/%08x", tree->id);
    if (meta_system_get(c->t, key, value, sizeof(value), &length) == 0 && usage_decode(value, length, &says))
        says.files = UINT64_MAX;
    if (says.blocks == is.blocks && says.files == is.files)
        return;
    *wrong = true;
    if (may_report)
        found(c, tree->version, 0, false, "it holds %llu blocks of data and %llu files, and its usage says %llu and "
              "%llu: its size limit and df are wrong by the difference; copying it into a new volume mends that",
              (number)is.blocks, (number)is.files, (number)says.blocks, (number)says.files);
}

void usage_compare(struct check *c, bool may_report, bool *wrong)
{
    uint8_t value[RECORD_MAX];
    char key[64] = "";
    size_t length;
    struct tree_record tree;
    *wrong = false;
    usage_total(c);
    while (meta_system_next(c->t, "tree/", key, value, sizeof(value), &length) == 0)
        if (tree_decode(value, length, &tree) == 0)
            compare_tree(c, &tree, may_report, wrong);
    c->usage_count = 0;
}
