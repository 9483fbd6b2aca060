/* The store's changes as both protocols make them: before a file changes, delegations of it that others hold are
 * recalled, and none is given until the change is over.  Contracts are those of store.h; besides, SL_EDELAY: somebody
 * has not returned a delegation yet, nothing has happened.  `by` is NULL where the client is not known, as in NFSv3. */
#ifndef SLUICE_NFS_CHANGES_H
#define SLUICE_NFS_CHANGES_H

#include "nfs/state/state.h"

int changes_write(const struct state_caller *by, const struct store_cred *cred, const struct store_object *object,
                 uint64_t offset, const uint8_t *data, uint32_t count, struct store_wcc *wcc);
int changes_setattr(const struct state_caller *by, const struct store_cred *cred, const struct store_object *object,
                   const struct store_setattr *set, const struct store_time *guard, struct store_wcc *wcc);
int changes_make(const struct state_caller *by, const struct store_cred *cred, const struct store_object *dir,
                struct store_name name, const struct store_make *how, struct store_object *object,
                struct store_attr *attr, struct store_wcc *wcc);
int changes_remove(const struct state_caller *by, const struct store_cred *cred, const struct store_object *dir,
                  struct store_name name, struct store_wcc *wcc);
int changes_rename(const struct state_caller *by, const struct store_cred *cred, const struct store_object *from_dir,
                  struct store_name from, const struct store_object *to_dir, struct store_name to,
                  struct store_wcc *from_wcc, struct store_wcc *to_wcc);
int changes_link(const struct state_caller *by, const struct store_cred *cred, const struct store_object *object,
                const struct store_object *dir, struct store_name name, struct store_attr *attr,
                struct store_wcc *wcc);
int changes_extend(const struct state_caller *by, const struct store_cred *cred, const struct store_object *object,
                  uint64_t size, struct store_wcc *wcc);
int changes_punch(const struct state_caller *by, const struct store_cred *cred, const struct store_object *object,
                 uint64_t offset, uint64_t length, struct store_wcc *wcc);
int changes_copy(const struct state_caller *by, const struct store_copy *range, uint64_t *done, struct store_wcc *wcc);
int changes_clone(const struct state_caller *by, const struct store_copy *range, struct store_wcc *wcc);

#endif
