/* NFS version 3 (RFC 1813) inside the layer: numbers, the codecs that procedures share, and the procedures.
 * A procedure decodes, checks, calls the store, encodes; SL_EWAIT from the store becomes RPC_WAIT.  Workers. */
#ifndef SLUICE_NFS_NFS3_H
#define SLUICE_NFS_NFS3_H

#include "nfs/handle.h"
#include "nfs/server.h"

/* RFC 1813, 2.6 */
enum nfs3_status {
    NFS3_OK = 0,
    NFS3ERR_PERM = 1,
    NFS3ERR_NOENT = 2,
    NFS3ERR_IO = 5,
    NFS3ERR_NXIO = 6,
    NFS3ERR_ACCES = 13,
    NFS3ERR_EXIST = 17,
    NFS3ERR_XDEV = 18,
    NFS3ERR_NODEV = 19,
    NFS3ERR_NOTDIR = 20,
    NFS3ERR_ISDIR = 21,
    NFS3ERR_INVAL = 22,
    NFS3ERR_FBIG = 27,
    NFS3ERR_NOSPC = 28,
    NFS3ERR_ROFS = 30,
    NFS3ERR_MLINK = 31,
    NFS3ERR_NAMETOOLONG = 63,
    NFS3ERR_NOTEMPTY = 66,
    NFS3ERR_DQUOT = 69,
    NFS3ERR_STALE = 70,
    NFS3ERR_REMOTE = 71,
    NFS3ERR_BADHANDLE = 10001,
    NFS3ERR_NOT_SYNC = 10002,
    NFS3ERR_BAD_COOKIE = 10003,
    NFS3ERR_NOTSUPP = 10004,
    NFS3ERR_TOOSMALL = 10005,
    NFS3ERR_SERVERFAULT = 10006,
    NFS3ERR_BADTYPE = 10007,
    NFS3ERR_JUKEBOX = 10008,
};

enum nfs3_procedure {
    NFS3_NULL,
    NFS3_GETATTR,
    NFS3_SETATTR,
    NFS3_LOOKUP,
    NFS3_ACCESS,
    NFS3_READLINK,
    NFS3_READ,
    NFS3_WRITE,
    NFS3_CREATE,
    NFS3_MKDIR,
    NFS3_SYMLINK,
    NFS3_MKNOD,
    NFS3_REMOVE,
    NFS3_RMDIR,
    NFS3_RENAME,
    NFS3_LINK,
    NFS3_READDIR,
    NFS3_READDIRPLUS,
    NFS3_FSSTAT,
    NFS3_FSINFO,
    NFS3_PATHCONF,
    NFS3_COMMIT,
    NFS3_PROCEDURES
};

enum { /* sizes on the wire */
       NFS3_FATTR_SIZE = 84,
       NFS3_POST_OP_ATTR_SIZE = 4 + NFS3_FATTR_SIZE,
       NFS3_POST_OP_FH_SIZE = 4 + 4 + NFS_HANDLE_SIZE,
       NFS3_HANDLE_MAX = 64,
};

/* ---- nfs3_status.c ---- */

/* The status that `procedure` answers for an error of ours (0: NFS3_OK). */
enum nfs3_status nfs3_status(enum nfs3_procedure procedure, int error);

/* ---- nfs3_attr.c ---- */

struct nfs3_fh {
    const uint8_t *bytes;
    uint32_t length;
};

struct nfs3_fh nfs3_get_fh(struct xdr_in *x);
/* A name of any length: one that is too long is the store's error, not a malformed call. */
struct store_name nfs3_get_name(struct xdr_in *x);
/* Sets only what the client set.  *error becomes -EINVAL for nanoseconds past 999,999,999, and is else left. */
struct store_setattr nfs3_get_sattr(struct xdr_in *x, int *error);
struct store_time nfs3_get_time(struct xdr_in *x);

void nfs3_put_fattr(struct xdr_out *x, const struct store_attr *attr);
/* `attr` NULL, or with type 0: attributes do not follow. */
void nfs3_put_post_op_attr(struct xdr_out *x, const struct store_attr *attr);
void nfs3_put_post_op_fh(struct xdr_out *x, const struct store_object *object);
void nfs3_put_wcc(struct xdr_out *x, const struct store_wcc *wcc);
/* The status, and one more answered call in the counters: once for each call. */
enum nfs3_status nfs3_put_status(struct rpc_call *call, int error);

/* The object of a handle and the credential with which the caller acts on it.  SL_EBADHANDLE, -ESTALE, -EACCES,
 * SL_EDELAY. */
int nfs3_open(struct rpc_call *call, struct nfs3_fh fh, struct store_object *object,
              struct store_cred *cred);

/* ---- procedures ---- */

enum rpc_result nfs3_getattr(struct rpc_call *call); /* nfs3_object.c */
enum rpc_result nfs3_setattr(struct rpc_call *call);
enum rpc_result nfs3_access(struct rpc_call *call);
enum rpc_result nfs3_readlink(struct rpc_call *call);
enum rpc_result nfs3_read(struct rpc_call *call); /* nfs3_data.c */
/* Calls that are about to be run: rpc_version.expect. */
void nfs3_expect(const struct rpc_expected *calls, unsigned count);
enum rpc_result nfs3_write(struct rpc_call *call);
enum rpc_result nfs3_commit(struct rpc_call *call);
enum rpc_result nfs3_create(struct rpc_call *call); /* nfs3_make.c */
enum rpc_result nfs3_mkdir(struct rpc_call *call);
enum rpc_result nfs3_symlink(struct rpc_call *call);
enum rpc_result nfs3_mknod(struct rpc_call *call);
enum rpc_result nfs3_lookup(struct rpc_call *call); /* nfs3_name.c */
enum rpc_result nfs3_remove(struct rpc_call *call);
enum rpc_result nfs3_rmdir(struct rpc_call *call);
enum rpc_result nfs3_rename(struct rpc_call *call);
enum rpc_result nfs3_link(struct rpc_call *call);
enum rpc_result nfs3_readdir(struct rpc_call *call); /* nfs3_dir.c */
enum rpc_result nfs3_readdirplus(struct rpc_call *call);
enum rpc_result nfs3_fsstat(struct rpc_call *call); /* nfs3_fs.c */
enum rpc_result nfs3_fsinfo(struct rpc_call *call);
enum rpc_result nfs3_pathconf(struct rpc_call *call);

#endif
