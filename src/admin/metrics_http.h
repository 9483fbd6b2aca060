/* Prometheus' way in: GET /metrics over HTTP, from the control loop.  It can do nothing but read counters. */
#ifndef SLUICE_ADMIN_METRICS_HTTP_H
#define SLUICE_ADMIN_METRICS_HTTP_H

#include <uv.h>

/* Listens on "127.0.0.1:9720" or "[::1]:9720"; port 0 is any.  *why gets a sentence on failure.  Main thread, which
 * must be registered with liburcu. */
int metrics_http_start(uv_loop_t *loop, const char *address, char why[256]);
/* "http://127.0.0.1:9720/metrics", or "" where it does not listen. */
const char *metrics_http_url(void);
void metrics_http_stop(void);

#endif
