/* Decoded tables: bounded maps from (tree, inode, sub) to a few bytes, which workers read without locks under
 * rcu_read_lock().  The writer publishes; look-ups that missed fill, unless something was published to that shard since
 * they began.  Entries that were not used for long make room (clock). */
#ifndef SLUICE_STORE_LOCAL_TABLE_H
#define SLUICE_STORE_LOCAL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rtable;
struct rtable_key {
    uint64_t ino, sub;
    uint32_t tree;
};

struct rtable *rtable_new(uint64_t entries, uint64_t bytes); /* both bounds hold; NULL: no memory */
void rtable_free(struct rtable *t);

/* The value, valid within the caller's RCU read section, or NULL. */
const void *rtable_get(struct rtable *t, const struct rtable_key *key, size_t *length);

/* For a rtable_get() soon: brings its bucket into the processor's cache; then, from that, its entry.  The second
 * within an RCU read section. */
void rtable_fetch_bucket(struct rtable *t, const struct rtable_key *key);
void rtable_fetch_item(struct rtable *t, const struct rtable_key *key);

/* To fill after a miss: take a ticket before the read transaction begins, then fill with what it saw. */
uint64_t rtable_ticket(struct rtable *t, const struct rtable_key *key);
void rtable_fill(struct rtable *t, const struct rtable_key *key, uint64_t ticket, const void *value,
                 size_t length);

/* The same for what is read in passing: only where nothing has to go for it. */
void rtable_fill_spare(struct rtable *t, const struct rtable_key *key, uint64_t ticket, const void *value,
                       size_t length);

/* The writer, after a commit.  value NULL: forget the key.  A value goes in only where the key is known already or
 * `insert` is set. */
void rtable_publish(struct rtable *t, const struct rtable_key *key, const void *value, size_t length,
                    int insert);
/* All of a tree is forgotten at once; what it took is given back by rtable_drop_step(), which looks at `budget` entries
 * and says whether there are more.  Any thread. */
void rtable_drop_tree(struct rtable *t, uint32_t tree);
bool rtable_drop_step(struct rtable *t, unsigned budget);
void rtable_stats(struct rtable *t, uint64_t *entries, uint64_t *bytes);

#endif
