#!/usr/bin/env python3
"""What no client should send: the error that the RFC names, or a closed connection; the server goes on."""
import random
import struct

import rawrpc
from harness import check, eq, refused, run, test
from rawrpc import (AUTH_BADCRED, AUTH_ERROR, AUTH_TOOWEAK, GARBAGE_ARGS, MOUNT, NFS, PROC, PROC_UNAVAIL,
                    PROG_MISMATCH, PROG_UNAVAIL, RPC_MISMATCH, USER, boolean, call_message, fixed, opaque,
                    parse_reply, sattr, u32, u64)


def ask(t, message):
    t.nfs.send(message)
    return parse_reply(t.nfs.receive())


# ---- programs, versions, procedures ----

@test
def unknown_programs_are_unavailable(t):
    for program in (0, 100000, 100021, 100227, 0x20000000, 0xffffffff):
        for version in (1, 3, 4):
            refused(lambda: t.nfs.call(program, version, 0), "accepted", PROG_UNAVAIL)
    t.nfs.null()


@test
def other_versions_are_mismatches_with_the_range(t):
    for program, last in ((NFS, 4), (MOUNT, 3)):
        for version in (0, 1, 2, last + 1, last + 2, 0xffffffff):
            refused(lambda: t.nfs.call(program, version, 0), "accepted", PROG_MISMATCH, 3, last)
    t.nfs.null()


@test
def unknown_procedures_are_unavailable(t):
    for program, first in ((NFS, 22), (MOUNT, 6)):
        for procedure in (first, first + 1, 1000, 0xffffffff):
            refused(lambda: t.nfs.call(program, 3, procedure), "accepted", PROC_UNAVAIL)
    t.nfs.null()


@test
def another_rpc_version_is_denied(t):
    for version in (0, 1, 3, 0xffffffff):
        refused(lambda: ask(t, call_message(7, NFS, 3, 0, rpc_version=version)), "denied", RPC_MISMATCH, 2, 2)
    t.nfs.null()


# ---- authentication ----

class RawCred:
    def __init__(self, flavor, body):
        self.flavor, self.body = flavor, body

    def encode(self):
        return u32(self.flavor) + opaque(self.body)


def denied(t, cred, procedure=PROC["GETATTR"]):
    try:
        ask(t, call_message(9, NFS, 3, procedure, opaque(t.root), cred=cred))
    except rawrpc.RpcError as error:
        eq((error.kind, error.status), ("denied", AUTH_ERROR))
        return error.low
    raise AssertionError("was accepted")


@test
def unknown_flavours_are_denied(t):
    for flavor in (2, 3, 6, 390003, 0xffffffff):
        check(denied(t, RawCred(flavor, b"")) in (AUTH_BADCRED, AUTH_TOOWEAK, 2), f"flavour {flavor}")
    t.nfs.null()


@test
def malformed_auth_sys_is_a_bad_credential(t):
    good = u32(1) + opaque(b"m") + u32(0) + u32(0)
    for body in (b"", u32(1), good, good + u32(17) + u32(0) * 17, good + u32(3) + u32(0), good + u32(0xffffffff),
                 u32(1) + opaque(b"m" * 256) + u32(0) + u32(0) + u32(0), u32(1) + u32(0xfffffffc)):
        eq(denied(t, RawCred(1, body)), AUTH_BADCRED, repr(body[:20]))
    eq(t.nfs.getattr(t.root, cred=rawrpc.Cred(1, 1, range(16), b"m" * 255)).status, "OK", "the largest")


@test
def oversized_credentials_do_not_lose_the_connection_for_others(t):
    with t.server.connect() as another:
        another.send(call_message(9, NFS, 3, 1, cred=RawCred(1, bytes(401))))
        try:
            parse_reply(another.receive())
            raise AssertionError("was accepted")
        except (rawrpc.RpcError, rawrpc.Closed):
            pass
    t.nfs.null()


# ---- records ----

@test
def fragments_of_any_size_make_a_record(t):
    for fragment in (1, 3, 4, 7, 40, 100):
        eq(t.nfs.call(NFS, 3, PROC["GETATTR"], opaque(t.root), fragment=fragment).u32(), 0)
    fh = t.file()
    data = random.Random(1).randbytes(100000)
    args = opaque(fh) + u64(0) + u32(len(data)) + u32(0) + opaque(data)
    eq(t.nfs.call(NFS, 3, PROC["WRITE"], args, fragment=999).u32(), 0)
    check(t.nfs.read(fh, 0, len(data)).data == data, "the data")


@test
def empty_fragments_are_nothing(t):
    message = call_message(11, NFS, 3, 0)
    t.nfs.send_bytes(u32(0) * 5 + u32(len(message)) + message + u32(0) + u32(0x80000000))
    eq(parse_reply(t.nfs.receive())[0], 11)


@test
def bytes_may_come_one_by_one(t):
    message = call_message(12, NFS, 3, PROC["GETATTR"], opaque(t.root))
    for byte in u32(0x80000000 | len(message)) + message:
        t.nfs.send_bytes(bytes([byte]))
    eq(parse_reply(t.nfs.receive())[1].u32(), 0)


@test
def many_calls_in_one_segment_are_all_answered(t):
    wire = b""
    for xid in range(500):
        message = call_message(xid, NFS, 3, PROC["GETATTR"], opaque(t.root))
        wire += u32(0x80000000 | len(message)) + message
    t.nfs.send_bytes(wire)
    eq(sorted(parse_reply(t.nfs.receive())[0] for _ in range(500)), list(range(500)))


@test
def an_oversized_record_closes_the_connection(t):
    for mark in (0x80000000 | 0x7fffffff, 0x7fffffff, 0x80000000 | 64 << 20):
        with t.server.connect() as another:
            another.send_bytes(u32(mark) + bytes(4096))
            check(another.closed(), f"mark {mark:#x}")
    with t.server.connect() as another:  # many fragments, none of them too large
        try:
            for _ in range(4096):
                another.send_bytes(u32(65536) + bytes(65536))
            check(another.closed(), "endless fragments")
        except ConnectionError:
            pass


@test
def truncated_calls_do_no_harm(t):
    message = call_message(13, NFS, 3, PROC["LOOKUP"], opaque(t.root) + opaque(b"name"))
    for length in range(0, len(message), 4):
        with t.server.connect() as another:
            another.send(message[:length])
            try:
                parse_reply(another.receive())
                raise AssertionError(f"{length} bytes were accepted")
            except (rawrpc.RpcError, rawrpc.Closed):
                pass
    for length in (1, 3, 5, 30):  # a record that never comes to its end
        with t.server.connect() as another:
            another.send_bytes(u32(0x80000000 | len(message)) + message[:length])


@test
def a_reply_sent_to_the_server_is_not_answered_as_a_call(t):
    with t.server.connect() as another:
        another.send(u32(1) + u32(1) + u32(0) * 4)
        another.send(call_message(14, NFS, 3, 0))
        try:
            eq(parse_reply(another.receive())[0], 14)
        except rawrpc.Closed:
            pass


# ---- arguments ----

GOOD = {
    "GETATTR": lambda fh: opaque(fh),
    "SETATTR": lambda fh: opaque(fh) + sattr(mode=0o777, mtime=(1, 1)) + boolean(False),
    "LOOKUP": lambda fh: opaque(fh) + opaque(b"x"),
    "ACCESS": lambda fh: opaque(fh) + u32(1),
    "READLINK": lambda fh: opaque(fh),
    "READ": lambda fh: opaque(fh) + u64(0) + u32(1),
    "WRITE": lambda fh: opaque(fh) + u64(0) + u32(4) + u32(0) + opaque(b"data"),
    "CREATE": lambda fh: opaque(fh) + opaque(b"x") + u32(2) + b"verifier",
    "MKDIR": lambda fh: opaque(fh) + opaque(b"x") + sattr(),
    "SYMLINK": lambda fh: opaque(fh) + opaque(b"x") + sattr() + opaque(b"t"),
    "MKNOD": lambda fh: opaque(fh) + opaque(b"x") + u32(4) + sattr() + u32(1) + u32(3),
    "REMOVE": lambda fh: opaque(fh) + opaque(b"x"),
    "RMDIR": lambda fh: opaque(fh) + opaque(b"x"),
    "RENAME": lambda fh: opaque(fh) + opaque(b"x") + opaque(fh) + opaque(b"y"),
    "LINK": lambda fh: opaque(fh) + opaque(fh) + opaque(b"x"),
    "READDIR": lambda fh: opaque(fh) + u64(0) + bytes(8) + u32(4096),
    "READDIRPLUS": lambda fh: opaque(fh) + u64(0) + bytes(8) + u32(4096) + u32(4096),
    "FSSTAT": lambda fh: opaque(fh),
    "FSINFO": lambda fh: opaque(fh),
    "PATHCONF": lambda fh: opaque(fh),
    "COMMIT": lambda fh: opaque(fh) + u64(0) + u32(0),
}


@test
def truncated_arguments_are_garbage(t):
    for name, args in GOOD.items():
        args = args(t.dir)
        for length in range(0, len(args), 4):
            refused(lambda: t.nfs.call(NFS, 3, PROC[name], args[:length]), "accepted", GARBAGE_ARGS)
    for procedure in (1, 3):
        refused(lambda: t.nfs.call(MOUNT, 3, procedure, u32(100)), "accepted", GARBAGE_ARGS)
    eq([e.name for e in t.nfs.listing(t.dir)], [b".", b".."], "nothing was made")


@test
def impossible_values_are_garbage(t):
    fh = t.root
    for name, args in (
            ("GETATTR", opaque(bytes(65))), ("GETATTR", u32(0xffffffff) + bytes(64)),
            ("LOOKUP", opaque(fh) + u32(0xffffffff)), ("LOOKUP", opaque(fh) + u32(0x80000000) + bytes(100)),
            ("SETATTR", opaque(fh) + u32(2) + bytes(40)), ("SETATTR", opaque(fh) + sattr() + u32(2)),
            ("SETATTR", opaque(fh) + u32(0) * 4 + u32(3) + u32(0) * 4),
            ("CREATE", opaque(fh) + opaque(b"x") + u32(3) + bytes(24)),
            ("WRITE", opaque(fh) + u64(0) + u32(4) + u32(3) + opaque(b"data")),
            ("WRITE", opaque(fh) + u64(0) + u32(4) + u32(0) + u32(0xfffffffd) + b"data"),
            ("SYMLINK", opaque(fh) + opaque(b"x") + sattr() + u32(0x7fffffff))):
        refused(lambda: t.nfs.call(NFS, 3, PROC[name], args), "accepted", GARBAGE_ARGS)


@test
def names_with_forbidden_bytes_make_nothing(t):
    for name in (b"", b"/", b"a/b", b"/a", b"a\0", b"\0", b".", b".."):
        for make in (lambda: t.nfs.create(t.dir, name), lambda: t.nfs.mkdir(t.dir, name),
                     lambda: t.nfs.symlink(t.dir, name, b"t"), lambda: t.nfs.mknod(t.dir, name, 7),
                     lambda: t.nfs.remove(t.dir, name), lambda: t.nfs.rmdir(t.dir, name),
                     lambda: t.nfs.rename(t.dir, name, t.dir, b"z"), lambda: t.nfs.link(t.root, t.dir, name)):
            check(not make().ok, repr(name))
    eq(sorted(e.name for e in t.nfs.listing(t.dir)), [b".", b".."])


@test
def what_an_object_is_comes_before_what_is_asked_of_it(t):
    link = t.nfs.symlink(t.dir, b"link", b"target").fh
    gone = t.file(b"gone")
    eq(t.nfs.remove(t.dir, b"gone").status, "OK")
    for offset in ((1 << 63) - 1, 1 << 63, (1 << 64) - 1):
        eq(t.nfs.write(t.dir, offset, b"0123456789").status, "INVAL", "WRITE far into a directory")
        eq(t.nfs.write(link, offset, b"0123456789").status, "INVAL", "WRITE far into a link")
        eq(t.nfs.write(gone, offset, b"0123456789").status, "STALE", "WRITE far into a removed file")
        far = t.nfs.write(t.file(b"f%d" % offset), offset, b"0123456789")
        eq(far.status, "FBIG", "WRITE too far")
        check(far.wcc.before and far.wcc.after and far.wcc.after.size == 0, "attributes")


@test
def random_arguments_do_no_harm(t):
    dice = random.Random(20)
    fh = t.file(data=b"x" * 5000)
    names = list(GOOD)
    for _ in range(3000):
        name = dice.choice(names)
        args = bytearray(GOOD[name](dice.choice((t.dir, fh))))
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(args)) & ~3
            args[at:at + 4] = dice.choice((u32(0), u32(1), u32(0xffffffff), u32(0x80000000), dice.randbytes(4)))
        try:
            t.nfs.call(NFS, 3, PROC[name], bytes(args), cred=USER)
        except rawrpc.RpcError as error:
            check(error.kind == "accepted" and error.status == GARBAGE_ARGS, f"{name}: {error}")


@test
def random_records_do_no_harm(t):
    dice = random.Random(21)
    for _ in range(300):
        with t.server.connect() as another:
            message = bytearray(call_message(15, NFS, 3, dice.randrange(23), GOOD["LOOKUP"](t.root)))
            for _ in range(dice.randint(1, 6)):
                message[dice.randrange(len(message))] = dice.randrange(256)
            another.send(bytes(message) if dice.random() < 0.8 else dice.randbytes(dice.randrange(200)))
            another.send(call_message(16, NFS, 3, 0))
            try:
                for _ in range(2):
                    mark = struct.unpack(">I", another.receive()[:4])
                    check(mark is not None, "an answer")
                    if mark[0] == 16:
                        break
            except rawrpc.Closed:
                pass
    eq(t.nfs.getattr(t.root).status, "OK")
    check(fixed(b"abc") == b"abc\0", "padding")


@test
def clients_that_leave_in_the_middle_do_no_harm(t):
    fh = t.file(data=b"x" * 65536)
    for _ in range(50):
        another = t.server.connect()
        for xid in range(20):
            another.send(call_message(xid, NFS, 3, PROC["READ"], opaque(fh) + u64(0) + u32(65536)))
        another.close()
    eq(t.nfs.read(fh, 0, 65536).count, 65536)


if __name__ == "__main__":
    run()
