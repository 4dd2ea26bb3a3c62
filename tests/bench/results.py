"""The results of measurements: times by case, library and run; ratios of one run; tables and CSV."""
import csv
import dataclasses
import statistics

FIELDS = ["level", "op", "ranks", "bytes", "library", "run", "micros", "touch_us"]
SUMMARY = ["level", "op", "ranks", "bytes", "library", "median_us", "best_us", "goccl_over_it", "q1", "q3", "wrong",
           "touch_us"]
REWRITTEN = ", sources rewritten"  # ends the name of a level whose inputs are touched before each call


@dataclasses.dataclass(frozen=True)
class Ratio:
    """The median of the runs' values and the quartiles around it."""
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values):
        if len(values) < 2:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)

    def __str__(self):
        return f"{figure(self.median)} ({figure(self.low)}–{figure(self.high)})"


def figure(value):
    """Formats a value with three significant digits, without an exponent."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def size_name(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


class Results:
    def __init__(self):
        self.times = {}   # (level, op, ranks, bytes) → {library: [micros of each run]}
        self.touches = {}  # the same, of what was taken off for touching
        self.wrongs = {}  # (level, op, ranks, bytes, library) → number of wrong elements
        self.facts = {}   # name → [values], for facts without library and size: overlap, idle
        self.notes = []

    def add(self, level, op, ranks, size, library, run, micros, touch=0.0):
        runs = self.times.setdefault((level, op, ranks, size), {}).setdefault(library, [])
        assert len(runs) == run, f"run {run} of {library} after {len(runs)}"
        runs.append(micros)
        self.touches.setdefault((level, op, ranks, size), {}).setdefault(library, []).append(touch)

    def wrong(self, level, op, ranks, size, library, count):
        key = (level, op, ranks, size, library)
        self.wrongs[key] = self.wrongs.get(key, 0) + count

    def fact(self, name, value):
        self.facts.setdefault(name, []).append(value)

    def note(self, text):
        self.notes.append(text)

    def of(self, level, op, ranks, size):
        return self.times.get((level, op, ranks, size), {})

    def groups(self):
        """Returns (level, op, ranks) of all measured cases, sorted; with rewritten sources after without."""
        return sorted({case[:3] for case in self.times},
                      key=lambda case: (case[0].removesuffix(REWRITTEN), case[2], case[1], case[0]))

    def sizes(self, level, op, ranks):
        return sorted(size for (a, b, c, size) in self.times if (a, b, c) == (level, op, ranks))

    def ratio(self, level, op, ranks, size, above, below):
        """Returns above / below, run by run; None if one of them was not measured."""
        row = self.of(level, op, ranks, size)
        if above not in row or below not in row:
            return None
        return Ratio.of([a / b for a, b in zip(row[above], row[below])])

    def difference(self, level, ops, ranks, size, libraries):
        """Returns the microseconds between two columns, run by run."""
        rows = [self.of(level, op, ranks, size).get(library) for op, library in zip(ops, libraries)]
        return None if None in rows else Ratio.of([a - b for a, b in zip(*rows)])

    def best(self, level, op, ranks, size, among):
        """Returns the library with the lowest median."""
        row = {name: statistics.median(runs) for name, runs in self.of(level, op, ranks, size).items() if name in among}
        return min(row, key=row.get) if row else None

    def wrong_total(self):
        return sum(self.wrongs.values())

    def write_runs(self, path):
        with open(path, "w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(FIELDS)
            for case, row in sorted(self.times.items()):
                for library, runs in row.items():
                    writer.writerows([*case, library, run, f"{micros:.4f}", f"{touch:.4f}"] for run, (micros, touch)
                                     in enumerate(zip(runs, self.touches[case][library])))

    def write_summary(self, path):
        with open(path, "w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(SUMMARY)
            for case, row in sorted(self.times.items()):
                for library, runs in row.items():
                    ratio = self.ratio(*case, "goccl", library)
                    quartiles = [f"{ratio.median:.3f}", f"{ratio.low:.3f}", f"{ratio.high:.3f}"] if ratio else [""] * 3
                    writer.writerow([*case, library, f"{statistics.median(runs):.3f}", f"{min(runs):.3f}", *quartiles,
                                     self.wrongs.get((*case, library), ""),
                                     f"{statistics.median(self.touches[case][library]):.3f}"])


def table(results, level, op, ranks, rivals):
    """Returns one row for each size: medians in µs by library, goccl's ratio to the best rival and to the floor."""
    cases = {size: results.of(level, op, ranks, size) for size in results.sizes(level, op, ranks)}
    columns = list(dict.fromkeys(name for row in cases.values() for name in row))
    against = [("best rival", rivals)] + [(f"/ {name}", (name,)) for name in ("floor", "fake") if name in columns]
    rewritten = level.endswith(REWRITTEN)
    rows = [["size", *columns,
             *(f"goccl {title}" if title.startswith("/") else f"goccl / {title}" for title, _ in against),
             *(["touch taken off"] if rewritten else []), "#wrong"]]
    for size, row in cases.items():
        cells = [size_name(size)]
        cells += [figure(statistics.median(row[name])) if name in row else "-" for name in columns]
        for title, among in against:
            best = results.best(level, op, ranks, size, among)
            ratio = results.ratio(level, op, ranks, size, "goccl", best) if best else None
            cells.append("-" if ratio is None else f"{ratio} {best}" if title == "best rival" else str(ratio))
        if rewritten:
            touches = [statistics.median(runs) for runs in results.touches[level, op, ranks, size].values()]
            cells.append(f"{figure(min(touches))}–{figure(max(touches))}")
        wrong = [results.wrongs[level, op, ranks, size, name] for name in row
                 if (level, op, ranks, size, name) in results.wrongs]
        rows.append([*cells, str(sum(wrong)) if wrong else "-"])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths)))
             for row in rows]
    return [f"{level}: {op}, {ranks} ranks, µs (median of the runs), ratio with quartiles", *lines, ""]
