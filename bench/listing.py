"""A large directory listed by READDIRPLUS, in RAM."""
import os

import measure as m
from servers import Ganesha, Sluice, need_load

COLUMNS = ("Ganesha", "Sluice")
MEASURES = (
    ("entries/s", "entries_per_s", "{:,.0f}"),
    ("seconds a listing", "seconds_a_listing", "{:,.3f}"),
    ("server CPU us/entry", "server_cpu_us_per_entry", "{:,.2f}"),
)


def make_entries(server, count):
    """Empty files f.0 on: on Ganesha beneath it, where that is fast, and before it has seen the directory."""
    if server.kind == "Sluice":
        server.load("create", dir="many", prefix="f", count=count, conns=64, depth=4)
        return
    directory = os.path.join(server.path, "many")
    os.mkdir(directory)
    for number in range(count):
        os.close(os.open(os.path.join(directory, f"f.{number}"), os.O_CREAT | os.O_WRONLY, 0o644))


def list_once(server, count):
    r = server.load("readdirplus", dir="many", prefix="f", files=count, count=1)
    r["seconds_a_listing"] = r["seconds"] / max(1, r["ops"])
    r["server_cpu_us_per_entry"] = r["server_cpu_us_per_op"] / count
    return r


def listing(bench):
    need_load("readdirplus")
    count = 1000000 if bench.full and not bench.quick else 100000
    servers = bench.start(Ganesha(bench), Sluice(bench))
    for server in servers:
        make_entries(server, count)
        list_once(server, count)  # what follows is from RAM
    runs = {server.name: lambda server=server: list_once(server, count) for server in servers}
    # a listing by Ganesha takes half a minute
    line = m.case(f"READDIRPLUS of {count:,} entries", m.interleaved(bench, runs, min(bench.rounds, 3)))
    bench.stop(servers)
    table = m.Table(bench, "A directory listed, from RAM", (*COLUMNS, "/ Ganesha"))
    m.show_case(table, line, MEASURES, COLUMNS, ("Ganesha",))
    if line.get("sluice"):
        bench.goal(
            f"READDIRPLUS of {count:,} entries: times Ganesha",
            m.ratio(line["sluice"], line.get("ganesha"), "entries_per_s"),
            5,
        )
    return [line]
