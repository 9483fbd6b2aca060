/* MOUNT version 3 (RFC 1813, appendix I). */
#include <stdio.h>
#include <string.h>

#include "nfs/access.h"
#include "nfs/counters.h"
#include "nfs/handle.h"
#include "nfs/mount_list.h"
#include "nfs/server.h"
#include "sluice/volume.h"

enum {
    MOUNT_NULL,
    MOUNT_MNT,
    MOUNT_DUMP,
    MOUNT_UMNT,
    MOUNT_UMNTALL,
    MOUNT_EXPORT,
    MOUNT_PROCEDURES
};
enum { MNTPATHLEN = 1024, REPLY_MAX = 4 * 1024 * 1024 - 4096 };

/* mountstat3 */
enum mount_status {
    MNT3_OK = 0,
    MNT3ERR_PERM = 1,
    MNT3ERR_NOENT = 2,
    MNT3ERR_IO = 5,
    MNT3ERR_ACCES = 13,
    MNT3ERR_NOTDIR = 20,
    MNT3ERR_INVAL = 22,
    MNT3ERR_NAMETOOLONG = 63,
    MNT3ERR_NOTSUPP = 10004,
    MNT3ERR_SERVERFAULT = 10006,
};

static const struct {
    int error;
    enum mount_status status;
} statuses[] = {
    {0, MNT3_OK},
    {-EPERM, MNT3ERR_PERM},
    {-ENOENT, MNT3ERR_NOENT},
    {-ESTALE, MNT3ERR_NOENT}, /* gone while its path was walked */
    {-EIO, MNT3ERR_IO},
    {SL_ECORRUPT, MNT3ERR_IO},
    {-EACCES, MNT3ERR_ACCES},
    {-ENOTDIR, MNT3ERR_NOTDIR},
    {-EINVAL, MNT3ERR_INVAL},
    {-ENAMETOOLONG, MNT3ERR_NAMETOOLONG},
    {-EOPNOTSUPP, MNT3ERR_NOTSUPP},
};

static enum mount_status mount_status(int error)
{
    for (unsigned i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].error == error)
            return statuses[i].status;
    return MNT3ERR_SERVERFAULT;
}

static enum rpc_result mount_null(struct rpc_call *call)
{
    counters_answered(COUNTERS_MOUNT3, MOUNT_NULL, false);
    return RPC_DONE;
}

/* The next component of a path; false at its end. */
static bool next_component(struct store_name *rest, struct store_name *component)
{
    while (rest->length && *rest->bytes == '/') {
        rest->bytes++;
        rest->length--;
    }
    if (!rest->length)
        return false;
    const char *slash = memchr(rest->bytes, '/', rest->length);
    uint32_t length = slash ? (uint32_t)(slash - rest->bytes) : rest->length;
    *component = (struct store_name){.bytes = rest->bytes, .length = length};
    rest->bytes += length;
    rest->length -= length;
    return true;
}

/* Permissions along the way do not matter: whom the rules let in may mount what an admin named.  Those of the
 * directory itself are checked at each request. */
static int walk(struct store_name rest, struct store_object *at)
{
    const struct store_cred root = {.read_only = true};
    struct store_object from;
    struct store_attr attr = {.type = STORE_DIR};
    struct store_name component;
    while (next_component(&rest, &component)) {
        from = *at;
        int error =
            nfs_server.ops->lookup(nfs_server.store, &root, &from, component, at, &attr, NULL);
        if (error)
            return error;
    }
    return attr.type == STORE_DIR ? 0 : -ENOTDIR;
}

static int find(struct rpc_call *call, struct store_name path, struct store_object *out)
{
    struct store_name volume;
    struct store_cred cred;
    uint32_t tree;
    if (path.length > MNTPATHLEN)
        return -ENAMETOOLONG;
    if (!next_component(&path, &volume))
        return -ENOENT;
    int error = volume_by_name(volume.bytes, volume.length, &tree);
    if (error)
        return error;
    error = access_check(call, tree, &cred);
    if (error == -EACCES)
        access_log_refused(call, tree);
    if (!error)
        error = nfs_server.ops->root(nfs_server.store, tree, out);
    return error ? error : walk(path, out);
}

/* The path as DUMP shows it: one slash before each component, none behind. */
static void normalise(struct store_name path, char to[2 * MNTPATHLEN])
{
    struct store_name component;
    size_t length = 0;
    while (path.length <= MNTPATHLEN && next_component(&path, &component)) {
        to[length++] = '/';
        memcpy(to + length, component.bytes, component.length);
        length += component.length;
    }
    to[length] = 0;
}

static struct store_name get_path(struct xdr_in *x)
{
    struct store_name path;
    path.bytes = (const char *)xdr_get_opaque(x, UINT32_MAX, &path.length);
    return path;
}

static enum rpc_result mount_mnt(struct rpc_call *call) /* 5.2.1 */
{
    struct store_name path = get_path(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;

    struct store_object object;
    int error = find(call, path, &object);
    if (error == SL_EWAIT)
        return RPC_WAIT;

    counters_answered(COUNTERS_MOUNT3, MOUNT_MNT, error != 0);
    xdr_put_u32(&call->out, mount_status(error));
    if (error)
        return RPC_DONE;
    char host[ACCESS_ADDRESS_TEXT], shown[2 * MNTPATHLEN];
    uint8_t handle[NFS_HANDLE_SIZE];
    access_peer_text(call->peer, host);
    normalise(path, shown);
    mount_list_add(host, shown);
    handle_encode(&object, handle);
    xdr_put_opaque(&call->out, handle, sizeof handle);
    xdr_put_u32(&call->out, 1);
    xdr_put_u32(&call->out, RPC_AUTH_SYS);
    return RPC_DONE;
}

/* Room for `more` bytes and a list's end.  False: the list is cut here. */
static bool more_room(struct rpc_call *call, size_t more)
{
    size_t used = xdr_used(&call->out), need = used + more + 8;
    if (xdr_room(&call->out) >= more + 8)
        return true;
    return need <= REPLY_MAX &&
           !rpc_reply_room(call, (uint32_t)(need * 2 < REPLY_MAX ? need * 2 : need));
}

static void put_text(struct xdr_out *out, const char *text)
{
    xdr_put_opaque(out, text, (uint32_t)strlen(text));
}

static bool put_mount(void *arg, const char *host, const char *path)
{
    struct rpc_call *call = arg;
    if (!more_room(call, 4 + 8 + strlen(host) + strlen(path) + 8))
        return false;
    xdr_put_bool(&call->out, true);
    put_text(&call->out, host);
    put_text(&call->out, path);
    return true;
}

static enum rpc_result mount_dump(struct rpc_call *call) /* 5.2.2 */
{
    mount_list_each(put_mount, call);
    xdr_put_bool(&call->out, false);
    counters_answered(COUNTERS_MOUNT3, MOUNT_DUMP, false);
    return RPC_DONE;
}

static enum rpc_result mount_umnt(struct rpc_call *call) /* 5.2.3 */
{
    struct store_name path = get_path(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;
    char host[ACCESS_ADDRESS_TEXT], shown[2 * MNTPATHLEN];
    access_peer_text(call->peer, host);
    normalise(path, shown);
    mount_list_remove(host, shown);
    counters_answered(COUNTERS_MOUNT3, MOUNT_UMNT, false);
    return RPC_DONE;
}

static enum rpc_result mount_umntall(struct rpc_call *call) /* 5.2.4 */
{
    char host[ACCESS_ADDRESS_TEXT];
    access_peer_text(call->peer, host);
    mount_list_remove(host, NULL);
    counters_answered(COUNTERS_MOUNT3, MOUNT_UMNTALL, false);
    return RPC_DONE;
}

static int put_export(void *arg, const struct volume_info *info)
{
    struct rpc_call *call = arg;
    const struct volume_config *config = info->config;
    if (!access_allowed(call, info->tree))
        return 0;
    if (!more_room(call, 4 + 4 + VOLUME_NAME_MAX + 4 + config->rule_count * (8 + VOLUME_RULE_TEXT) + 4))
        return -ENOSPC;

    char text[VOLUME_NAME_MAX + 2];
    snprintf(text, sizeof text, "/%s", config->name);
    xdr_put_bool(&call->out, true);
    put_text(&call->out, text);
    for (uint32_t i = 0; i < config->rule_count; i++) {
        char rule[VOLUME_RULE_TEXT];
        volume_rules_format(&config->rules[i], 1, rule, sizeof rule);
        xdr_put_bool(&call->out, true);
        put_text(&call->out, rule);
    }
    xdr_put_bool(&call->out, false);
    return 0;
}

static enum rpc_result mount_export(struct rpc_call *call) /* 5.2.5 */
{
    int cut = volume_each(put_export, call); /* a list cut at 4 MiB is better than none */
    xdr_put_bool(&call->out, false);
    counters_answered(COUNTERS_MOUNT3, MOUNT_EXPORT, cut != 0);
    return RPC_DONE;
}

static const struct rpc_procedure procedures[MOUNT_PROCEDURES] = {
    [MOUNT_NULL] = {"NULL", mount_null, false},
    [MOUNT_MNT] = {"MNT", mount_mnt, false},
    [MOUNT_DUMP] = {"DUMP", mount_dump, false},
    [MOUNT_UMNT] = {"UMNT", mount_umnt, false},
    [MOUNT_UMNTALL] = {"UMNTALL", mount_umntall, false},
    [MOUNT_EXPORT] = {"EXPORT", mount_export, false},
};

static const struct rpc_version versions[] = {
    {.version = 3, .procedures = procedures, .count = MOUNT_PROCEDURES},
};

const struct rpc_program mount_program = {
    .program = 100005, .name = "mount", .versions = versions, .count = 1};
