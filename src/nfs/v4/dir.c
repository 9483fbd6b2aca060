/* READDIR.  Cookies are stable for ever, so the cookie verifier is a constant. */
#include <string.h>

#include "nfs/v4/attr.h"
#include "nfs/v4/pseudo.h"

enum {
    LISTING_MOST = STORE_IO_MAX,
    LISTING_FIRST_ROOM = 16384, /* most directories are small, whatever the client has room for */
    LISTING_EMPTY = 8 + 4 + 4,  /* READDIR4resok without entries: verifier, the list's end, eof */
    COOKIE_DOTS = 2,            /* of ".." in the store; "." and ".." are not in NFSv4's listings */
};
static const uint64_t cookie_verifier = 0;

struct listing {
    struct nfs4_compound *c;
    const struct nfs4_bitmap *map;
    const struct store_usage *usage;
    uint64_t left;       /* bytes that READDIR4resok may still grow by */
    uint64_t names_left; /* of dircount */
    uint32_t entries;
    enum nfs4_status status;
    int error;
};

static void put_attrs(struct listing *l, const struct store_entry *entry, const struct store_attr *attr)
{
    struct nfs4_fh fh = {.kind = NFS4_FH_OBJECT, .object = entry->object};
    nfs4_put_attrs(l->c, l->map,
                   &(struct nfs4_attr_source){.attr = attr, .usage = l->usage, .fh = &fh, .fileid = entry->fileid,
                                              .error = attr || !nfs4_wants_attr(l->map) ? NFS4_OK : NFS4ERR_IO});
}

static bool put_entry(void *arg, const struct store_entry *entry)
{
    struct listing *l = arg;
    struct xdr_out *out = nfs4_out(l->c);
    uint32_t names = 8 + 4 + ((entry->name.length + 3) & ~3u);
    if (l->entries && names > l->names_left)
        return false;
    l->status = nfs4_grow(l->c, 4 + names + ATTR_SIZE_MOST + 8);
    if (l->status != NFS4_OK)
        return false;
    size_t before = xdr_used(out);
    xdr_put_bool(out, true);
    xdr_put_u64(out, entry->cookie);
    xdr_put_opaque(out, entry->name.bytes, entry->name.length);
    put_attrs(l, entry, entry->attr);
    uint64_t size = xdr_used(out) - before;
    if (size > l->left) {
        out->at = out->start + before;
        return false;
    }
    l->left -= size;
    l->names_left = names < l->names_left ? l->names_left - names : 0;
    l->entries++;
    return true;
}

/* A volume's root comes without attributes; unlike a store's entries it may be waited for. */
static bool put_volume(void *arg, const struct store_entry *entry)
{
    struct listing *l = arg;
    struct store_entry whole = *entry;
    struct store_attr attr;
    if (nfs4_wants_attr(l->map)) {
        l->error = nfs_server.ops->getattr(nfs_server.store, &entry->object, &attr);
        if (l->error == -ESTALE) {
            l->error = 0; /* deleted meanwhile */
            return true;
        }
        if (l->error)
            return false;
        whole.attr = &attr;
    }
    return put_entry(l, &whole);
}

static int list(struct listing *l, uint64_t cookie, bool *eof)
{
    struct nfs4_compound *c = l->c;
    if (c->fh.kind == NFS4_FH_ROOT) {
        int error = pseudo_readdir(c, cookie, put_volume, l, eof);
        return error ? error : l->error;
    }
    return nfs_server.ops->readdir(nfs_server.store, &c->cred, &c->fh.object, cookie ? cookie : COOKIE_DOTS,
                                   nfs4_wants_attr(l->map), put_entry, l, eof, NULL);
}

enum nfs4_status nfs4_readdir(struct nfs4_compound *c) /* RFC 8881, 18.23 */
{
    struct xdr_in *in = nfs4_in(c);
    uint64_t cookie = xdr_get_u64(in), verifier = xdr_get_u64(in);
    uint32_t dircount = xdr_get_u32(in), maxcount = xdr_get_u32(in);
    struct nfs4_bitmap map = nfs4_get_bitmap(in);
    if (in->bad)
        return NFS4ERR_BADXDR;
    if (cookie && verifier != cookie_verifier)
        return NFS4ERR_NOT_SAME;
    if (cookie && cookie <= COOKIE_DOTS && c->fh.kind != NFS4_FH_ROOT)
        return NFS4ERR_BAD_COOKIE;
    if (nfs4_bit(&map, FATTR4_TIME_ACCESS_SET) || nfs4_bit(&map, FATTR4_TIME_MODIFY_SET))
        return NFS4ERR_INVAL;

    struct store_usage usage;
    struct listing l = {.c = c, .map = &map, .usage = &usage, .names_left = dircount ? dircount : UINT64_MAX};
    uint32_t most = nfs4_room_left(c, maxcount < LISTING_MOST ? maxcount : LISTING_MOST);
    if (most < LISTING_EMPTY)
        return maxcount < LISTING_EMPTY ? NFS4ERR_TOOSMALL : nfs4_room(c, LISTING_EMPTY);
    l.left = most - LISTING_EMPTY;
    rpc_reply_estimate(c->call, most);
    enum nfs4_status status = c->fh.kind == NFS4_FH_ROOT ? NFS4_OK : nfs4_cred(c, &c->fh);
    if (status == NFS4_OK)
        status = nfs4_status(c, nfs4_usage(&c->fh, &map, &usage));
    if (status == NFS4_OK)
        status = nfs4_grow(c, most < LISTING_FIRST_ROOM ? most : LISTING_FIRST_ROOM);
    if (status != NFS4_OK)
        return status;

    bool eof = false;
    xdr_put_u64(nfs4_out(c), cookie_verifier);
    status = nfs4_status(c, list(&l, cookie, &eof));
    if (status == NFS4_OK && !l.entries && l.status != NFS4_OK)
        status = l.status;
    if (status == NFS4_OK && !l.entries && !eof)
        status = NFS4ERR_TOOSMALL;
    xdr_put_bool(nfs4_out(c), false);
    xdr_put_bool(nfs4_out(c), eof);
    return status;
}
