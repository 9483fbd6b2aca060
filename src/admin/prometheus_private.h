/* What prometheus.c and prometheus_volumes.c know of each other. */
#ifndef SLUICE_ADMIN_PROMETHEUS_PRIVATE_H
#define SLUICE_ADMIN_PROMETHEUS_PRIVATE_H

#include <stdio.h>

#include "admin/scrape.h"

/* The HELP and TYPE of a family; its samples follow. */
void prometheus_head(FILE *to, const char *name, const char *type, const char *help);

void prometheus_volumes(FILE *to, const struct scrape *s);
void prometheus_operations(FILE *to, const struct scrape *s);

#endif
