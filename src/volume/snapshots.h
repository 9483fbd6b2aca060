/* The snapshots of each volume, read under RCU; a list is replaced as a whole, its snapshots one by one.  Whoever
 * replaces holds the changes' lock. */
#ifndef SLUICE_VOLUME_SNAPSHOTS_H
#define SLUICE_VOLUME_SNAPSHOTS_H

#include <jansson.h>
#include <urcu.h>

#include "sluice/volume.h"

enum { SNAPSHOT_BY_MAX = 32 };

/* Never changed after it was published. */
struct snapshot {
    struct rcu_head rcu;
    struct snapshot *next; /* of those with the same hash of their tree number */
    uint32_t tree, volume, number;
    int64_t created, locked_until;
    char name[VOLUME_NAME_MAX + 1];
    char by[SNAPSHOT_BY_MAX];
};

struct snapshot_list {
    struct rcu_head rcu;
    uint32_t count;
    struct snapshot **by_tree, **by_name; /* sorted; both arrays lie in `at` */
    struct snapshot *at[];
};

/* A volume's place for its list; lives as long as the volume, across its renames and changes. */
struct snapshot_set {
    struct rcu_head rcu;
    struct snapshot_list *list; /* NULL: none yet */
};

struct snapshot *snapshot_new(const struct volume_snapshot *from); /* NULL: no memory, or a name too long */
/* From the store's record; the sentence says what is wrong with it. */
int snapshot_load(const struct store_tree *tree, struct snapshot **out, char why[256]);
/* The record of the volume layer; to be freed. */
char *snapshot_dump(const struct snapshot *s);

/* Inside a read section, or holding the changes' lock. */
struct snapshot *snapshot_by_tree(uint32_t tree);
struct snapshot *snapshot_by_name(const struct snapshot_set *set, const char *name, size_t length);
const struct snapshot_list *snapshot_list_of(const struct snapshot_set *set); /* never NULL */

/* The set's next list: without `without` and with `with` (either may be NULL; with->tree may be unknown until the list
 * is published).  NULL: no memory. */
struct snapshot_list *snapshots_prepare(const struct snapshot_set *set, const struct snapshot *without,
                                        struct snapshot *with);
/* Makes it the present one; the old list and `without` go when no reader has them. */
void snapshots_publish(struct snapshot_set *set, struct snapshot_list *fresh, struct snapshot *without,
                       struct snapshot *with);
/* At start: `count` snapshots of one volume become its list (taken over). -ENOMEM: they are the caller's still. */
int snapshots_load(struct snapshot_set *set, struct snapshot **snapshots, uint32_t count);
/* The volume has gone: its snapshots leave the table and are freed in time, with the set. */
void snapshots_drop(struct snapshot_set *set);

#endif
