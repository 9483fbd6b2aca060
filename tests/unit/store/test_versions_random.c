#include "audit_held.h"
#include "copy_fixture.h"
#include "snapshot_fixture.h"

/* Random operations on several volumes, their snapshots and clones, against an image of each in memory: contents and
 * attributes of every one must be what they were.  STEPS=N and SEED=N in the environment choose others. */

enum {
    TREES = 14,
    NODES = 30,
    NAMES = 7,
    SIZE_MOST = 400000,
    TALL = 80, /* chunks of a tall file, one block in each: more than go at once */
    STEPS = 20000,
    COMPARE_EVERY = 500,
    AUDIT_EVERY = 2000,
};

struct content { /* shared by images, copied before it is changed */
    unsigned refs;
    uint8_t bytes[SIZE_MOST];
};

struct node {
    bool used, tall;
    enum store_type type;
    uint64_t ino;
    uint32_t nlink, size;     /* size of a tall file: in chunks */
    int parent, child[NAMES]; /* -1: none */
    struct content *content;
    uint8_t tags[TALL];       /* of a tall file: what its blocks begin with; 0: a hole */
    struct store_attr attr;
};

struct image {
    uint32_t id, volume; /* volume 0: it is one */
    unsigned lineage;
    struct node nodes[NODES]; /* the first is the root */
};

static struct image *images[TREES];
static struct pool *pool;

static unsigned rnd(unsigned below)
{
    return (unsigned)random() % below;
}

static const char *name_of(unsigned n)
{
    static const char *const names[NAMES] = {"a", "bb", "ccc", "dddd", "eeeee", "ffffff", "ggggggg"};
    return names[n];
}

static struct store_object object(const struct image *m, const struct node *n)
{
    return (struct store_object){.tree = m->id, .generation = 1, .ino = n->ino};
}

/* ---- images ---- */

static void content_put(struct content *c)
{
    if (c && --c->refs == 0)
        free(c);
}

static uint8_t *content_of(struct node *n)
{
    if (n->content->refs > 1) {
        struct content *copy = malloc(sizeof(*copy));
        memcpy(copy, n->content, sizeof(*copy));
        copy->refs = 1;
        n->content->refs--;
        n->content = copy;
    }
    return n->content->bytes;
}

static struct image *image_copy(const struct image *from)
{
    struct image *m = malloc(sizeof(*m));
    *m = *from;
    for (unsigned i = 0; i < NODES; i++)
        if (m->nodes[i].content)
            m->nodes[i].content->refs++;
    return m;
}

static void image_free(struct image *m)
{
    for (unsigned i = 0; i < NODES; i++)
        content_put(m->nodes[i].content);
    free(m);
}

static int node_new(struct image *m, enum store_type type, bool tall)
{
    for (int i = 1; i < NODES; i++) {
        struct node *n = &m->nodes[i];
        if (n->used)
            continue;
        *n = (struct node){.used = true, .tall = tall, .type = type, .nlink = type == STORE_DIR ? 2 : 1, .parent = -1};
        memset(n->child, -1, sizeof(n->child));
        if (type == STORE_REG && !tall) {
            n->content = calloc(1, sizeof(*n->content));
            n->content->refs = 1;
        }
        return i;
    }
    return -1;
}

static void node_unlink(struct image *m, int i)
{
    struct node *n = &m->nodes[i];
    if (n->type != STORE_DIR && --n->nlink > 0)
        return;
    content_put(n->content);
    n->content = NULL;
    n->used = false;
}

static void note_attr(struct image *m, int i)
{
    struct store_object o = object(m, &m->nodes[i]);
    m->nodes[i].attr = attr_of(pool, &o);
}

static struct image *random_image(bool volume)
{
    for (unsigned tries = 0; tries < 100; tries++) {
        struct image *m = images[rnd(TREES)];
        if (m && !m->volume == volume)
            return m;
    }
    return NULL;
}

static int random_node(const struct image *m, enum store_type type, int tall)
{
    for (unsigned tries = 0; tries < 200; tries++) {
        int i = (int)rnd(NODES);
        const struct node *n = &m->nodes[i];
        if (n->used && n->type == type && (tall < 0 || n->tall == tall))
            return i;
    }
    return type == STORE_DIR ? 0 : -1;
}

static struct image **free_slot(void)
{
    for (unsigned i = 0; i < TREES; i++)
        if (!images[i])
            return &images[i];
    return NULL;
}

/* ---- file operations ---- */

static void do_make(struct image *m)
{
    int d = random_node(m, STORE_DIR, -1);
    unsigned at = rnd(NAMES);
    static const enum store_type types[] = {STORE_REG, STORE_REG, STORE_REG, STORE_REG, STORE_DIR, STORE_LNK};
    enum store_type type = types[rnd(6)];
    struct store_object dir = object(m, &m->nodes[d]), o;
    bool there = m->nodes[d].child[at] >= 0;
    int i = there ? -1 : node_new(m, type, rnd(5) == 0 && type == STORE_REG);
    if (!there && i < 0)
        return;
    assert_int_equal(t_make(pool, &root_cred, &dir, name_of(at), type, 0644, &o), there ? -EEXIST : 0);
    if (there)
        return;
    m->nodes[i].ino = o.ino;
    m->nodes[i].parent = d;
    m->nodes[d].child[at] = i;
    if (type == STORE_DIR)
        m->nodes[d].nlink++;
    note_attr(m, i);
    note_attr(m, d);
}

static bool is_empty(const struct node *n)
{
    for (unsigned i = 0; i < NAMES; i++)
        if (n->child[i] >= 0)
            return false;
    return true;
}

static void do_remove(struct image *m)
{
    int d = random_node(m, STORE_DIR, -1);
    unsigned at = rnd(NAMES);
    struct store_object dir = object(m, &m->nodes[d]);
    int i = m->nodes[d].child[at];
    bool as_dir = i >= 0 && m->nodes[i].type == STORE_DIR;
    int want = i < 0 ? -ENOENT : as_dir && !is_empty(&m->nodes[i]) ? -ENOTEMPTY : 0;
    assert_int_equal(t_remove_as(pool, &root_cred, &dir, name_of(at), as_dir, NULL), want);
    if (want)
        return;
    m->nodes[d].child[at] = -1;
    if (as_dir)
        m->nodes[d].nlink--;
    node_unlink(m, i);
    if (m->nodes[i].used)
        note_attr(m, i);
    note_attr(m, d);
}

static bool is_below(const struct image *m, int i, int above)
{
    for (; i >= 0; i = m->nodes[i].parent)
        if (i == above)
            return true;
    return false;
}

static void do_rename(struct image *m)
{
    int from_dir = random_node(m, STORE_DIR, -1), to_dir = rnd(3) ? random_node(m, STORE_DIR, -1) : from_dir;
    unsigned a = rnd(NAMES), b = rnd(NAMES);
    int from = m->nodes[from_dir].child[a], to = m->nodes[to_dir].child[b];
    if (from < 0 || from == to || (to >= 0 && m->nodes[to].type == STORE_DIR))
        return;
    bool dir = m->nodes[from].type == STORE_DIR;
    if (dir && (to >= 0 || is_below(m, to_dir, from)))
        return;
    struct store_object x = object(m, &m->nodes[from_dir]), y = object(m, &m->nodes[to_dir]);
    assert_int_equal(t_rename(pool, &x, name_of(a), &y, name_of(b)), 0);
    m->nodes[from_dir].child[a] = -1;
    m->nodes[to_dir].child[b] = from;
    if (dir) {
        m->nodes[from].parent = to_dir;
        m->nodes[from_dir].nlink--;
        m->nodes[to_dir].nlink++;
    }
    if (to >= 0)
        node_unlink(m, to);
    if (to >= 0 && m->nodes[to].used)
        note_attr(m, to);
    note_attr(m, from);
    note_attr(m, from_dir);
    note_attr(m, to_dir);
}

static void do_link(struct image *m)
{
    int d = random_node(m, STORE_DIR, -1), i = random_node(m, STORE_REG, -1);
    unsigned at = rnd(NAMES);
    if (i < 0)
        return;
    struct store_object dir = object(m, &m->nodes[d]), o = object(m, &m->nodes[i]);
    int want = m->nodes[d].child[at] >= 0 ? -EEXIST : 0;
    assert_int_equal(t_link(pool, &root_cred, &o, &dir, name_of(at)), want);
    if (want)
        return;
    m->nodes[d].child[at] = i;
    m->nodes[i].nlink++;
    note_attr(m, i);
    note_attr(m, d);
}

static void do_write(struct image *m)
{
    int i = random_node(m, STORE_REG, 0);
    if (i < 0)
        return;
    struct node *n = &m->nodes[i];
    struct store_object o = object(m, n);
    uint32_t length = 1 + (rnd(8) ? rnd(9000) : rnd(120000));
    uint32_t offset = rnd(4) ? rnd(60000) : rnd(SIZE_MOST - length);
    if (rnd(6) == 0)
        offset = 0, length = 1 + rnd(1200); /* may stay within its record */
    uint8_t *bytes = content_of(n), with = (uint8_t)random();
    for (uint32_t b = 0; b < length; b++)
        bytes[offset + b] = (uint8_t)(with + b + b / 256);
    assert_int_equal(t_write(pool, &root_cred, &o, offset, bytes + offset, length), 0);
    if (offset + length > n->size)
        n->size = offset + length;
    note_attr(m, i);
}

static void do_truncate(struct image *m)
{
    int i = random_node(m, STORE_REG, 0);
    if (i < 0)
        return;
    struct node *n = &m->nodes[i];
    struct store_object o = object(m, n);
    uint32_t size = rnd(3) ? rnd(80000) : rnd(SIZE_MOST);
    assert_int_equal(t_truncate(pool, &o, size), 0);
    if (size < n->size)
        memset(content_of(n) + size, 0, n->size - size);
    n->size = size;
    note_attr(m, i);
}

static void tall_write(struct image *m, int i, uint32_t chunk)
{
    uint8_t block[STORE_BLOCK] = {0};
    struct node *n = &m->nodes[i];
    struct store_object o = object(m, n);
    n->tags[chunk] = block[0] = (uint8_t)(1 + rnd(255));
    assert_int_equal(t_write(pool, &root_cred, &o, (uint64_t)chunk * STORE_CHUNK, block, sizeof(block)), 0);
    if (n->size < chunk * STORE_CHUNK + STORE_BLOCK)
        n->size = chunk * STORE_CHUNK + STORE_BLOCK;
}

static void do_tall(struct image *m)
{
    int i = random_node(m, STORE_REG, 1);
    if (i < 0)
        return;
    struct node *n = &m->nodes[i];
    struct store_object o = object(m, n);
    unsigned what = rnd(10);
    if (what == 0) {
        for (uint32_t c = 0; c < TALL; c++)
            tall_write(m, i, c);
    } else if (what < 4) {
        uint32_t chunk = rnd(3) ? rnd(4) : rnd(TALL);
        assert_int_equal(t_truncate(pool, &o, (uint64_t)chunk * STORE_CHUNK), 0);
        n->size = chunk * STORE_CHUNK;
        memset(n->tags + chunk, 0, TALL - chunk);
    } else {
        tall_write(m, i, rnd(TALL));
    }
    note_attr(m, i);
}

static void do_setattr(struct image *m)
{
    int i = random_node(m, rnd(2) ? STORE_REG : STORE_DIR, -1);
    if (i < 0)
        return;
    struct store_object o = object(m, &m->nodes[i]);
    struct store_setattr set = {.set = STORE_SET_MODE | STORE_SET_UID, .mode = 0600 + rnd(8), .uid = rnd(1000)};
    assert_int_equal(t_setattr(pool, &root_cred, &o, set, NULL), 0);
    note_attr(m, i);
}

/* A range of a file of any tree, cloned or copied into one of this. */
static void do_share(struct image *m)
{
    const struct image *other = rnd(3) ? m : random_image(rnd(2));
    int from = other ? random_node(other, STORE_REG, 0) : -1, to = random_node(m, STORE_REG, 0);
    if (from < 0 || to < 0)
        return;
    const struct node *source = &other->nodes[from];
    struct node *n = &m->nodes[to];
    struct store_object x = object(other, source), y = object(m, n);
    bool clone = rnd(3);
    uint32_t unit = clone || rnd(2) ? STORE_BLOCK : 1;
    uint32_t a = rnd(source->size + 1) / unit * unit, b = rnd(2) ? a : rnd(SIZE_MOST / 2) / unit * unit;
    uint32_t length = rnd(2) ? source->size - a : rnd(source->size - a + 1) / unit * unit;
    uint32_t rest = clone ? -length % STORE_BLOCK : 0;
    if (!length || length + rest > SIZE_MOST - b || (other == m && from == to && a < b + length && b < a + length))
        return;
    if (clone && rest && a + length != source->size)
        return;
    if (clone)
        assert_int_equal(t_clone_range(pool, &x, a, &y, b, length), 0);
    else
        assert_int_equal(t_copy(pool, &x, a, &y, b, length), 0);
    uint8_t *bytes = content_of(n);
    memmove(bytes + b, source->content->bytes + a, length);
    memset(bytes + b + length, 0, rest);
    n->size = b + length > n->size ? b + length : n->size;
    note_attr(m, to);
}

/* ---- comparing ---- */

struct listed {
    const struct image *m;
    const struct node *dir;
    unsigned count;
};

static bool see(void *arg, const struct store_entry *e)
{
    struct listed *l = arg;
    if (e->name.bytes[0] == '.')
        return true;
    assert_true(e->name.length <= NAMES);
    int child = l->dir->child[e->name.length - 1];
    assert_true(child >= 0);
    assert_int_equal(l->m->nodes[child].ino, e->object.ino);
    assert_non_null(e->attr);
    assert_true(e->attr->change == l->m->nodes[child].attr.change && e->fileid == e->attr->fileid);
    l->count++;
    return true;
}

static void compare_dir(const struct image *m, const struct node *n)
{
    struct listed l = {.m = m, .dir = n};
    struct store_object o = object(m, n), found;
    unsigned count = 0;
    bool eof;
    assert_int_equal(t_readdir(pool, &root_cred, &o, 0, true, see, &l, &eof), 0);
    assert_true(eof);
    for (unsigned i = 0; i < NAMES; i++) {
        count += n->child[i] >= 0;
        int rc = t_lookup(pool, &root_cred, &o, name_of(i), &found);
        assert_int_equal(rc, n->child[i] >= 0 ? 0 : -ENOENT);
        if (!rc)
            assert_int_equal(found.ino, m->nodes[n->child[i]].ino);
    }
    assert_int_equal(l.count, count);
}

static void compare_file(const struct image *m, const struct node *n)
{
    static uint8_t got[SIZE_MOST];
    struct store_object o = object(m, n);
    uint32_t count;
    if (!n->tall) {
        assert_int_equal(t_read(pool, &root_cred, &o, 0, got, SIZE_MOST, &count), 0);
        assert_int_equal(count, n->size);
        assert_memory_equal(got, n->content->bytes, n->size);
        return;
    }
    for (uint32_t c = 0; c < TALL; c += n->tags[c] ? 1 : 1 + rnd(4)) {
        assert_int_equal(t_read(pool, &root_cred, &o, (uint64_t)c * STORE_CHUNK, got, STORE_BLOCK, &count), 0);
        assert_int_equal(count, n->size > c * STORE_CHUNK ? STORE_BLOCK : 0);
        if (count && got[0] != n->tags[c])
            fail_msg("tree %u (volume %u), inode %lu, chunk %u: begins with %u, not %u", m->id, m->volume, n->ino, c,
                     got[0], n->tags[c]);
    }
}

static void compare_node(const struct image *m, const struct node *n)
{
    struct store_object o = object(m, n);
    struct store_attr attr = attr_of(pool, &o), want = n->attr;
    if (n->tall)
        attr.used = want.used; /* what lies behind a cut goes by and by */
    assert_int_equal(attr.nlink, n->nlink);
    assert_true(n->type != STORE_REG || attr.size == n->size);
    assert_true(attr.change == want.change && attr.size == want.size && attr.used == want.used);
    assert_true(attr.mode == want.mode && attr.uid == want.uid && attr.nlink == want.nlink);
    assert_memory_equal(&attr.ctime, &want.ctime, 12);
    assert_memory_equal(&attr.mtime, &want.mtime, 12);
    if (n->type == STORE_DIR)
        compare_dir(m, n);
    else if (n->type == STORE_REG)
        compare_file(m, n);
}

/* Nothing of another tree shows that is not in this one. */
static void compare_stale(const struct image *m, const struct image *other)
{
    for (unsigned i = 0; other && i < NODES; i++) {
        const struct node *n = &other->nodes[i];
        bool here = !n->used;
        for (unsigned k = 0; k < NODES && !here; k++)
            here = m->nodes[k].used && m->nodes[k].ino == n->ino;
        struct store_object o = object(m, n);
        struct store_attr attr;
        if (!here)
            assert_int_equal(t_getattr(pool, &o, &attr), -ESTALE);
    }
}

static void compare_image(const struct image *m)
{
    for (unsigned i = 0; i < NODES; i++)
        if (m->nodes[i].used)
            compare_node(m, &m->nodes[i]);
    compare_stale(m, images[rnd(TREES)]);
}

/* ---- trees ---- */

/* All attributes as they are answered; they must be no older than those of `before`. */
static void note_all(struct image *m, const struct image *before)
{
    uint64_t newest = 0;
    for (unsigned i = 0; before && i < NODES; i++)
        if (before->nodes[i].used && before->nodes[i].attr.change > newest)
            newest = before->nodes[i].attr.change;
    for (int i = 0; i < NODES; i++) {
        if (!m->nodes[i].used)
            continue;
        note_attr(m, i);
        assert_true(!before || m->nodes[i].attr.change > newest);
    }
}

static struct image *image_of(const struct image *from, uint32_t id, uint32_t volume)
{
    struct image *m = image_copy(from);
    m->id = id;
    m->volume = volume;
    return m;
}

static void do_snapshot(struct image *m)
{
    struct image **slot = free_slot();
    if (slot)
        *slot = image_of(m, t_snapshot(pool, m->id), m->id);
}

static void do_clone(struct image *m)
{
    struct image **slot = free_slot();
    (void)m;
    m = random_image(false);
    if (slot && m)
        *slot = image_of(m, t_clone(pool, m->id), 0);
}

static void do_restore(struct image *m)
{
    const struct image *to = random_image(false);
    struct image **slot = rnd(2) ? free_slot() : NULL;
    struct store_snapshot safety = {.props = "s", .props_length = 1};
    if (!to)
        return;
    int rc = t_restore(pool, m->id, to->id, slot ? &safety : NULL);
    assert_int_equal(rc, m->lineage == to->lineage ? 0 : -EXDEV);
    if (rc)
        return;
    struct image *before = image_copy(m);
    if (slot)
        *slot = image_of(m, safety.id, m->id);
    for (unsigned i = 0; i < NODES; i++) {
        content_put(m->nodes[i].content);
        m->nodes[i] = to->nodes[i];
        if (m->nodes[i].content)
            m->nodes[i].content->refs++;
    }
    note_all(m, before);
    compare_stale(m, before);
    image_free(before);
}

static void delete_image(unsigned i)
{
    struct store_attr attr;
    struct store_object o = object(images[i], &images[i]->nodes[0]);
    assert_int_equal(t_tree_delete(pool, images[i]->id), 0);
    assert_int_equal(t_getattr(pool, &o, &attr), -ESTALE);
    image_free(images[i]);
    images[i] = NULL;
}

static void do_delete(struct image *m)
{
    unsigned volumes = 0, i = rnd(TREES);
    for (unsigned n = 0; n < TREES; n++)
        volumes += images[n] && !images[n]->volume;
    if (images[i] && (images[i]->volume || (volumes > 2 && images[i] != m)))
        delete_image(i);
}

/* Small segments, and compaction as soon as there is a little to be had. */
static void open_eagerly(void)
{
    local_of(pool->s)->segs->worth_least = 64 << 10;
}

static void do_reopen(struct image *m)
{
    (void)m;
    pool_reopen(pool);
    open_eagerly();
}

static void do_compare(struct image *m)
{
    compare_image(rnd(2) || !random_image(false) ? m : random_image(false));
}

/* ---- */

static struct image *new_volume(unsigned lineage)
{
    struct image *m = calloc(1, sizeof(*m));
    struct node *root = &m->nodes[0];
    m->id = pool_tree(pool, 0);
    m->lineage = lineage;
    *root = (struct node){.used = true, .type = STORE_DIR, .nlink = 2, .parent = -1};
    root->ino = root_of(pool, m->id).ino;
    memset(root->child, -1, sizeof(root->child));
    note_attr(m, 0);
    return m;
}

static void do_one(void)
{
    static const struct {
        unsigned share;
        void (*run)(struct image *m);
    } ops[] = {
        {230, do_write}, {100, do_share}, {130, do_make}, {90, do_remove},  {70, do_rename}, {50, do_link},    {70, do_truncate},
        {40, do_tall},   {40, do_setattr}, {60, do_snapshot}, {30, do_clone}, {25, do_restore}, {60, do_delete},
        {1, do_reopen},  {4, do_compare},
    };
    unsigned at = rnd(1000), i = 0;
    struct image *m = random_image(true);
    for (; at >= ops[i].share; i++)
        at -= ops[i].share;
    ops[i].run(m);
}

static void compare_all(void)
{
    for (unsigned i = 0; i < TREES; i++)
        if (images[i])
            compare_image(images[i]);
}

static int nothing_is_left(void *arg)
{
    struct meta_txn *t;
    struct key first = {.length = 1};
    int rc = meta_read_begin(local_of(pool->s), &t);
    for (enum db db = DB_INODE; !rc && db <= DB_REF; db++)
        if (db != DB_FREE && db_seek(t, db, &first, NULL) != -ENOENT)
            rc = 1 + (int)db;
    if (!rc && versions_count(txn_versions(t)))
        rc = 100;
    meta_read_end(t);
    return rc;
}

static void run(unsigned default_seed)
{
    open_eagerly();
    unsigned steps = getenv("STEPS") ? (unsigned)atoi(getenv("STEPS")) : STEPS;
    unsigned seed = getenv("SEED") ? (unsigned)atoi(getenv("SEED")) : default_seed;
    uint64_t most = 0;
    print_message("SEED=%u STEPS=%u\n", seed, steps);
    srandom(seed);
    assert_int_equal(t_tree_delete(pool, pool->tree), 0);
    images[0] = new_volume(0);
    images[1] = new_volume(1);
    for (unsigned i = 1; i <= steps; i++) {
        do_one();
        if (i % COMPARE_EVERY == 0)
            compare_all();
        if (i % AUDIT_EVERY == 0) {
            audit(pool);
            most = audit_held(pool) > most ? audit_held(pool) : most;
            compare_all();
        }
    }
    audit(pool);
    audit_held(pool);
    assert_true(most > 0);
    for (unsigned n = 0, i = rnd(TREES); n < TREES; n++, i = (i + 5) % TREES)
        if (images[i])
            delete_image(i);
    audit(pool);
    assert_int_equal(worker_call(worker_at(0), nothing_is_left, NULL), 0);
    assert_true(metric_read(METRIC_blocks_compacted) > 0);
}

static void every_version_is_what_it_was(void **state)
{
    pool = *state;
    run(4);
}

/* Compaction once went on for ever: what it gave back it took again. */
static void and_compaction_comes_to_an_end(void **state)
{
    pool = *state;
    run(11);
}

static int setup(void **state)
{
    struct pool *p;
    int rc = pool_setup_in_memory(state);
    p = *state;
    pool_close(p);
    p->segment_bytes = 4 << 20;
    pool_open(p);
    return rc;
}

static int tests(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test_setup_teardown(every_version_is_what_it_was, setup, pool_teardown),
        cmocka_unit_test_setup_teardown(and_compaction_comes_to_an_end, setup, pool_teardown),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(void)
{
    return run_with_workers(tests);
}
