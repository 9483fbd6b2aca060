/* Commits that fail on demand: these stand before the libraries' own functions, in the one test program that includes
 * this. */
#ifndef TESTS_META_FAULTS_H
#define TESTS_META_FAULTS_H

#include <dlfcn.h>
#include <errno.h>
#include <lmdb.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_int commit_fault, commit_fault_count; /* the code to fail with, and how often */
static atomic_int meta_fault; /* 1: the meta page is not written; 2: written, and nevertheless an error */

int mdb_txn_commit(MDB_txn *txn)
{
    static int (*real)(MDB_txn *);
    if (!real)
        real = (int (*)(MDB_txn *))dlsym(RTLD_NEXT, "mdb_txn_commit");
    if (atomic_load(&commit_fault_count) > 0) {
        atomic_fetch_sub(&commit_fault_count, 1);
        mdb_txn_abort(txn);
        return atomic_load(&commit_fault);
    }
    return real(txn);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real)
        real = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
    int fault = atomic_load(&meta_fault);
    if (fault && offset < 8192 && length < 4096) {
        if (fault == 2) {
            atomic_store(&meta_fault, 3);
            if (real(fd, bytes, length, offset) < 0)
                return -1;
        }
        errno = EIO;
        return -1;
    }
    return real(fd, bytes, length, offset);
}

#endif
