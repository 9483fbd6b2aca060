"""READs from RAM while the writer commits as fast as it can: they never wait for it."""
import measure as m
from servers import Sluice

CREATORS = 64
FILE = {"prefix": "hot", "file_size": "128M", "conns": 4, "depth": 16}


def readers_maximum(bench, server):
    """Makes the file that is read from RAM; how many 4 KiB READs a second there can be of it."""
    server.load("read-rand", prepare=True, **FILE)
    server.load("read-seq", size="1M", count=128, **{**FILE, "conns": 1})
    return int(server.load("read-rand", seconds=bench.seconds, warmup=0.3, **FILE)["ops_per_s"])


def paced_reads(server, rate, seconds):
    """A process that reads at this rate."""
    return server.load_start("read-rand", rate=rate, seconds=seconds, warmup=0.3, **FILE)


def one_round(bench, server, rate, number):
    seconds = bench.seconds + 1
    alone = server.load_finish(paced_reads(server, rate, seconds))
    creates = server.load_start("create", dir=f"c.{number}", prefix="f", conns=CREATORS, seconds=seconds + 1.5)
    meanwhile = server.load_finish(paced_reads(server, rate, seconds))
    meanwhile["creates_per_s"] = server.load_finish(creates)["ops_per_s"]
    return alone, meanwhile


def beside(bench):
    servers = bench.start(Sluice(bench))
    if not servers:
        return []
    server = servers[0]
    lines = []
    maximum = readers_maximum(bench, server)
    table = m.Table(
        bench, f"4 KiB READs from RAM beside CREATEs by {CREATORS} connections", ("alone", "meanwhile", "times")
    )
    for divisor in (3, 10):
        rate = maximum // divisor
        rounds = [one_round(bench, server, rate, f"{divisor}.{n}") for n in range(bench.rounds)]
        alone, meanwhile = (m.median_result(some) for some in zip(*rounds))
        table.section(f"readers paced at {rate:,}/s, meanwhile {meanwhile['creates_per_s']:,.0f} CREATE/s")
        for label, key, pattern in (m.OPERATIONS, m.P50, m.P99, m.P999):
            cells = [m.cell(r, key, pattern) for r in (alone, meanwhile)]
            table.row("  " + label, *cells, m.number(m.ratio(meanwhile, alone, key)))
        lines.append({"case": f"a {divisor}th of the maximum", "rate": rate, "alone": alone, "meanwhile": meanwhile})
    bench.stop(servers)
    bench.goal(
        "READs beside commits at full load: p99.9, times that alone",
        m.ratio(lines[0]["meanwhile"], lines[0]["alone"], "p999_us"),
        2,
        most=True,
    )
    return lines
