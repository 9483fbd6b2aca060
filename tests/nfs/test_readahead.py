#!/usr/bin/env python3
"""Reads that come from disk: sequential streams find their data in RAM before they ask for it, random reads load
nothing but what they ask for, and the metrics say how much of what was loaded ahead was of use.

Each test writes its files, starts the server anew (so that nothing is in RAM) and reads."""
import json
import os
import random
import time

from harness import check, eq, run, test

MIB = 1 << 20
SIZE = 24 * MIB


def content(seed, size=SIZE):
    return random.Random(seed).randbytes(size)


def written(t, name, data):
    fh = t.file(name)
    for offset in range(0, len(data), MIB):
        eq(t.nfs.write(fh, offset, data[offset:offset + MIB]).status, "OK")
    return fh


class Cold:
    """A server without anything in RAM; what it counts from now on."""

    def __init__(self, t):
        t.nfs.close()
        problem = t.server.stop()
        check(not problem, f"the server {problem}")
        t.server.start()
        t.nfs = t.server.connect()
        self.server = t.server
        self.first = self.now()

    def now(self):
        metrics = json.loads(self.server.cli("metrics", "--json"))["metrics"]
        return {name: metric["value"] for name, metric in metrics.items()}

    def counts(self):
        """Once what was being loaded has come."""
        before, now = None, self.now()
        while now["readahead_bytes"] != before:
            before = now["readahead_bytes"]
            time.sleep(0.1)
            now = self.now()
        return {name: value - self.first[name] for name, value in now.items()}


def same(nfs, fh, data, offset, count):
    reply = nfs.read(fh, offset, count)
    eq(reply.status, "OK")
    check(reply.data == data[offset:offset + count], f"the bytes at {offset}")


def used(counts, least, most):
    eq(counts["crc_errors"], 0, "crc_errors")
    check(counts["readahead_bytes"] >= least, f"loaded ahead: {counts['readahead_bytes']} of {least}")
    check(counts["readahead_bytes"] <= most, f"loaded ahead: {counts['readahead_bytes']}, more than {most}")
    check(counts["readahead_used_bytes"] >= counts["readahead_bytes"] * 0.9,
          f"used: {counts['readahead_used_bytes']} of {counts['readahead_bytes']}")
    check(counts["readahead_unused_bytes"] <= counts["readahead_bytes"] // 50,
          f"gone without having been used: {counts['readahead_unused_bytes']}")


@test
def a_stream_of_large_reads(t):
    data = content(1)
    fh = written(t, b"f", data)
    cold = Cold(t)
    for offset in range(0, SIZE, MIB):
        same(t.nfs, fh, data, offset, MIB)
    counts = cold.counts()
    used(counts, SIZE // 2, SIZE)
    check(counts["read_disk_bytes"] <= SIZE * 1.01, "nothing is read twice")


@test
def a_stream_of_small_reads(t):
    data = content(2)
    fh = written(t, b"f", data)
    cold = Cold(t)
    for offset in range(3 * MIB, SIZE, 16384):
        same(t.nfs, fh, data, offset, 16384)
    used(cold.counts(), SIZE // 2, SIZE)


@test
def four_streams_in_one_file_over_four_connections(t):
    data = content(3)
    fh = written(t, b"f", data)
    cold = Cold(t)
    part = SIZE // 4
    connections = [t.server.connect() for _ in range(4)]
    for offset in range(0, part, 65536):
        for n, nfs in enumerate(connections):
            same(nfs, fh, data, n * part + offset, 65536)
    for nfs in connections:
        nfs.close()
    counts = cold.counts()
    # where a stream's part ends its window goes on into the next one's, which is there already
    used(counts, SIZE // 2, SIZE)


@test
def a_stream_that_is_spread_over_connections_out_of_order(t):
    data = content(4)
    fh = written(t, b"f", data)
    cold = Cold(t)
    connections = [t.server.connect() for _ in range(4)]
    chance = random.Random(4)
    for first in range(0, SIZE, 4 * MIB):
        offsets = list(range(first, first + 4 * MIB, MIB))
        chance.shuffle(offsets)
        for nfs, offset in zip(connections, offsets):
            same(nfs, fh, data, offset, MIB)
    for nfs in connections:
        nfs.close()
    used(cold.counts(), SIZE // 3, SIZE)


@test
def random_reads_load_only_what_they_ask_for(t):
    data = content(5)
    fh = written(t, b"f", data)
    cold = Cold(t)
    chance = random.Random(6)
    places = chance.sample(range(SIZE // 4096), 1500)
    for place in places:
        same(t.nfs, fh, data, place * 4096, 4096)
    counts = cold.counts()
    check(counts["readahead_bytes"] <= MIB, f"loaded ahead: {counts['readahead_bytes']}")
    eq(counts["read_disk_bytes"] - counts["readahead_bytes"], len(places) * 4096, "read_disk_bytes")


def small_files(t, count=400):
    data = {b"f%03d" % n: content(100 + n, 20000) for n in range(count)}
    for name, what in data.items():
        t.file(name, what)
    return data


def read_all(t, data, names):
    for name in names:
        fh = t.nfs.lookup(t.dir, name).fh
        same(t.nfs, fh, data[name], 0, MIB)


@test
def small_files_in_the_order_of_the_listing(t):
    data = small_files(t)
    cold = Cold(t)
    read_all(t, data, [entry.name for entry in t.nfs.listing(t.dir) if entry.name in data])
    counts = cold.counts()
    used(counts, len(data) * 20480 * 9 // 10, len(data) * 20480)
    eq(counts["read_disk_bytes"], len(data) * 20480, "read_disk_bytes")


@test
def small_files_in_the_order_of_their_names(t):
    data = small_files(t)
    cold = Cold(t)
    read_all(t, data, sorted(data))
    counts = cold.counts()
    used(counts, len(data) * 20480 * 9 // 10, len(data) * 20480)
    check(counts["read_disk_ops"] < len(data) / 2, f"neighbours are read together: {counts['read_disk_ops']} reads")


@test
def small_files_in_no_order(t):
    data = small_files(t)
    cold = Cold(t)
    names = sorted(data)
    random.Random(8).shuffle(names)
    read_all(t, data, names[:200])
    counts = cold.counts()
    check(counts["readahead_bytes"] <= 40 * 20480, f"loaded ahead: {counts['readahead_bytes']}")


@test
def what_was_loaded_for_nobody_is_counted_when_it_goes(t):
    data = content(7)
    fh = written(t, b"f", data)
    cold = Cold(t)
    for offset in range(0, 4 * MIB, MIB):
        same(t.nfs, fh, data, offset, MIB)
    left = cold.counts()
    check(left["readahead_bytes"] > left["readahead_used_bytes"], "something lies ahead")
    for n in range(8):  # thrice the cache
        written(t, b"%d" % n, data)
    counts = cold.counts()
    check(counts["readahead_unused_bytes"] >= (left["readahead_bytes"] - left["readahead_used_bytes"]) // 2,
          f"gone without having been used: {counts['readahead_unused_bytes']}")


run("--cache", os.environ.get("CACHE", "64Mi"), "--workers", "2")
