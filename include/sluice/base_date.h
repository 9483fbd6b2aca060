/* Times as people write them, always in UTC: for the CLI, the control protocol and the schedules.  Any thread. */
#ifndef SLUICE_BASE_DATE_H
#define SLUICE_BASE_DATE_H

#include <stdint.h>

/* Seconds since 1970 from "2026-12-31", "2026-12-31 18:00", "2026-12-31T18:00:30Z" or "@1798675200"; with a leading +
 * or - a span from `now`: "+30d".  -EINVAL. */
int date_parse(const char *text, int64_t now, int64_t *out);
/* Seconds from "90s", "15m", "12h", "7d", "2w".  -EINVAL, also for none. */
int span_parse(const char *text, int64_t *seconds);

enum { DATE_TEXT = 32 };
/* "2026-12-31 18:00:30Z" */
void date_format(int64_t seconds, char to[DATE_TEXT]);

#endif
