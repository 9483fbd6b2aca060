"""READs from RAM while the writer commits as fast as it can: they never wait for it.

What commits take of the machine (its cores, and the host's for the disk) they take from the reads' load generator
too.  So the same reads also run beside the same commits of another server: what differs then is what a read waits for
the writer of its own."""
import measure as m
from servers import Sluice

CREATORS = 64
FILE = {"prefix": "hot", "file_size": "128M", "conns": 4, "depth": 16}


def readers_maximum(bench, server):
    """Makes the file that is read from RAM; how many 4 KiB READs a second there can be of it."""
    server.load("read-rand", prepare=True, **FILE)
    server.load("read-seq", size="1M", count=128, **{**FILE, "conns": 1})
    return int(server.load("read-rand", seconds=bench.seconds, warmup=0.3, **FILE)["ops_per_s"])


def steady_rate(bench, server, maximum, divisor):
    """This part of the maximum, or less if the load generator cannot keep that pace: paced READs come one by one,
    those of the maximum by dozens, which costs a tenth."""
    rate = maximum // divisor
    while server.load_finish(paced_reads(server, rate, bench.seconds))["ops_per_s"] < 0.98 * rate:
        rate = rate * 2 // 3
    return rate


def paced_reads(server, rate, seconds):
    """A process that reads at this rate."""
    return server.load_start("read-rand", rate=rate, seconds=seconds, warmup=0.3, **FILE)


def beside_creates(bench, server, committing, rate, number):
    """The reads of one server beside the CREATEs of the other, or its own."""
    seconds = bench.seconds + 1
    creates = committing.load_start("create", dir=f"c.{number}", prefix="f", conns=CREATORS, seconds=seconds + 1.5)
    result = server.load_finish(paced_reads(server, rate, seconds))
    result["creates_per_s"] = committing.load_finish(creates)["ops_per_s"]
    return result


def one_round(bench, server, other, rate, number):
    alone = server.load_finish(paced_reads(server, rate, bench.seconds + 1))
    return alone, *(beside_creates(bench, server, whose, rate, number) for whose in (other, server))


def show(table, alone, others, meanwhile):
    """Rows of a table with the columns of COLUMNS."""
    for label, key, pattern in (m.OPERATIONS, m.P50, m.P99, m.P999):
        cells = [m.cell(r, key, pattern) for r in (alone, others, meanwhile)]
        ratios = [m.number(m.ratio(meanwhile, r, key)) for r in (alone, others)]
        table.row("  " + label, *cells, *ratios)


COLUMNS = ("alone", "beside another's", "beside its own", "/ alone", "/ another's")


def beside(bench):
    servers = bench.start(Sluice(bench), Sluice(bench, cache="256M", name="Another"))
    if len(servers) < 2:
        return []
    server, other = servers
    lines = []
    maximum = readers_maximum(bench, server)
    table = m.Table(bench, f"4 KiB READs from RAM beside CREATEs by {CREATORS} connections", COLUMNS)
    for divisor in (3, 10):
        rate = steady_rate(bench, server, maximum, divisor)
        rounds = [one_round(bench, server, other, rate, f"{divisor}.{n}") for n in range(bench.rounds)]
        alone, others, meanwhile = (m.median_result(some) for some in zip(*rounds))
        table.section(f"readers paced at {rate:,}/s of {maximum:,}, meanwhile {meanwhile['creates_per_s']:,.0f} CREATE/s")
        show(table, alone, others, meanwhile)
        lines.append(
            {
                "case": f"a {divisor}th of the maximum",
                "rate": rate,
                "alone": alone,
                "others": others,
                "meanwhile": meanwhile,
            }
        )
    bench.stop(servers)
    first = lines[0]
    for what, base in (("alone", "alone"), ("beside another server's commits", "others")):
        goal = f"READs beside commits at full load: p99.9, times that {what}"
        bench.goal(goal, m.ratio(first["meanwhile"], first[base], "p999_us"), 2, most=True)
    return lines
