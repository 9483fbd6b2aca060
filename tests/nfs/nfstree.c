/* nfstree DIR SERVER PORT /EXPORT[/PATH] [THREADS]: reads a tree over NFSv3 (libnfs) and compares it with a local
 * directory: names both ways, types, modes, owners, sizes, times, link targets, contents.  Prints what differs and the
 * rate; exits 1 if anything did.
 * nfstree --remove PATH SERVER PORT /EXPORT: removes a file there. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <nfsc/libnfs.h>

enum { PIECE = 1 << 20 };

static struct {
    pthread_mutex_t lock;
    char **path; /* relative, every object */
    size_t count, room, next;
    uint64_t bytes, files, differences;
} work = {.lock = PTHREAD_MUTEX_INITIALIZER};
static const char *local_top, *server, *export_path;
static int port;

__attribute__((format(printf, 2, 3))) static void differ(const char *path, const char *format, ...)
{
    pthread_mutex_lock(&work.lock);
    if (work.differences++ < 20) {
        va_list arguments;
        va_start(arguments, format);
        printf("%s: ", path);
        vprintf(format, arguments);
        putchar('\n');
        va_end(arguments);
    }
    pthread_mutex_unlock(&work.lock);
}

static void add_path(const char *path)
{
    if (work.count == work.room) {
        work.room = work.room ? work.room * 2 : 1024;
        work.path = realloc(work.path, work.room * sizeof(*work.path));
    }
    work.path[work.count++] = strdup(path);
}

static void walk(const char *relative)
{
    char path[8192];
    snprintf(path, sizeof(path), "%s/%s", local_top, relative);
    DIR *dir = opendir(path);
    if (!dir) {
        perror(path);
        exit(2);
    }
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(path, sizeof(path), "%s%s%s", relative, *relative ? "/" : "", entry->d_name);
        add_path(path);
        if (entry->d_type == DT_DIR)
            walk(path);
    }
    closedir(dir);
}

static struct nfs_context *connect_nfs(void)
{
    struct nfs_context *nfs = nfs_init_context();
    char url[4096];
    snprintf(url, sizeof(url), "nfs://%s%s?version=3&nfsport=%d&mountport=%d&uid=%d&gid=%d&dircache=0",
             server, "/", port, port, (int)getuid(), (int)getgid());
    struct nfs_url *parsed = nfs_parse_url_dir(nfs, url);
    if (!parsed || nfs_mount(nfs, server, export_path)) {
        fprintf(stderr, "mount %s:%s: %s\n", server, export_path, nfs_get_error(nfs));
        exit(2);
    }
    nfs_destroy_url(parsed);
    return nfs;
}

static void compare_contents(struct nfs_context *nfs, const char *path, const char *local, uint64_t size, char *a,
                             char *b)
{
    struct nfsfh *file;
    char remote[8192];
    snprintf(remote, sizeof(remote), "/%s", path);
    int fd = open(local, O_RDONLY);
    if (fd < 0)
        return; /* not readable here: nothing to compare */
    if (nfs_open(nfs, remote, O_RDONLY, &file)) {
        differ(path, "open: %s", nfs_get_error(nfs));
        close(fd);
        return;
    }
    for (uint64_t at = 0; at < size;) {
        int got = nfs_pread(nfs, file, at, PIECE, b);
        ssize_t want = pread(fd, a, PIECE, (off_t)at);
        if (got <= 0 || want < got || memcmp(a, b, (size_t)got)) {
            differ(path, "contents differ at %llu (%d bytes of %zd)", (unsigned long long)at, got, want);
            break;
        }
        at += (uint64_t)got;
        __atomic_fetch_add(&work.bytes, (uint64_t)got, __ATOMIC_RELAXED);
    }
    nfs_close(nfs, file);
    close(fd);
}

static void compare_names(struct nfs_context *nfs, const char *path, const char *local)
{
    char remote[8192];
    struct nfsdir *dir;
    unsigned there = 0, here = 0;
    snprintf(remote, sizeof(remote), "/%s", path);
    if (nfs_opendir(nfs, remote, &dir)) {
        differ(path, "opendir: %s", nfs_get_error(nfs));
        return;
    }
    while (nfs_readdir(nfs, dir))
        there++;
    nfs_closedir(nfs, dir);
    DIR *mine = opendir(local);
    while (mine && readdir(mine))
        here++;
    if (mine)
        closedir(mine);
    if (here != there) /* each local name is looked up on its own, so equal counts mean equal sets */
        differ(path, "%u entries, should be %u", there, here);
}

static void compare_one(struct nfs_context *nfs, const char *path, char *a, char *b)
{
    char local[8192], remote[8192];
    struct stat mine;
    struct nfs_stat_64 theirs;
    snprintf(local, sizeof(local), "%s/%s", local_top, path);
    snprintf(remote, sizeof(remote), "/%s", path);
    if (lstat(local, &mine))
        return;
    if (nfs_lstat64(nfs, remote, &theirs)) {
        differ(path, "%s", nfs_get_error(nfs));
        return;
    }
    if (mine.st_mode != theirs.nfs_mode)
        differ(path, "mode %o, should be %o", (unsigned)theirs.nfs_mode, mine.st_mode);
    if (getuid() == 0 && (mine.st_uid != theirs.nfs_uid || mine.st_gid != theirs.nfs_gid))
        differ(path, "owner %d:%d", (int)theirs.nfs_uid, (int)theirs.nfs_gid);
    if (!S_ISLNK(mine.st_mode) && ((uint64_t)mine.st_mtim.tv_sec != theirs.nfs_mtime ||
                                   (uint64_t)mine.st_mtim.tv_nsec != theirs.nfs_mtime_nsec))
        differ(path, "mtime %llu.%09llu", (unsigned long long)theirs.nfs_mtime,
               (unsigned long long)theirs.nfs_mtime_nsec);
    if (S_ISREG(mine.st_mode)) {
        if ((uint64_t)mine.st_size != theirs.nfs_size)
            differ(path, "size %llu, should be %llu", (unsigned long long)theirs.nfs_size,
                   (unsigned long long)mine.st_size);
        compare_contents(nfs, path, local, (uint64_t)mine.st_size, a, b);
        __atomic_fetch_add(&work.files, 1, __ATOMIC_RELAXED);
    } else if (S_ISLNK(mine.st_mode)) {
        ssize_t length = readlink(local, a, PIECE);
        if (length < 0 || nfs_readlink(nfs, remote, b, PIECE) || strlen(b) != (size_t)length ||
            memcmp(a, b, (size_t)length))
            differ(path, "link target differs");
    } else if (S_ISDIR(mine.st_mode)) {
        compare_names(nfs, path, local);
    }
}

static void *worker(void *unused)
{
    struct nfs_context *nfs = connect_nfs();
    char *a = malloc(PIECE), *b = malloc(PIECE);
    for (;;) {
        size_t mine = __atomic_fetch_add(&work.next, 1, __ATOMIC_RELAXED);
        if (mine >= work.count)
            break;
        compare_one(nfs, work.path[mine], a, b);
    }
    free(a);
    free(b);
    nfs_umount(nfs);
    nfs_destroy_context(nfs);
    return unused;
}

static int remove_file(char **argv)
{
    server = argv[1], port = atoi(argv[2]), export_path = argv[3];
    struct nfs_context *nfs = connect_nfs();
    int error = nfs_unlink(nfs, argv[0]);
    if (error)
        fprintf(stderr, "%s: %s\n", argv[0], nfs_get_error(nfs));
    else
        printf("%s removed\n", argv[0]);
    nfs_umount(nfs);
    nfs_destroy_context(nfs);
    return error ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "--remove") == 0)
        return remove_file(argv + 2);
    if (argc < 5) {
        fprintf(stderr, "usage: nfstree DIR SERVER PORT /EXPORT[/PATH] [THREADS]\n"
                        "       nfstree --remove PATH SERVER PORT /EXPORT\n");
        return 2;
    }
    local_top = argv[1], server = argv[2], port = atoi(argv[3]), export_path = argv[4];
    int threads = argc > 5 ? atoi(argv[5]) : 4;
    walk("");
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    pthread_t thread[64];
    if (threads < 1 || threads > 64)
        threads = 4;
    for (int i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, worker, NULL);
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    double seconds = (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) / 1e9;
    printf("%zu objects, %llu files, %.1f MB compared in %.1f s (%.0f objects/s, %.0f MB/s): %llu differences\n",
           work.count, (unsigned long long)work.files, (double)work.bytes / 1e6, seconds, (double)work.count / seconds,
           (double)work.bytes / 1e6 / seconds, (unsigned long long)work.differences);
    return work.differences ? 1 : 0;
}
