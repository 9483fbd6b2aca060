#!/usr/bin/env python3
"""Cache policies against a running server: data twice the cache, each file read once an epoch in a new order.  What came
from disk is counted by the server's own counters of segment reads."""
import json
import random

import harness
from harness import check, eq, run, test

MIB = 1 << 20
CACHE, FILE = 32 * MIB, 114660
FILES = 2 * CACHE // FILE
CONTENT = random.Random(7).randbytes(FILE + FILES)


def content(number):
    """Differs from file to file."""
    return CONTENT[number:number + FILE]


def metrics(server):
    return {name: metric["value"] for name, metric in json.loads(server.cli("metrics", "--json"))["metrics"].items()}


def show(t, volume):
    return json.loads(t.server.cli("volume", "show", volume, "--json"))["volume"]


def dataset(t, volume):
    """The files' handles."""
    root = t.nfs.mnt(b"/" + volume.encode()).fh
    files = []
    for number in range(FILES):
        made = t.nfs.create(root, b"%06d" % number)
        eq(made.status, "OK", "create")
        eq(t.nfs.write(made.fh, 0, content(number)).status, "OK", "write")
        files.append(made.fh)
    return files


def epoch(t, files, chance):
    """The share of the epoch's bytes that did not come from disk."""
    before = metrics(t.server)
    order = list(range(len(files)))
    chance.shuffle(order)
    for number in order:
        got = t.nfs.read(files[number], 0, FILE)
        eq(got.status, "OK", "read")
        check(got.data == content(number), f"the bytes of file {number}")
    after = metrics(t.server)
    loaded = after["read_disk_bytes"] - before["read_disk_bytes"]
    return 1 - loaded / (after["read_bytes"] - before["read_bytes"])


def epochs(t, volume, policy, count):
    t.server.create(volume)
    t.server.cli("volume", "set", volume, f"cache={policy}")
    files, chance = dataset(t, volume), random.Random(volume)
    rates = [epoch(t, files, chance) for _ in range(count)]
    print(f"{policy}: hits in epochs 1 to {count}: {' '.join(f'{rate:.3f}' for rate in rates)}")
    return files, chance, rates


@test
def each_policy_hits_what_it_promises_and_changes_live(t):
    files, chance, rates = epochs(t, "e", "epoch", 3)
    check(min(rates[1:]) >= 0.475, f"epoch: {rates}")
    shown = show(t, "e")
    eq((shown["cache"], shown["cache_now"], shown["cache_share"]), ("epoch", "epoch", "none"))
    check(shown["cache_held_bytes"] > CACHE * 9 // 10, f"holds {shown['cache_held_bytes']}")
    read, disk = shown["cache_read_bytes"], shown["cache_disk_bytes"]
    check(0.4 < 1 - disk / read < 0.55, f"{disk} of {read} came from disk")

    t.server.cli("volume", "set", "e", "cache=lru")
    epoch(t, files, chance)
    rate = epoch(t, files, chance)
    print(f"lru, changed live: {rate:.3f}")
    check(rate < 0.42, f"lru: {rate}")

    t.server.cli("volume", "set", "e", "cache=epoch", "cache-share=25%")
    check(show(t, "e")["cache_held_bytes"] <= CACHE // 4, "a share takes effect at once")
    rate = [epoch(t, files, chance) for _ in range(2)][1]
    print(f"epoch with a quarter of the cache: {rate:.3f}")
    check(0.11 <= rate <= 0.14, f"epoch with a quarter of the cache: {rate}")
    check(show(t, "e")["cache_held_bytes"] <= CACHE * 27 // 100, "a share holds")
    t.server.cli("volume", "delete", "e", "--yes", "--now")


@test
def auto_finds_out_by_itself(t):
    files, chance, rates = epochs(t, "a", "auto", 4)
    check(min(rates[2:]) >= 0.475, f"auto: {rates}")
    shown = show(t, "a")
    eq((shown["cache"], shown["cache_now"]), ("auto", "epoch"))

    # A clone and a snapshot are read from the same frames.
    t.server.cli("snapshot", "create", "a@s")
    t.server.cli("clone", "create", "a@s", "c")
    before = metrics(t.server)["read_disk_bytes"]
    root = t.nfs.mnt(b"/c").fh
    for number in range(FILES):
        got = t.nfs.read(t.nfs.lookup(root, b"%06d" % number).fh, 0, FILE)
        check(got.data == content(number), f"the bytes of file {number} in the clone")
    rate = 1 - (metrics(t.server)["read_disk_bytes"] - before) / (FILES * FILE)
    print(f"the first epoch of a clone: {rate:.3f}")
    check(rate >= 0.45, f"a clone's first epoch: {rate}")
    after = epoch(t, files, chance)
    print(f"its origin, after that: {after:.3f}")
    check(after >= 0.45, f"the origin afterwards: {after}")


@test
def policy_and_share_outlive_a_restart(t):
    t.server.create("kept")
    t.server.cli("volume", "set", "kept", "cache=epoch", "cache-share=24Mi")
    eq(t.server.stop(), None)
    t.server.start()
    shown = show(t, "kept")
    eq((shown["cache"], shown["cache_now"], shown["cache_share"]), ("epoch", "epoch", "24Mi"))
    check(b"at present" not in t.server.cli("volume", "show", "kept"), "auto alone says what it does")
    for wrong in ("cache=mru", "cache-share=0%", "cache-share=101%", "cache-share=lots", "cache-share=0"):
        check(b"right would be" in t.server.cli("volume", "set", "kept", wrong, check=False), wrong)


if __name__ == "__main__":
    run("--cache", "32Mi")
