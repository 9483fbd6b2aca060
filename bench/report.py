#!/usr/bin/env python3
"""Puts what `make bench-full` found out into docs/: performance.json, the tables of performance.md between its
markers, and the plots.  Parts that were not measured again keep what is there."""
import argparse
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import measure  # noqa: E402
from run import read_json, write_json  # noqa: E402
from servers import BUILD  # noqa: E402

DOCS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs")
DEBIAN_PYTHON = "/usr/bin/python3"  # the one that Debian's python3-matplotlib is for
MARKED = re.compile(r"(<!-- bench: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def markdown_table(columns, rows):
    lines = ["| | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for row in rows:
        label, cells = row[0], row[1:]
        if not cells:
            label = f"**{label}**"
        cells = [*cells, *[""] * (len(columns) - len(cells))]
        lines.append(f"| {label.strip()} | " + " | ".join(cells) + " |")
    return lines


def part_text(part):
    """The tables of a part, and what its run had to say."""
    if not part:
        return ["Not measured yet."]
    lines = []
    for table in part["tables"]:
        lines += [f"{table['title']}:", "", *markdown_table(table["columns"], table["rows"]), ""]
    for note in part["notes"] + part["failures"]:
        lines += [f"({note})", ""]
    quick = ", short runs with less data" if part["quick"] else ""
    where = f", on {measure.machine_text(part['machine'])}" if part.get("machine") else ""
    lines.append(
        f"{part['date']}{where}, medians of {part['rounds']}, {part['seconds']:g} s each{quick}, "
        f"load average before {part['load_average_before']:.2f}."
    )
    return lines


def goals_text(results):
    """Everything that was asked for, with the figure."""
    rows = []
    for part in results["parts"].values():
        for goal in part["goals"]:
            verdict, value, limit = measure.goal_text(goal)
            rows.append([goal["goal"], value, limit, verdict if verdict != "SHORT" else "**SHORT**"])
    return markdown_table(("figure", "asked for", ""), rows)


def fill_in(text, results):
    """The page with what stands between its markers made anew."""

    def replace(match):
        name = match.group(2)
        if name == "machine":
            lines = [measure.machine_text(results["machine"]) + "."]
        elif name == "goals":
            lines = goals_text(results)
        else:
            lines = part_text(results["parts"].get(name))
        return match.group(1) + "\n".join(lines) + "\n" + match.group(3)

    return MARKED.sub(replace, text)


def merged(kept, new):
    """The parts of both, the new ones where there are two; in the order of a full run.  The page is of one machine: a
    few parts from another one say so."""
    parts = new["parts"]
    if not kept.get("parts") or set(kept["parts"]) <= set(parts):
        return new
    if kept["machine"] != new["machine"]:
        parts = {name: {**part, "machine": new["machine"]} for name, part in parts.items()}
    return {"machine": kept["machine"], "parts": {**kept["parts"], **parts}}


def draw(results):
    """The plots; by Debian's Python, if this one has no matplotlib."""
    try:
        import plots
    except ImportError:
        if sys.executable != DEBIAN_PYTHON and os.path.exists(DEBIAN_PYTHON):
            os.execv(DEBIAN_PYTHON, [DEBIAN_PYTHON, *sys.argv])
        print("no plots: matplotlib is not installed (Debian: python3-matplotlib)", file=sys.stderr)
        return
    for name in plots.draw(results["parts"], os.path.join(DOCS, "plots")):
        print(name)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("json", nargs="?", default=os.path.join(BUILD, "bench", "full.json"))
    options = parser.parse_args()
    new = read_json(options.json)
    if not new.get("parts"):
        sys.exit(f"nothing measured in {options.json}: make bench-full")
    json_name, page = (os.path.join(DOCS, f"performance.{end}") for end in ("json", "md"))
    results = merged(read_json(json_name), new)
    write_json(json_name, results)
    with open(page) as f:
        text = f.read()
    with open(page, "w") as f:
        f.write(fill_in(text, results))
    print(json_name, page, sep="\n")
    draw(results)


if __name__ == "__main__":
    main()
