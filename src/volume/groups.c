/* Users' groups by the host's name service, which may take its time: LDAP and the like. */
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <urcu.h>

#include "sluice/base_coro.h"
#include "sluice/base_error.h"
#include "sluice/base_log.h"
#include "sluice/base_worker.h"
#include "sluice/volume.h"
#include "volume/groups.h"

enum { USERS_MOST = 8192, LOCKS = 64, RECORD_MOST = 1 << 20, FOUND_MOST = 65536, UNKNOWN_SECONDS = 60,
       AGAIN_SECONDS = 10 };

struct user {
    struct rcu_head rcu;
    uint32_t uid;
    uint64_t until_ns;
    uint32_t count; /* 0: the name service does not know the user */
    uint32_t groups[];
};

/* A slot for each residue of the uid: whoever comes later takes the place. */
static struct user *users[USERS_MOST];
static struct coro_mutex locks[LOCKS]; /* one look-up at a time for a user */
static _Atomic unsigned lifetime = 300;

void volume_set_groups_lifetime(unsigned seconds)
{
    lifetime = seconds;
}

/* As of when it counts: now, or 0 for those that are too old as well. */
static bool known(uint32_t uid, uint64_t as_of_ns, uint32_t *groups, uint32_t *count)
{
    bool found = false;
    rcu_read_lock();
    const struct user *u = rcu_dereference(users[uid % USERS_MOST]);
    if (u && u->uid == uid && as_of_ns < u->until_ns) {
        memcpy(groups, u->groups, u->count * sizeof *groups);
        *count = u->count;
        found = true;
    }
    rcu_read_unlock();
    return found;
}

struct lookup {
    uint32_t uid;
    struct user *user; /* NULL: no memory, or the name service does not answer */
};

static struct user *user_of(uint32_t uid, const gid_t *groups, int count, unsigned seconds)
{
    uint32_t kept = count > STORE_GROUPS_MAX ? STORE_GROUPS_MAX : (uint32_t)count;
    struct user *u = calloc(1, sizeof *u + kept * sizeof u->groups[0]);
    if (!u)
        return NULL;
    u->uid = uid;
    u->count = kept;
    u->until_ns = clock_monotonic_ns() + seconds * UINT64_C(1000000000);
    for (uint32_t i = 0; i < kept; i++)
        u->groups[i] = groups[i];
    return u;
}

static struct user *groups_by_name(uint32_t uid, const char *name, gid_t primary)
{
    int count = STORE_GROUPS_MAX;
    for (;;) {
        int room = count;
        gid_t *groups = malloc((size_t)room * sizeof *groups);
        if (!groups)
            return NULL;
        int found = getgrouplist(name, primary, groups, &count);
        if (found >= 0 || count <= room || count > FOUND_MOST) {
            static _Atomic long last;
            if (count > STORE_GROUPS_MAX && log_ratelimit(&last))
                log_warning("volume", "uid %u is in %d groups, of which %d count", uid, count, STORE_GROUPS_MAX);
            struct user *u = user_of(uid, groups, found >= 0 ? count : room, lifetime);
            free(groups);
            return u;
        }
        free(groups);
    }
}

/* What getpwuid_r(3) lists for a user that is not there. */
static bool means_unknown(int error)
{
    return error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM;
}

/* Where the name service fails, what was known of the user goes on for a while: it may be why files can be reached. */
static struct user *without_answer(uint32_t uid)
{
    uint32_t groups[STORE_GROUPS_MAX], count = 0;
    known(uid, 0, groups, &count);
    return user_of(uid, groups, (int)count, AGAIN_SECONDS);
}

static void look_up(void *arg)
{
    struct lookup *l = arg;
    struct passwd record, *found = NULL;
    int error = ERANGE;
    for (size_t room = 4096; error == ERANGE && room <= RECORD_MOST; room *= 4) {
        char *buffer = malloc(room);
        if (!buffer)
            return;
        error = getpwuid_r(l->uid, &record, buffer, room, &found);
        if (!error && found)
            l->user = groups_by_name(l->uid, found->pw_name, found->pw_gid);
        else if (means_unknown(error))
            l->user = user_of(l->uid, NULL, 0, lifetime < UNKNOWN_SECONDS ? lifetime : UNKNOWN_SECONDS);
        free(buffer);
    }
    static _Atomic long last;
    if (means_unknown(error))
        return;
    l->user = without_answer(l->uid);
    if (log_ratelimit(&last))
        log_warning("volume", "the groups of uid %u cannot be looked up: %s; what was known of them, or else the "
                    "call's own, count", l->uid, sl_strerror(-error));
}

static void user_free(struct rcu_head *head)
{
    free(caa_container_of(head, struct user, rcu));
}

int volume_user_groups(uint32_t uid, uint32_t *groups, uint32_t *count)
{
    if (known(uid, clock_monotonic_ns(), groups, count))
        return 0;
    if (!coro_self())
        return SL_EWAIT;
    struct coro_mutex *lock = &locks[uid % LOCKS];
    coro_mutex_lock(lock);
    *count = 0;
    if (!known(uid, clock_monotonic_ns(), groups, count)) {
        struct lookup l = {.uid = uid};
        blocking_run(look_up, &l);
        if (l.user) {
            *count = l.user->count;
            memcpy(groups, l.user->groups, l.user->count * sizeof *groups);
            struct user *old = rcu_xchg_pointer(&users[uid % USERS_MOST], l.user);
            if (old)
                call_rcu(&old->rcu, user_free);
        }
    }
    coro_mutex_unlock(lock);
    return 0;
}

void groups_free(void)
{
    for (unsigned i = 0; i < USERS_MOST; i++) {
        free(users[i]);
        users[i] = NULL;
    }
}
