#!/usr/bin/env python3
"""Writes the figures of the README from a run: readme.py RUNS.csv (make bench-readme makes the run first).

The table between the marks in README.md, readme.csv with the medians, and docs/bench.svg, which the environment of
install.sh plot draws. Times are medians of the runs; how many times faster is the median of the ratios of each run, with
their quartiles. Of the MPIs the fastest at each size counts.
"""
import csv
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import textwrap

import core
from results import Ratio, Results, figure, size_name

BEGIN, END = "<!-- make bench-readme writes this -->", "<!-- end of what it writes -->"
RIVALS = {"torch": ("gloo",), "core": core.RIVALS}
CASES = [("torch", 2, "torch, 2 ranks", "Gloo"), ("core", 2, "C, 2 ranks", "best MPI"),
         ("core", 4, "C, 4 ranks on 2 cores", "best MPI")]


def read(path):
    """Returns the results of a run, by its runs.csv."""
    results = Results()
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            results.add(row["level"], row["op"], int(row["ranks"]), int(row["bytes"]), row["library"], int(row["run"]),
                        float(row["micros"]))
    return results


def cells(results, level, ranks, size):
    """Returns the medians of the best rival and of goccl, and how many times faster goccl is."""
    rival = results.best(level, "all_reduce", ranks, size, RIVALS[level])
    row = results.of(level, "all_reduce", ranks, size)
    faster = Ratio.of([theirs / ours for theirs, ours in zip(row[rival], row["goccl"], strict=True)])
    return statistics.median(row[rival]), statistics.median(row["goccl"]), faster


def text(results, machine):
    """Returns what stands between the marks."""
    sizes = results.sizes("torch", "all_reduce", 2)
    lines = ["| size |" + "".join(f" {where}: {rival} | goccl | times faster |" for _, _, where, rival in CASES),
             "|---|" + "---|---|---|" * len(CASES)]
    for size in sizes:
        row = [cells(results, level, ranks, size) for level, ranks, *_ in CASES]
        lines.append(f"| {size_name(size)} |" + "".join(
            f" {figure(theirs)} | {figure(ours)} | {short(faster)} |" for theirs, ours, faster in row))
    runs = len(results.of("torch", "all_reduce", 2, sizes[0])["goccl"])
    head = (f"All-reduce of float32 on one host, µs, medians of {runs} runs; in brackets the quartiles of the runs' ratios. "
            f"All libraries take turns in each run. {machine}.")
    return f"{BEGIN}\n{textwrap.fill(head, 118)}\n\n" + "\n".join(lines) + f"\n{END}"


def short(ratio):
    def digits(value):
        return f"{value:.0f}" if value >= 10 else f"{value:.1f}"

    return f"{digits(ratio.median)} ({digits(ratio.low)}–{digits(ratio.high)})"


def machine():
    """Describes what was measured on."""
    model = next((line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
                 platform.machine())
    import torch

    return f"{model}, {len(os.sched_getaffinity(0))} cores; torch {torch.__version__.split('+')[0]}"


def main(runs):
    results = read(runs)
    readme = core.ROOT / "README.md"
    page = readme.read_text()
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        sys.exit(f"{readme} must have the line {BEGIN}, and once")
    made = text(results, machine())
    readme.write_text(re.sub(re.escape(BEGIN) + ".*" + re.escape(END), lambda _: made, page, flags=re.DOTALL))
    table = core.HERE / "readme.csv"
    with table.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["level", "op", "ranks", "bytes", "library", "median_us"])
        for level, ranks, *_ in CASES:
            for size in results.sizes(level, "all_reduce", ranks):
                theirs, ours, _ = cells(results, level, ranks, size)
                writer.writerow([level, "all_reduce", ranks, size, "gloo" if level == "torch" else "mpi", f"{theirs:.6g}"])
                writer.writerow([level, "all_reduce", ranks, size, "goccl", f"{ours:.6g}"])
    subprocess.run([core.BUILD / "env/plot/bin/python", core.HERE / "plot.py", table, core.ROOT / "docs/bench.svg"],
                   check=True, env={**os.environ, "MPLCONFIGDIR": str(core.BUILD)})
    print(made)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
