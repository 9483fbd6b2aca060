"""Parallel creates, and streams of durable writes."""
import measure as m
from fio import Fio
from servers import Ganesha, Sluice

PARALLEL = (1, 16, 64)
STREAM_DEPTH = 16


def create_run(bench, server, parallel, turns):
    """Creates for a while in a directory of its own; Sluice's mean group goes into the result."""
    names = ("mutations", "groups")
    before = server.counters(*names) if server.kind == "Sluice" else None
    r = server.load(
        "create", dir=f"c{parallel}.{next(turns)}", prefix="f", conns=parallel, seconds=bench.seconds, warmup=0.2
    )
    if before:
        mutations, groups = (now - was for now, was in zip(server.counters(*names), before))
        r["group_size"] = mutations / groups if groups else 0
    return r


def creates(bench):
    """CREATE by 1, 16 and 64 connections at once, one in flight on each."""
    servers = bench.start(Ganesha(bench), Sluice(bench))
    turns = iter(range(1 << 30))
    runs = {
        (server.name, parallel): lambda server=server, parallel=parallel: create_run(bench, server, parallel, turns)
        for parallel in PARALLEL
        for server in servers
    }
    results = m.interleaved(bench, runs)
    bench.stop(servers)
    table = m.Table(
        bench,
        "CREATE by N connections, one in flight on each",
        ("files/s", "/ one", "p50 us", "p99 us", "CPU us/op", "mean group"),
    )
    lines = []
    for name in (server.name for server in servers):
        one = m.median_result(results[name, 1])
        table.section(name)
        for parallel in PARALLEL:
            r = m.median_result(results[name, parallel])
            if r:
                lines.append(create_line(bench, table, name, parallel, r, one))
    return lines


def create_line(bench, table, name, parallel, r, one):
    times = m.ratio(r, one, "ops_per_s")
    table.row(
        f"  {parallel}",
        f"{r['ops_per_s']:,.0f}",
        m.number(times),
        f"{r['p50_us']:,.0f}",
        f"{r['p99_us']:,.0f}",
        f"{r['server_cpu_us_per_op']:.1f}",
        m.cell(r, "group_size", "{:.1f}"),
    )
    if name == "Sluice" and parallel > 1:
        least = 4 if parallel == 16 else 7
        bench.goal(f"CREATE by {parallel}: times the rate of one client", times, least)
    return {"server": name, "parallel": parallel, "ratio": times, **r}


def writes(bench):
    """A stream of durable 1 MiB WRITEs with 16 in flight, next to fio on the same file system."""
    fio = Fio(bench)
    servers = bench.start(Ganesha(bench), Sluice(bench))
    gigabytes = max(2, int(2 * bench.seconds))
    runs = {"fio": lambda: fio.write(STREAM_DEPTH, gigabytes << 30, seconds=bench.seconds)}
    options = {"size": "1M", "depth": STREAM_DEPTH, "file_size": "2G", "prefix": "w", "stable": 2, "warmup": 0.2}
    runs.update(m.loads(bench, servers, "write-seq", **options))
    line = m.case("1 MiB WRITE stream, FILE_SYNC, 16 in flight", m.interleaved(bench, runs))
    bench.stop(servers)
    columns = ("fio", "Ganesha", "Sluice")
    table = m.Table(bench, "A stream of durable writes", (*columns, "/ Ganesha", "/ fio"))
    m.show_case(table, line, (m.MEGABYTES, m.P99, m.CPU_GIGABYTE), columns, ("Ganesha", "fio"))
    bench.goal("1 MiB WRITE stream: of fio's", m.ratio(line.get("sluice"), line.get("fio"), "mb_per_s"), 0.6)
    return [line]
