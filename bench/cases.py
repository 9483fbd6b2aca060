"""The main table, parallel creates and write streams, in rounds that go from server to server."""
import json
import os
import shutil
import statistics
import subprocess

from servers import LoadFailed

# With one call in flight a virtual machine shows mostly what waking an idle core costs (35 us on
# ours), and whether that happens is the scheduler's mood. On one core it shows the server.
ONE_CORE = "random 4 KiB READ, 1 connection x 1, server and load on one core"

TABLE = [
    # title, options of the load, does a gigabyte count (or an operation)
    ("random 4 KiB READ, 4 connections x 64", dict(op="read-rand", conns=4, depth=64), False),
    (ONE_CORE, dict(op="read-rand", conns=1, depth=1), False),
    (
        "random 128 KiB READ, 4 connections x 16",
        dict(op="read-rand", size="128K", conns=4, depth=16),
        True,
    ),
    (
        "sequential 1 MiB READ, 4 connections x 8",
        dict(op="read-seq", size="1M", conns=4, depth=8),
        True,
    ),
    ("GETATTR, 4 connections x 64", dict(op="getattr", conns=4, depth=64), False),
    ("LOOKUP, 4 connections x 64", dict(op="lookup", conns=4, depth=64), False),
]


def median_result(results):
    """Each number of several runs' results by its median; None where there was no run."""
    if not results:
        return None
    return {
        key: statistics.median(r[key] for r in results)
        if isinstance(value, (int, float))
        else value
        for key, value in results[0].items()
    }


def measure(bench, server, into, op, **options):
    """One run; a failure is shown, and takes away what this server had in this case."""
    try:
        into.append(server.load(op, **options))
    except LoadFailed as error:
        bench.note(str(error))
        bench.failures.append(str(error))


def measure_on_one_core(bench, server, into, op, **options):
    """The same, server and load on the same core."""
    everywhere = os.sched_getaffinity(0)
    one = {min(everywhere)}
    server.pin(one)
    os.sched_setaffinity(0, one)
    try:
        measure(bench, server, into, op, **options)
    finally:
        os.sched_setaffinity(0, everywhere)
        server.pin(everywhere)


def ratio(a, b, key):
    return a[key] / b[key] if a and b and a.get(key) and b.get(key) else None


def cell(result, key, pattern):
    return pattern.format(result[key]) if result and key in result else "-"


def number(value, pattern="{:.2f}"):
    return "-" if value is None else pattern.format(value)


def table_rows(bench, title, bulk, results):
    """The printed rows of a case, and the line for JSON."""
    by_name = {name: median_result(runs) for name, runs in results.items()}
    columns = [by_name.get(name) for name in ("Floor", "Ganesha", "Sluice")]
    keys = [
        ("op/s", "ops_per_s", "{:,.0f}"),
        ("MB/s", "mb_per_s", "{:,.0f}"),
        ("p50 us", "p50_us", "{:,.1f}"),
        ("p99 us", "p99_us", "{:,.1f}"),
        ("server CPU us/op", "server_cpu_us_per_op", "{:.2f}"),
    ]
    if bulk:
        keys[4] = ("server CPU s/GB", "server_cpu_s_per_gb", "{:.3f}")
    bench.say(f"\n{title}")
    for label, key, pattern in keys:
        if key == "mb_per_s" and not any(c and c.get(key) for c in columns):
            continue
        cells = [cell(c, key, pattern) for c in columns]
        ratios = [
            number(ratio(columns[2], columns[1], key)),
            number(ratio(columns[2], columns[0], key)),
        ]
        bench.say(f"  {label:<18}" + "".join(f"{text:>14}" for text in cells + ratios))
    return {"case": title, **{name.lower(): result for name, result in by_name.items()}}


def table(bench):
    """Floor | Ganesha | Sluice, all with the same data in RAM."""
    size = "256M" if bench.quick else "512M"
    rounds, seconds = bench.rounds, bench.seconds
    servers = bench.start(("Floor", "Ganesha", "Sluice"))
    for server in servers:
        if server.name != "Floor":
            server.load(
                "read-seq", prepare=True, file_size=size, size="1M", count=int(size[:-1]), depth=8
            )
    bench.say("\n== From RAM " + "=" * 30)
    bench.say(
        " " * 20 + "".join(f"{t:>14}" for t in ("floor", "Ganesha", "Sluice", "/Ganesha", "/floor"))
    )
    lines = []
    for title, options, bulk in TABLE:
        results = {server.name: [] for server in servers}
        for _ in range(rounds):
            for server in servers:
                run = measure_on_one_core if title == ONE_CORE else measure
                run(
                    bench,
                    server,
                    results[server.name],
                    file_size=size,
                    seconds=seconds,
                    warmup=0.3,
                    threads=bench.load_threads,
                    **options,
                )
        lines.append(table_rows(bench, title, bulk, results))
    bench.stop(servers)
    small, large = lines[0], lines[3]
    if small.get("sluice"):
        bench.goal("4 KiB: at least 250,000 op/s", small["sluice"]["ops_per_s"], 250000)
        bench.goal(
            "4 KiB: at least 6 times Ganesha",
            ratio(small["sluice"], small.get("ganesha"), "ops_per_s"),
            6,
        )
    if large.get("sluice"):
        bench.goal(
            "1 MiB: at least 1.5 times Ganesha",
            ratio(large["sluice"], large.get("ganesha"), "mb_per_s"),
            1.5,
        )
    return lines


def create_run(bench, server, parallel, name, into):
    """Creates for a while in a directory of its own; Sluice's mean group goes into the result."""
    counts = (
        (lambda: [server.counter(c) for c in ("mutations", "groups")])
        if server.name == "Sluice"
        else None
    )
    before = counts() if counts else None
    known = len(into)
    measure(
        bench,
        server,
        into,
        op="create",
        dir=name,
        prefix="f",
        conns=parallel,
        seconds=bench.seconds,
        warmup=0.2,
    )
    if counts and len(into) > known and None not in before:
        after = counts()
        groups = after[1] - before[1]
        into[-1]["group_size"] = (after[0] - before[0]) / groups if groups else 0


def creates(bench):
    """CREATE by 1, 16 and 64 connections at once, one in flight on each."""
    servers = bench.start(("Ganesha", "Sluice"))
    results = {(server.name, parallel): [] for server in servers for parallel in (1, 16, 64)}
    for turn in range(bench.rounds):
        for parallel in (1, 16, 64):
            for server in servers:
                create_run(
                    bench, server, parallel, f"c{parallel}.{turn}", results[server.name, parallel]
                )
    bench.stop(servers)
    bench.say("\n== CREATE by N at once " + "=" * 19)
    bench.say(
        "  server     N        files/s     / one    p50 us    p99 us   CPU us/op   mean group"
    )
    lines = []
    for (name, parallel), runs in results.items():
        r, one = median_result(runs), median_result(results[name, 1])
        if not r:
            continue
        times = ratio(r, one, "ops_per_s")
        bench.say(
            f"  {name:<9}{parallel:>3}{r['ops_per_s']:>15,.0f}{number(times):>10}"
            f"{r['p50_us']:>10,.0f}{r['p99_us']:>10,.0f}{r['server_cpu_us_per_op']:>12.1f}"
            f"{cell(r, 'group_size', '{:.1f}'):>13}"
        )
        lines.append({"server": name, "parallel": parallel, "ratio": times, **r})
        if name == "Sluice" and parallel > 1:
            least = 4 if parallel == 16 else 7
            bench.goal(
                f"creates by {parallel}: at least {least} times one client's rate", times, least
            )
    return lines


def fio_write(bench, depth):
    """fio's direct 1 MiB writes into an allocated file; the result is like the load generator's."""
    if not shutil.which("fio"):
        return None
    name = os.path.join(bench.scratch, "fio")
    gigabytes = max(2, int(4 * bench.seconds))
    command = [
        "fio",
        "--name=write",
        f"--filename={name}",
        "--rw=write",
        "--bs=1M",
        f"--size={gigabytes}G",
        f"--iodepth={depth}",
        "--ioengine=io_uring",
        "--direct=1",
        "--fallocate=native",
        f"--runtime={bench.seconds}",
        "--output-format=json",
    ]
    try:
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        write = json.loads(out[out.index("{") :])["jobs"][0]["write"]
        return {"ops_per_s": write["iops"], "mb_per_s": write["bw_bytes"] / 1e6}
    except (subprocess.CalledProcessError, ValueError) as error:
        bench.note(f"fio: {error}")
        return None
    finally:
        if os.path.exists(name):
            os.unlink(name)


def writes(bench):
    """A stream of durable 1 MiB WRITEs with 16 in flight, next to fio on the same file system."""
    depth = 16
    servers = bench.start(("Ganesha", "Sluice"))
    results = {"fio direct": [], **{server.name: [] for server in servers}}
    for turn in range(bench.rounds):
        fio = fio_write(bench, depth)
        if fio:
            results["fio direct"].append(fio)
        for server in servers:
            measure(
                bench,
                server,
                results[server.name],
                op="write-seq",
                size="1M",
                depth=depth,
                file_size="2G",
                prefix="w",
                stable=2,
                seconds=bench.seconds,
                warmup=0.2,
            )
    bench.stop(servers)
    bench.say("\n== 1 MiB WRITE stream, FILE_SYNC, 16 in flight " + "=" * 5)
    bench.say("  writer             MB/s     / fio    p99 us   CPU s/GB")
    lines = []
    fio = median_result(results["fio direct"])
    for name, runs in results.items():
        r = median_result(runs)
        if not r:
            bench.say(f"  {name:<12}{'-':>11}")
            continue
        share = ratio(r, fio, "mb_per_s")
        bench.say(
            f"  {name:<12}{r['mb_per_s']:>11,.0f}{number(share):>10}"
            f"{cell(r, 'p99_us', '{:,.0f}'):>10}"
            f"{cell(r, 'server_cpu_s_per_gb', '{:.3f}'):>11}"
        )
        lines.append({"writer": name, "share_of_fio": share, **r})
        if name == "Sluice":
            bench.goal("write stream: at least 60 % of fio's", share, 0.6)
    return lines
