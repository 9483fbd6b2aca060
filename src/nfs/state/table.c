#include <errno.h>
#include <stdlib.h>

#include "nfs/state/private.h"

int state_table_init(struct state_table *table, uint64_t buckets)
{
    table->buckets = calloc(buckets, sizeof *table->buckets);
    table->mask = buckets - 1;
    return table->buckets ? 0 : -ENOMEM;
}

void state_table_free(struct state_table *table)
{
    free(table->buckets);
    table->buckets = NULL;
}

static struct state_node **bucket(const struct state_table *table, uint64_t key)
{
    uint64_t mixed = key * UINT64_C(0x9e3779b97f4a7c15);
    return &table->buckets[(mixed >> 32) & table->mask];
}

void state_table_add(struct state_table *table, struct state_node *node)
{
    struct state_node **at = bucket(table, node->key);
    node->next = *at;
    rcu_assign_pointer(*at, node);
}

void state_table_remove(struct state_table *table, struct state_node *node)
{
    struct state_node **at = bucket(table, node->key);
    while (*at != node)
        at = &(*at)->next;
    rcu_assign_pointer(*at, node->next);
}

static struct state_node *first_with(struct state_node *node, uint64_t key)
{
    while (node && node->key != key)
        node = rcu_dereference(node->next);
    return node;
}

struct state_node *state_table_find(const struct state_table *table, uint64_t key)
{
    return first_with(rcu_dereference(*bucket(table, key)), key);
}

struct state_node *state_table_next(struct state_node *node)
{
    return first_with(rcu_dereference(node->next), node->key);
}
