"""Large removals beside a steady load: what they add to p99.9, and whether the space comes back."""
import os
import time

from measure import Table
from servers import Sluice

BLOCKS_A_CHUNK_FILE = 409600  # a 4 KiB block in each 256 KiB chunk of 100 GiB
READS_A_SECOND, CREATES_A_SECOND = 20000, 500


class Beside:
    """Paced random READs and CREATEs for some seconds."""

    def __init__(self, server, name, seconds):
        self.server = server
        self.loads = {
            "READ": server.load_start(
                "read-rand", conns=4, depth=16, rate=READS_A_SECOND, seconds=seconds, warmup=0.2
            ),
            "CREATE": server.load_start(
                "create",
                dir=f"beside.{name}",
                prefix="f",
                conns=4,
                depth=16,
                rate=CREATES_A_SECOND,
                seconds=seconds,
                warmup=0.2,
            ),
        }

    def finish(self):
        return {op: self.server.load_finish(process) for op, process in self.loads.items()}


def make_files(bench, server, trees, files):
    """Two files of 100 GiB with a block in each chunk, and a tree."""
    started = time.monotonic()
    chunks = BLOCKS_A_CHUNK_FILE // (10 if bench.quick else 1)
    server.load(
        "write-seq",
        prefix="big",
        files=2,
        file_size=chunks * 262144,
        stride=262144,
        count=2 * chunks,
        conns=4,
        depth=64,
    )
    for tree in range(trees):
        server.load("create", dir=f"tree.{tree}", prefix="f", count=files, conns=16, depth=4)
    bench.note(
        f"two files of {chunks:,} chunks and {trees * files:,} small ones made in "
        f"{time.monotonic() - started:.0f} s"
    )
    return chunks


def remove_tree(server, trees, files):
    for tree in range(trees):
        server.load("remove", dir=f"tree.{tree}", prefix="f", count=files, conns=1, depth=16)
    server.load("rmdir", prefix="tree", count=trees)


def disk_use(server):
    """MiB that the pool's data take on the disk."""
    data = os.path.join(server.pool, "data")
    blocks = sum(entry.stat().st_blocks for entry in os.scandir(data) if entry.is_file())
    return blocks * 512 / (1 << 20)


def wait_for_blocks(server, before, blocks, seconds):
    """Seconds until so many blocks have been freed; None if they are not."""
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        if server.counter("blocks_freed") - before >= blocks:
            return time.monotonic() - started
        time.sleep(0.2)
    return None


def one_act(bench, server, name, act, blocks, seconds):
    """The load, an act half a second into it, and how the space came back."""
    freed = server.counter("blocks_freed")
    use = disk_use(server)
    beside = Beside(server, name, seconds)
    time.sleep(0.7)
    started = time.monotonic()
    if act:
        act()
    took = time.monotonic() - started
    back = wait_for_blocks(server, freed, blocks, 120) if blocks else None
    result = {"act": name, "act_seconds": took, "space_back_seconds": back}
    for op, r in beside.finish().items():
        result[op] = {key: r[key] for key in ("ops_per_s", "p50_us", "p99_us", "p999_us", "max_us")}
    if act:
        server.cli("settle")
    result["mib_before"], result["mib_after"] = use, disk_use(server)
    return result


def reap(bench):
    servers = bench.start(Sluice(bench))
    if not servers:
        return []
    server = servers[0]
    server.load("read-seq", prepare=True, count=256, size="1M")
    trees, files = (20, 500) if bench.quick else (20, 5000)
    chunks = make_files(bench, server, trees, files)
    server.cli("settle")
    seconds, gib = 5 if bench.quick else 12, chunks // 4096
    acts = [
        ("nothing", None, 0),
        (
            f"remove {gib} GiB",
            lambda: server.load("remove", prefix="big", first=0, count=1),
            chunks,
        ),
        ("nothing again", None, 0),
        # the file big.1
        (
            f"truncate {gib} GiB",
            lambda: server.load("truncate", prefix="big", files=1, first=1, file_size=0, count=1),
            chunks,
        ),
        (f"remove a tree of {trees * files:,}", lambda: remove_tree(server, trees, files), 0),
    ]
    table = Table(
        bench,
        f"Removals beside {READS_A_SECOND:,} READ/s and {CREATES_A_SECOND} CREATE/s",
        ("took s", "space back s", "READ p99.9 ms", "max", "CREATE p99.9", "max", "MiB before", "after"),
    )
    lines = []
    for name, act, blocks in acts:
        r = one_act(bench, server, name, act, blocks, seconds)
        lines.append(r)
        back = "-" if r["space_back_seconds"] is None else f"{r['space_back_seconds']:.1f}"
        table.row(
            name,
            f"{r['act_seconds']:.2f}",
            back,
            *[f"{r[op][key] / 1e3:.1f}" for op in ("READ", "CREATE") for key in ("p999_us", "max_us")],
            f"{r['mib_before']:,.0f}",
            f"{r['mib_after']:,.0f}",
        )
    bench.stop(servers)
    for op in ("READ", "CREATE"):
        base = max(lines[0][op]["p999_us"], lines[2][op]["p999_us"])
        worst = max(r[op]["p999_us"] for r in lines if not r["act"].startswith("nothing"))
        bench.goal(
            f"removals: p99.9 of {op} at most 20 ms longer (ms)",
            (worst - base) / 1e3,
            20,
            most=True,
        )
    for r in lines:
        if r["act"].endswith(" GiB"):
            bench.goal(
                f"{r['act']}: seconds until the space is back",
                r["space_back_seconds"],
                120,
                most=True,
            )
    return lines
