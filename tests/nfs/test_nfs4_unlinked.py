#!/usr/bin/env python3
"""A file that somebody has open stays when its last name goes, until it is closed or its holder has gone, over restarts
too; and nothing of it stays after that."""
import json
import os
import random
import threading
import time

import rawrpc
from harness import Server, check, eq, run, test
from client41 import BOTH, READ, UNCHECKED, WRITE, Client41, close, lock, ok
from raw4 import Op, fattr, getattr_, link, putfh, read, remove, rename, savefh, setattr_, write
from rawrpc import boolean, u32

LEASE, TICK = 5, 5
SMALL, LARGE = b"0123456789" * 10, os.urandom(16 << 20)  # in one record; more than a REMOVE takes away at once
PRESERVE_UNLINKED = 8


def gone(nfs, fh):
    return nfs.getattr(fh).status == "STALE"


def soon(what, why, seconds=10.0):
    until = time.monotonic() + seconds
    while not what():
        check(time.monotonic() < until, why)
        time.sleep(0.05)


def put(nfs, root, name, data):
    fh = nfs.create(root, name, rawrpc.GUARDED, mode=0o644).fh
    for at in range(0, len(data), 1 << 20):
        eq(nfs.write(fh, at, data[at:at + (1 << 20)]).status, "OK")
    return fh


def used(server, volume="vol"):
    shown = json.loads(server.cli("--json", "volume", "show", volume))["volume"]
    return shown["bytes_used"], shown["files"]


def settles(server, before, volume="vol"):
    soon(lambda: used(server, volume) == before, "nothing is left")


def sound(server):
    check(b"all is right" in server.cli("pool", "check", "--data"), "the pool")


class Holder:
    """A client of minor version 1 that has a file open."""

    def __init__(self, port, dir_fh, file, name=None):
        self.client = Client41(port, name=name)
        opened = ok(self.client.open(dir_fh, file))
        check(opened[1].flags & PRESERVE_UNLINKED, "OPEN says that the file will stay")
        self.stateid, self.fh = opened[1].stateid, opened[2].fh

    def read(self, offset=0, count=1 << 19):
        return self.client.call(putfh(self.fh), read(offset, count, self.stateid))

    def holds(self, data):
        at = max(0, len(data) - (1 << 19))
        check(ok(self.read(at))[1].data == data[at:], "what it held before its name went")
        eq(ok(self.client.call(putfh(self.fh), getattr_("numlinks", "size")))[1].attr,
           dict(numlinks=0, size=len(data)))

    def close(self):
        ok(self.client.call(putfh(self.fh), close(self.stateid)))


def by_v3(context, name):
    eq(context.nfs.remove(context.dir, name).status, "OK")


def by_v4(context, name):
    ok(Client41(context.server.port).call(putfh(context.dir), remove(name)))


def over_v3(context, name):
    eq(context.nfs.create(context.dir, b"new", rawrpc.GUARDED).status, "OK")
    eq(context.nfs.rename(context.dir, b"new", context.dir, name).status, "OK")


def over_v4(context, name):
    eq(context.nfs.create(context.dir, b"new", rawrpc.GUARDED).status, "OK")
    ok(Client41(context.server.port).call(putfh(context.dir), savefh(), rename(b"new", name)))


@test
def a_file_stays_while_it_is_open(context):
    before = used(context.server)
    for data in SMALL, LARGE:
        for end in by_v3, by_v4, over_v3, over_v4:
            fh = put(context.nfs, context.dir, b"f", data)
            one, two = (Holder(context.server.port, context.dir, b"f") for _ in range(2))
            end(context, b"f")
            renamed = context.nfs.lookup(context.dir, b"f").status == "OK"
            eq(renamed, end in (over_v3, over_v4))
            one.holds(data)
            check(used(context.server) != before, "its space counts")
            eq(context.nfs.read(fh, 0, 10).data, data[:10], "its handle serves others too, of version 3 as well")
            one.close()
            two.holds(data)
            two.close()
            soon(lambda: gone(context.nfs, fh), "it stays after the last CLOSE")
            other = Client41(context.server.port)
            soon(lambda: other.open(fh, b"", claim=4).status != "DELAY", "it is just being removed")
            eq(other.open(fh, b"", claim=4).status, "STALE")
            if renamed:
                eq(context.nfs.remove(context.dir, b"f").status, "OK")
            settles(context.server, before)
    sound(context.server)


@test
def what_has_no_name_is_a_file_like_others(context):
    put(context.nfs, context.dir, b"f", LARGE)
    put(context.nfs, context.dir, b"other", SMALL)
    holder = Holder(context.server.port, context.dir, b"f")
    c, at = holder.client, putfh(holder.fh)
    by_v3(context, b"f")
    for size in range(14, 2, -1):  # each leaves a mark for the reaper, and there is room for four
        ok(c.call(at, setattr_(holder.stateid, size=size << 20)))
    ok(c.call(at, write(5 << 20, b"behind a hole", stateid=holder.stateid)))
    eq(ok(holder.read((5 << 20) - 3, 100))[1].data, b"\0\0\0behind a hole")
    eq(ok(holder.read((3 << 20) - 5, 10))[1].data, LARGE[(3 << 20) - 5:3 << 20] + bytes(5))
    eq(c.call(at, savefh(), putfh(context.dir), link(b"again")).status, "NOENT", "it gets no name again")
    eq(context.nfs.link(holder.fh, context.dir, b"again").status, "NOENT")
    ok(c.call(at, lock(2, 0, 10, holder.stateid, b"L")))
    again = ok(c.open(holder.fh, b"", access=READ, owner=b"2", claim=4))[1].stateid
    time.sleep(0.5)  # what the reaper does, it has done
    sound(context.server)
    ok(c.call(at, close(again)))
    ok(holder.read())


@test
def a_second_name_keeps_it_as_ever(context):
    fh = put(context.nfs, context.dir, b"f", SMALL)
    eq(context.nfs.link(fh, context.dir, b"g").status, "OK")
    holder = Holder(context.server.port, context.dir, b"f")
    by_v3(context, b"f")
    holder.close()
    time.sleep(0.2)
    eq(context.nfs.read(fh, 0, 100).data, SMALL)


@test
def who_goes_lets_go(context):
    fhs = {}
    for how in "restarts", "is silent", "renews":
        name = how.encode()
        fhs[how] = put(context.nfs, context.dir, name, SMALL)
        holder = Holder(context.server.port, context.dir, name, name=name)
        by_v3(context, name)
    Client41(context.server.port, name=b"restarts")  # with another verifier
    soon(lambda: gone(context.nfs, fhs["restarts"]), "the client has restarted")
    until = time.monotonic() + LEASE + 2 * TICK + 1
    while not gone(context.nfs, fhs["is silent"]):
        check(time.monotonic() < until, "the client has been silent for longer than its lease")
        ok(holder.read())
        time.sleep(0.2)
    holder.holds(SMALL)
    holder.close()
    soon(lambda: gone(context.nfs, fhs["renews"]), "the last")


@test
def a_silent_client_keeps_what_has_a_name(context):
    put(context.nfs, context.dir, b"f", SMALL)
    holder = Holder(context.server.port, context.dir, b"f")
    time.sleep(LEASE + TICK + 1)
    ok(holder.read())


@test
def versions_and_files_without_a_name(context):
    """A snapshot keeps such a file for nobody; a restore takes none from its holders that was there."""
    server = context.server
    server.create("live")
    root = context.nfs.mnt(b"/live").fh
    put(context.nfs, root, b"early", LARGE)
    early = Holder(server.port, root, b"early")
    eq(context.nfs.remove(root, b"early").status, "OK")
    server.cli("snapshot", "create", "live@s")
    put(context.nfs, root, b"late", SMALL)
    late = Holder(server.port, root, b"late")
    eq(context.nfs.remove(root, b"late").status, "OK")
    server.cli("clone", "create", "live@s", "cloned")
    early.holds(LARGE)
    late.holds(SMALL)
    settles(server, (0, 1), "cloned")
    sound(server)
    server.cli("restore", "live@s")
    early.holds(LARGE)
    eq(late.read().status, "STALE", "of after the snapshot")
    sound(server)
    early.close()
    soon(lambda: gone(context.nfs, early.fh), "it is closed")
    sound(server)


@test
def an_open_that_succeeds_finds_the_file(context):
    """Many open a name while others put new files there, by REMOVE and by RENAME onto it."""
    data, errors, until, opened = os.urandom(20000), [], time.monotonic() + 5, [0]

    def opens(seed):
        client = Client41(context.server.port)
        while time.monotonic() < until and not errors:
            done = client.open(context.dir, b"f", access=READ, owner=b"%d" % seed)
            if done.status in ("NOENT", "DELAY"):
                continue
            at, stateid = putfh(ok(done)[2].fh), done[1].stateid
            for _ in range(seed % 3 + 1):
                check(ok(client.call(at, read(0, 20000, stateid)))[1].data == data, "its data")
            ok(client.call(at, close(stateid)))
            opened[0] += 1

    def replaces(seed):
        rng, nfs = random.Random(seed), context.server.connect()
        while time.monotonic() < until and not errors:
            name = b"new%d" % seed
            eq(nfs.write(nfs.create(context.dir, name, rawrpc.GUARDED).fh, 0, data).status, "OK")
            if rng.random() < 0.5:
                nfs.remove(context.dir, b"f")
            eq(nfs.rename(context.dir, name, context.dir, b"f").status, "OK")

    def guarded(what, seed):
        try:
            what(seed)
        except Exception as error:  # pylint: disable=broad-except
            errors.append(f"{what.__name__}: {error}")
    threads = [threading.Thread(target=guarded, args=(what, seed)) for what in (opens, replaces) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eq(errors, [])
    check(opened[0] > 100, f"{opened[0]} opens")
    sound(context.server)


def over_a_restart(how, data, reclaims):
    server = Server("--cache", "64Mi", "--nfs-versions", "3, 4", "--nfs-lease", "5", "--nfs-grace", "8")
    try:
        server.start()
        server.create("vol")
        v3 = server.connect()
        root = v3.mnt(b"/vol").fh
        before = used(server)
        for name in b"f", b"during":
            put(v3, root, name, data)
        holders = [Holder(server.port, root, name, name=name) for name in (b"f", b"during")]
        eq(v3.remove(root, b"f").status, "OK")
        if how == "kill":
            server.kill()
        else:
            eq(server.stop(), None)
        server.start()
        v3 = server.connect()
        eq(v3.remove(root, b"during").status, "OK")  # before its holder has come back
        for holder, name in zip(holders, (b"f", b"during")):
            c = holder.client = Client41(server.port, name=name, complete=False)
            if reclaims:
                holder.stateid = ok(c.open(holder.fh, b"", claim=1))[1].stateid
                holder.holds(data)
            ok(c.call(Op("RECLAIM_COMPLETE", boolean(False))))
        for holder in holders:
            if reclaims:
                time.sleep(0.3)
                holder.holds(data)
                holder.close()
            soon(lambda fh=holder.fh: gone(v3, fh), "it stays after the end of grace")
        settles(server, before)
        sound(server)
        eq(server.stop(), None, "the server leaves cleanly")
    finally:
        server.close()


@test
def a_restart_leaves_it_to_be_reclaimed(_context):
    over_a_restart("kill", LARGE, True)
    over_a_restart("kill", SMALL, True)
    over_a_restart("stop", SMALL, True)


@test
def what_nobody_reclaims_goes_with_the_end_of_grace(_context):
    over_a_restart("kill", LARGE, False)
    over_a_restart("kill", SMALL, False)


if __name__ == "__main__":
    run("--cache", "64Mi", "--nfs-versions", "3, 4", "--nfs-lease", str(LEASE))
