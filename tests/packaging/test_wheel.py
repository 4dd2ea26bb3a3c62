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


def test_holds_everything_that_runs_and_nothing_else(contents):
    names = contents.namelist()
    suffix = re.escape(sysconfig.get_config_var("EXT_SUFFIX"))
    needed = ("__init__\\.py", "py\\.typed", "_C\\.pyi", "libgoccl\\.so", "_C" + suffix, "bin/goccl")
    for pattern in needed:
        assert any(re.fullmatch("goccl/" + pattern, name) for name in names), f"no goccl/{pattern} in {names}"
    stray = [name for name in names if re.search(r"\.(go|cc|cpp|h|o|log)$|(^|/)(tests?|build|csrc)/", name)]
    assert not stray
    libraries = [name for name in names if name.endswith(".so")]
    assert len(libraries) == 2, libraries


def test_command_line_is_the_go_program(contents):
    assert contents.read("goccl/bin/goccl")[:4] == b"\x7fELF"


def test_command_line_is_installed_on_the_path(installed):
    command = installed / "bin" / "goccl"
    assert os.access(command, os.X_OK)
    done = subprocess.run([command, "--help"], env={**os.environ, "PYTHONPATH": str(installed)}, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert "bench" in done.stdout, done.stdout


def test_command_line_is_without_the_drill(installed):
    done = subprocess.run([installed / "goccl/bin/goccl", "drill"], timeout=60, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 1 and "go run ./cmd/goccl drill" in done.stdout, done.stdout
