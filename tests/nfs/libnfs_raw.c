/* Single NFSv3 and MOUNT calls through libnfs's raw interface: what its files and directories do not reach. */
#include "nfs/libnfs_ops.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <nfsc/libnfs.h>
#include <nfsc/libnfs-raw.h>
#include <nfsc/libnfs-raw-mount.h>
#include <nfsc/libnfs-raw-nfs.h>

enum { LISTED = 300, HANDLE_MOST = 64 };

static struct rpc_context *rpc;
static nfs_fh3 root, dir; /* dir: of the running test */
static char handle_bytes[2][HANDLE_MOST];

/* ---- one call at a time ---- */

/* What a call leaves behind.  libnfs frees a result after its callback, so what is looked at is copied there. */
static struct {
    bool done;
    int rpc_status;
    int status;
    nfs_fh3 object;
    char object_bytes[HANDLE_MOST];
    bool has_attr, has_wcc;
    fattr3 attr;
    wcc_data wcc;
    FSINFO3resok fsinfo;
    PATHCONF3resok pathconf;
    FSSTAT3resok fsstat;
    writeverf3 verf;
    unsigned count, committed, access;
    bool eof;
    char data[4096];
    char mounted[256];
    /* a listing, call after call */
    uint64_t cookie;
    cookieverf3 cookieverf;
    unsigned entries, calls;
    uint8_t seen[LISTED];
} r;

static void finish(int status)
{
    r.done = true;
    r.rpc_status = status;
}

static void await(struct rpc_context *on)
{
    for (int i = 0; i < 600 && !r.done; i++) {
        struct pollfd p = {.fd = rpc_get_fd(on), .events = (short)rpc_which_events(on)};
        poll(&p, 1, 50);
        if (rpc_service(on, p.revents) < 0)
            finish(RPC_STATUS_ERROR);
    }
    if (!r.done)
        r.rpc_status = RPC_STATUS_CANCEL;
}

#define CALL(procedure, arguments) \
    do { \
        r.done = r.has_attr = r.has_wcc = false; \
        r.status = -1; \
        EQUAL(rpc_nfs3_##procedure##_async(rpc, on_##procedure, &(arguments), NULL), 0); \
        await(rpc); \
        EQUAL(r.rpc_status, RPC_STATUS_SUCCESS); \
    } while (0)

static void keep_attr(const post_op_attr *attr)
{
    r.has_attr = attr->attributes_follow;
    if (r.has_attr)
        r.attr = attr->post_op_attr_u.attributes;
}

static void keep_wcc(const wcc_data *wcc)
{
    r.has_wcc = wcc->before.attributes_follow && wcc->after.attributes_follow;
    r.wcc = *wcc;
}

static void keep_handle(const nfs_fh3 *handle)
{
    r.object.data.data_len = handle->data.data_len;
    r.object.data.data_val = r.object_bytes;
    memcpy(r.object_bytes, handle->data.data_val, handle->data.data_len);
}

/* Keeps the status, and the rest by `keep`, in which `ok` is the result. */
#define ON(procedure, PROCEDURE, keep) \
    static void on_##procedure(struct rpc_context *on, int status, void *data, void *unused) \
    { \
        PROCEDURE##3res *result = data; \
        finish(status); \
        if (status != RPC_STATUS_SUCCESS) \
            return; \
        r.status = (int)result->status; \
        PROCEDURE##3resok *ok = &(&result->PROCEDURE##3res_u)->resok; \
        if (result->status == NFS3_OK) { \
            keep; \
        } \
    }

ON(fsinfo, FSINFO, r.fsinfo = *ok; keep_attr(&ok->obj_attributes))
ON(pathconf, PATHCONF, r.pathconf = *ok; keep_attr(&ok->obj_attributes))
ON(fsstat, FSSTAT, r.fsstat = *ok; keep_attr(&ok->obj_attributes))
ON(getattr, GETATTR, r.attr = ok->obj_attributes)
ON(lookup, LOOKUP, keep_handle(&ok->object); keep_attr(&ok->obj_attributes))
ON(access, ACCESS, r.access = ok->access; keep_attr(&ok->obj_attributes))
ON(write, WRITE, keep_wcc(&ok->file_wcc); memcpy(r.verf, ok->verf, sizeof r.verf); r.count = ok->count;
   r.committed = ok->committed)
ON(commit, COMMIT, keep_wcc(&ok->file_wcc); memcpy(r.verf, ok->verf, sizeof r.verf))
ON(read, READ, keep_attr(&ok->file_attributes); r.eof = ok->eof; r.count = ok->count;
   memcpy(r.data, ok->data.data_val, ok->data.data_len < sizeof r.data ? ok->data.data_len : sizeof r.data))
ON(setattr, SETATTR, keep_wcc(&ok->obj_wcc))
ON(create, CREATE, keep_handle(&ok->obj.post_op_fh3_u.handle); keep_attr(&ok->obj_attributes); keep_wcc(&ok->dir_wcc))
ON(mkdir, MKDIR, keep_handle(&ok->obj.post_op_fh3_u.handle); keep_attr(&ok->obj_attributes); keep_wcc(&ok->dir_wcc))
ON(mknod, MKNOD, keep_handle(&ok->obj.post_op_fh3_u.handle); keep_attr(&ok->obj_attributes); keep_wcc(&ok->dir_wcc))
ON(remove, REMOVE, keep_wcc(&ok->dir_wcc))
ON(symlink, SYMLINK, keep_handle(&ok->obj.post_op_fh3_u.handle); keep_attr(&ok->obj_attributes))
ON(readlink, READLINK, keep_attr(&ok->symlink_attributes); snprintf(r.data, sizeof r.data, "%s", ok->data))
ON(link, LINK, keep_attr(&ok->file_attributes); keep_wcc(&ok->linkdir_wcc))

static void on_rename(struct rpc_context *on, int status, void *data, void *unused)
{
    RENAME3res *result = data;
    finish(status);
    if (status != RPC_STATUS_SUCCESS)
        return;
    r.status = (int)result->status;
    keep_wcc(&result->RENAME3res_u.resok.fromdir_wcc);
}

static void on_rmdir(struct rpc_context *on, int status, void *data, void *unused)
{
    finish(status);
    if (status == RPC_STATUS_SUCCESS)
        r.status = (int)((RMDIR3res *)data)->status;
}

static void take_name(const char *name)
{
    unsigned number;
    r.entries++;
    if (sscanf(name, "n%u", &number) == 1 && number < LISTED)
        r.seen[number]++;
}

static void take_plus(const entryplus3 *e)
{
    bool dots = strcmp(e->name, ".") == 0 || strcmp(e->name, "..") == 0;
    r.cookie = e->cookie;
    take_name(e->name);
    if (!dots && (!e->name_attributes.attributes_follow || !e->name_handle.handle_follows ||
                  e->name_attributes.post_op_attr_u.attributes.fileid != e->fileid))
        r.status = -2;
}

ON(readdirplus, READDIRPLUS, keep_attr(&ok->dir_attributes); memcpy(r.cookieverf, ok->cookieverf, sizeof r.cookieverf);
   r.eof = ok->reply.eof; r.calls++; for (const entryplus3 *e = ok->reply.entries; e; e = e->nextentry) take_plus(e))
ON(readdir, READDIR, keep_attr(&ok->dir_attributes); memcpy(r.cookieverf, ok->cookieverf, sizeof r.cookieverf);
   r.eof = ok->reply.eof; r.calls++; for (const entry3 *e = ok->reply.entries; e; e = e->nextentry) {
       r.cookie = e->cookie;
       take_name(e->name);
   })

static void on_null(struct rpc_context *on, int status, void *data, void *unused)
{
    finish(status);
}

static void on_mnt(struct rpc_context *on, int status, void *data, void *unused)
{
    finish(status);
    if (status != RPC_STATUS_SUCCESS)
        return;
    mountres3 *result = data;
    r.status = (int)result->fhs_status;
    if (result->fhs_status != MNT3_OK)
        return;
    fhandle3 *handle = &result->mountres3_u.mountinfo.fhandle;
    keep_handle(&(nfs_fh3){.data = {handle->fhandle3_len, handle->fhandle3_val}});
}

static void on_export(struct rpc_context *on, int status, void *data, void *unused)
{
    finish(status);
    r.mounted[0] = 0;
    for (exports e = status == RPC_STATUS_SUCCESS ? *(exports *)data : NULL; e; e = e->ex_next) {
        size_t used = strlen(r.mounted);
        snprintf(r.mounted + used, sizeof r.mounted - used, "%s ", e->ex_dir);
    }
}

/* ---- arguments ---- */

static void set_mode(sattr3 *attr, unsigned mode)
{
    attr->mode.set_it = 1;
    attr->mode.set_mode3_u.mode = mode;
}

static nfs_fh3 keep(int slot, const nfs_fh3 *handle)
{
    memcpy(handle_bytes[slot], handle->data.data_val, handle->data.data_len);
    return (nfs_fh3){.data = {handle->data.data_len, handle_bytes[slot]}};
}

static void create(const nfs_fh3 *in, char *name, enum createmode3 how)
{
    CREATE3args a = {.where = {*in, name}, .how.mode = how};
    if (how == EXCLUSIVE)
        memcpy(a.how.createhow3_u.verf, "verifier", 8);
    else
        set_mode(&a.how.createhow3_u.obj_attributes, 0644);
    CALL(create, a);
}

static void remove_name(char *name)
{
    REMOVE3args a = {.object = {dir, name}};
    CALL(remove, a);
}

static void fresh_directory(const char *name)
{
    MKDIR3args a = {.where = {root, (char *)name}};
    set_mode(&a.attributes, 0777);
    CALL(mkdir, a);
    EQUAL(r.status, NFS3_OK);
    HOLDS(r.has_attr && r.has_wcc);
    EQUAL(r.attr.type, NF3DIR);
    static char bytes[HANDLE_MOST];
    memcpy(bytes, r.object_bytes, r.object.data.data_len);
    dir = (nfs_fh3){.data = {r.object.data.data_len, bytes}};
}

/* ---- the tests ---- */

static void connect_to(struct rpc_context **to, int program)
{
    *to = rpc_init_context();
    r.done = false;
    EQUAL(rpc_connect_port_async(*to, server_host, server_port, program, 3, on_null, NULL), 0);
    await(*to);
    EQUAL(r.rpc_status, RPC_STATUS_SUCCESS);
}

static void mnt(struct rpc_context *on, char *path)
{
    r.done = false;
    EQUAL(rpc_mount3_mnt_async(on, on_mnt, path, NULL), 0);
    await(on);
    EQUAL(r.rpc_status, RPC_STATUS_SUCCESS);
}

static void raw_mount_and_null(void)
{
    static char root_bytes[HANDLE_MOST];
    struct rpc_context *mount;
    connect_to(&mount, MOUNT_PROGRAM);
    STOP_IF_DIFFERENT();
    r.done = false;
    EQUAL(rpc_mount3_export_async(mount, on_export, NULL), 0);
    await(mount);
    HOLDS(strstr(r.mounted, "/vol ") && strstr(r.mounted, "/rovol "));
    mnt(mount, "/absent");
    EQUAL(r.status, MNT3ERR_NOENT);
    mnt(mount, "/vol");
    EQUAL(r.status, MNT3_OK);
    memcpy(root_bytes, r.object_bytes, r.object.data.data_len);
    root = (nfs_fh3){.data = {r.object.data.data_len, root_bytes}};
    rpc_destroy_context(mount);
    connect_to(&rpc, NFS_PROGRAM);
    STOP_IF_DIFFERENT();
    r.done = false;
    EQUAL(rpc_nfs3_null_async(rpc, on_null, NULL), 0);
    await(rpc);
    EQUAL(r.rpc_status, RPC_STATUS_SUCCESS);
}

static void raw_fsinfo_pathconf_fsstat(void)
{
    FSINFO3args info = {.fsroot = root};
    CALL(fsinfo, info);
    EQUAL(r.status, NFS3_OK);
    EQUAL(r.attr.type, NF3DIR);
    HOLDS(r.fsinfo.rtmax >= 1 << 20 && r.fsinfo.rtpref >= 1 << 20 && r.fsinfo.wtmax >= 1 << 20 &&
          r.fsinfo.wtpref >= 1 << 20 && r.fsinfo.dtpref >= 4096);
    EQUAL(r.fsinfo.maxfilesize, INT64_MAX);
    EQUAL(r.fsinfo.time_delta.seconds, 0);
    EQUAL(r.fsinfo.time_delta.nseconds, 1);
    EQUAL(r.fsinfo.properties, 0x1b); /* hard links, symbolic links, homogeneous, times can be set */
    PATHCONF3args conf = {.object = root};
    CALL(pathconf, conf);
    EQUAL(r.status, NFS3_OK);
    EQUAL(r.pathconf.name_max, 255);
    HOLDS(r.pathconf.linkmax >= 1000);
    HOLDS(r.pathconf.no_trunc && r.pathconf.chown_restricted && r.pathconf.case_preserving);
    EQUAL(r.pathconf.case_insensitive, 0);
    FSSTAT3args stat = {.fsroot = root};
    CALL(fsstat, stat);
    EQUAL(r.status, NFS3_OK);
    HOLDS(r.fsstat.tbytes >= r.fsstat.fbytes && r.fsstat.fbytes >= r.fsstat.abytes && r.fsstat.abytes > 0);
    HOLDS(r.fsstat.tfiles >= r.fsstat.ffiles && r.fsstat.ffiles > 0);
}

static void raw_create_modes(void)
{
    create(&dir, "exclusive", EXCLUSIVE);
    EQUAL(r.status, NFS3_OK);
    EQUAL(r.attr.size, 0);
    uint64_t first = r.attr.fileid;
    create(&dir, "exclusive", EXCLUSIVE); /* the same verifier: a repeated call */
    EQUAL(r.status, NFS3_OK);
    EQUAL(r.attr.fileid, first);
    /* times may be set in between without the verifier being lost */
    SETATTR3args times = {.object = keep(0, &r.object)};
    times.new_attributes.atime.set_it = times.new_attributes.mtime.set_it = SET_TO_CLIENT_TIME;
    times.new_attributes.atime.set_atime_u.atime = (nfstime3){1, 2};
    times.new_attributes.mtime.set_mtime_u.mtime = (nfstime3){3, 4};
    CALL(setattr, times);
    EQUAL(r.status, NFS3_OK);
    HOLDS(r.has_wcc);
    EQUAL(r.wcc.after.post_op_attr_u.attributes.mtime.nseconds, 4);
    create(&dir, "exclusive", EXCLUSIVE);
    EQUAL(r.status, NFS3_OK);
    CREATE3args other = {.where = {dir, "exclusive"}, .how.mode = EXCLUSIVE};
    memcpy(other.how.createhow3_u.verf, "another!", 8);
    CALL(create, other);
    EQUAL(r.status, NFS3ERR_EXIST);
    create(&dir, "exclusive", GUARDED);
    EQUAL(r.status, NFS3ERR_EXIST);
    create(&dir, "exclusive", UNCHECKED);
    EQUAL(r.status, NFS3_OK);
    EQUAL(r.attr.fileid, first);
    create(&dir, "guarded", GUARDED);
    EQUAL(r.status, NFS3_OK);
    EQUAL(r.attr.mode, 0644);
    HOLDS(r.has_wcc);
}

static void raw_unchecked_create_truncates(void)
{
    create(&dir, "file", GUARDED);
    WRITE3args w = {.file = keep(0, &r.object), .count = 5, .stable = FILE_SYNC, .data = {5, "hello"}};
    CALL(write, w);
    EQUAL(r.status, NFS3_OK);
    create(&dir, "file", UNCHECKED);
    EQUAL(r.attr.size, 5);
    CREATE3args empty = {.where = {dir, "file"}, .how.mode = UNCHECKED};
    empty.how.createhow3_u.obj_attributes.size.set_it = 1;
    CALL(create, empty);
    EQUAL(r.status, NFS3_OK);
    EQUAL(r.attr.size, 0);
}

static void raw_write_commit_read(void)
{
    writeverf3 verf;
    char data[1000];
    memset(data, 'x', sizeof data);
    create(&dir, "file", GUARDED);
    nfs_fh3 file = keep(0, &r.object);
    WRITE3args w = {.file = file, .offset = 10, .count = sizeof data, .stable = UNSTABLE,
                    .data = {sizeof data, data}};
    CALL(write, w);
    EQUAL(r.status, NFS3_OK);
    EQUAL(r.count, sizeof data);
    EQUAL(r.committed, FILE_SYNC); /* the contract: durable before the reply */
    HOLDS(r.has_wcc);
    EQUAL(r.wcc.before.pre_op_attr_u.attributes.size, 0);
    EQUAL(r.wcc.after.post_op_attr_u.attributes.size, 1010);
    memcpy(verf, r.verf, sizeof verf);
    COMMIT3args c = {.file = file};
    CALL(commit, c);
    EQUAL(r.status, NFS3_OK);
    EQUAL(r.wcc.after.attributes_follow, 1);
    EQUAL(r.wcc.after.post_op_attr_u.attributes.size, 1010);
    EQUAL(memcmp(verf, r.verf, sizeof verf), 0);
    c = (COMMIT3args){.file = file, .offset = 5000, .count = 10}; /* beyond the end */
    CALL(commit, c);
    EQUAL(r.status, NFS3_OK);
    READ3args read = {.file = file, .offset = 0, .count = 1010};
    CALL(read, read);
    EQUAL(r.status, NFS3_OK);
    EQUAL(r.count, 1010);
    EQUAL(r.eof, 1);
    HOLDS(r.data[9] == 0 && r.data[10] == 'x' && r.data[1009] == 'x');
    read.count = 1009;
    CALL(read, read);
    EQUAL(r.eof, 0);
    read = (READ3args){.file = file, .offset = 4000, .count = 10};
    CALL(read, read);
    EQUAL(r.status, NFS3_OK);
    EQUAL(r.count, 0);
    EQUAL(r.eof, 1);
    read = (READ3args){.file = dir, .count = 10};
    CALL(read, read);
    EQUAL(r.status, NFS3ERR_INVAL);
    w.file = dir;
    CALL(write, w);
    HOLDS(r.status == NFS3ERR_ISDIR || r.status == NFS3ERR_INVAL);
}

static void make_special(char *name, enum ftype3 type, unsigned major, unsigned minor)
{
    MKNOD3args a = {.where = {dir, name}, .what.type = type};
    if (type == NF3CHR || type == NF3BLK) {
        set_mode(&a.what.mknoddata3_u.chr_device.dev_attributes, 0640);
        a.what.mknoddata3_u.chr_device.spec = (specdata3){major, minor};
    } else {
        set_mode(&a.what.mknoddata3_u.pipe_attributes, 0640);
    }
    CALL(mknod, a);
}

static void raw_mknod_every_type(void)
{
    static const struct {
        char *name;
        enum ftype3 type;
    } all[] = {{"chr", NF3CHR}, {"blk", NF3BLK}, {"fifo", NF3FIFO}, {"sock", NF3SOCK}};
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) {
        bool device = all[i].type == NF3CHR || all[i].type == NF3BLK;
        make_special(all[i].name, all[i].type, 260, 70000);
        EQUAL(r.status, NFS3_OK);
        HOLDS(r.has_attr && r.has_wcc);
        EQUAL(r.attr.type, all[i].type);
        EQUAL(r.attr.mode, 0640);
        EQUAL(r.attr.nlink, 1);
        EQUAL(r.attr.rdev.specdata1, device ? 260 : 0);
        EQUAL(r.attr.rdev.specdata2, device ? 70000 : 0);
        make_special(all[i].name, all[i].type, 1, 1);
        EQUAL(r.status, NFS3ERR_EXIST);
        READ3args read = {.file = keep(0, &r.object), .count = 10};
        CALL(read, read);
        EQUAL(r.status, NFS3ERR_INVAL);
    }
    MKNOD3args file = {.where = {dir, "file"}, .what.type = NF3REG};
    CALL(mknod, file);
    EQUAL(r.status, NFS3ERR_BADTYPE);
}

static void start_listing(void)
{
    memset(r.seen, 0, sizeof r.seen);
    memset(r.cookieverf, 0, sizeof r.cookieverf);
    r.cookie = 0;
    r.entries = r.calls = 0;
    r.eof = false;
}

static void check_listing(void)
{
    EQUAL(r.entries, LISTED + 2); /* with . and .. */
    for (unsigned i = 0; i < LISTED; i++)
        EQUAL(r.seen[i], 1);
}

static void raw_listings_in_small_pieces(void)
{
    char name[16];
    for (unsigned i = 0; i < LISTED; i++) {
        snprintf(name, sizeof name, "n%u", i);
        create(&dir, name, GUARDED);
        EQUAL(r.status, NFS3_OK);
    }
    static const unsigned counts[] = {400, 1024, 8192, 1 << 20};
    for (unsigned i = 0; i < 4; i++) {
        start_listing();
        while (!r.eof) {
            READDIRPLUS3args a = {.dir = dir, .cookie = r.cookie, .dircount = counts[i], .maxcount = counts[i]};
            memcpy(a.cookieverf, r.cookieverf, sizeof r.cookieverf);
            CALL(readdirplus, a);
            EQUAL(r.status, NFS3_OK);
            HOLDS(r.has_attr && r.calls <= LISTED + 3);
        }
        check_listing();
        HOLDS(counts[i] > 8192 || r.calls > 1);
        start_listing();
        while (!r.eof) {
            READDIR3args a = {.dir = dir, .cookie = r.cookie, .count = counts[i]};
            memcpy(a.cookieverf, r.cookieverf, sizeof r.cookieverf);
            CALL(readdir, a);
            EQUAL(r.status, NFS3_OK);
            HOLDS(r.has_attr && r.calls <= LISTED + 3);
        }
        check_listing();
    }
    READDIRPLUS3args small = {.dir = dir, .dircount = 16, .maxcount = 130};
    CALL(readdirplus, small);
    EQUAL(r.status, NFS3ERR_TOOSMALL);
    READDIR3args tiny = {.dir = dir, .count = 16};
    CALL(readdir, tiny);
    EQUAL(r.status, NFS3ERR_TOOSMALL);
    create(&dir, "file", GUARDED);
    tiny = (READDIR3args){.dir = keep(0, &r.object), .count = 4096};
    CALL(readdir, tiny);
    EQUAL(r.status, NFS3ERR_NOTDIR);
}

/* A listing goes on although what it has shown is removed meanwhile. */
static void raw_listing_while_names_go(void)
{
    char name[16];
    for (unsigned i = 0; i < LISTED; i++) {
        snprintf(name, sizeof name, "n%u", i);
        create(&dir, name, GUARDED);
    }
    start_listing();
    while (!r.eof) {
        READDIRPLUS3args a = {.dir = dir, .cookie = r.cookie, .dircount = 2048, .maxcount = 2048};
        memcpy(a.cookieverf, r.cookieverf, sizeof r.cookieverf);
        CALL(readdirplus, a);
        EQUAL(r.status, NFS3_OK);
        bool eof = r.eof;
        for (unsigned i = 0; i < LISTED; i++) {
            snprintf(name, sizeof name, "n%u", i);
            if (r.seen[i] == 1) {
                remove_name(name);
                EQUAL(r.status, NFS3_OK);
                r.seen[i] = 3;
            }
        }
        r.eof = eof;
    }
    EQUAL(r.entries, LISTED + 2);
    for (unsigned i = 0; i < LISTED; i++)
        EQUAL(r.seen[i], 3);
}

static void raw_setattr_guard(void)
{
    create(&dir, "file", GUARDED);
    nfs_fh3 file = keep(0, &r.object);
    fattr3 before = r.attr;
    SETATTR3args a = {.object = file, .guard.check = 1};
    set_mode(&a.new_attributes, 0600);
    a.guard.sattrguard3_u.obj_ctime = (nfstime3){before.ctime.seconds - 1, before.ctime.nseconds};
    CALL(setattr, a);
    EQUAL(r.status, NFS3ERR_NOT_SYNC);
    a.guard.sattrguard3_u.obj_ctime = before.ctime;
    CALL(setattr, a);
    EQUAL(r.status, NFS3_OK);
    HOLDS(r.has_wcc);
    EQUAL(r.wcc.after.post_op_attr_u.attributes.mode, 0600);
    CALL(setattr, a); /* the ctime has moved on */
    EQUAL(r.status, NFS3ERR_NOT_SYNC);
    a = (SETATTR3args){.object = file};
    a.new_attributes.size.set_it = 1;
    a.new_attributes.size.set_size3_u.size = UINT64_MAX;
    CALL(setattr, a);
    HOLDS(r.status == NFS3ERR_FBIG || r.status == NFS3ERR_INVAL);
}

static void raw_lookup_names(void)
{
    create(&dir, "file", GUARDED);
    nfs_fh3 file = keep(0, &r.object);
    uint64_t id = r.attr.fileid;
    LOOKUP3args a = {.what = {dir, "file"}};
    CALL(lookup, a);
    EQUAL(r.status, NFS3_OK);
    EQUAL(r.attr.fileid, id);
    EQUAL(r.object.data.data_len, file.data.data_len);
    EQUAL(memcmp(r.object_bytes, file.data.data_val, file.data.data_len), 0);
    a.what.name = "absent";
    CALL(lookup, a);
    EQUAL(r.status, NFS3ERR_NOENT);
    a.what = (diropargs3){file, "x"};
    CALL(lookup, a);
    EQUAL(r.status, NFS3ERR_NOTDIR);
    a.what = (diropargs3){dir, "."};
    CALL(lookup, a);
    EQUAL(r.status, NFS3_OK);
    EQUAL(memcmp(r.object_bytes, dir.data.data_val, dir.data.data_len), 0);
    a.what.name = "..";
    CALL(lookup, a);
    EQUAL(r.status, NFS3_OK);
    EQUAL(memcmp(r.object_bytes, root.data.data_val, root.data.data_len), 0);
    ACCESS3args all = {.object = dir, .access = 0x3f};
    CALL(access, all);
    EQUAL(r.status, NFS3_OK);
    EQUAL(r.access, 0x1f); /* EXECUTE is not for directories */
}

static void raw_links_and_renames(void)
{
    create(&dir, "file", GUARDED);
    nfs_fh3 file = keep(0, &r.object);
    LINK3args l = {.file = file, .link = {dir, "second"}};
    CALL(link, l);
    EQUAL(r.status, NFS3_OK);
    EQUAL(r.attr.nlink, 2);
    HOLDS(r.has_wcc);
    CALL(link, l);
    EQUAL(r.status, NFS3ERR_EXIST);
    RENAME3args m = {.from = {dir, "second"}, .to = {dir, "third"}};
    CALL(rename, m);
    EQUAL(r.status, NFS3_OK);
    HOLDS(r.has_wcc);
    CALL(rename, m);
    EQUAL(r.status, NFS3ERR_NOENT);
    SYMLINK3args s = {.where = {dir, "link"}, .symlink.symlink_data = "third"};
    CALL(symlink, s);
    EQUAL(r.status, NFS3_OK);
    EQUAL(r.attr.type, NF3LNK);
    EQUAL(r.attr.size, 5);
    READLINK3args read = {.symlink = keep(1, &r.object)};
    CALL(readlink, read);
    EQUAL(r.status, NFS3_OK);
    EQUAL(strcmp(r.data, "third"), 0);
    read.symlink = file;
    CALL(readlink, read);
    EQUAL(r.status, NFS3ERR_INVAL);
    RMDIR3args d = {.object = {dir, "third"}};
    CALL(rmdir, d);
    EQUAL(r.status, NFS3ERR_NOTDIR);
    remove_name("third");
    EQUAL(r.status, NFS3_OK);
    GETATTR3args g = {.object = file};
    CALL(getattr, g);
    EQUAL(r.attr.nlink, 1);
    remove_name("file");
    EQUAL(r.status, NFS3_OK);
    CALL(getattr, g);
    EQUAL(r.status, NFS3ERR_STALE);
    READ3args gone = {.file = file, .count = 10};
    CALL(read, gone);
    EQUAL(r.status, NFS3ERR_STALE);
    WRITE3args w = {.file = file, .count = 1, .stable = UNSTABLE, .data = {1, "x"}};
    CALL(write, w);
    EQUAL(r.status, NFS3ERR_STALE);
    COMMIT3args c = {.file = file};
    CALL(commit, c);
    EQUAL(r.status, NFS3ERR_STALE);
}

static void raw_full_volume_says_so(void)
{
    static char data[1 << 18];
    char bytes[HANDLE_MOST];
    struct rpc_context *mount;
    connect_to(&mount, MOUNT_PROGRAM);
    STOP_IF_DIFFERENT();
    mnt(mount, "/small");
    EQUAL(r.status, MNT3_OK);
    rpc_destroy_context(mount);
    memcpy(bytes, r.object_bytes, r.object.data.data_len);
    nfs_fh3 small = {.data = {r.object.data.data_len, bytes}};
    memset(data, 'x', sizeof data);
    create(&small, "full", GUARDED);
    EQUAL(r.status, NFS3_OK);
    WRITE3args w = {.file = keep(0, &r.object), .count = sizeof data, .stable = UNSTABLE,
                    .data = {sizeof data, data}};
    for (int i = 0; i < 64 && r.status == NFS3_OK; i++, w.offset += sizeof data)
        CALL(write, w);
    HOLDS(r.status == NFS3ERR_NOSPC || r.status == NFS3ERR_DQUOT);
    REMOVE3args a = {.object = {small, "full"}};
    CALL(remove, a);
    EQUAL(r.status, NFS3_OK);
}

static void raw_handles_that_are_none(void)
{
    char junk[HANDLE_MOST];
    GETATTR3args g = {.object = {.data = {dir.data.data_len, junk}}};
    memcpy(junk, dir.data.data_val, dir.data.data_len);
    junk[dir.data.data_len - 1] ^= 1;
    CALL(getattr, g);
    HOLDS(r.status == NFS3ERR_BADHANDLE || r.status == NFS3ERR_STALE);
    memset(junk, 0xff, sizeof junk);
    g.object.data.data_len = HANDLE_MOST;
    CALL(getattr, g);
    HOLDS(r.status == NFS3ERR_BADHANDLE || r.status == NFS3ERR_STALE);
    g.object.data.data_len = 0;
    CALL(getattr, g);
    HOLDS(r.status == NFS3ERR_BADHANDLE || r.status == NFS3ERR_STALE);
    g.object = dir;
    CALL(getattr, g);
    EQUAL(r.status, NFS3_OK);
}

#define IN_A_DIRECTORY(name) \
    static void name##_there(void) \
    { \
        fresh_directory("in_" #name); \
        if (!differences) \
            name(); \
    }
IN_A_DIRECTORY(raw_create_modes)
IN_A_DIRECTORY(raw_unchecked_create_truncates)
IN_A_DIRECTORY(raw_write_commit_read)
IN_A_DIRECTORY(raw_mknod_every_type)
IN_A_DIRECTORY(raw_listings_in_small_pieces)
IN_A_DIRECTORY(raw_listing_while_names_go)
IN_A_DIRECTORY(raw_setattr_guard)
IN_A_DIRECTORY(raw_lookup_names)
IN_A_DIRECTORY(raw_links_and_renames)
IN_A_DIRECTORY(raw_handles_that_are_none)

const struct test raw_tests[] = {
    {"raw_mount_and_null", raw_mount_and_null},
    {"raw_fsinfo_pathconf_fsstat", raw_fsinfo_pathconf_fsstat},
    {"raw_create_modes", raw_create_modes_there},
    {"raw_unchecked_create_truncates", raw_unchecked_create_truncates_there},
    {"raw_write_commit_read", raw_write_commit_read_there},
    {"raw_mknod_every_type", raw_mknod_every_type_there},
    {"raw_listings_in_small_pieces", raw_listings_in_small_pieces_there},
    {"raw_listing_while_names_go", raw_listing_while_names_go_there},
    {"raw_setattr_guard", raw_setattr_guard_there},
    {"raw_lookup_names", raw_lookup_names_there},
    {"raw_links_and_renames", raw_links_and_renames_there},
    {"raw_handles_that_are_none", raw_handles_that_are_none_there},
    {"raw_full_volume_says_so", raw_full_volume_says_so},
    {NULL, NULL},
};
