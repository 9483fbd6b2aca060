#!/usr/bin/env python3
"""MOUNT version 3, access rules on each request, squashing, handles that are not right."""
import struct
import time

from harness import check, eq, run, test
from rawrpc import ACCESS_READ, GUARDED, ROOT, USER, Cred


def prepare(server):
    server.create("other")
    server.create("readonly", "127.0.0.0/8:ro")
    server.create("squashed", "127.0.0.0/8:rw", "root", "--mode", "0777")
    server.create("everyone", "127.0.0.0/8:rw", "all", "--mode", "0777")
    server.create("closed", "192.0.2.0/24:rw,127.0.0.2/32:rw")


# ---- MOUNT ----

@test
def mnt_takes_many_spellings(t):
    for path in (b"/vol", b"vol", b"//vol", b"/vol/", b"///vol///", b"vol/"):
        r = t.nfs.mnt(path)
        eq((r.status, r.fh, r.flavors), ("OK", t.root, [1]), repr(path))
    t.nfs.mkdir(t.dir, b"a")
    inner = t.nfs.mkdir(t.nfs.lookup(t.dir, b"a").fh, b"b").fh
    where = b"/vol/mnt_takes_many_spellings"
    eq(t.nfs.mnt(where).fh, t.dir)
    eq(t.nfs.mnt(where + b"/a/b").fh, inner)
    eq(t.nfs.mnt(where[1:] + b"//a//b//").fh, inner)


@test
def mnt_walks_with_the_servers_permissions(t):
    closed = t.nfs.mkdir(t.dir, b"closed", mode=0o700).fh
    inner = t.nfs.mkdir(closed, b"inner", mode=0o777).fh
    r = t.nfs.mnt(b"/vol/mnt_walks_with_the_servers_permissions/closed/inner", cred=USER)
    eq((r.status, r.fh), ("OK", inner))


@test
def mnt_errors(t):
    t.file()
    t.nfs.symlink(t.dir, b"link", b"/")
    here = b"/vol/mnt_errors"
    for path, status in ((b"/none", "NOENT"), (b"", "NOENT"), (b"/", "NOENT"), (b"/vol/none", "NOENT"),
                         (here + b"/file", "NOTDIR"), (here + b"/file/x", "NOTDIR"), (here + b"/link", "NOTDIR"),
                         (b"/vol/" + b"n" * 1020, "NAMETOOLONG"), (b"/vol/" + b"n" * 256, "NAMETOOLONG"),
                         (b"/" * 1025, "NAMETOOLONG"), (b"/closed", "ACCES"), (b"/closed/none", "ACCES")):
        eq(t.nfs.mnt(path).status, status, repr(path[:20]))


@test
def a_refused_mount_is_logged_with_its_remedy(t):
    time.sleep(1.1)  # one line a second
    eq(t.nfs.mnt(b"/closed").status, "ACCES")
    time.sleep(0.2)
    line = [x for x in t.server.stderr().split(b"\n") if b"/closed" in x][-1]
    check(b"127.0.0.1" in line and b"sluice volume set closed allow=" in line, line)
    remedy = line[line.index(b"sluice volume set"):].decode().split()
    t.server.cli(*remedy[1:])
    eq(t.nfs.mnt(b"/closed").status, "OK", "after the command that the line names")
    t.server.cli("volume", "set", "closed", "allow=192.0.2.0/24:rw,127.0.0.2/32:rw")
    eq(t.nfs.mnt(b"/closed").status, "ACCES")


@test
def dump_and_umnt(t):
    t.nfs.umntall()
    eq([m for m in t.nfs.dump() if m[0] == b"127.0.0.1"], [])
    t.nfs.mnt(b"vol//")
    t.nfs.mnt(b"/vol")
    t.nfs.mnt(b"/other")
    eq(sorted(t.nfs.dump()), [(b"127.0.0.1", b"/other"), (b"127.0.0.1", b"/vol")])
    t.nfs.umnt(b"/vol/")
    eq(t.nfs.dump(), [(b"127.0.0.1", b"/other")])
    t.nfs.umnt(b"/never")
    t.nfs.umntall()
    eq(t.nfs.dump(), [])


@test
def dump_is_bounded(t):
    for number in range(1300):
        name = b"%d" % number
        t.nfs.mkdir(t.dir, name)
        t.nfs.mnt(b"/vol/dump_is_bounded/" + name)
    mounts = t.nfs.dump()
    check(1000 <= len(mounts) < 1300, f"{len(mounts)} mounts")
    eq(mounts[-1][1], b"/vol/dump_is_bounded/1299")
    t.nfs.umntall()


@test
def export_lists_what_the_caller_may_mount(t):
    exports = dict(t.nfs.export())
    eq(sorted(exports), [b"/everyone", b"/other", b"/readonly", b"/squashed", b"/vol"])
    eq(exports[b"/readonly"], [b"127.0.0.0/8:ro"])
    with t.server.connect(source=("127.0.0.2", 0)) as second:
        check(b"/closed" in dict(second.export()), "another address sees another list")


# ---- access rules ----

@test
def rules_hold_on_every_request(t):
    with t.server.connect(source=("127.0.0.2", 0)) as second:
        fh = second.mnt(b"/closed").fh
        eq(second.getattr(fh).status, "OK")
        made = second.create(fh, b"f", GUARDED)
        check(made.status in ("OK", "EXIST"), "creating")
        file = second.lookup(fh, b"f").fh
    zero = bytes(8)
    for reply in (t.nfs.getattr(fh), t.nfs.setattr(fh, mode=0), t.nfs.lookup(fh, b"f"), t.nfs.access(fh),
                  t.nfs.readlink(fh), t.nfs.read(file, 0, 1), t.nfs.write(file, 0, b"x"), t.nfs.create(fh, b"g"),
                  t.nfs.mkdir(fh, b"g"), t.nfs.symlink(fh, b"g", b"t"), t.nfs.mknod(fh, b"g", 7),
                  t.nfs.remove(fh, b"f"), t.nfs.rmdir(fh, b"f"), t.nfs.rename(fh, b"f", fh, b"g"),
                  t.nfs.rename(t.dir, b"f", fh, b"g"), t.nfs.rename(fh, b"f", t.dir, b"g"),
                  t.nfs.link(file, t.dir, b"g"), t.nfs.link(t.dir, fh, b"g"), t.nfs.readdir(fh, 0, zero),
                  t.nfs.readdirplus(fh, 0, zero), t.nfs.fsstat(fh), t.nfs.fsinfo(fh), t.nfs.pathconf(fh),
                  t.nfs.commit(file)):
        eq(reply.status, "ACCES", repr(reply))
    eq(t.nfs.getattr(t.root).status, "OK", "the other volume is open as before")


@test
def rules_change_under_a_connection(t):
    root = t.nfs.mnt(b"/other").fh
    eq(t.nfs.getattr(root).status, "OK")
    t.server.cli("volume", "set", "other", "allow=192.0.2.1/32:rw")
    eq(t.nfs.getattr(root).status, "ACCES")
    t.server.cli("volume", "set", "other", "allow=127.0.0.1/32:ro")
    eq(t.nfs.getattr(root).status, "OK")
    eq(t.nfs.mkdir(root, b"x").status, "ROFS")
    t.server.cli("volume", "set", "other", "allow=127.0.0.0/8:rw")
    eq(t.nfs.mkdir(root, b"rules_change").status, "OK")


@test
def a_read_only_rule_allows_no_change(t):
    root = t.nfs.mnt(b"/readonly").fh
    for reply in (t.nfs.setattr(root, mode=0o777), t.nfs.create(root, b"f"), t.nfs.mkdir(root, b"d"),
                  t.nfs.symlink(root, b"s", b"t"), t.nfs.mknod(root, b"m", 7), t.nfs.remove(root, b"f"),
                  t.nfs.rmdir(root, b"f"), t.nfs.rename(root, b"f", root, b"g"), t.nfs.link(root, root, b"l")):
        eq(reply.status, "ROFS", repr(reply))
    r = t.nfs.access(root)
    check(r.access & ACCESS_READ, "reading is allowed")
    eq(r.access & 0x1c, 0, "changing is not")
    eq(t.nfs.readdir(root).status, "OK")


@test
def squashing(t):
    root = t.nfs.mnt(b"/squashed").fh
    made = t.nfs.create(root, b"by-root", mode=0o644)
    eq((made.attr.uid, made.attr.gid), (65534, 65534), "root is nobody")
    made = t.nfs.create(root, b"by-user", mode=0o644, cred=USER)
    eq((made.attr.uid, made.attr.gid), (1000, 1000))
    root = t.nfs.mnt(b"/everyone").fh
    made = t.nfs.create(root, b"by-user", mode=0o644, cred=USER)
    eq((made.attr.uid, made.attr.gid), (65534, 65534), "all are nobody")
    made = t.nfs.create(t.dir, b"by-none", mode=0o644, cred=Cred(None))
    eq((made.attr.uid, made.attr.gid), (65534, 65534), "AUTH_NONE is nobody")
    made = t.nfs.create(t.dir, b"by-root", mode=0o644, cred=ROOT)
    eq((made.attr.uid, made.attr.gid), (0, 0))


# ---- handles ----

def each_call(t, fh):
    yield t.nfs.getattr(fh)
    yield t.nfs.setattr(fh, mode=0)
    yield t.nfs.lookup(fh, b"x")
    yield t.nfs.access(fh)
    yield t.nfs.readlink(fh)
    yield t.nfs.read(fh, 0, 1)
    yield t.nfs.write(fh, 0, b"x")
    yield t.nfs.create(fh, b"x")
    yield t.nfs.mkdir(fh, b"x")
    yield t.nfs.symlink(fh, b"x", b"t")
    yield t.nfs.mknod(fh, b"x", 7)
    yield t.nfs.remove(fh, b"x")
    yield t.nfs.rmdir(fh, b"x")
    yield t.nfs.rename(fh, b"x", t.dir, b"y")
    yield t.nfs.rename(t.dir, b"x", fh, b"y")
    yield t.nfs.link(fh, t.dir, b"x")
    yield t.nfs.link(t.dir, fh, b"x")
    yield t.nfs.readdir(fh)
    yield t.nfs.readdirplus(fh)
    yield t.nfs.fsstat(fh)
    yield t.nfs.fsinfo(fh)
    yield t.nfs.pathconf(fh)
    yield t.nfs.commit(fh)


@test
def forged_handles_are_badhandle(t):
    for fh in (b"", b"x", t.root[:31], t.root + b"\0", bytes(32), b"\xff" * 32, b"\xff" * 64):
        for reply in each_call(t, fh):
            eq(reply.status, "BADHANDLE", repr(reply))
    for at in range(32):
        for bit in (1, 0x80):
            fh = bytearray(t.root)
            fh[at] ^= bit
            eq(t.nfs.getattr(bytes(fh)).status, "BADHANDLE", f"byte {at}")


@test
def handles_of_what_is_gone_are_stale(t):
    fh = t.nfs.mkdir(t.dir, b"gone").fh
    eq(t.nfs.rmdir(t.dir, b"gone").status, "OK")
    for reply in each_call(t, fh):
        eq(reply.status, "STALE", repr(reply))
    t.server.create("brief")
    root = t.nfs.mnt(b"/brief").fh
    t.server.cli("volume", "delete", "brief", "--yes")
    for reply in each_call(t, root):
        eq(reply.status, "STALE", repr(reply))
    eq(t.nfs.mnt(b"/brief").status, "NOENT")


@test
def two_volumes_are_two_file_systems(t):
    other = t.nfs.mnt(b"/other").fh
    fh = t.file()
    check(t.nfs.getattr(other).attr.fsid != t.nfs.getattr(t.root).attr.fsid, "fsids differ")
    eq(t.nfs.rename(t.dir, b"file", other, b"x").status, "XDEV")
    eq(t.nfs.link(fh, other, b"x").status, "XDEV")


@test
def handles_outlive_renames_and_restarts(t):
    fh = t.file(data=b"still here")
    t.server.create("old-name")
    root = t.nfs.mnt(b"/old-name").fh
    t.server.cli("volume", "set", "old-name", "name=new-name", check=False)
    t.server.cli("volume", "rename", "old-name", "new-name", check=False)
    eq(t.nfs.mnt(b"/new-name").fh, root)
    verifier = t.nfs.commit(fh).verifier
    cookie = t.nfs.readdir(t.dir).entries[-1].cookie
    for stop in (t.server.stop, t.server.kill):
        t.nfs.close()
        eq(stop(), None, "stopping")
        t.server.start()
        t.nfs = t.server.connect()
        eq(t.nfs.read(fh, 0, 100).data, b"still here")
        eq(t.nfs.getattr(root).status, "OK")
        eq(t.nfs.commit(fh).verifier, verifier, "the write verifier stays")
        eq(t.nfs.readdir(t.dir).entries[-1].cookie, cookie, "cookies stay")
    check(struct.unpack(">B", fh[:1])[0] == 1, "the format byte")


if __name__ == "__main__":
    run(prepare=prepare)
