#!/usr/bin/env python3
"""Several clients on the same objects at once, many calls in flight each: what must hold whatever the order is.

SLUICE_ROUNDS (default 1) multiplies what each test does; SLUICE_SEED chooses the random numbers."""
import os
import random
import threading
import time

import rawrpc
from harness import check, eq, run, test
from rawrpc import GUARDED, UNCHECKED, boolean, call_message, opaque, sattr, u32, u64

ROUNDS = int(os.environ.get("SLUICE_ROUNDS", "1"))
SEED = int(os.environ.get("SLUICE_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
print(f"# SLUICE_SEED={SEED}", flush=True)


class Pipe:
    """A connection with calls in flight; finish() gives (sent, answered, status, reader) of each in the order sent."""

    def __init__(self, server):
        self.nfs, self.calls, self.done = server.connect(), [], {}

    def send(self, name, args, cred=rawrpc.ROOT):
        xid = next(rawrpc._xids)
        self.calls.append((xid, time.monotonic()))
        self.nfs.send(call_message(xid, rawrpc.NFS, 3, rawrpc.PROC[name], args, cred))

    def reap(self):
        xid, reader = rawrpc.parse_reply(self.nfs.receive())
        self.done[xid] = (time.monotonic(), reader.u32(), reader)

    def finish(self):
        while len(self.done) < len(self.calls):
            self.reap()
        replies = [(sent, *self.done[xid]) for xid, sent in self.calls]
        self.calls, self.done = [], {}
        return replies

    def close(self):
        self.nfs.close()


def together(*functions):
    problems = []

    def guard(function):
        try:
            function()
        except Exception as error:
            problems.append(error)
    threads = [threading.Thread(target=guard, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


class Change:
    """A write of one byte's repetitions, or a truncation (value 0 from `start` on; file bytes past its end)."""

    def __init__(self, start, end, value, size=None):
        self.start, self.end, self.value, self.size = start, end, value, size
        self.sent = self.answered = None


def overlapping_round(t, dice, fh, pipes, span, truncations):
    changes, plans = [], []
    numbers = list(range(1, 250))
    dice.shuffle(numbers)
    for _ in pipes:
        plan = []
        for _ in range(20):
            if truncations and dice.random() < .2:
                at = dice.randrange(span)
                plan.append(Change(at, span, 0, at))
            else:
                at = dice.randrange(span)
                length = dice.choice((1, 100, 1000, 4096, 5000, 20000, 262144))
                plan.append(Change(at, min(span, at + length), numbers.pop()))
        plans.append(plan)
        changes += plan

    def work(pipe, plan):
        for change in plan:
            if change.size is not None:
                pipe.send("SETATTR", opaque(fh) + sattr(size=change.size) + boolean(False))
            else:
                data = bytes([change.value]) * (change.end - change.start)
                pipe.send("WRITE", opaque(fh) + u64(change.start) + u32(len(data)) + u32(2) + opaque(data))
            if len(pipe.calls) - len(pipe.done) > 6:
                pipe.reap()
        for change, (sent, answered, status, _) in zip(plan, pipe.finish()):
            eq(status, 0, "status of a write or truncation")
            change.sent, change.answered = sent, answered

    # one byte of each kind of beginning: all of the file is written first
    eq(t.nfs.write(fh, 0, b"\xfa" * span).count, span)
    together(*(lambda p=p, plan=plan: work(p, plan) for p, plan in zip(pipes, plans)))
    readers = [t.nfs, pipes[0].nfs, pipes[-1].nfs]
    contents = [b"".join(r.read(fh, at, 1 << 20).data for at in range(0, span, 1 << 20)) for r in readers]
    check(contents[0] == contents[1] == contents[2], "all clients see the same bytes")
    content = contents[0].ljust(span, b"\0")
    edges = sorted({0, span} | {c.start for c in changes} | {c.end for c in changes})
    for low, high in zip(edges, edges[1:]):
        seen = set(content[low:high])
        covering = [c for c in changes if c.start <= low and high <= c.end]
        for value in seen:
            if value == 0xfa:
                candidates = [None] if not covering else []
            else:
                candidates = [c for c in covering if c.value == value and
                              not any(other.sent > c.answered for other in covering)]
            if value == 0 and not candidates:  # past the end when a later write grew the file again
                candidates = [c for c in changes if c.size is not None and c.size <= low]
            check(candidates, f"bytes {low}..{high} hold {value}, which was overwritten or never written there: "
                  f"{[(c.start, c.end, c.value, c.size) for c in covering]}")


@test
def overlapping_writes_leave_bytes_of_the_last_ones(t):
    dice = random.Random(SEED)
    pipes = [Pipe(t.server) for _ in range(3)]
    for turn in range(25 * ROUNDS):
        fh = t.file(b"over%d" % turn)
        overlapping_round(t, dice, fh, pipes, dice.choice((1400, 9000, 70000, 600000)), False)
    for pipe in pipes:
        pipe.close()


@test
def truncations_between_writes(t):
    dice = random.Random(SEED + 1)
    pipes = [Pipe(t.server) for _ in range(3)]
    for turn in range(25 * ROUNDS):
        fh = t.file(b"cut%d" % turn)
        overlapping_round(t, dice, fh, pipes, dice.choice((1400, 9000, 70000, 600000)), True)
    for pipe in pipes:
        pipe.close()


@test
def a_growing_file_is_never_longer_than_its_data(t):
    """Who sees a size reads that many bytes of what was written, whatever is being appended."""
    fh = t.file(b"log")
    block = bytes(range(1, 251)) * 4
    total, stop = 400 * ROUNDS, threading.Event()

    def append():
        with t.server.connect() as nfs:
            for i in range(total):
                eq(nfs.write(fh, i * 1000, block).count, 1000)
        stop.set()

    def look():
        with t.server.connect() as nfs:
            while not stop.is_set():
                size = nfs.getattr(fh).attr.size
                at = max(0, size - 5000)
                got = nfs.read(fh, at, 65536)
                check(len(got.data) >= size - at, f"{len(got.data)} bytes where GETATTR said {size - at}")
                check(len(got.data) == 65536 or got.attr.size <= at + len(got.data),
                      "a reply's size is not newer than its data")
                want = (block * (len(got.data) // 1000 + 2))[at % 1000:][:len(got.data)]
                check(got.data == want, "the bytes")
    together(append, look, look)


@test
def files_removed_while_they_are_used(t):
    dice = random.Random(SEED + 2)
    for turn in range(15 * ROUNDS):
        data = bytes([turn % 250 + 1]) * dice.choice((1000, 100000))
        fh = t.file(b"gone%d" % turn, data)
        pipes = [Pipe(t.server) for _ in range(3)]
        for k in range(25):
            pipes[0].send("READ", opaque(fh) + u64(0) + u32(len(data)))
            pipes[1].send("WRITE", opaque(fh) + u64(k * 37) + u32(500) + u32(0) + opaque(data[:500]))
            if k == 12:
                pipes[2].send("REMOVE", opaque(t.dir) + opaque(b"gone%d" % turn))
        removed = pipes[2].finish()[0]
        eq(removed[2], 0, "REMOVE")
        for sent, _, status, reader in pipes[0].finish():
            check(status in (0, rawrpc.STATUS["STALE"]), f"READ: {status}")
            check(status or sent < removed[1], "a READ sent after the REMOVE was answered succeeds")
            if not status:
                rawrpc.post_op_attr(reader)
                count, _, bytes_read = reader.u32(), reader.boolean(), reader.opaque()
                check(bytes_read == data[:count] or len(data) < 1500, "what was read of a dying file")
        for sent, _, status, _ in pipes[1].finish():
            check(status in (0, rawrpc.STATUS["STALE"]), f"WRITE: {status}")
            check(status or sent < removed[1], "a WRITE sent after the REMOVE was answered succeeds")
        eq(t.nfs.getattr(fh).status, "STALE")
        for pipe in pipes:
            pipe.close()
    eq([e.name for e in t.nfs.listing(t.dir)], [b".", b".."])


@test
def renames_that_cross_make_no_loop(t):
    """a under b and b under a at once: at most one of them may happen, and the tree stays one."""
    pipes = [Pipe(t.server) for _ in range(2)]
    for turn in range(60 * ROUNDS):
        a = t.nfs.mkdir(t.dir, b"a%d" % turn).fh
        b = t.nfs.mkdir(t.dir, b"b%d" % turn).fh
        pipes[0].send("RENAME", opaque(t.dir) + opaque(b"a%d" % turn) + opaque(b) + opaque(b"in"))
        pipes[1].send("RENAME", opaque(t.dir) + opaque(b"b%d" % turn) + opaque(a) + opaque(b"in"))
        results = sorted(pipe.finish()[0][2] for pipe in pipes)
        check(results[0] == 0 and results[1] != 0, f"two renames that exclude one another: {results}")
        at, steps = a, 0
        while at != t.dir and steps < 5:
            at = t.nfs.lookup(at, b"..").fh
            steps += 1
        eq(at, t.dir, "the way up")
    eq(t.nfs.getattr(t.dir).attr.nlink, 2 + 60 * ROUNDS, "links of the directory")
    for pipe in pipes:
        pipe.close()


@test
def renames_over_one_another_lose_nothing(t):
    """Some names are renamed over others by several clients at once; links and names agree at the end."""
    dice = random.Random(SEED + 3)
    names = [b"n%d" % i for i in range(8)]
    files = {}
    for name in names:
        made = t.file(name, name)
        files[made] = name
    pipes = [Pipe(t.server) for _ in range(3)]
    for _ in range(100 * ROUNDS):
        for pipe in pipes:
            kind = dice.random()
            one, two = dice.choice(names), dice.choice(names)
            if kind < .6:
                pipe.send("RENAME", opaque(t.dir) + opaque(one) + opaque(t.dir) + opaque(two))
            elif kind < .9:
                pipe.send("LINK", opaque(dice.choice(list(files))) + opaque(t.dir) + opaque(two))
            else:
                pipe.send("REMOVE", opaque(t.dir) + opaque(one))
    allowed = {rawrpc.STATUS[s] for s in ("OK", "NOENT", "EXIST", "STALE")}
    for pipe in pipes:
        for _, _, status, _ in pipe.finish():
            check(status in allowed, f"status {status}")
        pipe.close()
    count = {}
    for entry in t.nfs.listing(t.dir, plus=True):
        if entry.name in (b".", b".."):
            continue
        count[entry.fh] = count.get(entry.fh, 0) + 1
        eq(t.nfs.lookup(t.dir, entry.name).fh, entry.fh, "handle of a name")
    for fh, name in files.items():
        got = t.nfs.getattr(fh)
        if fh not in count:
            eq(got.status, "STALE", "a file without a name")
            continue
        eq(got.attr.nlink, count[fh], "links")
        eq(t.nfs.read(fh, 0, 100).data, name, "what is in it")


@test
def listings_while_names_come_and_go(t):
    """Names that are there all the time are listed exactly once, others at most once."""
    steady = {b"steady%04d" % i for i in range(500)}
    pipe = Pipe(t.server)
    for name in sorted(steady):
        pipe.send("CREATE", opaque(t.dir) + opaque(name) + u32(GUARDED) + sattr(mode=0o600))
    check(all(status == 0 for _, _, status, _ in pipe.finish()), "creating")
    stop = threading.Event()

    def churn():
        dice = random.Random(SEED + 4)
        with t.server.connect() as nfs:
            while not stop.is_set():
                name, other = (b"x%d" % dice.randrange(200) for _ in range(2))
                dice.choice((lambda: nfs.create(t.dir, name, UNCHECKED, mode=0o600), lambda: nfs.remove(t.dir, name),
                             lambda: nfs.rename(t.dir, name, t.dir, other)))()

    def look():
        try:
            with t.server.connect() as nfs:
                for turn in range(30 * ROUNDS):
                    plus = turn % 2 == 1
                    found = nfs.listing(t.dir, plus, **({"maxcount": 4096} if plus else {"count": 2048}))
                    names = [e.name for e in found]
                    eq(len(names), len(set(names)), "names listed twice")
                    eq(steady - set(names), set(), "names not listed")
                    cookies = [e.cookie for e in found]
                    eq(len(cookies), len(set(cookies)), "cookies used twice")
        finally:
            stop.set()
    together(churn, churn, look)
    pipe.close()


@test
def exclusive_creates_of_one_name(t):
    """Of many that create a name exclusively at once, each with a verifier of its own, one succeeds."""
    pipes = [Pipe(t.server) for _ in range(4)]
    for turn in range(40 * ROUNDS):
        for i, pipe in enumerate(pipes):
            pipe.send("CREATE", opaque(t.dir) + opaque(b"lock%d" % turn) + u32(rawrpc.EXCLUSIVE) + u32(turn) + u32(i))
        results = sorted(pipe.finish()[0][2] for pipe in pipes)
        eq(results, [0] + [rawrpc.STATUS["EXIST"]] * 3)
    for pipe in pipes:
        pipe.close()


@test
def a_directory_removed_while_it_is_filled(t):
    """An RMDIR that succeeds leaves nothing behind that a CREATE had been told was made."""
    pipes = [Pipe(t.server) for _ in range(2)]
    for turn in range(40 * ROUNDS):
        where = t.nfs.mkdir(t.dir, b"d%d" % turn, mode=0o777).fh
        pipes[0].send("CREATE", opaque(where) + opaque(b"x") + u32(GUARDED) + sattr(mode=0o600))
        pipes[1].send("RMDIR", opaque(t.dir) + opaque(b"d%d" % turn))
        made, removed = (pipe.finish()[0][2] for pipe in pipes)
        check((made == 0) != (removed == 0), f"CREATE {made}, RMDIR {removed}")
        if removed == 0:
            eq(made, rawrpc.STATUS["STALE"])
        else:
            eq(removed, rawrpc.STATUS["NOTEMPTY"])
    for pipe in pipes:
        pipe.close()


if __name__ == "__main__":
    run()
