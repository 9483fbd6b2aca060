#!/usr/bin/env python3
"""Every procedure of NFS version 3, its errors and its attributes, on a live server."""
import time

from harness import check, eq, run, test
from rawrpc import (ACCESS_DELETE, ACCESS_EXECUTE, ACCESS_EXTEND, ACCESS_LOOKUP, ACCESS_MODIFY, ACCESS_READ, BLK, CHR,
                    DATA_SYNC, DIR, EXCLUSIVE, FIFO, FILE_SYNC, GUARDED, LNK, NOW, OTHER, REG, SOCK,
                    UNSTABLE, USER, Cred)

MAX = 2 ** 63 - 1
MIB = 1 << 20
NOBODY_CRED = Cred(None)


def wcc_of(wcc, before):
    """wcc data of a change that went well, against the attributes before."""
    check(wcc.before and wcc.after, "wcc data is there")
    eq(wcc.before, (before.size, before.mtime, before.ctime), "wcc before")
    check(wcc.after.ctime > before.ctime, "ctime moved")


# ---- GETATTR, SETATTR, ACCESS ----

@test
def null_answers(t):
    t.nfs.null()


@test
def getattr_of_a_new_file(t):
    fh = t.file(data=b"hello", mode=0o640)
    a = t.nfs.getattr(fh).attr
    eq((a.type, a.mode, a.nlink, a.uid, a.gid, a.size, a.rdev), (REG, 0o640, 1, 0, 0, 5, (0, 0)))
    check(abs(a.mtime[0] - time.time()) < 60, "mtime is now")
    eq(a.fsid, t.nfs.getattr(t.root).attr.fsid, "fsid of one volume")
    check(a.fileid != t.nfs.getattr(t.dir).attr.fileid, "fileids differ")


@test
def setattr_mode_owner_and_times(t):
    fh = t.file()
    before = t.nfs.getattr(fh).attr
    r = t.nfs.setattr(fh, mode=0o6751, uid=7, gid=8, atime=(1000000000, 123456789), mtime=(1234567890, 999999999))
    eq(r.status, "OK")
    wcc_of(r.wcc, before)
    a = t.nfs.getattr(fh).attr
    eq(a, r.wcc.after, "attributes after")
    eq((a.uid, a.gid), (7, 8))
    eq(a.mode & 0o777, 0o751)
    eq(a.atime, (1000000000, 123456789))
    eq(a.mtime, (1234567890, 999999999))


@test
def setattr_size_truncates_and_extends_with_zeroes(t):
    fh = t.file(data=b"x" * 10000)
    before = t.nfs.getattr(fh).attr
    r = t.nfs.setattr(fh, size=5)
    eq((r.status, r.wcc.after.size), ("OK", 5))
    wcc_of(r.wcc, before)
    check(r.wcc.after.mtime > before.mtime, "mtime moved")
    eq(t.nfs.setattr(fh, size=20000).wcc.after.size, 20000)
    eq(t.nfs.read(fh, 0, 30000).data, b"xxxxx" + bytes(19995))


@test
def setattr_guard_holds(t):
    fh = t.file()
    ctime = t.nfs.getattr(fh).attr.ctime
    r = t.nfs.setattr(fh, guard=(ctime[0], ctime[1] ^ 1), mode=0o600)
    eq(r.status, "NOT_SYNC")
    eq(t.nfs.getattr(fh).attr.mode, 0o644, "nothing changed")
    eq(t.nfs.setattr(fh, guard=ctime, mode=0o600).status, "OK")


@test
def setattr_errors(t):
    fh = t.file()
    eq(t.nfs.setattr(fh, mtime=(1, 1000000000)).status, "INVAL", "nanoseconds")
    eq(t.nfs.setattr(t.dir, size=0).status, "INVAL", "size of a directory")
    check(t.nfs.setattr(fh, size=2 ** 63).status in ("FBIG", "INVAL"), "size past 2^63-1")
    eq(t.nfs.setattr(fh, size=MAX).status, "OK", "the largest size")
    eq(t.nfs.getattr(fh).attr.size, MAX)


@test
def setattr_permissions(t):
    fh = t.file(mode=0o666)
    eq(t.nfs.setattr(fh, mode=0o600, cred=USER).status, "PERM", "chmod by another")
    eq(t.nfs.setattr(fh, uid=1000, cred=USER).status, "PERM", "chown by another")
    eq(t.nfs.setattr(fh, mtime=(1, 0), cred=USER).status, "PERM", "utimes by another")
    eq(t.nfs.setattr(fh, atime=NOW, mtime=NOW, cred=USER).status, "OK", "touch needs only write permission")
    eq(t.nfs.setattr(fh, size=3, cred=USER).status, "OK", "truncate needs only write permission")
    t.nfs.setattr(fh, mode=0o644)
    check(t.nfs.setattr(fh, mtime=NOW, cred=USER).status in ("ACCES", "PERM"), "touch without write permission")
    eq(t.nfs.setattr(fh, size=1, cred=USER).status, "ACCES", "truncate without write permission")
    mine = t.file(b"mine", uid=1000, gid=1000)
    eq(t.nfs.setattr(mine, mode=0o600, cred=USER).status, "OK", "chmod by the owner")
    eq(t.nfs.setattr(mine, uid=1001, cred=USER).status, "PERM", "giving away")
    eq(t.nfs.setattr(mine, gid=2000, cred=USER).status, "PERM", "a group one is not in")
    eq(t.nfs.setattr(mine, gid=2000, cred=Cred(1000, 1000, (2000,))).status, "OK", "a group one is in")


@test
def chown_and_write_clear_suid_and_sgid(t):
    fh = t.file(mode=0o755, uid=1000, gid=1000)
    t.nfs.setattr(fh, mode=0o6755)
    eq(t.nfs.write(fh, 0, b"x", cred=USER).wcc.after.mode, 0o755, "after a write")
    t.nfs.setattr(fh, mode=0o6755)
    eq(t.nfs.setattr(fh, gid=1000, cred=USER).wcc.after.mode & 0o4000, 0, "after a chown")


@test
def access_is_honest(t):
    fh = t.file(mode=0o640, uid=1000, gid=2000)
    everything = t.nfs.access(fh, cred=USER)
    eq(everything.access, ACCESS_READ | ACCESS_MODIFY | ACCESS_EXTEND, "owner")
    eq(everything.attr, t.nfs.getattr(fh).attr, "attributes")
    eq(t.nfs.access(fh, cred=Cred(1001, 1001, (2000,))).access, ACCESS_READ, "group")
    eq(t.nfs.access(fh, cred=OTHER).access, 0, "others")
    eq(t.nfs.access(fh, want=ACCESS_MODIFY, cred=USER).access, ACCESS_MODIFY, "only what was asked")
    check(t.nfs.access(t.dir).access & (ACCESS_LOOKUP | ACCESS_DELETE), "a directory")
    check(not t.nfs.access(t.dir).access & ACCESS_EXECUTE or True, "EXECUTE has no meaning for directories")


# ---- LOOKUP ----

@test
def lookup_gives_handle_and_attributes(t):
    fh = t.file()
    r = t.nfs.lookup(t.dir, b"file")
    eq((r.status, r.fh), ("OK", fh))
    eq(r.attr, t.nfs.getattr(fh).attr)
    eq(r.dir_attr, t.nfs.getattr(t.dir).attr)
    eq(len(r.fh), 32)


@test
def lookup_dot_and_dotdot(t):
    eq(t.nfs.lookup(t.dir, b".").fh, t.dir)
    eq(t.nfs.lookup(t.dir, b"..").fh, t.root)
    eq(t.nfs.lookup(t.root, b"..").fh, t.root, ".. of the root")


@test
def lookup_errors(t):
    fh = t.file()
    r = t.nfs.lookup(t.dir, b"missing")
    eq((r.status, r.dir_attr), ("NOENT", t.nfs.getattr(t.dir).attr))
    eq(t.nfs.lookup(fh, b"x").status, "NOTDIR")
    eq(t.nfs.lookup(t.dir, b"n" * 256).status, "NAMETOOLONG")
    eq(t.nfs.lookup(t.dir, b"n" * 60000).status, "NAMETOOLONG")
    check(t.nfs.lookup(t.dir, b"").status in ("INVAL", "ACCES", "NOENT"), "an empty name")
    check(t.nfs.lookup(t.dir, b"a/b").status in ("INVAL", "ACCES", "NOENT"), "a slash")
    check(t.nfs.lookup(t.dir, b"a\0b").status in ("INVAL", "ACCES", "NOENT"), "a NUL")
    closed = t.nfs.mkdir(t.dir, b"closed", mode=0o700).fh
    eq(t.nfs.lookup(closed, b"x", cred=USER).status, "ACCES")


@test
def names_are_bytes_up_to_255(t):
    for name in (b"\xff\xfe", b"n" * 255, b" ", b"\n", b"-", b"...", bytes(range(1, 47)) + bytes(range(48, 256))):
        fh = t.file(name)
        eq(t.nfs.lookup(t.dir, name).fh, fh, repr(name))


# ---- READLINK, SYMLINK ----

@test
def symlink_and_readlink(t):
    before = t.nfs.getattr(t.dir).attr
    target = b"../some/where \xff"
    r = t.nfs.symlink(t.dir, b"link", target, mode=0o777)
    eq(r.status, "OK")
    wcc_of(r.wcc, before)
    eq((r.attr.type, r.attr.size), (LNK, len(target)))
    read = t.nfs.readlink(r.fh)
    eq((read.status, read.target, read.attr), ("OK", target, r.attr))
    longest = t.nfs.symlink(t.dir, b"longest", b"t" * 1024)
    eq(longest.status, "OK")
    eq(t.nfs.readlink(longest.fh).target, b"t" * 1024)


@test
def symlink_and_readlink_errors(t):
    eq(t.nfs.symlink(t.dir, b"l", b"").status, "INVAL", "an empty target")
    eq(t.nfs.symlink(t.dir, b"l", b"t" * 1025).status, "NAMETOOLONG")
    eq(t.nfs.symlink(t.dir, b"n" * 256, b"t").status, "NAMETOOLONG")
    fh = t.file()
    eq(t.nfs.symlink(t.dir, b"file", b"t").status, "EXIST")
    r = t.nfs.readlink(fh)
    eq((r.status, r.attr), ("INVAL", t.nfs.getattr(fh).attr))
    eq(t.nfs.lookup(t.nfs.symlink(t.dir, b"l", b"t").fh, b"x").status, "NOTDIR")


# ---- READ, WRITE, COMMIT ----

@test
def write_then_read(t):
    fh = t.file()
    before = t.nfs.getattr(fh).attr
    r = t.nfs.write(fh, 0, b"0123456789")
    eq((r.status, r.count, r.committed), ("OK", 10, FILE_SYNC))
    wcc_of(r.wcc, before)
    eq(r.wcc.after, t.nfs.getattr(fh).attr)
    read = t.nfs.read(fh, 3, 4)
    eq((read.data, read.eof, read.attr), (b"3456", False, r.wcc.after))
    read = t.nfs.read(fh, 3, 100)
    eq((read.data, read.eof), (b"3456789", True))
    read = t.nfs.read(fh, 6, 4)
    eq((read.data, read.eof), (b"6789", True), "up to the end exactly")


@test
def ctime_moves_with_every_change(t):
    """NFSv3 clients tell by ctime and mtime whether what they cached still holds, however fast changes follow."""
    fh = t.file()
    last = t.nfs.getattr(fh).attr
    for number in range(200):
        what = number % 4
        if what == 0:
            wcc = t.nfs.write(fh, 0, b"%d" % number).wcc
        elif what == 1:
            wcc = t.nfs.setattr(fh, mode=0o600 + number % 8).wcc
        elif what == 2:
            wcc = t.nfs.setattr(fh, size=number).wcc
        else:
            wcc = t.nfs.write(fh, number * 5000, b"x" * 5000).wcc
        wcc_of(wcc, last)
        if what != 1:
            check(wcc.after.mtime > last.mtime, "mtime moved")
        last = wcc.after


@test
def every_stable_how_is_file_sync(t):
    fh = t.file()
    verifiers = set()
    for stable in (UNSTABLE, DATA_SYNC, FILE_SYNC):
        r = t.nfs.write(fh, stable * 10, b"x" * 10, stable)
        eq((r.status, r.committed), ("OK", FILE_SYNC))
        verifiers.add(r.verifier)
    c = t.nfs.commit(fh)
    eq((c.status, c.wcc.after), ("OK", t.nfs.getattr(fh).attr))
    verifiers.add(c.verifier)
    eq(len(verifiers), 1, "one verifier")


@test
def reads_past_the_end(t):
    fh = t.file(data=b"abc")
    for offset in (3, 4, 1 << 40, MAX, 2 ** 63, 2 ** 64 - 1):
        r = t.nfs.read(fh, offset, 4096)
        eq((r.status, r.data, r.eof), ("OK", b"", True), f"offset {offset}")
    eq(t.nfs.read(fh, 0, 0).data, b"", "count 0")
    eq(t.nfs.read(fh, 0, 0xffffffff).data, b"abc", "the largest count")


@test
def reads_above_a_mib_are_cut(t):
    fh = t.file()
    for piece in range(3):
        eq(t.nfs.write(fh, piece * MIB, bytes([65 + piece]) * MIB).count, MIB)
    r = t.nfs.read(fh, MIB // 2, 2 * MIB)
    eq((r.status, r.count, r.eof), ("OK", MIB, False))
    check(r.data == b"A" * (MIB // 2) + b"B" * (MIB // 2), "the data")


@test
def writes_above_a_mib_are_cut(t):
    fh = t.file()
    r = t.nfs.write(fh, 0, b"z" * (MIB + 4096))
    eq((r.status, r.count, r.wcc.after.size), ("OK", MIB, MIB))


@test
def write_errors(t):
    fh = t.file(data=b"abc")
    for offset in (MAX, 2 ** 63, 2 ** 64 - 1):
        eq(t.nfs.write(fh, offset, b"xy").status, "FBIG", f"offset {offset}")
    eq(t.nfs.write(fh, 0, b"xyz", count=2).status, "INVAL", "count is not the data's length")
    eq(t.nfs.write(fh, 0, b"xyz", count=4).status, "INVAL")
    eq(t.nfs.write(t.dir, 0, b"x").status, "INVAL", "a directory")
    eq(t.nfs.read(t.dir, 0, 1).status, "INVAL", "a directory")
    fifo = t.nfs.mknod(t.dir, b"fifo", FIFO).fh
    eq(t.nfs.read(fifo, 0, 1).status, "INVAL")
    eq(t.nfs.write(fifo, 0, b"x").status, "INVAL")
    r = t.nfs.write(fh, 0, b"x", cred=USER)
    eq(r.status, "ACCES")
    eq(t.nfs.read(fh, 0, 10).data, b"abc", "nothing changed")


@test
def write_of_nothing(t):
    fh = t.file(data=b"abc")
    r = t.nfs.write(fh, 100, b"")
    eq((r.status, r.count), ("OK", 0))
    eq(t.nfs.getattr(fh).attr.size, 3)


@test
def sparse_files_to_the_last_byte(t):
    fh = t.file()
    eq(t.nfs.write(fh, MAX - 1, b"e").status, "OK")
    a = t.nfs.getattr(fh).attr
    eq(a.size, MAX)
    check(a.used < MIB, "used is what it takes")
    r = t.nfs.read(fh, MAX - 4, 100)
    eq((r.data, r.eof), (b"\0\0\0e", True))
    r = t.nfs.read(fh, 1 << 50, 5000)
    eq((r.data, r.eof), (bytes(5000), False))


@test
def unaligned_overwrites(t):
    fh, model = t.file(), bytearray()
    for offset, length in ((0, 5000), (4000, 200), (4095, 2), (262143, 3), (100000, 70001), (1, 1), (262144, 4096)):
        data = bytes((offset + i) % 251 for i in range(length))
        model.extend(bytes(max(0, offset + length - len(model))))
        model[offset:offset + length] = data
        eq(t.nfs.write(fh, offset, data).count, length)
    check(t.nfs.read(fh, 0, MIB).data == bytes(model), "the data")
    check(t.nfs.read(fh, 4090, 10000).data == bytes(model[4090:14090]), "a part of it")


@test
def read_permissions(t):
    fh = t.file(data=b"secret", mode=0o000, uid=1000)
    eq(t.nfs.read(fh, 0, 10, cred=USER).data, b"secret", "the owner may read whatever the mode says")
    eq(t.nfs.write(fh, 0, b"SECRET", cred=USER).status, "OK", "and write")
    r = t.nfs.read(fh, 0, 10, cred=OTHER)
    eq((r.status, r.attr), ("ACCES", t.nfs.getattr(fh).attr))
    t.nfs.setattr(fh, mode=0o711)
    eq(t.nfs.read(fh, 0, 10, cred=OTHER).data, b"SECRET", "execute permission allows READ")
    eq(t.nfs.read(fh, 0, 10, cred=NOBODY_CRED).status, "OK")
    t.nfs.setattr(fh, mode=0o700)
    eq(t.nfs.read(fh, 0, 10, cred=NOBODY_CRED).status, "ACCES", "AUTH_NONE is nobody")


@test
def reads_do_not_change_atime(t):
    fh = t.file(data=b"abc")
    t.nfs.setattr(fh, atime=(1000, 1))
    before = t.nfs.getattr(fh).attr
    t.nfs.read(fh, 0, 3)
    eq(t.nfs.getattr(fh).attr, before)


# ---- CREATE, MKDIR, MKNOD ----

@test
def create_unchecked(t):
    before = t.nfs.getattr(t.dir).attr
    r = t.nfs.create(t.dir, b"new", mode=0o600, size=100)
    eq(r.status, "OK")
    wcc_of(r.wcc, before)
    eq((r.attr.mode, r.attr.size, r.attr.nlink), (0o600, 100, 1))
    eq(r.attr, t.nfs.getattr(r.fh).attr)
    again = t.nfs.create(t.dir, b"new", mode=0o777, size=0)
    eq((again.status, again.fh), ("OK", r.fh), "the file that is there")
    eq((again.attr.mode, again.attr.size), (0o600, 0), "only the size is applied")
    t.nfs.write(r.fh, 0, b"keep")
    eq(t.nfs.create(t.dir, b"new", mode=0o777).attr.size, 4, "without a size it stays")


@test
def create_guarded(t):
    r = t.nfs.create(t.dir, b"new", GUARDED, mode=0o644)
    eq(r.status, "OK")
    again = t.nfs.create(t.dir, b"new", GUARDED, mode=0o644, size=0)
    eq(again.status, "EXIST")
    check(again.wcc.after is None or again.wcc.after == t.nfs.getattr(t.dir).attr, "wcc on an error")


@test
def create_exclusive(t):
    r = t.nfs.create(t.dir, b"new", EXCLUSIVE, b"verifier")
    eq(r.status, "OK")
    eq(t.nfs.create(t.dir, b"new", EXCLUSIVE, b"verifier").fh, r.fh, "the same call again")
    eq(t.nfs.create(t.dir, b"new", EXCLUSIVE, b"verifieR").status, "EXIST", "another verifier")
    eq(t.nfs.create(t.dir, b"new", EXCLUSIVE, b"Verifier").status, "EXIST", "all of it counts")
    before = t.nfs.getattr(r.fh).attr
    check(abs(before.mtime[0] - time.time()) < 60 and abs(before.atime[0] - time.time()) < 60,
          "the verifier is not kept in the times")
    t.nfs.setattr(r.fh, mode=0o640, atime=(5, 6), mtime=(7, 8))
    eq(t.nfs.create(t.dir, b"new", EXCLUSIVE, b"verifier").status, "OK", "after SETATTR as well")
    t.file(b"other")
    eq(t.nfs.create(t.dir, b"other", EXCLUSIVE, bytes(8)).status, "EXIST", "of a file made otherwise")


@test
def create_errors(t):
    fh = t.file()
    for name in (b".", b".."):
        check(t.nfs.create(t.dir, name).status in ("EXIST", "ISDIR"), f"CREATE {name}")
        eq(t.nfs.mkdir(t.dir, name).status, "EXIST", f"MKDIR {name}")
        check(t.nfs.mknod(t.dir, name, FIFO).status in ("EXIST", "INVAL"), f"MKNOD {name}")
        eq(t.nfs.symlink(t.dir, name, b"t").status, "EXIST", f"SYMLINK {name}")
    for name, status in ((b"n" * 256, "NAMETOOLONG"), (b"", "INVAL"), (b"a/b", "INVAL"), (b"a\0b", "INVAL")):
        for make in (t.nfs.create, t.nfs.mkdir, lambda d, n: t.nfs.mknod(d, n, SOCK),
                     lambda d, n: t.nfs.symlink(d, n, b"t")):
            eq(make(t.dir, name).status, status, repr(name[:9]))
    eq(t.nfs.create(fh, b"x").status, "NOTDIR")
    t.nfs.mkdir(t.dir, b"sub")
    check(t.nfs.create(t.dir, b"sub").status in ("EXIST", "ISDIR"), "over a directory")
    eq(t.nfs.create(t.dir, b"x", mode=0o644, mtime=(0, 1000000000)).status, "INVAL")
    t.nfs.setattr(t.dir, mode=0o755)
    eq(t.nfs.create(t.dir, b"x", cred=USER).status, "ACCES")
    eq(t.nfs.mkdir(t.dir, b"x", cred=USER).status, "ACCES")


@test
def created_objects_belong_to_the_caller(t):
    r = t.nfs.create(t.dir, b"f", mode=0o644, cred=Cred(1000, 1002))
    eq((r.attr.uid, r.attr.gid), (1000, 1002))
    shared = t.nfs.mkdir(t.dir, b"shared", mode=0o2777, gid=3000)
    eq(shared.status, "OK")
    t.nfs.setattr(shared.fh, mode=0o2777)
    r = t.nfs.create(shared.fh, b"f", mode=0o644, cred=USER)
    eq(r.attr.gid, 3000, "a setgid directory hands on its group")
    r = t.nfs.mkdir(shared.fh, b"d", mode=0o755, cred=USER)
    eq((r.attr.gid, r.attr.mode & 0o2000), (3000, 0o2000), "and itself to directories")


@test
def mkdir_and_links(t):
    before = t.nfs.getattr(t.dir).attr
    r = t.nfs.mkdir(t.dir, b"sub", mode=0o750)
    eq(r.status, "OK")
    wcc_of(r.wcc, before)
    eq((r.attr.type, r.attr.mode, r.attr.nlink), (DIR, 0o750, 2))
    eq(t.nfs.getattr(t.dir).attr.nlink, before.nlink + 1)
    eq(t.nfs.mkdir(t.dir, b"sub").status, "EXIST")
    eq(t.nfs.lookup(r.fh, b"..").fh, t.dir)


@test
def mknod_of_every_type(t):
    for kind, rdev in ((CHR, (5, 1)), (BLK, (259, 70000)), (SOCK, (0, 0)), (FIFO, (0, 0))):
        name = b"node%d" % kind
        r = t.nfs.mknod(t.dir, name, kind, rdev, mode=0o600)
        eq((r.status, r.attr.type, r.attr.rdev, r.attr.mode), ("OK", kind, rdev, 0o600))
        eq(t.nfs.lookup(t.dir, name).attr, r.attr)
        eq(t.nfs.mknod(t.dir, name, kind, rdev).status, "EXIST")
    for kind in (REG, DIR, LNK, 0, 99):
        eq(t.nfs.mknod(t.dir, b"bad", kind).status, "BADTYPE", f"type {kind}")
    eq(t.nfs.mknod(t.dir, b"dev", CHR, (1, 3), cred=USER).status, "PERM", "devices are root's")
    eq(t.nfs.mknod(t.dir, b"fifo", FIFO, cred=USER).status, "OK")


# ---- REMOVE, RMDIR, RENAME, LINK ----

@test
def remove_makes_handles_stale(t):
    fh = t.file(data=b"x")
    before = t.nfs.getattr(t.dir).attr
    r = t.nfs.remove(t.dir, b"file")
    eq(r.status, "OK")
    wcc_of(r.wcc, before)
    eq(t.nfs.getattr(fh).status, "STALE")
    eq(t.nfs.read(fh, 0, 1).status, "STALE")
    eq(t.nfs.write(fh, 0, b"x").status, "STALE")
    eq(t.nfs.remove(t.dir, b"file").status, "NOENT")
    t.file()
    eq(t.nfs.getattr(fh).status, "STALE", "a new file of the name is another")


@test
def remove_and_rmdir_errors(t):
    fh = t.file()
    sub = t.nfs.mkdir(t.dir, b"sub").fh
    eq(t.nfs.remove(t.dir, b"sub").status, "ISDIR")
    eq(t.nfs.rmdir(t.dir, b"file").status, "NOTDIR")
    t.nfs.create(sub, b"x")
    r = t.nfs.rmdir(t.dir, b"sub")
    eq(r.status, "NOTEMPTY")
    check(r.wcc.after is None or r.wcc.after == t.nfs.getattr(t.dir).attr, "wcc on an error")
    t.nfs.remove(sub, b"x")
    eq(t.nfs.rmdir(t.dir, b".").status, "INVAL")
    check(t.nfs.rmdir(t.dir, b"..").status in ("EXIST", "NOTEMPTY", "INVAL"), "RMDIR ..")
    check(t.nfs.remove(t.dir, b".").status in ("INVAL", "ISDIR"), "REMOVE .")
    check(t.nfs.remove(t.dir, b"..").status in ("INVAL", "ISDIR", "EXIST"), "REMOVE ..")
    eq(t.nfs.remove(fh, b"x").status, "NOTDIR")
    eq(t.nfs.remove(t.dir, b"n" * 256).status, "NAMETOOLONG")
    eq(t.nfs.rmdir(t.dir, b"n" * 256).status, "NAMETOOLONG")
    links = t.nfs.getattr(t.dir).attr.nlink
    eq(t.nfs.rmdir(t.dir, b"sub").status, "OK")
    eq(t.nfs.getattr(t.dir).attr.nlink, links - 1)
    eq(t.nfs.getattr(sub).status, "STALE")
    eq(t.nfs.create(sub, b"x").status, "STALE")


@test
def sticky_directories(t):
    t.nfs.setattr(t.dir, mode=0o1777)
    t.file(b"his", uid=1001)
    eq(t.nfs.remove(t.dir, b"his", cred=USER).status in ("PERM", "ACCES"), True, "another's file")
    eq(t.nfs.rename(t.dir, b"his", t.dir, b"x", cred=USER).status in ("PERM", "ACCES"), True)
    eq(t.nfs.remove(t.dir, b"his", cred=OTHER).status, "OK", "one's own")


@test
def rename_within_and_between_directories(t):
    fh = t.file()
    sub = t.nfs.mkdir(t.dir, b"sub").fh
    eq(t.nfs.rename(t.dir, b"file", t.dir, b"second").status, "OK")
    eq(t.nfs.lookup(t.dir, b"file").status, "NOENT")
    from_before, to_before = t.nfs.getattr(t.dir).attr, t.nfs.getattr(sub).attr
    r = t.nfs.rename(t.dir, b"second", sub, b"third")
    eq(r.status, "OK")
    wcc_of(r.from_wcc, from_before)
    wcc_of(r.to_wcc, to_before)
    eq(t.nfs.lookup(sub, b"third").fh, fh)
    moved = t.nfs.mkdir(t.dir, b"moved").fh
    links = t.nfs.getattr(t.dir).attr.nlink
    eq(t.nfs.rename(t.dir, b"moved", sub, b"moved").status, "OK")
    eq(t.nfs.lookup(moved, b"..").fh, sub, ".. follows")
    eq(t.nfs.getattr(t.dir).attr.nlink, links - 1)


@test
def rename_replaces(t):
    a, b = t.file(b"a", b"aaa"), t.file(b"b", b"bbb")
    eq(t.nfs.rename(t.dir, b"a", t.dir, b"b").status, "OK")
    eq(t.nfs.lookup(t.dir, b"b").fh, a)
    eq(t.nfs.getattr(b).status, "STALE")
    eq(t.nfs.rename(t.dir, b"b", t.dir, b"b").status, "OK", "onto itself")
    t.nfs.link(a, t.dir, b"c")
    eq(t.nfs.rename(t.dir, b"b", t.dir, b"c").status, "OK", "onto another link of the same file")
    eq(t.nfs.lookup(t.dir, b"b").status, "OK", "changes nothing")
    empty, full = t.nfs.mkdir(t.dir, b"empty").fh, t.nfs.mkdir(t.dir, b"full").fh
    t.nfs.create(full, b"x")
    check(t.nfs.rename(t.dir, b"empty", t.dir, b"full").status in ("NOTEMPTY", "EXIST"), "a directory with entries")
    eq(t.nfs.rename(t.dir, b"full", t.dir, b"empty").status, "OK", "an empty one")
    eq(t.nfs.getattr(empty).status, "STALE")


@test
def rename_errors(t):
    fh = t.file()
    sub = t.nfs.mkdir(t.dir, b"sub").fh
    eq(t.nfs.rename(t.dir, b"missing", t.dir, b"x").status, "NOENT")
    check(t.nfs.rename(t.dir, b"file", t.dir, b"sub").status in ("ISDIR", "EXIST"), "a file onto a directory")
    check(t.nfs.rename(t.dir, b"sub", t.dir, b"file").status in ("NOTDIR", "EXIST"), "a directory onto a file")
    eq(t.nfs.rename(t.dir, b"sub", sub, b"x").status, "INVAL", "into itself")
    deep = t.nfs.mkdir(sub, b"deep").fh
    eq(t.nfs.rename(t.dir, b"sub", deep, b"x").status, "INVAL", "into its own child")
    for name in (b".", b".."):
        eq(t.nfs.rename(t.dir, name, t.dir, b"x").status, "INVAL", f"from {name}")
        eq(t.nfs.rename(t.dir, b"file", t.dir, name).status, "INVAL", f"to {name}")
    eq(t.nfs.rename(t.dir, b"file", t.dir, b"n" * 256).status, "NAMETOOLONG")
    eq(t.nfs.rename(t.dir, b"file", fh, b"x").status, "NOTDIR")
    eq(t.nfs.rename(t.dir, b"file", t.dir, b"a/b").status, "INVAL")


@test
def link_counts_names(t):
    fh = t.file()
    before, dir_before = t.nfs.getattr(fh).attr, t.nfs.getattr(t.dir).attr
    r = t.nfs.link(fh, t.dir, b"second")
    eq((r.status, r.attr.nlink), ("OK", 2))
    check(r.attr.ctime > before.ctime, "ctime moved")
    wcc_of(r.wcc, dir_before)
    eq(t.nfs.lookup(t.dir, b"second").fh, fh)
    t.nfs.remove(t.dir, b"file")
    eq(t.nfs.getattr(fh).attr.nlink, 1)
    eq(t.nfs.link(fh, t.dir, b"second").status, "EXIST")
    check(t.nfs.link(t.dir, t.dir, b"d").status in ("ISDIR", "PERM", "INVAL"), "a directory")
    eq(t.nfs.link(fh, fh, b"x").status, "NOTDIR")
    eq(t.nfs.link(fh, t.dir, b"n" * 256).status, "NAMETOOLONG")
    check(t.nfs.link(fh, t.dir, b".").status in ("EXIST", "INVAL"), "a dot")


# ---- READDIR, READDIRPLUS ----

def fill(t, count):
    names = [b"entry-%04d" % number + b"x" * (number % 40) for number in range(count)]
    for name in names:
        eq(t.nfs.create(t.dir, name, mode=0o600).status, "OK")
    return sorted([b".", b".."] + names)


@test
def readdir_lists_each_name_once(t):
    names = fill(t, 300)
    for count in (65536, 4096, 512):
        eq(sorted(e.name for e in t.nfs.listing(t.dir, count=count)), names, f"count {count}")
    r = t.nfs.readdir(t.dir)
    eq((r.attr, r.eof), (t.nfs.getattr(t.dir).attr, True))
    eq(len({e.cookie for e in r.entries}), len(r.entries), "cookies differ")
    for e in r.entries[::50]:
        eq(t.nfs.lookup(t.dir, e.name).attr.fileid, e.fileid)


@test
def readdirplus_gives_attributes_and_handles(t):
    names = fill(t, 100)
    entries = t.nfs.listing(t.dir, plus=True, dircount=2000, maxcount=5000)
    eq(sorted(e.name for e in entries), names)
    for e in entries:
        found = t.nfs.lookup(t.dir, e.name)
        if e.name != b"..":
            eq((e.fh, e.attr), (found.fh, found.attr), repr(e.name))
        eq(e.fileid, found.attr.fileid)


@test
def listings_keep_to_their_counts(t):
    fill(t, 200)
    for count in (200, 500, 1000, 4096, 8192):
        r = t.nfs.readdir(t.dir, count=count)
        eq(r.status, "OK")
        check(r.size <= count, f"{r.size} bytes for a count of {count}")
        check(r.eof or r.size > count - 80, f"{r.size} bytes of {count}: another entry had fitted")
        r = t.nfs.readdirplus(t.dir, dircount=1 << 20, maxcount=count + 200)
        check(r.size <= count + 200, f"{r.size} bytes for a maxcount of {count + 200}")
    r = t.nfs.readdirplus(t.dir, dircount=300, maxcount=1 << 20)
    check(sum(20 + (len(e.name) + 3) // 4 * 4 for e in r.entries) <= 300, "dircount")
    check(r.entries, "entries")
    check(t.nfs.readdirplus(t.dir, dircount=0xffffffff, maxcount=0xffffffff).eof, "the largest counts")


@test
def too_small_counts(t):
    for count in (0, 50, 103, 110):
        r = t.nfs.readdir(t.dir, count=count)
        eq((r.status, r.attr), ("TOOSMALL", r.attr))
        eq(t.nfs.readdirplus(t.dir, maxcount=count).status, "TOOSMALL")
    eq(t.nfs.readdirplus(t.dir, maxcount=200).status, "TOOSMALL")


@test
def cookies(t):
    fill(t, 50)
    r = t.nfs.readdir(t.dir)
    middle = r.entries[20]
    rest = t.nfs.readdir(t.dir, middle.cookie, r.verifier)
    eq([e.name for e in rest.entries], [e.name for e in r.entries[21:]])
    t.nfs.remove(t.dir, middle.name)
    t.nfs.remove(t.dir, r.entries[22].name)
    rest = t.nfs.readdir(t.dir, middle.cookie, r.verifier)
    eq([e.name for e in rest.entries], [e.name for n, e in enumerate(r.entries) if n == 21 or n > 22],
       "after the entry of the cookie is gone")
    eq(t.nfs.readdir(t.dir, middle.cookie, b"\1" * 8).status, "BAD_COOKIE", "another verifier")
    eq(t.nfs.readdir(t.dir, 0, b"\1" * 8).status, "OK", "any verifier goes with cookie 0")
    last = t.nfs.readdir(t.dir, r.entries[-1].cookie, r.verifier)
    eq((last.status, last.entries, last.eof), ("OK", [], True), "after the last")


@test
def listing_errors(t):
    fh = t.file()
    r = t.nfs.readdir(fh)
    eq(r.status, "NOTDIR")
    eq(t.nfs.readdirplus(fh).status, "NOTDIR")
    closed = t.nfs.mkdir(t.dir, b"closed", mode=0o711).fh
    eq(t.nfs.readdir(closed, cred=USER).status, "ACCES")
    eq(t.nfs.readdirplus(closed, cred=USER).status, "ACCES")


# ---- FSSTAT, FSINFO, PATHCONF ----

@test
def fsstat(t):
    r = t.nfs.fsstat(t.root)
    eq((r.status, r.attr), ("OK", t.nfs.getattr(t.root).attr))
    check(0 < r.abytes <= r.fbytes <= r.tbytes, "bytes")
    check(0 < r.afiles <= r.ffiles <= r.tfiles, "files")
    eq(r.invarsec, 0)


@test
def fsinfo(t):
    r = t.nfs.fsinfo(t.root)
    eq((r.rtmax, r.rtpref, r.wtmax, r.wtpref), (MIB,) * 4)
    eq((r.rtmult, r.wtmult), (4096, 4096))
    check(r.dtpref >= 4096, "dtpref")
    eq((r.maxfilesize, r.time_delta, r.properties), (MAX, (0, 1), 0x1b))
    eq(r.attr, t.nfs.getattr(t.root).attr)


@test
def pathconf(t):
    r = t.nfs.pathconf(t.file())
    check(r.linkmax >= 1000, "linkmax")
    eq((r.name_max, r.no_trunc, r.chown_restricted, r.case_insensitive, r.case_preserving),
       (255, True, True, False, True))


if __name__ == "__main__":
    run()
