/* The control protocol, as server (admin) and CLI share it, and its helpers for names.  Any thread.
 * The client sends one JSON object a line: {"command":...}.  The server answers with lines, each an object:
 *   {"event":...}          something to show; any number
 *   {"data":N}             N raw bytes follow the line
 *   {"ok":true,...}        the end, with the result
 *   {"ok":false,"error":SENTENCE,"code":NAME,...}   the end
 * Names of files are any bytes and JSON is UTF-8: a key "path" that cannot be said so is sent as "path_hex". */
#ifndef SLUICE_BASE_PROTOCOL_H
#define SLUICE_BASE_PROTOCOL_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROTOCOL_LINE_MAX = 1 << 20, PROTOCOL_KEY_MAX = 32 };

/* -1 without memory. */
static inline int protocol_put_bytes(json_t *to, const char *key, const void *bytes, size_t length)
{
    char hex_key[PROTOCOL_KEY_MAX + 8];
    json_t *plain = memchr(bytes, 0, length) ? NULL : json_stringn(bytes, length);
    if (plain)
        return json_object_set_new(to, key, plain);
    char *hex = (char *)malloc(2 * length + 1);
    if (!hex)
        return -1;
    for (size_t i = 0; i < length; i++)
        snprintf(hex + 2 * i, 3, "%02x", ((const uint8_t *)bytes)[i]);
    snprintf(hex_key, sizeof hex_key, "%.*s_hex", PROTOCOL_KEY_MAX, key);
    json_t *value = json_stringn(hex, 2 * length);
    free(hex);
    return value ? json_object_set_new(to, hex_key, value) : -1;
}

/* The bytes of a key, with a zero behind them; to be freed.  NULL: not there, not well formed, no memory. */
static inline char *protocol_get_bytes(const json_t *from, const char *key, size_t *length)
{
    char hex_key[PROTOCOL_KEY_MAX + 8];
    const json_t *plain = json_object_get(from, key);
    snprintf(hex_key, sizeof hex_key, "%.*s_hex", PROTOCOL_KEY_MAX, key);
    const json_t *coded = json_object_get(from, hex_key);
    const json_t *value = json_is_string(plain) ? plain : coded;
    if (!json_is_string(value))
        return NULL;
    const char *text = json_string_value(value);
    size_t count = json_string_length(value);
    if (value == plain) {
        *length = count;
        char *copy = (char *)malloc(count + 1);
        return copy ? (char *)memcpy(copy, text, count + 1) : NULL;
    }
    if (count % 2)
        return NULL;
    char *bytes = (char *)malloc(count / 2 + 1);
    for (size_t i = 0; bytes && i < count / 2; i++) {
        unsigned byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1) {
            free(bytes);
            return NULL;
        }
        bytes[i] = (char)byte;
    }
    if (bytes)
        bytes[count / 2] = 0;
    *length = count / 2;
    return bytes;
}

#endif
