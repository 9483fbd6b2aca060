#!/usr/bin/env python3
"""NFSv4's state: sessions and their slots, opens and shares, locks, seqids of minor version 0, wrong and old stateids,
and what a restart leaves."""
import os
import time

import rawrpc
from harness import Server, check, eq, run, test
from client41 import (BOTH, READ, TO_END, UNCHECKED, GUARDED, EXCLUSIVE, EXCLUSIVE_1, WRITE, Client40, Client41, close,
                      copy, lock, lockt, locku, ok, open_op, read_open)
from raw4 import (ANONYMOUS, CURRENT, Nfs4, Op, _bitmap, _change, _keep, _stateid, fattr, getattr_, getfh, lookup, putfh,
                  putrootfh, read, remove, savefh, setattr_, write)
from rawrpc import Reader, USER, boolean, opaque, u32, u64

LEASE = 5


@test
def slots_answer_once(context):
    c = Client41(context.server.port)
    make = [putfh(context.dir), Op("CREATE", u32(2) + opaque(b"d") + fattr(mode=0o755), _keep(c=_change, s=_bitmap))]
    ok(c.call(*make, cache=True))
    again = c.call(*make, sequence=c.slots[0], cache=True)
    eq(again.status, "OK", "a repeated CREATE is answered from the slot")
    eq(c.call(*make).status, "EXIST", "a new one is run")
    eq(c.call(*make, sequence=c.slots[0]).status, "RETRY_UNCACHED_REP", "nothing was kept")
    ok(c.call(putrootfh(), cache=True))
    eq(c.call(putrootfh(), getfh(), sequence=c.slots[0], cache=True).status, "SEQ_FALSE_RETRY", "another request")
    eq(c.call(putrootfh(), sequence=c.slots[0], cache=True, cred=USER).status, "SEQ_FALSE_RETRY", "another principal")
    eq(c.call(putrootfh(), sequence=c.slots[0] + 2).status, "SEQ_MISORDERED")
    eq(c.call(putrootfh(), sequence=c.slots[0] - 1).status, "SEQ_MISORDERED")
    eq(c.call(putrootfh(), slot=3, sequence=0).status, "SEQ_MISORDERED", "nothing was there to be repeated")
    eq(c.call(putrootfh(), slot=8, sequence=1).status, "BADSLOT")
    eq(c.call(putrootfh(), slot=2, sequence=1, highest=9).status, "BAD_HIGH_SLOT")
    eq(c.call(putrootfh(), session=b"x" * 16, sequence=1).status, "BADSESSION")
    ok(c.call(putrootfh()))


@test
def compounds_need_a_session(context):
    c = Client41(context.server.port)
    eq(c.nfs.compound(putrootfh()).status, "OP_NOT_IN_SESSION")
    eq(c.call(putrootfh(), c.sequence_op(sequence=1)).status, "SEQUENCE_POS")
    eq(c.nfs.compound(Op("DESTROY_SESSION", c.session), putrootfh()).status, "NOT_ONLY_OP")
    eq(c.call(Op("SETCLIENTID")).status, "NOTSUPP", "of minor version 0")
    eq(c.call(Op("ALLOCATE")).status, "OP_ILLEGAL", "of minor version 2")
    eq(c.call(*[putrootfh()] * 64).status, "TOO_MANY_OPS")
    c.slots[0] -= 1
    eq(c.create_session(sequence=c.sequence + 5).status, "SEQ_MISORDERED")
    eq(c.create_session(sequence=c.sequence)[0].session, c.session, "CREATE_SESSION is answered once more")
    eq(c.nfs.compound(Op("DESTROY_CLIENTID", u64(c.clientid))).status, "CLIENTID_BUSY")
    ok(c.nfs.compound(Op("DESTROY_SESSION", c.session)))
    eq(c.call(putrootfh()).status, "BADSESSION")
    ok(c.nfs.compound(Op("DESTROY_CLIENTID", u64(c.clientid))))
    eq(c.nfs.compound(Op("DESTROY_CLIENTID", u64(c.clientid))).status, "STALE_CLIENTID")


@test
def replies_stay_within_the_session(context):
    big = context.file(b"big", b"x" * 20000)
    c = Client41(context.server.port, response=9000, cached=500)
    eq(c.call(putfh(big), read(0, 20000)).status, "REP_TOO_BIG")
    ok(c.call(putfh(big), read(0, 8000)))
    eq(c.call(putfh(big), read(0, 2000), cache=True).status, "REP_TOO_BIG_TO_CACHE")
    first = ok(c.call(putfh(big), read(5, 100), cache=True))
    again = ok(c.call(putfh(big), read(5, 100), cache=True, sequence=c.slots[0]))
    eq(again[1].data, first[1].data, "data that was kept")


@test
def two_connections_one_session(context):
    c = Client41(context.server.port)
    other = Nfs4(context.server.port, minor=1)
    for i in range(20):
        eq(other.compound(c.sequence_op(slot=1), putrootfh()).status, "OK")
        ok(c.call(putrootfh()))


@test
def a_restarted_client_loses_what_it_had(context):
    fh = context.file(b"f", b"12345")
    c = Client41(context.server.port)
    stateid = ok(c.open(context.dir, b"f", deny=BOTH))[1].stateid
    d = Client41(context.server.port, name=c.name)
    eq(c.call(putfh(fh), read(0, 1, stateid)).status, "BADSESSION", "the old instance")
    ok(d.open(context.dir, b"f", deny=BOTH))
    eq(Client41(context.server.port).open(context.dir, b"f").status, "SHARE_DENIED")
    eq(d.exchange_id()[0].flags >> 31, 1, "the same instance is confirmed")
    eq(d.exchange_id(0x40000000).status, "OK", "an update")
    d.verifier = b"another."
    eq(d.exchange_id(0x40000000).status, "NOT_SAME")
    d.name = b"nobody at all"
    eq(d.exchange_id(0x40000000).status, "NOENT")


@test
def opens_and_shares(context):
    a, b = Client41(context.server.port), Client41(context.server.port)
    made = ok(a.open(context.dir, b"f", create=u32(GUARDED) + fattr(mode=0o640), deny=WRITE))
    fh, stateid = made[2].fh, made[1].stateid
    eq(made[1].change[0], True, "atomic")
    eq(a.open(context.dir, b"f", create=u32(GUARDED) + fattr()).status, "EXIST")
    eq(b.open(context.dir, b"f", access=WRITE).status, "SHARE_DENIED")
    reader = ok(b.open(context.dir, b"f", access=READ))[1].stateid
    eq(b.open(context.dir, b"f", access=READ, deny=READ, owner=b"2").status, "SHARE_DENIED")
    ok(a.call(putfh(fh), write(0, b"hello", stateid=stateid), read(0, 5, stateid)))
    eq(b.call(putfh(fh), write(0, b"x", stateid=reader)).status, "OPENMODE")
    eq(b.call(putfh(fh), setattr_(reader, size=0)).status, "OPENMODE")
    eq(b.call(putfh(fh), write(0, b"x")).status, "LOCKED", "anonymous WRITE against a share")
    eq(b.call(putfh(fh), read(0, 9))[1].data, b"hello")
    eq(b.call(putfh(fh), read(0, 1, stateid)).status, "BAD_STATEID", "another client's")
    wider = ok(a.open(context.dir, b"f", access=READ))[1].stateid
    eq(wider[4:], stateid[4:], "the same owner and file: the same open")
    eq(a.call(putfh(fh), read(0, 1, stateid)).status, "OLD_STATEID")
    ok(a.call(putfh(fh), read(0, 1, b"\0" * 4 + stateid[4:])))
    eq(a.call(putfh(fh), read(0, 1, b"\0\0\0\x09" + stateid[4:])).status, "BAD_STATEID", "of the future")
    down = Op("OPEN_DOWNGRADE", wider + u32(0) + u32(READ) + u32(0), _keep(stateid=_stateid))
    lower = ok(a.call(putfh(fh), down))[1].stateid
    eq(a.call(putfh(fh), write(0, b"x", stateid=lower)).status, "OPENMODE")
    ok(b.open(context.dir, b"f", access=WRITE, owner=b"3"))
    eq(a.call(putfh(context.file(b"g")), close(lower)).status, "BAD_STATEID", "of another file")
    ok(a.call(putfh(fh), close(lower)))
    eq(a.call(putfh(fh), close(lower)).status, "BAD_STATEID")
    tested = ok(b.call(Op("TEST_STATEID", u32(2) + reader + lower, lambda r, reply: setattr(
        reply, "s", [r.u32() for _ in range(r.u32())]))))
    eq(tested[0].s, [0, 10025])
    eq(b.call(Op("FREE_STATEID", reader)).status, "LOCKS_HELD")
    eq(b.open(context.dir, b"f", access=0).status, "INVAL")
    eq(b.open(context.dir, b"none", access=READ).status, "NOENT")
    eq(b.open(context.root, context.dir and b"opens_and_shares", access=READ).status, "ISDIR")


@test
def the_current_stateid(context):
    c = Client41(context.server.port)
    done = ok(c.call(putfh(context.dir), open_op(0, BOTH, 0, 0, b"o", u32(UNCHECKED) + fattr(mode=0o600),
                                                 u32(0) + opaque(b"f")),
                     write(0, b"bytes", stateid=CURRENT), read(0, 5, CURRENT), close(CURRENT)))
    eq(done[3].data, b"bytes")
    eq(c.call(putfh(context.dir), lookup(b"f"), read(0, 1, CURRENT)).status, "BAD_STATEID", "there is none")


@test
def create_modes(context):
    c = Client41(context.server.port)
    exclusive = u32(EXCLUSIVE_1) + b"verifier" + fattr(mode=0o604, size=0)
    made = ok(c.open(context.dir, b"e", create=exclusive))
    eq(context.nfs.getattr(made[2].fh).attr.mode, 0o604)
    eq(ok(c.open(context.dir, b"e", create=exclusive))[2].fh, made[2].fh, "the same call again")
    eq(c.open(context.dir, b"e", create=u32(EXCLUSIVE_1) + b"another." + fattr()).status, "EXIST")
    fh = context.file(b"u", b"contents", mode=0o644)
    opened = ok(c.open(context.dir, b"u", create=u32(UNCHECKED) + fattr(mode=0o600)))
    eq((opened[2].fh, opened[1].set), (fh, set()), "UNCHECKED opens what is there")
    eq(context.nfs.getattr(fh).attr.size, 8)
    eq(ok(c.open(context.dir, b"u", create=u32(UNCHECKED) + fattr(size=0)))[1].set, {4})
    eq(context.nfs.getattr(fh).attr.size, 0)
    eq(c.open(context.dir, b"u", create=u32(UNCHECKED) + fattr(), claim=4).status, "INVAL")
    u = Client41(context.server.port, cred=USER)
    secret = context.file(b"secret", b"x", mode=0o600)
    eq(u.open(context.dir, b"secret", access=READ).status, "ACCESS")
    eq(u.open(secret, b"", access=READ, claim=4).status, "ACCESS", "CLAIM_FH")
    ok(c.open(secret, b"", access=READ, claim=4))


@test
def locks(context):
    fh = context.file(b"f", b"x" * 100)
    a, b = Client41(context.server.port), Client41(context.server.port)
    ao, bo = (ok(c.open(context.dir, b"f"))[1].stateid for c in (a, b))
    al = ok(a.call(putfh(fh), lock(2, 10, 10, ao, b"A")))[1].stateid
    denied = b.call(putfh(fh), lock(1, 0, TO_END, bo, b"B"))
    eq(denied.status, "DENIED")
    eq(denied[1].denied, dict(offset=10, length=10, type=2, clientid=a.clientid, owner=b"A"))
    eq(b.call(putfh(fh), lockt(1, 15, 1, b"B")).status, "DENIED")
    eq(a.call(putfh(fh), lockt(2, 15, 1, b"A")).status, "OK", "one's own lock is none")
    al = ok(a.call(putfh(fh), lock(1, 12, 3, al)))[1].stateid  # the middle becomes a lock for reading
    eq(b.call(putfh(fh), lockt(1, 12, 3, b"B")).status, "OK")
    eq(b.call(putfh(fh), lockt(1, 11, 1, b"B")).status, "DENIED")
    eq(b.call(putfh(fh), lockt(1, 15, 1, b"B")).status, "DENIED")
    al = ok(a.call(putfh(fh), locku(0, 12, al)))[1].stateid
    bl = ok(b.call(putfh(fh), lock(2, 0, 12, bo, b"B")))[1].stateid
    eq(a.call(putfh(fh), close(ao)).status, "LOCKS_HELD")
    al = ok(a.call(putfh(fh), locku(0, TO_END, al)))[1].stateid
    ok(b.call(putfh(fh), lock(2, 0, TO_END, bl)))
    ok(a.call(putfh(fh), close(ao)))
    for offset, length in ((0, 0), (5, TO_END - 3)):
        eq(b.call(putfh(fh), lockt(1, offset, length, b"B")).status, "INVAL")
    eq(b.call(putfh(context.dir), lockt(1, 0, 1, b"B")).status, "ISDIR")
    eq(b.call(putfh(fh), lock(9, 0, 1, bl)).status, "BADXDR")
    reader = ok(b.open(context.dir, b"f", access=READ, owner=b"r"))[1].stateid
    eq(b.call(putfh(fh), lock(2, 0, 1, reader, b"C")).status, "OPENMODE")


@test
def seqids_of_minor_version_0(context):
    fh = context.file(b"f", b"12345")
    c = Client40(context.server.port)
    first = ok(c.open(context.dir, b"f", 7))
    check(first[1].flags & 2, "a new owner has to confirm")
    eq(c.nfs.compound(putfh(fh), read(0, 1, first[1].stateid)).status, "BAD_STATEID", "not yet confirmed")
    confirm = Op("OPEN_CONFIRM", first[1].stateid + u32(8), _keep(stateid=_stateid))
    stateid = ok(c.nfs.compound(putfh(fh), confirm))[1].stateid
    ok(c.nfs.compound(putfh(fh), read(0, 1, stateid)))
    eq(ok(c.nfs.compound(putfh(fh), confirm))[1].stateid, stateid, "answered once more")
    eq(c.open(context.dir, b"f", 5).status, "BAD_SEQID")
    second = ok(c.open(context.dir, b"f", 9))
    again = ok(c.open(context.dir, b"f", 9))
    eq((again[1].stateid, again[2].fh), (second[1].stateid, fh), "an OPEN answered once more, and its file handle")
    stateid = second[1].stateid
    locked = ok(c.nfs.compound(putfh(fh), lock(2, 0, 5, stateid, b"L", c.clientid, seqid=1, open_seqid=10)))[1].stateid
    eq(c.nfs.compound(putfh(fh), close(stateid, 11)).status, "LOCKS_HELD")
    ok(c.nfs.compound(putfh(fh), locku(0, 5, locked, 2)))
    ok(c.nfs.compound(Op("RELEASE_LOCKOWNER", u64(c.clientid) + opaque(b"L"))))
    ok(c.nfs.compound(putfh(fh), close(stateid, 12)))
    eq(c.open(context.dir, b"none", 13).status, "NOENT")
    eq(c.open(context.dir, b"none", 13).status, "NOENT", "errors are answered once more as well")
    ok(c.open(context.dir, b"f", 14))
    ok(c.nfs.compound(Op("RENEW", u64(c.clientid))))
    eq(c.nfs.compound(Op("RENEW", u64(12345))).status, "STALE_CLIENTID")


@test
def silent_clients_give_way_and_others_do_not(context):
    context.file(b"f")
    silent, busy = Client41(context.server.port), Client41(context.server.port)
    stateid = ok(silent.open(context.dir, b"f", access=BOTH, deny=BOTH))[1].stateid
    eq(busy.open(context.dir, b"f").status, "SHARE_DENIED")
    time.sleep(LEASE + 2)
    ok(silent.call(putrootfh()))  # a courtesy: nobody needed what it had
    eq(busy.open(context.dir, b"f").status, "SHARE_DENIED")
    time.sleep(LEASE + 2)
    ok(busy.open(context.dir, b"f"))
    eq(silent.call(putrootfh()).status, "BADSESSION")
    check(stateid, "stateid")


@test
def ranges_of_minor_version_2(context):
    fh = context.file(b"f", b"x" * 1000000)
    c = Client41(context.server.port, minor=2)
    o = ok(c.open(context.dir, b"f"))[1].stateid

    def seek(offset, what):
        return Op("SEEK", o + u64(offset) + u32(what), _keep(eof=Reader.boolean, offset=Reader.u64))
    ok(c.call(putfh(fh), Op("DEALLOCATE", o + u64(100000) + u64(500000))))
    data = ok(c.call(putfh(fh), read(0, 1000000, o)))[1].data
    eq(data, b"x" * 100000 + b"\0" * 500000 + b"x" * 400000)
    done = ok(c.call(putfh(fh), seek(0, 1), seek(200000, 0), seek(0, 0), seek(700000, 1)))
    check(100000 <= done[1].offset < 104096 and 600000 - 4096 <= done[2].offset <= 600000, repr(done))
    eq((done[3].offset, done[4].offset, done[4].eof), (0, 1000000, False))
    eq(c.call(putfh(fh), seek(1000000, 1)).status, "NXIO")
    ok(c.call(putfh(fh), Op("ALLOCATE", o + u64(0) + u64(1200000)), getattr_("size")))
    eq(context.nfs.getattr(fh).attr.size, 1200000)
    eq(ok(c.call(putfh(fh), seek(1100000, 0)))[1].eof, True, "no data up to the end")
    plus = Op("READ_PLUS", o + u64(10) + u32(20), lambda r, reply: setattr(
        reply, "got", (r.boolean(), [(r.u32(), r.u64(), r.opaque()) for _ in range(r.u32())])))
    eq(ok(c.call(putfh(fh), plus))[1].got, (False, [(0, 10, b"x" * 20)]))
    to = ok(c.open(context.dir, b"g", create=u32(UNCHECKED) + fattr(mode=0o644)))
    part = copy(o, to[1].stateid, 5, 0, 999000)
    eq(ok(c.call(putfh(fh), savefh(), putfh(to[2].fh), part))[3].count, 999000)
    check(ok(c.call(putfh(to[2].fh), read(0, 999000, to[1].stateid)))[1].data == data[5:999005], "the copy")


def restarts():
    """A server that is killed: who had opens and locks reclaims them, and nobody gets in between."""
    server = Server("--cache", "64Mi", "--nfs-versions", "3, 4", "--nfs-lease", str(LEASE), "--nfs-grace", "20")
    try:
        server.start()
        server.create("vol")
        v3 = server.connect()
        root = v3.mnt(b"/vol").fh
        fh = v3.create(root, b"f", rawrpc.GUARDED).fh
        a = Client41(server.port, name=b"reclaims")
        o = ok(a.open(root, b"f", deny=WRITE))[1].stateid
        ok(a.call(putfh(fh), lock(2, 0, 10, o, b"L")))
        server.kill()
        server.start()
        a2, b = (Client41(server.port, name=name, complete=False) for name in (b"reclaims", b"new"))
        eq(a2.call(putfh(fh), read(0, 1, o)).status, "BAD_STATEID", "of before the start")
        ok(b.call(Op("RECLAIM_COMPLETE", boolean(False))))
        eq(b.open(root, b"f").status, "GRACE")
        eq(b.open(fh, b"", claim=1).status, "NO_GRACE")
        ok(b.call(putfh(fh), read(0, 1)))
        o = ok(a2.open(fh, b"", deny=WRITE, claim=1))[1].stateid
        eq(a2.call(putfh(fh), lock(2, 0, 10, o, b"L")).status, "GRACE", "no reclaim")
        ok(a2.call(putfh(fh), lock(2, 0, 10, o, b"L", reclaim=True)))
        ok(a2.call(Op("RECLAIM_COMPLETE", boolean(False))))
        eq(a2.call(Op("RECLAIM_COMPLETE", boolean(False))).status, "COMPLETE_ALREADY")
        eq(b.open(root, b"f", access=WRITE).status, "SHARE_DENIED", "grace is over when all have reclaimed")
        eq(a2.open(fh, b"", claim=1).status, "NO_GRACE")
        eq(b.call(putfh(fh), lockt(1, 5, 1, b"x")).status, "DENIED")
        eq(server.stop(), None, "the server leaves cleanly")
    finally:
        server.close()


def restarts_of_minor_version_0():
    """A client of 4.0 never says that it has reclaimed: grace ends by the clock."""
    server = Server("--cache", "64Mi", "--nfs-versions", "3, 4", "--nfs-lease", str(LEASE), "--nfs-grace", "3")
    try:
        server.start()
        server.create("vol")
        v3 = server.connect()
        root = v3.mnt(b"/vol").fh
        fh = v3.create(root, b"f", rawrpc.GUARDED).fh
        ok(Client40(server.port, b"reclaims").open(root, b"f", 7))
        server.kill()
        server.start()
        began = time.monotonic()
        c = Client40(server.port, b"reclaims")
        opened = ok(c.nfs.compound(putfh(fh), open_op(1, READ, 0, c.clientid, b"owner", None, u32(1) + u32(0))))[1]
        eq(opened.flags & 2, 0, "a reclaim is not to be confirmed (RFC 7530, 9.1.11)")
        ok(c.nfs.compound(putfh(fh), read(0, 1, opened.stateid)))
        eq(c.open(root, b"f", 2).status, "GRACE")
        seqid = 2
        while c.open(root, b"f", seqid).status == "GRACE":
            check(time.monotonic() - began < 10, "grace does not end")
            seqid += 1 # an answer of GRACE counts
            time.sleep(0.1)
        check(time.monotonic() - began > 2, "grace ended early")
        eq(server.stop(), None, "the server leaves cleanly")
    finally:
        server.close()


@test
def what_was_open_is_reclaimed_after_a_kill(context):
    restarts()
    restarts_of_minor_version_0()


if __name__ == "__main__":
    run("--cache", "64Mi", "--nfs-versions", "3, 4", "--nfs-lease", str(LEASE))
