"""Tests what pip gets: names, tags, requirements and files."""
import email
import os
import platform
import re
import subprocess
import sys
import sysconfig
import zipfile

import pytest
import torch
from conftest import ROOT


@pytest.fixture(scope="module")
def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        yield archive


def metadata(archive, name):
    (path,) = [each for each in archive.namelist() if each.endswith(f".dist-info/{name}")]
    return email.message_from_string(archive.read(path).decode())


def test_tags_are_of_this_interpreter_and_platform(wheel, contents):
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    expected = f"{tag}-{tag}-linux_{platform.machine()}"
    assert wheel.name.endswith(f"-{expected}.whl")
    head = metadata(contents, "WHEEL")
    assert head.get_all("Tag") == [expected]
    assert head["Root-Is-Purelib"] == "false"


def test_requires_the_torch_it_was_built_for(contents):
    """The vtables of c10d change with each minor release of torch: the shim would call wrong functions."""
    minor = ".".join(torch.__version__.split(".")[:2])
    requirements = metadata(contents, "METADATA").get_all("Requires-Dist", [])
    assert [each.replace(" ", "") for each in requirements if re.match(r"torch\b", each)] == [f"torch=={minor}.*"]


def test_describes_itself(contents):
    head = metadata(contents, "METADATA")
    assert head["Name"] == "goccl"
    minor = re.escape(".".join(torch.__version__.split(".")[:2]))
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|[ab]\d+|rc\d+)?\+torch" + minor, head["Version"])
    assert head["Requires-Python"] == ">=3.10"


def shim_folder(release):
    return "torch" + "_".join(release.split(".")[:2])


def test_holds_everything_that_runs_and_nothing_else(contents):
    names = contents.namelist()
    shim = f"goccl/{shim_folder(torch.__version__)}/_C{sysconfig.get_config_var('EXT_SUFFIX')}"
    for name in ("goccl/__init__.py", "goccl/py.typed", "goccl/_C.pyi", "goccl/libgoccl.so", shim):
        assert name in names
    # What GOCCL_BUILD=1 compiles for another torch.
    sources = {path.name for path in (ROOT / "python/csrc").glob("*.*")}
    assert {name.rpartition("/")[2] for name in names if "/csrc/" in name} == sources
    assert [name for name in names if "/exports/" in name] == ["goccl/exports/goccl.h"]
    stray = [name for name in names if re.search(r"\.(go|cc|o|log)$|(^|/)(tests?|build)/", name)]
    assert not stray
    libraries = {name for name in names if name.endswith(".so")}
    assert libraries == {"goccl/libgoccl.so", shim}


def test_page_of_the_index(contents):
    head = metadata(contents, "METADATA")
    assert head["License-Expression"] == "BSD-3-Clause" and len(head.get_all("Project-URL")) == 4
    text = head.get_payload()
    assert head["Description-Content-Type"] == "text/markdown" and "init_process_group" in text
    relative = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not re.match("https?:|#", link)]
    assert relative == []


def test_command_line_is_the_go_program(contents):
    (command,) = [name for name in contents.namelist() if name.endswith("/scripts/goccl")]
    assert contents.read(command)[:4] == b"\x7fELF"
    assert not [name for name in contents.namelist() if name.endswith("entry_points.txt")
                and b"console_scripts" in contents.read(name)]


def test_command_line_is_installed_on_the_path(installed):
    done = command(installed, "--help")
    assert done.returncode == 0 and "bench" in done.stdout, done.stdout


def test_command_line_starts_no_python(installed):
    """Neither in front of it nor by it: an empty PATH, and less processor than an interpreter needs to start."""
    before = os.times()
    done = command(installed, "version", env={})
    after = os.times()
    assert done.returncode == 0 and re.match(r"\d+\.\d+\.\d+", done.stdout), done.stdout
    assert after.children_user + after.children_system - before.children_user - before.children_system < 0.05


def test_command_line_of_the_module(installed):
    done = subprocess.run([sys.executable, "-m", "goccl", "version"], env={**os.environ, "PYTHONPATH": str(installed)},
                          timeout=60, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.stdout == command(installed, "version").stdout


def test_command_line_is_without_the_drill(installed):
    done = command(installed, "drill")
    assert done.returncode == 1 and "go run ./cmd/goccl drill" in done.stdout, done.stdout


def command(installed, *arguments, **settings):
    return subprocess.run([installed / "bin/goccl", *arguments], timeout=60, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, **settings)
