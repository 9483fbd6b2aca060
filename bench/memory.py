"""The server's own memory with a million files and a 256 MiB cache, before and after load."""
import time

from servers import memory_anonymous

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


def memory(bench):
    servers = bench.start(("Sluice",), cache="256M")
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
    bench.stop(servers)
    bench.say("\n== The server's own memory (RssAnon, cache of 256 MiB) " + "=" * 2)
    for label, size in samples:
        bench.say(f"  {label:<28}{size / (1 << 20):>10.0f} MiB")
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
    return [{"when": label, "rss_anon": size} for label, size in samples]
