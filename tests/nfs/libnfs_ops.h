/* What libnfs_ops.c (files and directories, as programs use them) and libnfs_raw.c (single NFSv3 calls) share.  A test
 * returns at its first difference, which the macros have counted and printed by then. */
#ifndef LIBNFS_OPS_H
#define LIBNFS_OPS_H

#include <stdbool.h>
#include <stdint.h>

struct nfs_context;

struct test {
    const char *name;
    void (*run)(void);
};

extern const struct test raw_tests[]; /* ends with a NULL name */
extern const char *server_host;
extern int server_port;
extern _Atomic unsigned differences;

void differ(const char *file, int line, const char *what, long long got, long long want);

#define EQUAL(what, want) \
    do { \
        long long got_ = (long long)(what), want_ = (long long)(want); \
        if (got_ != want_) { \
            differ(__FILE__, __LINE__, #what, got_, want_); \
            return; \
        } \
    } while (0)
#define HOLDS(what) \
    do { \
        if (!(what)) { \
            differ(__FILE__, __LINE__, #what, 0, 1); \
            return; \
        } \
    } while (0)
/* In a test, after a function that may have found a difference itself. */
#define STOP_IF_DIFFERENT() \
    do { \
        if (differences) \
            return; \
    } while (0)

/* A fresh context on /EXPORT, acting as uid:uid; ends the program if it cannot be had. */
struct nfs_context *mounted(const char *export_path, int uid);

#endif
