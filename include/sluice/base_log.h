/* Log lines to stderr: "time subject: text", "<level>" before it where stderr is systemd's journal.  Any thread; one
 * write(2) a line, so lines never mix.  Nothing on the path of a request served from RAM logs. */
#ifndef SLUICE_BASE_LOG_H
#define SLUICE_BASE_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_NOTICE, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Lines above `level` are dropped.  Default: NOTICE. */
void log_set_level(enum log_level level);
/* Level from "error".."debug"; -EINVAL for anything else. */
int log_level_parse(const char *text, enum log_level *out);

void log_line(enum log_level level, const char *subject, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(subject, ...) log_line(LOG_LEVEL_ERROR, subject, __VA_ARGS__)
#define log_warning(subject, ...) log_line(LOG_LEVEL_WARNING, subject, __VA_ARGS__)
#define log_notice(subject, ...) log_line(LOG_LEVEL_NOTICE, subject, __VA_ARGS__)
#define log_info(subject, ...) log_line(LOG_LEVEL_INFO, subject, __VA_ARGS__)
#define log_debug(subject, ...) log_line(LOG_LEVEL_DEBUG, subject, __VA_ARGS__)

/* True at most once a second for each call site's `last` (seconds, CLOCK_MONOTONIC; start at 0):
 * for messages that a client could cause at will. */
int log_ratelimit(_Atomic long *last);

#endif
