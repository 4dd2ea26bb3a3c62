"""The bars: the ratios to its rivals that goccl aims at. One line for each bar, met or missed, with the figures.

A bar counts as met when the median of the runs' ratios meets it. It also counts as met when the median misses it but
the quartile on the good side does not: then the line says "within the runs' spread". Bars that were not measured are
named.
"""
import math

from core import RIVALS
from results import Ratio, figure, size_name

KIB, MIB = 1 << 10, 1 << 20
SIZES = [8, KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
OTHERS = ["all_gather", "reduce_scatter", "all_to_all", "broadcast", "ping_pong"]
TORCH_OTHERS = [*OTHERS, "scatter", "gather", "reduce"]


class Cell:
    """One figure and its limit."""

    def __init__(self, name, value, limit, at_least=False, strict=False):
        self.name, self.value, self.limit = name, value, limit
        if at_least:
            self.met, self.spread = value.median >= limit, value.high >= limit
        else:
            self.met = value.median < limit if strict else value.median <= limit
            self.spread = value.low < limit if strict else value.low <= limit

    def __str__(self):
        mark = "" if self.met else " (spread)" if self.spread else " MISSED"
        return f"{self.name} {figure(self.value.median)}{mark}"


def line(title, cells, absent=(), allowed=0):
    """Returns the verdict over the cells of a bar; `allowed` of them may miss."""
    missed = sum(not (cell.met or cell.spread) for cell in cells)
    near = any(cell.spread and not cell.met for cell in cells)
    if not cells:
        verdict = "not measured"
    elif missed > allowed:
        verdict = "MISSED"
    else:
        verdict = "met" + (", within the runs' spread" if near else "")
    text = f"{verdict:<13} {title}" + (": " + ", ".join(map(str, cells)) if cells else "")
    return text + (f"; not measured: {', '.join(map(size_name, absent))}" if absent and cells else "")


def against(results, title, level, op, ranks, among, limits, **how):
    """Compares goccl with the best of `among`, as a ratio of times, at the sizes of limits {size: limit}."""
    cells, absent = [], []
    for size, limit in limits.items():
        best = results.best(level, op, ranks, size, among)
        ratio = results.ratio(level, op, ranks, size, "goccl", best) if best else None
        if ratio is None:
            absent.append(size)
        else:
            cells.append(Cell(size_name(size), ratio, limit, strict=how.get("strict", False)))
    return line(title, cells, absent, how.get("allowed", 0))


def faster(results, title, op, ranks, among, limits):
    """Compares the best of `among` with goccl at torch level; the ratio must be at least the limit."""
    cells, absent = [], []
    for size, limit in limits.items():
        ratio = results.ratio("torch", op, ranks, size, among, "goccl")
        if ratio is None:
            absent.append(size)
        else:
            cells.append(Cell(size_name(size), ratio, limit, at_least=True))
    return line(title, cells, absent)


def geometric_mean(results, op, ranks, limit):
    """Compares the geometric mean of the ratios to the best MPI, run by run over all sizes, with the limit."""
    by_run = []
    for size in SIZES:
        best = results.best("core", op, ranks, size, RIVALS)
        row = results.of("core", op, ranks, size)
        if best and "goccl" in row:
            by_run.append([a / b for a, b in zip(row["goccl"], row[best])])
    title = f"core {op}, {ranks} ranks, geometric mean ≤ {limit} × the best MPI"
    if len(by_run) < 2:
        return line(title, [])
    means = [math.exp(sum(map(math.log, run)) / len(run)) for run in zip(*by_run)]
    return line(title, [Cell(f"{len(by_run)} sizes", Ratio.of(means), limit)])


def core(results):
    op = "all_reduce"
    large = [size for size in SIZES if size >= 16 * KIB]
    middle = [64 * KIB, 256 * KIB, MIB]
    yield against(results, "core all_reduce, 2 ranks, ≤ 3 × the floor below 16 KiB", "core", op, 2, ("floor",),
                  {8: 3, KIB: 3})
    yield against(results, "core all_reduce, 2 ranks, ≤ 1.25 × the floor from 16 KiB", "core", op, 2, ("floor",),
                  dict.fromkeys(large, 1.25))
    yield against(results, "core all_reduce, 2 ranks, < 1.0 × the best MPI at 64 KiB … 1 MiB", "core", op, 2, RIVALS,
                  dict.fromkeys(middle, 1.0), strict=True)
    yield against(results, "core all_reduce, 2 ranks, ≤ 0.8 × the best MPI at the other sizes", "core", op, 2, RIVALS,
                  {size: 0.8 for size in SIZES if size not in middle})
    for op, ranks in [("all_reduce", 4), *((other, 2) for other in OTHERS)]:
        where = f"core {op}, {ranks} ranks"
        yield against(results, f"{where}, ≤ 1.0 × the best MPI at 8 of 9 sizes", "core", op, ranks, RIVALS,
                      dict.fromkeys(SIZES, 1.0), allowed=1)
        yield against(results, f"{where}, no size above 1.2 ×", "core", op, ranks, RIVALS, dict.fromkeys(SIZES, 1.2))
        if op == "all_reduce":
            yield geometric_mean(results, op, ranks, 0.8)
    cells, absent = [], []
    for size, limit in {MIB: 1.6, 4 * MIB: 1.6, 16 * MIB: 1.8, 64 * MIB: 1.8}.items():
        ratio = results.ratio("core", "all_reduce", 2, size, "goccl", "goccl_bf16")
        if ratio is None:
            absent.append(size)
        else:
            cells.append(Cell(size_name(size), ratio, limit, at_least=True))
    yield line("core all_reduce, 2 ranks, bf16 ≥ 1.6 × faster than f32 of as many elements at 1 … 4 MiB, "
               "≥ 1.8 × from 16 MiB",
               cells, absent)


def torch(results):
    value = results.difference("torch", ("all_reduce", "all_reduce"), 2, 8, ("goccl", "fake"))
    yield line("torch all_reduce, 2 ranks, 8 B within 1.5 µs of the fake backend (µs above it)",
               [Cell("8 B", value, 1.5)] if value else [])
    yield faster(results, "torch all_reduce, 2 ranks, ≥ 15 × Gloo at 1 MiB, ≥ 4 × at 64 MiB", "all_reduce", 2, "gloo",
                 {MIB: 15, 64 * MIB: 4})
    yield faster(results, "torch all_reduce, 4 ranks, ≥ 100 × Gloo at 8 B, ≥ 4 × elsewhere", "all_reduce", 4, "gloo",
                 {8: 100, **{size: 4 for size in SIZES if size > 8}})
    for op in ("all_reduce_async", "burst"):
        cells, absent = [], []
        for size in [8, KIB, 16 * KIB, 64 * KIB]:
            value = results.difference("torch", (op, "all_reduce"), 2, size, ("goccl", "goccl"))
            if value is None:
                absent.append(size)
            else:
                cells.append(Cell(size_name(size), value, 1.0))
        yield line(f"torch {op}, 2 ranks, within 1 µs an operation of the synchronous call (µs above it)",
                   cells, absent)
    for op in TORCH_OTHERS:
        limits = {8: 20}
        if op != "ping_pong":
            limits[64 * MIB] = 2.5 if op == "broadcast" else 4
        large = f", ≥ {limits[64 * MIB]} × at 64 MiB" if len(limits) > 1 else ""
        yield faster(results, f"torch {op}, 2 ranks, ≥ 20 × Gloo at 8 B{large}", op, 2, "gloo", limits)
    fact = results.facts.get("overlap")
    yield line("torch, 2 ranks, matmul beside a 64 MiB all_reduce ≤ 1.10 × the sum of both alone",
               [Cell("both / sum", Ratio.of(fact), 1.1)] if fact else [])
    for level, name in (("core", "core_idle_cpu_percent"), ("torch (without Gloo's threads)", "idle_cpu_percent")):
        fact = results.facts.get(name)
        yield line(f"{level}, idle group, % CPU of a rank over 10 s ≤ 0.1",
                   [Cell("%", Ratio.of(fact), 0.1)] if fact else [])
    yield faster(results, "torch all_reduce, 8 ranks, faster than Gloo at every size", "all_reduce", 8, "gloo",
                 dict.fromkeys(SIZES, 1.0))


def lines(results):
    return [*core(results), *torch(results)]
