"""The main table: everything in RAM, next to the floor and to Ganesha with the same data in the page cache."""
import measure as m
from servers import Floor, Ganesha, Sluice, size_bytes

COLUMNS = ("Floor 1 MiB", "Floor", "Ganesha", "Sluice")
AGAINST = ("Ganesha", "Floor")
SMALL = (m.OPERATIONS, m.P50, m.P99, m.CPU_OPERATION)
BULK = (m.MEGABYTES, m.P50, m.P99, m.CPU_GIGABYTE)
MANY = 10000  # files that LOOKUP and GETATTR choose from

# With one call in flight a virtual machine shows mostly what waking an idle core costs (35 us on
# ours), and whether that happens is the scheduler's mood. On one core it shows the server.
ONE_CORE = "4 KiB READ, 1 connection x 1, server and load on one core"

CASES = [
    # name, title, what is shown, options of the load
    (
        "read4k",
        "random 4 KiB READ, 4 connections x 64",
        SMALL,
        {"op": "read-rand", "conns": 4, "depth": 64},
    ),
    ("single", ONE_CORE, SMALL, {"op": "read-rand", "conns": 1, "depth": 1}),
    (
        "read128k",
        "random 128 KiB READ, 4 connections x 16",
        BULK,
        {"op": "read-rand", "size": "128K", "conns": 4, "depth": 16},
    ),
    (
        "read1m",
        "sequential 1 MiB READ, 4 connections x 8",
        BULK,
        {"op": "read-seq", "size": "1M", "conns": 4, "depth": 8},
    ),
    (
        "getattr",
        f"GETATTR of {MANY:,} files, 4 connections x 64",
        SMALL,
        {"op": "getattr", "dir": "many", "prefix": "f", "files": MANY, "conns": 4, "depth": 64},
    ),
    (
        "lookup",
        f"LOOKUP of {MANY:,} files, 4 connections x 64",
        SMALL,
        {"op": "lookup", "dir": "many", "prefix": "f", "files": MANY, "conns": 4, "depth": 64},
    ),
]


def fill(servers, size):
    """A file to read and a directory of empty ones, on the servers that have files."""
    for server in servers:
        if server.kind != "Floor":
            server.load(
                "read-seq", prepare=True, file_size=size, size="1M", depth=8, count=size_bytes(size) >> 20
            )
            server.load("create", dir="many", prefix="f", count=MANY, conns=16, depth=4)


def lmdb_reads(servers):
    """Read transactions so far of the one that counts them."""
    return sum(server.counter("meta_reads") or 0 for server in servers if server.kind == "Sluice")


def ram(bench):
    size = "256M" if bench.quick else "512M"
    servers = bench.start(Floor(bench, name="Floor 1 MiB"), Floor(bench, size), Ganesha(bench), Sluice(bench))
    fill(servers, size)
    table = m.Table(bench, f"From RAM ({size}iB of data)", (*COLUMNS, "/ Ganesha", "/ floor"))
    lines, worst = {}, None
    for name, title, measures, options in CASES:
        runs = m.on_one_core if name == "single" else m.loads
        before = lmdb_reads(servers)
        results = m.interleaved(bench, runs(bench, servers, file_size=size, **options))
        line = m.case(title, results)
        m.show_case(table, line, measures, COLUMNS, AGAINST)
        lines[name] = {"name": name, **line}
        if name == "read4k":
            calls = sum(r["ops"] for r in results.get("Sluice", ()))
            lines[name]["lmdb_reads_per_op"] = (lmdb_reads(servers) - before) / calls if calls else None
        if name == "single":
            worst = max((r["p99_us"] for r in results.get("Floor", ())), default=None)
    bench.stop(servers)
    goals(bench, lines, worst)
    return list(lines.values())


def goals(bench, lines, worst_floor_p99):
    small, single, large = lines["read4k"], lines["single"], lines["read1m"]
    sluice = small.get("sluice")
    if not sluice:
        return
    if small.get("floor"):
        share = min(1, small["floor_1_mib"]["ops_per_s"] / 1e6)
        bench.goal("4 KiB: of the floor's rate", m.ratio(sluice, small["floor"], "ops_per_s"), 0.5)
        bench.goal(
            "4 KiB: op/s (500,000 where the floor gives a million)", sluice["ops_per_s"], 500000 * share
        )
        bench.goal(
            "4 KiB: server CPU, times the floor's",
            m.ratio(sluice, small["floor"], "server_cpu_us_per_op"),
            2.2,
            most=True,
        )
        bench.goal(
            "4 KiB, one in flight: p50, times the floor's",
            m.ratio(single["sluice"], single["floor"], "p50_us"),
            1.3,
            most=True,
        )
        bench.goal(
            "4 KiB, one in flight: p99 in us, at most the worst floor run's",
            single["sluice"]["p99_us"],
            worst_floor_p99,
            most=True,
        )
        bench.goal("1 MiB: of the floor's MB/s", m.ratio(large["sluice"], large["floor"], "mb_per_s"), 0.8)
        bench.goal(
            "1 MiB: server CPU a GB, times the floor's",
            m.ratio(large["sluice"], large["floor"], "server_cpu_s_per_gb"),
            1.3,
            most=True,
        )
    bench.goal("4 KiB: LMDB read transactions a READ", small["lmdb_reads_per_op"], 0.001, most=True)
    if large.get("ganesha"):
        bench.goal("1 MiB: times Ganesha's MB/s", m.ratio(large["sluice"], large["ganesha"], "mb_per_s"), 2)
    for name in ("getattr", "lookup"):
        r = lines[name].get("sluice") or {}
        bench.goal(f"{name.upper()}: op/s", r.get("ops_per_s"), 500000)
        bench.goal(f"{name.upper()}: server CPU us an op", r.get("server_cpu_us_per_op"), 2, most=True)
