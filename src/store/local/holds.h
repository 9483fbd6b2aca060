/* Which files somebody has open, so that removing their last name does not end them: such a file is served by its
 * handle while it is held, and then the reaper takes it.  Kept in RAM; after a start `keep` stands for those who have
 * not yet said what they have open.
 *
 * Who asks whether a file is held, and then ends it, does so on the writer, whose decision others cannot see until its
 * group is published.  So a file is doomed for that time, and nobody can take hold of it (SL_EDELAY). */
#ifndef SLUICE_STORE_LOCAL_HOLDS_H
#define SLUICE_STORE_LOCAL_HOLDS_H

#include "store/local/local.h"
#include "store/local/meta.h"

/* That the caller's mutation ends this file; the caller's memory.  Zeroes at first. */
struct doom {
    struct doom *next;
    uint64_t ino;
    uint32_t tree;
    bool set;
};

int holds_open(struct local *l); /* -ENOMEM */
void holds_free(struct local *l);

/* store_ops: hold, release, keep_unlinked, unlinked */
int local_hold(struct store *s, const struct store_object *o);
void local_release(struct store *s, const struct store_object *o);
void local_keep_unlinked(struct store *s, bool keep);
unsigned local_unlinked(struct store *s, struct store_object *out, unsigned most, uint32_t *at);

/* Is a file without a name still there for those who have its handle?  Any thread. */
bool holds_serves(struct local *l, uint32_t tree, uint64_t ino);
/* The same, or will it be when its holders have come back? */
bool holds_keeps(struct local *l, uint32_t tree, uint64_t ino);
/* On the writer, for a file that has no name or is losing its last: may it end?  Then it is doomed until
 * holds_undoom(), which is due when the mutation is over, whatever became of it.  If not, the reaper will be told when
 * it may. */
bool holds_doom(struct local *l, uint32_t tree, uint64_t ino, struct doom *doom);
void holds_undoom(struct local *l, struct doom *doom);
/* The reaper's look at a file without a name: kept, and the reaper will be told when it no longer is. */
bool holds_pass(struct local *l, uint32_t tree, uint64_t ino);

/* Does the inode stand for the object, and may it be served? */
static inline bool holds_is_there(struct local *l, const struct store_object *o, const struct inode *inode)
{
    return inode->generation == o->generation && (inode->nlink || holds_serves(l, o->tree, o->ino));
}

#endif
