#!/usr/bin/env python3
"""Draws what ./run bench --json has written, with gnuplot, as SVG.

  plot.py FILE FOLDER     FILE: a JSON object for each row, in a line of its own

In FOLDER: rows_UNIT.svg, each row beside raw libfabric, its floor and the peers; nodes.svg, threads.svg,
size.svg and dirty.svg, what a row costs by the number of nodes, by threads, by the size of the segment and
by the bytes that a barrier takes home. A picture that no row is for is not made. Prints the files.
Exit status 1 with the reason where FILE is no such file or gnuplot fails, 3 where there is no gnuplot.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

# Beside a row: where the figure is found.
PEERS = {"_floor": "floor", "_openmpi": "Open MPI", "_openmpi_ucx": "Open MPI, UCX", "_mpich": "MPICH",
         "_redis": "Redis", "_memcached": "memcached", "_mpi": "MPI"}
# Longest first: _openmpi_ucx ends no _openmpi.
PEER = re.compile("(" + "|".join(sorted(PEERS, key=len, reverse=True)) + ")$")
PLAIN = re.compile(r"[A-Za-z0-9_/%. ]+")  # nothing that gnuplot's quotes would end at
SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# Bytes that were stored to before the barrier, and for rates how many bytes the rate is of.
DIRTY = {"publish_1": 8, "flush_sparse": 8 * 1000, "flush_scattered": 8 * 1000, "flush_dense": 4096 * 1000}
COLOURS = ["#1f5a8c", "#c0632b", "#3f7f4f", "#8a4f93", "#8c8c8c", "#b59a30", "#4fa3a8", "#a83a4a"]


class Wrong(Exception):
    pass


def read_rows(path):
    """The rows by name, in their order; a later one of the same name replaces an earlier one."""
    rows = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            name, unit, value, raw = row["name"], row["unit"], row["value"], row["raw"]
            good = all(isinstance(text, str) and PLAIN.fullmatch(text) for text in (name, unit))
            good = good and isinstance(value, (int, float)) and (raw is None or isinstance(raw, (int, float)))
        except (ValueError, KeyError, TypeError):
            good = False
        if not good:
            raise Wrong(f"{path}:{number}: not a row of the bench")
        rows[name] = row
    if not rows:
        raise Wrong(f"{path}: there are no rows")
    return rows


def beside(rows):
    """Of each row that is no peer's: {"libcmi": value, "raw": value, peer: value}."""
    table = {}
    for name, row in rows.items():
        suffix = PEER.search(name)
        if suffix and name[: suffix.start()] in rows:
            continue
        values = {"libcmi": row["value"]}
        if row["raw"] is not None:
            values["raw libfabric"] = row["raw"]
        for ending, who in PEERS.items():
            if name + ending in rows:
                values[who] = rows[name + ending]["value"]
        table[name] = (row["unit"], values)
    return table



def bars(unit, rows):
    """Rows from top to bottom, a bar for each who that the row has."""
    whos = list(dict.fromkeys(who for values in rows.values() for who in values))
    least = min(v for values in rows.values() for v in values.values() if v > 0) / 2
    boxes = {who: [] for who in whos}
    ticks, y = [], 0  # downwards
    for name, values in rows.items():
        ticks.append(f"'{name}' {-(y + len(values) / 2):g}")
        for who, value in values.items():
            if value > 0:
                boxes[who].append(f"{least:g} {-y:g} {least:g} {value:g} {-(y + 1):g} {-y:g}")
            y += 1
        y += 1
    lines = [f"set output {quoted_path('rows_' + re.sub('[^A-Za-z0-9]', '_', unit) + '.svg')}",
             f"set terminal svg size 900,{130 + 14 * y} noenhanced background 'white'",
             f"set title 'Rows in {unit}, medians'", f"set xlabel '{unit}'", "set key outside top right",
             "set logscale x", "set grid xtics", "set style fill solid", f"set yrange [{-y}:1]",
             "set ytics (" + ", ".join(ticks) + ")", f"set xrange [{least:g}:*]"]
    plots = []
    for index, who in enumerate(whos):
        if boxes[who]:
            lines += [f"$d{index} << EOD"] + boxes[who] + ["EOD"]
            plots.append(f"$d{index} using 1:2:3:4:5:6 with boxxyerror lc rgb "
                         f"'{COLOURS[index % len(COLOURS)]}' title '{who}'")
    return lines + ["plot " + ", ".join(plots)]


def quoted_path(name):
    return "'" + name + "'"


def curves(name, title, xlabel, panels):
    """One picture; a panel for each unit: {unit: {label: [(x, y), ...]}}."""
    lines = [f"set output {quoted_path(name)}",
             f"set terminal svg size 900,{360 * len(panels)} noenhanced background 'white'",
             f"set multiplot layout {len(panels)},1 title '{title}'", "set key outside right", "set grid",
             "set logscale xy"]
    for panel, (unit, series) in enumerate(panels.items()):
        xs = sorted({x for points in series.values() for x, _ in points})
        lines += [f"set xlabel '{xlabel}'", f"set ylabel '{unit}'",
                  "set xtics (" + ", ".join(f"'{readable(x)}' {x:g}" for x in xs) + ")",
                  f"set xrange [{xs[0] / 1.3:g}:{xs[-1] * 1.3:g}]"]
        plots = []
        for index, (label, points) in enumerate(series.items()):
            data = f"$p{panel}_{index}"
            lines += [f"{data} << EOD"] + [f"{x:g} {y:g}" for x, y in sorted(points)] + ["EOD"]
            plots.append(f"{data} with linespoints lw 2 lc rgb '{COLOURS[index % len(COLOURS)]}' "
                         f"title '{label}'")
        lines.append("plot " + ", ".join(plots))
    return lines + ["unset multiplot"]


def readable(x):
    for letter in ("G", "M", "K"):
        if x >= SIZES[letter] and x % SIZES[letter] == 0:
            return f"{x // SIZES[letter]}{letter}"
    return f"{x:g}"


def add(panels, unit, label, x, y):
    if y is not None and y > 0:
        panels.setdefault(unit, {}).setdefault(label, []).append((x, y))


def with_raw(panels, row, label, x):
    add(panels, row["unit"], label, x, row["value"])
    add(panels, row["unit"], label + ", raw", x, row["raw"])


def by_nodes(rows):
    panels = {}
    for name, row in rows.items():
        found = re.fullmatch(r"(publish_shared|kv|crowd|scatter|ycsb_[a-z]|graph_[a-z]+)_(\d+)(_\w+)?", name)
        if not found or (found[3] or "").endswith("_floor"):
            continue
        with_raw(panels, row, found[1] + (found[3] or ""), int(found[2]))
    return panels


def by_threads(rows):
    panels = {}
    for name, row in rows.items():
        if found := re.fullmatch(r"threads_(\d+)", name):
            with_raw(panels, row, "absent pages", int(found[1]))
    return panels


def by_size(rows):
    panels = {}
    for name, row in rows.items():
        if found := re.fullmatch(r"(home_wmb_\d+|hot_store|home_idle)_(\d+)([KMG])(_(?!floor)\w+)?", name):
            with_raw(panels, row, found[1] + (found[4] or ""), int(found[2]) * SIZES[found[3]])
    return panels


def by_dirty(rows):
    panels = {}
    for name, size in DIRTY.items():
        if row := rows.get(name):
            for label, value in (("barrier", row["value"]), ("raw libfabric", row["raw"])):
                if value and row["unit"] == "MB/s":
                    value = size / value  # us
                add(panels, "us", label, size, value)
    # One of two rows of as many bytes is enough: the better one.
    for series in panels.values():
        for label, points in series.items():
            least = {}
            for x, y in points:
                least[x] = min(y, least.get(x, y))
            series[label] = list(least.items())
    return panels


def pictures(rows):
    by_unit = {}
    for name, (unit, values) in beside(rows).items():
        if any(v > 0 for v in values.values()):
            by_unit.setdefault(unit, {})[name] = values
    for unit, table in by_unit.items():
        yield bars(unit, table)
    for name, title, xlabel, panels in (
            ("nodes.svg", "Cost by the number of nodes", "nodes", by_nodes(rows)),
            ("threads.svg", "Cost by the number of threads", "threads of one importer", by_threads(rows)),
            ("size.svg", "Cost by the size of the segment", "bytes", by_size(rows)),
            ("dirty.svg", "Cost of a barrier by what was stored to", "bytes stored to", by_dirty(rows))):
        # One point is no curve.
        panels = {unit: series for unit, series in panels.items()
                  if len({x for points in series.values() for x, _ in points}) > 1}
        if panels:
            yield curves(name, title, xlabel, panels)


def main():
    if len(sys.argv) != 3:
        print("usage: plot.py FILE FOLDER", file=sys.stderr)
        return 2
    folder = Path(sys.argv[2])
    try:
        rows = read_rows(Path(sys.argv[1]))
        folder.mkdir(parents=True, exist_ok=True)
    except (Wrong, OSError, UnicodeDecodeError) as error:
        print(f"plot: {error}", file=sys.stderr)
        return 1
    if shutil.which("gnuplot") is None:
        print("plot: there is no gnuplot (apt-get install gnuplot-nox)", file=sys.stderr)
        return 3
    for lines in pictures(rows):
        ran = subprocess.run(["gnuplot"], input="\n".join(["reset"] + lines) + "\n", cwd=folder, text=True,
                             capture_output=True, check=False)
        if ran.returncode != 0:
            print("plot: gnuplot: " + ran.stderr.strip(), file=sys.stderr)
            return 1
        print(folder / lines[0].split("'")[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
