/* The metrics as Prometheus reads them (its text format, version 0.0.4).  Labels are volumes, protocols and operations:
 * nothing whose values clients could make more of. */
#ifndef SLUICE_ADMIN_PROMETHEUS_H
#define SLUICE_ADMIN_PROMETHEUS_H

#include <stddef.h>

/* All of them; to be freed.  NULL: no memory.  Never waits; a thread that is registered with liburcu. */
char *prometheus_text(size_t *length);

#endif
