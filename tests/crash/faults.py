#!/usr/bin/env python3
"""faults.py [NAME...]: disks that fail, and disks that are full, beneath a server under load.

While writes, syncs or reads of the pool's files fail (recfs.c makes them) those who asked get an error, nothing is
acknowledged that is not there, reads go on, and once the disk works again so do changes, without a restart.  On a
full disk writes are answered NOSPC, reads and deletes go on, and writes work again when there is room.  At the end of
each test the server is killed, and everything acknowledged is there; also in images of what a power loss would have
left, where what a sync failed to write may be lost for good.
"""
import argparse
import json
import os
import random
import subprocess
import time

import powerloss
from rig import OPTIONS, Results, Rig, mount, run_main
from load import MIB, Load, prepare
from view import SHARED_NAME

BACK_SECONDS = 2.5  # from the disk's recovery to the first change that succeeds: the probe runs each second
OPERATIONS = 150


class Prober:
    """A client beside the load that tries one change after another and looks at a file that is there."""

    def __init__(self, server):
        self.server, self.count = server, 0
        self.nfs, self.root = mount(server)
        self.fh = self.nfs.create(self.root, b"probe", mode=0o644).fh
        self.data = random.Random(7).randbytes(300000)
        self.nfs.write(self.fh, 0, self.data)

    def change(self, inode_only=False):
        """The status of a change: of the metadata alone, or a write of blocks that go to a segment."""
        self.count += 1
        if inode_only:
            return self.nfs.setattr(self.fh, mode=0o600 + self.count % 64).status
        return self.nfs.write(self.fh, 4096 * (self.count % 8), self.data[:8192]).status

    def write_much(self):
        return self.nfs.write(self.fh, 1 << 20, self.data[:256 << 10]).status

    def read(self):
        return self.nfs.read(self.fh, 65536, 200000)

    def close(self):
        """Takes its file away, which no client of the load knows."""
        self.nfs.remove(self.root, b"probe")
        self.nfs.close()


class Bench:
    """A server on the recorder with a load, and a prober beside it."""

    def __init__(self, rig, seed, tolerant):
        self.rig, self.recorder = rig, rig.recorder()
        self.recorder.set(sync_us=200, sync_meta_us=200)
        self.server = rig.server(pool=os.path.join(self.recorder.mount, "pool"))
        self.server.start()
        asked = self.recorder.position()
        prepare(self.server)
        self.prepared = (asked, self.recorder.position(), self.recorder.position())
        self.load = Load(self.server, clients=6, seed=seed, position=self.recorder.position, tolerant=tolerant)
        self.load.up()
        self.load.start()
        self.load.wait(OPERATIONS)
        self.prober = Prober(self.server)

    def until_back(self, problems, inode_only=False):
        """Waits for the first change that succeeds again."""
        began = time.monotonic()
        while self.prober.change(inode_only) != "OK":
            if time.monotonic() > began + 20:
                return problems.append("20 s after the disk works again changes still fail")
            time.sleep(0.02)
        seconds = time.monotonic() - began
        print(f"# changes succeed {seconds:.2f} s after the disk works again")
        if seconds > BACK_SECONDS:
            problems.append(f"changes succeeded only {seconds:.2f} s after the disk worked again")

    def finish(self, problems, images=True):
        """The load goes on a little; then everything is compared, the server killed, and compared again."""
        self.load.fault.clear()
        self.load.wait(OPERATIONS)
        self.prober.close()
        problems += self.load.stop()
        if not self.server.alive():
            return problems + self.server.stderr().decode(errors="replace").split("\n")[-10:]
        problems += self.load.check()
        end = self.recorder.position()
        self.server.kill()
        self.server.start()
        problems += [f"after kill -9: {p}" for p in self.load.check()]
        if images and not problems:
            problems += self._images(end)
        return problems

    def _images(self, end):
        self.server.kill()
        self.recorder.unmount()
        recording = powerloss.Recording(self.recorder.log, "fault")
        recording.take(self.load, self.prepared)
        checker = powerloss.Checker(os.path.join(self.rig.folder, "images"), recording.open())
        for position, how in ((end, "nothing"), (end, "some"), (end, "all")):
            problems, chosen = checker.check(position, random.Random(position), how)
            checker.discard()
            if problems:
                return [f"an image at {position}, {chosen}: {p}" for p in problems]
        return []


def status_of(server):
    return json.loads(server.cli("--json", "status"))["pool"]


def failing(rig, switches, undecided=False, limit=0):
    """Makes changes fail for a while."""
    bench, problems = Bench(rig, str(switches), {"IO"}), []
    bench.load.undecided = undecided
    bench.load.fault.set()
    bench.recorder.set(limit=limit, **switches)
    until, data_only, statuses = time.monotonic() + 1.5, "data" in str(switches), {}
    while time.monotonic() < until:
        status = bench.prober.change()
        statuses[status] = statuses.get(status, 0) + 1
        read = bench.prober.read()
        if not read.ok or read.data != bench.prober.data[65536:265536]:
            problems.append(f"a read while writes fail: {read.status}")
        if not bench.prober.nfs.getattr(bench.prober.root).ok:
            problems.append("GETATTR while writes fail")
        time.sleep(0.02)
    if not bench.recorder.failures():
        problems.append("nothing was made to fail")
    if not limit and "OK" in statuses:
        problems.append(f"changes were acknowledged although the disk failed: {statuses}")
    if set(statuses) - {"OK", "IO"}:
        problems.append(f"changes were answered {statuses}")
    freezes = "fail_data_write" not in switches or len(switches) > 1  # a segment's write fails for its client alone
    if not limit and status_of(bench.server)["frozen"] != freezes:
        problems.append(f"sluice status: {status_of(bench.server)}")
    bench.recorder.clear()
    bench.until_back(problems, not data_only)
    if status_of(bench.server)["frozen"]:
        problems.append("sluice status goes on saying that the pool takes no changes")
    refused = {status: count for status, count in bench.load.counts.items() if status != "OK"}
    print(f"# {bench.recorder.failures()} failures, answers {refused}, the prober's {statuses}")
    return bench.finish(problems)


def restart_cold(bench):
    """Nothing of the prober's file is in the server's memory."""
    bench.server.kill()
    bench.server.start()
    bench.load.up()
    bench.load.wait(OPERATIONS)  # by then all clients have looked at what is theirs
    bench.prober.nfs, bench.prober.root = mount(bench.server)


def reads_of_segments(rig):
    bench, problems = Bench(rig, "reads", {"IO"}), []
    bench.load.readable = False
    restart_cold(bench)
    bench.load.fault.set()
    bench.recorder.set(fail_read=1)
    for _ in range(20):
        read = bench.prober.read()
        if read.status != "IO":
            problems.append(f"a read of a segment that fails: {read.status}")
        if not bench.prober.nfs.getattr(bench.prober.fh).ok:
            problems.append("GETATTR while reads fail")
        status = bench.prober.change(inode_only=True)
        if status != "OK":
            problems.append(f"SETATTR while reads fail: {status}")
        status = bench.prober.change()
        if status != "OK":
            problems.append(f"a write of whole blocks while reads fail: {status}")
        time.sleep(0.03)
    bench.recorder.clear()
    read = bench.prober.read()
    if not read.ok or read.data != bench.prober.data[65536:265536]:
        problems.append(f"a read after the disk works again: {read.status}")
    bench.until_back(problems)
    return bench.finish(problems, images=False)


def reads_of_metadata(rig):
    """LMDB's map can no longer be read in: a SIGBUS for who touches it, and an error for who asked, no more."""
    bench, problems, statuses = Bench(rig, "metadata reads", {"IO"}), [], {}
    bench.load.readable = False
    restart_cold(bench)
    bench.load.fault.set()
    bench.recorder.set(fail_read=2)
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        bench.recorder.forget()
        for reply in (bench.prober.nfs.readdir(bench.prober.root), bench.prober.nfs.getattr(bench.prober.fh),
                      bench.prober.nfs.lookup(bench.prober.root, b"c1")):
            statuses[reply.status] = statuses.get(reply.status, 0) + 1
        statuses["change"] = bench.prober.change()
        status_of(bench.server)
        time.sleep(0.05)
    if not statuses.get("IO") or not bench.recorder.failures():
        problems.append(f"no request has met an error: {statuses}")
    bench.recorder.clear()
    bench.until_back(problems)
    print(f"# {bench.recorder.failures()} failures, answers {statuses}")
    return bench.finish(problems, images=False)


# ---- full disks ----

DISK = 256 * MIB


class SmallDisk:
    """A file system of 256 MiB: ext4 on a loop device, or where there is none, in memory."""

    def __init__(self, rig):
        self.path, image = os.path.join(rig.folder, "disk"), os.path.join(rig.folder, "disk.img")
        os.mkdir(self.path)
        with open(image, "wb") as file:
            file.truncate(DISK)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        made = subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image], **quiet)
        looped = made.returncode == 0 and subprocess.run(["mount", "-o", "loop", image, self.path], **quiet)
        self.kind = "ext4"
        if not looped or looped.returncode:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", self.path], check=True)
            self.kind = "tmpfs, since ext4 could not be mounted"
        rig.add(self)

    def fill(self):
        """Somebody else takes all the room that there is."""
        self.filler = os.path.join(self.path, "filler")
        with open(self.filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(64 << 10))
            except OSError:
                pass
            try:
                while True:
                    file.write(bytes(512))
            except OSError:
                pass
            os.fsync(file.fileno())

    def free(self):
        os.unlink(self.filler)

    def close(self):
        if subprocess.run(["umount", self.path], stderr=subprocess.DEVNULL).returncode:
            subprocess.run(["umount", "-l", self.path], stderr=subprocess.DEVNULL)


class Filler:
    """Writes files until there is no more room, and knows what was acknowledged."""

    def __init__(self, server):
        self.server, self.files = server, {}
        self.connect()

    def connect(self):
        self.nfs, self.root = mount(self.server)

    def data(self, name):
        return random.Random(name).randbytes(MIB)

    def write(self, name):
        made = self.nfs.create(self.root, name, mode=0o644)
        if not made.ok:
            return made.status
        status = self.nfs.write(made.fh, 0, self.data(name)).status
        if status == "OK":
            self.files[name] = made.fh
        else:  # the name is there, and nothing in it
            self.files[name] = None
        return status

    def fill(self, prefix, most=400):
        for number in range(most):
            status = self.write(prefix + b"%d" % number)
            if status != "OK":
                return number, status
        return most, "OK"

    def remove(self, name):
        status = self.nfs.remove(self.root, name).status
        if status == "OK":
            del self.files[name]
        return status

    def check(self):
        problems, names = [], {e.name for e in self.nfs.listing(self.root)} - {b".", b"..", SHARED_NAME}
        if names != set(self.files):
            problems.append(f"{len(names)} names, not {len(self.files)}: {sorted(names ^ set(self.files))[:5]}")
        for name, fh in self.files.items():
            found = self.nfs.lookup(self.root, name)
            read = found.ok and self.nfs.read(found.fh, 0, MIB)
            if not read or not read.ok:
                problems.append(f"{name}: {found.status}, {read and read.status}")
            elif read.data != (self.data(name) if fh else b""):
                problems.append(f"{name}: {len(read.data)} bytes that differ")
        return problems


def again(what, function, wanted="OK", seconds=15, pause=0.05):
    """Until function() gives `wanted`; a list with a problem if it takes too long."""
    began, got = time.monotonic(), None
    while time.monotonic() < began + seconds:
        got = function()
        if got == wanted:
            print(f"# {what} after {time.monotonic() - began:.2f} s")
            return []
        time.sleep(pause)
    return [f"{what}: still {got} after {seconds} s"]


def full_by_itself(rig):
    """The volumes' own data fills the disk; deleting makes room."""
    disk = SmallDisk(rig)
    server = rig.server(pool=os.path.join(disk.path, "pool"), options=OPTIONS)
    server.start()
    prepare(server)
    filler = Filler(server)
    written, status = filler.fill(b"a")
    print(f"# {disk.kind}: {written} MiB of {DISK // MIB} written, then {status}")
    problems = [] if status == "NOSPC" else [f"the disk is full: {status}"]
    if written < DISK // MIB * 6 // 10:
        problems.append(f"only {written} MiB went onto the disk")
    problems += [f"full: {p}" for p in filler.check()]
    for name in list(filler.files)[::2]:
        status = filler.remove(name)
        if status != "OK":
            problems.append(f"REMOVE on a full disk: {status}")
    problems += again("writes work again", lambda: filler.write(b"b%d" % len(filler.files)))
    written, status = filler.fill(b"c", 60)
    if written < 60:
        problems.append(f"only {written} MiB fit after half was removed: {status}")
    problems += filler.check()
    server.kill()
    server.start()
    filler.connect()
    return problems + [f"after kill -9: {p}" for p in filler.check()]


def full_by_others(rig):
    """Something else fills the disk to the last byte, under load; then it goes away."""
    disk, problems = SmallDisk(rig), []
    server = rig.server(pool=os.path.join(disk.path, "pool"))
    server.start()
    prepare(server)
    load = Load(server, clients=4, seed="full", tolerant={"NOSPC"})
    load.up()
    load.start()
    load.wait(OPERATIONS)
    load.fault.set()
    prober = Prober(server)
    disk.fill()
    problems += again("writes are refused", prober.write_much, "NOSPC", pause=0)
    top = prober.nfs.mkdir(prober.root, b"names", mode=0o755)
    for number in range(300):  # names and attributes: there may or may not be room for them
        made = prober.nfs.create(top.fh, b"%d" % number, mode=0o644) if top.ok else top
        if made.status not in ("OK", "NOSPC"):
            problems.append(f"CREATE on a full disk: {made.status}")
        if prober.change() not in ("OK", "NOSPC") or not prober.read().ok:
            problems.append("a write or a read on a full disk")
    for entry in prober.nfs.listing(top.fh) if top.ok else ():
        if entry.name not in (b".", b".."):
            status = prober.nfs.remove(top.fh, entry.name).status
            if status != "OK":
                problems.append(f"REMOVE on a full disk: {status}")
    if top.ok and not prober.nfs.rmdir(prober.root, b"names").ok:
        problems.append("RMDIR on a full disk")
    server.kill()
    server.start()
    load.up()
    prober.nfs, prober.root = mount(server)
    if not prober.read().ok:
        problems.append("a server started on a full disk does not read")
    disk.free()
    problems += again("writes work again", prober.write_much, "OK", BACK_SECONDS)
    load.fault.clear()
    load.wait(OPERATIONS)
    prober.close()
    problems += load.stop()
    print(f"# {disk.kind}; answers {load.counts}")
    problems += load.check()
    server.kill()
    server.start()
    return problems + [f"after kill -9: {p}" for p in load.check()]


TESTS = {
    "segment-writes": lambda rig: failing(rig, {"fail_data_write": 1}),
    "segment-syncs": lambda rig: failing(rig, {"fail_data_sync": 1}),
    "metadata-writes": lambda rig: failing(rig, {"fail_meta_write": 1}),
    "metadata-syncs": lambda rig: failing(rig, {"fail_meta_sync": 1}),
    "meta-page-writes": lambda rig: failing(rig, {"fail_meta_write": 2}),
    "meta-page-syncs": lambda rig: failing(rig, {"fail_meta_sync": 2}, undecided=True),
    "everything": lambda rig: failing(rig, {"fail_data_write": 1, "fail_data_sync": 1, "fail_meta_write": 3,
                                            "fail_meta_sync": 3}, undecided=True),
    "one-segment-write": lambda rig: failing(rig, {"fail_data_write": 1}, limit=1),
    "one-segment-sync": lambda rig: failing(rig, {"fail_data_sync": 1}, limit=1),
    "one-metadata-write": lambda rig: failing(rig, {"fail_meta_write": 1}, limit=1),
    "one-metadata-sync": lambda rig: failing(rig, {"fail_meta_sync": 1}, limit=1),
    "one-meta-page-write": lambda rig: failing(rig, {"fail_meta_write": 2}, limit=1),
    "one-meta-page-sync": lambda rig: failing(rig, {"fail_meta_sync": 2}, limit=1, undecided=True),
    "segment-reads": reads_of_segments,
    "metadata-reads": reads_of_metadata,
    "full-by-itself": full_by_itself,
    "full-by-others": full_by_others,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TESTS))
    arguments = parser.parse_args()
    results = Results()
    for name in arguments.names or TESTS:
        with Rig(ram=not name.startswith("full")) as rig:
            results.run(name, TESTS[name], rig)
    results.end()


if __name__ == "__main__":
    run_main(main)
