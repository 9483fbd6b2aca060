/* Keys of the metadata's records (POOL.md, "Records"): big-endian numbers, so that LMDB's order of bytes is the order
 * of numbers.  Versioned keys end in ~version: a seek to (key, ~v) finds the newest record that is not newer than v.
 * Pure functions, any thread. */
#ifndef SLUICE_STORE_LOCAL_KEYS_H
#define SLUICE_STORE_LOCAL_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KEY_ROOM = 72, KEY_VERSION = 8 };

struct key {
    uint8_t length;
    uint8_t bytes[KEY_ROOM];
};

/* Keys without their version. */
void key_inode(struct key *k, uint64_t ino);
void key_entry(struct key *k, uint64_t dir, uint64_t position);
void key_link(struct key *k, uint64_t ino, uint64_t dir, uint64_t position);
void key_chunk(struct key *k, uint64_t ino, uint64_t chunk);

void key_touched(struct key *k, uint64_t version, uint64_t serial);
void key_free(struct key *k, uint64_t group, uint64_t place, uint32_t blocks);
/* false: empty, or longer than 63 bytes. */
bool key_system(struct key *k, const char *text);

/* Appends ~version, or replaces the one that was appended. */
void key_add_version(struct key *k, uint64_t version);
void key_set_version(struct key *k, uint64_t version);
/* The version at the end of a whole key of at least 8 bytes. */
uint64_t key_version(const uint8_t *key, size_t length);
/* The number in the eight (four) bytes at `at`. */
uint64_t key_number(const uint8_t *key, size_t at);
uint32_t key_number32(const uint8_t *key, size_t at);
/* The key becomes the next greater one of the same length; false: there is none. */
bool key_increment(struct key *k);

#endif
