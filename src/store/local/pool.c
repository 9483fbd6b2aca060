#include "store/local/pool.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FORMAT = 1, TEXT_MAX = 1024 };
static const char file_name[] = "POOL", new_name[] = "POOL.new";

/* ---- the text ---- */

static void text_format(const struct local *l, char text[TEXT_MAX])
{
    char secret[2 * sizeof(l->secret) + 1], verifier[2 * sizeof(l->verifier) + 1], created[32];
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(created, sizeof(created), "%Y-%m-%dT%H:%M:%SZ", &parts);
    sodium_bin2hex(secret, sizeof(secret), l->secret, sizeof(l->secret));
    sodium_bin2hex(verifier, sizeof(verifier), l->verifier, sizeof(l->verifier));
    snprintf(text, TEXT_MAX,
             "sluice-pool %d\n"
             "id %08" PRIx32 "\n"
             "secret %s\n"
             "verifier %s\n"
             "created %s\n"
             "tiny %u\n",
             FORMAT, l->pool_id, secret, verifier, created, l->tiny_blocks);
}

/* The word after `name` at the start of a line. */
static bool text_field(const char *text, const char *name, char *value, size_t room)
{
    size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        if (strncmp(line, name, length) != 0 || line[length] != ' ')
            continue;
        size_t size = strcspn(line + length + 1, "\n");
        if (size >= room)
            return false;
        memcpy(value, line + length + 1, size);
        value[size] = 0;
        return true;
    }
    return false;
}

static bool hex_field(const char *text, const char *name, uint8_t *to, size_t length)
{
    char value[TEXT_MAX];
    size_t have;
    return text_field(text, name, value, sizeof(value)) &&
           sodium_hex2bin(to, length, value, strlen(value), NULL, &have, NULL) == 0 && have == length;
}

static int text_parse(struct local *l, const char *text, char why[256])
{
    char format[32], tiny[32];
    uint8_t id[4];
    if (!text_field(text, "sluice-pool", format, sizeof(format))) {
        snprintf(why, 256, "%.150s/POOL is not the file of a Sluice pool", l->path);
        return SL_ECORRUPT;
    }
    if (atoi(format) != FORMAT) {
        snprintf(why, 256, "%.120s is a pool of format %.16s; this server knows format %d", l->path, format, FORMAT);
        return -EINVAL;
    }
    if (!hex_field(text, "id", id, sizeof(id)) || !hex_field(text, "secret", l->secret, sizeof(l->secret)) ||
        !hex_field(text, "verifier", l->verifier, sizeof(l->verifier))) {
        snprintf(why, 256, "%.150s/POOL is damaged", l->path);
        return SL_ECORRUPT;
    }
    l->tiny_blocks = text_field(text, "tiny", tiny, sizeof(tiny)) ? (unsigned)atoi(tiny) : 0;
    l->pool_id = (uint32_t)id[0] << 24 | (uint32_t)id[1] << 16 | (uint32_t)id[2] << 8 | id[3];
    return 0;
}

/* ---- the directory ---- */

static int fail(char why[256], const char *what, const char *path)
{
    int error = -errno;
    snprintf(why, 256, "%s %.120s: %s", what, path, sl_strerror(error));
    return error;
}

static int sync_parent(const char *path)
{
    char *copy = strdup(path);
    if (!copy)
        return -ENOMEM;
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = fd < 0 || fsync(fd) ? -errno : 0;
    if (fd >= 0)
        close(fd);
    free(copy);
    return error;
}

static int open_directory(struct local *l, char why[256])
{
    if (mkdir(l->path, 0700) == 0) {
        int error = sync_parent(l->path);
        if (error) {
            errno = -error;
            return fail(why, "cannot sync the parent of", l->path);
        }
    } else if (errno != EEXIST) {
        return fail(why, "cannot create", l->path);
    }
    l->dir_fd = open(l->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return l->dir_fd < 0 ? fail(why, "cannot open the pool", l->path) : 0;
}

/* On the directory itself: there is something to lock before the pool has been created. */
static int lock(struct local *l, char why[256])
{
    l->lock_fd = openat(l->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l->lock_fd < 0)
        return fail(why, "cannot open", l->path);
    if (flock(l->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    if (errno != EWOULDBLOCK)
        return fail(why, "cannot lock", l->path);
    snprintf(why, 256, "the pool %.150s is in use by another server", l->path);
    return -EBUSY;
}

/* What a file system or an interrupted creation leaves behind does not count. */
static bool counts(const char *name)
{
    return strcmp(name, ".") && strcmp(name, "..") && strcmp(name, "lost+found") && strcmp(name, new_name);
}

static int is_empty(struct local *l, bool *empty)
{
    int fd = openat(l->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int error = -errno;
        if (fd >= 0)
            close(fd);
        return error;
    }
    const struct dirent *entry;
    *empty = true;
    while ((entry = readdir(dir)))
        if (counts(entry->d_name))
            *empty = false;
    closedir(dir);
    return 0;
}

/* ---- creating and opening ---- */

static int write_new(struct local *l, const char *text)
{
    size_t length = strlen(text);
    int fd = openat(l->dir_fd, new_name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    ssize_t done = write(fd, text, length);
    int error = done < 0 ? -errno : (size_t)done != length ? -ENOSPC : fsync(fd) ? -errno : 0;
    close(fd);
    if (!error && renameat(l->dir_fd, new_name, l->dir_fd, file_name))
        error = -errno;
    if (!error && fsync(l->dir_fd))
        error = -errno;
    return error;
}

static int create(struct local *l, char why[256])
{
    char text[TEXT_MAX];
    bool empty = false;
    int error = is_empty(l, &empty);
    if (error || !empty) {
        errno = -error;
        if (error)
            return fail(why, "cannot list", l->path);
        snprintf(why, 256, "%.120s is neither empty nor a pool: give an empty or missing directory", l->path);
        return -ENOTEMPTY;
    }
    do
        randombytes_buf(&l->pool_id, sizeof(l->pool_id));
    while (l->pool_id == 0);
    randombytes_buf(l->secret, sizeof(l->secret));
    randombytes_buf(l->verifier, sizeof(l->verifier));
    l->tiny_blocks = 1;
    text_format(l, text);
    error = write_new(l, text);
    sodium_memzero(text, sizeof(text));
    errno = -error;
    return error ? fail(why, "cannot create a pool in", l->path) : 0;
}

static int open_existing(struct local *l, int fd, char why[256])
{
    char text[TEXT_MAX];
    ssize_t length = read(fd, text, sizeof(text) - 1);
    if (length < 0)
        return fail(why, "cannot read POOL in", l->path);
    text[length] = 0;
    int error = text_parse(l, text, why);
    sodium_memzero(text, sizeof(text));
    return error;
}

static int open_steps(struct local *l, char why[256])
{
    if (sodium_init() < 0) {
        snprintf(why, 256, "no source of random numbers");
        return -EIO;
    }
    int error = open_directory(l, why);
    if (!error)
        error = lock(l, why);
    if (error)
        return error;
    int fd = openat(l->dir_fd, file_name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? create(l, why) : fail(why, "cannot open POOL in", l->path);
    error = open_existing(l, fd, why);
    close(fd);
    return error;
}

int pool_open(struct local *l, const char *path, char why[256])
{
    l->dir_fd = l->lock_fd = -1;
    l->path = strdup(path);
    if (!l->path) {
        snprintf(why, 256, "no memory");
        return -ENOMEM;
    }
    int error = open_steps(l, why);
    if (error)
        pool_close(l);
    return error;
}

void pool_close(struct local *l)
{
    if (l->dir_fd >= 0)
        close(l->dir_fd);
    if (l->lock_fd >= 0)
        close(l->lock_fd);
    free(l->path);
    l->path = NULL;
    l->dir_fd = l->lock_fd = -1;
    sodium_memzero(l->secret, sizeof(l->secret));
}
