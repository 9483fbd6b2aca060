#!/usr/bin/env python3
"""test_random_versions.py [--operations N] [--seed S] [--ram]: random operations on volumes, snapshots and clones
against models in memory.

Operations on files of several volumes, and COPY and CLONE of ranges between any of them, go on between snapshots (of one volume or several, some while the files are
being changed), clones, changes of clones, restores, deletions in any order (volumes at once, or kept and taken back),
and restarts (SIGTERM or kill -9).  Every version is compared as a whole, again and again: names, contents, links and
attributes.  At the end everything is deleted, and nothing of it may be left in the pool.
"""
import argparse
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import time
import traceback

import client41
import harness
from model import Model
from test_random_model import Chooser, Client, attributes, brief, same, tell

VOLUMES, SNAPSHOTS, CROWD = 6, 24, 25  # so many at most; files of a volume, about
LEFT = 9 << 20  # bytes that a pool without volumes may hold on to: an open segment that hardly anything was written to


class Snapshot:
    def __init__(self, name, number, model, handles, shown):
        self.name, self.number, self.model = name, number, model
        self.handles, self.shown = handles, shown  # of its files in the volume, and their attributes then
        self.root = None


class Volume:
    def __init__(self, name, model, writable=True):
        self.name, self.model, self.writable = name, model, writable
        self.handles, self.seen, self.snapshots = {}, {}, {}
        self.restored = None  # the earliest ctime that anything may show


def lasting(attr):
    """What of the attributes a snapshot keeps, and what moves the ctime when it changes."""
    return (attr.type, attr.mode, attr.uid, attr.gid, attr.size, attr.nlink, attr.mtime, attr.rdev)


class Walk:
    """Compares a tree with a model; finds handles and attributes by number."""

    def __init__(self, nfs, root, model, rng):
        self.nfs, self.model, self.rng = nfs, model, rng
        self.handles, self.attrs = {0: root}, {}

    def run(self):
        todo = [0]
        self.attrs[0] = self.getattr(0)
        while todo:
            number = todo.pop()
            self.directory(number)
            todo += [n for n in self.model.nodes[number].children.values() if self.model.nodes[n].kind == "dir"]
        for number, node in self.model.nodes.items():
            self.node(number, node)

    def getattr(self, number):
        reply = self.nfs.getattr(self.handles[number])
        harness.eq(reply.status, "OK", f"GETATTR of {number}")
        return reply.attr

    def directory(self, number):
        children, entries = self.model.nodes[number].children, {}
        for entry in self.nfs.listing(self.handles[number], True, maxcount=self.rng.choice((1024, 65536))):
            harness.check(entry.name not in entries, f"{entry.name} is listed twice")
            entries[entry.name] = entry
        harness.eq(sorted(entries), sorted([b".", b"..", *children]), f"names in {number}")
        for name, child in children.items():
            entry = entries[name]
            if entry.fh is None or entry.attr is None or self.rng.random() < .1:
                found = self.nfs.lookup(self.handles[number], name)
                harness.eq(found.status, "OK", f"LOOKUP of {name} in {number}")
                entry.fh, entry.attr = found.fh, found.attr
            harness.eq(self.handles.setdefault(child, entry.fh), entry.fh, f"the handle of {child}")
            self.attrs[child] = entry.attr
            harness.eq(entry.fileid, entry.attr.fileid, "fileids of an entry and of the file")

    def node(self, number, node):
        harness.check(number in self.handles, f"{number} is nowhere")
        got, want = attributes(self.attrs[number]), node.attributes()
        if want[1] is None:
            got, want = got[:1] + got[2:], want[:1] + want[2:]
        harness.eq(got, want, f"attributes of {number}")
        if node.kind == "lnk":
            harness.eq(self.nfs.readlink(self.handles[number]).target, node.target, f"target of {number}")
        elif node.kind == "reg":
            spots = {p * 4096 & ~0x3ffff for p in node.data.pages} | {max(0, node.data.size - 5000)}
            for at in sorted(spots):
                reply = self.nfs.read(self.handles[number], at, 1 << 18)
                harness.eq(reply.status, "OK", f"READ of {number}")
                if reply.data != node.data.read(at, 1 << 18):
                    raise AssertionError(f"contents of {number} from {at}: {difference(reply.data, node.data, at)}")


def difference(got, data, at):
    want = data.read(at, 1 << 18)
    bad = next((i for i in range(min(len(got), len(want))) if got[i] != want[i]), min(len(got), len(want)))
    return f"{len(got)} bytes, want {len(want)}; first at {at + bad}: {got[bad:bad + 8]!r}, want {want[bad:bad + 8]!r}"


class Run:
    def __init__(self, args):
        self.rng, self.args = random.Random(args.seed), args
        self.server = harness.Server("--cache", "64Mi", "--segment-size", "8Mi", "--nfs-versions", "3, 4",
                                     base="/dev/shm" if args.ram else None)
        self.volumes, self.kept = [], []
        self.count = self.done = self.compared = self.checks = 0
        self.pool = concurrent.futures.ThreadPoolExecutor(2)
        self.chooser = Chooser(self.rng, None, None, CROWD)
        self.history, self.acts = [], {}

    # ---- what is there ----

    def name(self, what):
        self.count += 1
        return f"{what}{self.count}"

    def cli(self, *words):
        self.history.append(([("sluice",) + words], [""]))
        return self.server.cli(*words).decode()

    def connect(self):
        self.connections = [self.server.connect() for _ in range(2)]
        self.nfs = self.connections[0]
        self.sharer = client41.Sharer(self.server.port, b"versions")

    def hang_up(self):
        self.sharer.close()
        for nfs in self.connections:
            nfs.close()

    def mnt(self, path):
        reply = self.nfs.mnt(path.encode())
        harness.eq(reply.status, "OK", f"MNT {path}")
        return reply.fh

    def snapshots(self):
        return [(v, s) for v in self.volumes for s in v.snapshots.values()]

    def a_snapshot(self):
        there = self.snapshots()
        return self.rng.choice(there) if there else (None, None)

    def new_volume(self):
        v = Volume(self.name("v"), Model())
        self.server.create(v.name)
        v.handles[0] = self.mnt("/" + v.name)
        v.model.nodes[0].mode = None
        self.volumes.append(v)

    # ---- comparing ----

    def walk(self, root, model):
        walk = Walk(self.nfs, root, model, self.rng)
        walk.run()
        self.compared += 1
        return walk

    def compare_volume(self, v):
        walk = self.walk(self.mnt("/" + v.name), v.model)
        for number, fh in walk.handles.items():
            harness.eq(v.handles.setdefault(number, fh), fh, f"the handle of {number} in {v.name}")
        for number, attr in walk.attrs.items():
            old = v.seen.get(number)
            if old:
                harness.check(attr.ctime >= old.ctime, f"{v.name}: the ctime of {number} went back: {old} {attr}")
                harness.check(attr.ctime > old.ctime or lasting(attr) == lasting(old),
                              f"{v.name}: {number} changed and its ctime did not: {old} {attr}")
            v.seen[number] = attr
            harness.check(not v.restored or attr.ctime >= v.restored,
                          f"{v.name}: {number} is older than the restore, {v.restored}: {attr}")
        return walk

    def compare_snapshot(self, v, s):
        path = f"/{v.name}@{s.name}"
        if self.rng.random() < .5:
            root = self.mnt(path)
        else:
            found = self.nfs.lookup(v.handles[0], b".snapshot")
            harness.eq(found.status, "OK", ".snapshot")
            found = self.nfs.lookup(found.fh, s.name.encode())
            harness.eq(found.status, "OK", path)
            root = found.fh
        s.root = root
        self.like(self.walk(root, s.model), s.shown, path, True)

    def like(self, walk, shown, what, whole):
        """The attributes are those that are known."""
        for number, attr in shown.items():
            got = walk.attrs[number]
            harness.eq(lasting(got), lasting(attr), f"attributes of {number} in {what}")
            if whole:
                harness.eq(got.ctime, attr.ctime, f"ctime of {number} in {what}")

    def compare_all(self):
        for v in self.volumes:
            self.compare_volume(v)
        for v, s in self.snapshots():
            self.compare_snapshot(v, s)

    # ---- operations on files ----

    def file_operation(self, v):
        self.chooser.model, self.chooser.handles = v.model, v.handles
        if self.rng.random() < .03:
            return self.own(v)
        op = self.chooser.op()
        if not v.writable:
            return self.refused(v, op)
        allowed, results = v.model.apply(op)
        reply = Client(self.rng.choice(self.connections), v.handles).run(op)
        self.told(v, op, allowed, results, reply)

    def told(self, v, op, allowed, results, reply):
        status, got, handle = reply
        self.history.append(([(v.name, *brief(op))], [status]))
        if not same(op, allowed, results, status, got):
            raise AssertionError(f"{v.name}: {brief(op)}: {status} {brief(got)}, must be {allowed} {brief(results)}")
        if status == "OK" and op[0] in ("create", "mkdir", "mkfifo", "symlink") and op[3] in v.model.nodes:
            v.handles[op[3]] = handle

    def own(self, v):
        number = self.chooser.number()
        if not v.writable or number not in v.model.nodes:
            return
        what = self.rng.choice(({"uid": self.rng.randrange(3000), "gid": self.rng.randrange(3000)},
                                {"mtime": (self.rng.randrange(1 << 31), self.rng.randrange(10**9))}))
        reply = self.nfs.setattr(v.handles[number], **what)
        self.history.append(([(v.name, "own", number, what)], [reply.status]))
        harness.eq(reply.status, "OK", "SETATTR")
        for field, value in what.items():
            harness.eq(getattr(reply.wcc.after, field), value, field)
        if v.model.nodes[number].mode is not None and "uid" in what:
            v.model.nodes[number].mode = reply.wcc.after.mode  # chown may take set-id bits

    def share(self, v):
        """COPY or CLONE into a file of v, from it, another volume or a snapshot."""
        rng, snapshot = self.rng, self.a_snapshot()[1]
        if snapshot and snapshot.root and rng.random() < .2:
            walk = Walk(self.nfs, snapshot.root, snapshot.model, rng)
            walk.run()
            model, handles = snapshot.model, walk.handles
        else:
            other = v if rng.random() < .6 else rng.choice(self.volumes)
            model, handles = other.model, other.handles
        files = [n for n, node in model.nodes.items() if node.kind == "reg" and node.data.size]
        targets = [n for n, node in v.model.nodes.items() if node.kind == "reg"]
        if not files or not targets or not v.writable:
            return
        source, target = rng.choice(files), rng.choice(targets)
        op, unit = rng.choice(((client41.clone, 4096), (client41.clone, 4096), (client41.copy, 4096), (client41.copy, 1)))
        size = model.nodes[source].data.size
        a = rng.choice((0, 0, rng.randrange(min(size, 1 << 20)))) // unit * unit
        b = rng.choice((0, a, rng.randrange(1 << 20))) // unit * unit
        length = min(size - a, rng.choice((1 << 21, rng.randrange(1 << 20) // unit * unit)))
        if op is client41.clone and a + length < size:
            length = length // unit * unit
        overlap = model is v.model and source == target and a < b + length and b < a + length
        if length <= 0 or overlap:
            return
        status = self.sharer.run(op, handles[source], v.handles[target], a, b, length)
        self.history.append(([(v.name, op.__name__, source, target, a, b, length)], [status]))
        harness.eq(status, "OK", op.__name__)
        v.model.nodes[target].data.share(model.nodes[source].data, a, b, length, op is client41.clone)
        self.acts[op.__name__ + "_range"] = self.acts.get(op.__name__ + "_range", 0) + 1

    def refused(self, v, op):
        """A clone that is not writable answers everything that would change it with ROFS."""
        allowed, results = v.model.clone().apply(op)
        status, got, _ = Client(self.nfs, v.handles).run(op)
        if op[0] in ("getattr", "lookup", "read", "readlink", "readdir", "readdirplus"):
            fine = same(op, allowed, results, status, got)
        else:
            fine = status == "ROFS" or status != "OK" and status in allowed
        if not fine:
            raise AssertionError(f"{v.name} (read-only): {brief(op)}: {status}")

    # ---- snapshots ----

    def shown(self, v):
        """The attributes of everything in a volume, which a snapshot of it must keep."""
        return {n: v.seen[n] for n in v.model.nodes if n in v.seen}

    def look(self, v):
        for number in v.model.nodes:
            reply = self.nfs.getattr(v.handles[number])
            harness.eq(reply.status, "OK", "GETATTR")
            v.seen[number] = reply.attr

    def note(self, v, name, number=None):
        s = Snapshot(name, number, v.model.clone(), dict(v.handles), self.shown(v))
        v.snapshots[name] = s
        return s

    def act_snapshot(self):
        some = self.rng.sample(self.volumes, self.rng.choice((1, 1, 1, min(3, len(self.volumes)))))
        name = self.name("s")
        for v in some:
            self.look(v)
        self.cli("snapshot", "create", ",".join(v.name for v in some) + "@" + name)
        for v in some:
            self.note(v, name)

    def act_snapshot_at_once(self):
        """While two volumes are being changed: each change is in the snapshot or not."""
        writable = [v for v in self.volumes if v.writable]
        if len(writable) < 2:
            return
        two, name, ops, before, results = self.rng.sample(writable, 2), self.name("s"), [], [], []
        for v in two:
            self.chooser.model, self.chooser.handles = v.model, v.handles
            ops.append(self.chooser.op())
            before.append((v.model.clone(), dict(v.handles)))
            results.append(v.model.apply(ops[-1]))
        replies = [self.pool.submit(Client(nfs, v.handles).run, op)
                   for nfs, v, op in zip(self.connections, two, ops)]
        time.sleep(self.rng.random() * .004)
        self.cli("snapshot", "create", f"{two[0].name},{two[1].name}@{name}")
        for v, op, (model, handles), result, reply in zip(two, ops, before, results, replies):
            self.told(v, op, *result, reply.result())
            root = self.mnt(f"/{v.name}@{name}")
            try:
                self.walk(root, v.model)
                s = Snapshot(name, None, v.model.clone(), dict(v.handles), {})
            except AssertionError as with_op:
                try:
                    self.walk(root, model)
                except AssertionError as without:
                    raise AssertionError(f"{name} is neither with {brief(op)} ({with_op}) nor without ({without})")
                s = Snapshot(name, None, model, handles, {})
            v.snapshots[name] = s

    def act_delete_snapshots(self):
        v, s = self.a_snapshot()
        if not s:
            return
        some = [s] if self.rng.random() < .7 else self.rng.sample(
            list(v.snapshots.values()), self.rng.randrange(1, len(v.snapshots) + 1))
        self.cli("snapshot", "delete", *(f"{v.name}@{s.name}" for s in some))
        for s in some:
            del v.snapshots[s.name]
            if s.root:
                harness.eq(self.nfs.getattr(s.root).status, "STALE", "the root of a deleted snapshot")

    def act_rename(self):
        v, s = self.a_snapshot()
        if self.rng.random() < .5 and s:
            del v.snapshots[s.name]
            old, s.name = s.name, self.name("s")
            self.cli("snapshot", "rename", f"{v.name}@{old}", s.name)
            v.snapshots[s.name] = s
        else:
            v = self.rng.choice(self.volumes)
            old, v.name = v.name, self.name("v")
            self.cli("volume", "rename", old, v.name)

    # ---- clones and restores ----

    def act_clone(self):
        v, s = self.a_snapshot()
        if not s or len(self.volumes) >= VOLUMES:
            return
        clone = Volume(self.name("v"), s.model.clone(), self.rng.random() < .85)
        self.cli("clone", "create", f"{v.name}@{s.name}", clone.name, *(["--writable"] if clone.writable else []))
        walk = self.compare_volume(clone)
        self.like(walk, s.shown, clone.name, False)
        self.volumes.append(clone)

    def act_writable(self):
        for v in self.volumes:
            if not v.writable and self.rng.random() < .3:
                self.cli("volume", "set", v.name, "writable=yes")
                v.writable = True

    def act_restore(self):
        v, s = self.a_snapshot()
        if not s:
            return
        self.look(v)
        told = self.cli("restore", f"{v.name}@{s.name}", *(["--no-safety"] if self.rng.random() < .5 else []))
        if told:
            self.note(v, told.split()[-1])
        v.model = s.model.clone()
        latest = max(attr.ctime for attr in v.seen.values())
        walk = self.compare_volume(v)
        self.like(walk, s.shown, f"{v.name} restored", False)
        v.restored = min(attr.ctime for attr in walk.attrs.values())
        harness.check(v.restored >= latest, "a restored file shows an older ctime than what was there before")
        for number, fh in s.handles.items():
            if number in v.model.nodes:
                harness.eq(v.handles[number], fh, f"the handle of {number} after the restore")

    # ---- volumes ----

    def act_delete_volume(self):
        v = self.rng.choice(self.volumes)
        now = self.rng.random() < .6
        self.cli("volume", "delete", v.name, "--yes", *(["--now"] if now else []))
        self.volumes.remove(v)
        harness.eq(self.nfs.getattr(v.handles[0]).status, "STALE", "the root of a deleted volume")
        if not now:
            self.kept.append(v)
        if not self.volumes:
            self.new_volume()

    def act_undelete(self):
        if not self.kept or len(self.volumes) >= VOLUMES:
            return
        v = self.kept.pop(self.rng.randrange(len(self.kept)))
        self.cli("volume", "undelete", v.name)
        self.volumes.append(v)
        self.compare_volume(v)

    def act_settle(self):
        self.cli("settle")
        self.pool_command("check", "--data")

    def act_restart(self):
        self.hang_up()
        killed = self.rng.random() < .5
        self.history.append(([("kill -9" if killed else "stop",)], [""]))
        problem = self.server.kill() if killed else self.server.stop()
        if problem:
            raise AssertionError(problem)
        self.server.start()
        self.connect()

    # ---- the run ----

    def pool_command(self, *words):
        """What a command on the pool answers; a finding is a failure."""
        where = [] if words[-1] == self.server.pool else ["--socket", self.server.socket]  # of a stopped server: its DIR
        done = subprocess.run([os.path.join(harness.BUILD, "sluice"), "--json", *where, "pool", *words],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
        harness.check(done.returncode == 0, f"pool {words}: {done.stdout.decode()} {done.stderr.decode()}")
        return json.loads(done.stdout.splitlines()[-1])

    def check_pool(self):
        self.pool_command("check")
        self.checks += 1

    ACTS = (("snapshot", 30), ("snapshot_at_once", 6), ("delete_snapshots", 14), ("clone", 12), ("restore", 8),
            ("delete_volume", 6), ("undelete", 5), ("rename", 4), ("writable", 4), ("settle", 2))

    def act(self):
        kind = self.rng.choices([a for a, _ in self.ACTS], [w for _, w in self.ACTS])[0]
        if len(self.snapshots()) > SNAPSHOTS:
            kind = self.rng.choice(("delete_snapshots", "delete_snapshots", "delete_volume"))
        self.acts[kind] = self.acts.get(kind, 0) + 1
        getattr(self, "act_" + kind)()

    def step(self):
        if self.rng.random() < .07:
            self.act()
        elif self.rng.random() < .07:
            self.share(self.rng.choice(self.volumes))
        else:
            self.file_operation(self.rng.choice(self.volumes))
        if self.rng.random() < .003:
            v, s = self.a_snapshot()
            self.compare_snapshot(v, s) if s else None
        if len(self.volumes) < 2 and self.rng.random() < .05:
            self.new_volume()
        for v in self.volumes:
            if len(v.handles) > 3 * CROWD:
                v.handles = {n: fh for n, fh in v.handles.items() if n in v.model.nodes or self.rng.random() < .3}

    def run(self):
        self.server.start()
        self.connect()
        for _ in range(2):
            self.new_volume()
        every = max(1, self.args.operations // (self.args.compares + 1))
        while self.done < self.args.operations:
            self.step()
            self.done += 1
            if self.done % 100 == 0:
                self.check_pool()
            if self.done % every == 0:
                self.compare_all()
                self.act_restart()
                self.compare_all()
        self.compare_all()
        self.nothing_is_left()

    def nothing_is_left(self):
        everything = [v.name for v in self.volumes]
        self.rng.shuffle(everything)
        for v in self.kept[::-1]:
            self.cli("volume", "undelete", v.name)
            everything.append(v.name)
        for name in everything:
            self.cli("volume", "delete", name, "--yes", "--now")
        self.cli("settle")
        self.check_pool()
        until = time.monotonic() + 20
        data = os.path.join(self.server.pool, "data")
        while True:
            left = sum(os.stat(os.path.join(data, name)).st_blocks * 512 for name in os.listdir(data))
            if left <= LEFT or time.monotonic() > until:
                break
            time.sleep(.2)
        print(f"# {left} bytes are left in data/")
        harness.check(left <= LEFT, f"{left} bytes are left in data/ although everything is deleted: "
                      f"{[(name, os.stat(os.path.join(data, name)).st_blocks // 8) for name in os.listdir(data)]}")
        self.hang_up()
        harness.eq(self.server.stop(), None, "the server's end")
        records = self.pool_command("check", self.server.pool)["records"]
        harness.eq(records, 0, "records that are left")
        sizes = self.pool_command("compact", self.server.pool)
        print(f"# metadata: {sizes['before']} bytes, compacted {sizes['after']}")
        harness.check(sizes["after"] <= max(sizes["before"] // 20, 256 << 10), "metadata are not free again")
        self.server.start()  # with the compacted pool


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--operations", type=int, default=4000)
    parser.add_argument("--compares", type=int, default=4)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--ram", action="store_true", help="the pool in /dev/shm")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    run, started = Run(args), time.monotonic()
    try:
        run.run()
        problem = run.server.stop()
        if problem:
            raise AssertionError(problem)
    except Exception:
        print(f"after {run.done} operations, seed {args.seed}")
        traceback.print_exc()
        for ops, statuses in run.history[-60:]:
            print("       ", *ops, "->", *statuses)
        print(run.server.stderr().decode(errors="replace")[-4000:])
        print("not ok a random history of versions matches the models\n0 passed, 1 failed")
        sys.exit(1)
    finally:
        run.server.close()
    print(f"# {', '.join(f'{n} {what}' for what, n in sorted(run.acts.items()))}; {run.compared} versions compared, "
          f"the pool checked {run.checks} times")
    print(f"ok a random history of {run.done} operations on versions matches the models "
          f"({time.monotonic() - started:.0f} s)")
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
