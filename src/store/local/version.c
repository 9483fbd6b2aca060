#include "store/local/version.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = UINT32_MAX };

struct node {
    struct version_link link;
    uint32_t branch, order;
};

struct branch {
    uint32_t fork;  /* node it begins at, NONE for a root's */
    uint32_t first; /* its versions are members[first .. first + count) */
    uint32_t count;
};

struct versions {
    uint32_t node_count, branch_count;
    struct node *nodes;       /* ascending */
    struct branch *branches;
    uint64_t *members;
};

static uint32_t find(const struct versions *vs, uint64_t version)
{
    uint32_t low = 0, high = vs->node_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (vs->nodes[middle].link.version < version)
            low = middle + 1;
        else
            high = middle;
    }
    return low < vs->node_count && vs->nodes[low].link.version == version ? low : NONE;
}

/* A child goes on in its parent's branch if it is the first to do so. */
static void place_node(struct versions *vs, uint32_t index)
{
    struct node *node = &vs->nodes[index];
    uint32_t parent = node->link.parent ? find(vs, node->link.parent) : NONE;
    if (parent == NONE)
        node->link.parent = 0;
    else if (vs->nodes[parent].order + 1 == vs->branches[vs->nodes[parent].branch].count) {
        node->branch = vs->nodes[parent].branch;
        node->order = vs->branches[node->branch].count++;
        return;
    }
    node->branch = vs->branch_count++;
    node->order = 0;
    vs->branches[node->branch] = (struct branch){.fork = parent, .count = 1};
}

struct versions *versions_build(const struct version_link *links, size_t count)
{
    struct versions *vs = calloc(1, sizeof(*vs));
    if (!vs)
        return NULL;
    vs->nodes = calloc(count + 1, sizeof(*vs->nodes));
    vs->branches = calloc(count + 1, sizeof(*vs->branches));
    vs->members = calloc(count + 1, sizeof(*vs->members));
    if (!vs->nodes || !vs->branches || !vs->members) {
        versions_free(vs);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        vs->nodes[i].link = links[i];
        vs->node_count = (uint32_t)i + 1;
        place_node(vs, (uint32_t)i);
    }
    uint32_t first = 0;
    for (uint32_t b = 0; b < vs->branch_count; b++) {
        vs->branches[b].first = first;
        first += vs->branches[b].count;
    }
    for (uint32_t i = 0; i < vs->node_count; i++)
        vs->members[vs->branches[vs->nodes[i].branch].first + vs->nodes[i].order] = vs->nodes[i].link.version;
    return vs;
}

void versions_free(struct versions *vs)
{
    if (!vs)
        return;
    free(vs->nodes);
    free(vs->branches);
    free(vs->members);
    free(vs);
}

static struct version_link *links_of(const struct versions *vs, size_t room)
{
    struct version_link *links = calloc(room + 1, sizeof(*links));
    for (uint32_t i = 0; links && i < vs->node_count; i++)
        links[i] = vs->nodes[i].link;
    return links;
}

struct versions *versions_with(const struct versions *vs, uint64_t version, uint64_t parent)
{
    struct version_link *links = links_of(vs, vs->node_count + (size_t)1);
    if (!links)
        return NULL;
    links[vs->node_count] = (struct version_link){version, parent};
    struct versions *made = versions_build(links, vs->node_count + (size_t)1);
    free(links);
    return made;
}

struct versions *versions_without(const struct versions *vs, uint64_t version)
{
    struct version_link *links = links_of(vs, vs->node_count);
    if (!links)
        return NULL;
    uint64_t parent = versions_parent(vs, version);
    size_t kept = 0;
    for (uint32_t i = 0; i < vs->node_count; i++) {
        struct version_link link = vs->nodes[i].link;
        if (link.version == version)
            continue;
        if (link.parent == version)
            link.parent = parent;
        links[kept++] = link;
    }
    struct versions *made = versions_build(links, kept);
    free(links);
    return made;
}

bool versions_known(const struct versions *vs, uint64_t version)
{
    return find(vs, version) != NONE;
}

uint64_t versions_parent(const struct versions *vs, uint64_t version)
{
    uint32_t index = find(vs, version);
    return index == NONE ? 0 : vs->nodes[index].link.parent;
}

bool versions_is_ancestor(const struct versions *vs, uint64_t ancestor, uint64_t v)
{
    if (ancestor == v)
        return true;
    if (ancestor > v)
        return false;
    uint32_t a = find(vs, ancestor), at = find(vs, v);
    if (a == NONE)
        return false;
    while (at != NONE) {
        const struct node *node = &vs->nodes[at];
        if (node->branch == vs->nodes[a].branch)
            return vs->nodes[a].order <= node->order;
        at = vs->branches[node->branch].fork;
    }
    return false;
}

uint64_t versions_below(const struct versions *vs, uint64_t v, uint64_t limit)
{
    uint32_t at = find(vs, v);
    while (at != NONE) {
        const struct branch *branch = &vs->branches[vs->nodes[at].branch];
        const uint64_t *members = vs->members + branch->first;
        uint32_t low = 0, high = vs->nodes[at].order + 1; /* the first member that is not below the limit */
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            if (members[middle] < limit)
                low = middle + 1;
            else
                high = middle;
        }
        if (low > 0)
            return members[low - 1];
        at = branch->fork;
    }
    return 0;
}
