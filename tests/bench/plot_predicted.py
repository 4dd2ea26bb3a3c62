"""plot_predicted.py FOLDER DOCS MARK NETWORK…: draws predictions beside measurements, for predict.py.

predicted.svg has a panel for each network: predicted over measured times. predicted-all-reduce.svg has one for each
algorithm of all_reduce on four ranks: time over size, predicted as a line and measured as dots.
"""
import csv
import pathlib
import re
import sys

from plot import LABELS, plt, micros, save

plt.rcParams["path.simplify"] = False  # which drops dots

TITLES = {"1gbit": "1 Gbit/s", "100mbit": "100 Mbit/s", "5ms": "1 Gbit/s, 5 ms", "host": "one host"}
RANKS = {3: "#12a39a", 4: "#e08a2a", 6: "#d5578f"}
COLORS = {"1gbit": "#3b8ade", "100mbit": "#e08a2a", "5ms": "#a76bcf", "host": "#12a39a"}
WIDE = 0.25  # the band of the bar


def rows(folder, names):
    for name in names:
        with open(folder / f"{name}.csv", newline="") as file:
            for row in csv.DictReader(file):
                yield name, row["collective"], row["algorithm"], int(row["ranks"]), int(row["bytes"]), \
                    float(row["median_us"]), float(row["predicted_us"])


def dots(axis, x, y, **style):
    """Draws points as one path, which is a tenth as long as points of their own."""
    nothing = float("nan")
    axis.plot([at for value in x for at in (value, value, nothing)],
              [at for value in y for at in (value, value, nothing)], linestyle="-", solid_capstyle="round", **style)


def shorter(text):
    """Leaves one digit behind the points of an SVG's paths, and says in fewer words what dots are."""
    text = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d)\d+", r"\1", path[0]), text)
    return re.sub(r"M (\S+) (\S+) \nL \1 \2 ", r"M\1 \2h0", text)


def log_axes(axis, **words):
    axis.set(xscale="log", yscale="log", **words)
    axis.minorticks_off()
    axis.grid(True, which="major", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)


def predicted(all_rows, names, target, mark):
    across = min(2, len(names))
    down = -(-len(names) // across)
    figure, axes = plt.subplots(down, across, figsize=(4.6 * across, 4.2 * down), squeeze=False, layout="constrained")
    figure.suptitle("Calls of all algorithms: predicted over measured")
    for axis in axes.flat[len(names):]:
        axis.set_visible(False)
    for axis, name in zip(axes.flat, names):
        points = [row for row in all_rows if row[0] == name]
        ends = [bound(time for row in points for time in row[5:7]) for bound in (min, max)]
        ends = [ends[0] / 1.5, ends[1] * 1.5]
        axis.fill_between(ends, [end * (1 - WIDE) for end in ends], [end * (1 + WIDE) for end in ends], color="#888888",
                          alpha=0.25, linewidth=0, label="within 25 %")
        axis.plot(ends, ends, color="#888888", linewidth=0.8)
        for ranks in sorted({row[3] for row in points}):
            some = [row for row in points if row[3] == ranks]
            dots(axis, [row[5] for row in some], [row[6] for row in some], color=RANKS.get(ranks), linewidth=3,
                 alpha=0.85, label=f"{ranks} ranks")
        log_axes(axis, title=TITLES[name], xlabel="measured", ylabel="predicted", xlim=ends, ylim=ends, aspect="equal")
        for scale in (axis.xaxis, axis.yaxis):
            scale.set_major_formatter(micros)
        axis.tick_params(labelsize=8)
        axis.legend(fontsize=8, loc="upper left")
    save(figure, str(target), "goccl: predicted over measured times", shorter, Description=mark)


def by_size(all_rows, names, target, mark, coll="all_reduce", ranks=4):
    some = [row for row in all_rows if row[1] == coll and row[3] == ranks]
    algorithms = sorted({row[2] for row in some})
    if not algorithms:
        return
    across = min(6, len(algorithms))
    down = -(-len(algorithms) // across)
    figure, axes = plt.subplots(down, across, figsize=(2.1 * across, 2.4 * down + 0.9), squeeze=False, sharex=True,
                                sharey=True, layout="constrained")
    figure.suptitle(f"{coll} on {ranks} ranks: time by size, predicted (lines) and measured (dots)")
    for axis in axes.flat[len(algorithms):]:
        axis.set_visible(False)
    sizes = sorted({row[4] for row in some})
    for axis, algorithm in zip(axes.flat, algorithms):
        for name in names:
            points = sorted(row[4:] for row in some if row[0] == name and row[2] == algorithm)
            if points:
                axis.plot([row[0] for row in points], [row[2] for row in points], color=COLORS[name], linewidth=1.2)
                dots(axis, [row[0] for row in points], [row[1] for row in points], color=COLORS[name], linewidth=4.5,
                     label=TITLES[name])
        log_axes(axis)
        axis.set_title(algorithm, fontsize=9)
        axis.set_xticks(sizes[::2], [LABELS.get(size, f"{size} B") for size in sizes[::2]], rotation=45, ha="right")
        axis.yaxis.set_major_formatter(micros)
        axis.tick_params(labelsize=7)
    for axis in axes.flat[max(len(algorithms) - across, 0):len(algorithms)]:
        axis.tick_params(labelbottom=True)  # also where there is none below
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=9)
    save(figure, str(target), f"goccl: {coll} by size, predicted and measured", shorter, Description=mark)


def main(folder, docs, mark, *names):
    all_rows = list(rows(pathlib.Path(folder), names))
    predicted(all_rows, names, pathlib.Path(docs) / "predicted.svg", mark)
    by_size(all_rows, names, pathlib.Path(docs) / "predicted-all-reduce.svg", mark)


if __name__ == "__main__":
    main(*sys.argv[1:])
