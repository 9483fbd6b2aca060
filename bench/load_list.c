/* A directory listed from its start to its end, each name once. */
#include <stdio.h>
#include <stdlib.h>

#include "load_conn.h"

struct listing {
    uint64_t start_ns, cookie, verifier, names; /* names: of files, so far */
    uint32_t dots, fresh; /* fresh: entries of the last reply */
    bool busy, end;
    uint64_t seen[]; /* a bit for each file */
};

static size_t listing_words(const struct load_options *o)
{
    return (o->files + 63) / 64;
}

int list_open(struct conn *c, uint32_t number)
{
    (void)number;
    c->state = calloc(1, sizeof(struct listing) + 8 * listing_words(c->options));
    return c->state ? 0 : -1;
}

void list_close(struct conn *c)
{
    free(c->state);
}

bool list_room(const struct conn *c)
{
    const struct listing *l = c->state;
    return !l->busy;
}

static void list_call(struct conn *c, struct listing *l)
{
    struct load_slot *slot = conn_slot(c, c->options->op->procedure, c->now);
    slot->offset = l->cookie;
    slot->verifier = l->verifier;
    slot->length = c->options->size;
    slot->job = l;
    conn_call(c, slot);
}

void list_start(struct conn *c, uint64_t ticket, uint64_t start_ns)
{
    struct listing *l = c->state;
    (void)ticket;
    memset(l, 0, sizeof *l + 8 * listing_words(c->options));
    l->busy = true;
    l->start_ns = start_ns;
    list_call(c, l);
}

/* The number behind PREFIX., or -1. */
static int64_t list_number(const struct load_options *o, const char *name, uint32_t length)
{
    size_t prefix = strlen(o->prefix);
    uint64_t number = 0;
    if (length < prefix + 2 || length > prefix + 19 || memcmp(name, o->prefix, prefix) ||
        name[prefix] != '.')
        return -1;
    for (uint32_t i = (uint32_t)prefix + 1; i < length; i++) {
        if (name[i] < '0' || name[i] > '9')
            return -1;
        number = 10 * number + (uint64_t)(name[i] - '0');
    }
    return (int64_t)number;
}

static bool list_name(const struct load_options *o, struct listing *l, const char *name,
                      uint32_t length)
{
    if (length <= 2 && !memcmp(name, "..", length))
        return ++l->dots <= 2;
    uint64_t index = (uint64_t)list_number(o, name, length) - o->first;
    if (index >= o->files || l->seen[index / 64] >> index % 64 & 1)
        return false;
    l->seen[index / 64] |= UINT64_C(1) << index % 64;
    l->names++;
    return true;
}

static void list_entry(const struct load_options *o, const struct load_slot *slot, struct xdr_in *x,
                       struct load_counts *counts)
{
    struct listing *l = slot->job;
    uint32_t length, fh_length;
    uint64_t fileid = xdr_get_u64(x);
    const char *name = (const char *)xdr_get_opaque(x, 255, &length);
    l->cookie = xdr_get_u64(x);
    if (slot->procedure == NFS3_READDIRPLUS) {
        nfs_skip_attributes(x);
        if (xdr_get_bool(x))
            xdr_get_opaque(x, FH_MAX, &fh_length);
    }
    if (x->bad)
        return;
    if (!fileid || !length || !l->cookie || !list_name(o, l, name, length))
        load_error(counts, "listing: %.*s comes twice, or is none of the files", (int)length, name);
    l->fresh++;
}

void list_check(const struct load_options *o, struct load_slot *slot, struct xdr_in *x,
                struct load_counts *counts)
{
    struct listing *l = slot->job;
    uint64_t before = l->cookie;
    l->verifier = xdr_get_u64(x);
    l->fresh = 0;
    while (xdr_get_bool(x))
        list_entry(o, slot, x, counts);
    l->end = xdr_get_bool(x);
    if (!l->end && l->cookie == before)
        load_error(counts, "listing: a reply without an entry, and not the end");
    if (l->end && !x->bad && l->names != o->files)
        load_error(counts, "listing: %llu of %u files", (unsigned long long)l->names, o->files);
}

void list_reply(struct conn *c, const struct load_slot *slot, bool good)
{
    struct listing *l = slot->job;
    conn_count_extra(c, 0, slot->start_ns);
    conn_count_entries(c, l->fresh);
    l->fresh = 0;
    if (good && !l->end && !c->shared->halt) {
        list_call(c, l);
        return;
    }
    l->busy = false;
    if (good && l->end)
        conn_count_unit(c, l->start_ns);
}
