#!/usr/bin/env python3
"""NFSv4.1's read delegations: who gets them, what recalls them, over callbacks that clients answer, answer wrongly or do
not answer, and what takes them away."""
import os
import threading
import time

import rawrpc
from client41 import BOTH, READ, WRITE, Client40, Client41, close, copy, lock, ok, open_op
from harness import Server, check, eq, run, test
from raw4 import Nfs4, Op, _keep, fattr, getattr_, getfh, link, putfh, putrootfh, read, remove, rename, savefh, setattr_, write
from rawrpc import Reader, boolean, opaque, u32, u64

LEASE = 5
WANT_READ, WANT_NONE = 0x100, 0x400
NOT_WANTED, CONTENTION, RESOURCE = 0, 1, 2
PATH_DOWN, ADMIN_REVOKED, RECALLABLE_REVOKED, PATH_DOWN_SESSION = 1, 0x20, 0x40, 0x200


def bind(session, direction):
    return Op("BIND_CONN_TO_SESSION", session + u32(direction) + boolean(False),
              _keep(session=lambda r: r.take(16), direction=Reader.u32, rdma=Reader.boolean))


class Holder(Client41):
    """A client with a backchannel of its own connection.  `answers`: "return" (what is recalled), "keep" (answers, but
    does not return it), "silent", "garbage", "unknown" (BAD_STATEID), "close" (the connection)."""

    def __init__(self, port, answers="return", **options):
        super().__init__(port, **options)
        self.answers, self.recalled, self.calls = answers, [], 0
        self.returning = Nfs4(port, minor=1)
        self.bind()

    def bind(self):
        self.back = Nfs4(self.port, minor=1, timeout=60)
        eq(ok(self.back.compound(bind(self.session, 2)))[0].direction, 2)
        threading.Thread(target=self._serve, args=(self.back,), daemon=True).start()
        ok(self.call(putrootfh()))  # with it the server proves the backchannel

    def _serve(self, back):
        try:
            while self._answer(back, Reader(back.receive())):
                pass
        except (rawrpc.Closed, OSError):
            pass

    def _answer(self, back, r):
        xid, kind, version, program, _, procedure = (r.u32() for _ in range(6))
        eq((kind, version, program, procedure), (0, 2, 0x40000000, 1))
        for _ in range(2):
            r.u32(), r.opaque()
        r.opaque()
        eq(r.u32(), 1, "the client's minor version")
        r.u32()
        count = r.u32()
        eq(r.u32(), 11, "CB_SEQUENCE")
        sequence = r.take(16) + u32(r.u32()) + u32(r.u32()) + u32(r.u32())
        r.boolean(), r.u32()
        self.calls += 1
        results = u32(11) + u32(0) + sequence + u32(0)
        fh = None
        if count == 2:
            eq(r.u32(), 4, "CB_RECALL")
            stateid, _, fh = r.take(16), r.boolean(), r.opaque()
            if self.answers == "silent":
                return True
            if self.answers == "close":
                back.close()
                return False
            self.recalled.append(fh)
            results += u32(4) + u32(10025 if self.answers == "unknown" else 0)
        r.end()
        reply = u32(10025 if fh and self.answers == "unknown" else 0) + opaque(b"") + u32(count) + results
        if fh and self.answers == "garbage":
            for junk in (b"\0" * 3, os.urandom(40), u32(77) + u32(1) + u32(0) * 4, u32(xid) + u32(1) + os.urandom(30)):
                back.send(junk)
            return True
        back.send(u32(xid) + u32(1) + u32(0) * 4 + reply)
        if fh and self.answers == "return":
            self.give_back(fh, stateid)
        return True

    def give_back(self, fh, stateid):
        self.slots[1] += 1
        ok(self.returning.compound(self.sequence_op(slot=1, sequence=self.slots[1]), putfh(fh),
                                   Op("DELEGRETURN", stateid)))

    def flags(self):
        return ok(self.nfs.compound(self.sequence_op()))[0].flags

    def take(self, directory, name, want=0, **options):
        """Opens to read, and returns the OPEN's reply."""
        return ok(self.open(directory, name, access=READ | want, **options))[1]

    def held(self, directory, name):
        """A delegation of the file: its stateid.  The open itself is closed again."""
        opened = self.take(directory, name, WANT_READ)
        eq(opened.delegation, 1, f"a delegation of {name}; why not: {getattr(opened, 'why', None)}")
        ok(self.call(putfh(self.fh(directory, name)), close(opened.stateid)))
        return opened.deleg_stateid

    def fh(self, directory, name):
        return ok(self.call(putfh(directory), Op("LOOKUP", opaque(name)), getfh()))[2].fh


def test_stateid(stateid):
    return Op("TEST_STATEID", u32(1) + stateid, _keep(statuses=lambda r: [r.u32() for _ in range(r.u32())]))


_names = iter(range(10 ** 6))


def fresh(context, data=b"some data"):
    """A file that no conflict has touched lately."""
    name = b"f%d" % next(_names)
    return name, context.file(name, data)


@test
def readers_get_one(context):
    name, fh = fresh(context)
    a, b = Holder(context.server.port), Holder(context.server.port)
    for holder in (a, b):
        stateid = holder.held(context.dir, name)
        eq(ok(holder.call(putfh(fh), read(0, 4, stateid)))[1].data, b"some")
        eq(holder.call(putfh(fh), write(0, b"x", stateid=stateid)).status, "OPENMODE")
        eq(ok(holder.call(test_stateid(stateid)))[0].statuses, [0])
    again = a.take(context.dir, name, WANT_READ)
    eq((again.delegation, again.why), (3, RESOURCE), "it has one")
    eq(a.call(Op("FREE_STATEID", stateid)).status, "BAD_STATEID", "another client's")
    eq(b.call(Op("FREE_STATEID", stateid)).status, "LOCKS_HELD")
    eq(b.call(putfh(context.dir), Op("DELEGRETURN", stateid)).status, "BAD_STATEID", "of another file")
    b.give_back(fh, stateid)
    eq(b.call(putfh(fh), Op("DELEGRETURN", stateid)).status, "BAD_STATEID", "returned already")
    eq(a.calls + b.calls, 2, "callbacks that prove a backchannel")


@test
def not_to_everybody(context):
    name, fh = fresh(context)
    a, nobody = Holder(context.server.port), Client41(context.server.port)
    eq(ok(nobody.open(context.dir, name, access=READ))[1].delegation, 0, "without a backchannel")
    eq(ok(nobody.open(context.dir, name, access=READ | WANT_READ))[1].why, RESOURCE)
    opened = a.take(context.dir, name, WANT_NONE)
    eq((opened.delegation, opened.why), (3, NOT_WANTED))
    eq(ok(a.open(context.dir, name, access=BOTH | WANT_READ))[1].delegation, 3, "who writes")
    name, fh = fresh(context)
    writer = Client41(context.server.port)
    stateid = ok(writer.open(context.dir, name, access=WRITE))[1].stateid
    opened = a.take(context.dir, name, WANT_READ)
    eq((opened.delegation, opened.why), (3, CONTENTION), "while somebody writes")
    ok(writer.call(putfh(fh), close(stateid)))
    a.held(context.dir, name)


def conflicts(context):
    """What others do, by a name and in a list of what answers DELAY until the delegation is back."""
    v3, nfs40 = context.nfs, Nfs4(context.server.port)
    c = Client41(context.server.port, minor=2)
    other = fresh(context)
    c_open = ok(c.open(context.dir, other[0], access=BOTH))[1].stateid

    def renamed(name, fh):
        return c.call(putfh(context.dir), savefh(), putfh(context.dir), rename(name, name + b".new"))

    def replaced(name, fh):
        made = fresh(context)[0]
        return c.call(putfh(context.dir), savefh(), putfh(context.dir), rename(made, name))

    def linked(name, fh):
        return c.call(putfh(fh), savefh(), putfh(context.dir), link(name + b".link"))

    return {
        "OPEN to write": lambda name, fh: c.open(context.dir, name, access=WRITE),
        "OPEN that denies reading": lambda name, fh: c.open(context.dir, name, access=READ, deny=1),
        "OPEN to write, 4.0": lambda name, fh: open_40(context, name),
        "OPEN that empties": lambda name, fh: c.open(context.dir, name, access=BOTH, create=u32(0) + fattr(size=0)),
        "WRITE, 4.0": lambda name, fh: nfs40.compound(putfh(fh), write(0, b"x")),
        "SETATTR": lambda name, fh: c.call(putfh(fh), setattr_(mode=0o600)),
        "REMOVE": lambda name, fh: c.call(putfh(context.dir), remove(name)),
        "RENAME": renamed,
        "RENAME onto it": replaced,
        "LINK": linked,
        "WRITE, v3": lambda name, fh: v3.write(fh, 0, b"x"),
        "SETATTR, v3": lambda name, fh: v3.setattr(fh, size=1),
        "REMOVE, v3": lambda name, fh: v3.remove(context.dir, name),
        "RENAME, v3": lambda name, fh: v3.rename(context.dir, name, context.dir, name + b".new"),
        "LINK, v3": lambda name, fh: v3.link(fh, context.dir, name + b".link"),
        "COPY onto it": lambda name, fh: c.call(putfh(other[1]), savefh(), putfh(fh), copy(c_open, b"\0" * 16, 0, 0, 4)),
        "DEALLOCATE": lambda name, fh: c.call(putfh(fh), Op("DEALLOCATE", b"\0" * 16 + u64(0) + u64(4))),
        "ALLOCATE": lambda name, fh: c.call(putfh(fh), Op("ALLOCATE", b"\0" * 16 + u64(0) + u64(40))),
    }


def open_40(context, name):
    return Client40(context.server.port).open(context.dir, name, 1, access=WRITE)


@test
def what_others_change_is_recalled_first(context):
    a = Holder(context.server.port)
    for what, do in conflicts(context).items():
        name, fh = fresh(context)
        a.held(context.dir, name)
        before = len(a.recalled)
        eq(do(name, fh).status, "OK", f"{what}, waiting for the delegation")
        eq(a.recalled[before:], [fh], f"{what} recalls")
        if not any(word in what for word in ("REMOVE", "RENAME", "denies")):
            opened = a.take(context.dir, name, WANT_READ)
            check(opened.delegation == 3 and opened.why == CONTENTION, f"{what}: withheld for a while")


@test
def what_is_not_returned_delays_others(context):
    a = Holder(context.server.port, "keep")
    for what, do in conflicts(context).items():
        name, fh = fresh(context)
        stateid = a.held(context.dir, name)
        refused = do(name, fh).status
        check(refused in ("DELAY", "JUKEBOX"), f"{what} while a delegation stands: {refused}")
        a.give_back(fh, stateid)
        eq(do(name, fh).status, "OK", f"{what} afterwards")


@test
def ones_own_changes_recall_nothing_of_ones_own(context):
    name, fh = fresh(context)
    a, b = Holder(context.server.port, minor=1), Holder(context.server.port)
    stateid = a.held(context.dir, name)
    ok(a.call(putfh(fh), setattr_(mode=0o640)))
    opened = ok(a.open(context.dir, name, access=WRITE))[1]
    ok(a.call(putfh(fh), write(0, b"mine", stateid=opened.stateid)))
    eq((a.recalled, ok(a.call(test_stateid(stateid)))[0].statuses), ([], [0]))


@test
def who_does_not_return_loses_it(context):
    for answers in ("keep", "silent", "garbage", "unknown", "close"):
        name, fh = fresh(context)
        a, b = Holder(context.server.port, answers), Client41(context.server.port)
        stateid = a.held(context.dir, name)
        began = time.monotonic()
        while b.open(context.dir, name, access=WRITE).status == "DELAY":
            check(time.monotonic() - began < 4 * LEASE, f"{answers}: it is never revoked")
            if answers == "close":
                check(not a.flags() & RECALLABLE_REVOKED or time.monotonic() - began >= LEASE, "revoked early")
            ok(a.call(putrootfh()))  # it keeps its lease
        check(time.monotonic() - began >= LEASE - 1, f"{answers}: revoked after {time.monotonic() - began} s")
        check(a.flags() & RECALLABLE_REVOKED, f"{answers}: SEQUENCE says so")
        if answers == "close":
            check(a.flags() & PATH_DOWN_SESSION, "SEQUENCE says that the backchannel is down")
            a.bind()
            time.sleep(0.2)
            eq(a.flags() & (PATH_DOWN | PATH_DOWN_SESSION), 0, "a new one")
        eq(a.call(putfh(fh), read(0, 1, stateid)).status, "DELEG_REVOKED", answers)
        eq(ok(a.call(test_stateid(stateid)))[0].statuses, [10087], answers)
        ok(a.call(Op("FREE_STATEID", stateid)))
        eq(a.flags() & RECALLABLE_REVOKED, 0, f"{answers}: freed")
        eq(a.call(putfh(fh), read(0, 1, stateid)).status, "BAD_STATEID", answers)


@test
def a_silent_client_loses_it_at_once(context):
    name, fh = fresh(context)
    a, b = Holder(context.server.port, "silent"), Client41(context.server.port)
    a.held(context.dir, name)
    for _ in range(int(LEASE * 2.5)):
        time.sleep(0.5)
        ok(b.call(putrootfh()))
    began = time.monotonic()
    ok(b.open(context.dir, name, access=WRITE))
    check(time.monotonic() - began < 1, "it was waited for")
    eq(a.call(putrootfh()).status, "BADSESSION")


@test
def an_open_under_a_delegation(context):
    name, fh = fresh(context)
    a = Holder(context.server.port, "keep")
    b = Client41(context.server.port)
    stateid = a.held(context.dir, name)
    eq(b.open(context.dir, name, access=WRITE).status, "DELAY")
    opened = a.call(putfh(fh), open_op(0, READ, 0, a.clientid, b"owner", None, u32(5) + stateid))
    eq(opened.status, "OK", "CLAIM_DELEG_CUR_FH while it is recalled")
    named = a.call(putfh(context.dir), open_op(0, READ, 0, a.clientid, b"owner", None, u32(2) + stateid + opaque(name)))
    eq(named.status, "OK", "CLAIM_DELEGATE_CUR")
    another = fresh(context)
    wrong = a.call(putfh(another[1]), open_op(0, READ, 0, a.clientid, b"owner", None, u32(5) + stateid))
    eq(wrong.status, "BAD_STATEID", "of another file")
    a.give_back(fh, stateid)
    eq(a.call(putfh(fh), open_op(0, READ, 0, a.clientid, b"owner", None, u32(5) + stateid)).status, "BAD_STATEID")


@test
def snapshots_give_them_freely(context):
    server = context.server
    name, fh = fresh(context)
    volume = context.volume
    server.cli("snapshot", "create", f"{volume}@one")
    c, b = Client41(server.port), Client41(server.port)
    root = ok(c.call(putrootfh(), Op("LOOKUP", opaque(f"{volume}@one".encode())), getfh()))[2].fh
    path = ok(c.call(putfh(root), Op("LOOKUP", opaque(b"snapshots_give_them_freely")), getfh()))[2].fh
    opened = ok(c.open(path, name, access=READ))[1]
    eq(opened.delegation, 1, "no backchannel is needed where nothing changes")
    ok(b.open(context.dir, name, access=WRITE))  # of the live file
    eq(ok(c.call(test_stateid(opened.deleg_stateid)))[0].statuses, [0], "the live file's changes are no conflict")
    server.cli("snapshot", "delete", f"{volume}@one")
    eq(ok(c.call(test_stateid(opened.deleg_stateid)))[0].statuses, [10047], "ADMIN_REVOKED with the snapshot")
    check(ok(c.nfs.compound(c.sequence_op()))[0].flags & ADMIN_REVOKED, "SEQUENCE says so")
    for stateid in (opened.deleg_stateid, opened.stateid):
        ok(c.call(Op("FREE_STATEID", stateid)))
    eq(ok(c.nfs.compound(c.sequence_op()))[0].flags, 0)


def admin_changes():
    """Rules, a restore and a volume's end, with a server of their own."""
    server = Server("--cache", "64Mi", "--nfs-versions", "3, 4", "--nfs-lease", str(LEASE))
    try:
        server.start()
        server.create("vol")
        nfs = server.connect()
        root = nfs.mnt(b"/vol").fh
        fh = nfs.create(root, b"f", rawrpc.GUARDED).fh
        a = Holder(server.port)
        a.held(root, b"f")
        server.cli("snapshot", "create", "vol@one")
        server.cli("restore", "vol@one")
        for _ in range(50):
            time.sleep(0.02)
            if a.recalled:
                break
        eq(a.recalled, [fh], "a restore recalls")
        b = Client41(server.port)
        opened = ok(b.open(root, b"f", access=BOTH))[1].stateid
        locked = ok(b.call(putfh(fh), lock(2, 0, 10, opened, b"L")))[1].stateid
        server.cli("volume", "set", "vol", "allow=10.0.0.0/8:rw")
        eq(b.call(putfh(fh), read(0, 1, opened)).status, "ACCESS")
        check(ok(b.nfs.compound(b.sequence_op()))[0].flags & ADMIN_REVOKED, "rules that let the client in no more")
        eq(ok(b.call(test_stateid(opened)))[0].statuses, [10047])
        eq(ok(b.call(test_stateid(locked)))[0].statuses, [10025], "a lock goes with its open")
        server.cli("volume", "set", "vol", "allow=127.0.0.1:rw")
        eq(b.call(putfh(fh), read(0, 1, opened)).status, "ADMIN_REVOKED", "they do not come back")
        c = Client41(server.port)
        opened = ok(c.open(root, b"f", access=BOTH))[1].stateid
        ok(c.call(putfh(fh), lock(2, 0, 10, opened, b"L")))
        server.cli("volume", "set", "vol", "bandwidth=1G/s")
        eq(ok(c.call(test_stateid(opened)))[0].statuses, [0], "other changes take nothing away")
        server.cli("snapshot", "delete", "vol@one")
        server.cli("volume", "delete", "vol", "--yes")
        eq(ok(c.call(test_stateid(opened)))[0].statuses, [10047])
        eq(server.stop(), None, "the server leaves cleanly")
    finally:
        server.close()


def restart():
    server = Server("--cache", "64Mi", "--nfs-versions", "3, 4", "--nfs-lease", str(LEASE), "--nfs-grace", "20")
    try:
        server.start()
        server.create("vol")
        nfs = server.connect()
        root = nfs.mnt(b"/vol").fh
        fh = nfs.create(root, b"f", rawrpc.GUARDED).fh
        Holder(server.port, name=b"holds").held(root, b"f")
        server.kill()
        server.start()
        a = Holder(server.port, name=b"holds", complete=False)
        opened = a.call(putfh(fh), open_op(0, READ, 0, a.clientid, b"o", None, u32(1) + u32(1)))
        eq((opened.status, opened[1].delegation), ("OK", 1), "a delegation is reclaimed")
        ok(a.call(Op("RECLAIM_COMPLETE", boolean(False))))
        ok(a.call(putfh(fh), close(opened[1].stateid)))
        ok(Client41(server.port).open(root, b"f", access=WRITE))
        eq(a.recalled, [fh])
        eq(server.stop(), None, "the server leaves cleanly")
    finally:
        server.close()


@test
def admins_take_them_away(context):
    admin_changes()


@test
def they_are_reclaimed(context):
    restart()


if __name__ == "__main__":
    run("--cache", "64Mi", "--nfs-versions", "3, 4", "--nfs-lease", str(LEASE))
