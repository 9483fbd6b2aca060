"""Rounds that go from one contestant to the next, medians of them, and the tables they are shown in."""
import os
import statistics

from servers import LoadFailed

OPERATIONS = ("op/s", "ops_per_s", "{:,.0f}")
MEGABYTES = ("MB/s", "mb_per_s", "{:,.0f}")
P50 = ("p50 us", "p50_us", "{:,.1f}")
P99 = ("p99 us", "p99_us", "{:,.1f}")
P999 = ("p99.9 us", "p999_us", "{:,.1f}")
CPU_OPERATION = ("server CPU us/op", "server_cpu_us_per_op", "{:.2f}")
CPU_GIGABYTE = ("server CPU s/GB", "server_cpu_s_per_gb", "{:.3f}")


class Table:
    """What a part found out: printed at once, kept for JSON, and rendered into docs/performance.md from there."""

    LABEL, CELL = 34, 13

    def __init__(self, bench, title, columns):
        self.bench, self.rows = bench, []
        bench.tables.append({"title": title, "columns": list(columns), "rows": self.rows})
        bench.say(f"\n== {title} " + "=" * max(2, 60 - len(title)))
        self.line("", columns)

    def line(self, label, cells):
        self.bench.say(f"  {label:<{self.LABEL}}" + "".join(f"{cell:>{self.CELL}}" for cell in cells))

    def section(self, text):
        """What the rows that follow are about."""
        self.rows.append([text])
        self.bench.say(f"\n{text}")

    def row(self, label, *cells):
        self.rows.append([label, *cells])
        self.line(label, cells)


def key_of(name):
    """A contestant's name as a key in JSON."""
    return name.lower().replace(" ", "_")


def median_result(results):
    """Each number of several runs by its median, and how far the rates were apart; None where there was no run."""
    if not results:
        return None
    merged = {
        key: statistics.median(r[key] for r in results) if isinstance(value, (int, float)) else value
        for key, value in results[0].items()
    }
    rates = [r["ops_per_s"] for r in results if "ops_per_s" in r]
    if rates:
        merged["rates"] = rates
    return merged


def interleaved(bench, runs, rounds=None):
    """Calls each of `runs` (a function by its name) in turn, round after round.  A run that fails is shown, and is
    missing in what comes back: a list of results for each name."""
    results = {name: [] for name in runs}
    for _ in range(rounds or bench.rounds):
        for name, run in runs.items():
            try:
                results[name].append(run())
            except LoadFailed as error:
                bench.fail(error)
    return results


def loads(bench, servers, op, **options):
    """The runs of one load against each of the servers, for interleaved()."""
    options = {"seconds": bench.seconds, "warmup": 0.3, "threads": bench.load_threads, **options}
    return {server.name: lambda server=server: server.load(op, **options) for server in servers}


def on_one_core(bench, servers, op, **options):
    """The same, but the server and its load share one core."""

    def run(server):
        everywhere = os.sched_getaffinity(0)
        one = {min(everywhere)}
        server.pin(one)
        os.sched_setaffinity(0, one)
        try:
            return server.load(op, **{"seconds": bench.seconds, "warmup": 0.3, **options})
        finally:
            os.sched_setaffinity(0, everywhere)
            server.pin(everywhere)

    return {server.name: lambda server=server: run(server) for server in servers}


def ratio(a, b, key):
    return a[key] / b[key] if a and b and a.get(key) and b.get(key) else None


def cell(result, key, pattern):
    return pattern.format(result[key]) if result and result.get(key) is not None else "-"


def number(value, pattern="{:.2f}"):
    return "-" if value is None else pattern.format(value)


def case(title, results):
    """The line of a case for JSON: the median of each contestant."""
    return {"case": title, **{key_of(name): median_result(runs) for name, runs in results.items()}}


def show_case(table, line, measures, columns, against, of="Sluice"):
    """A section with a row for each measure: a column for each contestant, then the ratios of one to others."""
    table.section(line["case"])
    found = [line.get(key_of(name)) for name in columns]
    for label, key, pattern in measures:
        if not any(r and r.get(key) for r in found):
            continue
        ratios = [number(ratio(line.get(key_of(of)), line.get(key_of(name)), key)) for name in against]
        table.row("  " + label, *[cell(r, key, pattern) for r in found], *ratios)


def machine_text(where):
    return (
        f"{where['cores']} cores of {where['cpu']}, {where['memory_gib']} GiB, "
        f"Linux {where['kernel']}, {where['file_system']}"
    )


def goal_text(goal):
    """Whether it is met, the figure, and what was asked for."""

    def figure(value):
        if value is None:
            return "-"
        return f"{value:,.0f}" if value >= 1000 else f"{value:,.3g}"

    verdict = {True: "met", False: "SHORT", None: "-"}[goal["met"]]
    return verdict, figure(goal["value"]), ("<= " if goal["most"] else ">= ") + figure(goal["limit"])
