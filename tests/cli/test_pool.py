#!/usr/bin/env python3
"""sluice pool check, scrub and compact: under load, of damaged data, of a stopped pool, killed in the middle.  Names of
tests as arguments run only these."""
import glob
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "nfs"))
import harness
import rawrpc
from client41 import Sharer, clone
from harness import check, eq

SLUICE = os.path.join(harness.BUILD, "sluice")
SLUICED = os.path.join(harness.BUILD, "sluiced")
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def sluice(server, *words, code=0):
    done = subprocess.run([SLUICE, "--socket", server.socket, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120, text=True)
    eq(done.returncode, code, f"sluice {' '.join(words)} said {done.stdout[-3000:]}; exit code")
    return done.stdout


def stopped(*words, code=0):
    done = subprocess.run([SLUICE, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120, text=True)
    eq(done.returncode, code, f"sluice {' '.join(words)} said {done.stdout[-3000:]}; exit code")
    return done.stdout


def metric(server, name):
    return json.loads(sluice(server, "--json", "metrics"))["metrics"][name]["value"]


class Writer(threading.Thread):
    """Makes, overwrites, renames, links, clones and removes files, and takes and deletes snapshots and clones of them."""

    def __init__(self, server, seed):
        super().__init__()
        self.server, self.rng, self.stopped, self.rounds, self.problem = server, random.Random(seed), False, 0, None

    def run(self):
        try:
            with self.server.connect() as nfs:
                root = nfs.mnt(b"/vol").fh
                self.sharer, self.last = Sharer(self.server.port, os.urandom(8)), None
                while not self.stopped:
                    self.round(nfs, root)
                    self.rounds += 1
        except Exception:
            self.problem = traceback.format_exc()

    def round(self, nfs, root):
        rng, tag = self.rng, f"{self.ident % 1000}-{self.rounds}"
        folder = nfs.mkdir(root, f"d{tag}".encode(), mode=0o755).fh
        for i in range(12):
            name = f"f{i}".encode()
            fh = nfs.create(folder, name, rawrpc.GUARDED, mode=0o644).fh
            nfs.write(fh, 0, rng.randbytes(rng.choice((100, 5000, 300000))))
            if i % 3 == 0:
                nfs.write(fh, rng.randrange(200000), rng.randbytes(9000))
            if i % 3 != 1 and self.last:
                eq(self.sharer.run(clone, self.last, fh, 0, rng.choice((0, 4096, 262144)), 0), "OK", "CLONE")
            if i % 3 == 1:
                self.last = fh
                nfs.rename(folder, name, root, f"t{tag}-{i}".encode())
            if i % 4 == 0:
                nfs.link(fh, root, f"l{tag}-{i}".encode())
            if i % 5 == 0:
                nfs.setattr(fh, size=rng.randrange(150000))
            if i % 2 == 0:
                nfs.remove(folder, name)
        if self.rounds % 4 == 3:
            self.server.cli("snapshot", "create", f"vol@s{tag}")
            self.server.cli("clone", "create", f"vol@s{tag}", f"c{tag}", "--writable")
            self.server.cli("snapshot", "delete", f"vol@s{tag}")
            self.server.cli("volume", "delete", f"c{tag}", "--now", "--yes")


@test
def nothing_is_found_under_load(server):
    writers = [Writer(server, seed) for seed in range(2)]
    for writer in writers:
        writer.start()
    try:
        checks, end = 0, time.monotonic() + 6
        while checks < 8 or time.monotonic() < end:
            sluice(server, "pool", "check", *(["--data"] if checks % 3 == 0 else []))
            checks += 1
    finally:
        for writer in writers:
            writer.stopped = True
            writer.join()
    for writer in writers:
        eq(writer.problem, None, "the writer")
        check(writer.rounds > 3, f"only {writer.rounds} rounds of load")
    server.cli("settle")
    answer = json.loads(sluice(server, "--json", "pool", "check", "--data").splitlines()[-1])
    eq((answer["ok"], answer["findings"], answer["unsettled"]), (True, 0, 0), "at rest")
    check(answer["records"] > 100 and answer["bytes"] == answer["bytes_total"] > 0, f"looked at little: {answer}")


@test
def scrub_names_the_file_that_is_damaged(server):
    with server.connect() as nfs:
        root = nfs.mnt(b"/vol").fh
        folder = nfs.mkdir(root, b"models", mode=0o755).fh
        data = random.Random(5).randbytes(600000)
        fh = nfs.create(folder, b"weights", rawrpc.GUARDED, mode=0o644).fh
        nfs.write(fh, 0, data)
        server.cli("snapshot", "create", "vol@kept")
        used = metric(server, "cache_evictions"), metric(server, "cache_misses"), metric(server, "cache_hits")
        check("all is right" in sluice(server, "pool", "scrub", "--rate", "none"), "a healthy pool")
        eq((metric(server, "cache_evictions"), metric(server, "cache_misses"), metric(server, "cache_hits")), used,
           "the cache was not used")
        damage(server, data[300 * 1024:300 * 1024 + 4096])
        said = sluice(server, "pool", "scrub", "--rate", "none", code=1)
        check("vol@kept" in said and "vol" in said and ":/models/weights:" in said and "are damaged" in said, said)
        check("bytes 307200 to 311295" in said, said)
        eq(metric(server, "checked_damaged"), 1, "counted")
        event = json.loads(sluice(server, "--json", "pool", "check", "--data", code=1).splitlines()[0])
        eq((event["event"], event["path"], sorted(event["volumes"]), event["data"]),
           ("finding", "/models/weights", ["vol", "vol@kept"], True), "the event")
        check("all is right" in sluice(server, "pool", "check"), "the records are right")


def damage(server, block):
    """Flips a byte of the block that holds these bytes."""
    for path in glob.glob(os.path.join(server.pool, "data", "*.seg")):
        with open(path, "r+b") as segment:
            at = segment.read().find(block)
            if at >= 0:
                segment.seek(at + 17)
                segment.write(bytes([block[17] ^ 1]))
                return
    raise AssertionError("the block is nowhere")


@test
def interrupting_a_scrub_stops_it(server):
    with server.connect() as nfs:
        root = nfs.mnt(b"/vol").fh
        fh = nfs.create(root, b"large", rawrpc.GUARDED, mode=0o644).fh
        for i in range(8):
            nfs.write(fh, i << 20, random.Random(i).randbytes(1 << 20))
    before = metric(server, "checked_bytes")
    scrub = subprocess.Popen([SLUICE, "--socket", server.socket, "pool", "scrub", "--rate", "512Ki"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(1.5)
    scrub.send_signal(signal.SIGINT)
    scrub.communicate(timeout=20)
    time.sleep(0.5)
    read = metric(server, "checked_bytes")
    check(0 < read - before < 3 << 20, f"read {read - before} bytes at 512K/s within 2 s")
    time.sleep(1)
    eq(metric(server, "checked_bytes"), read, "it goes on")
    check("right would be" in sluice(server, "pool", "scrub", "--rate", "fast", code=2), "a wrong rate")


def fill_and_delete(server, files):
    with server.connect() as nfs:
        root = nfs.mnt(b"/vol").fh
        for i in range(files):
            nfs.write(nfs.create(root, b"x%d" % i, rawrpc.GUARDED, mode=0o644).fh, 0, b"y" * 1400)
        for i in range(files):
            nfs.remove(root, b"x%d" % i)
    server.cli("settle")


@test
def a_stopped_pool_is_checked_and_compacted(server):
    fill_and_delete(server, 1000)
    for words in (("pool", "compact", server.pool), ("pool", "check", server.pool)):
        check("in use by another server" in stopped(*words, code=1), words)
    eq(server.stop(), None, "stopping")
    name = os.path.join(server.pool, "meta", "data.mdb")
    before = os.path.getsize(name)
    check("all is right" in stopped("pool", "check", "--data", server.pool), "before")
    answer = json.loads(stopped("--json", "pool", "compact", server.pool))
    eq((answer["ok"], answer["before"], answer["after"]), (True, before, os.path.getsize(name)), "the answer")
    check(answer["after"] < before / 4, f"{before} has become {answer['after']}")
    check("all is right" in stopped("pool", "check", "--data", server.pool), "after")
    eq(os.stat(name).st_mode & 0o777, 0o600, "its mode")
    check("is no pool" in stopped("pool", "check", server.folder, code=1), "no pool")
    server.start()
    check("all is right" in sluice(server, "pool", "check"), "the server that opened it")


@test
def compacting_survives_being_killed_at_any_moment(server):
    fill_and_delete(server, 300)
    with server.connect() as nfs:
        root = nfs.mnt(b"/vol").fh
        nfs.write(nfs.create(root, b"stays", rawrpc.GUARDED, mode=0o644).fh, 0, b"for good")
    eq(server.stop(), None, "stopping")
    rng, killed = random.Random(1), 0
    for _ in range(15):
        compact = subprocess.Popen([SLUICED, "--pool", server.pool, "--compact"], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(rng.random() * 0.03)
        compact.kill()
        killed += compact.wait() == -signal.SIGKILL
        check("all is right" in stopped("pool", "check", "--data", server.pool), "after a kill")
        check(not os.path.exists(os.path.join(server.pool, "meta.new")), "what it had begun is removed")
    check(killed > 2, f"only {killed} of 15 were killed in time")
    server.start()
    with server.connect() as nfs:
        found = nfs.lookup(nfs.mnt(b"/vol").fh, b"stays")
        eq(nfs.read(found.fh, 0, 100).data, b"for good", "the file")


@test
def compacting_without_room_leaves_the_pool_as_it_was(_):
    with tempfile.TemporaryDirectory(prefix="sluice-small-") as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", folder], stderr=subprocess.DEVNULL).returncode:
            print("# skipped: it needs a small file system, which only root can mount")
            return
        server = harness.Server("--cache", "32Mi", "--segment-size", "8Mi", base=folder)
        try:
            server.start()
            server.create("vol")
            with server.connect() as nfs:
                root = nfs.mnt(b"/vol").fh
                for i in range(1500):
                    nfs.write(nfs.create(root, b"x%d" % i, rawrpc.GUARDED, mode=0o644).fh, 0, b"y" * 1400)
            eq(server.stop(), None, "stopping")
            room = os.statvfs(folder)
            with open(os.path.join(folder, "rest"), "wb") as rest:
                rest.write(bytes(room.f_bavail * room.f_frsize - (1 << 20)))
            name = os.path.join(server.pool, "meta", "data.mdb")
            before = os.stat(name)
            check("no room" in stopped("pool", "compact", server.pool, code=1), "what it says")
            eq((os.stat(name).st_ino, os.stat(name).st_size), (before.st_ino, before.st_size), "the metadata")
            check(not os.path.exists(os.path.join(server.pool, "meta.new")), "meta.new is left")
            check("all is right" in stopped("pool", "check", server.pool), "the pool")
        finally:
            server.close()
            subprocess.run(["umount", folder], check=True)


def main():
    failed = 0
    for function in TESTS:
        if sys.argv[1:] and function.__name__ not in sys.argv[1:]:
            continue
        server = harness.Server("--cache", "32Mi", "--nfs-versions", "3, 4")
        try:
            server.start()
            server.create("vol")
            function(server)
            print(f"ok {function.__name__}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {function.__name__}\n{traceback.format_exc()}", flush=True)
        finally:
            if server.process.poll() is None:
                problem = server.stop()
                if problem:
                    failed += 1
                    print(f"not ok {function.__name__}: the server {problem}\n{server.stderr().decode()[-4000:]}")
            server.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
