"""A client of minor version 1 or later with a session, opens and locks, and one of minor version 0, for tests; on top of
raw4."""
import os
import time

import rawrpc
from harness import eq
from raw4 import ANONYMOUS, Nfs4, Op, _bitmap, _change, _keep, _stateid, getfh, putfh, savefh
from rawrpc import Reader, boolean, opaque, u32, u64

READ, WRITE, BOTH = 1, 2, 3


class Client41:
    """A client with one session; each call is a COMPOUND behind SEQUENCE in slot 0 unless told otherwise."""

    def __init__(self, port, name=None, minor=1, slots=8, cred=rawrpc.ROOT, response=1 << 20, cached=4096, verifier=None,
                 complete=True, **options):
        self.nfs = Nfs4(port, cred=cred, minor=minor, **options)
        self.name = name or os.urandom(8)
        self.port, self.verifier = port, verifier or os.urandom(8)
        reply = self.exchange_id()
        eq(reply.status, "OK", "EXCHANGE_ID")
        self.clientid, self.sequence = reply[0].clientid, reply[0].sequence
        reply = self.create_session(slots, response, cached)
        eq(reply.status, "OK", "CREATE_SESSION")
        self.session, self.slots = reply[0].session, [0] * slots
        if complete:
            self.call(Op("RECLAIM_COMPLETE", boolean(False)))

    def exchange_id(self, flags=0):
        return self.nfs.compound(Op(
            "EXCHANGE_ID", self.verifier + opaque(self.name) + u32(flags) + u32(0) + u32(0),
            _keep(clientid=Reader.u64, sequence=Reader.u32, flags=Reader.u32, protection=Reader.u32, minor=Reader.u64,
                  owner=Reader.opaque, scope=Reader.opaque, implementation=Reader.u32)))

    def create_session(self, slots=8, response=1 << 20, cached=4096, sequence=None):
        channel = u32(0) + u32(1 << 20) + u32(response) + u32(cached) + u32(64) + u32(slots) + u32(0)

        def read_channel(r):
            return [r.u32() for _ in range(7)]
        return self.nfs.compound(Op(
            "CREATE_SESSION", u64(self.clientid) + u32(self.sequence if sequence is None else sequence) + u32(0) +
            channel * 2 + u32(0x40000000) + u32(1) + u32(0),
            _keep(session=lambda r: r.take(16), sequence=Reader.u32, flags=Reader.u32, fore=read_channel,
                  back=read_channel)))

    def sequence_op(self, slot=0, sequence=None, cache=False, highest=None, session=None):
        if sequence is None:
            self.slots[slot] += 1
            sequence = self.slots[slot]
        return Op("SEQUENCE", (session or self.session) + u32(sequence) + u32(slot) +
                  u32(slot if highest is None else highest) + boolean(cache),
                  _keep(session=lambda r: r.take(16), sequence=Reader.u32, slot=Reader.u32, highest=Reader.u32,
                        target=Reader.u32, flags=Reader.u32))

    def call(self, *ops, **options):
        cred = options.pop("cred", None)
        result = self.nfs.compound(self.sequence_op(**options), *ops, cred=cred)
        if result and result[0].ok:
            del result[0]
        return result

    def open(self, fh, name, access=3, deny=0, owner=b"owner", create=None, claim=0, **options):
        """create: None, or createhow4 from its mode on."""
        claims = u32(claim) + (opaque(name) if claim == 0 else b"")
        if claim == 1:
            claims += u32(0)
        return self.call(putfh(fh), open_op(0, access, deny, self.clientid, owner, create, claims), getfh(), **options)


class Client40:
    def __init__(self, port, name=None):
        self.nfs = Nfs4(port)
        self.name = name or os.urandom(8)
        done = ok(self.nfs.compound(Op(
            "SETCLIENTID", os.urandom(8) + opaque(self.name) + u32(0x40000000) + opaque(b"tcp") +
            opaque(b"127.0.0.1.0.1") + u32(1), _keep(clientid=Reader.u64, confirm=lambda r: r.take(8)))))
        self.clientid, self.confirm = done[0].clientid, done[0].confirm
        ok(self.nfs.compound(Op("SETCLIENTID_CONFIRM", u64(self.clientid) + self.confirm)))

    def open(self, fh, name, seqid, owner=b"owner", access=BOTH, deny=0):
        return self.nfs.compound(putfh(fh), open_op(seqid, access, deny, self.clientid, owner, None,
                                                    u32(0) + opaque(name)), getfh())


def open_op(seqid, access, deny, clientid, owner, create, claim):
    return Op("OPEN", u32(seqid) + u32(access) + u32(deny) + u64(clientid) + opaque(owner) +
              (u32(0) if create is None else u32(1) + create) + claim, read_open)


def read_open(r, reply):
    reply.stateid, reply.change, reply.flags, reply.set = _stateid(r), _change(r), r.u32(), _bitmap(r)
    reply.delegation = r.u32()
    if reply.delegation == 3:
        reply.why = r.u32()
        if reply.why in (1, 2):
            r.boolean()
    elif reply.delegation in (1, 2):
        reply.deleg_stateid, reply.recall = _stateid(r), r.boolean()
        if reply.delegation == 2:
            r.u32(), r.u64()
        reply.ace = (r.u32(), r.u32(), r.u32(), r.opaque())


def close(stateid, seqid=0):
    return Op("CLOSE", u32(seqid) + stateid, _keep(stateid=_stateid))


def _denied(r):
    return dict(offset=r.u64(), length=r.u64(), type=r.u32(), clientid=r.u64(), owner=r.opaque())


def lock(kind, offset, length, stateid, owner=None, clientid=0, reclaim=False, seqid=0, open_seqid=0):
    """With an owner: the stateid is the open's."""
    locker = (boolean(True) + u32(open_seqid) + stateid + u32(seqid) + u64(clientid) + opaque(owner) if owner
              else boolean(False) + stateid + u32(seqid))
    return Op("LOCK", u32(kind) + boolean(reclaim) + u64(offset) + u64(length) + locker, _keep(stateid=_stateid),
              lambda r, reply: setattr(reply, "denied", _denied(r)) if reply.status == "DENIED" else None)


def lockt(kind, offset, length, owner, clientid=0):
    return Op("LOCKT", u32(kind) + u64(offset) + u64(length) + u64(clientid) + opaque(owner), None,
              lambda r, reply: setattr(reply, "denied", _denied(r)) if reply.status == "DENIED" else None)


def locku(offset, length, stateid, seqid=0):
    return Op("LOCKU", u32(2) + u32(seqid) + stateid + u64(offset) + u64(length), _keep(stateid=_stateid))


def ok(result):
    eq(result.status, "OK", repr(list(result)))
    return result


def copy(source, target, from_offset, to_offset, count, servers=0):
    """Of minor version 2, from the saved handle's file."""
    return Op("COPY", source + target + u64(from_offset) + u64(to_offset) + u64(count) + boolean(True) * 2 +
              u32(servers), _keep(ids=Reader.u32, count=Reader.u64, how=Reader.u32, verifier=lambda r: r.take(8),
                                  consecutive=Reader.boolean, synchronous=Reader.boolean))


def clone(source, target, from_offset, to_offset, count):
    return Op("CLONE", source + target + u64(from_offset) + u64(to_offset) + u64(count))


class Sharer:
    """COPY and CLONE without opens, for tests whose other operations are those of version 3.  Its name is for a place
    in the test: after a restart it is the same client, and waits for the end of grace."""

    def __init__(self, port, name, seconds=20, **options):
        self.client, self.seconds = Client41(port, name=name, minor=2, **options), seconds

    def run(self, op, source, target, from_offset, to_offset, count):
        """All of a copy or clone.  The status."""
        until, at = time.monotonic() + self.seconds, 0
        while True:
            done = self.client.call(putfh(source), savefh(), putfh(target),
                                    op(ANONYMOUS, ANONYMOUS, from_offset + at, to_offset + at, count - at))
            if done.status == "OK" and op is copy:
                at += done[3].count
            if done.status == "OK" and (op is clone or at == count):
                return "OK"
            if done.status not in ("OK", "GRACE", "DELAY") or time.monotonic() > until:
                return done.status
            time.sleep(0 if done.status == "OK" else .02)

    def close(self):
        self.client.nfs.close()


UNCHECKED, GUARDED, EXCLUSIVE, EXCLUSIVE_1 = range(4)
TO_END = 2**64 - 1
