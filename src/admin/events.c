#include "admin/events.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "admin/commands.h"
#include "sluice/base_log.h"
#include "sluice/base_worker.h"

enum { FILE_MOST = 1 << 20, ARGUMENTS_MOST = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the files; taken by blocking threads only */

static void path_of(char to[4096], bool older)
{
    snprintf(to, 4096, "%s/events.log%s", commands_options->pool, older ? ".1" : "");
}

/* ---- writing ---- */

struct appending {
    const char *line;
    size_t length;
    int error;
};

/* The file with a record cut short by a crash gets an end of its own line. */
static bool ends_in_line(int fd, off_t size)
{
    char last = '\n';
    return size == 0 || (pread(fd, &last, 1, size - 1) == 1 && last == '\n');
}

static int write_all(int fd, const char *bytes, size_t length)
{
    while (length) {
        ssize_t done = write(fd, bytes, length);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -errno;
        bytes += done;
        length -= (size_t)done;
    }
    return 0;
}

static int append_to(int fd, const struct appending *a)
{
    struct stat st;
    int error = fstat(fd, &st) ? -errno : 0;
    if (!error && !ends_in_line(fd, st.st_size))
        error = write_all(fd, "\n", 1);
    if (!error)
        error = write_all(fd, a->line, a->length);
    if (!error && fdatasync(fd))
        error = -errno;
    return error;
}

static void append(void *arg)
{
    struct appending *a = arg;
    char path[4096], older[4096];
    struct stat st;
    path_of(path, false);
    path_of(older, true);
    pthread_mutex_lock(&lock);
    if (stat(path, &st) == 0 && st.st_size >= FILE_MOST && rename(path, older))
        log_warning("events", "%s cannot be renamed: %s", path, sl_strerror(-errno));
    int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    a->error = fd < 0 ? -errno : append_to(fd, a);
    if (fd >= 0)
        close(fd);
    pthread_mutex_unlock(&lock);
}

static json_t *shortened(const json_t *arguments)
{
    json_t *copy = json_object(), *value;
    const char *key;
    json_object_foreach ((json_t *)(uintptr_t)arguments, key, value)
        if (strcmp(key, "command") != 0)
            json_object_set(copy, key, value);
    char *text = copy ? json_dumps(copy, JSON_COMPACT) : NULL;
    if (text && strlen(text) > ARGUMENTS_MOST) {
        json_decref(copy);
        copy = json_pack("{s:s%}", "beginning", text, (size_t)512);
        if (!copy) /* it was cut within a character */
            copy = json_object();
    }
    free(text);
    return copy;
}

void events_record(uint32_t uid, const char *command, const json_t *arguments)
{
    json_t *event = json_pack("{s:I, s:I, s:s, s:o}", "time", (json_int_t)time(NULL), "uid", (json_int_t)uid,
                              "command", command, "arguments", shortened(arguments));
    char *text = event ? json_dumps(event, JSON_COMPACT) : NULL;
    struct appending a = {.error = -ENOMEM};
    json_decref(event);
    if (text) {
        a.length = strlen(text) + 1;
        text[a.length - 1] = '\n'; /* over the terminating zero */
        a.line = text;
        blocking_run(append, &a);
    }
    free(text);
    if (a.error)
        log_error("events", "a change (%s) is not in the list of events: %s", command, sl_strerror(a.error));
}

/* ---- reading ---- */

struct loading {
    unsigned most;
    json_t *events;
};

static void load_from(struct loading *l, const char *path)
{
    char *line = NULL;
    size_t room = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return; /* nothing has happened yet */
    while (getline(&line, &room, file) > 0) {
        json_t *event = json_loads(line, 0, NULL);
        if (!json_is_object(event)) { /* cut short by a crash */
            json_decref(event);
            continue;
        }
        json_array_append_new(l->events, event);
        if (json_array_size(l->events) > l->most)
            json_array_remove(l->events, 0);
    }
    free(line);
    fclose(file);
}

static void load(void *arg)
{
    struct loading *l = arg;
    char path[4096];
    pthread_mutex_lock(&lock);
    path_of(path, true);
    load_from(l, path);
    path_of(path, false);
    load_from(l, path);
    pthread_mutex_unlock(&lock);
}

json_t *events_last(unsigned most)
{
    struct loading l = {.most = most, .events = json_array()};
    if (l.events)
        blocking_run(load, &l);
    return l.events;
}
