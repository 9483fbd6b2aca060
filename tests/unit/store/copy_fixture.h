/* COPY and CLONE of ranges as the store offers them. */
#ifndef TESTS_UNIT_STORE_COPY_FIXTURE_H
#define TESTS_UNIT_STORE_COPY_FIXTURE_H

#include "ops_fixture.h"

static inline int call_clone_range(struct call *k)
{
    return k->s->ops->clone_range(k->s, k->arg, k->wcc);
}

/* All of it, step by step. */
static inline int call_copy(struct call *k)
{
    struct store_copy copy = *(struct store_copy *)k->arg;
    while (copy.length) {
        uint64_t done;
        int rc = k->s->ops->copy(k->s, &copy, &done, k->wcc);
        if (rc)
            return rc;
        assert_true(done > 0 && done <= copy.length);
        copy.from_offset += done;
        copy.to_offset += done;
        copy.length -= done;
    }
    return 0;
}

static inline int t_copy_range(struct pool *p, int (*run)(struct call *k), const struct store_object *from,
                               uint64_t from_offset, const struct store_object *to, uint64_t to_offset, uint64_t length)
{
    struct store_wcc wcc;
    struct store_copy copy = {*from, *to, from_offset, to_offset, length, &root_cred, &root_cred};
    return call(p, (struct call){.run = run, .arg = &copy, .wcc = &wcc});
}

static inline int t_clone_range(struct pool *p, const struct store_object *from, uint64_t from_offset,
                                const struct store_object *to, uint64_t to_offset, uint64_t length)
{
    return t_copy_range(p, call_clone_range, from, from_offset, to, to_offset, length);
}

static inline int t_copy(struct pool *p, const struct store_object *from, uint64_t from_offset,
                         const struct store_object *to, uint64_t to_offset, uint64_t length)
{
    return t_copy_range(p, call_copy, from, from_offset, to, to_offset, length);
}

#endif
