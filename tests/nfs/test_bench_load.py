#!/usr/bin/env python3
"""The load generator and the floor: each operation runs and counts what it should, and what is wrong is noticed."""
import json
import os
import random
import subprocess
import sys
import time
import traceback

from harness import BUILD, TOP, Server

LOAD, FLOOR = (os.path.join(BUILD, "bench", name) for name in ("load", "floor"))


def load(port, op, *options, good=True):
    """The result of a run; with good=False of one that must fail."""
    command = [LOAD, "--port", str(port), "--path", "/bench", "--op", op, *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if (done.returncode == 0) != good:
        raise AssertionError(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout) if done.stdout else None


def equal(result, **expected):
    for key, value in expected.items():
        assert result[key] == value, f"{key}: {result[key]}, not {value}: {result}"


def calls(port, sluice):
    """The operations that were there from the start, on one file of 8 MiB."""
    common = ("--file-size", "8M", "--dir", "calls", *([] if sluice else ["--period", "64M"]))
    if sluice:
        load(port, "read-seq", *common, "--prepare")
    equal(load(port, "read-seq", *common, "--size", "1M", "--count", 24, "--check-full"), ops=24, errors=0)
    equal(load(port, "read-rand", *common, "--count", 5000, "--depth", 16, "--conns", 2), ops=5000, errors=0)
    ranges = load(port, "read-rand", *common, "--size-min", "4K", "--size-max", "16K", "--count", 2000, "--check-full")
    equal(ranges, ops=2000, errors=0)
    mean = ranges["mb_per_s"] * 1e6 * ranges["seconds"] / 2000
    assert 9500 < mean < 11000, f"lengths from 4 to 16 KiB, {mean} bytes on average"
    equal(load(port, "read-rand", *common, "--size", 4096, "--align", 8, "--count", 500), ops=500, errors=0)
    for op in ("getattr", "lookup"):
        equal(load(port, op, *common, "--count", 3000, "--depth", 8), ops=3000, errors=0)
    paced = load(port, "read-rand", *common, "--rate", 1000, "--count", 500, "--depth", 8)
    assert paced["ops"] == 500 and paced["seconds"] > 0.49, paced
    paced = load(port, "read-rand", *common, "--rate", 10000000, "--seconds", "0.3")  # more than it can
    assert paced["missed"] > 0 and paced["max_us"] > 50000, paced
    if sluice:
        for op in ("write-rand", "write-seq"):
            equal(load(port, op, *common, "--size", "64K", "--count", 50, "--depth", 4), ops=50, errors=0)
        for op in ("create", "remove"):
            equal(load(port, op, "--dir", "names", "--count", 300, "--conns", 4), ops=300, names=300)


def files(port, sluice):
    """300 files of 110 KiB over 7 directories, three times, in three orders."""
    common = ["--files", 300, "--file-size", "110K", "--dirs", 7, "--dir", "tree", "--conns", 2, "--depth", 4]
    if sluice:
        load(port, "files", *common, "--prepare")
    else:
        common += ["--period", "64M"]
    result = load(port, "files", *common, "--epochs", 3)
    equal(result, ops=900, calls=2700, errors=0)
    assert [epoch["ops"] for epoch in result["epochs"]] == [300] * 3, result
    equal(load(port, "files", *common, "--size", "32K", "--epochs", 1, "--check-full"), calls=6 * 300, errors=0)
    assert load(port, "files", *common, "--seconds", "0.5")["ops"] > 0
    if sluice:
        for order in ("listing", "disk"):
            equal(load(port, "files", *common, "--order", order, "--epochs", 1), ops=300, errors=0)
        equal(load(port, "getattr", *common, "--count", 900), ops=900, errors=0)  # many handles at once


def records(port, sluice):
    """Shards of 20 records, at odd places."""
    common = ["--files", 6, "--file-size", 20 * 114660, "--dir", "shards", "--conns", 2, "--depth", 2]
    if sluice:
        load(port, "records", *common, "--prepare")
    else:
        common += ["--period", "64M"]
    for more in ((), ("--check-full", "--inflight", 3)):
        result = load(port, "records", *common, "--epochs", 2, *more)
        equal(result, ops=240, errors=0, names=12)


def stream(port, sluice):
    common = ["--file-size", "8M", "--dir", "calls", *([] if sluice else ["--period", "64M"])]
    result = load(port, "stream-getattr", *common, "--depth", 4, "--count", 50)
    equal(result, ops=50, errors=0)
    assert result["reads"] >= 4 and result["transfer_us"] > 0, result


def checkpoint(port):
    common = ("--dir", "ckpt", "--conns", 3, "--file-size", 5 * 1048576 + 4)
    result = load(port, "checkpoint", *common, "--sync-every", "2M", "--epochs", 2, "--read-back")
    equal(result, ops=6, writes=36, commits=18, errors=0)
    equal(result["read_back"], ops=3, errors=0)
    equal(load(port, "files", *common, "--files", 3, "--epochs", 1, "--check-full"), ops=3)


def listings(port):
    common = ("--dir", "names", "--files", 3000, "--size", "32K")
    load(port, "readdirplus", *common, "--prepare")
    for op in ("readdir", "readdirplus"):
        equal(load(port, op, *common, "--count", 5, "--conns", 2), ops=5, entries=5 * 3002, errors=0)
    # one name less, one more than expected
    load(port, "readdir", "--dir", "names", "--files", 3001, "--count", 1, good=False)
    load(port, "readdir", "--dir", "names", "--files", 2999, "--count", 1, good=False)


def notices(port):
    """Other bytes, another size, no file."""
    common = ("--dir", "calls", "--count", 10)
    wrong = load(port, "read-rand", *common, "--file-size", "8M", "--period", "4M", good=False)
    assert "wrong data" in wrong["error"], wrong
    wrong = load(port, "files", *common, "--file-size", "4M", good=False)
    assert "not a file of" in wrong["error"], wrong
    wrong = load(port, "files", *common, "--file-size", "8M", "--files", 2, good=False)
    assert wrong["last_status"] == 2, wrong


def sessions(port):
    """NFSv4.1 and 4.2: a session for each connection, and one for all; small READs and ones that are not copied."""
    common = ("--file-size", "8M", "--dir", "calls")
    load(port, "read-seq", *common, "--prepare")
    for more in (("--vers", "4.1"), ("--vers", "4.2"), ("--vers", "4.2", "--one-session")):
        more = (*more, "--conns", 2)
        equal(load(port, "read-rand", *common, *more, "--count", 3000, "--depth", 16), ops=3000, errors=0)
        equal(load(port, "read-seq", *common, *more, "--count", 24, "--size", "1M"), ops=24, errors=0)
        equal(load(port, "read-seq", *common, *more, "--count", 24, "--size", "1M", "--check-full"), ops=24, errors=0)
        equal(load(port, "getattr", *common, *more, "--count", 3000, "--depth", 8), ops=3000, errors=0)
    wrong = load(port, "read-rand", *common, "--count", 9, "--vers", "4.1", "--size", "64K", "--period", "4M", good=False)
    assert "wrong data" in wrong["error"], wrong
    load(port, "read-rand", *common, "--count", 9, "--vers", "4.1", "--depth", 1000, good=False)  # too many slots


def start_floor(file_size):
    for _ in range(20):
        port = random.randrange(10000, 32000)
        process = subprocess.Popen(
            [FLOOR, "--port", str(port), "--size", "64M", "--file-size", str(file_size), "--workers", "2"],
            stderr=subprocess.PIPE, text=True)
        if "huge pages" in process.stderr.readline():
            return process, port
        process.wait()
    raise RuntimeError("the floor does not start")


def run(failed, against, test, *arguments):
    began = time.monotonic()
    try:
        test(*arguments)
        print(f"ok {test.__name__} against {against} ({time.monotonic() - began:.1f} s)", flush=True)
    except Exception:
        failed.append(test.__name__)
        traceback.print_exc(file=sys.stdout)
        print(f"not ok {test.__name__} against {against}", flush=True)


def main():
    subprocess.run(["make", "-s", "-C", TOP, f"BUILD={os.path.relpath(BUILD, TOP)}", "bench-tools"], check=True)
    failed, count = [], 0
    server = Server("--cache", "128M", "--nfs-versions", "3, 4").start()
    try:
        server.create("bench")
        for test, *more in ((calls, True), (files, True), (records, True), (stream, True), (checkpoint,), (listings,),
                            (notices,), (sessions,)):
            run(failed, "sluiced", test, server.port, *more)
            count += 1
    finally:
        server.close()
    for test, file_size in ((calls, "8M"), (stream, "8M"), (files, "110K"), (records, 20 * 114660)):
        process, port = start_floor(file_size)
        try:
            run(failed, "the floor", test, port, False)
            count += 1
        finally:
            process.kill()
            process.wait()
    print(f"{count - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
