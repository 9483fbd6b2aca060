#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <urcu.h>

#include "store/local/meta_private.h"

/* ---- an I/O error beneath the map: SIGBUS becomes -EIO of the call that met it ---- */

static _Thread_local sigjmp_buf *guard;
static struct sigaction bus_before;
static pthread_key_t pool_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int once_error;

static void on_bus(int number, siginfo_t *info, void *context)
{
    sigjmp_buf *jump = guard;
    if (jump && info->si_code > 0) {
        guard = NULL;
        siglongjmp(*jump, 1);
    }
    /* Not ours: the instruction runs again and meets whoever was there before. */
    sigaction(SIGBUS, &bus_before, NULL);
}

struct call {
    struct txn *txn;
    MDB_env *env;
    enum db db;
    MDB_cursor_op op;
    const struct key *key;
    struct record *out;
    MDB_val value;
};

/* The handler does not return, and its signal must not stay blocked: SA_NODEFER, so no mask has to be saved. */
static int guarded(int (*fn)(struct call *), struct call *call)
{
    sigjmp_buf jump;
    if (sigsetjmp(jump, 0)) {
        call->txn->broken = true;
        return EIO;
    }
    guard = &jump;
    int code = fn(call);
    guard = NULL;
    return code;
}

int map_guarded(int (*fn)(void *arg), void *arg)
{
    sigjmp_buf jump;
    if (sigsetjmp(jump, 0))
        return EIO;
    guard = &jump;
    int code = fn(arg);
    guard = NULL;
    return code;
}

int lmdb_error(int code)
{
    if (code <= 0 && code != MDB_SUCCESS)
        return code == MDB_NOTFOUND ? -ENOENT
               : code == MDB_MAP_FULL ? -ENOSPC
               : code == MDB_CORRUPTED || code == MDB_PAGE_NOTFOUND ? SL_ECORRUPT
                                                                     : -EIO;
    return -code;
}

/* ---- pooled read transactions ---- */

/* Each thread has a pool; all are in one list, so that closing can end what rests in them. */
struct pool {
    struct pool *next, **at;
    struct txn *idle;
    struct meta *meta; /* whose transactions these are */
};

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool *pools;
static _Thread_local struct pool *pool_mine;

static void txn_discard(struct txn *txn)
{
    for (int i = 0; i < DB_COUNT; i++)
        if (txn->cursors[i])
            mdb_cursor_close(txn->cursors[i]);
    if (txn->mdb)
        mdb_txn_abort(txn->mdb);
    free(txn);
}

static void pool_clear(struct pool *pool)
{
    while (pool->idle) {
        struct txn *txn = pool->idle;
        pool->idle = txn->next;
        txn_discard(txn);
    }
}

static void pool_thread_ends(void *arg)
{
    struct pool *pool = arg;
    pthread_mutex_lock(&pools_lock);
    pool_clear(pool);
    *pool->at = pool->next;
    if (pool->next)
        pool->next->at = pool->at;
    pthread_mutex_unlock(&pools_lock);
    pool_mine = NULL;
    free(pool);
}

void txn_pool_empty(struct meta *m)
{
    pthread_mutex_lock(&pools_lock);
    for (struct pool *p = pools; p; p = p->next)
        if (p->meta == m)
            pool_clear(p);
    pthread_mutex_unlock(&pools_lock);
}

static void module_start(void)
{
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_NODEFER};
    once_error = -pthread_key_create(&pool_key, pool_thread_ends);
    if (once_error == 0 && sigaction(SIGBUS, &action, &bus_before) != 0)
        once_error = -errno;
}

int txn_module_start(void)
{
    pthread_once(&once, module_start);
    return once_error;
}

static struct pool *pool_get(struct meta *m)
{
    struct pool *pool = pool_mine;
    if (!pool) {
        pool = calloc(1, sizeof(*pool));
        if (!pool)
            return NULL;
        pthread_mutex_lock(&pools_lock);
        pool->next = pools;
        pool->at = &pools;
        if (pools)
            pools->at = &pool->next;
        pools = pool;
        pthread_mutex_unlock(&pools_lock);
        pthread_setspecific(pool_key, pool);
        pool_mine = pool;
    }
    if (pool->meta != m) {
        pthread_mutex_lock(&pools_lock);
        pool_clear(pool);
        pool->meta = m;
        pthread_mutex_unlock(&pools_lock);
    }
    return pool;
}

static int call_renew(struct call *call)
{
    return mdb_txn_renew(call->txn->mdb);
}

static int txn_renew(struct txn *txn)
{
    struct call call = {.txn = txn};
    int code = guarded(call_renew, &call);
    for (int i = 0; i < DB_COUNT; i++)
        txn->cursor_stale[i] = true;
    txn->standing = false;
    return code;
}

static int call_begin_read(struct call *call)
{
    return mdb_txn_begin(call->env, NULL, MDB_RDONLY, &call->txn->mdb);
}

static int txn_new(struct local *l, MDB_env *env, struct txn **out)
{
    struct txn *txn = calloc(1, sizeof(*txn));
    if (!txn)
        return ENOMEM;
    txn->t.local = l;
    struct call call = {.txn = txn, .env = env};
    int code = guarded(call_begin_read, &call);
    if (code) {
        free(txn);
        return code;
    }
    txn->t.mdb = txn->mdb;
    *out = txn;
    return 0;
}

/* Within an RCU read section from here to the end: who has taken the environment away waits for it. */
static int read_try(struct local *l, struct txn **out)
{
    struct meta *m = l->meta;
    struct pool *pool = pool_get(m);
    if (!pool)
        return -ENOMEM;
    rcu_read_lock();
    MDB_env *env = rcu_dereference(m->env);
    if (!env) {
        rcu_read_unlock();
        return -EAGAIN;
    }
    struct txn *txn = pool->idle;
    int code;
    if (txn) {
        pool->idle = txn->next;
        code = txn_renew(txn);
        if (code) {
            txn_discard(txn);
            txn = NULL;
        }
    } else {
        code = txn_new(l, env, &txn);
    }
    if (code) {
        rcu_read_unlock();
        return code == MDB_PANIC ? -EAGAIN : lmdb_error(code);
    }
    *out = txn;
    return 0;
}

void meta_read_end(struct meta_txn *t)
{
    struct txn *txn = txn_of(t);
    if (txn->broken) {
        txn_discard(txn);
    } else {
        mdb_txn_reset(txn->mdb);
        txn->next = pool_mine->idle;
        pool_mine->idle = txn;
    }
    rcu_read_unlock();
}

/* Lets time pass: true when it makes sense to try again. */
static bool read_wait(unsigned round, bool reopening)
{
    enum { ROUNDS_MOST = 2000, ROUNDS_FAST = 100 };
    if (round >= ROUNDS_MOST)
        return false;
    reopening |= round > ROUNDS_FAST;
    if (coro_self()) {
        if (reopening)
            coro_sleep(1);
        else
            coro_yield();
        return true;
    }
    if (worker_self())
        return false;
    nanosleep(&(struct timespec){.tv_nsec = reopening ? 1000000 : 20000}, NULL);
    return true;
}

int meta_read_begin(struct local *l, struct meta_txn **out)
{
    for (unsigned round = 0;; round++) {
        struct txn *txn = NULL;
        int error = read_try(l, &txn);
        if (error == 0) {
            metric_add(METRIC_meta_reads, 1);
            if (txn_id(txn) <= atomic_load(&l->meta->published)) {
                *out = &txn->t;
                return 0;
            }
            meta_read_end(&txn->t);
        } else if (error != -EAGAIN) {
            return error;
        }
        if (!read_wait(round, error != 0))
            return worker_self() && !coro_self() ? SL_EWAIT : -EIO;
    }
}

uint64_t txn_id(struct txn *txn)
{
    return mdb_txn_id(txn->mdb);
}

/* ---- the writer's transaction ---- */

static int call_begin(struct call *call)
{
    return mdb_txn_begin(call->env, NULL, 0, &call->txn->mdb);
}

static int call_commit(struct call *call)
{
    return mdb_txn_commit(call->txn->mdb);
}

/* What SIGBUS has left in the middle of a call cannot be ended: LMDB's lists may lead to cursors on a stack that is
 * gone, and its lock is held.  The environment is given up as it is, and meta_reopen() takes a new one. */
static int txn_left(struct txn *txn)
{
    txn->t.local->meta->stuck = true;
    txn->mdb = NULL;
    return -EIO;
}

int txn_write_begin(struct local *l, struct txn *txn)
{
    memset(txn, 0, sizeof(*txn));
    txn->t.local = l;
    txn->t.write = true;
    struct call call = {.txn = txn, .env = l->meta->env};
    if (!call.env || l->meta->stuck)
        return -EIO;
    int code = guarded(call_begin, &call);
    if (txn->broken)
        return txn_left(txn);
    txn->t.mdb = txn->mdb;
    if (code)
        txn->mdb = NULL;
    return lmdb_error(code);
}

int txn_write_commit(struct txn *txn)
{
    /* LMDB closes a write transaction's cursors itself. */
    struct call call = {.txn = txn};
    int code = guarded(call_commit, &call);
    if (txn->broken)
        return txn_left(txn);
    txn->mdb = NULL;
    return lmdb_error(code);
}

void txn_write_abort(struct txn *txn)
{
    if (txn->broken)
        txn_left(txn);
    else if (txn->mdb)
        mdb_txn_abort(txn->mdb);
    txn->mdb = NULL;
}

/* ---- records ---- */

static int cursor_of(struct txn *txn, enum db db, MDB_cursor **out)
{
    MDB_cursor **cursor = &txn->cursors[db];
    int code = 0;
    if (!*cursor)
        code = mdb_cursor_open(txn->mdb, txn->t.local->meta->dbi[db], cursor);
    else if (txn->cursor_stale[db])
        code = mdb_cursor_renew(txn->mdb, *cursor);
    txn->cursor_stale[db] = false;
    *out = *cursor;
    return code;
}

static int copy_out(const MDB_val *key, const MDB_val *value, struct record *out)
{
    if (key->mv_size > KEY_ROOM || value->mv_size > RECORD_MAX)
        return MDB_CORRUPTED;
    out->key_length = (uint8_t)key->mv_size;
    out->length = (uint16_t)value->mv_size;
    memcpy(out->key, key->mv_data, key->mv_size);
    memcpy(out->value, value->mv_data, value->mv_size);
    return 0;
}

static int call_find(struct call *call)
{
    MDB_cursor *cursor;
    int code = cursor_of(call->txn, call->db, &cursor);
    MDB_val key = {0}, value;
    if (call->key)
        key = (MDB_val){.mv_size = call->key->length, .mv_data = (void *)call->key->bytes};
    if (!code)
        code = mdb_cursor_get(cursor, &key, &value, call->op);
    return code || !call->out ? code : copy_out(&key, &value, call->out);
}

static int call_put(struct call *call)
{
    MDB_val key = {.mv_size = call->key->length, .mv_data = (void *)call->key->bytes};
    return mdb_put(call->txn->mdb, call->txn->t.local->meta->dbi[call->db], &key, &call->value, 0);
}

static int call_del(struct call *call)
{
    MDB_val key = {.mv_size = call->key->length, .mv_data = (void *)call->key->bytes};
    return mdb_del(call->txn->mdb, call->txn->t.local->meta->dbi[call->db], &key, NULL);
}

static int run(struct call *call, int (*fn)(struct call *))
{
    struct meta_txn *t = &call->txn->t;
    if (t->failed)
        return t->failed;
    if (call->txn->broken)
        return -EIO;
    int error = lmdb_error(guarded(fn, call));
    if (error && error != -ENOENT && t->write)
        t->failed = error;
    return error;
}

int db_get(struct meta_txn *t, enum db db, const struct key *k, struct record *out)
{
    struct call call = {.txn = txn_of(t), .db = db, .op = MDB_SET_KEY, .key = k, .out = out};
    return run(&call, call_find);
}

int db_seek(struct meta_txn *t, enum db db, const struct key *k, struct record *out)
{
    struct call call = {.txn = txn_of(t), .db = db, .op = MDB_SET_RANGE, .key = k, .out = out};
    if (db == DB_ENTRY)
        call.txn->standing = false;
    return run(&call, call_find);
}

int db_step(struct meta_txn *t, enum db db, struct record *out)
{
    struct call call = {.txn = txn_of(t), .db = db, .op = MDB_NEXT, .out = out};
    return run(&call, call_find);
}

int db_put(struct meta_txn *t, enum db db, const struct key *k, const void *value, size_t length)
{
    struct call call = {.txn = txn_of(t),
                        .db = db,
                        .key = k,
                        .value = {.mv_size = length, .mv_data = (void *)value}};
    group_dirtied(t->group, 2);
    return run(&call, call_put);
}

int db_del(struct meta_txn *t, enum db db, const struct key *k)
{
    struct call call = {.txn = txn_of(t), .db = db, .key = k};
    group_dirtied(t->group, 2);
    return run(&call, call_del);
}
