"""One worker and two: what an operation costs, and how the rate grows, next to the floor's threads."""
import measure as m
from servers import Floor, Sluice

CASES = (
    ("random 4 KiB READ, 4 connections x 64", {"op": "read-rand", "conns": 4, "depth": 64}),
    ("GETATTR, 4 connections x 64", {"op": "getattr", "conns": 4, "depth": 64}),
)
MEASURES = (m.OPERATIONS, m.CPU_OPERATION)


def growth(line, kind, key):
    """What two have, over what one has."""
    return m.ratio(line.get(f"{kind}_2"), line.get(f"{kind}_1"), key)


def workers(bench):
    size = "256M"
    servers = bench.start(
        *(Floor(bench, size, threads=n, name=f"Floor {n}") for n in (1, 2)),
        *(Sluice(bench, cache="512M", workers=n, name=f"Sluice {n}") for n in (1, 2)),
    )
    for server in servers:
        if server.kind == "Sluice":
            server.load("read-seq", prepare=True, file_size=size, size="1M", depth=8, count=256)
    columns = ("Floor 1", "Floor 2", "Sluice 1", "Sluice 2")
    table = m.Table(bench, "One worker and two, load on the same cores", (*columns, "floor 2/1", "Sluice 2/1"))
    lines = []
    for title, options in CASES:
        line = m.case(title, m.interleaved(bench, m.loads(bench, servers, file_size=size, **options)))
        table.section(title)
        for label, key, pattern in MEASURES:
            cells = [m.cell(line.get(m.key_of(name)), key, pattern) for name in columns]
            growths = [m.number(growth(line, kind, key)) for kind in ("floor", "sluice")]
            table.row("  " + label, *cells, *growths)
        lines.append(line)
    bench.stop(servers)
    goals(bench, lines[0])
    return lines


def goals(bench, line):
    cpu = growth(line, "sluice", "server_cpu_us_per_op")
    rate, floor = (growth(line, kind, "ops_per_s") for kind in ("sluice", "floor"))
    if cpu:
        bench.goal("4 KiB, two workers over one: CPU per op differs by", abs(cpu - 1), 0.15, most=True)
    if rate and floor:
        bench.goal("4 KiB, two workers over one: growth of the rate, of the floor's", rate / floor, 0.95)
