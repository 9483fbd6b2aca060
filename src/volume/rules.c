#include "volume/rules.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool rule_address(const struct sockaddr_storage *peer, uint8_t *family, uint8_t address[16])
{
    memset(address, 0, 16);
    if (peer->ss_family == AF_INET) {
        *family = AF_INET;
        memcpy(address, &((const struct sockaddr_in *)peer)->sin_addr, 4);
        return true;
    }
    if (peer->ss_family != AF_INET6)
        return false;
    const uint8_t *bytes = ((const struct sockaddr_in6 *)peer)->sin6_addr.s6_addr;
    if (memcmp(bytes, mapped_prefix, sizeof mapped_prefix) == 0) {
        *family = AF_INET;
        memcpy(address, bytes + 12, 4);
    } else {
        *family = AF_INET6;
        memcpy(address, bytes, 16);
    }
    return true;
}

static bool same_prefix(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    if (memcmp(a, b, bits / 8) != 0)
        return false;
    unsigned rest = bits % 8;
    return rest == 0 || ((a[bits / 8] ^ b[bits / 8]) >> (8 - rest)) == 0;
}

bool rule_matches(const struct volume_rule *rule, const struct sockaddr_storage *peer)
{
    if (rule->host)
        return volume_is_this_host(peer);
    if (rule->family == AF_UNSPEC)
        return true;
    uint8_t family, address[16];
    return rule_address(peer, &family, address) && family == rule->family &&
           same_prefix(rule->address, address, rule->prefix);
}

uint32_t rules_match(const struct volume_rule *rules, uint32_t count,
                     const struct sockaddr_storage *peer)
{
    for (uint32_t i = 0; i < count; i++)
        if (rule_matches(&rules[i], peer))
            return i;
    return UINT32_MAX;
}

/* ---- text ---- */

static int bad_rule(const char *word, const char *problem, char why[256])
{
    snprintf(why, 256,
             "access rule '%.64s': %s; right would be ADDRESS[/BITS], host or all, then :ro, :rw, :secure, "
             ":squash=WHOM, :anon=UID.GID; like 10.0.0.0/8:ro", word, problem);
    return -EINVAL;
}

static int parse_prefix(const char *text, unsigned most, uint8_t *prefix)
{
    if (!isdigit((unsigned char)*text))
        return -EINVAL;
    char *end;
    unsigned long bits = strtoul(text, &end, 10);
    if (*end || bits > most)
        return -EINVAL;
    *prefix = (uint8_t)bits;
    return 0;
}

static void clear_beyond(uint8_t address[16], unsigned bits)
{
    for (unsigned i = 0; i < 16; i++) {
        unsigned first = i * 8;
        if (first >= bits)
            address[i] = 0;
        else if (bits - first < 8)
            address[i] &= (uint8_t)(0xff << (8 - (bits - first)));
    }
}

static int check_host_bits(const char *whole, const struct volume_rule *rule, char why[256])
{
    uint8_t range[16];
    memcpy(range, rule->address, 16);
    clear_beyond(range, rule->prefix);
    if (memcmp(range, rule->address, 16) == 0)
        return 0;
    char text[INET6_ADDRSTRLEN];
    inet_ntop(rule->family, range, text, sizeof text);
    snprintf(why, 256, "access rule '%.80s': the address has bits beyond /%u; the range is %s/%u",
             whole, rule->prefix, text, rule->prefix);
    return -EINVAL;
}

static void unmap(struct volume_rule *rule)
{
    if (rule->family != AF_INET6 || rule->prefix < 96 ||
        memcmp(rule->address, mapped_prefix, sizeof mapped_prefix) != 0)
        return;
    rule->family = AF_INET;
    rule->prefix = (uint8_t)(rule->prefix - 96);
    memmove(rule->address, rule->address + 12, 4);
    memset(rule->address + 4, 0, 12);
}

/* `word` is the rule without its access; it is changed. */
static int parse_range(char *word, const char *whole, struct volume_rule *rule, char why[256])
{
    char *slash = strchr(word, '/');
    if (slash)
        *slash = 0;
    char *address = word;
    size_t length = strlen(word);
    if (word[0] == '[') {
        if (word[length - 1] != ']')
            return bad_rule(whole, "the bracket is not closed", why);
        word[length - 1] = 0;
        address++;
    }
    rule->family = strchr(address, ':') ? AF_INET6 : AF_INET;
    if (inet_pton(rule->family, address, rule->address) != 1)
        return bad_rule(whole, "not an address", why);
    unsigned most = rule->family == AF_INET ? 32 : 128;
    rule->prefix = (uint8_t)most;
    if (slash && parse_prefix(slash + 1, most, &rule->prefix))
        return bad_rule(whole, rule->family == AF_INET ? "the bits must be 0 to 32"
                                                       : "the bits must be 0 to 128", why);
    int error = check_host_bits(whole, rule, why);
    unmap(rule);
    return error;
}

static int parse_id(const char **text, uint32_t *id)
{
    char *end;
    if (!isdigit((unsigned char)**text))
        return -EINVAL;
    unsigned long long value = strtoull(*text, &end, 10);
    *text = end;
    *id = (uint32_t)value;
    return value < UINT32_MAX ? 0 : -EINVAL; /* 2^32-1 is nobody's: it means "not given" on the wire */
}

static int parse_anon(const char *text, struct volume_rule *rule)
{
    if (parse_id(&text, &rule->anon_uid) || *text++ != '.' || parse_id(&text, &rule->anon_gid) || *text)
        return -EINVAL;
    return 0;
}

/* 1: it is an option; 0: it is none, but part of the address. */
static int parse_option(const char *option, const char *whole, struct volume_rule *rule, char why[256])
{
    if (strcmp(option, "ro") == 0 || strcmp(option, "rw") == 0)
        rule->write = option[1] == 'w';
    else if (strcmp(option, "secure") == 0)
        rule->secure = true;
    else if (strncmp(option, "squash=", 7) == 0 && volume_squash_parse(option + 7, &rule->squash) == 0)
        rule->has_squash = true;
    else if (strncmp(option, "squash=", 7) == 0)
        return bad_rule(whole, "squash must be root, none or all", why);
    else if (strncmp(option, "anon=", 5) == 0 && parse_anon(option + 5, rule))
        return bad_rule(whole, "anon must be UID.GID, two numbers", why);
    else
        return strncmp(option, "anon=", 5) == 0;
    return 1;
}

static int parse_rule(const char *whole, struct volume_rule *rule, char why[256])
{
    char word[VOLUME_RULE_TEXT], *colon;
    size_t length = strlen(whole);
    if (length == 0)
        return bad_rule(whole, "empty", why);
    if (length >= sizeof word)
        return bad_rule(whole, "too long", why);
    memcpy(word, whole, length + 1);
    *rule = (struct volume_rule){.write = true, .anon_uid = VOLUME_NOBODY, .anon_gid = VOLUME_NOBODY};
    while ((colon = strrchr(word, ':'))) { /* from behind, since IPv6 addresses have them too */
        int found = parse_option(colon + 1, whole, rule, why);
        if (found < 0)
            return found;
        if (!found)
            break;
        *colon = 0;
    }
    if (strcmp(word, "host") == 0) {
        rule->host = true;
        return 0;
    }
    if (strcmp(word, "all") == 0)
        return 0;
    return *word ? parse_range(word, whole, rule, why) : bad_rule(whole, "no address", why);
}

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = 0;
    return text;
}

static int parse_list(char *text, struct volume_rule *rules, uint32_t *count, char why[256])
{
    char *next = trim(text);
    *count = 0;
    if (*next == 0 || strcmp(next, "none") == 0)
        return 0;
    for (char *word; (word = strsep(&next, ","));) {
        int error = parse_rule(trim(word), &rules[*count], why);
        if (error)
            return error;
        ++*count;
    }
    return 0;
}

int volume_rules_parse(const char *text, struct volume_rule **rules, uint32_t *count, char why[256])
{
    uint32_t most = 1;
    for (const char *c = text; *c; c++)
        most += *c == ',';
    char *copy = strdup(text);
    struct volume_rule *list = calloc(most, sizeof *list);
    int error = -ENOMEM;
    if (copy && list)
        error = parse_list(copy, list, count, why);
    else
        snprintf(why, 256, "no memory for the access rules");
    free(copy);
    if (error) {
        free(list);
        return error;
    }
    *rules = list;
    return 0;
}

static void format_rule(const struct volume_rule *rule, char to[VOLUME_RULE_TEXT])
{
    char address[INET6_ADDRSTRLEN] = "?", range[INET6_ADDRSTRLEN + 8], anon[32] = "";
    if (rule->host || rule->family == AF_UNSPEC) {
        snprintf(range, sizeof range, "%s", rule->host ? "host" : "all");
    } else {
        bool six = rule->family == AF_INET6;
        inet_ntop(rule->family, rule->address, address, sizeof address);
        snprintf(range, sizeof range, six ? "[%s]/%u" : "%s/%u", address, rule->prefix);
    }
    if (rule->anon_uid != VOLUME_NOBODY || rule->anon_gid != VOLUME_NOBODY)
        snprintf(anon, sizeof anon, ":anon=%u.%u", rule->anon_uid, rule->anon_gid);
    snprintf(to, VOLUME_RULE_TEXT, "%s:%s%s%s%s%s", range, rule->write ? "rw" : "ro",
             rule->has_squash ? ":squash=" : "", rule->has_squash ? volume_squash_text(rule->squash) : "", anon,
             rule->secure ? ":secure" : "");
}

void volume_rules_format(const struct volume_rule *rules, uint32_t count, char *to, size_t room)
{
    size_t used = 0;
    if (room)
        to[0] = 0;
    for (uint32_t i = 0; i < count; i++) {
        char text[VOLUME_RULE_TEXT];
        format_rule(&rules[i], text);
        size_t length = strlen(text) + (i > 0);
        if (used + length + 1 > room)
            return;
        used += (size_t)snprintf(to + used, room - used, "%s%s", i ? "," : "", text);
    }
}
