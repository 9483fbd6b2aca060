"""The server's own memory with a million files and a 256 MiB cache, before and after load; and how
soon it is ready again on such a pool."""
import time

from measure import Table
from servers import Sluice, memory_anonymous

SETTLE_SECONDS = 3


def make_files(server, directories, files):
    for directory in range(directories):
        server.load("create", dir=f"d.{directory}", prefix="f", count=files, conns=16, depth=8)


def load_everything(server, directories, files, seconds):
    """Reads more than the cache holds, looks up files everywhere, writes and creates."""
    server.load("read-rand", prefix="m", file_size="1G", conns=32, depth=16, seconds=seconds)
    server.load(
        "read-seq", prefix="m", file_size="1G", size="1M", conns=16, depth=4, seconds=seconds
    )
    for directory in range(0, directories, max(1, directories // 10)):
        server.load(
            "lookup",
            dir=f"d.{directory}",
            prefix="f",
            files=min(files, 10000),
            conns=16,
            depth=16,
            seconds=seconds / 4,
        )
    server.load("write-rand", prefix="m", file_size="1G", conns=16, depth=4, seconds=seconds)
    server.load(
        "create", dir=f"after.{time.monotonic_ns()}", prefix="f", conns=64, depth=4, seconds=seconds
    )


def restarts(server):
    """How long until it answers, after an orderly end and after a kill in the midst of changes."""
    ready = []
    server.stop()
    server.start()
    ready.append(("after SIGTERM", server.ready_seconds))
    for number in (1, 2):
        busy = server.load_start("write-rand", prefix="m", file_size="1G", conns=4, depth=8, seconds=9)
        creates = server.load_start("create", dir=f"killed.{number}", prefix="f", conns=8, seconds=9)
        time.sleep(1)
        server.kill()
        for process in (busy, creates):
            process.kill()
            process.communicate()
        server.start()
        ready.append((f"after kill -9 ({number})", server.ready_seconds))
    return ready


def memory(bench):
    servers = bench.start(Sluice(bench, cache="256M"))
    if not servers:
        return []
    server = servers[0]
    directories, files = (10, 10000) if bench.quick else (100, 10000)
    samples = [("started", memory_anonymous(server.process.pid))]
    make_files(server, directories, files)
    server.load(
        "read-seq", prefix="m", prepare=True, file_size="1G", size="1M", count=1024, depth=4
    )
    samples.append((f"{directories * files:,} files made", memory_anonymous(server.process.pid)))
    for label in ("after load", "after load again"):
        load_everything(server, directories, files, bench.seconds)
        samples.append((f"under {label[6:]}", memory_anonymous(server.process.pid)))
        time.sleep(SETTLE_SECONDS)
        samples.append((label, memory_anonymous(server.process.pid)))
    ready = restarts(server)
    bench.stop(servers)
    table = Table(bench, "The server's own memory (RssAnon, cache of 256 MiB)", ("MiB",))
    for label, size in samples:
        table.row(label, f"{size / (1 << 20):,.0f}")
    before, after = samples[-3][1], samples[-1][1]
    bench.goal(
        "memory: under 1 GiB (MiB)", max(size for _, size in samples) / (1 << 20), 1024, most=True
    )
    bench.goal(
        "memory: growth from one load to the next, at most 10 %",
        100 * (after - before) / before,
        10,
        most=True,
    )
    table = Table(bench, "Ready again on this pool", ("ms",))
    for label, seconds in ready:
        table.row(label, f"{seconds * 1000:,.0f}")
        bench.goal(f"{label}: seconds until ready", seconds, 1, most=True)
    lines = [{"when": label, "rss_anon": size} for label, size in samples]
    return lines + [{"when": label, "ready_seconds": seconds} for label, seconds in ready]
