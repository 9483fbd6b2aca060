#include <dirent.h>
#include <fcntl.h>
#include <lmdb.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <urcu.h>

#include "store/local/meta_private.h"

enum {
    READERS = 1024,
    HASH_BITS = 55,
    INODE_BYTES = 512,  /* of memory, most that an entry of the decoded tables may take on average */
    CHUNK_BYTES = 1024,
    NAME_BYTES = 256,
    INODES_DEFAULT = 262144,
    CHUNKS_DEFAULT = 131072,
    NAMES_DEFAULT = 262144,
    MEASURE_NS = 50000000,
};
#define MIB UINT64_C(1048576)
#define MAP_DEFAULT (MIB * MIB)
#define MAP_LEAST (256 * MIB)

static const char *const db_names[DB_COUNT] = {
    [DB_INODE] = "inode", [DB_ENTRY] = "entry", [DB_LINK] = "link", [DB_CHUNK] = "chunk",
    [DB_TOUCHED] = "touched", [DB_FREE] = "free", [DB_REF] = "ref", [DB_SYSTEM] = "system",
};
static const char directory[] = "meta", unfinished[] = "meta.new";

/* ---- the environment ---- */

static size_t map_wanted(const struct local *l)
{
    struct rlimit limit;
    uint64_t size = l->options.map_size ? l->options.map_size : MAP_DEFAULT;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur / 2 < size)
        size = limit.rlim_cur / 2;
    if (size < MAP_LEAST && !l->options.map_size)
        size = MAP_LEAST;
    return (size_t)(size / STORE_BLOCK * STORE_BLOCK);
}

static int env_try(const char *path, size_t map_size, MDB_env **out)
{
    MDB_env *env;
    int code = mdb_env_create(&env);
    if (code)
        return code;
    code = mdb_env_set_maxdbs(env, DB_COUNT);
    if (!code)
        code = mdb_env_set_maxreaders(env, READERS);
    if (!code)
        code = mdb_env_set_mapsize(env, map_size);
    if (!code)
        code = mdb_env_open(env, path, MDB_NOTLS | MDB_NORDAHEAD, 0600);
    if (code)
        mdb_env_close(env);
    else
        *out = env;
    return code;
}

/* An address space that is too small shows only when it is asked for. */
static int env_open(struct local *l, const char *name, MDB_env **out)
{
    char path[4096];
    size_t size = map_wanted(l);
    if (snprintf(path, sizeof(path), "%s/%s", l->path, name) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    int code = env_try(path, size, out);
    while (code == ENOMEM && size / 2 >= MAP_LEAST) {
        size /= 2;
        code = env_try(path, size, out);
    }
    l->meta->map_size = size;
    return lmdb_error(code);
}

struct opening {
    struct meta *meta;
    MDB_env *env;
    unsigned txn_flags, flags;
};

static int call_open_databases(void *arg)
{
    const struct opening *o = arg;
    MDB_txn *txn;
    int code = mdb_txn_begin(o->env, NULL, o->txn_flags, &txn);
    if (code)
        return code;
    for (int i = 0; i < DB_COUNT && !code; i++)
        code = mdb_dbi_open(txn, db_names[i], o->flags, &o->meta->dbi[i]);
    if (code)
        mdb_txn_abort(txn);
    else
        code = mdb_txn_commit(txn);
    return code;
}

static int databases_open(struct meta *m, MDB_env *env, unsigned txn_flags, unsigned flags)
{
    struct opening o = {m, env, txn_flags, flags};
    return lmdb_error(map_guarded(call_open_databases, &o));
}

struct looking {
    MDB_env *env;
    MDB_envinfo info;
};

static int call_info(void *arg)
{
    struct looking *look = arg;
    return mdb_env_info(look->env, &look->info);
}

static int last_txn(MDB_env *env, uint64_t *last)
{
    struct looking look = {.env = env};
    int error = lmdb_error(map_guarded(call_info, &look));
    *last = look.info.me_last_txnid;
    return error;
}

/* ---- creation: in a directory of another name, so that a crash never leaves half a database behind ---- */

static int remove_unfinished(struct local *l)
{
    static const char *const files[] = {"meta.new/data.mdb", "meta.new/lock.mdb"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (unlinkat(l->dir_fd, files[i], 0) && errno != ENOENT)
            return -errno;
    return unlinkat(l->dir_fd, unfinished, AT_REMOVEDIR) && errno != ENOENT ? -errno : 0;
}

static int sync_path(struct local *l, const char *name)
{
    int fd = openat(l->dir_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int error = fsync(fd) ? -errno : 0;
    close(fd);
    return error;
}

static int create(struct local *l)
{
    MDB_env *env;
    int error = remove_unfinished(l);
    if (!error && mkdirat(l->dir_fd, unfinished, 0700))
        error = -errno;
    if (!error)
        error = env_open(l, unfinished, &env);
    if (error)
        return error;
    error = databases_open(l->meta, env, 0, MDB_CREATE);
    mdb_env_close(env);
    if (!error)
        error = sync_path(l, "meta.new/data.mdb");
    if (!error)
        error = sync_path(l, unfinished);
    if (!error && renameat(l->dir_fd, unfinished, l->dir_fd, directory))
        error = -errno;
    return error ? error : sync_path(l, ".");
}

/* Segments without metadata are not a new pool: opening one would remove them. */
static int check_no_segments(struct local *l, char why[256])
{
    int fd = openat(l->dir_fd, "data", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        int error = -errno;
        close(fd);
        return error;
    }
    const struct dirent *entry;
    int error = 0;
    while ((entry = readdir(dir)))
        if (strstr(entry->d_name, ".seg"))
            error = SL_ECORRUPT;
    closedir(dir);
    if (error)
        snprintf(why, 256, "%.120s has data but no metadata (meta/ is missing)", l->path);
    return error;
}

/* ---- opening ---- */

static int load_counters(struct meta_txn *t, struct counters *out)
{
    uint8_t value[RECORD_MAX];
    size_t length;
    int error = meta_system_get(t, "counters", value, sizeof(value), &length);
    *out = (struct counters){0};
    if (error)
        return error == -ENOENT ? 0 : error;
    return counters_decode(value, length, out);
}

static int load(struct local *l)
{
    struct meta_txn *t;
    int error = meta_read_begin(l, &t);
    if (error)
        return error;
    error = load_counters(t, &l->meta->counters);
    if (!error)
        error = trees_load(t, &l->meta->trees, &l->meta->versions);
    meta_read_end(t);
    return error;
}

static int tables_new(struct meta *m, const struct store_options *options)
{
    uint64_t inodes = options->inode_entries ? options->inode_entries : INODES_DEFAULT;
    uint64_t chunks = options->map_entries ? options->map_entries : CHUNKS_DEFAULT;
    uint64_t names = options->name_entries ? options->name_entries : NAMES_DEFAULT;
    m->inodes = rtable_new(inodes, inodes * INODE_BYTES);
    m->chunks = rtable_new(chunks, chunks * CHUNK_BYTES);
    m->names = rtable_new(names, names * NAME_BYTES);
    return m->inodes && m->chunks && m->names ? 0 : -ENOMEM;
}

static int open_steps(struct local *l, char why[256])
{
    struct meta *m = l->meta;
    MDB_env *env;
    int error = txn_module_start();
    if (!error && sodium_init() < 0)
        error = -EIO;
    if (error)
        return error;
    crypto_generichash(m->hash_key, sizeof(m->hash_key), (const uint8_t *)"directory", 9, l->secret,
                       sizeof(l->secret));
    error = tables_new(m, &l->options);
    if (!error && faccessat(l->dir_fd, directory, F_OK, 0)) {
        error = errno == ENOENT ? check_no_segments(l, why) : -errno;
        if (!error)
            error = create(l);
    } else if (!error && remove_unfinished(l)) {
        log_warning("meta", "cannot remove what an interrupted `sluice pool compact` has left in "
                    "%s/%s", l->path, unfinished);
    }
    if (!error)
        error = env_open(l, directory, &env);
    if (error)
        return error;
    uint64_t last;
    error = databases_open(m, env, MDB_RDONLY, 0);
    if (!error)
        error = last_txn(env, &last);
    if (error) {
        mdb_env_close(env);
        return error == -ENOENT ? SL_ECORRUPT : error;
    }
    atomic_store(&m->published, last);
    rcu_assign_pointer(m->env, env);
    return load(l);
}

int meta_open(struct local *l, char why[256])
{
    struct meta *m = calloc(1, sizeof(*m));
    if (!m) {
        snprintf(why, 256, "no memory");
        return -ENOMEM;
    }
    m->local = l;
    m->hash_bits = HASH_BITS;
    l->meta = m;
    why[0] = 0;
    int error = open_steps(l, why);
    if (error) {
        if (!why[0])
            snprintf(why, 256, "%.120s/meta cannot be opened: %s", l->path, sl_strerror(error));
        meta_close(l);
        return error;
    }
    if (m->map_size < MAP_DEFAULT && !l->options.map_size)
        log_notice("meta", "address space for metadata: %llu GiB (limited by RLIMIT_AS: ulimit -v)",
                   (unsigned long long)(m->map_size >> 30));
    return 0;
}

static void env_leave(struct meta *m)
{
    MDB_env *env = m->env;
    rcu_assign_pointer(m->env, NULL);
    synchronize_rcu(); /* read transactions lie within read sections, but for those that are counted */
    while (atomic_load(&m->long_readers))
        usleep(1000);
    txn_pool_empty(m);
    if (env && !m->stuck)
        mdb_env_close(env);
}

/* The lock file's mutex is held for good by a transaction that SIGBUS has broken off: the next environment gets a lock
 * file of its own.  The pool's own lock keeps other servers out. */
static int renew_lock_file(struct local *l)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/lock.mdb", directory);
    if (unlinkat(l->dir_fd, path, 0) && errno != ENOENT)
        return -errno;
    l->meta->stuck = false;
    return 0;
}

int meta_reopen(struct local *l, uint64_t *last)
{
    MDB_env *env;
    env_leave(l->meta);
    int error = l->meta->stuck ? renew_lock_file(l) : 0;
    if (!error)
        error = env_open(l, directory, &env);
    if (error)
        return error;
    error = databases_open(l->meta, env, MDB_RDONLY, 0);
    if (!error)
        error = last_txn(env, last);
    if (error) {
        mdb_env_close(env);
        return error;
    }
    rcu_assign_pointer(l->meta->env, env);
    return 0;
}

void meta_close(struct local *l)
{
    struct meta *m = l->meta;
    if (!m)
        return;
    env_leave(m);
    rcu_barrier();
    rtable_free(m->inodes);
    rtable_free(m->chunks);
    rtable_free(m->names);
    tree_table_free(m->trees);
    versions_free(m->versions);
    free(m);
    l->meta = NULL;
}

/* ---- space ---- */

void meta_space(struct local *l, uint64_t *used, uint64_t *free_bytes)
{
    struct meta *m = l->meta;
    struct looking look = {0};
    rcu_read_lock();
    look.env = rcu_dereference(m->env);
    if (look.env && map_guarded(call_info, &look))
        look.info.me_last_pgno = 0; /* it cannot be read just now */
    rcu_read_unlock();
    *used = (look.info.me_last_pgno + (uint64_t)1) * STORE_BLOCK;
    *free_bytes = m->map_size > *used ? m->map_size - *used : 0;
}

static bool measure(struct local *l)
{
    enum { SHARE = 64, LEAST_MIB = 2, MOST_MIB = 16 };
    struct statvfs info;
    uint64_t used, map_left;
    meta_space(l, &used, &map_left);
    if (fstatvfs(l->dir_fd, &info))
        return false;
    uint64_t total = (uint64_t)info.f_blocks * info.f_frsize, left = (uint64_t)info.f_bavail * info.f_frsize;
    uint64_t keep = total / SHARE;
    keep = keep < LEAST_MIB * MIB ? LEAST_MIB * MIB : keep > MOST_MIB * MIB ? MOST_MIB * MIB : keep;
    return left < keep || map_left < keep;
}

bool meta_space_low(struct meta *m)
{
    uint64_t now = clock_monotonic_ns(), last = atomic_load(&m->space_measured_ns);
    if (last == 0 || now - last > MEASURE_NS) {
        atomic_store(&m->space_measured_ns, now);
        atomic_store(&m->space_low, measure(m->local));
    }
    return atomic_load(&m->space_low);
}
