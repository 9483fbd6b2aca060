"""Random opens with share reservations, byte-range locks and I/O with their stateids, by several NFSv4.1 and 4.2
clients on a few files, compared with a model of them; and all of it reclaimed after a restart."""
from client41 import BOTH, READ, UNCHECKED, WRITE, Client41, close, lock, lockt, locku, open_op
from harness import eq
from raw4 import Op, _keep, _stateid, fattr, getfh, putfh, read, write
from rawrpc import boolean, opaque, u32, u64

CLIENTS, OWNERS, FILES, PLACES = 3, (b"one", b"two"), 4, 16
READ_LT, WRITE_LT = 1, 2
TO_END = 2**64 - 1


class Open:
    def __init__(self, access, deny, stateid):
        self.access, self.deny, self.shares = access, deny, {(access, deny)}
        self.stateid, self.old, self.lock = stateid, None, None  # lock: the stateid of the owner's locks


def lock_range(first, end):
    """From place `first` to `end`; the last place stands for all that follows."""
    return first, TO_END if end == PLACES else end - first


class StateRun:
    def __init__(self, rng, server):
        self.rng, self.server, self.done = rng, server, 0
        self.opens = {}  # (client, owner, file): Open
        self.locks = [[{} for _ in range(PLACES)] for _ in range(FILES)]  # of each place: owner's key and type

    # ---- setting up ----

    def begin(self):
        self.clients = [self._client(number) for number in range(CLIENTS)]
        nfs = self.server.connect()
        self.server.create("state")
        root = nfs.mnt(b"/state").fh
        nfs.close()
        self.files = []
        for number in range(FILES):
            how = u32(UNCHECKED) + fattr(mode=0o666)
            done = self.clients[0].call(putfh(root), open_op(0, BOTH, 0, self.clients[0].clientid, b"maker", how, u32(0) +
                                                             opaque(b"%d" % number)), getfh())
            eq(done.status, "OK", "making a file")
            self.files.append(done[2].fh)
            eq(self.clients[0].call(putfh(done[2].fh), close(done[1].stateid)).status, "OK", "closing it")

    def _client(self, number, complete=True):
        return Client41(self.server.port, name=b"with state %d" % number, minor=1 + number % 2, complete=complete)

    def end(self):
        for client in self.clients:
            client.nfs.close()

    # ---- one step ----

    def step(self):
        rng = self.rng
        client, owner, file = key = (rng.randrange(CLIENTS), rng.choice(OWNERS), rng.randrange(FILES))
        is_open = key in self.opens
        what = rng.choices(("open", "close", "downgrade", "lock", "locku", "lockt", "io", "wrong"),
                           (4 if is_open else 12, 3, 2, 9, 5, 2, 5, 2))[0]
        if is_open or what in ("open", "lockt"):
            getattr(self, what)(key)
            self.done += 1

    def call(self, key, *ops):
        return self.clients[key[0]].call(putfh(self.files[key[2]]), *ops)

    def expect(self, what, key, status, want):
        if status != want:
            raise AssertionError(f"{what} by client {key[0]}, owner {key[1]}, file {key[2]}: {status}, must be {want}; "
                                 f"{self.tell(key[2])}")

    def tell(self, file):
        opens = {key: (o.access, o.deny) for key, o in self.opens.items() if key[2] == file}
        return f"opens {opens}, locks {self.locks[file]}"

    def others(self, file):
        return [o for key, o in self.opens.items() if key[2] == file]

    def open(self, key):
        access, deny = self.rng.choice((READ, READ, WRITE, BOTH)), self.rng.choice((0, 0, 0, 0, READ, WRITE))
        denied = any(o.deny & access or o.access & deny for o in self.others(key[2]))
        done = self.call(key, self._open_op(key, access, deny, u32(4)))
        self.expect(f"OPEN {access} {deny}", key, done.status, "SHARE_DENIED" if denied else "OK")
        if denied:
            return
        self.delegated(key, done[1])
        there = self.opens.get(key)
        if there is None:
            self.opens[key] = Open(access, deny, done[1].stateid)
            return
        eq(done[1].stateid[4:], there.stateid[4:], "one stateid for an owner and a file")
        there.access |= access
        there.deny |= deny
        there.shares.add((access, deny))
        there.old, there.stateid = there.stateid, done[1].stateid

    def _open_op(self, key, access, deny, claim):
        return open_op(0, access, deny, self.clients[key[0]].clientid, key[1], None, claim)

    def delegated(self, key, opened):
        """A delegation that was given is given back: what it is worth is tested elsewhere."""
        if opened.delegation in (1, 2):
            eq(self.call(key, Op("DELEGRETURN", opened.deleg_stateid)).status, "OK", "DELEGRETURN")

    def held(self, key):
        return any(key[:2] in place for place in self.locks[key[2]])

    def close(self, key):
        there = self.opens[key]
        done = self.call(key, close(there.stateid))
        self.expect("CLOSE", key, done.status, "LOCKS_HELD" if self.held(key) else "OK")
        if done.status == "OK":
            del self.opens[key]

    def downgrade(self, key):
        there = self.opens[key]
        access, deny = self.rng.choice((READ, WRITE, BOTH)), self.rng.choice((0, 0, READ, WRITE))
        held = {place.get(key[:2]) for place in self.locks[key[2]]}
        if (WRITE_LT in held and not access & WRITE) or (READ_LT in held and not access & READ):
            return  # with such an open the locks could not be reclaimed after a restart
        left = {(a, d) for a, d in there.shares if not a & ~access and not d & ~deny}
        made = (access, deny) == (self._union(a for a, _ in left), self._union(d for _, d in left))
        done = self.call(key, Op("OPEN_DOWNGRADE", there.stateid + u32(0) + u32(access) + u32(deny), _keep(stateid=_stateid)))
        self.expect(f"OPEN_DOWNGRADE {access} {deny} of {there.shares}", key, done.status, "OK" if made else "INVAL")
        if made:
            there.access, there.deny, there.shares = access, deny, left
            there.old, there.stateid = there.stateid, done[1].stateid

    @staticmethod
    def _union(bits):
        result = 0
        for bit in bits:
            result |= bit
        return result

    # ---- locks ----

    def range(self):
        first = self.rng.randrange(PLACES)
        return first, self.rng.randint(first + 1, PLACES)

    def conflicts(self, key, kind, first, end):
        return [(place, who) for place in range(first, end) for who, has in self.locks[key[2]][place].items()
                if who != key[:2] and WRITE_LT in (has, kind)]

    def lock(self, key):
        there, kind = self.opens[key], self.rng.choice((READ_LT, WRITE_LT))
        first, end = self.range()
        want = "OK"
        if not there.access & (WRITE if kind == WRITE_LT else READ):
            want = "OPENMODE"
        elif self.conflicts(key, kind, first, end):
            want = "DENIED"
        new = there.lock is None or self.rng.random() < .2
        op = lock(kind, *lock_range(first, end), there.stateid, key[1]) if new else lock(kind, *lock_range(first, end), there.lock)
        done = self.call(key, op)
        self.expect(f"LOCK {kind} {first} {end}", key, done.status, want)
        if want == "DENIED":
            self._denied(key, kind, first, end, done[-1].denied)
        if want != "OK":
            return
        there.lock = done[1].stateid
        for place in range(first, end):
            self.locks[key[2]][place][key[:2]] = kind

    def _denied(self, key, kind, first, end, denied):
        who = next(number for number, c in enumerate(self.clients) if c.clientid == denied["clientid"]), denied["owner"]
        where = denied["offset"], min(PLACES, denied["offset"] + denied["length"])
        met = self.conflicts(key, kind, first, end)
        held = all(self.locks[key[2]][place].get(who) == denied["type"] for place in range(*where))
        if not held or not any(place in range(*where) and owner == who for place, owner in met):
            raise AssertionError(f"LOCK {kind} {first} {end} was denied for {denied}: {self.tell(key[2])}")

    def locku(self, key):
        there = self.opens[key]
        if there.lock is None:
            return
        first, end = self.range()
        done = self.call(key, locku(*lock_range(first, end), there.lock))
        self.expect(f"LOCKU {first} {end}", key, done.status, "OK")
        there.lock = done[1].stateid
        for place in range(first, end):
            self.locks[key[2]][place].pop(key[:2], None)

    def lockt(self, key):
        kind, (first, end) = self.rng.choice((READ_LT, WRITE_LT)), self.range()
        done = self.call(key, lockt(kind, *lock_range(first, end), key[1], self.clients[key[0]].clientid))
        met = self.conflicts(key, kind, first, end)
        self.expect(f"LOCKT {kind} {first} {end}", key, done.status, "DENIED" if met else "OK")
        if met:
            self._denied(key, kind, first, end, done[-1].denied)

    # ---- I/O, and stateids that are wrong ----

    def io(self, key):
        there, writes = self.opens[key], self.rng.random() < .5
        stateid = there.lock if there.lock and self.rng.random() < .5 else there.stateid
        op = write(0, b"bytes", stateid=stateid) if writes else read(0, 5, stateid)
        want = "OPENMODE" if writes and not there.access & WRITE else "OK"
        self.expect("WRITE" if writes else "READ", key, self.call(key, op).status, want)
        anonymous = self.call(key, write(0, b"bytes") if writes else read(0, 5))
        denied = any(o.deny & (WRITE if writes else READ) for o in self.others(key[2]))
        self.expect("anonymous " + ("WRITE" if writes else "READ"), key, anonymous.status, "LOCKED" if denied else "OK")

    def wrong(self, key):
        there = self.opens[key]
        if there.old and self.rng.random() < .5:
            self.expect("READ, old stateid", key, self.call(key, read(0, 5, there.old)).status, "OLD_STATEID")
            return
        other = ((key[0] + 1) % CLIENTS, key[1], key[2])
        self.expect("READ, another's stateid", other, self.call(other, read(0, 5, there.stateid)).status, "BAD_STATEID")
        self.expect("CLOSE, another's stateid", other, self.call(other, close(there.stateid)).status, "BAD_STATEID")

    # ---- a restart ----

    def reclaim(self):
        """All come back and take up what they had."""
        for number in range(CLIENTS):
            self.clients[number].nfs.close()
            self.clients[number] = self._client(number, complete=False)
            for key, there in self.opens.items():
                if key[0] == number:
                    self._reclaim_one(key, there)
            eq(self.clients[number].call(Op("RECLAIM_COMPLETE", boolean(False))).status, "OK", "RECLAIM_COMPLETE")

    def _reclaim_one(self, key, there):
        done = self.call(key, self._open_op(key, there.access, there.deny, u32(1) + u32(0)))
        self.expect("OPEN to reclaim", key, done.status, "OK")
        there.stateid, there.old, there.lock = done[1].stateid, None, None
        there.shares = {(there.access, there.deny)}
        for kind in (READ_LT, WRITE_LT):
            for first in range(PLACES):
                if self.locks[key[2]][first].get(key[:2]) != kind:
                    continue
                op = lock(kind, *lock_range(first, first + 1), there.lock or there.stateid,
                          None if there.lock else key[1], reclaim=True)
                done = self.call(key, op)
                self.expect("LOCK to reclaim", key, done.status, "OK")
                there.lock = done[1].stateid
