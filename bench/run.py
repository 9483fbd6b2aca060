#!/usr/bin/env python3
"""`make bench` and `make bench-full`: a floor, NFS-Ganesha and Sluice in one run, and what was asked of Sluice.
Each part's results are in the JSON file as soon as the part has ended; parts measured again replace what was there."""
import argparse
import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import beside  # noqa: E402
import checkpoint  # noqa: E402
import cold  # noqa: E402
import curve  # noqa: E402
import epochs  # noqa: E402
import listing  # noqa: E402
import measure  # noqa: E402
import memory  # noqa: E402
import nfs4  # noqa: E402
import patterns  # noqa: E402
import ram  # noqa: E402
import reap  # noqa: E402
import servers  # noqa: E402
import stream  # noqa: E402
import versions  # noqa: E402
import workers  # noqa: E402
import writing  # noqa: E402

# Name: what it does, and whether `make bench` does it too, which is to take less than ten minutes.
PARTS = {
    "ram": (ram.ram, True),
    "nfs4": (nfs4.nfs4, True),
    "stream": (stream.stream, True),
    "patterns": (patterns.patterns, True),
    "listing": (listing.listing, True),
    "cold": (cold.cold, True),
    "epochs": (epochs.epochs, True),
    "workers": (workers.workers, False),
    "creates": (writing.creates, True),
    "writes": (writing.writes, True),
    "checkpoint": (checkpoint.checkpoint, True),
    "beside": (beside.beside, True),
    "curve": (curve.curve, False),
    "versions": (versions.versions, False),
    "reap": (reap.reap, False),
    "memory": (memory.memory, False),
}


class Bench:
    """One run: its options, its scratch directory, the servers that are up, and what was found out."""

    def __init__(self, options, scratch):
        self.scratch = scratch
        self.quick, self.full = options.quick, options.full
        self.rounds, self.seconds = options.rounds, options.seconds
        self.workers, self.load_threads, self.wanted = (
            options.workers,
            options.load_threads,
            options.servers,
        )
        self.running = []
        self.begin("")

    def begin(self, part):
        self.part = part
        self.tables, self.goals, self.notes, self.failures = [], [], [], []

    def say(self, text):
        print(text, flush=True)

    def note(self, text):
        """Something that whoever reads the figures has to know."""
        self.notes.append(text)
        print(f"  ({text})", flush=True)

    def fail(self, error):
        """Something went wrong: the run goes on, and fails at its end.  What others' servers refuse is only told."""
        if not getattr(error, "ours", True):
            self.note(str(error))
            return
        self.failures.append(f"{self.part}: {error}")
        print(f"  FAILED: {error}", flush=True)

    def goal(self, what, value, limit, most=False):
        """A figure that was asked for: at least `limit`, or at most."""
        met = None
        if value is not None and limit is not None:
            met = value <= limit if most else value >= limit
        self.goals.append({"goal": what, "value": value, "limit": limit, "most": most, "met": met})

    def directory(self, name):
        """A fresh directory in the scratch space."""
        return tempfile.mkdtemp(prefix=f"{self.part}-{name.lower().replace(' ', '-')}-", dir=self.scratch)

    def start(self, *some):
        """Starts the servers of `some` that this run is to measure and this machine has, and returns them."""
        up = []
        for server in some:
            if server.kind.lower() not in self.wanted:
                continue
            self.running.append(server)
            try:
                server.start()
                up.append(server)
            except servers.Unavailable as reason:
                self.note(f"{server.name}: {reason}")
                self.stop([server])
        return up

    def stop(self, some):
        for server in list(some):
            server.stop()
            shutil.rmtree(server.scratch, ignore_errors=True)
            if server in self.running:
                self.running.remove(server)

    def clear(self):
        """Whatever a part has left behind."""
        self.stop(self.running)
        for entry in os.scandir(self.scratch):
            shutil.rmtree(entry.path, ignore_errors=True)


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
        "kernel": ".".join(platform.release().split(".")[:2]),
        "file_system": file_system,
        "memory_gib": round(memory_kib / (1 << 20), 1),
    }


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="all parts, with medians of five")
    parser.add_argument(
        "--quick", action="store_true", help="one short round of everything, with less data"
    )
    parser.add_argument("--rounds", type=int, help="runs of which the median counts (3; full 5; quick 1)")
    parser.add_argument("--seconds", type=float, help="of each run (1.5; full 2; quick 1)")
    parser.add_argument("--only", help=f"parts, by commas: {','.join(PARTS)}")
    parser.add_argument("--servers", default="floor,ganesha,sluice", help="which to start, by commas")
    parser.add_argument(
        "--workers",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="threads of floor and Sluice",
    )
    parser.add_argument("--load-threads", type=int, default=1, help="threads of the load generator")
    parser.add_argument("--json", help="where the results go (build/bench/bench.json; full: full.json)")
    parser.add_argument(
        "--scratch",
        default=os.environ.get("TMPDIR") or os.path.join(servers.BUILD, "bench"),
        help="where the servers keep their data meanwhile: up to 15 GB",
    )
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5 if options.full else 3)
    options.seconds = options.seconds or (1.0 if options.quick else 2.0 if options.full else 1.5)
    options.servers = options.servers.lower().split(",")
    options.json = options.json or os.path.join(
        servers.BUILD, "bench", "full.json" if options.full else "bench.json"
    )
    in_turn = [name for name, (_, main) in PARTS.items() if main or options.full]
    options.only = options.only.split(",") if options.only else in_turn
    for part in options.only:
        if part not in PARTS:
            parser.error(f"no part {part}; there are {', '.join(PARTS)}")
    return options


def read_json(name):
    try:
        with open(name) as f:
            return json.load(f)
    except (OSError, ValueError):
        return {}


def write_json(name, value):
    """In one step: who interrupts the run keeps what there was."""
    with open(name + ".new", "w") as f:
        json.dump(value, f, indent=1)
        f.write("\n")
    os.rename(name + ".new", name)


def run_part(bench, part):
    """What a part found out, as it stands in the JSON file."""
    started, load = time.monotonic(), os.getloadavg()[0]
    bench.begin(part)
    lines = []
    try:
        lines = PARTS[part][0](bench)
    except servers.Unavailable as reason:
        bench.note(str(reason))
    except servers.LoadFailed as error:
        bench.fail(error)
    finally:
        bench.clear()
    return {
        "date": datetime.date.today().isoformat(),
        "rounds": bench.rounds,
        "seconds": bench.seconds,
        "quick": bench.quick,
        "load_average_before": round(load, 2),
        "took_seconds": round(time.monotonic() - started),
        "tables": bench.tables,
        "goals": bench.goals,
        "notes": bench.notes,
        "failures": bench.failures,
        "lines": lines,
    }


def run_parts(bench, options):
    where = machine(bench.scratch)
    started = time.monotonic()
    bench.say(f"{measure.machine_text(where)}; load {os.getloadavg()[0]:.2f} before; medians of {bench.rounds}")
    results = read_json(options.json)
    if results.get("machine") != where:
        results = {"machine": where, "parts": {}}
    for part in options.only:
        results["parts"][part] = run_part(bench, part)
        write_json(options.json, results)
    done = [results["parts"][part] for part in options.only]
    bench.say("\n== Asked for " + "=" * 50)
    for goal in (goal for part in done for goal in part["goals"]):
        met, value, limit = measure.goal_text(goal)
        bench.say(f"  {met:<6}{goal['goal']:<64}{value:>12}   {limit}")
    bench.say(f"\n{measure.machine_text(where)}; {time.monotonic() - started:.0f} s; {options.json}")
    return [failure for part in done for failure in part["failures"]]


def main():
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.makedirs(options.scratch, exist_ok=True)
    os.makedirs(os.path.dirname(os.path.abspath(options.json)), exist_ok=True)
    scratch = tempfile.mkdtemp(prefix="scratch-", dir=options.scratch)
    bench = Bench(options, scratch)
    try:
        failures = run_parts(bench, options)
    except KeyboardInterrupt:
        failures = ["interrupted"]
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        bench.clear()
        shutil.rmtree(scratch, ignore_errors=True)
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
