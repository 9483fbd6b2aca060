#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "admin/import.h"

enum { DEPTH_MOST = 512 }; /* deeper trees have unknown totals, and are imported all the same */

static void scan(struct import *im, int at, const char *name, unsigned depth);

static void count_entry(struct import *im, int fd, const char *name, unsigned depth)
{
    struct stat st;
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return; /* the import itself reports it */
    if (S_ISDIR(st.st_mode)) {
        scan(im, fd, name, depth + 1);
        return;
    }
    im->total_files++;
    if (S_ISREG(st.st_mode))
        im->total_bytes += (uint64_t)st.st_size;
}

static void scan(struct import *im, int at, const char *name, unsigned depth)
{
    int fd = depth > DEPTH_MOST ? -1 : openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (!stream) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *entry; !im->cancelled && (entry = readdir(stream));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            count_entry(im, fd, entry->d_name, depth);
    closedir(stream);
}

void import_scan(void *arg)
{
    struct import *im = arg;
    scan(im, AT_FDCWD, im->from, 0);
    im->totals_known = !im->cancelled;
    im->scanning = false;
}
