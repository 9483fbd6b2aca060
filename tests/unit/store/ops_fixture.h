/* For the tests of file operations: a pool in a temporary directory, and each operation as a function that runs it in a
 * coroutine of a worker. */
#ifndef TESTS_UNIT_STORE_OPS_FIXTURE_H
#define TESTS_UNIT_STORE_OPS_FIXTURE_H

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <urcu.h>

#include <cmocka.h>

#include "sluice/base_log.h"
#include "sluice/base_worker.h"
#include "sluice/store.h"

struct pool {
    char path[64];
    struct store *s;
    uint32_t tree;
    struct store_object root;
    uint64_t segment_bytes; /* 0: 64 MiB */
};

static const struct store_cred root_cred = {.uid = 0, .gid = 0};
static const struct store_cred alice = {
    .uid = 1000, .gid = 1000, .group_count = 1, .groups = {2000}};
static const struct store_cred bob = {.uid = 1001, .gid = 1001};

struct call {
    int (*run)(struct call *k);
    struct store *s;
    const struct store_cred *c;
    const struct store_object *o, *o2;
    struct store_name name, name2;
    struct store_object *out;
    struct store_attr *attr, *attr2;
    struct store_wcc *wcc, *wcc2;
    const struct store_setattr *set;
    const struct store_time *guard;
    const struct store_make *how;
    uint64_t offset;
    uint32_t length;
    uint32_t *number;
    void *bytes;
    bool flag;
    bool *eof;
    store_entry_fn *each;
    void *arg;
    struct store_usage *usage;
};

static inline int call_in_worker(void *arg)
{
    struct call *k = arg;
    return k->run(k);
}

static unsigned turn; /* all workers get some */

static inline int call(struct pool *p, struct call k)
{
    k.s = p->s;
    return worker_call(worker_at(turn++ % workers_count()), call_in_worker, &k);
}

static inline struct store_name named(const char *name)
{
    return (struct store_name){.bytes = name, .length = (uint32_t)strlen(name)};
}

/* ---- the pool ---- */

static inline int remove_path(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

enum { NAME_ENTRIES = 200 };

static inline void pool_open(struct pool *p)
{
    char why[256] = "";
    struct store_options options = {
        .pool = p->path,
        .cache_bytes = 16 << 20,
        .inode_entries = 1000,
        .map_entries = 1000,
        .name_entries = NAME_ENTRIES,
        .map_size = 4ull << 30,
        .segment_bytes = p->segment_bytes ? p->segment_bytes : 64 << 20,
    };
    int rc = store_local_open(&options, &p->s, why);
    if (rc)
        fail_msg("open: %s: %s", sl_strerror(rc), why);
}

static inline int call_tree_create(struct call *k)
{
    return k->s->ops->tree_create(k->s, "x", 1, &(struct store_limits){.bytes = k->offset}, 0, 0, 0777, k->number);
}

static inline uint32_t pool_tree(struct pool *p, uint64_t limit)
{
    uint32_t id = 0;
    assert_int_equal(
        call(p, (struct call){.run = call_tree_create, .offset = limit, .number = &id}), 0);
    return id;
}

static inline void pool_create_at(struct pool *p, const char *template)
{
    strcpy(p->path, template);
    assert_non_null(mkdtemp(p->path));
    pool_open(p);
    p->tree = pool_tree(p, 0);
    assert_int_equal(p->s->ops->root(p->s, p->tree, &p->root), 0);
}

static inline void pool_create(struct pool *p)
{
    pool_create_at(p, "/tmp/sluice-ops-XXXXXX");
}

static inline void pool_close(struct pool *p)
{
    p->s->ops->close(p->s);
    p->s = NULL;
}

static inline void pool_reopen(struct pool *p)
{
    pool_close(p);
    pool_open(p);
}

static inline int pool_setup(void **state)
{
    struct pool *p = calloc(1, sizeof(*p));
    pool_create(p);
    *state = p;
    return 0;
}

/* Where syncs cost nothing, for many steps in a short time. */
static inline int pool_setup_in_memory(void **state)
{
    struct pool *p = calloc(1, sizeof(*p));
    pool_create_at(p, access("/dev/shm", W_OK) ? "/tmp/sluice-ops-XXXXXX" : "/dev/shm/sluice-ops-XXXXXX");
    *state = p;
    return 0;
}

static inline int pool_teardown(void **state)
{
    struct pool *p = *state;
    pool_close(p);
    nftw(p->path, remove_path, 16, FTW_DEPTH | FTW_PHYS);
    free(p);
    return 0;
}

/* ---- operations ---- */

static inline int call_getattr(struct call *k)
{
    return k->s->ops->getattr(k->s, k->o, k->attr);
}

static inline int t_getattr(struct pool *p, const struct store_object *o, struct store_attr *attr)
{
    return call(p, (struct call){.run = call_getattr, .o = o, .attr = attr});
}

static inline struct store_attr attr_of(struct pool *p, const struct store_object *o)
{
    struct store_attr attr = {0};
    assert_int_equal(t_getattr(p, o, &attr), 0);
    return attr;
}

static inline int call_lookup(struct call *k)
{
    return k->s->ops->lookup(k->s, k->c, k->o, k->name, k->out, k->attr, k->attr2);
}

static inline int t_lookup(struct pool *p, const struct store_cred *c,
                           const struct store_object *dir, const char *name,
                           struct store_object *out)
{
    struct store_attr attr, dir_attr;
    return call(p, (struct call){.run = call_lookup,
                                 .c = c,
                                 .o = dir,
                                 .name = named(name),
                                 .out = out,
                                 .attr = &attr,
                                 .attr2 = &dir_attr});
}

static inline int call_access(struct call *k)
{
    return k->s->ops->access(k->s, k->c, k->o, 63, k->number, k->attr);
}

static inline uint32_t access_of(struct pool *p, const struct store_cred *c,
                                 const struct store_object *o)
{
    uint32_t granted = 0;
    struct store_attr attr;
    assert_int_equal(
        call(p,
             (struct call){.run = call_access, .c = c, .o = o, .number = &granted, .attr = &attr}),
        0);
    return granted;
}

static inline int call_readlink(struct call *k)
{
    return k->s->ops->readlink(k->s, k->c, k->o, k->bytes, k->number, k->attr);
}

static inline int t_readlink(struct pool *p, const struct store_object *o, char *target,
                             uint32_t *length)
{
    struct store_attr attr;
    return call(p, (struct call){.run = call_readlink,
                                 .c = &root_cred,
                                 .o = o,
                                 .bytes = target,
                                 .number = length,
                                 .attr = &attr});
}

static inline int call_setattr(struct call *k)
{
    return k->s->ops->setattr(k->s, k->c, k->o, k->set, k->guard, k->wcc);
}

static inline int t_setattr(struct pool *p, const struct store_cred *c,
                            const struct store_object *o, struct store_setattr set,
                            struct store_wcc *wcc)
{
    struct store_wcc unused;
    return call(p,
                (struct call){
                    .run = call_setattr, .c = c, .o = o, .set = &set, .wcc = wcc ? wcc : &unused});
}

static inline int t_truncate(struct pool *p, const struct store_object *o, uint64_t size)
{
    return t_setattr(p, &root_cred, o, (struct store_setattr){.set = STORE_SET_SIZE, .size = size},
                     NULL);
}

static inline int t_chmod(struct pool *p, const struct store_cred *c, const struct store_object *o,
                          uint32_t mode)
{
    return t_setattr(p, c, o, (struct store_setattr){.set = STORE_SET_MODE, .mode = mode}, NULL);
}

static inline int t_chown(struct pool *p, const struct store_cred *c, const struct store_object *o,
                          uint32_t uid, uint32_t gid)
{
    struct store_setattr set = {.set = STORE_SET_UID | STORE_SET_GID, .uid = uid, .gid = gid};
    return t_setattr(p, c, o, set, NULL);
}

static inline int call_make(struct call *k)
{
    return k->s->ops->make(k->s, k->c, k->o, k->name, k->how, k->out, k->attr, k->wcc);
}

static inline int t_make_as(struct pool *p, const struct store_cred *c,
                            const struct store_object *dir, const char *name,
                            const struct store_make *how, struct store_object *out,
                            struct store_wcc *wcc)
{
    struct store_attr attr = {0};
    struct store_wcc unused;
    return call(p, (struct call){.run = call_make,
                                 .c = c,
                                 .o = dir,
                                 .name = named(name),
                                 .how = how,
                                 .out = out,
                                 .attr = &attr,
                                 .wcc = wcc ? wcc : &unused});
}

static inline int t_make(struct pool *p, const struct store_cred *c, const struct store_object *dir,
                         const char *name, enum store_type type, uint32_t mode,
                         struct store_object *out)
{
    struct store_object unused;
    struct store_make how = {
        .type = type,
        .how = STORE_MAKE_GUARDED,
        .attr = {.set = STORE_SET_MODE, .mode = mode},
        .target = named("target"),
        .rdev_major = 8,
        .rdev_minor = 1,
    };
    return t_make_as(p, c, dir, name, &how, out ? out : &unused, NULL);
}

static inline struct store_object made(struct pool *p, const struct store_object *dir,
                                       const char *name, enum store_type type)
{
    struct store_object o = {0};
    assert_int_equal(t_make(p, &root_cred, dir, name, type, type == STORE_DIR ? 0777 : 0666, &o),
                     0);
    return o;
}

static inline int call_remove(struct call *k)
{
    return k->flag ? k->s->ops->rmdir(k->s, k->c, k->o, k->name, k->wcc)
                   : k->s->ops->remove(k->s, k->c, k->o, k->name, k->wcc);
}

static inline int t_remove_as(struct pool *p, const struct store_cred *c,
                              const struct store_object *dir, const char *name, bool directory,
                              struct store_wcc *wcc)
{
    struct store_wcc unused;
    return call(p, (struct call){.run = call_remove,
                                 .c = c,
                                 .o = dir,
                                 .name = named(name),
                                 .flag = directory,
                                 .wcc = wcc ? wcc : &unused});
}

static inline int t_remove(struct pool *p, const struct store_object *dir, const char *name)
{
    return t_remove_as(p, &root_cred, dir, name, false, NULL);
}

static inline int t_rmdir(struct pool *p, const struct store_object *dir, const char *name)
{
    return t_remove_as(p, &root_cred, dir, name, true, NULL);
}

static inline int call_rename(struct call *k)
{
    return k->s->ops->rename(k->s, k->c, k->o, k->name, k->o2, k->name2, k->wcc, k->wcc2);
}

static inline int t_rename_as(struct pool *p, const struct store_cred *c,
                              const struct store_object *from_dir, const char *from,
                              const struct store_object *to_dir, const char *to,
                              struct store_wcc wcc[2])
{
    struct store_wcc unused[2];
    if (!wcc)
        wcc = unused;
    return call(p, (struct call){.run = call_rename,
                                 .c = c,
                                 .o = from_dir,
                                 .name = named(from),
                                 .o2 = to_dir,
                                 .name2 = named(to),
                                 .wcc = wcc,
                                 .wcc2 = wcc + 1});
}

static inline int t_rename(struct pool *p, const struct store_object *from_dir, const char *from,
                           const struct store_object *to_dir, const char *to)
{
    return t_rename_as(p, &root_cred, from_dir, from, to_dir, to, NULL);
}

static inline int call_link(struct call *k)
{
    return k->s->ops->link(k->s, k->c, k->o, k->o2, k->name, k->attr, k->wcc);
}

static inline int t_link(struct pool *p, const struct store_cred *c, const struct store_object *o,
                         const struct store_object *dir, const char *name)
{
    struct store_attr attr;
    struct store_wcc wcc;
    return call(p, (struct call){.run = call_link,
                                 .c = c,
                                 .o = o,
                                 .o2 = dir,
                                 .name = named(name),
                                 .attr = &attr,
                                 .wcc = &wcc});
}

static inline int call_write(struct call *k)
{
    return k->s->ops->write(k->s, k->c, k->o, k->offset, k->bytes, k->length, k->wcc);
}

static inline int t_write(struct pool *p, const struct store_cred *c, const struct store_object *o,
                          uint64_t offset, const void *bytes, uint32_t length)
{
    struct store_wcc wcc;
    return call(p, (struct call){.run = call_write,
                                 .c = c,
                                 .o = o,
                                 .offset = offset,
                                 .bytes = (void *)bytes,
                                 .length = length,
                                 .wcc = &wcc});
}

static inline int call_read(struct call *k)
{
    struct slice_list list;
    slices_init(&list);
    int rc = k->s->ops->read(k->s, k->c, k->o, k->offset, k->length, &list, k->eof, k->attr);
    uint8_t *to = k->bytes;
    for (uint32_t i = 0; rc == 0 && i < list.count; i++) {
        memcpy(to, list.at[i].data, list.at[i].length);
        to += list.at[i].length;
    }
    *k->number = list.bytes;
    slices_clear(&list);
    return rc;
}

static inline int t_read(struct pool *p, const struct store_cred *c, const struct store_object *o,
                         uint64_t offset, void *bytes, uint32_t length, uint32_t *got)
{
    bool eof;
    struct store_attr attr;
    return call(p, (struct call){.run = call_read,
                                 .c = c,
                                 .o = o,
                                 .offset = offset,
                                 .bytes = bytes,
                                 .length = length,
                                 .number = got,
                                 .eof = &eof,
                                 .attr = &attr});
}

static inline int call_readdir(struct call *k)
{
    return k->s->ops->readdir(k->s, k->c, k->o, k->offset, k->flag, k->each, k->arg, k->eof,
                              k->attr);
}

static inline int t_readdir(struct pool *p, const struct store_cred *c,
                            const struct store_object *dir, uint64_t cookie, bool attributes,
                            store_entry_fn *each, void *arg, bool *eof)
{
    struct store_attr attr;
    return call(p, (struct call){.run = call_readdir,
                                 .c = c,
                                 .o = dir,
                                 .offset = cookie,
                                 .flag = attributes,
                                 .each = each,
                                 .arg = arg,
                                 .eof = eof,
                                 .attr = &attr});
}

static inline int call_usage(struct call *k)
{
    return k->s->ops->usage(k->s, *k->number, k->usage);
}

static inline struct store_usage usage_of(struct pool *p, uint32_t tree)
{
    struct store_usage usage = {0};
    assert_int_equal(call(p, (struct call){.run = call_usage, .number = &tree, .usage = &usage}),
                     0);
    return usage;
}

static inline int call_settle(struct call *k)
{
    return k->s->ops->settle(k->s);
}

static inline void settle(struct pool *p)
{
    assert_int_equal(call(p, (struct call){.run = call_settle}), 0);
}

static inline int call_tree_delete(struct call *k)
{
    return k->s->ops->tree_delete(k->s, *k->number);
}

static inline int t_tree_delete(struct pool *p, uint32_t tree)
{
    return call(p, (struct call){.run = call_tree_delete, .number = &tree});
}

/* ---- for main() ---- */

static inline int run_with_workers(int (*tests)(void))
{
    log_set_level(LOG_LEVEL_WARNING);
    rcu_register_thread();
    if (workers_start(2))
        return 1;
    int rc = tests();
    workers_stop(2000);
    blocking_stop();
    rcu_unregister_thread();
    return rc;
}

#endif
