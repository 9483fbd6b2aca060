/* The records that differ are among those that the versions between the common ancestor and either side have touched.
 * From them come the directory entries that differ (so names that went and names that came, which are paired by inode)
 * and the inodes that may.  Nothing is remembered of the volume but that. */
#include "store/local/diff.h"

#include <stdlib.h>
#include <string.h>

#include "store/local/ops.h"

enum { PATH_ROOM = 1 << 16, TRIES = 8, PATH_VERSIONS_MOST = 1 << 20 };

struct array {
    void *at;
    size_t count, room;
};

struct place { /* of an entry */
    uint64_t dir, position;
};

struct name { /* a directory entry that only one side has */
    uint64_t ino, dir;
    uint8_t type;
    bool used;
    char *text;
};

struct side {
    uint32_t tree;
    uint64_t version, orphans, root;
};

struct diff {
    struct walk walk;
    struct side from, to;
    uint64_t ancestor;
    struct array places, inos;      /* that may differ */
    struct array gone, come;        /* struct name, by inode */
    struct array out;               /* struct store_difference */
    char path[PATH_ROOM];
};

/* ---- arrays ---- */

static void *add(struct array *a, size_t size)
{
    if (a->count == a->room) {
        size_t room = a->room ? a->room * 2 : 256;
        void *grown = realloc(a->at, room * size);
        if (!grown)
            return NULL;
        a->at = grown;
        a->room = room;
    }
    return (char *)a->at + a->count++ * size;
}

static void sort_once(struct array *a, size_t size, int (*compare)(const void *, const void *))
{
    size_t kept = 0;
    if (a->count)
        qsort(a->at, a->count, size, compare);
    for (size_t i = 0; i < a->count; i++) {
        char *item = (char *)a->at + i * size, *last = (char *)a->at + (kept - 1) * size;
        if (kept && compare(last, item) == 0)
            continue;
        memmove((char *)a->at + kept++ * size, item, size);
    }
    a->count = kept;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int order = by_number(&x->dir, &y->dir);
    return order ? order : by_number(&x->position, &y->position);
}

static int by_ino(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    return by_number(&x->ino, &y->ino);
}

static void clear(struct diff *d)
{
    struct array *names[] = {&d->gone, &d->come};
    for (int i = 0; i < 2; i++)
        for (size_t n = 0; n < names[i]->count; n++)
            free(((struct name *)names[i]->at)[n].text);
    for (size_t i = 0; i < d->out.count; i++) {
        struct store_difference *one = (struct store_difference *)d->out.at + i;
        free((char *)(uintptr_t)one->path);
        free((char *)(uintptr_t)one->new_path);
    }
    struct array *all[] = {&d->places, &d->inos, &d->gone, &d->come, &d->out};
    for (int i = 0; i < 5; i++) {
        free(all[i]->at);
        *all[i] = (struct array){0};
    }
}

/* ---- gathering ---- */

static int gather(void *arg, enum db db, const struct key *k)
{
    struct diff *d = arg;
    if (db == DB_ENTRY) {
        struct place *place = add(&d->places, sizeof(*place));
        if (!place)
            return -ENOMEM;
        *place = (struct place){key_number(k->bytes, 0), key_number(k->bytes, 8)};
    } else if (db == DB_INODE || db == DB_CHUNK) {
        uint64_t *ino = add(&d->inos, sizeof(*ino));
        if (!ino)
            return -ENOMEM;
        *ino = key_number(k->bytes, 0);
    }
    return 0;
}

static int read_side(struct diff *d, struct side *side)
{
    const struct tree_node *node = tree_present(d->walk.t, side->tree);
    if (!node)
        return -ESTALE;
    side->version = node->tree.version;
    side->orphans = node->tree.orphans;
    side->root = node->tree.root;
    return 0;
}

static int find_ancestor(struct diff *d)
{
    const struct versions *vs = txn_versions(d->walk.t);
    uint64_t v = d->from.version;
    while (v && v != d->to.version && !versions_is_ancestor(vs, v, d->to.version))
        v = versions_parent(vs, v);
    d->ancestor = v;
    return v ? 0 : -EXDEV;
}

/* The versions from below the ancestor to `end`, oldest first; 0 ends them. *nameless: some are being merged. */
static int path_to(struct diff *d, uint64_t end, uint64_t **path, bool *nameless)
{
    const struct versions *vs = txn_versions(d->walk.t);
    struct array a = {0};
    uint64_t *one = add(&a, sizeof(*one));
    if (!one)
        return -ENOMEM;
    *one = 0;
    for (uint64_t v = end; v && v != d->ancestor; v = versions_parent(vs, v)) {
        *nameless = *nameless || !versions_tree(vs, v);
        one = add(&a, sizeof(*one));
        if (!one) {
            free(a.at);
            return -ENOMEM;
        }
        *one = v;
    }
    uint64_t *at = a.at;
    for (size_t i = 0, j = a.count - 1; i < j; i++, j--) {
        uint64_t swap = at[i];
        at[i] = at[j];
        at[j] = swap;
    }
    *path = at;
    return 0;
}

static bool same_path(struct diff *d, uint64_t end, const uint64_t *path)
{
    bool unused = false, same = true;
    uint64_t *now;
    if (path_to(d, end, &now, &unused))
        return false;
    for (size_t i = 0; same; i++) {
        same = path[i] == now[i];
        if (!path[i])
            break;
    }
    free(now);
    return same;
}

/* A merge moves rows of `touched` to the version above or to the one below: who walks both ways meets each. */
static int gather_path(struct diff *d, const uint64_t *path, bool both_ways)
{
    size_t count = 0;
    int error = 0;
    for (; path[count] && !error; count++)
        error = walk_touched(&d->walk, path[count], gather, d);
    for (size_t i = both_ways ? count : 0; i-- > 0 && !error;)
        error = walk_touched(&d->walk, path[i], gather, d);
    return error;
}

static int gather_once(struct diff *d)
{
    uint64_t *paths[2] = {NULL, NULL};
    bool nameless = false;
    int error = read_side(d, &d->from);
    if (!error)
        error = read_side(d, &d->to);
    if (!error)
        error = find_ancestor(d);
    if (!error)
        error = path_to(d, d->from.version, &paths[0], &nameless);
    if (!error)
        error = path_to(d, d->to.version, &paths[1], &nameless);
    for (int i = 0; i < 2 && !error; i++)
        error = gather_path(d, paths[i], nameless);
    if (!error && !(same_path(d, d->from.version, paths[0]) && same_path(d, d->to.version, paths[1])))
        error = -EAGAIN; /* one of them went meanwhile */
    free(paths[0]);
    free(paths[1]);
    return error;
}

/* ---- names ---- */

/* -ENOENT: there is none.  Entries of the orphans' directory are nobody's names. */
static int entry_at(struct diff *d, const struct side *side, const struct place *place, struct entry *out)
{
    struct key k;
    struct record r;
    uint64_t version, found;
    if (place->dir == side->orphans)
        return -ENOENT;
    int error = tree_version(d->walk.t, side->tree, &version);
    if (error)
        return error;
    key_entry(&k, place->dir, place->position);
    error = visible(d->walk.t, DB_ENTRY, &k, version, &r, &found);
    return error ? error : entry_decode(r.value, r.length, place->position, out);
}

static int add_name(struct array *to, const struct place *place, const struct entry *entry)
{
    struct name *name = add(to, sizeof(*name));
    if (!name)
        return -ENOMEM;
    *name = (struct name){.ino = entry->ino, .dir = place->dir, .type = entry->type};
    name->text = strndup(entry->name, entry->length);
    return name->text ? 0 : -ENOMEM;
}

static bool same_entry(const struct entry *a, const struct entry *b)
{
    return a->ino == b->ino && a->length == b->length && memcmp(a->name, b->name, a->length) == 0;
}

static int compare_place(struct diff *d, const struct place *place)
{
    struct entry before, after;
    int was = entry_at(d, &d->from, place, &before), is = entry_at(d, &d->to, place, &after);
    if ((was && was != -ENOENT) || (is && is != -ENOENT))
        return was && was != -ENOENT ? was : is;
    if (!was && !is && same_entry(&before, &after))
        return 0;
    int error = was ? 0 : add_name(&d->gone, place, &before);
    return error || is ? error : add_name(&d->come, place, &after);
}

static int compare_places(struct diff *d)
{
    int error = 0;
    for (size_t i = 0; i < d->places.count && !error; i++) {
        error = compare_place(d, (struct place *)d->places.at + i);
        if (!error)
            error = walk_on(&d->walk);
    }
    if (d->gone.count)
        qsort(d->gone.at, d->gone.count, sizeof(struct name), by_ino);
    if (d->come.count)
        qsort(d->come.at, d->come.count, sizeof(struct name), by_ino);
    return error;
}

/* ---- paths ---- */

static bool put_before(char *room, size_t *at, const char *text, size_t length)
{
    if (*at < length + 1)
        return false;
    *at -= length;
    memcpy(room + *at, text, length);
    room[--*at] = '/';
    return true;
}

/* The path of a name in a directory, to be freed.  -ENOENT: not reachable on that side. */
static int path_of(struct diff *d, const struct side *side, uint64_t dir, const char *text, size_t length, char **out)
{
    struct inode inode;
    struct entry entry;
    size_t at = sizeof(d->path) - 1;
    d->path[at] = 0;
    bool fits = put_before(d->path, &at, text, length);
    while (fits && dir != side->root) {
        int error = meta_inode(d->walk.t, side->tree, dir, &inode);
        if (error)
            return error == -ESTALE ? -ENOENT : error;
        const struct place place = {inode.parent, inode.position};
        error = entry_at(d, side, &place, &entry);
        if (error)
            return error;
        fits = put_before(d->path, &at, entry.name, entry.length);
        dir = inode.parent;
    }
    if (!fits)
        return -ENAMETOOLONG;
    *out = strdup(d->path + at);
    return *out ? 0 : -ENOMEM;
}

static int put(struct diff *d, enum store_difference_kind kind, uint8_t type, char *path, char *new_path)
{
    struct store_difference *one = add(&d->out, sizeof(*one));
    if (!one) {
        free(path);
        free(new_path);
        return -ENOMEM;
    }
    *one = (struct store_difference){.kind = kind, .type = type, .path = path, .new_path = new_path};
    return 0;
}

static int put_name(struct diff *d, enum store_difference_kind kind, const struct side *side, const struct name *name)
{
    char *path;
    int error = path_of(d, side, name->dir, name->text, strlen(name->text), &path);
    return error ? error : put(d, kind, name->type, path, NULL);
}

static int put_rename(struct diff *d, const struct name *gone, const struct name *come)
{
    char *path, *new_path;
    int error = path_of(d, &d->from, gone->dir, gone->text, strlen(gone->text), &path);
    if (error)
        return error;
    error = path_of(d, &d->to, come->dir, come->text, strlen(come->text), &new_path);
    if (error) {
        free(path);
        return error;
    }
    return put(d, STORE_DIFF_RENAMED, come->type, path, new_path);
}

/* A name that went and one that came of the same inode are a rename. */
static int pair_names(struct diff *d)
{
    struct name *gone = d->gone.at, *come = d->come.at;
    size_t g = 0, c = 0;
    int error = 0;
    while (!error && (g < d->gone.count || c < d->come.count)) {
        if (c == d->come.count || (g < d->gone.count && gone[g].ino < come[c].ino))
            error = put_name(d, STORE_DIFF_REMOVED, &d->from, &gone[g++]);
        else if (g == d->gone.count || come[c].ino < gone[g].ino)
            error = put_name(d, STORE_DIFF_CREATED, &d->to, &come[c++]);
        else
            error = put_rename(d, &gone[g++], &come[c++]);
        if (!error)
            error = walk_on(&d->walk);
    }
    return error;
}

/* ---- contents and attributes ---- */

static bool same_time(struct store_time a, struct store_time b)
{
    return a.seconds == b.seconds && a.nanoseconds == b.nanoseconds;
}

/* A change of a file's contents moves its mtime; who set that back changed ctime, and so the number `change`. */
static bool differs(const struct inode *a, const struct inode *b)
{
    if (a->mode != b->mode || a->uid != b->uid || a->gid != b->gid)
        return true;
    if (a->type == STORE_DIR)
        return false;
    return a->size != b->size || !same_time(a->mtime, b->mtime);
}

static int chunk_at(struct diff *d, const struct side *side, const struct inode *inode, uint64_t *chunk,
                    struct chunk_map *out)
{
    int error = meta_chunk_next(d->walk.t, side->tree, inode->ino, *chunk, chunk, out);
    return error;
}

static bool same_map(const struct chunk_map *a, const struct chunk_map *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == CHUNK_INLINE)
        return a->inline_length == b->inline_length && memcmp(a->bytes, b->bytes, a->inline_length) == 0;
    for (unsigned block = 0; block < CHUNK_BLOCKS; block++) {
        place_t x = chunk_place(a, block), y = chunk_place(b, block);
        if (!x != !y || (x && x != y && a->crc[block] != b->crc[block]))
            return false;
    }
    return true;
}

/* Only where all else is the same: a file that was written and whose mtime was set back. */
static int contents_differ(struct diff *d, const struct inode *a, const struct inode *b, bool *differ)
{
    struct chunk_map *maps = malloc(2 * sizeof(*maps));
    uint64_t x = 0, y = 0;
    int error = maps ? 0 : -ENOMEM;
    while (!error && !*differ) {
        int was = chunk_at(d, &d->from, a, &x, &maps[0]), is = chunk_at(d, &d->to, b, &y, &maps[1]);
        if (was == -ENOENT && is == -ENOENT)
            break;
        if ((was && was != -ENOENT) || (is && is != -ENOENT))
            error = was && was != -ENOENT ? was : is;
        else
            *differ = was || is || x != y || !same_map(&maps[0], &maps[1]);
        x++;
        y++;
        if (!error)
            error = walk_on(&d->walk);
    }
    free(maps);
    return error;
}

/* Every path that the inode has on the later side. */
static int put_changed(struct diff *d, const struct inode *inode)
{
    struct place place = {inode->parent, inode->position};
    struct entry entry;
    char *path;
    if (inode->ino == d->to.root) {
        path = strdup("/");
        return path ? put(d, STORE_DIFF_CHANGED, inode->type, path, NULL) : -ENOMEM;
    }
    for (;;) {
        int error = entry_at(d, &d->to, &place, &entry);
        if (!error)
            error = path_of(d, &d->to, place.dir, entry.name, entry.length, &path);
        if (!error)
            error = put(d, STORE_DIFF_CHANGED, inode->type, path, NULL);
        if (error && error != -ENOENT)
            return error;
        if (place.dir == inode->parent && place.position == inode->position)
            place = (struct place){0, 0}; /* the further links are in a list of their own */
        error = meta_link_next(d->walk.t, d->to.tree, inode->ino, &place.dir, &place.position);
        if (error)
            return error == -ENOENT ? 0 : error;
    }
}

static int compare_inode(struct diff *d, uint64_t ino)
{
    struct inode before, after;
    bool differ;
    int was = meta_inode(d->walk.t, d->from.tree, ino, &before), is = meta_inode(d->walk.t, d->to.tree, ino, &after);
    if (was == -ESTALE || is == -ESTALE)
        return 0; /* its names tell */
    if (was || is)
        return was ? was : is;
    if (!before.nlink || !after.nlink)
        return 0;
    differ = differs(&before, &after);
    int error = 0;
    if (!differ && after.type == STORE_REG && before.change != after.change)
        error = contents_differ(d, &before, &after, &differ);
    return error || !differ ? error : put_changed(d, &after);
}

static int compare_inodes(struct diff *d)
{
    int error = 0;
    for (size_t i = 0; i < d->inos.count && !error; i++) {
        error = compare_inode(d, ((uint64_t *)d->inos.at)[i]);
        if (!error)
            error = walk_on(&d->walk);
    }
    return error;
}

/* ---- the whole ---- */

static int by_path(const void *a, const void *b)
{
    const struct store_difference *x = a, *y = b;
    int order = strcmp(x->path, y->path);
    return order ? order : (int)x->kind - (int)y->kind;
}

static int run(struct diff *d)
{
    int error = gather_once(d);
    if (error)
        return error;
    sort_once(&d->places, sizeof(struct place), by_place);
    sort_once(&d->inos, sizeof(uint64_t), by_number);
    error = compare_places(d);
    if (!error)
        error = pair_names(d);
    if (!error)
        error = compare_inodes(d);
    if (!error && d->out.count)
        qsort(d->out.at, d->out.count, sizeof(struct store_difference), by_path);
    return error;
}

int diff_trees(struct store *s, uint32_t from, uint32_t to, int (*each)(void *arg, const struct store_difference *d),
               void *arg)
{
    struct diff *d = calloc(1, sizeof(*d));
    int error = -EAGAIN;
    if (!d)
        return -ENOMEM;
    d->from.tree = from;
    d->to.tree = to;
    /* Where a volume goes on while it is looked at, what one look saw the next may not: then once more. */
    for (unsigned tries = 0; tries < TRIES && (error == -EAGAIN || error == -ENOENT); tries++) {
        clear(d);
        error = walk_begin(&d->walk, local_of(s));
        if (!error)
            error = run(d);
        walk_end(&d->walk);
    }
    for (size_t i = 0; i < d->out.count && !error; i++)
        error = each(arg, (struct store_difference *)d->out.at + i);
    clear(d);
    free(d);
    return error;
}
