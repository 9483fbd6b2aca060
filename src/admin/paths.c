#include <string.h>

#include "admin/commands.h"

int path_find(uint32_t tree, const struct store_cred *cred, const char *path, size_t length,
              struct store_object *out, size_t *at)
{
    struct store *s = volume_store();
    struct store_object dir;
    *at = 0;
    int error = s->ops->root(s, tree, &dir);
    while (!error) {
        while (*at < length && path[*at] == '/')
            ++*at;
        if (*at == length)
            break;
        const char *end = memchr(path + *at, '/', length - *at);
        size_t size = end ? (size_t)(end - path) - *at : length - *at;
        struct store_attr attr;
        struct store_object next;
        if (size > STORE_NAME_MAX)
            return -ENAMETOOLONG;
        struct store_name name = {path + *at, (uint32_t)size};
        error = s->ops->lookup(s, cred, &dir, name, &next, &attr, NULL);
        if (!error) {
            *at += size;
            dir = next;
        }
    }
    *out = dir;
    return error;
}
