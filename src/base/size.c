#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "sluice/base_config.h"

static const char units[] = "KMGTPE";

/* The power of two that a suffix stands for, or -EINVAL. */
static int shift_of(const char *suffix)
{
    if (!*suffix)
        return 0;
    const char *unit = strchr(units, toupper((unsigned char)*suffix));
    if (!unit || (suffix[1] && strcasecmp(suffix + 1, "iB") != 0))
        return -EINVAL;
    return (int)(unit - units + 1) * 10;
}

int size_parse(const char *text, uint64_t *bytes)
{
    const char *p = text;
    uint64_t whole = 0;
    if (!isdigit((unsigned char)*p))
        return -EINVAL;
    bool over = false;
    for (; isdigit((unsigned char)*p); p++)
        over |= __builtin_mul_overflow(whole, 10, &whole) ||
                __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole);

    uint64_t fraction = 0, scale = 1;
    bool point = *p == '.';
    if (point) {
        p++;
        if (!isdigit((unsigned char)*p))
            return -EINVAL;
        for (; isdigit((unsigned char)*p); p++) {
            if (scale < 1000000000) { /* what comes later is less than a byte of a gigabyte */
                fraction = fraction * 10 + (uint64_t)(*p - '0');
                scale *= 10;
            }
        }
    }
    int shift = shift_of(p);
    if (shift < 0 || (point && shift == 0))
        return -EINVAL;
    if (over || (shift && whole >> (64 - shift)))
        return -ERANGE;
    unsigned __int128 part = ((unsigned __int128)fraction << shift) / scale;
    *bytes = (whole << shift) + (uint64_t)part;
    return 0;
}

char *size_format(uint64_t bytes, char *to)
{
    int unit = 0;
    while (unit < 6 && bytes >> (10 * unit) >= 1024)
        unit++;
    if (unit == 0) {
        snprintf(to, 16, "%u", (unsigned)bytes);
        return to;
    }
    unsigned __int128 one = (unsigned __int128)1 << (10 * unit);
    unsigned tenths = (unsigned)(((unsigned __int128)bytes * 10 + one / 2) / one);
    if (tenths >= 10240 && unit < 6) {
        unit++;
        tenths = 10;
    }
    if (tenths % 10)
        snprintf(to, 16, "%u.%u%c", tenths / 10, tenths % 10, units[unit - 1]);
    else
        snprintf(to, 16, "%u%c", tenths / 10, units[unit - 1]);
    return to;
}
