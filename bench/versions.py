"""Snapshots, clones and restores: what they cost, and what they cost those who read."""
import json
import os
import socket
import statistics
import sys
import threading
import time

import measure as m
from servers import Sluice, need_load

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "nfs"))
import rawrpc  # noqa: E402


class Control:
    """The control socket: one request, one answer, without a process for each."""

    def __init__(self, server):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(server.socket)
        self.lines = self.socket.makefile("rb")

    def __call__(self, command, **arguments):
        """The final answer, and what came before it."""
        self.socket.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
        events = []
        while True:
            answer = json.loads(self.lines.readline())
            if "ok" not in answer:
                events.append(answer)
                continue
            if not answer["ok"]:
                raise RuntimeError(f"{command} {arguments}: {answer['error']}")
            return answer, events

    def timed(self, command, **arguments):
        """Milliseconds."""
        start = time.perf_counter()
        self(command, **arguments)
        return (time.perf_counter() - start) * 1e3

    def close(self):
        self.lines.close()
        self.socket.close()


def volume(control, name):
    control("volume-create", name=name, allow="host:rw", squash="none", owner="0:0")


def three(control, name, times, tag):
    """Milliseconds of a snapshot, a clone, a restore: medians."""
    took = {"snapshot": [], "clone": [], "restore": []}
    for n in range(times):
        snapshot = f"{name}@{tag}{n}"
        took["snapshot"].append(control.timed("snapshot-create", name=snapshot))
        took["clone"].append(control.timed("clone-create", name=snapshot, to=f"{name}.{tag}{n}", writable=True))
        took["restore"].append(control.timed("restore", name=snapshot, safety=False))
        control("volume-delete", name=f"{name}.{tag}{n}", now=True)
        control("snapshot-delete", names=[snapshot])
    control("settle")
    worst = max(max(ms) for ms in took.values())
    return {what: statistics.median(ms) for what, ms in took.items()} | {"worst": worst}


def making(bench, server, control, files):
    """A volume of many files and one of a hundred, idle and under load."""
    volume(control, "few")
    server.load("create", path="/few", dir="d", prefix="f", count=100, conns=4)
    volume(control, "many")
    server.load("create", path="/many", dir="d", prefix="f", count=files, conns=64, depth=4)
    rows = {"100 files": three(control, "few", 15, "t"), f"{files:,} files": three(control, "many", 15, "t")}
    before, start = server.counter("groups"), time.monotonic()
    load = server.load_start("create", path="/few", dir="busy", prefix="b", conns=64, seconds=4)
    time.sleep(1)
    rows["under 64 CREATEs at once"] = three(control, "many", 10, "b")
    server.load_finish(load)
    group_ms = (time.monotonic() - start) * 1e3 / max(1, server.counter("groups") - before)
    kinds = ("snapshot", "clone", "restore")
    table = m.Table(bench, "Making versions, ms over the control socket (medians)", (*kinds, "worst"))
    for name, row in rows.items():
        table.row(name, *[f"{row[what]:.2f}" for what in (*kinds, "worst")])
    idle = max(rows[f"{files:,} files"][kind] for kind in kinds)
    busy = max(rows["under 64 CREATEs at once"][kind] for kind in kinds)
    bench.goal("a snapshot, clone or restore of the large volume, idle: ms", idle, 20, most=True)
    bench.goal("the same under load, in group commits", busy / group_ms, 10, most=True)
    return {"rows": rows, "group_ms": group_ms}


def differences(bench, control, server, files, changes=1000):
    control("snapshot-create", name="many@a")
    server.load("create", path="/many", dir="d", prefix="n", count=changes, conns=16)
    control("snapshot-create", name="many@b")
    times, found = [], 0
    for _ in range(7):
        start = time.perf_counter()
        answer, _events = control("diff", name="many@a", to="many@b")
        times.append((time.perf_counter() - start) * 1e3)
        found = answer["created"]
    bench.note(f"diff of two snapshots of {files:,} files with {changes} changes: "
              f"{statistics.median(times):.1f} ms, {found} created told")
    bench.goal(f"diff with {changes} changes: ms", statistics.median(times), 100, most=True)
    if found != changes:
        bench.failures.append(f"diff told {found} of {changes}")
    control("snapshot-delete", names=["many@a", "many@b"])
    return {"ms": statistics.median(times), "found": found}


def many_snapshots(bench, server, control, count):
    """The next snapshot, and reading the live volume, with ten and with very many snapshots."""
    for name in ("ten", "thousands"):
        volume(control, name)
        server.load("read-seq", path=f"/{name}", prepare=True, file_size="64M", size="1M", count=64)
    for n in range(10):
        control("snapshot-create", name=f"ten@s{n}")
    started = time.monotonic()
    for n in range(count):
        control("snapshot-create", name=f"thousands@s{n}")
    made = time.monotonic() - started
    next_ms, cpu = {"ten": [], "thousands": []}, {"ten": [], "thousands": []}
    for turn in range(100):
        for name in next_ms:
            next_ms[name].append(control.timed("snapshot-create", name=f"{name}@x{turn}"))
            control("snapshot-delete", names=[f"{name}@x{turn}"])
            control("settle")
    for turn in range(9):
        for name in cpu:
            r = server.load("read-rand", path=f"/{name}", file_size="64M", conns=4, depth=64, seconds=1, warmup=0.2)
            cpu[name].append(r["server_cpu_us_per_op"])
    listed = control.timed("snapshot-list", name="thousands")
    line = {name: {"next_ms": statistics.median(next_ms[name]), "cpu_us": statistics.median(cpu[name])} for name in cpu}
    table = m.Table(bench, "With many snapshots of the volume", ("next, ms", "CPU us/READ"))
    for name, title in (("ten", "10 snapshots"), ("thousands", f"{count:,} snapshots")):
        table.row(title, f"{line[name]['next_ms']:.2f}", f"{line[name]['cpu_us']:.3f}")
    bench.note(f"{count:,} snapshots were taken in {made:.1f} s; listing them takes {listed:.0f} ms")
    ten, thousands = line["ten"], line["thousands"]
    bench.goal(f"READ's CPU with {count:,} snapshots, of that with 10", thousands["cpu_us"] / ten["cpu_us"], 1.1, most=True)
    bench.goal(f"the next snapshot with {count:,}, of that with 10", thousands["next_ms"] / ten["next_ms"], 1.1, most=True)
    return {**line, "made_s": made, "list_ms": listed}


def cold_lookups(server, names):
    """Microseconds of LOOKUPs in a root that nobody has read since the server started: the median."""
    server.stop()
    server.start()
    nfs = rawrpc.Nfs(server.port)
    root = nfs.mnt(b"/hot").fh
    took = []
    for name in names:
        start = time.perf_counter()
        nfs.lookup(root, name)
        took.append((time.perf_counter() - start) * 1e6)
    start = time.perf_counter()
    listed = len(list(nfs.listing(root)))
    listing = (time.perf_counter() - start) * 1e3
    nfs.close()
    return statistics.median(took), listing, listed


def hot_directory(bench, server, control, clones):
    volume(control, "hot")
    names = [b"f.%d" % n for n in range(500)]
    nfs = rawrpc.Nfs(server.port)
    root = nfs.mnt(b"/hot").fh
    for name in names:
        nfs.create(root, name)
    control("snapshot-create", name="hot@s")
    before = [cold_lookups(server, names) for _ in range(3)]
    control = Control(server)
    nfs = rawrpc.Nfs(server.port)
    for n in range(clones):
        control("clone-create", name="hot@s", to=f"hot.{n}", writable=True)
        nfs.create(nfs.mnt(b"/hot.%d" % n).fh, b"mine")
    nfs.close()
    control.close()
    after = [cold_lookups(server, names) for _ in range(3)]
    (was, listing_was, _), (now, listing_now, _) = min(before), min(after)
    bench.note(f"cold LOOKUP in a root of 500 files: {was:.0f} us; after {clones:,} clones each made a file in it: "
              f"{now:.0f} us; listing it: {listing_was:.1f} and {listing_now:.1f} ms")
    bench.goal(f"cold LOOKUP after {clones:,} changed clones, of that before", now / was, 1.25, most=True)
    return {"before_us": was, "after_us": now, "listing_before_ms": listing_was, "listing_after_ms": listing_now}


def at_once(server, paths, size, streams=4):
    """Every path's data read whole, `streams` loads at a time: MB/s of all together."""
    todo, lock = list(paths), threading.Lock()

    def work():
        while True:
            with lock:
                if not todo:
                    return
                path = todo.pop()
            server.load_finish(
                server.load_start("read-seq", path=path, file_size=f"{size}M", size="1M", count=size, depth=8)
            )

    start = time.monotonic()
    threads = [threading.Thread(target=work) for _ in range(streams)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return len(paths) * size * 1.048576 / (time.monotonic() - start)


def shared_data(bench, server, control, clones, size):
    """A hundred clones of one dataset: their data is in RAM once."""
    volume(control, "data")
    server.load("read-seq", path="/data", prepare=True, file_size=f"{size}M", size="1M", count=size, depth=8)
    control("snapshot-create", name="data@v1")
    for n in range(clones):
        control("clone-create", name="data@v1", to=f"data.{n}")
    used = lambda: control("status")[0]["pool"]["cache_used_bytes"]
    before, rates = used(), {"one": [], "all": []}
    for _ in range(3):
        rates["one"].append(at_once(server, ["/data"] * clones, size))
        rates["all"].append(at_once(server, [f"/data.{n}" for n in range(clones)], size))
    after = used()
    one, every = statistics.median(rates["one"]), statistics.median(rates["all"])
    bench.note(f"{clones} reads of one volume of {size} MiB: {one:,.0f} MB/s; of {clones} clones of it: {every:,.0f} MB/s; "
              f"the cache grew by {(after - before) / 2**20:.0f} MiB")
    bench.goal("clones read at once: of one volume's rate", every / one, 0.9)
    bench.goal("clones read at once: MiB more in the cache", (after - before) / 2**20, 32, most=True)
    for n in range(clones):
        control("volume-delete", name=f"data.{n}", now=True)
    return {"one_mb_s": one, "all_mb_s": every, "more_bytes": after - before}


def rotation(bench, server, control, hours, kept=6):
    """100 files change each hour; the oldest of six snapshots goes.  ms until all that it held has gone, and of these
    what the writer was busy with it."""
    took, writer = [], []
    for hour in range(hours):
        server.load("create", path="/many", dir="r", prefix="r", first=hour * 100, count=100, conns=32)
        control("snapshot-create", name=f"many@h{hour}")
        if hour >= kept:
            start, busy = time.perf_counter(), server.counter("drop_ns")
            control("snapshot-delete", names=[f"many@h{hour - kept}"])
            control("settle")
            took.append((time.perf_counter() - start) * 1e3)
            writer.append((server.counter("drop_ns") - busy) / 1e6)
    edge = max(5, len(took) // 10)
    first, last = statistics.median(took[:edge]), statistics.median(took[-edge:])
    writer_first, writer_last = statistics.median(writer[:edge]), statistics.median(writer[-edge:])
    bench.note(f"rotating {kept} snapshots for {hours} hours: dropping the oldest takes {first:.1f} ms at the start, "
              f"{last:.1f} ms at the end (until the background is done), of these {writer_first:.2f} and {writer_last:.2f} "
              "ms of the writer")
    bench.goal("the writer's part of dropping the oldest at the end, of the start", writer_last / writer_first, 1.3, most=True)
    bench.goal("the writer's part of dropping the oldest: ms", writer_last, 5, most=True)
    return {"first_ms": first, "last_ms": last, "writer_first_ms": writer_first, "writer_last_ms": writer_last}


SNAPSHOTS_A_SECOND = 50


def beside(bench, server, control, count, rate=50000):
    """Reads from RAM at a steady rate, without and with snapshots being taken: p99.9 in us."""
    volume(control, "calm")
    server.load("read-seq", path="/calm", prepare=True, file_size="128M", size="1M", count=128, depth=8)
    reading = dict(path="/calm", file_size="128M", conns=4, depth=16, rate=rate, seconds=4, warmup=0.3)
    alone, with_them, taken = [], [], 0
    while taken < count:
        alone.append(server.load("read-rand", **reading)["p999_us"])
        load = server.load_start("read-rand", **reading)
        end = time.monotonic() + 4
        while time.monotonic() < end and taken < count:
            control("snapshot-create", name=f"calm@p{taken}")
            taken += 1
            time.sleep(1 / SNAPSHOTS_A_SECOND)
        with_them.append(server.load_finish(load)["p999_us"])
    was, now = statistics.median(alone), statistics.median(with_them)
    bench.note(f"p99.9 of {rate:,} READs a second from RAM: {was:.0f} us; while {taken:,} snapshots of the volume are taken, "
              f"{SNAPSHOTS_A_SECOND} a second: "
              f"{now:.0f} us")
    bench.goal("p99.9 of READs beside snapshots: ms more", (now - was) / 1e3, 10, most=True)
    return {"alone_us": was, "beside_us": now, "taken": taken}


def data_bytes(server):
    folder = os.path.join(server.pool, "data")
    return sum(os.stat(os.path.join(folder, name)).st_blocks for name in os.listdir(folder)) * 512


def dropping(bench, server, control, files, file_kib):
    """A snapshot that holds what the volume has rewritten since goes, beside reads from RAM."""
    volume(control, "old")
    options = dict(path="/old", dir="set", files=files, file_size=f"{file_kib}K")
    server.load("files", prepare=True, **options)
    control("snapshot-create", name="old@full")
    server.load("files", prepare=True, **options)  # every file anew
    server.load("read-rand", path="/data", file_size="256M", conns=4, depth=64, seconds=1)
    reading = dict(path="/data", file_size="256M", conns=4, depth=64, seconds=2, warmup=0.2)
    alone = [server.load("read-rand", **reading)["ops_per_s"] for _ in range(3)]
    full = data_bytes(server)
    control("snapshot-delete", names=["old@full"])
    beside = [server.load("read-rand", **reading)["ops_per_s"] for _ in range(3)]
    control("settle")
    back = full - data_bytes(server)
    alone += [server.load("read-rand", **reading)["ops_per_s"] for _ in range(2)]
    kept = statistics.median(beside) / statistics.median(alone)
    bench.note(f"dropping {files:,} changed files, {files * file_kib / 2**20:.1f} GiB: reads go on at {kept:.2f} of their rate; "
              f"{back / 2**30:.1f} GiB came back on disk")
    bench.goal("reads while a version is dropped: of their rate", kept, 0.9)
    bench.goal("space back on disk: of what it held", back / (files * file_kib * 1024), 0.9)
    return {"kept": kept, "back_bytes": back}


def versions(bench):
    need_load("files", "--prepare")
    small = bench.quick or not bench.full
    servers = bench.start(Sluice(bench, cache="2G"))
    server = servers[0]
    control = Control(server)
    bench.say("\n== Versions " + "=" * 52)
    result = {"making": making(bench, server, control, 20000 if small else 1000000)}
    result["diff"] = differences(bench, control, server, 20000 if small else 1000000)
    result["snapshots"] = many_snapshots(bench, server, control, 500 if small else 10000)
    result["shared"] = shared_data(bench, server, control, 20 if small else 100, 256 if small else 1024)
    result["beside"] = beside(bench, server, control, 100 if small else 1000)
    result["rotation"] = rotation(bench, server, control, 60 if small else 1000)
    result["dropping"] = dropping(bench, server, control, 5000 if small else 100000, 100)
    control.close()
    result["hot"] = hot_directory(bench, server, Control(server), 100 if small else 1000)
    bench.stop(servers)
    return [result]
