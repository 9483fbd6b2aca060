/* READDIR and READDIRPLUS.  Cookies are stable for ever, so the cookie verifier is a constant. */
#include <string.h>

#include "nfs/nfs3.h"

enum {
    LISTING_MAX = 1048576 - 4096, /* a reply with its headers stays below 1 MiB */
    LISTING_FIRST_ROOM = 16384,   /* most directories are small, whatever the client has room for */
    /* READDIR3resok without entries: attributes, verifier, the list's end, eof */
    LISTING_EMPTY = NFS3_POST_OP_ATTR_SIZE + 8 + 4 + 4,
};
static const uint64_t cookie_verifier = 0;

struct listing {
    struct rpc_call *call;
    size_t start;        /* in out, of the reply's status */
    uint64_t left;       /* bytes that READDIR3resok may still grow by */
    uint64_t names_left; /* READDIRPLUS: bytes left of dircount */
    bool plus;
    uint32_t entries;
    int error;
};

struct listing_args {
    struct nfs3_fh fh;
    uint64_t cookie, verifier;
    uint32_t dircount, maxcount;
};

static uint32_t names_size(const struct store_entry *entry)
{
    return 4 + 8 + 4 + ((entry->name.length + 3) & ~3u) + 8;
}

static uint32_t plus_size(const struct store_entry *entry)
{
    return (entry->attr ? NFS3_POST_OP_ATTR_SIZE : 4) +
           (entry->object.ino ? NFS3_POST_OP_FH_SIZE : 4);
}

/* Room for `size` more bytes and the listing's end. */
static int grow(struct listing *listing, uint32_t size)
{
    struct rpc_call *call = listing->call;
    if (xdr_room(&call->out) >= size + 8)
        return 0;
    uint64_t used = xdr_used(&call->out);
    uint64_t most = used + listing->left + 8;
    uint64_t want = used * 2 + size + 8;
    return rpc_reply_room(call, (uint32_t)(want < most ? want : most));
}

static bool put_entry(void *arg, const struct store_entry *entry)
{
    struct listing *listing = arg;
    uint32_t names = names_size(entry);
    uint32_t size = names + (listing->plus ? plus_size(entry) : 0);
    if (size > listing->left || names > listing->names_left)
        return false;
    listing->error = grow(listing, size);
    if (listing->error)
        return false;
    listing->left -= size;
    listing->names_left -= names;
    listing->entries++;

    struct xdr_out *out = &listing->call->out;
    xdr_put_bool(out, true);
    xdr_put_u64(out, entry->fileid);
    xdr_put_opaque(out, entry->name.bytes, entry->name.length);
    xdr_put_u64(out, entry->cookie);
    if (!listing->plus)
        return true;
    nfs3_put_post_op_attr(out, entry->attr);
    if (entry->object.ino)
        nfs3_put_post_op_fh(out, &entry->object);
    else
        xdr_put_bool(out, false);
    return true;
}

static int check(const struct listing_args *args)
{
    if (args->cookie && args->verifier != cookie_verifier)
        return SL_EBADCOOKIE;
    return args->maxcount < LISTING_EMPTY ? SL_ETOOSMALL : 0;
}

/* Leaves room for what stands before the entries and is known only after them. */
static int begin(struct listing *listing, const struct listing_args *args)
{
    uint32_t most = args->maxcount < LISTING_MAX ? args->maxcount : LISTING_MAX;
    rpc_reply_estimate(listing->call, most);
    listing->left = most - LISTING_EMPTY;
    listing->names_left =
        args->dircount ? args->dircount : UINT64_MAX; /* 0: no limit but maxcount */
    listing->start = xdr_used(&listing->call->out);
    uint32_t first = most < LISTING_FIRST_ROOM ? most : LISTING_FIRST_ROOM;
    int error = rpc_reply_room(listing->call, (uint32_t)listing->start + 4 + first);
    if (!error && !xdr_reserve(&listing->call->out, 4 + NFS3_POST_OP_ATTR_SIZE + 8))
        error = -ENOMEM;
    return error;
}

static void put_listing(struct listing *listing, const struct store_attr *dir_attr, bool eof)
{
    struct xdr_out *out = &listing->call->out;
    xdr_put_bool(out, false);
    xdr_put_bool(out, eof);
    uint8_t *end = out->at;
    out->at = out->start + listing->start;
    nfs3_put_status(listing->call, 0);
    nfs3_put_post_op_attr(out, dir_attr);
    xdr_put_u64(out, cookie_verifier);
    out->at = end;
}

static enum rpc_result list(struct rpc_call *call, const struct listing_args *args, bool plus)
{
    struct listing listing = {.call = call, .plus = plus, .start = xdr_used(&call->out)};
    struct store_object dir;
    struct store_cred cred;
    struct store_attr attr;
    bool eof = false;
    attr.type = 0;
    int error = nfs3_open(call, args->fh, &dir, &cred);
    if (!error)
        error = check(args);
    if (!error)
        error = begin(&listing, args);
    if (!error)
        error = nfs_server.ops->readdir(nfs_server.store, &cred, &dir, args->cookie, plus,
                                        put_entry, &listing, &eof, &attr);
    if (error == SL_EWAIT)
        return RPC_WAIT;
    if (!error && !listing.entries)
        error = listing.error;
    if (!error && !listing.entries && !eof)
        error = SL_ETOOSMALL;
    if (!error && (call->out.full || !attr.type))
        error = -EIO;

    if (!error) {
        put_listing(&listing, &attr, eof);
        return RPC_DONE;
    }
    call->out.at = call->out.start + listing.start;
    call->out.full = false;
    nfs3_put_status(call, error);
    nfs3_put_post_op_attr(&call->out, &attr);
    return RPC_DONE;
}

static void get_position(struct xdr_in *x, struct listing_args *args)
{
    args->fh = nfs3_get_fh(x);
    args->cookie = xdr_get_u64(x);
    args->verifier = xdr_get_u64(x);
}

enum rpc_result nfs3_readdir(struct rpc_call *call) /* RFC 1813, 3.3.16 */
{
    struct listing_args args = {0};
    get_position(&call->args, &args);
    args.maxcount = xdr_get_u32(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;
    return list(call, &args, false);
}

enum rpc_result nfs3_readdirplus(struct rpc_call *call) /* RFC 1813, 3.3.17 */
{
    struct listing_args args = {0};
    get_position(&call->args, &args);
    args.dircount = xdr_get_u32(&call->args);
    args.maxcount = xdr_get_u32(&call->args);
    if (call->args.bad)
        return RPC_GARBAGE_ARGS;
    return list(call, &args, true);
}
