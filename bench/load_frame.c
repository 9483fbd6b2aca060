/* RPC frames, for the load generator and the floor. */
#include "load.h"

enum { LAST_FRAGMENT = 0x80000000 };

/* Record mark (filled in by rpc_finish_record), call header, AUTH_SYS (RFC 5531). */
size_t rpc_call_header(struct xdr_out *x, uint32_t xid, uint32_t program, uint32_t version,
                       uint32_t procedure, uint32_t uid)
{
    const uint32_t call[] = {0, xid, 0, 2, program, version, procedure, 1, 28};
    for (size_t i = 0; i < sizeof call / sizeof call[0]; i++)
        xdr_put_u32(x, call[i]);
    xdr_put_u32(x, 0); /* stamp */
    xdr_put_opaque(x, "bench", 5);
    xdr_put_u32(x, uid);
    xdr_put_u32(x, uid);
    xdr_put_u32(x, 0); /* no further groups */
    xdr_put_u64(x, 0); /* AUTH_NONE as verifier */
    return xdr_used(x);
}

void rpc_put_fh(struct xdr_out *x, const struct load_file *file)
{
    xdr_put_opaque(x, file->fh, file->fh_length);
}

void rpc_finish_record(struct xdr_out *x, size_t payload)
{
    uint32_t mark = htobe32(LAST_FRAGMENT | (uint32_t)(xdr_used(x) - 4 + payload));
    memcpy(x->start, &mark, 4);
}

bool rpc_reply_accepted(struct xdr_in *x)
{
    uint32_t length;
    bool reply = xdr_get_u32(x) == 1 && xdr_get_u32(x) == 0;
    xdr_get_u32(x);
    xdr_get_opaque(x, 400, &length);
    return reply && xdr_get_u32(x) == 0 && !x->bad;
}
