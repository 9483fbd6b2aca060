/* Attributes that a client sets, and the names of owners. */
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "nfs/v4/attr.h"
#include "sluice/base_worker.h"

enum { OWNER_MOST = 256, NAME_SERVICE_ROOM = 16384, NANOSECONDS_END = 1000000000 };
enum { SET_TO_SERVER_TIME, SET_TO_CLIENT_TIME }; /* time_how4 */

/* ---- owners ---- */

struct owner {
    char name[OWNER_MOST];
    bool group, found;
    uint32_t id;
};

static void ask_name_service(void *arg)
{
    struct owner *owner = arg;
    char *room = malloc(NAME_SERVICE_ROOM);
    struct passwd user, *found_user = NULL;
    struct group group, *found_group = NULL;
    if (!room)
        return;
    if (owner->group)
        getgrnam_r(owner->name, &group, room, NAME_SERVICE_ROOM, &found_group);
    else
        getpwnam_r(owner->name, &user, room, NAME_SERVICE_ROOM, &found_user);
    owner->found = found_group || found_user;
    owner->id = found_group ? group.gr_gid : found_user ? user.pw_uid : 0;
    free(room);
}

static bool parse_number(const uint8_t *text, uint32_t length, uint32_t *id)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || value > UINT32_MAX)
            return false;
        value = value * 10 + (text[i] - '0');
    }
    *id = (uint32_t)value;
    return length && value < UINT32_MAX; /* -1 is nobody's number */
}

static enum nfs4_status get_owner(struct xdr_in *x, bool group, uint32_t *id)
{
    uint32_t length;
    const uint8_t *text = xdr_get_opaque(x, UINT32_MAX, &length);
    if (x->bad)
        return NFS4ERR_BADXDR;
    if (length == 0)
        return NFS4ERR_INVAL;
    if (parse_number(text, length, id))
        return NFS4_OK;
    const uint8_t *at = memchr(text, '@', length);
    size_t name_length = at ? (size_t)(at - text) : 0;
    if (name_length == 0 || name_length >= OWNER_MOST || memchr(text, 0, name_length))
        return NFS4ERR_BADOWNER;
    struct owner owner = {.group = group};
    memcpy(owner.name, text, name_length);
    blocking_run(ask_name_service, &owner);
    *id = owner.id;
    return owner.found ? NFS4_OK : NFS4ERR_BADOWNER;
}

/* ---- the other values ---- */

static enum nfs4_status get_time(struct xdr_in *x, struct store_setattr *set, uint32_t given, uint32_t now,
                                 struct store_time *time)
{
    uint32_t how = xdr_get_u32(x);
    if (how == SET_TO_SERVER_TIME) {
        set->set |= now;
        return NFS4_OK;
    }
    if (how != SET_TO_CLIENT_TIME)
        return NFS4ERR_BADXDR;
    set->set |= given;
    time->seconds = (int64_t)xdr_get_u64(x);
    time->nanoseconds = xdr_get_u32(x);
    return time->nanoseconds < NANOSECONDS_END ? NFS4_OK : NFS4ERR_INVAL;
}

static enum nfs4_status get_mode(struct xdr_in *x, struct store_setattr *set, uint32_t umask)
{
    uint32_t mode = xdr_get_u32(x);
    if (mode & ~(uint32_t)07777 || umask & ~(uint32_t)0777)
        return NFS4ERR_INVAL;
    set->set |= STORE_SET_MODE;
    set->mode = mode & ~umask;
    return NFS4_OK;
}

static enum nfs4_status get_value(struct xdr_in *x, unsigned bit, bool making, struct store_setattr *set)
{
    switch (bit) {
    case FATTR4_SIZE:
        set->set |= STORE_SET_SIZE;
        set->size = xdr_get_u64(x);
        return NFS4_OK;
    case FATTR4_MODE:
        return get_mode(x, set, 0);
    case FATTR4_MODE_UMASK: {
        if (!making || set->set & STORE_SET_MODE)
            return NFS4ERR_INVAL;
        struct xdr_in umask = *x;
        xdr_get_u32(&umask);
        enum nfs4_status status = get_mode(x, set, xdr_get_u32(&umask));
        *x = umask;
        return status;
    }
    case FATTR4_OWNER:
        set->set |= STORE_SET_UID;
        return get_owner(x, false, &set->uid);
    case FATTR4_OWNER_GROUP:
        set->set |= STORE_SET_GID;
        return get_owner(x, true, &set->gid);
    case FATTR4_TIME_ACCESS_SET:
        return get_time(x, set, STORE_SET_ATIME, STORE_SET_ATIME_NOW, &set->atime);
    case FATTR4_TIME_MODIFY_SET:
        return get_time(x, set, STORE_SET_MTIME, STORE_SET_MTIME_NOW, &set->mtime);
    default:
        return NFS4ERR_INVAL;
    }
}

enum nfs4_status nfs4_get_settable(struct nfs4_compound *c, bool making, struct nfs4_bitmap *map,
                                   struct store_setattr *set)
{
    struct xdr_in *in = nfs4_in(c);
    uint32_t length;
    *set = (struct store_setattr){0};
    *map = nfs4_get_bitmap(in);
    const uint8_t *bytes = xdr_get_opaque(in, UINT32_MAX, &length);
    if (in->bad)
        return NFS4ERR_BADXDR;
    if (!nfs4_all_supported(c->minor, map))
        return NFS4ERR_ATTRNOTSUPP;
    struct xdr_in values = xdr_in(bytes, length);
    enum nfs4_status status = NFS4_OK;
    for (unsigned i = 0; i < ATTR_WORDS; i++)
        for (uint32_t left = map->word[i]; left && status == NFS4_OK; left &= left - 1) {
            status = get_value(&values, i * 32 + (unsigned)__builtin_ctz(left), making, set);
            if (values.bad)
                status = NFS4ERR_BADXDR;
        }
    if (status == NFS4_OK && xdr_left(&values))
        status = NFS4ERR_BADXDR;
    return status;
}
