#!/usr/bin/env python3
"""What a volume may hold: bytes to the block and files to the one, however many write at once; df; changes under load;
snapshots apart.  SLUICE_SEED chooses the random numbers."""
import json
import os
import random
import subprocess
import tempfile
import threading
import time
import urllib.request

import harness
import rawrpc
from harness import check, eq, run, test
from rawrpc import GUARDED, UNCHECKED

SEED = int(os.environ.get("SLUICE_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
print(f"# SLUICE_SEED={SEED}", flush=True)
BLOCK, MIB = 4096, 1 << 20
WRITERS = 16


class Volume:
    """One with limits, and a connection to it."""

    count = 0

    def __init__(self, t, **limits):
        Volume.count += 1
        self.server, self.name = t.server, f"q{Volume.count}"
        t.server.create(self.name)
        if limits:
            self.set(**limits)
        self.nfs = t.server.connect()
        self.root = self.nfs.mnt(b"/" + self.name.encode()).fh

    def set(self, code=0, **settings):
        """What the command says."""
        words = [f"{key.replace('_', '-')}={value}" for key, value in settings.items()]
        done = subprocess.run([os.path.join(harness.BUILD, "sluice"), "--socket", self.server.socket, "volume", "set",
                               self.name, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60)
        eq(done.returncode, code, f"set {words}: {done.stdout.decode()}")
        return done.stdout.decode()

    def show(self):
        return json.loads(self.server.cli("--json", "volume", "show", self.name))["volume"]

    def df(self, nfs=None):
        reply = (nfs or self.nfs).fsstat(self.root)
        eq(reply.status, "OK", "FSSTAT")
        return reply

    def used(self, nfs=None):
        df = self.df(nfs)
        return df.tbytes - df.fbytes

    def files(self):
        df = self.df()
        return df.tfiles - df.ffiles

    def file(self, name, nfs=None):
        made = (nfs or self.nfs).create(self.root, name, UNCHECKED, mode=0o644)
        eq(made.status, "OK", f"CREATE {name}")
        return made.fh

    def stored(self):
        """What the attributes of its files say."""
        return sum(e.attr.used for e in self.nfs.listing(self.root, plus=True) if e.attr and e.attr.type == rawrpc.REG)

    def wait_used(self, want, why):
        """Large files go in the background."""
        until = time.monotonic() + 20
        while self.used() != want and time.monotonic() < until:
            time.sleep(0.02)
        eq(self.used(), want, why)

    def fill(self, fh, at=0, statuses=("NOSPC",)):
        """Block after block until there is no more; where that was."""
        size = 64 * BLOCK
        while size:
            reply = self.nfs.write(fh, at, bytes(size))
            if reply.status == "OK":
                at += size
            else:
                check(reply.status in statuses, reply.status)
                size = size // 2 // BLOCK * BLOCK
        return at


def together(count, function):
    problems, results = [], [None] * count

    def guard(i):
        try:
            results[i] = function(i)
        except Exception as error:
            problems.append(error)
    threads = [threading.Thread(target=guard, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return results


class Watch:
    """Looks all the time, and keeps the most that was ever used."""

    def __init__(self, volume):
        self.volume, self.most, self.looks, self.over = volume, 0, 0, False
        self.nfs = volume.server.connect()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()

    def look(self):
        while not self.over:
            self.most = max(self.most, self.volume.used(self.nfs))
            self.looks += 1

    def end(self):
        self.over = True
        self.thread.join()
        self.nfs.close()
        check(self.looks > 5, "nobody looked")
        return self.most


@test
def sixteen_writers_race_to_the_limit(t):
    limit = 24 * MIB + 3 * BLOCK
    v = Volume(t, size=limit)
    watch = Watch(v)

    def writer(i):
        """Files of its own, with holes, tails, and tiny ones; what it was told is stored."""
        rng, blocks, refused = random.Random(SEED + i), 0, 0
        with t.server.connect() as nfs:
            for n in range(10000):
                fh, at, has = v.file(b"%d.%d" % (i, n), nfs), 0, set()
                for _ in range(rng.randrange(1, 12)):
                    length = rng.choice((100, 1000, 5000, 70000, rng.randrange(1, 300000)))
                    reply = nfs.write(fh, at, rng.randbytes(length))
                    if reply.status == "OK":
                        has |= set(range(at // BLOCK, (at + length - 1) // BLOCK + 1))
                    else:
                        eq(reply.status, "NOSPC", "beyond the limit")
                        refused += 1
                    at += length + rng.choice((0, 0, 3 * BLOCK, 10 * MIB))
                blocks += len(has)
                if refused >= 20:
                    return blocks
        raise AssertionError("the limit never came")
    blocks = sum(together(WRITERS, writer))
    most = watch.end()
    check(most <= limit, f"{most} bytes were stored of {limit}")
    eq(v.used(), blocks * BLOCK, "what the writers were told is stored")
    eq(v.stored(), blocks * BLOCK, "the files' attributes")
    df = v.df()
    eq((df.tbytes, df.abytes, df.fbytes), (limit, limit - blocks * BLOCK, limit - blocks * BLOCK), "df")
    # to the block: what is left can be had, and not one more
    last = v.file(b"last")
    eq(v.fill(last), limit - blocks * BLOCK, "what was left")
    eq((v.used(), v.df().abytes), (limit, 0), "full")
    eq(v.nfs.write(last, 100 * MIB, b"x").status, "NOSPC", "one byte more")
    eq(v.nfs.write(v.file(b"tiny"), 0, b"x").status, "NOSPC", "one byte in a file of its own")
    eq(v.nfs.create(v.root, b"empty", GUARDED, mode=0o644).status, "OK", "an empty file takes no block")
    there = next(e for e in v.nfs.listing(v.root, plus=True) if e.attr.type == rawrpc.REG and e.attr.used)
    eq(v.nfs.write(there.fh, 0, b"y" * 50).status, "OK", "what is there can be overwritten")
    for entry in v.nfs.listing(v.root):
        if entry.name not in (b".", b"..", b"last"):
            eq(v.nfs.remove(v.root, entry.name).status, "OK")
    v.wait_used(limit - blocks * BLOCK, "deleting frees it")
    again = v.fill(v.file(b"again"))
    eq((again, v.used()), (blocks * BLOCK, limit), "it can be used again")


@test
def writers_of_one_sparse_file_count_its_blocks(t):
    limit = 4 * MIB
    v = Volume(t, size=limit)
    fh = v.file(b"one")

    def writer(i):
        rng, taken = random.Random(SEED + i), set()
        with t.server.connect() as nfs:
            for _ in range(150):
                block = rng.randrange(4000)
                reply = nfs.write(fh, block * BLOCK + rng.choice((0, 0, 1000)), rng.randbytes(rng.choice((BLOCK, 500))))
                check(reply.status in ("OK", "NOSPC"), reply.status)
                taken.add(reply.status)
        return taken
    watch = Watch(v)
    statuses = set().union(*together(WRITERS, writer))
    eq(statuses, {"OK", "NOSPC"}, "some were refused")
    check(watch.end() <= limit, "more than the limit")
    attr = v.nfs.getattr(fh).attr
    eq(attr.used, v.used(), "its own blocks")
    check(limit - 2 * BLOCK < attr.used <= limit, attr.used)
    eq(v.nfs.setattr(fh, size=0).status, "OK")
    v.wait_used(0, "truncated")


@test
def truncating_and_replacing_give_back(t):
    v = Volume(t, size=8 * MIB)
    fh = v.file(b"a")
    eq(v.fill(fh), 8 * MIB)
    eq(v.nfs.setattr(fh, size=3 * MIB + 100).status, "OK")
    v.wait_used(3 * MIB + BLOCK, "truncated")
    eq(v.nfs.setattr(fh, size=1 << 40).status, "OK", "a hole takes nothing")
    eq(v.used(), 3 * MIB + BLOCK)
    other = v.file(b"b")
    eq(v.fill(other), 5 * MIB - BLOCK)
    eq(v.nfs.rename(v.root, b"b", v.root, b"a").status, "OK")
    v.wait_used(5 * MIB - BLOCK, "what was replaced is gone")
    tiny = v.file(b"tiny")
    eq(v.nfs.write(tiny, 0, b"x" * 1000).status, "OK")
    eq((v.used(), v.nfs.getattr(tiny).attr.used), (5 * MIB, BLOCK), "a tiny file is a block")
    eq(v.nfs.write(tiny, 500, b"x" * 3000).status, "OK")
    eq(v.used(), 5 * MIB, "and still is when it grows to one")
    eq(v.nfs.setattr(tiny, size=0).status, "OK")
    eq(v.used(), 5 * MIB - BLOCK, "and none when it is empty")


@test
def files_are_counted_to_the_one(t):
    limit = 200
    v = Volume(t, files=limit)
    eq((v.df().tfiles, v.files()), (limit, 1), "the root is one")

    def maker(i):
        rng, mine = random.Random(SEED + i), []
        with t.server.connect() as nfs:
            for n in range(40):
                name = b"%d.%d" % (i, n)
                kind = rng.choice(("create", "mkdir", "symlink", "mknod"))
                made = (nfs.create(v.root, name, GUARDED, mode=0o644) if kind == "create" else
                        nfs.mkdir(v.root, name, mode=0o755) if kind == "mkdir" else
                        nfs.symlink(v.root, name, b"there") if kind == "symlink" else
                        nfs.mknod(v.root, name, rawrpc.FIFO, mode=0o644))
                check(made.status in ("OK", "NOSPC"), f"{kind}: {made.status}")
                if made.ok:
                    mine.append((kind, name))
        return mine
    made = sum(together(WRITERS, maker), [])
    eq(len(made), limit - 1, "all there may be")
    df = v.df()
    eq((df.tfiles, df.ffiles, df.afiles), (limit, 0, 0), "df")
    file = next(name for kind, name in made if kind == "create")
    fh = v.nfs.lookup(v.root, file).fh
    eq(v.nfs.link(fh, v.root, b"second").status, "OK", "another name is no file")
    eq(v.nfs.write(fh, 0, bytes(MIB)).status, "OK", "nor are bytes")
    eq(v.nfs.rename(v.root, b"second", v.root, b"third").status, "OK")
    eq(v.nfs.create(v.root, b"new", UNCHECKED, mode=0o644).status, "NOSPC")
    eq(v.nfs.create(v.root, file, UNCHECKED, mode=0o644).status, "OK", "one that is there can be opened")
    eq(v.nfs.remove(v.root, file).status, "OK")
    eq(v.nfs.create(v.root, b"new", UNCHECKED, mode=0o644).status, "NOSPC", "its other name is left")
    eq(v.nfs.remove(v.root, b"third").status, "OK")
    until = time.monotonic() + 20
    while v.files() == limit and time.monotonic() < until:
        time.sleep(0.02)
    eq(v.nfs.create(v.root, b"new", UNCHECKED, mode=0o644).status, "OK")
    check("holds 200 files" in v.set(code=1, files=199), "a limit below what is there")
    v.set(files=201)
    eq(v.nfs.mkdir(v.root, b"newer", mode=0o755).status, "OK", "raised")
    v.set(files="none")
    check(v.df().ffiles > 1000, "no limit any more")


@test
def the_limit_is_changed_while_sixteen_write(t):
    v = Volume(t, size=6 * MIB)
    over = threading.Event()

    def writer(i):
        """Writes and deletes, so that there is always somebody at the limit."""
        rng, refused = random.Random(SEED + i), 0
        with t.server.connect() as nfs:
            n = 0
            while not over.is_set():
                n += 1
                name = b"%d.%d" % (i, n % 7)
                fh = v.file(name, nfs)
                for at in range(rng.randrange(1, 8)):
                    reply = nfs.write(fh, at * 65536, bytes(65536))
                    check(reply.status in ("OK", "NOSPC"), reply.status)
                    refused += reply.status == "NOSPC"
                if rng.random() < 0.3:
                    eq(nfs.remove(v.root, name).status, "OK")
        return refused

    def admin():
        """Every change is refused or true at once, and stays so."""
        rng, took, refused = random.Random(SEED), 0, 0
        limit = 6 * MIB
        with t.server.connect() as nfs:
            until = time.monotonic() + 5
            while time.monotonic() < until or not (took and refused):
                wanted = v.used(nfs) + rng.randrange(-100, 300) * BLOCK
                done = subprocess.run([os.path.join(harness.BUILD, "sluice"), "--socket", t.server.socket, "volume",
                                       "set", v.name, f"size={wanted}"], capture_output=True, timeout=60)
                if done.returncode == 0:
                    limit, took = wanted, took + 1
                else:
                    check(wanted < limit and b"more than the" in done.stderr, done.stderr.decode())
                    refused += 1
                for _ in range(5):
                    df = v.df(nfs)
                    eq(df.tbytes, limit, "df knows")
                    check(df.tbytes - df.fbytes <= limit, f"{df.tbytes - df.fbytes} of {limit}")
                check(time.monotonic() < until + 20, f"{took} changes, {refused} refused")
            over.set()
        return took, refused
    results = together(WRITERS + 1, lambda i: writer(i) if i < WRITERS else admin())
    check(sum(results[:WRITERS]) > 0, "the limit was never met")
    print(f"# {results[WRITERS][0]} changes were made, {results[WRITERS][1]} refused")
    eq(v.stored(), v.used(), "files and df agree")


@test
def wrong_sizes_change_nothing(t):
    v = Volume(t, size="2M", files=100)
    fh = v.file(b"a")
    held = v.fill(fh)
    eq(held, 2000000 // BLOCK * BLOCK, "whole blocks of it")
    before = v.show()
    for settings, code, says in (({"size": "1M"}, 1, "holds"), ({"size": held - 1}, 1, "holds"),
                                 ({"size": 0}, 2, "none for no limit"), ({"size": "-1G"}, 2, "500G"),
                                 ({"size": "10E"}, 2, "8Ei"), ({"size": "99999999999E"}, 2, "500G"),
                                 ({"size": "big"}, 2, "500G"), ({"size": 4095}, 2, "4Ki"), ({"files": 0}, 2, "5M"),
                                 ({"files": 1}, 2, "at least 2"), ({"files": "-3"}, 2, "5M"), ({"files": "few"}, 2, "5M"),
                                 ({"snapshot_reserve": "1%"}, 1, "holds"), ({"snapshot_reserve": "95%"}, 2, "90%"),
                                 ({"snapshot_reserve": "0"}, 2, "none"), ({"snapshot_reserve": "3M"}, 2, "leaves nothing"),
                                 ({"size": "none", "snapshot_reserve": "10%"}, 2, "has none")):
        said = v.set(code=code, **settings)
        check(says in said, f"{settings}: {said}")
    after = v.show()
    for key in ("size", "files_limit", "snapshot_reserve", "bytes_used"):
        eq(after[key], before[key], key)
    v.set(size=held)
    eq(v.nfs.write(fh, held, b"x").status, "NOSPC")
    v.set(size="none")
    eq(v.nfs.write(fh, held, b"x").status, "OK")


@test
def snapshots_are_apart(t):
    size = 8 * MIB
    v = Volume(t, size=size)
    fh = v.file(b"a")
    eq(v.fill(fh), size)
    t.server.cli("snapshot", "create", f"{v.name}@one")
    eq((v.used(), v.show()["snapshots_held_bytes"]), (size, 0), "a snapshot takes nothing")
    for at in range(0, size // 2, 256 * 1024):
        eq(v.nfs.write(fh, at, b"n" * 256 * 1024).status, "OK", "a full volume can be overwritten")
    eq((v.used(), v.df().tbytes), (size, size), "df shows what the volume holds itself")
    eq(v.show()["snapshots_held_bytes"], size // 2, "what was overwritten is the snapshot's")
    t.server.cli("snapshot", "create", f"{v.name}@two")
    eq(v.nfs.write(fh, 0, b"m" * MIB).status, "OK")
    eq(v.nfs.write(fh, BLOCK, b"m" * 10).status, "OK")
    eq(v.show()["snapshots_held_bytes"], size // 2 + MIB, "and what was after the second")
    eq(v.nfs.remove(v.root, b"a").status, "OK")
    v.wait_used(0, "deleted files are only the snapshots'")
    until = time.monotonic() + 10
    while v.show()["snapshots_held_bytes"] != size + size // 2 and time.monotonic() < until:
        time.sleep(0.05)
    eq(v.show()["snapshots_held_bytes"], size + size // 2, "all that the snapshots see")
    other = v.file(b"b")
    eq(v.fill(other), size, "the volume has all of its room again")
    t.server.cli("restore", f"{v.name}@one")
    eq(v.used(), size, "restored")
    held = v.show()["snapshots_held_bytes"]
    eq(held, size + size // 2, "what it held is a snapshot's, and so is what @two has for itself")
    for name in [s["name"] for s in json.loads(t.server.cli("--json", "snapshot", "list", v.name))["snapshots"]]:
        t.server.cli("snapshot", "delete", f"{v.name}@{name}")
    check("snapshots_held_bytes" not in v.show(), "no snapshots")
    eq(v.used(), size)


@test
def a_reserve_is_kept_for_snapshots(t):
    v = Volume(t, size=10 * MIB, snapshot_reserve="20%")
    df = v.df()
    eq((df.tbytes, df.abytes), (8 * MIB, 8 * MIB), "df shows what is left for files")
    eq((v.show()["size"], v.show()["snapshot_reserve_bytes"]), (10 * MIB, 2 * MIB))
    eq(v.fill(v.file(b"a")), 8 * MIB)
    v.set(size=20 * MIB)
    eq(v.df().tbytes, 16 * MIB, "the reserve is a part of the size")
    v.set(snapshot_reserve="4Mi")
    eq(v.df().tbytes, 16 * MIB)
    v.set(size=15 * MIB)
    eq(v.df().tbytes, 11 * MIB)
    v.set(code=1, size=11 * MIB)
    eq(v.df().tbytes, 11 * MIB)
    eq(t.server.stop(), None)
    t.server.start()
    v.nfs = t.server.connect()
    eq((v.show()["size"], v.show()["snapshot_reserve"], v.df().tbytes), (15 * MIB, "4Mi", 11 * MIB), "after a restart")
    t.server.cli("snapshot", "create", f"{v.name}@s")
    t.server.cli("clone", "create", f"{v.name}@s", f"{v.name}c", "--writable")
    clone = v.nfs.mnt(f"/{v.name}c".encode()).fh
    eq((v.nfs.fsstat(clone).tbytes, v.nfs.fsstat(clone).fbytes), (11 * MIB, 3 * MIB), "a clone begins with both")
    v.set(snapshot_reserve="none")
    eq(v.df().tbytes, 15 * MIB)


def metrics(server):
    with urllib.request.urlopen(json.loads(server.cli("status", "--json"))["metrics"], timeout=20) as answer:
        return dict(line.rsplit(" ", 1) for line in answer.read().decode().split("\n") if line and line[0] != "#")


@test
def metrics_tell_the_limits(t):
    v = Volume(t, size=3 * MIB, files=77)
    eq(v.nfs.write(v.file(b"a"), 0, bytes(5 * BLOCK)).status, "OK")
    of = metrics(t.server)
    told = [of[f'sluice_volume_{name}{{volume="{v.name}"}}'] for name in
            ("size_limit_bytes", "used_bytes", "files_limit", "files")]
    eq([float(value) for value in told], [3 * MIB, 5 * BLOCK, 77, 2])


@test
def a_pool_that_is_nearly_full_is_warned_of(t):
    """A server of its own, whose reserve leaves a twentieth of the file system."""
    with tempfile.TemporaryDirectory() as folder:
        disk = os.statvfs(folder)
    if disk.f_bavail < disk.f_blocks // 8:
        print("# not tried: this machine's own disk is nearly full")
        return
    eq(json.loads(t.server.cli("status", "--json"))["pool"]["below_percent"], 0, "there is room")
    reserve = (disk.f_bavail - disk.f_blocks // 25) * disk.f_frsize
    server = harness.Server("--cache", "16Mi", "--segment-size", "8Mi", "--metrics", "127.0.0.1:0", "--reserve",
                            str(reserve))
    try:
        server.start()
        server.create("v")
        until = time.monotonic() + 20
        while b"nearly full" not in server.stderr() and time.monotonic() < until:
            time.sleep(0.1)
        eq(server.stderr().count(b"nearly full"), 1, "the log says so, once")
        status = json.loads(server.cli("status", "--json"))["pool"]
        eq(status["below_percent"], 5)
        check("nearly full" in status["warnings"][0], status)
        check(b"warning: the pool is nearly full: " in server.cli("status"), "the status of people")
        eq(metrics(server)["sluice_pool_nearly_full"], "1")
        nfs = server.connect()
        root = nfs.mnt(b"/v").fh
        fh = nfs.create(root, b"a", GUARDED, mode=0o644).fh
        eq(nfs.write(fh, 0, bytes(MIB)).status, "OK", "it is only a warning")
    finally:
        eq(server.stop(), None)
        server.close()


@test
def pools_made_before_tiny_files_counted_go_on_as_they_were(t):
    server = harness.Server("--cache", "16Mi", "--segment-size", "8Mi", "--metrics", "off")
    try:
        server.start()
        eq(server.stop(), None)
        path = os.path.join(server.pool, "POOL")
        with open(path) as file:
            lines = file.readlines()
        check("tiny 1\n" in lines, lines)
        with open(path, "w") as file:
            file.writelines(line for line in lines if not line.startswith("tiny"))
        server.start()
        server.create("v", "127.0.0.0/8:rw", "none", "--size", "8Mi")
        nfs = server.connect()
        root = nfs.mnt(b"/v").fh
        for n in range(5):
            fh = nfs.create(root, b"%d" % n, GUARDED, mode=0o644).fh
            eq(nfs.write(fh, 0, bytes(1000)).status, "OK")
        df = nfs.fsstat(root)
        eq(df.tbytes - df.fbytes, 0, "they did not count")
        eq(nfs.write(fh, 0, bytes(3000)).status, "OK")
        eq(nfs.remove(root, b"0").status, "OK")
        df = nfs.fsstat(root)
        eq(df.tbytes - df.fbytes, BLOCK, "a block does")
        nfs.close()
        server.cli("pool", "check")
    finally:
        eq(server.stop(), None)
        server.close()


@test
def snapshots_beyond_their_reserve_are_warned_of(t):
    v = Volume(t, size=20 * MIB, snapshot_reserve="1Mi")
    fh = v.file(b"a")
    eq(v.nfs.write(fh, 0, bytes(MIB)).status, "OK")
    eq(v.nfs.write(fh, MIB, bytes(MIB)).status, "OK")
    t.server.cli("snapshot", "create", f"{v.name}@s")
    eq(v.nfs.write(fh, 0, b"n" * MIB).status, "OK")
    eq(v.show()["snapshots_held_bytes"], MIB)
    check(b"beyond" not in t.server.cli("volume", "show", v.name), "all of it, and no more")
    eq(v.nfs.write(fh, MIB, b"n" * BLOCK).status, "OK")
    eq(v.show()["snapshots_held_bytes"], MIB + BLOCK)
    check(b"1Mi more, beyond the reserve of 1Mi" in t.server.cli("volume", "show", v.name), "shown")
    eq(t.server.stop(), None)
    t.server.start() # it looks at reserves when it starts, and every few minutes
    until = time.monotonic() + 20
    while b"more than their reserve of 1Mi" not in t.server.stderr() and time.monotonic() < until:
        time.sleep(0.1)
    warnings = json.loads(t.server.cli("status", "--json"))["pool"]["warnings"]
    check(any(f"the snapshots of {v.name} hold" in w for w in warnings), warnings)


if __name__ == "__main__":
    run("--cache", "64Mi", "--segment-size", "64Mi", "--metrics", "127.0.0.1:0")
