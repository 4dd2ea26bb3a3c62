"""plot.py SUMMARY.csv OUT.png (or .svg): plots time over size, log-log.

One panel for each level, operation and number of ranks, one line for each library; all have one range of times. An SVG has
colours for dark pages, too.
"""
import csv
import io
import re
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (must follow the choice of the renderer)

# Text stays text, and equal figures give equal files.
plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "goccl"})

COLORS = {"goccl": "#0b7a75", "goccl_bf16": "#59b8a5", "floor": "#888888", "fake": "#888888",
          "intelmpi": "#0068b5", "openmpi": "#d1495b", "mpich": "#edae49", "gloo": "#8d5a97", "mpi": "#d1495b"}
NAMES = {"intelmpi": "Intel MPI", "openmpi": "Open MPI", "mpich": "MPICH", "gloo": "Gloo", "mpi": "the best MPI",
         "goccl_bf16": "goccl, bf16", "fake": "torch's fake backend"}
LABELS = {8: "8 B", 1 << 10: "1 KiB", 16 << 10: "16 KiB", 64 << 10: "64 KiB", 256 << 10: "256 KiB",
          1 << 20: "1 MiB", 4 << 20: "4 MiB", 16 << 20: "16 MiB", 64 << 20: "64 MiB"}


# What an SVG has instead of the colours of the paper, by the colours here.
INKS = {"#000000": "ink", "#ffffff": "paper", "#dddddd": "grid", "#cccccc": "grid"}
STYLE = """<style>
:root { --ink: #222222; --paper: #ffffff; --grid: #dddddd; }
@media (prefers-color-scheme: dark) { :root { --ink: #d8d8d8; --paper: #14171c; --grid: #3a3f47; } }
</style>
"""


def micros(value, _position):
    return f"{value:g} µs" if value < 1000 else f"{value / 1000:g} ms" if value < 1e6 else f"{value / 1e6:g} s"


def save(figure, target, title, shorter=str, **metadata):
    """Writes a figure; an SVG has colours for dark pages, too, and shorter may change its text."""
    if not target.endswith(".svg"):
        figure.savefig(target, dpi=160)
        return
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Title": title, **metadata})
    text = re.sub("|".join(INKS), lambda m: f"var(--{INKS[m[0]]})", out.getvalue())
    # Text has no colour of its own where it is black.
    text = re.sub(r'(<svg [^>]*>)', r'\1' + STYLE + '<g fill="var(--ink)">', text, count=1)
    with open(target, "w") as file:
        file.write(shorter(text.replace("</svg>", "</g></svg>")))


def main(source, target):
    panels = {}
    with open(source, newline="") as file:
        for row in csv.DictReader(file):
            lines = panels.setdefault((row["level"], row["op"], int(row["ranks"])), {})
            lines.setdefault(row["library"], []).append((int(row["bytes"]), float(row["median_us"])))
    if not panels:
        sys.exit(f"{source} has no rows")
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    figure, axes = plt.subplots(down, across, figsize=(4.4 * across, 3.8 * down), squeeze=False, sharey=True,
                                layout="constrained")
    operations = sorted({op for _, op, _ in panels})
    figure.suptitle(f"{', '.join(operations)}: time by size, lower is better")
    for axis in axes.flat[len(panels):]:
        axis.set_visible(False)
    for axis, ((level, op, ranks), lines) in zip(axes.flat, panels.items()):
        for library, points in lines.items():
            points.sort()
            front = library == "goccl"
            style = "--" if library in ("floor", "fake", "goccl_bf16") else "-"
            axis.plot(*zip(*points), label=NAMES.get(library, library), color=COLORS.get(library),
                      marker="o", markersize=4, linewidth=2.4 if front else 1.5, linestyle=style,
                      zorder=3 if front else 2)
        sizes = sorted({size for points in lines.values() for size, _ in points})
        axis.set(xscale="log", yscale="log", xlabel="size of the vector", title=f"{op}, {ranks} ranks ({level})")
        axis.set_xticks(sizes, [LABELS.get(size, str(size)) for size in sizes], rotation=45, ha="right", fontsize=8)
        axis.minorticks_off()
        axis.yaxis.set_major_formatter(micros)
        axis.grid(True, which="major", color="#dddddd", linewidth=0.6)
        axis.legend(fontsize=8)
    save(figure, target, "goccl beside others: time by size")


if __name__ == "__main__":
    main(*sys.argv[1:])
