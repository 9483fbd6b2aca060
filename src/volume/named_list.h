/* A sorted list of things that admins give names to (policies, tiers), and the records that keep them in the pool.
 * Any thread may look; who changes it holds volume_changes. */
#ifndef SLUICE_VOLUME_NAMED_LIST_H
#define SLUICE_VOLUME_NAMED_LIST_H

#include <jansson.h>
#include <pthread.h>
#include <stddef.h>

#include "sluice/store.h"

struct named_list {
    const char *prefix; /* of the records' keys: "tier." */
    size_t size;        /* bytes of an item, which begins with its name, a terminated array of char */
    pthread_mutex_t lock;
    char *items;
    unsigned count, room;
};
#define NAMED_LIST(prefix, type) {prefix, sizeof(type), PTHREAD_MUTEX_INITIALIZER, NULL, 0, 0}

/* Copies the item of this name to `out`, or -ENOENT. */
int named_list_get(struct named_list *list, const char *name, void *out);
/* In the order of their names, under the list's lock, until `each` returns less than 0, which is then the result. */
int named_list_each(struct named_list *list, int (*each)(void *arg, const void *item), void *arg);
/* In memory alone: adds the item or replaces the one of its name; -ENOMEM. */
int named_list_set(struct named_list *list, const void *item);
void named_list_free(struct named_list *list);

/* Reads the records: `load` gets each as JSON, with its name (NULL: it has none); a record that it cannot read is its
 * business to log, and only -ENOMEM ends the reading. */
int named_list_load(struct named_list *list, struct store *store,
                    int (*load)(const char *name, const json_t *record));
/* Writes the item's record (taken over; NULL: -ENOMEM), which has its name under "name", and then sets it in the list.
 * Coroutine; errors with a sentence. */
int named_list_write(struct named_list *list, const void *item, json_t *record, char why[256]);
int named_list_delete(struct named_list *list, const char *name, char why[256]); /* the same way */

#endif
