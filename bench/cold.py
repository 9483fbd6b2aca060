"""Reads that RAM does not hold, next to fio on the same file system: io_uring, O_DIRECT, the same depth and size."""
import os

import measure as m
from fio import Fio
from servers import Floor, Ganesha, Sluice

COLUMNS = ("fio", "Disk floor", "Ganesha", "Sluice")
AGAINST = ("Ganesha", "fio", "Disk floor")
STREAMS = 4
RANDOM = (m.OPERATIONS, m.P50, m.P99, m.CPU_OPERATION, ("from disk", "from_disk", "{:.2f}"))
BULK = (m.MEGABYTES, m.P99, m.CPU_GIGABYTE, ("from disk", "from_disk", "{:.2f}"))


def forget(*files):
    """Takes the clean pages of these files out of the page cache."""
    for name in files:
        fd = os.open(name, os.O_RDONLY)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def forget_data(server):
    """Ganesha reads through the page cache.  Sluice does not, and its cache is small beside the data."""
    if server.kind == "Ganesha":
        forget(*(entry.path for entry in os.scandir(server.path) if entry.is_file()))


def load_cold(bench, server, op, **options):
    """A run whose data come from the disk."""
    forget_data(server)
    return server.load(op, seconds=bench.seconds, warmup=0.3, threads=bench.load_threads, **options)


def metadata_cold(server, **options):
    """The first moments after a restart, with nothing of the pool in the page cache."""
    server.stop()
    meta = os.path.join(server.pool, "meta")
    forget(*(entry.path for entry in os.scandir(meta) if entry.is_file()))
    server.start()
    return server.load("read-rand", seconds=1, **options)


def compare(bench, title, fio_run, servers, op, **options):
    runs = {"fio": fio_run} if fio_run else {}
    for server in servers:
        runs[server.name] = lambda server=server: load_cold(bench, server, op, **options)
    return m.case(title, m.interleaved(bench, runs))


def cold(bench):
    size = (1 if bench.quick else 3) << 30
    part = size // STREAMS
    fio = Fio(bench)
    fio.lay_out(size)
    servers = bench.start(Ganesha(bench), Sluice(bench, cache="64M" if bench.quick else "128M"))
    floor = bench.start(Floor(bench, f"{size >> 30}G", name="Disk floor", disk=True, file_size=part))
    for server in servers:
        server.load("read-seq", prepare=True, files=STREAMS, file_size=part)
    files = {"files": STREAMS, "file_size": part}
    table = m.Table(bench, f"Not in RAM ({size >> 30} GiB in {STREAMS} files)", (*COLUMNS, "/ Ganesha", "/ fio", "/ floor"))
    lines = [
        compare(
            bench,
            "random 4 KiB READ, 64 in flight",
            lambda: fio.read("randread", "4k", 64, size),
            floor + servers,
            "read-rand",
            conns=4,
            depth=16,
            **files,
        )
    ]
    m.show_case(table, lines[0], RANDOM, COLUMNS, AGAINST)
    bench.stop(floor)
    for streams in (1, STREAMS):
        line = compare(
            bench,
            f"sequential 1 MiB READ, {streams} stream{'s' if streams > 1 else ''} x 8",
            lambda streams=streams: fio.read("read", "1M", 8, size, streams),
            servers,
            "read-seq",
            size="1M",
            conns=streams,
            depth=8,
            files=streams,
            file_size=part,
        )
        m.show_case(table, line, BULK, COLUMNS, AGAINST)
        lines.append(line)
    for server in servers:
        if server.kind == "Sluice":
            runs = {"Sluice": lambda: metadata_cold(server, conns=4, depth=16, **files)}
            line = m.case("random 4 KiB READ, the second after a restart, metadata cold", m.interleaved(bench, runs))
            m.show_case(table, line, (m.OPERATIONS, m.P50, m.P99), COLUMNS, ())
            lines.append(line)
    bench.stop(servers)
    goals(bench, lines)
    return lines


def goals(bench, lines):
    if not lines[0].get("sluice"):
        return
    for line, key, least in zip(lines, ("ops_per_s", "mb_per_s", "mb_per_s"), (0.85, 0.9, 0.9)):
        bench.goal(f"cold {line['case']}: of fio's", m.ratio(line["sluice"], line.get("fio"), key), least)
