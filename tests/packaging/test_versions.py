"""Tests TORCH=… and PYTHON_VERSION=… of the Makefile, the list of releases, and the messages of setup.py for an unknown torch.

Nothing is installed.
"""
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
RELEASES = [line.split()[0] for line in (ROOT / "ci/torch.txt").read_text().splitlines()
            if line and not line.startswith("#")]


def script(name, monkeypatch):
    """Returns a program of ci/ as a module."""
    monkeypatch.syspath_prepend(ROOT / "ci")
    spec = importlib.util.spec_from_file_location("ci_" + name, ROOT / f"ci/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def environment(torch):
    """Returns exit code, output and messages of a script that reads ci/env.sh with TORCH set."""
    settings = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "PYTHON_VERSION")}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", '. ci/env.sh; echo "$TORCH $VENV $RECORDS"'], cwd=ROOT,
                          text=True, capture_output=True, timeout=60, env={**settings, "TORCH": torch})
    return done.returncode, done.stdout.strip(), done.stderr


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_has_an_environment_of_its_own(release):
    expected = f"{release} {ROOT}/.venv-torch{release} {ROOT}/build/torch-{release}/test"
    assert environment(release) == (0, expected, "")
    assert environment(release.rpartition(".")[0]) == (0, expected, "")  # 2.12 means the release that is tested


def test_another_patch_release_is_itself():
    patch = RELEASES[0].rpartition(".")[0] + ".7"
    assert environment(patch)[1].startswith(f"{patch} {ROOT}/.venv-torch{patch} ")


def test_an_activated_environment_is_not_made_with_its_own_python():
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", '. ci/env.sh; echo "$OUTER_PATH"'], cwd=ROOT, text=True,
                          timeout=60, stdout=subprocess.PIPE, env={"PATH": f"{ROOT}/.venv/bin:/usr/bin:/bin"})
    assert done.stdout == "/usr/bin:/bin\n"


@pytest.mark.parametrize("torch", ["2.10.0", "2.99.0", "3.0.0", "2", "2.1", "newest", "2.13.0+cpu", "2.13.0.1",
                                   "2x13", "../x"])
def test_others_are_refused_and_the_supported_ones_named(torch):
    code, said, message = environment(torch)
    assert (code, said) == (2, "")
    assert message.startswith(f"TORCH={torch}: ") and all(release in message for release in RELEASES), message


def set_up_with(torch, folder):
    """Runs setup.py in a tree with nothing else, beside a torch of this version, or beside none."""
    (folder / "python/goccl").mkdir(parents=True)
    for name in ("setup.py", "README.md", "python/goccl/VERSION", "python/goccl/_version.py", "python/goccl/_compile.py"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "stub/torch").mkdir(parents=True)
    if torch:
        (folder / "stub/torch/__init__.py").write_text("raise ImportError('nobody has to import it')\n")
        (folder / "stub/torch/version.py").write_text(f"__version__ = {torch!r}\n")
    else:  # nothing that is torch, and before that which is
        (folder / "stub/torch/__init__.py").touch()
    return subprocess.run([sys.executable, "setup.py", "--version"], cwd=folder, text=True, capture_output=True,
                          timeout=60, env={**os.environ, "PYTHONPATH": str(folder / "stub")})


def test_a_source_distribution_is_for_each_torch(tmp_path):
    done = set_up_with(None, tmp_path)
    assert done.returncode == 0 and "+" not in done.stdout.strip().splitlines()[-1], done.stdout + done.stderr


def test_an_older_torch_is_refused(tmp_path):
    done = set_up_with("2.10.3+cpu", tmp_path)
    assert done.returncode == 1
    assert "it needs torch 2.11 to 2.15; found 2.10.3+cpu" in done.stderr and "pip install" in done.stderr, done.stderr


def test_a_newer_torch_is_built_for_with_a_warning(tmp_path):
    done = set_up_with("2.99.1+cu140", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("+torch2.99")
    assert "torch 2.99.1+cu140 is newer" in done.stderr, done.stderr


@pytest.mark.parametrize("release", RELEASES)
def test_a_supported_torch_is_built_for_without_a_warning(release, tmp_path):
    done = set_up_with(release, tmp_path)
    assert done.returncode == 0 and "newer" not in done.stderr, done.stderr


def test_the_lists_agree(monkeypatch):
    setup = (ROOT / "setup.py").read_text()
    (bounds,) = re.findall(r"^OLDEST_TORCH, NEWEST_TORCH = \(2, (\d+)\), \(2, (\d+)\)", setup, re.MULTILINE)
    minors = [int(release.split(".")[1]) for release in RELEASES]
    assert minors == list(range(int(bounds[0]), int(bounds[1]) + 1))
    versions = script("versions", monkeypatch)
    assert versions.releases((ROOT / "ci/torch.txt").read_text(), []) == RELEASES
    assert versions.releases((ROOT / "ci/torch.txt").read_text(), [RELEASES[1].rpartition(".")[0]]) == [RELEASES[1]]


def test_the_table_keeps_rows_that_were_not_run(monkeypatch):
    versions = script("versions", monkeypatch)
    torch = versions.Kind("torch")
    first = versions.row_of("2.12.1", True,
                            "1 passed, 0 failed, 0 skipped\nmore\n7 passed, 0 failed, 2 skipped\n", 61.7)
    assert first == ("2.12.1", "yes", "7", "0", "2", "62")
    broken = versions.row_of("2.9.0", False, "no such package", 3)
    assert broken == ("2.9.0", "no", "0", "0", "0", "3")
    readme = versions.merged(torch, f"a\n{torch.begin}\n{versions.END}\nb\n", [first, broken])
    assert readme.startswith("a\n") and readme.endswith("\nb\n")
    assert readme.index("| 2.9.0 | no |") < readme.index("| 2.12.1 | yes | 7 | 0 | 2 | 62 |")
    again = versions.merged(torch, readme, [("2.12.2", "yes", "8", "0", "0", "50")])
    assert "2.12.1" not in again and "| 2.12.2 | yes | 8 |" in again and "| 2.9.0 | no |" in again
    with pytest.raises(SystemExit, match="must have the line"):
        versions.merged(torch, "nothing", [first])


def test_the_tables_of_the_page_are_apart(monkeypatch):
    """Each is written between its own lines, and leaves the other's rows alone."""
    versions = script("versions", monkeypatch)
    readme = (ROOT / "docs/versions.md").read_text()
    row = ("3.11", "yes", "8", "0", "0", "50")
    for kind, version in ((versions.Kind("torch"), "2.15.7"), (versions.Kind("python"), "3.11")):
        again = versions.merged(kind, readme, [(version, *row[1:])])
        changed = [line for line in again.splitlines() if line not in readme.splitlines()]
        assert changed == [f"| {version} | yes | 8 | 0 | 0 | 50 |"]
        assert again.count(versions.END) == readme.count(versions.END) == 2


def test_a_python_of_ones_own(monkeypatch, tmp_path, capsys):
    """PYTHON_VERSION means a python of PATH that works, or pyenv's, and never that of an environment here."""
    (tmp_path / "shims").mkdir()
    (tmp_path / "shims/python3.99").write_text("#!/bin/sh\necho not installed >&2; exit 127\n")
    home = tmp_path / "pyenv/versions/3.99.1/bin"
    home.mkdir(parents=True)
    (home / "python3.99").write_text("#!/bin/sh\necho /somewhere/python3.99\n")
    for each in (tmp_path / "shims/python3.99", home / "python3.99"):
        each.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/shims:{ROOT}/.venv/bin:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    for name in ("OUTER_PATH", "TORCH", "PYTHON"):
        monkeypatch.delenv(name, raising=False)

    def environment_of(version):
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", '. ci/env.sh; echo "$PYTHON $VENV $RECORDS"'], cwd=ROOT,
                              text=True, capture_output=True, timeout=60, env={**os.environ, "PYTHON_VERSION": version})
        return done.returncode, done.stdout.strip(), done.stderr

    assert environment_of("3.99") == (0, f"/somewhere/python3.99 {ROOT}/.venv-py3.99 {ROOT}/build/py3.99/test", "")
    for wrong in ("3.98", "3", "3.99.1", "python3.99", "../x"):
        code, said, message = environment_of(wrong)
        assert (code, said) == (2, "") and message.startswith(f"PYTHON_VERSION={wrong}: this machine has no"), message
    monkeypatch.chdir(ROOT)
    assert script("versions", monkeypatch).Kind("python").versions(["3.98", "3.99"]) == ["3.99"]
    assert "left out: PYTHON_VERSION=3.98" in capsys.readouterr().out


def test_skips_are_allowed_for_some_releases_only(monkeypatch):
    test = script("test", monkeypatch)
    lines = [["a.Test/one", "two"], ["b::t[x<y]", "torch<2.14"], ["c", "torch>=2.15"]]
    assert test.allowed_skips(lines, "2.13.0+cu130") == {"a.Test/one two", "b::t[x<y]"}
    assert test.allowed_skips(lines, "2.14.1") == {"a.Test/one two"}
    assert test.allowed_skips(lines, "2.15.0") == {"a.Test/one two", "c"}


def test_a_torch_of_ones_own_runs_what_depends_on_it(monkeypatch):
    test = script("test", monkeypatch)
    stages = test.table(ROOT / "ci/budget.txt")
    assert len(test.chosen(stages, [], None)) == len(test.chosen(stages, ["all"], "2.12.1")) == len(stages)
    targets = [stage.target for stage in test.chosen(stages, [], "2.12.1")]
    assert {"test-python", "test-packaging"} <= set(targets) and "test-race" not in targets
    (race,) = test.chosen(stages, ["test-race"], "2.12.1")
    assert race.target == "test-race" and [race.limit] == [3 * int(words[2]) for words in stages if words[1] == "test-race"]
    with pytest.raises(SystemExit, match="no stage nonsense"):
        test.chosen(stages, ["nonsense"], None)
