#!/usr/bin/env python3
"""Thousands of NFSv4.1 clients, each with a connection, a session of 64 slots and ten opens: what they take in memory,
what it costs to renew all of them, and how long it takes, and whom it holds up, when all of them have gone silent and
one OPEN meets what they have.  --full: 10,000 clients, and the figures that were asked for."""
import argparse
import multiprocessing
import os
import resource
import sys
import time

from client41 import BOTH, READ, Client41, ok, open_op
from harness import Server, check, eq
from raw4 import ANONYMOUS, _stateid, putfh, read
from rawrpc import opaque, u32

OPENS, SLOTS, REAL_LEASE = 10, 64, 90
OPENS_A_CALL = 5


def cpu_seconds(pid):
    """Of all threads."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as f:
            total += int(f.read().split()[0])
    return total / 1e9


def stateid_alone(r, reply):
    """Of an OPEN that gives no delegation: the rest of its result is not looked at, but has to be taken."""
    reply.stateid = _stateid(r)
    r.take(20), r.u32()
    r.take(4 * r.u32())
    eq(r.u32(), 0, "a delegation")


class Many:
    """Client number N opens files N to N + 8 of many, all of them for reading, and the common one."""

    def __init__(self, server, count, folder, files):
        self.clients = []
        for number in range(count):
            client = Client41(server.port, name=b"client %d" % number, slots=SLOTS)
            names = [b"f.%d" % ((number + i) % files) for i in range(OPENS - 1)] + [b"common"]
            for at in range(0, OPENS, OPENS_A_CALL):
                ops = []
                for name in names[at:at + OPENS_A_CALL]:
                    op = open_op(0, READ, 0, client.clientid, b"owner", None, u32(0) + opaque(name))
                    op.read = stateid_alone
                    ops += [putfh(folder), op]
                ok(client.call(*ops, cache=True))
            self.clients.append(client)

    def renew(self):
        for client in self.clients:
            ok(client.call())

    def close(self):
        for client in self.clients:
            client.nfs.close()


def reader(port, handle, ready, stop, pipe):
    """One READ at a time: the longest it took, in seconds, and how many there were."""
    worst, count = 0.0, 0
    client = Client41(port, slots=1)
    with client.nfs:
        ready.set()
        while not stop.is_set():
            began = time.monotonic()
            ok(client.call(putfh(handle), read(0, 4096, ANONYMOUS)))
            worst = max(worst, time.monotonic() - began)
            count += 1
    pipe.send((worst, count))


class Readers:
    """Two, for two workers."""

    def __init__(self, port, handle):
        self.stop = multiprocessing.Event()
        self.all = []
        for _ in range(2):
            ready, (here, there) = multiprocessing.Event(), multiprocessing.Pipe(False)
            process = multiprocessing.Process(target=reader, args=(port, handle, ready, self.stop, there))
            process.start()
            check(ready.wait(10), "a reader does not start")
            self.all.append((process, here))

    def results(self):
        self.stop.set()
        results = [pipe.recv() for _, pipe in self.all]
        for process, _ in self.all:
            process.join()
        check(all(count > 20 for _, count in results), f"the readers read: {results}")
        return max(worst for worst, _ in results)


def beside(port, handle, act):
    """How long act() took, and the longest READ meanwhile."""
    readers = Readers(port, handle)
    time.sleep(0.5)
    began = time.monotonic()
    act()
    took = time.monotonic() - began
    time.sleep(0.5)
    return took, readers.results()


def make_files(server, files):
    nfs = server.connect()
    root = nfs.mnt(b"/vol").fh
    folder = nfs.mkdir(root, b"many").fh
    for name in [b"f.%d" % i for i in range(files)] + [b"common"]:
        eq(nfs.create(folder, name, 0, mode=0o644).status, "OK")
    data = nfs.create(root, b"data", 0, mode=0o644).fh
    eq(nfs.write(data, 0, b"x" * 4096).status, "OK")
    nfs.close()
    return folder, data


def measure(server, options):
    folder, data = make_files(server, options.files)
    pid, before = server.process.pid, server.settled_rss()
    began = time.monotonic()
    many = Many(server, options.clients, folder, options.files)
    grown = server.rss() - before
    print(f"{options.clients} clients, {options.clients * OPENS} opens in {time.monotonic() - began:.1f} s: "
          f"{grown / 1e6:.1f} MB, {grown / options.clients:.0f} bytes a client")

    many.renew()
    cpu = cpu_seconds(pid)
    many.renew()
    cpu = cpu_seconds(pid) - cpu
    share = cpu / (REAL_LEASE / 2)
    print(f"renewing all: {cpu * 1e3:.1f} ms of CPU, {cpu / options.clients * 1e6:.1f} us each; "
          f"{100 * share:.2f} % of a core when done every {REAL_LEASE // 2} s")

    idle = beside(server.port, data, lambda: time.sleep(0.5))[1]
    opener = Client41(server.port)
    eq(opener.open(folder, b"common", access=BOTH, deny=READ).status, "SHARE_DENIED", "they are alive")
    renewed = time.monotonic()
    many.renew()
    check(time.monotonic() - renewed < options.lease / 2, "renewing takes too long to go on")
    time.sleep(options.lease - 2)
    ok(opener.call())
    time.sleep(3.2)
    result = []
    took, longest = beside(server.port, data, lambda: result.append(opener.open(folder, b"common", READ, deny=READ)))
    print(f"expiry of all by one OPEN: {took * 1e3:.1f} ms; longest READ beside it {longest * 1e3:.1f} ms "
          f"(without: {idle * 1e3:.1f} ms)")
    ok(result[0])
    eq(many.clients[0].call().status, "BADSESSION", "it has expired")
    eq(many.clients[-1].call().status, "BADSESSION", "it has expired")
    many.close()
    return grown, share, took, longest, idle


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    if options.full:
        options.clients, options.files = 10000, 2000
    options.lease = 20 if options.full else 6
    need = options.clients + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(need, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
                                                resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    server = Server("--cache", "64Mi", "--nfs-versions", "3, 4", "--nfs-lease", str(options.lease),
                    "--connections-max", str(need), "--workers", "2")
    try:
        server.start()
        server.create("vol")
        grown, share, took, longest, idle = measure(server, options)
        problem = server.stop()
        check(not problem, problem)
    finally:
        server.close()
    check(grown < 20000 * options.clients + (8 << 20), f"{grown} bytes for {options.clients} clients")
    check(share < 0.02 * options.clients / 10000 + 0.001, f"{100 * share} % of a core to renew")
    check(took < 1, f"{took} s for all to expire")
    check(longest < 0.15 + 2 * idle, f"a READ took {longest} s beside it")
    print("1 passed, 0 failed")


if __name__ == "__main__":
    sys.exit(main())
