/* The table of volumes: read under RCU, replaced as a whole.  Whoever replaces it holds the changes' lock. */
#ifndef SLUICE_VOLUME_TABLE_H
#define SLUICE_VOLUME_TABLE_H

#include <jansson.h>
#include <urcu.h>

#include "volume/snapshots.h"

/* One volume; never changed after it was published. */
struct volume {
    struct rcu_head rcu;
    uint32_t tree, origin;
    int64_t created;
    int64_t deleted;                /* when, if it is only kept; else 0 */
    struct snapshot_set *snapshots; /* shared by all that stand for this volume one after another */
    struct volume_config config; /* owns the rules */
    json_t *props;               /* the record as it was read, for the keys that we do not know */
};

struct volume_table {
    struct rcu_head rcu;
    uint32_t generation, count;
    struct volume **by_name, **by_tree; /* sorted */
    struct volume *at[];                /* both arrays' memory */
};

/* A new volume.  Copies the config and takes a reference to props.  NULL: no memory. */
struct volume *volume_new(uint32_t tree, const struct volume_config *config, int64_t created,
                          json_t *props);
/* What shall stand in the place of `v`: all of it but the config. */
struct volume *volume_next(const struct volume *v, const struct volume_config *config);
/* Not its snapshots, which belong to what stands in its place. */
void volume_free(struct volume *v);
void volume_free_later(struct volume *v); /* when no reader has it */

/* Present table; inside a read section, or holding the changes' lock. */
struct volume_table *table_current(void);
struct volume *table_by_name(const struct volume_table *t, const char *name, size_t length);
struct volume *table_by_tree(const struct volume_table *t, uint32_t tree);

/* A new table: the present one without `without` and with `with` (either may be NULL; the tree's number may
 * still be unknown).  To be published or freed.  NULL: no memory. */
struct volume_table *table_prepare(const struct volume *without, struct volume *with);
/* Makes the prepared table the present one; the old one and `without` (may be NULL) are freed when no reader has them.
 * Thread registered with liburcu. */
void table_publish(struct volume_table *fresh, struct volume *without);
/* The first table, from `count` volumes (taken over).  -ENOMEM. */
int table_load(struct volume **volumes, uint32_t count);
void table_free(void);

/* ---- the record (props.c) ---- */

char *props_dump(const struct volume *v); /* to be freed; NULL: no memory */
int props_load(const struct store_tree *tree, struct volume **out, char why[256]);

#endif
