#include "store/local/named.h"

#include <stdio.h>
#include <string.h>

#include "store/local/writer.h"

enum { KEY_MOST = 48, SYSTEM_KEY = 64 };
static const char prefix[] = "named/";

struct named_change {
    struct mutation m;
    char key[SYSTEM_KEY];
    const void *value;
    size_t length;
};

static int put_apply(struct mutation *m, struct meta_txn *t)
{
    struct named_change *c = (struct named_change *)m;
    return meta_system_put(t, c->key, c->value, c->length);
}

int named_put(struct store *s, const char *key, const void *value, size_t length)
{
    struct named_change c = {.m.apply = put_apply, .value = value, .length = length};
    if (!*key || strlen(key) > KEY_MOST || strchr(key, '/') || length > STORE_NAMED_MOST)
        return -EINVAL;
    snprintf(c.key, sizeof(c.key), "%s%s", prefix, key);
    return writer_run(local_of(s), &c.m);
}

int named_each(struct store *s, int (*each)(void *arg, const char *key, const void *value, size_t length), void *arg)
{
    struct local *l = local_of(s);
    uint8_t value[STORE_NAMED_MOST];
    char key[SYSTEM_KEY] = "";
    size_t length;
    for (;;) { /* a transaction for each, so that each() may wait */
        struct meta_txn *t;
        int error = meta_read_begin(l, &t);
        if (error)
            return error;
        error = meta_system_next(t, prefix, key, value, sizeof(value), &length);
        meta_read_end(t);
        if (!error)
            error = each(arg, key + strlen(prefix), value, length);
        if (error)
            return error == -ENOENT ? 0 : error;
    }
}
