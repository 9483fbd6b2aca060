#include "ops_fixture.h"

/* Random operations against a model in memory, with the pool closed and opened in between.
 * SEED=N and COUNT=N in the environment choose others. */

enum {
    NODES = 400,
    NAMES = 12,
    CHILDREN = NAMES,
    SIZE_MOST = 800000,
    OPS = 4000,
    REOPEN_EVERY = 700
};

struct node {
    bool used;
    enum store_type type;
    struct store_object o;
    unsigned nlink;
    struct node *children[NAMES]; /* of a directory, by number of the name */
    struct node *parent;
    uint8_t *bytes; /* of a file */
    uint32_t size, mode;
    uint64_t change;
};

static struct node nodes[NODES];
static struct node *top;
static struct pool *pool;

static const char *name_of(unsigned n)
{
    static char name[4][24];
    static unsigned at;
    char *to = name[at++ % 4];
    snprintf(to, 24, "name-%u", n);
    return to;
}

static unsigned rnd(unsigned below)
{
    return (unsigned)random() % below;
}

static struct node *node_new(enum store_type type)
{
    for (unsigned i = 0; i < NODES; i++) {
        if (!nodes[i].used) {
            nodes[i] =
                (struct node){.used = true, .type = type, .nlink = type == STORE_DIR ? 2 : 1};
            if (type == STORE_REG)
                nodes[i].bytes = calloc(1, SIZE_MOST);
            return &nodes[i];
        }
    }
    return NULL;
}

static void node_unlink(struct node *n)
{
    if (n->type != STORE_DIR && --n->nlink > 0)
        return;
    struct store_attr attr;
    assert_int_equal(t_getattr(pool, &n->o, &attr), -ESTALE);
    free(n->bytes);
    n->used = false;
}

static struct node *random_node(enum store_type type)
{
    for (unsigned tries = 0; tries < 2000; tries++) {
        struct node *n = &nodes[rnd(NODES)];
        if (n->used && n->type == type)
            return n;
    }
    return type == STORE_DIR ? top : NULL;
}

static bool is_empty(const struct node *dir)
{
    for (unsigned i = 0; i < NAMES; i++)
        if (dir->children[i])
            return false;
    return true;
}

static bool is_below(const struct node *n, const struct node *above)
{
    for (; n; n = n->parent)
        if (n == above)
            return true;
    return false;
}

/* ---- the operations ---- */

static void do_make(void)
{
    struct node *dir = random_node(STORE_DIR);
    unsigned n = rnd(NAMES);
    static const enum store_type types[] = {STORE_REG, STORE_REG, STORE_REG,
                                            STORE_DIR, STORE_LNK, STORE_FIFO};
    enum store_type type = types[rnd(6)];
    struct store_object o;
    struct node *node = dir->children[n] ? NULL : node_new(type);
    if (!dir->children[n] && !node)
        return;
    int rc = t_make(pool, &root_cred, &dir->o, name_of(n), type, 0777, node ? &node->o : &o);
    assert_int_equal(rc, node ? 0 : -EEXIST);
    if (!node)
        return;
    dir->children[n] = node;
    node->parent = dir;
    if (type == STORE_DIR)
        dir->nlink++;
}

static void do_remove(void)
{
    struct node *dir = random_node(STORE_DIR);
    unsigned n = rnd(NAMES);
    struct node *child = dir->children[n];
    bool as_dir = child && rnd(10) ? child->type == STORE_DIR : rnd(2);
    int want = !child                                ? -ENOENT
               : as_dir && child->type != STORE_DIR  ? -ENOTDIR
               : !as_dir && child->type == STORE_DIR ? -EISDIR
               : as_dir && !is_empty(child)          ? -ENOTEMPTY
                                                     : 0;
    assert_int_equal(t_remove_as(pool, &root_cred, &dir->o, name_of(n), as_dir, NULL), want);
    if (want)
        return;
    dir->children[n] = NULL;
    if (as_dir)
        dir->nlink--;
    node_unlink(child);
}

static int rename_wanted(const struct node *from, const struct node *to, const struct node *to_dir,
                         bool across)
{
    if (!from)
        return -ENOENT;
    if (from->type == STORE_DIR && across && is_below(to_dir, from))
        return -EINVAL;
    if (!to || to == from)
        return 0;
    if (from->type == STORE_DIR && to->type != STORE_DIR)
        return -ENOTDIR;
    if (from->type != STORE_DIR && to->type == STORE_DIR)
        return -EISDIR;
    return to->type == STORE_DIR && !is_empty(to) ? -ENOTEMPTY : 0;
}

static void do_rename(void)
{
    struct node *from_dir = random_node(STORE_DIR),
                *to_dir = rnd(3) ? random_node(STORE_DIR) : from_dir;
    unsigned n = rnd(NAMES), m = rnd(NAMES);
    struct node *from = from_dir->children[n], *to = to_dir->children[m];
    int want = rename_wanted(from, to, to_dir, from_dir != to_dir);
    assert_int_equal(t_rename(pool, &from_dir->o, name_of(n), &to_dir->o, name_of(m)), want);
    if (want || from == to)
        return;
    from_dir->children[n] = NULL;
    to_dir->children[m] = from;
    if (from->type == STORE_DIR) {
        from->parent = to_dir;
        from_dir->nlink--;
        if (!to)
            to_dir->nlink++;
    }
    if (to)
        node_unlink(to);
}

static void do_link(void)
{
    struct node *dir = random_node(STORE_DIR), *n = random_node(rnd(4) ? STORE_REG : STORE_LNK);
    unsigned at = rnd(NAMES);
    if (!n)
        return;
    int want = dir->children[at] ? -EEXIST : 0;
    assert_int_equal(t_link(pool, &root_cred, &n->o, &dir->o, name_of(at)), want);
    if (!want) {
        dir->children[at] = n;
        n->nlink++;
    }
}

static void do_write(void)
{
    struct node *n = random_node(STORE_REG);
    if (!n)
        return;
    uint32_t length = rnd(4) ? rnd(20000) : rnd(300000);
    uint32_t offset = rnd(3) ? rnd(SIZE_MOST - length) : rnd(5) * 4096;
    if (rnd(4) == 0)
        offset = n->size < SIZE_MOST - length ? n->size : 0;
    length += length == 0;
    for (uint32_t i = 0; i < length; i++)
        n->bytes[offset + i] = (uint8_t)(i + (unsigned)offset * 31 + i / 256);
    assert_int_equal(t_write(pool, &root_cred, &n->o, offset, n->bytes + offset, length), 0);
    if (offset + length > n->size)
        n->size = offset + length;
}

static void do_truncate(void)
{
    struct node *n = random_node(STORE_REG);
    if (!n)
        return;
    uint32_t size = rnd(3) ? rnd(SIZE_MOST) : rnd(5) * 4096 * rnd(65);
    if (size > SIZE_MOST)
        size = 0;
    assert_int_equal(t_truncate(pool, &n->o, size), 0);
    if (size < n->size)
        memset(n->bytes + size, 0, n->size - size);
    n->size = size;
}

static void check_file(const struct node *n, uint32_t offset, uint32_t length)
{
    static uint8_t got[SIZE_MOST];
    uint32_t count, want = offset >= n->size           ? 0
                           : n->size - offset < length ? n->size - offset
                                                       : length;
    assert_int_equal(t_read(pool, &root_cred, &n->o, offset, got, length, &count), 0);
    assert_int_equal(count, want);
    assert_memory_equal(got, n->bytes + offset, want);
}

static void do_read(void)
{
    struct node *n = random_node(STORE_REG);
    if (n) {
        uint32_t offset = rnd(SIZE_MOST);
        check_file(n, offset, rnd(SIZE_MOST - offset) + 1);
    }
}

static void do_lookup(void)
{
    struct node *dir = random_node(STORE_DIR);
    unsigned n = rnd(NAMES);
    struct node *child = dir->children[n];
    struct store_object o;
    assert_int_equal(t_lookup(pool, &root_cred, &dir->o, name_of(n), &o), child ? 0 : -ENOENT);
    if (child)
        assert_int_equal(o.ino, child->o.ino);
}

/* ---- comparing everything ---- */

struct listed {
    struct node *dir;
    unsigned count;
};

static bool see(void *arg, const struct store_entry *e)
{
    struct listed *l = arg;
    unsigned n;
    char name[32] = "";
    memcpy(name, e->name.bytes, e->name.length);
    if (name[0] == '.') {
        const struct node *want = name[1] && l->dir->parent ? l->dir->parent : l->dir;
        assert_int_equal(e->fileid, want->o.ino);
        return true;
    }
    assert_int_equal(sscanf(name, "name-%u", &n), 1);
    assert_non_null(l->dir->children[n]);
    assert_int_equal(l->dir->children[n]->o.ino, e->fileid);
    assert_int_equal(e->attr->nlink, l->dir->children[n]->nlink);
    l->count++;
    return true;
}

static void check_dir(struct node *n)
{
    struct listed l = {.dir = n};
    struct store_object o;
    bool eof;
    unsigned count = 0;
    assert_int_equal(t_readdir(pool, &root_cred, &n->o, 0, true, see, &l, &eof), 0);
    assert_true(eof);
    for (unsigned i = 0; i < NAMES; i++)
        count += n->children[i] != NULL;
    assert_int_equal(l.count, count);
    for (unsigned i = 0; i < NAMES; i++) {
        assert_int_equal(t_lookup(pool, &root_cred, &n->o, name_of(i), &o), n->children[i] ? 0 : -ENOENT);
        if (n->children[i])
            assert_int_equal(o.ino, n->children[i]->o.ino);
    }
    assert_int_equal(t_lookup(pool, &root_cred, &n->o, "..", &o), 0);
    assert_int_equal(o.ino, n->parent ? n->parent->o.ino : n->o.ino);
}

static void check_all(void)
{
    unsigned files = 0;
    for (unsigned i = 0; i < NODES; i++) {
        struct node *n = &nodes[i];
        if (!n->used)
            continue;
        files++;
        struct store_attr a = attr_of(pool, &n->o);
        assert_int_equal(a.nlink, n->nlink);
        assert_int_equal(a.type, n->type);
        assert_true(a.change >= n->change);
        n->change = a.change;
        if (n->type == STORE_DIR)
            check_dir(n);
        if (n->type == STORE_REG) {
            assert_int_equal(a.size, n->size);
            check_file(n, 0, SIZE_MOST);
        }
    }
    settle(pool);
    struct store_usage u = usage_of(pool, pool->tree);
    assert_int_equal(u.files_used, files);
    uint64_t used = 0;
    for (unsigned i = 0; i < NODES; i++)
        if (nodes[i].used && nodes[i].type == STORE_REG &&
            attr_of(pool, &nodes[i].o).used >= STORE_BLOCK)
            used += attr_of(pool, &nodes[i].o).used;
    assert_int_equal(u.bytes_used, used);
}

static void agrees_with_the_model(void **state)
{
    static void (*const ops[])(void) = {do_make,   do_make,   do_make,     do_remove,
                                        do_rename, do_rename, do_link,     do_write,
                                        do_write,  do_write,  do_truncate, do_read,
                                        do_lookup, do_lookup, do_lookup,   do_lookup};
    pool = *state;
    unsigned count = getenv("COUNT") ? (unsigned)atoi(getenv("COUNT")) : OPS;
    unsigned seed = getenv("SEED") ? (unsigned)atoi(getenv("SEED")) : 20;
    print_message("SEED=%u COUNT=%u\n", seed, count);
    srandom(seed);
    top = node_new(STORE_DIR);
    top->o = pool->root;
    for (unsigned i = 1; i <= count; i++) {
        ops[rnd(sizeof(ops) / sizeof(ops[0]))]();
        if (i % REOPEN_EVERY == 0) {
            if (rnd(2))
                check_all();
            pool_reopen(pool);
            check_all();
        }
    }
    check_all();
    for (unsigned i = 0; i < NODES; i++)
        if (nodes[i].used)
            free(nodes[i].bytes);
}

static int tests(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test_setup_teardown(agrees_with_the_model, pool_setup, pool_teardown),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(void)
{
    return run_with_workers(tests);
}
