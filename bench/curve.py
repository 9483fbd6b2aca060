"""Latency and throughput: 4 KiB READs from RAM by more and more connections with more and more in flight."""
import measure as m
from servers import Floor, Ganesha, Sluice

COLUMNS = ("Floor", "Ganesha", "Sluice")
POINTS = [(conns, depth) for conns in (1, 4, 16) for depth in (1, 4, 16, 64)]


def curve(bench):
    size = "256M"
    servers = bench.start(Floor(bench, size), Ganesha(bench), Sluice(bench))
    for server in servers:
        if server.kind != "Floor":
            server.load("read-seq", prepare=True, file_size=size, size="1M", depth=8, count=256)
    names = [server.name for server in servers]
    columns = [text for name in names for text in (f"{name} op/s", "p50 us")]
    table = m.Table(bench, "random 4 KiB READ from RAM, connections x in flight on each", columns)
    lines = []
    for conns, depth in POINTS:
        runs = m.loads(
            bench,
            servers,
            "read-rand",
            file_size=size,
            conns=conns,
            depth=depth,
            seconds=min(bench.seconds, 1),
            warmup=0.2,
        )
        results = m.interleaved(bench, runs, min(bench.rounds, 3))
        line = {"conns": conns, "depth": depth, **m.case(f"{conns} x {depth}", results)}
        cells = [
            m.cell(line.get(m.key_of(name)), key, pattern)
            for name in names
            for _, key, pattern in (m.OPERATIONS, m.P50)
        ]
        table.row(line["case"], *cells)
        lines.append(line)
    bench.stop(servers)
    return lines
