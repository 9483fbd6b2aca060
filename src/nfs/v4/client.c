/* Clients of minor version 0: SETCLIENTID, SETCLIENTID_CONFIRM, RENEW, RELEASE_LOCKOWNER. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "nfs/access.h"
#include "nfs/v4/compound.h"

enum { NETID_MOST = 64, ADDRESS_MOST = 256 };

/* clientaddr4: as RFC 5665 writes an address. */
static void put_address(struct xdr_out *out, const struct sockaddr_storage *address)
{
    char host[ACCESS_ADDRESS_TEXT], text[ACCESS_ADDRESS_TEXT + 16];
    bool four = address->ss_family == AF_INET;
    uint16_t port = ntohs(four ? ((const struct sockaddr_in *)address)->sin_port
                               : ((const struct sockaddr_in6 *)address)->sin6_port);
    access_peer_text(address, host);
    int length = snprintf(text, sizeof text, "%s.%u.%u", host, port >> 8, port & 255);
    xdr_put_opaque(out, four ? "tcp" : "tcp6", four ? 3 : 4);
    xdr_put_opaque(out, text, (uint32_t)length);
}

/* RFC 7530, 16.33.  The callback's address is not used: 4.0's would have to be dialled, and gets no delegations. */
enum nfs4_status nfs4_setclientid(struct nfs4_compound *c)
{
    struct xdr_in *in = nfs4_in(c);
    struct state_setclientid set = {0};
    uint32_t length;
    const uint8_t *verifier = xdr_take(in, sizeof set.verifier);
    set.owner.bytes = xdr_get_opaque(in, NFS4_OPAQUE_LIMIT, &set.owner.length);
    xdr_get_u32(in); /* cb_program */
    xdr_get_opaque(in, NETID_MOST, &length);
    xdr_get_opaque(in, ADDRESS_MOST, &length);
    xdr_get_u32(in); /* callback_ident */
    if (in->bad)
        return NFS4ERR_BADXDR;
    memcpy(set.verifier, verifier, sizeof set.verifier);
    enum nfs4_status status = state_setclientid(&c->caller, &set);
    if (status == NFS4ERR_CLID_INUSE) {
        put_address(nfs4_out(c), &set.in_use);
        c->keep_result = true;
    }
    if (status != NFS4_OK)
        return status;
    xdr_put_u64(nfs4_out(c), set.clientid);
    xdr_put_fixed(nfs4_out(c), set.confirm, sizeof set.confirm);
    return NFS4_OK;
}

enum nfs4_status nfs4_setclientid_confirm(struct nfs4_compound *c) /* 16.34 */
{
    struct state_setclientid set = {.clientid = xdr_get_u64(nfs4_in(c))};
    const uint8_t *verifier = xdr_take(nfs4_in(c), sizeof set.confirm);
    if (!verifier)
        return NFS4ERR_BADXDR;
    memcpy(set.confirm, verifier, sizeof set.confirm);
    return state_setclientid_confirm(&c->caller, &set);
}

enum nfs4_status nfs4_renew(struct nfs4_compound *c) /* 16.30 */
{
    uint64_t clientid = xdr_get_u64(nfs4_in(c));
    return nfs4_in(c)->bad ? NFS4ERR_BADXDR : state_renew(&c->caller, clientid);
}

enum nfs4_status nfs4_release_lockowner(struct nfs4_compound *c) /* 16.36 */
{
    uint64_t clientid = xdr_get_u64(nfs4_in(c));
    struct state_bytes owner;
    owner.bytes = xdr_get_opaque(nfs4_in(c), NFS4_OPAQUE_LIMIT, &owner.length);
    return nfs4_in(c)->bad ? NFS4ERR_BADXDR : state_release_lockowner(&c->caller, clientid, owner);
}
