#!/usr/bin/env python3
"""What is in RAM is answered without the heap and without LMDB (counted by count_calls.c inside the server)."""
import json
import os
import random
import struct
import subprocess
import tempfile

import harness
from harness import TESTS, check, eq, run, test
from rawrpc import Cred, NFS, PROC, ROOT, call_message, opaque, parse_reply, u32, u64

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = tempfile.TemporaryDirectory(prefix="sluice-hot-")
COUNTS = os.path.join(FOLDER.name, "counts")
SIZE, BATCH = 3 << 20, 64


def counts():
    """Calls that took from the heap, and LMDB calls, of all workers so far."""
    with open(COUNTS, "rb") as file:
        return struct.unpack("=2Q", file.read())


def metrics(server):
    return {name: metric["value"] for name, metric in json.loads(server.cli("metrics", "--json"))["metrics"].items()}


def content(seed):
    return random.Random(seed).randbytes(SIZE)


def written(t, name, data):
    fh = t.file(name)
    for offset in range(0, SIZE, 1 << 20):
        eq(t.nfs.write(fh, offset, data[offset:offset + (1 << 20)]).status, "OK")
    return fh


def pipelined(nfs, calls):
    """Sends calls (procedure, arguments) at once; the readers of their replies, in the calls' order."""
    messages = [call_message(n, NFS, 3, PROC[name], args, ROOT) for n, (name, args) in enumerate(calls)]
    nfs.send_bytes(b"".join(u32(0x80000000 | len(m)) + m for m in messages))
    answers = dict(parse_reply(nfs.receive()) for _ in calls)
    return [answers[n] for n in range(len(calls))]


def read_batch(nfs, calls):
    """Sends READs (fh, offset, count) at once; their status and data in the calls' order."""
    answers = []
    for reader in pipelined(nfs, [("READ", opaque(fh) + u64(offset) + u32(count)) for fh, offset, count in calls]):
        status = reader.u32()
        if reader.boolean():
            reader.take(84)
        data = None
        if status == 0:
            reader.u32(), reader.boolean()
            data = reader.opaque()
            reader.end()
        answers.append((status, data))
    return answers


def random_reads(t, fh, data, chance, count):
    calls = [(fh, chance.randrange(SIZE - count), count) for _ in range(BATCH)]
    for (_, offset, _), (status, got) in zip(calls, read_batch(t.nfs, calls)):
        eq(status, 0, "status")
        check(got == data[offset:offset + count], f"the bytes at {offset}")


def untouched(t, work):
    """Runs work twice; the first run fills the pools, the second must not need the heap nor LMDB."""
    work()
    reads = metrics(t.server)["meta_reads"]
    before = counts()  # after the metrics, whose JSON is made on a worker
    work()
    after = counts()
    eq(after[0] - before[0], 0, "calls of malloc and the like")
    eq(after[1] - before[1], 0, "LMDB calls")
    eq(metrics(t.server)["meta_reads"] - reads, 0, "metric meta_reads")


@test
def the_counters_count(t):
    before = counts()
    for n in range(20):
        t.file(b"%d" % n)
        eq(t.nfs.lookup(t.dir, b"%d" % n).status, "OK")
    check(counts()[1] > before[1], "a CREATE asks LMDB")


@test
def small_reads_of_aligned_and_other_offsets(t):
    data = content(1)
    fh = written(t, b"f", data)
    chance = random.Random(2)

    def work():
        for count in (4096, 1, 5000, 40000):
            random_reads(t, fh, data, chance, count)
        calls = [(fh, 4096 * chance.randrange(SIZE // 4096), 4096) for _ in range(BATCH)]
        for (_, offset, _), (status, got) in zip(calls, read_batch(t.nfs, calls)):
            eq((status, got), (0, data[offset:offset + 4096]))
    untouched(t, work)


@test
def large_reads(t):
    data = content(3)
    fh = written(t, b"f", data)

    def work():
        calls = [(fh, offset, 1 << 20) for offset in range(0, SIZE, 1 << 20)]
        for (_, offset, _), (status, got) in zip(calls, read_batch(t.nfs, calls)):
            eq(status, 0)
            check(got == data[offset:offset + (1 << 20)], f"the bytes at {offset}")
    untouched(t, work)


@test
def reads_of_holes_and_of_tiny_files(t):
    hole, tiny = t.file(b"hole"), t.file(b"tiny", b"abc" * 100)
    eq(t.nfs.setattr(hole, size=10 << 20).status, "OK")

    def work():
        calls = [(hole, 4096 * n, 4096) for n in range(32)] + [(tiny, n, 100) for n in range(32)]
        for (fh, offset, count), (status, got) in zip(calls, read_batch(t.nfs, calls)):
            eq((status, got), (0, bytes(count) if fh == hole else (b"abc" * 100)[offset:offset + count]))
    untouched(t, work)


@test
def groups_by_the_name_service(t):
    """Known ones are found in RAM: of a user there is, and of one there is not."""
    data = content(9)
    fh = written(t, b"f", data)
    chance = random.Random(10)
    t.server.cli("volume", "set", "vol", "groups=server")
    try:
        untouched(t, lambda: random_reads(t, fh, data, chance, 4096))
        eq(t.nfs.setattr(fh, mode=0o666).status, "OK")
        unknown = t.server.connect(Cred(3987654, 3987654))
        with unknown:
            eq(unknown.read(fh, 0, 1).data, data[:1])
            untouched(t, lambda: [eq(unknown.read(fh, n, 9).data, data[n:n + 9]) for n in range(50)])
    finally:
        t.server.cli("volume", "set", "vol", "groups=client")


FILES = 300


def files(t):
    return {b"file-%d" % n: t.file(b"file-%d" % n) for n in range(FILES)}


@test
def attributes_and_access(t):
    handles = files(t)
    chance = random.Random(6)

    def work():
        for name in ("GETATTR", "ACCESS"):
            asked = [chance.choice(list(handles.values())) for _ in range(BATCH)]
            calls = [(name, opaque(fh) + (u32(63) if name == "ACCESS" else b"")) for fh in asked]
            for reader in pipelined(t.nfs, calls):
                eq(reader.u32(), 0, name)
        for fh in handles.values():
            eq((t.nfs.getattr(fh).status, t.nfs.access(fh, 63).status), ("OK", "OK"))
    untouched(t, work)


def look_up(t, handles, names):
    """In one batch; each must answer as `handles` says."""
    for name, reader in zip(names, pipelined(t.nfs, [("LOOKUP", opaque(t.dir) + opaque(name)) for name in names])):
        status = reader.u32()
        eq(status, 0 if name in handles else 2, f"status of {name}")
        if status == 0:
            eq(reader.opaque(), handles[name], f"handle of {name}")


@test
def names_that_are_there_and_names_that_are_not(t):
    handles = files(t)
    names = list(handles) + [b"missing-%d" % n for n in range(FILES)] + [b".", b".."]
    chance = random.Random(7)

    def work():
        for name in names[:-2]:
            eq(t.nfs.lookup(t.dir, name).status, "OK" if name in handles else "NOENT", name)
        for name in (b".", b".."):
            eq(t.nfs.lookup(t.dir, name).status, "OK", name)
        for _ in range(8):
            look_up(t, handles, [chance.choice(names[:-2]) for _ in range(BATCH)])
    hits = metrics(t.server)["name_hits"]
    untouched(t, work)
    check(metrics(t.server)["name_hits"] - hits >= 2 * FILES + 16 * BATCH, "metric name_hits")


@test
def names_that_change_are_known_without_asking(t):
    """What a change leaves in RAM is the truth: the batch after it asks nobody."""
    handles = files(t)
    look_up(t, handles, list(handles) + [b"new", b"moved"])
    handles[b"new"] = t.file(b"new")
    eq(t.nfs.rename(t.dir, b"file-1", t.dir, b"moved").status, "OK")
    handles[b"moved"] = handles.pop(b"file-1")
    eq(t.nfs.remove(t.dir, b"file-2").status, "OK")
    del handles[b"file-2"]
    names = list(handles) + [b"file-1", b"file-2"]
    look_up(t, handles, names)
    untouched(t, lambda: look_up(t, handles, names))


@test
def calls_that_make_no_sense_between_good_ones(t):
    """They are looked at together before they are run; what they say must not matter for that."""
    data = content(4)
    fh = written(t, b"f", data)
    chance = random.Random(5)
    for _ in range(20):
        calls = []
        for _ in range(BATCH):
            handle, offset = bytearray(fh), chance.randrange(SIZE - 4096)
            kind = chance.randrange(4)
            if kind == 1:
                handle[chance.randrange(len(handle))] ^= 1 << chance.randrange(8)
            elif kind == 2:
                handle = chance.randbytes(chance.choice((0, 1, 31, 32, 33, 64)))
            elif kind == 3:
                offset = chance.choice((SIZE, 1 << 32, (1 << 63) - 1, (1 << 64) - 1))
            calls.append((bytes(handle), offset, 4096))
        for (handle, offset, _), (status, got) in zip(calls, read_batch(t.nfs, calls)):
            check((status == 0) == (handle == fh), f"status {status}")
            if status == 0:
                eq(got, data[offset:offset + 4096])


@test
def lookups_that_make_no_sense_between_good_ones(t):
    handles = files(t)
    chance = random.Random(8)
    good = list(handles)
    for _ in range(20):
        calls, wanted = [], []
        for _ in range(BATCH):
            kind, name, fh = chance.randrange(6), chance.choice(good), t.dir
            if kind == 1:
                name = chance.randbytes(chance.choice((0, 255, 256, 300, 4000)))
            elif kind == 2:
                fh = chance.randbytes(chance.choice((0, 1, 31, 32, 33, 64)))
            elif kind == 3:
                fh = handles[name]  # not a directory
            elif kind == 4:
                name = chance.choice((b".", b"..", b"/", b"a/b", b"\0"))
            calls.append((chance.choice(("LOOKUP", "GETATTR", "ACCESS")) if kind == 5 else "LOOKUP",
                          opaque(fh) + opaque(name)))
            wanted.append((calls[-1][0], kind == 0 or calls[-1][0] != "LOOKUP", name))
        for (procedure, fine, name), reader in zip(wanted, pipelined(t.nfs, calls)):
            status = reader.u32()
            if fine and procedure == "LOOKUP":
                eq((status, reader.opaque()), (0, handles[name]), name)
            check(status == 0 or not fine, f"{procedure} {name}: status {status}")


def sanitized():
    with open(os.path.join(harness.BUILD, "sluiced"), "rb") as program:
        image = program.read()
    return b"__asan_init" in image or b"__tsan_init" in image


def main():
    with open(COUNTS, "wb") as file:
        file.write(bytes(16))
    if sanitized():  # they bring a heap of their own; the answers are checked all the same
        TESTS.remove(the_counters_count)
    else:
        library = os.path.join(FOLDER.name, "count_calls.so")
        subprocess.run(["cc", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-o", library,
                        os.path.join(HERE, "count_calls.c")], check=True)
        os.environ.update(LD_PRELOAD=library, SLUICE_COUNT_CALLS=COUNTS)
    run("--cache", "256Mi", "--workers", "2")


main()
