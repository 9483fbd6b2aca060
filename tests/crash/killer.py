#!/usr/bin/env python3
"""killer.py [--kills N] [--seed S]: kill -9 at random moments under load, and everything acknowledged is there.

Clients change a volume without a pause and find out after each kill what has become of the operation in flight; what
they know goes on over all kills.  Some servers are killed again while they start and recover, some were stopped and
started cleanly before.  Beside them snapshots, clones and restores come and go (keeper.py).

Then CLONEs of a file of 2 GiB are killed: each is there or not, and what was prepared of those that are not goes.
"""
import argparse
import random
import threading
import time

from keeper import Histories, Keeper, look
from load import Load, prepare
from rig import VOLUME, Results, Rig, mount, run_main
import rawrpc
from client41 import Sharer, clone

READY_SECONDS = 5


def one_round(rng, server, load):
    """Some load, perhaps a clean restart before, a kill, perhaps more during the start; the seconds of the start."""
    if rng.random() < 0.25:
        server.process.terminate()
        server.process.wait(20)
        server.start()
        load.up()
        load.wait(rng.randrange(1, 100))
    if rng.random() < 0.5:
        time.sleep(rng.random() * 0.3)
    else:
        load.wait(rng.randrange(1, 300))
    server.kill()
    while rng.random() < 0.3:
        server.begin()
        time.sleep(rng.random() * 0.1)
        server.kill()
    seconds = server.started()
    load.up()
    load.wait(rng.randrange(len(load.clients)))
    return seconds


def kills(rig, seed, count, results):
    rng, server = random.Random(seed), rig.server()
    server.start()
    prepare(server)
    load = Load(server, seed=seed, position=time.monotonic_ns)
    keeper = Keeper(load, seed)
    load.up()
    load.start(keeper=keeper)
    load.wait(200)
    slowest, made = 0, 0
    for made in range(1, count + 1):
        slowest = max(slowest, one_round(rng, server, load))
        if load.problems:
            break
    if slowest > READY_SECONDS:
        load.problem(f"a server took {slowest:.1f} s to start")
    problems = load.stop()
    if not problems:
        problems = load.check() + versions(server, load, keeper)
    print(f"# {len(keeper.acts)} acts of the keeper, {len(keeper.state.of_load)} snapshots of the load at the end")
    print(f"# {load.done()} operations acknowledged, {load.generation} servers, slowest start {slowest * 1000:.0f} ms")
    results.note(f"{made} kills, seed {seed}", problems)
    if not problems:
        end = server.stop()
        results.note("the last server leaves cleanly", [end] if end else ())


LARGE, PIECE = 2 << 30, 32 << 20


def large_file(nfs, root, sharer):
    """A file of 2 GiB, of which 32 MiB are written, and what these are."""
    fh = nfs.create(root, b"large", rawrpc.GUARDED).fh
    piece = random.Random(1).randbytes(1 << 20)
    for at in range(0, PIECE, len(piece)):
        if not nfs.write(fh, at, piece).ok:
            raise RuntimeError("WRITE")
    for at in range(PIECE, LARGE, PIECE):
        if sharer.run(clone, fh, fh, 0, at, PIECE) != "OK":
            raise RuntimeError("CLONE")
    return fh, piece


def part_of_a_clone(nfs, fh, piece, rng):
    """What is wrong with the target of a CLONE whose outcome is not known; and whether it is there."""
    size = nfs.getattr(fh).attr.size
    if size not in (0, LARGE):
        return [f"it has {size} bytes"], True
    for at in [LARGE - len(piece)] + [rng.randrange(LARGE // len(piece)) * len(piece) for _ in range(8)]:
        if size and nfs.read(fh, at, len(piece)).data != piece:
            return [f"it is not the source at {at}"], True
    return [], size > 0


def large_clones(rig, seed, count, results):
    rng, server, problems = random.Random(seed), rig.server(), []
    server.start()
    prepare(server)
    done = 0
    for n in range(count):
        with mount(server)[0] as nfs:
            root, sharer = nfs.mnt(b"/" + VOLUME.encode()).fh, Sharer(server.port, b"large")
            source, piece = large_file(nfs, root, sharer) if n == 0 else (source, piece)
            target = nfs.create(root, b"%d" % n, rawrpc.GUARDED).fh
            began = threading.Timer(rng.random() * 0.5, server.kill)
            began.start()
            try:
                status = sharer.run(clone, source, target, 0, 0, LARGE)
                problems += [f"CLONE: {status}"] if status != "OK" else []
                acknowledged = True
            except (rawrpc.Closed, OSError):
                acknowledged = False
            began.join()
        server.start()
        with server.connect() as nfs:
            wrong, there = part_of_a_clone(nfs, target, piece, rng)
            problems += [f"clone {n}: {w}" for w in wrong]
            problems += [f"clone {n} was acknowledged and is not there"] if acknowledged and not there else []
            server.cli("settle")
            used = nfs.getattr(target).attr.used
            problems += [f"clone {n} is not there and holds {used} bytes"] if used and not there else []
        done += there
    told = server.cli("pool", "check").decode()
    problems += [] if "all is right" in told else [told]
    print(f"# {done} of {count} large clones are there")
    results.note(f"{count} large clones killed, seed {seed}", problems)


def versions(server, load, keeper):
    """Compares every snapshot and clone with what it must hold."""
    with server.connect() as nfs:
        keeper.nfs = nfs
        if keeper.acts and not keeper.acts[-1].outcome:
            keeper.settle()
        histories = Histories([(client.view.name, client.ops) for client in load.clients], keeper.acts)
        return load.problems + look(server, nfs, keeper.state, histories, 100)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=15)
    parser.add_argument("--seed", default=str(random.randrange(1 << 32)))
    arguments = parser.parse_args()
    results = Results()
    print(f"# seed {arguments.seed}", flush=True)
    with Rig() as rig:
        kills(rig, arguments.seed, arguments.kills, results)
        large_clones(rig, arguments.seed, arguments.kills, results)
    results.end()


if __name__ == "__main__":
    run_main(main)
