"""READs over NFSv4.1 and 4.2 beside NFSv3's of the same run, and beside Ganesha's 4.1: all from RAM."""
import measure as m
from ram import BULK, SMALL
from servers import Ganesha, Sluice, size_bytes

GANESHA, THREE = "Ganesha 4.1", "Sluice 3"
COLUMNS = (GANESHA, THREE, "Sluice 4.1", "Sluice 4.2", "one session")
ONE_SESSION = {"vers": "4.1", "one_session": True}

CASES = [
    # name, title, what is shown, options of the load; no more slots than one session has
    ("read4k", "random 4 KiB READ, 4 connections x 32", SMALL, {"op": "read-rand", "conns": 4, "depth": 32}),
    (
        "read1m",
        "sequential 1 MiB READ, 4 connections x 8",
        BULK,
        {"op": "read-seq", "size": "1M", "conns": 4, "depth": 8},
    ),
]


def contestants(servers):
    """Server and version of each column."""
    for server in servers:
        if server.kind == "Ganesha":
            yield GANESHA, server, {"vers": "4.1"}
            continue
        for version in ("3", "4.1", "4.2"):
            yield f"Sluice {version}", server, {"vers": version}
        yield "one session", server, ONE_SESSION


def goals(bench, name, line):
    three, ganesha = line.get(m.key_of(THREE)), line.get(m.key_of(GANESHA))
    key = "ops_per_s" if name == "read4k" else "mb_per_s"
    for version in ("Sluice 4.1", "Sluice 4.2"):
        of_three = m.ratio(line.get(m.key_of(version)), three, key)
        bench.goal(f"{line['case']}: {version}, of NFSv3's rate", of_three, 0.85)
    if name == "read4k":
        times = m.ratio(line.get("sluice_4.1"), ganesha, key)
        bench.goal(f"{line['case']}: Sluice 4.1, times Ganesha's", times, 6)


def nfs4(bench):
    size = "256M" if bench.quick else "512M"
    servers = bench.start(Ganesha(bench), Sluice(bench, versions="3,4"))
    for server in servers:
        server.load("read-seq", prepare=True, file_size=size, size="1M", depth=8, count=size_bytes(size) >> 20)
    table = m.Table(bench, f"NFSv4 from RAM ({size}iB of data)", (*COLUMNS, "/ Sluice 3", "/ Ganesha"))
    lines = []
    for name, title, measures, options in CASES:
        runs = {}
        for column, server, version in contestants(servers):
            runs[column] = m.loads(bench, [server], file_size=size, **options, **version)[server.name]
        line = m.case(title, m.interleaved(bench, runs))
        m.show_case(table, line, measures, COLUMNS, (THREE, GANESHA), of="Sluice 4.1")
        goals(bench, name, line)
        lines.append({"name": name, **line})
    bench.stop(servers)
    return lines
