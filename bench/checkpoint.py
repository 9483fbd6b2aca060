"""Checkpoints: four writers of a gigabyte, next to fio, and what readers keep meanwhile."""
import time

import measure as m
from beside import COLUMNS as BESIDE_COLUMNS
from beside import paced_reads, readers_maximum, show, steady_rate
from fio import Fio
from servers import Ganesha, Sluice, need_load

WRITERS, INFLIGHT = 4, 8
COLUMNS = ("fio", "Ganesha", "Sluice")
MEASURES = (m.MEGABYTES, m.CPU_GIGABYTE)


def write_checkpoint(server, size, **options):
    """Writes each file from its start and syncs it; then they are removed."""
    r = server.load(
        "checkpoint",
        dir="checkpoint",
        prefix="w",
        file_size=size,
        conns=WRITERS,
        size="1M",
        inflight=INFLIGHT,
        **options,
    )
    server.load("remove", dir="checkpoint", prefix="w", count=WRITERS)
    return r


def rates(bench, size):
    """MB/s of all writers together, syncs included."""
    fio = Fio(bench)
    servers = bench.start(Ganesha(bench), Sluice(bench))
    runs = {"fio": lambda: fio.write(INFLIGHT, size * WRITERS, WRITERS)}
    for server in servers:
        runs[server.name] = lambda server=server: write_checkpoint(server, size)
    line = m.case(f"{WRITERS} writers x {size >> 20} MiB, {INFLIGHT} WRITEs in flight, fsync", m.interleaved(bench, runs))
    bench.stop(servers)
    return line


def beside_writers(bench, server, writing, rate, size):
    """Paced reads of one server beside writers of the other, or its own, who write their files again and again."""
    seconds = 1.5 + size * WRITERS / 1e9
    writers = writing.load_start(
        "checkpoint",
        dir="beside",
        prefix="w",
        file_size=size,
        conns=WRITERS,
        size="1M",
        inflight=INFLIGHT,
        epochs=1000,
    )
    before, started = writing.counter("write_bytes"), time.monotonic()
    result = server.load_finish(paced_reads(server, rate, seconds))
    written = writing.counter("write_bytes") - before
    result["write_mb_per_s"] = written / 1e6 / (time.monotonic() - started)
    writing.load_stop(writers)
    writing.load("remove", dir="beside", prefix="w", count=WRITERS)
    return result


def one_round(bench, server, other, rate, size):
    """Paced readers alone, then beside the writers of another server, then beside those of their own."""
    alone = server.load_finish(paced_reads(server, rate, bench.seconds + 1))
    return alone, *(beside_writers(bench, server, whose, rate, size) for whose in (other, server))


def readers(bench, size):
    """What readers that ask for a third of what they could have keep of it."""
    servers = bench.start(Sluice(bench), Sluice(bench, name="Another"))
    if len(servers) < 2:
        return None
    server, other = servers
    rate = steady_rate(bench, server, readers_maximum(bench, server), 3)
    rounds = [one_round(bench, server, other, rate, size) for _ in range(bench.rounds)]
    bench.stop(servers)
    alone, others, meanwhile = (m.median_result(some) for some in zip(*rounds))
    case = f"readers paced at {rate:,}/s, meanwhile {meanwhile['write_mb_per_s']:,.0f} MB/s written"
    return {"case": case, "alone": alone, "others": others, "meanwhile": meanwhile}


def checkpoint(bench):
    need_load("checkpoint")
    size = (128 if bench.quick else 1024 if bench.full else 256) << 20
    line = rates(bench, size)
    table = m.Table(bench, "Checkpoints", (*COLUMNS, "/ Ganesha", "/ fio"))
    m.show_case(table, line, MEASURES, COLUMNS, ("Ganesha", "fio"))
    bench.goal("checkpoint: of fio's direct write", m.ratio(line.get("sluice"), line.get("fio"), "mb_per_s"), 0.6)
    beside = readers(bench, size)
    if not beside:
        return [line]
    alone, others, meanwhile = beside["alone"], beside["others"], beside["meanwhile"]
    table = m.Table(bench, "4 KiB READs from RAM beside a checkpoint, paced", BESIDE_COLUMNS)
    table.section(beside["case"])
    show(table, alone, others, meanwhile)
    bench.goal("READs beside a checkpoint: of their rate", m.ratio(meanwhile, alone, "ops_per_s"), 0.9)
    for what, base in (("alone", alone), ("beside another server's", others)):
        goal = f"READs beside a checkpoint: p99, times that {what}"
        bench.goal(goal, m.ratio(meanwhile, base, "p99_us"), 3, most=True)
    return [line, beside]
