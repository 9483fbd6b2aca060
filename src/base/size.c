#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sluice/base_config.h"

static const char units[] = "kMGTPE";
enum { UNITS = 6, DIGITS_MOST = 9 };

/* 1000 or 1024 to the power of `unit`. */
static uint64_t unit_size(int unit, bool binary)
{
    uint64_t size = 1;
    while (unit-- > 0)
        size *= binary ? 1024 : 1000;
    return size;
}

/* Takes the unit at *at, and gives its size; 1 where there is none. */
static uint64_t scan_unit(const char **at)
{
    for (int i = 0; **at && i < UNITS; i++) {
        if (toupper((unsigned char)**at) != toupper((unsigned char)units[i]))
            continue;
        ++*at;
        bool binary = **at == 'i';
        *at += binary;
        return unit_size(i + 1, binary);
    }
    return 1;
}

int size_scan(const char *text, const char **end, uint64_t *out)
{
    const char *p = text;
    uint64_t whole = 0, fraction = 0, scale = 1;
    bool over = false;
    if (!isdigit((unsigned char)*p))
        return -EINVAL;
    for (; isdigit((unsigned char)*p); p++)
        over |= __builtin_mul_overflow(whole, 10, &whole) ||
                __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole);
    bool point = *p == '.';
    if (point && !isdigit((unsigned char)*++p))
        return -EINVAL;
    for (int digits = 0; isdigit((unsigned char)*p); p++, digits++) {
        if (digits < DIGITS_MOST) { /* what comes later is less than a byte of a gigabyte */
            fraction = fraction * 10 + (uint64_t)(*p - '0');
            scale *= 10;
        }
    }
    uint64_t unit = scan_unit(&p);
    if (point && unit == 1)
        return -EINVAL;
    *end = p;
    unsigned __int128 value = (unsigned __int128)whole * unit + (unsigned __int128)fraction * unit / scale;
    if (over || value > UINT64_MAX)
        return -ERANGE;
    *out = (uint64_t)value;
    return 0;
}

int size_parse(const char *text, uint64_t *bytes)
{
    const char *end = text;
    uint64_t value;
    int error = size_scan(text, &end, &value);
    if (error == -EINVAL)
        return error;
    bool unit = isalpha((unsigned char)end[-1]);
    if (*end == 'B' && unit)
        end++;
    if (*end)
        return -EINVAL;
    if (!error)
        *bytes = value;
    return error;
}

char *size_format(uint64_t bytes, char *to)
{
    int unit = 0;
    while (unit < UNITS && bytes >> (10 * unit) >= 1024)
        unit++;
    if (unit == 0) {
        snprintf(to, 16, "%u", (unsigned)bytes);
        return to;
    }
    uint64_t one = unit_size(unit, true);
    unsigned tenths = (unsigned)(((unsigned __int128)bytes * 10 + one / 2) / one);
    if (tenths >= 10240 && unit < UNITS) {
        unit++;
        tenths = 10;
    }
    char letter = unit == 1 ? 'K' : units[unit - 1];
    if (tenths % 10)
        snprintf(to, 16, "%u.%u%ci", tenths / 10, tenths % 10, letter);
    else
        snprintf(to, 16, "%u%ci", tenths / 10, letter);
    return to;
}

/* In the largest of these units in which one decimal says it exactly; false where there is none. */
static bool in_unit(uint64_t value, bool binary, char *to)
{
    for (int unit = UNITS; unit > 0; unit--) {
        uint64_t one = unit_size(unit, binary);
        unsigned __int128 tenths = (unsigned __int128)value * 10;
        if (value < one || tenths % one)
            continue;
        uint64_t whole = value / one;
        unsigned tenth = (unsigned)(tenths / one % 10);
        int used = snprintf(to, SIZE_TEXT, "%llu", (unsigned long long)whole);
        if (tenth)
            used += snprintf(to + used, (size_t)(SIZE_TEXT - used), ".%u", tenth);
        char letter = unit == 1 && binary ? 'K' : units[unit - 1];
        snprintf(to + used, (size_t)(SIZE_TEXT - used), "%c%s", letter, binary ? "i" : "");
        return true;
    }
    return false;
}

char *size_exact(uint64_t value, char *to)
{
    char other[SIZE_TEXT];
    snprintf(to, SIZE_TEXT, "%llu", (unsigned long long)value);
    for (int binary = 0; binary < 2; binary++)
        if (in_unit(value, binary, other) && strlen(other) < strlen(to))
            strcpy(to, other);
    return to;
}
