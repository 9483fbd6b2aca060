#include "sluice/base_date.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SPAN_MOST INT64_C(31622400000) /* a thousand years: no sum overflows */

int span_parse(const char *text, int64_t *seconds)
{
    static const struct {
        char unit;
        int64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};
    char *end;
    if (!isdigit((unsigned char)*text))
        return -EINVAL;
    errno = 0;
    long long count = strtoll(text, &end, 10);
    if (errno || count <= 0 || !*end || end[1])
        return -EINVAL;
    for (unsigned i = 0; i < sizeof units / sizeof *units; i++)
        if (units[i].unit == *end && count <= SPAN_MOST / units[i].seconds) {
            *seconds = count * units[i].seconds;
            return 0;
        }
    return -EINVAL;
}

static int parse_number(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return isdigit((unsigned char)*text) && !*end && !errno ? 0 : -EINVAL;
}

int date_parse(const char *text, int64_t now, int64_t *out)
{
    static const char *const forms[] = {"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S",
                                        "%Y-%m-%dT%H:%M:%S"};
    int64_t span;
    if (*text == '@')
        return parse_number(text + 1, out);
    if (*text == '+' || *text == '-') {
        int error = span_parse(text + 1, &span);
        *out = *text == '+' ? now + span : now - span;
        return error;
    }
    for (unsigned i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tm parts = {0};
        const char *end = strptime(text, forms[i], &parts);
        if (!end || (*end && strcmp(end, "Z") != 0) || parts.tm_year < 70)
            continue;
        int day = parts.tm_mday;
        *out = timegm(&parts);
        return parts.tm_mday == day ? 0 : -EINVAL; /* the 31st of a month that has 30 */
    }
    return -EINVAL;
}

void date_format(int64_t seconds, char to[DATE_TEXT])
{
    struct tm parts;
    time_t when = (time_t)seconds;
    if (!gmtime_r(&when, &parts) || !strftime(to, DATE_TEXT, "%Y-%m-%d %H:%M:%SZ", &parts))
        strcpy(to, "?");
}
