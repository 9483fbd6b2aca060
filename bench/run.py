#!/usr/bin/env python3
"""`make bench`: a floor, NFS-Ganesha and Sluice in one run, and what was asked of Sluice."""
import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases  # noqa: E402
import memory  # noqa: E402
import reap  # noqa: E402
import servers  # noqa: E402

PARTS = {
    "table": cases.table,
    "creates": cases.creates,
    "writes": cases.writes,
    "reap": reap.reap,
    "memory": memory.memory,
}


class Bench:
    """One run: its options, its scratch directory, the servers that are up, and what is printed."""

    def __init__(self, options, scratch):
        self.scratch = scratch
        self.quick, self.rounds, self.seconds = options.quick, options.rounds, options.seconds
        self.workers, self.load_threads, self.wanted = (
            options.workers,
            options.load_threads,
            options.servers,
        )
        self.running, self.goals, self.failures, self.part = [], [], [], ""

    def say(self, text):
        print(text, flush=True)

    def note(self, text):
        print(f"  ({text})", flush=True)

    def goal(self, what, value, limit, most=False):
        """A figure that an issue asks for: at least `limit`, or at most."""
        met = value is not None and (value <= limit if most else value >= limit)
        self.goals.append({"goal": what, "value": value, "limit": limit, "met": met})

    def start(self, names, **options):
        """The servers of these names that this machine has; for the others a line says why not."""
        up = []
        directory = tempfile.mkdtemp(prefix=f"{self.part}-", dir=self.scratch)
        for name in names:
            if name.lower() not in self.wanted:
                continue
            server = {
                "Floor": lambda: servers.Floor(directory, self.workers),
                "Ganesha": lambda: servers.Ganesha(directory),
                "Sluice": lambda: servers.Sluice(directory, self.workers, **options),
            }[name]()
            self.running.append(server)
            try:
                server.start()
                up.append(server)
            except servers.Unavailable as reason:
                self.note(f"{name}: {reason}")
                self.stop([server])
        return up

    def stop(self, some):
        for server in list(some):
            server.stop()
            shutil.rmtree(server.scratch, ignore_errors=True)
            if server in self.running:
                self.running.remove(server)


def machine(scratch):
    """What the figures depend on."""
    model = "?"
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    file_system = subprocess.run(
        ["df", "--output=fstype", scratch], capture_output=True, text=True
    ).stdout.split()[-1]
    with open("/proc/meminfo") as f:
        memory_kib = int(f.readline().split()[1])
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "file_system": file_system,
        "memory_gib": round(memory_kib / (1 << 20), 1),
        "load_average": os.getloadavg()[0],
    }


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="one short round of everything, with smaller trees"
    )
    parser.add_argument("--rounds", type=int, help="runs of which the median counts (3; quick 1)")
    parser.add_argument("--seconds", type=float, help="of each run (2; quick 1)")
    parser.add_argument(
        "--only", default=",".join(PARTS), help=f"parts, by commas: {','.join(PARTS)}"
    )
    parser.add_argument(
        "--servers", default="floor,ganesha,sluice", help="which to start, by commas"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="threads of floor and Sluice",
    )
    parser.add_argument("--load-threads", type=int, default=1, help="threads of the load generator")
    parser.add_argument(
        "--scratch",
        default=os.environ.get("TMPDIR") or os.path.join(servers.BUILD, "bench"),
        help="where the servers keep their data meanwhile",
    )
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.seconds = options.seconds or (1.0 if options.quick else 2.0)
    options.servers = options.servers.lower().split(",")
    options.only = options.only.split(",")
    for part in options.only:
        if part not in PARTS:
            parser.error(f"no part {part}; there are {', '.join(PARTS)}")
    return options


def write_json(name, value):
    with open(os.path.join(servers.BUILD, "bench", name + ".json"), "w") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


def run_parts(bench, options):
    where = machine(bench.scratch)
    bench.say(
        f"{where['cpu']}, {where['cores']} cores, {where['memory_gib']} GiB, "
        f"Linux {where['kernel']}, {where['file_system']}; "
        f"load {where['load_average']:.2f} before; medians of {bench.rounds}"
    )
    for part in options.only:
        bench.part = part
        try:
            lines = PARTS[part](bench)
            write_json(
                part,
                {
                    "machine": where,
                    "rounds": bench.rounds,
                    "seconds": bench.seconds,
                    "lines": lines,
                },
            )
        except (servers.LoadFailed, servers.Unavailable) as error:
            bench.note(f"{part}: {error}")
            bench.failures.append(f"{part}: {error}")
        finally:
            bench.stop(bench.running)
    if bench.goals:
        bench.say("\n== Asked for " + "=" * 29)
    for goal in bench.goals:
        value = "-" if goal["value"] is None else f"{goal['value']:,.2f}"
        bench.say(f"  {'met  ' if goal['met'] else 'SHORT'} {goal['goal']:<62}{value:>14}")
    write_json("goals", {"machine": where, "goals": bench.goals, "failures": bench.failures})


def main():
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.makedirs(options.scratch, exist_ok=True)
    os.makedirs(os.path.join(servers.BUILD, "bench"), exist_ok=True)
    scratch = tempfile.mkdtemp(prefix="scratch-", dir=options.scratch)
    bench = Bench(options, scratch)
    try:
        run_parts(bench, options)
    finally:
        bench.stop(bench.running)
        shutil.rmtree(scratch, ignore_errors=True)
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
