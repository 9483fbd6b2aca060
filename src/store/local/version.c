#include "store/local/version.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = UINT32_MAX, ROOM_LEAST = 16 };

struct node {
    uint64_t version;
    uint32_t parent; /* an index, as is: */
    uint32_t jump;   /* an ancestor some way up; of a root: itself */
    uint32_t depth, tree;
};

struct versions {
    uint32_t count, room;
    struct node *nodes; /* ascending */
    /* children[child_from[i] .. child_from[i + 1]) are those of node i; NULL: not gathered since the last change. */
    uint64_t *children;
    uint32_t *child_from;
};

/* The first node whose version is not less. */
static uint32_t lower_bound(const struct versions *vs, uint64_t version)
{
    uint32_t low = 0, high = vs->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (vs->nodes[middle].version < version)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint32_t find(const struct versions *vs, uint64_t version)
{
    uint32_t at = lower_bound(vs, version);
    return at < vs->count && vs->nodes[at].version == version ? at : NONE;
}

/* The skip pointers make jumps of 1, 3, 7, ... levels, so that a walk up takes a logarithm of them, and a new node's is
 * found from its parent's. */
static void link_node(struct versions *vs, uint32_t index)
{
    struct node *node = &vs->nodes[index];
    if (node->parent == NONE) {
        node->jump = index;
        node->depth = 0;
        return;
    }
    const struct node *parent = &vs->nodes[node->parent], *first = &vs->nodes[parent->jump],
                      *second = &vs->nodes[first->jump];
    node->depth = parent->depth + 1;
    node->jump = parent->depth - first->depth == first->depth - second->depth ? first->jump : node->parent;
}

static void forget_children(struct versions *vs)
{
    free(vs->children);
    free(vs->child_from);
    vs->children = NULL;
    vs->child_from = NULL;
}

static struct versions *versions_new(uint32_t room)
{
    struct versions *vs = calloc(1, sizeof(*vs));
    if (!vs)
        return NULL;
    vs->room = room + ROOM_LEAST;
    vs->nodes = malloc(vs->room * sizeof(*vs->nodes));
    if (!vs->nodes) {
        free(vs);
        return NULL;
    }
    return vs;
}

struct versions *versions_build(const struct version_link *links, size_t count)
{
    struct versions *vs = versions_new((uint32_t)count);
    for (size_t i = 0; vs && i < count; i++)
        versions_add(vs, links[i].version, links[i].parent, links[i].tree); /* there is room */
    return vs;
}

struct versions *versions_copy(const struct versions *vs)
{
    struct versions *copy = versions_new(vs->count);
    if (!copy)
        return NULL;
    memcpy(copy->nodes, vs->nodes, vs->count * sizeof(*vs->nodes));
    copy->count = vs->count;
    return copy;
}

void versions_free(struct versions *vs)
{
    if (!vs)
        return;
    forget_children(vs);
    free(vs->nodes);
    free(vs);
}

/* ---- changing ---- */

int versions_add(struct versions *vs, uint64_t version, uint64_t parent, uint32_t tree)
{
    if (vs->count == vs->room) {
        uint32_t room = vs->room * 2;
        struct node *grown = realloc(vs->nodes, room * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        vs->nodes = grown;
        vs->room = room;
    }
    forget_children(vs);
    uint32_t above = parent ? find(vs, parent) : NONE;
    vs->nodes[vs->count] = (struct node){.version = version, .parent = above, .tree = tree};
    link_node(vs, vs->count);
    vs->count++;
    return 0;
}

void versions_remove(struct versions *vs, uint64_t version)
{
    uint32_t gone = find(vs, version);
    if (gone == NONE)
        return;
    uint32_t above = vs->nodes[gone].parent;
    forget_children(vs);
    memmove(vs->nodes + gone, vs->nodes + gone + 1, (vs->count - gone - (size_t)1) * sizeof(*vs->nodes));
    vs->count--;
    for (uint32_t i = gone; i < vs->count; i++) {
        struct node *node = &vs->nodes[i];
        if (node->parent == gone)
            node->parent = above;
        else if (node->parent != NONE && node->parent > gone)
            node->parent--;
        link_node(vs, i);
    }
}

void versions_name(struct versions *vs, uint64_t version, uint32_t tree)
{
    uint32_t index = find(vs, version);
    if (index != NONE)
        vs->nodes[index].tree = tree;
}

/* ---- reading ---- */

size_t versions_count(const struct versions *vs)
{
    return vs->count;
}

bool versions_known(const struct versions *vs, uint64_t version)
{
    return find(vs, version) != NONE;
}

uint64_t versions_parent(const struct versions *vs, uint64_t version)
{
    uint32_t index = find(vs, version);
    uint32_t parent = index == NONE ? NONE : vs->nodes[index].parent;
    return parent == NONE ? 0 : vs->nodes[parent].version;
}

uint32_t versions_tree(const struct versions *vs, uint64_t version)
{
    uint32_t index = find(vs, version);
    return index == NONE ? 0 : vs->nodes[index].tree;
}

uint64_t versions_below(const struct versions *vs, uint64_t v, uint64_t limit)
{
    uint32_t at = find(vs, v);
    while (at != NONE && vs->nodes[at].version >= limit) {
        uint32_t jump = vs->nodes[at].jump;
        at = jump != at && vs->nodes[jump].version >= limit ? jump : vs->nodes[at].parent;
    }
    return at == NONE ? 0 : vs->nodes[at].version;
}

bool versions_is_ancestor(const struct versions *vs, uint64_t ancestor, uint64_t v)
{
    if (ancestor >= v)
        return ancestor == v;
    return ancestor && versions_below(vs, v, ancestor + 1) == ancestor;
}

uint64_t versions_next(const struct versions *vs, uint64_t after)
{
    uint32_t at = after == UINT64_MAX ? vs->count : lower_bound(vs, after + 1);
    return at < vs->count ? vs->nodes[at].version : 0;
}

uint64_t versions_only_child(const struct versions *vs, uint64_t version, bool *several)
{
    uint32_t parent = find(vs, version);
    uint64_t child = 0;
    *several = false;
    for (uint32_t i = parent == NONE ? vs->count : parent + 1; i < vs->count; i++) {
        if (vs->nodes[i].parent != parent)
            continue;
        *several = child != 0;
        if (*several)
            return 0;
        child = vs->nodes[i].version;
    }
    return child;
}

static int gather_children(struct versions *vs)
{
    uint32_t *from = calloc(vs->count + (size_t)2, sizeof(*from));
    uint64_t *children = malloc((vs->count + (size_t)1) * sizeof(*children));
    if (!from || !children) {
        free(from);
        free(children);
        return -ENOMEM;
    }
    /* from[i + 1] counts node i's, then is where they begin, and in the end where they end. */
    for (uint32_t i = 0; i < vs->count; i++)
        if (vs->nodes[i].parent != NONE)
            from[vs->nodes[i].parent + 2]++;
    for (uint32_t i = 1; i <= vs->count; i++)
        from[i + 1] += from[i];
    for (uint32_t i = 0; i < vs->count; i++)
        if (vs->nodes[i].parent != NONE)
            children[from[vs->nodes[i].parent + 1]++] = vs->nodes[i].version;
    vs->child_from = from;
    vs->children = children;
    return 0;
}

long versions_children(struct versions *vs, uint64_t version, const uint64_t **children)
{
    uint32_t index = find(vs, version);
    if (index == NONE)
        return 0;
    if (!vs->children && gather_children(vs))
        return -ENOMEM;
    *children = vs->children + vs->child_from[index];
    return (long)(vs->child_from[index + 1] - vs->child_from[index]);
}
