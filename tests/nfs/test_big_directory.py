#!/usr/bin/env python3
"""test_big_directory.py [--files N] [--tenth]: one directory with N files, listed by READDIR and READDIRPLUS, each
name exactly once, also while every third entry is removed between two calls.  With --linear a directory of a tenth
the size is listed as well, and the server's time an entry may at most double (a larger directory's inodes miss the
processor's caches and the decoded table; anything worse than linear would show as ten times)."""
import argparse
import sys
import time

import harness
import rawrpc
from rawrpc import opaque, u32

WINDOW = 256


def pipelined(nfs, calls):
    """Sends calls (procedure name, arguments) with WINDOW in flight; every reply must be OK."""
    waiting, count, batch = 0, 0, []

    def reap():
        nonlocal waiting
        _, reader = rawrpc.parse_reply(nfs.receive())
        status = reader.u32()
        if status:
            raise AssertionError(f"status {rawrpc.STATUS_NAME.get(status, status)}")
        waiting -= 1

    for name, args in calls:
        message = rawrpc.call_message(count & 0xffffffff, rawrpc.NFS, 3, rawrpc.PROC[name], args)
        batch.append(u32(0x80000000 | len(message)) + message)
        waiting, count = waiting + 1, count + 1
        if len(batch) == 32:
            nfs.send_bytes(b"".join(batch))
            batch = []
            while waiting > WINDOW:
                reap()
    nfs.send_bytes(b"".join(batch))
    while waiting:
        reap()
    return count


def name_of(i):
    return b"image-%08d.jpg" % i


def create(nfs, where, count):
    started = time.monotonic()
    pipelined(nfs, (("CREATE", opaque(where) + opaque(name_of(i)) + u32(rawrpc.GUARDED) + rawrpc.sattr(mode=0o644))
                    for i in range(count)))
    return time.monotonic() - started


def listing(nfs, where, plus, count):
    counts = {"dircount": 1 << 20, "maxcount": 1 << 20} if plus else {"count": 1 << 20}
    started = time.monotonic()
    entries = nfs.listing(where, plus, **counts)
    seconds = time.monotonic() - started
    names = [e.name for e in entries]
    harness.eq(len(names), count + 2, "entries")
    harness.eq(set(names), {name_of(i) for i in range(count)} | {b".", b".."}, "names")
    if plus:
        harness.check(all(e.fh and e.attr and e.attr.fileid == e.fileid for e in entries[2:]),
                      "attributes and handles")
    return seconds


def server_seconds(server):
    with open(f"/proc/{server.process.pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def listing_cost(server, nfs, where, plus):
    """Server seconds for one pass, replies not decoded."""
    def one_pass():
        cookie, calls = 0, 0
        while True:
            args = opaque(where) + rawrpc.u64(cookie) + bytes(8) + (u32(1 << 20) * 2 if plus else u32(1 << 20))
            nfs.send(rawrpc.call_message(7, rawrpc.NFS, 3, rawrpc.PROC["READDIRPLUS" if plus else "READDIR"], args))
            _, r = rawrpc.parse_reply(nfs.receive())
            reply = rawrpc.Reply(r.u32())
            nfs._listing(r, reply, plus)
            calls += 1
            if reply.eof:
                return calls
            cookie = reply.entries[-1].cookie
    one_pass()
    before = server_seconds(server)
    one_pass()
    return server_seconds(server) - before


def with_removals(nfs, where, count, plus):
    """Lists in pieces and removes every third entry seen in each piece before the next is asked for."""
    seen, cookie, removed = [], 0, set()
    turn = 0
    while True:
        part = nfs.readdirplus(where, cookie, dircount=1 << 17, maxcount=1 << 17) if plus else \
            nfs.readdir(where, cookie, count=1 << 16)
        harness.eq(part.status, "OK", "listing")
        names = [e.name for e in part.entries]
        seen += names
        if part.eof:
            break
        cookie = part.entries[-1].cookie
        doomed = [n for i, n in enumerate(names) if n not in (b".", b"..") and (turn + i) % 3 == 0]
        doomed.append(names[-1]) if names[-1] not in doomed + [b".", b".."] else None  # the cookie's own entry
        turn += len(names)
        pipelined(nfs, (("REMOVE", opaque(where) + opaque(n)) for n in doomed))
        removed |= set(doomed)
    harness.eq(len(seen), len(set(seen)), "names seen twice")
    return set(seen), removed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=30000)
    parser.add_argument("--linear", action="store_true")
    args = parser.parse_args()
    server = harness.Server("--cache", "256Mi")
    passed = 0
    try:
        server.start()
        server.create("vol")
        nfs = server.connect(timeout=120)
        root = nfs.mnt(b"/vol").fh
        costs = {}
        for count in ([args.files // 10] if args.linear else []) + [args.files]:
            where = nfs.mkdir(root, b"d%d" % count, mode=0o755).fh
            seconds = create(nfs, where, count)
            print(f"# {count} files created in {seconds:.1f} s, {count / seconds:.0f}/s", flush=True)
            for plus in (False, True):
                seconds = listing(nfs, where, plus, count)
                costs[count, plus] = listing_cost(server, nfs, where, plus)
                print(f"# {'READDIRPLUS' if plus else 'READDIR'} of {count}: {seconds:.2f} s with decoding here, "
                      f"{costs[count, plus]:.2f} s of the server", flush=True)
        print("ok READDIR and READDIRPLUS give each name exactly once")
        passed += 1
        if args.linear:
            for plus in (False, True):
                small, large = costs[args.files // 10, plus], costs[args.files, plus]
                harness.check(large <= 10 * max(small, .02) * 2, f"time is linear: {small:.2f} s, {large:.2f} s")
            print("ok listing time grows linearly")
            passed += 1
        everything = {name_of(i) for i in range(args.files)}
        seen, removed = with_removals(nfs, where, args.files, False)
        harness.eq(seen, everything | {b".", b".."}, "names seen while removing")
        left = everything - removed
        seen, removed = with_removals(nfs, where, len(left), True)
        harness.eq(seen, left | {b".", b".."}, "names seen while removing (READDIRPLUS)")
        harness.eq({e.name for e in nfs.listing(where, count=1 << 20)}, (left - removed) | {b".", b".."}, "what is left")
        print("ok each name exactly once while every third is removed")
        passed += 1
        problem = server.stop()
        harness.check(not problem, problem)
    except Exception:
        import traceback
        traceback.print_exc()
        print(server.stderr().decode(errors="replace")[-2000:])
        print(f"not ok big directory\n{passed} passed, 1 failed")
        sys.exit(1)
    finally:
        server.close()
    print(f"{passed} passed, 0 failed")


main()
