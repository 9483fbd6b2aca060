#!/usr/bin/env python3
"""killer.py [--kills N] [--seed S]: kill -9 at random moments under load, and everything acknowledged is there.

Clients change a volume without a pause and find out after each kill what has become of the operation in flight; what
they know goes on over all kills.  Some servers are killed again while they start and recover, some were stopped and
started cleanly before.  Beside them snapshots, clones and restores come and go (keeper.py).
"""
import argparse
import random
import time

from keeper import Histories, Keeper, look
from load import Load, prepare
from rig import Results, Rig, run_main

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
    results.end()


if __name__ == "__main__":
    run_main(main)
