/* What stands beneath the NFS procedures when they are fuzzed: a store, volumes and rpc that do what `behaviour` says.
 *
 * In the arguments a byte 0xF0 to 0xF3 where a handle's length would be (F? 00 00 20) stands for a handle of the fake
 * volume with its hash, which no mutation finds by itself. */
#ifndef FUZZ_FAKE_H
#define FUZZ_FAKE_H

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nfs/handle.h"
#include "nfs/server.h"
#include "sluice/volume.h"
#include "sluice/volume_gate.h"

enum { TREE = 5, REPLY_MOST = 4 << 20, CALLS_MOST = 64, ERRORS = 16 };

static void must(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "fuzz: %s\n", what);
        abort();
    }
}

/* ---- the store ---- */

static uint8_t behaviour;
static const int errors[ERRORS] = {0, 0, 0, 0, 0, 0, 0, 0, -ENOENT, -ESTALE, -EIO, -ENOSPC,
                                   SL_EWAIT, SL_EDELAY, -ENOMEM, -12345};

/* All of it is looked at, so that a length past the arguments shows. */
static uint8_t touch(const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    uint8_t sum = 0;
    for (size_t i = 0; i < length; i++)
        sum ^= at[i];
    static volatile uint8_t sink;
    sink = sum;
    return sum;
}

static int result(void)
{
    return errors[behaviour % ERRORS];
}

static void some_attr(struct store_attr *out)
{
    if (!out)
        return;
    *out = (struct store_attr){.type = STORE_REG, .mode = 0644, .nlink = 1, .size = 10, .fsid = 1, .fileid = 2};
    if (behaviour & 16) {
        *out = (struct store_attr){.type = STORE_DIR, .mode = 07777, .size = UINT64_MAX, .fileid = UINT64_MAX,
                                   .atime = {-5, 999999999}, .mtime = {INT64_MAX, 0}, .ctime = {INT64_MIN, 1}};
    }
    if (behaviour & 32)
        out->type = 0;
}

static void some_wcc(struct store_wcc *out)
{
    *out = (struct store_wcc){.has_before = behaviour & 64, .has_after = behaviour & 128};
    some_attr(&out->after);
}

static void name_seen(struct store_name name)
{
    touch(name.bytes, name.length);
}

static int fake_root(struct store *s, uint32_t tree, struct store_object *out)
{
    *out = (struct store_object){.tree = tree, .generation = 1, .ino = 1};
    return result();
}

static int fake_getattr(struct store *s, const struct store_object *o, struct store_attr *out)
{
    some_attr(out);
    return result();
}

static int fake_setattr(struct store *s, const struct store_cred *c, const struct store_object *o,
                        const struct store_setattr *set, const struct store_time *guard, struct store_wcc *wcc)
{
    must(!(set->set & STORE_SET_MODE) || set->mode <= 07777, "a mode of more bits");
    must(!(set->set & STORE_SET_ATIME) || set->atime.nanoseconds < 1000000000, "nanoseconds of atime");
    must(!(set->set & STORE_SET_MTIME) || set->mtime.nanoseconds < 1000000000, "nanoseconds of mtime");
    if (guard)
        touch(guard, sizeof *guard);
    some_wcc(wcc);
    return result();
}

static int fake_lookup(struct store *s, const struct store_cred *c, const struct store_object *dir,
                       struct store_name name, struct store_object *out, struct store_attr *attr,
                       struct store_attr *dir_attr)
{
    name_seen(name);
    *out = *dir;
    some_attr(attr);
    some_attr(dir_attr);
    return result();
}

static int fake_access(struct store *s, const struct store_cred *c, const struct store_object *o, uint32_t want,
                       uint32_t *granted, struct store_attr *attr)
{
    *granted = UINT32_MAX;
    some_attr(attr);
    return result();
}

static int fake_readlink(struct store *s, const struct store_cred *c, const struct store_object *o, char *target,
                         uint32_t *length, struct store_attr *attr)
{
    *length = behaviour & 16 ? STORE_LINK_TARGET_MAX : 1;
    memset(target, 't', *length);
    some_attr(attr);
    return result();
}

static void release(void *owner, const uint8_t *data, uint32_t length)
{
    free(owner);
}

static int fake_read(struct store *s, const struct store_cred *c, const struct store_object *o, uint64_t offset,
                     uint32_t length, struct slice_list *data, bool *eof, struct store_attr *attr)
{
    must(length <= STORE_IO_MAX && offset <= STORE_FILE_MAX && length <= STORE_FILE_MAX - offset, "a READ's range");
    some_attr(attr);
    *eof = behaviour & 64;
    for (uint32_t left = behaviour & 128 ? length : length / 2; left;) {
        uint32_t count = left < 4097 ? left : 4097;
        uint8_t *bytes = malloc(count);
        must(bytes != NULL, "memory");
        memset(bytes, 'r', count);
        if (slices_add(data, (struct slice){bytes, count, release, bytes}))
            return -ENOMEM;
        left -= count;
    }
    return result(); /* after an error what was added is the caller's to release */
}

static int fake_write(struct store *s, const struct store_cred *c, const struct store_object *o, uint64_t offset,
                      const void *bytes, uint32_t length, struct store_wcc *wcc)
{
    must(length <= STORE_IO_MAX && offset <= STORE_FILE_MAX, "a WRITE's range");
    touch(bytes, length);
    some_wcc(wcc);
    return result();
}

static int fake_make(struct store *s, const struct store_cred *c, const struct store_object *dir,
                     struct store_name name, const struct store_make *how, struct store_object *out,
                     struct store_attr *attr, struct store_wcc *dir_wcc)
{
    name_seen(name);
    must(how->type >= STORE_REG && how->attr.set & STORE_SET_MODE && how->attr.mode <= 07777, "what to make");
    if (how->type == STORE_LNK) {
        must(how->target.length > 0 && how->target.length <= STORE_LINK_TARGET_MAX, "a link's target");
        name_seen(how->target);
    }
    *out = *dir;
    some_attr(attr);
    some_wcc(dir_wcc);
    return result();
}

static int fake_remove(struct store *s, const struct store_cred *c, const struct store_object *dir,
                       struct store_name name, struct store_wcc *dir_wcc)
{
    name_seen(name);
    some_wcc(dir_wcc);
    return result();
}

static int fake_rename(struct store *s, const struct store_cred *c, const struct store_object *from_dir,
                       struct store_name from, const struct store_object *to_dir, struct store_name to,
                       struct store_wcc *from_wcc, struct store_wcc *to_wcc)
{
    name_seen(from);
    name_seen(to);
    must(from_dir->tree == to_dir->tree, "two volumes");
    some_wcc(from_wcc);
    some_wcc(to_wcc);
    return result();
}

static int fake_link(struct store *s, const struct store_cred *c, const struct store_object *o,
                     const struct store_object *dir, struct store_name name, struct store_attr *attr,
                     struct store_wcc *dir_wcc)
{
    name_seen(name);
    must(o->tree == dir->tree, "two volumes");
    some_attr(attr);
    some_wcc(dir_wcc);
    return result();
}

static int fake_readdir(struct store *s, const struct store_cred *c, const struct store_object *dir,
                        uint64_t cookie, bool attributes, store_entry_fn *each, void *arg, bool *eof,
                        struct store_attr *dir_attr)
{
    static const char name[STORE_NAME_MAX] = "name";
    struct store_attr attr;
    some_attr(&attr);
    some_attr(dir_attr);
    unsigned entries = behaviour & 128 ? 9000 : behaviour % 7;
    for (unsigned n = 0; n < entries; n++) {
        struct store_entry entry = {.name = {name, n % 3 ? STORE_NAME_MAX : 1}, .fileid = n, .cookie = cookie + n + 1,
                                    .object = {TREE, 1, n % 5}, .type = STORE_REG,
                                    .attr = attributes && n % 2 ? &attr : NULL};
        if (!each(arg, &entry))
            return result();
    }
    *eof = true;
    return result();
}

static int fake_usage(struct store *s, uint32_t tree, struct store_usage *out)
{
    memset(out, 0xff, sizeof *out);
    return result();
}

static int fake_commit(struct store *s, const struct store_object *o, struct store_attr *attr)
{
    some_attr(attr);
    return result();
}

static void fake_verifier(struct store *s, uint8_t verifier[8])
{
    memset(verifier, 'v', 8);
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
    *change = 1;
    *when = (struct store_time){2, 3};
    return 0;
}

/* Files that are held; a test may look at how many. */
static unsigned holds;

static int fake_hold(struct store *s, const struct store_object *o)
{
    int error = result();
    holds += !error;
    return error;
}

static void fake_release(struct store *s, const struct store_object *o)
{
    must(holds > 0, "a release without a hold");
    holds--;
}

static void fake_keep_unlinked(struct store *s, bool keep)
{
}

static unsigned fake_unlinked(struct store *s, struct store_object *out, unsigned most, uint32_t *at)
{
    return 0;
}

static int fake_named_put(struct store *s, const char *key, const void *value, size_t length)
{
    return result() == SL_EWAIT ? 0 : result();
}

static const struct store_ops ops = {
    .hold = fake_hold, .release = fake_release, .keep_unlinked = fake_keep_unlinked, .unlinked = fake_unlinked,
    .named_put = fake_named_put,
    .name = "fake", .snapshots_changed = fake_changed, .root = fake_root, .getattr = fake_getattr, .setattr = fake_setattr, .lookup = fake_lookup,
    .access = fake_access, .readlink = fake_readlink, .read = fake_read, .write = fake_write, .make = fake_make,
    .remove = fake_remove, .rmdir = fake_remove, .rename = fake_rename, .link = fake_link,
    .readdir = fake_readdir, .usage = fake_usage, .commit = fake_commit, .write_verifier = fake_verifier,
    .pool_id = fake_pool_id, .secret = fake_secret,
};
static struct store store = {.ops = &ops};

/* ---- the volume layer ---- */

/* No volume has limits. */
_Atomic uint32_t gates_active;

struct gate *gate_of(uint32_t tree, uint64_t cache[2])
{
    return NULL;
}

int gate_try(struct gate *gate, enum gate_way way, uint32_t bytes, bool pressed)
{
    return 0;
}

int gate_hold(struct gate_call *call)
{
    return SL_EDELAY;
}

uint64_t gate_passed(struct gate_call *call)
{
    return 0;
}

void gate_withdraw(uint64_t connection)
{
}

void gate_give_back(struct gate *gate, enum gate_way way, uint32_t bytes)
{
}

void rpc_client_tag(struct rpc_client_tags *tags, uint32_t tag)
{
}

void rpc_turn_comes(struct rpc_turn *turn, uint64_t waited_ns, bool withdrawn)
{
}

int volume_user_groups(uint32_t uid, uint32_t *groups, uint32_t *count)
{
    *count = 0;
    return 0;
}

int volume_access(uint32_t tree, const struct sockaddr_storage *peer, uint64_t cache[VOLUME_ACCESS_CACHE], struct volume_grant *out)
{
    *out = (struct volume_grant){.allowed = tree != TREE + 2, .write = true};
    return tree >= TREE && tree <= TREE + 2 ? 0 : -ESTALE;
}

void volume_squash(const struct volume_grant *grant, uint32_t uid, uint32_t gid, const uint32_t *groups,
                   uint32_t group_count, struct store_cred *out)
{
    *out = (struct store_cred){.uid = uid, .gid = gid};
}

int volume_by_name(const char *name, size_t length, uint32_t *tree)
{
    touch(name, length);
    *tree = TREE + (length == 2) * 2;
    return length == 3 || length == 2 ? 0 : -ENOENT;
}

int volume_each(int (*each)(void *arg, const struct volume_info *info), void *arg)
{
    static struct volume_rule rules[3];
    static const struct volume_config configs[3] = {{.name = "vol", .rule_count = 3, .rules = rules},
                                                    {.name = "two", .rule_count = 1, .rules = rules}, {.name = "no"}};
    int error = 0;
    for (uint32_t i = 0; i < 3 && !error; i++)
        error = each(arg, &(struct volume_info){.tree = TREE + i, .config = &configs[i]});
    return error;
}

/* The second tree is the one snapshot of the first. */
int volume_snapshot_of(uint32_t tree, uint32_t *volume, char name[VOLUME_NAME_MAX + 1])
{
    *volume = TREE;
    return tree == TREE + 1 ? 0 : -ESTALE;
}

int volume_snapshot_by_name(uint32_t volume, const char *name, size_t length, uint32_t *tree)
{
    touch(name, length);
    *tree = TREE + 1;
    return volume == TREE && length ? 0 : -ENOENT;
}

int volume_each_snapshot(uint32_t volume, uint32_t after, volume_snapshot_fn *each, void *arg)
{
    struct volume_snapshot one = {.tree = TREE + 1, .volume = TREE, .number = 1, .name = "one", .by = "admin"};
    return volume == TREE && after < one.tree ? each(arg, &one) : 0;
}

void volume_rules_format(const struct volume_rule *rules, uint32_t count, char *to, size_t room)
{
    snprintf(to, room, "rule");
}

/* ---- rpc ---- */

static uint8_t *reply;
static uint32_t slice_bytes;

int rpc_register(const struct rpc_program *program)
{
    return 0;
}

/* Calls to clients wait until the test says what becomes of them. */
enum { BACK_CALLS = 64 };
static struct rpc_back_call *back_calls[BACK_CALLS];
static unsigned back_call_count;

void rpc_call_back(struct rpc_connection where, struct rpc_back_call *call)
{
    must(back_call_count < BACK_CALLS, "no more callbacks than sessions");
    must(call->length % 4 == 0 && call->length <= RPC_BACK_ROOM, "a callback's arguments");
    touch(call->args, call->length);
    call->connection = where.number;
    back_calls[back_call_count++] = call;
}

static inline void answer_back_calls(int error, const uint8_t *results, size_t length)
{
    struct rpc_back_call *calls[BACK_CALLS];
    unsigned count = back_call_count;
    memcpy(calls, back_calls, sizeof calls);
    back_call_count = 0; /* what an answer leads to comes the next time */
    for (unsigned i = 0; i < count; i++) {
        struct xdr_in in = xdr_in(results ? (const void *)results : "", length);
        calls[i]->done(calls[i], error, &in);
    }
}

struct rpc_connection rpc_connection_of(const struct rpc_call *call)
{
    return (struct rpc_connection){.number = 1};
}

void volume_watch(const struct volume_watcher *watcher)
{
}

void rpc_reply_estimate(struct rpc_call *call, uint32_t bytes)
{
    must(bytes <= REPLY_MOST, "an estimate");
}

int rpc_reply_room(struct rpc_call *call, uint32_t bytes)
{
    size_t used = xdr_used(&call->out);
    if (bytes > REPLY_MOST || behaviour == 255)
        return -ENOMEM;
    if ((size_t)(call->out.end - call->out.start) >= bytes)
        return 0;
    reply = realloc(reply, bytes);
    must(reply != NULL, "memory");
    bool full = call->out.full;
    call->out = xdr_out(reply, bytes);
    call->out.at += used;
    call->out.full = full;
    return 0;
}

int rpc_reply_slices(struct rpc_call *call, struct slice_list *list)
{
    slice_bytes += (list->bytes + 3) & ~3u;
    for (uint32_t i = 0; i < list->count; i++)
        touch(list->at[i].data, list->at[i].length);
    slices_clear(list);
    return 0;
}

/* ---- calls ---- */

/* Puts handles where the input asks for them. */
static void fill_handles(uint8_t *args, size_t length)
{
    for (size_t at = 0; at + 4 + NFS_HANDLE_SIZE <= length; at += 4) {
        if (args[at] < 0xf0 || args[at] > 0xf3 || args[at + 1] || args[at + 2] || args[at + 3] != NFS_HANDLE_SIZE)
            continue;
        struct store_object object = {.tree = TREE + (args[at] & 3u), .generation = 1, .ino = args[at + 4]};
        object.ino |= (uint64_t)(args[at + 5] % 3) << 62; /* a synthetic directory */
        args[at] = 0;
        handle_encode(&object, args + at + 4);
        at += NFS_HANDLE_SIZE;
    }
}

#endif
