"""The plots of docs/performance.md, as SVG with text as text."""
import os

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

COLOURS = {"Floor": "#888888", "fio": "#888888", "Ganesha": "#c46a1b", "Sluice": "#1b6ac4"}
POLICY_COLOURS = {"epoch": "#1b6ac4", "auto": "#2a9d4e", "lru": "#c46a1b"}
SAME_EVERY_TIME = {"svg.fonttype": "none", "svg.hashsalt": "sluice", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}


ABOVE = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 4, "frameon": False}


def found(line, name):
    return line.get(name.lower()) or {}


def in_line(part, key, value):
    """The line of a part in which `key` has this value."""
    return next((line for line in part["lines"] if line.get(key) == value), {})


def curve(part, figure):
    """Rates against calls in flight, and latency against the rate that it buys."""
    rate, latency = figure.subplots(1, 2)
    for name in ("Floor", "Ganesha", "Sluice"):
        for conns, style in ((1, ":"), (4, "-"), (16, "--")):
            lines = [line for line in part["lines"] if line["conns"] == conns and found(line, name)]
            label = f"{name}, {conns} connection{'s' if conns > 1 else ''}"
            rates = [found(line, name)["ops_per_s"] for line in lines]
            options = {"linestyle": style, "color": COLOURS[name], "marker": ".", "label": label}
            rate.plot([conns * line["depth"] for line in lines], rates, **options)
            latency.plot(rates, [found(line, name)["p50_us"] for line in lines], **options)
    rate.set(xscale="log", yscale="log", xlabel="calls in flight", ylabel="4 KiB READ/s")
    latency.set(xscale="log", yscale="log", xlabel="4 KiB READ/s", ylabel="p50, us")
    rate.set_xticks([1, 4, 16, 64, 256, 1024], ["1", "4", "16", "64", "256", "1,024"])
    latency.legend(fontsize=6)


def bars(axes, groups, names, pattern):
    """Bars side by side: for each group a value of each name, written above."""
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        places = [group + (number - (len(names) - 1) / 2) * width for group in range(len(groups))]
        values = [values.get(name) or 0 for _, values in groups]
        drawn = axes.bar(places, values, width, color=COLOURS[name], label=name)
        axes.bar_label(drawn, [pattern.format(v) if v else "" for v in values], fontsize=6)
    axes.set_xticks(range(len(groups)), [label for label, _ in groups])
    axes.grid(axis="x", visible=False)
    axes.legend(**ABOVE)


def cpu(part, figure):
    """What an operation costs the server."""
    axes = figure.subplots()
    names = ("Floor", "Ganesha", "Sluice")
    groups = []
    for case, label in (("read4k", "4 KiB READ"), ("getattr", "GETATTR"), ("lookup", "LOOKUP")):
        line = in_line(part, "name", case)
        groups.append((label, {name: found(line, name).get("server_cpu_us_per_op") for name in names}))
    bars(axes, groups, names, "{:.2f}")
    axes.set(yscale="log", ylabel="server CPU, us an operation")


def cold(part, figure):
    """Reads that RAM does not hold, as shares of fio's."""
    axes = figure.subplots()
    names = ("fio", "Ganesha", "Sluice")
    groups = []
    for line in part["lines"]:
        if not line.get("fio"):
            continue
        key = "ops_per_s" if line["case"].startswith("random") else "mb_per_s"
        shares = {name: found(line, name).get(key, 0) / line["fio"][key] for name in names}
        groups.append((line["case"].replace(", ", ",\n"), shares))
    bars(axes, groups, names, "{:.2f}")
    axes.set(ylabel="of fio's")


def epochs(part, figure):
    """Hits in each epoch, by policy."""
    axes = figure.subplots()
    for line in part["lines"]:
        numbers = range(1, len(line["hit_rates"]) + 1)
        policy = line["policy"]
        axes.plot(numbers, line["hit_rates"], marker="o", color=POLICY_COLOURS[policy], label=f"cache={policy}")
    share = part["lines"][0]["share"]
    axes.axhline(share, color="#888888", linestyle="--", label=f"cache / data = {share:g}")
    axes.set(xlabel="epoch", ylabel="share of blocks found in RAM", ylim=(0, 1))
    axes.legend(**ABOVE)


def patterns(part, figure):
    """How much faster than Ganesha, and at which part of its CPU."""
    axes = figure.subplots()
    lines = [line for line in part["lines"] if line.get("ganesha") and line.get("sluice")]
    for offset, key, label, colour in (
        (-0.2, "ops_per_s", "rate", COLOURS["Sluice"]),
        (0.2, "server_cpu_us_per_op", "server CPU", COLOURS["Ganesha"]),
    ):
        values = [line["sluice"][key] / line["ganesha"][key] for line in lines]
        drawn = axes.bar([n + offset for n in range(len(lines))], values, 0.4, color=colour, label=label)
        axes.bar_label(drawn, [f"{value:.2f}" for value in values], fontsize=6)
    axes.axhline(1, color="#888888", linestyle="--")
    axes.set_xticks(range(len(lines)), [line["name"] for line in lines])
    axes.grid(axis="x", visible=False)
    axes.set(ylabel="Sluice, times Ganesha's")
    axes.legend(**ABOVE)


PLOTS = {
    # file: the part it shows, its function, inches
    "curve": ("curve", curve, (9, 4)),
    "cpu": ("ram", cpu, (6, 3.5)),
    "cold": ("cold", cold, (6, 3.5)),
    "epochs": ("epochs", epochs, (6, 3.5)),
    "patterns": ("patterns", patterns, (7, 3.5)),
}


def draw(parts, directory):
    """Draws what was measured; the names of the files."""
    os.makedirs(directory, exist_ok=True)
    written = []
    for name, (part, function, inches) in PLOTS.items():
        if not parts.get(part, {}).get("lines"):
            continue
        with plt.rc_context(SAME_EVERY_TIME):
            figure = plt.figure(figsize=inches, layout="constrained")
            function(parts[part], figure)
            written.append(os.path.join(directory, name + ".svg"))
            figure.savefig(written[-1], metadata={"Date": None})
            plt.close(figure)
    return written
