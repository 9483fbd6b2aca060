/* What stands in for the other layers in the nfs layer's unit tests: a store whose operations answer what a test
 * set, a volume layer with two volumes, and rpc's part of a reply.  Included by one .c file of a program. */
#ifndef TESTS_UNIT_NFS_FAKE_H
#define TESTS_UNIT_NFS_FAKE_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "nfs/handle.h"
#include "nfs/nfs3.h"
#include "nfs/server.h"
#include "sluice/volume.h"

enum { FAKE_TREE = 5, FAKE_OTHER_TREE = 6, FAKE_ENTRIES_MAX = 400, FAKE_SNAPSHOT = 1000 };

/* ---- the store ---- */

static struct fake {
    int error;                /* what every operation returns */
    struct store_attr attr;
    struct store_wcc wcc;
    struct store_object object; /* what lookup and make find */
    unsigned calls;           /* of operations */
    struct store_cred cred;   /* of the last operation */
    struct store_setattr set;
    struct store_time guard;
    bool guarded;
    struct store_make made;
    char name[512], second_name[512], target[2048];
    uint64_t offset, cookie;
    uint32_t length;
    bool eof;
    unsigned entries;         /* of the fake directory */
    unsigned released;        /* slices */
    bool dir_attr_missing;
    uint32_t snapshots;       /* of FAKE_TREE: their trees are FAKE_SNAPSHOT + 0, 1...; names s0, s1... */
    uint32_t born;            /* snapshots before this one do not have fake_dir's directory */
    bool shown;               /* the volume shows `.snapshot` */
    struct store_object asked; /* by the last getattr, lookup, access, readdir */
} fake;

static inline int fake_op(const struct store_cred *cred)
{
    fake.calls++;
    if (cred)
        fake.cred = *cred;
    return fake.error;
}

static inline void fake_name(char *to, struct store_name name)
{
    size_t length = name.length < 511 ? name.length : 511;
    memcpy(to, name.bytes, length);
    to[length] = 0;
}

static int fake_root(struct store *s, uint32_t tree, struct store_object *out)
{
    *out = (struct store_object){.tree = tree, .generation = 1, .ino = 1};
    return fake.error;
}

static int fake_getattr(struct store *s, const struct store_object *o, struct store_attr *out)
{
    fake.asked = *o;
    if (o->tree >= FAKE_SNAPSHOT && o->tree - FAKE_SNAPSHOT < fake.born)
        return -ESTALE;
    *out = fake.attr;
    return fake_op(NULL);
}

static int fake_setattr(struct store *s, const struct store_cred *c, const struct store_object *o,
                        const struct store_setattr *set, const struct store_time *guard, struct store_wcc *wcc)
{
    fake.set = *set;
    fake.guarded = guard;
    if (guard)
        fake.guard = *guard;
    *wcc = fake.wcc;
    return fake_op(c);
}

static int fake_lookup(struct store *s, const struct store_cred *c, const struct store_object *dir,
                       struct store_name name, struct store_object *out, struct store_attr *attr,
                       struct store_attr *dir_attr)
{
    fake_name(fake.name, name);
    fake.asked = *dir;
    *out = fake.object;
    *attr = fake.attr;
    if (dir_attr && !fake.dir_attr_missing)
        *dir_attr = fake.attr;
    if (name.length == 4 && memcmp(name.bytes, "gone", 4) == 0)
        return -ENOENT;
    return fake_op(c);
}

static int fake_access(struct store *s, const struct store_cred *c, const struct store_object *o, uint32_t want,
                       uint32_t *granted, struct store_attr *attr)
{
    fake.asked = *o;
    *granted = want;
    *attr = fake.attr;
    return fake_op(c);
}

static int fake_readlink(struct store *s, const struct store_cred *c, const struct store_object *o, char *target,
                         uint32_t *length, struct store_attr *attr)
{
    *length = STORE_LINK_TARGET_MAX;
    memset(target, 't', *length);
    *attr = fake.attr;
    return fake_op(c);
}

static void fake_release(void *owner, const uint8_t *data, uint32_t length)
{
    fake.released++;
}

static int fake_read(struct store *s, const struct store_cred *c, const struct store_object *o, uint64_t offset,
                     uint32_t length, struct slice_list *data, bool *eof, struct store_attr *attr)
{
    static const uint8_t bytes[] = "0123456789";
    fake.offset = offset;
    fake.length = length;
    *attr = fake.attr;
    *eof = fake.eof;
    if (fake_op(c))
        return fake.error;
    uint32_t count = length < 10 ? length : 10;
    return count ? slices_add(data, (struct slice){.data = bytes, .length = count, .release = fake_release}) : 0;
}

static int fake_write(struct store *s, const struct store_cred *c, const struct store_object *o, uint64_t offset,
                      const void *bytes, uint32_t length, struct store_wcc *wcc)
{
    fake.offset = offset;
    fake.length = length;
    *wcc = fake.wcc;
    return fake_op(c);
}

static int fake_make(struct store *s, const struct store_cred *c, const struct store_object *dir,
                     struct store_name name, const struct store_make *how, struct store_object *out,
                     struct store_attr *attr, struct store_wcc *dir_wcc)
{
    fake_name(fake.name, name);
    fake.made = *how;
    if (how->type == STORE_LNK)
        fake_name(fake.target, how->target);
    *out = fake.object;
    *attr = fake.attr;
    *dir_wcc = fake.wcc;
    return fake_op(c);
}

static int fake_remove(struct store *s, const struct store_cred *c, const struct store_object *dir,
                       struct store_name name, struct store_wcc *dir_wcc)
{
    fake_name(fake.name, name);
    *dir_wcc = fake.wcc;
    return fake_op(c);
}

static int fake_rename(struct store *s, const struct store_cred *c, const struct store_object *from_dir,
                       struct store_name from, const struct store_object *to_dir, struct store_name to,
                       struct store_wcc *from_wcc, struct store_wcc *to_wcc)
{
    fake_name(fake.name, from);
    fake_name(fake.second_name, to);
    *from_wcc = *to_wcc = fake.wcc;
    return fake_op(c);
}

static int fake_link(struct store *s, const struct store_cred *c, const struct store_object *o,
                     const struct store_object *dir, struct store_name name, struct store_attr *attr,
                     struct store_wcc *dir_wcc)
{
    fake_name(fake.name, name);
    *attr = fake.attr;
    *dir_wcc = fake.wcc;
    return fake_op(c);
}

/* Entry n has the cookie n + 1 and a name of 1 + n % 40 bytes. */
static int fake_readdir(struct store *s, const struct store_cred *c, const struct store_object *dir,
                        uint64_t cookie, bool attributes, store_entry_fn *each, void *arg, bool *eof,
                        struct store_attr *dir_attr)
{
    char name[40];
    memset(name, 'n', sizeof name);
    fake.asked = *dir;
    fake.cookie = cookie;
    *dir_attr = fake.attr;
    if (fake_op(c))
        return fake.error;
    for (uint64_t n = cookie; n < fake.entries; n++) {
        struct store_entry entry = {.name = {name, 1 + n % 40}, .fileid = 100 + n, .cookie = n + 1,
                                    .object = {FAKE_TREE, 1, 100 + n}, .type = STORE_REG,
                                    .attr = attributes ? &fake.attr : NULL};
        if (!each(arg, &entry))
            return 0;
    }
    *eof = true;
    return 0;
}

static int fake_usage(struct store *s, uint32_t tree, struct store_usage *out)
{
    *out = (struct store_usage){100, 90, 80, 10, 70, 60, 10};
    return fake.error;
}

static int fake_commit(struct store *s, const struct store_object *o, struct store_attr *attr)
{
    *attr = fake.attr;
    return fake_op(NULL);
}

static void fake_verifier(struct store *s, uint8_t verifier[8])
{
    memcpy(verifier, "verifier", 8);
}

static uint32_t fake_pool_id(struct store *s)
{
    return 0x1234;
}

static const uint8_t *fake_secret(struct store *s)
{
    static const uint8_t secret[32] = "a secret of thirty-two bytes...";
    return secret;
}

static int fake_changed(struct store *s, uint32_t volume, uint64_t *change, struct store_time *when)
{
    *change = 4711;
    *when = (struct store_time){.seconds = 815};
    return volume == FAKE_TREE ? 0 : -ESTALE;
}

static const struct store_ops fake_ops = {
    .name = "fake", .root = fake_root, .getattr = fake_getattr, .setattr = fake_setattr, .lookup = fake_lookup,
    .access = fake_access, .readlink = fake_readlink, .read = fake_read, .write = fake_write, .make = fake_make,
    .remove = fake_remove, .rmdir = fake_remove, .rename = fake_rename, .link = fake_link,
    .readdir = fake_readdir, .usage = fake_usage, .commit = fake_commit, .write_verifier = fake_verifier,
    .pool_id = fake_pool_id, .secret = fake_secret, .snapshots_changed = fake_changed,
};
static struct store fake_store = {.ops = &fake_ops};

/* ---- the volume layer ---- */

static struct volume_grant fake_grants[2] = {{.allowed = true, .write = true}, {.allowed = true, .write = true}};

int volume_user_groups(uint32_t uid, uint32_t *groups, uint32_t *count)
{
    *count = 0;
    return 0;
}

int volume_access(uint32_t tree, const struct sockaddr_storage *peer, uint64_t cache[VOLUME_ACCESS_CACHE], struct volume_grant *out)
{
    if (tree >= FAKE_SNAPSHOT && tree - FAKE_SNAPSHOT < fake.snapshots) {
        *out = fake_grants[0];
        out->write = false;
        return 0;
    }
    if (tree != FAKE_TREE && tree != FAKE_OTHER_TREE)
        return -ESTALE;
    *out = fake_grants[tree - FAKE_TREE];
    return 0;
}

void volume_squash(const struct volume_grant *grant, uint32_t uid, uint32_t gid, const uint32_t *groups,
                   uint32_t group_count, struct store_cred *out)
{
    *out = (struct store_cred){.uid = uid, .gid = gid, .read_only = !grant->write};
}

int volume_by_name(const char *name, size_t length, uint32_t *tree)
{
    if (length != 3 || (memcmp(name, "vol", 3) && memcmp(name, "two", 3)))
        return -ENOENT;
    *tree = *name == 'v' ? FAKE_TREE : FAKE_OTHER_TREE;
    return 0;
}

int volume_each(int (*each)(void *arg, const struct volume_info *info), void *arg)
{
    static struct volume_rule rules[2];
    struct volume_config configs[2] = {{.name = "vol", .rule_count = 2, .rules = rules, .show_snapshots = fake.shown},
                                                    {.name = "two", .rule_count = 1, .rules = rules}};
    for (uint32_t i = 0; i < 2; i++) {
        struct volume_info info = {.tree = FAKE_TREE + i, .config = &configs[i]};
        int error = each(arg, &info);
        if (error < 0)
            return error;
    }
    return 0;
}

int volume_snapshot_of(uint32_t tree, uint32_t *volume, char name[VOLUME_NAME_MAX + 1])
{
    if (tree < FAKE_SNAPSHOT || tree - FAKE_SNAPSHOT >= fake.snapshots)
        return -ESTALE;
    *volume = FAKE_TREE;
    if (name)
        snprintf(name, VOLUME_NAME_MAX + 1, "s%u", tree - FAKE_SNAPSHOT);
    return 0;
}

int volume_snapshot_by_name(uint32_t volume, const char *name, size_t length, uint32_t *tree)
{
    char text[32] = "";
    if (volume != FAKE_TREE || length < 2 || length > 8 || *name != 's')
        return -ENOENT;
    memcpy(text, name + 1, length - 1);
    *tree = FAKE_SNAPSHOT + (uint32_t)atoi(text);
    return *tree - FAKE_SNAPSHOT < fake.snapshots ? 0 : -ENOENT;
}

int volume_each_snapshot(uint32_t volume, uint32_t after, volume_snapshot_fn *each, void *arg)
{
    int error = 0;
    for (uint32_t i = 0; volume == FAKE_TREE && i < fake.snapshots && error >= 0; i++) {
        char name[32];
        struct volume_snapshot s = {.tree = FAKE_SNAPSHOT + i, .volume = volume, .number = i + 1, .name = name, .by = ""};
        snprintf(name, sizeof name, "s%u", i);
        if (s.tree > after)
            error = each(arg, &s);
    }
    return error < 0 ? error : 0;
}

void volume_watch(const struct volume_watcher *watcher)
{
}

void volume_rules_format(const struct volume_rule *rules, uint32_t count, char *to, size_t room)
{
    snprintf(to, room, count == 1 ? "rule" : "rule,rule");
}

/* ---- rpc ---- */

static uint8_t *fake_out;
static uint32_t fake_out_room;

int rpc_register(const struct rpc_program *program)
{
    return 0;
}

void rpc_call_back(struct rpc_connection where, struct rpc_back_call *call)
{
    fail_msg("no client of these tests has a backchannel");
}

struct rpc_connection rpc_connection_of(const struct rpc_call *call)
{
    return (struct rpc_connection){.number = 1};
}

int rpc_reply_room(struct rpc_call *call, uint32_t bytes)
{
    size_t used = xdr_used(&call->out);
    if (bytes > 4u << 20)
        return -ENOMEM;
    if (bytes <= fake_out_room)
        return 0;
    fake_out = realloc(fake_out, bytes);
    assert_non_null(fake_out);
    fake_out_room = bytes;
    bool full = call->out.full;
    call->out = xdr_out(fake_out, bytes);
    call->out.at += used;
    call->out.full = full;
    return 0;
}

void rpc_reply_estimate(struct rpc_call *call, uint32_t bytes)
{
}

void rpc_turn_comes(struct rpc_turn *turn, uint64_t waited_ns, bool withdrawn)
{
}

int rpc_reply_slices(struct rpc_call *call, struct slice_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) /* data of a test is one slice */
        xdr_put_fixed(&call->out, list->at[i].data, list->at[i].length);
    slices_clear(list);
    return 0;
}

/* ---- calls ---- */

static uint8_t fake_args[1 << 21];
static struct xdr_out args; /* what the next call sends */
static struct xdr_in reply; /* what the last one answered */
static uint64_t fake_scratch[RPC_CONN_SCRATCH];

static const struct store_object fake_dir = {FAKE_TREE, 1, 1}, fake_file = {FAKE_TREE, 3, 77},
                                 fake_other = {FAKE_OTHER_TREE, 1, 1};

static inline void put_fh(const struct store_object *object)
{
    uint8_t handle[NFS_HANDLE_SIZE];
    handle_encode(object, handle);
    xdr_put_opaque(&args, handle, sizeof handle);
}

static inline void put_name(const char *name)
{
    xdr_put_opaque(&args, name, (uint32_t)strlen(name));
}

static inline void fake_begin(void)
{
    args = xdr_out(fake_args, sizeof fake_args);
}

/* Makes the call with the arguments put since fake_begin(). */
static inline enum rpc_result fake_call(const struct rpc_program *program, uint32_t procedure)
{
    static struct sockaddr_storage peer;
    struct sockaddr_in *address = (struct sockaddr_in *)&peer;
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(0xc0000207);
    if (!fake_out) {
        fake_out = malloc(1024);
        fake_out_room = 1024;
    }
    struct rpc_call call = {
        .program = program->program, .version = 3, .procedure = procedure, .cred = {RPC_AUTH_SYS, 7, 8, 0, {0}},
        .peer = &peer, .local = &peer, .conn_scratch = fake_scratch, .args = xdr_in(fake_args, xdr_used(&args)),
        .out = xdr_out(fake_out, fake_out_room),
    };
    enum rpc_result result = program->versions->procedures[procedure].handle(&call);
    assert_false(call.out.full);
    reply = xdr_in(call.out.start, xdr_used(&call.out));
    return result;
}

static inline uint32_t fake_nfs(enum nfs3_procedure procedure) /* the status */
{
    assert_int_equal(fake_call(&nfs_program, procedure), RPC_DONE);
    return xdr_get_u32(&reply);
}

/* The reply has been read to its end, and not beyond. */
static inline void reply_ends(void)
{
    assert_false(reply.bad);
    assert_int_equal(xdr_left(&reply), 0);
}

static inline void skip_attr(void)
{
    assert_true(xdr_get_bool(&reply));
    xdr_take(&reply, NFS3_FATTR_SIZE);
}

static inline void skip_wcc(void)
{
    assert_true(xdr_get_bool(&reply));
    xdr_take(&reply, 24);
    skip_attr();
}

static inline int fake_setup(void **state)
{
    memset(&fake, 0, sizeof fake);
    fake.attr = (struct store_attr){.type = STORE_DIR, .mode = 0755, .nlink = 2, .uid = 3, .gid = 4,
                                    .size = 0x100000005, .used = 4096, .rdev_major = 6, .rdev_minor = 7,
                                    .fsid = 0x800000008, .fileid = 0x900000009, .atime = {10, 11},
                                    .mtime = {12, 13}, .ctime = {14, 15}};
    fake.wcc = (struct store_wcc){.has_before = true, .has_after = true, .before_size = 20,
                                  .before_mtime = {21, 22}, .before_ctime = {23, 24}, .after = fake.attr};
    fake.object = fake_file;
    for (int i = 0; i < 2; i++)
        fake_grants[i] = (struct volume_grant){.allowed = true, .write = true};
    fake_begin();
    return nfs_start(&fake_store);
}

static inline int fake_teardown(void **state)
{
    nfs_stop();
    free(fake_out);
    fake_out = NULL;
    return 0;
}

#define FAKE_TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)

#endif
