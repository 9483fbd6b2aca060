#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <urcu.h>

#include "store/local/check_private.h"

enum { STEP_NS = 3000000, RECORDS_EVERY = 64 };

/* ---- memory ---- */

void *grow(struct check *c, void *list, size_t size, unsigned count, unsigned *room)
{
    if (count < *room)
        return list;
    unsigned wanted = *room ? *room * 2 : 64;
    void *grown = realloc(list, wanted * size);
    if (!grown) {
        c->error = -ENOMEM;
        return list;
    }
    *room = wanted;
    return grown;
}

bool list_has(const uint64_t *list, unsigned count, uint64_t number)
{
    unsigned low = 0, high = count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (list[middle] == number)
            return true;
        if (list[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* ---- steps ---- */

int step_begin(struct check *c)
{
    if (c->error)
        return c->error;
    int error = meta_read_begin(c->l, &c->t);
    if (error)
        return c->error = error;
    c->step_began = clock_monotonic_ns();
    c->drops_known = false;
    c->vs = versions_copy(txn_versions(c->t));
    if (!c->vs)
        c->error = -ENOMEM;
    tops_load(c);
    if (c->error)
        meta_read_end(c->t);
    return c->error;
}

void step_end(struct check *c)
{
    meta_read_end(c->t);
    versions_free(c->vs);
    c->vs = NULL;
    c->t = NULL;
    if (!c->job->gently)
        return;
    uint64_t took = clock_monotonic_ns() - c->step_began;
    nanosleep(&(struct timespec){.tv_nsec = (long)(took < 100000000 ? took : 100000000)}, NULL);
}

bool step_is_over(const struct check *c)
{
    return clock_monotonic_ns() - c->step_began >= STEP_NS;
}

bool check_stopped(struct check *c)
{
    if (!c->error && (atomic_load(&c->job->stop) || atomic_load(&c->l->stopping)))
        c->error = -ECANCELED;
    return c->error;
}

/* ---- records of one key ---- */

static void group_add(struct check *c, struct check_group *g, const struct record *r)
{
    g->items = grow(c, g->items, sizeof(*g->items), g->count, &g->room);
    if (!c->error && g->used + r->length > g->bytes_room) {
        size_t room = (g->used + r->length) * 2 + RECORD_MAX;
        uint8_t *grown = realloc(g->bytes, room);
        if (grown) {
            g->bytes = grown;
            g->bytes_room = room;
        } else {
            c->error = -ENOMEM;
        }
    }
    if (c->error)
        return;
    memcpy(g->bytes + g->used, r->value, r->length);
    g->items[g->count++] = (struct check_item){.version = key_version(r->key, r->key_length),
                                               .at = (uint32_t)g->used,
                                               .length = r->length,
                                               .gone = record_is_gone(r->value, r->length)};
    g->used += r->length;
}

static bool same_key(const struct check_group *g, const struct record *r)
{
    return r->key_length == g->key.length + KEY_VERSION && memcmp(r->key, g->key.bytes, g->key.length) == 0;
}

static void group_turn(struct check_group *g)
{
    for (unsigned i = 0, k = g->count; i + 1 < k; i++) {
        struct check_item item = g->items[i];
        g->items[i] = g->items[--k];
        g->items[k] = item;
    }
}

int group_load(struct check *c, struct check_group *g, enum db db)
{
    int error = 0;
    g->db = db;
    g->count = 0;
    g->used = 0;
    if (c->row->key_length <= KEY_VERSION)
        return c->error = SL_ECORRUPT;
    g->key.length = (uint8_t)(c->row->key_length - KEY_VERSION);
    memcpy(g->key.bytes, c->row->key, g->key.length);
    while (!error && !c->error && same_key(g, c->row)) {
        group_add(c, g, c->row);
        atomic_fetch_add_explicit(&c->job->records, 1, memory_order_relaxed);
        error = db_step(c->t, db, c->row);
    }
    group_turn(g);
    return c->error ? c->error : error;
}

int group_find(struct check *c, struct check_group *g, enum db db, const struct key *k)
{
    struct key at = *k;
    g->db = db;
    g->count = 0;
    g->used = 0;
    g->key = *k;
    key_add_version(&at, ~0ull);
    int error = db_seek(c->t, db, &at, c->row);
    while (!error && !c->error && same_key(g, c->row)) {
        group_add(c, g, c->row);
        error = db_step(c->t, db, c->row);
    }
    group_turn(g);
    if (c->error)
        return c->error;
    return error == -ENOENT ? 0 : error;
}

long nearest(const struct versions *vs, const uint64_t *versions, size_t stride, unsigned count, uint64_t version)
{
    const char *base = (const char *)versions;
    while (version) {
        unsigned low = 0, high = count; /* the first that is greater */
        while (low < high) {
            unsigned middle = low + (high - low) / 2;
            if (*(const uint64_t *)(base + middle * stride) <= version)
                low = middle + 1;
            else
                high = middle;
        }
        if (low == 0)
            return -1;
        uint64_t found = *(const uint64_t *)(base + (low - 1) * stride);
        if (found == version || versions_is_ancestor(vs, found, version))
            return (long)low - 1;
        version = versions_below(vs, version, found);
    }
    return -1;
}

long group_seen(const struct check *c, const struct check_group *g, uint64_t version)
{
    return g->count ? nearest(c->vs, &g->items[0].version, sizeof(g->items[0]), g->count, version) : -1;
}

long group_beneath(const struct check *c, const struct check_group *g, unsigned i)
{
    uint64_t parent = versions_parent(c->vs, g->items[i].version);
    return parent ? nearest(c->vs, &g->items[0].version, sizeof(g->items[0]), i, parent) : -1;
}

/* ---- walks ---- */

static void owner_ends(struct check *c, const struct check_walk *w)
{
    if (c->owner_open && w->owner)
        w->owner(c, c->owner);
    c->owner_open = false;
    c->sums.count = 0;
}

static void take_group(struct check *c, const struct check_walk *w)
{
    uint64_t owner = key_number(c->group.key.bytes, 0);
    if (c->owner_open && owner != c->owner)
        owner_ends(c, w);
    if (!c->owner_open) {
        c->owner = owner;
        c->owner_open = true;
        c->owner_split = false;
    }
    w->group(c, &c->group);
}

/* A step from `at` on, which is moved; 1: at the end. */
static int walk_step(struct check *c, const struct check_walk *w, struct key *at)
{
    if (step_begin(c))
        return c->error;
    int error = db_seek(c->t, w->db, at, c->row);
    while (!error) {
        error = group_load(c, &c->group, w->db);
        if (error && error != -ENOENT)
            break;
        bool end = error == -ENOENT;
        take_group(c, w);
        *at = c->group.key;
        error = c->error;
        if (!error && (end || !key_increment(at)))
            error = -ENOENT;
        if (!error)
            error = db_seek(c->t, w->db, at, c->row);
        /* An owner that ends here has been seen in one transaction, so it is looked at in this one. */
        if (!error && c->owner_open && key_number(c->row->key, 0) != c->owner) {
            owner_ends(c, w);
            error = db_seek(c->t, w->db, at, c->row);
        }
        if (!error && (step_is_over(c) || check_stopped(c)))
            break;
    }
    if (error == -ENOENT)
        owner_ends(c, w);
    else if (error && !c->error)
        c->error = error;
    c->owner_split = true;
    step_end(c);
    return c->error ? c->error : error == -ENOENT;
}

int walk(struct check *c, const struct check_walk *w)
{
    struct key at = {.length = 1};
    int end = 0;
    c->owner_open = false;
    c->sums.count = 0;
    while (!end && !check_stopped(c))
        end = walk_step(c, w, &at);
    return c->error;
}

/* ---- judging a record ---- */

static bool load_drops(struct check *c)
{
    uint8_t value[RECORD_MAX];
    char key[64] = "";
    size_t length;
    if (c->drops_known)
        return true;
    c->drop_count = 0;
    while (meta_system_next(c->t, "drop/", key, value, sizeof(value), &length) == 0) {
        unsigned room = (unsigned)c->drop_room;
        c->drops = grow(c, c->drops, sizeof(*c->drops), (unsigned)c->drop_count, &room);
        c->drop_room = room;
        if (c->error)
            return false;
        c->drops[c->drop_count++] = ~strtoull(key + strlen("drop/"), NULL, 16);
    }
    c->drops_known = true;
    return true;
}

bool is_dropping(struct check *c, uint64_t version)
{
    uint8_t value[RECORD_MAX];
    char prefix[64], key[64] = "";
    size_t length;
    if (!load_drops(c))
        return true;
    for (size_t i = 0; i < c->drop_count; i++)
        if (versions_is_ancestor(c->vs, version, c->drops[i]) || versions_is_ancestor(c->vs, c->drops[i], version))
            return true;
    snprintf(prefix, sizeof(prefix), "again/%016llx/", (unsigned long long)version);
    return meta_system_next(c->t, prefix, key, value, sizeof(value), &length) == 0;
}

static bool push_children(struct check *c, uint64_t version, unsigned *count)
{
    const uint64_t *children;
    long more = versions_children(c->vs, version, &children);
    for (long k = 0; k < more && !c->error; k++) {
        c->stack = grow(c, c->stack, sizeof(*c->stack), *count, &c->stack_room);
        if (!c->error)
            c->stack[(*count)++] = children[k];
    }
    if (more < 0)
        c->error = (int)more;
    return !c->error;
}

/* Some version with a name sees item i, whose own has none.  True also without memory. */
static bool is_seen(struct check *c, const struct check_group *g, unsigned i)
{
    unsigned count = 0;
    if (!push_children(c, g->items[i].version, &count))
        return true;
    while (count) {
        uint64_t at = c->stack[--count];
        if (group_seen(c, g, at) != (long)i)
            continue;
        if (versions_tree(c->vs, at) || !push_children(c, at, &count))
            return true;
    }
    return false;
}

static const char *const db_texts[] = {"inode", "entry", "link", "chunk"};

void examine_record(struct check *c, const struct check_group *g, unsigned i)
{
    const struct check_item *item = &g->items[i];
    uint64_t number = key_number(g->key.bytes, 0);
    if (!versions_known(c->vs, item->version)) {
        found(c, 0, 0, false, "%s record of inode %llu belongs to version %llu, which is not there: space is lost, "
              "no data",
              db_texts[g->db], (unsigned long long)number, (unsigned long long)item->version);
        return;
    }
    if (!versions_tree(c->vs, item->version) && !is_seen(c, g, i) && !is_dropping(c, item->version))
        found(c, 0, 0, false, "%s record of inode %llu, version %llu: no volume or snapshot sees it, and nothing is "
              "waiting to remove it: space is lost, no data", db_texts[g->db], (unsigned long long)number,
              (unsigned long long)item->version);
    long beneath = item->gone ? group_beneath(c, g, i) : 0;
    if ((beneath < 0 || (item->gone && g->items[beneath].gone)) && !is_dropping(c, item->version))
        found_in(c, g, i, 0, false, "%s record of inode %llu, version %llu, says \"gone\" where nothing was before: "
                 "harmless", db_texts[g->db], (unsigned long long)number, (unsigned long long)item->version);
    touched_has(c, g, i);
}

void examine(struct check *c, const struct check_group *g, unsigned i, uint64_t ino, check_test *test)
{
    char why[WHY_ROOM] = "";
    uint64_t own = g->items[i].version;
    if (!versions_known(c->vs, own) || test(c, g, i, own, why))
        return;
    if (versions_tree(c->vs, own)) {
        found(c, own, ino, false, "%s", why);
        return;
    }
    for (uint64_t v = versions_next(c->vs, own); v; v = versions_next(c->vs, v)) {
        if (!versions_tree(c->vs, v) || group_seen(c, g, v) != (long)i || test(c, g, i, v, why))
            continue;
        found(c, v, ino, false, "%s", why);
        return;
    }
}

/* ---- findings ---- */

/* From the end of the room to its beginning; NULL: not to be found. */
static const char *path_of(struct check *c, uint64_t version, uint64_t ino, char room[PATH_ROOM], size_t *length)
{
    size_t at = PATH_ROOM;
    struct inode inode;
    struct entry *entry = malloc(sizeof(*entry));
    struct record *r = malloc(sizeof(*r));
    bool good = entry && r;
    while (good && !list_has(c->roots, c->root_count, ino)) {
        struct key k;
        uint64_t seen;
        key_inode(&k, ino);
        good = visible(c->t, DB_INODE, &k, version, r, &seen) == 0 &&
               inode_decode(r->value, r->length, ino, &inode, NULL) == 0;
        key_entry(&k, inode.parent, inode.position);
        good = good && visible(c->t, DB_ENTRY, &k, version, r, &seen) == 0 &&
               entry_decode(r->value, r->length, inode.position, entry) == 0 && entry->ino == ino &&
               inode.parent != ino && at > entry->length + 1u;
        if (!good)
            break;
        at -= entry->length;
        memcpy(room + at, entry->name, entry->length);
        room[--at] = '/';
        ino = inode.parent;
    }
    if (good && at == PATH_ROOM)
        room[--at] = '/';
    free(entry);
    free(r);
    *length = PATH_ROOM - at;
    return good ? room + at : NULL;
}

static void report(struct check *c, struct store_finding *f, uint64_t version, uint64_t ino)
{
    char path[PATH_ROOM];
    if (atomic_fetch_add(&c->job->findings, 1) >= c->job->findings_most)
        return;
    if (version && ino && !c->again)
        f->path = path_of(c, version, ino, path, &f->path_length);
    c->job->finding(c->job->arg, f);
}

void found(struct check *c, uint64_t version, uint64_t ino, bool is_data, const char *format, ...)
{
    char text[1024];
    uint32_t tree = version ? versions_tree(c->vs, version) : 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    struct store_finding f = {.trees = &tree, .tree_count = tree != 0, .text = text, .is_data = is_data};
    report(c, &f, version, ino);
}

void found_in(struct check *c, const struct check_group *g, unsigned i, uint64_t ino, bool is_data, const char *format,
              ...)
{
    char text[1024];
    uint32_t trees[TREES_SHOWN];
    uint64_t first = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    struct store_finding f = {.trees = trees, .text = text, .is_data = is_data};
    for (uint64_t v = g->items[i].version; v && f.tree_count < TREES_SHOWN; v = versions_next(c->vs, v)) {
        if (!versions_tree(c->vs, v) || group_seen(c, g, v) != (long)i)
            continue;
        first = first ? first : v;
        trees[f.tree_count++] = versions_tree(c->vs, v);
    }
    report(c, &f, first, ino);
}

/* ---- the order of things ---- */

static void estimate(struct check *c)
{
    static const enum db walked[] = {DB_TOUCHED, DB_FREE, DB_REF, DB_INODE, DB_ENTRY, DB_LINK, DB_CHUNK};
    uint64_t total = 0, live = 0;
    MDB_stat stat;
    for (size_t i = 0; i < sizeof(walked) / sizeof(walked[0]); i++)
        if (mdb_stat(c->t->mdb, c->l->meta->dbi[walked[i]], &stat) == 0)
            total += stat.ms_entries;
    for (unsigned i = 0; i < c->segs.count; i++)
        live += c->segs.at[i].live;
    atomic_store(&c->job->records_total, c->job->metadata ? total : 0);
    atomic_store(&c->job->bytes_total, c->job->data ? live * STORE_BLOCK : 0);
}

static void phase(struct check *c, enum store_check_phase now)
{
    atomic_store(&c->job->phase, now);
}

/* What is free and what is counted is read before the chunks are, and `touched` before any record: what they say of a
 * record that is looked at later can then only be too little in ways that are known. */
static void check_metadata(struct check *c)
{
    static const struct check_walk walks[] = {
        {DB_ENTRY, check_entry, check_directory},
        {DB_LINK, check_link, NULL},
        {DB_INODE, check_inode, NULL},
    };
    static const struct check_walk chunks = {DB_CHUNK, check_chunk, check_file};
    phase(c, STORE_CHECK_VERSIONS);
    check_versions(c);
    if (touched_read(c))
        return;
    phase(c, STORE_CHECK_NAMES);
    for (size_t i = 0; i < sizeof(walks) / sizeof(walks[0]); i++)
        if (walk(c, &walks[i]))
            return;
    phase(c, STORE_CHECK_CHUNKS);
    if (free_read(c) || refs_read(c) || walk(c, &chunks))
        return;
    phase(c, STORE_CHECK_SUMS);
    check_again(c);
}

static void check_run(struct check *c)
{
    if (step_begin(c))
        return;
    if (c->job->metadata)
        check_trees(c);
    segs_load(c);
    estimate(c);
    step_end(c);
    if (!c->error && c->job->metadata)
        check_metadata(c);
    if (!c->error && c->job->data) {
        phase(c, STORE_CHECK_DATA);
        check_data(c);
    }
    phase(c, STORE_CHECK_END);
}

int store_check_run(struct store *s, struct store_check *job)
{
    struct check *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->l = local_of(s);
    c->job = job;
    c->row = malloc(sizeof(*c->row));
    c->splits = malloc(SPLITS_MOST * sizeof(*c->splits));
    c->error = c->row && c->splits ? 0 : -ENOMEM;
    check_run(c);
    int error = c->error;
    touched_free(c);
    segs_forget(c);
    free(c->row);
    free(c->splits);
    free(c->drops);
    free(c->stack);
    free(c->roots);
    free(c->orphans);
    free(c->sums.at);
    free(c->usage);
    free(c->places);
    free(c->wrong);
    free(c->group.items);
    free(c->group.bytes);
    free(c->other.items);
    free(c->other.bytes);
    free(c);
    return error;
}
