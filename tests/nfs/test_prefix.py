#!/usr/bin/env python3
"""test_prefix.py [--snapshots N] [--seed S]: each snapshot is a prefix of what was acknowledged.

Clients write numbered records to many files of two volumes, one after another, while snapshots of both are taken.  In
every snapshot each client's records are 1 to some number, in all its files and both volumes: no fewer than had been
acknowledged before the command was sent, and none that was sent after it had returned.
"""
import argparse
import os
import random
import sys
import threading
import time
import traceback

import harness
from harness import check, eq
from rawrpc import GUARDED

RECORD, FILES, VOLUMES = 16, 12, ("a", "b")
CLIENTS = 4


class Writer(threading.Thread):
    """Record n goes to the end of one of the files, or is a symbolic link of its own."""

    def __init__(self, server, number, seed):
        super().__init__(daemon=True)
        self.nfs, self.rng, self.number = server.connect(), random.Random(f"{seed}/{number}"), number
        self.sent = self.acked = 0
        self.stop, self.problem = False, None
        self.files = [self.begin(self.nfs.mnt(f"/{v}".encode()).fh, i) for v in VOLUMES for i in range(FILES)]

    def begin(self, root, number):
        name = b"w%d.%d" % (self.number, number)
        made = self.nfs.create(root, name, GUARDED, mode=0o644)
        eq(made.status, "OK", "CREATE")
        return [root, name, made.fh, 0]

    def run(self):
        try:
            while not self.stop:
                self.once()
        except Exception:
            self.problem = traceback.format_exc()

    def once(self):
        file = self.rng.choice(self.files)
        root, name, fh, count = file
        number = self.acked + 1
        self.sent = number
        if self.rng.random() < .1:  # the record is a file of its own
            made = self.nfs.symlink(root, b"w%d-%d" % (self.number, number), b"%016d" % number)
            eq(made.status, "OK", "SYMLINK")
        else:
            eq(self.nfs.write(fh, count * RECORD, b"%016d" % number).status, "OK", "WRITE")
            file[3] += 1
        self.acked = number


def records(nfs, roots):
    """The records in a snapshot of the volumes, by client."""
    found = {n: [] for n in range(CLIENTS)}
    for root in roots:
        for entry in nfs.listing(root, True):
            if entry.name in (b".", b".."):
                continue
            fh = entry.fh or nfs.lookup(root, entry.name).fh
            client = int(entry.name[1:].replace(b".", b"-").split(b"-")[0])
            if b"-" in entry.name:
                data = nfs.readlink(fh).target
            else:
                data = nfs.read(fh, 0, 1 << 20).data
            check(len(data) % RECORD == 0, f"half a record in {entry.name}")
            found[client] += [int(data[at:at + RECORD]) for at in range(0, len(data), RECORD)]
    return found


class Run:
    def __init__(self, args):
        self.args = args
        self.server = harness.Server("--cache", "64Mi")
        self.writers, self.taken, self.slowest = [], [], 0

    def look(self, name, before, after):
        found = records(self.nfs, [self.nfs.mnt(f"/{v}@{name}".encode()).fh for v in VOLUMES])
        for writer, numbers in found.items():
            last = len(numbers)
            check(sorted(numbers) == list(range(1, last + 1)), f"{name}: the records of {writer} are no prefix: "
                  f"{last} records, missing {sorted(set(range(1, max(numbers, default=0))) - set(numbers))[:5]}")
            check(before[writer] <= last <= after[writer], f"{name}: {last} records of {writer}, "
                  f"{before[writer]} acknowledged before, {after[writer]} sent after")

    def run(self):
        self.server.start()
        for volume in VOLUMES:
            self.server.create(volume)
        self.nfs = self.server.connect()
        self.writers = [Writer(self.server, n, self.args.seed) for n in range(CLIENTS)]
        for writer in self.writers:
            writer.start()
        for i in range(self.args.snapshots):
            before = [w.acked for w in self.writers]
            began = time.monotonic()
            self.server.cli("snapshot", "create", f"{','.join(VOLUMES)}@s{i}")
            self.slowest = max(self.slowest, time.monotonic() - began)
            after = [w.sent for w in self.writers]
            self.taken.append((f"s{i}", before, after))
            if i % 20 == 0:  # this one at once, most of them later
                self.look(*self.taken[-1])
            check(all(w.is_alive() for w in self.writers), [w.problem for w in self.writers])
        for writer in self.writers:
            writer.stop = True
        for writer in self.writers:
            writer.join(30)
            check(not writer.problem, writer.problem)
        step = max(1, self.args.snapshots // self.args.looks)
        for taken in self.taken[::step]:
            self.look(*taken)
        eq(self.server.stop(), None, "the server's end")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--snapshots", type=int, default=1000)
    parser.add_argument("--looks", type=int, default=150, help="of so many, all records are read")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    run, started = Run(args), time.monotonic()
    try:
        run.run()
    except Exception:
        traceback.print_exc()
        print(run.server.stderr().decode(errors="replace")[-4000:])
        print("not ok each snapshot is a prefix of the acknowledgements\n0 passed, 1 failed")
        sys.exit(1)
    finally:
        run.server.close()
    print(f"# {sum(w.acked for w in run.writers)} records; the slowest snapshot command took "
          f"{run.slowest * 1000:.0f} ms")
    print(f"ok each of {len(run.taken)} snapshots is a prefix of the acknowledgements "
          f"({time.monotonic() - started:.0f} s)\n1 passed, 0 failed")


if __name__ == "__main__":
    main()
