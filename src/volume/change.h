/* What the changes of volumes (change.c, deleted.c) and of snapshots (change_snapshots.c) share. */
#ifndef SLUICE_VOLUME_CHANGE_H
#define SLUICE_VOLUME_CHANGE_H

#include "sluice/base_coro.h"
#include "volume/table.h"

/* One change at a time, across the store's waits. */
extern struct coro_mutex volume_changes;
extern struct store *volume_the_store;

/* Sentences for `why`, and the error. */
int change_no_memory(char why[256]);
/* Tell the watcher (volume.h). */
void change_tell_access(void);
void change_tell_restoring(uint32_t volume, bool begins);
int change_gone(char why[256]);
int change_store_said(int error, char why[256]);

/* ---- holding the lock ---- */

int change_name_is_free(const char *name, const struct volume *except, char why[256]);
/* What the store shall keep what the volume holds within. */
struct store_limits change_store_limits(const struct volume_config *config);
/* Writes `v` in the place of `old` and publishes it; on failure both are the caller's. */
int change_write(struct volume *old, struct volume *v, char why[256]);
/* Name, size, tier and limits; `old` is what stands there now, or NULL. */
int change_config_is_right(const struct volume_config *config, const struct volume *old, char why[256]);
/* Tells the store how the volume's data is cached, and the gate its limits; after each publication. */
void change_in_effect(const struct volume *v);
/* -EBUSY, with the sentence, where a snapshot of it is locked at `now`. */
int change_not_locked(const struct volume *v, int64_t now, char why[256]);

/* ---- deleted.c ---- */

/* A volume that was deleted and is only kept: takes it over. -ENOMEM. */
int deleted_add(struct volume *v);
void deleted_free(void);

#endif
