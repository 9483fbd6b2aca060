#include <stdio.h>
#include <string.h>

#include "sluice/volume.h"

static bool name_char(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

int volume_name_check(const char *name, char why[256])
{
    static const char right[] = "a name has 1 to 64 of A-Z a-z 0-9 . _ - and is not . or ..";
    size_t length = strlen(name);
    if (length == 0) {
        snprintf(why, 256, "the volume's name is empty; %s", right);
        return -EINVAL;
    }
    if (length > VOLUME_NAME_MAX) {
        snprintf(why, 256, "the volume's name has %zu characters; %s", length, right);
        return -EINVAL;
    }
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        snprintf(why, 256, "'%s' cannot be a volume's name; %s", name, right);
        return -EINVAL;
    }
    for (const char *c = name; *c; c++) {
        if (name_char(*c))
            continue;
        if (*c > ' ' && *c < 127)
            snprintf(why, 256, "'%c' cannot be in a volume's name; %s", *c, right);
        else
            snprintf(why, 256, "the byte 0x%02x cannot be in a volume's name; %s",
                     (unsigned char)*c, right);
        return -EINVAL;
    }
    return 0;
}

static const char *const squash_texts[] = {
    [VOLUME_SQUASH_ROOT] = "root", [VOLUME_SQUASH_NONE] = "none", [VOLUME_SQUASH_ALL] = "all"};

int volume_squash_parse(const char *text, enum volume_squash *out)
{
    for (unsigned i = 0; i < sizeof squash_texts / sizeof squash_texts[0]; i++) {
        if (strcmp(text, squash_texts[i]) == 0) {
            *out = (enum volume_squash)i;
            return 0;
        }
    }
    return -EINVAL;
}

const char *volume_squash_text(enum volume_squash squash)
{
    return squash_texts[squash];
}
