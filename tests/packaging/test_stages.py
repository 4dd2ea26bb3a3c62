"""Tests ci/test.py (passes, warnings, failures) and ci/quick.py (which packages a change reaches)."""
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "ci"))

import quick  # noqa: E402
import results  # noqa: E402


@pytest.mark.parametrize("recipe, budget, code, row, summary", [
    ("true", 60, 0, r"0 0 0 \d+ \d.\d 60", ""),
    ("sleep 2.1", 2, 0, r"0 0 0 \d \d.\d 2 WARNING", r"WARNING: stage took \d s, its budget in ci/budget.txt is 2 s\n\n"),
    ("exit 3", 60, 1, r"0 1 0 \d+ \d.\d 60", r"stage: exit code 2\n\n"),
    ("sleep 60", 1, 1, r"0 1 0 \d \d.\d 1 WARNING", r"stage: hung, ended after \d s; its budget in ci/budget.txt is 1 s\n\n"),
])
def test_budget(tmp_path, recipe, budget, code, row, summary):
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci/budget.txt").write_text(f"area stage {budget}\n")
    (tmp_path / "ci/skips.txt").touch()
    (tmp_path / "Makefile").write_text(f"stage:\n\t@{recipe}\n")
    done = subprocess.run([sys.executable, ROOT / "ci/test.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True,
                          timeout=60, env={"PATH": "/usr/bin:/bin", "RECORDS": str(tmp_path / "records")})
    assert done.returncode == code, done.stdout
    assert re.search(rf"\narea +stage +{row.replace(' ', ' +')}\n\n{summary}\d.\d minutes\n0 passed, "
                     rf"{code} failed, 0 skipped\n$", done.stdout), done.stdout


@pytest.mark.parametrize("mark", ["waits", "beside"])
def test_marks(tmp_path, mark):
    """The stages after one with a mark do not wait for it, and its output comes whole; its failure counts."""
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci/budget.txt").write_text(f"a first 60\na slow 60 {mark}\na bad 60 {mark}\na last 60\n")
    (tmp_path / "ci/skips.txt").touch()
    (tmp_path / "Makefile").write_text("first:\n\t@test ! -e begun\nslow:\n\t@touch begun; while [ ! -e last ]; do "
                                       "sleep 0.1; done; echo slow ends\nbad:\n\t@exit 3\nlast:\n\t@touch last\n")
    done = subprocess.run([sys.executable, ROOT / "ci/test.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True,
                          timeout=60, env={"PATH": "/usr/bin:/bin", "RECORDS": str(tmp_path / "records")})
    assert done.returncode == 1 and "== slow, while others ran\nslow ends\n" in done.stdout, done.stdout
    rows = re.findall(r"^a +(\w+) +0 +(\d)", done.stdout, re.MULTILINE)
    assert rows == [("first", "0"), ("slow", "0"), ("bad", "1"), ("last", "0")], done.stdout


@pytest.mark.parametrize("reason, brief", [
    ("", ""),
    ("=== RUN TestX\n    x_test.go:9: \n\tError Trace:\tx_test.go:9\n\tError:      \t3  is not 4\n--- FAIL: TestX\n",
     ": Error: 3 is not 4"),
    ("def test():\n>   assert 3 == 4\nE       assert 3 == 4\n", ": E assert 3 == 4"),
    ("rank 1 has no error\n{}", ": rank 1 has no error"),
    ("x" * 1000, ": " + "x" * 300),
])
def test_brief(reason, brief):
    assert results.brief(reason) == brief


@pytest.mark.parametrize("path, reached, apart", [
    ("internal/humanize/size.go", ["internal/humanize", "ccl/tune", "ccl", "cmd/goccl"], ["ccl/plan", "ccl/exec/p2p"]),
    # The tests of ccl/verify import it.
    ("ccl/algo/all_reduce_ring.go", ["ccl/algo", "ccl/verify", "cmd/goccl"], ["internal/park", "transport/tcp"]),
    ("ccl/kernel/bench_test.go", ["ccl/kernel"], ["ccl/exec"]),
    ("ccl/plan/testdata/x", ["ccl/plan"], ["ccl/algo"]),
    ("docs/torch.md", ["cmd/goccl"], ["ccl"]),
    ("examples/launch.py", [], ["cmd/goccl"]),
])
def test_a_change_reaches_what_imports_it(path, reached, apart, monkeypatch):
    monkeypatch.chdir(ROOT)
    packages = {name.removeprefix("github.com/goccl/goccl/") for name in quick.reached([pathlib.Path(path)])}
    assert packages >= set(reached) and packages.isdisjoint(apart), packages
    assert reached or not packages
