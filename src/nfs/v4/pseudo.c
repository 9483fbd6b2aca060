#include "nfs/v4/pseudo.h"

#include <string.h>

#include "nfs/access.h"
#include "sluice/volume.h"

struct sum {
    const struct nfs4_compound *c;
    uint64_t change; /* of names and numbers: whatever comes, goes or is renamed changes it */
    int64_t newest;
    uint32_t count;
};

static int add_volume(void *arg, const struct volume_info *info)
{
    struct sum *sum = arg;
    if (!access_allowed(sum->c->call, info->tree))
        return 0;
    uint64_t one = UINT64_C(14695981039346656037) ^ info->tree; /* FNV-1a */
    for (const char *at = info->config->name; *at; at++)
        one = (one ^ (uint8_t)*at) * UINT64_C(1099511628211);
    sum->change += one;
    sum->count++;
    if (info->created > sum->newest)
        sum->newest = info->created;
    return 0;
}

void pseudo_attr(const struct nfs4_compound *c, struct store_attr *out)
{
    struct sum sum = {.c = c, .change = 1};
    volume_each(add_volume, &sum); /* add_volume never fails */
    struct store_time when = {.seconds = sum.newest};
    *out = (struct store_attr){.type = STORE_DIR, .mode = 0555, .nlink = 2 + sum.count, .size = STORE_BLOCK,
                               .used = STORE_BLOCK, .fileid = PSEUDO_FILEID, .change = sum.change,
                               .atime = when, .mtime = when, .ctime = when, .btime = when};
}

/* Volumes are walked in the order of their names and listed in that of their numbers: a walk for each piece finds the
 * lowest ones behind the cookie, so that a volume that comes or goes meanwhile moves no other. */
enum { PIECE = 64 };

struct piece {
    const struct nfs4_compound *c;
    uint64_t after;
    unsigned count;
    struct {
        uint32_t tree;
        char name[VOLUME_NAME_MAX + 1];
    } at[PIECE];
};

static int keep_volume(void *arg, const struct volume_info *info)
{
    struct piece *piece = arg;
    if (pseudo_mounted_on(info->tree) <= piece->after || !access_allowed(piece->c->call, info->tree))
        return 0;
    unsigned at = piece->count;
    while (at && piece->at[at - 1].tree > info->tree)
        at--;
    if (at == PIECE)
        return 0;
    unsigned kept = piece->count < PIECE ? piece->count : PIECE - 1;
    memmove(&piece->at[at + 1], &piece->at[at], (kept - at) * sizeof piece->at[0]);
    piece->count = kept + 1;
    piece->at[at].tree = info->tree;
    strcpy(piece->at[at].name, info->config->name);
    return 0;
}

/* False: the caller has no room for more. */
static bool give_piece(const struct piece *piece, store_entry_fn *each, void *arg)
{
    for (unsigned i = 0; i < piece->count; i++) {
        struct store_entry entry = {.name = {piece->at[i].name, (uint32_t)strlen(piece->at[i].name)},
                                    .cookie = pseudo_mounted_on(piece->at[i].tree), .type = STORE_DIR};
        if (nfs_server.ops->root(nfs_server.store, piece->at[i].tree, &entry.object))
            continue; /* deleted meanwhile */
        entry.fileid = entry.object.ino;
        if (!each(arg, &entry))
            return false;
    }
    return true;
}

int pseudo_readdir(const struct nfs4_compound *c, uint64_t cookie, store_entry_fn *each, void *arg, bool *eof)
{
    struct piece piece = {.c = c, .after = cookie};
    *eof = false;
    do {
        piece.count = 0;
        volume_each(keep_volume, &piece); /* keep_volume never fails */
        if (!give_piece(&piece, each, arg))
            return 0;
        if (piece.count)
            piece.after = pseudo_mounted_on(piece.at[piece.count - 1].tree);
    } while (piece.count == PIECE);
    *eof = true;
    return 0;
}
