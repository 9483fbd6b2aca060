"""The reads of real training, and what they cost: Ganesha and Sluice, from RAM."""
import measure as m
from servers import Ganesha, LoadFailed, Sluice, need_load

COLUMNS = ("Ganesha", "Sluice")
# Sizes are those of the benchmarks that the patterns are named after; how many is what fits beside the server.
PATTERNS = [
    # name, what it does, what is shown, options, files of a full and a quick run, in the short list
    (
        "imagenet",
        "imagenet: 110 KB files shuffled, LOOKUP, GETATTR, READ",
        ("files/s", "file"),
        {"op": "files", "file_size": 110000, "conns": 4, "depth": 8},
        (8000, 1000),
        True,
    ),
    (
        "unet3d",
        "unet3d: 146 MB files whole, 8 at once",
        ("files/s", "file"),
        {"op": "files", "file_size": 139 << 20, "conns": 4, "depth": 2},
        (8, 2),
        False,
    ),
    (
        "resnet50",
        "resnet50: 114,660-byte records through shuffled shards of 143 MB",
        ("records/s", "record"),
        {"op": "records", "conns": 4, "depth": 2},
        (8, 2),
        False,
    ),
    (
        "cosmoflow",
        "cosmoflow: 2.8 MB files shuffled",
        ("files/s", "file"),
        {"op": "files", "file_size": 2800000, "conns": 4, "depth": 4},
        (400, 50),
        False,
    ),
    (
        "tokens",
        "tokens: random 4 to 16 KiB in one file of 1 GiB",
        ("READs/s", "READ"),
        {"op": "read-rand", "size_min": "4K", "size_max": "16K", "file_size": "1G", "conns": 4, "depth": 32},
        (1, 1),
        False,
    ),
    (
        "checkpoint",
        "checkpoint: 4 writers of 256 MiB with fsync",
        ("files/s", "file"),
        {"op": "checkpoint", "file_size": "256M", "conns": 4, "inflight": 8},
        (4, 4),
        False,
    ),
]


def run_pattern(bench, servers, op, files, options):
    """The results of one pattern; files are made first, where it reads any."""
    if op == "checkpoint":
        return m.interleaved(
            bench, m.loads(bench, servers, op, files=files, epochs=1, seconds=None, warmup=None, **options)
        )
    for server in servers:
        server.load(op, prepare=True, files=files, dir="set", **options)
    for server in servers:  # once through, so that everything is in RAM
        if op != "read-rand":
            server.load(op, files=files, dir="set", epochs=1, **options)
    return m.interleaved(bench, m.loads(bench, servers, op, files=files, dir="set", **options))


def patterns(bench):
    need_load("files", "records", "checkpoint", "--size-min")
    table = m.Table(bench, "Patterns of training, from RAM", (*COLUMNS, "/ Ganesha"))
    lines = []
    for name, title, (rate, unit), options, (files, few), always in PATTERNS:
        if not (bench.full or always):
            continue
        options = dict(options)
        op, count = options.pop("op"), few if bench.quick else files
        servers = bench.start(Ganesha(bench), Sluice(bench, cache="2G"))
        try:
            line = {"name": name, **m.case(title, run_pattern(bench, servers, op, count, options))}
        except LoadFailed as error:
            bench.fail(error)
            continue
        finally:
            bench.stop(servers)
        measures = (
            (rate, "ops_per_s", "{:,.1f}" if unit == "file" and count < 10 else "{:,.0f}"),
            m.MEGABYTES,
            (f"server CPU us/{unit}", "server_cpu_us_per_op", "{:,.0f}"),
            ("p99 ms", "p99_ms", "{:,.2f}"),
            ("from disk", "from_disk", "{:.3f}"),
        )
        for key in ("ganesha", "sluice"):
            if line.get(key):
                line[key]["p99_ms"] = line[key]["p99_us"] / 1e3
        m.show_case(table, line, measures, COLUMNS, ("Ganesha",))
        lines.append(line)
        if name == "imagenet" and line.get("sluice"):
            goals(bench, line)
    return lines


def goals(bench, line):
    bench.goal("110 KB files: times Ganesha's files/s", m.ratio(line["sluice"], line.get("ganesha"), "ops_per_s"), 3)
    bench.goal(
        "110 KB files: server CPU a file, of Ganesha's",
        m.ratio(line["sluice"], line.get("ganesha"), "server_cpu_us_per_op"),
        0.2,
        most=True,
    )
