/* The word that was meant: for messages about names that do not exist.  Any thread. */
#ifndef SLUICE_BASE_TEXT_H
#define SLUICE_BASE_TEXT_H

enum { TEXT_WORD_MAX = 64 };

/* Letters to be added, dropped, replaced, or swapped with the next, until one is the other; upper and lower case are
 * the same.  Of words longer than TEXT_WORD_MAX only the beginning counts. */
unsigned text_distance(const char *a, const char *b);

/* Looks for the nearest of many: start with {.word = what was typed}, look at each that there is. */
struct text_nearest {
    const char *word;
    unsigned distance;
    char found[TEXT_WORD_MAX + 1];
};
void text_nearest_look(struct text_nearest *n, const char *candidate);
/* What was found where it is near enough to have been meant, else "". */
const char *text_nearest(const struct text_nearest *n);

#endif
