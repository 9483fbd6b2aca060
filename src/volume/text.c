#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sluice/base_config.h"
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
        snprintf(why, 256, "'%s' cannot be a name; %s", name, right);
        return -EINVAL;
    }
    for (const char *c = name; *c; c++) {
        if (name_char(*c))
            continue;
        if (*c > ' ' && *c < 127)
            snprintf(why, 256, "'%c' cannot be in a name; %s", *c, right);
        else
            snprintf(why, 256, "the byte 0x%02x cannot be in a name; %s",
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

static const char *const cache_texts[] = {
    [STORE_CACHE_AUTO] = "auto", [STORE_CACHE_LRU] = "lru", [STORE_CACHE_EPOCH] = "epoch"};

int volume_cache_parse(const char *text, enum store_cache_policy *out)
{
    for (unsigned i = 0; i < sizeof cache_texts / sizeof cache_texts[0]; i++) {
        if (strcmp(text, cache_texts[i]) == 0) {
            *out = (enum store_cache_policy)i;
            return 0;
        }
    }
    return -EINVAL;
}

const char *volume_cache_text(enum store_cache_policy policy)
{
    return cache_texts[policy];
}

int volume_cache_share_parse(const char *text, struct store_cache_setting *out)
{
    uint64_t bytes = 0;
    char *end;
    unsigned long percent = isdigit((unsigned char)*text) ? strtoul(text, &end, 10) : 0;
    bool is_percent = percent >= 1 && percent <= 100 && strcmp(end, "%") == 0;
    if (!is_percent && strcmp(text, "none") != 0 && (size_parse(text, &bytes) || !bytes))
        return -EINVAL;
    out->share_percent = is_percent && percent < 100 ? (uint32_t)percent : 0;
    out->share_bytes = bytes;
    return 0;
}

/* Exact, so that the record says what was set. */
void volume_cache_share_format(const struct store_cache_setting *setting, char to[32])
{
    if (setting->share_percent)
        snprintf(to, 32, "%u%%", setting->share_percent);
    else if (!setting->share_bytes)
        snprintf(to, 32, "none");
    else
        size_exact(setting->share_bytes, to);
}

int volume_reserve_parse(const char *text, struct volume_config *out)
{
    enum { PERCENT_MOST = 90 };
    uint64_t bytes = 0;
    char *end;
    unsigned long percent = isdigit((unsigned char)*text) ? strtoul(text, &end, 10) : 0;
    bool is_percent = percent >= 1 && percent <= PERCENT_MOST && strcmp(end, "%") == 0;
    if (!is_percent && strcmp(text, "none") != 0 && (size_parse(text, &bytes) || !bytes))
        return -EINVAL;
    out->reserve_percent = is_percent ? (uint32_t)percent : 0;
    out->reserve_bytes = bytes;
    return 0;
}

void volume_reserve_format(const struct volume_config *config, char to[32])
{
    if (config->reserve_percent)
        snprintf(to, 32, "%u%%", config->reserve_percent);
    else if (config->reserve_bytes)
        size_exact(config->reserve_bytes, to);
    else
        snprintf(to, 32, "none");
}
