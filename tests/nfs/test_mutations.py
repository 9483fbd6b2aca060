#!/usr/bin/env python3
"""test_mutations.py [--calls N] [--seed S] [--trace FILE]: valid calls of every procedure, damaged.

Bytes are flipped, lengths changed, pieces cut out, doubled and taken from other calls; in the arguments, in the header,
and in the record's mark.  Each call must be answered by a reply that decodes to its last byte, by an RPC error that
fits, or, where the framing is lost, by a closed connection.  What no damaged call may reach stays as it was: a file in
a volume that nobody has a handle of."""
import argparse
import itertools
import random
import select
import struct
import sys
import time

import harness
import rawrpc
from rawrpc import (BLK, EXCLUSIVE, FIFO, GUARDED, MOUNT, MOUNT_PROCEDURES, NFS, PROC, PROCEDURES, REG, UNCHECKED,
                    Closed, RpcError, boolean, call_message, opaque, sattr, u32, u64)

LENGTHS = (0, 1, 2, 3, 4, 5, 7, 8, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1023, 1024, 1025, 4096, 65535, 65536,
           (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 1 << 21, 1 << 30, 0x7fffffff, 0x80000000, 0xfffffffc, 0xffffffff)
OFFSETS = (0, 1, 4095, 4096, 262143, 262144, (1 << 32) - 1, 1 << 32, (1 << 62), (1 << 63) - 1048577, (1 << 63) - 2,
           (1 << 63) - 1, 1 << 63, (1 << 64) - 1048576, (1 << 64) - 1)
NAMES = (b"a", b"b", b"file", b"dir", b"link", b".", b"..", b"", b"x" * 255, b"x" * 256, b"y" * 5000, b"a/b", b"a\0b",
         b"\xff\xfe", b".snapshot", b"n%s%n", b"-rf", b"\n", b" ")
WAIT = 20


class Handles:
    """The objects that calls are about; made again when a call has removed them."""

    def __init__(self, nfs, volume):
        self.root = nfs.mnt(b"/" + volume.encode()).fh
        self.old = []
        self.make(nfs)

    def make(self, nfs):
        made = nfs.mkdir(self.root, b"work%d" % len(self.old), mode=0o777)
        if not made.ok:  # a damaged call may well have named or removed things here
            made = nfs.mkdir(self.root, random.randbytes(8).hex().encode(), mode=0o777)
        harness.eq(made.status, "OK", "a directory to work in")
        self.dir = made.fh
        self.file = nfs.create(self.dir, b"file", GUARDED, mode=0o666).fh
        nfs.write(self.file, 0, bytes(range(256)) * 40)
        self.sub = nfs.mkdir(self.dir, b"dir", mode=0o777).fh
        self.link = nfs.symlink(self.dir, b"link", b"target/of/it").fh
        nfs.mknod(self.dir, b"pipe", FIFO)
        self.old = (self.old + [self.dir, self.file, self.sub, self.link])[-40:]

    def any(self, dice):
        kind = dice.random()
        if kind < .7:
            return dice.choice((self.dir, self.file, self.sub, self.link, self.root))
        if kind < .85:
            return dice.choice(self.old)
        fh = bytearray(self.file)
        fh[dice.randrange(len(fh))] ^= 1 << dice.randrange(8)
        return dice.choice((bytes(fh), b"", bytes(32), bytes(64), self.file[:-1], self.file + b"\0" * 4))


def attributes(dice):
    pick = dice.choice
    time_of = lambda: pick((None, None, rawrpc.NOW, (0, 0), (0xffffffff, 999999999), (5, 1000000000), (5, 0xffffffff)))
    return sattr(mode=pick((None, 0o777, 0xffffffff)), uid=pick((None, 0, 0xffffffff)),
                 gid=pick((None, 0, 0xfffffffe)), size=pick((None, None, 0, 5) + OFFSETS[:8]),
                 atime=time_of(), mtime=time_of())


def arguments(dice, name, h):
    """Valid arguments of a procedure, as far as XDR goes."""
    fh, dir_fh, word, offset = h.any(dice), dice.choice((h.dir, h.sub, h.any(dice))), dice.choice(NAMES), \
        dice.choice(OFFSETS)
    size = dice.choice((0, 1, 100, 4096, 5000, 65536, 1 << 20, 0xffffffff))
    if name in ("NULL", "DUMP", "UMNTALL", "EXPORT"):
        return b""
    if name in ("MNT", "UMNT"):
        return opaque(dice.choice((b"/vol", b"vol", b"//vol//", b"/vol/work0", b"/vol@x", b"/", b"", b"/" * 1024,
                                   b"/" * 1025, b"/vol" + b"/." * 500, b"/vol/..", b"/\0", b"/vol/" + b"z" * 1000)))
    if name == "SETATTR":
        return opaque(fh) + attributes(dice) + (boolean(True) + u64(dice.getrandbits(64)) if dice.random() < .3
                                                else boolean(False))
    if name in ("LOOKUP", "REMOVE", "RMDIR"):
        return opaque(dir_fh) + opaque(word)
    if name == "ACCESS":
        return opaque(fh) + u32(dice.getrandbits(32))
    if name == "READ":
        return opaque(fh) + u64(offset) + u32(size)
    if name == "WRITE":
        data = dice.randbytes(min(size, 9000) if dice.random() < .98 else 1 << 20)
        return opaque(fh) + u64(offset) + u32(len(data)) + u32(dice.randrange(3)) + opaque(data)
    if name == "CREATE":
        how = dice.choice((UNCHECKED, GUARDED, EXCLUSIVE))
        return opaque(dir_fh) + opaque(word) + u32(how) + (dice.randbytes(8) if how == EXCLUSIVE else attributes(dice))
    if name == "MKDIR":
        return opaque(dir_fh) + opaque(word) + attributes(dice)
    if name == "SYMLINK":
        return opaque(dir_fh) + opaque(word) + attributes(dice) + opaque(dice.choice(NAMES + (b"t" * 4096,)))
    if name == "MKNOD":
        kind = dice.choice((BLK, rawrpc.CHR, FIFO, rawrpc.SOCK, REG, 0, 9))
        rest = attributes(dice) if kind in (BLK, rawrpc.CHR, FIFO, rawrpc.SOCK) else b""
        return opaque(dir_fh) + opaque(word) + u32(kind) + rest + (u64(dice.getrandbits(64)) if kind in
                                                                   (BLK, rawrpc.CHR) else b"")
    if name == "RENAME":
        return opaque(dir_fh) + opaque(word) + opaque(h.any(dice)) + opaque(dice.choice(NAMES))
    if name == "LINK":
        return opaque(fh) + opaque(dir_fh) + opaque(word)
    if name == "READDIR":
        return opaque(dir_fh) + u64(offset) + bytes(8) + u32(size)
    if name == "READDIRPLUS":
        return opaque(dir_fh) + u64(offset) + bytes(8) + u32(dice.choice(LENGTHS)) + u32(size)
    if name == "COMMIT":
        return opaque(fh) + u64(offset) + u32(size)
    return opaque(fh)


def damage(dice, data, others):
    """One change; a multiple of four or any number of bytes."""
    data = bytearray(data)
    if not data:
        return dice.randbytes(dice.randrange(1, 20))
    at = dice.randrange(len(data))
    word = at & ~3
    kind = dice.randrange(11)
    if kind == 0:
        data[at] ^= 1 << dice.randrange(8)
    elif kind == 1:
        data[at] = dice.randrange(256)
    elif kind == 2:
        data[word:word + 4] = u32(dice.choice(LENGTHS))
    elif kind == 3:  # a length, a little off
        old = int.from_bytes(data[word:word + 4], "big")
        data[word:word + 4] = u32(old + dice.choice((-5, -4, -1, 1, 3, 4, 5, 64)))
    elif kind == 4:
        del data[at:]
    elif kind == 5:
        del data[word:word + 4 * dice.randrange(1, 9)]
    elif kind == 6:
        data[word:word] = dice.choice((bytes(4), u32(0xffffffff), dice.randbytes(dice.randrange(1, 64))))
    elif kind == 7:
        data[word:word] = data[word:word + 4 * dice.randrange(1, 20)]
    elif kind == 8:
        data += dice.choice((bytes(4), dice.randbytes(dice.randrange(1, 200)), bytes(70000)))
    elif kind == 9 and others:
        other = dice.choice(others)
        data[word:] = other[dice.randrange(len(other) + 1) & ~3:]
    else:
        data[word:word + 8] = u64(dice.choice(OFFSETS))
    return bytes(data)


def decode(program, name, r):
    """Reads a whole reply by what its procedure says, whatever its status."""
    decoder = Decoder(r)
    if program == MOUNT:
        decoder.mount(name)
    elif name != "NULL":
        decoder.nfs(name)
    r.end()


class Decoder(rawrpc.Nfs):
    """rawrpc's decoders over a reply that has come already."""

    def __init__(self, reader):
        self.reader, self.cred = reader, rawrpc.ROOT

    def call(self, *unused, **options):
        return self.reader

    def nfs(self, name):
        fh, empty = bytes(32), b"x"
        {"GETATTR": lambda: self.getattr(fh), "SETATTR": lambda: self.setattr(fh),
         "LOOKUP": lambda: self.lookup(fh, empty), "ACCESS": lambda: self.access(fh),
         "READLINK": lambda: self.readlink(fh), "READ": lambda: self.read(fh, 0, 0),
         "WRITE": lambda: self.write(fh, 0, b""), "CREATE": lambda: self.create(fh, empty),
         "MKDIR": lambda: self.mkdir(fh, empty), "SYMLINK": lambda: self.symlink(fh, empty, empty),
         "MKNOD": lambda: self.mknod(fh, empty, 7), "REMOVE": lambda: self.remove(fh, empty),
         "RMDIR": lambda: self.rmdir(fh, empty), "RENAME": lambda: self.rename(fh, empty, fh, empty),
         "LINK": lambda: self.link(fh, fh, empty), "READDIR": lambda: self.readdir(fh),
         "READDIRPLUS": lambda: self.readdirplus(fh), "FSSTAT": lambda: self.fsstat(fh),
         "FSINFO": lambda: self.fsinfo(fh), "PATHCONF": lambda: self.pathconf(fh),
         "COMMIT": lambda: self.commit(fh)}[name]()

    def mount(self, name):
        {"NULL": lambda: None, "MNT": lambda: self.mnt(b""), "DUMP": self.dump, "UMNT": lambda: self.umnt(b""),
         "UMNTALL": self.umntall, "EXPORT": self.export}[name]()


class Sent:
    """A damaged call: what it was, and what may come back."""

    def __init__(self, message):
        self.message = message
        words = [int.from_bytes(message[at:at + 4], "big") for at in range(0, 24, 4)] if len(message) >= 24 else None
        self.xid = message[:4]
        self.is_call = len(message) >= 8 and message[4:8] == bytes(4)
        self.lost = len(message) < 8
        self.program = self.procedure = None
        if words and words[2] == 2 and words[4] == 3 and words[3] in (NFS, MOUNT):
            names = PROCEDURES if words[3] == NFS else MOUNT_PROCEDURES
            self.program = words[3]
            self.procedure = names[words[5]] if words[5] < len(names) else None

    def check(self, reply):
        harness.eq(reply[:4], self.xid, "the reply's xid")
        harness.eq(len(reply) % 4, 0, "a reply's length, modulo 4")
        try:
            _, reader = rawrpc.parse_reply(reply)
        except RpcError as error:
            legal = (error.kind, error.status) in LEGAL
            harness.check(legal, f"an RPC error that fits: {error}")
            return f"{error.kind} {error.status}"
        harness.check(self.procedure is not None, "results of a procedure that does not exist")
        status = int.from_bytes(reader.data[reader.at:reader.at + 4], "big") if self.program == NFS and \
            self.procedure != "NULL" else 0
        decode(self.program, self.procedure, reader)
        harness.check(status != rawrpc.STATUS["SERVERFAULT"], "an error that is not in the table")
        return self.procedure + " " + str(rawrpc.STATUS_NAME.get(status, status))


LEGAL = {("denied", rawrpc.RPC_MISMATCH), ("denied", rawrpc.AUTH_ERROR), ("accepted", rawrpc.PROG_UNAVAIL),
         ("accepted", rawrpc.PROG_MISMATCH), ("accepted", rawrpc.PROC_UNAVAIL), ("accepted", rawrpc.GARBAGE_ARGS)}


class Attack:
    def __init__(self, server, seed, trace):
        self.server, self.dice, self.trace = server, random.Random(seed), trace
        self.good = server.connect(timeout=WAIT)
        self.handles = Handles(self.good, "vol")
        self.seen, self.closed, self.count = {}, 0, 0
        self.xids = itertools.count(1)
        self.samples = []
        self.bad = None

    def message(self):
        dice = self.dice
        program, names = (NFS, PROCEDURES) if dice.random() < .9 else (MOUNT, MOUNT_PROCEDURES)
        name = dice.choice(names)
        args = arguments(dice, name, self.handles)
        self.samples = (self.samples + [args])[-30:]
        where = dice.random()
        if where < .75:
            for _ in range(dice.choice((0, 1, 1, 1, 2, 3, 6))):
                args = damage(dice, args, self.samples)
        cred = dice.choice((rawrpc.ROOT, rawrpc.USER, rawrpc.Cred(None), rawrpc.Cred(5, 6, range(16))))
        message = call_message(next(self.xids), program, 3, names.index(name), args, cred)
        if where >= .75:
            head = damage(dice, message[4:60], self.samples)
            message = message[:4] + head + message[60:]
        return message

    def fragments(self, message):
        dice = self.dice
        if dice.random() < .8 or len(message) > 20000:
            return u32(0x80000000 | len(message)) + message
        wire, step = b"", dice.choice((1, 4, 13, 40, 200))
        for at in range(0, max(len(message), 1), step):
            piece = message[at:at + step]
            wire += u32((0x80000000 if at + step >= len(message) else 0) | len(piece)) + piece
        return wire

    def batch(self, size):
        """Calls of one connection, sent at once; a NULL call ends them."""
        dice = self.dice
        if self.bad is None:
            self.bad = self.server.connect(timeout=WAIT)
        sent = [Sent(self.message()) for _ in range(size)]
        wire = b"".join(self.fragments(s.message) for s in sent)
        framing_lost = any(s.lost for s in sent)
        if dice.random() < .03:  # the framing itself: the rest of this connection is noise
            at = dice.randrange(max(1, len(wire) // 2))
            wire = wire[:at] + dice.randbytes(dice.randrange(1, 40)) + wire[at:]
            framing_lost = True
        self.count += size
        if self.trace:
            self.trace.write(struct.pack(">I", len(wire)) + wire)
            self.trace.flush()
        last = Sent(call_message(next(self.xids), NFS, 3, 0))
        wire += u32(0x80000000 | len(last.message)) + last.message
        if framing_lost:
            self.noise(wire)
            return
        waiting = {}
        for s in sent + [last]:
            if s.is_call:
                waiting.setdefault(s.xid, []).append(s)
        self.exchange(wire, waiting)

    def exchange(self, wire, waiting):
        """Sends without ever waiting to send while replies wait to be read."""
        sock, at = self.bad.socket, 0
        until = time.monotonic() + WAIT
        buffer = bytearray()
        while waiting:
            harness.check(time.monotonic() < until, f"no reply to {len(waiting)} calls within {WAIT} s, one of them "
                          + repr(next(iter(waiting.values()))[0].message[:200].hex()))
            readable, writable, _ = select.select([sock], [sock] if at < len(wire) else [], [], 1)
            if writable:
                at += sock.send(wire[at:at + 65536], 0x40)  # MSG_DONTWAIT: writable said that it takes some
            if readable:
                piece = sock.recv(1 << 18)
                if not piece:
                    raise Closed()
                buffer += piece
            while len(buffer) >= 4:
                mark = int.from_bytes(buffer[:4], "big")
                length = mark & 0x7fffffff
                harness.check(mark & 0x80000000 and length <= 5 << 20, f"a reply's mark: {mark:#x}")
                if len(buffer) < 4 + length:
                    break
                reply = bytes(buffer[4:4 + length])
                del buffer[:4 + length]
                calls = waiting.get(reply[:4])
                harness.check(calls, f"a reply that nobody waits for: {reply[:32].hex()}")
                call = calls.pop()
                try:
                    kind = call.check(reply)
                except Exception:
                    print("# call", call.message[:400].hex(), "\n# reply", reply[:400].hex())
                    raise
                self.seen[kind] = self.seen.get(kind, 0) + 1
                if not calls:
                    del waiting[reply[:4]]
        harness.eq(len(buffer), 0, "bytes behind the last reply")

    def noise(self, wire):
        """Whatever comes back is fine, as long as it comes or the connection ends when we say no more."""
        sock = self.bad.socket
        try:
            sock.sendall(wire)
            sock.shutdown(1)
            while sock.recv(1 << 16):
                pass
        except OSError as error:
            harness.check(not isinstance(error, TimeoutError), "the connection does not end")
        self.bad.close()
        self.bad = None
        self.closed += 1

    def repair(self):
        if self.good.getattr(self.handles.file).ok and self.good.getattr(self.handles.sub).ok and \
                self.good.getattr(self.handles.link).ok and self.dice.random() < .8:
            return
        self.handles.make(self.good)


def attack(server, calls, seed, trace):
    control = server.connect()
    control_root = control.mnt(b"/control").fh
    data = random.Random(seed).randbytes(300000)
    kept = control.create(control_root, b"kept", GUARDED, mode=0o600).fh
    harness.eq(control.write(kept, 0, data).status, "OK", "the control file")
    before = control.getattr(kept).attr
    names = [e.name for e in control.listing(control_root)]
    it = Attack(server, seed, trace)
    while it.count < calls:
        it.batch(it.dice.choice((1, 1, 5, 20, 60)))
        if it.dice.random() < .2:
            it.repair()
    print(f"# {it.count} calls, {it.closed} connections of noise; answers of {len(it.seen)} kinds")
    missing = [name for name in PROCEDURES if not any(k.startswith(name + " ") for k in it.seen)]
    harness.eq(missing, [], "procedures that never answered")
    refused = sum(n for k, n in it.seen.items() if k == f"accepted {rawrpc.GARBAGE_ARGS}")
    harness.check(refused > it.count // 100, "some calls are garbage")
    got = b"".join(control.read(kept, at, 65536).data for at in range(0, len(data), 65536))
    harness.check(got == data, "the control file's bytes")
    harness.eq(control.getattr(kept).attr, before, "the control file's attributes")
    harness.eq([e.name for e in control.listing(control_root)], names, "the control volume's names")
    return it


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=12000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--trace", help="a file for all that is sent, for replaying a crash")
    args = parser.parse_args()
    print(f"# --calls {args.calls} --seed {args.seed}", flush=True)
    server, passed, failed = harness.Server(), 0, 0
    trace = open(args.trace, "wb") if args.trace else None
    try:
        server.start()
        server.create("vol")
        server.create("control")
        attack(server, args.calls, args.seed, trace)
        print("ok damaged calls are answered, and reach nothing")
        passed += 1
    except Exception:
        import traceback
        traceback.print_exc(file=sys.stdout)
        print("not ok damaged calls are answered, and reach nothing")
        failed += 1
    problem = server.stop() if server.process.poll() is None else f"died with {server.process.returncode}"
    print("not ok" if problem else "ok", "the server lives and leaves cleanly" + (f": {problem}" if problem else ""))
    passed, failed = passed + (not problem), failed + bool(problem)
    if problem or failed:
        print(server.stderr().decode(errors="replace")[-8000:])
    server.close()
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
