#!/usr/bin/env python3
"""Runs libnfs_ops (every operation of libnfs, and raw NFSv3 calls) against a server of its own, kills the server, and
looks again.  SLUICE_BUILD names the build directory, LIBNFS_OPS another program than the one there (libnfs reads
misaligned, so sanitizers are for the server alone)."""
import os
import re
import subprocess
import sys

import harness
import rawrpc

OPS = os.environ.get("LIBNFS_OPS") or os.path.join(harness.BUILD, "tests", "libnfs_ops")


def prepare(server):
    server.create("vol")
    server.create("squashed", "127.0.0.0/8:rw", "root", "--mode", "0777")
    server.create("small", "127.0.0.0/8:rw", "none", "--size", "8Mi")
    server.create("rovol")
    with server.connect() as nfs:
        root = nfs.mnt(b"/rovol").fh
        made = nfs.create(root, b"file", rawrpc.GUARDED, mode=0o644)
        harness.eq(nfs.write(made.fh, 0, b"data").status, "OK", "writing a file")
        harness.eq(nfs.mkdir(root, b"dir", mode=0o755).status, "OK", "a directory")
    server.cli("volume", "set", "rovol", "allow=127.0.0.0/8:ro")


def run(server, *more):
    """The counts of passed and failed tests."""
    done = subprocess.run([OPS, "127.0.0.1", str(server.port), *more], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120)
    text = done.stdout.decode(errors="replace")
    summary = re.search(r"(\d+) passed, (\d+) failed\n$", text)
    print(text[:summary.start()] if summary else text, end="", flush=True)
    if not summary:
        print(f"not ok libnfs_ops ended with status {done.returncode}")
        return 0, 1
    return int(summary.group(1)), int(summary.group(2))


def main():
    server = harness.Server()
    try:
        server.start()
        prepare(server)
        counts = [run(server)]
        server.kill()
        server.start()
        counts.append(run(server, "after"))
        problem = server.stop()
        print("not ok" if problem else "ok", "the server leaves cleanly" + (f": {problem}" if problem else ""))
        counts.append((not problem, bool(problem)))
        if any(failed for _, failed in counts):
            print(server.stderr().decode(errors="replace")[-8000:])
    finally:
        server.close()
    passed, failed = (sum(column) for column in zip(*counts))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
