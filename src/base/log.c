#include "sluice/base_log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MOST = 1024 };

static _Atomic int level_most = LOG_LEVEL_NOTICE;

static const struct {
    const char *name;
    char priority; /* as systemd and syslog number them */
} levels[] = {
    [LOG_LEVEL_ERROR] = {"error", '3'},   [LOG_LEVEL_WARNING] = {"warning", '4'},
    [LOG_LEVEL_NOTICE] = {"notice", '5'}, [LOG_LEVEL_INFO] = {"info", '6'},
    [LOG_LEVEL_DEBUG] = {"debug", '7'},
};

void log_set_level(enum log_level level)
{
    level_most = (int)level;
}

int log_level_parse(const char *text, enum log_level *out)
{
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        if (strcmp(text, levels[i].name) == 0) {
            *out = (enum log_level)i;
            return 0;
        }
    }
    return -EINVAL;
}

/* systemd names what it reads as the journal; stderr may lead elsewhere all the same. */
static bool is_journal(void)
{
    static _Atomic int known; /* 1: it is, 2: it is not */
    unsigned long long device, inode;
    struct stat st;
    if (!known) {
        const char *stream = getenv("JOURNAL_STREAM");
        bool is = stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && !fstat(STDERR_FILENO, &st) &&
                  st.st_dev == device && st.st_ino == inode;
        known = is ? 1 : 2;
    }
    return known == 1;
}

/* snprintf's result as what really was stored in `room` bytes. */
static size_t stored(int written, size_t room)
{
    if (written < 0)
        return 0;
    return (size_t)written < room ? (size_t)written : room - 1;
}

void log_line(enum log_level level, const char *subject, const char *format, ...)
{
    if ((int)level > level_most)
        return;
    int error = errno; /* callers log between a failure and their look at errno */
    char line[LINE_MOST];
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);

    size_t length = 0;
    if (is_journal()) /* systemd reads the priority off the line, people do not */
        length = stored(snprintf(line, 8, "<%c>", levels[level].priority), 8);
    length += strftime(line + length, sizeof(line) - length, "%Y-%m-%dT%H:%M:%S", &utc);
    length += stored(snprintf(line + length, sizeof(line) - length,
                              ".%03ldZ %s: ", now.tv_nsec / 1000000, subject),
                     sizeof(line) - length);
    va_list arguments;
    va_start(arguments, format);
    errno = error; /* for %m */
    length += stored(vsnprintf(line + length, sizeof(line) - length, format, arguments),
                     sizeof(line) - length);
    va_end(arguments);
    /* Names come from clients: nobody shall forge a line or talk to a terminal. */
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[length] = '\n';
    /* A log that cannot be written cannot be complained about either. */
    ssize_t ignored = write(STDERR_FILENO, line, length + 1);
    (void)ignored;
    errno = error;
}

int log_ratelimit(_Atomic long *last)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long second = now.tv_sec + 1; /* never 0, also right after booting */
    long before = *last;
    return before != second && atomic_compare_exchange_strong(last, &before, second);
}
