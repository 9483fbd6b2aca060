#include <stdlib.h>
#include <string.h>

#include "admin/commands.h"
#include "sluice/base_protocol.h"

enum { LS_BATCH = 256, CAT_BYTES = 1 << 20 };

/* The volume and object of a request's "name" and "path".  NULL when found, else the answer. */
static json_t *find_object(struct request *r, struct store_object *out)
{
    uint32_t tree;
    size_t length, at;
    json_t *answer = request_tree(r, "name", &tree);
    if (answer)
        return answer;
    char *path = protocol_get_bytes(r->args, "path", &length);
    if (!path)
        return request_error(-EINVAL, "the request has no \"path\"; right would be VOLUME:/PATH");
    int error = path_find(tree, &root_cred, path, length, out, &at);
    if (error)
        answer = request_error(error, "%s:%.500s: %s", request_text(r, "name"), path, sl_strerror(error));
    free(path);
    return answer;
}

/* ---- ls ---- */

struct listed {
    uint64_t cookie;
    struct store_object object;
    struct store_attr attr;
    bool known; /* attr */
    uint32_t length;
    char name[STORE_NAME_MAX];
};

struct batch {
    unsigned count;
    struct listed at[LS_BATCH];
};

static bool take_entry(void *arg, const struct store_entry *entry)
{
    struct batch *batch = arg;
    if (batch->count == LS_BATCH)
        return false;
    struct listed *to = &batch->at[batch->count++];
    to->cookie = entry->cookie;
    to->object = entry->object;
    to->known = entry->attr;
    if (entry->attr)
        to->attr = *entry->attr;
    to->length = entry->name.length;
    memcpy(to->name, entry->name.bytes, entry->name.length);
    return true;
}

static bool dot(const struct listed *e)
{
    return (e->length == 1 && e->name[0] == '.') || (e->length == 2 && e->name[0] == '.' && e->name[1] == '.');
}

static const char *type_text(unsigned type)
{
    static const char *const texts[] = {
        [STORE_REG] = "file", [STORE_DIR] = "directory", [STORE_BLK] = "block", [STORE_CHR] = "char",
        [STORE_LNK] = "link", [STORE_SOCK] = "socket", [STORE_FIFO] = "fifo"};
    return type < sizeof texts / sizeof texts[0] && texts[type] ? texts[type] : "unknown";
}

static int send_entry(struct request *r, const struct store_object *o, const struct store_attr *a,
                      const char *name, size_t length)
{
    struct store *s = volume_store();
    json_t *event = json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:i, s:I}", "event", "entry", "type",
        type_text(a->type), "mode", (int)a->mode, "nlink", (int)a->nlink, "major", (int)a->rdev_major, "minor",
        (int)a->rdev_minor, "uid", (json_int_t)a->uid, "gid", (json_int_t)a->gid, "size",
        (json_int_t)a->size, "mtime_ns", (int)a->mtime.nanoseconds, "mtime", (json_int_t)a->mtime.seconds);
    if (!event || protocol_put_bytes(event, "name", name, length)) {
        json_decref(event);
        return -ENOMEM;
    }
    if (a->type == STORE_LNK) {
        char target[STORE_LINK_TARGET_MAX];
        uint32_t size = 0;
        struct store_attr attr;
        if (s->ops->readlink(s, &root_cred, o, target, &size, &attr) == 0)
            protocol_put_bytes(event, "target", target, size);
    }
    return request_send(r, event);
}

static int send_batch(struct request *r, struct batch *batch)
{
    struct store *s = volume_store();
    for (unsigned i = 0; i < batch->count; i++) {
        struct listed *e = &batch->at[i];
        if (dot(e))
            continue;
        if (!e->known && s->ops->getattr(s, &e->object, &e->attr))
            continue; /* gone since it was listed */
        int error = send_entry(r, &e->object, &e->attr, e->name, e->length);
        if (error)
            return error;
    }
    return 0;
}

static int list_directory(struct request *r, const struct store_object *dir)
{
    struct store *s = volume_store();
    struct batch *batch = malloc(sizeof *batch);
    uint64_t cookie = 0;
    bool eof = false;
    int error = batch ? 0 : -ENOMEM;
    while (!error && !eof) {
        struct store_attr attr;
        batch->count = 0;
        error = s->ops->readdir(s, &root_cred, dir, cookie, true, take_entry, batch, &eof, &attr);
        if (!error && batch->count)
            cookie = batch->at[batch->count - 1].cookie;
        if (!error)
            error = send_batch(r, batch);
    }
    free(batch);
    return error;
}

json_t *command_ls(struct request *r)
{
    struct store *s = volume_store();
    struct store_object object;
    struct store_attr attr;
    json_t *answer = find_object(r, &object);
    if (answer)
        return answer;
    int error = s->ops->getattr(s, &object, &attr);
    if (!error && attr.type == STORE_DIR) {
        error = list_directory(r, &object);
    } else if (!error) {
        size_t length = 0;
        char *path = protocol_get_bytes(r->args, "path", &length);
        error = path ? send_entry(r, &object, &attr, path, length) : -ENOMEM;
        free(path);
    }
    if (error)
        return request_error(error, "the listing ended early: %s", sl_strerror(error));
    return json_object();
}

/* ---- cat ---- */

static int send_slices(struct request *r, const struct slice_list *data, char *buffer)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < data->count; i++) {
        memcpy(buffer + used, data->at[i].data, data->at[i].length);
        used += data->at[i].length;
    }
    if (!used)
        return 0;
    int error = request_send(r, json_pack("{s:i}", "data", (int)used));
    return error ? error : request_send_bytes(r, buffer, used);
}

static int send_file(struct request *r, const struct store_object *o)
{
    struct store *s = volume_store();
    char *buffer = malloc(CAT_BYTES);
    int error = buffer ? 0 : -ENOMEM;
    bool eof = false;
    for (uint64_t offset = 0; !error && !eof;) {
        struct slice_list data;
        struct store_attr attr;
        slices_init(&data);
        error = s->ops->read(s, &root_cred, o, offset, CAT_BYTES, &data, &eof, &attr);
        offset += data.bytes;
        if (!error)
            eof = eof || data.bytes == 0;
        if (!error)
            error = send_slices(r, &data, buffer);
        slices_clear(&data);
    }
    free(buffer);
    return error;
}

json_t *command_cat(struct request *r)
{
    struct store *s = volume_store();
    struct store_object object;
    struct store_attr attr;
    json_t *answer = find_object(r, &object);
    if (answer)
        return answer;
    int error = s->ops->getattr(s, &object, &attr);
    if (!error && attr.type != STORE_REG)
        return request_error(attr.type == STORE_DIR ? -EISDIR : -ENOTSUP,
                             "this is a %s, and cat reads regular files only", type_text(attr.type));
    if (!error)
        error = send_file(r, &object);
    if (error)
        return request_error(error, "cannot be read: %s", sl_strerror(error));
    return json_object();
}
