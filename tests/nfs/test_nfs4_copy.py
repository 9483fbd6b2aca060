#!/usr/bin/env python3
"""COPY and CLONE of NFSv4.2 (RFC 7862, 15.2 and 15.13): what they do, what they share, and each of their errors."""
import json
import threading
import time

import rawrpc
from client41 import BOTH, GUARDED, READ, WRITE, Client41, clone, copy, ok
from harness import check, eq, run, test
from raw4 import (ANONYMOUS, getattr_, getfh, lookup, putfh, putrootfh, read, savefh, setattr_, write)
from rawrpc import USER

BLOCK, CHUNK, MIB = 4096, 262144, 1 << 20


def metric(server, name):
    return json.loads(server.cli("--json", "metrics"))["metrics"][name]["value"]


class Files:
    """Two open files of one client."""

    def __init__(self, context, data=b"", to_data=b""):
        self.context, self.c = context, Client41(context.server.port, minor=2)
        self.from_fh, self.to_fh = context.file(b"from", mode=0o666), context.file(b"to", to_data, mode=0o666)
        for at in range(0, len(data), MIB):
            eq(context.nfs.write(self.from_fh, at, data[at:at + MIB]).status, "OK")
        self.source = ok(self.c.open(context.dir, b"from", access=READ))[1].stateid
        self.target = ok(self.c.open(context.dir, b"to", access=BOTH))[1].stateid

    def run(self, op, from_fh=None, to_fh=None):
        return self.c.call(putfh(from_fh or self.from_fh), savefh(), putfh(to_fh or self.to_fh), op)

    def clone(self, *range_):
        return self.run(clone(self.source, self.target, *range_)).status

    def copy(self, *range_):
        """The whole of it; the client asks again for what is left."""
        from_offset, to_offset, count = range_
        while True:
            done = self.run(copy(self.source, self.target, from_offset, to_offset, count))
            if done.status != "OK" or not count or done[3].count == count:
                return done.status
            from_offset, to_offset, count = (from_offset + done[3].count, to_offset + done[3].count,
                                             count - done[3].count)

    def data(self, fh=None):
        fh = fh or self.to_fh
        size = self.context.nfs.getattr(fh).attr.size
        return b"".join(self.context.nfs.read(fh, at, MIB).data for at in range(0, size, MIB))


def bytes_of(count, with_=1):
    return bytes((i * 7 + i // 256 + with_) & 255 for i in range(count))


@test
def clones_and_copies_have_the_bytes(context):
    data = bytes_of(3 * CHUNK + 1234)
    f = Files(context, data, b"z" * (CHUNK + 99))
    eq(f.clone(0, 0, 0), "OK", "to the source's end")
    eq(f.data(), data)
    eq(f.clone(BLOCK, 5 * BLOCK, 2 * CHUNK), "OK")
    want = bytearray(data)
    want[5 * BLOCK:5 * BLOCK + 2 * CHUNK] = data[BLOCK:BLOCK + 2 * CHUNK]
    eq(f.data(), bytes(want))
    for from_offset, to_offset, count in ((0, 0, 0), (1, 1, CHUNK), (4097, 1, 2 * CHUNK), (3, 7, CHUNK), (CHUNK, 0, 77)):
        eq(f.copy(from_offset, to_offset, count), "OK", repr((from_offset, to_offset, count)))
        count = count or len(data) - from_offset
        want[to_offset:to_offset + count] = data[from_offset:from_offset + count]
        eq(f.data(), bytes(want), repr((from_offset, to_offset, count)))
    eq(f.data(f.from_fh), data, "the source")
    eq(context.nfs.write(f.from_fh, 10, b"changed").status, "OK")
    eq(f.data(), bytes(want), "the source's changes are its own")


@test
def a_last_block_is_filled_with_zeroes(context):
    """RFC 7862, 15.13.3: up to the next multiple of the block, where the target goes on."""
    f = Files(context, b"x" * (BLOCK + 10), b"y" * (4 * BLOCK))
    eq(f.clone(0, BLOCK, BLOCK + 10), "OK")
    eq(f.data(), b"y" * BLOCK + b"x" * (BLOCK + 10) + b"\0" * (BLOCK - 10) + b"y" * BLOCK)
    eq(f.copy(0, 0, BLOCK + 10), "OK")
    eq(f.data(), b"x" * (BLOCK + 10) + b"x" * (BLOCK - 10) + b"x" * 10 + b"\0" * (BLOCK - 10) + b"y" * BLOCK, "not COPY")


@test
def tiny_files(context):
    f = Files(context, b"tiny", b"somewhat longer")
    eq(f.clone(0, 0, 0), "OK")
    eq(f.data(), b"tiny" + b"\0" * 11, "up to the block's end")
    eq(f.copy(1, 6, 3), "OK")
    eq(f.data(), b"tiny\0\0iny" + b"\0" * 6)
    eq(f.clone(0, 2 * BLOCK, 4), "OK")
    eq(f.data(), b"tiny\0\0iny" + b"\0" * (2 * BLOCK - 9) + b"tiny")
    eq(f.copy(0, 3 * BLOCK, 4), "OK")
    eq(f.data()[2 * BLOCK:], b"tiny" + b"\0" * (BLOCK - 4) + b"tiny")


@test
def nothing_is_written_that_can_be_shared(context):
    data = bytes_of(MIB) * 8
    f = Files(context, data)
    before = metric(context.server, "write_bytes"), metric(context.server, "blocks_shared")
    eq(f.clone(0, 0, 0), "OK")
    eq(f.copy(MIB, len(data) + BLOCK, 4 * MIB), "OK")
    eq(metric(context.server, "write_bytes"), before[0], "bytes written")
    eq(metric(context.server, "blocks_shared") - before[1], 12 * MIB // BLOCK, "blocks shared")
    eq(f.data(), data + b"\0" * BLOCK + data[MIB:5 * MIB])
    eq(context.nfs.getattr(f.to_fh).attr.used, 12 * MIB, "what it refers to")
    f.data(f.from_fh)
    misses = metric(context.server, "cache_misses")
    f.data()
    eq(metric(context.server, "cache_misses"), misses, "both are read from the same frames")


@test
def from_snapshots_and_other_volumes(context):
    data = bytes_of(CHUNK + 500)
    f = Files(context, data)
    context.server.cli("snapshot", "create", "vol@copy")
    context.server.create("elsewhere")
    try:
        eq(context.nfs.write(f.from_fh, 0, b"new").status, "OK")
        there = ok(f.c.call(putrootfh(), lookup(b"vol@copy"), lookup(b"from_snapshots_and_other_volumes"), lookup(b"from"),
                            getfh(), getattr_("fsid")))
        for op in (clone, copy):
            eq(context.nfs.setattr(f.to_fh, size=0).status, "OK")
            ok(f.run(op(ANONYMOUS, f.target, 0, 0, 0), from_fh=there[4].fh))
            eq(f.data(), data, "as it was")
        root = context.nfs.mnt(b"/elsewhere").fh
        other = context.nfs.create(root, b"f", rawrpc.GUARDED).fh
        for op in (clone, copy):
            ok(f.run(op(f.source, ANONYMOUS, 0, 0, 0), to_fh=other))
            eq(f.data(other), b"new" + data[3:])
        eq(f.run(clone(ANONYMOUS, ANONYMOUS, 0, 0, 0), to_fh=there[4].fh).status, "ROFS", "into a snapshot")
        context.server.cli("volume", "delete", "elsewhere", "--now", "--yes")
        context.server.cli("snapshot", "delete", "vol@copy", "--yes", check=False)
        eq(f.data(), data, "all others have gone")
    finally:
        context.server.cli("volume", "delete", "elsewhere", "--now", "--yes", check=False)
        context.server.cli("snapshot", "delete", "vol@copy", check=False)
    check(b"all is right" in context.server.cli("pool", "check", "--data"), "the pool")


@test
def ranges_that_are_refused(context):
    f = Files(context, b"x" * (4 * BLOCK + 1), b"y" * (4 * BLOCK))
    for op in (f.clone, f.copy):
        eq(op(5 * BLOCK, 0, 0), "INVAL", "begins past the source's end")
        eq(op(0, 0, 4 * BLOCK + 2), "INVAL", "ends past it")
        eq(op(0, 0, 2**64 - 1), "INVAL", "wraps")
        eq(op(0, 2**63 - BLOCK, BLOCK), "FBIG", "past the largest file")
    eq(f.clone(1, 0, 0), "INVAL", "the source's offset")
    eq(f.clone(0, 1, BLOCK), "INVAL", "the target's")
    eq(f.clone(0, 0, BLOCK + 1), "INVAL", "the length")
    eq(f.clone(0, 0, 4 * BLOCK + 1), "OK", "up to its end")
    both = ok(f.c.open(context.dir, b"from", access=BOTH))[1].stateid
    for op in (clone, copy):
        status = f.run(op(both, both, 0, BLOCK, 2 * BLOCK), to_fh=f.from_fh).status
        eq(status, "INVAL", "overlapping in one file")
        ok(f.run(op(both, both, 0, 2 * BLOCK, 2 * BLOCK), to_fh=f.from_fh))
    eq(f.data(f.from_fh), b"x" * (4 * BLOCK + 1))


@test
def what_is_no_file_and_who_may_not(context):
    f = Files(context, b"x" * BLOCK, b"y" * BLOCK)
    link = context.nfs.symlink(context.dir, b"link", b"from").fh
    for op in (clone, copy):
        for other in (context.dir, link):
            eq(f.run(op(ANONYMOUS, f.target, 0, 0, 0), from_fh=other).status, "WRONG_TYPE", "source")
            eq(f.run(op(f.source, ANONYMOUS, 0, 0, 0), to_fh=other).status, "WRONG_TYPE", "target")
        eq(f.c.call(putrootfh(), savefh(), putfh(f.to_fh), op(ANONYMOUS, f.target, 0, 0, 0)).status, "INVAL",
           "the pseudo root")
        eq(f.c.call(putfh(f.from_fh), savefh(), putrootfh(), op(f.source, ANONYMOUS, 0, 0, 0)).status, "ROFS")
        eq(f.c.call(putfh(f.to_fh), op(f.source, f.target, 0, 0, 0)).status, "NOFILEHANDLE", "nothing saved")
        eq(f.c.call(op(f.source, f.target, 0, 0, 0)).status, "NOFILEHANDLE")
        eq(f.run(op(b"\1" * 16, f.target, 0, 0, 0)).status, "BAD_STATEID", "source")
        eq(f.run(op(f.source, b"\1" * 16, 0, 0, 0)).status, "BAD_STATEID", "target")
        eq(f.run(op(f.target, f.target, 0, 0, 0)).status, "BAD_STATEID", "another file's")
        eq(f.run(op(f.source, f.source, 0, 0, 0), to_fh=f.from_fh).status, "OPENMODE", "opened for reading")
    private = context.file(b"private", b"p" * BLOCK, mode=0o600)
    user = Client41(context.server.port, minor=2, cred=USER)
    for op in (clone, copy):
        eq(user.call(putfh(private), savefh(), putfh(f.to_fh), op(ANONYMOUS, ANONYMOUS, 0, 0, 0)).status, "ACCESS")
        eq(user.call(putfh(f.to_fh), savefh(), putfh(private), op(ANONYMOUS, ANONYMOUS, 0, 0, 0)).status, "ACCESS")
    eq(f.run(copy(f.source, f.target, 0, 0, 0, servers=1)).status, "NOTSUPP", "from another server")
    old = Client41(context.server.port, minor=1)
    eq(old.call(putfh(f.from_fh), savefh(), putfh(f.to_fh), clone(ANONYMOUS, ANONYMOUS, 0, 0, 0)).status, "OP_ILLEGAL")
    eq(f.data(), b"y" * BLOCK)


@test
def deny_and_locks_hold(context):
    f = Files(context, b"x" * BLOCK, b"y" * BLOCK)
    other = Client41(context.server.port, minor=2)
    eq(other.call(putfh(f.from_fh), savefh(), putfh(f.to_fh), clone(ANONYMOUS, ANONYMOUS, 0, 0, 0)).status, "OK")
    ok(other.open(context.dir, b"denied", access=BOTH, deny=BOTH, create=rawrpc.u32(GUARDED) + b"\0" * 8))
    denied = context.nfs.lookup(context.dir, b"denied").fh
    for op in (clone, copy):
        eq(f.run(op(f.source, ANONYMOUS, 0, 0, 0), to_fh=denied).status, "LOCKED", "target")
        eq(f.run(op(ANONYMOUS, f.target, 0, 0, 0), from_fh=denied).status, "LOCKED", "source")


@test
def a_full_volume(context):
    """All of a clone or nothing; a copy as far as it goes."""
    context.server.create("small", "127.0.0.0/8:rw", "none", "--size", "8MiB")
    try:
        root = context.nfs.mnt(b"/small").fh
        f = Files(context, bytes_of(MIB) * 5)
        a, b = (context.nfs.create(root, name, rawrpc.GUARDED).fh for name in (b"a", b"b"))
        ok(f.run(clone(f.source, ANONYMOUS, 0, 0, 0), to_fh=a))
        eq(f.run(clone(f.source, ANONYMOUS, 0, 0, 0), to_fh=b).status, "NOSPC")
        eq(context.nfs.getattr(b).attr.size, 0)
        ok(f.run(clone(f.source, ANONYMOUS, 0, 0, 2 * MIB), to_fh=b))
        eq(f.run(copy(f.source, ANONYMOUS, 0, 2 * MIB, 2 * MIB), to_fh=b).status, "NOSPC")
        ok(f.run(clone(f.source, ANONYMOUS, 0, 0, 0), to_fh=a))  # over itself: no more is held
    finally:
        context.server.cli("volume", "delete", "small", "--now", "--yes", check=False)


@test
def the_gate_counts_what_is_written(context):
    """What is shared is one operation; the rest counts by its bytes."""
    context.server.create("limited")
    try:
        root = context.nfs.mnt(b"/limited").fh
        f, to = Files(context, bytes_of(MIB) * 4), context.nfs.create(root, b"f", rawrpc.GUARDED).fh
        context.server.cli("volume", "set", "limited", "write-bandwidth=4Mi/s")

        def seconds(*ops):
            began = time.monotonic()
            for op in ops:
                ok(f.run(op, to_fh=to))
            return time.monotonic() - began
        shared = [clone(f.source, ANONYMOUS, 0, 0, 0), copy(f.source, ANONYMOUS, 0, 0, 4 * MIB)] * 3
        check(seconds(*shared) < 1, "24 MiB are shared at once")
        written = [copy(f.source, ANONYMOUS, 1, 0, 3 * MIB), copy(f.source, ANONYMOUS, 1, 0, 0), clone(
            f.source, ANONYMOUS, 0, 0, BLOCK)]
        took = seconds(*written)
        check(1.2 < took < 6, f"some 7 MiB, at 4 MiB a second, took {took:.1f} s")
    finally:
        context.server.cli("volume", "delete", "limited", "--now", "--yes", check=False)


@test
def attributes_follow(context):
    f = Files(context, b"x" * BLOCK, b"y")
    eq(ok(f.c.call(putfh(f.to_fh), getattr_("clone_blksize")))[1].attr, {"clone_blksize": BLOCK})
    for op in (clone, copy):
        before = ok(f.c.call(putfh(f.to_fh), setattr_(f.target, size=1, mode=0o4777), getattr_("change", "time_modify")))
        after = f.run(op(f.source, f.target, 0, 0, 0))
        ok(after)
        after = ok(f.c.call(putfh(f.to_fh), getattr_("change", "time_modify", "size")))[1].attr
        was = before[2].attr
        check(after["change"] > was["change"] and after["time_modify"] > was["time_modify"], "change and mtime")
        eq(after["size"], BLOCK)


@test
def a_write_beside_is_there_or_not(context):
    """Blocks of the source that are written meanwhile are old or new, never anything else."""
    f = Files(context, b"\0" * (2 * MIB))
    stop, failed = threading.Event(), []

    def go_on_writing():
        with context.server.connect() as nfs:
            n = 0
            while not stop.is_set():
                n = n % 255 + 1
                if nfs.write(f.from_fh, n % 64 * 2 * BLOCK, bytes([n]) * (2 * BLOCK)).status != "OK":
                    failed.append(n)
    thread = threading.Thread(target=go_on_writing)
    thread.start()
    try:
        for _ in range(60):
            eq(f.clone(0, 0, 0), "OK")
            data = f.data()
            for at in range(0, 128 * BLOCK, 2 * BLOCK):
                pair = data[at:at + 2 * BLOCK]
                check(pair == pair[:1] * (2 * BLOCK), f"at {at}: a write is whole")
    finally:
        stop.set()
        thread.join()
    eq(failed, [])


if __name__ == "__main__":
    run("--cache", "64Mi", "--nfs-versions", "3, 4")
