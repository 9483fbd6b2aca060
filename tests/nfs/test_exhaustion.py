#!/usr/bin/env python3
"""test_exhaustion.py [--scale N] [NAME...]: clients that take what they can, beside one that behaves.

While each attack runs a process of its own measures GETATTR, READ and CREATE/REMOVE over its own connection; they must
go on being answered.  The server's memory must stay within its bounds at the peak, and memory and descriptors must be
back when the attackers have gone.  --scale multiplies connections and calls."""
import argparse
import contextlib
import multiprocessing
import os
import random
import select
import socket
import struct
import sys
import time
import traceback

import harness
import rawrpc
from harness import check, eq
from rawrpc import GUARDED, NFS, PROC, UNCHECKED, call_message, opaque, sattr, u32, u64

MIB = 1 << 20
CACHE = 64
SECONDS = 3  # of each attack
SLOW = 4 if "address" in os.environ.get("SLUICE_BUILD", "") else 1  # sanitizers
MEDIAN_MS, WORST_MS = 250 * SLOW, 5000 * SLOW
IN_FLIGHT = 64  # MiB that may be in flight, all together
ATTACKS = []


def attack(function):
    ATTACKS.append(function)
    return function


def record(message):
    return u32(0x80000000 | len(message)) + message


def call(xid, name, args, cred=rawrpc.ROOT):
    return record(call_message(xid, NFS, 3, PROC[name], args, cred))


# ---- the client that behaves ----

def meter(port, root, stop, results):
    nfs = rawrpc.Nfs(port, timeout=60)
    mine = nfs.mkdir(root, b"meter%d" % os.getpid(), mode=0o755).fh
    fh = nfs.create(mine, b"data", GUARDED, mode=0o644).fh
    data = random.Random(1).randbytes(MIB)
    for at in range(8):
        eq(nfs.write(fh, at * MIB, data).status, "OK", "meter's write")
    results.send("ready")
    times, dice, number = {"GETATTR": [], "READ": [], "CREATE": []}, random.Random(2), 0
    while not stop.is_set():
        for name in times:
            started = time.monotonic()
            if name == "GETATTR":
                ok = nfs.getattr(fh).ok
            elif name == "READ":
                at = dice.randrange(8 * MIB - 65536)
                ok = nfs.read(fh, at, 65536).data == (data * 2)[at % MIB:at % MIB + 65536]
            else:
                number += 1
                ok = nfs.create(mine, b"f%d" % number, GUARDED, mode=0o600).ok and \
                    nfs.remove(mine, b"f%d" % number).ok
            if not ok:
                results.send(f"{name} failed")
                return
            times[name].append((time.monotonic() - started) * 1000)
        time.sleep(.005)
    results.send(times)


def summary(times):
    text, bad = [], []
    for name, values in times.items():
        values.sort()
        middle, worst = values[len(values) // 2], values[-1]
        text.append(f"{name} {middle:.1f}/{worst:.0f} ms ({len(values)})")
        if middle > MEDIAN_MS or worst > WORST_MS:
            bad.append(name)
    return ", ".join(text), bad


# ---- the server's state ----

def memory(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


class Stage:
    """What an attack has to work with."""

    def __init__(self, server, root, scale):
        self.server, self.root, self.scale = server, root, scale
        self.peak, self.open = 0, []

    def many(self, count):
        """Connections, as plain sockets."""
        made = []
        for _ in range(count):
            made.append(socket.create_connection(("127.0.0.1", self.server.port), 30))
            self.open.append(made[-1])
        return made

    def watch(self, seconds, until=lambda: False):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            self.peak = max(self.peak, memory(self.server))
            time.sleep(.05)

    def push(self, pairs, seconds):
        """Sends to each socket what it takes, and reads nothing."""
        pairs = [[sock, memoryview(data), 0] for sock, data in pairs]
        for sock, _, _ in pairs:
            sock.setblocking(False)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            todo = [p for p in pairs if p[2] < len(p[1])]
            if not todo:
                break
            moved = 0
            for p in todo:
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    sent = p[0].send(p[1][p[2]:p[2] + 262144])
                    p[2] += sent
                    moved += sent
            self.peak = max(self.peak, memory(self.server))
            if not moved:
                time.sleep(.02)
        self.watch(max(0, end - time.monotonic()))

    def close(self, reset=False):
        for sock in self.open:
            if reset:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        self.open = []

    def file(self, name, mib):
        with self.server.connect(timeout=60) as nfs:
            fh = nfs.create(self.root, name, UNCHECKED, mode=0o666).fh
            for at in range(mib):
                eq(nfs.write(fh, at * MIB, os.urandom(MIB)).status, "OK", "a file to read")
        return fh


# ---- attacks ----

@attack
def connections_that_do_nothing(s):
    """Up to the limit; one more is refused, and there is room again when some leave."""
    limit = 400 * s.scale
    s.many(limit - 20)
    s.watch(2)
    extra = s.many(60)
    s.watch(1)
    refused = 0
    for sock in extra:
        sock.settimeout(.2)
        with contextlib.suppress(TimeoutError):
            try:
                refused += sock.recv(1) == b""
            except ConnectionError:
                refused += 1
    check(20 <= refused < 60, f"{refused} of 60 connections too many were refused")
    s.close()
    time.sleep(.5)
    with s.server.connect() as nfs:
        nfs.null()
    return 40 + 400 * s.scale * .1


@attack
def records_half_sent(s):
    """A megabyte announced on each connection, and most of it sent."""
    count = 150 * s.scale
    half = u32(0x80000000 | MIB) + bytes(900000)
    s.push([(sock, half) for sock in s.many(count)], SECONDS)
    return IN_FLIGHT + 1.2 * count


@attack
def fragments_half_sent(s):
    """Many small fragments, never the last one."""
    count = 100 * s.scale
    piece = (u32(64) + bytes(64)) * 14000
    s.push([(sock, piece) for sock in s.many(count)], SECONDS)
    return IN_FLIGHT + 2.2 * count


@attack
def replies_never_read(s):
    """READs of a megabyte each, of different places, pipelined; no reply is taken."""
    count = 40 * s.scale
    fh = s.file(b"wide", 96)
    pairs = []
    for i, sock in enumerate(s.many(count)):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        places = [(i * 37 + k * 11) % 96 for k in range(64)]
        pairs.append((sock, b"".join(call(k, "READ", opaque(fh) + u64(p * MIB) + u32(MIB))
                                     for k, p in enumerate(places))))
    s.push(pairs, SECONDS)
    return IN_FLIGHT + 1.3 * count


@attack
def listings_never_read(s):
    count = 40 * s.scale
    with s.server.connect(timeout=60) as nfs:
        where = nfs.mkdir(s.root, b"crowd", mode=0o777).fh
        wire = b"".join(call(i, "CREATE", opaque(where) + opaque(b"%0200d" % i) + u32(GUARDED) + sattr(mode=0o600))
                        for i in range(3000))
        nfs.send_bytes(wire[:len(wire)])
        for _ in range(3000):
            nfs.receive()
    ask = b"".join(call(k, "READDIRPLUS", opaque(where) + u64(0) + bytes(8) + u32(MIB) + u32(MIB)) for k in range(100))
    s.push([(sock, ask) for sock in s.many(count)], SECONDS)
    return IN_FLIGHT + 2.2 * count


@attack
def calls_pipelined(s):
    """Ten thousand small calls on each of some connections; all are answered."""
    count, calls = 8, 10000
    socks = s.many(count)
    wire = b"".join(call(k, "GETATTR", opaque(s.root)) for k in range(calls))
    left = {sock: [0, 0] for sock in socks}
    for sock in socks:
        sock.setblocking(False)
    end = time.monotonic() + 60
    while left and time.monotonic() < end:
        readable, writable, _ = select.select(list(left), [k for k, v in left.items() if v[0] < len(wire)], [], 1)
        for sock in writable:
            left[sock][0] += sock.send(wire[left[sock][0]:left[sock][0] + 65536])
        for sock in readable:
            left[sock][1] += len(sock.recv(262144))
            if left[sock][1] == calls * (4 + 24 + 4 + 84):
                del left[sock]
        s.peak = max(s.peak, memory(s.server))
    eq(len(left), 0, "connections that did not get all replies")
    return IN_FLIGHT


@attack
def writes_at_once(s):
    """WRITEs of 64 KiB, a hundred in flight on each connection, replies not read until the end."""
    count, calls = 20 * s.scale, 60
    with s.server.connect() as nfs:
        files = [nfs.create(s.root, b"w%d" % i, UNCHECKED, mode=0o666).fh for i in range(count)]
    data = os.urandom(65536)
    pairs = [(sock, b"".join(call(k, "WRITE", opaque(fh) + u64(k * 65536) + u32(65536) + u32(0) + opaque(data))
                             for k in range(calls))) for sock, fh in zip(s.many(count), files)]
    s.push(pairs, SECONDS)
    return IN_FLIGHT + 1.2 * count + 60


@attack
def creates_at_once(s):
    """More changes at once than there are coroutines (the server has 2,000 here)."""
    count, calls = 30 * s.scale, 200
    where = []
    with s.server.connect() as nfs:
        where = nfs.mkdir(s.root, b"creates", mode=0o777).fh
    pairs = [(sock, b"".join(call(i * calls + k, "CREATE", opaque(where) + opaque(b"%d.%d" % (i, k)) + u32(UNCHECKED) +
                                  sattr(mode=0o600)) for k in range(calls)))
             for i, sock in enumerate(s.many(count))]
    s.push(pairs, SECONDS)
    return IN_FLIGHT + 80


@attack
def connections_that_come_and_go(s):
    """With calls in flight, closed or reset in the middle."""
    dice = random.Random(3)
    fh = s.file(b"churn", 8)
    calls = [call(9, "READ", opaque(fh) + u64(k * MIB) + u32(MIB)) for k in range(8)]
    writes = call(9, "WRITE", opaque(fh) + u64(5) + u32(100000) + u32(2) + opaque(os.urandom(100000)))
    end, made = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        socks = s.many(20)
        for sock in socks:
            wire = b"".join(dice.choices(calls, k=5)) + writes * dice.randrange(3)
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError, ConnectionError):
                sock.send(wire[:dice.randrange(1, len(wire))] if dice.random() < .5 else wire)
        made += 20
        if dice.random() < .5:
            s.watch(.02)
        s.close(reset=dice.random() < .5)
    print(f"#   {made} connections")
    return IN_FLIGHT + 60


@attack
def repeated_calls_over_new_connections(s):
    """Changes sent again and again over new connections, while others load the server, are run once each."""
    rounds, calls = 12 * s.scale, 40
    with s.server.connect() as nfs:
        where = nfs.mkdir(s.root, b"again%d" % random.randrange(1 << 30), mode=0o777).fh
        fh = nfs.create(where, b"count", UNCHECKED, mode=0o666).fh
        load = nfs.mkdir(where, b"load", mode=0o777).fh
    for i, sock in enumerate(s.many(10)):
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.send(b"".join(call(i * 1000 + k, "CREATE", opaque(load) + opaque(b"%d.%d" % (i, k)) + u32(UNCHECKED) +
                                    sattr(mode=0o600)) for k in range(1000)))
    first = random.randrange(1 << 30)
    wires, answers = {}, {}
    for k in range(calls):
        wires[first + k] = call(first + k, "MKDIR", opaque(where) + opaque(b"d%d" % k) + sattr(mode=0o755))
        wires[first + calls + k] = call(first + calls + k, "LINK", opaque(fh) + opaque(where) + opaque(b"l%d" % k))
    for turn in range(rounds):
        sock = s.many(1)[0]
        order = list(wires)
        random.shuffle(order)
        sock.sendall(b"".join(wires[x] for x in order))
        if turn < rounds - 1 and turn % 3:
            time.sleep(random.random() * .02)
            continue  # left behind, unread; some of the copies are still running
        reader = rawrpc.Connection.__new__(rawrpc.Connection)
        reader.socket = sock
        sock.settimeout(30)
        for _ in order:
            reply = reader.receive()
            _, r = rawrpc.parse_reply(reply)
            eq(r.u32(), 0, "status of a repeated call")
            xid = int.from_bytes(reply[:4], "big")
            eq(answers.setdefault(xid, reply), reply, "the reply to a repeated call")
    eq(len(answers), len(wires), "calls that were answered")
    with s.server.connect() as nfs:
        eq(nfs.getattr(fh).attr.nlink, calls + 1, "links")
        eq(nfs.getattr(where).attr.nlink, calls + 3, "directories")
    return IN_FLIGHT


def standing_still(server):
    """Who stops in the middle of a call, or takes no reply, is closed in the end; who merely is silent is not."""
    with server.connect() as nfs:
        root = nfs.mnt(b"/vol").fh
        fh = nfs.create(root, b"still", UNCHECKED, mode=0o666).fh
        eq(nfs.write(fh, 0, bytes(MIB)).status, "OK")
    half, deaf, silent = (socket.create_connection(("127.0.0.1", server.port), 30) for _ in range(3))
    half.sendall(u32(0x80000000 | MIB) + bytes(5000))
    deaf.sendall(b"".join(call(k, "READ", opaque(fh) + u64(0) + u32(MIB)) for k in range(30)))
    silent.sendall(call(1, "GETATTR", opaque(fh)))
    half.settimeout(100)
    check(half.recv(1) == b"", "a call half sent is dropped")
    taken = 0
    time.sleep(10)
    deaf.settimeout(20)
    with contextlib.suppress(ConnectionError):
        while piece := deaf.recv(1 << 20):
            taken += len(piece)
    check(taken < 30 * MIB, "replies that nobody takes are dropped")
    reader = rawrpc.Connection.__new__(rawrpc.Connection)
    reader.socket = silent
    rawrpc.parse_reply(reader.receive())
    silent.sendall(call(2, "GETATTR", opaque(fh)))
    eq(rawrpc.parse_reply(reader.receive())[0], 2, "a silent connection goes on")
    for sock in (half, deaf, silent):
        sock.close()


# ---- running ----

def one(server, root, function, scale):
    stop = multiprocessing.Event()
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=meter, args=(server.port, root, stop, theirs))
    process.start()
    stage = Stage(server, root, scale)
    try:
        eq(ours.recv(), "ready", "the meter")
        before, fds = memory(server), descriptors(server)
        bound = function(stage)
        stage.peak = max(stage.peak, memory(server))
        stop.set()
        check(ours.poll(60), "the meter's call is not answered")
        times = ours.recv()
        check(isinstance(times, dict), times)
        text, bad = summary(times)
        stage.close()
        until = time.monotonic() + 10
        while time.monotonic() < until and (descriptors(server) > fds or
                                            memory(server) > before + (48 if SLOW == 1 else 1000)):
            time.sleep(.1)
        after = memory(server)
        print(f"# {function.__name__}: RssAnon {before:.0f} -> peak {stage.peak:.0f} (bound +{bound:.0f}) -> {after:.0f}"
              f" MiB; {text}", flush=True)
        check(not bad, f"a client that behaves waits too long: {', '.join(bad)}")
        check(descriptors(server) <= fds, f"descriptors: {fds} before, {descriptors(server)} after")
        if SLOW == 1:  # ASan keeps what was freed
            check(stage.peak <= before + bound, f"memory at the peak: {stage.peak:.0f} MiB")
            # what the heap keeps between pieces that are still used
            check(after <= before + max(48, bound / 2), f"memory after: {after:.0f} MiB")
        check(server.process.poll() is None, "the server lives")
        print(f"ok {function.__name__}", flush=True)
        return True
    except Exception:
        print(f"not ok {function.__name__}\n{traceback.format_exc()}", flush=True)
        return False
    finally:
        stage.close()
        stop.set()
        process.join(5)
        if process.is_alive():
            process.kill()
        process.join()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--still", action="store_true", help="only connections that stand still (80 s)")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    server = harness.Server("--cache", f"{CACHE}M", "--connections-max", str(400 * args.scale), "--coroutines", "2000",
                            *os.environ.get("SLUICE_OPTIONS", "").split())
    passed = failed = 0
    try:
        server.start()
        server.create("vol")
        with server.connect() as nfs:
            root = nfs.mnt(b"/vol").fh
        time.sleep(.5)
        if args.still:
            standing_still(server)
            print("ok connections that stand still are closed")
            passed += 1
        for function in ATTACKS if not args.still else []:
            if args.names and function.__name__ not in args.names:
                continue
            ok = one(server, root, function, args.scale)
            passed, failed = passed + ok, failed + (not ok)
        problem = server.stop() if server.process.poll() is None else f"died with {server.process.returncode}"
        print("not ok" if problem else "ok", "the server leaves cleanly" + (f": {problem}" if problem else ""))
        if problem:
            print(server.stderr().decode(errors="replace")[-8000:])
        passed, failed = passed + (not problem), failed + bool(problem)
    finally:
        server.close()
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
