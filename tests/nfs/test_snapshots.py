#!/usr/bin/env python3
"""Snapshots, clones and restores as an NFSv3 client sees them."""
import json
import os
import random
import threading
import time

import harness
from harness import check, eq, test
from rawrpc import GUARDED


class Tree:
    """A volume of its own for one test."""

    count = 0

    def __init__(self, c, **options):
        Tree.count += 1
        self.name = f"snap{Tree.count}"
        self.server, self.nfs = c.server, c.nfs
        c.server.create(self.name, **options)
        self.root = c.nfs.mnt(b"/" + self.name.encode()).fh

    def snapshot(self, name):
        self.server.cli("snapshot", "create", f"{self.name}@{name}")

    def mnt(self, name):
        reply = self.nfs.mnt(f"/{self.name}@{name}".encode())
        eq(reply.status, "OK", f"MNT of {name}")
        return reply.fh

    def put(self, name, data, where=None):
        """Makes or overwrites a file."""
        where = where or self.root
        found = self.nfs.lookup(where, name)
        fh = found.fh if found.ok else self.nfs.create(where, name, GUARDED, mode=0o644).fh
        eq(self.nfs.setattr(fh, size=0).status, "OK", "truncate")
        for at in range(0, len(data), 1 << 20):
            eq(self.nfs.write(fh, at, data[at:at + (1 << 20)]).status, "OK", "write")
        return fh

    def get(self, name, where=None):
        found = self.nfs.lookup(where or self.root, name)
        if not found.ok:
            return found.status
        data = b""
        while True:
            r = self.nfs.read(found.fh, len(data), 1 << 20)
            eq(r.status, "OK", "read")
            data += r.data
            if r.eof:
                return data


def names(nfs, fh, plus=False):
    return sorted(entry.name for entry in nfs.listing(fh, plus))


@test
def a_snapshot_stays_as_it_was(c):
    t = Tree(c)
    big = bytes(range(256)) * 2400  # more than two chunks
    t.put(b"small", b"one")
    t.put(b"big", big)
    t.put(b"gone", b"soon gone")
    t.put(b"moved", b"moves")
    t.snapshot("one")
    before = {n: t.nfs.lookup(t.root, n).attr for n in (b"small", b"big", b"gone", b"moved")}
    t.put(b"small", b"two, and longer")
    fh = t.nfs.lookup(t.root, b"big").fh
    t.nfs.write(fh, 5000, b"changed in the middle of a block")
    t.nfs.write(fh, len(big) - 10, b"longer than it was before")
    t.nfs.remove(t.root, b"gone")
    t.nfs.rename(t.root, b"moved", t.root, b"elsewhere")
    t.put(b"new", b"not there yet")
    old = t.mnt("one")
    eq(names(t.nfs, old), [b".", b"..", b"big", b"gone", b"moved", b"small"])
    eq(t.get(b"small", old), b"one")
    eq(t.get(b"big", old), big)
    eq(t.get(b"gone", old), b"soon gone")
    eq(t.get(b"moved", old), b"moves")
    eq(t.get(b"new", old), "NOENT")
    for name, was in before.items():
        now = t.nfs.lookup(old, name).attr
        for field in ("mode", "nlink", "uid", "gid", "size", "used", "mtime", "ctime"):
            eq(getattr(now, field), getattr(was, field), f"{field} of {name}")
        check(now.fsid != was.fsid and now.fileid != was.fileid, "a snapshot's objects are other objects")
    eq(t.get(b"small"), b"two, and longer")
    eq(t.get(b"big")[5000:5008], b"changed ")


@test
def nothing_in_a_snapshot_can_be_changed(c):
    t = Tree(c)
    t.put(b"file", b"data")
    t.snapshot("one")
    old = t.mnt("one")
    fh = t.nfs.lookup(old, b"file").fh
    eq(t.nfs.write(fh, 0, b"x").status, "ROFS")
    eq(t.nfs.setattr(fh, mode=0o600).status, "ROFS")
    eq(t.nfs.setattr(fh, size=0).status, "ROFS")
    eq(t.nfs.create(old, b"new", GUARDED).status, "ROFS")
    eq(t.nfs.mkdir(old, b"new").status, "ROFS")
    eq(t.nfs.symlink(old, b"new", b"x").status, "ROFS")
    eq(t.nfs.remove(old, b"file").status, "ROFS")
    eq(t.nfs.rename(old, b"file", old, b"other").status, "ROFS")
    eq(t.nfs.link(fh, old, b"other").status, "ROFS")
    access = t.nfs.access(old).access
    eq(access & (4 | 8 | 16), 0, "ACCESS grants no change")
    check(access & 3 == 3, "and grants reading")


@test
def dot_snapshot_leads_into_each_snapshot(c):
    t = Tree(c)
    sub = t.nfs.mkdir(t.root, b"sub").fh
    t.snapshot("early")
    deep = t.nfs.mkdir(sub, b"deep").fh
    t.put(b"file", b"first", deep)
    t.snapshot("later")
    t.put(b"file", b"second", deep)
    for directory, want in ((t.root, [b"early", b"later"]), (sub, [b"early", b"later"]), (deep, [b"later"])):
        found = t.nfs.lookup(directory, b".snapshot")
        eq(found.status, "OK")
        for plus in (False, True):
            eq(names(t.nfs, found.fh, plus), sorted([b".", b".."] + want))
        check(b".snapshot" not in names(t.nfs, directory), "it is not listed")
    snapshots = t.nfs.lookup(deep, b".snapshot").fh
    eq(t.nfs.lookup(snapshots, b"early").status, "NOENT")
    past = t.nfs.lookup(snapshots, b"later").fh
    eq(t.get(b"file", past), b"first")
    eq(t.nfs.lookup(past, b".snapshot").status, "NOENT")
    eq(t.nfs.lookup(t.mnt("later"), b".snapshot").status, "NOENT")
    up = t.nfs.lookup(past, b"..")
    eq(up.fh, snapshots)
    eq(t.nfs.lookup(snapshots, b"..").fh, deep)
    eq(t.nfs.mkdir(t.root, b".snapshot").status, "EXIST")
    eq(t.nfs.mnt(f"/{t.name}/sub/.snapshot/later/deep".encode()).status, "OK")
    fsid = lambda fh: t.nfs.getattr(fh).attr.fsid
    eq(fsid(snapshots), fsid(t.root), "fsid of .snapshot")
    check(fsid(past) != fsid(t.root), "the fsid changes at .snapshot/NAME")
    eq(t.nfs.rmdir(deep, b".snapshot").status, "ROFS")
    t.nfs.remove(deep, b"file")
    eq(t.nfs.rmdir(sub, b"deep").status, "OK", "what is not listed does not count")


@test
def it_is_listed_in_the_root_where_the_volume_shows_it(c):
    t = Tree(c)
    for i in range(300):
        t.nfs.create(t.root, b"f%d" % i, GUARDED)
    sub = t.nfs.mkdir(t.root, b"sub").fh
    t.server.cli("volume", "set", t.name, "show-snapshots=yes")
    for plus in (False, True):
        for size in (512, 4096, 1 << 20):
            counts = {"maxcount": size} if plus else {"count": size}
            got = [e.name for e in t.nfs.listing(t.root, plus, **counts)]
            eq(len(got), 304, f"names in pieces of {size}")
            eq(len(set(got)), 304)
            check(b".snapshot" in got, "it is listed")
    check(b".snapshot" not in names(t.nfs, sub), "only in the root")
    t.server.cli("volume", "set", t.name, "show-snapshots=no")
    check(b".snapshot" not in names(t.nfs, t.root), "and no more")


@test
def the_list_of_snapshots_moves_its_times(c):
    t = Tree(c)
    fh = t.nfs.lookup(t.root, b".snapshot").fh
    times = lambda: t.nfs.getattr(fh).attr.mtime
    seen = [times()]
    for act in (("create", f"{t.name}@a"), ("rename", f"{t.name}@a", "b"), ("delete", f"{t.name}@b")):
        time.sleep(0.01)
        t.server.cli("snapshot", *act)
        seen.append(times())
    eq(seen, sorted(set(seen)), "mtimes of .snapshot")


@test
def a_deleted_snapshot_is_stale(c):
    t = Tree(c)
    t.put(b"file", b"x" * 10000)
    t.snapshot("one")
    fh = t.nfs.lookup(t.mnt("one"), b"file").fh
    t.server.cli("snapshot", "delete", f"{t.name}@one")
    eq(t.nfs.read(fh, 0, 10).status, "STALE")
    eq(t.nfs.mnt(f"/{t.name}@one".encode()).status, "NOENT")
    eq(t.get(b"file"), b"x" * 10000)


@test
def a_clone_shares_and_goes_its_own_way(c):
    t = Tree(c)
    data = bytes(range(256)) * 2000
    t.put(b"file", data)
    t.put(b"other", b"other")
    t.snapshot("one")
    t.server.cli("clone", "create", f"{t.name}@one", f"{t.name}.ro")
    t.server.cli("clone", "create", f"{t.name}@one", f"{t.name}.rw", "--writable")
    ro = t.nfs.mnt(f"/{t.name}.ro".encode()).fh
    rw = t.nfs.mnt(f"/{t.name}.rw".encode()).fh
    eq(t.get(b"file", ro), data)
    eq(t.nfs.create(ro, b"new", GUARDED).status, "ROFS")
    t.server.cli("volume", "set", f"{t.name}.ro", "writable=yes")
    eq(t.nfs.create(ro, b"new", GUARDED).status, "OK")
    fh = t.nfs.lookup(rw, b"file").fh
    t.nfs.write(fh, 3, b"XYZ")
    t.nfs.remove(rw, b"other")
    eq(t.get(b"file", rw), data[:3] + b"XYZ" + data[6:])
    eq(t.get(b"file"), data)
    eq(t.get(b"other"), b"other")
    eq(t.get(b"file", t.mnt("one")), data)
    t.server.cli("snapshot", "create", f"{t.name}.rw@two")
    t.server.cli("clone", "create", f"{t.name}.rw@two", f"{t.name}.rw2", "--writable")
    t.server.cli("snapshot", "delete", f"{t.name}@one")
    t.server.cli("volume", "delete", t.name, "--yes", "--now")
    t.server.cli("settle")
    second = t.nfs.mnt(f"/{t.name}.rw2".encode()).fh
    eq(t.get(b"file", second), data[:3] + b"XYZ" + data[6:], "a clone lives on without its origin")
    eq(t.get(b"file", ro), data)


def blocks_split(server):
    return json.loads(server.cli("--json", "metrics"))["metrics"]["blocks_split"]["value"]


@test
def a_clone_that_is_split_has_data_of_its_own(c):
    t = Tree(c)
    data = random.randbytes(20 << 20)
    t.put(b"big", data)
    sub = t.nfs.mkdir(t.root, b"sub").fh
    for i in range(20):
        t.put(b"f%d" % i, b"%d" % i * 5000, sub)
    t.snapshot("one")
    name = f"{t.name}.split"
    c.server.cli("clone", "create", f"{t.name}@one", name, "--writable")
    clone = t.nfs.mnt(b"/" + name.encode()).fh
    fh = t.nfs.lookup(clone, b"big").fh
    t.nfs.write(fh, 300000, b"changed in the clone")
    data = data[:300000] + b"changed in the clone" + data[300020:]
    before = t.nfs.getattr(fh).attr
    check(b"no clone" in c.server.cli("clone", "split", t.name, check=False), "a volume that is no clone")
    check(b"not being split" in c.server.cli("clone", "split", name, "--pause", check=False), "nothing to pause")
    c.server.cli("clone", "split", name, "--background")
    c.server.cli("clone", "split", name, "--pause")
    time.sleep(0.1)
    paused = blocks_split(c.server)
    time.sleep(0.5)
    eq(blocks_split(c.server), paused, "blocks copied while it is paused")
    eq(json.loads(c.server.cli("--json", "volume", "show", name))["volume"]["split"], "paused")
    c.server.kill()
    c.server.start()
    c.nfs.close()
    c.nfs = t.nfs = c.server.connect()
    eq(c.server.cli("clone", "split", name), b"done\n")
    copied = blocks_split(c.server) + paused
    check(copied >= (20 << 8) - 1, f"{copied} blocks were copied")
    eq(c.server.cli("clone", "split", name), b"done\n")
    eq(blocks_split(c.server) + paused, copied, "once more finds nothing to do")
    eq(t.get(b"big", clone), data)
    after = t.nfs.getattr(fh).attr
    for field in ("size", "used", "mtime", "ctime"):
        eq(getattr(after, field), getattr(before, field), field)
    c.server.cli("snapshot", "delete", f"{t.name}@one")
    c.server.cli("volume", "delete", t.name, "--yes", "--now")
    c.server.cli("settle")
    eq(t.get(b"big", clone), data)
    eq(t.get(b"f7", t.nfs.lookup(clone, b"sub").fh), b"7" * 5000)


@test
def a_restore_goes_back_and_keeps_what_was(c):
    t = Tree(c)
    t.put(b"kept", b"old")
    gone = t.put(b"back", b"comes back")
    t.snapshot("good")
    t.put(b"kept", b"new")
    t.nfs.remove(t.root, b"back")
    late = t.put(b"late", b"not in the snapshot")
    changed = t.nfs.getattr(t.root).attr.ctime
    kept = t.nfs.lookup(t.root, b"kept")
    told = t.server.cli("restore", f"{t.name}@good").decode()
    eq(t.get(b"kept"), b"old")
    eq(t.get(b"back"), b"comes back")
    eq(t.get(b"late"), "NOENT")
    eq(t.nfs.getattr(late).status, "STALE")
    eq(t.nfs.getattr(gone).status, "OK")
    eq(t.nfs.getattr(kept.fh).status, "OK", "a mounted client goes on")
    check(t.nfs.getattr(t.root).attr.ctime > changed, "ctime tells caches to look again")
    check(t.nfs.getattr(kept.fh).attr.ctime > kept.attr.ctime, "also of files")
    safety = told.split()[-1]
    eq(t.get(b"late", t.mnt(safety)), b"not in the snapshot")
    eq(t.put(b"after", b"it can be written") is not None, True)
    t.server.cli("restore", f"{t.name}@{safety}", "--no-safety")
    eq(t.get(b"kept"), b"new")
    eq(t.get(b"after"), "NOENT")


@test
def several_volumes_are_taken_at_one_instant(c):
    """A writer goes back and forth between two volumes: the one may be at most one record ahead."""
    a, b = Tree(c), Tree(c)
    nfs = c.server.connect()
    fa, fb = a.put(b"log", b""), b.put(b"log", b"")
    stop, written = threading.Event(), [0]

    def write():
        while not stop.is_set():
            for fh in (fa, fb):
                nfs.write(fh, written[0] * 8, b"%08d" % written[0])
            written[0] += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for i in range(50):
            before = written[0]
            c.server.cli("snapshot", "create", f"{a.name},{b.name}@s{i}")
            after = written[0]
            la, lb = (len(t.get(b"log", t.mnt(f"s{i}"))) // 8 for t in (a, b))
            check(lb <= la <= lb + 1, f"{la} and {lb} records")
            check(before <= la <= after + 1, f"{la} records, {before} before and {after} after")
    finally:
        stop.set()
        writer.join()
        nfs.close()


@test
def everything_outlives_a_restart(c):
    t = Tree(c)
    t.put(b"file", b"one" * 5000)
    t.snapshot("one")
    t.put(b"file", b"two" * 5000)
    t.server.cli("clone", "create", f"{t.name}@one", f"{t.name}.c", "--writable")
    old = t.nfs.lookup(t.mnt("one"), b"file").fh
    past = t.nfs.lookup(t.nfs.lookup(t.root, b".snapshot").fh, b"one").fh
    c.nfs.close()
    c.server.kill()
    c.server.start()
    c.nfs = t.nfs = c.server.connect()
    eq(t.nfs.read(old, 0, 6).data, b"oneone")
    eq(t.get(b"file", past), b"one" * 5000)
    eq(t.get(b"file"), b"two" * 5000)
    eq(t.get(b"file", t.nfs.mnt(f"/{t.name}.c".encode()).fh), b"one" * 5000)


@test
def space_comes_back_when_all_is_deleted(c):
    t = Tree(c)
    for i in range(4):
        t.put(b"file", bytes([i]) * (4 << 20))
        t.snapshot(f"s{i}")
    t.server.cli("clone", "create", f"{t.name}@s1", f"{t.name}.c")
    used = lambda: c.server.cli("metrics").decode()
    for what in (("snapshot", "delete", f"{t.name}@*"), ("volume", "delete", t.name, "--yes", "--now"),
                 ("volume", "delete", f"{t.name}.c", "--yes", "--now")):
        c.server.cli(*what)
    c.server.cli("settle")
    eq(t.nfs.getattr(t.root).status, "STALE")
    check("blocks_freed" in used(), "metrics")


if __name__ == "__main__":
    harness.run("--cache", "64Mi")
