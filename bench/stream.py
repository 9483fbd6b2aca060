"""GETATTR on a connection that streams 1 MiB READs: a small reply does not wait behind a queue of bulk ones."""
import measure as m
from servers import Floor, Ganesha, Sluice, need_load

COLUMNS = ("Floor", "Ganesha", "Sluice")
MEASURES = (
    ("GETATTR p50 us", "p50_us", "{:,.0f}"),
    ("GETATTR p99 us", "p99_us", "{:,.0f}"),
    ("READ p50 us", "read_p50_us", "{:,.0f}"),
    ("MB/s of the READs", "mb_per_s", "{:,.0f}"),
    ("one transfer us", "transfer_us", "{:,.0f}"),  # what the data of one READ take in the stream
    ("GETATTR p99, in transfers", "p99_in_transfers", "{:.2f}"),
)


def stream(bench):
    need_load("stream-getattr")
    size = "256M"
    servers = bench.start(Floor(bench, size), Ganesha(bench), Sluice(bench))
    for server in servers:
        if server.kind != "Floor":
            server.load("read-seq", prepare=True, file_size=size, size="1M", depth=8, count=256)
    table = m.Table(bench, "GETATTR beside 1 MiB READs", (*COLUMNS, "/ Ganesha", "/ floor"))
    lines = []
    for conns, depth in ((1, 4), (4, 4)):
        runs = m.loads(
            bench, servers, "stream-getattr", file_size=size, size="1M", conns=conns, depth=depth
        )
        title = f"{conns} connection{'s' if conns > 1 else ''}, {depth} READs in flight on each"
        line = m.case(title, m.interleaved(bench, runs))
        for name in COLUMNS:
            r = line.get(m.key_of(name))
            if r:
                r["p99_in_transfers"] = r["p99_us"] / r["transfer_us"]
        m.show_case(table, line, MEASURES, COLUMNS, ("Ganesha", "Floor"))
        lines.append(line)
    bench.stop(servers)
    if lines[0].get("sluice"):
        times = lines[0]["sluice"]["p99_in_transfers"]
        bench.goal("GETATTR beside 1 MiB READs: p99, times one transfer", times, 3, most=True)
    return lines
