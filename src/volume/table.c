#include "volume/table.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "volume/rules.h"

static struct volume_table *current;
static _Atomic uint32_t generation; /* the present table's; read on every request */

static bool copy_config(struct volume_config *to, const struct volume_config *from)
{
    *to = *from;
    to->rules = calloc(from->rule_count + 1, sizeof *from->rules);
    if (to->rules && from->rule_count)
        memcpy(to->rules, from->rules, from->rule_count * sizeof *from->rules);
    return to->rules;
}

struct volume *volume_new(uint32_t tree, const struct volume_config *config, int64_t created,
                          json_t *props)
{
    struct volume *v = calloc(1, sizeof *v);
    if (!v)
        return NULL;
    v->tree = tree;
    v->created = created;
    if (!copy_config(&v->config, config) || !(v->snapshots = calloc(1, sizeof *v->snapshots))) {
        free(v->config.rules);
        free(v);
        return NULL;
    }
    v->props = json_incref(props);
    return v;
}

struct volume *volume_next(const struct volume *old, const struct volume_config *config)
{
    struct volume *v = malloc(sizeof *v);
    if (!v)
        return NULL;
    *v = *old;
    if (!copy_config(&v->config, config)) {
        free(v);
        return NULL;
    }
    json_incref(v->props);
    return v;
}

void volume_free(struct volume *v)
{
    if (!v)
        return;
    json_decref(v->props);
    free(v->config.rules);
    free(v);
}

static void volume_free_rcu(struct rcu_head *head)
{
    volume_free(caa_container_of(head, struct volume, rcu));
}

void volume_free_later(struct volume *v)
{
    call_rcu(&v->rcu, volume_free_rcu);
}

static void table_free_rcu(struct rcu_head *head)
{
    free(caa_container_of(head, struct volume_table, rcu));
}

struct volume_table *table_current(void)
{
    return rcu_dereference(current);
}

struct name_key {
    const char *bytes;
    size_t length;
};

static int compare_key(const void *key, const void *element)
{
    const struct name_key *want = key;
    const char *name = (*(struct volume *const *)element)->config.name;
    size_t length = strlen(name);
    int order = memcmp(want->bytes, name, want->length < length ? want->length : length);
    return order ? order : (want->length > length) - (want->length < length);
}

static int compare_names(const void *a, const void *b)
{
    const struct volume *const *x = a, *const *y = b;
    return strcmp((*x)->config.name, (*y)->config.name);
}

static int compare_trees(const void *a, const void *b)
{
    const struct volume *const *x = a, *const *y = b;
    return ((*x)->tree > (*y)->tree) - ((*x)->tree < (*y)->tree);
}

struct volume *table_by_name(const struct volume_table *t, const char *name, size_t length)
{
    struct name_key key = {name, length};
    if (!t || !t->count)
        return NULL;
    struct volume **found = bsearch(&key, t->by_name, t->count, sizeof *t->by_name, compare_key);
    return found ? *found : NULL;
}

struct volume *table_by_tree(const struct volume_table *t, uint32_t tree)
{
    uint32_t low = 0, high = t ? t->count : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        struct volume *v = t->by_tree[middle];
        if (v->tree == tree)
            return v;
        if (v->tree < tree)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static struct volume_table *table_new(struct volume *const *volumes, uint32_t count,
                                      const struct volume *without, struct volume *with)
{
    size_t room = (size_t)count + 1;
    struct volume_table *t = calloc(1, sizeof *t + 2 * room * sizeof t->at[0]);
    if (!t)
        return NULL;
    t->by_name = t->at;
    t->by_tree = t->at + room;
    for (uint32_t i = 0; i < count; i++)
        if (volumes[i] != without)
            t->by_name[t->count++] = volumes[i];
    if (with)
        t->by_name[t->count++] = with;
    memcpy(t->by_tree, t->by_name, t->count * sizeof *t->by_name);
    qsort(t->by_name, t->count, sizeof *t->by_name, compare_names);
    return t;
}

struct volume_table *table_prepare(const struct volume *without, struct volume *with)
{
    struct volume_table *now = table_current();
    return table_new(now ? now->by_name : NULL, now ? now->count : 0, without, with);
}

void table_publish(struct volume_table *fresh, struct volume *without)
{
    qsort(fresh->by_tree, fresh->count, sizeof *fresh->by_tree, compare_trees);
    fresh->generation = generation + 1;
    struct volume_table *old = rcu_xchg_pointer(&current, fresh);
    generation = fresh->generation;
    if (old)
        call_rcu(&old->rcu, table_free_rcu);
    if (without)
        volume_free_later(without);
}

int table_load(struct volume **volumes, uint32_t count)
{
    struct volume_table *fresh = table_new(volumes, count, NULL, NULL);
    if (!fresh)
        return -ENOMEM;
    table_publish(fresh, NULL);
    return 0;
}

void table_free(void)
{
    struct volume_table *old = rcu_xchg_pointer(&current, NULL);
    generation++;
    synchronize_rcu();
    for (uint32_t i = 0; old && i < old->count; i++) {
        snapshots_drop(old->by_name[i]->snapshots);
        volume_free(old->by_name[i]);
    }
    free(old);
    rcu_barrier();
}

/* ---- look-ups ---- */

enum {
    GRANT_ALLOWED = 1,
    GRANT_WRITE = 2,
    GRANT_SQUASH_ROOT = 4,
    GRANT_SQUASH_ALL = 8,
    GRANT_PORT_REFUSED = 16,
    GRANT_SERVER_GROUPS = 32,
    PORTS_PRIVILEGED = 1024,
};

static bool port_is_privileged(const struct sockaddr_storage *peer)
{
    in_port_t port = peer->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)peer)->sin6_port
                                                 : ((const struct sockaddr_in *)peer)->sin_port;
    return ntohs(port) < PORTS_PRIVILEGED;
}

static void grant_pack(const struct volume_config *config, bool read_only, const struct sockaddr_storage *peer,
                       uint64_t packed[2])
{
    uint32_t matched = rules_match(config->rules, config->rule_count, peer);
    packed[0] = (uint64_t)matched << 32;
    packed[1] = (uint64_t)VOLUME_NOBODY << 32 | VOLUME_NOBODY;
    if (matched == UINT32_MAX) {
        packed[0] |= GRANT_SQUASH_ROOT;
        return;
    }
    const struct volume_rule *rule = &config->rules[matched];
    enum volume_squash squash = rule->has_squash ? rule->squash : config->squash;
    packed[1] = (uint64_t)rule->anon_uid << 32 | rule->anon_gid;
    packed[0] |= rule->secure && !port_is_privileged(peer) ? GRANT_PORT_REFUSED : GRANT_ALLOWED;
    if (rule->write && !read_only)
        packed[0] |= GRANT_WRITE;
    if (squash == VOLUME_SQUASH_ALL)
        packed[0] |= GRANT_SQUASH_ALL;
    if (squash == VOLUME_SQUASH_ROOT && !(rule->host && !rule->has_squash))
        packed[0] |= GRANT_SQUASH_ROOT;
    if (config->server_groups)
        packed[0] |= GRANT_SERVER_GROUPS;
}

static void grant_unpack(const uint64_t packed[2], struct volume_grant *out)
{
    out->allowed = packed[0] & GRANT_ALLOWED;
    out->write = packed[0] & GRANT_WRITE;
    out->squash_root = packed[0] & GRANT_SQUASH_ROOT;
    out->squash_all = packed[0] & GRANT_SQUASH_ALL;
    out->port_refused = packed[0] & GRANT_PORT_REFUSED;
    out->server_groups = packed[0] & GRANT_SERVER_GROUPS;
    out->matched_rule = (uint32_t)(packed[0] >> 32);
    out->anon_uid = (uint32_t)(packed[1] >> 32);
    out->anon_gid = (uint32_t)packed[1];
}

int volume_access(uint32_t tree, const struct sockaddr_storage *peer, uint64_t cache[VOLUME_ACCESS_CACHE],
                  struct volume_grant *out)
{
    uint32_t now = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
    if (cache[0] == ((uint64_t)now << 32 | tree)) {
        grant_unpack(cache + 1, out);
        return 0;
    }
    int result = -ESTALE;
    rcu_read_lock();
    struct volume_table *t = table_current();
    struct volume *v = table_by_tree(t, tree);
    struct snapshot *s = v ? NULL : snapshot_by_tree(tree);
    if (s)
        v = table_by_tree(t, s->volume);
    if (v) {
        cache[0] = (uint64_t)t->generation << 32 | tree;
        grant_pack(&v->config, s || v->config.read_only, peer, cache + 1);
        grant_unpack(cache + 1, out);
        result = 0;
    }
    rcu_read_unlock();
    return result;
}

void volume_squash(const struct volume_grant *grant, uint32_t uid, uint32_t gid, const uint32_t *groups,
                   uint32_t group_count, struct store_cred *out)
{
    out->read_only = !grant->write;
    out->group_count = 0;
    if (grant->squash_all) {
        out->uid = grant->anon_uid;
        out->gid = grant->anon_gid;
        return;
    }
    bool root = grant->squash_root;
    out->uid = root && uid == 0 ? grant->anon_uid : uid;
    out->gid = root && gid == 0 ? grant->anon_gid : gid;
    if (group_count > STORE_GROUPS_MAX)
        group_count = STORE_GROUPS_MAX;
    out->group_count = group_count;
    for (uint32_t i = 0; i < group_count; i++)
        out->groups[i] = root && groups[i] == 0 ? grant->anon_gid : groups[i];
}

int volume_by_name(const char *name, size_t length, uint32_t *tree)
{
    const char *at = memchr(name, '@', length);
    size_t volume_length = at ? (size_t)(at - name) : length;
    struct snapshot *s = NULL;
    rcu_read_lock();
    struct volume *v = table_by_name(table_current(), name, volume_length);
    if (v && at)
        s = snapshot_by_name(v->snapshots, at + 1, length - volume_length - 1);
    if (s)
        *tree = s->tree;
    else if (v && !at)
        *tree = v->tree;
    rcu_read_unlock();
    return s || (v && !at) ? 0 : -ENOENT;
}

/* ---- snapshots ---- */

static struct volume_snapshot snapshot_info(const struct snapshot *s)
{
    return (struct volume_snapshot){
        .tree = s->tree,
        .volume = s->volume,
        .number = s->number,
        .name = s->name,
        .by = s->by,
        .created = s->created,
        .locked_until = s->locked_until,
    };
}

/* The first whose tree number is greater. */
static uint32_t position_after(const struct snapshot_list *list, uint32_t after)
{
    uint32_t low = 0, high = list->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (list->by_tree[middle]->tree > after)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

int volume_each_snapshot(uint32_t volume, uint32_t after, volume_snapshot_fn *each, void *arg)
{
    int result = 0;
    rcu_read_lock();
    struct volume *v = table_by_tree(table_current(), volume);
    const struct snapshot_list *list = v ? snapshot_list_of(v->snapshots) : NULL;
    for (uint32_t i = list ? position_after(list, after) : 0; list && i < list->count && result >= 0; i++) {
        struct volume_snapshot info = snapshot_info(list->by_tree[i]);
        result = each(arg, &info);
    }
    rcu_read_unlock();
    return result < 0 ? result : 0;
}

uint32_t volume_snapshot_count(uint32_t volume)
{
    rcu_read_lock();
    struct volume *v = table_by_tree(table_current(), volume);
    uint32_t count = v ? snapshot_list_of(v->snapshots)->count : 0;
    rcu_read_unlock();
    return count;
}

int volume_snapshot_by_name(uint32_t volume, const char *name, size_t length, uint32_t *tree)
{
    rcu_read_lock();
    struct volume *v = table_by_tree(table_current(), volume);
    struct snapshot *s = v ? snapshot_by_name(v->snapshots, name, length) : NULL;
    if (s)
        *tree = s->tree;
    rcu_read_unlock();
    return s ? 0 : -ENOENT;
}

int volume_snapshot_of(uint32_t tree, uint32_t *volume, char name[VOLUME_NAME_MAX + 1])
{
    rcu_read_lock();
    struct snapshot *s = snapshot_by_tree(tree);
    if (s) {
        *volume = s->volume;
        if (name)
            strcpy(name, s->name);
    }
    rcu_read_unlock();
    return s ? 0 : -ESTALE;
}

/* ---- volumes ---- */

int volume_each(int (*each)(void *arg, const struct volume_info *info), void *arg)
{
    int result = 0;
    rcu_read_lock();
    struct volume_table *t = table_current();
    for (uint32_t i = 0; t && i < t->count && result >= 0; i++) {
        struct volume *v = t->by_name[i];
        struct volume_info info = {
            .tree = v->tree, .config = &v->config, .created = v->created, .origin = v->origin};
        result = each(arg, &info);
    }
    rcu_read_unlock();
    return result < 0 ? result : 0;
}
