#!/usr/bin/env python3
"""NFSv4's clients as admins see and evict them, the limits of what they may have, and the gauges of both.
SLUICE_BUILD is the directory with sluiced and sluice.  Names of tests as arguments run only these."""
import json
import os
import re
import subprocess
import sys
import time
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "nfs"))
import harness
from client41 import READ, WRITE, Client40, Client41, close, lock, ok
from harness import Server, check, eq, test
from raw4 import Op, _keep, getfh, lookup, putfh, putrootfh, read, write
from rawrpc import Reader, boolean, opaque, u32, u64

OPTIONS = ("--cache", "64M", "--nfs-versions", "3, 4", "--nfs-lease", "5")
SLUICE = os.path.join(harness.BUILD, "sluice")
WRITE_LT = 2


def sluice(server, *words, code=0):
    done = subprocess.run([SLUICE, "--socket", server.socket, *words], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    eq(done.returncode, code, f"{words}: {done.stdout.decode()}")
    return done.stdout.decode()


def listed(server):
    return json.loads(sluice(server, "clients", "--json"))["nfs4_clients"]


def named(server, name):
    return next((c for c in listed(server) if c["owner"] == name), None)


def evict(server, name):
    number = named(server, name)["number"]
    eq(sluice(server, "clients", "evict", str(number)), "1 client evicted\n")
    return number


class Named(Client41):
    """Says what it is implemented by."""

    def __init__(self, port, name, implementation, **options):
        self.implementation = implementation
        super().__init__(port, name=name, **options)

    def exchange_id(self, flags=0):
        return self.nfs.compound(Op(
            "EXCHANGE_ID", self.verifier + opaque(self.name) + u32(flags) + u32(0) + u32(1) + opaque(b"example.org") +
            opaque(self.implementation) + u64(0) + u32(0),
            _keep(clientid=Reader.u64, sequence=Reader.u32, flags=Reader.u32, protection=Reader.u32, minor=Reader.u64,
                  owner=Reader.opaque, scope=Reader.opaque, implementation=Reader.u32)))


@test
def clients_are_listed_with_what_they_have(t):
    fh = t.file(b"f", b"data")
    t.file(b"g")
    a = Named(t.server.port, b"Linux NFSv4.2 \x1b[2J\xff\\", b"Linux 6.1", minor=2, source=("127.3.2.1", 0))
    opened = ok(a.open(t.dir, b"f"))[1].stateid
    ok(a.open(t.dir, b"g", access=READ))
    locked = ok(a.call(putfh(fh), lock(WRITE_LT, 0, 10, opened, owner=b"p")))[1].stateid
    locked = ok(a.call(putfh(fh), lock(WRITE_LT, 100, 10, locked)))[1].stateid
    Client40(t.server.port, b"an old one")
    b = Client41(t.server.port, name=b"n" * 1000)
    eq(b.exchange_id()[0].status, "OK")
    b.name = b"not yet confirmed"
    eq(b.exchange_id()[0].status, "OK")
    number = a.clientid & 0xffffffff
    text = "Linux NFSv4.2 \\x1b[2J\\xff\\x5c"
    one = named(t.server, text)
    check(one.pop("silent_seconds") <= 2, one)
    eq(one, {"number": number, "address": "127.3.2.1", "minor_version": 2, "owner": text, "implementation": "Linux 6.1",
             "opens": 2, "locks": 2, "delegations": 0, "confirmed": True, "expired": False})
    eq(named(t.server, "an old one")["minor_version"], 0)
    long = next(c["owner"] for c in listed(t.server) if c["owner"].startswith("nnn"))
    check(long.endswith("n...") and 80 < len(long) < 100, long)
    eq(named(t.server, "not yet confirmed")["confirmed"], False)
    shown = sluice(t.server, "clients")
    check(re.search(r"^127\.3\.2\.1 +1 ", shown, re.M), f"by address: {shown}")
    check(re.search(r"^%d +127\.3\.2\.1 +4\.2 +2 +2 +0 +[0-2] s  active +Linux NFSv4\.2 \\x1b" % number, shown, re.M),
          shown)
    check(re.search(r" unconfirmed +not yet confirmed$", shown, re.M), shown)
    check("\x1b" not in shown, "a terminal would take it")
    status = json.loads(sluice(t.server, "status", "--json"))["nfs4"]
    eq((status["opens"] >= 2, status["locks"]), (True, 2), status)
    ok(a.call(putfh(fh), Op("LOCKU", u32(2) + u32(0) + locked + u64(0) + u64(200), _keep(s=lambda r: r.take(16)))))
    ok(a.call(putfh(fh), close(opened)))
    one = named(t.server, text)
    eq((one["opens"], one["locks"]), (1, 0), "closed and unlocked")
    evict(t.server, text)
    eq(named(t.server, text), None)


@test
def who_is_evicted_loses_what_it_had_and_comes_again(t):
    fh = t.file(b"f", b"data")
    a, b = Client41(t.server.port, name=b"holder"), Client41(t.server.port, name=b"waiter")
    opened = ok(a.open(t.dir, b"f"))[1].stateid
    ok(a.call(putfh(fh), lock(WRITE_LT, 0, 10, opened, owner=b"p")))
    other = ok(b.open(t.dir, b"f"))[1].stateid
    eq(b.call(putfh(fh), lock(WRITE_LT, 0, 10, other, owner=b"q")).status, "DENIED")
    number = evict(t.server, "holder")
    ok(b.call(putfh(fh), lock(WRITE_LT, 0, 10, other, owner=b"q")))
    eq(a.call(putfh(fh), write(0, b"late", stateid=opened)).status, "BADSESSION")
    eq(a.create_session(sequence=a.sequence + 1).status, "STALE_CLIENTID")
    again = Client41(t.server.port, name=b"holder", verifier=a.verifier)
    check(again.clientid != a.clientid, "another client id")
    eq(again.call(putfh(fh), write(0, b"late", stateid=opened)).status, "BAD_STATEID", "it is nothing's any more")
    mine = ok(again.open(t.dir, b"f"))[1].stateid
    eq(again.call(putfh(fh), lock(WRITE_LT, 0, 10, mine, owner=b"p")).status, "DENIED")
    check(named(t.server, "holder")["number"] != number, "a number of its own")
    event = json.loads(sluice(t.server, "events", "--last", "1", "--json"))["events"][0]
    eq((event["command"], event["arguments"]),
       ("clients-evict", {"client": str(number), "address": "127.0.0.1", "owner": "holder"}))
    check(re.search(r"clients evict client=%d address=127\.0\.0\.1 owner=holder" % number,
                    sluice(t.server, "events", "--last", "1")), "in people's words")


@test
def who_is_evicted_while_it_works_loses_nothing_else(t):
    """What is on its way meets the end of its client at any point."""
    fh = t.file(b"f", b"data")
    for _ in range(20):
        a = Client41(t.server.port, name=b"busy", slots=8)
        ok(a.open(t.dir, b"f"))
        for slot in range(8):
            a.slots[slot] += 1
        calls = [b"".join(op.encode() for op in (a.sequence_op(slot=slot, sequence=a.slots[slot]), putfh(fh),
                                                 read(0, 4), write(0, b"data"))) for slot in range(8)]
        number = str(named(t.server, "busy")["number"])
        gone = subprocess.Popen([SLUICE, "--socket", t.server.socket, "clients", "evict", number],
                                stdout=subprocess.DEVNULL)
        statuses = [a.nfs.call(100003, 4, 1, opaque(b"") + u32(1) + u32(4) + call, a.nfs.cred).u32() for call in calls]
        eq(gone.wait(20), 0, "evicting")
        check(set(statuses) <= {0, 10052}, statuses)
        eq(a.call(putrootfh()).status, "BADSESSION")
    t.alive()


@test
def delegations_are_counted_and_end_with_their_client(t):
    t.file(b"f", b"data")
    t.server.cli("snapshot", "create", "vol@delegated")
    a = Client41(t.server.port, name=b"delegate")
    path = [lookup(b"vol@delegated"), lookup(b"delegations_are_counted_and_end_with_their_client"), getfh()]
    folder = ok(a.call(putrootfh(), *path))[3].fh
    opened = ok(a.open(folder, b"f", access=READ))[1]
    eq(opened.delegation, 1, "of a snapshot's file")
    ok(a.call(putfh(ok(a.call(putfh(folder), lookup(b"f"), getfh()))[2].fh), close(opened.stateid)))
    one = named(t.server, "delegate")
    eq((one["opens"], one["delegations"]), (0, 1))
    eq(metrics(t.server)[1]["sluice_nfs4_delegations"], 1)
    evict(t.server, "delegate")
    eq(metrics(t.server)[1]["sluice_nfs4_delegations"], 0)


@test
def a_client_of_minor_version_0_is_told_that_it_has_expired(t):
    t.file(b"f", b"data")
    a = Client40(t.server.port, b"old holder")
    opened = ok(a.open(t.dir, b"f", 1))
    fh = opened[2].fh
    evict(t.server, "old holder")
    eq(a.nfs.compound(putfh(fh), read(0, 4, opened[1].stateid)).status, "EXPIRED")
    eq(a.nfs.compound(Op("RENEW", u64(a.clientid))).status, "EXPIRED")
    eq(a.open(t.dir, b"f", 2).status, "EXPIRED")
    ok(Client40(t.server.port, b"old holder").open(t.dir, b"f", 1))


@test
def all_clients_of_an_address_are_evicted(t):
    t.file(b"f")
    many = [Client41(t.server.port, name=b"there %d" % n, source=("127.3.2.9", 0)) for n in range(100)]
    for c in many:
        ok(c.open(t.dir, b"f", access=READ))
    other = Client41(t.server.port, name=b"elsewhere", source=("127.3.2.8", 0))
    eq(sluice(t.server, "clients", "evict", "127.3.2.9"), "100 clients evicted\n")
    eq({c.call(putrootfh()).status for c in many}, {"BADSESSION"})
    ok(other.call(putrootfh()))
    check(all(c["address"] != "127.3.2.9" for c in listed(t.server)), "none is left")


@test
def what_is_no_client_is_refused_in_words(t):
    check("there is no NFSv4 client 4000000000" in sluice(t.server, "clients", "evict", "4000000000", code=1), "number")
    check("10.9.8.7 has no NFSv4 client" in sluice(t.server, "clients", "evict", "10.9.8.7", code=1), "address")
    for wrong in ("x", "4294967296", "99999999999999999999", "1.2.3", ""):
        check("is no client; right would be" in sluice(t.server, "clients", "evict", wrong, code=2), wrong)
    sluice(t.server, "clients", "evict", code=2)
    server = Server("--cache", "16M", "--metrics", "off", "--nfs-versions", "3")
    try:
        server.start()
        check("version 4 is not served" in sluice(server, "clients", "evict", "1", code=1), "without NFSv4")
        eq(json.loads(sluice(server, "clients", "--json"))["nfs4_clients"], [])
        eq(json.loads(sluice(server, "status", "--json"))["nfs4"], None)
        eq(server.stop(), None, "stopping")
    finally:
        server.close()


def reclaim(client, fh):
    return client.call(putfh(fh), Op("OPEN", u32(0) + u32(READ) + u32(0) + u64(client.clientid) + opaque(b"o") + u32(0) +
                                     u32(1) + u32(0))).status


@test
def who_was_evicted_cannot_reclaim_after_a_crash(t):
    server = Server("--cache", "16M", "--metrics", "off", "--nfs-versions", "3, 4", "--nfs-grace", "60")
    try:
        server.start()
        server.create("v")
        clients = {name: Client41(server.port, name=name) for name in (b"evicted", b"kept", b"evicted later")}
        a = clients[b"evicted"]
        fh = ok(a.call(putrootfh(), lookup(b"v"), getfh()))[2].fh
        made = ok(a.open(fh, b"f", create=u32(1) + u32(0) + u32(0)))[2].fh
        for client in clients.values():
            ok(client.open(fh, b"f", access=READ))
        evict(server, "evicted")
        server.kill()
        server.start()
        clients = {name: Client41(server.port, name=name, complete=False) for name in clients}
        eq(reclaim(clients[b"evicted"], made), "RECLAIM_BAD")
        evict(server, "evicted later")
        eq(clients[b"evicted later"].call(putrootfh()).status, "BADSESSION")
        for _ in range(2):  # nor as another instance, which is recorded meanwhile
            later = Client41(server.port, name=b"evicted later", complete=False)
            eq(reclaim(later, made), "RECLAIM_BAD", "evicted in the grace period")
        eq(clients[b"kept"].call(Op("RECLAIM_COMPLETE", boolean(False))).status, "OK")
        check(b"every client has reclaimed" in server.stderr(), "nobody waits for those who were evicted")
        eq(server.stop(), None, "stopping")
    finally:
        server.close()


# ---- limits and gauges ----

def metrics(server):
    """{name: value} of all series, their labels with the name."""
    url = json.loads(server.cli("status", "--json"))["metrics"]
    with urllib.request.urlopen(url, timeout=20) as answer:
        text = answer.read().decode()
    return text, {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                  for line in text.split("\n") if line and line[0] != "#"}


@test
def gauges_count_what_there_is_and_do_not_grow_in_number(t):
    t.file(b"f")
    first = Client41(t.server.port, name=b"counted first")
    fh = ok(first.call(putfh(t.dir), lookup(b"f"), getfh()))[2].fh
    stateid = ok(first.open(t.dir, b"f"))[1].stateid
    ok(first.call(putfh(fh), lock(WRITE_LT, 10, 10, stateid, owner=b"p")))
    _, before = metrics(t.server)
    many = [Client41(t.server.port, name=b"counted %d" % n) for n in range(20)]
    for c in many:
        stateid = ok(c.open(t.dir, b"f"))[1].stateid
    ok(c.call(putfh(fh), lock(WRITE_LT, 0, 10, stateid, owner=b"p")))
    text, after = metrics(t.server)
    eq(set(after) ^ set(before), set(), "series")
    for name, more in (("clients", 20), ("sessions", 20), ("opens", 21), ("locks", 1), ("delegations", 0)):
        eq(after["sluice_nfs4_" + name] - before["sluice_nfs4_" + name], more, name)
    eq(after["sluice_nfs4_clients_limit"], 100000)
    done = subprocess.run(["promtool", "check", "metrics"], input=text.encode(), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60)
    eq((done.returncode, done.stdout.decode()), (0, ""))
    for c in many:
        evict(t.server, c.name.decode())
    _, after = metrics(t.server)
    for name in ("clients", "sessions", "opens", "locks", "delegations"):
        eq(after["sluice_nfs4_" + name], before["sluice_nfs4_" + name], name)


@test
def limits_hold(t):
    server = Server("--cache", "16M", "--metrics", "off", "--nfs-versions", "3, 4", "--nfs4-clients", "3",
                    "--nfs4-sessions", "4", "--nfs4-opens", "5", "--nfs4-locks", "16", "--nfs4-delegations", "0",
                    "--nfs-lease", "3600")
    try:
        server.start()
        server.create("v")
        a, b, c = (Client41(server.port, name=b"%d" % n) for n in range(3))
        fh = ok(a.call(putrootfh(), lookup(b"v"), getfh()))[2].fh
        first = ok(a.open(fh, b"f0", create=u32(1) + u32(0) + u32(0)))
        b.sequence, c.sequence = b.sequence + 1, c.sequence + 1
        ok(b.create_session())
        eq(c.create_session().status, "DELAY", "the fifth session")
        for n in range(1, 4):
            ok(a.open(fh, b"f%d" % n, create=u32(1) + u32(0) + u32(0)))
        at = 0
        stateid = ok(a.call(putfh(first[2].fh), lock(WRITE_LT, at, 1, first[1].stateid, owner=b"p")))[1].stateid
        eq(a.open(fh, b"f0", owner=b"another").status, "DELAY", "four opens and a lock-owner: the sixth")
        done = None
        while at < 40 and (done is None or done.status == "OK"):
            at += 2
            done = a.call(putfh(first[2].fh), lock(WRITE_LT, at, 1, stateid))
            stateid = done[1].stateid if done.status == "OK" else stateid
        eq((done.status, 24 < at < 40), ("DELAY", True), f"ranges up to {at}")
        ok(a.call(putfh(first[2].fh), read(0, 1, first[1].stateid)))
        try:
            Client41(server.port, name=b"the fourth")
            check(False, "a fourth client")
        except AssertionError as refused:
            check("EXCHANGE_ID" in str(refused) and "DELAY" in str(refused), refused)
        evict(server, "2")
        d = Client41(server.port, name=b"the fourth")
        server.cli("snapshot", "create", "v@s")
        root = ok(d.call(putrootfh(), lookup(b"v@s"), getfh()))[2].fh
        for client in (a, b):
            evict(server, client.name.decode())
        eq(ok(d.open(root, b"f0", access=READ))[1].delegation, 0, "none are given")
        eq(server.stop(), None, "stopping")
    finally:
        server.close()
    for wrong in (("--nfs4-clients", "0"), ("--nfs4-opens", "x"), ("--nfs4-locks", "1")):
        done = subprocess.run([os.path.join(harness.BUILD, "sluiced"), "--check-config", "--pool", "/nowhere", *wrong],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
        check(done.returncode and wrong[0][2:].encode() in done.stdout, done.stdout)


harness.run(*OPTIONS, "--metrics", "127.0.0.1:0")
