#!/usr/bin/env python3
"""Limits of volumes: rates are what is set, also while they change; other volumes do not feel them.

    test_gate.py [--full] [NAME...]     --full: every case of rates, and a thousand changes
"""
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
import traceback

import rawrpc
from harness import BUILD, Server

LOAD = os.path.join(BUILD, "bench", "load")
FULL = "--full" in sys.argv
MIB = 1 << 20


def start(server, volume, op, **options):
    words = [word for key, value in options.items() for word in
             (["--" + key.replace("_", "-")] if value is True else ["--" + key.replace("_", "-"), str(value)])]
    return subprocess.Popen([LOAD, "--port", str(server.port), "--path", "/" + volume, "--op", op, *words],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process, timeout=300):
    out, err = process.communicate(timeout=timeout)
    if process.returncode:
        raise AssertionError(f"{' '.join(process.args)}: {process.returncode}\n{out}{err}")
    return json.loads(out) if out else None


def load(server, volume, op, **options):
    return finish(start(server, volume, op, **options))


def limit(server, volume, **limits):
    server.cli("volume", "set", volume, *[f"{key.replace('_', '-')}={value}" for key, value in limits.items()])


def prepared(server, name, size="64M"):
    server.create(name)
    load(server, name, "read-seq", prepare=True, file_size=size, size="1M")
    load(server, name, "read-seq", file_size=size, size="1M", count=64)
    return name


# ---- rates ----

# limit, op, size of a request, connections, calls in flight on each
QUICK = [
    ({"bandwidth": "20M/s"}, "read-rand", "1M", 1, 4),
    ({"bandwidth": "100M/s"}, "read-rand", "4K", 16, 16),
    ({"iops": 20000}, "read-rand", "4K", 1, 64),
    ({"write_bandwidth": "10M/s"}, "write-rand", "64K", 4, 4),
]
EVERY = [
    ({"bandwidth": f"{rate}/s"}, op, size, conns, depth)
    for rate, size, depth in (("1M", "64K", 1), ("1M", "1M", 1), ("30M", "1M", 4), ("30M", "4K", 8), ("500M", "1M", 8),
                              ("500M", "4K", 64), ("2G", "1M", 8))
    for op in ("read-rand", "write-rand") for conns in (1, 16)
    if not (op == "write-rand" and (rate in ("500M", "2G") or (rate == "30M" and size == "4K")))  # the disk's own limit
] + [
    ({"iops": rate}, "read-rand", "4K", conns, depth)
    for rate, depth in ((100, 2), (5000, 8), (200000, 64)) for conns in (1, 16)
] + [({"iops": 100}, "write-rand", "4K", conns, 2) for conns in (1, 16)]


def amount(value):
    text = str(value).removesuffix("/s")
    return float(text[:-1]) * {"k": 1e3, "M": 1e6, "G": 1e9}[text[-1]] if text[-1].isalpha() else float(text)


def rate_of(server, volume, limits, op, size, conns, depth):
    """What is wrong with the rate, or None."""
    ((kind, value),) = limits.items()
    want, request = amount(value), {"4K": 4096, "64K": 65536, "1M": MIB}[size]
    by_bytes = "bandwidth" in kind
    per_second = want / request if by_bytes else want
    seconds = max(3.0 if FULL else 2.0, 100 / per_second)
    r = load(server, volume, op, file_size="64M", size=size, conns=conns, depth=depth, warmup=1, seconds=f"{seconds:.1f}")
    got = r["ops"] / r["seconds"] * (request if by_bytes else 1)
    allowed = max(0.05 * want, (request if by_bytes else 1) / seconds)
    print(f"#   {kind}={value} {op} {size} {conns}x{depth}: {got / want:.3f} of it", flush=True)
    return None if abs(got - want) <= allowed else f"{limits} {op} {size} {conns}x{depth}: {got:.0f}, not {want:.0f}"


def rates_are_what_is_set(server):
    volume = prepared(server, "rates")
    wrong = []
    for limits, op, size, conns, depth in EVERY if FULL else QUICK:
        limit(server, volume, **limits)
        problem = rate_of(server, volume, limits, op, size, conns, depth)
        if problem:
            wrong.append(problem)
        limit(server, volume, **{key: "none" for key in limits})
    assert not wrong, "\n".join(wrong)


def a_mix_stays_below_what_both_share(server):
    volume = prepared(server, "mix")
    limit(server, volume, bandwidth="40M/s")
    reads = start(server, volume, "read-rand", file_size="64M", size="64K", conns=2, depth=4, warmup=1, seconds=4)
    writes = start(server, volume, "write-rand", file_size="64M", size="64K", conns=2, depth=4, warmup=1, seconds=4)
    both = [finish(p)["mb_per_s"] for p in (reads, writes)]
    assert abs(sum(both) - 40) < 2.5, both
    assert min(both) > 10, both


# ---- changes ----

def limits_change_under_load(server):
    volume = prepared(server, "changing")
    random.seed(5)
    seconds = 60 if FULL else 8
    process = start(server, volume, "read-rand", file_size="64M", size="64K", conns=4, depth=8, seconds=seconds,
                    check_full=True)
    writes = start(server, volume, "write-rand", file_size="64M", size="16K", conns=2, depth=4, seconds=seconds)
    changes, until = 0, time.monotonic() + seconds - 1
    while time.monotonic() < until and changes < 1000:
        limit(server, volume, bandwidth=random.choice(["20M/s", "200M/s", "3G/s", "none", "60M/s"]),
              iops=random.choice(["500", "20k", "none"]))
        changes += 1
    limit(server, volume, bandwidth="none", iops="none")
    r, w = finish(process), finish(writes)
    assert r["errors"] == w["errors"] == 0, (r, w)
    print(f"#   {changes} changes, {r['ops']} reads, {w['ops']} writes, no error")
    assert changes > (990 if FULL else 50), changes


def counts(server, volume):
    stats = json.loads(server.cli("stats", volume, "--json"))
    return sum(op["bytes"] for op in stats["volume"]["operations"])


def a_new_limit_holds_within_a_tenth_of_a_second(server):
    volume = prepared(server, "steps")
    limit(server, volume, bandwidth="2M/s")
    process = start(server, volume, "read-rand", file_size="64M", size="64K", conns=8, depth=4, seconds=9)
    time.sleep(1)
    for rate, text in ((200e6, "200M/s"), (5e6, "5M/s"), (100e6, "100M/s")):
        limit(server, volume, bandwidth=text)
        time.sleep(0.1)
        before, began = counts(server, volume), time.monotonic()
        time.sleep(0.8)
        got = (counts(server, volume) - before) / (time.monotonic() - began)
        print(f"#   {text}: {got / 1e6:.1f} MB/s from 0.1 s after the change on")
        assert abs(got / rate - 1) < 0.08, f"{text}: {got}"
    limit(server, volume, bandwidth="none")
    assert finish(process)["errors"] == 0


# ---- others ----

FLOOD = dict(file_size="64M", size="64K", conns=16, depth=8)


def another_volume_does_not_feel_it(server):
    """Beside a flood that its limit holds down to a fifth.  What remains of the machine is less with either, so the
    same is measured beside clients who ask for no more than that fifth by themselves, without a limit."""
    flooded, calm = prepared(server, "flooded"), prepared(server, "calm")
    top = load(server, flooded, "read-rand", seconds=2, **FLOOD)["mb_per_s"]
    fifth = int(top / 5)
    quiet = dict(file_size="64M", size="4K", conns=1, depth=1, rate=2000, seconds=2, warmup=0.3)
    rounds = []
    for _ in range(5 if FULL else 3):
        alone = load(server, calm, "read-rand", **quiet)
        limit(server, flooded, bandwidth=f"{fifth}M/s")
        flood = start(server, flooded, "read-rand", seconds=4, **FLOOD)
        time.sleep(1)
        beside = load(server, calm, "read-rand", **quiet)
        finish(flood)
        limit(server, flooded, bandwidth="none")
        modest = start(server, flooded, "read-rand", seconds=4, rate=fifth * 1000000 // 65536, **FLOOD)
        time.sleep(1)
        rounds.append((alone, beside, load(server, calm, "read-rand", **quiet)))
        finish(modest)
    alone, beside, unlimited = ([statistics.median(r[k][key] for r in rounds) for key in ("p50_us", "p99_us")]
                                for k in range(3))
    print(f"#   a fifth of {top:.0f} MB/s; median and p99: alone {alone[0]:.0f}, {alone[1]:.0f} us, beside the flood "
          f"{beside[0]:.0f}, {beside[1]:.0f}; beside as much that is asked for without a limit {unlimited[0]:.0f}, "
          f"{unlimited[1]:.0f}")
    print(f"#   times that alone {beside[0] / alone[0]:.2f}, {beside[1] / alone[1]:.2f}; times that without a limit "
          f"{beside[0] / unlimited[0]:.2f}, {beside[1] / unlimited[1]:.2f}")
    # the figures asked for are 1.2 and 2, on a quiet machine; here it must not wait behind the flood
    assert beside[0] < 3 * max(alone[0], unlimited[0]), rounds


def both_volumes_over_one_connection(server):
    slow, free = prepared(server, "slow"), prepared(server, "free")
    limit(server, slow, bandwidth="1M/s")
    nfs = server.connect()
    handles = {}
    for name in (slow, free):
        root = nfs.mnt(b"/" + name.encode()).fh
        handles[name] = nfs.lookup(root, b"data.0").fh
    for i in range(64):
        nfs.send(rawrpc.call_message(100000 + i, rawrpc.NFS, 3, 6, rawrpc.opaque(handles[slow]) + rawrpc.u64(i * MIB) + rawrpc.u32(MIB)))
    took = []
    for i in range(50):
        began = time.monotonic()
        nfs.send(rawrpc.call_message(i, rawrpc.NFS, 3, 6,
                                     rawrpc.opaque(handles[free]) + rawrpc.u64(i * 4096) + rawrpc.u32(4096)))
        while rawrpc.parse_reply(nfs.receive())[0] != i:
            pass
        took.append(time.monotonic() - began)
    print(f"#   behind 64 READs of 1 MiB at 1 MB/s: {statistics.median(took) * 1e6:.0f} us, worst {max(took) * 1e3:.1f} ms")
    assert max(took) < 0.5, took
    nfs.close()


def what_would_wait_too_long_is_told_to_come_again(server):
    volume = prepared(server, "late")
    limit(server, volume, bandwidth="100k/s")
    nfs = server.connect()
    handle = nfs.lookup(nfs.mnt(b"/late").fh, b"data.0").fh
    statuses = [nfs.read(handle, 0, MIB).status]
    first = statuses.count("OK")
    other, answers = server.connect(), []
    thread = threading.Thread(target=lambda: answers.append(other.read(handle, 0, MIB).status))
    thread.start()
    time.sleep(0.1)
    began = time.monotonic()
    late = server.connect()
    status = late.read(handle, 0, MIB).status
    assert first == 1 and status == "JUKEBOX" and time.monotonic() - began < 1, (status, time.monotonic() - began)
    limit(server, volume, bandwidth="none")  # and who waits goes on at once
    thread.join(5)
    assert answers == ["OK"], answers
    for c in (nfs, late, other):
        c.close()


def a_connection_that_ends_takes_its_calls_along(server):
    volume = prepared(server, "gone")
    limit(server, volume, bandwidth="1M/s")
    for _ in range(20):
        nfs = server.connect()
        handle = nfs.lookup(nfs.mnt(b"/gone").fh, b"data.0").fh
        for i in range(30):
            nfs.send(rawrpc.call_message(5000 + i, rawrpc.NFS, 3, 6, rawrpc.opaque(handle) + rawrpc.u64(0) + rawrpc.u32(65536)))
        nfs.close()
    time.sleep(0.5)
    clients = json.loads(server.cli("clients", "--json"))["clients"]
    left = sum(client["connections"] for client in clients)
    assert server.process.poll() is None and left <= 1, f"{left} connections are left"
    limit(server, volume, bandwidth="none")


def a_minimum_is_kept(server):
    greedy, sure = prepared(server, "greedy"), prepared(server, "sure")
    flood = dict(file_size="64M", size="64K", conns=8, depth=8)
    alone = load(server, sure, "read-rand", seconds=2, warmup=0.5, **flood)["mb_per_s"]
    want = alone * 0.75
    limit(server, sure, min_bandwidth=f"{int(want)}M/s")
    other = start(server, greedy, "read-rand", seconds=6, **flood)
    time.sleep(0.5)
    got = load(server, sure, "read-rand", seconds=3, warmup=2, **flood)["mb_per_s"]
    rest = finish(other)["mb_per_s"]
    print(f"#   {want:.0f} of {alone:.0f} MB/s guaranteed: {got:.0f}, the other {rest:.0f}")
    assert got > want * 0.95, (got, want, alone)
    assert rest > 0.02 * alone, rest
    limit(server, sure, min_bandwidth="none")


TESTS = [rates_are_what_is_set, a_mix_stays_below_what_both_share, limits_change_under_load,
         a_new_limit_holds_within_a_tenth_of_a_second, another_volume_does_not_feel_it, both_volumes_over_one_connection,
         what_would_wait_too_long_is_told_to_come_again, a_connection_that_ends_takes_its_calls_along, a_minimum_is_kept]


def main():
    names = [word for word in sys.argv[1:] if not word.startswith("-")]
    passed = failed = 0
    server = Server("--cache", "1Gi").start()
    try:
        for function in TESTS:
            if names and function.__name__ not in names:
                continue
            try:
                function(server)
                print(f"ok {function.__name__.replace('_', ' ')}", flush=True)
                passed += 1
            except Exception:
                traceback.print_exc()
                print(f"not ok {function.__name__.replace('_', ' ')}", flush=True)
                failed += 1
        problem = server.stop()
        if problem:
            print(f"not ok the server {problem}\n{server.stderr().decode(errors='replace')}")
            failed += 1
    finally:
        server.close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
