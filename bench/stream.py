"""GETATTR on a connection that streams 1 MiB READs: a small reply does not wait behind a queue of bulk ones."""
import measure as m
from servers import Floor, Ganesha, Sluice, need_load

COLUMNS = ("Floor", "Ganesha", "Sluice")
MEASURES = (
    ("GETATTR p50 us", "p50_us", "{:,.0f}"),
    ("GETATTR p99 us", "p99_us", "{:,.0f}"),
    ("READ p50 us", "read_p50_us", "{:,.0f}"),
    ("MB/s of the READs", "mb_per_s", "{:,.0f}"),
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
        line = m.case(
            f"{conns} connection{'s'[: conns > 1]}, {depth} READs in flight on each", m.interleaved(bench, runs)
        )
        one = m.interleaved(
            bench, m.loads(bench, servers, "read-seq", file_size=size, size="1M", conns=conns, depth=1)
        )
        for server in servers:
            single, r = m.median_result(one[server.name]), line.get(m.key_of(server.name))
            if single and r:
                r["transfer_p50_us"] = single["p50_us"]
        measures = (*MEASURES, ("one 1 MiB READ alone, p50 us", "transfer_p50_us", "{:,.0f}"))
        m.show_case(table, line, measures, COLUMNS, ("Ganesha", "Floor"))
        r = line.get("sluice")
        if r:
            bench.goal(
                f"GETATTR beside 1 MiB READs, {conns} connections: p99, times one transfer",
                m.ratio(r, {"p99_us": r.get("transfer_p50_us")}, "p99_us"),
                3,
                most=True,
            )
        lines.append(line)
    bench.stop(servers)
    return lines
