"""The benchmark itself works: goccl alone, tiny sizes. No test here checks speed."""
import csv
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import bars  # noqa: E402
import core  # noqa: E402
import guard  # noqa: E402
import predict  # noqa: E402
import readme  # noqa: E402
import results as measured  # noqa: E402
import torch_level  # noqa: E402


@pytest.mark.skipif(not shutil.which("cc") or not shutil.which("go"), reason="needs cc and go")
def test_core_level_of_goccl_alone(tmp_path):
    command = [sys.executable, HERE / "run.py", "--quick", "--level", "core", "--libraries", "goccl",
               "--sizes", "8,1001,4K",
               "--ops", "all_reduce,all_gather,reduce_scatter,all_to_all,broadcast,ping_pong",
               "--touch", "--runs", "2", "--block-ms", "1", "--out", tmp_path]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(tmp_path / "summary.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["level"] for row in rows} == {"core", "core, sources rewritten"}
    assert done.stdout.index("core: ping_pong") < done.stdout.index("core, sources rewritten: ping_pong")
    assert {row["op"] for row in rows} == {
        "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "ping_pong"}
    assert {row["library"] for row in rows} == {"goccl", "goccl_bf16"}
    assert len(rows) == 2 * 3 * 7
    assert all(row["wrong"] == "0" and float(row["median_us"]) > 0 for row in rows)
    touches = {(row["level"], row["bytes"]): float(row["touch_us"]) for row in rows}
    assert touches["core", "4096"] == 0 < touches["core, sources rewritten", "4096"]


def test_torch_level_with_touched_inputs(tmp_path):
    """Of each place of an input one operation: every rank's tensor, its part, and the root's tensor."""
    command = [sys.executable, HERE / "run.py", "--quick", "--level", "torch", "--backends", "goccl", "--sizes", "8,4K",
               "--torch-ops", "all_reduce,all_gather,scatter", "--touch", "--runs", "2", "--block-ms", "1",
               "--out", tmp_path]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(tmp_path / "runs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 3 * 2 * 2
    assert all((float(row["touch_us"]) > 0) == (row["level"] == "torch, sources rewritten") for row in rows)


class Answering(core.World):
    """A world of ranks that give these answers."""

    def __init__(self, answers):
        self.name, self.answers = "mpich", answers

    def ask(self, line, answer):
        return self.answers


def test_touches_on_one_processor_add_up(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    world = Answering([["9000", "1000"], ["8000", "3000"], ["9500", "1000"], ["9000", "500"]])
    assert world.touched_block("all_reduce", "f32", 8, 1, 1) == (9.5, 3.5)
    assert world.touched_block("ping_pong", "f32", 8, 1, 1) == (4.75, 1.75)


def test_a_program_that_cannot_touch_is_named():
    with pytest.raises(core.Failure, match="mpich.*install.sh"):
        Answering([["9000"], ["8000"]]).touched_block("all_reduce", "f32", 8, 1, 1)


def test_rewritten_sources_are_a_level_of_their_own(tmp_path):
    results = filled({"goccl": [5], "mpich": [10]})
    for library, micros, touch in (("goccl", 6, 1.5), ("mpich", 24, 1.25)):
        results.add("core, sources rewritten", "all_reduce", 2, 8, library, 0, micros, touch)
    assert results.groups() == [("core", "all_reduce", 2), ("core, sources rewritten", "all_reduce", 2)]
    head, row = measured.table(results, "core, sources rewritten", "all_reduce", 2, core.RIVALS)[1:3]
    assert re.split(r"  +", head)[-2:] == ["touch taken off", "#wrong"]
    assert re.split(r"  +", row)[1:5] == ["6.00", "24.0", "0.25 (0.25–0.25) mpich", "1.25–1.50"]
    assert "touch" not in measured.table(results, "core", "all_reduce", 2, core.RIVALS)[1]
    results.write_runs(tmp_path / "runs.csv")
    again = readme.read(tmp_path / "runs.csv")
    assert again.of("core", "all_reduce", 2, 8) == {"goccl": [5], "mpich": [10]}
    assert results.of("core, sources rewritten", "all_reduce", 2, 8) == {"goccl": [6], "mpich": [24]}


def filled(times):
    """Returns results of all_reduce on 2 ranks: {library: [micros]} at every size of the bars."""
    results = measured.Results()
    for size in bars.SIZES:
        for library, runs in times.items():
            for run, micros in enumerate(runs):
                results.add("core", "all_reduce", 2, size, library, run, micros)
    return results


@pytest.mark.parametrize("goccl, verdict", [([5, 5, 5], "met "), ([9, 9, 9], "MISSED"),
                                            ([7.9, 8.1, 8.2], "met, within the runs' spread")])
def test_a_bar_is_met_by_the_median_or_within_the_quartiles(goccl, verdict):
    lines = [line for line in bars.lines(filled({"goccl": goccl, "intelmpi": [10, 10, 10], "mpich": [20, 20, 20]}))
             if "≤ 0.8 ×" in line]
    assert lines[0].startswith(verdict), lines[0]


def test_what_was_not_measured_is_no_verdict():
    lines = bars.lines(filled({"goccl": [5, 5]}))
    assert all(line.startswith("not measured") for line in lines), lines


def test_every_operation_of_the_torch_level_has_a_bar():
    results = measured.Results()
    for op in torch_level.OPS:
        for size in bars.SIZES:
            for library in ("goccl", "gloo", "fake"):
                results.add("torch", op, 2, size, library, 0, 1.0)
    lines = bars.lines(results)
    for op in torch_level.OPS:
        assert any(line.split(maxsplit=1)[1].startswith(f"torch {op}, 2 ranks") for line in lines
                   if not line.startswith("not measured")), op


def test_ratio_is_paired_by_run():
    results = filled({"goccl": [1, 10, 100], "mpich": [2, 20, 200]})
    assert results.ratio("core", "all_reduce", 2, 8, "goccl", "mpich") == measured.Ratio(0.5, 0.5, 0.5)
    assert results.best("core", "all_reduce", 2, 8, ("mpich", "openmpi")) == "mpich"


class Guarded:
    """The options that guard.py takes from its command line."""
    base, limit, runs, seed, sizes = "abc", 1.15, 5, 1, (8, 1024, 16384)


def test_the_guard_measures_again_what_is_slow_and_reports_what_stays_so(monkeypatch, capsys):
    asked = []

    def measure(make, libraries, sites, ranks, cases, options, dice):
        asked.append(cases)
        slow = {("broadcast", 8): 1.5, ("ping_pong", 1024): 1.3 if len(asked) < 3 else 1.0}
        return {case: {"base": [2.0, 1.0, 3.0], "now": [2 * slow.get(case, 1.1), slow.get(case, 1.1), 9.0]}
                for case in cases}

    monkeypatch.setattr(guard, "measure", measure)
    assert guard.guard("core", None, {}, {}, 2, Guarded, None) == [("broadcast", 8)]
    assert [len(cases) for cases in asked] == [15, 2, 2]
    table = capsys.readouterr().out
    assert "| broadcast | 8 | 2 | 3 | 1.50 **above** |" in table and "| ping_pong | 1024 | 2 | 2 | 1.00 |" in table


def test_the_guard_wants_a_commit():
    with pytest.raises(core.Failure, match="no commit of this repository"):
        guard.prepare_base("no-such-commit")


@pytest.mark.skipif(not shutil.which("cc") or not shutil.which("go"), reason="needs cc and go")
def test_the_guard_measures_both_levels(tmp_path):
    """Compares this tree with itself."""
    options = type("", (), {"runs": 1, "blocks": 1, "block_ms": 1})
    library = core.build_libgoccl(), core.build_program("goccl")
    for make in (guard.core_worlds, guard.torch_worlds):
        found = guard.measure(make, dict.fromkeys(guard.SIDES, library), dict.fromkeys(guard.SIDES, ""), 3,
                              [("ping_pong", 8), ("all_reduce", 1024)], options, guard.random.Random(1))
        assert all(len(times[side]) == 1 and times[side][0] > 0 for times in found.values() for side in guard.SIDES)


def test_the_figures_of_the_readme_are_those_of_its_picture():
    """The table of README.md has a row for each size of readme.csv, and in it the figures, in its order."""
    drawn = {}
    with open(HERE / "readme.csv", newline="") as file:
        for row in csv.DictReader(file):
            drawn.setdefault(measured.size_name(int(row["bytes"])), []).append(measured.figure(float(row["median_us"])))
    table = re.search(f"{re.escape(readme.BEGIN)}(.*){re.escape(readme.END)}", (HERE.parents[1] / "README.md").read_text(),
                      re.DOTALL)[1]
    rows = {cells[0]: cells[1:] for cells in (
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "B |" in line)}
    ours = {size: [cell for i, cell in enumerate(cells) if i % 3 < 2] for size, cells in rows.items()}  # without the ratios
    assert ours == drawn
    assert list(drawn) == [measured.size_name(size) for size in bars.SIZES]


@pytest.mark.skipif(os.geteuid() != 0 or not all(map(shutil.which, ("go", "ip", "tc"))),
                    reason="needs root, go, ip and tc")
def test_hosts():
    command = [sys.executable, HERE / "hosts.py", "--only", "1ms,ipv6", "--ops", "all_reduce", "--sizes", "8,64K",
               "--runs", "2", "--block-ms", "1"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^ *(8 B|64 KiB) +([\d.,]+) +([\d.,]+) ", done.stdout, re.M)
    assert [row[0] for row in rows] == ["8 B", "64 KiB"], done.stdout
    assert all(float(value.replace(",", "")) > 500 for row in rows for value in row[1:]), "less than half a round trip"
    assert re.search(r"rank 1 joins, and sums, in \d+ ms\nmet", done.stdout), done.stdout


def test_rows_of_predictions_are_kept_in_a_short_form(tmp_path):
    """Rows are what was read when they are written again, and a block's ends and median are what stays of the blocks."""
    rows = [{"collective": "all_reduce", "algorithm": name, "ranks": ranks, "hosts": ranks, "cores": 2, "size": size, "calls": 7,
             "times_s": [3e-6, 1.23456e-6, 2e-6, 0.012345678, 1.5e-6], "predicted_s": 2.5e-6}
            for name in ("ring", "direct") for ranks in (4, 3) for size in (4096, 64)]
    kept = list(predict.short(rows))
    assert kept[0] == ["all_reduce", "ring", "4", "2", "4096", "7", "1.235", "2", "12350", "2.5"]
    predict.write(tmp_path / "host.csv", kept)
    assert (tmp_path / "host.csv").read_text().splitlines()[1:4] == [
        "all_reduce,direct,3,2,64,7,1.235,2,12350,2.5", ",,,,4096,7,1.235,2,12350,2.5",
        "all_reduce,direct,4,2,64,7,1.235,2,12350,2.5"]
    assert sorted(predict.read(tmp_path / "host.csv")) == sorted(kept)
    for name in predict.NETWORKS:
        path = predict.KEPT / f"{name}.csv"
        predict.write(tmp_path / path.name, predict.read(path))
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()
