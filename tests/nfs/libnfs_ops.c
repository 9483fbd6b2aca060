/* libnfs_ops HOST PORT [after]: files and directories as a program sees them through libnfs, on a running server with
 * the volumes vol (no squashing), rovol (the same rules, :ro), squashed (root squash, mode 0777) and small (8 MiB).
 * After a restart of the server, "after" looks for what the first run left.  Prints ok and not ok lines and ends with
 * "N passed, N failed"; exits 1 if one failed. */
#include "nfs/libnfs_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <unistd.h>
#include <nfsc/libnfs.h>

enum { USER = 1000, NOBODY = 65534, MIB = 1 << 20, MANY = 500, CLIENTS = 8 };

const char *server_host;
int server_port;
_Atomic unsigned differences;

static struct nfs_context *nfs, *other, *user; /* root twice, and uid 1000, on /vol */
static char dir[64];                           /* of the running test, mode 0777 */

void differ(const char *file, int line, const char *what, long long got, long long want)
{
    printf("# %s:%d: %s is %lld, not %lld\n", file, line, what, got, want);
    differences++;
}

/* ---- helpers ---- */

static struct nfs_context *try_mount(const char *export_path, int uid)
{
    char url[256];
    struct nfs_context *c = nfs_init_context();
    snprintf(url, sizeof url, "nfs://%s/?version=3&nfsport=%d&mountport=%d&uid=%d&gid=%d&dircache=0", server_host,
             server_port, server_port, uid, uid);
    struct nfs_url *parsed = nfs_parse_url_dir(c, url);
    if (parsed)
        nfs_destroy_url(parsed);
    if (parsed && nfs_mount(c, server_host, export_path) == 0) {
        nfs_umask(c, 0);
        return c;
    }
    nfs_destroy_context(c);
    return NULL;
}

struct nfs_context *mounted(const char *export_path, int uid)
{
    struct nfs_context *c = try_mount(export_path, uid);
    if (c)
        return c;
    printf("not ok mounting %s as %d\n0 passed, 1 failed\n", export_path, uid);
    exit(1);
}

/* NAME in the test's directory; valid until the eighth call after this one. */
static const char *in(const char *name)
{
    static _Thread_local char paths[8][512];
    static _Thread_local unsigned turn;
    char *to = paths[turn++ % 8];
    snprintf(to, sizeof paths[0], "%s/%s", dir, name);
    return to;
}

static struct nfs_stat_64 st;

static int look(const char *name)
{
    return nfs_lstat64(nfs, in(name), &st);
}

/* Makes a file with this content. */
static int put(struct nfs_context *c, const char *path, int mode, const void *data, size_t length)
{
    struct nfsfh *f;
    int error = nfs_creat(c, path, mode, &f);
    if (error)
        return error;
    if (length)
        error = nfs_pwrite(c, f, 0, length, data);
    nfs_close(c, f);
    return error < 0 ? error : error == (int)length ? 0 : -EIO;
}

static void fill(char *data, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++) {
        seed = seed * 1103515245 + 12345;
        data[i] = (char)(seed >> 16);
    }
}

/* ---- mount ---- */

static void mounts_volumes_and_their_directories(void)
{
    HOLDS(nfs_get_readmax(nfs) >= MIB && nfs_get_writemax(nfs) >= MIB);
    EQUAL(nfs_stat64(nfs, "/", &st), 0);
    EQUAL(st.nfs_mode, S_IFDIR | 0755);
    EQUAL(try_mount("/absent", 0), NULL);
    EQUAL(try_mount("/vol/absent", 0), NULL);
    EQUAL(put(nfs, in("inside"), 0644, "x", 1), 0);
    char path[128];
    snprintf(path, sizeof path, "/vol%s", dir);
    struct nfs_context *sub = try_mount(path, 0);
    HOLDS(sub);
    EQUAL(nfs_stat64(sub, "/inside", &st), 0);
    EQUAL(st.nfs_size, 1);
    nfs_umount(sub);
    nfs_destroy_context(sub);
}

/* ---- files ---- */

static void creates_writes_and_reads(void)
{
    static char data[3 * MIB], back[3 * MIB];
    struct nfsfh *f;
    fill(data, sizeof data, 1);
    EQUAL(nfs_creat(nfs, in("f"), 0640, &f), 0);
    EQUAL(nfs_fstat64(nfs, f, &st), 0);
    EQUAL(st.nfs_mode, S_IFREG | 0640);
    HOLDS(st.nfs_nlink == 1 && st.nfs_uid == 0 && st.nfs_gid == 0 && st.nfs_size == 0);
    EQUAL(nfs_pwrite(nfs, f, 0, 5, data), 5);
    EQUAL(nfs_pwrite(nfs, f, 100001, 12345, data + 100001), 12345);
    EQUAL(nfs_fstat64(nfs, f, &st), 0);
    EQUAL(st.nfs_size, 112346);
    EQUAL(nfs_pread(nfs, f, 0, sizeof back, back), 112346);
    EQUAL(memcmp(back, data, 5), 0);
    EQUAL(memcmp(back + 100001, data + 100001, 12345), 0);
    for (int i = 5; i < 100001; i++)
        EQUAL(back[i], 0);
    EQUAL(nfs_pread(nfs, f, 112346, 100, back), 0);
    EQUAL(nfs_pread(nfs, f, 112340, 100, back), 6);
    for (unsigned at = 0; at < sizeof data; at += MIB)
        EQUAL(nfs_pwrite(nfs, f, at, MIB, data + at), MIB);
    for (unsigned at = 0; at < sizeof data; at += MIB)
        EQUAL(nfs_pread(nfs, f, at, MIB, back + at), MIB);
    EQUAL(memcmp(data, back, sizeof data), 0);
    EQUAL(nfs_pwrite(nfs, f, 1ull << 40, 4, data), 4); /* a hole of a terabyte */
    EQUAL(nfs_fstat64(nfs, f, &st), 0);
    EQUAL(st.nfs_size, (1ull << 40) + 4);
    HOLDS(st.nfs_used < 16 * MIB);
    EQUAL(nfs_pread(nfs, f, 1ull << 39, 100, back), 100);
    EQUAL(back[99], 0);
    EQUAL(nfs_close(nfs, f), 0);
}

static void opens_as_the_flags_say(void)
{
    struct nfsfh *f;
    char back[16];
    EQUAL(nfs_open(nfs, in("f"), O_RDONLY, &f), -ENOENT);
    EQUAL(nfs_open2(nfs, in("f"), O_CREAT | O_WRONLY | O_EXCL, 0604, &f), 0);
    EQUAL(nfs_pwrite(nfs, f, 0, 6, "abcdef"), 6);
    nfs_close(nfs, f);
    EQUAL(look("f"), 0);
    EQUAL(st.nfs_mode, S_IFREG | 0604);
    EQUAL(nfs_open2(nfs, in("f"), O_CREAT | O_WRONLY | O_EXCL, 0604, &f), -EEXIST);
    EQUAL(nfs_open(nfs, in("f"), O_WRONLY | O_APPEND, &f), 0);
    EQUAL(nfs_write(nfs, f, 3, "ghi"), 3);
    nfs_close(nfs, f);
    EQUAL(nfs_open(nfs, in("f"), O_RDWR, &f), 0);
    EQUAL(nfs_read(nfs, f, sizeof back, back), 9);
    EQUAL(memcmp(back, "abcdefghi", 9), 0);
    nfs_close(nfs, f);
    EQUAL(nfs_open(nfs, in("f"), O_RDWR | O_TRUNC, &f), 0);
    EQUAL(nfs_fstat64(nfs, f, &st), 0);
    EQUAL(st.nfs_size, 0);
    nfs_close(nfs, f);
    EQUAL(nfs_open(nfs, in("f/x"), O_RDONLY, &f), -ENOTDIR);
}

static void truncates_both_ways(void)
{
    struct nfsfh *f;
    char back[64];
    EQUAL(put(nfs, in("f"), 0644, "0123456789", 10), 0);
    EQUAL(look("f"), 0);
    struct nfs_stat_64 before = st;
    EQUAL(nfs_truncate(nfs, in("f"), 4), 0);
    EQUAL(look("f"), 0);
    EQUAL(st.nfs_size, 4);
    HOLDS(st.nfs_mtime > before.nfs_mtime ||
          (st.nfs_mtime == before.nfs_mtime && st.nfs_mtime_nsec > before.nfs_mtime_nsec));
    EQUAL(nfs_open(nfs, in("f"), O_RDWR, &f), 0);
    EQUAL(nfs_ftruncate(nfs, f, 20), 0);
    EQUAL(nfs_pread(nfs, f, 0, 64, back), 20);
    EQUAL(memcmp(back, "0123\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20), 0);
    EQUAL(nfs_ftruncate(nfs, f, 1ull << 45), 0);
    EQUAL(nfs_fstat64(nfs, f, &st), 0);
    EQUAL(st.nfs_size, 1ull << 45);
    EQUAL(nfs_ftruncate(nfs, f, 0), 0);
    EQUAL(nfs_pread(nfs, f, 0, 64, back), 0);
    nfs_close(nfs, f);
    EQUAL(nfs_truncate(nfs, in("absent"), 0), -ENOENT);
    EQUAL(nfs_truncate(nfs, dir, 0), -EINVAL); /* RFC 1813 has no ISDIR for SETATTR */
}

static void others_see_changes_at_once(void)
{
    struct nfsfh *f, *g;
    char back[16] = "";
    EQUAL(nfs_creat(nfs, in("f"), 0644, &f), 0);
    EQUAL(nfs_open(other, in("f"), O_RDWR, &g), 0);
    EQUAL(nfs_pwrite(nfs, f, 0, 3, "one"), 3);
    EQUAL(nfs_fsync(nfs, f), 0);
    EQUAL(nfs_pread(other, g, 0, 16, back), 3);
    EQUAL(nfs_pwrite(other, g, 3, 3, "two"), 3);
    EQUAL(nfs_pread(nfs, f, 0, 16, back), 6);
    EQUAL(memcmp(back, "onetwo", 6), 0);
    EQUAL(nfs_rename(other, in("f"), in("g")), 0);
    EQUAL(nfs_pread(nfs, f, 0, 16, back), 6); /* the handle goes with the file */
    EQUAL(nfs_unlink(other, in("g")), 0);
    EQUAL(nfs_fstat64(nfs, f, &st), -ESTALE);
    HOLDS(nfs_pread(nfs, f, 0, 16, back) < 0); /* libnfs makes EFAULT of it; the raw tests see the status */
    HOLDS(nfs_pwrite(nfs, f, 0, 1, "x") < 0);
    nfs_close(nfs, f);
    nfs_close(other, g);
}

/* ---- names ---- */

static unsigned links_of_dir(void)
{
    return nfs_stat64(nfs, dir, &st) ? 0 : (unsigned)st.nfs_nlink;
}

static void makes_and_removes_directories(void)
{
    EQUAL(links_of_dir(), 2);
    EQUAL(nfs_mkdir2(nfs, in("d"), 0750), 0);
    EQUAL(look("d"), 0);
    EQUAL(st.nfs_mode, S_IFDIR | 0750);
    EQUAL(st.nfs_nlink, 2);
    EQUAL(links_of_dir(), 3);
    EQUAL(nfs_mkdir(nfs, in("d")), -EEXIST);
    EQUAL(put(nfs, in("d/f"), 0644, NULL, 0), 0);
    EQUAL(nfs_rmdir(nfs, in("d")), -ENOTEMPTY);
    EQUAL(nfs_rmdir(nfs, in("d/f")), -ENOTDIR);
    EQUAL(nfs_mkdir(nfs, in("d/f/g")), -ENOTDIR);
    EQUAL(nfs_mkdir(nfs, in("absent/g")), -ENOENT);
    EQUAL(nfs_rmdir(nfs, in("absent")), -ENOENT);
    EQUAL(nfs_unlink(nfs, in("d/f")), 0);
    EQUAL(nfs_unlink(nfs, in("d/f")), -ENOENT);
    int error = nfs_unlink(nfs, in("d"));
    HOLDS(error == -EISDIR || error == -EPERM);
    EQUAL(nfs_rmdir(nfs, in("d")), 0);
    EQUAL(look("d"), -ENOENT);
    EQUAL(links_of_dir(), 2);
}

static void renames_as_posix_says(void)
{
    EQUAL(put(nfs, in("a"), 0644, "a", 1), 0);
    EQUAL(look("a"), 0);
    uint64_t a = st.nfs_ino;
    EQUAL(nfs_rename(nfs, in("a"), in("b")), 0);
    EQUAL(look("a"), -ENOENT);
    EQUAL(look("b"), 0);
    EQUAL(st.nfs_ino, a);
    EQUAL(put(nfs, in("c"), 0644, "cc", 2), 0);
    EQUAL(nfs_rename(nfs, in("b"), in("c")), 0); /* over another file */
    EQUAL(look("c"), 0);
    HOLDS(st.nfs_ino == a && st.nfs_size == 1);
    EQUAL(nfs_link(nfs, in("c"), in("same")), 0);
    EQUAL(nfs_rename(nfs, in("c"), in("same")), 0); /* two names of one file: nothing happens */
    EQUAL(look("c"), 0);
    EQUAL(st.nfs_nlink, 2);
    EQUAL(nfs_rename(nfs, in("absent"), in("x")), -ENOENT);
    EQUAL(nfs_mkdir(nfs, in("d")), 0);
    EQUAL(nfs_mkdir(nfs, in("d/sub")), 0);
    EQUAL(nfs_mkdir(nfs, in("e")), 0);
    EQUAL(nfs_rename(nfs, in("c"), in("e")), -EISDIR);
    EQUAL(nfs_rename(nfs, in("e"), in("c")), -ENOTDIR);
    EQUAL(nfs_rename(nfs, in("e"), in("d")), -ENOTEMPTY);
    EQUAL(nfs_rename(nfs, in("d"), in("d/sub/x")), -EINVAL);
    EQUAL(links_of_dir(), 4);
    EQUAL(nfs_rename(nfs, in("d"), in("e")), 0); /* over an empty directory */
    EQUAL(links_of_dir(), 3);
    EQUAL(look("e/sub"), 0);
    EQUAL(nfs_rename(nfs, in("e/sub"), in("up")), 0);
    EQUAL(look("e"), 0);
    EQUAL(st.nfs_nlink, 2);
}

static void links_are_the_same_file(void)
{
    EQUAL(put(nfs, in("a"), 0644, "text", 4), 0);
    EQUAL(nfs_link(nfs, in("a"), in("b")), 0);
    EQUAL(look("a"), 0);
    uint64_t inode = st.nfs_ino;
    EQUAL(look("b"), 0);
    HOLDS(st.nfs_ino == inode && st.nfs_nlink == 2);
    EQUAL(nfs_link(nfs, in("a"), in("b")), -EEXIST);
    EQUAL(nfs_link(nfs, in("absent"), in("c")), -ENOENT);
    int error = nfs_link(nfs, dir, in("c"));
    HOLDS(error == -EISDIR || error == -EPERM || error == -EINVAL);
    EQUAL(nfs_unlink(nfs, in("a")), 0);
    EQUAL(look("b"), 0);
    HOLDS(st.nfs_nlink == 1 && st.nfs_size == 4);
}

static void symbolic_links_keep_their_targets(void)
{
    char target[1001], back[1100];
    memset(target, 't', 1000);
    target[1000] = 0;
    EQUAL(put(nfs, in("file"), 0644, "text", 4), 0);
    EQUAL(nfs_symlink(nfs, "file", in("link")), 0);
    EQUAL(look("link"), 0);
    EQUAL(st.nfs_mode & S_IFMT, S_IFLNK);
    EQUAL(st.nfs_size, 4);
    EQUAL(nfs_readlink(nfs, in("link"), back, sizeof back), 0);
    EQUAL(strcmp(back, "file"), 0);
    EQUAL(nfs_stat64(nfs, in("link"), &st), 0);
    EQUAL(st.nfs_mode & S_IFMT, S_IFREG);
    EQUAL(nfs_symlink(nfs, "file", in("link")), -EEXIST);
    EQUAL(nfs_symlink(nfs, target, in("long")), 0);
    EQUAL(nfs_readlink(nfs, in("long"), back, sizeof back), 0);
    EQUAL(strcmp(back, target), 0);
    EQUAL(nfs_readlink(nfs, in("file"), back, sizeof back), -EINVAL);
    EQUAL(nfs_readlink(nfs, in("absent"), back, sizeof back), -ENOENT);
    EQUAL(nfs_symlink(nfs, "nowhere", in("dangling")), 0);
    EQUAL(nfs_stat64(nfs, in("dangling"), &st), -ENOENT);
}

static void special_files(void)
{
    static const struct {
        const char *name;
        unsigned type;
    } all[] = {{"chr", S_IFCHR}, {"blk", S_IFBLK}, {"fifo", S_IFIFO}, {"sock", S_IFSOCK}};
    for (unsigned i = 0; i < 4; i++) {
        EQUAL(nfs_mknod(nfs, in(all[i].name), (int)all[i].type | 0620, (int)makedev(8, 17)), 0);
        EQUAL(look(all[i].name), 0);
        EQUAL(st.nfs_mode, all[i].type | 0620);
        if (i < 2)
            HOLDS(major(st.nfs_rdev) == 8 && minor(st.nfs_rdev) == 17);
        EQUAL(nfs_mknod(nfs, in(all[i].name), (int)all[i].type | 0620, 0), -EEXIST);
    }
    int error = nfs_mknod(user, in("device"), S_IFCHR | 0600, (int)makedev(1, 3));
    HOLDS(error == -EPERM || error == -EACCES);
    EQUAL(nfs_mknod(user, in("pipe"), S_IFIFO | 0600, 0), 0);
}

static void names_have_their_limits(void)
{
    char name[257];
    memset(name, 'n', sizeof name);
    name[256] = 0;
    EQUAL(put(nfs, in(name), 0644, NULL, 0), -ENAMETOOLONG);
    EQUAL(nfs_mkdir(nfs, in(name)), -ENAMETOOLONG);
    name[255] = 0;
    EQUAL(put(nfs, in(name), 0644, NULL, 0), 0);
    EQUAL(look(name), 0);
    EQUAL(put(nfs, in("\xff\xfe bytes \n\t\\"), 0644, NULL, 0), 0);
    EQUAL(look("\xff\xfe bytes \n\t\\"), 0);
}

/* ---- attributes ---- */

static void changes_modes_and_owners(void)
{
    struct nfsfh *f;
    EQUAL(put(nfs, in("f"), 0644, "x", 1), 0);
    EQUAL(look("f"), 0);
    struct nfs_stat_64 before = st;
    EQUAL(nfs_chmod(nfs, in("f"), 04751), 0);
    EQUAL(look("f"), 0);
    EQUAL(st.nfs_mode, S_IFREG | 04751);
    HOLDS(st.nfs_mtime == before.nfs_mtime && st.nfs_mtime_nsec == before.nfs_mtime_nsec);
    HOLDS(st.nfs_ctime > before.nfs_ctime || st.nfs_ctime_nsec > before.nfs_ctime_nsec);
    EQUAL(nfs_chown(nfs, in("f"), USER, 1001), 0);
    EQUAL(look("f"), 0);
    HOLDS(st.nfs_uid == USER && st.nfs_gid == 1001);
    EQUAL(st.nfs_mode & 07777, 0751); /* suid does not outlive chown */
    EQUAL(nfs_chmod(user, in("f"), 0600), 0);
    EQUAL(nfs_chown(user, in("f"), 1001, 1001), -EPERM);
    EQUAL(nfs_open(nfs, in("f"), O_RDWR, &f), 0);
    EQUAL(nfs_fchmod(nfs, f, 06755), 0);
    EQUAL(nfs_fchown(nfs, f, 0, 0), 0);
    EQUAL(nfs_fstat64(nfs, f, &st), 0);
    HOLDS(st.nfs_uid == 0 && st.nfs_gid == 0 && (st.nfs_mode & 07777) == 0755);
    nfs_close(nfs, f);
    EQUAL(nfs_chmod(user, in("f"), 0777), -EPERM);
    EQUAL(nfs_chmod(nfs, in("absent"), 0777), -ENOENT);
    EQUAL(nfs_symlink(nfs, "f", in("l")), 0);
    EQUAL(nfs_lchown(nfs, in("l"), 5, 6), 0);
    EQUAL(look("l"), 0);
    HOLDS(st.nfs_uid == 5 && st.nfs_gid == 6);
    EQUAL(look("f"), 0);
    EQUAL(st.nfs_uid, 0);
}

static void writing_clears_suid(void)
{
    struct nfsfh *f;
    EQUAL(put(nfs, in("f"), 0666, "x", 1), 0);
    EQUAL(nfs_chmod(nfs, in("f"), 06777), 0);
    EQUAL(nfs_open(user, in("f"), O_RDWR, &f), 0);
    EQUAL(nfs_pwrite(user, f, 0, 1, "y"), 1);
    nfs_close(user, f);
    EQUAL(look("f"), 0);
    EQUAL(st.nfs_mode & 07777, 0777);
}

static void sets_times(void)
{
    struct timeval times[2] = {{1000000000, 250000}, {2000000000, 750001}};
    struct nfsfh *f;
    char back[4];
    EQUAL(put(nfs, in("f"), 0644, "x", 1), 0);
    EQUAL(nfs_utimes(nfs, in("f"), times), 0);
    EQUAL(look("f"), 0);
    HOLDS(st.nfs_atime == 1000000000 && st.nfs_atime_nsec == 250000000);
    HOLDS(st.nfs_mtime == 2000000000 && st.nfs_mtime_nsec == 750001000);
    EQUAL(nfs_open(nfs, in("f"), O_RDONLY, &f), 0);
    EQUAL(nfs_pread(nfs, f, 0, 4, back), 1);
    nfs_close(nfs, f);
    EQUAL(look("f"), 0);
    EQUAL(st.nfs_atime, 1000000000); /* reading leaves it alone */
    EQUAL(nfs_utimes(user, in("f"), times), -EPERM);
    EQUAL(nfs_utimes(nfs, in("absent"), times), -ENOENT);
}

static void statvfs_adds_up(void)
{
    struct statvfs v;
    EQUAL(nfs_statvfs(nfs, "/", &v), 0);
    HOLDS(v.f_bsize > 0 && v.f_blocks >= v.f_bfree && v.f_bfree >= v.f_bavail && v.f_bavail > 0);
    HOLDS(v.f_files >= v.f_ffree && v.f_ffree > 0);
    struct nfs_context *small = mounted("/small", 0);
    EQUAL(nfs_statvfs(small, "/", &v), 0);
    EQUAL(v.f_blocks * v.f_frsize, 8 * MIB);
    nfs_umount(small);
    nfs_destroy_context(small);
}

/* ---- listings ---- */

static void list(unsigned seen[MANY], unsigned *dots, unsigned *strange)
{
    struct nfsdir *d;
    struct nfsdirent *e;
    unsigned number;
    memset(seen, 0, MANY * sizeof *seen);
    *dots = *strange = 0;
    EQUAL(nfs_opendir(nfs, dir, &d), 0);
    while ((e = nfs_readdir(nfs, d))) {
        if (strcmp(e->name, ".") == 0 || strcmp(e->name, "..") == 0)
            ++*dots;
        else if (sscanf(e->name, "name-%u", &number) == 1 && number < MANY && S_ISREG(e->mode) && e->size == number % 7)
            seen[number]++;
        else
            ++*strange;
    }
    nfs_closedir(nfs, d);
}

static void lists_every_name_once(void)
{
    char name[32];
    unsigned seen[MANY], dots, strange;
    struct nfsdir *d;
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "name-%u", i);
        EQUAL(put(nfs, in(name), 0644, "seven__", i % 7), 0);
    }
    list(seen, &dots, &strange);
    STOP_IF_DIFFERENT();
    HOLDS(dots == 2 && strange == 0);
    for (unsigned i = 0; i < MANY; i++)
        EQUAL(seen[i], 1);
    for (unsigned i = 0; i < MANY; i += 3) {
        snprintf(name, sizeof name, "name-%u", i);
        EQUAL(nfs_unlink(other, in(name)), 0);
    }
    list(seen, &dots, &strange);
    STOP_IF_DIFFERENT();
    HOLDS(dots == 2 && strange == 0);
    for (unsigned i = 0; i < MANY; i++)
        EQUAL(seen[i], i % 3 != 0);
    EQUAL(nfs_opendir(nfs, in("absent"), &d), -ENOENT);
    EQUAL(nfs_opendir(nfs, in("name-1"), &d), -ENOTDIR);
}

/* ---- permissions ---- */

static void access_is_honest(void)
{
    EQUAL(put(nfs, in("f"), 0640, NULL, 0), 0);
    EQUAL(nfs_access(nfs, in("f"), R_OK | W_OK), 0);
    EQUAL(nfs_access(nfs, in("f"), X_OK), -EACCES); /* root too needs an x */
    EQUAL(nfs_access(user, in("f"), R_OK), -EACCES);
    EQUAL(nfs_access2(user, in("f")), 0);
    EQUAL(nfs_chmod(nfs, in("f"), 0645), 0);
    EQUAL(nfs_access2(user, in("f")), R_OK | X_OK);
    EQUAL(nfs_chown(nfs, in("f"), 0, USER), 0);
    EQUAL(nfs_access2(user, in("f")), R_OK); /* the group's bits, not the others' */
    EQUAL(nfs_access(user, in("absent"), R_OK), -ENOENT);
    EQUAL(nfs_access(user, dir, R_OK | W_OK | X_OK), 0);
}

static void others_are_kept_out(void)
{
    struct nfsfh *f;
    EQUAL(put(nfs, in("secret"), 0600, "x", 1), 0);
    EQUAL(nfs_open(user, in("secret"), O_RDONLY, &f), -EACCES);
    EQUAL(nfs_open(user, in("secret"), O_RDWR, &f), -EACCES);
    EQUAL(nfs_truncate(user, in("secret"), 0), -EACCES);
    EQUAL(nfs_mkdir2(nfs, in("closed"), 0755), 0);
    EQUAL(put(user, in("closed/f"), 0644, NULL, 0), -EACCES);
    EQUAL(nfs_mkdir(user, in("closed/d")), -EACCES);
    EQUAL(nfs_symlink(user, "x", in("closed/l")), -EACCES);
    EQUAL(nfs_link(user, in("secret"), in("closed/l")), -EACCES);
    EQUAL(nfs_rename(user, in("secret"), in("closed/l")), -EACCES);
    EQUAL(put(nfs, in("closed/f"), 0666, NULL, 0), 0);
    EQUAL(nfs_unlink(user, in("closed/f")), -EACCES);
    EQUAL(nfs_chmod(nfs, in("closed"), 0600), 0);
    EQUAL(nfs_lstat64(user, in("closed/f"), &st), -EACCES);
    EQUAL(nfs_mkdir2(nfs, in("sticky"), 01777), 0);
    EQUAL(put(nfs, in("sticky/root"), 0666, NULL, 0), 0);
    int error = nfs_unlink(user, in("sticky/root"));
    HOLDS(error == -EACCES || error == -EPERM);
    EQUAL(put(user, in("sticky/mine"), 0666, NULL, 0), 0);
    EQUAL(nfs_unlink(user, in("sticky/mine")), 0);
}

static void owners_keep_their_files(void)
{
    struct nfsfh *f;
    char back[8];
    EQUAL(nfs_open2(user, in("object"), O_CREAT | O_RDWR, 0444, &f), 0);
    EQUAL(nfs_pwrite(user, f, 0, 4, "data"), 4); /* as git writes its objects */
    EQUAL(nfs_chmod(user, in("object"), 0), 0);
    EQUAL(nfs_pread(user, f, 0, 8, back), 4); /* opened before the chmod */
    nfs_close(user, f);
    EQUAL(look("object"), 0);
    HOLDS(st.nfs_uid == USER && st.nfs_gid == USER && (st.nfs_mode & 07777) == 0);
    EQUAL(nfs_mkdir2(nfs, in("group"), 0777), 0);
    EQUAL(nfs_chown(nfs, in("group"), 0, 4242), 0);
    EQUAL(nfs_chmod(nfs, in("group"), 02777), 0);
    EQUAL(put(user, in("group/f"), 0644, NULL, 0), 0);
    EQUAL(nfs_mkdir(user, in("group/d")), 0);
    EQUAL(look("group/f"), 0);
    EQUAL(st.nfs_gid, 4242);
    EQUAL(look("group/d"), 0);
    HOLDS(st.nfs_gid == 4242 && st.nfs_mode & S_ISGID);
}

static void read_only_rules_refuse_every_change(void)
{
    struct nfs_context *ro = mounted("/rovol", 0);
    struct nfsfh *f;
    struct timeval times[2] = {{1, 0}, {1, 0}};
    char back[8];
    EQUAL(nfs_open(ro, "/file", O_RDONLY, &f), 0);
    EQUAL(nfs_pread(ro, f, 0, 8, back), 4);
    nfs_close(ro, f);
    EQUAL(put(ro, "/new", 0644, NULL, 0), -EROFS);
    EQUAL(nfs_mkdir(ro, "/new"), -EROFS);
    EQUAL(nfs_symlink(ro, "x", "/new"), -EROFS);
    EQUAL(nfs_mknod(ro, "/new", S_IFIFO | 0600, 0), -EROFS);
    EQUAL(nfs_link(ro, "/file", "/new"), -EROFS);
    EQUAL(nfs_rename(ro, "/file", "/new"), -EROFS);
    EQUAL(nfs_unlink(ro, "/file"), -EROFS);
    EQUAL(nfs_rmdir(ro, "/dir"), -EROFS);
    EQUAL(nfs_chmod(ro, "/file", 0777), -EROFS);
    EQUAL(nfs_chown(ro, "/file", 1, 1), -EROFS);
    EQUAL(nfs_utimes(ro, "/file", times), -EROFS);
    int error = nfs_truncate(ro, "/file", 0);
    HOLDS(error == -EROFS || error == -EACCES); /* libnfs asks ACCESS first */
    EQUAL(nfs_access2(ro, "/file"), R_OK);
    nfs_umount(ro);
    nfs_destroy_context(ro);
}

static void squashed_root_is_nobody(void)
{
    struct nfs_context *squashed = mounted("/squashed", 0);
    EQUAL(put(squashed, "/mine", 0600, "x", 1), 0);
    EQUAL(nfs_lstat64(squashed, "/mine", &st), 0);
    HOLDS(st.nfs_uid == NOBODY && st.nfs_gid == NOBODY);
    EQUAL(nfs_chown(squashed, "/mine", 0, 0), -EPERM);
    EQUAL(nfs_chmod(squashed, "/", 0755), -EPERM);
    struct nfs_context *someone = mounted("/squashed", USER);
    EQUAL(put(someone, "/theirs", 0600, "x", 1), 0);
    EQUAL(nfs_lstat64(someone, "/theirs", &st), 0);
    EQUAL(st.nfs_uid, USER);
    EQUAL(nfs_truncate(squashed, "/theirs", 0), -EACCES);
    nfs_umount(squashed);
    nfs_destroy_context(squashed);
    nfs_umount(someone);
    nfs_destroy_context(someone);
}

static void full_volume_takes_deletes_and_writes_again(void)
{
    static char data[MIB];
    struct nfs_context *small = mounted("/small", 0);
    struct nfsfh *f;
    int wrote = MIB;
    fill(data, sizeof data, 3);
    EQUAL(nfs_creat(small, "/f", 0644, &f), 0);
    for (uint64_t at = 0; at < 16 && wrote == MIB; at++)
        wrote = nfs_pwrite(small, f, at * MIB, MIB, data);
    HOLDS(wrote < 0);
    nfs_close(small, f);
    EQUAL(nfs_lstat64(small, "/f", &st), 0);
    HOLDS(st.nfs_size > 4 * MIB && st.nfs_size <= 8 * MIB);
    EQUAL(nfs_unlink(small, "/f"), 0);
    wrote = -1;
    for (int tries = 0; tries < 50 && wrote; tries++, usleep(tries ? 100000 : 0))
        wrote = put(small, "/g", 0644, data, MIB);
    EQUAL(wrote, 0);
    nfs_umount(small);
    nfs_destroy_context(small);
}

/* ---- several at once ---- */

static char shared_path[512];
static _Atomic unsigned won[MANY];

static void work_as_one_of_many(struct nfs_context *c, unsigned me)
{
    enum { PIECE = 10000, PIECES = 40, CONTESTED = 50 };
    char data[PIECE], back[PIECE], name[64];
    struct nfsfh *f;
    EQUAL(nfs_open(c, shared_path, O_RDWR, &f), 0);
    for (unsigned i = 0; i < PIECES; i++) { /* pieces of all clients lie side by side, not on block borders */
        fill(data, PIECE, me * PIECES + i);
        EQUAL(nfs_pwrite(c, f, ((uint64_t)i * CLIENTS + me) * PIECE, PIECE, data), PIECE);
    }
    for (unsigned i = 0; i < PIECES; i++) {
        fill(data, PIECE, me * PIECES + i);
        EQUAL(nfs_pread(c, f, ((uint64_t)i * CLIENTS + me) * PIECE, PIECE, back), PIECE);
        EQUAL(memcmp(data, back, PIECE), 0);
    }
    nfs_close(c, f);
    for (unsigned i = 0; i < CONTESTED; i++) {
        snprintf(name, sizeof name, "contested-%u", i);
        int error = nfs_mkdir(c, in(name));
        HOLDS(error == 0 || error == -EEXIST);
        won[i] += error == 0;
        snprintf(name, sizeof name, "own-%u-%u", me, i);
        EQUAL(put(c, in(name), 0644, data, i), 0);
        if (i % 2)
            EQUAL(nfs_unlink(c, in(name)), 0);
    }
}

static void *one_of_many(void *number)
{
    struct nfs_context *c = mounted("/vol", 0);
    work_as_one_of_many(c, (unsigned)(uintptr_t)number);
    nfs_umount(c);
    nfs_destroy_context(c);
    return NULL;
}

static void many_clients_at_once(void)
{
    pthread_t threads[CLIENTS];
    struct nfsdir *d;
    unsigned entries = 0;
    snprintf(shared_path, sizeof shared_path, "%s", in("shared"));
    EQUAL(put(nfs, shared_path, 0644, NULL, 0), 0);
    for (uintptr_t i = 0; i < CLIENTS; i++)
        pthread_create(&threads[i], NULL, one_of_many, (void *)i);
    for (unsigned i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    STOP_IF_DIFFERENT();
    for (unsigned i = 0; i < 50; i++)
        EQUAL(won[i], 1);
    EQUAL(nfs_stat64(nfs, shared_path, &st), 0);
    EQUAL(st.nfs_size, 40 * CLIENTS * 10000);
    EQUAL(nfs_opendir(nfs, dir, &d), 0);
    while (nfs_readdir(nfs, d))
        entries++;
    nfs_closedir(nfs, d);
    EQUAL(entries, 2 + 1 + 50 + CLIENTS * 25);
}

static unsigned answered, wrong;

static void on_written(int status, struct nfs_context *c, void *data, void *length)
{
    answered++;
    wrong += status != (int)(uintptr_t)length;
}

/* Runs the context's loop until `count` calls are answered. */
static bool await(unsigned count)
{
    for (int i = 0; i < 400 && answered < count; i++) {
        struct pollfd p = {.fd = nfs_get_fd(nfs), .events = (short)nfs_which_events(nfs)};
        poll(&p, 1, 50);
        if (nfs_service(nfs, p.revents) < 0)
            return false;
    }
    return answered == count;
}

static void many_calls_in_flight(void)
{
    enum { CALLS = 200, PIECE = 5000 };
    static char data[CALLS * PIECE], back[CALLS * PIECE];
    struct nfsfh *f;
    fill(data, sizeof data, 7);
    EQUAL(nfs_creat(nfs, in("f"), 0644, &f), 0);
    answered = wrong = 0;
    for (unsigned i = 0; i < CALLS; i++) {
        unsigned at = (i * 77 % CALLS) * PIECE;
        EQUAL(nfs_pwrite_async(nfs, f, at, PIECE, data + at, on_written, (void *)(uintptr_t)PIECE), 0);
    }
    HOLDS(await(CALLS));
    EQUAL(wrong, 0);
    EQUAL(nfs_pread(nfs, f, 0, sizeof back, back), sizeof back);
    EQUAL(memcmp(data, back, sizeof data), 0);
    nfs_close(nfs, f);
}

/* ---- across a restart ---- */

static void leaves_something_for_after_the_restart(void)
{
    static char data[300000];
    struct timeval times[2] = {{1234567890, 123456}, {1234567891, 654321}};
    fill(data, sizeof data, 11);
    EQUAL(nfs_mkdir2(nfs, "/kept", 0751), 0);
    EQUAL(put(nfs, "/kept/file", 0640, data, sizeof data), 0);
    EQUAL(nfs_chown(nfs, "/kept/file", 7, 8), 0);
    EQUAL(nfs_symlink(nfs, "file", "/kept/link"), 0);
    EQUAL(nfs_link(nfs, "/kept/file", "/kept/second"), 0);
    EQUAL(nfs_mknod(nfs, "/kept/node", S_IFBLK | 0600, (int)makedev(3, 4)), 0);
    EQUAL(nfs_utimes(nfs, "/kept/file", times), 0);
}

static void finds_what_was_left(void)
{
    static char data[300000], back[300000];
    struct nfsfh *f;
    fill(data, sizeof data, 11);
    EQUAL(nfs_stat64(nfs, "/kept", &st), 0);
    EQUAL(st.nfs_mode, S_IFDIR | 0751);
    EQUAL(nfs_stat64(nfs, "/kept/link", &st), 0);
    HOLDS(st.nfs_mode == (S_IFREG | 0640) && st.nfs_uid == 7 && st.nfs_gid == 8 && st.nfs_nlink == 2);
    HOLDS(st.nfs_atime == 1234567890 && st.nfs_atime_nsec == 123456000);
    HOLDS(st.nfs_mtime == 1234567891 && st.nfs_mtime_nsec == 654321000);
    EQUAL(nfs_open(nfs, "/kept/second", O_RDONLY, &f), 0);
    EQUAL(nfs_pread(nfs, f, 0, sizeof back, back), sizeof back);
    EQUAL(memcmp(data, back, sizeof data), 0);
    nfs_close(nfs, f);
    EQUAL(nfs_lstat64(nfs, "/kept/node", &st), 0);
    HOLDS(st.nfs_mode == (S_IFBLK | 0600) && major(st.nfs_rdev) == 3 && minor(st.nfs_rdev) == 4);
}

/* ---- running them ---- */

#define TEST(name) {#name, name}
static const struct test tests[] = {
    TEST(mounts_volumes_and_their_directories), TEST(creates_writes_and_reads), TEST(opens_as_the_flags_say),
    TEST(truncates_both_ways), TEST(others_see_changes_at_once), TEST(makes_and_removes_directories),
    TEST(renames_as_posix_says), TEST(links_are_the_same_file), TEST(symbolic_links_keep_their_targets),
    TEST(special_files), TEST(names_have_their_limits), TEST(changes_modes_and_owners), TEST(writing_clears_suid),
    TEST(sets_times), TEST(statvfs_adds_up), TEST(lists_every_name_once), TEST(access_is_honest),
    TEST(others_are_kept_out), TEST(owners_keep_their_files), TEST(read_only_rules_refuse_every_change),
    TEST(squashed_root_is_nobody), TEST(full_volume_takes_deletes_and_writes_again), TEST(many_clients_at_once),
    TEST(many_calls_in_flight), TEST(leaves_something_for_after_the_restart), {NULL, NULL},
};
static const struct test tests_after[] = {TEST(finds_what_was_left), {NULL, NULL}};

static unsigned passed, failed;

static void run(const struct test *test)
{
    for (; test->name; test++) {
        differences = 0;
        snprintf(dir, sizeof dir, "/%.60s", test->name);
        if (nfs_mkdir2(nfs, dir, 0777))
            differ(__FILE__, __LINE__, "the test's directory", 0, 1);
        else
            test->run();
        if (differences)
            printf("# libnfs last said: %s\n", nfs_get_error(nfs));
        printf("%s %s\n", differences ? "not ok" : "ok", test->name);
        fflush(stdout);
        differences ? failed++ : passed++;
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: libnfs_ops HOST PORT [after]\n");
        return 2;
    }
    server_host = argv[1];
    server_port = atoi(argv[2]);
    nfs = mounted("/vol", 0);
    other = mounted("/vol", 0);
    user = mounted("/vol", USER);
    if (argc > 3) {
        run(tests_after);
    } else {
        run(tests);
        run(raw_tests);
    }
    nfs_umount(nfs);
    nfs_destroy_context(nfs);
    nfs_destroy_context(other);
    nfs_destroy_context(user);
    printf("%u passed, %u failed\n", passed, failed);
    return failed ? 1 : 0;
}
