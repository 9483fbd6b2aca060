#include "unit/nfs/fake.h"

/* Every error of ours that an operation may return has a status of its own choice, never SERVERFAULT by omission. */
static void every_error_of_ours_has_a_status(void **state)
{
    for (int error = SL_ECORRUPT; error < SL_EWAIT; error++)
        assert_int_not_equal(nfs3_status(NFS3_GETATTR, error), NFS3ERR_SERVERFAULT);
    static const int named[] = {EPERM, ENOENT, EIO, EACCES, EEXIST, EXDEV, ENOTDIR, EISDIR, EINVAL, EFBIG, ENOSPC,
                                EROFS, EMLINK, ENAMETOOLONG, ENOTEMPTY, EDQUOT, ESTALE, ENOMEM};
    for (unsigned i = 0; i < sizeof named / sizeof *named; i++)
        assert_int_not_equal(nfs3_status(NFS3_GETATTR, -named[i]), NFS3ERR_SERVERFAULT);
}

/* The errors that NFSv3 took from Unix kept their numbers. */
static void unix_errors_keep_their_numbers(void **state)
{
    static const int same[] = {EPERM, ENOENT, EIO, ENXIO, EACCES, EEXIST, EXDEV, ENODEV, ENOTDIR, EISDIR, EINVAL,
                               EFBIG, ENOSPC, EROFS};
    for (unsigned i = 0; i < sizeof same / sizeof *same; i++)
        assert_int_equal(nfs3_status(NFS3_LOOKUP, -same[i]), same[i]);
}

static void the_others_are_those_of_the_rfc(void **state)
{
    assert_int_equal(nfs3_status(NFS3_LOOKUP, 0), 0);
    assert_int_equal(nfs3_status(NFS3_LOOKUP, -EMLINK), 31);
    assert_int_equal(nfs3_status(NFS3_LOOKUP, -ENAMETOOLONG), 63);
    assert_int_equal(nfs3_status(NFS3_LOOKUP, -ENOTEMPTY), 66);
    assert_int_equal(nfs3_status(NFS3_LOOKUP, -EDQUOT), 69);
    assert_int_equal(nfs3_status(NFS3_LOOKUP, -ESTALE), 70);
    assert_int_equal(nfs3_status(NFS3_LOOKUP, SL_EBADHANDLE), 10001);
    assert_int_equal(nfs3_status(NFS3_SETATTR, SL_ENOTSYNC), 10002);
    assert_int_equal(nfs3_status(NFS3_READDIR, SL_EBADCOOKIE), 10003);
    assert_int_equal(nfs3_status(NFS3_LOOKUP, -EOPNOTSUPP), 10004);
    assert_int_equal(nfs3_status(NFS3_READDIR, SL_ETOOSMALL), 10005);
    assert_int_equal(nfs3_status(NFS3_MKNOD, SL_EBADTYPE), 10007);
    assert_int_equal(nfs3_status(NFS3_READ, SL_EDELAY), 10008);
    assert_int_equal(nfs3_status(NFS3_WRITE, SL_EFROZEN), 5);
    assert_int_equal(nfs3_status(NFS3_READ, SL_ECORRUPT), 5);
    assert_int_equal(nfs3_status(NFS3_READ, -12345), 10006);
}

static void procedures_keep_to_their_own_lists(void **state)
{
    assert_int_equal(nfs3_status(NFS3_READ, -EISDIR), NFS3ERR_INVAL);
    assert_int_equal(nfs3_status(NFS3_WRITE, -EISDIR), NFS3ERR_INVAL);
    assert_int_equal(nfs3_status(NFS3_SETATTR, -EISDIR), NFS3ERR_INVAL);
    assert_int_equal(nfs3_status(NFS3_REMOVE, -EISDIR), NFS3ERR_ISDIR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_error_of_ours_has_a_status),
        cmocka_unit_test(unix_errors_keep_their_numbers),
        cmocka_unit_test(the_others_are_those_of_the_rfc),
        cmocka_unit_test(procedures_keep_to_their_own_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
