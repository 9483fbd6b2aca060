#!/usr/bin/env python3
"""NFSv4 clients that lie, guess and take without end: the error that the RFC names, and bounded memory."""
import os

from client41 import BOTH, READ, UNCHECKED, Client41, close, lock, locku, ok, open_op
from harness import check, eq, run, test
from raw4 import Nfs4, Op, getfh, putfh, putrootfh, read, write
from rawrpc import USER, Cred, opaque, u32, u64

CLIENTS, SESSIONS, OPENS, LOCKS = 300, 400, 2000, 1500


def no_attributes(r, reply):
    eq(r.u32(), 0, "the attributes that were set")


@test
def bitmaps_of_absurd_length(context):
    c = Client41(context.server.port, minor=2)
    fh = putfh(context.file(b"f"))
    folder, stateid = putfh(context.dir), bytes(16)
    for bitmap in (u32(0xffffffff), u32(0x40000000) + u32(1) * 8, u32(0x7fffffff), u32(1 << 20) + u32(0) * 64):
        made = u32(READ) + u32(0) + u64(c.clientid) + opaque(b"o") + u32(1) + u32(UNCHECKED)
        for place, op in ((fh, Op("GETATTR", bitmap)), (fh, Op("SETATTR", stateid + bitmap, None, no_attributes)), (fh, Op("VERIFY", bitmap)),
                          (fh, Op("NVERIFY", bitmap)), (folder, Op("CREATE", u32(2) + opaque(b"d") + bitmap)),
                          (folder, Op("READDIR", u64(0) * 2 + u32(512) + u32(8192) + bitmap)),
                          (folder, Op("OPEN", u32(0) + made + bitmap)),
                          (fh, Op("IO_ADVISE", stateid + u64(0) * 2 + bitmap))):
            done = c.call(place, op)
            eq(done.status, "BADXDR", f"{op.args[-40:].hex()} of operation {op.number}")
    for count in (0xffffffff, 1 << 28):
        eq(c.call(fh, Op("TEST_STATEID", u32(count) + bytes(64))).status, "BADXDR", "as many stateids as it says")
    ok(c.call(fh))


@test
def numbers_beside_the_right_ones(context):
    c = Client41(context.server.port)
    for slot in (8, 9, 127, 128, 0x7fffffff, 0xffffffff):
        eq(c.call(putrootfh(), slot=slot, sequence=1, highest=slot).status, "BADSLOT", f"slot {slot}")
    eq(c.call(putrootfh(), slot=1, sequence=1, highest=0xffffffff).status, "BAD_HIGH_SLOT")
    for sequence, status in ((0, "SEQ_MISORDERED"), (2, "SEQ_MISORDERED"), (0xffffffff, "SEQ_MISORDERED"), (1, "OK"),
                             (1, "RETRY_UNCACHED_REP"), (3, "SEQ_MISORDERED"), (0, "SEQ_MISORDERED"), (2, "OK")):
        eq(c.call(putrootfh(), slot=1, sequence=sequence).status, status, f"sequence {sequence}")
    for wrong in (c.sequence - 1, c.sequence + 2, c.sequence + 2**31):
        eq(c.create_session(sequence=wrong % 2**32).status, "SEQ_MISORDERED", f"CREATE_SESSION {wrong}")
    ok(c.create_session(sequence=c.sequence + 1))


@test
def others_take_nothing(context):
    fh = context.file(b"f", b"12345")
    mine, other = Client41(context.server.port, cred=USER), Client41(context.server.port)
    opened = ok(other.open(context.dir, b"f"))[1].stateid
    locked = ok(other.call(putfh(fh), lock(2, 0, 5, opened, b"L")))[1].stateid
    ok(other.call(putrootfh(), cache=True))
    again = {"sequence": other.slots[0], "cache": True}
    eq(other.call(putrootfh(), cred=Cred(4711), **again).status, "SEQ_FALSE_RETRY", "a replay by another principal")
    ok(other.call(putrootfh(), **again))
    thief = Nfs4(context.server.port, cred=Cred(4711), minor=1)
    stolen = thief.compound(Op("EXCHANGE_ID", os.urandom(8) + opaque(other.name) + u32(0) * 3))
    eq(stolen.status, "CLID_INUSE", "another principal takes an owner's name")
    for stateid in (opened, locked):
        for op in (read(0, 1, stateid), write(0, b"x", stateid=stateid), close(stateid), locku(0, 5, stateid),
                   lock(1, 0, 5, stateid), lock(1, 0, 5, stateid, b"M")):
            eq(mine.call(putfh(fh), op).status, "BAD_STATEID", f"operation {op.number} with another client's stateid")
    ok(other.call(putfh(fh), read(0, 1, opened), locku(0, 5, locked)))


@test
def forged_stateids(context):
    fh = context.file(b"f", b"12345")
    c = Client41(context.server.port)
    zero = Nfs4(context.server.port)
    stateid = ok(c.open(context.dir, b"f"))[1].stateid
    for at in range(4, 16):
        for bit in (1, 0x80):
            forged = bytearray(stateid)
            forged[at] ^= bit
            forged = bytes(forged)
            eq(c.call(putfh(fh), read(0, 1, forged)).status, "BAD_STATEID", forged.hex())
            eq(c.call(putfh(fh), close(forged)).status, "BAD_STATEID", forged.hex())
            check(zero.compound(putfh(fh), read(0, 1, forged)).status in ("BAD_STATEID", "STALE_STATEID", "EXPIRED"),
                  "minor version 0")
    for seqid, status in ((2, "BAD_STATEID"), (0x7fffffff, "BAD_STATEID"), (0, "OK")):
        eq(c.call(putfh(fh), read(0, 1, u32(seqid) + stateid[4:])).status, status, f"seqid {seqid}")
    ok(c.call(putfh(fh), close(stateid)))
    eq(c.call(putfh(fh), read(0, 1, stateid)).status, "BAD_STATEID", "an old one")


@test
def seqids_of_minor_version_0_off_by_one(context):
    context.file(b"f")
    nfs = Nfs4(context.server.port)
    set_id = Op("SETCLIENTID", os.urandom(8) + opaque(b"off by one") + u32(0) + opaque(b"tcp") + opaque(b"0.0.0.0.0.0") +
                u32(0), lambda r, reply: setattr(reply, "id", r.take(16)))
    identity = ok(nfs.compound(set_id))[0].id
    ok(nfs.compound(Op("SETCLIENTID_CONFIRM", identity)))
    clientid = int.from_bytes(identity[:8], "big")

    def opens(seqid):
        return nfs.compound(putfh(context.dir), open_op(seqid, BOTH, 0, clientid, b"o", None, u32(0) + opaque(b"f")), getfh())
    opened = ok(opens(0xfffffffe))
    fh, stateid = putfh(opened[2].fh), opened[1].stateid
    confirm = nfs.compound(fh, Op("OPEN_CONFIRM", stateid + u32(0xffffffff), lambda r, reply: setattr(reply, "s", r.take(16))))
    stateid = ok(confirm)[1].s
    for wrong in (1, 2, 0xfffffffd, 0x80000000):
        eq(opens(wrong).status, "BAD_SEQID", f"OPEN {wrong:#x}")
        eq(nfs.compound(fh, close(stateid, wrong)).status, "BAD_SEQID", f"CLOSE {wrong:#x}")
        eq(nfs.compound(fh, lock(2, 0, 1, stateid, b"L", clientid, open_seqid=wrong)).status, "BAD_SEQID", "LOCK")
    locked = ok(nfs.compound(fh, lock(2, 0, 1, stateid, b"L", clientid, seqid=5, open_seqid=0)))[1].stateid
    for wrong in (4, 7, 0xffffffff):
        eq(nfs.compound(fh, locku(0, 1, locked, wrong)).status, "BAD_SEQID", f"LOCKU {wrong:#x}")
    ok(nfs.compound(fh, locku(0, 1, locked, 6)))
    ok(nfs.compound(fh, close(stateid, 1)))


@test
def locks_without_end(context):
    """LOCK of one byte after another, and LOCKU that cuts a range in two, and again, and again."""
    c, fh = Client41(context.server.port), context.file(b"f")
    opened = ok(c.open(context.dir, b"f"))[1].stateid
    before = context.server.settled_rss()
    stateid = ok(c.call(putfh(fh), lock(2, 0, 2**64 - 1, opened, b"L")))[1].stateid
    cut = 0
    while True:
        done = c.call(putfh(fh), locku(2 * cut + 1, 1, stateid))
        if done.status != "OK":
            break
        stateid, cut = done[1].stateid, cut + 1
        check(cut <= LOCKS, "LOCKU without end")
    eq(done.status, "DELAY")
    check(cut > LOCKS - 5, f"refused after {cut}")
    eq(c.call(putfh(fh), lock(2, 2 * cut + 1, 1, opened, b"M")).status, "DENIED")
    check(context.server.rss() - before < 4 << 20, f"{context.server.rss() - before} bytes for {LOCKS} ranges")
    ok(c.call(putfh(fh), locku(0, 2**64 - 1, stateid)))
    stateid = ok(c.call(putfh(fh), lock(2, 0, 1, opened, b"M")))[1].stateid
    ok(c.call(putfh(fh), locku(0, 1, stateid)))


@test
def opens_without_end(context):
    before = context.server.settled_rss()
    context.file(b"f")
    statuses = []
    c = Client41(context.server.port)
    for number in range(0, 2 * OPENS, 20):
        ops = []
        for at in range(number, number + 20):
            ops += [putfh(context.dir), open_op(0, READ, 0, c.clientid, b"%d" % at + b"x" * 500, None, u32(0) + opaque(b"f"))]
        done = c.call(*ops)
        statuses.append(done.status)
        if done.status != "OK":
            break
    eq(statuses[-1], "DELAY", "OPEN without end")
    check(len(statuses) >= OPENS / 20 - 5, f"refused after {len(statuses)}")
    check(context.server.rss() - before < 16 << 20, f"{context.server.rss() - before} bytes for {OPENS} opens")
    ok(c.call(putrootfh()))


@test
def clients_and_sessions_without_end(context):
    nfs, before = Nfs4(context.server.port, minor=1), context.server.settled_rss()
    statuses = set()
    for number in range(3 * CLIENTS):
        op = Op("EXCHANGE_ID", os.urandom(8) + opaque(b"%d" % number + b"x" * 1000) + u32(0) * 3,
                lambda r, reply: r.take(8 + 12 + 8) and (r.opaque(), r.opaque(), r.u32()))
        statuses.add(nfs.compound(op).status)
    eq(statuses, {"OK", "DELAY"}, "EXCHANGE_ID without end")
    check(context.server.rss() - before < 16 << 20, f"{context.server.rss() - before} bytes for {CLIENTS} clients")


if __name__ == "__main__":
    run("--cache", "64Mi", "--nfs-versions", "3, 4", "--nfs4-clients", str(CLIENTS), "--nfs4-sessions", str(SESSIONS),
        "--nfs4-opens", str(OPENS), "--nfs4-locks", str(LOCKS), "--nfs-lease", "5")
