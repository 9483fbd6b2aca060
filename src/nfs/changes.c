#include "nfs/changes.h"

#include "nfs/server.h"

#define STORE nfs_server.store
#define OPS nfs_server.ops

/* The file that a name stands for, if there is one: what happens to its name its holders have to know. */
static int changing_name(struct state_change *change, const struct state_caller *by, const struct store_cred *cred,
                         const struct store_object *dir, struct store_name name)
{
    struct store_object object;
    struct store_attr attr, dir_attr;
    if (!state_runs() || OPS->lookup(STORE, cred, dir, name, &object, &attr, &dir_attr) || attr.type != STORE_REG)
        return 0; /* the change itself says what is wrong */
    return state_changing(change, by, &object);
}

int changes_write(const struct state_caller *by, const struct store_cred *cred, const struct store_object *object,
                 uint64_t offset, const uint8_t *data, uint32_t count, struct store_wcc *wcc)
{
    struct state_change change = {0};
    int error = state_changing(&change, by, object);
    if (!error)
        error = OPS->write(STORE, cred, object, offset, data, count, wcc);
    state_changed(&change);
    return error;
}

int changes_setattr(const struct state_caller *by, const struct store_cred *cred, const struct store_object *object,
                   const struct store_setattr *set, const struct store_time *guard, struct store_wcc *wcc)
{
    struct state_change change = {0};
    int error = state_changing(&change, by, object);
    if (!error)
        error = OPS->setattr(STORE, cred, object, set, guard, wcc);
    state_changed(&change);
    return error;
}

int changes_make(const struct state_caller *by, const struct store_cred *cred, const struct store_object *dir,
                struct store_name name, const struct store_make *how, struct store_object *object,
                struct store_attr *attr, struct store_wcc *wcc)
{
    struct state_change change = {0};
    bool may_cut = how->how == STORE_MAKE_UNCHECKED && how->attr.set & STORE_SET_SIZE;
    int error = may_cut ? changing_name(&change, by, cred, dir, name) : 0;
    if (!error)
        error = OPS->make(STORE, cred, dir, name, how, object, attr, wcc);
    state_changed(&change);
    return error;
}

int changes_remove(const struct state_caller *by, const struct store_cred *cred, const struct store_object *dir,
                  struct store_name name, struct store_wcc *wcc)
{
    struct state_change change = {0};
    int error = changing_name(&change, by, cred, dir, name);
    if (!error)
        error = OPS->remove(STORE, cred, dir, name, wcc);
    state_changed(&change);
    return error;
}

int changes_rename(const struct state_caller *by, const struct store_cred *cred, const struct store_object *from_dir,
                  struct store_name from, const struct store_object *to_dir, struct store_name to,
                  struct store_wcc *from_wcc, struct store_wcc *to_wcc)
{
    struct state_change change = {0};
    int error = changing_name(&change, by, cred, from_dir, from);
    if (!error)
        error = changing_name(&change, by, cred, to_dir, to);
    if (!error)
        error = OPS->rename(STORE, cred, from_dir, from, to_dir, to, from_wcc, to_wcc);
    state_changed(&change);
    return error;
}

int changes_link(const struct state_caller *by, const struct store_cred *cred, const struct store_object *object,
                const struct store_object *dir, struct store_name name, struct store_attr *attr,
                struct store_wcc *wcc)
{
    struct state_change change = {0};
    int error = state_changing(&change, by, object);
    if (!error)
        error = OPS->link(STORE, cred, object, dir, name, attr, wcc);
    state_changed(&change);
    return error;
}

int changes_extend(const struct state_caller *by, const struct store_cred *cred, const struct store_object *object,
                  uint64_t size, struct store_wcc *wcc)
{
    struct state_change change = {0};
    int error = state_changing(&change, by, object);
    if (!error)
        error = OPS->extend(STORE, cred, object, size, wcc);
    state_changed(&change);
    return error;
}

int changes_punch(const struct state_caller *by, const struct store_cred *cred, const struct store_object *object,
                 uint64_t offset, uint64_t length, struct store_wcc *wcc)
{
    struct state_change change = {0};
    int error = state_changing(&change, by, object);
    if (!error)
        error = OPS->punch(STORE, cred, object, offset, length, wcc);
    state_changed(&change);
    return error;
}

int changes_copy(const struct state_caller *by, const struct store_copy *range, uint64_t *done, struct store_wcc *wcc)
{
    struct state_change change = {0};
    *done = 0;
    int error = state_changing(&change, by, &range->to);
    if (!error)
        error = OPS->copy(STORE, range, done, wcc);
    state_changed(&change);
    return error;
}

int changes_clone(const struct state_caller *by, const struct store_copy *range, struct store_wcc *wcc)
{
    struct state_change change = {0};
    int error = state_changing(&change, by, &range->to);
    if (!error)
        error = OPS->clone_range(STORE, range, wcc);
    state_changed(&change);
    return error;
}
