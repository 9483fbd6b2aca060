/* What admins have changed, and when: a log in the pool, POOL/events.log, which a second file follows when it has grown
 * to a mebibyte; then the oldest go.  A record is on disk before the command's answer.  Coroutines. */
#ifndef SLUICE_ADMIN_EVENTS_H
#define SLUICE_ADMIN_EVENTS_H

#include <jansson.h>
#include <stdint.h>

/* One place records them all: commands.c, for each command that does not only look.
 * A command has changed something, for the user `uid`.  What goes wrong is logged: the change itself is done. */
void events_record(uint32_t uid, const char *command, const json_t *arguments);

/* The last `most`, the oldest first: an array of {"time", "uid", "command", "arguments"}.  NULL: no memory. */
json_t *events_last(unsigned most);

#endif
