#include "sluice/base_notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t length = path ? strlen(path) : 0;
    if (!length)
        return 0;
    if ((*path != '/' && *path != '@') || length < 2 || length >= sizeof(to.sun_path))
        return -EINVAL;
    memcpy(to.sun_path, path, length);
    if (*path == '@')
        to.sun_path[0] = 0; /* the abstract name space */
    socklen_t room = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&to, room);
    int error = sent < 0 ? -errno : 0;
    close(fd);
    return error;
}
