#include "sluice/base_text.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static bool same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

unsigned text_distance(const char *a, const char *b)
{
    unsigned rows[3][TEXT_WORD_MAX + 1]; /* the row before the last, the last, this one */
    size_t width = strnlen(b, TEXT_WORD_MAX), height = strnlen(a, TEXT_WORD_MAX);
    unsigned *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= width; j++)
        last[j] = before[j] = (unsigned)j;
    for (size_t i = 1; i <= height; i++) {
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= width; j++) {
            row[j] = least(least(last[j], row[j - 1]) + 1, last[j - 1] + !same(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
        unsigned *reuse = before;
        before = last;
        last = row;
        row = reuse;
    }
    return last[width];
}

void text_nearest_look(struct text_nearest *n, const char *candidate)
{
    unsigned distance = text_distance(n->word, candidate);
    if (*n->found && distance >= n->distance)
        return;
    n->distance = distance;
    snprintf(n->found, sizeof n->found, "%s", candidate);
}

const char *text_nearest(const struct text_nearest *n)
{
    size_t length = strlen(n->word);
    return n->distance <= 1 + length / 4 && n->distance < length ? n->found : "";
}
